"""Knows the standing of every watched context: what the store remembers, and what has happened since the start."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from penstock.daemon import schedule
from penstock.daemon.memory.async_store import AsyncStore
from penstock.daemon.memory.store import Store
from penstock.daemon.schedule import Due, Standing
from penstock.daemon.spending import rationing
from penstock.daemon.spending.budget import Ledger
from penstock.daemon.spending.rationing import Want
from penstock.models.model import Fit, is_newly_changed
from penstock.optimizer.evidence import is_same_size
from penstock.optimizer.reports import Believed
from penstock.vocabulary import Context, Cost, Place

CLOCK_STEP_SECONDS_MIN = 300.0  # smaller steps back are ignored: they delay a probe by no more than this
STEADY_RESIDUAL_FRACTION = 0.1
_NEWEST_SHARE = 0.25  # weight of the newest probe in the moving average of costs


class Standings:
    """What the schedule knows of each watched context."""

    def __init__(self, seed: int, now: datetime) -> None:
        self._seed = seed
        self._standings: dict[Context, Standing] = {}
        self._changes_known_until: dict[Place, datetime | None] = {}
        # Counts of observations from before a change of the place, and those counted again after it changed back.
        self._before_change: dict[Context, int] = {}
        self._given_back: dict[Context, int] = {}
        self._costs: dict[Context, Cost] = {}  # of a typical probe, since this daemon started
        self._resumed_at = self._seen_at = now
        # The ledger and the minute of the last rationing; None when anything changed since.
        self._rationed: tuple[Ledger, datetime] | None = None

    def __iter__(self) -> Iterator[Standing]:
        return iter(self._standings.values())

    async def load(self, store: AsyncStore, mean_interval_seconds: Mapping[Context, float]) -> None:
        """Take up these contexts, with what the store remembers of them."""
        attempts = {a.context: a for a in await store.run(Store.attempts)}
        summaries = {s.context: s for s in await store.run(Store.summaries)}
        for context, interval_seconds in mean_interval_seconds.items():
            attempt, summary = attempts.get(context), summaries.get(context)
            self._standings[context] = Standing(
                context=context,
                mean_interval_seconds=interval_seconds,
                attempt_count=attempt.attempt_count if attempt else 0,
                last_attempt_at=attempt.last_at if attempt else None,
                observation_count=summary.observation_count if summary else 0,
            )

    # --- When to probe

    def resume(self, now: datetime) -> None:
        """Start running now: due times that have passed are drawn again."""
        self._resumed_at = now

    def next_due(self, now: datetime) -> Due | None:
        """The context that is due first, and when; None when none is watched."""
        return schedule.next_due(self._seed, self, resumed_at=self._resumed_at, now=now)

    def ration(self, ledger: Ledger, now: datetime) -> None:
        """Stretch the gaps between probes where a budget binds, so that it lasts the day.

        Works it out once a minute at most while nothing changes.
        """
        minute = now.replace(second=0, microsecond=0)
        if self._rationed is not None and self._rationed[0] is ledger and self._rationed[1] == minute:
            return
        wants = [
            Want(
                operation=context.operation,
                cost=cost,
                gap_seconds=schedule.mean_gap_seconds(self._standings[context], now),
            )
            for context, cost in self._costs.items()
        ]
        found = rationing.stretches(ledger, wants, now)
        for context, standing in list(self._standings.items()):
            stretch = found.get(context.operation, rationing.Stretch())
            self._change(
                context, stretch=stretch.hurried if schedule.is_in_a_hurry(standing) else stretch.usual
            )
        self._rationed = ledger, minute

    def has_clock_stepped_back(self, now: datetime) -> bool:
        """Whether the clock went back since the last call; if so, start anew.

        Dates set by a clock that was ahead would keep every context from being probed for long.
        """
        has_stepped = now < self._seen_at - timedelta(seconds=CLOCK_STEP_SECONDS_MIN)
        if has_stepped:
            self.begin_anew(now)
        self._seen_at = now
        return has_stepped

    def begin_anew(self, now: datetime) -> None:
        """Cancel all postponements: they were made by another clock or budget."""
        self.resume(now)
        for context in self._standings:
            self._change(context, postponed_until=None)

    # --- What happens

    def note_attempt(self, context: Context, at: datetime) -> None:
        count = self._standings[context].attempt_count + 1
        self._change(context, attempt_count=count, last_attempt_at=at, postponed_until=None)

    def note_cost(self, context: Context, cost: Cost) -> None:
        """Update the typical cost of a probe with what this one cost in the end."""
        before = self._costs.get(context, cost)
        self._costs[context] = before * (1.0 - _NEWEST_SHARE) + cost * _NEWEST_SHARE

    def postpone(self, context: Context, until: datetime) -> None:
        """Do not probe this context before `until`: the budget or the host does not allow it."""
        self._change(context, postponed_until=until)

    def hasten(self, sooner: Collection[tuple[str, str]]) -> None:
        """Treat these operations and regions as if their last measurement had been far from the expected value."""
        for context in list(self._standings):
            if (context.operation, context.place.region) in sooner:
                self._change(context, is_suspect=True)

    def note_believed(self, place: Place, believed: Iterable[Believed]) -> None:
        """Let reports that agree with measurements stand in for probes of about the same size."""
        reports = list(believed)
        for context in self._contexts_of(place):
            reports_at = sorted(b.started_at for b in reports if is_same_size(b.context, context))
            self._change(context, reports_at=tuple(reports_at))

    def note_measured(self, context: Context, fit: Fit) -> None:
        """Count a measurement; after a change of the place, learn all its contexts anew while the change is believed.

        When the place is again what it was before the change, the observations from before count again.
        """
        known = self._changes_known_until
        is_new = is_newly_changed(fit, known.get(fit.place))
        has_changed = is_new and fit.place in known  # not one from before the daemon started
        if is_new or fit.place not in known:
            known[fit.place] = fit.newest_observation_at if fit.changed_at else None
        is_steady = not has_changed and fit.residual_fraction_p50 < STEADY_RESIDUAL_FRACTION
        for other in self._contexts_of(fit.place):
            count = self._standings[other].observation_count
            if has_changed and not fit.earlier:
                self._before_change[other], count = self._before_change.get(other, 0) + count, 0
                self._given_back.pop(other, None)
            elif fit.changed_at is None or fit.earlier:
                given = self._before_change.pop(other, 0)
                self._given_back[other], count = self._given_back.get(other, 0) + given, count + given
            elif given := self._given_back.pop(other, 0):  # it had changed after all
                self._before_change[other], count = self._before_change.get(other, 0) + given, count - given
            self._change(
                other,
                observation_count=count + (other == context),
                is_steady=is_steady and not fit.suspicion.is_raised,
                is_suspect=fit.suspicion.is_raised and other == context,
            )

    def _contexts_of(self, place: Place) -> list[Context]:
        return [context for context in self._standings if context.place == place]

    def _change(self, context: Context, **fields: Any) -> None:  # Any: each of its own type
        self._standings[context] = dataclasses.replace(self._standings[context], **fields)
        self._rationed = None
