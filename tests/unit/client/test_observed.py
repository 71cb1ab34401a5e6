"""What is seen of one transfer is said of that one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from penstock.client.reporting import Reporter
from penstock.client.transfers.observed import Observed


class Client:
    """A client of botocore, as far as it is listened to."""

    meta = SimpleNamespace(
        region_name="eu-west-1",
        events=SimpleNamespace(register=lambda *_: None, register_first=lambda *_: None),
    )


class Collected:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.reports: list[Any] = []
        self.named: list[dict[str, object]] = []

    def report(self, *args: object, **named: object) -> None:
        self.reports.append(args)
        self.named.append(named)


def report(observed: Observed, to: Collected) -> None:
    observed.report(cast("Reporter", to), 1, {"thread_count": 1}, transferred_bytes=1, client="boto3")


def test_transfers_that_are_mixed_are_no_evidence() -> None:
    """Through one client into one bucket: one would be said to have made all requests, the other none."""
    client, collected = Client(), Collected()
    with Observed(client, "bucket") as first, Observed(client, "bucket") as second:
        pass
    report(first, collected)
    report(second, collected)
    assert collected.reports == []


def test_transfers_that_can_be_told_apart_are_reported() -> None:
    """One after another, into different buckets, or of different keys."""
    client, collected = Client(), Collected()
    with Observed(client, "bucket") as first, Observed(client, "other") as second:
        pass
    with Observed(client, "bucket", "key") as third, Observed(client, "bucket") as fourth:
        pass
    for observed in (first, second, third, fourth):
        report(observed, collected)
    assert len(collected.reports) == 4
