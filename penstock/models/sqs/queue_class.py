"""Knows what distinguishes the classes of SQS queues: quotas, and the order within message groups.

A FIFO queue delivers the messages of a group in order, and none while others of the group are in flight: from the
middle of the receive, when they leave the queue, to the middle of the delete. With G groups, whose messages are
received, worked on and deleted b at a time, a queue carries at most

    G b / (l_receive(b) - l_receive(0) / 2 + b work + l_delete(b) / 2)

messages per second, whatever the threads. (This is less than the limit of 300 requests per second of a partition, in
which a group lies, unless both requests take less than 3.3 ms.) To reach it, each group needs one receiver waiting in
addition to the one that brings its messages. At most 10 G messages are received and not deleted at a time. A message
that waits longer than the visibility timeout for its delete comes back, first in its group, and the delete with its
expired handle is refused: the same loop as in a standard queue, with the group blocked meanwhile.

Quotas are the documented ones of September 2026; prices are in `models/prices.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.units import KiB

BILLED_CHUNK_BYTES = 64 * KiB
DEDUPLICATION_SECONDS = 300.0  # within which a repeated send with the same deduplication id stores nothing
GROUP_RECEIVED_MESSAGE_COUNT_MAX = 10  # of one group at a time, in a single receive
GROUP_LOAD_MAX = 0.7
RECEIVERS_PER_GROUP_MAX = 2  # one brings messages, the other waits for the next
EVERYWHERE_ELSE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueClass:
    """One row of the table: everything that depends on the class of a queue alone."""

    keeps_order: bool = False
    # For each action on one queue, by region.
    requests_per_second_max: Mapping[str, float] = field(default_factory=lambda: {EVERYWHERE_ELSE: math.inf})
    name_suffix: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)  # to create such a queue with


_FIFO = {"FifoQueue": "true"}
_HIGH_THROUGHPUT = {
    "us-east-1": 70_000.0,
    "us-west-2": 70_000.0,
    "eu-west-1": 70_000.0,
    "us-east-2": 19_000.0,
    "eu-central-1": 19_000.0,
    "ap-south-1": 9_000.0,
    "ap-southeast-1": 9_000.0,
    "ap-southeast-2": 9_000.0,
    "ap-northeast-1": 9_000.0,
    "eu-west-2": 4_500.0,
    "sa-east-1": 4_500.0,
    EVERYWHERE_ELSE: 2_400.0,
}
QUEUE_CLASSES: Mapping[str, QueueClass] = {
    "standard": QueueClass(),
    "fifo": QueueClass(
        keeps_order=True,
        requests_per_second_max={EVERYWHERE_ELSE: 300.0},
        name_suffix=".fifo",
        attributes=_FIFO,
    ),
    "fifo-high-throughput": QueueClass(
        keeps_order=True,
        requests_per_second_max=_HIGH_THROUGHPUT,
        name_suffix=".fifo",
        attributes=_FIFO | {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"},
    ),
}


def queue_class(service_class: str) -> QueueClass:
    """The row of a class; an unknown class has the limits of a standard queue."""
    return QUEUE_CLASSES.get(service_class, QUEUE_CLASSES["standard"])


def billed_count(payload_bytes: float) -> int:
    """The number of requests as which a request with this payload is billed."""
    return math.ceil(max(payload_bytes, 1) / BILLED_CHUNK_BYTES)


def class_of(queue_name: str) -> str:
    """The class of a queue as far as its name tells, which is enough to know the price of a request."""
    return "fifo" if queue_name.endswith(".fifo") else "standard"


def request_rate_max_per_second(service_class: str, region: str = EVERYWHERE_ELSE) -> float:
    """Requests per second that the quota allows for each action; inf if there is none."""
    quotas = queue_class(service_class).requests_per_second_max
    return quotas.get(region, quotas[EVERYWHERE_ELSE])


def ordered_group_count(service_class: str, message_group_count: int | None) -> float:
    """The number of groups whose order limits the rate; inf if no order is kept, or the number is not stated."""
    is_bound = message_group_count is not None and queue_class(service_class).keeps_order
    return float(message_group_count) if is_bound and message_group_count is not None else math.inf


def message_group_count_min(message_rate_per_second: float, batch: float, held_seconds: float) -> int:
    """The fewest groups that carry this rate while each is held for at most 70 % of the time.

    `held_seconds` is from the receive of a batch to its delete, including the consumer's work.
    """
    return max(1, math.ceil(message_rate_per_second * held_seconds / (batch * GROUP_LOAD_MAX)))
