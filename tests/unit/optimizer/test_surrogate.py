"""Where scikit-optimize cannot be imported, draws of our own say what was measured."""

from __future__ import annotations

import dataclasses
import sys
from math import log, log2
from typing import Any

import numpy as np
import pytest

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


def drawn(seed: int = 7, told: tuple[int, ...] = (0, 2, 3, 4, 5, 7)) -> Any:
    own = [measured(SETTINGS[i]) for i in told for _ in range(2)]
    return surrogate.draws(MODEL, OFF_MODEL, own, SETTINGS, context=CONTEXT, demand=Demand(), seed=seed)


@pytest.fixture(autouse=True)
def _no_scikit_optimize(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skopt", None)  # an import then fails


def test_the_draws_say_what_was_measured() -> None:
    """Near the measured value where there is one, best at the best, and the same for the same seed."""
    draws = drawn()
    truth = np.log([MODEL.measured_value(measured(setting)) for setting in SETTINGS])
    told = [0, 2, 3, 4, 5, 7]
    assert np.abs(draws.mean(axis=0) - truth)[told].max() < log(1.25)
    assert int(draws.mean(axis=0).argmax()) == BEST
    assert (draws == drawn()).all()
    assert (draws != drawn(seed=8)).any()


def test_less_is_known_of_what_is_far() -> None:
    """Three octaves from anything that was measured the draws lie further apart than at a measurement."""
    spread = drawn(told=(0, 1, 2, 3)).std(axis=0)
    assert spread[7] > 3 * spread[:4].max()
