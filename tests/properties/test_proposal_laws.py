"""Laws of what is tried next, in places that change and change back, of every operation."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from math import ceil
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.operations.table import OPERATIONS
from penstock.optimizer import objective
from penstock.units import KiB, MiB
from penstock.vocabulary import Context, Cost, Demand, Observation, Place, knobs
from tests.factories import NOON, S3_TARIFF, SQS_TARIFF, concluded

# Bytes per second of one connection and of the host: at first, below a ceiling that fell, and otherwise.
_FIRST, _FALLEN = (15e6, 150e6), (15e6, 30e6)
_LEVELS = (_FIRST, _FALLEN, (4e6, 150e6), (15e6, 900e6), (1e5, 2e5))
_REQUEST_SECONDS = 0.04
_KNOWN_COUNT, _FALLEN_COUNT = 10, 8  # probes before the first change, and after it
_AMPLE = Cost(
    transferred_bytes=2**42, request_count=10**7, usd=1e3, credit_bytes=2**42, duration_seconds=3600.0
)


def observed(
    context: Context, setting: Any, number: int, level: tuple[float, float], refused: float
) -> Observation[Any]:
    """A probe in a place of that level, of whose requests so many were refused."""
    size, (threads,) = context.payload_size_bytes, objective.thread_counts([setting])
    request = min(getattr(setting, "request_size_bytes", size), size)
    count = ceil(size / request)
    alone_seconds = _REQUEST_SECONDS + request / level[0]
    rate = min(min(threads, count) * request / alone_seconds, level[1]) * (1.0 + 0.02 * (number % 5 - 2))
    return Observation(
        context=context,
        setting=setting,
        started_at=NOON + number * timedelta(hours=1),
        duration_seconds=size / rate,
        transferred_bytes=size,
        request_count=count,
        throttled_count=int(refused * count),
        latency_seconds_mean=min(threads, count) * request / rate,
    )


def assert_may_be_tried(context: Context, setting: Any) -> None:
    """As the service takes it; a probe counts with it, so that what is whole must not come as 8.0."""
    assert OPERATIONS[context.operation].model.legal(context, setting) == setting
    for field in dataclasses.fields(setting):
        if field.name in knobs(setting):
            assert type(getattr(setting, field.name)).__name__ == field.type


@pytest.mark.parametrize("operation", OPERATIONS)
# Shrinking took five minutes.
@settings(max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_tried_next_may_be_whatever_becomes_of_a_place(operation: str, data: st.DataObject) -> None:
    """Its settings are legal, whole where they count things, and cost no more than is allowed."""
    model, is_queue = OPERATIONS[operation].model, operation == "sqs_delivery"
    place = Place(operation=operation, region="eu-central-1", instance_type="c5.large")
    context = Context(place=place, payload_size_bytes=KiB if is_queue else 64 * MiB)
    demand = Demand(thread_count_max=data.draw(st.none() | st.sampled_from([3, 64])))
    cost_max = _AMPLE * data.draw(st.sampled_from([1.0, 1.0, 1e-4]))
    known = list(model.candidates(model.fit(place, (), prior=None, seed=0), context, demand))
    history: list[Observation[Any]] = []

    def note(setting: Any, level: tuple[float, float], refused: float = 0.0) -> None:
        history.append(observed(context, setting, len(history), level, refused))

    for i in range(_KNOWN_COUNT + _FALLEN_COUNT):
        note(known[11 * i % len(known)], _FIRST if i < _KNOWN_COUNT else _FALLEN)
    for level in data.draw(st.lists(st.sampled_from(_LEVELS), min_size=6, max_size=6)):
        plan = concluded(
            place,
            history,
            next_context=context,
            cost_max=cost_max,
            demand=demand,
            tariff=SQS_TARIFF if is_queue else S3_TARIFF,
        ).plan
        if plan is not None:
            assert_may_be_tried(context, plan.setting)
            names = [field.name for field in dataclasses.fields(Cost)]
            assert all(getattr(plan.cost_max, name) <= getattr(cost_max, name) for name in names)
        note(plan.setting if plan else known[0], level, data.draw(st.sampled_from([0.0, 0.0, 0.3])))
