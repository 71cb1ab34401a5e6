"""Knows some clients to be tuned: their physics is known, and a run of them takes no time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil, exp
from pathlib import Path

from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.ranges import DownloadRanges, Ranges, TransferSetting, UploadRanges
from penstock.models.s3.upload import S3UploadSetting
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.s3.upload import UPLOAD
from penstock.tuning.command import Failure, Report
from penstock.tuning.session import Task, Tuning, tune
from penstock.tuning.state import StateFile, Subject, Trial, open_state
from penstock.units import MiB
from penstock.vocabulary import Demand

SIZE = 512 * MiB
FIRST_AT = datetime(2026, 1, 5, tzinfo=UTC)


def a_setting(threads: int, part_mib: float = 8) -> S3UploadSetting:
    """A setting in the units that people use."""
    return S3UploadSetting(thread_count=threads, part_size_bytes=round(part_mib * MiB))


def a_task(
    *,
    ranges: Ranges | None = None,
    probe_count: int = 12,
    seed: int = 0,
    demand: Demand | None = None,
    size: int = SIZE,
) -> Task:
    """What is wanted, by naming only what matters; the ranges say whether it is a download."""
    return Task(
        row=DOWNLOAD if isinstance(ranges, DownloadRanges) else UPLOAD,
        object_size_bytes=size,
        ranges=ranges or UploadRanges(),
        demand=demand or Demand(),
        probe_count=probe_count,
        seed=seed,
    )


@dataclass
class SteadyClock:
    """Each look at it is a minute later."""

    _now: datetime = field(default=FIRST_AT)
    _seconds: float = 0.0

    def now(self) -> datetime:
        """A date."""
        self._now += timedelta(minutes=1)
        return self._now

    def monotonic_seconds(self) -> float:
        """An hour later each time: no run reports more than it takes."""
        self._seconds += 3600.0
        return self._seconds


@dataclass
class Client:
    """Waves of parts over connections that share a host; noise has a seed, and `trouble` says what fails."""

    request_seconds: float = 0.04
    connection_bytes_per_second: float = 12e6
    host_bytes_per_second: float = 300e6
    noise: float = 0.03
    seed: int = 0
    trouble: Callable[[TransferSetting, int], Failure | None] = lambda _setting, _index: None
    asked: list[TransferSetting] = field(default_factory=list)

    def throughput(self, setting: TransferSetting) -> float:
        """Bytes per second of one object, without noise: full waves of parts, and one of what remains."""
        part = min(setting.request_size_bytes, SIZE)
        parts = ceil(SIZE / part)
        busy = min(setting.thread_count, parts)
        full, rest = divmod(parts, busy)
        last = self._wave_seconds(rest, part) if rest else 0.0
        return SIZE / (0.15 + full * self._wave_seconds(busy, part) + last)

    def _wave_seconds(self, busy: int, part: int) -> float:
        return max(
            self.request_seconds + part / self.connection_bytes_per_second,
            busy * part / self.host_bytes_per_second,
        )

    def best(self, ranges: UploadRanges) -> float:
        """Over a grid of its settings; of the sizes that make as many parts the smallest is the fastest."""
        threads = range(ranges.thread_count_min, ranges.thread_count_max + 1)
        sizes = {
            ceil(SIZE / (m * MiB)): m
            for m in range(512, 4, -1)
            if ranges.part_size_bytes_min <= m * MiB <= ranges.part_size_bytes_max
        }
        return max(self.throughput(a_setting(n, m)) for n in threads for m in sizes.values())

    def __call__(self, request: dict[str, int]) -> Report | Failure:
        """Carry out one proposal."""
        threads, reads = request["thread_count"], "range_size_bytes" in request
        setting: TransferSetting = (
            S3DownloadSetting(thread_count=threads, range_size_bytes=request["range_size_bytes"])
            if reads
            else S3UploadSetting(thread_count=threads, part_size_bytes=request["part_size_bytes"])
        )
        self.asked.append(setting)
        if (failure := self.trouble(setting, request["probe_index"])) is not None:
            return failure
        dip = exp(self.noise * random.Random(f"{self.seed}/{request['probe_index']}").gauss())
        size = request.get("object_size_bytes", SIZE)
        return Report(transferred_bytes=size, duration_seconds=dip * size / self.throughput(setting))


@contextmanager
def a_state(path: Path, task: Task) -> Iterator[StateFile]:
    """The state of a task for one and the same command."""
    subject = Subject.of("client", task.object_size_bytes, task.ranges, {})
    with open_state(path, subject, task.row.setting_type, restart=False) as state:
        yield state


def tuned(task: Task, client: Client, path: Path) -> Tuning:
    """Tune a client from the state in a file; a second sitting begins where the first one ended."""
    with a_state(path, task) as state:
        clock = SteadyClock(FIRST_AT + timedelta(minutes=len(state.trials)))
        return tune(task, state, client, clock, starting=lambda *_: None, ended=lambda _: None)


def a_trial(client: Client, setting: TransferSetting, index: int, failure: Failure | None = None) -> Trial:
    """One trial of a setting that somebody chose; with `failure`, one that failed."""
    return ended(failure or client({**asdict(setting), "probe_index": index}), setting, index)


def ended(outcome: Report | Failure, setting: TransferSetting, index: int) -> Trial:
    """One trial of a setting that somebody chose, and what came of it."""
    return Trial(
        probe_index=index,
        setting=setting,
        reason="explore",
        started_at=FIRST_AT + timedelta(minutes=index),
        report=outcome if isinstance(outcome, Report) else None,
        failure=outcome if isinstance(outcome, Failure) else None,
    )
