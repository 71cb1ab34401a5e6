"""What is seen of one transfer is said of that one."""

from __future__ import annotations

from penstock.client.transfers.observed import Observed
from tests.sdk import KeptReports, a_meta


class Client:
    """A client of botocore, as far as it is listened to."""

    meta = a_meta()


def report(observed: Observed, to: KeptReports) -> None:
    observed.report(to, 1, {"thread_count": 1}, transferred_bytes=1, client="boto3")


def test_transfers_that_are_mixed_are_no_evidence() -> None:
    """Through one client into one bucket: one would be said to have made all requests, the other none."""
    client, collected = Client(), KeptReports()
    with Observed(client, "bucket") as first, Observed(client, "bucket") as second:
        pass
    report(first, collected)
    report(second, collected)
    assert collected.reports == []


def test_transfers_that_can_be_told_apart_are_reported() -> None:
    """One after another, into different buckets, or of different keys."""
    client, collected = Client(), KeptReports()
    with Observed(client, "bucket") as first, Observed(client, "other") as second:
        pass
    with Observed(client, "bucket", "key") as third, Observed(client, "bucket") as fourth:
        pass
    for observed in (first, second, third, fourth):
        report(observed, collected)
    assert len(collected.reports) == 4
