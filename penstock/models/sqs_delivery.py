"""Knows how messages go through an SQS queue: its knobs, what SQS accepts, and the physics of the loop."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.vocabulary import Scale, knob

BATCH_MESSAGE_COUNT_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsDeliverySetting:
    """How a queue is driven. A window or a rate limit of 0 means none."""

    sender_thread_count: int = knob(1, 256)
    receiver_thread_count: int = knob(1, 256)
    deleter_thread_count: int = knob(1, 256)
    batch_message_count: int = knob(1, BATCH_MESSAGE_COUNT_MAX, scale=Scale.LINEAR)
    send_rate_limit_messages_per_second: float = knob(0, 100_000, default=0.0)
    send_window_message_count: int = knob(0, 120_000, default=0)  # sent and not yet received
    receive_window_message_count: int = knob(0, 120_000, default=0)  # received and not yet deleted
