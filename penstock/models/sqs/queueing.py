"""Knows the queueing formulas behind the advice for SQS: windows, scalability, batches, waits.

Rates are per second. Loads are in erlangs: a rate times the time for which each holds its place.

    B(0) = 1,  B(k) = a B(k-1) / (k + a B(k-1))    blocked fraction of a erlangs at k places, whatever the distribution
                                                   of the holding time [Erlang 1917; Sevastyanov 1957]
    n* = sqrt((1 - sigma) / kappa)                 the maximum of the universal scalability law [Gunther 2007]
    min(b, 1 + lambda tau)                         mean batch of random arrivals, the first of which waits for tau

Sources: Erlang, Elektroteknikeren 13, 1917. Sevastyanov, Theory of Probability 2, 1957. Gunther, Guerrilla Capacity
Planning, 2007. Fredericks, Bell System Technical Journal 59, 1980 (Hayward's approximation). Abate and Whitt, Advances
in Applied Probability 19, 1987 (reflected Brownian motion). Wilson and Hilferty, PNAS 17, 1931. Page, Applied
Statistics 26, 1977 (the normal distribution by a hyperbolic tangent).
"""

from __future__ import annotations

import math

import numpy as np

from penstock.models.model import Array

WINDOW_MAX = 120_000  # messages in flight that SQS allows (SQS quotas, standard queue, 2026)
_PLACES_MAX = 48  # of a network that is computed; larger ones are computed in larger units
_OFFERED_MAX = 1e3  # erlangs of one sender; beyond this, practically all messages are on the way
_PEAKEDNESS_MIN = 0.1
_DRIFT_MIN = 1e-6  # less counts as no drift
_DISTANCE_MAX = 30.0  # deviations, beyond which the normal distribution is 0 or 1
_PAGE = 0.044715  # Page's coefficient: within 2e-4 of the normal distribution


def erlang_b_window(offered_erlangs: float, blocked_fraction_max: float) -> int:
    """The smallest k for which B(k) is at most this fraction."""
    blocked = 1.0
    window = 0
    while blocked > blocked_fraction_max and window < WINDOW_MAX:
        window += 1
        blocked = offered_erlangs * blocked / (window + offered_erlangs * blocked)
    return max(window, 1)


def peak_thread_count(sigma: float, kappa: float) -> float:
    """n*: the number of threads beyond which more carry less; inf if they never do."""
    return math.inf if kappa <= 0 else math.sqrt(max(1.0 - sigma, 0.0) / kappa)


def mean_batch_message_count(
    rate_per_second: float, linger_seconds: float, batch_message_count_max: int
) -> float:
    """The mean size of batches if messages arrive at random and the first waits at most `linger_seconds`."""
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
    """The rate of senders that pause while a window is full, per second; arrays broadcast.

    The window of W places holds what is being sent and what is on the way: a closed network. With k on the way, each
    for a time D of any distribution,

        send(k) = min(senders, W - k, rate l)        senders at work, each for l seconds; arrivals come at k / D
        p(k+1) / p(k) = send(k) D / (l (k + 1))      birth and death
        carried = sum p(k) send(k) / l               at most W / (l + D) [Little 1961]

    Senders that are more regular than random (`variation` c, standard deviation over mean, below 1) collide less: all
    counts are in units of the peakedness (1 + c^2) / 2 (Hayward), or in larger units for a large window.
    """
    peakedness = np.maximum((1.0 + variation**2) / 2.0, _PEAKEDNESS_MIN)
    unit = np.maximum(peakedness, window / _PLACES_MAX)
    places, senders, most = window / unit, sender_count / unit, rate_per_second / unit
    offered = np.minimum(on_the_way_seconds / np.maximum(send_seconds, 1e-9), _OFFERED_MAX)
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
    """The mean wait, after some time, of a queue that was empty: a Brownian motion reflected at 0.

    With drift d, variance s^2 a second and x = d sqrt(t) / s,

        E = s^2 / (2 d) (2 Phi(x) - 1) + d t Phi(x) + s sqrt(t) phi(x)

    In the long run this is s^2 / (2 |d|) if d < 0, and d t if d > 0.
    """
    drift = np.where(np.abs(drift) < _DRIFT_MIN, _DRIFT_MIN, drift)
    deviation = np.sqrt(np.maximum(variance * elapsed, 1e-18))
    distance = np.clip(drift * elapsed / deviation, -_DISTANCE_MAX, _DISTANCE_MAX)
    below = _normal_probability(distance)
    density = np.exp(-(distance**2) / 2.0) / math.sqrt(2.0 * math.pi)
    settled = variance / (2.0 * drift) * (2.0 * below - 1.0)
    return np.asarray(np.maximum(settled + drift * elapsed * below + deviation * density, 0.0))


def gamma_probability(values: Array, means: Array, deviations: Array) -> Array:
    """Distribution function of gamma variables, whose cube roots are nearly normal [Wilson and Hilferty].

    With k = (mean / deviation)^2: Phi(3 sqrt(k) ((x / mean)^(1/3) - 1 + 1 / (9 k))).
    """
    shape = (means / np.maximum(deviations, 1e-12)) ** 2
    cube_root = np.cbrt(np.maximum(values, 0.0) / np.maximum(means, 1e-12))
    return _normal_probability((cube_root - 1.0 + 1.0 / (9.0 * shape)) * 3.0 * np.sqrt(shape))


def _normal_probability(values: Array) -> Array:
    """Phi = (1 + tanh(sqrt(2 / pi) x (1 + 0.044715 x^2))) / 2, exact at the centre and far out [Page 1977]."""
    return np.asarray(0.5 + 0.5 * np.tanh(math.sqrt(2.0 / math.pi) * values * (1.0 + _PAGE * values**2)))
