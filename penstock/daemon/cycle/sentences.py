"""Knows how to describe a cycle in one sentence."""

from __future__ import annotations

from typing import Any

from penstock.models.model import PerformanceModel
from penstock.operations.table import OPERATIONS
from penstock.units import format_bytes, quantity
from penstock.vocabulary import Context, Observation, ProbePlan, Recommendation, Setting, setting_values


def describe(context: Context) -> str:
    """``s3_upload 64 MiB in eu-west-1``."""
    return f"{context.operation} {format_bytes(context.payload_size_bytes)} in {context.place.region}"


def describe_setting(context: Context, setting: Setting) -> str:
    """``24 x 8 MiB``, ``2/3/5 x 10, window 2,800``: the short form that the operation's row defines."""
    return OPERATIONS[context.operation].words.setting(setting_values(setting), context.payload_size_bytes)


def tell(
    model: PerformanceModel[Any],
    plan: ProbePlan[Any],
    observation: Observation[Any],
    before: Recommendation[Any],
    after: Recommendation[Any],
) -> str:
    """The sentence about a cycle that measured something."""
    value = quantity(model.value_metric, model.measured_value(observation))
    trouble = f", {observation.throttled_count} throttled" if observation.throttled_count else ""
    trouble += f", {observation.failed_count} failed" if observation.failed_count else ""
    tried = describe_setting(plan.context, plan.setting)
    is_kept = before.setting == after.setting
    kept = "advice stands" if is_kept else f"now advising {describe_setting(plan.context, after.setting)}"
    return f"{describe(plan.context)} ({plan.reason}): {tried} gave {value}{trouble}; {kept}"
