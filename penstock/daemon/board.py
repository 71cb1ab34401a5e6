"""Knows the standing advice: the last fit of each place, and the answer that follows from it for each question.

The socket answers from the board. It never waits for a fit or a probe, and a restart restores it from the store.
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
_ANSWER_COUNT_MAX = 4096  # remembered answers, beyond those of the configured contexts

Key = tuple[Context, Demand]


@dataclass(frozen=True, slots=True)
class Posting:
    """A fit, the date of the advice from it, and the newest observation that any fit of its place has used."""

    fit: Fit
    posted_at: datetime
    newest_at: datetime | None
    redated_at: datetime | None = None  # when the clock was found to be before `posted_at`

    def as_of(self, now: datetime) -> datetime:
        """The date of the advice: `posted_at`, or `redated_at` while `posted_at` lies in the future.

        Otherwise advice dated by a clock that was ahead would hold for too long.
        """
        return self.redated_at if self.redated_at is not None and now < self.posted_at else self.posted_at


@dataclass(eq=False)
class Board:
    """Advice by context and demand.

    `configured_contexts` have advice before anybody asks, for the default demand. `thread_count_max` is the operator's
    limit, by operation: advice never exceeds it. `stores` names the store by operation, where it is not AWS.
    `fleet_share` returns an operation's share of a limit that hosts share; advice stays within it.
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
        # The fraction of the advice that throttled applications leave, and why; None where nothing was throttled.
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
        """Take up stored fits and advice; of places known from reports alone, the `PLACE_COUNT_MAX` newest."""
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
        """The last fit of a place, and the date of its advice."""
        posting = self._postings.get(place)
        return (posting.fit, posting.as_of(now)) if posting else (None, now)

    def fits(self) -> list[Fit]:
        return [posting.fit for posting in self._postings.values()]

    async def post(
        self, fit: Fit, now: datetime, *, taught_at: datetime | None = None
    ) -> list[Recommendation[Any]]:
        """Take up a new fit; returns the standing advice of its place that changed.

        Advice keeps its date when the fit uses nothing newer than the last one did. `taught_at` is the date of the
        newest measurement of other hosts that the fit learned from. Yields to the event loop between contexts, since
        each answer takes milliseconds.
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
        """Date postings from the future as of now, after the clock stepped back; returns whether there were any."""
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
        """The advice with this fraction of every divided knob."""
        setting = scaled([advice.setting], [fraction])[0]
        legal = OPERATIONS[advice.context.operation].model.legal(advice.context, setting)
        return self.assess(advice.context, advice.demand, legal, now)

    def request_rate_per_second(self, advice: Recommendation[Any]) -> float:
        """The expected request rate under this advice; 0 where nothing is known."""
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
            # Without a fit the answer is cheap to work out again, and is dated by the question.
            if fit is not None:
                self._remember(key, answer)
        return answer

    def assess(self, context: Context, demand: Demand, setting: Any, now: datetime) -> Recommendation[Any]:
        """What a setting (of the operation's own type) is expected to do; remembered like an answer."""
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
        """The demand, reduced to what the operator allows here."""
        return within_limits(
            OPERATIONS[context.operation].model,
            self.fit(context.place),
            context,
            demand,
            thread_count_max=self.thread_count_max.get(context.operation),
        )

    def _telling_of_store(self, answer: Recommendation[Any]) -> Recommendation[Any]:
        """The answer with the name of the store, whose rules clients have to follow."""
        return dataclasses.replace(answer, store=self.stores.get(answer.context.operation, ""))

    def _telling_of_memory(self, answer: Recommendation[Any], fit: Fit | None) -> Recommendation[Any]:
        """The answer, with a note when it needs more memory than allowed: then it is the one that needs the least."""
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
        """The memory for buffers by the model's own account, by which the limit was applied, too."""
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
        """Forget the oldest answers to questions; answers of configured contexts are always kept."""
        excess = len(remembered) + 1 - _ANSWER_COUNT_MAX - len(self._configured_keys)
        asked = (key for key in remembered if key not in self._configured_keys)
        for key in list(islice(asked, max(0, excess))):
            del remembered[key]


def telling_of_fleet(
    answer: Recommendation[Any], share: FleetShare, host_fraction: float = 1.0
) -> Recommendation[Any]:
    """The advice with this host's share of a limit shared in the fleet, of which a lease gets `host_fraction`."""
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
    """The posting of a fit: the first since the start is dated by its newest observation, later ones by `now`.

    A later fit that uses nothing newer keeps the date of the one before.
    """
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
    """The demand with the operator's thread limit, and kept near the SDK's default where nothing was measured.

    The memory limit of probes does not apply to applications, which state their own.
    """
    counts = [count for count in (demand.thread_count_max, thread_count_max) if count is not None]
    narrowed = dataclasses.replace(demand, thread_count_max=min(counts, default=None))
    return narrowed if fit is None else unmeasured(model, fit, context, narrowed)


def nearest(
    place: Place, fits: Iterable[Fit], kindred: Collection[str] = (), taught: Iterable[Fit] = ()
) -> Fit | None:
    """The fit whose physics most likely hold in this place, to serve as its prior; None where there is none.

    Candidates are other places of the same operation, and the same place as seen by a kindred operation. Measured ones
    come before those known from reports alone. The same region (request time, rate of one connection) counts more than
    the same instance type; a kindred operation lies in between. The order in which places were fitted does not matter.
    `taught` are fits to what other hosts measured; one of this very place is the nearest of all.
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
