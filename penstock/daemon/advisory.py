"""Knows how the socket's questions are answered from the board, the conductor and the ledger. Nothing here waits."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.api.leases import LeaseBook, lease_documents
from penstock.api.routes import NoRoomError, RefusedError
from penstock.api.wire import Question, Snapshot, recommendation_document
from penstock.clock import Clock
from penstock.daemon.audit import Audit
from penstock.daemon.backlog_watch import Backlog, BacklogWatch
from penstock.daemon.board import Board
from penstock.daemon.budget import Ledger
from penstock.daemon.conductor import Conductor, Cycle
from penstock.daemon.forecast import Forecast, shown_cost
from penstock.daemon.host_watch import HostWatch
from penstock.daemon.schedule import fresh_report_count
from penstock.daemon.store import AsyncStore
from penstock.daemon.sweeper import Sweeper
from penstock.daemon.troubles import Trouble
from penstock.daemon.trust import Door
from penstock.models.model import Fit, is_current
from penstock.models.sqs.backlog_warning import Alarm
from penstock.operations.sqs.delivery import DELIVERY
from penstock.operations.table import OPERATIONS
from penstock.optimizer.recommendation import alternatives
from penstock.optimizer.verdict import CHANGE_SUSPECTED, Verdict, sentence
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Inconclusive,
    Observation,
    Place,
    Recommendation,
    Setting,
    knobs,
    setting_values,
)

ALTERNATIVE_COUNT = 8
CYCLE_COUNT_SHOWN = 20
_DAY_SECONDS = 86400.0
REMOVAL_SECONDS_MAX = 60.0  # who asked for it is answered by then


class Advisory:
    """`penstock.api.routes.Advisor` of a living daemon."""

    def __init__(
        self,
        *,
        board: Board,
        conductor: Conductor,
        backlogs: BacklogWatch,
        host_watch: HostWatch,
        store: AsyncStore,
        clock: Clock,
        home: Place,
        started_at: datetime,
        reload: Callable[[], Awaitable[str]],
        leases: LeaseBook | None = None,
        forecast: Callable[[], Sequence[Forecast]] = tuple,
        audit: Audit,
    ) -> None:
        self._board = board
        self._conductor = conductor
        self._backlogs = backlogs
        self._host_watch = host_watch
        self._store = store
        self._clock = clock
        self._home = home
        self._started_at = started_at
        self._forecast = forecast
        self._audit = audit
        self._reload = reload
        self._door = Door(clock, self._known_places)
        self._report_counts = {"kept": 0, "refused": 0}  # since the start
        self._leases = leases if leases is not None else LeaseBook()

    @property
    def region(self) -> str:
        """Of this host."""
        return self._home.region

    @property
    def instance_type(self) -> str:
        """Of this host."""
        return self._home.instance_type

    @property
    def probed_operations(self) -> Collection[str]:
        """Those that are measured here."""
        return {context.operation for context in self._conductor.contexts}

    # --- Reading

    def snapshot(self) -> Snapshot:
        """All the advice that stands."""
        return self._board.snapshot(self._clock.now())

    def recommend(self, question: Question) -> Recommendation[Any]:
        """The advice for this question; always some."""
        context, demand = self._context(question), self._beside_neighbours(question)
        answer = self._board.recommend(context, demand, self._clock.now())
        return _telling_of_neighbours(answer, question.demand)

    def assess(self, question: Question, setting: Setting) -> Recommendation[Any]:
        """What a setting that was chosen elsewhere will do for this question, as a recommendation."""
        context, demand = self._context(question), self._beside_neighbours(question)
        answer = self._board.assess(context, demand, setting, self._clock.now())
        return _telling_of_neighbours(answer, question.demand)

    def _beside_neighbours(self, question: Question) -> Demand:
        """The demand, for what the host sustains where its credits do not suffice for other leases as well."""
        context, demand = self._context(question), question.demand
        fit, others = self._board.fit(context.place), self._leases.claimed_bytes(question)
        model = OPERATIONS[context.operation].model
        if not others or fit is None or not is_current(fit, model):
            return demand
        regime = model.regime(fit, context, demand, beside_bytes=others)
        is_kept = regime is model.regime(fit, context, demand)
        return demand if is_kept else dataclasses.replace(demand, regime=regime)

    def explain(self, question: Question) -> Mapping[str, Any]:
        """Why that is the advice: the physics that were learned, and what else was considered."""
        context, recommendation = self._context(question), self.recommend(question)
        fit = self._board.fit(context.place)
        return {
            "recommendation": recommendation_document(recommendation, generation=self._board.generation),
            "fit": None if fit is None else _fit_document(fit),
            "alternatives": [] if fit is None else self._alternatives(fit, recommendation),
            "queues": [
                backlog.document()
                for backlog in self._backlogs.backlogs(context.place.region)
                if context.operation == DELIVERY.name
            ],
        }

    def status(self) -> Mapping[str, Any]:
        """What the daemon does, has done and has spent."""
        now, ledger = self._clock.now(), self._conductor.ledger
        cycles = list(self._conductor.cycles)
        return {
            "version": version("penstock"),
            "region": self.region,
            "instance_type": self.instance_type,
            "started_at": self._started_at,
            "activity": self._conductor.activity,
            "next_probe_due_at": self._conductor.next_due_at,
            "generation": self._board.generation,
            "trouble": "; ".join(f"{t.subject}: {t.sentence}" for t in self._troubles()) or None,
            "troubles": self.troubles(),
            "leftover_count": self._conductor.sweeper.count,
            "leftover_oldest_age_seconds": self._conductor.sweeper.oldest_age_seconds,
            "leftover_remark": self._conductor.sweeper.remark,
            "budget_per_day": dataclasses.asdict(ledger.limit),
            "spent_per_day": dataclasses.asdict(ledger.spent(now)),
            "costs": self._costs(now),
            "host": self._host_watch.document(),
            "contexts": [
                {
                    "operation": standing.context.operation,
                    "region": standing.context.place.region,
                    "payload_size_bytes": standing.context.payload_size_bytes,
                    "observation_count": standing.observation_count,
                    "fresh_report_count": fresh_report_count(standing, now),
                    "attempt_count": standing.attempt_count,
                    "last_attempt_at": standing.last_attempt_at,
                    "postponed_until": standing.postponed_until,
                    "verdict": self._verdict(standing.context, now),
                }
                for standing in self._conductor.standings
            ],
            "leases": lease_documents(self._leases),
            "report_kept_count": self._report_counts["kept"],
            "report_refused_count": self._report_counts["refused"],
            "queues": [backlog.document() for backlog in self._backlogs.backlogs()],
            "cycle_count": self._conductor.cycle_count,
            "cycles": [cycle_document(cycle) for cycle in cycles[-CYCLE_COUNT_SHOWN:]],
        }

    def _costs(self, now: datetime) -> dict[str, Any]:
        """Of each operation: what it cost in the last 24 hours, what it may, and what such days cost typically."""
        ledger = self._conductor.ledger
        coming = {forecast.operation: forecast.document() for forecast in self._forecast()}
        return {
            operation: {
                "spent": shown_cost(ledger.spent(now, operation)),
                "usd_per_day": ledger.usd_limits.get(operation, ledger.limit.usd),
                **coming.get(operation, {}),
            }
            for operation in OPERATIONS
        }

    def _verdict(self, context: Context, now: datetime) -> str:
        """What is advised and what it brings, as the report says it, too."""
        made = self._board.recommend(context, Demand(), now)
        over, fit = made.gain_over_default, self._board.fit(context.place)
        return sentence(
            Verdict(
                setting_words=OPERATIONS[context.operation].words.setting_in_full(
                    setting_values(made.setting)
                ),
                basis=made.basis,
                bottleneck=made.bottleneck,
                gains={"boto3": over} if over else {},
                notes=(CHANGE_SUSPECTED,) if fit is not None and fit.suspicion.is_raised else (),
                usd=self._conductor.ledger.spent(now, context.operation).usd,
                usd_period_seconds=_DAY_SECONDS,
                expired_at=made.expires_at if made.has_expired(now) else None,
            )
        )

    def troubles(self) -> Sequence[Mapping[str, Any]]:
        """What keeps the daemon from its work, as JSON values and dates."""
        return [trouble.document() for trouble in self._troubles()]

    def _troubles(self) -> Sequence[Trouble]:
        found = self._conductor.troubles.now()
        trouble = self._store.trouble
        return found if trouble is None else (Trouble(name="database", sentence=trouble), *found)

    def leftovers(self) -> Mapping[str, Any]:
        """What probes left outside and nobody uses."""
        return self._conductor.sweeper.document()

    def clients(self) -> Mapping[str, Any]:
        """What was heard of applications, and what they would gain."""
        return self._audit.document()

    def metrics(self) -> bytes:
        """The same for Prometheus."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(self._metric_families()))
        return generate_latest(registry)

    # --- Acting

    async def record(self, reports: Sequence[Observation[Any]], *, uid: int) -> list[str | None]:
        """Keep what an application of this user measured, each report by itself, and learn from it soon.

        Raises NoRoomError when they would wait in memory for a disk in trouble, and too many do.
        """
        if (trouble := await self._store.why_no_room(len(reports))) is not None:
            self._report_counts["refused"] += len(reports)
            raise NoRoomError(f"reports cannot be kept now: {trouble}")
        answers = await asyncio.gather(*(self._record_one(report, uid) for report in reports))
        kept = [report for report, refusal in zip(reports, answers, strict=True) if refusal is None]
        self._report_counts["kept"] += len(kept)
        self._report_counts["refused"] += len(reports) - len(kept)
        if kept:
            self._conductor.note_reports(kept)
            self._backlogs.note_reports(dataclasses.replace(report, reporter_uid=uid) for report in kept)
        return answers

    async def _record_one(self, report: Observation[Any], uid: int) -> str | None:
        refusal = self._door.refusal(report, uid)
        if refusal is not None:
            return refusal
        try:
            await self._store.add_observation(dataclasses.replace(report, reporter_uid=uid))
        except ValueError as trouble:
            return f"it cannot be kept: {trouble}"
        return None

    def _known_places(self) -> set[Place]:
        return {context.place for context in self._conductor.contexts} | {f.place for f in self._board.fits()}

    async def request_probe(self, operation: str, payload_size_bytes: int) -> str:
        """Probe this out of turn, within the budget."""
        watched = [c for c in self._conductor.contexts if c.operation == operation]
        matches = [c for c in watched if c.payload_size_bytes == payload_size_bytes]
        if not matches:
            sizes = ", ".join(str(size) for size in sorted({c.payload_size_bytes for c in watched}))
            sizes = sizes or "none: its probes are not enabled"
            raise RefusedError(
                f"{operation} is not probed at {payload_size_bytes} bytes here; the configured sizes are {sizes}"
            )
        for context in matches:  # one for each region that is probed
            self._conductor.request(context)
        return f"a probe of {operation} at {payload_size_bytes} bytes comes next, within the budget"

    async def remove_leftovers(self) -> Mapping[str, Any]:
        """Try all of them again between two probes; what was removed, and what is left."""
        try:
            async with asyncio.timeout(REMOVAL_SECONDS_MAX):
                summary = await asyncio.shield(self._conductor.request_sweep())
        except TimeoutError:
            raise RefusedError(
                f"the daemon was busy for {REMOVAL_SECONDS_MAX:g} s ({self._conductor.activity}); "
                "what is left behind is tried right after that"
            ) from None
        return self._conductor.sweeper.document(summary.removed)

    async def believe_clock(self) -> str:
        """Take the clock for right."""
        return self._conductor.believe_clock()

    async def reload(self) -> str:
        """Read the configuration again."""
        return await self._reload()

    # --- Documents

    def _context(self, question: Question) -> Context:
        place = Place(
            operation=question.operation,
            region=question.region or self.region,
            instance_type=question.instance_type or self.instance_type,
            service_class=question.service_class,
        )
        return Context(place=place, payload_size_bytes=question.payload_size_bytes)

    def _alternatives(self, fit: Fit, recommendation: Recommendation[Any]) -> list[dict[str, Any]]:
        """The advice first, then what it was chosen from, and what each would take."""
        context = recommendation.context
        model = OPERATIONS[context.operation].model
        settings, appraisal = alternatives(
            model,
            fit,
            context,
            self._board.within_limits(context, recommendation.demand),
            advised=recommendation.setting,
            count_max=ALTERNATIVE_COUNT,
        )
        return [
            {
                "setting": setting_values(setting),
                model.value_metric: float(appraisal.value[i]),
                "latency_seconds": float(appraisal.latency_seconds[i]),
                "connection_count": float(appraisal.connection_count[i]),
                "memory_bytes": float(appraisal.memory_bytes[i]),
            }
            for i, setting in enumerate(settings)
        ]

    def _metric_families(self) -> list[Metric]:
        now = self._clock.now()
        info = GaugeMetricFamily("penstock_build_info", "The version that runs.", labels=["version"])
        info.add_metric([version("penstock")], 1)
        cycles = CounterMetricFamily("penstock_cycles", "Cycles done since the start.")
        cycles.add_metric([], self._conductor.cycle_count)
        reports = CounterMetricFamily("penstock_reports", "Reports since the start.", labels=["outcome"])
        for outcome, count in self._report_counts.items():
            reports.add_metric([outcome], count)
        families: list[Metric] = [info, cycles, reports]
        families += _spend_families(self._conductor.ledger.spent(now), self._conductor.ledger.limit)
        families += _leftover_families(self._conductor.sweeper)
        families += self._audit.metric_families()
        families.append(_trouble_family(self._troubles(), self._conductor.contexts))
        families += _queue_families(self._backlogs.backlogs())
        families += _usd_families(_usd_by_operation(self._conductor.ledger, OPERATIONS, now))
        advised = GaugeMetricFamily(
            "penstock_recommended_setting", "Each knob of the standing advice.", labels=[*_LABELS, "knob"]
        )
        expected = GaugeMetricFamily(
            "penstock_predicted_value", "What the advice is expected to reach.", labels=[*_LABELS, "metric"]
        )
        gain = GaugeMetricFamily(
            "penstock_gain_over_default",
            "How many times as well as the SDK's default the advice is expected to do.",
            labels=_LABELS,
        )
        age = GaugeMetricFamily(
            "penstock_newest_observation_age_seconds", "How old the newest evidence is.", labels=_LABELS
        )
        for recommendation in self.snapshot().recommendations:
            labels = _labels(recommendation.context)
            for knob, value in setting_values(recommendation.setting).items():
                advised.add_metric([*labels, knob], value)
            for metric, estimate in recommendation.prediction.items():
                expected.add_metric([*labels, metric], estimate.expected)
            if recommendation.gain_over_default is not None:
                gain.add_metric(labels, recommendation.gain_over_default.expected)
            if recommendation.newest_observation_at is not None:
                age_seconds = (now - recommendation.newest_observation_at).total_seconds()
                age.add_metric(labels, max(0.0, age_seconds))  # a clock that stepped back knows no better
        return [*families, advised, expected, gain, age, *_lease_families(self._leases)]


_LABELS = ["operation", "region", "instance_type", "payload_size_bytes"]


class _Scrape(Collector):
    """Families that were worked out beforehand."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _telling_of_neighbours(answer: Recommendation[Any], asked: Demand) -> Recommendation[Any]:
    """The answer to what was asked, which says so where others under lease decided the regime."""
    if answer.demand == asked:
        return answer
    why = "For what the host sustains: others under lease need its burst credits as well."
    return dataclasses.replace(answer, demand=asked, explanation=f"{answer.explanation} {why}")


def _labels(context: Context) -> list[str]:
    return [
        context.operation,
        context.place.region,
        context.place.instance_type,
        str(context.payload_size_bytes),
    ]


def _lease_families(book: LeaseBook) -> list[Metric]:
    count = GaugeMetricFamily("penstock_leases", "Leases that are held.", labels=["operation"])
    held = GaugeMetricFamily(
        "penstock_leased_setting", "The sum of a knob over all leases.", labels=["operation", "knob"]
    )
    counts: Counter[str] = Counter()
    sums: Counter[tuple[str, str]] = Counter()
    for lease in book.leases:
        operation, setting = lease.claim.question.operation, book.share(lease).setting
        counts[operation] += 1
        for name, knob in knobs(setting).items():
            if knob.is_divided:
                sums[operation, name] += getattr(setting, name)
    for operation, number in counts.items():
        count.add_metric([operation], number)
    for (operation, name), value in sums.items():
        held.add_metric([operation, name], value)
    return [count, held]


def _spend_families(spent: Cost, limit: Cost) -> list[Metric]:
    families: list[Metric] = []
    for name, cost, text in (
        ("penstock_spent_per_day", spent, "What probes cost in the last 24 hours."),
        ("penstock_budget_per_day", limit, "What probes may cost in any 24 hours."),
    ):
        family = GaugeMetricFamily(name, text, labels=["resource"])
        for resource, value in dataclasses.asdict(cost).items():
            family.add_metric([resource], value)
        families.append(family)
    return families


def _leftover_families(sweeper: Sweeper) -> list[Metric]:
    count = GaugeMetricFamily("penstock_leftovers", "Things that probes left outside and nobody uses.")
    count.add_metric([], sweeper.count)
    age = GaugeMetricFamily("penstock_leftover_oldest_age_seconds", "How old the oldest is; 0 without any.")
    age.add_metric([], sweeper.oldest_age_seconds or 0.0)
    return [count, age]


def _trouble_family(troubles: Iterable[Trouble], contexts: Iterable[Context]) -> Metric:
    """1 where something is wrong, 0 for each operation that is probed and well."""
    family = GaugeMetricFamily(
        "penstock_trouble",
        "Whether something keeps this operation from being measured, or ails the daemon itself.",
        labels=["name", "region"],
    )
    well = {(context.operation, context.place.region): 0 for context in contexts}
    ill = {(trouble.name, trouble.region): 1 for trouble in troubles}
    for (name, region), value in (well | ill).items():
        family.add_metric([name, region], value)
    return family


def _queue_families(backlogs: Sequence[Backlog]) -> list[Metric]:
    labels = ["queue", "source", "region"]
    messages = GaugeMetricFamily(
        "penstock_queue_messages", "Messages of a queue, by state.", labels=[*labels, "state"]
    )
    age = GaugeMetricFamily(
        "penstock_queue_oldest_undeleted_seconds",
        "Age of the oldest message received and not deleted.",
        labels=labels,
    )
    alarm = GaugeMetricFamily(
        "penstock_queue_alarm",
        "How near the duplicate loop is: 0 calm, 1 warn, 2 act, 3 collapsed.",
        labels=labels,
    )
    due = GaugeMetricFamily(
        "penstock_queue_reaches_timeout_timestamp_seconds",
        "When the backlog reaches the visibility timeout at this rate.",
        labels=labels,
    )
    for backlog in backlogs:
        values = [backlog.name, backlog.source, backlog.region]
        for state, count in (
            ("visible", backlog.visible_message_count),
            ("not_visible", backlog.not_visible_message_count),
        ):
            if count is not None:
                messages.add_metric([*values, state], count)
        if backlog.warning is not None:
            age.add_metric(values, backlog.warning.oldest_undeleted_seconds)
            alarm.add_metric(values, list(Alarm).index(backlog.warning.alarm))
            if backlog.warning.reaches_timeout_at is not None:
                due.add_metric(values, backlog.warning.reaches_timeout_at.timestamp())
    return [messages, age, alarm, due]


def _usd_by_operation(
    ledger: Ledger, operations: Iterable[str], now: datetime
) -> dict[str, dict[str, float]]:
    """Dollars of the last 24 hours at list price, and what each operation may spend."""
    return {
        operation: {
            "spent": ledger.spent(now, operation).usd,
            "budget": ledger.usd_limits.get(operation, ledger.limit.usd),
        }
        for operation in operations
    }


def _usd_families(usd: Mapping[str, Mapping[str, float]]) -> list[Metric]:
    families: list[Metric] = []
    for name, text in (
        ("spent", "What probes of an operation cost in the last 24 hours, at list price."),
        ("budget", "What they may cost in any 24 hours."),
    ):
        family = GaugeMetricFamily(f"penstock_usd_{name}_per_day", text, labels=["operation"])
        for operation, amounts in usd.items():
            family.add_metric([operation], amounts[name])
        families.append(family)
    return families


def _fit_document(fit: Fit) -> dict[str, Any]:
    return {
        "parameters": {name: dataclasses.asdict(estimate) for name, estimate in fit.parameters.items()},
        "observation_count": fit.observation_count,
        "newest_observation_at": fit.newest_observation_at,
        "residual_fraction_p50": fit.residual_fraction_p50,
        "is_off_model": fit.is_off_model,
        "drift_count": fit.drift_count,
    }


def cycle_document(cycle: Cycle) -> dict[str, Any]:
    """What a cycle did, as JSON values and dates."""
    return {
        "at": cycle.at,
        "operation": cycle.context.operation,
        "payload_size_bytes": cycle.context.payload_size_bytes,
        "sentence": cycle.sentence,
        "is_conclusive": cycle.outcome is not None and not isinstance(cycle.outcome, Inconclusive),
    }
