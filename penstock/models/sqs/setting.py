"""Knows the setting of a queue, and which receivers, deleters, windows and limits go with a number of senders."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.models.sqs.duplicate_loop import RECEIVE_WINDOW_THETA, DeleteLoop
from penstock.models.sqs.physics import (
    ACTIONS,
    REQUESTS_PER_MESSAGE_BATCH,
    QueueCosts,
    client_wait_seconds,
    request_seconds,
)
from penstock.models.sqs.queue_class import RECEIVERS_PER_GROUP_MAX
from penstock.models.sqs.queueing import WINDOW_MAX, erlang_b_window, peak_thread_count
from penstock.units import MiB
from penstock.vocabulary import Demand, knob

BATCH_MESSAGE_COUNT_MAX = 10
BATCH_SIZE_BYTES_MAX = 1 * MiB  # of one message, and of all messages of a request together
PROBED_BYTES_MIN = 37  # of one message of a probe, which says whose it is, and of the published application
VISIBILITY_TIMEOUT_SECONDS = 30.0  # SQS's default
VISIBILITY_TIMEOUT_SECONDS_MAX = 43_200
RATE_LIMIT_MAX = 100_000.0  # messages/s
BLOCKED_FRACTION_MAX = 0.002  # of sends that a send window may delay
DELETER_LOAD_MAX = 0.7
RECEIVER_LOAD_MAX = 0.85
FULL_CLIENT_THREAD_LOAD = 0.95  # of receivers and deleters, if the client's CPU limits the senders as well
SENDER_LOAD_MAX = 0.9
SERVICE_LOAD_MAX = 0.93  # of a request rate limit learned from throttling
CLIENT_LOAD_MAX = 0.98  # of the client's CPU; beyond it requests wait, but none are refused
RATE_HEADROOM = 1.05  # so that an application can catch up after a pause
_SENDER_COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
_STEP_FACTOR_MAX = 6  # above the factor of four for connections of the next probe, so that it is not the last
_BEYOND_CEILING = 4.0  # times the ceiling, because threads that wait for the client's CPU are not busy
_LINGER_SECONDS_MAX = 1.0  # if no latency objective was stated


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsDeliverySetting:
    """How a queue is driven. A window or rate limit of 0 means none."""

    sender_thread_count: int = knob(1, 256, is_divided=True)
    receiver_thread_count: int = knob(1, 256, is_divided=True)
    deleter_thread_count: int = knob(1, 256, is_divided=True)
    batch_message_count: int = knob(1, BATCH_MESSAGE_COUNT_MAX)
    send_rate_limit_messages_per_second: float = knob(0, RATE_LIMIT_MAX, default=0.0, is_divided=True)
    send_window_message_count: int = knob(0, 120_000, default=0, is_divided=True)  # sent and not yet received
    receive_window_message_count: int = knob(0, 120_000, default=0, is_divided=True)  # not yet deleted

    @property
    def thread_count(self) -> int:
        """The threads of all three kinds; each has a connection."""
        return self.sender_thread_count + self.receiver_thread_count + self.deleter_thread_count


def sender_counts(
    costs: QueueCosts, size_bytes: int, demand: Demand, batch: int, *, count_tried: int
) -> list[int]:
    """The numbers of senders worth considering: around the demanded rate, or else up to the limits.

    Without a demanded rate, they exceed what was tried by a limited step, because SQS gets worse suddenly beyond its
    limits.
    """
    rate, ceiling = demand.message_rate_per_second, _action_rate_max(costs, batch)
    if rate is not None:
        enough = enough_senders(costs, size_bytes, min(rate, _BEYOND_CEILING * ceiling), batch)
        is_tight = demand.thread_count_max is not None and 3 * enough > demand.thread_count_max
        fewer = [count for count in _SENDER_COUNTS if count < enough] if is_tight else []
        return sorted({*fewer, enough, min(enough + 1, 256), min(math.ceil(enough * 1.5), 256)})
    peak = peak_thread_count(float(costs.contention_fraction[0, 0]), float(costs.coherence_fraction[0, 0]))
    counts: list[int] = []
    for count in _SENDER_COUNTS:
        if count > max(_STEP_FACTOR_MAX * count_tried, _SENDER_COUNTS[3]) or 3 * count > max(peak, 3):
            break
        counts.append(count)
        if (
            count * batch / _seconds(costs, "send", batch, size_bytes, thread_count=3.0 * count)
            > _BEYOND_CEILING * ceiling
        ):
            break
    return counts


def enough_senders(costs: QueueCosts, size_bytes: int, rate_per_second: float, batch: int) -> int:
    """The number of senders that carry this rate in batches without always being busy."""
    seconds = _seconds(costs, "send", batch, size_bytes, thread_count=4.0)
    return min(max(1, math.ceil(rate_per_second * seconds / (batch * SENDER_LOAD_MAX))), 256)


def complete_setting(
    costs: QueueCosts,
    size_bytes: int,
    demand: Demand,
    *,
    batch: int,
    sender_count: int,
    visibility_timeout_seconds: float,
    deleter_count_max: int = 256,
    message_group_count: float = math.inf,
) -> SqsDeliverySetting:
    """The setting with the receivers, deleters, windows and rate limit that go with these senders and batches."""
    receivers, deleters = sender_count + 1, sender_count + 1
    rate = wait = 0.0
    room = (demand.thread_count_max or 3 * 256) - sender_count
    for _ in range(4):  # fixed-point iteration, because threads slow each other down
        busy = float(sender_count + receivers + deleters)
        wait = (wait + _client_wait_seconds(costs, rate / batch, busy)) / 2.0
        send, receive, delete = (_seconds(costs, a, batch, size_bytes, busy) + wait for a in ACTIONS)
        before_giving = _seconds(costs, "receive", 0, size_bytes, busy) / 2.0
        receive += batch * demand.work_seconds
        held_seconds = receive - before_giving + delete / 2.0
        rate = min(sender_count * batch / send, _action_rate_max(costs, batch))
        rate = min(rate, 0.95 * message_group_count * batch / held_seconds)
        if demand.message_rate_per_second is not None:
            rate = min(rate, demand.message_rate_per_second * RATE_HEADROOM)
        parked, receiver_load, deleter_load = _spare(costs, rate / batch)
        receivers = math.ceil(rate * receive / (batch * receiver_load)) + parked
        receivers = min(receivers, int(min(RECEIVERS_PER_GROUP_MAX * message_group_count, 256)))
        # Long work needs many receivers; if there is no room for them, there is less to send and to delete.
        receivers = max(min(receivers, room - deleters), 1)
        received = min(rate, receivers * batch / receive)
        deleters = min(
            math.ceil(received * delete / (batch * deleter_load)), deleter_count_max, room - receivers
        )
        deleters = max(deleters, 1)
    delete_rate = min(deleters * batch / delete, float(costs.request_rate_max_per_second[0, 0]) * batch)
    rate = min(rate, 0.95 * delete_rate, 0.95 * receivers * batch / receive)
    in_a_receive = (receive - batch * demand.work_seconds) / 2.0
    latency_seconds = send / 2.0 + float(costs.delivery_seconds[0, 0]) + in_a_receive
    return SqsDeliverySetting(
        sender_thread_count=sender_count,
        receiver_thread_count=receivers,
        deleter_thread_count=deleters,
        batch_message_count=batch,
        send_rate_limit_messages_per_second=min(rounded_down(rate, 3), RATE_LIMIT_MAX),
        send_window_message_count=send_window(rate, latency_seconds, batch, sender_count),
        receive_window_message_count=_receive_window(
            delete_rate, visibility_timeout_seconds, receivers, demand.work_seconds
        ),
    )


def bounded(
    setting: SqsDeliverySetting,
    delete_rate_per_second: float,
    visibility_timeout_seconds: float,
    work_seconds: float,
) -> SqsDeliverySetting:
    """The setting with its rate limit and receive window reduced to what the deleters can do.

    Half-full requests of the other threads may leave them little of the client's CPU, which only the forecast knows.
    """
    window = _receive_window(
        delete_rate_per_second, visibility_timeout_seconds, setting.receiver_thread_count, work_seconds
    )
    return replace(
        setting,
        send_rate_limit_messages_per_second=min(
            setting.send_rate_limit_messages_per_second, rounded_down(delete_rate_per_second, 3)
        ),
        receive_window_message_count=min(setting.receive_window_message_count, window),
    )


def _receive_window(
    delete_rate_per_second: float,
    visibility_timeout_seconds: float,
    receiver_count: int,
    work_seconds: float,
) -> int:
    """The receive window: messages being worked on wait for their delete too, so the slower of the two decides."""
    worked = receiver_count / work_seconds if work_seconds else math.inf
    loop = DeleteLoop(
        arrival_rate_per_second=float(delete_rate_per_second),
        delete_rate_per_second=min(float(delete_rate_per_second), worked),
        visibility_timeout_seconds=visibility_timeout_seconds,
    )
    return int(rounded_down(loop.receive_window_message_count(), 2))


def without_work(
    costs: QueueCosts, size_bytes: int, setting: SqsDeliverySetting, work_seconds: float
) -> SqsDeliverySetting:
    """The setting with as many receivers as are in a request at a time, because working ones ask nothing."""
    batch, threads = setting.batch_message_count, float(setting.thread_count)
    asking = _seconds(costs, "receive", batch, size_bytes, threads)
    fraction = asking / (asking + batch * work_seconds)
    return replace(setting, receiver_thread_count=math.ceil(fraction * setting.receiver_thread_count))


def worked_batch_max(visibility_timeout_seconds: float, work_seconds: float) -> int:
    """The largest batch that a receiver can work off within the share of the timeout that a message may wait."""
    if not work_seconds:
        return BATCH_MESSAGE_COUNT_MAX
    within = RECEIVE_WINDOW_THETA * visibility_timeout_seconds / work_seconds
    return max(1, min(BATCH_MESSAGE_COUNT_MAX, math.floor(within)))


def _spare(costs: QueueCosts, request_rate_per_second: float) -> tuple[int, float, float]:
    """The number of extra receivers, and how busy receivers and deleters may be.

    Spare threads make half-full requests. These are quick and cost nothing, unless the rate is close to the service's
    limit on requests or to what the client's CPU can make.
    """
    client = float(costs.client_request_rate_max_per_second[0, 0]) / REQUESTS_PER_MESSAGE_BATCH
    service = float(costs.request_rate_max_per_second[0, 0])
    if request_rate_per_second > 0.9 * client:
        return 0, FULL_CLIENT_THREAD_LOAD, FULL_CLIENT_THREAD_LOAD
    is_counted = request_rate_per_second > 0.7 * min(service, client)
    return (0, RECEIVER_LOAD_MAX, 0.85) if is_counted else (1, RECEIVER_LOAD_MAX, DELETER_LOAD_MAX)


def rounded_down(value: float, digits: int) -> float:
    """The value rounded down to so many digits, so that advice does not change with every fit and can be verified."""
    unit = 10.0 ** (math.floor(math.log10(max(value, 1e-9))) + 1 - digits)
    return float(f"{math.floor(value / unit + 1e-9) * unit:.{digits}g}")


def send_window(rate_per_second: float, latency_seconds: float, batch: int, sender_count: int) -> int:
    """The send window in messages that costs almost no goodput, by Erlang B for batches."""
    batches = erlang_b_window(rate_per_second * latency_seconds / batch, BLOCKED_FRACTION_MAX)
    return min(batch * max(batches, sender_count + 1), WINDOW_MAX)


def _seconds(costs: QueueCosts, action: str, batch: int, size_bytes: int, thread_count: float) -> float:
    threads = np.array([thread_count])
    return float(request_seconds(costs, action, np.array([float(batch)]), size_bytes, threads)[0, 0])


def _client_wait_seconds(costs: QueueCosts, batch_rate_per_second: float, thread_count: float) -> float:
    requests = np.array([REQUESTS_PER_MESSAGE_BATCH * batch_rate_per_second])
    return float(client_wait_seconds(costs, requests, np.array([thread_count]))[0, 0])


def _action_rate_max(costs: QueueCosts, batch: int) -> float:
    service = float(costs.request_rate_max_per_second[0, 0])
    client = float(costs.client_request_rate_max_per_second[0, 0])
    return batch * min(SERVICE_LOAD_MAX * service, CLIENT_LOAD_MAX * client / REQUESTS_PER_MESSAGE_BATCH)


def enough_for_the_work(visibility_timeout_seconds: float, work_seconds: float) -> float:
    """The visibility timeout, but at least six times the work on a message, up to the longest that SQS allows."""
    enough = min(math.ceil(6.0 * work_seconds), VISIBILITY_TIMEOUT_SECONDS_MAX)
    return max(visibility_timeout_seconds, enough)


def linger_seconds(
    batch: int, rate_per_second: float, latency_objective_seconds: float | None, latency_seconds: float
) -> float:
    """How long a sender waits for a batch to fill: until it is full, or as long as the latency objective allows.

    On average a message waits for half of this time.
    """
    if batch == 1 or rate_per_second <= 0:
        return 0.0
    until_full = (batch - 1) / rate_per_second
    if latency_objective_seconds is None:
        return min(until_full, _LINGER_SECONDS_MAX)
    return max(0.0, min(until_full, 2.0 * (latency_objective_seconds - latency_seconds)))
