"""Knows the links that were fitted to published measurements, and the errors of those of modern hosts.

`penstock measure` repeats the five studies in the lab's own worlds; the judge keeps links of its own.

`tests/unit/bench/test_surfaces.py` checks every figure against its tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.physics import Link, many, part_rate
from penstock.units import KiB, MiB

MB = 1e6

# Fitted by least squares on logarithms; all other values come from the text of the same source.
HDD = Link(
    rtt_seconds=0.09,
    service_seconds=0.08,
    connection_bytes_per_second=0.5589 * MB,
    nic_bytes_per_second=125 * MB,
    window_bytes=64 * KiB,
    disk_bytes_per_second=9.619 * MB,
    seek_fraction=0.0358,
    burstiness=0.2826,
    complete_seconds=0.4,
)
RAM_DISK = Link(
    rtt_seconds=0.09,
    service_seconds=0.08,
    connection_bytes_per_second=1.554 * MB,
    nic_bytes_per_second=125 * MB,
    burstiness=0.5,
    core_count=2,
    cpu_seconds_per_byte=6.714e-8,
    switch_fraction=0.01,
    complete_seconds=0.4,
)
XEON = replace(RAM_DISK, connection_bytes_per_second=2.083 * MB, core_count=4, cpu_seconds_per_byte=5e-8)
SURGE = Link(
    rtt_seconds=0.002,
    service_seconds=0.05,
    connection_bytes_per_second=14.46 * MB,
    nic_bytes_per_second=30 * MB,
    burstiness=0.5637,
    contention=0.01,
    core_count=1,
    cpu_seconds_per_byte=0.02e-6,
)
COLD_READS = replace(  # of 2007: a read of a mebibyte waited for the service's disk
    SURGE, service_seconds=0.9, connection_bytes_per_second=16.5 * MB, contention=0.0
)
COLO_HTTPS = Link(
    rtt_seconds=0.047,
    service_seconds=0.02,
    connection_bytes_per_second=8 * MB,
    window_bytes=128 * KiB,
    nic_bytes_per_second=118 * MB,
    burstiness=0.4,
    setup_round_trips=4,
    keeps_connections=False,
    coherency=1.9e-4,
    core_count=8,
    cpu_seconds_per_request=0.0004,
    overload_slack=3,
    overload_loss=0.03,
)
COLO_HTTP = replace(COLO_HTTPS, setup_round_trips=1, coherency=5e-5)
M1_XLARGE = Link(
    rtt_seconds=0.002,
    service_seconds=0.006921,
    connection_bytes_per_second=25.09 * MB,
    nic_bytes_per_second=482.4 * MB,
    burstiness=0.3,
    setup_round_trips=1,
    keeps_connections=False,
    contention=0.0008826,
    core_count=4,
    cpu_seconds_per_request=0.0002012,
)
CC1_4XLARGE = Link(
    rtt_seconds=0.002,
    service_seconds=0.01269,
    connection_bytes_per_second=10.48 * MB,
    nic_bytes_per_second=1196 * MB,
    burstiness=0.4,
    setup_round_trips=1,
    keeps_connections=False,
    contention=0.0005,
    core_count=8,
    overload_slack=1.5,
    overload_loss=0.05,
)


def _large_instance(rate: float, nic: float, burstiness: float, contention: float) -> Link:
    return Link(
        rtt_seconds=0.0022,
        service_seconds=0.03,
        connection_bytes_per_second=rate * MB,
        nic_bytes_per_second=nic * MB,
        burstiness=burstiness,
        contention=contention,
    )


SSL_UPLOAD = _large_instance(6.942, 53.81, 0.315, 0.01835)
SSL_DOWNLOAD = _large_instance(12.84, 49.77, 0.6966, 0.03258)
PLAIN_DOWNLOAD = _large_instance(10.44, 48.94, 0.3451, 0.008328)


def _modern(latency: float, rate: float, nic: float, burstiness: float) -> Link:
    return Link(
        rtt_seconds=0.001,
        service_seconds=latency - 0.001,
        connection_bytes_per_second=rate,
        nic_bytes_per_second=nic,
        burstiness=burstiness,
        core_count=48,
        cpu_seconds_per_byte=2.5e-10,
        overload_loss=0.02,
    )


M5D_24XLARGE = _modern(0.0078, 93.1 * MiB, 2633 * MiB, 0.1)
C5N_9XLARGE = _modern(0.0078, 88.9 * MiB, 5542 * MiB, 0.1)
C5N_18XLARGE = _modern(0.0078, 87.5 * MiB, 7250 * MiB, 0.5)
C5N_18XLARGE_UPLOAD = _modern(0.041, 20 * MB, 12.5e9, 0.3)
CROSS_REGION = Link(
    rtt_seconds=0.13,
    service_seconds=0.03,
    connection_bytes_per_second=60 * MB,
    window_bytes=2.75 * MB,
    nic_bytes_per_second=131 * MB,
    burstiness=0.25,
    core_count=8,
)
# Threads are connections there: 25, 375 and 1000 of them for targets of 10, 150 and 400 Gbit/s.
NIXL = Link(
    rtt_seconds=0.0005,
    service_seconds=0.004,
    connection_bytes_per_second=455 * MB,
    nic_bytes_per_second=18.4e9,
    burstiness=0.3,
    core_count=64,
    cpu_seconds_per_byte=1e-10,
    overload_slack=8.0,
    overload_loss=0.0255,
)


@dataclass(frozen=True, slots=True)
class Anchor:
    """One published figure, and the calibrated link's value for it."""

    link: str
    quantity: str
    measured: float
    computed: float
    tolerance: float  # of |computed / measured - 1|, stated beforehand

    @property
    def error(self) -> float:
        """The relative error."""
        return self.computed / self.measured - 1.0


def anchors() -> list[Anchor]:
    """Every figure on which the surfaces of modern hosts are based."""

    def steady(link: Link, n: float, size: float) -> float:
        return float(part_rate(link, np.array([n]), np.array([size]), cold=False)[0][0]) * size

    found: list[Anchor] = []
    for name, link, rate, ceiling in (
        ("m5d.24xlarge GET", M5D_24XLARGE, 93.1, 2633),
        ("c5n.9xlarge GET", C5N_9XLARGE, 88.9, 5542),
        ("c5n.18xlarge GET", C5N_18XLARGE, 87.5, 7250),
    ):
        one, plateau = steady(link, 1, 32 * MiB), max(steady(link, n, 32 * MiB) for n in range(8, 200, 4))
        found += [
            Anchor(name, "1 connection, 32 MiB, MiB/s", 32 / (0.0078 + 32 / rate), one / MiB, 0.03),
            Anchor(name, "plateau, MiB/s", ceiling, plateau / MiB, 0.05),
        ]
    cold_gbps = float(many(C5N_18XLARGE_UPLOAD, 10_000, 250, 1 * MiB)) * 8 / 1e9
    found.append(Anchor("c5n.18xlarge PUT", "1 MiB, 250 connections, Gbit/s", 21.8, cold_gbps, 0.08))
    for n, measured in ((1, 20.0), (32, 125.0)):
        computed = steady(CROSS_REGION, n, 64 * MiB) / MB
        found.append(Anchor("cross-region PUT", f"{n} connections, MB/s", measured, computed, 0.05))
    for n, measured in ((25, 10.06), (375, 18.13), (1000, 13.06)):
        computed = steady(NIXL, n, 16 * MiB) / 1e9
        found.append(Anchor("nixl GET", f"{n} connections, GB/s", measured, computed, 0.08))
    return found
