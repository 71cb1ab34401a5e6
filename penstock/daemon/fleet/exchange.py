"""Knows when this host reads what others measured from the fleet's bucket, and when it writes there what it measured.

The conductor calls `visit` between two probes, so that its requests are never part of a measurement. Everything fails
open: a bucket that is gone, slow or refusing costs a visit of at most some seconds, at growing intervals, and the host
learns as it would without one. `bucket.py` finds out whether this host may write, and `seats.py` which hosts probe for
the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from penstock.clock import Clock
from penstock.daemon.config import FleetSection
from penstock.daemon.fleet.bucket import TRIAL_REQUEST_COUNT_MAX, Bucket, RightToWrite
from penstock.daemon.fleet.seats import ATTEMPT_COUNT_MAX as SEAT_ATTEMPT_COUNT_MAX
from penstock.daemon.fleet.seats import Seats
from penstock.fleet import prior
from penstock.fleet.prior import Evidence, Prior
from penstock.operations.operation import Outside
from penstock.operations.table import OPERATIONS
from penstock.probes.outside import Denied, NotOffered, RequestError
from penstock.vocabulary import Cost, Observation, Place, Tariff

PAUSE_SECONDS = 900.0  # a quarter of an hour between visits, give or take the jitter
JITTER_FRACTION = 0.2
# After a visit that did not find out whether writing works, as when many hosts begin at the same moment.
SOON_SECONDS = 60.0
PAUSE_SECONDS_MAX = 4 * 3600.0  # doubled up to here by each visit that fails
VISIT_SECONDS_MAX = 10.0  # no probe begins during a visit
ATTEMPT_COUNT_MAX = 3  # to write while others write as well
FRESH_INTERVALS = 32.0  # mean intervals: what others measured within these replaces own probes
LEDGER_NAME = "fleet"  # the name under which the cost of visits is booked
_ATTEMPT_PAUSE_SECONDS = 0.5

_log = logging.getLogger(__name__)

Own = Callable[[Place], Awaitable[Sequence[Evidence[Any]]]]
"""Returns what this host measured of a place and may share."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A place's document as it was last read; no tag where there was none."""

    etag: str | None = None
    prior: Prior[Any] = field(default_factory=Prior)


@dataclass(eq=False)
class Fleet:
    """One host's exchange of measurements through the bucket."""

    section: FleetSection
    outside: Outside
    clock: Clock
    _: KW_ONLY
    places: Sequence[Place]  # whose documents are read
    # Those of them that are probed here unless other hosts do, each with its mean interval in seconds.
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
        self._bucket = Bucket(self.section, self.outside, region=self.region, tariff=self.tariff)
        self._right = RightToWrite(self.section, self.clock, self.host, self._chance)
        self.seats = Seats(self.probed, self.section, self.clock, self.host)
        # Places with news from others that were not learned from yet.
        self.news: set[Place] = set()
        self._trouble: str | None = None
        self._pause_seconds = PAUSE_SECONDS
        self._due_seconds = -1e18  # at the start
        self._visited_at: datetime | None = None
        self._written_count = 0

    @property
    def used(self) -> Cost:
        """The cost of the present visit, or of the last one."""
        return self._bucket.used

    @property
    def due_in_seconds(self) -> float:
        """In how many seconds `visit` is to be called; not positive when it is due."""
        return self._due_seconds - self.clock.monotonic_seconds()

    @property
    def cost_max(self) -> Cost:
        reads = ATTEMPT_COUNT_MAX * len(self.places) + SEAT_ATTEMPT_COUNT_MAX * len(self.seats.places)
        reads += TRIAL_REQUEST_COUNT_MAX
        writes = reads if self._right.is_held or self._right.is_to_be_tried else 0
        body_bytes = prior.DOCUMENT_BYTES_MAX
        return self._bucket.cost(
            reads=reads, writes=writes, received=reads * body_bytes, sent=writes * body_bytes
        )

    def told(self, place: Place, own: Sequence[Observation[Any]]) -> list[Observation[Any]]:
        known = self._known.get(place)
        return prior.of_others(known.prior.evidence, own) if known else []

    def spared_until(self, place: Place) -> datetime | None:
        """When to look again, while another host measures the place; None where a probe is needed here."""
        known = self._known.get(place)
        if known is None or place not in self.probed:
            return None
        is_told = self._is_fresh(place, [e for e in known.prior.evidence if e.host != self.host])
        if not self.seats.is_spared(place, is_told=is_told):
            return None
        return self.clock.now() + timedelta(seconds=self.probed[place] * self._chance.uniform(1.0, 3.0))

    def _is_fresh(self, place: Place, evidence: Iterable[Evidence[Any]]) -> bool:
        """Whether the newest of it replaces probes."""
        since = self.clock.now() - timedelta(seconds=FRESH_INTERVALS * self.probed[place])
        return any(one.observation.started_at >= since for one in evidence)

    def postpone(self, trouble: str) -> None:
        """Note why the visit that was due was not made or failed, and be due again later."""
        if self._trouble is None:
            _log.warning("the fleet's bucket is not read: %s; this host learns alone until it is", trouble)
        self._trouble = trouble
        self._be_due()
        self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)

    async def visit(self, own: Own) -> None:
        """Read what is new of each place, and write what was measured here. Failures are shown by `document`."""
        if self._right.is_to_be_tried:
            self._right.is_held = None
        try:
            async with asyncio.timeout(VISIT_SECONDS_MAX):
                await self._bucket.open()
                for place in self.places:
                    await self._read(place)
                if self._right.is_held is None:
                    await self._right.try_it(self._bucket)
                for place in self.places if self._right.is_held else ():
                    await self._write(place, await own(place))
                for place in self.seats.places:
                    measures = self._is_fresh(place, await own(place))
                    may_write = bool(self._right.is_held)
                    await self.seats.take(self._bucket, place, may_write=may_write, measures=measures)
        except TimeoutError:
            self.postpone(f"the bucket did not answer within {VISIT_SECONDS_MAX:g} s")
        except RequestError as trouble:
            self.postpone(str(trouble))
        else:
            if self._trouble is not None:
                _log.warning("the fleet's bucket is there again")
            self._trouble = None
            self._pause_seconds = SOON_SECONDS if self._right.is_held is None else PAUSE_SECONDS
            self._visited_at = self.clock.now()
            self._be_due()

    def document(self) -> dict[str, Any]:
        return {
            "bucket": self.section.bucket,
            "key_prefix": self.section.key_prefix,
            "host": self.host,
            "is_writing": bool(self._right.is_held),
            "sentence": self.sentence,
            "trouble": self._trouble,
            "visited_at": self._visited_at,
            "written_count": self._written_count,
            "places": [
                {
                    **asdict(place),
                    "observation_count": len(known.prior.evidence),
                    "host_count": len({one.host for one in known.prior.evidence}),
                    "newest_observation_at": max(
                        (one.observation.started_at for one in known.prior.evidence), default=None
                    ),
                    "dropped": known.prior.remark,
                    "is_probed_here": place not in self.seats.places or self.seats.holds(place),
                }
                for place, known in self._known.items()
                if known.prior.evidence or known.prior.dropped
            ],
        }

    @property
    def sentence(self) -> str:
        """One sentence about the state of the exchange, for the operator."""
        if self._trouble is None:
            return self._right.sentence
        bucket = f"{self.section.bucket}/{self.section.key_prefix}"
        return f"{bucket} is not read: {self._trouble}; this host learns alone"

    # --- The document of a place

    async def _read(self, place: Place) -> None:
        """Take up the place's document if it has changed."""
        known = self._known[place]
        found = await self._bucket.get(self._key(place), known.etag, prior.DOCUMENT_BYTES_MAX)
        if found is None:
            return
        after = _Known()
        if found.etag is not None:
            model = OPERATIONS[place.operation].model
            after = _Known(found.etag, prior.read(found.body, model, place, self.clock.now()))
        told, before = after.prior, known.prior
        if told.remark is not None and told.remark != before.remark:
            _log.warning("of what the fleet says of %s, some is dropped: %s", place.operation, told.remark)
        if told.evidence != before.evidence:
            self.news.add(place)
        if not told.evidence:
            self._offered_until.pop(place, None)  # the document is empty: write everything again
        self._known[place] = after

    async def _write(self, place: Place, own: Sequence[Evidence[Any]]) -> None:
        """Add what is new here to the place's document; try again when another host has written in between."""
        until = self._offered_until.get(place)
        if until is not None and until > self.clock.now():  # dated by a clock that was ahead
            until = None
        new = [one for one in own if until is None or one.observation.started_at > until]
        for attempt in range(ATTEMPT_COUNT_MAX if new else 0):
            if attempt:
                await asyncio.sleep(_ATTEMPT_PAUSE_SECONDS * (1 + self._chance.random()))
                await self._read(place)
            known = self._known[place]
            if known.prior.is_of_newer_format:
                return
            merged = prior.merged(known.prior.evidence, new, now=self.clock.now())
            if merged == known.prior.evidence:
                break
            body = prior.written(place, merged)
            try:
                etag = await self._bucket.put(self._key(place), body, known.etag)
            except (Denied, NotOffered) as trouble:
                self._right.lose(str(trouble))
                return
            if etag is None:
                continue
            self._written_count += 1
            self._known[place] = _Known(etag, Prior(evidence=merged))
            break
        else:
            return  # others were faster each time: try at the next visit
        self._offered_until[place] = max(one.observation.started_at for one in new)

    # --- How it went

    def _key(self, place: Place) -> str:
        return prior.key(self.section.key_prefix, place)

    def _be_due(self) -> None:
        jitter = self._chance.uniform(1 - JITTER_FRACTION, 1 + JITTER_FRACTION)
        self._due_seconds = self.clock.monotonic_seconds() + self._pause_seconds * jitter


def word_for(host_name: str, seed: int) -> str:
    """The word that tells hosts apart in the bucket, without telling their names: 16 hexadecimal digits."""
    return hashlib.blake2b(f"{host_name}/{seed}".encode(), digest_size=8).hexdigest()
