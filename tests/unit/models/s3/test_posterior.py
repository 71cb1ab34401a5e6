"""What a fit remembers, read again."""

from __future__ import annotations

import copy
from math import sqrt

import numpy as np

from penstock.models.s3.answers import foreseen
from penstock.models.s3.posterior import Posterior
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.vocabulary import Demand, Place, Regime
from tests.unit.models.s3.upload_world import UploadWorld, a_setting

MODEL = S3UploadModel()
STATE = MODEL.fit(
    Place(operation="s3_upload", region="here-1", instance_type="m7i.large"), (), prior=None, seed=0
).state


def test_a_state_is_read_once() -> None:
    """Each question about a fit asks for it; another state that says the same is another."""
    read, other = Posterior.from_state(STATE), Posterior.from_state(copy.deepcopy(STATE))
    assert Posterior.from_state(STATE) is read
    assert other is not read
    assert np.array_equal(other.draws, read.draws)


def test_few_are_kept() -> None:
    """Fits come and go; what was read of them does not stay."""
    read = Posterior.from_state(STATE)
    states = [copy.deepcopy(STATE) for _ in range(8)]
    for state in states:
        Posterior.from_state(state)
    assert Posterior.from_state(STATE) is not read


def test_what_lies_far_is_doubted_and_what_lies_near_hardly() -> None:
    """Half an octave from a measurement the law is not off unseen; three away it may be by .15."""
    world = UploadWorld()
    probes = [world.observe(a_setting(n), i) for i, n in enumerate((8, 16, 32, 64, 48, 64, 32, 16))]
    fit = MODEL.fit(world.place, probes, prior=None, seed=0)
    posterior = Posterior.from_state(fit.state)

    def spread(setting: S3UploadSetting, unseen: float) -> float:
        transfers = MODEL._transfers(world.context, [setting], Demand(regime=Regime.BURST))
        return float(foreseen(posterior, transfers, unseen=unseen)[1][0])

    def added(setting: S3UploadSetting) -> float:
        return sqrt(spread(setting, 0.15) ** 2 - spread(setting, 0.0) ** 2)

    assert added(a_setting(64)) < 1e-6
    assert added(a_setting(90)) < 0.05
    assert added(a_setting(512, 128)) > 0.12


def test_of_a_setting_that_was_measured_often_is_expected_what_it_did() -> None:
    """Where one number of threads is slower by a third whenever it is tried, those around it are no contradiction."""
    world, odd = UploadWorld(noise=0.08), 40
    threads = (8, 16, 64, 48, odd, 32, odd, 24, odd, 90, odd, 52)
    probes = [world.observe(a_setting(n), i, factor=0.67 if n == odd else 1.0) for i, n in enumerate(threads)]
    fit = MODEL.fit(world.place, probes, prior=None, seed=0)

    def expected_over_true(n: int) -> float:
        found = MODEL.predict(fit, world.context, a_setting(n), Demand())["throughput_bytes_per_second"]
        return found.expected / world.truth(a_setting(n))

    assert expected_over_true(odd) < 0.75
    assert expected_over_true(64) > 0.9
