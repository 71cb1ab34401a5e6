"""Knows who was throttled lately, as heard, reported and probed, and whether that speaks against the advice.

If one user is heard to be throttled, the next probe comes sooner, a few times a day at most. The advice is reduced only
after a second witness, for an hour (`listening/refusals.py`). Subordinate user ids are no witnesses, because any
account may have thousands of them.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.clock import Clock
from penstock.daemon.heard.hearing import Hearing
from penstock.listening.harm import window
from penstock.listening.refusals import HELD_FRACTION, HELD_SECONDS, Refused, Way, against
from penstock.listening.tally import Sender, Series
from penstock.models.model import THROUGHPUT
from penstock.operations.table import OPERATIONS
from penstock.vocabulary import (
    Context,
    Observation,
    Origin,
    Place,
    Recommendation,
    Setting,
    is_stray,
    setting_values,
)

HASTENED_COUNT_MAX = 4  # probes in a day: applications must not control when probes come
_DAY_SECONDS = 86_400.0
_ONE_STORM_SECONDS = 60.0  # refusals that follow within this time are the same event
_SUBORDINATE = Path("/etc/subuid")
_SUBORDINATE_BYTES_MAX = 1 << 16

log = logging.getLogger(__name__)


class RefusalWatch:
    """Watches refusals of the operations and regions that are probed."""

    def __init__(
        self,
        hearing: Hearing,
        clock: Clock,
        home: Place,
        probed: Iterable[Context],
        *,
        subordinate: Path = _SUBORDINATE,
    ) -> None:
        self._hearing = hearing
        self._clock = clock
        self._home = home
        self._ways = frozenset((context.operation, context.place.region) for context in probed)
        self._subordinate = subordinate
        self._totals = hearing.totals()
        self._looked_seconds = clock.monotonic_seconds()
        self._began: dict[Sender, float] = {}
        self._refused: dict[tuple[Way, int | None], Refused] = {}  # one for each way and user at most
        self._hastened = deque[float](maxlen=HASTENED_COUNT_MAX)  # moments on the monotonic clock

    def look(self, probed_seconds: float) -> tuple[bool, set[Way]]:
        """Whether refusals were heard or have expired, and which ways to probe sooner; to be called every ten seconds.

        `probed_seconds` is when a probe was in flight last, on the monotonic clock: refusals beside a probe say nothing
        about the advice.
        """
        now_seconds = self._clock.monotonic_seconds()
        before, self._totals = self._totals, self._hearing.totals()
        looked_seconds, self._looked_seconds = self._looked_seconds, now_seconds
        self._began = {sender: self._began.get(sender, now_seconds) for sender in self._totals}
        refused = {
            sender
            for sender, heard in window(before, self._totals).items()
            if sender[1] is not None and not is_stray(heard.refused_count, heard.attempt_count)
        }
        is_heard = bool(refused) and probed_seconds < looked_seconds
        sooner = self._note_heard(refused, now_seconds) if is_heard else set()
        over = [key for key, one in self._refused.items() if now_seconds - one.ended_seconds > HELD_SECONDS]
        for key in over:
            del self._refused[key]
        return is_heard or bool(over), {way for way in sorted(sooner) if self._may_hasten(now_seconds)}

    def note(self, observations: Iterable[Observation[Any]]) -> None:
        """Take up refusals in reports and probes, which are the second witness."""
        subordinate = self._subordinate_ranges()
        for observation in observations:
            place, who = observation.context.place, observation.reporter_uid
            way = place.operation, place.region
            is_refused = not is_stray(observation.throttled_count, observation.request_count)
            if way in self._ways and is_refused and not _is_among(subordinate, who):
                self._note(
                    Refused(
                        way=way,
                        who=None if observation.origin is Origin.PROBE else who,
                        is_heard=False,
                        connection_count=_connection_count(observation.setting),
                        after_seconds=observation.duration_seconds,
                        ended_seconds=self._clock.monotonic_seconds(),
                    )
                )

    def caution(self, advice: Recommendation[Any]) -> tuple[float, str] | None:
        """The fraction of the advice that is left, and why; None where nothing speaks against it."""
        throughput = advice.prediction.get(THROUGHPUT)
        if not self._refused or throughput is None:  # queues run without end, so they have no duration
            return None
        context = advice.context
        transferred_bytes = context.payload_size_bytes * advice.demand.object_count
        told = against(
            self._refused.values(),
            (context.operation, context.place.region),
            connection_count=_connection_count(advice.setting),
            transfer_seconds=transferred_bytes / max(throughput.expected, 1.0),
        )
        if not told:
            return None
        left_seconds = min(one.ended_seconds for one in told) + HELD_SECONDS - self._clock.monotonic_seconds()
        until = self._clock.now() + timedelta(seconds=left_seconds)
        names = " and ".join(sorted({one.name for one in told}))
        return HELD_FRACTION, (
            f"Held back until {until:%H:%M} UTC: requests of {names} were refused after up to "
            f"{max(one.after_seconds for one in told):.0f} s with no more connections."
        )

    def _note_heard(self, refused: set[Sender], now_seconds: float) -> set[Way]:
        """Take up refusals that were heard; returns the ways for which that is new."""
        new, subordinate = set(), self._subordinate_ranges()
        heard = [(series, self._ways_of(series)) for series in self._hearing.series()]
        # The optimum is the host's: connections of all its applications count.
        in_flight: Counter[Way] = Counter()
        for series, ways in heard:
            in_flight.update(dict.fromkeys(ways, series.in_flight_count_max))
        for series, ways in heard:
            sender = series.key, series.user_id
            if sender not in refused or _is_among(subordinate, series.user_id):
                continue
            for way in ways:
                known = self._refused.get((way, series.user_id))
                began = max(self._began[sender], known.ended_seconds if known else self._began[sender])
                found = Refused(
                    way=way,
                    who=series.user_id,
                    is_heard=True,
                    connection_count=in_flight[way],
                    after_seconds=now_seconds - began,
                    ended_seconds=now_seconds,
                )
                if self._note(found):
                    new.add(way)
                    log.info("%s in %s: requests of %s are refused", *way, found.name)
        return new

    def _note(self, found: Refused) -> bool:
        """Take up a refusal; returns whether it is a new event."""
        key = found.way, found.who
        known = self._refused.get(key)
        is_new = known is None or found.ended_seconds - known.ended_seconds > _ONE_STORM_SECONDS
        self._refused[key] = (
            found if is_new or known is None else replace(known, ended_seconds=found.ended_seconds)
        )
        return is_new

    def _ways_of(self, series: Series) -> list[Way]:
        """The ways that a series counts for; none where it does not tell its count of connections."""
        region = series.key.region or self._home.region
        return [
            (name, region)
            for name, region_of in self._ways
            if region_of == region and _tells_connections(name, series, replace(self._home, region=region))
        ]

    def _may_hasten(self, now_seconds: float) -> bool:
        if len(self._hastened) == HASTENED_COUNT_MAX and now_seconds - self._hastened[0] < _DAY_SECONDS:
            return False
        self._hastened.append(now_seconds)
        return True

    def _subordinate_ranges(self) -> list[range]:
        """The ranges of subordinate user ids, from /etc/subuid."""
        try:
            with self._subordinate.open(encoding="utf-8") as file:
                lines = file.read(_SUBORDINATE_BYTES_MAX).splitlines()
        except (OSError, ValueError):
            return []
        ranges = (line.rsplit(":", 2)[1:] for line in lines if line.count(":") >= 2)
        return [
            range(int(first), int(first) + int(count))
            for first, count in ranges
            if first.isdigit() and count.isdigit()
        ]


def _is_among(ranges: Iterable[range], user_id: int | None) -> bool:
    return any((user_id or 0) in users for users in ranges)


def _tells_connections(operation: str, series: Series, home: Place) -> bool:
    row = OPERATIONS[operation]
    if row.service != series.key.service.lower():
        return False
    context = Context(place=replace(home, operation=operation), payload_size_bytes=row.untold_payload_bytes)
    own = row.model.default_setting(context)
    driven = row.driven({series.key.api: series}, own, own)
    return driven is not None and driven.setting is not None


def _connection_count(setting: Setting) -> float:
    """The thread count of the setting; infinite where it has none."""
    return setting_values(setting).get("thread_count", math.inf)
