"""The SQS consumer over HTTP, with boto3 and the lab's SQS."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.lab.worlds import NEAR
from penstock.trial.stage import lab_endpoint
from tests.integration.stopping import Stopping, stop_while_it_waits, stop_with_messages_in_hand
from tests.real.servers import plain_client


@pytest.fixture
def stopping(tmp_path: Path) -> Iterator[Stopping]:
    """A queue of the lab."""
    with lab_endpoint("sqs", NEAR, tmp_path) as url:
        one = Stopping(plain_client("sqs", url), tmp_path)
        yield one
        one.close()


def test_a_stop_gives_back_what_is_in_hand(stopping: Stopping) -> None:
    """Nobody else waits for the visibility timeout."""
    stop_with_messages_in_hand(stopping)


def test_a_stop_waits_for_no_long_poll(stopping: Stopping) -> None:
    """Nor is lost what a poll brings that was left behind."""
    stop_while_it_waits(stopping)
