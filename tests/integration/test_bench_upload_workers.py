"""The benchmark of several uploading processes: its sink takes what real workers send, and both are gone after it."""

from __future__ import annotations

import multiprocessing

import pytest

from bench import upload_workers
from penstock.probes.s3.workers import processor_count


async def test_parts_go_through_one_process_and_through_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few parts each way; whatever arrives is answered."""
    monkeypatch.setattr(upload_workers, "_PART_COUNT", 6)
    monkeypatch.setattr(upload_workers, "_LESSONS_MAX", 1)
    with upload_workers._sink() as url:
        rows = await upload_workers._measured(url, rounds=1)
    assert rows[0].worker_count == 1
    assert rows[-1].worker_count <= processor_count()
    assert all(row.bytes_per_second > 0 and row.client_cpu_fraction > 0 for row in rows)
    assert not multiprocessing.active_children()
