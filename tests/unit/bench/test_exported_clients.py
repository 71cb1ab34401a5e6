"""The benchmark of exported settings: its grid, and what it calls served."""

from math import ceil
from pathlib import Path

import pytest

from bench import results
from bench.exported_clients import CLIENTS, LINK, Row, conclude, grid
from bench.real_links import Measured
from penstock.client.targets.launch import PROGRAMS
from penstock.client.targets.table import TARGETS
from penstock.models.s3.upload import S3UploadSetting
from penstock.operations.table import OPERATIONS
from penstock.units import MiB


def a_row(*, default: float, advised: float, best: float) -> Row:
    """One client of which a test names the rates."""

    def measured(rate: float) -> Measured:
        setting = S3UploadSetting(thread_count=4, part_size_bytes=8 * MiB)
        return Measured(setting=setting, bytes_per_second=rate, rounds=(rate,))

    return Row(
        client="boto3",
        server="versitygw",
        default=measured(default),
        advised=measured(advised),
        best=measured(best),
        grid=(measured(best),),
    )


def test_the_grid_is_legal_and_reaches_what_the_link_can_carry() -> None:
    """Every point once, none with threads that have no part, and enough connections for the whole link."""
    points = grid()
    assert len(set(points)) == len(points) >= 6
    for point in points:
        assert OPERATIONS["s3_upload"].model.legal(LINK.context, point) == point
        assert point.thread_count <= ceil(LINK.object_size_bytes / point.request_size_bytes)
    needed = LINK.truth.host_rate_bytes_per_second / LINK.truth.connection_rate_bytes_per_second
    assert max(point.thread_count for point in points) >= needed > min(point.thread_count for point in points)


def test_every_client_of_the_table_can_be_told() -> None:
    """Libraries by their target, programs by the way they are run."""
    assert all(name in TARGETS or name in PROGRAMS for name in CLIENTS)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (a_row(default=10e6, advised=30e6, best=31e6), "pass"),
        (a_row(default=10e6, advised=20e6, best=31e6), "MISS"),  # far from its best
        (a_row(default=31e6, advised=30e6, best=31e6), "pass"),  # the default leaves no room
        (a_row(default=27e6, advised=27e6, best=30.1e6), "MISS"),  # there was room
    ],
)
def test_a_client_is_served_near_its_best_and_above_its_default(
    row: Row, verdict: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both count; a default that is the best already need not be beaten."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    assert conclude([row], [], seconds=1.0, long=False)["verdict"] == verdict
    assert conclude([row], ["s5cmd: no tool"], seconds=1.0, long=False)["verdict"] == "MISS"
