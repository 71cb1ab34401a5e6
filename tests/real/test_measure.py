"""The published collapse, its prevention and its rescue on ElasticMQ, within a minute."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.trial.stage import CREDENTIALS
from tests.real.servers import REGION, plain_client

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the build


def measured(url: str, mode: str, seconds: int) -> dict[str, Any]:
    """One mode with twenty delete requests a second, whoever makes them."""
    words = ["measure", "sqs-delivery", "--endpoint-url", url, "--region", REGION, "--mode", mode]
    slow = [
        "--throttle-deletes",
        "20",
        "--rate",
        "40",
        "--visibility-timeout",
        "3s",
        "--seconds",
        f"{seconds}s",
    ]
    result = CliRunner().invoke(cli, [*words, *slow, "--json"], env=CREDENTIALS)
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)["results"]
    assert isinstance(found, dict)
    return found


def test_a_collapse_is_rescued_for_real(sqs_url: str) -> None:
    """Copies come back and deletes achieve nothing, until the rescue; then all that is sent is deleted again."""
    found = measured(sqs_url, "rescued", 28)
    assert found["collapsed_after_seconds"] is not None
    assert found["duplicate_count"] > 50
    assert found["deleted_in_vain_count"] > 50
    assert found["recovered_after_seconds"] is not None
    assert found["last_duplicates_per_second"] == 0.0
    assert found["last_goodput_messages_per_second"] > 30.0
    left = plain_client("sqs", sqs_url).list_queues(QueueNamePrefix="penstock-measure")
    assert not left.get("QueueUrls")


def test_advice_prevents_it_for_real(sqs_url: str) -> None:
    """At twice what the deleter can do one by one, batches carry it all, and no message comes twice."""
    found = measured(sqs_url, "advised", 10)
    assert found["duplicate_count"] == 0
    assert found["collapsed_after_seconds"] is None
    assert found["goodput_messages_per_second"] > 30.0
    assert found["conduct"]["delete_batch"] > 2
