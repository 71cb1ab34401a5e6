"""Knows the published reads and writes from hosts in other places, and what makes places differ.

A run on real services measures one place, `here`; other places come as files (`archive.measured`) and are set beside
it. A label begins with its place.

From a place with the round trip R, with a window of W bytes per connection, a request of m bytes takes service + R (1 +
m / W). So across places the time of a megabyte is a linear function of the time of a byte, with the slope 1 + m / W,
whatever the service's part is. How well the places fit a line tells how much of their differences is distance. If eight
requests at once carry hardly more than one, the limit is not the connection but the line or the host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import correlation, fmean, linear_regression, median, pstdev, stdev

from penstock.experiments.calibrations import PLACES
from penstock.experiments.experiment import (
    HERE,
    MB,
    Experiment,
    Form,
    Grid,
    Intervals,
    Plot,
    Quantities,
    Record,
    Records,
    Series,
    Step,
    published,
    published_points,
    quantile,
    shares,
)
from penstock.experiments.random_times import (
    INTERVAL_REACH,
    PAIR_COUNT_MIN,
    Sampling,
    at_random_times,
    pair_of,
)
from penstock.units import format_seconds

_KINDS = ("read", "write")
_THREAD_COUNT = 8  # at once
_AT_ONCE = f"{_THREAD_COUNT}x1MB"
_RARE_COUNT_MIN = 100  # requests, to know a 99th percentile
_FURTHER = 1.2  # ratio to the latency of the nearest place
_PLACE_COUNT_MIN = 3  # two places always lie on a line
_EXPLAINED_MIN = 0.9  # of the variance
_TRIPS_MIN = 1.2  # round trips; with fewer, a megabyte fits into the window
_LINE_RATIO_MAX = _THREAD_COUNT / 2
_FETCH_SHARE_MIN = 0.2  # of a read's time, to be worth a sentence
_FIRST_BYTE = "first_byte_seconds_mean"


_SPREAD = ("mean", "top 1 %", "deviation")
_TABLE = {  # of KB/s
    "netherlands": {"read": (212.0, 294.0, 34.0), "write": (382.0, 493.0, 142.0)},
    "harvard": {"read": (412.0, 796.0, 121.0), "write": (620.0, 844.0, 95.0)},
    "pittsburgh": {"read": (530.0, 1005.0, 183.0), "write": (1546.0, 2048.0, 404.0)},
    "mit": {"read": (651.0, 1033.0, 231.0), "write": (2200.0, 2741.0, 464.0)},
    "ec2": {"read": (799.0, 1314.0, 320.0), "write": (5279.0, 10229.0, 2209.0)},
}


def _steps(form: Form) -> Sequence[Step]:
    if form is Form.LAB:
        return [
            step
            for place in PLACES
            for step in at_random_times(_samplings(100, 400, 10), 1800.0, world=place, place=f"{place}/")
        ]
    samplings, wait_seconds = (
        (_samplings(3, 4, 1), 0.2) if form is Form.SHORT else (_samplings(50, 200, 10), 300.0)
    )
    return at_random_times(samplings, wait_seconds, world="ec2", place=f"{HERE}/")


def _samplings(latency: int, megabyte: int, at_once: int) -> dict[str, Sampling]:
    return {
        "1B": Sampling(size_bytes=1, pair_count=latency),
        "1MB": Sampling(size_bytes=MB, pair_count=megabyte),
        _AT_ONCE: Sampling(size_bytes=MB, pair_count=at_once, thread_count=_THREAD_COUNT),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """What one place measured in one direction: single bytes, megabytes, and eight megabytes at once."""

    single: Sequence[Record]
    megabyte: Sequence[Record]
    at_once: Sequence[Record]

    @property
    def seconds(self) -> list[float]:
        """The seconds of each request for a megabyte."""
        return _seconds(self.megabyte)

    @property
    def speeds(self) -> list[float]:
        """The KB/s of each of them, the slowest first."""
        return sorted(_speeds(self.megabyte))

    @property
    def latency_seconds(self) -> float | None:
        """The median for a single byte."""
        return median(found) if (found := _seconds(self.single)) else None

    @property
    def at_once_ratio(self) -> float | None:
        """The throughput of eight requests at once over that of one."""
        if not self.at_once or not self.megabyte:
            return None
        several, one = (
            median(r.megabytes_per_second for r in group) for group in (self.at_once, self.megabyte)
        )
        return several / one

    @property
    def fetch_seconds(self) -> float | None:
        """For reads: how much later the answer to a megabyte begins than that to a single byte."""
        begins = [
            [record.values[_FIRST_BYTE] for record in group if _FIRST_BYTE in record.values]
            for group in (self.megabyte, self.single)
        ]
        return median(begins[0]) - median(begins[1]) if all(begins) else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 90 % interval of the mean speed; the two requests of a pair correlate, and count as one draw."""
        means = [fmean(speeds) for r in self.megabyte if (speeds := _speeds([r]))]
        if len(means) < PAIR_COUNT_MIN:
            return None
        reach = INTERVAL_REACH * stdev(means) / math.sqrt(len(means))
        return fmean(means) - reach, fmean(means) + reach

    def spread(self) -> list[float | None]:
        """As in the table: the mean, the 99th percentile, and the standard deviation."""
        speeds = self.speeds
        if not speeds:
            return [None] * 3
        top = quantile(speeds, 0.99) if len(speeds) >= _RARE_COUNT_MIN else None
        return [fmean(speeds), top, pstdev(speeds)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Place:
    """Both directions, by what is done."""

    name: str
    ways: Mapping[str, _Way]


def _seconds(records: Sequence[Record]) -> list[float]:
    return [seconds for record in records for seconds in pair_of(record) if seconds > 0]


def _speeds(records: Sequence[Record]) -> list[float]:
    return [1e-3 * MB / seconds for seconds in _seconds(records)]


def _places(records: Records) -> list[_Place]:
    """All places that measured a megabyte, the slowest reader first, as in the table."""
    names = dict.fromkeys(record.label.split("/")[0] for record in records.below(""))
    found = [
        _Place(name=name, ways={kind: _way(records, f"{name}/{kind}") for kind in _KINDS}) for name in names
    ]
    measured = [place for place in found if any(way.seconds for way in place.ways.values())]
    return sorted(measured, key=lambda place: fmean(place.ways["read"].speeds or [math.inf]))


def _way(records: Records, prefix: str) -> _Way:
    single, megabyte, at_once = (records.below(f"{prefix}/{name}/") for name in ("1B", "1MB", _AT_ONCE))
    return _Way(single=single, megabyte=megabyte, at_once=at_once)


def _quantities(records: Records) -> Quantities:
    return {
        f"location.{place.name}.{kind}": fmean(way.speeds)
        for place in _places(records)
        for kind, way in place.ways.items()
        if way.speeds
    }


def _intervals(records: Records) -> Intervals:
    return {
        f"location.{place.name}.{kind}": interval
        for place in _places(records)
        for kind, way in place.ways.items()
        if (interval := way.interval) is not None
    }


def _grids(records: Records) -> Sequence[Grid]:
    """Table 2, and beside it what explains it."""
    places = _places(records)
    rows: list[list[str | float | None]] = []
    for place in places:
        read, write = (place.ways[kind] for kind in _KINDS)
        rows.append([place.name, len(read.speeds), *read.spread(), len(write.speeds), *write.spread()])
        if not records.is_here and (table := _TABLE.get(place.name)):
            rows.append(["- published", None, *table["read"], None, *table["write"]])
    speeds = Grid(
        title="Objects of 1 MB, KB/s", headings=("place", "reads", *_SPREAD, "writes", *_SPREAD), rows=rows
    )
    reasons = Grid(
        title=f"One byte, and {_THREAD_COUNT} objects at once",
        headings=("place", "read of 1 B, ms", "write of 1 B, ms", "8 reads over 1", "8 writes over 1"),
        rows=[
            [
                place.name,
                *(None if (s := way.latency_seconds) is None else 1e3 * s for way in place.ways.values()),
                *(way.at_once_ratio for way in place.ways.values()),
            ]
            for place in places
        ],
    )
    return [speeds, reasons] if places else []


def _plots(records: Records) -> Sequence[Plot]:
    places = _places(records)
    plots = []
    for kind in _KINDS:
        series = [shares(place.name, place.ways[kind].speeds) for place in places]
        tops = [published(name, [row[kind][1]], [0.99]) for name, row in _TABLE.items()]
        plots.append(
            Plot(
                title=f"How fast a {kind} of 1 MB is, by place",
                x_title="KB/s",
                y_title="share",
                series=[one for one in series if one.x] + tops,
                is_log_x=True,
            )
        )
    means = [
        Series(name=place.name, x=[fmean(writes)], y=[fmean(reads)], is_line=False)
        for place in places
        if (reads := place.ways["read"].speeds) and (writes := place.ways["write"].speeds)
    ]
    table = {row["write"][0]: row["read"][0] for row in _TABLE.values()}
    together = Plot(
        title="Reads by writes, the mean of each place",
        x_title="write, KB/s",
        y_title="read, KB/s",
        series=[*means, published_points("table 2", table, is_line=True)],
        is_log_x=True,
        is_log_y=True,
    )
    return [*plots, together]


def _answer(records: Records) -> Sequence[str]:
    places = _places(records)
    found = [*_distance_sentences(places), *_line_sentences(places), *_fetch_sentences(places)]
    if not records.is_here:
        harvard, mit = (1e3 * PLACES[name].round_trip_seconds for name in ("harvard", "mit"))
        found.append(
            f"Harvard and MIT are in one city, but their writes are as slow as round trips of {harvard:.0f} and "
            f"{mit:.0f} ms. That is a difference of routes, not of distance; the poor peering that the study supposes "
            "would explain it."
        )
    elif len(places) == 1:
        found.append(
            "This is one place. `penstock measure report locations --output NAME.jsonl` takes out what was measured in "
            "each, and `--with NAME.jsonl` compares it."
        )
    return found


def _distance_sentences(places: Sequence[_Place]) -> list[str]:
    """How many round trips a megabyte takes, and how much of the differences these explain."""
    known = [
        (seconds, place) for place in places if (seconds := place.ways["read"].latency_seconds) is not None
    ]
    if len(known) < 2:
        return []
    latencies = [seconds for seconds, _ in known]
    if max(latencies) < _FURTHER * min(latencies):
        return [
            "A read of one byte takes as long from all places: they are too close to tell what distance does."
        ]
    found = []
    for kind in _KINDS:
        points = [(latency, median(s)) for latency, place in known if (s := place.ways[kind].seconds)]
        if len({latency for latency, _ in points}) > 1:
            found.append(_slope_sentence(kind, points))
    return found


def _slope_sentence(kind: str, points: Sequence[tuple[float, float]]) -> str:
    """From pairs of seconds for a byte and for a megabyte; the former must not all be equal."""
    trips = linear_regression(*zip(*points, strict=True)).slope
    told = f"For each millisecond that a read of one byte takes longer, a {kind} of 1 MB takes {trips:.1f} ms longer"
    if len(points) < _PLACE_COUNT_MIN:
        return f"{told}. Two places do not tell whether that is distance alone."
    explained = correlation(*zip(*points, strict=True)) ** 2
    told += f", which explains {100 * explained:.1f} % of how places differ"
    if explained < _EXPLAINED_MIN or trips < _TRIPS_MIN:
        return f"{told}. More than distance makes them differ."
    window = 1e-3 * MB / (trips - 1.0)
    return (
        f"{told}. That is a round trip for every {window:.0f} KB, the window of a connection, and one more."
    )


def _line_sentences(places: Sequence[_Place]) -> list[str]:
    """Whether a single connection is the limit, or all of them together."""
    ratios = {
        f"{kind}s from {place.name}": ratio
        for place in places
        for kind, way in place.ways.items()
        if (ratio := way.at_once_ratio) is not None
    }
    slow = {name: ratio for name, ratio in ratios.items() if ratio <= _LINE_RATIO_MAX}
    others = [ratio for name, ratio in ratios.items() if name not in slow]
    found = []
    if others:
        found.append(
            f"{'Elsewhere e' if slow else 'E'}ight requests at once carry {min(others):.1f} to {max(others):.1f} times "
            "as much as one: a single connection does not use all there is."
        )
    if slow:
        listed = ", ".join(f"{name} {ratio:.1f}" for name, ratio in slow.items())
        found.append(
            f"Eight requests at once carry only a few times as much as one: {listed}. There the line, the host or the "
            "store is the limit, and more connections help little."
        )
    return found[::-1]


def _fetch_sentences(places: Sequence[_Place]) -> list[str]:
    """How much later a megabyte begins than a byte, if that is much of a read, and whether reads are slower for it."""
    fetched = {
        place: seconds
        for place in places
        if (read := place.ways["read"]).seconds
        and (seconds := read.fetch_seconds) is not None
        and seconds > _FETCH_SHARE_MIN * median(read.seconds)
    }
    if not fetched:
        return []
    told = (
        f"The answer to a read of 1 MB begins {format_seconds(median(fetched.values()))} later than that to one of a "
        "byte: the service needs that time"
    )
    slower = [
        median(place.ways["read"].seconds) > median(written)
        for place in fetched
        if (written := place.ways["write"].seconds)
    ]
    return [f"{told}, and reads are slower than writes." if slower and all(slower) else f"{told}."]


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="locations",
        title="The same reads and writes from other places",
        study="001",
        section="5.9, table 2 and figure 9",
        summary="Pairs of requests for 1 MB and for 1 B, at exponential intervals, from a host in each place.",
        has_places=True,
        steps=_steps,
        quantities=_quantities,
        intervals=_intervals,
        plots=_plots,
        grids=_grids,
        answer=_answer,
    ),
)
