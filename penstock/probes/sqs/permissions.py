"""Knows how to try the permissions that probes need for queues: with one message through a queue made for that.

Nothing less would do: SQS checks permissions only on a queue that exists. The queue is removed at once; if that is
refused, the finding names it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from penstock.models.sqs.queue_class import queue_class
from penstock.probes.finding import Finding, Health, asked, tried
from penstock.probes.outside import MessageQueues

_BODY = "penstock doctor"
_WAIT_SECONDS = 1


async def try_delivery(
    queues: MessageQueues, *, subject: str, queue_name: str, service_class: str
) -> AsyncIterator[Finding]:
    """Try everything that a probe of deliveries does."""
    kind = queue_class(service_class)
    name = f"{queue_name}-doctor{kind.name_suffix}"
    yield await tried(subject, "sqs:ListQueues", queues.list_queues(queue_name))
    yield await tried(subject, "sqs:GetQueueUrl", queues.find_queue(name))
    created, url = await asked(subject, "sqs:CreateQueue", queues.create_queue(name, kind.attributes))
    yield created
    if url is None:
        return
    try:
        yield await tried(subject, "sqs:GetQueueAttributes", queues.queue_attributes(url))
        groups = [_BODY] if kind.keeps_order else []
        yield await tried(subject, "sqs:SendMessage", queues.send(url, [_BODY], group_ids=groups))
        receiving = queues.receive(url, message_count_max=1, wait_seconds=_WAIT_SECONDS)
        received, messages = await asked(subject, "sqs:ReceiveMessage", receiving)
        yield received
        for message in messages or ():
            deleting = queues.delete(url, [message.receipt_handle])
            yield await tried(subject, "sqs:DeleteMessage", deleting)
    finally:
        removed = await tried(subject, "sqs:DeleteQueue", queues.delete_queue(url))
    if removed.health is not Health.WELL:
        sentence = f"{removed.sentence}; the queue {name} is left"
        removed = Finding(subject, removed.health, sentence, f"{removed.remedy}, and remove the queue {name}")
    yield removed
