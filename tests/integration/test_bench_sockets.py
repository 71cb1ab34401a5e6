"""The benchmarks of the socket measure what they say, on a small scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import sockets
from bench.advice_server import Upload, advice_server
from bench.leases import jain_index
from penstock.client.advice import Adviser
from penstock.units import GiB, MiB


def test_watchers_hear_of_each_change(tmp_path: Path) -> None:
    """Every watcher of every change, and never before the daemon published."""
    with advice_server(tmp_path) as server:
        found = sockets._fan_out(server, tmp_path, 7, 3)
    assert 0 < found.median_seconds <= found.last_seconds
    assert found.line_bytes >= len((tmp_path / "recommendations.json").read_bytes())


def test_the_server_advises_from_what_was_measured(tmp_path: Path) -> None:
    """Uploads that were measured are what the advice rests on; without any it is a prior."""
    uploads = [
        Upload(
            thread_count=n,
            part_size_bytes=8 * MiB,
            object_size_bytes=GiB,
            duration_seconds=GiB / min(2e6 * n, 20e6),
        )
        for n in (2, 4, 8, 16)
    ]
    (tmp_path / "observations.json").write_text(
        json.dumps([{name: getattr(upload, name) for name in upload.__struct_fields__} for upload in uploads])
    )
    with advice_server(tmp_path):
        adviser = Adviser(
            socket=str(tmp_path / "penstock.sock"), snapshot=str(tmp_path / "recommendations.json")
        )
        advice = adviser.advise("s3_upload", GiB)
    assert advice.basis in {"model", "measured"}
    assert advice.document["observation_count"] == len(uploads)


@pytest.mark.parametrize(("rates", "index"), [([3, 3, 3], 1.0), ([1, 0, 0, 0], 0.25), ([2, 1], 0.9)])
def test_jains_index_is_the_published_one(rates: list[float], index: float) -> None:
    """1 for equals, 1/n when one has everything."""
    assert jain_index(rates) == pytest.approx(index)
