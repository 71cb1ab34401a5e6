"""When a place is believed to have changed."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.models.inference.posterior import Gaussian
from penstock.models.inference.regression import Peak
from penstock.models.s3 import second_look
from penstock.models.s3.download import S3DownloadModel, S3DownloadSetting
from penstock.models.s3.evidence import Evidence
from penstock.models.s3.explanations import settled
from penstock.models.s3.upload import S3UploadModel
from penstock.units import GiB, MiB
from penstock.vocabulary import Context, Demand, Observation
from tests.unit.models.s3.download_world import a_place
from tests.unit.models.s3.upload_world import FIRST_AT, UploadWorld, a_setting

# Thirty probes of small and large objects over a link of 31 MB/s, from a host whose processors others used.
TWO_SIZES = Path(__file__).with_name("two_sizes_of_downloads.csv")
# Seventeen probes of 64 MiB over a link of 1.6 GB/s, 95 MB/s a connection, and twelve after it fell to 300 MB/s.
CEILING_FELL = Path(__file__).with_name("a_ceiling_that_fell.csv")
PLACE = a_place()
# Threads, and mebibytes in a part of 256.
FEW_PARTS = [
    *((4, 8), (16, 8), (32, 8), (8, 16), (16, 16), (24, 5), (48, 5), (32, 5), (12, 5)),
    *((40, 5), (48, 5), (32, 8), (2, 8), (20, 5), (48, 5), (40, 5), (28, 8), (48, 5)),
]

# Threads, mebibytes in a part of 1024, how many requests were refused, and the loss to that or to chance.
REFUSED = [
    *((4, 8, 28, 0.5), (14, 73, 0, 1), (5, 85, 0, 1), (20, 51, 2, 0.95), (16, 64, 0, 1), (14, 36, 2, 1)),
    *((14, 73, 0, 1), (23, 44, 1, 0.8), (7, 85, 0, 1), (18, 57, 0, 1), (20, 44, 2, 0.8), (10, 102, 0, 1)),
    *((7, 73, 0, 1), (11, 64, 0, 1), (18, 57, 0, 1), (20, 51, 0, 0.95), (16, 64, 0, 1), (20, 25, 19, 0.2)),
    *(
        (20, 51, 1, 0.95),
        (20, 51, 0, 0.28),
        (14, 73, 0, 1),
        (26, 16, 46, 0.1),
        (14, 44, 0, 1),
        (4, 256, 0, 1),
    ),
    *((20, 51, 1, 0.28), (14, 73, 0, 1), (11, 93, 0, 1), (16, 64, 0, 1), (16, 64, 0, 1), (12, 85, 0, 1)),
]


def recorded(path: Path) -> Iterator[Observation[S3DownloadSetting]]:
    """The probes of a file."""
    with path.open(encoding="ascii") as file:
        for row in csv.DictReader(file):
            values = {name: float(value) for name, value in row.items()}
            yield Observation(
                context=Context(place=PLACE, payload_size_bytes=int(values.pop("size_bytes"))),
                setting=S3DownloadSetting(
                    thread_count=int(values.pop("thread_count")),
                    range_size_bytes=int(values.pop("range_size_bytes")),
                ),
                started_at=FIRST_AT + timedelta(seconds=values.pop("begin_seconds")),
                duration_seconds=values.pop("duration_seconds"),
                transferred_bytes=int(values.pop("transferred_bytes")),
                client_cpu_fraction=values.pop("client_cpu_fraction"),
                request_count=int(values["range_count"]),
                measures=values,
            )


@pytest.mark.parametrize("first", [23, pytest.param(24, marks=pytest.mark.days)])
def test_a_law_that_is_stuck_is_no_change(first: int) -> None:
    """Where one law explains all, it is found, from wherever the law had been before a measurement surprised.

    Two in a row at which the host stood still are believed until the next.
    """
    model, observations = S3DownloadModel(), list(recorded(TWO_SIZES))
    for count in range(first, len(observations) + 1, 2):
        assert model.fit(PLACE, observations[:count], prior=None, seed=0).drift_count == 0


def test_nothing_is_looked_at_twice_from_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look takes as long as a whole fit of a few measurements, and is the same as before."""
    looks = list[object]()

    def noted(evidence: Evidence, belief: Gaussian, peak: Peak, sigma: float) -> tuple[Peak, float]:
        looks.append((evidence.rows, belief.mean.tobytes(), peak.theta.tobytes(), sigma))
        return settled(evidence, belief, peak, sigma)

    monkeypatch.setattr(second_look, "settled", noted)
    S3DownloadModel().fit(PLACE, list(recorded(TWO_SIZES)), prior=None, seed=0)
    assert len(looks) == len(set(looks)) > 0


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_a_ceiling_that_only_large_objects_reach_is_no_change(seed: int) -> None:
    """Objects of few parts kept below it. It surprises at first, and then is known, not doubted ten probes long."""
    model = S3UploadModel()
    small, large = (
        UploadWorld(connection_bytes_per_second=5e6, host_bytes_per_second=300e6, noise=0.06, size=size)
        for size in (256 * MiB, 4 * GiB)
    )
    seen = [
        world.observe(setting, index, seed=seed)
        for index, (world, setting) in enumerate(
            [(small, a_setting(*each)) for each in FEW_PARTS]
            + [(large, a_setting(n)) for n in (192, 96, 128, 96, 160, 96, 64, 128)]
        )
    ]
    fits = [model.fit(small.context.place, seen[:count], prior=None, seed=0) for count in range(20, 27)]
    assert any(fit.suspicion.is_surprised for fit in fits[:3])
    for fit in fits[3:]:
        assert not fit.suspicion.is_surprised
        assert not fit.suspicion.is_raised
        assert fit.drift_count == 0


@pytest.mark.parametrize("count", [25, 30])
def test_a_dip_in_which_one_request_was_refused_is_no_change(count: int) -> None:
    """Two probes of twenty threads dipped; the one refusal of the second does not make it three times as slow."""
    world = UploadWorld(connection_bytes_per_second=60e6, host_bytes_per_second=5e9, noise=0.06, size=GiB)
    probes = [
        world.observe(a_setting(threads, part_mib), index, throttled_count=refused, factor=factor)
        for index, (threads, part_mib, refused, factor) in enumerate(REFUSED)
    ]
    assert S3UploadModel().fit(world.context.place, probes[:count], prior=None, seed=0).drift_count == 0


@pytest.mark.parametrize("count", [21, 29])
def test_a_plateau_after_a_change_is_a_ceiling_and_no_time_that_each_object_takes(count: int) -> None:
    """Objects that take a quarter of a second with 5 to 47 threads could be either, and larger ones tell them apart."""
    model, probes = S3DownloadModel(), list(recorded(CEILING_FELL))[:count]
    fit = model.fit(PLACE, probes, prior=None, seed=0)
    assert fit.changed_at == probes[17].started_at
    large = Context(place=PLACE, payload_size_bytes=GiB)
    setting = S3DownloadSetting(thread_count=20, range_size_bytes=8 * MiB)
    expected = model.predict(fit, large, setting, Demand())["throughput_bytes_per_second"]
    assert expected.expected < 1.5 * 300e6
    assert expected.low < 300e6 < expected.high
