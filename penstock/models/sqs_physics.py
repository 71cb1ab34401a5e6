"""Knows what a queue costs a client and what follows from it: request times, rates, goodput and latency.

One request for b messages of s bytes takes

    l(b) = (l0 + l1 b + b s / BW) (1 + sigma (N - 1) + kappa N (N - 1))

with N busy threads on the host (the universal scalability law written for time). Each action then carries
`threads * b / l(b)` messages a second, never more than the service's or the client's request rate allows; the
slowest action decides. A sender that stops at W messages sent and not received loses what Erlang-B says.

Every field is an array; posterior draws are rows and settings are columns, and both broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.models.model import Array
from penstock.models.queueing import erlang_b_blocked_fractions

ACTIONS = ("send", "receive", "delete")
MEASURED_SECONDS = 6.0  # of sending, in one measurement: what has not built up by then does not show
REQUESTS_PER_MESSAGE_BATCH = 3  # one send, one receive, one delete


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCosts:
    """The physics of one place."""

    send_request_seconds: Array
    send_message_seconds: Array
    receive_request_seconds: Array
    receive_message_seconds: Array
    delete_request_seconds: Array
    delete_message_seconds: Array
    payload_seconds_per_byte: Array
    contention_fraction: Array  # sigma
    coherence_fraction: Array  # kappa
    delivery_seconds: Array  # from the end of a send to the receive of one message, with nothing in the way
    efficiency_fraction: Array  # measured goodput over the slowest action's rate
    request_rate_max_per_second: Array  # of each action, as throttling taught
    client_request_rate_max_per_second: Array  # of all actions together, as the client's CPU allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """How the queue is driven, one column a setting; a limit or window of 0 means none."""

    sender_count: Array
    receiver_count: Array
    deleter_count: Array
    batch_message_count: Array
    send_rate_limit_per_second: Array
    send_window: Array
    receive_window: Array
    payload_size_bytes: Array | float
    work_seconds: float = 0.0

    @property
    def thread_count(self) -> Array:
        """N: threads that share the host."""
        return self.sender_count + self.receiver_count + self.deleter_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What comes of it: messages a second that each stage carries, what arrives in the end, how late."""

    send_rate: Array  # before the window
    receive_rate: Array
    delete_rate: Array
    client_rate: Array
    goodput: Array
    latency_seconds: Array  # mean, from send to receive
    waiting_fraction: Array  # of the latency: in queues, which chance makes longer or shorter
    paced_fraction: Array  # 1 where the rate limit alone decides, 0 where it does not matter


def request_seconds(
    costs: QueueCosts, action: str, batch: Array, payload_size_bytes: Array | float, thread_count: Array
) -> Array:
    """Mean seconds of one request for `batch` messages while `thread_count` threads are busy."""
    fixed = getattr(costs, f"{action}_request_seconds")
    each = getattr(costs, f"{action}_message_seconds")
    payload = 0.0 if action == "delete" else payload_size_bytes * costs.payload_seconds_per_byte
    others = thread_count - 1.0
    crowding = 1.0 + costs.contention_fraction * others + costs.coherence_fraction * thread_count * others
    return np.asarray((fixed + (each + payload) * batch) * crowding)


def forecast(costs: QueueCosts, drive: Drive) -> Forecast:
    """Rates, goodput and latency of each setting under each draw of the physics."""
    batch, size, busy = drive.batch_message_count, drive.payload_size_bytes, drive.thread_count
    send_seconds = request_seconds(costs, "send", batch, size, busy)
    receive_seconds = request_seconds(costs, "receive", batch, size, busy) + batch * drive.work_seconds
    delete_seconds = request_seconds(costs, "delete", batch, size, busy)
    service = costs.request_rate_max_per_second * batch
    client = costs.client_request_rate_max_per_second * batch / REQUESTS_PER_MESSAGE_BATCH
    limit = np.where(drive.send_rate_limit_per_second > 0, drive.send_rate_limit_per_second, np.inf)
    unlimited_rate = np.minimum(drive.sender_count * batch / send_seconds, service)
    send_rate = np.minimum(unlimited_rate, limit)
    receive_rate = np.minimum(drive.receiver_count * batch / receive_seconds, service)
    delete_rate = np.minimum(drive.deleter_count * batch / delete_seconds, service)
    single = request_seconds(costs, "receive", np.ones_like(batch), size, busy)
    on_the_way = costs.delivery_seconds + receive_seconds - batch * drive.work_seconds - single
    windowed = send_rate * _unblocked_fraction(drive, send_rate * on_the_way)
    offered = np.minimum(windowed, client)
    carried = np.minimum(np.minimum(offered, receive_rate), delete_rate)
    base = send_seconds + on_the_way
    capacity = np.minimum(np.minimum(unlimited_rate, receive_rate), np.minimum(delete_rate, client))
    waiting = _receiver_wait_seconds(drive, carried / receive_rate, receive_seconds)
    waiting = waiting + _held_back_seconds(drive, offered, receive_rate, delete_rate)
    latency = np.maximum(np.minimum(base + waiting, _window_seconds(drive, carried)), base)
    return Forecast(
        send_rate=send_rate,
        receive_rate=receive_rate,
        delete_rate=delete_rate,
        client_rate=np.broadcast_to(client, carried.shape),
        goodput=carried * costs.efficiency_fraction,
        latency_seconds=latency,
        waiting_fraction=1.0 - base / latency,
        paced_fraction=np.clip((capacity / limit - 1.0) / 0.2, 0.0, 1.0),
    )


def _unblocked_fraction(drive: Drive, outstanding: Array) -> Array:
    """Erlang-B in batches: a batch leaves whole, so places and load are counted in batches.

    A sender and a window are a closed network: the sender rests when all places are taken by messages on their way,
    so the load is its rate times the time from the end of a send to the receive.
    """
    batch = drive.batch_message_count
    places = np.broadcast_to(np.maximum(np.floor(drive.send_window / batch), 1.0), outstanding.shape)
    kept = 1.0 - erlang_b_blocked_fractions(places, outstanding / batch)
    return np.where(drive.send_window > 0, kept, 1.0)


def _receiver_wait_seconds(drive: Drive, load: Array, receive_seconds: Array) -> Array:
    """Waiting for a receiver to come back from its last request (M/M/n after Sakasegawa)."""
    servers = drive.receiver_count
    load = np.minimum(load, 0.98)
    return np.asarray(
        receive_seconds * load ** (np.sqrt(2.0 * (servers + 1.0)) - 1.0) / (servers * (1.0 - load))
    )


def _held_back_seconds(drive: Drive, offered: Array, receive_rate: Array, delete_rate: Array) -> Array:
    """The mean wait, over one measurement, of messages in a queue where the senders outrun the rest.

    Slow receivers let it grow from the start; slow deleters from when the receive window is full.
    """
    surplus = np.maximum(np.minimum(offered, receive_rate) - delete_rate, 1e-9)
    filled_after = np.where(drive.receive_window > 0, drive.receive_window / surplus, np.inf)
    by_receivers = _growing_wait_seconds(offered, receive_rate, np.zeros_like(filled_after))
    by_deleters = _growing_wait_seconds(offered, delete_rate, filled_after)
    return np.maximum(by_receivers, by_deleters)


def _growing_wait_seconds(offered: Array, onward: Array, from_seconds: Array) -> Array:
    growing_for = np.maximum(MEASURED_SECONDS - from_seconds, 0.0)
    excess = np.maximum(1.0 - onward / np.maximum(offered, 1e-9), 0.0)
    return np.asarray(excess * growing_for**2 / (2.0 * MEASURED_SECONDS))


def _window_seconds(drive: Drive, carried: Array) -> Array:
    """Little's law: no message is on its way for longer than a full window lasts; inf with no window."""
    return np.where(drive.send_window > 0, drive.send_window / np.maximum(carried, 1e-9), np.inf)
