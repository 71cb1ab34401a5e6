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

from penstock.clock import Clock
from penstock.daemon import backlog_watch
from penstock.daemon.api import RefusedError
from penstock.daemon.backlog_watch import BacklogWatch, QueueStanding
from penstock.daemon.board import Board
from penstock.daemon.budget import Ledger
from penstock.daemon.conductor import Conductor, Cycle
from penstock.daemon.leases import LeaseBook, lease_documents
from penstock.daemon.schedule import fresh_report_count
from penstock.daemon.services import Service
from penstock.daemon.store import AsyncStore
from penstock.daemon.trust import Door
from penstock.daemon.wire import Question, Standing, recommendation_document
from penstock.models.backlog_warning import Alarm
from penstock.models.model import Fit
from penstock.optimizer.recommendation import alternatives
from penstock.vocabulary import (
    Context,
    Cost,
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


class Advisory:
    """`penstock.daemon.api.Advisor` of a living daemon."""

    def __init__(
        self,
        *,
        services: Mapping[str, Service[Any]],
        board: Board,
        conductor: Conductor,
        backlogs: BacklogWatch,
        store: AsyncStore,
        clock: Clock,
        home: Place,
        started_at: datetime,
        reload: Callable[[], Awaitable[str]],
        leases: LeaseBook | None = None,
    ) -> None:
        self._services = services
        self._board = board
        self._conductor = conductor
        self._backlogs = backlogs
        self._store = store
        self._clock = clock
        self._home = home
        self._started_at = started_at
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
    def setting_types(self) -> Mapping[str, type[Setting]]:
        """The operations that are advised here, each with its setting."""
        return {operation: service.setting_type for operation, service in self._services.items()}

    @property
    def probed_operations(self) -> Collection[str]:
        """Those of them that are measured here."""
        return {context.operation for context in self._conductor.contexts}

    # --- Reading

    def standing(self) -> Standing:
        """All the advice that stands."""
        return self._board.standing(self._clock.now())

    def recommend(self, question: Question) -> Recommendation[Any]:
        """The advice for this question; always some."""
        return self._board.recommend(self._context(question), question.demand, self._clock.now())

    def assess(self, question: Question, setting: Setting) -> Recommendation[Any]:
        """What a setting that was chosen elsewhere will do for this question, as a recommendation."""
        return self._board.assess(self._context(question), question.demand, setting, self._clock.now())

    def explain(self, question: Question) -> Mapping[str, Any]:
        """Why that is the advice: the physics that were learned, and what else was considered."""
        context = self._context(question)
        recommendation = self._board.recommend(context, question.demand, self._clock.now())
        fit = self._board.fit(context.place)
        return {
            "recommendation": recommendation_document(recommendation, generation=self._board.generation),
            "fit": None if fit is None else _fit_document(fit),
            "alternatives": [] if fit is None else self._alternatives(fit, recommendation),
            "queues": [
                standing.document()
                for standing in self._backlogs.standings(context.place.region)
                if context.operation == backlog_watch.OPERATION
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
            "trouble": self._store.trouble,
            "budget_per_day": dataclasses.asdict(ledger.limit),
            "spent_per_day": dataclasses.asdict(ledger.spent(now)),
            "usd_per_day": _usd_by_operation(ledger, self._services, now),
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
                }
                for standing in self._conductor.standings
            ],
            "leases": lease_documents(self._leases),
            "report_kept_count": self._report_counts["kept"],
            "report_refused_count": self._report_counts["refused"],
            "queues": [standing.document() for standing in self._backlogs.standings()],
            "cycle_count": self._conductor.cycle_count,
            "cycles": [cycle_document(cycle) for cycle in cycles[-CYCLE_COUNT_SHOWN:]],
        }

    def metrics(self) -> bytes:
        """The same for Prometheus."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Snapshot(self._metric_families()))
        return generate_latest(registry)

    # --- Acting

    async def record(self, reports: Sequence[Observation[Any]], *, uid: int) -> list[str | None]:
        """Keep what an application of this user measured, each report by itself, and learn from it soon."""
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
        model = self._services[context.operation].model
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
        families += _queue_families(self._backlogs.standings())
        families += _usd_families(_usd_by_operation(self._conductor.ledger, self._services, now))
        advised = GaugeMetricFamily(
            "penstock_recommended_setting", "Each knob of the standing advice.", labels=[*_LABELS, "knob"]
        )
        expected = GaugeMetricFamily(
            "penstock_predicted_value", "What the advice is expected to reach.", labels=[*_LABELS, "metric"]
        )
        age = GaugeMetricFamily(
            "penstock_newest_observation_age_seconds", "How old the newest evidence is.", labels=_LABELS
        )
        for recommendation in self.standing().recommendations:
            labels = _labels(recommendation.context)
            for knob, value in setting_values(recommendation.setting).items():
                advised.add_metric([*labels, knob], value)
            for metric, estimate in recommendation.prediction.items():
                expected.add_metric([*labels, metric], estimate.expected)
            if recommendation.newest_observation_at is not None:
                age.add_metric(labels, (now - recommendation.newest_observation_at).total_seconds())
        return [*families, advised, expected, age, *_lease_families(self._leases)]


_LABELS = ["operation", "region", "instance_type", "payload_size_bytes"]


class _Snapshot(Collector):
    """Families that were worked out beforehand."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


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


def _queue_families(standings: Sequence[QueueStanding]) -> list[Metric]:
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
    for standing in standings:
        values = [standing.name, standing.source, standing.region]
        for state, count in (
            ("visible", standing.visible_message_count),
            ("not_visible", standing.not_visible_message_count),
        ):
            if count is not None:
                messages.add_metric([*values, state], count)
        if standing.warning is not None:
            age.add_metric(values, standing.warning.oldest_undeleted_seconds)
            alarm.add_metric(values, list(Alarm).index(standing.warning.alarm))
            if standing.warning.reaches_timeout_at is not None:
                due.add_metric(values, standing.warning.reaches_timeout_at.timestamp())
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
