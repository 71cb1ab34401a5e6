"""Knows what tables say about the law in a place that nobody measured, and how little they say where it is unusual.

A fit of one direction says something about the other of the same place: a long way slows both, and the host's ceiling
and processor are the same.
"""

from __future__ import annotations

import numpy as np

from penstock.models.inference.posterior import Gaussian
from penstock.models.model import Array
from penstock.models.s3.directions import Typical, direction_of, host_ceiling
from penstock.models.s3.law import (
    BURST_FACTOR,
    COLD_LATENCIES,
    CONNECTION_RATE,
    CPU_PER_BYTE,
    CPU_PER_REQUEST,
    HOST_RATE,
    LATENCY,
    OBJECT_SECONDS,
    OBJECT_SECONDS_PER_PART,
    PARAMETERS,
    PREFIX_RATE,
    TAIL_SHARE,
    THROTTLING_SLOPE,
    WAVE_MIXING,
)
from penstock.vocabulary import Place

# Of the host and of any law of this kind, whichever way the bytes go.
_ANYWHERE: Typical = {
    "host_bytes_per_second": (500e6, 1.8),
    "burst_factor": (1.0, 0.01),
    "cpu_seconds_per_request": (2e-4, 2.0),
    "cpu_seconds_per_byte": (1 / 3e9, 1.0),
    "knee_sharpness": (6.0, 1.0),
    "overload_slope": (0.05, 1.5),
    "overload_onset": (2.0, 0.3),
    "throttling_slope": (0.5, 0.8),
    "wave_mixing": (1.0, 1.2),
    "tail_share": (0.3, 0.8),
    # three round trips and slow start far away, nothing where connections are kept
    "cold_latencies": (2.0, 1.0),
}
_SLOW_IS_FAR = -0.6  # correlation of L and B: a long round trip slows a connection and each of its requests
_KNOWN_HOST_SPREAD = 0.25
_BURST_SPREAD = 0.9  # a long path may end far below the burst rate, which says nothing about the baseline


def table_prior(place: Place) -> Gaussian:
    """What tables say about a place that nobody measured."""
    direction = direction_of(place.operation)
    typical = dict(_ANYWHERE) | dict(direction.typical)
    if place.service_class == "express":
        typical |= direction.typical_express
    limits = host_ceiling(place)
    if limits is not None:
        typical["host_bytes_per_second"] = (limits.baseline_bytes_per_second, _KNOWN_HOST_SPREAD)
    if limits is not None and limits.is_burstable:
        factor = limits.burst_bytes_per_second / limits.baseline_bytes_per_second
        typical["burst_factor"] = (factor, _BURST_SPREAD)
    mean = np.log([typical[name][0] for name in PARAMETERS])
    spread = np.array([typical[name][1] for name in PARAMETERS])
    covariance = np.diag(spread**2)
    covariance[LATENCY, CONNECTION_RATE] = covariance[CONNECTION_RATE, LATENCY] = (
        _SLOW_IS_FAR * spread[LATENCY] * spread[CONNECTION_RATE]
    )
    return Gaussian(mean=mean, covariance=covariance)


# Of its logarithm: a gateway carries a quarter of what a host does, the line of an edge site a hundredth.
_SLOWER_PATH_SPREAD = 2.0


def behind_a_slower_path(table: Gaussian) -> Gaussian:
    """The same where a ceiling on the way is lower than the host's own, typically a quarter of it, credits or not."""
    mean, covariance = table.mean.copy(), table.covariance.copy()
    mean[HOST_RATE] -= 1.5
    covariance[HOST_RATE, HOST_RATE] = _SLOWER_PATH_SPREAD**2
    factor, spread = _ANYWHERE["burst_factor"]
    mean[BURST_FACTOR], covariance[BURST_FACTOR, BURST_FACTOR] = np.log(factor), spread**2
    return Gaussian(mean=mean, covariance=covariance)


_REFUSING_SPREAD = 3.0  # a store of one's own may take 40 requests a second where S3 takes 5,500
_REFUSALS_COST_SPREAD = 1.6  # and who waits before he asks again costs the others nothing


def where_requests_are_refused(table: Gaussian) -> Gaussian:
    """The same where some were refused: the limit is that of whoever refuses, and tables say next to nothing of it."""
    covariance = table.covariance.copy()
    covariance[PREFIX_RATE, PREFIX_RATE] = _REFUSING_SPREAD**2
    covariance[THROTTLING_SLOPE, THROTTLING_SLOPE] = _REFUSALS_COST_SPREAD**2
    return Gaussian(mean=table.mean, covariance=covariance)


# What the waves and ends of a transfer cost, in logarithms: all of it falls together where there are none.
_PAUSES = {
    OBJECT_SECONDS: -1.0,
    OBJECT_SECONDS_PER_PART: -1.0,
    TAIL_SHARE: -1.0,
    COLD_LATENCIES: -1.0,
    WAVE_MIXING: 1.0,
}
_PAUSES_MEAN, _PAUSES_SPREAD = 1.5, 2.5  # from a quarter more than is typical to a fiftieth of it


def perhaps_without_pause(table: Gaussian) -> Gaussian:
    """The same where only totals are known: a client that is fed without pause has next to no waves and ends."""
    along = np.zeros(len(PARAMETERS))
    along[list(_PAUSES)] = list(_PAUSES.values())
    return Gaussian(
        mean=table.mean + _PAUSES_MEAN * along,
        covariance=table.covariance + _PAUSES_SPREAD**2 * np.outer(along, along),
    )


# How much of what the other direction is off its table this one is, too: what slows both, of all that slows either.
# Not how cold connections begin: that is the sender's window, here the service's and there the client's.
_SHARED = {
    LATENCY: 0.75,
    CONNECTION_RATE: 0.75,
    HOST_RATE: 0.9,
    BURST_FACTOR: 0.9,
    CPU_PER_REQUEST: 0.7,
    CPU_PER_BYTE: 0.7,
}


def from_the_other_direction(draws: Array, there: Place, table: Gaussian) -> Gaussian:
    """What draws of the other direction's parameters say of this one, whose table is given; both of the same place.

    Each shared parameter x is believed to be normal and correlated by r with its fellow y, so that
    x = m_x + r (s_x / s_y) (y - m_y), with a variance of s_x^2 (1 - r^2) besides that of y. What the other direction
    never came to see, like a ceiling above all that it tried, is no more heard than it is known.
    """
    other = table_prior(there)
    index = list(_SHARED)
    own, theirs = (np.sqrt(np.diag(belief.covariance))[index] for belief in (table, other))
    learned = np.sqrt(np.clip(1.0 - (draws.std(axis=0)[index] / theirs) ** 2, 0.0, 1.0))
    shared = np.array([_SHARED[i] for i in index]) * learned
    slope = shared * own / theirs
    mean, covariance = table.mean.copy(), table.covariance.copy()
    mean[index] += slope * (draws.mean(axis=0) - other.mean)[index]
    known = np.cov(draws.T)[np.ix_(index, index)] * np.outer(slope, slope)
    kept = np.outer(np.sqrt(1.0 - shared**2), np.sqrt(1.0 - shared**2))
    covariance[np.ix_(index, index)] = covariance[np.ix_(index, index)] * kept + known
    return Gaussian(mean=mean, covariance=covariance)
