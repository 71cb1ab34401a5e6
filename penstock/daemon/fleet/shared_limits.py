"""Knows this host's part of the limits that it shares with others: a heartbeat in the bucket says what it wants.

The conductor calls `visit` between two probes, once a minute, or less often in a large fleet. While the bucket is gone,
slow or refusing, hosts do not see each other: then each lowers and raises its last part by what its own applications
were refused.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from penstock.api.leases import LeaseBook, endless
from penstock.clock import Clock
from penstock.daemon.board import Board
from penstock.daemon.config import FleetSection
from penstock.daemon.fleet.bucket import requests_cost
from penstock.fleet import limit as limits
from penstock.fleet.limit import FleetShare, Heartbeat, SharedLimit, Use
from penstock.operations.operation import Outside
from penstock.probes.outside import (
    LISTED_COUNT_IN_PAGE,
    LISTED_COUNT_MAX,
    Listed,
    Missing,
    ObjectStore,
    Refused,
    RequestError,
    page_count,
)
from penstock.probes.removal import all_tried
from penstock.vocabulary import Cost, Observation, Place, Tariff

PAUSE_SECONDS = 60.0  # between heartbeats
PAUSE_SECONDS_PER_HOST = 2.0  # in fleets of more than thirty hosts, since all hosts read what each writes
STEP_SECONDS = 10.0  # between updates of a part that grows from one heartbeat to the next
PAUSE_SECONDS_WITHOUT = 10.0  # between adaptations while the other hosts are not seen
PAUSE_SECONDS_MAX = 900.0  # between attempts to reach a bucket that fails
VISIT_SECONDS_MAX = 5.0  # no probe begins during a visit
READ_COUNT_AT_ONCE_MAX = 16
_PAGE_COUNT_MAX = LISTED_COUNT_MAX // LISTED_COUNT_IN_PAGE
ALONE_FRACTION = 1 / 16  # of the limit, for a host that never saw the others
_KEEP_RATIO = 1.02  # smaller growth of a part is not announced: applications would be told each minute

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """Another host's last heartbeat, which was `age_seconds` old at `listed_seconds` of our monotonic clock."""

    etag: str
    heartbeat: Heartbeat
    age_seconds: float
    listed_seconds: float


@dataclass(slots=True)
class _Held:
    """One limit, and this host's part of it. Rates are in requests per second."""

    limit: SharedLimit
    written_per_second: float = 0.0  # wanted by this host's last heartbeat
    told_per_second: float = 0.0  # wanted by the heartbeat before that, which all others have read by now
    wanted_per_second: float = 0.0
    factor: float = 1.0  # fraction of the limit that the fleet divides: lower after refusals
    alone_fraction: float | None = None  # of the limit, used by this host while the others are not seen
    part_per_second: float = 0.0
    host_count: int = 1
    made: float = 0.0  # requests since the last heartbeat, as applications reported
    refused: float = 0.0  # those of them that were throttled
    allowed: float = 0.0  # requests since the last heartbeat that applications were allowed to make
    allowed_seconds: float = 0.0  # until when `allowed` is counted, on the monotonic clock
    rates: Use = field(default_factory=lambda: Use(wanted_per_second=0.0))


@dataclass(eq=False)
class SharedLimits:
    """One host's parts of all limits that it shares."""

    section: FleetSection
    outside: Outside
    clock: Clock
    _: KW_ONLY
    region: str  # the bucket's
    tariff: Tariff
    host: str
    wanted: Callable[[str], float]  # requests per second that an operation's leases would make

    def __post_init__(self) -> None:
        now_seconds = self.clock.monotonic_seconds()
        self._chance = random.Random(f"limits {self.host}")
        self._prefix = f"{self.section.key_prefix}limits/{limits.FORMAT}/"
        self._held = [_Held(limits.parse(text)) for text in self.section.shared_limits]
        self._known: dict[str, _Known] = {}  # by key
        self._number = 0
        self._is_seen = False  # whether heartbeats can be read and written
        self._trouble: str | None = None
        self._heartbeat_seconds = now_seconds  # when the next one is due
        self._step_seconds = math.inf
        self._since_seconds = now_seconds
        self._try_seconds = now_seconds  # when to try again after the bucket failed
        self._patience_seconds = PAUSE_SECONDS
        self._pause_seconds = PAUSE_SECONDS
        self._told: dict[str, FleetShare] = {}
        self._published: dict[str, float] = {}  # the parts at the last `take_news`
        self.used = Cost()  # of the present visit, or of the last one
        for held in self._held:
            held.allowed_seconds = self._since_seconds
            held.alone_fraction = ALONE_FRACTION
            held.part_per_second = ALONE_FRACTION * held.limit.requests_per_second

    @property
    def due_in_seconds(self) -> float:
        """In how many seconds `visit` is to be called, or `step` while no heartbeat is due."""
        return min(self._heartbeat_seconds, self._step_seconds) - self.clock.monotonic_seconds()

    @property
    def is_heartbeat_due(self) -> bool:
        return self._heartbeat_seconds <= self.clock.monotonic_seconds()

    @property
    def cost_max(self) -> Cost:
        return requests_cost(
            self.tariff,
            reads=self._read_count_max,
            writes=1 + _PAGE_COUNT_MAX,
            received=self._read_count_max * limits.DOCUMENT_BYTES_MAX,
            sent=limits.DOCUMENT_BYTES_MAX,
        )

    @property
    def _read_count_max(self) -> int:
        """Heartbeats to read in one visit; the rest of a fleet that grows faster is read at later visits."""
        return 2 * len(self._known) + 32

    def share(self, operation: str) -> FleetShare | None:
        """This host's share of the tightest limit that the operation counts against; None without any."""
        of_it = [self._tell(held) for held in self._held if operation in held.limit.operations]
        return min(of_it, key=lambda share: share.requests_per_second, default=None)

    def note_reports(self, reports: Iterable[Observation[Any]]) -> None:
        """Count the requests that applications reported, and how many of them were throttled."""
        for report in reports:
            # Of a transfer longer than the pause between heartbeats, only the part that falls into one pause.
            part = min(1.0, PAUSE_SECONDS / max(report.duration_seconds, 1e-9))
            self.note(report.context.operation, part * report.request_count, part * report.throttled_count)

    def note(self, operation: str, request_count: float, refused_count: float) -> None:
        """Count requests made since the last heartbeat, and how many of them were throttled."""
        for held in self._held:
            if operation in held.limit.operations:
                held.made += request_count
                held.refused += refused_count

    def postpone(self, trouble: str) -> None:
        """Note why the visit that was due was not made, and be due again later."""
        self._begin()
        self._fail(trouble)

    def take_news(self) -> bool:
        """Whether any part has changed since the last call."""
        before, self._published = (
            self._published,
            {held.limit.name: self._tell(held).requests_per_second for held in self._held},
        )
        return self._published != before

    def step(self) -> None:
        """Let a growing part grow, between two heartbeats."""
        self._step_seconds = self.clock.monotonic_seconds() + STEP_SECONDS

    async def visit(self) -> None:
        """Write what this host wants, read the others' heartbeats, and take a part of each limit."""
        self.used = Cost()
        self._begin()
        if not self.section.may_write:
            self._fail("fleet.may_write is false, so the other hosts would not know of this one")
        elif self.clock.monotonic_seconds() < self._try_seconds:
            self._adapt()
        else:
            try:
                async with asyncio.timeout(VISIT_SECONDS_MAX):
                    await self._meet(await self.outside.object_store(self.region))
            except TimeoutError:
                self._fail(f"the bucket did not answer within {VISIT_SECONDS_MAX:g} s")
            except RequestError as trouble:
                self._fail(str(trouble))
            else:
                self._take_parts()

    def document(self) -> list[dict[str, Any]]:
        return [
            {
                "limit": held.limit.name,
                "operations": list(held.limit.operations),
                "limit_requests_per_second": held.limit.requests_per_second,
                "requests_per_second": share.requests_per_second,
                "wanted_per_second": held.wanted_per_second,
                "refused_per_second": held.rates.refused_per_second,
                "host_count": share.host_count,
                "is_alone": share.is_alone,
                "trouble": self._trouble,
                "sentence": share.sentence,
            }
            for held in self._held
            for share in (self._tell(held),)
        ]

    # --- One heartbeat

    def _begin(self) -> None:
        """Turn the counts since the last heartbeat into rates, and work out what this host wants."""
        now_seconds = self.clock.monotonic_seconds()
        passed_seconds = max(now_seconds - self._since_seconds, 1.0)
        self._since_seconds = now_seconds
        for held in self._held:
            held.told_per_second = held.written_per_second
            made, refused = held.made / passed_seconds, held.refused / passed_seconds
            self._note_allowed(held)
            self._tell(held)
            allowed = held.allowed / passed_seconds
            held.made = held.refused = held.allowed = 0.0
            leased = sum(map(self.wanted, held.limit.operations))
            held.wanted_per_second = limits.wanted(leased, made, allowed)
            held.rates = Use(
                wanted_per_second=held.wanted_per_second, made_per_second=made, refused_per_second=refused
            )

    async def _meet(self, store: ObjectStore) -> None:
        self._number += 1
        mine = Heartbeat(
            host=self.host,
            number=self._number,
            pause_seconds=self._pause_seconds,
            limits={held.limit.name: held.rates for held in self._held},
        )
        body, key = limits.written(mine), f"{self._prefix}{quote(self.host, safe='')}.json"
        self.used += requests_cost(self.tariff, writes=1, sent=len(body))
        await store.put_object(self.section.bucket, key, body)
        for held in self._held:
            held.written_per_second = held.wanted_per_second
        self.used += requests_cost(self.tariff, writes=_PAGE_COUNT_MAX)
        found = await store.list_shared(self.section.bucket, self._prefix)
        self.used -= requests_cost(self.tariff, writes=_PAGE_COUNT_MAX - page_count(len(found)))
        if len(found) >= LISTED_COUNT_MAX:  # more hosts than listed would be overlooked
            raise Refused(
                f"{self._prefix} holds {LISTED_COUNT_MAX:,} heartbeats: have the bucket delete old ones"
            )
        await self._hear(store, [one for one in found if one.key != key])

    async def _hear(self, store: ObjectStore, found: Sequence[Listed]) -> None:
        """Read new heartbeats; the age of known ones goes on by our own clock."""
        seconds, known, count_max = self.clock.monotonic_seconds(), self._known, self._read_count_max
        fresh = [one for one in found if one.age_seconds <= 4.0 * self._pause_seconds]
        same = [one for one in found if one.key in known and known[one.key].etag == one.etag]
        self._known = {
            one.key: _Known(one.etag, known[one.key].heartbeat, one.age_seconds, seconds) for one in same
        }
        news = [one for one in fresh if one.key not in self._known][:count_max]
        for start in range(0, len(news), READ_COUNT_AT_ONCE_MAX):
            some = news[start : start + READ_COUNT_AT_ONCE_MAX]
            heartbeats = await all_tried(*(self._read(store, one) for one in some))
            for one, heartbeat in zip(some, heartbeats, strict=True):
                if heartbeat is not None:
                    self._known[one.key] = _Known(one.etag, heartbeat, one.age_seconds, seconds)

    async def _read(self, store: ObjectStore, one: Listed) -> Heartbeat | None:
        self.used += requests_cost(self.tariff, reads=1)
        try:
            found = await store.get_unless(
                self.section.bucket, one.key, None, size_bytes_max=limits.DOCUMENT_BYTES_MAX
            )
        except Missing:
            return None
        if found is None:
            return None
        self.used += requests_cost(self.tariff, received=len(found.body))
        return limits.read(found.body)

    # --- What follows from it

    def _take_parts(self) -> None:
        others = self._others()
        if not self._is_seen:
            names = ", ".join(held.limit.name for held in self._held)
            _log.info("heartbeats are read; hosts that share %s beside this one: %d", names, len(others))
        self._is_seen, self._trouble, self._patience_seconds = True, None, PAUSE_SECONDS
        for held in self._held:
            theirs = [one.limits[held.limit.name] for one in others if held.limit.name in one.limits]
            made = held.rates.made_per_second + sum(use.made_per_second for use in theirs)
            refused = held.rates.refused_per_second + sum(use.refused_per_second for use in theirs)
            held.factor = limits.lowered(held.factor, made, refused)
            held.host_count, held.alone_fraction = 1 + len(theirs), None
        self._divide()
        hosts = len(others) + 1
        self._pause_seconds = max(PAUSE_SECONDS, PAUSE_SECONDS_PER_HOST * hosts)
        self._be_due(self._pause_seconds)
        is_growing = any(held.wanted_per_second > held.told_per_second for held in self._held)
        self._step_seconds = self.clock.monotonic_seconds() + STEP_SECONDS if is_growing else math.inf

    def _divide(self) -> None:
        others = self._others()
        passed_fraction = (self.clock.monotonic_seconds() - self._since_seconds) / self._pause_seconds
        for held in self._held:
            if held.alone_fraction is not None:
                continue
            name = held.limit.name
            theirs = [one.limits[name].wanted_per_second for one in others if name in one.limits]
            held.host_count = 1 + len(theirs)
            held.part_per_second = limits.part(
                held.factor * held.limit.requests_per_second,
                held.wanted_per_second,
                limits.known(held.told_per_second, held.wanted_per_second, passed_fraction),
                theirs,
            )

    def _others(self) -> list[Heartbeat]:
        seconds = self.clock.monotonic_seconds()
        return [
            one.heartbeat
            for one in self._known.values()
            if not limits.is_stale(one.heartbeat, one.age_seconds + seconds - one.listed_seconds)
        ]

    def _tell(self, held: _Held) -> FleetShare:
        """Update the part and return it as a share, which applications are told from now on."""
        self._divide()
        name, part, told = held.limit.name, held.part_per_second, self._told.get(held.limit.name)
        if told is not None and told.requests_per_second <= part <= _KEEP_RATIO * told.requests_per_second:
            part = told.requests_per_second
        else:
            self._note_allowed(held)
        self._told[name] = FleetShare(
            limit=name,
            limit_requests_per_second=held.limit.requests_per_second,
            requests_per_second=part,
            wanted_per_second=held.wanted_per_second,
            host_count=held.host_count,
            is_alone=held.alone_fraction is not None,
        )
        return self._told[name]

    def _note_allowed(self, held: _Held) -> None:
        """Count what applications were allowed to request until now, by the share they were told."""
        told, seconds = self._told.get(held.limit.name), self.clock.monotonic_seconds()
        rate_per_second = told.requests_per_second if told else held.part_per_second
        held.allowed += rate_per_second * (seconds - held.allowed_seconds)
        held.allowed_seconds = seconds

    def _fail(self, trouble: str) -> None:
        """Go on without the others, adapting the parts to what is refused here; try the bucket again later."""
        if self._is_seen or self._trouble is None:
            _log.warning("the other hosts that share a limit are not seen: %s", trouble)
        self._trouble, self._is_seen = trouble, False
        self._try_seconds = self.clock.monotonic_seconds() + self._patience_seconds
        self._patience_seconds = min(2 * self._patience_seconds, PAUSE_SECONDS_MAX)
        self._known = {}
        self._adapt()

    def _adapt(self) -> None:
        """Adapt the parts to what is refused here, without the other hosts."""
        for held in self._held:
            most = held.limit.requests_per_second
            fraction = held.part_per_second / most if held.alone_fraction is None else held.alone_fraction
            made, refused = held.rates.made_per_second, held.rates.refused_per_second
            held.alone_fraction = limits.adapted(fraction, made, refused)
            held.part_per_second = held.alone_fraction * most
            held.host_count = 1
            held.told_per_second = held.written_per_second = 0.0
        self._be_due(PAUSE_SECONDS_WITHOUT)
        self._step_seconds = math.inf

    def _be_due(self, pause_seconds: float) -> None:
        # Never later than announced: others would take this host for gone.
        jitter = self._chance.uniform(0.94, 1.0)
        self._heartbeat_seconds = self.clock.monotonic_seconds() + pause_seconds * jitter


def wanted_by_leases(board: Board, leases: LeaseBook, home: Place, operation: str, now: datetime) -> float:
    """The requests per second that all leases of the operation would make if no host shared a limit with this one."""
    made, most = 0.0, 0.0
    for lease in leases.leases:
        question = lease.claim.question
        if question.operation != operation:
            continue
        context = question.context(home)
        made += board.request_rate_per_second(board.alone(context, question.demand, now))
        boundless = board.alone(context, endless(question.demand), now)
        most = max(most, board.request_rate_per_second(boundless))
    return min(made, most)
