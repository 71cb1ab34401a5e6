"""Rules of the law of an upload, against arithmetic that one can do by hand."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.models.s3.directions import UPLOADS, planned_transfers
from penstock.models.s3.law import PARAMETERS, log_cpu_beside
from penstock.units import GiB, MiB

HARD = {
    "request_seconds": 0.2,
    "connection_bytes_per_second": 10e6,
    "host_bytes_per_second": 200e6,
    "burst_factor": 1.0,
    "prefix_requests_per_second": 1e9,
    "cpu_seconds_per_request": 1e-9,
    "cpu_seconds_per_byte": 1e-15,
    "knee_sharpness": 200.0,
    "overload_slope": 1e-9,
    "overload_onset": 2.0,
    "throttling_slope": 0.5,
    "object_seconds": 1e-9,
    "object_seconds_per_part": 1e-12,
    "wave_mixing": 1.0,
    "tail_share": 1e-9,
    "cold_latencies": 5.0,
}


def parameters(**changed: float) -> np.ndarray:
    """One row of parameters whose knees are hard and whose small costs are nothing."""
    return np.log([[(HARD | changed)[name] for name in PARAMETERS]])


def seconds(theta: np.ndarray, threads: int, *, size: int = GiB, part: int = 8 * MiB) -> float:
    """Of one object, by the law."""
    one = np.array([float(size)])
    transfers = planned_transfers(
        UPLOADS, one, np.array([float(threads)]), np.array([float(part)]), object_count=1, is_burst=False
    )
    return float(size / np.exp(transfers.log_throughput(theta)[0, 0]))


def test_full_waves_take_their_time_after_one_another() -> None:
    """128 parts over 4 connections that the host does not hold back: 32 waves of L + s/B, and one cold start."""
    part_seconds = 0.2 + 8 * MiB / 10e6
    assert seconds(parameters(), 4) == pytest.approx(32 * part_seconds + 5.0 * 0.2, rel=1e-3)


@pytest.mark.parametrize("threads", [1, 4, 16])
def test_connections_shake_hands_all_at_once(threads: int) -> None:
    """However many there are, an upload that the host does not hold back is late by the same time."""
    late = seconds(parameters(), threads) - seconds(parameters(cold_latencies=1e-9), threads)
    assert late == pytest.approx(5.0 * 0.2, rel=1e-3)


def test_a_full_host_does_not_wait_for_handshakes() -> None:
    """A wave of 64 parts takes 2.7 s on this host anyhow: what one connection loses another one uses."""
    assert seconds(parameters(), 64) == pytest.approx(seconds(parameters(cold_latencies=1e-9), 64), rel=1e-6)


def test_connections_cost_the_processor_only_where_it_is_the_limit() -> None:
    """What the processor could send alone falls with too many connections; beside a slow network it does not."""
    n, s, none = np.array([4.0, 200.0]), np.array([8.0 * MiB] * 2), np.zeros(2)
    busy = parameters(cpu_seconds_per_byte=1 / 50e6, overload_slope=0.1)
    idle = parameters(cpu_seconds_per_byte=1 / 5e9, overload_slope=0.1)
    few, many = np.exp(log_cpu_beside(busy, n, s, none)[0])
    assert few == pytest.approx(50e6, rel=0.01)
    assert many < 0.7 * few
    few, many = np.exp(log_cpu_beside(idle, n, s, none)[0])
    assert many == pytest.approx(few, rel=0.01)


def test_objects_at_the_same_time_are_completed_at_the_same_time() -> None:
    """What a part adds to the end of its object is not paid again for the parts of the others."""
    theta = parameters(host_bytes_per_second=1e15, object_seconds_per_part=0.003)
    taken = []
    for count in (1, 10, 100):
        size, threads, part = (np.array([float(value)]) for value in (GiB, 10 * count, 8 * MiB))
        transfers = planned_transfers(UPLOADS, size, threads, part, object_count=count, is_burst=False)
        taken.append(float(count * GiB / np.exp(transfers.log_throughput(theta)[0, 0])))
    assert taken == pytest.approx([taken[0]] * 3, rel=1e-3)
