"""Knows which places this host probes for the fleet, and which others probe for it: holders of seats in the bucket."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from penstock.clock import Clock
from penstock.daemon.config import FleetSection
from penstock.daemon.fleet.bucket import Bucket
from penstock.fleet import prior, probers
from penstock.fleet.probers import Probers, Seat
from penstock.probes.outside import Denied, NotOffered
from penstock.vocabulary import Place

ATTEMPT_COUNT_MAX = 2  # a host that loses the race for a seat reads which host has it now
WAIT_SECONDS = 3600.0  # for the first measurement of others, while one of them holds a seat


@dataclass(frozen=True, slots=True)
class _Seats:
    """Who probes a place, as last read, and since when each seat is unchanged."""

    etag: str | None = None
    probers: Probers = field(default_factory=Probers)
    since: Mapping[Seat, float] = field(default_factory=dict)
    held_until_seconds: float = -1e18  # until when this host holds its seat
    held_since_seconds: float | None = None  # since when it does, kept after it stopped renewing


class Seats:
    """The seats of all places that are probed here, if the fleet has probers."""

    def __init__(self, places: Collection[Place], section: FleetSection, clock: Clock, host: str) -> None:
        self._section, self._clock, self._host = section, clock, host
        self._seats = {place: _Seats() for place in sorted(places, key=str) if section.prober_count}
        self._waiting_since_seconds: dict[Place, float] = {}

    @property
    def places(self) -> Collection[Place]:
        return self._seats.keys()

    def holds(self, place: Place) -> bool:
        """Whether this host is one of those that probe the place."""
        seats = self._seats.get(place)
        return seats is not None and self._clock.monotonic_seconds() < seats.held_until_seconds

    def is_spared(self, place: Place, *, is_told: bool) -> bool:
        """Whether others probe the place for this host: they told something fresh (`is_told`), or soon will."""
        if place not in self._seats or self.holds(place):
            return False
        if is_told:
            self._waiting_since_seconds.pop(place, None)
            return True
        seats, seconds = self._seats[place], self._clock.monotonic_seconds()
        alive = {seat for seat in seats.probers.seats if seat.host != self._host}
        alive -= probers.expired(seats.since, seconds)
        waited_seconds = seconds - self._waiting_since_seconds.setdefault(place, seconds)
        return bool(alive) and waited_seconds <= WAIT_SECONDS

    async def take(self, bucket: Bucket, place: Place, *, may_write: bool, measures: bool) -> None:
        """Renew or take a seat, with a second attempt if another host was faster.

        Without that, hosts that begin at the same moment would each measure until their next visit.
        """
        for _ in range(ATTEMPT_COUNT_MAX):
            if await self._sit(bucket, place, may_write=may_write, measures=measures):
                return

    async def _sit(self, bucket: Bucket, place: Place, *, may_write: bool, measures: bool) -> bool:
        """Renew this host's seat, or take a free one; returns whether it is known who holds the seats now.

        A host that has measured nothing after an hour gives its seat up: its probes fail, and others would wait in
        vain.
        """
        key = prior.key(self._section.key_prefix, place, kind="probers")
        seats, seconds = self._seats[place], self._clock.monotonic_seconds()
        found = await bucket.get(key, seats.etag, probers.DOCUMENT_BYTES_MAX)
        etag, told = (found.etag, probers.read(found.body)) if found else (seats.etag, seats.probers)
        since = probers.seen(seats.since, told, seconds)
        if not told.has(self._host):
            seats = _Seats()
        self._seats[place] = seats = replace(seats, etag=etag, probers=told, since=since)
        began_seconds = seats.held_since_seconds
        has_had_time = began_seconds is not None and seconds - began_seconds > WAIT_SECONDS
        gone, count = probers.expired(since, seconds), self._section.prober_count
        mine = probers.claimed(told, self._host, seat_count=count, gone=gone)
        if mine is None or not may_write or (has_had_time and not measures):
            return True
        try:
            etag = await bucket.put(key, probers.written(mine), etag)
        except (Denied, NotOffered):
            return True
        if etag is None:  # somebody else has it now
            return False
        self._seats[place] = _Seats(
            etag,
            mine,
            probers.seen(since, mine, seconds),
            held_until_seconds=seconds + probers.HOLD_SECONDS,
            held_since_seconds=seconds if began_seconds is None else began_seconds,
        )
        return True
