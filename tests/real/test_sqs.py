"""The SQS client and probe against ElasticMQ with strict limits: handles, limits, empty receives and copies."""

import contextlib
import uuid
from collections.abc import AsyncIterator

import pytest

from penstock.probes.aws.access import Access, Credentials
from penstock.probes.aws.queues import AwsMessageQueues, open_message_queues
from penstock.probes.outside import Missing, ReceivedMessage, Refused
from penstock.units import MiB
from tests.real.servers import REGION, plain_client
from tests.seams import deliveries_are_measured, messages_come_and_go

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the build


@contextlib.asynccontextmanager
async def queues_at(url: str) -> AsyncIterator[AwsMessageQueues]:
    key = Credentials(access_key="any", secret_key="any")  # noqa: S106  # this server checks none
    async with open_message_queues(Access(region=REGION, endpoint_url=url, credentials=key)) as queues:
        yield queues


@contextlib.asynccontextmanager
async def a_queue(url: str, **attributes: str) -> AsyncIterator[tuple[AwsMessageQueues, str]]:
    """A queue of the test's own."""
    async with queues_at(url) as queues:
        queue_url = await queues.create_queue(f"real-{uuid.uuid4().hex[:12]}", attributes)
        try:
            yield queues, queue_url
        finally:
            await queues.delete_queue(queue_url)


async def receive_one(queues: AwsMessageQueues, url: str) -> ReceivedMessage:
    (message,) = await queues.receive(url, message_count_max=1, wait_seconds=10)
    return message


async def test_messages_come_and_go(sqs_url: str) -> None:
    """What is sent alone or in a batch is received with its text, and is gone after its deletion."""
    async with queues_at(sqs_url) as queues:
        await messages_come_and_go(queues)


async def test_an_empty_receive_is_an_empty_list(sqs_url: str) -> None:
    """Some servers answer an empty list, others leave it out: both mean no message."""
    async with a_queue(sqs_url) as (queues, url):
        raw = plain_client("sqs", sqs_url).receive_message(QueueUrl=url)
        assert raw["Messages"] == []
        assert await queues.receive(url, message_count_max=10, wait_seconds=0) == []


async def test_an_old_receipt_handle_is_refused(sqs_url: str) -> None:
    """A copy that came back has a new handle; the old one deletes nothing, alone or in a batch."""
    async with a_queue(sqs_url, VisibilityTimeout="1") as (queues, url):
        await queues.send(url, ["message"])
        first = await receive_one(queues, url)
        again = await receive_one(queues, url)

        assert again.message_id == first.message_id
        assert again.receipt_handle != first.receipt_handle
        with pytest.raises(Refused, match="ReceiptHandleIsInvalid"):
            await queues.delete(url, [first.receipt_handle])
        with pytest.raises(Refused, match="ReceiptHandleIsInvalid"):
            await queues.delete(url, [first.receipt_handle, first.receipt_handle])
        newest = await receive_one(queues, url)
        assert await queues.delete(url, [first.receipt_handle, newest.receipt_handle]) == 1


async def test_what_is_over_a_limit_is_refused_in_words(sqs_url: str) -> None:
    """Eleven in a batch, a message over 1 MiB, a poll over 20 s, eleven to receive: each is Refused."""
    async with a_queue(sqs_url) as (queues, url):
        with pytest.raises(Refused, match="TooManyEntriesInBatchRequest"):
            await queues.send(url, ["x"] * 11)
        with pytest.raises(Refused, match="MessageTooLong"):
            await queues.send(url, ["x" * (MiB + 1)])
        with pytest.raises(Refused, match="WaitTimeSeconds"):
            await queues.receive(url, message_count_max=1, wait_seconds=21)
        with pytest.raises(Refused, match="MaxNumberOfMessages"):
            await queues.receive(url, message_count_max=11, wait_seconds=0)


async def test_a_queue_that_is_not_there_is_missing(sqs_url: str) -> None:
    """By name and by URL."""
    async with a_queue(sqs_url) as (queues, url):
        with pytest.raises(Missing):
            await queues.find_queue("no-such-queue")
        with pytest.raises(Missing):
            await queues.send(f"{url}-gone", ["x"])


async def test_a_fifo_queue_keeps_a_group_in_order_for_one_receiver_at_a_time(sqs_url: str) -> None:
    """The groups and deduplication ids that we send are those that another server goes by."""
    name = f"real-{uuid.uuid4().hex[:12]}.fifo"
    async with queues_at(sqs_url) as queues:
        url = await queues.create_queue(name, {"FifoQueue": "true", "VisibilityTimeout": "60"})
        try:
            assert await queues.send(url, ["a1", "a2", "b1"], group_ids=["a", "a", "b"]) == 3
            assert await queues.send(url, ["a1"], group_ids=["a"]) == 1  # again: stores nothing
            first = await receive_one(queues, url)
            other = await receive_one(queues, url)
            assert {first.body, other.body} == {"a1", "b1"}
            assert await queues.receive(url, message_count_max=10, wait_seconds=0) == []
            await queues.delete(url, [first.receipt_handle, other.receipt_handle])
            rest = await queues.receive(url, message_count_max=10, wait_seconds=5)
            assert [message.body for message in rest] == ["a2"]
        finally:
            await queues.delete_queue(url)


@pytest.mark.parametrize(("batch", "service_class"), [(1, "standard"), (10, "standard"), (10, "fifo")])
async def test_the_probe_delivers_every_message_once_and_removes_its_queue(
    sqs_url: str, batch: int, service_class: str
) -> None:
    """Against strict handles and limits: no failure, no copy, nothing left."""
    async with queues_at(sqs_url) as queues:
        await deliveries_are_measured(queues, batch, service_class)
