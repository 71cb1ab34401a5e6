"""Knows the metrics for Prometheus, family by family. Only this file imports prometheus_client, at the first scrape."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.api.leases import LeaseBook
from penstock.daemon.backlog_watch import Backlog
from penstock.daemon.cycle.conductor import Conductor
from penstock.daemon.heard.audit import Audit
from penstock.daemon.outside.sweeper import Sweeper
from penstock.daemon.spending.budget import Ledger
from penstock.daemon.troubles import Trouble
from penstock.models.sqs.backlog_warning import Alarm
from penstock.operations.table import OPERATIONS
from penstock.processes import package
from penstock.vocabulary import Context, Cost, Recommendation, divided_knobs, setting_values

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
    """All metrics, in Prometheus's text format."""
    families = [
        *_life_families(conductor, report_counts),
        *_spend_families(conductor.ledger.spent(now), conductor.ledger.limit),
        *_leftover_families(conductor.sweeper),
        *_heard_families(audit),
        _trouble_family(troubles, conductor.contexts),
        *_queue_families(backlogs),
        *_usd_families(conductor.ledger, now),
        *_advice_families(recommendations, now),
        *_lease_families(leases),
    ]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(families))
    return generate_latest(registry)


class _Scrape(Collector):
    """A collector of families that were worked out beforehand."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


_Samples = Iterable[tuple[Sequence[str], float]]
"""Label values, and the value of the metric."""


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: _Samples) -> Metric:
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _gauge(name: str, text: str, labels: Sequence[str], samples: _Samples) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def _counter(name: str, text: str, labels: Sequence[str], samples: _Samples) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def _life_families(conductor: Conductor, report_counts: Mapping[str, int]) -> list[Metric]:
    reports = [([outcome], count) for outcome, count in report_counts.items()]
    return [
        _gauge(
            "penstock_build_info", "The version that runs.", ["version"], [([package.begun().version], 1)]
        ),
        _counter(
            "penstock_cycles",
            "Cycles that the daemon did since it started.",
            [],
            [([], conductor.cycle_count)],
        ),
        _counter(
            "penstock_reports",
            "Reports of applications since the daemon started, by what became of them.",
            ["outcome"],
            reports,
        ),
    ]


def _heard_families(audit: Audit) -> list[Metric]:
    """How much was heard of applications. Their names, which anybody can choose, are no labels."""
    heard = [([name.removesuffix("_count")], count) for name, count in audit.counts().items()]
    return [
        _counter(
            "penstock_datagrams",
            "Datagrams of SDKs since the daemon started, by what became of them.",
            ["outcome"],
            heard,
        ),
        _gauge(
            "penstock_clients",
            "Applications that were heard in the last minutes.",
            [],
            [([], audit.application_count)],
        ),
    ]


def _advice_families(recommendations: Iterable[Recommendation[Any]], now: datetime) -> list[Metric]:
    advised, expected, gains, ages = [], [], [], []
    for recommendation in recommendations:
        labels = _labels(recommendation.context)
        for knob, value in setting_values(recommendation.setting).items():
            advised.append(([*labels, knob], value))
        for metric, estimate in recommendation.prediction.items():
            expected.append(([*labels, metric], estimate.expected))
        if recommendation.gain_over_default is not None:
            gains.append((labels, recommendation.gain_over_default.expected))
        if recommendation.newest_observation_at is not None:
            age_seconds = (now - recommendation.newest_observation_at).total_seconds()
            ages.append((labels, max(0.0, age_seconds)))  # negative after the clock stepped back
    gain = "How many times as well as the SDK's default the advice is expected to do."
    return [
        _gauge(
            "penstock_recommended_setting", "Each knob of the standing advice.", [*_LABELS, "knob"], advised
        ),
        _gauge(
            "penstock_predicted_value",
            "What the advice is expected to reach.",
            [*_LABELS, "metric"],
            expected,
        ),
        _gauge("penstock_gain_over_default", gain, _LABELS, gains),
        _gauge(
            "penstock_newest_observation_age_seconds",
            "Age of the newest measurement or report behind the advice.",
            _LABELS,
            ages,
        ),
    ]


def _labels(context: Context) -> list[str]:
    place = context.place
    return [context.operation, place.region, place.instance_type, str(context.payload_size_bytes)]


def _lease_families(book: LeaseBook) -> list[Metric]:
    counts: Counter[str] = Counter()
    sums: Counter[tuple[str, str]] = Counter()
    for lease in book.leases:
        operation, setting = lease.claim.question.operation, book.share(lease).setting
        counts[operation] += 1
        for name in divided_knobs(setting):
            sums[operation, name] += getattr(setting, name)
    held = [([operation], number) for operation, number in counts.items()]
    return [
        _gauge("penstock_leases", "Leases that are held.", ["operation"], held),
        _gauge(
            "penstock_leased_setting",
            "The sum of a knob over all leases.",
            ["operation", "knob"],
            sums.items(),
        ),
    ]


def _spend_families(spent: Cost, limit: Cost) -> list[Metric]:
    return [
        _gauge(name, text, ["resource"], [([n], value) for n, value in dataclasses.asdict(cost).items()])
        for name, cost, text in (
            ("penstock_spent_per_day", spent, "What probes cost in the last 24 hours, by clock hours."),
            ("penstock_budget_per_day", limit, "What probes may cost in any 24 hours."),
        )
    ]


def _leftover_families(sweeper: Sweeper) -> list[Metric]:
    age, text = (
        sweeper.oldest_age_seconds or 0.0,
        "Age of the oldest thing that probes left outside; 0 where there is none.",
    )
    left = "Things that probes left outside and nobody uses."
    return [
        _gauge("penstock_leftovers", left, [], [([], sweeper.count)]),
        _gauge("penstock_leftover_oldest_age_seconds", text, [], [([], age)]),
    ]


def _trouble_family(troubles: Iterable[Trouble], contexts: Iterable[Context]) -> Metric:
    """1 where something is wrong, 0 for each probed operation without trouble."""
    text = "Whether something keeps this operation from being measured, or ails the daemon itself."
    well = {(context.operation, context.place.region): 0 for context in contexts}
    ill = {(trouble.name, trouble.region): 1 for trouble in troubles}
    return _gauge("penstock_trouble", text, ["name", "region"], (well | ill).items())


def _queue_families(backlogs: Sequence[Backlog]) -> list[Metric]:
    """The watched queue, and the most alarming one of each user's applications, whose names are no labels."""
    messages, ages, alarms, dues = [], [], [], []
    worst = {(each.label, each.source, each.region): each for each in reversed(backlogs)}
    for values, backlog in worst.items():
        for state, count in (
            ("visible", backlog.visible_message_count),
            ("not_visible", backlog.not_visible_message_count),
        ):
            if count is not None:
                messages.append(((*values, state), count))
        if backlog.warning is not None:
            ages.append((values, backlog.warning.oldest_undeleted_seconds))
            alarms.append((values, list(Alarm).index(backlog.warning.alarm)))
            if backlog.warning.reaches_timeout_at is not None:
                dues.append((values, backlog.warning.reaches_timeout_at.timestamp()))
    labels = ["queue", "source", "region"]
    oldest = "Age of the oldest message received and not deleted."
    alarm = "How near the duplicate loop is: 0 calm, 1 warn, 2 act, 3 collapsed."
    due = "When the backlog reaches the visibility timeout at this rate."
    return [
        _gauge("penstock_queue_messages", "Messages of a queue, by state.", [*labels, "state"], messages),
        _gauge("penstock_queue_oldest_undeleted_seconds", oldest, labels, ages),
        _gauge("penstock_queue_alarm", alarm, labels, alarms),
        _gauge("penstock_queue_reaches_timeout_timestamp_seconds", due, labels, dues),
    ]


def _usd_families(ledger: Ledger, now: datetime) -> list[Metric]:
    """Dollars of the last 24 hours at list price, and what each operation may spend."""
    spent = [([name], ledger.spent(now, name).usd) for name in OPERATIONS]
    budget = [([name], ledger.own_limit(name).usd) for name in OPERATIONS]
    text = "What probes of an operation cost in the last 24 hours, by clock hours, at list price."
    most = "What probes of an operation may cost in any 24 hours, at list price."
    return [
        _gauge("penstock_usd_spent_per_day", text, ["operation"], spent),
        _gauge("penstock_usd_budget_per_day", most, ["operation"], budget),
    ]
