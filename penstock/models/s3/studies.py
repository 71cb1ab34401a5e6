"""Knows the figures of transfers that are not about knobs: requests around an object, and the host's two ceilings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.models import burst
from penstock.models.inference.draws import quantiles
from penstock.models.model import Fit
from penstock.models.s3.directions import burst_ceiling, direction_of
from penstock.models.s3.law import log_object_seconds
from penstock.models.s3.observed import object_seconds
from penstock.models.s3.posterior import Posterior
from penstock.models.study import Sighting, Study, Trace, known
from penstock.units import counted, format_bytes, format_rate, format_seconds, number
from penstock.vocabulary import Estimate, Observation, Origin

_SIGHTING_COUNT_MAX = 80
_PART_POINT_COUNT = 17
_QUANTILES = (0.05, 0.5, 0.95)
_UNTOUCHED_FRACTION = 0.98  # of a full bucket


def studies(fit: Fit, observations: Sequence[Observation[Any]]) -> Iterator[Study]:
    """The figures of a place, for all sizes together, because none of them depends on the object size."""
    yield from _around_objects(fit, observations)
    limits = burst_ceiling(fit.place)
    if limits is not None and observations:
        yield from _credits(limits, observations)
        yield _ceilings(limits, observations)


def _around_objects(fit: Fit, observations: Sequence[Observation[Any]]) -> Iterator[Study]:
    """Time to create an object and merge its parts, by their number; none if the direction has no such requests."""
    seen = [
        (o.measures["object_part_count"], object_seconds(o), o)
        for o in observations
        if "complete_seconds" in o.measures and o.measures.get("object_part_count", 0) > 0
    ]
    if not seen or "object_seconds" in direction_of(fit.place.operation).absent:
        return
    draws = Posterior.from_state(fit.state).draws
    counts = [parts for parts, _, _ in seen]
    parts = np.unique(np.round(np.geomspace(1.0, max(2.0 * max(counts), 16.0), _PART_POINT_COUNT)))
    low, middle, high = quantiles(np.exp(log_object_seconds(draws, parts)), _QUANTILES)
    shares = [seconds / o.duration_seconds for _, seconds, o in seen if o.duration_seconds > 0]
    merges = [o.measures["complete_seconds"] for _, _, o in seen]
    merge_seconds, percent = float(np.median(merges)), 100 * float(np.median(shares))
    yield Study(
        title="Time to create an object and to merge its parts",
        sentence=f"{counted(len(seen), 'object')} made of parts: the merge alone took "
        f"{format_seconds(merge_seconds)} in the median and {format_seconds(max(merges))} at most; "
        f"to create and to merge took {percent:.1f} % of the whole in the median.",
        x_name="part_count",
        y_name="around_seconds",
        traces=(
            Trace(
                name="expected on average",
                x=tuple(map(float, parts)),
                y=tuple(
                    Estimate(float(a), float(b), float(c)) for a, b, c in zip(low, middle, high, strict=True)
                ),
            ),
        ),
        sightings=tuple(
            Sighting(
                x=float(count),
                y=seconds,
                words=f"{number(count)} parts: created in {format_seconds(seconds - o.measures['complete_seconds'])}, "
                f"merged in {format_seconds(o.measures['complete_seconds'])}",
            )
            for count, seconds, o in seen[-_SIGHTING_COUNT_MAX:]
        ),
        is_x_log=True,
        is_y_log=True,
    )


def _credits(limits: burst.Ceiling, observations: Sequence[Observation[Any]]) -> Iterator[Study]:
    """Burst credits computed from the measurements alone, without other traffic of the host.

    No figure if measurements never took enough of them to be visible.
    """
    left, at = limits.credit_bytes_max, observations[0].started_at
    course: list[tuple[float, float]] = []
    for one in observations:
        rested = max((one.started_at - at).total_seconds(), 0.0)
        left = limits.credits_after(left, rate_bytes_per_second=0.0, seconds=rested)
        course.append((one.started_at.timestamp(), left))
        left = limits.credits_after(
            left,
            rate_bytes_per_second=one.throughput_bytes_per_second,
            seconds=one.duration_seconds,
        )
        at = one.started_at
        course.append((at.timestamp() + one.duration_seconds, left))
    shown = course[-2 * _SIGHTING_COUNT_MAX :]
    least = min(credit for _, credit in shown)
    if least > _UNTOUCHED_FRACTION * limits.credit_bytes_max:
        return
    yield Study(
        title="Burst credits over time",
        sentence=f"A full bucket is {format_bytes(limits.credit_bytes_max)}; measurements left "
        f"{format_bytes(least)} of it at the least. What else the host sent is not known here.",
        x_name="date",
        y_name="credit_bytes",
        traces=(
            Trace(name="left", x=tuple(at for at, _ in shown), y=tuple(known(credit) for _, credit in shown)),
            _level("full", shown[0][0], shown[-1][0], limits.credit_bytes_max),
        ),
        is_x_dated=True,
    )


def _ceilings(limits: burst.Ceiling, observations: Sequence[Observation[Any]]) -> Study:
    seen = [o for o in observations if o.origin is Origin.PROBE][-_SIGHTING_COUNT_MAX:] or observations[-1:]
    begin, end = seen[0].started_at.timestamp(), seen[-1].started_at.timestamp()
    most = max(o.throughput_bytes_per_second for o in seen)
    return Study(
        title="Throughput and the host's two ceilings",
        sentence=f"By the tables, the host's network carries {format_rate(limits.burst_bytes_per_second)} each way "
        f"while there are burst credits, and {format_rate(limits.baseline_bytes_per_second)} without; "
        f"{format_rate(most)} is the most that was measured.",
        x_name="date",
        y_name="throughput_bytes_per_second",
        traces=(
            _level("with credits", begin, end, limits.burst_bytes_per_second),
            _level("without credits", begin, end, limits.baseline_bytes_per_second),
        ),
        sightings=tuple(
            Sighting(
                x=o.started_at.timestamp(),
                y=o.throughput_bytes_per_second,
                words=f"{format_bytes(o.context.payload_size_bytes)}: {format_rate(o.throughput_bytes_per_second)}",
            )
            for o in seen
        ),
        is_x_dated=True,
        is_y_log=True,
    )


def _level(name: str, begin: float, end: float, value: float) -> Trace:
    return Trace(name=name, x=(begin, end), y=(known(value), known(value)))
