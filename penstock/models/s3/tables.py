"""Knows what tables say about the law in a place without measurements, and how much less in an unusual place.

A fit of one direction also informs the other direction of the same place: a long path slows both, and they share the
host's ceiling and processor.
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

# Of the host, and of the law in both directions.
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
    # Three round trips and slow start on a long path; nothing if connections are kept open.
    "cold_latencies": (2.0, 1.0),
}
_SLOW_IS_FAR = -0.6  # correlation of L and B: a long round trip slows a connection and each of its requests
_KNOWN_HOST_SPREAD = 0.25
_BURST_SPREAD = 0.9  # a long path may stay far below the burst rate, which says nothing about the baseline


def table_prior(place: Place) -> Gaussian:
    """The prior for a place without measurements."""
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


# Of the logarithm: a gateway carries a quarter of what a host does, the line of an edge site a hundredth.
_SLOWER_PATH_SPREAD = 2.0


def behind_a_slower_path(table: Gaussian) -> Gaussian:
    """The prior for a path with a ceiling below the host's own, typically a quarter of it, with or without credits."""
    mean, covariance = table.mean.copy(), table.covariance.copy()
    mean[HOST_RATE] -= 1.5
    covariance[HOST_RATE, HOST_RATE] = _SLOWER_PATH_SPREAD**2
    factor, spread = _ANYWHERE["burst_factor"]
    mean[BURST_FACTOR], covariance[BURST_FACTOR, BURST_FACTOR] = np.log(factor), spread**2
    return Gaussian(mean=mean, covariance=covariance)


_REFUSING_SPREAD = 3.0  # a self-hosted store may admit 40 requests per second where S3 admits 5,500
_REFUSALS_COST_SPREAD = 1.6  # clients that wait before they retry cost nothing


def where_requests_are_refused(table: Gaussian) -> Gaussian:
    """The prior if requests were refused: the limit is that of the store, and tables say next to nothing about it."""
    covariance = table.covariance.copy()
    covariance[PREFIX_RATE, PREFIX_RATE] = _REFUSING_SPREAD**2
    covariance[THROTTLING_SLOPE, THROTTLING_SLOPE] = _REFUSALS_COST_SPREAD**2
    return Gaussian(mean=table.mean, covariance=covariance)


# The direction, in logarithms, in which parameters move together if a transfer has no waves and no costs at its ends.
_PAUSES = {
    OBJECT_SECONDS: -1.0,
    OBJECT_SECONDS_PER_PART: -1.0,
    TAIL_SHARE: -1.0,
    COLD_LATENCIES: -1.0,
    WAVE_MIXING: 1.0,
}
_PAUSES_MEAN, _PAUSES_SPREAD = 1.5, 2.5  # these costs are a fiftieth to nearly three times the typical


def perhaps_without_pause(table: Gaussian) -> Gaussian:
    """The prior if only totals are known: a client that is fed without pause has next to no waves and ends."""
    along = np.zeros(len(PARAMETERS))
    along[list(_PAUSES)] = list(_PAUSES.values())
    return Gaussian(
        mean=table.mean + _PAUSES_MEAN * along,
        covariance=table.covariance + _PAUSES_SPREAD**2 * np.outer(along, along),
    )


# The correlation between both directions' deviations from their tables: the share of causes that slow both. Cold starts
# are not shared, because they depend on the sender's window: the service's in one direction, the client's in the other.
_SHARED = {
    LATENCY: 0.75,
    CONNECTION_RATE: 0.75,
    HOST_RATE: 0.9,
    BURST_FACTOR: 0.9,
    CPU_PER_REQUEST: 0.7,
    CPU_PER_BYTE: 0.7,
}


def from_the_other_direction(draws: Array, there: Place, table: Gaussian) -> Gaussian:
    """The prior of this direction from draws of the other one's parameters in the same place; `table` is without them.

    Each shared parameter x is taken to be normal, with correlation r to its counterpart y, so that
    x = m_x + r (s_x / s_y) (y - m_y), with a variance of s_x^2 (1 - r^2) in addition to that from y. What the other
    direction did not learn, such as a ceiling above all that it tried, has no effect.
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
