"""More is learned so that less is used: on flat tops, with few threads, and where no ceiling was seen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from penstock.models.model import Appraisal
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.optimizer import evidence
from penstock.optimizer.objective import choose
from penstock.units import GiB, MiB
from penstock.vocabulary import Objective, Observation, Recommendation
from tests.factories import recommended
from tests.unit.models.s3.upload_world import UploadWorld, a_context, a_setting

MODEL = S3UploadModel()
Probes = Sequence[Observation[S3UploadSetting]]
Advice = Recommendation[S3UploadSetting]


def around_the_knee(world: UploadWorld, count: int, seed: int) -> Probes:
    """A ramp, and then settings from half of what is needed to three times that."""
    rng = np.random.default_rng(seed)
    needed = world.host_bytes_per_second / world.connection_bytes_per_second
    threads = [4, 16, 64, *(max(1, round(needed * 2 ** rng.uniform(-1, 1.5))) for _ in range(count - 3))]
    return [
        world.observe(a_setting(n, float(rng.choice([5, 8, 16]))), 100 * seed + i)
        for i, n in enumerate(threads)
    ]


def advised(world: UploadWorld, probes: Probes, previous: Advice | None = None, size: int = 0) -> Advice:
    """The advice after these."""
    fit = evidence.attach(MODEL.fit(world.place, probes, prior=None, seed=0), MODEL, probes)
    context = a_context(size=size or world.size)
    return recommended(MODEL, fit, context, previous=previous)


@pytest.mark.parametrize("seed", range(2))
def test_more_probes_of_a_flat_top_never_ask_for_more_connections(seed: int) -> None:
    """Beyond noise: what is known better needs less to be safe."""
    world = UploadWorld(connection_bytes_per_second=15e6, host_bytes_per_second=300e6, noise=0.12)
    probes, counts, last = around_the_knee(world, 40, seed), list[int](), None
    for count in (6, 12, 24, 40):
        last = advised(world, probes[:count], last)
        counts.append(last.setting.thread_count)
    assert all(later <= 1.15 * earlier for earlier, later in pairwise(counts))
    assert world.truth(last.setting if last else a_setting(1)) > 0.95 * 300e6


@pytest.mark.parametrize("seed", range(2))
def test_few_threads_are_found_to_suffice(seed: int) -> None:
    """Eleven megabytes a connection, 29 in all: three do, and seven were advised."""
    world = UploadWorld(connection_bytes_per_second=11e6, host_bytes_per_second=29e6, noise=0.05)
    assert advised(world, around_the_knee(world, 12, seed)).setting.thread_count <= 4


def test_where_no_ceiling_was_seen_advice_goes_one_step_and_no_further() -> None:
    """Objects of 96 MiB have at most twenty parts: a large object is not advised what nobody saw to work."""
    small = UploadWorld(connection_bytes_per_second=1.5e6, host_bytes_per_second=36e6, size=96 * MiB)
    probes = [small.observe(a_setting(n, 5), i) for i, n in enumerate((4, 16, 64, 20, 12, 64, 32, 8))]
    found = advised(small, probes, size=GiB)
    assert found.setting.thread_count <= 40
    assert "No ceiling was seen with up to 20 connections." in found.explanation
    seen = max(probe.throughput_bytes_per_second for probe in probes)
    assert found.prediction["throughput_bytes_per_second"].low <= seen
    assert found.bottleneck == "unsure"


@pytest.mark.parametrize(
    ("share", "connections", "is_worth_it"), [(0.98, 8.8, False), (0.98, 8.2, True), (0.91, 1.0, False)]
)
def test_two_per_cent_of_throughput_buy_a_sixth_of_the_connections_and_no_less(
    share: float, connections: float, *, is_worth_it: bool
) -> None:
    """And 9 % buy none, however many they are."""
    value = np.array([100e6, share * 100e6])
    offered = Appraisal(
        value=value,
        latency_seconds=1.0 / value,
        connection_count=np.array([10.0, connections]),
        memory_bytes=np.full(2, 8e6),
        request_rate_per_second=np.full(2, 10.0),
        refused_fraction=np.zeros(2),
    )
    assert choose(offered, Objective.THROUGHPUT) == is_worth_it
