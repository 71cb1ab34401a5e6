"""Knows how advice is explained: what is expected, on what basis, what limits it, and what it does not dare yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.models.model import DEMAND_SHARE, Fit, PerformanceModel
from penstock.optimizer import objective
from penstock.optimizer.verdict import LIMITS
from penstock.units import counted, quantity
from penstock.vocabulary import Basis, Demand, Estimate, Prediction

_LIMITS = LIMITS | {
    "host-ceiling": "a ceiling is reached: the host's network, the path or the service",
    "message-groups": "there are few message groups, and each has only one receiver at a time",
    "disk": "the disk cannot take more",
    "demand": "this carries the rate that was asked for",
    "unsure": "the measurements do not show what limits it",
}


def expectation(metric: str, prediction: Prediction, aim: str, basis: Basis, limit: str) -> str:
    """A sentence: what is expected of the setting, what it was chosen for, on what basis, and what limits it."""
    expected = prediction.get(metric)
    reached = f"Expects {_range(metric, expected)}" if expected is not None else "Follows the model"
    rest = {
        Basis.PRIOR: "estimated from tables and neighbours, not measured here",
        Basis.REPORTED: "reported by applications, not measured here",
        Basis.MODEL: "estimated from other settings measured here",
        Basis.MEASURED: "measured at this setting or within 10 % of it",
        Basis.DEFAULT: "by default",
    }[basis]
    return f"{reached} with {aim}, {rest}; {limit}."


def aim_words(demand: Demand) -> str:
    """What the setting is chosen for, as a phrase."""
    return {
        "throughput": "only as many connections as are worth it",
        "peak": "enough connections for the best throughput",
        "latency": "the least latency",
        "frugal": "the least memory, connections and requests that still reach 80 % of the best",
    }[demand.objective.value]


def limit_words(model: PerformanceModel[Any], prediction: Prediction, demand: Demand, bottleneck: str) -> str:
    """What limits the setting and, if a rate was demanded, whether the setting is expected to carry it."""
    limit = _LIMITS.get(bottleneck, "what limits it is not known yet")
    expected, asked = prediction.get(model.value_metric), demand.message_rate_per_second
    if expected is None or asked is None or expected.expected >= asked:
        return limit
    if falls_short(model, prediction, demand):
        short = f"this falls short of the {quantity(model.value_metric, asked)} that were asked for"
        return short if bottleneck == "demand" else f"{limit}, and {short}"
    return "this carries the rate that was asked for to within 2 %" if bottleneck == "demand" else limit


def falls_short(model: PerformanceModel[Any], prediction: Prediction, demand: Demand) -> bool:
    """Whether clearly less than the demanded rate is expected."""
    expected, asked = prediction.get(model.value_metric), demand.message_rate_per_second
    return expected is not None and asked is not None and expected.expected < DEMAND_SHARE * asked


def suspicion_words(fit: Fit) -> Iterator[str]:
    """A sentence on the evidence for a change, while one is suspected."""
    suspicion = fit.suspicion
    if not suspicion.is_raised:
        return
    if suspicion.subject:
        share = f"{100 * suspicion.subject_ratio:.0f} % of the expected time"
        found = f"In the newest measurement {suspicion.subject} took {share}"
    else:
        found = f"The newest measurement reached {100 * suspicion.value_ratio:.0f} % of what was expected"
    before = (
        "" if suspicion.is_surprised else "Several measurements in a row were off in the same direction. "
    )
    yield f"This place may have changed. {before}{found}; the advice stays as it is until the next."


def untried_words(setting: Any) -> str:
    """A sentence that more threads need to be probed first."""
    advised = round(float(objective.thread_counts([setting])[0]))
    return f"More than {counted(advised, 'thread')} are not advised before probes have tried more."


def _range(metric: str, estimate: Estimate) -> str:
    low, expected, high = (quantity(metric, v) for v in (estimate.low, estimate.expected, estimate.high))
    return f"{expected} (90 %: {low} to {high})"
