"""Knows the cycle: what is due is proposed, paid for, probed, remembered, learned from and advised, one at a time.

Fits never overlap probes, because one coroutine does both in turn. Each cycle ends in one sentence that says what was
done and why; it is the log line, the status of the service, and what the demo shows.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from math import ceil
from typing import Any

from penstock.clock import Clock
from penstock.daemon import schedule
from penstock.daemon.board import Board, nearest
from penstock.daemon.budget import ALLOWED, Ledger, Spend, Verdict
from penstock.daemon.database import DiskTrouble
from penstock.daemon.services import Plan, Service
from penstock.daemon.store import AsyncStore, Store
from penstock.daemon.thinker import Thinker, ThinkerError
from penstock.models import burst
from penstock.models.model import Fit, is_newly_changed
from penstock.optimizer.deliberation import Conclusion, Question
from penstock.optimizer.evidence import is_same_size
from penstock.probes.probe import Probe
from penstock.units import format_bytes, quantity
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Inconclusive,
    Observation,
    Outcome,
    Place,
    ProbePlan,
    Reason,
    Recommendation,
    Setting,
    setting_values,
)

log = logging.getLogger(__name__)

CYCLE_FAILURE_COUNT_MAX = 3  # in a row; then the process ends and systemd starts it afresh
CYCLE_COUNT_REMEMBERED = 200
REPORTS_SETTLE_SECONDS = 5.0  # applications report in bursts: one fit for all of them
REPORTS_PAUSE_SECONDS = 120.0  # between such fits: however much is reported, it costs a hundredth of a core
REPORT_COUNT_MAX, REPORT_COUNT_MAX_PER_USER = 256, 64  # newest of a place: more than is ever learned from
AVOIDED_COUNT_MAX = 6  # settings that could not be measured; each success lets the oldest be tried again
REST_SECONDS = 60.0  # an idle time from which on the child process is let go
HOUSEKEEPING_SECONDS = 3600.0
CLOCK_STEP_SECONDS_MIN = 300.0  # a smaller step back delays a probe by no more than that
STEADY_RESIDUAL_FRACTION = 0.1


class ConductorError(RuntimeError):
    """Cycle after cycle failed in a way that nobody foresaw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """What one cycle did, in one sentence, for people."""

    at: datetime
    context: Context
    sentence: str
    outcome: Outcome[Any] | None  # None when nothing was probed


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One context that is kept up to date, and by which probe."""

    context: Context
    service: Service[Any]
    plan: Plan
    probe: Probe[Any]


class Conductor:
    """Runs one cycle after another for as long as the daemon lives."""

    def __init__(
        self,
        watches: Sequence[Watch],
        *,
        services: Mapping[str, Service[Any]],
        board: Board,
        store: AsyncStore,
        ledger: Ledger,
        thinker: Thinker,
        clock: Clock,
        host_verdict: Callable[[datetime], Verdict],
        seed: int,
        observation_count_max: int,
        retention_seconds: float,
        on_change: Callable[[], None],
        on_cycle: Callable[[Cycle], None],
    ) -> None:
        self._watches = {watch.context: watch for watch in watches}
        self._board = board
        self._store = store
        self.ledger = ledger
        self._thinker = thinker
        self._clock = clock
        self._host_verdict = host_verdict
        self._services = services  # all of them: applications also report what is not probed
        self._seed = seed
        self._observation_count_max = observation_count_max
        self._retention_seconds = retention_seconds
        self._on_change = on_change
        self._on_cycle = on_cycle
        self._standings: dict[Context, schedule.Standing] = {}
        self._requested: deque[Context] = deque(maxlen=16)
        self._reported: set[Place] = set()
        self._reports_due_seconds = 0.0  # on the monotonic clock
        self._avoided = {context: deque[Setting](maxlen=AVOIDED_COUNT_MAX) for context in self._watches}
        self._changes_known_until: dict[Place, datetime | None] = {}
        self._fitted: dict[Place, tuple[object, ...]] = {}  # which evidence the board's fit rests on
        self._news = asyncio.Event()
        self._tidy_at = self._resumed_at = self._seen_at = clock.now()
        self.cycles: deque[Cycle] = deque(maxlen=CYCLE_COUNT_REMEMBERED)
        self.cycle_count = 0
        self.activity = "starting"
        self.next_due_at: datetime | None = None

    @property
    def contexts(self) -> list[Context]:
        """What is watched."""
        return list(self._watches)

    @property
    def standings(self) -> list[schedule.Standing]:
        """What the schedule knows of each context."""
        return list(self._standings.values())

    # --- What others may ask for

    def request(self, context: Context) -> bool:
        """Probe this context out of turn, as soon as nothing else runs; False when it is not watched."""
        if context not in self._watches:
            return False
        self._requested.append(context)
        self._news.set()
        return True

    def note_reports(self, observations: Sequence[Observation[Any]]) -> None:
        """Applications reported: learn from it soon, and probe less where it is believed."""
        if not self._reported:
            settled_seconds = self._clock.monotonic_seconds() + REPORTS_SETTLE_SECONDS
            self._reports_due_seconds = max(self._reports_due_seconds, settled_seconds)
        self._reported |= {observation.context.place for observation in observations}
        self._news.set()

    # --- The life of the daemon

    async def prepare(self) -> None:
        """Take up the schedule where the last life left it, and put up what tables and neighbours say of new places."""
        await self._load_standings()
        for place in {context.place for context in self._watches}:
            if self._board.fit(place) is None:
                try:
                    await self._learn(place)
                except ThinkerError as trouble:  # the defaults stand, and the first cycle tries again
                    log.warning("%s: %s", place.operation, trouble)

    async def run(self) -> None:
        """One cycle after another. Raises ConductorError after several unforeseen failures in a row."""
        self._resumed_at = self._clock.now()
        failure_count = 0
        while True:
            context, reason = await self._wait_for_work()
            try:
                if context is None:
                    await self._learn_from_reports()
                else:
                    await self.run_cycle(context, reason)
                failure_count = 0
            except Exception as trouble:
                failure_count += context is not None  # what somebody reported must not end the daemon
                log.exception("cycle failed, seed %d, context %s", self._seed, context)
                if failure_count >= CYCLE_FAILURE_COUNT_MAX:
                    raise ConductorError(
                        f"{failure_count} cycles failed in a row, the last with: {trouble}"
                    ) from trouble
                await asyncio.sleep(2.0**failure_count)

    async def run_cycle(self, context: Context, reason: Reason | None = None) -> Cycle:
        """Do one cycle for this context and say in one sentence what was done."""
        watch = self._watches[context]
        self.activity = f"thinking about {_describe(context)}"
        try:
            sentence, outcome = await self._try(watch, reason)
        except DiskTrouble as trouble:
            verdict = Verdict(is_allowed=False, sentence=f"nothing can be written down: {trouble}")
            sentence, outcome = self._postpone(watch, verdict), None
        cycle = Cycle(at=self._clock.now(), context=context, sentence=sentence, outcome=outcome)
        self.cycles.append(cycle)
        self.cycle_count += 1
        self._on_cycle(cycle)
        self.activity = "idle"
        log.info("%s", sentence)
        return cycle

    # --- One cycle, step by step

    async def _try(self, watch: Watch, reason: Reason | None) -> tuple[str, Outcome[Any] | None]:
        now = self._clock.now()
        host = self._host_verdict(now)
        if not host.is_allowed and reason is None:
            return self._postpone(watch, host), None
        allowance = _smaller(watch.plan.cost_max, self.ledger.affordable(watch.context.operation, now))
        conclusion = await self._deliberate(watch.context.place, watch.context, allowance)
        plan = conclusion.plan
        wanted = plan.cost_max if plan else _wanted(watch, conclusion.fit)
        verdict = _memory_verdict(watch, conclusion.memory_bytes_min)
        if verdict.is_allowed:
            verdict = self.ledger.allows(watch.context.operation, wanted, now)
        if plan is None or not verdict.is_allowed:
            return self._postpone(watch, verdict), None
        outcome = await self._probe(watch, dataclasses.replace(plan, reason=reason or plan.reason))
        if isinstance(outcome, Inconclusive):
            return f"{_describe(watch.context)}: {outcome.reason}", outcome
        before = self._board.recommend(watch.context, Demand(), self._clock.now())
        fit = await self._learn(watch.context.place)
        self._note_measured(watch.context, fit)
        after = self._board.recommend(watch.context, Demand(), self._clock.now())
        return _tell(watch.service, plan, outcome, before, after), outcome

    async def _probe(self, watch: Watch, plan: ProbePlan[Any]) -> Outcome[Any]:
        """Pay, probe, settle, remember: in this order, whatever happens in between."""
        context, started_at = watch.context, self._clock.now()
        self.activity = f"probing {_describe(context)} with {_describe_setting(plan.setting)}"
        ledger, reserved = self.ledger.reserve(context.operation, plan.cost_max, started_at)
        await self._store.run(lambda store: store.add_attempt(context, at=started_at))
        await self._store.run(lambda store: store.add_spend(reserved))
        self.ledger = ledger  # not before it is written: what the disk refuses is not done and costs nothing
        self._note_attempt(context, started_at)
        start_seconds = self._clock.monotonic_seconds()
        try:
            outcome = await watch.probe.run(plan)
        except asyncio.CancelledError:  # a stop or a reload: the next life may spend what this run did not
            used = _interrupted(plan, watch.probe.used)
            await self._settle(plan, reserved, used, start_seconds)
            raise
        await self._settle(plan, reserved, _used(plan, outcome), start_seconds)
        avoided = self._avoided[context]
        if isinstance(outcome, Inconclusive):
            avoided.append(outcome.setting)
            await self._store.run(lambda store: store.add_inconclusive(outcome))
        else:
            if avoided:
                avoided.popleft()
            await self._store.add_observation(outcome)
        return outcome

    async def _settle(self, plan: ProbePlan[Any], reserved: Spend, used: Cost, start_seconds: float) -> None:
        """Put the true cost in place of the reserved one, in memory and on the disk."""
        duration_seconds = self._clock.monotonic_seconds() - start_seconds
        cost = _true_cost(plan.cost_max, used, duration_seconds=duration_seconds)
        self.ledger, correction = self.ledger.settle(reserved, cost, self._clock.now())
        await self._store.run(lambda store: store.correct_spend(correction))

    async def _learn(self, place: Place) -> Fit:
        """Fit everything that is known of the place, and put the advice up."""
        conclusion = await self._deliberate(place, None, Cost())
        now = self._clock.now()
        changed = await self._board.post(conclusion.fit, now)
        await self._store.run(lambda store: store.add_fit(conclusion.fit, fitted_at=now))
        for recommendation in changed:
            await self._store.run(partial(_add_recommendation, recommendation=recommendation))
        self._on_change()
        return conclusion.fit

    async def _learn_from_reports(self) -> None:
        """One fit for each place that applications reported from."""
        places, self._reported = self._reported, set()
        for place in sorted(places, key=str):
            self.activity = f"learning from reports about {place.operation}"
            await self._learn(place)
        self._reports_due_seconds = self._clock.monotonic_seconds() + REPORTS_PAUSE_SECONDS
        self.activity = "idle"

    async def _deliberate(
        self, place: Place, next_context: Context | None, cost_max: Cost
    ) -> Conclusion[Any]:
        observations = await self._store.run(
            lambda store: store.observations(place, count_max=self._observation_count_max)
        )
        reports = await self._store.run(
            lambda store: store.reports(
                place, count_max=REPORT_COUNT_MAX, count_max_per_user=REPORT_COUNT_MAX_PER_USER
            )
        )
        watch = self._watches.get(next_context) if next_context else None
        evidence = _evidence(observations, reports)
        question = Question(
            place=place,
            observations=(*observations, *reports),
            fit=self._board.fit(place) if self._fitted.get(place) == evidence else None,
            prior=nearest(place, self._board.fits()),
            next_context=next_context,
            cost_max=cost_max,
            avoided=tuple(self._avoided[next_context]) if next_context else (),
            demand=Demand(
                thread_count_max=watch.plan.thread_count_max if watch else None,
                memory_bytes_max=watch.plan.memory_bytes_max if watch else None,
            ),
            seed=_seed(self._seed, place, observations),
        )
        conclusion = await self._thinker.deliberate(self._services[place.operation].model, question)
        if next_context is None:
            self._fitted[place] = evidence
        if conclusion.believed is not None:
            self._note_believed(place, conclusion)
        return conclusion

    # --- When

    async def _wait_for_work(self) -> tuple[Context | None, Reason | None]:
        """The context that is due or asked for; None when reports wait to be learned from."""
        while True:
            self._news.clear()
            if self._requested:
                return self._requested.popleft(), Reason.REQUESTED
            reports_wait_seconds = self._reports_due_seconds - self._clock.monotonic_seconds()
            if self._reported and reports_wait_seconds <= 0:
                return None, None
            now = self._clock.now()
            self._notice_step_back(now)
            due = schedule.next_due(
                self._seed, self._standings.values(), resumed_at=self._resumed_at, now=now
            )
            self.next_due_at = due.due_at if due else None
            wait_seconds = (due.due_at - now).total_seconds() if due else HOUSEKEEPING_SECONDS
            if due and wait_seconds <= 0:
                return due.context, None
            if self._reported:
                wait_seconds = min(wait_seconds, reports_wait_seconds)
            if wait_seconds >= REST_SECONDS:
                self._thinker.rest()
            await self._tidy_up()
            await self._wait_for_news(min(wait_seconds, HOUSEKEEPING_SECONDS))

    def _notice_step_back(self, now: datetime) -> None:
        """Moments that were set by a clock that was ahead would silence every context until they come again."""
        if now < self._seen_at - timedelta(seconds=CLOCK_STEP_SECONDS_MIN):
            self._resumed_at = self._tidy_at = now
            for context, standing in self._standings.items():
                self._standings[context] = dataclasses.replace(standing, postponed_until=None)
        self._seen_at = now

    async def _wait_for_news(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _tidy_up(self) -> None:
        """Forget what is too old, once in a while."""
        now = self._clock.now()
        if now >= self._tidy_at:
            self._tidy_at = now + timedelta(seconds=HOUSEKEEPING_SECONDS)
            try:
                while await self._store.run(
                    lambda store: store.prune(now=now, retention_seconds=self._retention_seconds)
                ):
                    pass
            except DiskTrouble as trouble:
                log.warning("nothing old was forgotten: %s", trouble)

    def _postpone(self, watch: Watch, verdict: Verdict) -> str:
        """Leave the context alone for a while, and say why."""
        now = self._clock.now()
        until = verdict.retry_at or now + timedelta(seconds=max(watch.plan.mean_interval_seconds, 60.0))
        standing = self._standings[watch.context]
        self._standings[watch.context] = dataclasses.replace(standing, postponed_until=until)
        why = verdict.sentence or "no probe is worth its price now"
        return f"{_describe(watch.context)}: not probed, {why}"

    # --- What the schedule knows of each context

    async def _load_standings(self) -> None:
        attempts = {a.context: a for a in await self._store.run(Store.attempts)}
        summaries = {s.context: s for s in await self._store.run(Store.summaries)}
        for context, watch in self._watches.items():
            attempt, summary = attempts.get(context), summaries.get(context)
            self._standings[context] = schedule.Standing(
                context=context,
                mean_interval_seconds=watch.plan.mean_interval_seconds,
                attempt_count=attempt.attempt_count if attempt else 0,
                last_attempt_at=attempt.last_at if attempt else None,
                observation_count=summary.observation_count if summary else 0,
            )

    def _note_attempt(self, context: Context, at: datetime) -> None:
        standing = self._standings[context]
        self._standings[context] = dataclasses.replace(
            standing, attempt_count=standing.attempt_count + 1, last_attempt_at=at, postponed_until=None
        )

    def _note_believed(self, place: Place, conclusion: Conclusion[Any]) -> None:
        """Reports that agree with what was measured stand in for probes of about the same size."""
        if conclusion.disbelieved_count:
            log.info(
                "%s in %s: %d reports of applications are not believed, for they do not agree with measurements",
                place.operation,
                place.region,
                conclusion.disbelieved_count,
            )
        for context, standing in self._standings.items():
            if context.place == place:
                reports_at = (
                    b.started_at for b in conclusion.believed or () if is_same_size(b.context, context)
                )
                self._standings[context] = dataclasses.replace(standing, reports_at=tuple(sorted(reports_at)))

    def _note_measured(self, context: Context, fit: Fit) -> None:
        """After a change of the place, every context of it is learned anew."""
        known = self._changes_known_until
        is_new = is_newly_changed(fit, known.get(fit.place))
        has_changed = is_new and fit.place in known  # not what was known before the daemon started
        if is_new or fit.place not in known:
            known[fit.place] = fit.newest_observation_at if fit.changed_at else None
        for other, standing in self._standings.items():
            if other.place == fit.place:
                count = 0 if has_changed else standing.observation_count
                self._standings[other] = dataclasses.replace(
                    standing,
                    observation_count=count + (other == context),
                    is_steady=not has_changed and fit.residual_fraction_p50 < STEADY_RESIDUAL_FRACTION,
                )


def _evidence(
    observations: Sequence[Observation[Any]], reports: Sequence[Observation[Any]]
) -> tuple[object, ...]:
    """What changes with every measurement and every report."""
    return tuple((len(some), some[-1].started_at if some else None) for some in (observations, reports))


def _add_recommendation(store: Store, recommendation: Recommendation[Any]) -> None:
    store.add_recommendation(recommendation)


def _smaller(configured: Cost, affordable: Cost) -> Cost:
    """Field by field the smaller; a configured 0 states no limit of its own."""
    fields = (field.name for field in dataclasses.fields(Cost))
    return Cost(
        **{
            name: min(getattr(configured, name) or getattr(affordable, name), getattr(affordable, name))
            for name in fields
        }
    )


def _memory_verdict(watch: Watch, memory_bytes_min: int | None) -> Verdict:
    """Whether any setting keeps what a probe may hold; `memory_bytes_min` is what all of them hold where none does."""
    most = watch.plan.memory_bytes_max
    if most is None or memory_bytes_min is None:
        return ALLOWED
    return Verdict(
        is_allowed=False,
        sentence=f"a probe holds at least {format_bytes(memory_bytes_min)}, and "
        f"probes.{watch.context.operation}.memory_bytes_max allows {format_bytes(most)}: raise it",
    )


def _wanted(watch: Watch, fit: Fit) -> Cost:
    """What was not to be had where nothing is planned: what a probe may take, and the credits of the gentlest."""
    model, context = watch.service.model, watch.context
    gentlest = model.legal(context, model.ramp(context)[0])
    credit_bytes = model.probe_cost(fit, context, gentlest).credit_bytes
    return dataclasses.replace(watch.plan.cost_max, credit_bytes=credit_bytes)


def _true_cost(allowed: Cost, used: Cost, *, duration_seconds: float) -> Cost:
    """What the probe did cost: counted, and in dollars by the share of the plan that was used."""
    used_fraction = max(
        used.request_count / max(allowed.request_count, 1),
        used.transferred_bytes / max(allowed.transferred_bytes, 1),
    )
    return dataclasses.replace(
        used, usd=allowed.usd * min(used_fraction, 1.0), duration_seconds=duration_seconds
    )


def _used(plan: ProbePlan[Any], outcome: Outcome[Any]) -> Cost:
    """Bytes, requests and credits of a probe that ended."""
    moved_bytes = _moved_bytes(outcome)
    used = Cost(transferred_bytes=moved_bytes, request_count=outcome.request_count)
    if isinstance(outcome, Inconclusive):
        return _interrupted(plan, used)
    limits = burst.ceiling(plan.context.place.instance_type)
    spent = limits.credits_spent(moved_bytes, seconds=outcome.duration_seconds) if limits else 0.0
    return dataclasses.replace(used, credit_bytes=ceil(spent))


def _interrupted(plan: ProbePlan[Any], used: Cost) -> Cost:
    """The same of one that timed nothing: no more credits than were planned, nor than it moved."""
    credit_bytes = min(plan.cost_max.credit_bytes, used.transferred_bytes)
    return dataclasses.replace(used, credit_bytes=credit_bytes)


def _moved_bytes(outcome: Outcome[Any]) -> int:
    """All that went over the wire, also in vain; an observation's own bytes are those that arrived."""
    if isinstance(outcome, Inconclusive):
        return outcome.transferred_bytes
    return int(outcome.measures.get("attempted_bytes", outcome.transferred_bytes))


def _seed(seed: int, place: Place, observations: Sequence[Observation[Any]]) -> int:
    """A seed from what the configuration, the place and the history say, so that a decision can be replayed.

    The newest observation tells histories apart, however many of them are looked at.
    """
    newest = f"{observations[-1].started_at.timestamp():.6f}" if observations else ""
    text = f"{seed}/{place.operation}/{place.region}/{place.instance_type}/{place.service_class}/{newest}"
    return zlib.crc32(text.encode())


def _describe(context: Context) -> str:
    return f"{context.operation} {format_bytes(context.payload_size_bytes)} in {context.place.region}"


def _describe_setting(setting: Setting) -> str:
    """``thread_count 16, part_size 8 MiB``: the knobs that say something."""
    shown = (
        f"{name.removesuffix('_bytes')} {format_bytes(value)}"
        if name.endswith("_bytes")
        else f"{name} {value:g}"
        for name, value in setting_values(setting).items()
        if value
    )
    return ", ".join(shown)


def _tell(
    service: Service[Any],
    plan: ProbePlan[Any],
    observation: Observation[Any],
    before: Recommendation[Any],
    after: Recommendation[Any],
) -> str:
    """The sentence of a cycle that measured something."""
    metric = service.model.value_metric
    value = service.model.measured_value(observation)
    trouble = f", {observation.throttled_count} throttled" if observation.throttled_count else ""
    trouble += f", {observation.failed_count} failed" if observation.failed_count else ""
    kept = (
        "advice stands"
        if before.setting == after.setting
        else f"now advising {_describe_setting(after.setting)}"
    )
    return (
        f"{_describe(plan.context)} ({plan.reason}): {_describe_setting(plan.setting)} gave "
        f"{quantity(metric, value)}{trouble}; {kept}"
    )
