"""Laws of the upload model that hold for any setting, size and fit."""

from __future__ import annotations

from math import ceil

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.models.s3.directions import UPLOADS, planned_transfers
from penstock.models.s3.parts import PART_COUNT_MAX, PART_SIZE_BYTES_MAX, PART_SIZE_BYTES_MIN
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import Demand, Objective, Regime
from tests.factories import recommended
from tests.unit.models.s3.upload_world import UploadWorld, a_context, history

MODEL, WORLD = S3UploadModel(), UploadWorld()
FITS = [MODEL.fit(WORLD.place, history(WORLD, count), prior=None, seed=count) for count in (0, 1, 4, 12)]

fits = st.sampled_from(FITS)
sizes = st.integers(1, 40_000 * GiB)
probed_sizes = st.integers(64 * KiB, 200 * GiB)
upload_settings = st.builds(
    S3UploadSetting,
    thread_count=st.integers(-5, 5000),
    part_size_bytes=st.integers(1, 10 * PART_SIZE_BYTES_MAX),
)
demands = st.builds(
    Demand,
    objective=st.sampled_from(Objective),
    regime=st.sampled_from(Regime),
    memory_bytes_max=st.none() | st.integers(5 * MiB, 8 * GiB),
    bandwidth_bytes_per_second_max=st.none() | st.floats(1e5, 1e10),
    thread_count_max=st.none() | st.integers(1, 512),
    object_count=st.integers(1, 100),
)
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(sizes, upload_settings)
def test_legal_settings_are_legal_and_stay(size: int, setting: S3UploadSetting) -> None:
    """5 MiB to 5 GiB, at most 10,000 parts, a sane number of threads; and doing it twice changes nothing."""
    context = a_context(size=size)
    legal = MODEL.legal(context, setting)
    assert MODEL.legal(context, legal) == legal
    assert 1 <= legal.thread_count <= 1024
    assert PART_SIZE_BYTES_MIN <= legal.part_size_bytes <= PART_SIZE_BYTES_MAX
    assert ceil(size / legal.part_size_bytes) <= PART_COUNT_MAX


@few
@given(fits, probed_sizes, upload_settings, demands)
def test_predictions_are_positive_and_ordered(fit, size, setting, demand) -> None:  # type: ignore[no-untyped-def]
    """Every metric of every prediction: 0 < low <= expected <= high, and finite."""
    context = a_context(size=size)
    for estimate in MODEL.predict(fit, context, MODEL.legal(context, setting), demand).values():
        assert 0 < estimate.low <= estimate.expected <= estimate.high < np.inf


@few
@given(fits, st.integers(1, 120), st.integers(5, 64))
def test_more_threads_never_hurt_before_the_knee(fit, threads, part_mib) -> None:  # type: ignore[no-untyped-def]
    """While connections are the limit, one more does not lower what physics expects of full waves."""
    context = a_context(size=1024 * part_mib * MiB * 12)
    pair = [S3UploadSetting(thread_count=n, part_size_bytes=part_mib * MiB) for n in (threads, 2 * threads)]
    if fit.observation_count == 0 or MODEL.bottleneck(fit, context, pair[1], Demand()) != "connections":
        return
    value = MODEL.appraise(fit, context, pair, Demand()).value
    assert value[1] >= value[0]


@few
@given(fits, probed_sizes, demands)
def test_candidates_are_legal_and_within_limits(fit, size, demand) -> None:  # type: ignore[no-untyped-def]
    """Never none; each is what the service accepts, and within what the application allows where that is possible."""
    context = a_context(size=size)
    found = MODEL.candidates(fit, context, demand)
    assert found
    assert all(MODEL.legal(context, setting) == setting for setting in found)
    if demand.thread_count_max is not None:
        assert all(setting.thread_count <= demand.thread_count_max for setting in found)
    if demand.memory_bytes_max is not None and len(found) > 1:
        assert max(s.memory_bytes(size, demand.object_count) for s in found) <= demand.memory_bytes_max


@given(st.integers(1, 10 * GiB), st.integers(1, 1024), st.integers(5 * MiB, 5 * GiB), st.integers(0, 100))
def test_memory_counts_the_requests_that_the_law_counts(
    size: int, threads: int, part: int, objects: int
) -> None:
    """What is held and how fast it goes follow from the same requests in flight."""
    arrays = (np.array([float(x)]) for x in (size, threads, part))
    moving = planned_transfers(UPLOADS, *arrays, object_count=objects, is_burst=False)
    setting = S3UploadSetting(thread_count=threads, part_size_bytes=part)
    assert setting.memory_bytes(size, objects) == moving.n[0] * min(part, size)


@few
@given(st.none() | fits, probed_sizes, demands)
def test_advice_is_one_of_the_candidates(fit, size, demand) -> None:  # type: ignore[no-untyped-def]
    """So it is legal and within limits as they are; without a fit it is what the SDK does, as far as they allow."""
    context = a_context(size=size)
    found = recommended(MODEL, fit, context, demand)
    if fit is None:
        default = MODEL.default_setting(context)
        table = MODEL.fit(context.place, (), prior=None, seed=0)
        assert found.setting in {default, *MODEL.candidates(table, context, demand)}
        assert found.setting.thread_count <= (demand.thread_count_max or default.thread_count)
    else:
        assert found.setting in MODEL.candidates(fit, context, demand)
        assert all(np.isfinite(value) for value in found.derived.values())
