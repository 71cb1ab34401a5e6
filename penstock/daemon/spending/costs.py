"""Knows how the cost of a probe is bounded before it, and counted after it."""

from __future__ import annotations

import dataclasses
from math import ceil
from typing import Any

from penstock.models import burst
from penstock.vocabulary import Cost, Inconclusive, Outcome, ProbePlan


def smaller(configured: Cost, affordable: Cost) -> Cost:
    """The smaller one, field by field; a configured 0 means no limit."""
    fields = (field.name for field in dataclasses.fields(Cost))
    return Cost(
        **{
            name: min(getattr(configured, name) or getattr(affordable, name), getattr(affordable, name))
            for name in fields
        }
    )


def used_by(plan: ProbePlan[Any], outcome: Outcome[Any], used: Cost, seconds: float) -> Cost:
    """The cost of a probe that ended: what it counted, failed transfers included, its time, and the credits it took."""
    if isinstance(outcome, Inconclusive):
        return interrupted(plan, used, seconds)
    limits, spent = burst.ceiling(plan.context.place.instance_type), 0.0
    if limits is not None:
        spent = limits.credits_spent(used.transferred_bytes, seconds=outcome.duration_seconds)
    return dataclasses.replace(used, credit_bytes=ceil(spent), duration_seconds=seconds)


def interrupted(plan: ProbePlan[Any], used: Cost, seconds: float) -> Cost:
    """The cost of a probe without a result: its credits are the planned ones, but at most the bytes it moved."""
    credit_bytes = min(plan.cost_max.credit_bytes, used.transferred_bytes)
    return dataclasses.replace(used, credit_bytes=credit_bytes, duration_seconds=seconds)
