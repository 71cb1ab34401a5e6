"""Knows the queueing formulas that the SQS advice rests on: windows, scalability, batches.

Plain functions of floats: no units are mixed, rates are per second, loads are erlangs (rate times holding
time).
"""

from __future__ import annotations

import math

import numpy as np

from penstock.models.model import Array

WINDOW_MAX = 120_000  # messages in flight that SQS allows
_PLACES_MAX = 48  # of a network that is computed; larger ones are taken in larger units
_DRIFT_MIN = 1e-6


def erlang_b_window(offered_erlangs: float, blocked_fraction_max: float) -> int:
    """The smallest window that blocks at most this fraction of arrivals."""
    blocked = 1.0
    window = 0
    while blocked > blocked_fraction_max and window < WINDOW_MAX:
        window += 1
        blocked = offered_erlangs * blocked / (window + offered_erlangs * blocked)
    return max(window, 1)


def peak_thread_count(sigma: float, kappa: float) -> float:
    """Where the universal scalability law turns down: n* = sqrt((1 - sigma) / kappa)."""
    return math.inf if kappa <= 0 else math.sqrt(max(1.0 - sigma, 0.0) / kappa)


def mean_batch_message_count(
    rate_per_second: float, linger_seconds: float, batch_message_count_max: int
) -> float:
    """How full batches are when messages come at random and the first waits at most `linger_seconds`."""
    return min(float(batch_message_count_max), 1.0 + rate_per_second * linger_seconds)


def windowed_rate(
    *,
    window: Array,
    rate_per_second: Array,
    sender_count: Array,
    send_seconds: Array,
    on_the_way_seconds: Array,
    variation: Array,
) -> Array:
    """What senders start a second that rest while a window is full of what they send and what is on its way.

    A closed network of `window` places: with k on the way, min(senders, window - k) send, never faster than
    `rate_per_second`, and k arrive at k over their time on the way; whatever the shape of that time, its mean counts.
    Senders more regular than chance (`variation`, standard deviation over mean, below 1) collide less: all counts are
    taken in units of their peakedness (1 + variation^2) / 2 (Hayward), and of what keeps them few.
    """
    peakedness = np.maximum((1.0 + variation**2) / 2.0, 0.1)
    unit = np.maximum(peakedness, window / _PLACES_MAX)
    places, senders, most = window / unit, sender_count / unit, rate_per_second / unit
    offered = np.minimum(on_the_way_seconds / np.maximum(send_seconds, 1e-9), 1e3)
    limited = most * send_seconds  # senders that such a rate keeps busy
    on_the_way = np.arange(math.ceil(float(places.max(initial=0.0))) + 1.0)
    on_the_way = on_the_way.reshape(-1, *(1 for _ in np.broadcast_shapes(places.shape, offered.shape)))
    sending = np.clip(np.minimum(senders, places - on_the_way), 0.0, limited)
    steps = np.log(np.maximum(sending * offered, 1e-300)) - np.log(on_the_way + 1.0)
    logs = np.cumsum(np.concatenate([np.zeros((1, *steps.shape[1:])), steps[:-1]]), axis=0)
    chances = np.exp(logs - logs.max(axis=0))
    carried = (chances * sending).sum(axis=0) / chances.sum(axis=0)
    by_little = window / (send_seconds + on_the_way_seconds)
    return np.asarray(np.minimum(carried * unit / send_seconds, by_little))


def reflected_walk_mean(drift: Array, variance: Array, elapsed: Array) -> Array:
    """The mean wait after some time of a queue that was empty: a Brownian motion kept at or above 0.

    E = s^2/(2d) (2 Phi(x) - 1) + d t Phi(x) + s sqrt(t) phi(x) with x = d sqrt(t)/s: s^2/(2|d|) in the end when d < 0.
    """
    drift = np.where(np.abs(drift) < _DRIFT_MIN, _DRIFT_MIN, drift)
    deviation = np.sqrt(np.maximum(variance * elapsed, 1e-18))
    distance = np.clip(drift * elapsed / deviation, -30.0, 30.0)
    below = _normal_probability(distance)
    density = np.exp(-(distance**2) / 2.0) / math.sqrt(2.0 * math.pi)
    settled = variance / (2.0 * drift) * (2.0 * below - 1.0)
    return np.asarray(np.maximum(settled + drift * elapsed * below + deviation * density, 0.0))


def gamma_probability(values: Array, means: Array, deviations: Array) -> Array:
    """The probability of no more than a value, where means and deviations are given (Wilson and Hilferty)."""
    shape = (means / np.maximum(deviations, 1e-12)) ** 2
    cube_root = np.cbrt(np.maximum(values, 0.0) / np.maximum(means, 1e-12))
    return _normal_probability((cube_root - 1.0 + 1.0 / (9.0 * shape)) * 3.0 * np.sqrt(shape))


def _normal_probability(values: Array) -> Array:
    """Phi, within 2e-4 and exact in the middle and far out (the usual fit by a hyperbolic tangent)."""
    return np.asarray(0.5 + 0.5 * np.tanh(math.sqrt(2.0 / math.pi) * values * (1.0 + 0.044715 * values**2)))
