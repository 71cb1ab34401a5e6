"""Knows what a probe may cost, and what it did cost."""

from __future__ import annotations

import dataclasses
from math import ceil
from typing import Any

from penstock.models import burst
from penstock.vocabulary import Cost, Inconclusive, Outcome, ProbePlan


def smaller(configured: Cost, affordable: Cost) -> Cost:
    """Field by field the smaller; a configured 0 states no limit of its own."""
    fields = (field.name for field in dataclasses.fields(Cost))
    return Cost(
        **{
            name: min(getattr(configured, name) or getattr(affordable, name), getattr(affordable, name))
            for name in fields
        }
    )


def used_by(plan: ProbePlan[Any], outcome: Outcome[Any], used: Cost) -> Cost:
    """What a probe that ended counted, also of what was moved in vain, and the credits that took."""
    if isinstance(outcome, Inconclusive):
        return interrupted(plan, used)
    limits = burst.ceiling(plan.context.place.instance_type)
    if limits is None:
        return used
    credit_bytes = limits.credits_spent(used.transferred_bytes, seconds=outcome.duration_seconds)
    return dataclasses.replace(used, credit_bytes=ceil(credit_bytes))


def interrupted(plan: ProbePlan[Any], used: Cost) -> Cost:
    """The same of one that timed nothing: no more credits than were planned, nor than it moved."""
    credit_bytes = min(plan.cost_max.credit_bytes, used.transferred_bytes)
    return dataclasses.replace(used, credit_bytes=credit_bytes)
