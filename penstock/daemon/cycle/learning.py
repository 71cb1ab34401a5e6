"""Knows how a place is learned: from what was measured here, what is reported, and what is heard of a fleet."""

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

log = logging.getLogger("penstock.daemon.cycle.conductor")  # whose cycle it is: operators filter by that

REPORT_COUNT_MAX, REPORT_COUNT_MAX_PER_USER = 256, 64  # newest of a place: more than is ever learned from
_SPARED_OWN_COUNT = KNOWN_COUNT // 2
# Of a change: from then on what is found anew says nothing more of what it was.
SETTLED_AFTER = timedelta(days=2)
_MOMENT = "%Y-%m-%d %H:%M UTC"


@dataclass(eq=False)
class Learner:
    """Puts the case of a place to the thinker, and takes down what it concludes. Raises DiskTrouble, ThinkerError."""

    board: Board
    store: AsyncStore
    thinker: Thinker
    standings: Standings
    clock: Clock
    _: KW_ONLY
    contexts: Collection[Context]  # that are watched
    spared_until: Callable[[Place], datetime | None]  # by other hosts of the fleet, which measure it
    seed: int
    observation_count_max: int
    on_change: Callable[[], None]

    def __post_init__(self) -> None:
        self._taught: dict[Place, Fit] = {}  # by what other hosts measured, and by nothing else
        self._fitted: dict[Place, object] = {}  # which evidence the board's fit rests on
        self._disbelieved: dict[Place, int] = {}  # reports, as the log has it

    async def learn(self, place: Place) -> Fit:
        """Fit everything that is known of the place, and put the advice up."""
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
        """What to try next, and the fit that says so; `probe` is what else a case says of it (Any: its fields)."""
        case, _ = await self._case(context.place)
        return await self._concluded(replace(case, next_context=context, **probe))

    async def learn_from_fleet(self, fleet: Fleet, place: Place) -> None:
        """A fit to what others measured, heard as a neighbour's is: it gives way where own measurements disagree."""
        self._taught.pop(place, None)
        own = await self._own(place)
        if len(own) < KNOWN_COUNT and (told := fleet.told(place, own)):
            case = Case(place=place, observations=tuple(told), seed=_seed(self.seed, place, told))
            self._taught[place] = (await self.thinker.deliberate(OPERATIONS[place.operation].model, case)).fit
            await self.learn(place)

    async def evidence_for_others(self, host: str, place: Place) -> Sequence[Evidence[Any]]:
        """What this one may tell the other hosts of its fleet."""
        fit, own = self.board.fit(place), await self._own(place)
        return prior.measured_here(host, own, fit=fit, now=self.clock.now())

    async def _own(self, place: Place) -> list[Observation[Any]]:
        """What was measured here; where others measure now, so little of it that they are heard.

        What a clock that was ahead has dated is left out until then: it would pass for newer than what comes.
        """
        is_watched = any(context.place == place for context in self.contexts)
        is_spared = is_watched and self.spared_until(place) is not None
        count_max = _SPARED_OWN_COUNT if is_spared else self.observation_count_max
        now = self.clock.now()
        return await self.store.run(lambda store: store.observations(place, count_max=count_max, until=now))

    async def _case(self, place: Place) -> tuple[Case[Any], object]:
        """All that is known of the place, and what changes with every measurement, every report and every word."""
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
        """Said when it is another number than before: each cycle looks at the same reports again."""
        if count and count != self._disbelieved.get(place):
            log.info(
                "%s in %s: not believed, for they do not agree with what is known: %s of applications",
                place.operation,
                place.region,
                counted(count, "report"),
            )
        self._disbelieved[place] = count

    async def _note_change(self, fit: Fit, now: datetime) -> None:
        """Write down what changed, and what is advised since."""
        contexts = [context for context in self.contexts if context.place == fit.place]
        advising = [self.board.recommend(context, Demand(), now) for context in contexts]
        model = OPERATIONS[fit.place.operation].model
        await self.store.run(lambda store: note_change(store, model, fit, advising, now))


def _seed(seed: int, place: Place, observations: Sequence[Observation[Any]]) -> int:
    """A seed from what the configuration, the place and the history say, so that a decision can be replayed.

    The newest observation tells histories apart, however many of them are looked at.
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
    """Write down the change that this fit found; None when it found none, or none that is news."""
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
