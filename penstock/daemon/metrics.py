"""Knows what Prometheus is told, family by family. prometheus_client is imported here alone, at the first scrape."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.api.leases import LeaseBook
from penstock.daemon.audit import Audit
from penstock.daemon.backlog_watch import Backlog
from penstock.daemon.budget import Ledger
from penstock.daemon.conductor import Conductor
from penstock.daemon.sweeper import Sweeper
from penstock.daemon.troubles import Trouble
from penstock.models.sqs.backlog_warning import Alarm
from penstock.operations.table import OPERATIONS
from penstock.vocabulary import Context, Cost, Recommendation, knobs, setting_values

_LABELS = ["operation", "region", "instance_type", "payload_size_bytes"]


def exposition(
    conductor: Conductor,
    *,
    audit: Audit,
    backlogs: Sequence[Backlog],
    leases: LeaseBook,
    recommendations: Iterable[Recommendation[Any]],
    report_counts: Mapping[str, int],
    troubles: Iterable[Trouble],
    now: datetime,
) -> bytes:
    """Everything, in the text format."""
    families = [
        *_life_families(conductor, report_counts),
        *_spend_families(conductor.ledger.spent(now), conductor.ledger.limit),
        *_leftover_families(conductor.sweeper),
        *_heard_families(audit),
        _trouble_family(troubles, conductor.contexts),
        *_queue_families(backlogs),
        *_usd_families(_usd_by_operation(conductor.ledger, OPERATIONS, now)),
        *_advice_families(recommendations, now),
        *_lease_families(leases),
    ]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(families))
    return generate_latest(registry)


class _Scrape(Collector):
    """Families that were worked out beforehand."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _life_families(conductor: Conductor, report_counts: Mapping[str, int]) -> list[Metric]:
    info = GaugeMetricFamily("penstock_build_info", "The version that runs.", labels=["version"])
    info.add_metric([version("penstock")], 1)
    cycles = CounterMetricFamily("penstock_cycles", "Cycles done since the start.")
    cycles.add_metric([], conductor.cycle_count)
    reports = CounterMetricFamily("penstock_reports", "Reports since the start.", labels=["outcome"])
    for outcome, count in report_counts.items():
        reports.add_metric([outcome], count)
    return [info, cycles, reports]


def _heard_families(audit: Audit) -> list[Metric]:
    """How much was heard. Names of applications are anybody's choice, and are no labels."""
    family = CounterMetricFamily("penstock_datagrams", "What SDKs sent, since the start.", labels=["outcome"])
    for name, count in audit.counts().items():
        family.add_metric([name.removesuffix("_count")], count)
    known = GaugeMetricFamily("penstock_clients", "Applications that were heard in the last minutes.")
    known.add_metric([], audit.application_count)
    return [family, known]


def _advice_families(recommendations: Iterable[Recommendation[Any]], now: datetime) -> list[Metric]:
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
    for recommendation in recommendations:
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
    return [advised, expected, gain, age]


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
