"""One running daemon, and everything that S3, SQS and the way to them can do wrong, one after another.

Of each fault it shows the same: the socket answers while it lasts, nothing unforeseen happens in the daemon, and
once it is over the operation is measured again. What all of them together left outside is gone in the end.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client.connection import ask
from penstock.trial.stage import Process
from tests.daemon_house import DaemonHouse
from tests.real.far_away import CONFIGURATION
from tests.real.fault_proxy import FaultProxy, faulty_ways
from tests.real.servers import plain_client

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1200)]

PATIENCE = """connect_timeout_seconds = "1s"
read_timeout_seconds = "3s"
"""
SIZES = {"s3_upload": 24 << 20, "s3_download": 24 << 20, "sqs_delivery": 1024}
WAIT_SECONDS_MAX = 150.0  # a service that was silent is swept and probed again within minutes


@dataclass(frozen=True)
class Service:
    """A running daemon, and the two ways to what it probes."""

    house: DaemonHouse
    running: Process
    proxies: dict[str, FaultProxy]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, s3_url: str, sqs_url: str) -> Iterator[Service]:
    """Of all tests here; at its end nothing is outside any more."""
    directory, bucket = tmp_path_factory.mktemp("faults"), f"faults-{time.time_ns()}"
    plain_client("s3", s3_url).create_bucket(Bucket=bucket)
    configuration = CONFIGURATION.replace("[probes.s3_upload]", PATIENCE + "[probes.s3_upload]")
    configuration = configuration.replace('"0.3s"', '"30d"')  # what is asked for is what is probed
    with faulty_ways(
        directory, s3_url, sqs_url, bucket, configuration=configuration, wait_seconds_max=WAIT_SECONDS_MAX
    ) as (house, ways):
        with house.daemon() as running:
            for operation in SIZES:
                probed_until(house, operation, lambda cycles: any(c["is_conclusive"] for c in cycles))
            yield Service(house, running, ways)
        house.swept_by_next_life("s3_upload", "24MiB")


@dataclass(frozen=True)
class Row:
    """A fault of some requests of an operation, and what the daemon says of it; empty: it measures all the same."""

    operation: str
    requests: str
    fault: str | tuple[int, str]
    says: str = ""


ROWS = [
    Row("s3_upload", "UploadPart", (500, "InternalError"), "InternalError"),
    Row("s3_upload", "UploadPart", (503, "SlowDown"), "fewer requests"),
    Row("s3_upload", "UploadPart", (400, "BadDigest"), "BadDigest"),
    Row("s3_upload", "UploadPart", "reset", "before the answer"),
    Row("s3_upload", "UploadPart", "silence", "allow more time"),
    Row("s3_upload", "UploadPart", "wrong tag", "1 failed"),
    Row("s3_upload", "CreateMultipartUpload", "truncated", "before the answer"),
    Row("s3_upload", "CompleteMultipartUpload", "reset", "1 failed"),
    Row("s3_upload", "Delete", (500, "InternalError")),
    Row("s3_upload", "*", (400, "ExpiredToken"), "session token has expired"),
    Row("s3_upload", "*", "silence", "did not answer the start of an upload"),
    Row("s3_download", "GetObject", (500, "InternalError"), "InternalError"),
    Row("s3_download", "GetObject", (503, "SlowDown"), "fewer requests"),
    Row("s3_download", "GetObject", "truncated", "payload is not completed"),
    Row("s3_download", "GetObject", "silence", "no answer in time"),
    Row("sqs_delivery", "ReceiveMessage", "twice"),
    Row("sqs_delivery", "ReceiveMessage", "late"),
    Row("sqs_delivery", "ReceiveMessage", "out of order"),
    Row("sqs_delivery", "ReceiveMessage", "truncated", "before the answer"),
    Row("sqs_delivery", "ReceiveMessage", "silence"),
    Row("sqs_delivery", "DeleteMessage", (400, "ReceiptHandleIsInvalid"), "ReceiptHandleIsInvalid"),
    Row("sqs_delivery", "SendMessage", (500, "InternalError"), "InternalError"),
    Row("sqs_delivery", "SendMessage", (503, "ServiceUnavailable"), "fewer requests"),
    Row("sqs_delivery", "SendMessage", "reset", "before the answer"),
    Row("sqs_delivery", "*", (400, "ExpiredToken"), "session token has expired"),
    Row("sqs_delivery", "*", "silence", "in time"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r.operation}-{r.requests}-{r.fault}")
def test_it_lives_through(row: Row, service: Service) -> None:
    """It answers meanwhile, says what is wrong, and measures again when that is over."""
    house, proxy = service.house, service.proxies[row.operation.partition("_")[0]]
    faults = proxy.truth.faults
    with failing(proxy, row):
        probed_until(
            house,
            row.operation,
            lambda cycles: proxy.truth.faults > faults and any(row.says in c["sentence"] for c in cycles),
        )
        assert house.advice(row.operation, str(SIZES[row.operation]))["setting"]
    probed_until(house, row.operation, lambda cycles: any(c["is_conclusive"] for c in cycles))
    service.running.check()


def probed_until(
    house: DaemonHouse, operation: str, holds: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    """The cycles of the operation that ended since, once this holds of them; a probe is asked for until then."""
    began, document = datetime.now(UTC), {"operation": operation, "payload_size_bytes": SIZES[operation]}
    asked = 0

    def is_done(status: dict[str, Any]) -> bool:
        nonlocal asked
        found[:] = [
            cycle
            for cycle in status["cycles"]
            if cycle["operation"] == operation and datetime.fromisoformat(cycle["at"]) > began
        ]
        if holds(found):
            return True
        if status["leftover_count"]:  # as an operator would; by itself it tries again ever more seldom
            ask(str(house.socket_path), "DELETE", "/v1/leftovers", timeout_seconds=60.0)
        if status["activity"] == "idle" and asked <= len(found):
            answer = ask(str(house.socket_path), "POST", "/v1/probe", body=json.dumps(document).encode())
            assert answer.status == 202, answer
            asked += 1
        return False

    found: list[dict[str, Any]] = []
    try:
        house.wait_for(is_done)
    except AssertionError:
        raise AssertionError("\n".join(c["sentence"] for c in found) or "no cycle ended") from None
    return found


@contextlib.contextmanager
def failing(proxy: FaultProxy, row: Row) -> Iterator[None]:
    """As long as the context lasts."""
    if isinstance(row.fault, tuple):
        proxy.refuse = (row.requests, *row.fault)
    else:
        proxy.spoil = (row.requests, row.fault)
    try:
        yield
    finally:
        proxy.refuse = proxy.spoil = None
