"""Knows how SQS speaks HTTP: serves the lab's SQS to unmodified clients, in JSON, without checking signatures."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from aiohttp import web

from penstock.lab.sqs import BATCH_MESSAGE_COUNT_MAX, Copy, Sending, SqsError, SqsService, md5_of, message_id
from penstock.units import MiB

# JSON as sent by SDKs (Any: its form depends on the action).
Document: TypeAlias = dict[str, Any]
Action: TypeAlias = Callable[["_Call"], Awaitable[Document]]

_ACCOUNT = "000000000000"
_REQUEST_BYTES_MAX = 4 * MiB
_QUERY_CODES = {  # codes with another name in the older protocol, which SDKs still show
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "EmptyBatchRequest": "AWS.SimpleQueueService.EmptyBatchRequest",
    "TooManyEntriesInBatchRequest": "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
    "BatchEntryIdsNotDistinct": "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
    "BatchRequestTooLong": "AWS.SimpleQueueService.BatchRequestTooLong",
    "MessageNotInflight": "AWS.SimpleQueueService.MessageNotInflight",
}


def sqs_application(service: SqsService) -> web.Application:
    """The web application that serves this SQS."""
    face = _Face(service)
    application = web.Application(client_max_size=_REQUEST_BYTES_MAX)
    application.router.add_route("*", "/{path:.*}", face.answer)
    return application


class _Call:
    """The document of one request, with checks as in SQS. Methods raise SqsError."""

    def __init__(self, document: Document, base_url: str) -> None:
        self._document = document
        self._base_url = base_url

    def text(self, name: str) -> str:
        value = self._document.get(name)
        if not isinstance(value, str):
            raise SqsError("MissingParameter", f"the request needs {name}")
        return value

    def get(self, name: str, default: Any = None) -> Any:
        return self._document.get(name, default)

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        value = self._document.get(name, default)
        if not isinstance(value, int) or not low <= value <= high:
            raise SqsError("InvalidParameterValue", f"{name} goes from {low} to {high}")
        return value

    def optional_seconds(self, name: str, high: int) -> float | None:
        return None if self._document.get(name) is None else float(self.integer(name, 0, 0, high))

    @property
    def queue_name(self) -> str:
        return self.text("QueueUrl").rstrip("/").rsplit("/", 1)[-1]

    @property
    def entries(self) -> Sequence[_Call]:
        entries = self._document.get("Entries") or []
        if not entries:
            raise SqsError("EmptyBatchRequest", "a batch needs an entry")
        if len(entries) > BATCH_MESSAGE_COUNT_MAX:
            raise SqsError("TooManyEntriesInBatchRequest", f"a batch holds {BATCH_MESSAGE_COUNT_MAX} at most")
        if len({entry.get("Id") for entry in entries}) < len(entries):
            raise SqsError("BatchEntryIdsNotDistinct", "two entries have the same id")
        return [_Call(entry, self._base_url) for entry in entries]

    def queue_url(self, name: str) -> str:
        return f"{self._base_url}/{_ACCOUNT}/{name}"


class _Face:
    def __init__(self, service: SqsService) -> None:
        self._service = service
        self._actions: dict[str, Action] = {
            "CreateQueue": self._create_queue,
            "GetQueueUrl": self._get_queue_url,
            "ListQueues": self._list_queues,
            "DeleteQueue": self._delete_queue,
            "PurgeQueue": self._purge_queue,
            "GetQueueAttributes": self._get_queue_attributes,
            "SetQueueAttributes": self._set_queue_attributes,
            "SendMessage": self._send_message,
            "SendMessageBatch": self._send_message_batch,
            "ReceiveMessage": self._receive_message,
            "DeleteMessage": self._delete_message,
            "DeleteMessageBatch": self._delete_message_batch,
            "ChangeMessageVisibility": self._change_visibility,
            "ChangeMessageVisibilityBatch": self._change_visibility_batch,
        }

    async def answer(self, request: web.Request) -> web.Response:
        try:
            action = self._action(request.headers.get("X-Amz-Target", "").removeprefix("AmazonSQS."))
            call = _Call(_parsed(await request.read()), f"{request.scheme}://{request.host}")
            return _response(await action(call), 200)
        except SqsError as error:
            document = {"__type": f"com.amazonaws.sqs#{error.code}", "message": error.message}
            code = _QUERY_CODES.get(error.code, error.code)
            return _response(document, 400, {"x-amzn-query-error": f"{code};Sender"})

    def _action(self, name: str) -> Action:
        action = self._actions.get(name)
        if action is None:
            raise SqsError(
                "UnsupportedOperation", f"{name or 'a request without X-Amz-Target'} is not served here"
            )
        return action

    # Queues

    async def _create_queue(self, call: _Call) -> Document:
        name = call.text("QueueName")
        await self._service.create_queue(name, call.get("Attributes") or {})
        return {"QueueUrl": call.queue_url(name)}

    async def _get_queue_url(self, call: _Call) -> Document:
        name = call.text("QueueName")
        await self._service.small_request(name, "get_queue_url")
        self._service.queue(name)
        return {"QueueUrl": call.queue_url(name)}

    async def _list_queues(self, call: _Call) -> Document:
        await self._service.small_request("", "list_queues")
        names = self._service.queue_names(call.get("QueueNamePrefix") or "")
        return {"QueueUrls": [call.queue_url(name) for name in names]} if names else {}

    async def _delete_queue(self, call: _Call) -> Document:
        await self._service.delete_queue(call.queue_name)
        return {}

    async def _purge_queue(self, call: _Call) -> Document:
        await self._service.purge(call.queue_name)
        return {}

    async def _get_queue_attributes(self, call: _Call) -> Document:
        asked = set(call.get("AttributeNames") or [])
        attributes = await self._service.attributes(call.queue_name)
        attributes["QueueArn"] = f"arn:aws:sqs:us-east-1:{_ACCOUNT}:{call.queue_name}"
        return {"Attributes": {n: v for n, v in attributes.items() if "All" in asked or n in asked}}

    async def _set_queue_attributes(self, call: _Call) -> Document:
        await self._service.small_request(call.queue_name, "set_queue_attributes")
        self._service.queue(call.queue_name).become(call.get("Attributes") or {})
        return {}

    # Messages

    async def _send_message(self, call: _Call) -> Document:
        body = call.text("MessageBody")
        (number,) = await self._send(call.queue_name, [call])
        return self._sent_document(call, body, number)

    async def _send_message_batch(self, call: _Call) -> Document:
        entries = call.entries
        numbers = await self._send(call.queue_name, entries)
        successful = [
            {"Id": entry.text("Id"), **self._sent_document(call, entry.text("MessageBody"), number)}
            for entry, number in zip(entries, numbers, strict=True)
        ]
        return {"Successful": successful, "Failed": []}

    def _sent_document(self, call: _Call, body: str, number: int) -> Document:
        document = {"MessageId": message_id(number), "MD5OfMessageBody": md5_of(body)}
        if self._service.queue(call.queue_name).is_fifo:
            document["SequenceNumber"] = f"{number:020}"
        return document

    async def _send(self, queue_name: str, entries: Sequence[_Call]) -> list[int]:
        return await self._service.send(
            queue_name,
            [
                Sending(
                    body=entry.text("MessageBody"),
                    attributes=entry.get("MessageAttributes") or {},
                    delay_seconds=entry.optional_seconds("DelaySeconds", 900),
                    group=entry.get("MessageGroupId"),
                    deduplication_id=entry.get("MessageDeduplicationId"),
                )
                for entry in entries
            ],
        )

    async def _receive_message(self, call: _Call) -> Document:
        copies = await self._service.receive(
            call.queue_name,
            message_count_max=call.integer("MaxNumberOfMessages", 1, 1, BATCH_MESSAGE_COUNT_MAX),
            wait_seconds=call.optional_seconds("WaitTimeSeconds", 20),
            visibility_seconds=call.optional_seconds("VisibilityTimeout", 43_200),
        )
        system = {*(call.get("AttributeNames") or []), *(call.get("MessageSystemAttributeNames") or [])}
        asks_attributes = bool(call.get("MessageAttributeNames"))
        return {"Messages": [_copy_document(c, system, asks_attributes) for c in copies]} if copies else {}

    async def _delete_message(self, call: _Call) -> Document:
        (result,) = await self._service.delete(call.queue_name, [call.text("ReceiptHandle")])
        if result is not None:
            raise result
        return {}

    async def _delete_message_batch(self, call: _Call) -> Document:
        entries = call.entries
        handles = [entry.text("ReceiptHandle") for entry in entries]
        results = await self._service.delete(call.queue_name, handles)
        return _batch_document(entries, results)

    async def _change_visibility(self, call: _Call) -> Document:
        result = await self._change(call.queue_name, call)
        if result is not None:
            raise result
        return {}

    async def _change_visibility_batch(self, call: _Call) -> Document:
        entries = call.entries
        return _batch_document(entries, [await self._change(call.queue_name, entry) for entry in entries])

    async def _change(self, queue_name: str, call: _Call) -> SqsError | None:
        seconds = call.integer("VisibilityTimeout", 30, 0, 43_200)
        try:
            await self._service.change_visibility(queue_name, call.text("ReceiptHandle"), seconds)
        except SqsError as error:
            return error
        return None


def _parsed(text: bytes) -> Document:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise SqsError("SerializationException", "the request is not a JSON object")
    return document


def _response(document: Document, status: int, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status,
        body=json.dumps(document, separators=(",", ":")).encode(),
        content_type="application/x-amz-json-1.0",
        headers=headers,
    )


def _batch_document(entries: Sequence[_Call], results: Sequence[SqsError | None]) -> Document:
    pairs = list(zip(entries, results, strict=True))
    failed = [
        {"Id": entry.text("Id"), "SenderFault": True, "Code": result.code, "Message": result.message}
        for entry, result in pairs
        if result is not None
    ]
    return {"Successful": [{"Id": e.text("Id")} for e, result in pairs if result is None], "Failed": failed}


def _copy_document(copy: Copy, system: set[str], asks_attributes: bool) -> Document:  # noqa: FBT001  # of one caller
    document: Document = {
        "MessageId": copy.message_id,
        "ReceiptHandle": copy.receipt_handle,
        "MD5OfBody": md5_of(copy.body),
        "Body": copy.body,
    }
    known = {
        "SenderId": "LAB",
        "SentTimestamp": str(int(copy.sent_at.timestamp() * 1000)),
        "ApproximateReceiveCount": str(copy.receive_count),
        "ApproximateFirstReceiveTimestamp": str(int(copy.first_received_at.timestamp() * 1000)),
        **copy.system_attributes,
    }
    chosen = {name: value for name, value in known.items() if "All" in system or name in system}
    if chosen:
        document["Attributes"] = chosen
    if asks_attributes and copy.attributes:
        document["MessageAttributes"] = copy.attributes
    return document
