"""Knows how much faster clients that others wrote are with the options that penstock exports for them.

On one shaped link: a few uploads by boto3 teach the daemon's optimizer, and its advice is given to every client in that
client's own options. Measured as in `real_links`, in a single form.
"""

from __future__ import annotations

from typing import Any

from bench.real_links import CLIENTS, Suite, measure
from bench.shaped_links import ShapedLink
from penstock.lab.link import LinkTruth

LINK = ShapedLink(
    name="many-connections",
    story="20 ms away, 3 MB/s a connection, 30 MB/s in all; one object of 48 MiB",
    truth=LinkTruth(
        round_trip_seconds=0.020,
        connection_rate_bytes_per_second=3e6,
        host_rate_bytes_per_second=30e6,
        service_latency_seconds_median=0.030,
        service_latency_sigma=0.3,
    ),
    request_counts=(10, 6, 3),
    thread_counts=(3, 6, 10),
)
SUITE = Suite(
    name="exported_clients", links=(LINK,), clients=(*CLIENTS, "rclone", "aws"), target=0.9, teacher="boto3"
)


def run(*, long: bool = False) -> dict[str, Any]:  # noqa: ARG001  # there is one form
    """Measure every client."""
    return measure(SUITE, long=True)
