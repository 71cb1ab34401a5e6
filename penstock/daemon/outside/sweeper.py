"""Knows what probes left behind on AWS, and when to try again to remove it: soon, then less often, until it is gone.

The caller of `sweep` makes sure that nothing is measured meanwhile. An entry that was found empty is struck out of the
journal only when it is so old that no request still in flight can fill it again. What another machine created, of whose
disk this one has a copy, is left to that machine: its objects for a day, after which nobody writes them any more, and
hosts that read them have a sign beside them; its queue until the operator says that nobody uses it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Any

from penstock.clock import Clock
from penstock.daemon.memory.async_store import AsyncStore
from penstock.daemon.memory.database import DiskTrouble
from penstock.daemon.outside.whereabouts import Whereabouts
from penstock.daemon.spending.tariffs import Tariffs
from penstock.operations.operation import Outside
from penstock.operations.sections.section import OrphanPlace
from penstock.operations.table import OPERATIONS
from penstock.probes.leftovers import ORPHAN_AGE_SECONDS, Sweep, SweepSummary
from penstock.probes.outside import MessageQueues, ObjectStore, RequestError
from penstock.probes.probe import Leftover, LeftoverKind
from penstock.probes.sharing import is_sign
from penstock.units import counted, format_seconds
from penstock.vocabulary import Cost

SWEEP_SECONDS_MAX = 60.0
PAUSE_SECONDS = 15.0  # before the first try; doubled by each that fails
PAUSE_SECONDS_MAX = 1800.0
SETTLED_SECONDS = 180.0  # beyond a probe's duration: for requests still in flight when it ended
OLD_SECONDS = 3600.0  # the operator is warned of leftovers older than this
# Leftovers of one operation at which it is not probed any more, as each probe would add to them. One is enough where
# removing is forbidden.
LEFT_COUNT_MAX = 10
ORPHANS_PAUSE_SECONDS = 86_400.0
SHOWN_COUNT_MAX = 1000
_OF_ANOTHER = (
    "another machine made it, whose disk this one has a copy of, and may use it: if that is no more, "
    "`penstock leftovers remove` removes its queues, and its objects are removed when they are a day old"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """One thing that may still exist on AWS, since when, and why."""

    leftover: Leftover
    since: datetime
    reason: str = ""  # why the last try could not remove it; empty if it did, or before the first try
    is_empty: bool = False  # the last sweep found nothing of it

    def age_seconds(self, now: datetime) -> float:
        """Its age in seconds, never negative, even after a step of the clock."""
        return max(0.0, (now - self.since).total_seconds())

    def document(self, now: datetime) -> dict[str, Any]:
        return {
            **_named(self.leftover),
            "age_seconds": self.age_seconds(now),
            "reason": self.reason,
            "is_empty": self.is_empty,
        }


def _named(leftover: Leftover) -> Mapping[str, str]:
    return {
        "kind": leftover.kind.value,
        "operation": leftover.service,
        "container": leftover.container,
        "name": leftover.name,
    }


@dataclass(eq=False)
class Sweeper:
    """Removes leftovers for the daemon. `left` is what is known to be left, oldest first; reading it never waits."""

    outside: Outside
    store: AsyncStore
    clock: Clock
    _: KW_ONLY
    tariffs: Tariffs
    whereabouts: Whereabouts

    def __post_init__(self) -> None:
        self.left: tuple[LeftBehind, ...] = ()
        self._of_others: tuple[LeftBehind, ...] = ()
        self.summary = SweepSummary()  # of the newest sweep, even if it was cut short
        self._reasons: dict[Leftover, str] = {}
        self._forbidden: frozenset[str] = frozenset()  # operations that are denied to remove what they put
        self._empty: frozenset[Leftover] = frozenset()
        self._since: Mapping[Leftover, datetime] = {}
        self._warned_of: set[Leftover] = set()
        longest_seconds = max(
            section.duration_seconds_max for _, section in self.whereabouts.configuration.sections()
        )
        self._settled_seconds = SETTLED_SECONDS + longest_seconds
        self._pause_seconds = PAUSE_SECONDS
        self._due_seconds = -math.inf  # at the start
        self._orphans_due_seconds = -math.inf
        self._hurried: asyncio.Future[SweepSummary] | None = None

    @property
    def due_in_seconds(self) -> float:
        """In how many seconds `sweep` is to be called; not positive when it is due."""
        return self._due_seconds - self.clock.monotonic_seconds()

    def hurry(self) -> asyncio.Future[SweepSummary]:
        """Make the sweep due now; returns a future for the summary of the next one."""
        self._due_seconds = -math.inf
        if self._hurried is None:
            self._hurried = asyncio.get_running_loop().create_future()
        return self._hurried

    def document(self, removed: Sequence[Leftover] = ()) -> dict[str, Any]:
        """What was removed now and what is still left behind, as JSON values."""
        now = self.clock.now()
        return {
            "removed": [dict(_named(leftover)) for leftover in removed[:SHOWN_COUNT_MAX]],
            "leftovers": [left.document(now) for left in (*self.left, *self._of_others)[:SHOWN_COUNT_MAX]],
        }

    @property
    def count(self) -> int:
        """The count of things known to be left behind."""
        return sum(not left.is_empty for left in self.left)

    @property
    def oldest_age_seconds(self) -> float | None:
        """The age of the oldest of them; None without any."""
        now = self.clock.now()
        return max((left.age_seconds(now) for left in self.left if not left.is_empty), default=None)

    @property
    def remark(self) -> str | None:
        """One sentence while something could not be removed, else None."""
        now = self.clock.now()
        kept = [left for left in self.left if left.reason]
        if not kept:
            return None
        age_seconds = max(left.age_seconds(now) for left in kept)
        things = f"{counted(len(kept), 'thing')} that probes made could not be removed"
        return f"{things}, the oldest for {format_seconds(age_seconds)}: {kept[0].reason}"

    def refusal(self, operation: str) -> str | None:
        """Why this operation should not be probed now: too much that it left there cannot be removed. Else None."""
        kept = [
            left
            for left in self.left
            if left.leftover.service == operation and left.reason
            if self.whereabouts.is_probed(left.leftover)
        ]
        if not kept or (len(kept) < LEFT_COUNT_MAX and operation not in self._forbidden):
            return None
        return f"what {counted(len(kept), 'probe')} left behind could not be removed ({kept[0].reason})"

    async def look(self, *, was_reached: bool) -> None:
        """After a probe, see what it left. If it reached the service, try the other leftovers soon, too."""
        known = self._since
        await self._read_journal()
        if self.count and (was_reached or not self._since.keys() <= known.keys()):
            self._be_due_in(min(PAUSE_SECONDS, self.due_in_seconds))

    async def sweep(self) -> SweepSummary:
        """Remove what is left behind, for a minute at most; once a day also what dead hosts left."""
        sweep = Sweep(self.store, self._object_store, self._message_queues, self._is_settled)
        is_whole = False
        try:
            await self._read_journal()
            for of_other in self._of_others:
                if is_sign(of_other.leftover.name):  # signs expire by their own date
                    await self.store.strike(of_other.leftover)
            async with asyncio.timeout(SWEEP_SECONDS_MAX):
                await sweep.over(self._since)
                await self._sweep_orphans(sweep)
            is_whole = True
        except TimeoutError:
            _log.info("the sweep did not end within %g s; it goes on later", SWEEP_SECONDS_MAX)
        finally:
            self.summary = sweep.summary
            await self._conclude(sweep.summary, is_whole=is_whole)
        return sweep.summary

    async def concluded(self, removed: Sequence[Leftover], *, forgets: bool) -> Mapping[str, Any]:
        """The document about a sweep. If the operator `forgets`, what could not be removed is not tried again."""
        document = self.document(removed)
        if forgets:
            await self.forget()
        return document

    async def forget(self) -> None:
        """Strike out what could not be removed, or belongs to another machine: the operator gives it up."""
        for kept in (left for left in (*self.left, *self._of_others) if left.reason):
            _log.warning("%s %s is given up: %s", kept.leftover.kind, kept.leftover.name, kept.reason)
            await self.store.strike(kept.leftover)
        await self._read_journal()

    @property
    def costs(self) -> Mapping[str, Cost]:
        """The cost of the newest sweep, by operation."""
        return {
            name: Cost(
                request_count=count,
                usd=self.tariffs.clean_up_usd(
                    OPERATIONS[name],
                    request_count=count,
                    priced_count=self.summary.priced_request_counts[name],
                ),
            )
            for name, count in self.summary.request_counts.items()
            if count and name in OPERATIONS
        }

    async def _conclude(self, summary: SweepSummary, *, is_whole: bool) -> None:
        """Log the result of a sweep, and set when the next one is due."""
        for leftover in summary.removed:
            _log.warning("removed %s %s, which was left behind", leftover.kind, leftover.name)
        for kept in summary.kept:
            _log.info("%s %s is left behind: %s", kept.leftover.kind, kept.leftover.name, kept.reason)
        self._reasons = {
            kept.leftover: kept.reason + self.whereabouts.remark(kept.leftover) for kept in summary.kept
        }
        objects = (kept for kept in summary.kept if kept.leftover.kind is LeftoverKind.S3_OBJECT)
        self._forbidden = frozenset(
            kept.leftover.service
            for kept in objects
            if kept.is_forbidden and self.whereabouts.is_probed(kept.leftover)
        )
        self._empty = frozenset(self._since.keys() - self._reasons.keys() if is_whole else ())
        await self._read_journal()
        if self._reasons or not is_whole:
            self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)
            self._be_due_in(self._pause_seconds)
        else:
            self._pause_seconds = PAUSE_SECONDS
            self._be_due_in(self._settled_seconds if self.left else ORPHANS_PAUSE_SECONDS)
        if self._hurried is not None and not self._hurried.done():
            self._hurried.set_result(summary)
        self._hurried = None

    async def _read_journal(self) -> None:
        try:
            entries = await self.store.left_behind()
        except DiskTrouble as trouble:  # keep what is known
            _log.warning("what was left behind cannot be read: %s", trouble)
            return
        now = self.clock.now()
        self._of_others = tuple(
            LeftBehind(leftover=leftover, since=since, reason=_OF_ANOTHER)
            for leftover, since in entries.items()
            if not self._is_to_be_removed(leftover, since, now)
        )
        for of_other in self._of_others:
            del entries[of_other.leftover]
        self._since = entries
        self.left = tuple(
            LeftBehind(
                leftover=leftover,
                since=since,
                reason=self._reasons.get(leftover, ""),
                is_empty=leftover in self._empty,
            )
            for leftover, since in entries.items()
        )
        self._warn_of_old()

    def _warn_of_old(self) -> None:
        """Log a warning about old leftovers, once for each."""
        now = self.clock.now()
        old = [left for left in self.left if left.reason and left.age_seconds(now) > OLD_SECONDS]
        new = [left for left in old if left.leftover not in self._warned_of]
        if new:
            _log.warning(
                "%s left behind for more than %s, such as %s in %s: %s. `penstock leftovers list` names all",
                counted(len(new), "thing"),
                format_seconds(OLD_SECONDS),
                new[0].leftover.name,
                new[0].leftover.container,
                new[0].reason,
            )
        self._warned_of = {left.leftover for left in old}

    def _is_to_be_removed(self, leftover: Leftover, since: datetime, now: datetime) -> bool:
        if not self.whereabouts.is_of_another(leftover):
            return True
        if leftover.kind is LeftoverKind.SQS_QUEUE:
            return self._hurried is not None
        return not is_sign(leftover.name) and now - since > timedelta(seconds=ORPHAN_AGE_SECONDS)

    def _is_settled(self, leftover: Leftover) -> bool:
        since = self._since.get(leftover)
        if since is None:  # an orphan of another host, which is at least a day old
            return True
        return not timedelta() <= self.clock.now() - since < timedelta(seconds=self._settled_seconds)

    def _be_due_in(self, seconds: float) -> None:
        self._due_seconds = self.clock.monotonic_seconds() + seconds

    async def _sweep_orphans(self, sweep: Sweep) -> None:
        """Remove what dead hosts left, wherever something is probed."""
        if self.clock.monotonic_seconds() < self._orphans_due_seconds:
            return
        self._orphans_due_seconds = self.clock.monotonic_seconds() + ORPHANS_PAUSE_SECONDS
        for row, section in self.whereabouts.configuration.enabled():
            for region in self.tariffs.regions(section):
                if (place := section.orphan_place(region)) is not None:
                    await self._sweep_orphans_of(sweep, row.name, place)

    async def _sweep_orphans_of(self, sweep: Sweep, operation: str, place: OrphanPlace) -> None:
        now = self.clock.now()
        try:
            await sweep.over_orphans(
                service=operation, bucket=place.bucket, key_prefix=place.key_prefix, now=now
            )
        except RequestError as trouble:
            _log.info("%s was not searched for what other hosts left: %s", place.bucket, trouble)

    async def _object_store(self, leftover: Leftover) -> ObjectStore:
        return await self.outside.object_store(*self._site(leftover))

    async def _message_queues(self, leftover: Leftover) -> MessageQueues:
        return await self.outside.message_queues(*self._site(leftover))

    def _site(self, leftover: Leftover) -> tuple[str, str | None]:
        located = self.whereabouts.located(leftover)
        return located.region or self.whereabouts.home_region, located.endpoint_url
