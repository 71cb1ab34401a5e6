"""Knows the download surfaces, built like the upload surfaces in `catalogue`, with links and troubles of their own.

`python -m bench s3-download` judges the tuners on them.
"""

# ruff: noqa: E501  (the rows of its tables are read across)
from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench import calibration
from bench.catalogue import (
    FAR,
    IN_REGION,
    MB,
    Download,
    Suite,
    downloading,
    noise,
    off,
    proxied,
    random_field,
    resonating,
    tabled,
    two_humps,
)
from bench.surfaces import DOWNLOADING, Group, Surface
from penstock.units import GiB, MiB

NEAR = replace(IN_REGION, service_seconds=0.027, connection_bytes_per_second=85 * MB)  # 25 to 95 are reported
AWAY = replace(FAR, connection_bytes_per_second=80 * MB)


def _calibrated() -> list[Surface]:
    c, g, hosts = calibration, Group.CALIBRATED, {"region": "us-east-1"}
    return [
        downloading("get-004-ssl", g, c.SSL_DOWNLOAD, GiB, noise(0.05, 0.10, 0.03), thread_count_max=64, **hosts, instance_type="m1.large"),
        downloading("get-004-plain", g, c.PLAIN_DOWNLOAD, GiB, noise(0.05, 0.10, 0.03), thread_count_max=64, **hosts, instance_type="m1.large"),
        downloading("get-001-surge", g, c.SURGE, GiB, noise(0.10, 0.20, 0.06, slow_sigma=0.12), **hosts, instance_type="m1.small"),
        downloading("get-001-cold", g, c.COLD_READS, GiB, noise(0.10, 0.20, 0.06, slow_sigma=0.12), **hosts, instance_type="m1.small"),
        downloading("get-m5d-24xlarge", g, c.M5D_24XLARGE, 4 * GiB, noise(0.05, 0.10, 0.07), instance_type="m5d.24xlarge", nominal_nic_bytes_per_second=3.125e9),
        downloading("get-c5n-9xlarge", g, c.C5N_9XLARGE, 4 * GiB, noise(0.05, 0.12, 0.07), instance_type="c5n.9xlarge", nominal_nic_bytes_per_second=6.25e9),
        downloading("get-c5n-18xlarge", g, c.C5N_18XLARGE, 8 * GiB, noise(0.06, 0.15, 0.07), thread_count_max=512, instance_type="c5n.18xlarge", nominal_nic_bytes_per_second=12.5e9),
        downloading("get-nixl", g, c.NIXL, 64 * GiB, noise(0.05, 0.15, 0.04), thread_count_max=1024, nominal_nic_bytes_per_second=50e9),
    ]  # fmt: skip


def _generic() -> list[Surface]:
    g, near, far = Group.GENERIC, NEAR, AWAY
    return [
        downloading("in-10gbps", g, near, GiB, noise(0.05, 0.12, 0.04), instance_type="c5n.2xlarge", nominal_nic_bytes_per_second=1.25e9),
        downloading("in-25gbps", g, replace(near, nic_bytes_per_second=2.9e9, burstiness=0.8, gust_part_count=20), 4 * GiB, noise(0.05, 0.15, 0.05), instance_type="c5n.4xlarge", nominal_nic_bytes_per_second=3.125e9),
        downloading("in-decrypting", g, replace(near, core_count=2, cpu_seconds_per_byte=5e-9, switch_fraction=0.03, burstiness=0.7, gust_part_count=5), GiB, noise(0.06, 0.18, 0.04)),
        downloading("in-requests-cost-cpu", g, replace(near, core_count=1, cpu_seconds_per_request=0.020, cpu_seconds_per_byte=1.5e-9), 2 * GiB, noise(0.06, 0.15, 0.03)),
        downloading("in-far", g, far, GiB, noise(0.10, 0.20, 0.05, slow_sigma=0.15), region="ap-southeast-2"),
        downloading("in-far-lossy", g, replace(far, overload_loss=0.35, overload_slack=1.2, window_bytes=0.8 * MB), 512 * MiB, noise(0.12, 0.28, 0.08), region="sa-east-1"),
        downloading("in-dsl-collapse", g, replace(far, rtt_seconds=0.05, nic_bytes_per_second=12 * MB, overload_loss=0.5, overload_slack=1.5, window_bytes=0.25 * MB), 200 * MiB, noise(0.10, 0.25, 0.06), thread_count_max=64),
        downloading("in-throttled-prefix", g, replace(near, request_rate_max=100.0, retry_loss=0.5), 4 * GiB, noise(0.06, 0.14, 0.04)),
        downloading("in-throttled-store", g, replace(near, request_rate_max=20.0, retry_loss=0.8, connection_bytes_per_second=60 * MB), GiB, noise(0.08, 0.18, 0.05)),
        downloading("in-small-memory", g, replace(near, memory_bytes=256 * MiB), 2 * GiB, noise(0.05, 0.14, 0.04)),
        downloading("in-tiny-memory-far", g, replace(far, memory_bytes=128 * MiB), GiB, noise(0.08, 0.18, 0.05), region="ap-southeast-2"),
        downloading("in-writing-to-disk", g, replace(near, disk_bytes_per_second=250 * MB, seek_fraction=0.01), 2 * GiB, noise(0.08, 0.20, 0.05)),
        downloading("in-small-object", g, replace(near, nic_bytes_per_second=600 * MB, burstiness=0.7, gust_part_count=3), 64 * MiB, noise(0.08, 0.20, 0.06)),
        downloading("in-cold-store", g, replace(near, service_seconds=0.25, nic_bytes_per_second=800 * MB), GiB, noise(0.08, 0.16, 0.05)),
    ]  # fmt: skip


def _flat() -> list[Surface]:
    g = Group.FLAT
    near = replace(NEAR, overload_loss=0.0, burstiness=0.05, mixing=0.9, cpu_seconds_per_byte=2e-10)
    far = replace(AWAY, overload_loss=0.0, burstiness=0.1, nic_bytes_per_second=60 * MB, mixing=0.8)
    return [
        downloading("plateau-early-knee", g, replace(near, nic_bytes_per_second=90 * MB), GiB, noise(0.05, 0.10, 0.03), instance_type="c6i.large"),
        downloading("plateau-5gbps", g, replace(near, nic_bytes_per_second=620 * MB), 4 * GiB, noise(0.05, 0.12, 0.07), nominal_nic_bytes_per_second=625e6),
        downloading("plateau-threads-only", g, replace(near, nic_bytes_per_second=600 * MB), 2 * GiB, noise(0.05, 0.15, 0.05), part_size_bytes=8 * MiB),
        downloading("plateau-far", g, far, 2 * GiB, noise(0.08, 0.16, 0.06), region="ap-southeast-2"),
        downloading("plateau-express", g, replace(near, service_seconds=0.004, connection_bytes_per_second=150 * MB), 8 * GiB, noise(0.05, 0.10, 0.03), nominal_nic_bytes_per_second=1.25e9),
        downloading("plateau-noisy", g, replace(near, nic_bytes_per_second=800 * MB), 4 * GiB, noise(0.15, 0.28, 0.08)),
    ]  # fmt: skip


def _off_model() -> list[Surface]:
    near = replace(NEAR, nic_bytes_per_second=900 * MB)
    table = {1: 10.2, 2: 20.0, 3: 29.6, 4: 37.6, 6: 46.5, 8: 51.5, 16: 49.0, 64: 44.0}
    return [
        _off("get-two-humps", GiB, two_humps(GiB, 6.0, 90.0, (1.0, 0.86)), noise(0.05, 0.12, 0.04)),
        _off("get-proxy-24", 2 * GiB, proxied(Download(near, 2 * GiB), 24, 0.35), noise(0.05, 0.12, 0.04)),
        _off("get-table-plain", GiB, tabled(GiB, table), noise(0.05, 0.10, 0.04), thread_count_max=128, part_size_bytes=16 * MiB),
        _off("get-field-smooth", GiB, random_field(GiB, 3, roughness=0.35, height=0.8), noise(0.05, 0.12, 0.03)),
        _off("get-field-rugged", GiB, random_field(GiB, 4, roughness=0.7, height=0.5), noise(0.05, 0.12, 0.03)),
        _off("get-resonance", 4 * GiB, resonating(Download(near, 4 * GiB), 0.30), noise(0.05, 0.12, 0.04)),
    ]  # fmt: skip


def _off(*row: Any, **rest: Any) -> Surface:
    return replace(off(*row, **rest), transfer=DOWNLOADING)


DOWNLOADS = Suite(NEAR, AWAY, downloading, lambda: (_calibrated(), _generic(), _flat(), _off_model()))
