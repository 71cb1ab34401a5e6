"""Rules of what is said without a law: near is alike, far is unknown, and a law must explain more to be believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.models.inference import shapeless
from penstock.models.model import Fit
from penstock.models.s3.upload import S3UploadModel
from penstock.units import GiB
from penstock.vocabulary import Demand
from tests.unit.models.s3.upload_world import UploadWorld, a_context, a_setting, an_observation, history

THREADS = np.array([1.0, 2.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0])
PEAK_THREADS = 6.0


def sightings(*, size: float = 2.0 * GiB, weights: np.ndarray | None = None) -> shapeless.Sightings:
    """A hump over the threads, each count measured once."""
    octaves = np.log2(THREADS)
    ones = np.ones(len(THREADS))
    return shapeless.Sightings(
        points=np.stack([octaves, 23.0 * ones, np.log2(size) * ones], axis=1),
        log_values=18.0 - (octaves - np.log2(PEAK_THREADS)) ** 2 / 4.0,
        noise_scale=ones,
        weights=ones if weights is None else weights,
    )


def at(threads: float, *, size: float = 2.0 * GiB) -> np.ndarray:
    """One point with the part size that was measured."""
    return np.array([[np.log2(threads), 23.0, np.log2(size)]])


def test_the_hump_is_found_between_what_was_measured() -> None:
    """The mean follows a shape that no law of uploads has."""
    seen = sightings()
    shapes = shapeless.learn(seen, count=24, seed=0)
    points = np.concatenate([at(n) for n in range(1, 65)])
    best = 1 + int(np.argmax(shapeless.means(seen, shapes, points).mean(axis=0)))
    assert 4 <= best <= 9


@pytest.mark.parametrize("size", [2.0 * GiB, 8.0 * GiB, 2.0 * GiB / 4096])
def test_the_hump_is_that_of_every_size(size: float) -> None:
    """Nothing was measured of the other sizes: the best guess is that their shape is alike."""
    seen = sightings()
    shapes = shapeless.learn(seen, count=24, seed=0)
    expected = [float(shapeless.means(seen, shapes, at(n, size=size)).mean()) for n in (1, 6, 64)]
    assert expected[1] > max(expected[0], expected[2]) + 0.5


@pytest.mark.parametrize("far", [at(1024), at(6, size=2.0 * GiB / 4096)])
def test_what_is_far_is_unknown(far: np.ndarray) -> None:
    """More threads than were tried, or objects of another size: little is known, and the variance says so."""
    seen = sightings()
    shapes = shapeless.learn(seen, count=24, seed=0)
    assert shapeless.variance(seen, shapes, far)[0] > 4 * shapeless.variance(seen, shapes, at(6))[0]


def test_a_dip_does_not_bend_the_shape() -> None:
    """What is held to be a dip hardly counts."""
    straight = sightings()
    dipped = sightings(weights=np.where(THREADS == 8.0, 1e-3, 1.0))
    dipped.log_values[THREADS == 8.0] -= 1.0
    shapes = shapeless.learn(straight, count=24, seed=0)
    here = [float(shapeless.means(seen, shapes, at(8)).mean()) for seen in (straight, dipped)]
    assert here[1] == pytest.approx(here[0], abs=0.15)


def test_shapes_depend_on_the_seed_alone() -> None:
    """The same measurements and seed give the same shapes and the same evidence."""
    first, second = (shapeless.learn(sightings(), count=24, seed=3) for _ in range(2))
    assert np.array_equal(first, second)


def test_a_dip_is_known_by_those_beside_it_and_a_peak_is_none() -> None:
    """One far below what was measured at the same setting hardly counts; what stands alone, high or low, does."""
    once = sightings()
    twice = replace(
        once,
        points=np.tile(once.points, (2, 1)),
        log_values=np.tile(once.log_values, 2),
        noise_scale=np.ones(2 * len(THREADS)),
        weights=np.ones(2 * len(THREADS)),
    )
    dip = int(np.flatnonzero(THREADS == 8.0)[0])
    twice.log_values[dip] -= 1.5
    weights = shapeless.weighed(twice).weights
    assert weights[dip] < 0.5
    assert np.delete(weights, dip).min() > 0.6


def test_a_law_that_describes_the_place_is_believed() -> None:
    """Uploads that queue for a host are what the law is about, with few measurements and with many."""
    world, model = UploadWorld(noise=0.08), S3UploadModel()
    for count in (6, 10, 20):
        assert not model.fit(world.place, history(world, count), prior=None, seed=0).is_off_model


def test_a_law_that_describes_nothing_is_given_up() -> None:
    """Two threads are fast, five are slow and forty are fast again: advice follows the measurements."""
    context, rates = (
        a_context(),
        {1: 90e6, 2: 150e6, 5: 45e6, 12: 20e6, 20: 40e6, 40: 160e6, 100: 60e6, 200: 15e6},
    )
    seen = [
        an_observation(a_setting(n), context=context, index=i, seconds=context.payload_size_bytes / rate)
        for i, (n, rate) in enumerate([*rates.items(), *rates.items()])
    ]
    model = S3UploadModel()
    fit = model.fit(context.place, seen, prior=None, seed=0)
    assert fit.is_off_model
    settings = [a_setting(n) for n in rates]
    value = model.appraise(fit, context, settings, Demand()).value
    assert list(value / list(rates.values())) == pytest.approx([1.0] * len(rates), rel=0.2)
    between = model.predict(fit, context, a_setting(2), Demand())["throughput_bytes_per_second"]
    beyond = model.predict(fit, context, a_setting(1000), Demand())["throughput_bytes_per_second"]
    assert beyond.high / beyond.low > between.high / between.low


def test_a_change_is_noticed_where_no_law_is_believed() -> None:
    """All of it falls to a third. No alarm is raised as long as nothing does, nor by one dip alone."""
    model, rates = S3UploadModel(), [90e6, 150e6, 45e6, 20e6, 40e6, 160e6, 60e6, 15e6]
    rows = list(zip((1, 2, 5, 12, 20, 40, 100, 200), rates, strict=True))
    noise = np.exp(0.05 * np.random.default_rng(5).standard_normal(24))

    def drift_count(count: int, slowed: range) -> int:
        size = a_context().payload_size_bytes
        seconds = [size / (rows[i % 8][1] * noise[i] / (3.0 if i in slowed else 1.0)) for i in range(count)]
        seen = [an_observation(a_setting(rows[i % 8][0]), index=i, seconds=seconds[i]) for i in range(count)]
        return model.fit(a_context().place, seen, prior=None, seed=0).drift_count

    assert drift_count(24, range(0)) == 0
    assert drift_count(24, range(17, 18)) == 0
    assert drift_count(24, range(18, 24)) == 1


# A place of no law: what one connection does depends on the size of its requests, and others hardly add to it.
RUGGED = [
    (4, 8, 60), (16, 23, 80), (8, 45, 50), (18, 6, 160), (26, 5, 130), (1, 32, 690), (1, 245, 840), (6, 128, 40),
    (87, 32, 220), (2, 45, 330), (10, 32, 60), (10, 16, 60), (1, 8, 200), (1, 32, 690), (1, 45, 320), (2, 23, 550),
    (1, 245, 840), (2, 400, 450), (3, 32, 210), (3, 5, 130), (1, 23, 1000), (1, 23, 1000), (1, 64, 190), (1, 23, 1000),
]  # fmt: skip


def of_the_rugged(count: int, *, factor: float = 1.0) -> Fit:
    """After so many measurements, the last of them so many times as fast as its place is."""
    noise = np.exp(0.06 * np.random.default_rng(3).standard_normal(len(RUGGED)))
    size = a_context().payload_size_bytes
    seen = [
        an_observation(
            a_setting(n, part_mib),
            index=i,
            seconds=size / (1e6 * rate * noise[i] * (factor if i == count - 1 else 1.0)),
        )
        for i, (n, part_mib, rate) in enumerate(RUGGED[:count])
    ]
    return S3UploadModel().fit(a_context().place, seen, prior=None, seed=0)


def test_a_place_of_no_law_is_no_place_that_changes() -> None:
    """However much a law that nobody believes would be surprised: before it is given up, and after."""
    for count in (7, 12, 24):
        fit = of_the_rugged(count)
        assert fit.drift_count == 0
        assert not fit.suspicion.is_surprised


def test_where_no_law_is_believed_surprise_is_of_what_was_measured_there() -> None:
    """What goes as it went is none, though no law would expect it; half of it is one."""
    assert abs(of_the_rugged(24).suspicion.surprise) < 2.0
    halved = of_the_rugged(24, factor=0.5).suspicion
    assert halved.is_surprised
    assert halved.value_ratio == pytest.approx(0.5, abs=0.15)
