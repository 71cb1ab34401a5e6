"""Rules of comparing: a ratio of what two settings do on average, by the draws that both share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.models.model import Fit
from penstock.models.s3.upload import S3UploadModel
from penstock.optimizer import evidence
from penstock.optimizer.comparison import gain
from penstock.vocabulary import Demand, Estimate, Objective
from tests.unit.models.s3.upload_world import UploadWorld, a_setting, history

MODEL, WORLD = S3UploadModel(), UploadWorld()


def a_fit(world: UploadWorld, count: int = 14, seed: int = 0) -> Fit:
    """What was learned of the world."""
    probes = history(world, count, seed=seed)
    return evidence.attach(MODEL.fit(world.place, probes, prior=None, seed=1), MODEL, probes)


FIT = a_fit(WORLD)
# Where no request comes late whatever the setting.
PUNCTUAL = replace(FIT, state={**FIT.state, "late_fraction": 0.0})


def over(threads: int, reference: int, demand: Demand | None = None, fit: Fit = FIT) -> Estimate:
    """The gain of so many threads over so many."""
    setting, other = a_setting(threads), a_setting(reference)
    return gain(MODEL, fit, WORLD.context, demand or Demand(), setting=setting, reference=other)


def test_a_setting_gains_nothing_over_itself() -> None:
    """Not even the width of an interval."""
    assert over(10, 10) == Estimate(1.0, 1.0, 1.0)


def test_what_is_expected_is_the_ratio_of_the_predictions() -> None:
    """Whoever divides two answers of the socket gets the same number, where requests are never late."""
    values = [
        MODEL.predict(FIT, WORLD.context, a_setting(n), Demand())["throughput_bytes_per_second"].expected
        for n in (40, 10)
    ]
    assert over(40, 10, fit=PUNCTUAL).expected == pytest.approx(values[0] / values[1], rel=1e-9)


def test_late_requests_count_in_what_is_gained_on_average() -> None:
    """Most transfers meet none, so predictions do not move; more of those that are made of many requests do."""
    often_late = replace(FIT, state={**FIT.state, "late_fraction": 0.01, "late_seconds": 5.0})
    small, large = a_setting(10, 5), a_setting(10, 64)

    def gained(fit: Fit) -> float:
        return gain(MODEL, fit, WORLD.context, Demand(), setting=small, reference=large).expected

    assert gained(often_late) < 0.95 * gained(PUNCTUAL)
    alike = [MODEL.predict(fit, WORLD.context, small, Demand()) for fit in (often_late, PUNCTUAL)]
    assert alike[0] == alike[1]


def test_there_and_back_is_one() -> None:
    """The gain of one over the other is the inverse of that of the other over the one, its ends changing places."""
    there, back = over(40, 10), over(10, 40)
    assert (there.expected * back.expected) == pytest.approx(1.0)
    assert (there.low * back.high, there.high * back.low) == pytest.approx((1.0, 1.0), rel=0.02)


def test_what_makes_both_slower_makes_no_difference() -> None:
    """The interval is that of the ratio, not of two measurements: both are as uncertain as the day, together."""
    found = over(40, 10)
    ends = [
        MODEL.predict(FIT, WORLD.context, a_setting(n), Demand())["throughput_bytes_per_second"]
        for n in (40, 10)
    ]
    apart = (ends[0].high / ends[1].low) / (ends[0].low / ends[1].high)
    assert found.high / found.low < apart**0.5


def test_the_truth_is_in_most_of_the_intervals() -> None:
    """Nine of ten say so; four of five must hold in worlds that the law only approximates, and with few probes."""
    within = []
    for seed in range(12):
        world = replace(WORLD, host_bytes_per_second=(150e6, 300e6, 600e6)[seed % 3])
        fit = a_fit(world, 6, seed)
        for threads in (4, 24, 48):
            found = over(threads, 10, fit=fit)
            truth = world.truth(a_setting(threads)) / world.truth(a_setting(10))
            within.append(found.low <= truth <= found.high)
    assert np.mean(within) >= 0.8


def test_nothing_is_gained_beyond_a_stated_bandwidth() -> None:
    """Two settings that both reach it are alike."""
    found = over(60, 20, Demand(bandwidth_bytes_per_second_max=50e6), PUNCTUAL)
    assert (found.low, found.expected, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_for_latency_the_time_of_one_counts() -> None:
    """With many objects at a time that is another thing than throughput."""
    demand = Demand(objective=Objective.LATENCY, object_count=8)
    seconds = [
        MODEL.predict(FIT, WORLD.context, a_setting(n), demand)["latency_seconds"].expected for n in (40, 10)
    ]
    assert over(40, 10, demand, PUNCTUAL).expected == pytest.approx(seconds[1] / seconds[0], rel=1e-9)


def test_where_the_law_is_given_up_the_measurements_alone_compare() -> None:
    """Two settings that were both measured are compared more surely than one that was with one that was not."""
    shapes = np.tile([0.6, 1.5, 2.5, 0.03], (48, 1)).tolist()
    lawless = replace(FIT, is_off_model=True, state={**FIT.state, "shapes": shapes})
    measured, far = over(64, 16, fit=lawless), over(2, 16, fit=lawless)
    assert measured.low > 1.0
    assert np.log(far.high / far.low) > 2 * np.log(measured.high / measured.low)
