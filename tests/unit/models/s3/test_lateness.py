"""Rules of late requests: what they cost a transfer, how often they are believed to come, and what that advises."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from math import exp

import numpy as np
import pytest

from penstock.models.inference.histogram import histogram_of
from penstock.models.model import Array, Fit
from penstock.models.s3.directions import DOWNLOADS, planned_transfers
from penstock.models.s3.download import S3DownloadModel, S3DownloadSetting
from penstock.models.s3.lateness import Lateness, lateness
from penstock.models.s3.law import Transfers
from penstock.optimizer import evidence
from penstock.units import KiB, MiB
from penstock.vocabulary import Demand, Objective, Observation, Recommendation
from tests.factories import recommended
from tests.unit.models.s3.download_world import DownloadWorld, a_place, a_setting
from tests.unit.models.told import told

MODEL = S3DownloadModel()
WORLD = DownloadWorld(size=64 * MiB, host_bytes_per_second=5e9)
DESIGN = [
    a_setting(*pair) for pair in ((4, 8), (16, 4), (8, 8), (32, 2), (12, 5.34), (20, 3.2), (64, 1), (6, 11))
]


def a_transfer(
    thread_count: int, request_count: int, size: int = 64 * MiB, *, object_count: int = 1
) -> Transfers:
    """One object in so many requests."""
    return planned_transfers(
        DOWNLOADS,
        np.array([float(size)]),
        np.array([float(thread_count)]),
        np.array([size / request_count]),
        object_count=object_count,
        is_burst=False,
    )


def ended(seconds: Array, thread_count: int) -> float:
    """When the last of some requests ends, each of which is taken by whichever connection is free first."""
    free = [0.0] * thread_count
    for each in seconds:
        heapq.heappush(free, heapq.heappop(free) + float(each))
    return max(free)


@pytest.mark.parametrize(
    ("threads", "requests", "usual_seconds", "spread", "late"),
    [
        (20, 20, 0.1, 0.1, (0.01, 1.0)),  # a single wave, much shorter than one is late
        (64, 64, 0.05, 0.1, (0.001, 5.0)),
        (10, 40, 0.1, 0.3, (0.01, 1.0)),  # some waves
        (64, 1280, 0.1, 0.3, (0.002, 0.5)),  # longer than one is late
    ],
)
def test_what_late_requests_cost_is_what_a_simulation_says(
    threads: int, requests: int, usual_seconds: float, spread: float, late: tuple[float, float]
) -> None:
    """In the mean over many transfers whose other requests vary by a log-normal law."""
    known = Lateness(fraction=late[0], seconds=late[1], seen_count=1)
    rng, usual, delays = np.random.default_rng(1), [], []
    for _ in range(1500):
        seconds = usual_seconds * np.exp(spread * rng.standard_normal(requests))
        more = known.seconds * (rng.random(requests) < known.fraction)
        usual.append(ended(seconds, threads))
        delays.append(ended(seconds + more, threads) - usual[-1] if more.any() else 0.0)
    found = known.delay_seconds(a_transfer(threads, requests), np.array([[np.mean(usual)]]))
    chance = float(np.std(delays)) / len(delays) ** 0.5
    assert found[0, 0] == pytest.approx(np.mean(delays), rel=0.15, abs=3.0 * chance)


def test_a_long_transfer_loses_no_more_for_being_longer() -> None:
    """Only what is late at its end counts."""
    known = Lateness(fraction=0.001, seconds=1.0, seen_count=1)
    for longer in (10, 100):
        transfer = a_transfer(10, 100 * longer)
        cost = known.delay_seconds(transfer, np.array([[10.0 * longer]]))[0, 0]
        assert cost == pytest.approx(0.005, rel=0.02)  # lambda D^2 / 2


def test_a_stream_of_objects_waits_for_none() -> None:
    """A late one idles its connection, as it did when the stream was measured."""
    known = Lateness(fraction=0.01, seconds=5.0, seen_count=1)
    stream = a_transfer(16, 1, 64 * KiB)
    assert known.slowed(stream, np.array([[15.0]]))[0, 0] == 15.0
    assert known.slowed(a_transfer(16, 16), np.array([[15.0]]))[0, 0] < 15.0


def times(
    count: int, *, late: Sequence[float] = (), usual: float = 0.03, spread: float = 0.5, seed: int = 0
) -> list[float]:
    """Of requests that follow a log-normal law, but for those that are late by so much."""
    draws = np.random.default_rng(seed).standard_normal(count)
    return [usual * exp(spread * draw) for draw in draws[len(late) :]] + [usual + more for more in late]


def an_observation(
    seconds: Sequence[float], *, name: str = "first_byte_seconds", index: int = 0
) -> Observation[S3DownloadSetting]:
    """A probe whose requests took so long."""
    seen = WORLD.observe(DESIGN[index % len(DESIGN)], index)
    return replace(seen, histograms={name: histogram_of(seconds)})


def test_a_few_hundred_requests_say_little_of_one_in_a_thousand() -> None:
    """What was believed before weighs as much as a thousand of them."""
    before = lateness(DOWNLOADS, [])
    after = lateness(DOWNLOADS, [an_observation(times(30, seed=i)) for i in range(10)])
    assert before.fraction == pytest.approx(1e-4)
    assert before.seconds == pytest.approx(1.0)
    assert 0.7 < after.fraction / before.fraction < 0.8
    assert after.seen_count == 0


def test_some_thousand_requests_say_how_often_and_by_how_much() -> None:
    """One in a thousand by a second is found, and so is that there are none."""
    often = lateness(
        DOWNLOADS, [an_observation(times(250, late=[1.0] * (i % 4 == 0), seed=i)) for i in range(40)]
    )
    assert often.seen_count == 10
    assert often.fraction == pytest.approx(1e-3, rel=0.1)
    assert often.seconds == pytest.approx(1.0, rel=0.1)
    never = lateness(DOWNLOADS, [an_observation(times(250, seed=i)) for i in range(40)])
    assert never.fraction < 3e-5


def test_one_of_eight_requests_can_be_seen_to_be_late() -> None:
    """Large ranges are few."""
    assert lateness(DOWNLOADS, [an_observation(times(8, late=[1.0], usual=0.1, spread=0.1))]).seen_count == 1


@pytest.mark.parametrize(
    "seconds",
    [
        times(5000, spread=0.6),  # GETs of 1 KiB, as far as one in ten thousand
        [*times(56, spread=0.1), *times(8, usual=0.12, spread=0.1)],  # the first of each of eight connections
        [*times(40, spread=0.1), *times(8, usual=0.3, spread=0.1)],  # a dip that lasted
        times(64, late=[5.0], usual=3.0, spread=0.1),  # requests that are long themselves
    ],
    ids=["a wide law", "cold connections", "a dip", "long requests"],
)
def test_what_is_slow_at_a_setting_is_not_late(seconds: Sequence[float]) -> None:
    """Late is rare, and far from what is usual beside it."""
    found = lateness(DOWNLOADS, [an_observation(seconds)])
    assert (
        found.fraction * found.seconds
        <= 1.2 * lateness(DOWNLOADS, []).fraction * lateness(DOWNLOADS, []).seconds
    )


def test_the_first_byte_says_more_than_the_whole_request() -> None:
    """A body that was slow is the path's."""
    seen = an_observation(times(50))
    seen = replace(
        seen, histograms={**seen.histograms, "request_seconds": histogram_of(times(50, late=[1.0]))}
    )
    assert lateness(DOWNLOADS, [seen]).seen_count == 0
    assert (
        lateness(DOWNLOADS, [an_observation(times(50, late=[1.0]), name="request_seconds")]).seen_count == 1
    )


def learned(late: Sequence[float], every: int) -> Fit:
    """From 48 probes of 64 requests, of which each so-manieth had late ones."""
    probes = [
        an_observation(times(64, late=late if i % every == 0 else (), spread=0.3, seed=i), index=i)
        for i in range(48)
    ]
    return evidence.attach(MODEL.fit(a_place(), probes, prior=None, seed=0), MODEL, probes)


def advised(fit: Fit, objective: Objective) -> S3DownloadSetting:
    advice: Recommendation[S3DownloadSetting] = recommended(
        MODEL, fit, WORLD.context, Demand(objective=objective)
    )
    return advice.setting


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.LATENCY])
def test_where_requests_come_late_fewer_and_larger_ones_are_advised(objective: Objective) -> None:
    """A transfer of a tenth of a second waits five for one of a thousand; the law is the same."""
    never, often = learned((), 1), learned((5.0,), 16)
    assert never.parameters == often.parameters
    counts = [-(-WORLD.size // advised(fit, objective).range_size_bytes) for fit in (never, often)]
    assert counts[1] < 0.7 * counts[0]


def test_it_is_said_where_it_costs_something() -> None:
    """With how many, by how much, and what that comes to; not where none was seen, nor where it is a trifle."""
    never, often = learned((), 1), learned((5.0,), 16)
    said = " ".join(told(MODEL, often, WORLD.context, a_setting(20, 3.2), Demand()))
    assert "is late by about 4." in said
    assert "fewer, larger requests" in said
    assert "is late by" not in " ".join(told(MODEL, never, WORLD.context, a_setting(20, 3.2), Demand()))
    large = replace(WORLD.context, payload_size_bytes=100 << 30)
    assert "is late by" not in " ".join(told(MODEL, often, large, a_setting(20, 64), Demand()))
