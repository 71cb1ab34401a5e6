"""Knows how times are counted in histograms with a logarithmic scale, added up, and read as quantiles.

There are sixteen bins (classes) to the octave: the middle of one is within 2.2 % of all values in it, and the requests
of a probe fill some dozens of them, a few hundred bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from penstock.vocabulary import Histogram, Pairs

CLASSES_PER_OCTAVE = 16
_LEAST = 1e-9  # seconds; smaller values count as this one


def histogram_of(values: Iterable[float]) -> Histogram:
    """The histogram of these values."""
    return packed(Counter(class_of(value) for value in values))


def class_of(value: float) -> int:
    """The number of the bin that a value falls into."""
    return math.floor(CLASSES_PER_OCTAVE * math.log2(max(value, _LEAST)))


def packed(counts: Counter[int]) -> Histogram:
    """The histogram of values counted by bin."""
    if not counts:
        return Histogram()
    first, last = min(counts), max(counts)
    return Histogram(first=first, counts=tuple(counts[number] for number in range(first, last + 1)))


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """The sum of histograms, vectorised for thousands of them."""
    import numpy as np

    filled = [one for one in histograms if one.counts]
    if not filled:
        return Histogram()
    firsts, lengths = (
        np.array(each) for each in zip(*((h.first, len(h.counts)) for h in filled), strict=True)
    )
    counts = np.fromiter(chain.from_iterable(h.counts for h in filled), np.int64, lengths.sum())
    lowest = int(firsts.min())
    begins = np.cumsum(lengths) - lengths
    classes = np.arange(len(counts)) + np.repeat(firsts - lowest - begins, lengths)
    total = np.bincount(classes, weights=counts).astype(np.int64)
    return Histogram(first=lowest, counts=tuple(total.tolist()))


def count_of(histogram: Histogram) -> int:
    """How many values a histogram holds."""
    return sum(histogram.counts)


def quantile(histogram: Histogram, fraction: float) -> float:
    """The middle of the first bin up to whose end at least this fraction of the values lie; 0 if there are none."""
    return _middle(_class_at(histogram, fraction)) if count_of(histogram) else 0.0


def tail_ratio(histograms: Iterable[Histogram], fraction: float, *, count_min: int) -> float | None:
    """The quantile `fraction` of request times over their median; None for fewer than `count_min` requests.

    Each histogram is of one run at one setting; they are aligned by their medians before they are added.
    """
    laid = merged(
        Histogram(first=one.first - _class_at(one, 0.5), counts=one.counts)
        for one in histograms
        if one.counts
    )
    return quantile(laid, fraction) if count_of(laid) >= count_min else None


def distribution(histogram: Histogram) -> list[tuple[float, float]]:
    """The cumulative distribution at the end of each non-empty bin: value, and the fraction that is no greater."""
    total, seen, points = count_of(histogram), 0, []
    for number, count in enumerate(histogram.counts, start=histogram.first):
        seen += count
        if count:
            points.append((_end(number), seen / total))
    return points


def values_and_counts(histogram: Histogram) -> list[tuple[float, int]]:
    """The middle of each non-empty bin, and how many values are in it."""
    numbered = enumerate(histogram.counts, start=histogram.first)
    return [(_middle(number), count) for number, count in numbered if count]


def pairs_of(sequences: Iterable[Sequence[float]]) -> Pairs | None:
    """The pairs of successive values of all sequences; None if there is none."""
    logs = [[math.log(max(value, _LEAST)) for value in values] for values in sequences]
    pairs = [pair for values in logs for pair in pairwise(values)]
    if not pairs:
        return None
    x_mean = math.fsum(x for x, _ in pairs) / len(pairs)
    y_mean = math.fsum(y for _, y in pairs) / len(pairs)
    return Pairs(
        count=len(pairs),
        xx=math.fsum((x - x_mean) ** 2 for x, _ in pairs),
        yy=math.fsum((y - y_mean) ** 2 for _, y in pairs),
        xy=math.fsum((x - x_mean) * (y - y_mean) for x, y in pairs),
    )


def added(pairs: Iterable[Pairs]) -> Pairs:
    """The sum of several runs' pairs, each centred on its own means, so that differences between runs do not count."""
    known = list(pairs)
    return Pairs(
        count=sum(p.count for p in known),
        xx=math.fsum(p.xx for p in known),
        yy=math.fsum(p.yy for p in known),
        xy=math.fsum(p.xy for p in known),
    )


def correlation(pairs: Pairs) -> float | None:
    """Pearson's correlation of the logarithms; None if nothing varies."""
    spread = math.sqrt(pairs.xx * pairs.yy)
    return pairs.xy / spread if spread > 0 else None


def _class_at(histogram: Histogram, fraction: float) -> int:
    wanted, seen = math.ceil(fraction * count_of(histogram)), 0
    for number, count in enumerate(histogram.counts, start=histogram.first):
        seen += count
        if seen >= max(wanted, 1):
            return number
    return histogram.first


def _middle(number: int) -> float:
    return float(2.0 ** ((number + 0.5) / CLASSES_PER_OCTAVE))


def _end(number: int) -> float:
    return float(2.0 ** ((number + 1) / CLASSES_PER_OCTAVE))
