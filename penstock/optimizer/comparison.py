"""Knows how a setting compares with another one: the SDK's default, or that of any client."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.models.inference.draws import quantiles
from penstock.models.model import Fit, PerformanceModel
from penstock.optimizer import objective
from penstock.units import counted, ends, number
from penstock.vocabulary import Context, Demand, Estimate, setting_values

_ALIKE_WITHIN = 0.02  # of the SDK's default; advice may be this much worse than it


def gain(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, *, setting: Any, reference: Any
) -> Estimate:
    """The average gain of a setting over a reference for the demand's objective: a factor, with its 90 % interval.

    Both are of the model's own type. The expected gain is the ratio of the two predictions, except that it includes
    what is rare and expensive: late requests.
    """
    if setting == reference:
        return Estimate(1.0, 1.0, 1.0)
    drawn = model.log_gains(fit, context, [setting], reference, demand)[:, 0]
    (low, high), expected = quantiles(drawn, [0.05, 0.95]), drawn.mean()
    return Estimate(*(float(np.exp(v)) for v in (min(low, expected), expected, max(high, expected))))


def sdks_own(model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand) -> Any:
    """The SDK's default as it can be advised; None if it cannot, or if it is not what the demand asks for."""
    own = model.advisable_default(fit, context, demand)
    if own is None:
        return None
    appraisal = model.appraise(fit, context, [own], demand)
    is_soon = appraisal.latency_seconds[0] <= (demand.latency_objective_seconds or np.inf)
    is_enough = is_soon and objective.carries(appraisal, demand)[0]
    return own if is_enough and objective.is_within([own], appraisal, demand)[0] else None


def comparison_words(
    model: PerformanceModel[Any],
    fit: Fit,
    context: Context,
    demand: Demand,
    *,
    setting: Any,
    over_default: Estimate,
    why_less: str,
) -> str:
    """A sentence that compares a setting with the SDK's default; `why_less` explains why it does less, if it does."""
    default, ratio = model.default_setting(context), over_default.expected
    if setting == model.advisable_default(fit, context, demand):
        words = "This is boto3's default"
    elif abs(ratio - 1.0) <= _ALIKE_WITHIN:
        words = "As fast as boto3's default to within 2 %"
    else:
        span = ends(number(over_default.low), number(over_default.high), of="90 %: ")
        words = f"{number(ratio)} times as fast as boto3's default{span}"
    both = model.appraise(fit, context, [setting, default], demand)
    here, there = both.connection_count
    differs = []
    if round(here) != round(there):
        differs.append(f"{counted(round(here), 'connection')} instead of {round(there)}")
    bounded = [name for name, value in setting_values(setting).items() if value > 0 == getattr(default, name)]
    if bounded and ratio <= 1.0 + _ALIKE_WITHIN:
        differs.append("limits on what is in flight, where boto3 sets none")
    if differs:
        words += f", with {' and '.join(differs)}"
    if why_less and ratio < 1.0 - _ALIKE_WITHIN:
        is_enough = objective.carries(both, demand)[1]
        words += f": {why_less if is_enough else 'the default does not carry the rate that was asked for'}"
    return f"{words}."
