"""Knows the advice that stands: the last fit of each place, and what follows from it for whoever asks.

The board is what the socket reads. It never waits for a fit or a probe, and it comes back from the store at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from itertools import islice
from math import ceil
from typing import Any

from penstock.api.leases import scaled
from penstock.api.wire import MEMORY_BYTES_MIN, Snapshot
from penstock.daemon.trust import PLACE_COUNT_MAX
from penstock.fleet.limit import FleetShare
from penstock.models.model import Fit, PerformanceModel, handed_on, is_current
from penstock.operations.table import OPERATIONS
from penstock.optimizer.choice import from_tables, unmeasured
from penstock.optimizer.recommendation import assess, recommend
from penstock.units import format_bytes
from penstock.vocabulary import Basis, Context, Demand, Place, Recommendation

REQUEST_RATE_LIMIT = "request_rate_limit_per_second"
_ANSWER_COUNT_MAX = 4096  # remembered answers to questions beyond the standing ones

Key = tuple[Context, Demand]


@dataclass(frozen=True, slots=True)
class Posting:
    """A fit, the date of what is advised from it, and the newest observation that fits of its place ever rested on."""

    fit: Fit
    posted_at: datetime
    newest_at: datetime | None
    redated_at: datetime | None = None  # when the clock was seen to be before that

    def as_of(self, now: datetime) -> datetime:
        """Of when it is; by a clock that was ahead it would hold until then, and one that is behind comes back."""
        return self.redated_at if self.redated_at is not None and now < self.posted_at else self.posted_at


@dataclass(eq=False)
class Board:
    """Advice by context and demand.

    `configured_contexts` are answered ahead of any question, for the default demand. `thread_count_max` is the most
    that the operator allows, by operation: no more is ever advised. `stores` are what is not AWS, by operation.
    `fleet_share` is what of a limit that hosts share an operation may use here; advice keeps to it.
    """

    configured_contexts: Sequence[Context]
    _: KW_ONLY
    thread_count_max: Mapping[str, int]
    region: str
    instance_type: str
    validity_seconds: float
    stores: Mapping[str, str] = field(default_factory=dict)
    fleet_share: Callable[[str], FleetShare | None] = lambda _operation: None

    def __post_init__(self) -> None:
        # How much of an answer is left by refusals that applications met, and why; None where it is all.
        self.caution: Callable[[Recommendation[Any]], tuple[float, str] | None] = lambda _advice: None
        self._configured_keys = frozenset((context, Demand()) for context in self.configured_contexts)
        self._postings: dict[Place, Posting] = {}
        self._previous: dict[Key, Recommendation[Any]] = {}
        self._answers: dict[Key, Recommendation[Any]] = {}
        self._assessments: dict[tuple[Context, Demand, Any], Recommendation[Any]] = {}
        self.generation = 0

    def restore(
        self, fits: Iterable[Fit], recommendations: Iterable[Recommendation[Any]], now: datetime
    ) -> None:
        """Take up what an earlier life of the daemon knew; of places that were only reported about, the newest."""
        rows = ((OPERATIONS.get(fit.place.operation), fit) for fit in fits)
        known = [fit for row, fit in rows if row is not None and is_current(fit, row.model)]
        configured = {context.place for context in self.configured_contexts}
        reported = [fit for fit in known if fit.is_from_reports and fit.place not in configured]
        reported.sort(key=lambda fit: fit.newest_observation_at or now)
        left_out = {fit.place for fit in reported[:-PLACE_COUNT_MAX]}
        self._postings |= {fit.place: _posting(None, fit, now) for fit in known if fit.place not in left_out}
        self._previous = {(r.context, r.demand): r for r in recommendations}
        self.generation += 1

    def fit(self, place: Place) -> Fit | None:
        posting = self._postings.get(place)
        return posting.fit if posting else None

    def _known(self, place: Place, now: datetime) -> tuple[Fit | None, datetime]:
        """The last fit of a place, and of when it is."""
        posting = self._postings.get(place)
        return (posting.fit, posting.as_of(now)) if posting else (None, now)

    def fits(self) -> list[Fit]:
        return [posting.fit for posting in self._postings.values()]

    async def post(
        self, fit: Fit, now: datetime, *, taught_at: datetime | None = None
    ) -> list[Recommendation[Any]]:
        """Put up a new fit; returns the standing advice of its place that says something new.

        Advice from a fit that rests on nothing newer than the last one is as old as it was; `taught_at` is when other
        hosts measured what this one learned from. Gives the event loop a
        turn between contexts, since each answer takes milliseconds.
        """
        self._postings[fit.place] = _posting(self._postings.get(fit.place), fit, now, taught_at)
        for key in [key for key in self._answers if key[0].place == fit.place]:
            del self._answers[key]
        for assessed in [key for key in self._assessments if key[0].place == fit.place]:
            del self._assessments[assessed]
        changed = []
        for context in self.configured_contexts:
            if context.place == fit.place:
                before = self._previous.get((context, Demand()))
                after = self.alone(context, Demand(), now)
                if before is None or _advice(before) != _advice(after):
                    changed.append(after)
                await asyncio.sleep(0)
        self.generation += 1
        return changed

    def redate(self, now: datetime) -> bool:
        """The clock stepped back: what was posted at a date that has not come is as of now; whether any was."""
        ahead = {place: posting for place, posting in self._postings.items() if posting.posted_at > now}
        self._postings |= {place: dataclasses.replace(p, redated_at=now) for place, p in ahead.items()}
        self.generation += bool(ahead)
        return bool(ahead)

    def recommend(self, context: Context, demand: Demand, now: datetime) -> Recommendation[Any]:
        """The advice for this context and demand. Raises KeyError for an operation that is not in the table."""
        answer, share = self.alone(context, demand, now), self.fleet_share(context.operation)
        if share is not None and (made := self.request_rate_per_second(answer)) > share.requests_per_second:
            within = self._part(answer, share.requests_per_second / made, now)
            answer = dataclasses.replace(within, bottleneck="request-rate")
        if (caution := self.caution(answer)) is not None:
            fraction, why = caution
            held = self._part(answer, fraction, now)
            answer = dataclasses.replace(held, explanation=f"{held.explanation} {why}")
        return answer if share is None else telling_of_fleet(answer, share)

    def _part(self, advice: Recommendation[Any], fraction: float, now: datetime) -> Recommendation[Any]:
        """The advice with that much of all that is divided."""
        setting = scaled([advice.setting], [fraction])[0]
        legal = OPERATIONS[advice.context.operation].model.legal(advice.context, setting)
        return self.assess(advice.context, advice.demand, legal, now)

    def request_rate_per_second(self, advice: Recommendation[Any]) -> float:
        """What follows from it, as expected; 0 where nothing is known."""
        fit, model = self.fit(advice.context.place), OPERATIONS[advice.context.operation].model
        if fit is None or not is_current(fit, model):
            return 0.0
        appraisal = model.appraise(fit, advice.context, [advice.setting], advice.demand)
        return float(appraisal.request_rate_per_second[0])

    def alone(self, context: Context, demand: Demand, now: datetime) -> Recommendation[Any]:
        """The advice as if no other host shared any limit."""
        key = (context, demand)
        answer = self._answers.get(key)
        fit, as_of = self._known(context.place, now)
        if answer is None or answer.issued_at != as_of:
            answer = recommend(
                OPERATIONS[context.operation].model,
                fit,
                context,
                demand,
                previous=self._previous.get(key),
                now=as_of,
                validity_seconds=self.validity_seconds,
                within=self.within_limits(context, demand),
            )
            answer = self._telling_of_store(self._telling_of_memory(answer, fit))
            # Without a fit it costs nothing to work out again, and its date is the asking's.
            if fit is not None:
                self._remember(key, answer)
        return answer

    def assess(self, context: Context, demand: Demand, setting: Any, now: datetime) -> Recommendation[Any]:
        """What a setting of the operation's own type will do; it is remembered like an answer."""
        key = (context, demand, setting)
        answer = self._assessments.get(key)
        fit, as_of = self._known(context.place, now)
        if answer is None or answer.issued_at != as_of:
            model, validity_seconds = OPERATIONS[context.operation].model, self.validity_seconds
            made = assess(model, fit, context, demand, setting, now=as_of, validity_seconds=validity_seconds)
            answer = self._telling_of_store(made)
            if fit is not None:
                while len(self._assessments) >= _ANSWER_COUNT_MAX:
                    del self._assessments[next(iter(self._assessments))]
                self._assessments[key] = answer
        return answer

    def snapshot(self, now: datetime) -> Snapshot:
        return Snapshot(
            generation=self.generation,
            generated_at=now,
            region=self.region,
            instance_type=self.instance_type,
            recommendations=tuple(
                self.recommend(context, Demand(), now) for context in self.configured_contexts
            ),
        )

    def within_limits(self, context: Context, demand: Demand) -> Demand:
        """The demand within what the operator allows here."""
        return within_limits(
            OPERATIONS[context.operation].model,
            self.fit(context.place),
            context,
            demand,
            thread_count_max=self.thread_count_max.get(context.operation),
        )

    def _telling_of_store(self, answer: Recommendation[Any]) -> Recommendation[Any]:
        """The answer, with the store whose rules clients have to keep to."""
        return dataclasses.replace(answer, store=self.stores.get(answer.context.operation, ""))

    def _telling_of_memory(self, answer: Recommendation[Any], fit: Fit | None) -> Recommendation[Any]:
        """The answer, which says so where it holds more than was allowed: there is always one, with the least."""
        most = answer.demand.memory_bytes_max
        if most is None or (held := self._memory_bytes(answer, fit)) <= most:
            return answer
        told = f"{format_bytes(held)} ({held:,} bytes) for buffers, and {format_bytes(most)} are allowed."
        if answer.basis is Basis.DEFAULT:
            return dataclasses.replace(answer, explanation=f"{answer.explanation} It holds {told}")
        return dataclasses.replace(
            answer,
            derived={**answer.derived, MEMORY_BYTES_MIN: held},
            explanation=f"{answer.explanation} Every setting holds at least {told}",
        )

    def _memory_bytes(self, answer: Recommendation[Any], fit: Fit | None) -> int:
        """What is held at a time, by the model's own account: the one that the limit was judged by."""
        model, context = OPERATIONS[answer.context.operation].model, answer.context
        known = fit or from_tables(model, context.place)
        appraisal = model.appraise(known, context, [answer.setting], answer.demand)
        return ceil(float(appraisal.memory_bytes[0]))

    def _remember(self, key: Key, answer: Recommendation[Any]) -> None:
        for remembered in (self._answers, self._previous):
            if key not in remembered and key not in self._configured_keys:
                self._make_room(remembered)
            remembered[key] = answer

    def _make_room(self, remembered: dict[Key, Recommendation[Any]]) -> None:
        """Forget the oldest answers to questions; no question displaces what stands."""
        excess = len(remembered) + 1 - _ANSWER_COUNT_MAX - len(self._configured_keys)
        asked = (key for key in remembered if key not in self._configured_keys)
        for key in list(islice(asked, max(0, excess))):
            del remembered[key]


def telling_of_fleet(
    answer: Recommendation[Any], share: FleetShare, host_fraction: float = 1.0
) -> Recommendation[Any]:
    """The advice with what the fleet has to do with it; a lease has a fraction of what the host has."""
    mine = host_fraction * share.requests_per_second
    limit = min(mine, answer.derived.get(REQUEST_RATE_LIMIT, mine))
    return dataclasses.replace(
        answer,
        derived={
            **answer.derived,
            REQUEST_RATE_LIMIT: limit,
            "fleet_request_rate_per_second": mine,
            "fleet_fraction": mine / share.limit_requests_per_second,
        },
        explanation=f"{answer.explanation} {share.sentence}",
    )


def _posting(before: Posting | None, fit: Fit, now: datetime, taught_at: datetime | None = None) -> Posting:
    """The first fit of a life is as old as its newest observation; after it, something newer makes advice new."""
    dates = [date for date in (fit.newest_observation_at, taught_at) if date is not None]
    # A clock that stepped back left observations in the future.
    newest_at = min(max(dates, default=now), now)
    if before is None:
        return Posting(fit, newest_at, newest_at if dates else None)
    if not dates or (before.newest_at is not None and newest_at <= before.newest_at <= now):
        return dataclasses.replace(before, fit=fit)
    return Posting(fit, now, newest_at)


def within_limits(
    model: PerformanceModel[Any],
    fit: Fit | None,
    context: Context,
    demand: Demand,
    *,
    thread_count_max: int | None,
) -> Demand:
    """The demand with no more threads than the operator allows, and near the SDK's default where nothing was measured.

    What a probe may hold in memory is no limit of an application: that one states its own.
    """
    counts = [count for count in (demand.thread_count_max, thread_count_max) if count is not None]
    narrowed = dataclasses.replace(demand, thread_count_max=min(counts, default=None))
    return narrowed if fit is None else unmeasured(model, fit, context, narrowed)


def nearest(
    place: Place, fits: Iterable[Fit], kindred: Collection[str] = (), taught: Iterable[Fit] = ()
) -> Fit | None:
    """The fit whose physics most likely hold in a place that was never measured.

    That is a neighbour of the same operation, or the same place as a kindred operation found it. What was measured
    there comes before what was reported. What belongs to the region (request time, rate of one connection) weighs more
    than what belongs to the host, and the one that knows the same host and way, but of another operation, lies in
    between. The order in which places were fitted decides nothing. `taught` are fits to what other hosts measured: of
    the very place, they are the nearest there is.
    """
    neighbours = [
        fit
        for fit in (*(fit for fit in fits if fit.place != place), *taught)
        if fit.place.service_class == place.service_class
        and fit.observation_count > 0
        and (fit.place.operation == place.operation or _is_kin(fit.place, place, kindred))
    ]
    if not neighbours:
        return None
    return max(
        neighbours,
        key=lambda fit: (
            not fit.is_from_reports,
            _nearness(fit.place, place),
            handed_on(fit).observation_count,
            (fit.place.region, fit.place.instance_type, fit.place.operation),
        ),
    )


_NEARNESS_OF_KIN = 1.5


def _is_kin(one: Place, other: Place, kindred: Collection[str]) -> bool:
    return one.operation in kindred and dataclasses.replace(one, operation=other.operation) == other


def _nearness(there: Place, here: Place) -> float:
    if there.operation != here.operation:
        return _NEARNESS_OF_KIN
    return 2.0 * (there.region == here.region) + (there.instance_type == here.instance_type)


def _advice(recommendation: Recommendation[Any]) -> tuple[object, ...]:
    """What an application would do differently: not the dates, not the last digits."""
    return (recommendation.setting, recommendation.basis, recommendation.bottleneck)
