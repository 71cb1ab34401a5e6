"""An advisor that says what it is told to say, and a real server on a real socket in front of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.clock import SystemClock
from penstock.daemon.api import Api, RefusedError
from penstock.daemon.listener import ConnectionLimits, open_socket, remove_socket, serving
from penstock.daemon.wire import Question, Standing
from penstock.models.s3_upload import S3UploadSetting
from penstock.models.sqs_delivery import SqsDeliverySetting
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import (
    Basis,
    Context,
    Demand,
    Estimate,
    Observation,
    Place,
    Recommendation,
    Setting,
)

OPERATIONS = {"s3_upload": S3UploadSetting, "sqs_delivery": SqsDeliverySetting}
SETTINGS: Mapping[str, Setting] = {
    "s3_upload": S3UploadSetting(thread_count=32, part_size_bytes=16 * MiB),
    "sqs_delivery": SqsDeliverySetting(
        sender_thread_count=4, receiver_thread_count=6, deleter_thread_count=6, batch_message_count=10
    ),
}


def a_recommendation(
    operation: str = "s3_upload", payload_size_bytes: int = GiB, **changes: Any
) -> Recommendation[Any]:
    """Advice that was issued now and is valid for an hour."""
    now = datetime.now(UTC)
    place = Place(operation=operation, region="eu-west-1", instance_type="m7i.large")
    advice: Recommendation[Any] = Recommendation(
        context=Context(place=place, payload_size_bytes=payload_size_bytes),
        setting=SETTINGS[operation],
        derived={"connection_pool_count": 36, "multipart_threshold_bytes": 16 * MiB},
        prediction={"throughput_bytes_per_second": Estimate(90e6, 100e6, 110e6)},
        demand=Demand(),
        basis=Basis.MEASURED,
        bottleneck="host-ceiling",
        explanation="32 threads reach the ceiling of this host.",
        observation_count=12,
        newest_observation_at=now - timedelta(minutes=5),
        issued_at=now,
        expires_at=now + timedelta(hours=1),
    )
    return dataclasses.replace(advice, **changes)


@dataclass
class ScriptedAdvisor:
    """Says what stands; notes what it is told."""

    recommendations: list[Recommendation[Any]] = field(
        default_factory=lambda: [a_recommendation(), a_recommendation("sqs_delivery", KiB)]
    )
    generation: int = 1
    refusal: str = ""
    recorded: list[Observation[Any]] = field(default_factory=list)
    reporter_uids: set[int] = field(default_factory=set)
    questions: list[Question] = field(default_factory=list)
    region: str = "eu-west-1"
    instance_type: str = "m7i.large"
    setting_types: Mapping[str, type[Setting]] = field(default_factory=lambda: dict(OPERATIONS))
    probed_operations: Collection[str] = tuple(OPERATIONS)

    def standing(self) -> Standing:
        """What stands, dated by its generation."""
        return Standing(
            generation=self.generation,
            generated_at=datetime.now(UTC),
            region=self.region,
            instance_type=self.instance_type,
            recommendations=tuple(self.recommendations),
        )

    def recommend(self, question: Question) -> Recommendation[Any]:
        """The standing advice of the operation, for the size and the demand of the question."""
        self.questions.append(question)
        advice = next(r for r in self.recommendations if r.context.operation == question.operation)
        context = dataclasses.replace(advice.context, payload_size_bytes=question.payload_size_bytes)
        return dataclasses.replace(advice, context=context, demand=question.demand)

    def assess(self, question: Question, setting: Setting) -> Recommendation[Any]:
        """The standing advice with this setting."""
        return dataclasses.replace(self.recommend(question), setting=setting)

    def explain(self, question: Question) -> Mapping[str, Any]:
        """One reason."""
        self.questions.append(question)
        return {
            "operation": question.operation,
            "residual_fraction": 0.021,
            "alternatives": [{"thread_count": 16}],
        }

    def status(self) -> Mapping[str, Any]:
        """A little of everything that a status can hold."""
        return {
            "phase": "probing",
            "uptime_seconds": 7200.0,
            "next_probe_at": datetime(2026, 11, 21, tzinfo=UTC),
            "budget": {"spent_bytes": 3 * GiB, "limit_bytes": 10 * GiB, "spent_usd": 0.0123},
            "contexts": [{"operation": "s3_upload", "payload_size_bytes": GiB, "probe_count": 12}],
        }

    def metrics(self) -> bytes:
        """One metric."""
        return b"# TYPE penstock_probes_total counter\npenstock_probes_total 12\n"

    async def record(self, reports: Sequence[Observation[Any]], *, uid: int) -> Sequence[str | None]:
        """Note them; refuse those of one byte."""
        self._refuse_if_told()
        self.reporter_uids.add(uid)
        answers = ["it is too small" if report.transferred_bytes == 1 else None for report in reports]
        self.recorded += [r for r, refusal in zip(reports, answers, strict=True) if refusal is None]
        return answers

    async def request_probe(self, operation: str, payload_size_bytes: int) -> str:
        """Agree, or refuse."""
        self._refuse_if_told()
        return f"{operation} of {payload_size_bytes} bytes is probed next"

    async def reload(self) -> str:
        """Agree, or refuse."""
        self._refuse_if_told()
        return "nothing changed"

    def _refuse_if_told(self) -> None:
        if self.refusal:
            raise RefusedError(self.refusal)


@dataclass
class Served:
    """A server that runs, and what stands behind it."""

    api: Api
    advisor: ScriptedAdvisor
    socket_path: Path
    snapshot_path: Path


@contextlib.asynccontextmanager
async def served(
    folder: Path,
    advisor: ScriptedAdvisor | None = None,
    *,
    limits: ConnectionLimits | None = None,
    control_gid: int | None = None,
) -> AsyncIterator[Served]:
    """The API on a socket in this folder."""
    advisor, limits = advisor or ScriptedAdvisor(), limits or ConnectionLimits()
    socket_path, snapshot_path = folder / "penstock.sock", folder / "recommendations.json"
    api = Api(
        advisor, clock=SystemClock(), limits=limits, snapshot_path=snapshot_path, control_gid=control_gid
    )
    listening = open_socket(socket_path)
    try:
        async with serving(api.application(), listening, limits, api.answers):
            yield Served(api, advisor, socket_path, snapshot_path)
    finally:
        remove_socket(socket_path)


@contextlib.contextmanager
def served_in_thread(
    folder: Path, advisor: ScriptedAdvisor | None = None, **options: Any
) -> Iterator[Served]:
    """The same in a thread of its own, for clients that block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = served(folder, advisor, **options)
    try:
        running = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        try:
            yield running
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
