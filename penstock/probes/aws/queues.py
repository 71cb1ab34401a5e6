"""Knows how to make requests to SQS with aiobotocore."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from botocore.parsers import ResponseParserError

from penstock.probes.aws.access import Access
from penstock.probes.aws.answers import must_have, raise_first, translated
from penstock.probes.aws.client import open_client
from penstock.probes.outside import ReceivedMessage

_NUMBERS = frozenset(
    {"VisibilityTimeout", "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"}
)


@contextlib.asynccontextmanager
async def open_message_queues(access: Access) -> AsyncIterator[AwsMessageQueues]:
    """SQS, over a client of its own. Raises Denied when there are no usable credentials."""
    async with open_client("sqs", access) as client:
        yield AwsMessageQueues(client)


class AwsMessageQueues:
    """SQS as probes use it, over one aiobotocore client."""

    def __init__(self, client: Any) -> None:  # Any: aiobotocore makes its clients at run time
        self._client = client

    async def create_queue(self, name: str, attributes: Mapping[str, str]) -> str:
        with translated(f"creating the queue {name}"):
            answer = await self._client.create_queue(QueueName=name, Attributes=dict(attributes))
            return str(answer["QueueUrl"])

    async def find_queue(self, name: str) -> str:
        with translated(f"looking for the queue {name}"):
            answer = await self._client.get_queue_url(QueueName=name)
            return str(answer["QueueUrl"])

    async def list_queues(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, MaxResults=1000)
        with translated("listing the queues"):
            return [url.rsplit("/", 1)[-1] async for page in pages for url in page.get("QueueUrls", [])]

    async def delete_queue(self, url: str) -> None:
        """DeleteQueue; the name cannot be used again for 60 s."""
        with translated("deleting the queue"):
            await self._client.delete_queue(QueueUrl=url)

    async def queue_attributes(self, url: str) -> dict[str, str]:
        with translated("reading the queue's attributes"):
            answer = await self._client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
            told = {str(name): str(value) for name, value in answer.get("Attributes", {}).items()}
            for name in _NUMBERS & told.keys():
                if not told[name].isdecimal():
                    raise ResponseParserError(f"{name} is {told[name]!r}")
            return told

    async def send(self, url: str, bodies: Sequence[str], *, group_ids: Sequence[str] = ()) -> int:
        messages = [{"MessageBody": body} for body in bodies]
        if group_ids:
            messages = [
                message
                | {"MessageGroupId": group_id, "MessageDeduplicationId": _digest(message["MessageBody"])}
                for message, group_id in zip(messages, group_ids, strict=True)
            ]
        with translated("sending to the queue"):
            if len(messages) == 1:
                must_have("MessageId", await self._client.send_message(QueueUrl=url, **messages[0]))
                return 1
            entries = [{"Id": str(index), **message} for index, message in enumerate(messages)]
            answer = await self._client.send_message_batch(QueueUrl=url, Entries=entries)
            return _accepted_count(answer, "sending to the queue")

    async def receive(self, url: str, *, message_count_max: int, wait_seconds: int) -> list[ReceivedMessage]:
        """Receive at most `message_count_max` messages; returns none after `wait_seconds` without any."""
        with translated("receiving from the queue"):
            answer = await self._client.receive_message(
                QueueUrl=url, MaxNumberOfMessages=message_count_max, WaitTimeSeconds=wait_seconds
            )
            return [
                ReceivedMessage(
                    message_id=str(m["MessageId"]),
                    receipt_handle=str(m["ReceiptHandle"]),
                    body=str(m["Body"]),
                )
                for m in answer.get("Messages", [])
            ]

    async def delete(self, url: str, receipt_handles: Sequence[str]) -> int:
        with translated("deleting messages"):
            if len(receipt_handles) == 1:
                await self._client.delete_message(QueueUrl=url, ReceiptHandle=receipt_handles[0])
                return 1
            entries = [
                {"Id": str(index), "ReceiptHandle": handle} for index, handle in enumerate(receipt_handles)
            ]
            answer = await self._client.delete_message_batch(QueueUrl=url, Entries=entries)
            return _accepted_count(answer, "deleting messages")


def _digest(body: str) -> str:
    """A deduplication id: a digest of the body, within the 128 characters that SQS allows."""
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()


def _accepted_count(answer: Mapping[str, Any], doing: str) -> int:
    """How many entries of a batch were accepted. Raises the error of the first entry if none was."""
    accepted_count, failures = len(answer.get("Successful", [])), answer.get("Failed", [])
    if accepted_count == 0:
        raise_first(failures, 400 if failures and failures[0].get("SenderFault") else 500, doing)
    return accepted_count
