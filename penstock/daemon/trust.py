"""Knows which reports of applications are accepted: possible ones, and not too many from one user.

Anybody who may use the socket may report. Malformed and contradictory reports are refused while they are parsed
(`api.wire`); the checks here need the host, the clock and the history. Which of the accepted reports are believed is
decided at each fit, by comparison with measurements (`optimizer.reports`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.api.wire import CLOCK_SKEW_MAX
from penstock.clock import Clock
from penstock.operations.table import OPERATIONS
from penstock.units import format_rate
from penstock.vocabulary import Observation, Place

REPORT_COUNT_BURST = 600  # of one user: the size of the token bucket
REPORT_COUNT_PER_SECOND = 1.0  # its rate: who reports each of 100 transfers a second is told to report fewer
CEILING_FACTOR_MAX = 2.0  # over the instance's peak in our table, which may be old
PLACE_COUNT_MAX_PER_USER = 8  # besides those that are probed; each place costs a fit
PLACE_COUNT_MAX = 64
USER_COUNT_MAX = 1024


@dataclass(slots=True)
class _Account:
    """What one user may still report: a token bucket, and the places reported about so far."""

    tokens: float
    filled_seconds: float  # on the monotonic clock
    places: set[Place]


class Door:
    """Accepts or refuses reports, user by user. `watched` returns the places that are probed or have a fit already."""

    def __init__(self, clock: Clock, watched: Callable[[], Collection[Place]]) -> None:
        self._clock = clock
        self._watched = watched
        self._accounts: dict[int, _Account] = {}

    def refusal(self, report: Observation[Any], uid: int) -> str | None:
        """Why this report of this user is refused; None when it is accepted, which takes a token of the user's."""
        return self._impossible(report) or self._excessive(report, uid)

    def _impossible(self, report: Observation[Any]) -> str | None:
        place, rate = report.context.place, report.throughput_bytes_per_second
        row = OPERATIONS[place.operation]
        metric = row.model.value_metric  # throughput follows from bytes, whatever a measure of that name says
        is_told = metric in row.model.reported_measures and report.measures.get(metric, 0.0) > 0.0
        if report.transferred_bytes == 0 and not is_told:
            return "nothing arrived, so there is nothing to learn from it"
        if (
            report.started_at + timedelta(seconds=report.duration_seconds)
            > self._clock.now() + CLOCK_SKEW_MAX
        ):
            return "it ends in the future; report when the transfer is done, and check the clock"
        if place.service_class not in (classes := row.service_classes):
            return f"service_class is not one of {place.operation}; expected one of {', '.join(classes)}"
        limits = row.model.host_ceiling(place)
        if limits is not None and rate > CEILING_FACTOR_MAX * limits.burst_bytes_per_second:
            peak = format_rate(limits.burst_bytes_per_second)
            return f"{format_rate(rate)} is more than this host can move ({place.instance_type}: {peak})"
        return None

    def _excessive(self, report: Observation[Any], uid: int) -> str | None:
        account = self._account(uid)
        if account is None or account.tokens < 1.0:
            return (
                f"too many reports: {REPORT_COUNT_BURST} at once and {REPORT_COUNT_PER_SECOND:g} a second are "
                "taken from one user; report a share of your transfers"
            )
        place = report.context.place
        if place not in self._watched() and place not in account.places:
            known = {p for one in self._accounts.values() for p in one.places}
            if len(account.places) >= PLACE_COUNT_MAX_PER_USER or len(known | {place}) > PLACE_COUNT_MAX:
                return "too many places: report about the regions and classes that this host works with"
            account.places.add(place)
        account.tokens -= 1.0
        return None

    def _account(self, uid: int) -> _Account | None:
        """The user's account, filled up to now; None when too many other users report at present."""
        now_seconds = self._clock.monotonic_seconds()
        account = self._accounts.get(uid)
        if account is None:
            if len(self._accounts) >= USER_COUNT_MAX and not self._forget_idle(now_seconds):
                return None
            account = self._accounts[uid] = _Account(REPORT_COUNT_BURST, now_seconds, set())
        account.tokens = _tokens(account, now_seconds)
        account.filled_seconds = now_seconds
        return account

    def _forget_idle(self, now_seconds: float) -> bool:
        """Forget users whose bucket is full again; returns whether there were any."""
        idle = [u for u, a in self._accounts.items() if _tokens(a, now_seconds) >= REPORT_COUNT_BURST]
        for uid in idle:
            del self._accounts[uid]
        return bool(idle)


def _tokens(account: _Account, now_seconds: float) -> float:
    gained = (now_seconds - account.filled_seconds) * REPORT_COUNT_PER_SECOND
    return min(float(REPORT_COUNT_BURST), account.tokens + gained)
