"""Unmodified clients against the lab's SQS over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import aiohttp
import boto3
import pytest
from aiobotocore.session import get_session
from botocore.config import Config
from botocore.exceptions import ClientError

from penstock.clock import SystemClock
from penstock.lab.http_sqs import sqs_application
from penstock.lab.server import serving
from penstock.lab.sqs import ActionTruth, QueueTruth, SqsService

ResultT = TypeVar("ResultT")

AT_ONCE = ActionTruth(request_seconds=0.0, variation=0.0)
ACCOUNT = {
    "aws_access_key_id": "lab",
    "aws_secret_access_key": "lab",  # the lab checks no signature
    "region_name": "us-east-1",
}


@contextlib.asynccontextmanager
async def an_sqs(send: ActionTruth = AT_ONCE) -> AsyncIterator[str]:
    """Serve an SQS that answers at once."""
    truth = QueueTruth(send=send, receive=AT_ONCE, delete=AT_ONCE)
    async with serving(sqs_application(SqsService(truth, clock=SystemClock(), seed=0))) as endpoint_url:
        yield endpoint_url


# The client's type is made at run time by boto3.
async def with_boto3(endpoint_url: str, story: Callable[[Any, str], ResultT]) -> ResultT:
    """Tell the story with a boto3 client and a queue of its own, in a thread of its own."""

    def tell() -> ResultT:
        config = Config(retries={"total_max_attempts": 1})
        client = boto3.client("sqs", endpoint_url=endpoint_url, config=config, **ACCOUNT)
        with contextlib.closing(client):
            url = client.create_queue(QueueName="q", Attributes={"VisibilityTimeout": "8"})["QueueUrl"]
            return story(client, url)

    return await asyncio.to_thread(tell)


async def test_boto3_sends_receives_and_deletes() -> None:
    """Bodies, attributes and MD5s survive the way; deletes in a batch answer for each entry."""

    def story(sqs: Any, url: str) -> list[object]:
        attribute = {"kind": {"DataType": "String", "StringValue": "greeting"}}
        sqs.send_message(QueueUrl=url, MessageBody="héllo", MessageAttributes=attribute)
        entries = [{"Id": str(n), "MessageBody": f"m{n}"} for n in range(9)]
        sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        messages: list[Any] = []
        while len(messages) < 10:
            answer = sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=1,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )
            messages += answer["Messages"]
        first = next(message for message in messages if message["Body"] == "héllo")
        handles = [message["ReceiptHandle"] for message in messages]
        batch = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate([*handles[1:], "bad"])]
        deleted = sqs.delete_message_batch(QueueUrl=url, Entries=batch)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=handles[0])
        counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return [
            len(sent["Successful"]),
            first["MessageAttributes"],
            first["Attributes"],
            len(deleted["Successful"]),
            [failure["Code"] for failure in deleted["Failed"]],
            counts["VisibilityTimeout"],
            counts["ApproximateNumberOfMessagesNotVisible"],
            sqs.receive_message(QueueUrl=url).get("Messages"),
        ]

    attribute = {"kind": {"DataType": "String", "StringValue": "greeting"}}
    async with an_sqs() as endpoint_url:
        seen = await with_boto3(endpoint_url, story)
    assert seen == [
        9,
        attribute,
        {"ApproximateReceiveCount": "1"},
        9,
        ["ReceiptHandleIsInvalid"],
        "8",
        "0",
        None,
    ]


async def test_errors_reach_boto3_by_their_codes() -> None:
    """Missing queues, full and doubled batches and bad numbers are what SQS says."""

    def story(sqs: Any, url: str) -> list[str]:
        entry = {"Id": "a", "MessageBody": "x"}
        requests: list[Callable[[], object]] = [
            lambda: sqs.get_queue_url(QueueName="nobody"),
            lambda: sqs.send_message(QueueUrl=url + "x", MessageBody="x"),
            lambda: sqs.send_message_batch(QueueUrl=url, Entries=[entry, entry]),
            lambda: sqs.send_message_batch(
                QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "x"} for n in range(11)]
            ),
            lambda: sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=11),
            lambda: sqs.delete_message(QueueUrl=url, ReceiptHandle="bad"),
            lambda: sqs.send_message(QueueUrl=url, MessageBody="x" * 1_048_577),
            lambda: sqs.create_queue(QueueName="q", Attributes={"VisibilityTimeout": "9"}),
            lambda: sqs.create_queue(QueueName="r", Attributes={"VisibilityTimeout": "half a minute"}),
            lambda: sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "901"}),
        ]
        codes = []
        for request in requests:
            with pytest.raises(ClientError) as caught:
                request()
            codes.append(caught.value.response["Error"]["Code"].rpartition(".")[2])
        return codes

    async with an_sqs() as endpoint_url:
        codes = await with_boto3(endpoint_url, story)
    assert codes == [
        "NonExistentQueue",
        "NonExistentQueue",
        "BatchEntryIdsNotDistinct",
        "TooManyEntriesInBatchRequest",
        "InvalidParameterValue",
        "ReceiptHandleIsInvalid",
        "BatchRequestTooLong",
        "QueueAlreadyExists",
        "InvalidAttributeValue",
        "InvalidAttributeValue",
    ]


async def test_a_missing_queue_has_its_own_exception() -> None:
    """boto3 finds its modelled exception for a queue that is gone."""

    def story(sqs: Any, url: str) -> None:
        sqs.delete_queue(QueueUrl=url)
        with pytest.raises(sqs.exceptions.QueueDoesNotExist):
            sqs.purge_queue(QueueUrl=url)

    async with an_sqs() as endpoint_url:
        await with_boto3(endpoint_url, story)


async def test_throttling_reaches_boto3() -> None:
    """Above the request limit the client sees RequestThrottled."""

    def story(sqs: Any, url: str) -> str:
        sqs.send_message(QueueUrl=url, MessageBody="x")
        with pytest.raises(ClientError) as caught:
            sqs.send_message(QueueUrl=url, MessageBody="x")
        return str(caught.value.response["Error"]["Code"])

    limited = ActionTruth(request_seconds=0.0, variation=0.0, request_rate_per_second_max=0.001)
    async with an_sqs(limited) as endpoint_url:
        assert await with_boto3(endpoint_url, story) == "RequestThrottled"


async def test_aiobotocore_waits_for_a_message() -> None:
    """A long poll of the client that penstock's probes use is answered when a message is sent."""
    async with (
        an_sqs() as endpoint_url,
        get_session().create_client("sqs", endpoint_url=endpoint_url, **ACCOUNT) as sqs,
    ):
        url = (await sqs.create_queue(QueueName="q"))["QueueUrl"]
        assert (await sqs.list_queues(QueueNamePrefix="q"))["QueueUrls"] == [url]
        receive = asyncio.create_task(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20))
        await sqs.send_message(QueueUrl=url, MessageBody="hello")
        (message,) = (await receive)["Messages"]
        await sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
        (again,) = (await sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1))["Messages"]
        assert (again["MessageId"], again["Body"]) == (message["MessageId"], "hello")
        assert again["ReceiptHandle"] != message["ReceiptHandle"]


QUEUE = b'{"QueueName": "q", "Attributes": {"DelaySeconds": %s}}'


@pytest.mark.parametrize(
    ("target", "body", "kind"),
    [
        ("AmazonSQS.SendMessage", b"not json", "SerializationException"),
        ("AmazonSQS.SendMessage", b"[]", "SerializationException"),
        ("AmazonSQS.SendMessage", b"{}", "MissingParameter"),
        ("AmazonSQS.Nonsense", b"{}", "UnsupportedOperation"),
        ("AmazonSQS.CreateQueue", QUEUE % b"null", "InvalidAttributeValue"),
        ("AmazonSQS.CreateQueue", QUEUE % (b'"%s"' % (5000 * b"9")), "InvalidAttributeValue"),
    ],
)
async def test_nonsense_is_refused_and_not_a_crash(target: str, body: bytes, kind: str) -> None:
    """Whatever is sent, the answer is a 400 with a code."""
    async with (
        an_sqs() as endpoint_url,
        aiohttp.ClientSession() as session,
        session.post(endpoint_url, data=body, headers={"X-Amz-Target": target}) as response,
    ):
        assert response.status == 400
        assert (await response.json(content_type=None))["__type"].endswith(kind)
