"""Knows the physics of a queue: how long requests take, and the rates, goodput and latency that follow.

Requests. A request for b messages of s bytes takes, with N busy threads on the host,

    l(b) = (l0 + l1 b + b s / BW) (1 + sigma (N - 1) + kappa N (N - 1)) + w

The second factor is the universal scalability law, written for time: a share sigma of the work is serialised, and
each pair of threads costs kappa [Gunther 2007]. w is the wait for the client's CPU. A request takes c of it, so that
all R requests per second together keep it busy for a fraction r = c R:

    w = c r / (2 (1 - r (N - 1) / N))         an M/D/1 queue in which no thread waits for itself

R in turn depends on how long requests wait, so w is a fixed point.

Rates. In messages per second, t threads of an action carry mu, and the slowest action decides:

    mu = min(t b / l(b), M b)                 the service admits M requests per second
    mu_receive <= G b / h                     G message groups in order, each held by a batch for h
    mu <= b / (3 c)                           the CPU makes a send, a receive and a delete for each batch
    goodput = eta min(mu_send, mu_receive, mu_delete)

Senders and a send window are a closed network with a loss given by birth-death equations (`queueing.windowed_rate`).
Threads that could carry more take half-full batches, and these requests use the client's CPU as well. Their number is
such that all t threads are busy with R_a requests and m messages per second:

    t = R_a l_a(0) + m (l_a(b) - l_a(0)) / b

Latency. If receivers are busy for a fraction rho of time, a share of 1 - rho is waiting for a message. A message that
finds one of these is received in a batch of m / R_receive, which takes less time than a full one. Tails are those of
full batches (simulated). The messages of a batch do not arrive at once: each of the n receivers leaves with the first
that it sees, and the rest of b waits until one returns, for about half of an empty request plus work (simulated: in a
regression of measured on expected latency without this, .53 to .74).

A message waits for its receiver as in a queue with drift. At load rho, the wait of a message that arrives at time t is
the mean of a reflected Brownian motion of drift rho - 1 and of variance

    (ca^2 + cs^2) rho a batch                          per time of a batch

For rho < 1 this becomes Kingman's formula in the long run [Kingman 1961], and for rho > 1 it is (rho - 1) t. With n
servers it is multiplied by rho^(sqrt(2 (n + 1)) - 2), because one of them may be idle [Sakasegawa 1977]. The arrivals
of n senders together have the variability

    ca^2 = u cs^2 + (1 - u),    u = 1 / (1 + 4 (1 - rho)^2 (n - 1))      near saturation like one sender, else Poisson

[Whitt 1983]. No wait is longer than a full send window lasts: W / carried [Little 1961]. A measurement is an average
over its duration, in two parts: before and after slow deleters have filled the receive window.

Every field is an array; rows are posterior draws, columns are settings, and both broadcast.

Sources: Gunther, Guerrilla Capacity Planning, 2007. Kingman, Proc. Cambridge Phil. Soc. 57, 1961. Sakasegawa, Ann.
Inst. Stat. Math. 29, 1977. Whitt, Bell System Technical Journal 62, 1983. Little, Operations Research 9, 1961.
"Simulated" means measured in the lab's queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.models.model import Array
from penstock.models.sqs.queueing import gamma_probability, reflected_walk_mean, windowed_rate

ACTIONS = ("send", "receive", "delete")
MEASURED_SECONDS = 6.0  # of sending in one measurement; a queue that builds up more slowly does not show
REQUESTS_PER_MESSAGE_BATCH = 3  # one send, one receive, one delete

# Constants of the physics.
# The least share of a batch that is filled, however many receivers wait (simulated: .34 with 32 where 16 suffice).
_FILLED_MIN = 0.35
# The mean fill of a send window that holds senders back, in a measurement that begins with it empty (simulated).
_WINDOW_FILLED = 0.96
_LEFT_SHARE = 0.5  # of the time until a receiver returns: how long the rest of a batch waits (simulated)
_ON_THE_WAY_SECONDS_MIN = 1e-4
_PACED_MARGIN = 0.2  # of the rate limit: if so much more could be carried, the limit alone decides

# Constants of the computation.
_MOMENTS = (np.arange(6) + 0.5) / 6.0  # of each part of a measurement
_HALVINGS = 12  # of the range of a quantile
_QUANTILE_DEVIATIONS = 12.0  # above the mean, where that range ends
_WAIT_HALVINGS = 8  # then Newton's method, because derivatives of the result are needed, which must be smooth
_WAIT_NEWTON_STEPS = 2
_RATE_MIN = 1e-9  # messages per second, instead of 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCosts:
    """The parameters of the physics of one place, each (draws, 1)."""

    send_request_seconds: Array  # l0, for each action
    send_message_seconds: Array  # l1
    receive_request_seconds: Array
    receive_message_seconds: Array
    delete_request_seconds: Array
    delete_message_seconds: Array
    payload_seconds_per_byte: Array  # 1 / BW
    contention_fraction: Array  # sigma
    coherence_fraction: Array  # kappa
    delivery_seconds: Array  # from the middle of a send, when the queue has it, to the receive of one message
    variation_fraction: Array  # cs: standard deviation over mean of a request's time
    efficiency_fraction: Array  # eta: measured goodput over the slowest action's rate
    request_rate_max_per_second: Array  # M, for each action, from the quota or throttling
    client_request_rate_max_per_second: Array  # 1 / c, for all actions together


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """How the queue is driven, one column for each setting; a limit or window of 0 means none."""

    sender_count: Array
    receiver_count: Array
    deleter_count: Array
    batch_message_count: Array
    send_rate_limit_per_second: Array
    send_window: Array
    receive_window: Array
    payload_size_bytes: Array | float
    work_seconds: float = 0.0
    message_group_count: float = np.inf  # groups whose order limits receives

    @property
    def thread_count(self) -> Array:
        """N: the threads that share the host."""
        return self.sender_count + self.receiver_count + self.deleter_count


def drive_of(
    settings: Sequence[Any],  # of the type of a queue's model
    payload_size_bytes: Array | float,
    work_seconds: float = 0.0,
    message_group_count: float = np.inf,
) -> Drive:
    """The settings as columns of a `Drive`."""

    def column(name: str) -> Array:
        return np.array([float(getattr(setting, name)) for setting in settings])

    return Drive(
        sender_count=column("sender_thread_count"),
        receiver_count=column("receiver_thread_count"),
        deleter_count=column("deleter_thread_count"),
        batch_message_count=column("batch_message_count"),
        send_rate_limit_per_second=column("send_rate_limit_messages_per_second"),
        send_window=column("send_window_message_count"),
        receive_window=column("receive_window_message_count"),
        payload_size_bytes=payload_size_bytes,
        work_seconds=work_seconds,
        message_group_count=message_group_count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What to expect, (draws, settings): the rate of each stage in messages per second, goodput and latency."""

    send_rate: Array  # without the send window
    receive_rate: Array
    delete_rate: Array
    held_seconds: Array  # of a message group: from when a batch leaves the queue to its delete there
    client_load: Array  # fraction of the client's CPU that requests use, at most 1
    client_wait_seconds: Array  # of each request
    goodput: Array
    latency_seconds: Array  # mean, from send to receive
    waiting_fraction: Array  # share of the latency that is waiting, which varies most
    paced_fraction: Array  # 1 if the rate limit alone decides, 0 if it does not matter
    moments: Moments

    @property
    def slowest_rate(self) -> Array:
        """The rate of the slowest stage."""
        return np.minimum(np.minimum(self.send_rate, self.receive_rate), self.delete_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The latency of messages at several moments of a measurement; each array is (moments, draws, settings)."""

    share: Array  # of all messages of the measurement
    mean_seconds: Array
    deviation_seconds: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """Seconds of each request, the rate of each stage in messages per second, and its limits: (draws, settings)."""

    send_seconds: Array
    receive_seconds: Array  # including the consumer's work
    held_seconds: Array
    delivery_seconds: Array  # from the middle of a send to the receive of a full batch
    on_the_way_seconds: Array  # from the end of the send to that receive
    unlimited: Array  # of the senders, without rate limit and window
    send: Array
    windowed: Array  # that the send window admits
    receive: Array
    delete: Array
    client: Array  # that the client's CPU can carry
    receives: Array  # requests per second; spare threads take half-full batches
    requests: Array  # per second, of all actions together
    client_wait_seconds: Array

    @property
    def carried(self) -> Array:
        return np.minimum(np.minimum(self.windowed, self.client), np.minimum(self.receive, self.delete))


def request_seconds(
    costs: QueueCosts, action: str, batch: Array, payload_size_bytes: Array | float, thread_count: Array
) -> Array:
    """l(b) without w: seconds of a request for `batch` messages with `thread_count` busy threads and an idle CPU."""
    fixed = getattr(costs, f"{action}_request_seconds")
    each = getattr(costs, f"{action}_message_seconds")
    payload = 0.0 if action == "delete" else payload_size_bytes * costs.payload_seconds_per_byte
    others = thread_count - 1.0
    crowding = 1.0 + costs.contention_fraction * others + costs.coherence_fraction * thread_count * others
    return np.asarray((fixed + (each + payload) * batch) * crowding)


def client_wait_seconds(costs: QueueCosts, request_rate_per_second: Array, thread_count: Array) -> Array:
    """w: how long a request waits for the client's CPU at this rate of all requests together."""
    seconds = 1.0 / costs.client_request_rate_max_per_second
    busy = np.minimum(request_rate_per_second * seconds, 1.0)
    return np.asarray(0.5 * seconds * busy / (1.0 - busy * (thread_count - 1.0) / thread_count))


def forecast(costs: QueueCosts, drive: Drive) -> Forecast:
    """Rates, goodput and latency of each setting for each draw of the physics."""
    alone = _undisturbed(costs, drive)
    rates = _rates(costs, drive, alone)
    carried, undisturbed = rates.carried, _undisturbed_seconds(drive, alone, rates)
    moments = _moments(costs, drive, rates, undisturbed)
    latency = (moments.share * moments.mean_seconds).sum(axis=0)
    capacity = np.minimum(np.minimum(rates.unlimited, rates.receive), np.minimum(rates.delete, rates.client))
    return Forecast(
        send_rate=rates.send,
        receive_rate=rates.receive,
        delete_rate=rates.delete,
        held_seconds=rates.held_seconds,
        client_load=rates.requests / costs.client_request_rate_max_per_second,
        client_wait_seconds=rates.client_wait_seconds,
        goodput=carried * costs.efficiency_fraction,
        latency_seconds=latency,
        waiting_fraction=1.0 - undisturbed / latency,
        paced_fraction=np.clip((capacity / _limit(drive) - 1.0) / _PACED_MARGIN, 0.0, 1.0),
        moments=moments,
    )


def latency_quantile_seconds(moments: Moments, fraction: float) -> Array:
    """The quantile of latency, (draws, settings), of a mixture of gamma distributions, one for each moment."""
    low = np.zeros(moments.mean_seconds.shape[1:])
    high = (moments.mean_seconds + _QUANTILE_DEVIATIONS * moments.deviation_seconds).max(axis=0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        within = gamma_probability(middle, moments.mean_seconds, moments.deviation_seconds)
        is_below = (moments.share * within).sum(axis=0) < fraction
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return np.asarray((low + high) / 2.0)


def _limit(drive: Drive) -> Array:
    return np.where(drive.send_rate_limit_per_second > 0, drive.send_rate_limit_per_second, np.inf)


def _rates(costs: QueueCosts, drive: Drive, alone: _Undisturbed) -> _Rates:
    """The rates at the fixed point of the wait w for the client's CPU, found by bisection and Newton's method."""
    seconds = 1.0 / costs.client_request_rate_max_per_second
    others = (drive.thread_count - 1.0) / drive.thread_count

    def excess(wait: Array) -> Array:
        """The client's load at this wait, less the load that would cause such a wait."""
        rates = _rates_with(costs, drive, alone, wait, has_window=False)
        busy = wait / (0.5 * seconds + others * wait)
        return np.asarray(rates.requests * seconds - np.minimum(busy, 1.0))

    low = np.zeros_like(seconds * drive.thread_count)
    high = low + seconds * drive.thread_count
    for _ in range(_WAIT_HALVINGS):
        wait = (low + high) / 2.0
        is_longer = excess(wait) > 0
        low, high = np.where(is_longer, wait, low), np.where(is_longer, high, wait)
    wait = (low + high) / 2.0
    for _ in range(_WAIT_NEWTON_STEPS):
        here, step = excess(wait), 1e-3 * (wait + seconds * 1e-3)
        slope = np.minimum((excess(wait + step) - here) / step, -1e-9)
        wait = np.clip(wait - here / slope, low, high)
    return _rates_with(costs, drive, alone, wait, has_window=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Undisturbed:
    """Seconds of each request without waiting for the client's CPU."""

    send: Array
    receive: Array
    delete: Array
    single_receive: Array  # of one message
    empty_receive: Array  # of no message
    empty_delete: Array


def _undisturbed(costs: QueueCosts, drive: Drive) -> _Undisturbed:
    batch, none = drive.batch_message_count, np.zeros_like(drive.batch_message_count)

    def seconds(action: str, count: Array) -> Array:
        return request_seconds(costs, action, count, drive.payload_size_bytes, drive.thread_count)

    return _Undisturbed(
        send=seconds("send", batch),
        receive=seconds("receive", batch),
        delete=seconds("delete", batch),
        single_receive=seconds("receive", none + 1.0),
        empty_receive=seconds("receive", none),
        empty_delete=seconds("delete", none),
    )


def _rates_with(
    costs: QueueCosts, drive: Drive, alone: _Undisturbed, wait_seconds: Array, *, has_window: bool
) -> _Rates:
    batch = drive.batch_message_count
    send_seconds = alone.send + wait_seconds
    receive_seconds = alone.receive + wait_seconds
    delete_seconds = alone.delete + wait_seconds
    delivery_seconds = costs.delivery_seconds + receive_seconds - alone.single_receive
    on_the_way = np.maximum(delivery_seconds - send_seconds / 2.0, _ON_THE_WAY_SECONDS_MIN)
    empty_receive_seconds = alone.empty_receive + wait_seconds
    held_seconds = (
        receive_seconds - empty_receive_seconds / 2.0 + batch * drive.work_seconds + delete_seconds / 2.0
    )
    ordered = drive.message_group_count * batch / held_seconds
    receive_seconds = receive_seconds + batch * drive.work_seconds
    service = costs.request_rate_max_per_second * batch
    unlimited = np.minimum(drive.sender_count * batch / send_seconds, service)
    send = np.minimum(unlimited, _limit(drive))
    if has_window:
        windowed = _windowed(costs, drive, send, send_seconds, on_the_way)
    else:
        windowed = np.minimum(send, _window_rate(drive, send_seconds + on_the_way))
    receive = np.minimum(np.minimum(drive.receiver_count * batch / receive_seconds, service), ordered)
    delete = np.minimum(drive.deleter_count * batch / delete_seconds, service)
    carried = np.minimum(windowed, np.minimum(receive, delete))
    receives = _requests(
        drive.receiver_count,
        empty_receive_seconds,
        receive_seconds,
        batch=batch,
        carried=carried,
        most=carried * np.minimum(1.0, 1.0 / (_FILLED_MIN * batch)),
    )
    deletes = _requests(
        drive.deleter_count,
        alone.empty_delete + wait_seconds,
        delete_seconds,
        batch=batch,
        carried=carried,
        most=receives,
    )
    return _Rates(
        send_seconds=send_seconds,
        receive_seconds=receive_seconds,
        held_seconds=held_seconds,
        delivery_seconds=delivery_seconds,
        on_the_way_seconds=on_the_way,
        unlimited=unlimited,
        send=send,
        windowed=windowed,
        receive=receive,
        delete=delete,
        client=costs.client_request_rate_max_per_second * batch / REQUESTS_PER_MESSAGE_BATCH,
        receives=receives,
        requests=carried / batch + receives + deletes,
        client_wait_seconds=wait_seconds,
    )


def _undisturbed_seconds(drive: Drive, alone: _Undisturbed, rates: _Rates) -> Array:
    """Seconds from the start of a send to the receive of a message that does not wait in a queue."""
    carried = np.minimum(rates.windowed, np.minimum(rates.receive, rates.delete))
    waiting = 1.0 - carried / rates.receive
    unfilled = 1.0 - carried / (drive.batch_message_count * rates.receives)
    # A waiting poll may have the message before the sender knows that it was accepted.
    arrival = rates.delivery_seconds + waiting * _batch_seconds(
        drive, alone, rates.client_wait_seconds, unfilled
    )
    return np.asarray(rates.send_seconds / 2.0 + np.maximum(arrival, _ON_THE_WAY_SECONDS_MIN))


def _batch_seconds(drive: Drive, alone: _Undisturbed, wait_seconds: Array, unfilled: Array) -> Array:
    """What batches add to the time of a message that finds receivers waiting.

    It is longer if fewer receivers wait than a batch has messages, and shorter because batches are not full.
    """
    saved = unfilled * (alone.receive - alone.empty_receive)
    left = np.maximum(1.0 - drive.receiver_count / drive.batch_message_count, 0.0)
    return np.asarray(_LEFT_SHARE * left * (alone.empty_receive + wait_seconds + drive.work_seconds) - saved)


def _requests(
    thread_count: Array,
    empty_seconds: Array,
    full_seconds: Array,
    *,
    batch: Array,
    carried: Array,
    most: Array,
) -> Array:
    """R_a: requests per second of threads that take what is there at once: the more threads, the less full batches.

    It is between the rate for full batches and `most`.
    """
    each = (full_seconds - empty_seconds) / batch
    requests = (thread_count - carried * each) / empty_seconds
    return np.asarray(np.clip(requests, carried / batch, np.maximum(most, carried / batch)))


def _windowed(
    costs: QueueCosts, drive: Drive, send: Array, send_seconds: Array, on_the_way_seconds: Array
) -> Array:
    """The rate of senders behind a send window; it is computed in batches, because a batch leaves whole."""
    batch = drive.batch_message_count
    batches = windowed_rate(
        window=np.maximum(np.floor(drive.send_window / batch), 1.0),
        rate_per_second=send / batch,
        sender_count=drive.sender_count,
        send_seconds=send_seconds,
        on_the_way_seconds=on_the_way_seconds,
        variation=costs.variation_fraction,
    )
    return np.where(drive.send_window > 0, batch * batches, send)


def _moments(costs: QueueCosts, drive: Drive, rates: _Rates, undisturbed_seconds: Array) -> Moments:
    """Latencies before and after the receive window has filled, which it never does if the deleters keep up."""
    arriving = np.minimum(rates.windowed, rates.client)
    surplus = np.maximum(np.minimum(arriving, rates.receive) - rates.delete, _RATE_MIN)
    filled_after = np.where(drive.receive_window > 0, drive.receive_window / surplus, np.inf)
    filled_after = np.minimum(filled_after, MEASURED_SECONDS)
    by_deleters = np.minimum(rates.receive, rates.delete)
    parts = [
        _part(costs, drive, rates, undisturbed_seconds, arriving, onward=onward, duration_seconds=seconds)
        for onward, seconds in (
            (rates.receive, filled_after),
            (by_deleters, MEASURED_SECONDS - filled_after),
        )
    ]
    counts = np.concatenate([part.share for part in parts])
    return Moments(
        share=counts / counts.sum(axis=0),
        mean_seconds=np.concatenate([part.mean_seconds for part in parts]),
        deviation_seconds=np.concatenate([part.deviation_seconds for part in parts]),
    )


def _part(
    costs: QueueCosts,
    drive: Drive,
    rates: _Rates,
    undisturbed_seconds: Array,
    arriving: Array,
    *,
    onward: Array,
    duration_seconds: Array,
) -> Moments:
    """Latencies while messages arrive at one rate and go onward at another; `share` is the number of messages."""
    load, passed = arriving / onward, np.minimum(arriving, onward)
    scatter = _arrival_variance(costs, drive, load) + costs.variation_fraction**2
    variance = scatter * drive.batch_message_count / onward * np.minimum(load, 1.0)
    elapsed = _MOMENTS[:, None, None] * duration_seconds * np.minimum(1.0, 1.0 / load)
    servers = np.where(onward < rates.receive, drive.deleter_count, drive.receiver_count)
    idle_servers = np.minimum(load, 1.0) ** (np.sqrt(2.0 * (servers + 1.0)) - 2.0)
    waiting = reflected_walk_mean(load - 1.0, variance, elapsed) * idle_servers
    most = np.maximum(_window_seconds(drive, passed) - undisturbed_seconds, 0.0)
    scattered = costs.variation_fraction**2 * (rates.send_seconds**2 / 4.0 + rates.on_the_way_seconds**2)
    waiting = np.minimum(waiting, most)
    shape = waiting.shape
    return Moments(
        share=np.broadcast_to(passed * duration_seconds, shape),
        mean_seconds=undisturbed_seconds + waiting,
        # As if waits were exponential, because the queue is not served in order.
        deviation_seconds=np.sqrt(scattered + waiting**2),
    )


def _arrival_variance(costs: QueueCosts, drive: Drive, load: Array) -> Array:
    """ca^2: the variability of arrivals of batches from several senders."""
    others = drive.sender_count - 1.0
    weight = 1.0 / (1.0 + 4.0 * np.maximum(1.0 - load, 0.0) ** 2 * others)
    return np.asarray(weight * costs.variation_fraction**2 + (1.0 - weight))


def _window_rate(drive: Drive, seconds: Array) -> Array:
    """The most that a window admits of messages that take so long (Little's law); inf without a window."""
    return np.where(drive.send_window > 0, drive.send_window / seconds, np.inf)


def _window_seconds(drive: Drive, carried: Array) -> Array:
    """The longest that a message can take with a full window (Little's law); inf without a window."""
    held = _WINDOW_FILLED * drive.send_window
    return np.where(drive.send_window > 0, held / np.maximum(carried, _RATE_MIN), np.inf)
