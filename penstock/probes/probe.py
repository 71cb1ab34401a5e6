"""Knows what every probe can do, and how it keeps book of what it leaves outside this process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from penstock.vocabulary import Cost, Inconclusive, Outcome, ProbePlan, SettingT


class Probe(Protocol[SettingT]):
    """Exercises one operation for real and measures it."""

    async def run(self, plan: ProbePlan[SettingT]) -> Outcome[SettingT]:
        """Carry out the plan within its cost and leave nothing behind, also when cancelled.

        Expected trouble (throttling, refusal, no network) is in the outcome; it is never raised.
        """
        ...

    @property
    def used(self) -> Cost:
        """Bytes, requests and dollars of the run that ended last, also when it was cancelled."""
        ...

    async def close(self) -> None:
        """Remove what was kept outside between two runs."""
        ...


NO_TIME = "the plan allows no time: raise the time that a probe may take"


def inconclusive(
    plan: ProbePlan[SettingT], started_at: datetime, reason: str, used: Cost | None = None
) -> Inconclusive[SettingT]:
    """The outcome of a run that could not measure, and what it cost all the same."""
    used = used or Cost()
    return Inconclusive(
        context=plan.context,
        setting=plan.setting,
        started_at=started_at,
        reason=reason,
        transferred_bytes=used.transferred_bytes,
        request_count=used.request_count,
    )


class LeftoverKind(StrEnum):
    """What a probe may create outside this process."""

    S3_OBJECT = "s3_object"  # and its unfinished uploads; all below it when the name ends in a slash
    SQS_QUEUE = "sqs_queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One thing outside, by name: enough to find and remove it after a crash, with no other knowledge."""

    kind: LeftoverKind
    service: str  # which configured client reaches it: an operation's name
    container: str  # the bucket; the region of a queue
    name: str  # the key, the prefix of keys, or the queue's name
    # Where that is, as the daemon's own journal says it; None: wherever it is configured now.
    region: str | None = None
    endpoint_url: str | None = None  # "" is AWS's own
    machine: str | None = None  # that made it

    @property
    def place(self) -> tuple[LeftoverKind, str, str | None, str | None]:
        """What it shares with all that is reached together with it."""
        return self.kind, self.container, self.region, self.endpoint_url


class Journal(Protocol):
    """The book of leftovers: written durably before a thing is created, struck out after it is gone."""

    async def record(self, leftover: Leftover) -> None:
        """Return only when the entry would survive `kill -9`. Twice is once."""
        ...

    async def strike(self, leftover: Leftover) -> None:
        """The thing is gone."""
        ...

    async def abandon(self, leftover: Leftover) -> None:
        """Nobody uses it any more; if it was not struck by now, it is left behind."""
        ...

    async def open_entries(self) -> list[Leftover]:
        """What may still be there, in use or left behind."""
        ...


class NoJournal:
    """For what is removed at its end, or found by its name: nothing is written down."""

    async def record(self, leftover: Leftover) -> None: ...

    async def strike(self, leftover: Leftover) -> None: ...

    async def abandon(self, leftover: Leftover) -> None: ...

    async def open_entries(self) -> list[Leftover]:
        return []
