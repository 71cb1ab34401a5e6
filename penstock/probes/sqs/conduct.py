"""Knows how an application may drive a queue; among others, the two ways of the published study of the collapse."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.models.sqs.setting import SqsDeliverySetting

RECEIVE_MESSAGE_COUNT_MAX = 10  # the limit of SQS


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How the application drives the queue; 0 means no bound. The defaults are the study's "blast" mode."""

    sender_count: int = 1
    receiver_count: int = 1
    deleter_count: int = 1
    send_batch: int = 1
    delete_batch: int = 1
    receive_batch: int = RECEIVE_MESSAGE_COUNT_MAX
    # Messages that become available to send; they pile up while the senders are held back. 0: always more.
    offered_per_second: float = 0.0
    send_rate_limit_per_second: float = 0.0
    send_window: int = 0  # messages sent, or being sent, and not received
    receive_window: int = 0  # messages received and not deleted
    receive_window_ends_at_handover: bool = False  # they count only until the deleter has them
    oldest_undeleted_seconds_max: float = 0.0  # the senders pause above it
    receive_pause_seconds: float = 0.0  # the receivers pause while the oldest undeleted message is older
    polls_only_when_sent: bool = False
    fills_first: bool = False  # nothing is received before everything was sent
    long_polls: bool = False


BLAST = Conduct()
RATE_CONTROLLED = Conduct(send_window=10, oldest_undeleted_seconds_max=15.0, polls_only_when_sent=True)


def conduct_of(setting: SqsDeliverySetting) -> Conduct:
    """The conduct of an application that follows a setting."""
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
