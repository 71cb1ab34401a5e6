"""Whatever applications may report, a fit comes of it: nobody can end the daemon's thinking with a number."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.models.model import Fit
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.optimizer.deliberation import Case, deliberate
from penstock.units import GiB
from penstock.vocabulary import Context, Observation, Origin, Place, knobs
from tests.unit.models.s3.upload_world import FIRST_AT, UploadWorld, a_place, history

QUEUE = Place(operation="sqs_delivery", region="eu-west-1", instance_type="m7i.large")
SECONDS = st.floats(0, 86400)
COUNTS = st.floats(0, 1e15)


def _settings(setting_type: type[Any]) -> st.SearchStrategy[Any]:
    bounds = knobs(setting_type).items()
    whole = {name: st.integers(int(knob.low), int(knob.high)) for name, knob in bounds}
    return st.builds(setting_type, **whole)


def _reports(place: Place, setting_type: type[Any], measures: list[str]) -> st.SearchStrategy[Any]:
    """All that the socket lets in."""
    return st.builds(
        Observation,
        context=st.builds(Context, place=st.just(place), payload_size_bytes=st.integers(1, 50 * 1024 * GiB)),
        setting=_settings(setting_type),
        started_at=st.integers(0, 10**5).map(lambda s: FIRST_AT + timedelta(seconds=s)),
        duration_seconds=st.floats(1e-9, 86400),
        transferred_bytes=st.integers(1, 10**15),
        request_count=st.integers(1, 10**9),
        throttled_count=st.integers(0, 3),
        client_cpu_fraction=st.floats(0, 1024),
        measures=st.dictionaries(
            st.sampled_from(measures), st.one_of(SECONDS, COUNTS.filter(lambda v: v <= 86400)), max_size=6
        ),
        origin=st.just(Origin.APPLICATION),
        client=st.sampled_from(["boto3", "penstock"]),
        reporter_uid=st.integers(0, 3),
    )


UPLOADS = _reports(
    a_place(),
    S3UploadSetting,
    [
        "part_count",
        "connection_count",
        "part_seconds_mean",
        "create_seconds",
        "steady_throughput_bytes_per_second",
    ],
)
DELIVERIES = _reports(QUEUE, SqsDeliverySetting, sorted(SqsDeliveryModel.reported_measures))


def _fit(model: Any, place: Place, observations: list[Any]) -> Fit:
    case = Case(place=place, observations=tuple(observations), seed=1)
    with np.errstate(all="ignore"):  # an overflow on the way is no harm; what comes of it is judged
        return deliberate(model, case).fit


def _is_finite(state: Any) -> bool:
    if isinstance(state, dict):
        return all(_is_finite(value) for value in state.values())
    if isinstance(state, (list, tuple)):
        return all(_is_finite(value) for value in state)
    return not isinstance(state, float) or bool(np.isfinite(state))


@cache
def _probes() -> list[Any]:
    return list(history(UploadWorld(), 10))


@settings(max_examples=8, deadline=None)
@given(st.lists(UPLOADS, min_size=1, max_size=6))
def test_any_report_of_an_upload_can_be_learned_from_or_left(reported: list[Any]) -> None:
    """Beside probes and without any."""
    for observations in (reported, [*_probes(), *reported]):
        assert _is_finite(_fit(S3UploadModel(), a_place(), observations).state)


@settings(max_examples=8, deadline=None)
@given(st.lists(DELIVERIES, min_size=1, max_size=6))
def test_any_report_of_a_queue_can_be_learned_from_or_left(reported: list[Any]) -> None:
    """Where there is nothing to compare it with."""
    assert _is_finite(_fit(SqsDeliveryModel(), QUEUE, reported).state)
