"""Knows how to serve advice from a process of its own: the daemon's board, routes and listener, without probes.

    python -m bench.advice_server FOLDER

serves on FOLDER/penstock.sock the prior advice for an m7i.large, or, if FOLDER/observations.json exists, advice from
what was measured there: a list of `Upload`. It prints a line when it is ready. For each line on standard input it
publishes anew, and prints when it began.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import uvloop

from penstock.api.listener import ConnectionLimits, open_socket, serving
from penstock.api.routes import Api
from penstock.api.wire import Question, Snapshot
from penstock.clock import SystemClock
from penstock.daemon.board import Board
from penstock.models.s3.upload import S3UploadSetting
from penstock.operations.table import OPERATIONS
from penstock.vocabulary import Context, Observation, Place, Recommendation, Setting

_HOME = Place(operation="", region="eu-west-1", instance_type="m7i.large")


@contextlib.contextmanager
def advice_server(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The process, once it is ready."""
    command = [sys.executable, "-m", "bench.advice_server", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            if cast("IO[str]", process.stdout).readline() != "ready\n":
                raise RuntimeError("the server did not start; its message is above")
            yield process
        finally:
            process.terminate()


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """One measured upload."""

    thread_count: int
    part_size_bytes: int
    object_size_bytes: int
    duration_seconds: float

    def observation(self) -> Observation[S3UploadSetting]:
        """The upload as the model's observation."""
        place = dataclasses.replace(_HOME, operation="s3_upload")
        return Observation(
            context=Context(place=place, payload_size_bytes=self.object_size_bytes),
            setting=S3UploadSetting(thread_count=self.thread_count, part_size_bytes=self.part_size_bytes),
            started_at=datetime.now(UTC),
            duration_seconds=self.duration_seconds,
            transferred_bytes=self.object_size_bytes,
            request_count=ceil(self.object_size_bytes / self.part_size_bytes) + 2,
        )


@dataclass(frozen=True, slots=True)
class _BoardAlone:
    """An advisor that has only a board."""

    board: Board
    region: str = _HOME.region
    instance_type: str = _HOME.instance_type
    probed_operations: tuple[str, ...] = ()

    def snapshot(self) -> Snapshot:
        return self.board.snapshot(datetime.now(UTC))

    def recommend(self, question: Question) -> Recommendation[Any]:
        return self.board.recommend(self._context(question), question.demand, datetime.now(UTC))

    def assess(self, question: Question, setting: Setting) -> Recommendation[Any]:
        return self.board.assess(self._context(question), question.demand, setting, datetime.now(UTC))

    def _context(self, question: Question) -> Context:
        place = dataclasses.replace(_HOME, operation=question.operation)
        return Context(place=place, payload_size_bytes=question.payload_size_bytes)


async def _serve(folder: Path) -> None:
    board = await _board(_observations(folder / "observations.json"))
    advisor: Any = _BoardAlone(board)  # nothing else is asked here
    limits = ConnectionLimits()
    snapshot = folder / "recommendations.json"
    api = Api(advisor, clock=SystemClock(), limits=limits, snapshot_path=snapshot)
    async with serving(api.application(), open_socket(folder / "penstock.sock"), limits, api.answers):
        _say("ready")
        commands = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        while await commands.readline():
            board.generation += 1
            began = time.perf_counter()
            api.publish()
            _say(repr(began))


async def _board(observations: tuple[Observation[Any], ...]) -> Board:
    """The advice at every size of the ladders, and at the measured ones."""
    contexts = {observation.context for observation in observations}
    for operation, service in OPERATIONS.items():
        place = dataclasses.replace(_HOME, operation=operation)
        contexts |= {Context(place=place, payload_size_bytes=size) for size in service.payload_ladder_bytes}
    board = Board(
        sorted(contexts, key=lambda context: (context.operation, context.payload_size_bytes)),
        thread_count_max={},
        region=_HOME.region,
        instance_type=_HOME.instance_type,
        validity_seconds=86400.0,
    )
    for operation, service in OPERATIONS.items():
        place = dataclasses.replace(_HOME, operation=operation)
        known = [observation for observation in observations if observation.context.place == place]
        await board.post(service.model.fit(place, known, prior=None, seed=1), datetime.now(UTC))
    return board


def _observations(path: Path) -> tuple[Observation[Any], ...]:
    if not path.exists():
        return ()
    uploads = msgspec.json.decode(path.read_bytes(), type=list[Upload])
    return tuple(upload.observation() for upload in uploads)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
