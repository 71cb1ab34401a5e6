"""Knows a place for a daemon that is a region away from the servers that others wrote, and how it is configured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from penstock.lab.link import LinkTruth
from tests.daemon_house import BOUNDLESS, HERE, DaemonHouse
from tests.real.servers import at_the_end_of

# Without any distance a request takes as long as a busy machine makes its event loop late, and the daemon rightly
# refuses to call that a measurement.
A_REGION_AWAY = LinkTruth(
    round_trip_seconds=0.010,
    connection_rate_bytes_per_second=10e6,
    host_rate_bytes_per_second=35e6,
    service_latency_seconds_median=0.020,
)
CONFIGURATION = f"""{HERE}
[probes.s3_upload]
is_enabled = true
bucket = "{{bucket}}"
object_size_bytes = ["24MiB"]
mean_interval_seconds = "0.3s"
duration_seconds_max = "3s"
thread_count_max = 8
[probes.s3_download]
is_enabled = true
bucket = "{{bucket}}"
object_size_bytes = ["24MiB"]
mean_interval_seconds = "0.3s"
duration_seconds_max = "5s"
thread_count_max = 8
[probes.sqs_delivery]
is_enabled = true
usd_per_day = 100
mean_interval_seconds = "0.3s"
duration_seconds_max = "1.5s"
thread_count_max = 4
{BOUNDLESS}"""


@contextlib.contextmanager
def a_region_away(directory: Path, s3_url: str, sqs_url: str, bucket: str) -> Iterator[DaemonHouse]:
    """The place, with all operations configured."""
    direct_urls = {"s3": s3_url, "sqs": sqs_url}
    with contextlib.ExitStack() as paths:
        urls = {
            service: paths.enter_context(at_the_end_of(A_REGION_AWAY, url, directory))
            for service, url in direct_urls.items()
        }
        yield DaemonHouse(directory, CONFIGURATION, urls=urls, direct_urls=direct_urls, bucket=bucket)
