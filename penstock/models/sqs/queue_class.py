"""Knows what distinguishes the classes of SQS queues: quotas, and the order that message groups keep.

A FIFO queue hands out the messages of a group in order, and none of them while another is in flight: from the middle
of the receive, when the queue gives it away, to the middle of the delete. With G groups, whose messages are received,
worked on and deleted b at a time, it carries at most

    G b / (l_receive(b) - l_receive(0) / 2 + b work + l_delete(b) / 2)

messages a second, whatever the threads (which is less than the 300 requests a second of a partition, in which a
group lies, unless both requests take less than 3.3 ms); that takes a receiver that waits for each group beside the
one that brings its messages. No more than 10 G messages are ever received and not deleted. A message
that waits longer than the visibility timeout for its delete comes back, first in its group, and the delete by the
expired handle is refused: the same loop as in a standard queue, with the group blocked meanwhile.

Quotas are the documented ones of September 2026; prices are in `models/prices.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.units import KiB

BILLED_CHUNK_BYTES = 64 * KiB
DEDUPLICATION_SECONDS = 300.0  # a send that is repeated with its deduplication id within this stores nothing
GROUP_RECEIVED_MESSAGE_COUNT_MAX = 10  # of one group at a time: those of one receive
GROUP_LOAD_MAX = 0.7
RECEIVERS_PER_GROUP_MAX = 2  # one brings messages, one waits for the next
EVERYWHERE_ELSE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueClass:
    """One row: everything that depends on the class of a queue and on nothing else."""

    keeps_order: bool = False
    # Of each action on one queue, by region.
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
    """The row of a class; one that is not known is limited as a standard queue."""
    return QUEUE_CLASSES.get(service_class, QUEUE_CLASSES["standard"])


def billed_count(payload_bytes: float) -> int:
    """As how many requests one is billed that carries so much."""
    return math.ceil(max(payload_bytes, 1) / BILLED_CHUNK_BYTES)


def class_of(queue_name: str) -> str:
    """What the name of a queue tells of its class: enough to know what a request costs."""
    return "fifo" if queue_name.endswith(".fifo") else "standard"


def request_rate_max_per_second(service_class: str, region: str = EVERYWHERE_ELSE) -> float:
    """Requests a second that the quota allows for each action; inf where there is none."""
    quotas = queue_class(service_class).requests_per_second_max
    return quotas.get(region, quotas[EVERYWHERE_ELSE])


def ordered_group_count(service_class: str, message_group_count: int | None) -> float:
    """The groups whose order bounds the rate; inf where there is no order to keep, or groups enough."""
    is_bound = message_group_count is not None and queue_class(service_class).keeps_order
    return float(message_group_count) if is_bound and message_group_count is not None else math.inf


def message_group_count_min(message_rate_per_second: float, batch: float, held_seconds: float) -> int:
    """Groups that carry this rate while each is held at most 70 % of the time.

    `held_seconds`: from the receive of a batch to its delete, the consumer's work included.
    """
    return max(1, math.ceil(message_rate_per_second * held_seconds / (batch * GROUP_LOAD_MAX)))
