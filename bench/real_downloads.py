"""Knows the links and clients for judging downloads: two servers that others wrote, and what reads from them.

Measured like uploads in `real_links`. `python -m bench real-downloads`; the long form has each link, server and client.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.real_links import THROTTLED, Suite, a_sample_of, measure
from bench.shaped_links import ShapedLink
from bench.surfaces import DOWNLOADING
from penstock.lab.link import LinkTruth
from penstock.units import MiB

_OBJECT_BYTES = 16 * MiB  # with links so slow that even a busy machine relays at their rate


def _reading(name: str, story: str, truth: LinkTruth) -> ShapedLink:
    """One object, in ranges."""
    return ShapedLink(
        name=name,
        story=story,
        truth=truth,
        object_size_bytes=_OBJECT_BYTES,
        transfer=DOWNLOADING,
        request_counts=(16, 8, 4),
        thread_counts=(4, 6, 8, 12, 16),
    )


LINKS = (
    _reading(
        "near",
        "1 ms away, 2.4 MB/s a connection, 20 MB/s in all",
        LinkTruth(
            round_trip_seconds=0.001,
            connection_rate_bytes_per_second=2.4e6,
            host_rate_bytes_per_second=20e6,
            service_latency_seconds_median=0.025,
            service_latency_sigma=0.4,
        ),
    ),
    _reading(
        "regional",
        "8 ms away, 3 MB/s a connection, 16 MB/s in all, less when crowded",
        LinkTruth(
            round_trip_seconds=0.008,
            connection_rate_bytes_per_second=3e6,
            host_rate_bytes_per_second=16e6,
            service_latency_seconds_median=0.035,
            service_latency_sigma=0.4,
            oversubscription_loss=0.15,
        ),
    ),
    _reading(
        "far",
        "130 ms away, a window of 260 kB, 18 MB/s in all",
        LinkTruth(
            round_trip_seconds=0.130,
            connection_rate_bytes_per_second=20e6,
            window_bytes=2.6e5,
            host_rate_bytes_per_second=18e6,
            service_latency_seconds_median=0.045,
            service_latency_sigma=0.3,
        ),
    ),
    replace(THROTTLED, transfer=DOWNLOADING),
)
SUITE = Suite(
    name="real_downloads", links=LINKS, clients=("boto3", "s5cmd", "rclone"), servers=("versitygw", "minio")
)


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure every link with every client on both servers (short: one of each)."""
    return measure(SUITE if long else a_sample_of(SUITE), long=long)
