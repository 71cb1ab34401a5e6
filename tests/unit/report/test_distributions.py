"""How single requests are spread, and what sending a slow one again would gain."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from penstock.models.inference.histogram import histogram_of, pairs_of
from penstock.models.s3.upload import S3UploadSetting
from penstock.report.distributions import hedged, spreads
from penstock.report.tally import tally_of
from penstock.units import MiB
from tests.factories import CONTEXT, an_observation


def times(count: int, *, seed: int = 1) -> list[float]:
    """A tenth of a second, and one in fifty takes two."""
    chance = random.Random(seed)
    return [0.1 * math.exp(chance.gauss(0, 0.1)) + 2.0 * (chance.random() < 0.02) for _ in range(count)]


def simulated_p99(values: Sequence[float], delay: float) -> float:
    """By drawing both requests."""
    chance = random.Random(9)
    drawn = sorted(
        min(x, delay + y) for x, y in ((chance.choice(values), chance.choice(values)) for _ in range(20000))
    )
    return drawn[int(0.99 * len(drawn))]


@pytest.mark.parametrize("delay", [0.12, 0.2, 1.0])
def test_what_sending_again_gains_is_as_when_it_is_done(delay: float) -> None:
    """By the formula and by drawing; so many are sent twice."""
    values = times(5000)
    hedge = hedged([histogram_of(values)], delay)
    assert hedge.p99_seconds == pytest.approx(simulated_p99(values, delay), rel=0.08)
    assert hedge.extra_fraction == pytest.approx(sum(v > delay for v in values) / len(values), abs=0.03)


def test_a_large_part_that_is_sent_again_takes_the_time_of_a_large_part() -> None:
    """Not that of the small ones which other probes tried: then nothing would be slow that is sent again."""
    small, large = (S3UploadSetting(thread_count=4, part_size_bytes=n * MiB) for n in (5, 50))
    none = S3UploadSetting(thread_count=1, part_size_bytes=5 * MiB)
    seen = [
        an_observation(setting=setting, histograms={"request_seconds": histogram_of(seconds)})
        for setting, seconds in ((small, [0.1] * 970), (large, [1.0] * 30), (none, []))
    ]
    (spread,) = spreads(tally_of(seen, lambda _: 1.0, lambda _, settings: [None] * len(settings)))
    assert spread.count == 1000
    assert spread.p99_seconds == pytest.approx(1.0, rel=0.05)
    assert spread.best_hedge is None


def test_a_week_of_probes_is_one_distribution_by_size() -> None:
    """Each size by itself; what is too rare is not told."""
    seen = [
        an_observation(
            histograms={"request_seconds": histogram_of(times(50, seed=n))},
            successive=pairs_of([times(50, seed=n)]),
        )
        for n in range(20)
    ]
    counted = tally_of(
        [*seen, an_observation(context=CONTEXT)], lambda _: 1.0, lambda _, settings: [None] * len(settings)
    )
    (spread,) = spreads(counted)
    assert (spread.count, spread.payload_size_bytes) == (1000, CONTEXT.payload_size_bytes)
    assert spread.p50_seconds == pytest.approx(0.1, rel=0.05)
    assert spread.p99_seconds > 1.9
    best = spread.best_hedge
    assert best is not None
    assert best.p99_seconds < 0.4
    assert spread.correlation is not None
    assert abs(spread.correlation.expected) < 0.1


def test_a_message_is_not_said_to_be_sent_again_nor_one_kind_to_go_with_another() -> None:
    """A second send would be a copy; what follows on what was seen of deliveries alone."""
    names = ("delivery_seconds", "send_seconds", "delete_seconds")
    seen = an_observation(
        histograms={name: histogram_of(times(500)) for name in names}, successive=pairs_of([times(500)])
    )
    found = spreads(tally_of([seen], lambda _: 1.0, lambda _, settings: [None] * len(settings)))
    assert {s.name for s in found} == set(names)
    assert not any(s.hedges for s in found)
    assert {s.name for s in found if s.correlation is not None} == {"delivery_seconds"}
