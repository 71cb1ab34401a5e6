"""Knows what is told to clients that others wrote, the path that they are told it on, and what a server then counts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import translate
from penstock.lab.link import LinkTruth
from penstock.trial.stage import CREDENTIALS
from penstock.units import MiB
from tests.programs import printed
from tests.real import servers
from tests.real.fault_proxy import Truth

PATH = LinkTruth(  # a request takes long beside what a busy machine delays it, so that all that may go is under way
    round_trip_seconds=0.02,
    connection_rate_bytes_per_second=20e6,
    host_rate_bytes_per_second=1e9,
    service_latency_seconds_median=0.5,
)
SIZE, PART, PART_COUNT = 42 * MiB, 6 * MiB, 7
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
    **CREDENTIALS,
    "AWS_REGION": servers.REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}


def advice(operation: str, thread_count: int, size: int, **derived: float) -> dict[str, Any]:
    """As the socket answers."""
    knob = {"s3_upload": "part_size_bytes", "s3_download": "range_size_bytes"}[operation]
    return {
        "payload_size_bytes": SIZE,
        "setting": {"thread_count": thread_count, knob: size},
        "derived": {"connection_pool_count": thread_count + 1, **derived},
        "demand": {"object_count": 1},
    }


def exported(target: str, document: dict[str, Any]) -> list[str]:
    """The lines of its usual form."""
    row = TARGETS[target]
    return next(iter(row.writers.values()))(translate(row, document))


def python(program: str, packages: Sequence[Path], *words: str, **environment: str) -> None:
    """Run a program of Python, with these packages that others wrote."""
    paths = ":".join(map(str, packages))
    printed([sys.executable, "-c", program, *words], env={**ENVIRONMENT, "PYTHONPATH": paths, **environment})


def asserted_parts(truth: Truth, thread_count: int) -> None:
    """As many parts as advised, as many at once, and no connection beyond those."""
    assert truth.counts["UploadPart"] == PART_COUNT
    assert truth.at_once_max["UploadPart"] == thread_count
    assert len(truth.connections) <= thread_count + 1


def asserted_ranges(truth: Truth, count: int, thread_count: int) -> None:
    """The same of reading; connections are those of both ways."""
    assert truth.counts["GetObject"] == count
    assert truth.at_once_max["GetObject"] == thread_count
