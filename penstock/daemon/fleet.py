"""Knows when this host reads from the fleet's bucket what others measured, and when it writes there what it measured.

The conductor calls `visit` between two probes, so that no request of it is ever measured. Everything fails open: a
bucket that is gone, slow or refusing costs a visit of at most some seconds, ever rarer, and the host is as it would be
without one. A host that may write first tries whether the store keeps the conditions of a write: where it does not,
hosts would overwrite each other's evidence, so this one only reads, and says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.clock import Clock
from penstock.daemon.config import FleetSection
from penstock.fleet import prior, probers
from penstock.fleet.prior import Evidence, Prior
from penstock.fleet.probers import Probers, Seat
from penstock.operations.operation import Outside
from penstock.operations.table import OPERATIONS
from penstock.probes.outside import (
    Changed,
    Denied,
    Missing,
    NoBucket,
    NotOffered,
    ObjectStore,
    Refused,
    RequestError,
    Tagged,
)
from penstock.vocabulary import BESIDE_PAYLOAD_BYTES, Cost, Observation, Place, Tariff

PAUSE_SECONDS = 900.0  # a quarter of an hour between visits, give or take the jitter
JITTER_FRACTION = 0.2
# After a visit in which others came in between: they begin together, and have sat down by then.
SOON_SECONDS = 60.0
PAUSE_SECONDS_MAX = 4 * 3600.0  # doubled up to here by each visit that fails
VISIT_SECONDS_MAX = 10.0  # no probe begins meanwhile
ATTEMPT_COUNT_MAX = 3  # to write while others write as well
SEAT_ATTEMPT_COUNT_MAX = 2  # who was too late sees who was not
REFUSAL_COUNT_MAX = 3  # visits: two that try the conditions at the same moment may both be refused
FRESH_INTERVALS = 32.0  # mean intervals: what others measured within these stands in for own probes
WAIT_SECONDS = 3600.0  # for the first that others measure, while one of them holds a seat
LEDGER_NAME = "fleet"  # what visits cost is booked under
_ATTEMPT_PAUSE_SECONDS = 0.5
_TRIAL_REQUEST_COUNT_MAX = 5
_TRIAL_BYTES_MAX = 1024
_WRONG_ETAG = '"00000000000000000000000000000000"'

_log = logging.getLogger(__name__)

Own = Callable[[Place], Awaitable[Sequence[Evidence[Any]]]]
"""What this host measured of a place and may tell others."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A document as it was last seen; no tag where there was none."""

    etag: str | None = None
    prior: Prior[Any] = field(default_factory=Prior)


@dataclass(frozen=True, slots=True)
class _Seats:
    """Who probes a place, as it was last seen, and since when each seat stands as it does."""

    etag: str | None = None
    probers: Probers = field(default_factory=Probers)
    since: Mapping[Seat, float] = field(default_factory=dict)
    held_until_seconds: float = -1e18  # by this host
    held_since_seconds: float | None = None  # by this host, also where it renews it no more


@dataclass(eq=False)
class Fleet:
    """One host's way to the bucket."""

    section: FleetSection
    outside: Outside
    clock: Clock
    _: KW_ONLY
    places: Sequence[Place]  # that are heard of
    # Those of them that are probed here, and may be spared, with the mean interval of that in seconds.
    probed: Mapping[Place, float] = field(default_factory=dict)
    region: str  # the bucket's
    tariff: Tariff
    host_name: str
    seed: int

    def __post_init__(self) -> None:
        self._chance = random.Random(f"fleet {self.host_name} {self.seed}")
        self.host = word_for(self.host_name, self.seed)
        self._known: dict[Place, _Known] = {place: _Known() for place in self.places}
        self._offered_until: dict[Place, datetime] = {}
        self._probed = sorted(self.probed, key=str) if self.section.prober_count else []
        self._seats: dict[Place, _Seats] = {place: _Seats() for place in self._probed}
        self._waiting_since_seconds: dict[Place, float] = {}
        self._refusal_count = 0
        # Of these others told something that nobody has learned from yet.
        self.news: set[Place] = set()
        self._is_writing: bool | None = None if self.section.may_write else False  # None: to be tried
        self._why_not_writing = "" if self.section.may_write else "fleet.may_write is false"
        self._try_seconds = 0.0  # not before that again, where it could not be written
        self._trouble: str | None = None
        self._pause_seconds = PAUSE_SECONDS
        self._due_seconds = -1e18  # at the start
        self._visited_at: datetime | None = None
        self._written_count = 0
        self.used = Cost()  # by the visit that is on its way, or was the last

    @property
    def due_in_seconds(self) -> float:
        """When `visit` is to be called."""
        return self._due_seconds - self.clock.monotonic_seconds()

    @property
    def cost_max(self) -> Cost:
        reads = ATTEMPT_COUNT_MAX * len(self.places) + SEAT_ATTEMPT_COUNT_MAX * len(self._probed)
        reads += _TRIAL_REQUEST_COUNT_MAX
        writes = reads if self._is_writing or self._is_to_be_tried else 0
        body_bytes = prior.DOCUMENT_BYTES_MAX
        return self._cost(reads=reads, writes=writes, received=reads * body_bytes, sent=writes * body_bytes)

    @property
    def _is_to_be_tried(self) -> bool:
        """Whether to try to write: at the start, and now and then where it was refused, for rights come back."""
        if self._is_writing is False:
            return self.section.may_write and self._try_seconds <= self.clock.monotonic_seconds()
        return self._is_writing is None

    def told(self, place: Place, own: Sequence[Observation[Any]]) -> list[Observation[Any]]:
        known = self._known.get(place)
        return prior.of_others(known.prior.evidence, self.host, own) if known else []

    def holds(self, place: Place) -> bool:
        """Whether this host is one of those that probe the place."""
        seats = self._seats.get(place)
        return seats is not None and self.clock.monotonic_seconds() < seats.held_until_seconds

    def spared_until(self, place: Place) -> datetime | None:
        """When to look again whether a probe is needed, for another host measures; None where one is needed."""
        seats, known = self._seats.get(place), self._known.get(place)
        if seats is None or known is None or self.holds(place):
            return None
        seconds = self.clock.monotonic_seconds()
        if not self._is_fresh(place, [e for e in known.prior.evidence if e.host != self.host]):
            alive = [s for s in seats.probers.seats if s.host != self.host]
            is_alive = bool(set(alive) - probers.expired(seats.since, seconds))
            waited_seconds = seconds - self._waiting_since_seconds.setdefault(place, seconds)
            if not is_alive or waited_seconds > WAIT_SECONDS:
                return None
        else:
            self._waiting_since_seconds.pop(place, None)
        return self.clock.now() + timedelta(seconds=self.probed[place] * self._chance.uniform(1.0, 3.0))

    def _is_fresh(self, place: Place, evidence: Iterable[Evidence[Any]]) -> bool:
        """Whether the newest of it stands in for probes."""
        since = self.clock.now() - timedelta(seconds=FRESH_INTERVALS * self.probed[place])
        return any(one.observation.started_at >= since for one in evidence)

    def postpone(self, trouble: str) -> None:
        """The visit that is due is not made, for this reason; later it may be."""
        self._fail(trouble)

    async def visit(self, own: Own) -> None:
        """Read what is new of each place, and write what was measured here. Fails by saying so in `document`."""
        self.used = Cost()
        if self._is_to_be_tried:
            self._is_writing = None
        try:
            async with asyncio.timeout(VISIT_SECONDS_MAX):
                store = await self.outside.object_store(self.region)
                for place in self.places:
                    await self._read(store, place)
                if self._is_writing is None:
                    await self._try_conditions(store)
                for place in self.places if self._is_writing else ():
                    await self._write(store, place, await own(place))
                for place in self._probed:
                    await self._take_seat(store, place, measures=self._is_fresh(place, await own(place)))
        except TimeoutError:
            self._fail(f"the bucket did not answer within {VISIT_SECONDS_MAX:g} s")
        except RequestError as trouble:
            self._fail(str(trouble))
        else:
            if self._trouble is not None:
                _log.warning("the fleet's bucket is there again")
            self._trouble = None
            self._pause_seconds = SOON_SECONDS if self._is_writing is None else PAUSE_SECONDS
            self._visited_at = self.clock.now()
            self._be_due()

    def document(self) -> dict[str, Any]:
        return {
            "bucket": self.section.bucket,
            "key_prefix": self.section.key_prefix,
            "host": self.host,
            "is_writing": bool(self._is_writing),
            "sentence": self.sentence,
            "trouble": self._trouble,
            "visited_at": self._visited_at,
            "written_count": self._written_count,
            "places": [
                {
                    "operation": place.operation,
                    "region": place.region,
                    "instance_type": place.instance_type,
                    "service_class": place.service_class,
                    "observation_count": len(known.prior.evidence),
                    "host_count": len({one.host for one in known.prior.evidence}),
                    "newest_observation_at": _newest_at(known.prior),
                    "dropped": known.prior.remark,
                    "is_probed_here": place not in self._seats or self.holds(place),
                }
                for place, known in self._known.items()
                if known.prior.evidence or known.prior.dropped
            ],
        }

    @property
    def sentence(self) -> str:
        """What an operator wants to know first."""
        bucket = f"{self.section.bucket}/{self.section.key_prefix}"
        if self._trouble is not None:
            return f"{bucket} is not read: {self._trouble}; this host learns alone"
        if self._is_writing:
            return f"{bucket} is read and written"
        if self._is_writing is None:
            return f"{bucket} is read, and whether it can be written is not known yet"
        return f"{bucket} is read, and not written: {self._why_not_writing}"

    # --- Requests, each counted before it is sent

    async def _read(self, store: ObjectStore, place: Place) -> None:
        """Take up the document if it is another one than before."""
        known = self._known[place]
        try:
            found = await self._get(store, self._key(place), known.etag, prior.DOCUMENT_BYTES_MAX)
        except Missing as missing:
            _raise_if_bucket(missing)
            after = _Known()
        else:
            if found is None:
                return
            model = OPERATIONS[place.operation].model
            after = _Known(found.etag, prior.read(found.body, model, place, self.clock.now()))
        told, before = after.prior, known.prior
        if told.remark is not None and told.remark != before.remark:
            _log.warning("of what the fleet says of %s, some is dropped: %s", place.operation, told.remark)
        if told.evidence != before.evidence:
            self.news.add(place)
        if not told.evidence:
            self._offered_until.pop(place, None)  # begin anew where nothing is left
        self._known[place] = after

    async def _write(self, store: ObjectStore, place: Place, own: Sequence[Evidence[Any]]) -> None:
        """Add what is new here to what others say, as often as they come in between."""
        until = self._offered_until.get(place)
        new = [one for one in own if until is None or one.observation.started_at > until]
        for attempt in range(ATTEMPT_COUNT_MAX if new else 0):
            if attempt:
                await asyncio.sleep(_ATTEMPT_PAUSE_SECONDS * (1 + self._chance.random()))
                await self._read(store, place)
            known = self._known[place]
            if known.prior.is_of_newer_format:
                return
            merged = prior.merged(known.prior.evidence, new, now=self.clock.now())
            if merged == known.prior.evidence:
                break
            body = prior.written(place, merged)
            try:
                etag = await self._put(store, self._key(place), body, known.etag)
            except (Changed, Missing) as trouble:
                _raise_if_bucket(trouble)
                continue
            except (Denied, NotOffered) as trouble:
                self._write_no_more(str(trouble))
                return
            self._written_count += 1
            self._known[place] = _Known(etag, Prior(evidence=merged))
            break
        else:
            return  # others were faster; at the next visit
        self._offered_until[place] = max(one.observation.started_at for one in new)

    async def _try_conditions(self, store: ObjectStore) -> None:
        """Whether the store keeps a write from happening whose condition does not hold, and lets one that does."""
        key = f"{self.section.key_prefix}conditions.json"
        try:
            etag = await self._etag(store, key)
            try:
                await self._put(store, key, self._trial_body(), etag)
            except Changed:
                # Another host may have tried at the same moment: then again, at the next visit.
                self._refusal_count += await self._etag(store, key) == etag
                if self._refusal_count >= REFUSAL_COUNT_MAX:
                    self._write_no_more("the store refuses conditional writes whose condition holds")
                return
            for name, wrong in (("If-None-Match", None), ("If-Match", _WRONG_ETAG)):
                try:
                    await self._put(store, key, self._trial_body(), wrong)
                except (Changed, Missing) as trouble:
                    _raise_if_bucket(trouble)
                else:
                    self._write_no_more(f"the store ignores {name}, and hosts would overwrite each other")
                    return
        except Denied as trouble:
            self._write_no_more(str(trouble))
        except Refused as trouble:
            self._write_no_more(f"the store refuses conditional writes ({trouble})")
        else:
            self._is_writing, self._why_not_writing = True, ""
            _log.info("%s", self.sentence)

    async def _take_seat(self, store: ObjectStore, place: Place, *, measures: bool) -> None:
        """Hosts that begin together all find it free; otherwise each would measure until its next visit."""
        for _ in range(SEAT_ATTEMPT_COUNT_MAX):
            if await self._sit(store, place, measures=measures):
                return

    async def _sit(self, store: ObjectStore, place: Place, *, measures: bool) -> bool:
        """Renew this host's seat, or take one that is free; whether who has the others is known.

        Who has nothing to tell after an hour leaves it to others: its probes fail, and they would wait for it in vain.
        """
        key = prior.key(self.section.key_prefix, place, kind="probers")
        seats, seconds = self._seats[place], self.clock.monotonic_seconds()
        try:
            found = await self._get(store, key, seats.etag, probers.DOCUMENT_BYTES_MAX)
        except Missing as missing:
            _raise_if_bucket(missing)
            etag, told = None, Probers()
        else:
            etag, told = (
                (seats.etag, seats.probers) if found is None else (found.etag, probers.read(found.body))
            )
        since = probers.seen(seats.since, told, seconds)
        has_seat = told.has(self.host)
        held_until_seconds = seats.held_until_seconds if has_seat else -1e18
        held_since_seconds = seats.held_since_seconds if has_seat else None
        self._seats[place] = _Seats(etag, told, since, held_until_seconds, held_since_seconds)
        gone, count = probers.expired(since, seconds), self.section.prober_count
        has_had_time = held_since_seconds is not None and seconds - held_since_seconds > WAIT_SECONDS
        may_sit = self._is_writing and (measures or not has_had_time)
        mine = probers.claimed(told, self.host, seat_count=count, gone=gone) if may_sit else None
        if mine is None:
            return True
        try:
            etag = await self._put(store, key, probers.written(mine), etag)
        except (Changed, Missing) as trouble:  # somebody else has it now
            _raise_if_bucket(trouble)
            return False
        except (Denied, NotOffered):
            return True
        since = probers.seen(since, mine, seconds)
        if held_since_seconds is None:
            held_since_seconds = seconds
        self._seats[place] = _Seats(etag, mine, since, seconds + probers.HOLD_SECONDS, held_since_seconds)
        return True

    def _trial_body(self) -> bytes:
        """Each another one, so that each has a tag of its own."""
        return msgspec.json.encode({"host": self.host, "tried": self._chance.getrandbits(64)})

    async def _etag(self, store: ObjectStore, key: str) -> str | None:
        try:
            found = await self._get(store, key, None, _TRIAL_BYTES_MAX)
        except Missing as missing:
            _raise_if_bucket(missing)
            return None
        return found.etag if found else None

    async def _get(
        self, store: ObjectStore, key: str, etag: str | None, size_bytes_max: int
    ) -> Tagged | None:
        self.used += self._cost(reads=1)
        found = await store.get_unless(self.section.bucket, key, etag, size_bytes_max=size_bytes_max)
        if found is not None:
            self.used += self._cost(received=len(found.body))
        return found

    async def _put(self, store: ObjectStore, key: str, body: bytes, etag: str | None) -> str:
        self.used += self._cost(writes=1, sent=len(body))
        return await store.put_if(self.section.bucket, key, body, etag)

    def _cost(self, *, reads: int = 0, writes: int = 0, received: int = 0, sent: int = 0) -> Cost:
        usd = self.tariff.usd(
            read_request_count=reads, write_request_count=writes, received_bytes=received, sent_bytes=sent
        )
        moved_bytes = received + sent + (reads + writes) * BESIDE_PAYLOAD_BYTES
        return Cost(transferred_bytes=moved_bytes, request_count=reads + writes, usd=usd)

    # --- How it went

    def _key(self, place: Place) -> str:
        return prior.key(self.section.key_prefix, place)

    def _write_no_more(self, why: str) -> None:
        is_news = why != self._why_not_writing
        self._is_writing, self._why_not_writing = False, why
        self._try_seconds = self.clock.monotonic_seconds() + PAUSE_SECONDS_MAX
        if is_news:
            _log.warning("%s", self.sentence)

    def _fail(self, trouble: str) -> None:
        if self._trouble is None:
            _log.warning("the fleet's bucket is not read: %s; this host learns alone until it is", trouble)
        self._trouble = trouble
        self._be_due()
        self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)

    def _be_due(self) -> None:
        jitter = self._chance.uniform(1 - JITTER_FRACTION, 1 + JITTER_FRACTION)
        self._due_seconds = self.clock.monotonic_seconds() + self._pause_seconds * jitter


def word_for(host_name: str, seed: int) -> str:
    """By which hosts are told apart; no name of one is told."""
    return hashlib.blake2b(f"{host_name}/{seed}".encode(), digest_size=8).hexdigest()


def _newest_at(told: Prior[Any]) -> datetime | None:
    return told.evidence[-1].observation.started_at if told.evidence else None


def _raise_if_bucket(trouble: RequestError) -> None:
    """What is not there is begun; a bucket is not."""
    if isinstance(trouble, NoBucket):
        raise trouble
