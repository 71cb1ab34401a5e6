"""Knows how request times are distributed, what hedging would gain, and how successive requests correlate.

A hedged request that has taken `delay` is sent once more, and the first answer counts. With X and Y the times of both,
assumed independent,

    P(slower than t) = P(X > t)                     up to the delay
                     = P(X > t) P(Y > t - delay)    beyond it

and the fraction P(X > delay) of all requests is sent twice. Y is a request of the same setting: a large part that is
sent again does not take the time of a small one. If successive requests correlate, the second is no independent draw
and the gain is smaller, so the correlation is shown as well.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.models.inference.histogram import correlation, count_of, merged, quantile, values_and_counts
from penstock.report.tally import Tally
from penstock.vocabulary import Estimate, Histogram, Pairs

COUNT_MIN = 100  # requests; fewer have no 99th percentile
EXTRA_FRACTION_MAX = 0.05  # of requests that may be sent twice
_SENT_AGAIN = ("request_seconds", "first_byte_seconds")  # of S3; a message sent again would be a duplicate
_SUCCESSIVE = ("request_seconds", "delivery_seconds")  # the times that `Observation.successive` is about
_DELAY_FRACTIONS = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedge:
    """What sending slow requests again does to the slowest of a hundred, and of a thousand."""

    delay_seconds: float
    extra_fraction: float  # of requests sent twice
    p99_seconds: float
    p999_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The distribution of one kind of time, for payloads of one size."""

    name: str  # of the histogram: "request_seconds"
    payload_size_bytes: int
    histogram: Histogram
    count: int
    p50_seconds: float
    p90_seconds: float
    p99_seconds: float
    p999_seconds: float
    hedges: tuple[Hedge, ...]  # the shortest delay first; only for requests to S3
    correlation: Estimate | None  # between the log times of successive requests or deliveries

    @property
    def best_hedge(self) -> Hedge | None:
        """The hedge with the lowest 99th percentile among those that resend few requests; None if none lowers it."""
        cheap = [hedge for hedge in self.hedges if hedge.extra_fraction <= EXTRA_FRACTION_MAX]
        best = min(cheap, key=lambda hedge: hedge.p99_seconds, default=None)
        return best if best and best.p99_seconds < self.p99_seconds else None


def spreads(tally: Tally) -> tuple[Spread, ...]:
    """By size, and within a size the most frequent kind first."""
    kinds: dict[tuple[int, str], list[Histogram]] = defaultdict(list)
    for (size, name, _), histogram in tally.times.items():
        if count_of(histogram):
            kinds[size, name].append(histogram)
    found = [
        _spread(name, size, histograms, tally.pairs.get(size))
        for (size, name), histograms in kinds.items()
        if sum(map(count_of, histograms)) >= COUNT_MIN
    ]
    return tuple(sorted(found, key=lambda s: (s.payload_size_bytes, -s.count)))


def hedged(histograms: Sequence[Histogram], delay_seconds: float) -> Hedge:
    """The outcome with a second request after this delay, which takes the time of one of the same histogram."""
    known = [np.array(values_and_counts(histogram)).T for histogram in histograms]
    middles = np.concatenate([values for values, _ in known])
    candidates = np.unique(np.concatenate([middles, delay_seconds + middles]))
    slower, extra = np.zeros(len(candidates)), 0.0
    for values, counts in known:
        left = np.append(counts[::-1].cumsum()[::-1], 0.0)  # requests from each value on
        beyond, again = (
            left[np.searchsorted(values, at, side="right")] for at in (candidates, candidates - delay_seconds)
        )
        slower += beyond * np.where(candidates > delay_seconds, again / left[0], 1.0)
        extra += float(counts[values > delay_seconds].sum())
    total = sum(map(count_of, histograms))
    p99, p999 = (float(candidates[np.argmax(slower / total <= 1.0 - fraction)]) for fraction in (0.99, 0.999))
    return Hedge(
        delay_seconds=delay_seconds, extra_fraction=extra / total, p99_seconds=p99, p999_seconds=p999
    )


def _spread(
    name: str, payload_size_bytes: int, histograms: Sequence[Histogram], pairs: Pairs | None
) -> Spread:
    histogram = merged(histograms)
    fractions = _DELAY_FRACTIONS if name in _SENT_AGAIN else ()
    delays = sorted({quantile(histogram, fraction) for fraction in fractions})
    p50, p90, p99, p999 = (quantile(histogram, fraction) for fraction in (0.5, 0.9, 0.99, 0.999))
    return Spread(
        name=name,
        payload_size_bytes=payload_size_bytes,
        histogram=histogram,
        count=count_of(histogram),
        p50_seconds=p50,
        p90_seconds=p90,
        p99_seconds=p99,
        p999_seconds=p999,
        hedges=tuple(hedged(histograms, delay) for delay in delays),
        correlation=_correlation(pairs) if name in _SUCCESSIVE else None,
    )


def _correlation(pairs: Pairs | None) -> Estimate | None:
    """The correlation, with Fisher's 90 % interval."""
    if pairs is None or pairs.count < COUNT_MIN or (found := correlation(pairs)) is None:
        return None
    middle = math.atanh(min(max(found, -0.999), 0.999))
    reach = 1.645 / math.sqrt(pairs.count - 3)
    return Estimate(*(math.tanh(v) for v in (middle - reach, middle, middle + reach)))
