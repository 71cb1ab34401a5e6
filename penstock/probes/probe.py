"""Knows what every probe can do, and how it journals what it creates outside this process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from penstock.vocabulary import Cost, Inconclusive, Outcome, ProbePlan, SettingT


class Probe(Protocol[SettingT]):
    """Exercises one operation on the real service and measures it."""

    async def run(self, plan: ProbePlan[SettingT]) -> Outcome[SettingT]:
        """Carry out the plan within its cost and leave nothing behind, even when cancelled.

        Expected trouble (throttling, refusal, no network) is part of the outcome and never raised.
        """
        ...

    @property
    def used(self) -> Cost:
        """Bytes, requests and dollars of the last run, even if it was cancelled."""
        ...

    async def close(self) -> None:
        """Remove what was kept on the service between runs."""
        ...


NO_TIME = "the plan allows no time: raise the time that a probe may take"


def inconclusive(
    plan: ProbePlan[SettingT], started_at: datetime, reason: str, used: Cost | None = None
) -> Inconclusive[SettingT]:
    """The outcome of a run that could not measure, with its cost."""
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

    S3_OBJECT = "s3_object"  # with its unfinished uploads; everything below it if the name ends with a slash
    SQS_QUEUE = "sqs_queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One thing created outside this process: enough to find and remove it after a crash."""

    kind: LeftoverKind
    service: str  # the name of the operation whose configured client reaches it
    container: str  # the bucket; the region of a queue
    name: str  # the key, the prefix of keys, or the queue's name
    # Where it is, as the daemon's journal records it; None: as configured now.
    region: str | None = None
    endpoint_url: str | None = None  # "" is AWS's own
    machine: str | None = None  # the machine that created it

    @property
    def place(self) -> tuple[LeftoverKind, str, str | None, str | None]:
        """What it has in common with everything that is reached by the same client and container."""
        return self.kind, self.container, self.region, self.endpoint_url


class Journal(Protocol):
    """The journal of leftovers: entries are durable before a thing is created, and struck out once it is gone."""

    async def record(self, leftover: Leftover) -> None:
        """Record a thing; on return the entry would survive `kill -9`. Recording it again changes nothing."""
        ...

    async def strike(self, leftover: Leftover) -> None:
        """Strike out a thing that is gone."""
        ...

    async def abandon(self, leftover: Leftover) -> None:
        """Nobody uses it any more: unless it was struck out, it is left behind."""
        ...

    async def open_entries(self) -> list[Leftover]:
        """Everything that may still exist, in use or left behind."""
        ...


class NoJournal:
    """Records nothing: for things that are removed at their end, or can be found by name."""

    async def record(self, leftover: Leftover) -> None: ...

    async def strike(self, leftover: Leftover) -> None: ...

    async def abandon(self, leftover: Leftover) -> None: ...

    async def open_entries(self) -> list[Leftover]:
        return []
