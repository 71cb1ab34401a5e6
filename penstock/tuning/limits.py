"""Knows what failures suggest about a client: a limit on threads or memory, and when to test it again.

A failure may be bad luck, so a limit is only a suspicion that later runs can contradict. A failure says nothing if a
success had at least as many threads and as much in memory. Failures without a success between them count as one,
because an outage explains them as well as a limit. After some successes a suspected limit is tried again, and later
after each time that it was confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Literal

from penstock.models.s3.ranges import TransferSetting
from penstock.tuning.state import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The most with which a run worked, and the least with which one failed."""

    name: Literal["thread_count", "memory_bytes"]
    worked_max: int
    failed_min: int
    failed_probe_count: int

    def document(self) -> dict[str, int]:
        return {
            f"{self.name}_max": self.worked_max,
            f"failed_{self.name}_min": self.failed_min,
            "failed_probe_count": self.failed_probe_count,
        }


def suspected_limit(
    trials: Sequence[Trial], object_size_bytes: int, *, thread_count_min: int = 1
) -> Limit | None:
    """The limit that explains all failures that no success contradicts: on threads if possible, else on memory."""
    worked, failed = _worked(trials), [trial.setting for trial in _unexplained(trials, object_size_bytes)]
    if not failed:
        return None
    limit = partial(Limit, failed_probe_count=len(failed))
    if any(x.thread_count > thread_count_min for x in failed):
        most, least = max((x.thread_count for x in worked), default=1), min(x.thread_count for x in failed)
        if least > most:
            return limit(name="thread_count", worked_max=most, failed_min=least)
    most = max((x.memory_bytes(object_size_bytes) for x in worked), default=1)
    least = min(x.memory_bytes(object_size_bytes) for x in failed)
    return limit(name="memory_bytes", worked_max=most, failed_min=least) if least > most else None


def most_to_try(limit: Limit, trials: Sequence[Trial], object_size_bytes: int) -> int | None:
    """How much the next run may use under a suspected limit; None if any amount.

    It is halfway (by ratio) between what worked and what failed, so that the limit is found by bisection. A retry uses
    the least that failed; a limit that was never confirmed is dropped. If the limit explains no more than half of the
    failures, the command may fail at random, and only trying tells.
    """
    failures = _unexplained(trials, object_size_bytes)
    if 2 * len(failures) <= sum(_tells(trial) for trial in trials):
        return None
    episode_count, success_count = _episodes(trials, failures)
    # After 2, 3, 5, 9 ... successes: each confirmation makes the limit more likely, and a retry less worthwhile.
    if success_count <= 2 ** (episode_count - 1):
        return isqrt(limit.worked_max * limit.failed_min)
    return None if episode_count == 1 else limit.failed_min


def _worked(trials: Sequence[Trial]) -> list[TransferSetting]:
    return [trial.setting for trial in trials if trial.report]


def _unexplained(trials: Sequence[Trial], object_size_bytes: int) -> list[Trial]:
    """Failures with more of something than any success had; time-outs and commands that did not run say nothing."""
    worked = [(x.thread_count, x.memory_bytes(object_size_bytes)) for x in _worked(trials)]
    return [
        trial
        for trial in trials
        if _tells(trial)
        and not any(
            threads >= trial.setting.thread_count and held >= trial.setting.memory_bytes(object_size_bytes)
            for threads, held in worked
        )
    ]


def _tells(trial: Trial) -> bool:
    """Whether it failed in a way that may indicate a limit."""
    return trial.failure is not None and not trial.failure.is_timeout and not trial.failure.is_no_command


def _episodes(trials: Sequence[Trial], failures: Sequence[Trial]) -> tuple[int, int]:
    """How often failures began after a success, and the number of successes after the last failure."""
    indices = {failure.probe_index for failure in failures}
    episode_count, success_count, was_failure = 0, 0, False
    for trial in trials:
        if trial.probe_index in indices:
            episode_count += not was_failure
            success_count, was_failure = 0, True
        elif trial.report:
            success_count, was_failure = success_count + 1, False
    return episode_count, success_count
