"""Knows how a place is learned: from measurements here, from applications' reports, and from the fleet."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from penstock.clock import Clock
from penstock.daemon.board import Board, nearest
from penstock.daemon.cycle.beside import together
from penstock.daemon.cycle.sentences import describe
from penstock.daemon.cycle.standings import Standings
from penstock.daemon.cycle.thinker import Thinker
from penstock.daemon.fleet.exchange import Fleet
from penstock.daemon.memory.async_store import AsyncStore
from penstock.daemon.memory.store import Store
from penstock.fleet import prior
from penstock.fleet.prior import Evidence
from penstock.models.model import Fit, HasKindred, PerformanceModel
from penstock.operations.table import OPERATIONS
from penstock.optimizer.change import described, is_same_change
from penstock.optimizer.deliberation import KNOWN_COUNT, Case, Conclusion
from penstock.units import counted
from penstock.vocabulary import Change, Context, Demand, Observation, Place, Recommendation

log = logging.getLogger("penstock.daemon.cycle.conductor")  # part of the cycle: operators filter by this name

REPORT_COUNT_MAX, REPORT_COUNT_MAX_PER_USER = 256, 64  # the newest of a place: more than a fit ever uses
_SPARED_OWN_COUNT = KNOWN_COUNT // 2
# After a change was noticed: fits made later say nothing more about that change.
SETTLED_AFTER = timedelta(days=2)
_MOMENT = "%Y-%m-%d %H:%M UTC"


@dataclass(eq=False)
class Learner:
    """Gives the thinker all that is known of a place, and stores its conclusions. Raises DiskTrouble, ThinkerError."""

    board: Board
    store: AsyncStore
    thinker: Thinker
    standings: Standings
    clock: Clock
    _: KW_ONLY
    contexts: Collection[Context]  # the watched ones
    spared_until: Callable[[Place], datetime | None]  # until when other hosts of the fleet measure the place
    seed: int
    observation_count_max: int
    on_change: Callable[[], None]

    def __post_init__(self) -> None:
        self._taught: dict[Place, Fit] = {}  # fits to what other hosts measured, and to nothing else
        self._fitted: dict[Place, object] = {}  # the evidence that the board's fit rests on
        self._disbelieved: dict[Place, int] = {}  # the count of reports last logged as not believed

    async def learn(self, place: Place) -> Fit:
        """Fit everything that is known of the place, and post the advice; returns the fit."""
        case, evidence = await self._case(place)
        conclusion = await self._concluded(case)
        self._fitted[place] = evidence
        now, fit, taught = self.clock.now(), conclusion.fit, self._taught.get(place)
        taught_at = taught.newest_observation_at if taught else None
        changed = await self.board.post(fit, now, taught_at=taught_at)
        await self.store.run(lambda store: store.add_fit(fit, fitted_at=now))
        for recommendation in changed:
            await self.store.run(partial(Store.add_recommendation, recommendation=recommendation))
        await self._note_change(fit, now)
        self.on_change()
        return fit

    async def propose(self, context: Context, **probe: Any) -> Conclusion[Any]:
        """What to try next, and the fit behind it; `probe` has further fields of the `Case` (Any: each of its type)."""
        case, _ = await self._case(context.place)
        return await self._concluded(replace(case, next_context=context, **probe))

    async def learn_from_fleet(self, fleet: Fleet, place: Place) -> None:
        """Fit what other hosts measured, and learn the place with that as prior: own measurements outweigh it."""
        self._taught.pop(place, None)
        own = await self._own(place)
        if len(own) < KNOWN_COUNT and (told := fleet.told(place, own)):
            case = Case(place=place, observations=tuple(told), seed=_seed(self.seed, place, told))
            self._taught[place] = (await self.thinker.deliberate(OPERATIONS[place.operation].model, case)).fit
            await self.learn(place)

    async def evidence_for_others(self, host: str, place: Place) -> Sequence[Evidence[Any]]:
        """What this host may share with the others of its fleet."""
        fit, own = self.board.fit(place), await self._own(place)
        return prior.measured_here(host, own, fit=fit, now=self.clock.now())

    async def _own(self, place: Place) -> list[Observation[Any]]:
        """The newest measurements of this host; while other hosts measure the place, few enough that theirs count.

        Those dated in the future, by a clock that was ahead, are left out until then: they would count as the newest.
        """
        is_watched = any(context.place == place for context in self.contexts)
        is_spared = is_watched and self.spared_until(place) is not None
        count_max = _SPARED_OWN_COUNT if is_spared else self.observation_count_max
        now = self.clock.now()
        return await self.store.run(lambda store: store.observations(place, count_max=count_max, until=now))

    async def _case(self, place: Place) -> tuple[Case[Any], object]:
        """All that is known of the place, and a key that changes with each measurement, report and fleet fit."""
        own = await self._own(place)
        now = self.clock.now()
        reports = await self.store.run(
            lambda store: together(
                store.reports(
                    place,
                    count_max=REPORT_COUNT_MAX,
                    count_max_per_user=REPORT_COUNT_MAX_PER_USER,
                    until=now,
                )
            )
        )
        taught, model = self._taught.get(place), OPERATIONS[place.operation].model
        heard = (taught.newest_observation_at, taught.observation_count) if taught else None
        evidence = (*((len(some), some[-1].started_at if some else None) for some in (own, reports)), heard)
        kindred = model.kindred if isinstance(model, HasKindred) else frozenset()
        case = Case(
            place=place,
            observations=(*own, *reports),
            fit=self.board.fit(place) if self._fitted.get(place) == evidence else None,
            prior=nearest(place, self.board.fits(), kindred, self._taught.values()),
            seed=_seed(self.seed, place, own),
        )
        return case, evidence

    async def _concluded(self, case: Case[Any]) -> Conclusion[Any]:
        conclusion = await self.thinker.deliberate(OPERATIONS[case.place.operation].model, case)
        if conclusion.believed is not None:
            self.standings.note_believed(case.place, conclusion.believed)
            self._note_disbelieved(case.place, conclusion.disbelieved_count)
        return conclusion

    def _note_disbelieved(self, place: Place, count: int) -> None:
        """Log the count when it changes: each cycle judges the same reports again."""
        if count and count != self._disbelieved.get(place):
            log.info(
                "%s in %s: not believed, for they do not agree with what is known: %s of applications",
                place.operation,
                place.region,
                counted(count, "report"),
            )
        self._disbelieved[place] = count

    async def _note_change(self, fit: Fit, now: datetime) -> None:
        """Store what changed at the place, and the advice since then."""
        contexts = [context for context in self.contexts if context.place == fit.place]
        advising = [self.board.recommend(context, Demand(), now) for context in contexts]
        model = OPERATIONS[fit.place.operation].model
        await self.store.run(lambda store: note_change(store, model, fit, advising, now))


def _seed(seed: int, place: Place, observations: Sequence[Observation[Any]]) -> int:
    """A seed from the configured seed, the place and the history, so that a decision can be replayed.

    The time of the newest observation stands for the history, however many observations are looked at.
    """
    newest = f"{observations[-1].started_at.timestamp():.6f}" if observations else ""
    text = f"{seed}/{place.operation}/{place.region}/{place.instance_type}/{place.service_class}/{newest}"
    return zlib.crc32(text.encode())


def note_change(
    store: Store,
    model: PerformanceModel[Any],
    fit: Fit,
    advising: Sequence[Recommendation[Any]],
    now: datetime,
) -> Change[Any] | None:
    """Store and return the change that this fit found; None when it found none, or none that is news."""
    if fit.changed_at is None:
        return None
    known = next(iter(store.changes(place=fit.place, count_max=1)), None)
    known = known if is_same_change(fit, known) else None
    before = store.fit_before(fit.place, fit.changed_at)
    if before is None or (known is not None and now > known.noticed_at + SETTLED_AFTER):
        return None
    contexts = [made.context for made in advising]
    stood = {context: store.advice_before(context, Demand(), fit.changed_at) for context in contexts}
    change = described(
        model,
        before=before,
        after=fit,
        advised={context: made for context, made in stood.items() if made is not None},
        advising=advising,
        known=known,
        now=now,
    )
    store.put_change(change)
    if known is None and advising:
        again = f"; it is again as it was until {change.as_until:{_MOMENT}}" if change.as_until else ""
        log.info("%s: the place changed at %s%s", describe(contexts[0]), f"{fit.changed_at:{_MOMENT}}", again)
    return change
