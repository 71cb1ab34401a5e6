"""Knows the queueing formulas that the SQS advice rests on: windows, scalability, batches.

Plain functions of floats: no units are mixed, rates are per second, loads are erlangs (rate times holding
time).
"""

from __future__ import annotations

import math

import numpy as np

from penstock.models.model import Array

WINDOW_MAX = 120_000  # messages in flight that SQS allows
_RECURSION_PLACES = 128


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


def erlang_b_blocked_fractions(windows: Array, offered_erlangs: Array) -> Array:
    """The fraction of arrivals that find all places of a window taken, whatever the shape of the holding time.

    B(0) = 1, B(k) = a B(k-1) / (k + a B(k-1)) for small windows, and its limit for large ones: past 128
    places B ~ phi(z) / (sqrt(a) Phi(z)) with z = (W - a) / sqrt(a), and never less than 1 - W/a.
    """
    windows, offered = np.broadcast_arrays(windows, np.maximum(offered_erlangs, 1e-9))
    small = np.minimum(windows, _RECURSION_PLACES)
    blocked = np.ones(windows.shape)
    for place in range(1, int(small.max(initial=0)) + 1):
        following = offered * blocked / (place + offered * blocked)
        blocked = np.where(place <= small, following, blocked)
    large = windows > _RECURSION_PLACES
    if large.any():
        blocked = blocked.copy()
        blocked[large] = _blocked_fraction_of_many(windows[large], offered[large])
    return blocked


def _blocked_fraction_of_many(windows: Array, offered: Array) -> Array:
    root = np.sqrt(offered)
    distance = np.clip((windows - offered) / root, -8.0, 8.0)
    density = np.exp(-(distance**2) / 2.0) / math.sqrt(2.0 * math.pi)
    mass = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in distance])
    return np.asarray(np.clip(np.maximum(density / (root * mass), 1.0 - windows / offered), 0.0, 1.0))
