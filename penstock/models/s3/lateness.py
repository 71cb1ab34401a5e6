"""Knows requests that come late whatever the setting: how often, by how much, and what a transfer loses by them.

One request in so many waits for a second or more where all others take some milliseconds. The law is about what is
usual, and a transfer that met one is a dip to it; but what an application waits for on average has them in it. Many
requests meet one more often than few.

k requests, n of them at a time, usually take T seconds together, and each of them is late by D seconds with a chance of
q. They usually end between the end of the first wave and that of the transfer, X = T (1 - n/k). While one waits the
others do its connection's work, so that one which should have ended u seconds before the transfer makes that late by
D - u, where that is more than nothing. The latest of them decides; if late ones fall by chance, at a rate of
lambda = q k / X, its u is exponential, and with W = min(X, D)

    E[delay] = integral over u from 0 to W of (D - u) lambda exp(-lambda u)
             = (D - W) (1 - exp(-lambda W)) + W - (1 - exp(-lambda W)) / lambda

which is D (1 - exp(-q k)) for a single wave, and about lambda D^2 / 2 for a long transfer, whatever its length. In a
stream of many objects a late request only leaves one connection idle, which all that was measured has in it.
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
    """What is known of late requests: a share of all of them, and by how much they are late in the mean."""

    fraction: float  # q
    seconds: float  # D
    seen_count: int  # of late ones that were measured

    def delay_seconds(self, transfers: Transfers, usual_seconds: Array) -> Array:
        """By how much transfers are late in the mean that usually take so long, (draws, transfers)."""
        request_count = transfers.full * transfers.n + transfers.rest
        spread_seconds = usual_seconds * (1.0 - transfers.n / request_count)  # X
        window_seconds = np.minimum(spread_seconds, self.seconds)  # W
        share = self.seconds / np.maximum(spread_seconds, self.seconds)
        late_count = np.maximum(self.fraction * request_count * share, _NONE)  # lambda W
        chance = -np.expm1(-late_count)
        delay = (self.seconds - window_seconds) * chance + window_seconds * (1.0 - chance / late_count)
        return np.asarray(np.where(transfers.is_steady, 0.0, delay), dtype=np.float64)

    def slowed(self, transfers: Transfers, log_throughput: Array) -> Array:
        """The logarithm of what is moved a second in the mean time, of what usually is."""
        return np.asarray(
            log_throughput - np.log1p(self.delay_fraction(transfers, log_throughput)), dtype=np.float64
        )

    def delay_fraction(self, transfers: Transfers, log_throughput: Array) -> Array:
        """How much longer than usual transfers take in the mean, of what is usually moved a second."""
        usual_seconds = np.maximum(transfers.transferred, 1.0) * np.exp(-log_throughput)
        return np.asarray(self.delay_seconds(transfers, usual_seconds) / usual_seconds, dtype=np.float64)


_NONE = 1e-12  # late requests: so few are none


_PRIOR_REQUEST_COUNT = 1000.0  # so many requests weigh as much as what tables say of the direction


def lateness(direction: Direction, observations: Iterable[Observation[Any]]) -> Lateness:
    """The mean of what is believed after these: late ones are Poisson, at a rate that is gamma."""
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
    """Of one observation."""

    request_count: int
    late_count: int
    late_seconds: float  # of all of them


# Late is what takes so many times as long as is usual at its setting, and is so many standard deviations off the
# log-normal law of three in four of its requests. GETs for 1 KiB follow such a law as far as one in ten thousand, with
# .6 of the logarithm. A connection that is made for a request takes up to three round trips more.
_LATE_RATIO = 4.0
_LATE_DEVIATIONS = 4.0
_TOLD_SECONDS = 2.0  # over what is usual: requests of which only later ones could be told say nothing
_DEVIATIONS_P75 = 0.6745


def _seen(observation: Observation[Any]) -> _Seen | None:
    """What single requests say; None where they usually take too long to tell, or as many are slow as belong to it."""
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
    """Until the first byte where that is known: what the path does to a body is no fault of the request."""
    histograms = observation.histograms
    times = histograms.get("first_byte_seconds") or histograms.get("request_seconds")
    return times if times is not None and times.counts else None
