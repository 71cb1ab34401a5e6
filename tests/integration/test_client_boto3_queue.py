"""The SQS consumer over HTTP, with boto3 and the lab's SQS."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.client.queues.boto3_queue import QueueConsumer
from penstock.lab.worlds import NEAR
from penstock.trial.stage import lab_endpoint
from tests.integration.stopping import (
    Stopping,
    test_a_stop_gives_back_what_is_in_hand,  # noqa: F401 - of this queue
    test_a_stop_waits_for_no_long_poll,  # noqa: F401 - likewise
)
from tests.real.servers import plain_client
from tests.unit.client.test_boto3_queue import advice


@pytest.fixture
def stopping(tmp_path: Path) -> Iterator[Stopping]:
    """A queue of the lab."""
    with lab_endpoint("sqs", NEAR, tmp_path) as url:
        one = Stopping(plain_client("sqs", url), tmp_path)
        yield one
        one.close()


def test_a_group_keeps_its_order_when_a_message_of_it_cannot_be_handled(tmp_path: Path) -> None:
    """What follows it in the same receive waits for it; another group does not."""
    handled: list[str] = []
    with lab_endpoint("sqs", NEAR, tmp_path) as url:
        client = plain_client("sqs", url)
        attributes = {"FifoQueue": "true", "VisibilityTimeout": "1"}
        queue_url = client.create_queue(QueueName="ordered.fifo", Attributes=attributes)["QueueUrl"]
        for name in ("a1", "a2", "a3", "b1", "b2"):
            client.send_message(
                QueueUrl=queue_url, MessageBody=name, MessageGroupId=name[0], MessageDeduplicationId=name
            )

        def handle(message: Mapping[str, Any]) -> None:
            handled.append(message["Body"])
            if len(handled) == 6:
                consumer.stop()
            if handled.count("a1") == 1 and message["Body"] == "a1":
                raise ValueError("not yet")

        consumer = QueueConsumer(client, queue_url, handle, advice=advice(), long_poll_seconds=1)
        limit = threading.Timer(60.0, consumer.stop)
        limit.start()
        consumer.run()
        limit.cancel()
        client.close()
    assert [name for name in handled if name[0] == "a"] == ["a1", "a1", "a2", "a3"]
    assert [name for name in handled if name[0] == "b"] == ["b1", "b2"]
