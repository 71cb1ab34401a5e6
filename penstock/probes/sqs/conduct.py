"""Knows how an application may drive a queue, and how that of the published collapse does: unbounded or by rules."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.models.sqs.setting import SqsDeliverySetting

RECEIVE_MESSAGE_COUNT_MAX = 10  # that SQS takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How the application drives the queue; 0 is "no bound". As it is: blast."""

    sender_count: int = 1
    receiver_count: int = 1
    deleter_count: int = 1
    send_batch: int = 1
    delete_batch: int = 1
    receive_batch: int = RECEIVE_MESSAGE_COUNT_MAX
    # What there is to send; it piles up while the senders may not. 0: always more.
    offered_per_second: float = 0.0
    send_rate_limit_per_second: float = 0.0
    send_window: int = 0  # sent, or being sent, and not received
    receive_window: int = 0  # received and not deleted
    receive_window_ends_at_handover: bool = False  # counted until the deleter has it, as some frameworks do
    oldest_undeleted_seconds_max: float = 0.0  # the senders pause above it
    receive_pause_seconds: float = 0.0  # the receivers pause while the oldest undeleted message is older
    polls_only_when_sent: bool = False
    fills_first: bool = False  # nothing is received before all was sent
    long_polls: bool = False


BLAST = Conduct()
RATE_CONTROLLED = Conduct(send_window=10, oldest_undeleted_seconds_max=15.0, polls_only_when_sent=True)


def conduct_of(setting: SqsDeliverySetting) -> Conduct:
    """The application that heeds a setting."""
    return Conduct(
        sender_count=setting.sender_thread_count,
        receiver_count=setting.receiver_thread_count,
        deleter_count=setting.deleter_thread_count,
        send_batch=setting.batch_message_count,
        delete_batch=setting.batch_message_count,
        send_rate_limit_per_second=setting.send_rate_limit_messages_per_second,
        send_window=setting.send_window_message_count,
        receive_window=setting.receive_window_message_count,
        long_polls=True,
    )
