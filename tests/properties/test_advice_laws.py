"""Laws of advice that hold for whatever a daemon may have stored, of every operation."""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.api.wire import encode, recommendation_document
from penstock.models.model import Fit
from penstock.operations.table import OPERATIONS
from penstock.optimizer.deliberation import Case, deliberate
from penstock.units import GiB, MiB
from penstock.vocabulary import Context, Demand, Objective, Observation, Origin, Place, knobs
from tests.factories import NOON, recommended

moments = st.sampled_from([0.0, 60.0, 3600.0, 90 * 86400.0])
demands = st.builds(
    Demand,
    objective=st.sampled_from(Objective),
    memory_bytes_max=st.none() | st.sampled_from([1, 5 * MiB, GiB]),
    thread_count_max=st.none() | st.sampled_from([3, 7, 10**12]),
    object_count=st.sampled_from([1, 100, 10**12]),
    message_rate_per_second=st.none() | st.sampled_from([1e-3, 100.0, 1e12]),
    work_seconds=st.sampled_from([0.0, 1e-9, 1e6]),
)


@st.composite
def histories(draw: st.DrawFn, operation: str) -> tuple[Observation[Any], ...]:
    """Probes and reports of one place: tiny and huge, contradictory, all refused, at the same time, months apart."""
    row, at = OPERATIONS[operation], NOON
    place = Place(operation=operation, region="eu-central-1", instance_type="c5.large")
    sizes = st.sampled_from([1, 65_536, row.payload_size_bytes_max // 50, row.payload_size_bytes_max])
    history: list[Observation[Any]] = []
    for _ in range(draw(st.integers(1, 6))):
        at += timedelta(seconds=draw(moments))
        context = Context(place=place, payload_size_bytes=draw(sizes))
        values = {
            name: draw(st.sampled_from([1, 2, 7, int(knob.high)]))
            for name, knob in knobs(row.setting_type).items()
        }
        duration_seconds = draw(st.sampled_from([1e-6, 1.0, 86400.0]))
        request_count = draw(st.sampled_from([1, 100, 10**9]))
        is_report = draw(st.booleans())
        history.append(
            Observation(
                context=context,
                setting=row.model.legal(context, row.setting_type(**values)),
                started_at=at,
                duration_seconds=duration_seconds,
                transferred_bytes=draw(st.sampled_from([1, MiB, 10**12, int(4e11 * duration_seconds)])),
                request_count=request_count,
                throttled_count=draw(st.sampled_from([0, request_count])),
                latency_seconds_mean=draw(st.sampled_from([0.0, 1e-9, 86400.0])),
                origin=Origin.APPLICATION if is_report else Origin.PROBE,
                reporter_uid=1000 if is_report else None,
                measures=dict.fromkeys(
                    ["connection_count", "goodput_messages_per_second", "sent_count"],
                    draw(st.sampled_from([0.0, 1e-9, 1e15])),
                )
                if is_report
                else {},
            )
        )
    return tuple(history)


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_advice_is_sound_whatever_was_stored(operation: str, data: st.DataObject) -> None:
    """The fit is plain numbers, each within its interval; what is advised is finite, legal, and within all limits."""
    model, history = OPERATIONS[operation].model, data.draw(histories(operation))
    context, demand = history[-1].context, data.draw(demands)
    fit = deliberate(model, Case(place=context.place, observations=history, seed=1)).fit
    assert all(e.low <= e.expected <= e.high for e in fit.parameters.values())
    _assert_finite(dataclasses.asdict(fit))
    found = recommended(model, fit, context, demand)
    _assert_finite(json.loads(encode(recommendation_document(found, generation=1))))
    assert all(0 <= e.low <= e.expected <= e.high for e in found.prediction.values())
    assert model.legal(context, found.setting) == found.setting
    threads = [getattr(found.setting, name) for name in knobs(found.setting) if name.endswith("thread_count")]
    assert sum(threads) <= max(demand.thread_count_max or math.inf, len(threads))
    _assert_no_lighter_one_was_left_out(fit, found.setting, context, demand)


def _assert_no_lighter_one_was_left_out(fit: Fit, setting: Any, context: Context, demand: Demand) -> None:
    """Where more is held than is allowed, nothing that may be advised keeps the limit."""
    if demand.memory_bytes_max is None or fit.is_from_reports:
        return
    model = OPERATIONS[context.operation].model
    appraisal = model.appraise(fit, context, [setting, *model.candidates(fit, context, demand)], demand)
    assert appraisal.memory_bytes[0] <= max(demand.memory_bytes_max, appraisal.memory_bytes[1:].min())


def _assert_finite(value: object) -> None:
    if isinstance(value, float):
        assert math.isfinite(value)
    for part in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    ):
        _assert_finite(part)
