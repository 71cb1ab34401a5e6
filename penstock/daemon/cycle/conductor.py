"""Knows the cycle: propose what is due, pay, probe, store, learn from it and update the advice, one context at a time.

Fits never overlap probes, because one coroutine does both in turn. Each cycle ends with one sentence that says what
was done and why; the log, the status of the service and the demo show it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from penstock.clock import Clock
from penstock.daemon.board import Board
from penstock.daemon.cycle.learning import Learner
from penstock.daemon.cycle.sentences import describe, describe_setting, tell
from penstock.daemon.cycle.standings import Standings
from penstock.daemon.cycle.thinker import Thinker, ThinkerError
from penstock.daemon.cycle.watch import Watch
from penstock.daemon.fleet.exchange import LEDGER_NAME, Fleet
from penstock.daemon.fleet.shared_limits import SharedLimits
from penstock.daemon.memory.async_store import AsyncStore
from penstock.daemon.memory.database import DiskTrouble
from penstock.daemon.memory.store import Store
from penstock.daemon.outside.sweeper import Sweeper
from penstock.daemon.spending import costs
from penstock.daemon.spending.budget import Ledger, Verdict, total
from penstock.daemon.troubles import Troubles
from penstock.models.model import Fit
from penstock.operations.table import OPERATIONS
from penstock.optimizer.deliberation import Conclusion
from penstock.probes.leftovers import SweepSummary
from penstock.probes.probe import Leftover
from penstock.units import money
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Estimate,
    Inconclusive,
    Observation,
    Outcome,
    Place,
    ProbePlan,
    Reason,
    Setting,
    Spend,
)

log = logging.getLogger(__name__)

CYCLE_FAILURE_COUNT_MAX = 3  # in a row; then the process ends and systemd restarts it
CYCLE_COUNT_REMEMBERED = 200
REPORTS_SETTLE_SECONDS = 5.0  # applications report in bursts: wait, and fit once for the whole burst
REPORTS_PAUSE_SECONDS = 120.0  # between two such fits: reports cost a hundredth of a core at most
# Settings that could not be measured, and are not proposed for a while. Each success allows the oldest again; so does
# a proposal that finds no other setting.
AVOIDED_COUNT_MAX = 6
REST_SECONDS = 60.0  # the child process ends when nothing is due for this long
HOUSEKEEPING_SECONDS = 3600.0


class ConductorError(RuntimeError):
    """Several cycles in a row failed with an unforeseen exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """What one cycle did, with one sentence about it for people."""

    began_at: datetime
    at: datetime
    context: Context
    sentence: str
    outcome: Outcome[Any] | None  # None when nothing was probed
    is_stopped: bool = False  # nothing was probed, and nothing will be until somebody intervenes

    @property
    def has_failed(self) -> bool:
        """Whether something prevents measuring; to wait for the budget or for a quiet host is no failure."""
        return self.is_stopped or isinstance(self.outcome, Inconclusive)


@dataclass(frozen=True, slots=True)
class _End:
    """How a cycle ended; see `Cycle`."""

    sentence: str
    outcome: Outcome[Any] | None = None
    is_stopped: bool = False


@dataclass(eq=False)
class Conductor:
    """Runs one cycle after another for as long as the daemon lives."""

    watches: InitVar[Sequence[Watch]]
    _: KW_ONLY
    board: Board
    store: AsyncStore
    ledger: Ledger
    thinker: InitVar[Thinker]
    sweeper: Sweeper
    clock: Clock
    troubles: Troubles
    host_verdict: Callable[[datetime], Verdict]
    seed: int
    observation_count_max: InitVar[int]
    retention_seconds: float
    on_change: Callable[[], None]
    on_cycle: Callable[[Cycle], None]
    fleet: Fleet | None = None
    limits: SharedLimits | None = None

    def __post_init__(self, watches: Sequence[Watch], thinker: Thinker, observation_count_max: int) -> None:
        self._watches = {watch.context: watch for watch in watches}
        self.on_observed: Callable[[Sequence[Observation[Any]]], None] = lambda _observations: None
        # When a probe was in flight last, on the monotonic clock; infinite while one is.
        self.probed_seconds = -math.inf
        self.standings = Standings(self.seed, self.clock.now())
        self.learner = Learner(
            self.board,
            self.store,
            thinker,
            self.standings,
            self.clock,
            contexts=self._watches,
            spared_until=self._spared_until,
            seed=self.seed,
            observation_count_max=observation_count_max,
            on_change=self.on_change,
        )
        self._requested: deque[Context] = deque(maxlen=16)
        self._is_clock_believed = False  # the operator asked for it; done between two probes
        self._reported: set[Place] = set()
        self._reports_due_seconds = 0.0  # on the monotonic clock
        # Since the start, and since its last failed probe, after which what probes need may be gone.
        self._measured = set[Context]()
        self._avoided = {context: deque[Setting](maxlen=AVOIDED_COUNT_MAX) for context in self._watches}
        self._news = asyncio.Event()
        self._tidy_at = self.clock.now()
        self.cycles: deque[Cycle] = deque(maxlen=CYCLE_COUNT_REMEMBERED)
        self.cycle_count = 0
        self.activity = "starting"
        self.next_due_at: datetime | None = None

    @property
    def contexts(self) -> list[Context]:
        return list(self._watches)

    # --- Requests of others

    def request(self, context: Context) -> bool:
        """Probe this context out of turn, as soon as nothing else runs; False when it is not watched."""
        if context not in self._watches:
            return False
        self._requested.append(context)
        self._news.set()
        return True

    def refusal(self, context: Context) -> str:
        """Why a probe requested now would be refused, as far as is known without planning it; empty if it would not."""
        if (trouble := self.sweeper.refusal(context.operation)) is not None:
            return trouble
        fit = self.board.fit(context.place)
        if fit is None:
            return ""
        least = self._watches[context].least(fit)
        return self.ledger.allows(context.operation, least, self.clock.now()).sentence

    def request_sweep(self) -> asyncio.Future[SweepSummary]:
        """Remove what probes left behind, as soon as nothing else runs."""
        coming = self.sweeper.hurry()
        self._news.set()
        return coming

    def believe_clock(self) -> str:
        """Trust the clock, as soon as nothing else runs: spending dated in the future counts as spent now."""
        ahead = self.ledger.ahead(self.clock.now())
        if not ahead:
            return "nothing was spent at a date in the future"
        self._is_clock_believed = True
        self._news.set()
        return (
            f"what was spent at dates up to {ahead[-1].hour_at:%Y-%m-%d %H:%M} UTC counts as spent now, and no more "
            "in 25 hours"
        )

    def heed(self, sooner: Collection[tuple[str, str]]) -> None:
        """What applications met changes the advice, or does so no longer; probe these operations and regions sooner."""
        self.standings.hasten(sooner)
        self.board.generation += 1
        self.on_change()
        self._news.set()

    def note_reports(self, observations: Sequence[Observation[Any]]) -> None:
        """Applications reported: learn from that soon, and probe less where the reports are believed."""
        self.on_observed(observations)
        if self.limits is not None:
            self.limits.note_reports(observations)
        if not self._reported:
            settled_seconds = self.clock.monotonic_seconds() + REPORTS_SETTLE_SECONDS
            self._reports_due_seconds = max(self._reports_due_seconds, settled_seconds)
        self._reported |= {observation.context.place for observation in observations}
        self._news.set()

    # --- The life of the daemon

    async def prepare(self) -> None:
        """Restore the schedule from the store, and advise new places from tables and neighbouring places."""
        intervals = {context: watch.section.mean_interval_seconds for context, watch in self._watches.items()}
        await self.standings.load(self.store, intervals)
        for watch in self._watches.values():
            for newest in await self.store.run(
                partial(Store.observations, place=watch.context.place, count_max=1)
            ):
                watch.note_observed(newest)
        for place in {context.place for context in self._watches}:
            if self.board.fit(place) is None:
                await self._succeeds(place, self.learner.learn(place))

    async def run(self) -> None:
        """Run one cycle after another. Raises ConductorError after several unforeseen failures in a row."""
        self.standings.resume(self.clock.now())
        failure_count = 0
        while True:
            context, reason = await self._wait_for_work()
            try:
                if context is None:
                    await self._do_chores()
                else:
                    await self.run_cycle(context, reason)
                failure_count = 0
            except Exception as trouble:
                failure_count += context is not None  # bad reports must not end the daemon
                log.exception("cycle failed, seed %d, context %s", self.seed, context)
                if failure_count >= CYCLE_FAILURE_COUNT_MAX:
                    raise ConductorError(
                        f"{failure_count} cycles failed in a row, the last with: {trouble}"
                    ) from trouble
                await asyncio.sleep(2.0**failure_count)

    async def run_cycle(self, context: Context, reason: Reason | None = None) -> Cycle:
        """Run one cycle for this context. `reason` is given when the probe was requested out of turn."""
        watch, began_at = self._watches[context], self.clock.now()
        self.activity = f"thinking about {describe(context)}"
        try:
            end = await self._try(watch, reason)
        except (DiskTrouble, ThinkerError) as trouble:
            what = "nothing can be written down: " if isinstance(trouble, DiskTrouble) else ""
            end = self._postpone(watch, Verdict(f"{what}{trouble}"))
        cycle = Cycle(
            began_at=began_at,
            at=self.clock.now(),
            context=context,
            sentence=end.sentence,
            outcome=end.outcome,
            is_stopped=end.is_stopped,
        )
        self.cycles.append(cycle)
        self.cycle_count += 1
        self.on_cycle(cycle)
        self.activity = "idle"
        log.info("%s", end.sentence)
        return cycle

    # --- One cycle, step by step

    async def _try(self, watch: Watch, reason: Reason | None) -> _End:
        now = self.clock.now()
        host = self.host_verdict(now)
        if not host.is_allowed and reason is None:
            return self._postpone(watch, host)
        if reason is None and (until := self._spared_until(watch.context.place)) is not None:
            return self._postpone(watch, Verdict("another host of the fleet measures it", until))
        if (trouble := self.sweeper.refusal(watch.context.operation)) is not None:
            return self._postpone(watch, Verdict(trouble))
        allowance = costs.smaller(watch.cost_max, self.ledger.affordable(watch.context.operation, now))
        conclusion = await self._propose(watch, allowance)
        while conclusion.plan is None and (avoided := self._avoided[watch.context]):
            avoided.popleft()  # settings that failed while the service was down must be tried again
            conclusion = await self._propose(watch, allowance)
        plan = conclusion.plan
        wanted = plan.cost_max if plan else watch.wanted(conclusion.fit)
        verdict = watch.memory_verdict(conclusion.memory_bytes_min)
        if verdict.is_allowed:
            # Checked again: the clock may have been set back meanwhile, so that a past hour counts once more.
            verdict = self.ledger.allows(watch.context.operation, wanted, self.clock.now())
        if plan is None or not verdict.is_allowed:
            return self._postpone(watch, verdict)
        plan = dataclasses.replace(plan, reason=reason or plan.reason)
        outcome = await self._probe(watch, plan, _foreseen(conclusion.fit, plan))
        if isinstance(outcome, Inconclusive):
            self._note_failed(watch.context, outcome.reason)
            self._measured.discard(watch.context)
            return _End(f"{describe(watch.context)}: {outcome.reason}", outcome)
        self.troubles.note_measured(watch.context)
        self._measured.add(watch.context)
        before = self.board.recommend(watch.context, Demand(), self.clock.now())
        fit = await self.learner.learn(watch.context.place)
        self.standings.note_measured(watch.context, fit)
        after = self.board.recommend(watch.context, Demand(), self.clock.now())
        sentence = tell(OPERATIONS[watch.context.operation].model, plan, outcome, before, after)
        return _End(sentence, outcome)

    async def _propose(self, watch: Watch, allowance: Cost) -> Conclusion[Any]:
        context, section = watch.context, watch.section
        return await self.learner.propose(
            context,
            cost_max=allowance,
            tariff=watch.tariff(),
            is_first=context not in self._measured and section.puts_what_it_needs,
            avoided=tuple(self._avoided[context]),
            demand=Demand(
                thread_count_max=section.thread_count_max, memory_bytes_max=section.memory_bytes_max
            ),
        )

    async def _probe(self, watch: Watch, plan: ProbePlan[Any], foreseen: Estimate | None) -> Outcome[Any]:
        """Reserve the cost, probe, settle the cost, store the outcome: in this order, whatever happens in between."""
        context, started_at = watch.context, self.clock.now()
        self.activity = f"probing {describe(context)} with {describe_setting(context, plan.setting)}"
        await self.store.run(lambda store: store.add_attempt(context, at=started_at))
        reserved = await self.pay(context.operation, plan.cost_max)
        self.standings.note_attempt(context, started_at)
        start_seconds = self.clock.monotonic_seconds()
        self.probed_seconds = math.inf
        try:
            outcome = await watch.probe.run(plan)
        except asyncio.CancelledError:  # a stop or a reload: what this run did not use may be spent later
            seconds = self.clock.monotonic_seconds() - start_seconds
            await self.settle(reserved, costs.interrupted(plan, watch.probe.used, seconds))
            raise
        finally:
            self.probed_seconds = self.clock.monotonic_seconds()
        used = costs.used_by(plan, outcome, watch.probe.used, self.probed_seconds - start_seconds)
        await self.settle(reserved, used)
        self.standings.note_cost(context, used)
        avoided = self._avoided[context]
        if isinstance(outcome, Inconclusive):
            avoided.append(outcome.setting)
            await self.store.run(partial(Store.add_inconclusive, inconclusive=outcome))
        else:
            if avoided:
                avoided.popleft()
            outcome = dataclasses.replace(outcome, reason=plan.reason, foreseen=foreseen)
            await self.store.add_observation(outcome)
            watch.note_observed(outcome)
            self.on_observed([outcome])
        await self.sweeper.look(was_reached=isinstance(outcome, Observation))
        return outcome

    async def pay(self, operation: str, cost_max: Cost) -> Spend:
        """Reserve the most that an act may cost. Raises DiskTrouble: nothing is reserved, and the act must not run."""
        ledger, reserved = self.ledger.reserve(operation, cost_max, self.clock.now())
        await self.store.run(lambda store: store.add_spend(reserved))
        self.ledger = ledger
        return reserved

    async def settle(self, reserved: Spend, used: Cost) -> None:
        """Replace the reserved cost by the true one, in memory and on disk."""
        self.ledger, correction = self.ledger.settle(reserved, used, self.clock.now())
        await self.store.run(lambda store: store.correct_spend(correction))

    async def sweep(self) -> Sequence[Leftover]:
        """Remove what probes left behind, and book the cost even if cancelled; returns what was removed."""
        self.activity = "removing what was left behind"
        try:
            summary = await self.sweeper.sweep()
        finally:
            for operation, cost in self.sweeper.costs.items():
                self.ledger, spend = self.ledger.reserve(operation, cost, self.clock.now())
                await self.store.run(partial(Store.correct_spend, correction=spend))
        self.activity = "idle"
        return summary.removed

    async def _do_chores(self) -> None:
        """Do what is due beside probes."""
        if self._is_clock_believed:
            await self._redate_spend()
        if self.sweeper.due_in_seconds <= 0:
            await self.sweep()
        if self.limits is not None and self.limits.due_in_seconds <= 0:
            await self._divide(self.limits)
        if self.fleet is not None and self.fleet.due_in_seconds <= 0:
            await self.visit_fleet()
        if self._reported and self._reports_due_seconds <= self.clock.monotonic_seconds():
            await self._learn_from_reports()

    async def visit_fleet(self) -> None:
        """Read what other hosts measured, publish what was measured here, and learn from what is new."""
        if (fleet := self.fleet) is None:
            return
        await self._at_the_bucket(
            fleet, partial(fleet.visit, partial(self.learner.evidence_for_others, fleet.host))
        )
        for place in sorted(fleet.news, key=str):
            if await self._succeeds(place, self.learner.learn_from_fleet(fleet, place)):
                fleet.news.discard(place)

    async def _divide(self, limits: SharedLimits) -> None:
        """Tell the hosts that share a limit what this one wants, and update the advice when its part has changed."""
        if limits.is_heartbeat_due:
            await self._at_the_bucket(limits, limits.visit)
        else:
            limits.step()
        if limits.take_news():
            self.board.generation += 1
            self.on_change()

    async def _at_the_bucket(
        self, visitor: Fleet | SharedLimits, visit: Callable[[], Awaitable[None]]
    ) -> None:
        """Reserve the cost, visit, settle; or postpone the visit when the budget or the disk does not allow it now."""
        cost_max = visitor.cost_max
        verdict = self.ledger.allows(LEDGER_NAME, cost_max, self.clock.now())
        if not verdict.is_allowed:
            visitor.postpone(verdict.sentence)
            return
        try:
            reserved = await self.pay(LEDGER_NAME, cost_max)
        except DiskTrouble as trouble:
            visitor.postpone(str(trouble))
            return
        self.activity = "visiting the fleet's bucket"
        try:
            await visit()
        finally:
            if visitor.due_in_seconds <= 0:  # it failed unforeseen: still due, it would block everything else
                visitor.postpone("the visit failed, as the log says")
            await self.settle(reserved, visitor.used)
            self.activity = "idle"

    def _spared_until(self, place: Place) -> datetime | None:
        return self.fleet.spared_until(place) if self.fleet is not None else None

    async def _redate_spend(self) -> None:
        """Move spending that is dated in the future to now, as the operator asked."""
        self._is_clock_believed = False
        now = self.clock.now()
        try:
            await self.store.run(lambda store: store.redate_spend(now))
        except DiskTrouble as trouble:
            log.warning("what was spent ahead of the clock keeps its dates: %s", trouble)
            return
        self.ledger = self.ledger.believing(now)
        self.standings.begin_anew(now)

    async def _learn_from_reports(self) -> None:
        """Fit each place that applications reported from once."""
        places, self._reported = self._reported, set()
        for place in sorted(places, key=str):
            self.activity = f"learning from reports about {place.operation}"
            if not await self._succeeds(place, self.learner.learn(place)):
                self._reported.add(place)
        self._reports_due_seconds = self.clock.monotonic_seconds() + REPORTS_PAUSE_SECONDS
        self.activity = "idle"

    async def _succeeds(self, place: Place, learning: Awaitable[object]) -> bool:
        """Whether the learning succeeded; if not, the advice stays, and the caller tries again later."""
        try:
            await learning
        except (DiskTrouble, ThinkerError) as trouble:
            log.warning("%s: %s", place.operation, trouble)
            return False
        return True

    # --- When to do it

    async def _wait_for_work(self) -> tuple[Context | None, Reason | None]:
        """Wait until something is to be done; returns the context that is due or requested, or None for chores."""
        while True:
            self._news.clear()
            if self._requested:
                return self._requested.popleft(), Reason.REQUESTED
            bucket = [visitor for visitor in (self.fleet, self.limits) if visitor is not None]
            chores_wait_seconds = min(chore.due_in_seconds for chore in (self.sweeper, *bucket))
            if self._reported:
                reports_wait_seconds = self._reports_due_seconds - self.clock.monotonic_seconds()
                chores_wait_seconds = min(chores_wait_seconds, reports_wait_seconds)
            now = self.clock.now()
            self.troubles.note("clock", self._clock_trouble(now))
            if chores_wait_seconds <= 0 or self._is_clock_believed:
                return None, None
            if self.standings.has_clock_stepped_back(now):
                self._tidy_at = now
                if self.board.redate(now):
                    self.on_change()
            self.standings.ration(self.ledger, now)
            due = self.standings.next_due(now)
            self.next_due_at = due.due_at if due else None
            wait_seconds = (due.due_at - now).total_seconds() if due else HOUSEKEEPING_SECONDS
            if due and wait_seconds <= 0:
                return due.context, None
            wait_seconds = min(wait_seconds, chores_wait_seconds)
            if wait_seconds >= REST_SECONDS:
                self.learner.thinker.rest()
            await self._tidy_up()
            await self._wait_for_news(min(wait_seconds, HOUSEKEEPING_SECONDS))

    async def _wait_for_news(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    def _clock_trouble(self, now: datetime) -> str | None:
        """One sentence while the ledger holds spending dated in the future, else None."""
        ahead = self.ledger.ahead(now)
        if not ahead:
            return None
        return (
            f"it stands at {now:%Y-%m-%d %H:%M} UTC, and {money(total(ahead).usd)} were spent at dates up to "
            f"{ahead[-1].hour_at:%Y-%m-%d %H:%M} UTC, which count until then; if it is right, say "
            "`sudo penstock believe-clock`"
        )

    async def _tidy_up(self) -> None:
        """Delete what is too old from the store, once an hour."""
        now = self.clock.now()
        if now >= self._tidy_at:
            self._tidy_at = now + timedelta(seconds=HOUSEKEEPING_SECONDS)
            try:
                while await self.store.run(
                    lambda store: store.prune(
                        now=now,
                        retention_seconds=self.retention_seconds,
                        kept_count=self.learner.observation_count_max,
                    )
                ):
                    pass
                while await self.store.run(Store.shrink):
                    pass
                await self.store.run(Store.remove_old_copies)
            except (DiskTrouble, OSError) as trouble:
                log.warning("nothing old was forgotten: %s", trouble)

    def _postpone(self, watch: Watch, verdict: Verdict) -> _End:
        """Do not probe the context for a while, and say why; without `retry_at` an operator has to intervene."""
        now = self.clock.now()
        until = verdict.retry_at or now + timedelta(seconds=max(watch.section.mean_interval_seconds, 60.0))
        self.standings.postpone(watch.context, until)
        why = verdict.sentence or "no probe is worth its price at present"
        is_stopped = not verdict.is_allowed and verdict.retry_at is None
        if is_stopped:
            self.troubles.note_stopped(watch.context, f"not probed, {why}")
        else:
            self.troubles.note_postponed(watch.context)
        self._note_expired(watch.context, f"not probed, {why}")
        return _End(f"{describe(watch.context)}: not probed, {why}", is_stopped=is_stopped)

    def _note_failed(self, context: Context, reason: str) -> None:
        fit = self.board.fit(context.place)
        self.troubles.note_failed(context, reason, is_known=fit is not None and fit.observation_count > 0)
        self._note_expired(context, reason)

    def _note_expired(self, context: Context, reason: str) -> None:
        """Report the trouble if it has lasted until the advice expired: then it does not pass by itself."""
        now = self.clock.now()
        advice = self.board.recommend(context, Demand(), now)
        if advice.has_expired(now):
            ended = f"{advice.expires_at:%Y-%m-%d %H:%M} UTC"
            self.troubles.note_expired(context, f"its advice has expired ({ended}): {reason}")


def _foreseen(fit: Fit, plan: ProbePlan[Any]) -> Estimate | None:
    """What the fit predicts for the plan, to compare with the measurement; None before the first measurement."""
    if not fit.observation_count:
        return None
    model = OPERATIONS[plan.context.operation].model
    return model.predict(fit, plan.context, plan.setting, Demand()).get(model.value_metric)
