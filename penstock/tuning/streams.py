"""Knows the steady rate of a stream of small objects, without its beginning and its end.

A refused client waits before it asks again, twice as long each time. In a run of a few seconds the last objects may
wait as long as all others took, and a store's initial burst is used up as soon; an endless stream feels neither. With N
objects moved by n threads, the k-th of which arrives t_k seconds after the start,

    rate = (b - a) / (t_b - t_a),    a = ceil(N / 2),    b = N - n

because when b have arrived, the other n are in flight or waiting, and the next free thread finds nothing left. Compared
with long runs of 36 made-up stores (bench `small-objects`), trials with more than one refusal in fifty requests showed
by their totals .62 of the stream's rate where stores took more than 800 a second, and .95 where they took less, with
deviations of .27 and .15 of the logarithm; without the first half and the end 1.02 and 1.01, with deviations of .02 and
.05. Without only the first quarter it was 1.02 and 1.01 as well; where one request in fifty or fewer of a slower store
was refused, it was 1.07 with .10 in place of 1.04 with .08.
"""

from __future__ import annotations

from collections.abc import Sequence

_BEGINNING = 2  # the first 1/2 of all objects are the beginning


def steady_rate_per_second(ended_seconds: Sequence[float], thread_count: int) -> float | None:
    """Objects per second, from the time of each arrival; None if there are too few for this many threads."""
    ends = sorted(ended_seconds)
    first, last = -(-len(ends) // _BEGINNING), len(ends) - thread_count
    if not 0 < first < last or ends[last - 1] <= ends[first - 1]:
        return None
    return (last - first) / (ends[last - 1] - ends[first - 1])
