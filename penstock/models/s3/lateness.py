"""Knows requests that are late whatever the setting: how often, by how much, and what a transfer loses by them.

One request in so many waits for a second or more while all others take milliseconds. The law describes the usual case,
in which a transfer with a late request counts as a dip. But the average time of a transfer includes late requests, and
a transfer of many requests meets one more often.

k requests, n of them at a time, usually take T seconds together, and each is late by D seconds with probability q. They
usually end between the end of the first wave and that of the transfer, a time of X = T (1 - n/k). While one request
waits, other connections do the work of its connection. So a late request that should have ended u seconds before the
transfer delays it by D - u, if that is positive, and the last of the late ones decides. If late requests occur at
random with a rate of lambda = q k / X, its u is exponential, and with W = min(X, D)

    E[delay] = integral over u from 0 to W of (D - u) lambda exp(-lambda u)
             = (D - W) (1 - exp(-lambda W)) + W - (1 - exp(-lambda W)) / lambda

which is D (1 - exp(-q k)) for a single wave, and about lambda D^2 / 2 for a long transfer, whatever its length. In a
stream of many objects a late request only leaves one connection idle, which all measurements include.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from penstock.models.inference.histogram import count_of, quantile, values_and_counts
from penstock.models.model import Array
from penstock.models.s3.directions import Direction
from penstock.models.s3.law import Transfers
from penstock.vocabulary import Histogram, Observation, is_stray


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """What is known about late requests: their share of all requests, and their mean delay."""

    fraction: float  # q
    seconds: float  # D
    seen_count: int  # of measured late requests

    def delay_seconds(self, transfers: Transfers, usual_seconds: Array) -> Array:
        """The mean delay of transfers that usually take `usual_seconds`, (draws, transfers)."""
        request_count = transfers.full * transfers.n + transfers.rest
        spread_seconds = usual_seconds * (1.0 - transfers.n / request_count)  # X
        window_seconds = np.minimum(spread_seconds, self.seconds)  # W
        share = self.seconds / np.maximum(spread_seconds, self.seconds)
        late_count = np.maximum(self.fraction * request_count * share, _NONE)  # lambda W
        chance = -np.expm1(-late_count)
        delay = (self.seconds - window_seconds) * chance + window_seconds * (1.0 - chance / late_count)
        return np.asarray(np.where(transfers.is_steady, 0.0, delay), dtype=np.float64)

    def slowed(self, transfers: Transfers, log_throughput: Array) -> Array:
        """The logarithm of throughput including the mean delay, from that of usual throughput, (draws, transfers)."""
        return np.asarray(
            log_throughput - np.log1p(self.delay_fraction(transfers, log_throughput)), dtype=np.float64
        )

    def delay_fraction(self, transfers: Transfers, log_throughput: Array) -> Array:
        """The mean delay over the usual time, from the logarithm of usual throughput, (draws, transfers)."""
        usual_seconds = np.maximum(transfers.transferred, 1.0) * np.exp(-log_throughput)
        return np.asarray(self.delay_seconds(transfers, usual_seconds) / usual_seconds, dtype=np.float64)


_NONE = 1e-12  # late requests; avoids a division by zero


_PRIOR_REQUEST_COUNT = 1000.0  # the weight of the tables, in requests


def lateness(direction: Direction, observations: Iterable[Observation[Any]]) -> Lateness:
    """The posterior mean after these observations: late requests are Poisson, and their rate has a gamma prior."""
    told = [seen for observation in observations if (seen := _seen(observation)) is not None]
    late_count = sum(seen.late_count for seen in told)
    prior_count = _PRIOR_REQUEST_COUNT * direction.late_fraction
    request_count = _PRIOR_REQUEST_COUNT + sum(seen.request_count for seen in told)
    late_seconds = prior_count * direction.late_seconds + sum(seen.late_seconds for seen in told)
    return Lateness(
        fraction=(prior_count + late_count) / request_count,
        seconds=late_seconds / (prior_count + late_count),
        seen_count=late_count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The requests of one observation."""

    request_count: int
    late_count: int
    late_seconds: float  # the sum of their delays


# A request is late if it takes more than `_LATE_RATIO` times the median at its setting, and is more than
# `_LATE_DEVIATIONS` standard deviations above it in the log-normal distribution that fits median and third quartile.
# GETs of 1 KiB follow such a law down to one in ten thousand, with a deviation of .6 of the logarithm. A request that
# opens a connection takes up to three round trips more.
_LATE_RATIO = 4.0
_LATE_DEVIATIONS = 4.0
_TOLD_SECONDS = 2.0  # over the median: if only later requests could be recognised, there is no evidence
_DEVIATIONS_P75 = 0.6745


def _seen(observation: Observation[Any]) -> _Seen | None:
    """The late requests; None if requests usually take too long to tell, or so many are slow that this is usual."""
    times = _times(observation)
    if times is None:
        return None
    usual_seconds = quantile(times, 0.5)
    deviation = log(quantile(times, 0.75) / usual_seconds) / _DEVIATIONS_P75
    bound_seconds = usual_seconds * max(_LATE_RATIO, exp(_LATE_DEVIATIONS * deviation))
    late = [(value, count) for value, count in values_and_counts(times) if value > bound_seconds]
    request_count, late_count = count_of(times), sum(count for _, count in late)
    if bound_seconds - usual_seconds > _TOLD_SECONDS or not is_stray(late_count, request_count):
        return None
    return _Seen(
        request_count=request_count,
        late_count=late_count,
        late_seconds=sum((value - usual_seconds) * count for value, count in late),
    )


def _times(observation: Observation[Any]) -> Histogram | None:
    """Times until the first byte if known, because the path also delays bodies; else times of requests; else None."""
    histograms = observation.histograms
    times = histograms.get("first_byte_seconds") or histograms.get("request_seconds")
    return times if times is not None and times.counts else None
