"""Knows how to find out whether probes may do what they do with queues: one message through a queue made for it.

Nothing less tells: SQS knows no permission without a queue. The queue is removed at once; where that is refused, the
finding names it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from penstock.models.sqs.queue_class import queue_class
from penstock.probes.finding import Finding, Health, tried
from penstock.probes.outside import MessageQueues, ReceivedMessage

_BODY = "penstock doctor"
_WAIT_SECONDS = 1


async def try_delivery(
    queues: MessageQueues, *, subject: str, queue_name: str, service_class: str
) -> AsyncIterator[Finding]:
    """All that a probe of deliveries does."""
    kind = queue_class(service_class)
    name = f"{queue_name}-doctor{kind.name_suffix}"
    yield await tried(subject, "sqs:ListQueues", queues.list_queues(queue_name))
    yield await tried(subject, "sqs:GetQueueUrl", queues.find_queue(name))
    urls: list[str] = []
    yield await tried(subject, "sqs:CreateQueue", _create(queues, name, kind.attributes, urls))
    if not urls:
        return
    (url,) = urls
    try:
        yield await tried(subject, "sqs:GetQueueAttributes", queues.queue_attributes(url))
        groups = [_BODY] if kind.keeps_order else []
        yield await tried(subject, "sqs:SendMessage", queues.send(url, [_BODY], group_ids=groups))
        received: list[ReceivedMessage] = []
        yield await tried(subject, "sqs:ReceiveMessage", _receive(queues, url, received))
        for message in received:
            deleting = queues.delete(url, [message.receipt_handle])
            yield await tried(subject, "sqs:DeleteMessage", deleting)
    finally:
        removed = await tried(subject, "sqs:DeleteQueue", queues.delete_queue(url))
    if removed.health is not Health.WELL:
        sentence = f"{removed.sentence}; the queue {name} is left"
        removed = Finding(subject, removed.health, sentence, f"{removed.remedy}, and remove the queue {name}")
    yield removed


async def _create(queues: MessageQueues, name: str, attributes: Mapping[str, str], urls: list[str]) -> None:
    urls.append(await queues.create_queue(name, attributes))


async def _receive(queues: MessageQueues, url: str, received: list[ReceivedMessage]) -> None:
    received += await queues.receive(url, message_count_max=1, wait_seconds=_WAIT_SECONDS)
