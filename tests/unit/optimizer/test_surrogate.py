"""Where scikit-optimize cannot be imported, a belief of our own says what was measured."""

from __future__ import annotations

import dataclasses
import sys
from math import log, log2
from typing import Any

import numpy as np
import pytest

from penstock.models.model import Belief
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.optimizer import surrogate
from penstock.units import MiB
from penstock.vocabulary import Demand, Observation
from tests.factories import CONTEXT, PLACE, an_observation

MODEL = S3UploadModel()
OFF_MODEL = dataclasses.replace(MODEL.fit(PLACE, (), prior=None, seed=1), is_off_model=True)
SETTINGS = [S3UploadSetting(thread_count=n, part_size_bytes=8 * MiB) for n in (1, 2, 4, 8, 16, 32, 64, 128)]
BEST = SETTINGS.index(S3UploadSetting(thread_count=16, part_size_bytes=8 * MiB))


def measured(setting: S3UploadSetting) -> Observation[Any]:
    """A ridge that no law of ours has: half as fast two octaves beside the best."""
    return an_observation(
        setting=setting, duration_seconds=2 ** (1 + abs(log2(setting.thread_count) - 4) / 2)
    )


def believed(told: tuple[int, ...] = (0, 2, 3, 4, 5, 7)) -> Belief:
    own = [measured(SETTINGS[i]) for i in told for _ in range(2)]
    return surrogate.belief(MODEL, OFF_MODEL, own, SETTINGS, context=CONTEXT, demand=Demand(), seed=7)


@pytest.fixture(autouse=True)
def _no_scikit_optimize(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skopt", None)  # an import then fails


def test_it_says_what_was_measured() -> None:
    """Near the measured value where there is one, and best at the best."""
    mean = believed().mean
    truth = np.log([MODEL.measured_value(measured(setting)) for setting in SETTINGS])
    told = [0, 2, 3, 4, 5, 7]
    assert np.abs(mean - truth)[told].max() < log(1.25)
    assert int(mean.argmax()) == BEST


def test_less_is_known_of_what_is_far() -> None:
    """Three octaves from anything that was measured it may be off by more than at a measurement."""
    variance = believed(told=(0, 1, 2, 3)).variance
    assert variance[7] > 9 * variance[:4].max()
