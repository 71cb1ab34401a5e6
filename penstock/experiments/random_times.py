"""Knows the published reads and writes at random times through a month."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import fmean

from penstock.experiments.experiment import (
    MB,
    S3_TARIFF,
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
    curve_series,
    download_step,
    published,
    published_points,
    quantile,
    shares,
    upload_step,
)
from penstock.units import counted

# Reads and writes at random times


_COMPARED_HOURS = (10.0, 16.0)  # UTC, of single bytes: p < 0.0001
_CLUSTER_READ_COUNT_MIN = 100
PAIR_COUNT_MIN = 10  # of one size, to tell how successive requests correlate, or how hours differ
_TAIL_PAIR_COUNT_MIN = 100  # the first answers of fewer pairs have no 99th percentile
_DRAW_COUNT = 100
INTERVAL_REACH = 1.645  # standard errors from the middle to an end of a 90 % interval
_STUDY_TEST_COUNT = 107_556  # 5.8
_SIZES = {"1B": 1, "1KB": 1_000, "1MB": MB, "16MB": 16 * MB, "100MB": 100 * MB}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How many pairs of requests of one size are made; each thread makes two in a row."""

    size_bytes: int
    pair_count: int
    thread_count: int = 1


def at_random_times(
    samplings: Mapping[str, Sampling], wait_seconds_mean: float, *, world: str = "ec2-2007", place: str = ""
) -> Sequence[Step]:
    """Reads and writes of each kind at exponential intervals, in random order; `place` begins the labels."""
    chance = random.Random(f"poisson-probes{place}")
    turns = [(name, index) for name, one in samplings.items() for index in range(one.pair_count)]
    chance.shuffle(turns)
    steps = []
    for name, index in turns:
        one = samplings[name]
        # The lab's explanation: single bytes are read from a cache, larger objects from a disk.
        there = world if one.size_bytes < MB else f"{world}-disk"
        for kind, step in (("read", download_step), ("write", upload_step)):
            wait_seconds = chance.expovariate(1.0 / wait_seconds_mean)
            label, n = f"{place}{kind}/{name}/{index}", one.thread_count
            steps.append(step(label, there, one.size_bytes, n, count=2 * n, wait_seconds=wait_seconds))
    return steps


def _poisson_steps(form: Form) -> Sequence[Step]:
    if form is Form.LAB:
        return _poisson({"1B": 1500, "1KB": 100, "1MB": 600, "16MB": 100, "100MB": 600}, 1800.0)
    if form is Form.SHORT:
        return _poisson({"1B": 3, "1KB": 2, "1MB": 2}, 0.2)
    return _poisson(dict.fromkeys(_SIZES, 100), 300.0)


def _poisson(counts: dict[str, int], wait_seconds_mean: float) -> Sequence[Step]:
    pairs = {name: Sampling(size_bytes=_SIZES[name], pair_count=count) for name, count in counts.items()}
    return at_random_times(pairs, wait_seconds_mean)


def pair_of(record: Record) -> tuple[float, float]:
    """The seconds of both requests, the shorter one first, from their mean and maximum."""
    longer = record.values["latency_seconds_p99"]
    return 2.0 * record.values["latency_seconds_mean"] - longer, longer


def _speeds(records: Records, kind: str, size: str) -> list[tuple[float, float]]:
    """Requests per second of each pair."""
    return [
        (1.0 / longer, 1.0 / shorter)
        for record in records.below(f"{kind}/{size}/")
        for shorter, longer in [pair_of(record)]
        if shorter > 0
    ]


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """The correlation of unordered pairs: each counts in both orders."""
    both = [*pairs, *(pair[::-1] for pair in pairs)]
    middle = fmean([a for a, _ in both])
    variance = fmean([(a - middle) ** 2 for a, _ in both])
    return fmean([(a - middle) * (b - middle) for a, b in both]) / variance if variance > 0 else 0.0


def correlation_between(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fisher's 90 % interval, for more than three pairs."""
    middle = math.atanh(min(max(correlation(pairs), -0.999), 0.999))
    reach = INTERVAL_REACH / math.sqrt(len(pairs) - 3)
    return math.tanh(middle - reach), math.tanh(middle + reach)


def _poisson_intervals(records: Records) -> Intervals:
    """Intervals of 90 %, for figures with enough pairs.

    Those of medians and means by bootstrap over pairs, of correlations by Fisher, of rare events exactly.
    """
    names = [f"{kind}/{size}" for kind in ("read", "write") for size in _SIZES]
    groups = {name: group for name in names if len(group := records.below(f"{name}/")) >= PAIR_COUNT_MIN}
    chance = random.Random("intervals")
    drawn: dict[str, list[float]] = {}
    for _ in range(_DRAW_COUNT):
        again = [
            replace(record, label=f"{name}/{index}")
            for name, group in groups.items()
            for index, record in enumerate(chance.choices(group, k=len(group)))
        ]
        for name, value in _speed_quantities(Records(again)).items():
            drawn.setdefault(name, []).append(value)
    found = {name: (quantile(values, 0.05), quantile(values, 0.95)) for name, values in drawn.items()}
    for size in ("1B", "100MB"):
        if f"read/{size}" in groups:
            found[f"pairs.{size}"] = correlation_between(_speeds(records, "read", size))
    for kind in ("read", "write"):
        if count := len(groups.get(f"{kind}/1B", [])):
            share = _slow_share(_all(records, kind, "1B"))
            found[f"{kind}.slow"] = _share_interval(share, count)
    return found | _trouble_intervals(records)


def _share_interval(share: float, count: int) -> tuple[float, float]:
    """The interval of Clopper and Pearson in percent: none out of a few does not mean never."""
    from scipy import stats

    some, others = share * count, (1.0 - share) * count
    low = float(stats.beta.ppf(0.05, some, others + 1)) if some else 0.0
    high = float(stats.beta.ppf(0.95, some + 1, others)) if others else 1.0
    return 100 * low, 100 * high


def _slow_share(speeds: Sequence[float]) -> float:
    """The fraction of single bytes that are slower than ten per second."""
    return fmean([float(tps < 10.0) for tps in speeds])


def _trouble_intervals(records: Records) -> dict[str, tuple[float, float]]:
    """Exact Poisson intervals: none in a few tests does not mean none in a hundred thousand."""
    from scipy import stats

    scale = _STUDY_TEST_COUNT / max(len(records.below("write/")) + len(records.below("read/")), 1)
    return {
        name: (
            scale * float(stats.gamma.ppf(0.05, value / scale)) if value else 0.0,
            scale * float(stats.gamma.ppf(0.95, value / scale + 1)),
        )
        for name, value in _troubles(records).items()
    }


def _all(records: Records, kind: str, size: str) -> list[float]:
    return [speed for pair in _speeds(records, kind, size) for speed in pair]


def _poisson_quantities(records: Records) -> Quantities:
    return _speed_quantities(records) | _troubles(records)


def _speed_quantities(records: Records) -> dict[str, float]:
    values = {}
    reads, writes = (_all(records, kind, "1B") for kind in ("read", "write"))
    if reads and writes:
        values["tps.most"] = quantile([*reads, *writes], 0.5)
        values["write.slow"], values["read.slow"] = (100 * _slow_share(speeds) for speeds in (writes, reads))
    for size in ("1B", "100MB"):
        if len(pairs := _speeds(records, "read", size)) >= PAIR_COUNT_MIN:
            values[f"pairs.{size}"] = correlation(pairs)
    for kind in ("read", "write"):
        if speeds := _all(records, kind, "1MB"):
            values[f"{kind}.1MB"] = quantile(speeds, 0.5)
            values[f"ec2.{kind}-mean"] = 1e3 * fmean(speeds)  # KB/s
    return values


def _troubles(records: Records) -> dict[str, float]:
    """Retries and errors, scaled to the study's number of tests; empty for the lab, whose failures are set."""
    writes, reads = records.below("write/"), records.below("read/")
    checked = [record for record in writes if "checksum_right_count" in record.values]
    if not checked or not reads:
        return {}
    scale = _STUDY_TEST_COUNT / (len(writes) + len(reads))
    found = {"retries.write": scale * _retry_count(writes), "retries.read": scale * _retry_count(reads)}
    if any(record.values["checksum_right_count"] for record in checked):  # else the store's ETags are not MD5
        found["errors.write"] = scale * math.fsum(record.values["checksum_wrong_count"] for record in checked)
    return found


def _retry_count(records: Sequence[Record]) -> float:
    return math.fsum(record.values["throttled_count"] + record.values["failed_count"] for record in records)


def _poisson_plots(records: Records) -> Sequence[Plot]:
    plots = [_cdf_plot(records, kind) for kind in ("read", "write")]
    for size, unit, r in (("1B", "transactions/s", 0.22), ("100MB", "objects/s", 0.85)):
        if _all(records, "read", size):
            plots += [_histogram(records, size, unit), _pairs_plot(records, size, unit, r)]
    return [*plots, *_hourly_plots(records), *_daily_plots(records)]


def _poisson_grids(records: Records) -> Sequence[Grid]:
    """The distributions of figure 4, by quantiles."""
    rows: list[list[str | float | None]] = []
    for size, size_bytes in _SIZES.items():
        row: list[str | float | None] = [size]
        for kind in ("read", "write"):
            speeds = [1e-3 * size_bytes * tps for tps in _all(records, kind, size)]
            cuts = [quantile(speeds, share) for share in (0.05, 0.5, 0.95)] if speeds else [None] * 3
            row += [len(speeds), *cuts]
        rows.append(row)
    cut = ("5 % are below", "median", "5 % are above")
    return [Grid(title="By size, KB/s", headings=("size", "reads", *cut, "writes", *cut), rows=rows)]


def _pairs_plot(records: Records, size: str, unit: str, r: float) -> Plot:
    """The study gives only a coefficient, shown as the line of the expected second read."""
    pairs = _speeds(records, "read", size)
    both = [pair if index % 2 else pair[::-1] for index, pair in enumerate(pairs)]
    firsts, seconds = [a for a, _ in both], [b for _, b in both]
    middle, ends = fmean(_all(records, "read", size)), [min(firsts), max(firsts)]
    return Plot(
        title=f"Two successive reads of {size}",
        x_title=f"first, {unit}",
        y_title=f"second, {unit}",
        series=[
            Series(name=f"pairs, r = {correlation(pairs):.2f}", x=firsts, y=seconds, is_line=False),
            published(f"r = {r}", ends, [middle + r * (end - middle) for end in ends], is_line=True),
        ],
    )


# Of single bytes slower than 10 a second, and the median of a megabyte.
_PUBLISHED_SHARES = {"read": {10.0: 0.05, 1e6: 0.5}, "write": {10.0: 0.40, 5e6: 0.5}}


def _cdf_plot(records: Records, kind: str) -> Plot:
    series = []
    for size, size_bytes in _SIZES.items():
        speeds = sorted(size_bytes * tps for tps in _all(records, kind, size))
        if speeds:
            series.append(shares(size, speeds))
    series.append(published_points("shares", _PUBLISHED_SHARES[kind]))
    return Plot(
        title=f"How fast a {kind} is", x_title="bytes/s", y_title="share", series=series, is_log_x=True
    )


_BIN_COUNT = 30


def _counted(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Centres of equally wide bins, and the number of values in each."""
    low, high = min(values), max(values)
    width = (high - low) / _BIN_COUNT or 1.0
    counts = [0.0] * (_BIN_COUNT + 1)
    for value in values:
        counts[int((value - low) / width)] += 1.0
    return [low + (index + 0.5) * width for index in range(_BIN_COUNT + 1)], counts


def _histogram(records: Records, size: str, unit: str) -> Plot:
    middles, counts = _counted(_all(records, "read", size))
    series = [Series(name="all", x=middles, y=counts)]
    if size == "1B":
        ends, top = [10.0, 10.0, 50.0, 50.0], max(counts)
        series.append(published("most from 10 to 50", ends, [0.0, top, top, 0.0], is_line=True))
    return Plot(title=f"Reads of {size}", x_title=unit, y_title="requests", series=series)


def peak_count(values: Sequence[float]) -> int:
    """Clusters of a histogram: each peaks above 2 % of the values in a bin, and ends below half of its peak."""
    _, counts = _counted(values)
    smooth = [fmean(counts[max(0, index - 1) : index + 2]) for index in range(len(counts))]
    found, top, valley = 0, 0.0, 0.0
    for count in smooth:
        if count > max(2.0 * valley, 0.02 * len(values)) and top == 0.0:
            found, top = found + 1, count
        top = max(top, count) if top else 0.0
        if top and count < top / 2:
            top, valley = 0.0, count
        valley = min(valley, count)
    return found


def _hours(records: Records, size: str = "1B") -> dict[int, list[float]]:
    """Requests per second by hour of the day; the two of a pair correlate, and count as one draw."""
    found: dict[int, list[float]] = {}
    for record in records.below(f"read/{size}/"):
        hour = datetime.fromisoformat(record.started_at).hour
        found.setdefault(hour, []).append(2.0 / sum(pair_of(record)))
    return dict(sorted(found.items()))


def _hourly_plots(records: Records) -> list[Plot]:
    plots = []
    for size, unit, scale in (("100MB", "MB/s", 100.0), ("1B", "transactions/s", 1.0)):
        hours = {hour: scale * fmean(speeds) for hour, speeds in _hours(records, size).items()}
        if len(hours) < 2:
            continue
        series = [curve_series("mean", hours)]
        if size == "1B":  # the study names the two hours that differ, and no means
            top = max(hours.values())
            series += [
                published(f"{hour} UTC", [hour, hour], [0.0, top], is_line=True) for hour in _COMPARED_HOURS
            ]
        title = f"Reads of {size} by the hour of the day"
        plots.append(Plot(title=title, x_title="hour, UTC", y_title=unit, series=series))
    return plots


def _daily_plots(records: Records) -> list[Plot]:
    days: dict[str, list[float]] = {}
    for record in records.below("read/100MB/"):
        shorter, longer = pair_of(record)
        days.setdefault(record.started_at[:10], []).extend((100 / shorter, 100 / longer))
    if len(days) < 2:
        return []
    numbers = [float(index) for index in range(1, len(days) + 1)]
    curves = {
        "mean": [fmean(speeds) for speeds in days.values()],
        "5 of 100 are slower": [quantile(speeds, 0.05) for speeds in days.values()],
        "95 of 100 are slower": [quantile(speeds, 0.95) for speeds in days.values()],
    }
    series = [Series(name=name, x=numbers, y=values) for name, values in curves.items()]
    return [Plot(title="Reads of 100MB by the day", x_title="day", y_title="MB/s", series=series)]


def _poisson_answer(records: Records) -> Sequence[str]:
    sentences = []
    pairs = [pair_of(record) for record in records.below("read/1B/")]
    if len(pairs) >= _TAIL_PAIR_COUNT_MIN:
        sentences.append(_hedge_sentence(pairs))
    elif records.is_here:
        sentences.append(
            f"{counted(len(pairs), 'pair')} of single bytes are too few to say what a second request is worth."
        )
    sentences += _hour_sentences(records)
    large = _speeds(records, "read", "100MB")
    if large or not records.is_here:
        sentences += _together_sentences(records, large)
        sentences.append(_cluster_sentence(records, [speed for pair in large for speed in pair]))
    if records.is_here and (addresses := records.addresses()):  # the lab's are made up
        sentences.append(
            f"{_addresses(len(addresses))} answered {sum(row.request_count for row in addresses)} requests (the study: "
            f"10 addresses in six weeks); {addresses[0].address} answered {addresses[0].request_count} of them."
        )
    return [*sentences, *_trouble_sentences(records)]


def _together_sentences(records: Records, pairs: Sequence[tuple[float, float]]) -> list[str]:
    """Whether one of two large reads is slow alone, as far as the interval tells."""
    if len(pairs) < PAIR_COUNT_MIN:
        return [
            f"{counted(len(pairs), 'pair')} of reads of 100 MB are too few to say whether one is slow alone."
        ] * records.is_here
    low, high = correlation_between(pairs)
    advice = "That does not tell whether a second request would be faster than a slow one"
    if low > 0.5:
        advice = "Where one is slow the other is, too: a second request brings little"
    elif high < 0.5:
        advice = "One may be slow alone: a second request may be faster"
    r = f"r = {correlation(pairs):.2f}, {low:.2f} to {high:.2f}"
    return [f"The speeds of two reads of 100 MB in succession correlate ({r}). {advice}."]


def _hour_sentences(records: Records) -> list[str]:
    """Two hours of the day: Welch's t, and its p-value."""
    hours = _hours(records)
    first, second = (hours.get(int(hour), []) for hour in _COMPARED_HOURS)
    if not first and not second:
        return []
    if min(len(first), len(second)) < PAIR_COUNT_MIN:
        return [
            f"{len(first)} and {len(second)} pairs of single bytes at 10 and 16 UTC are too few to compare these hours."
        ] * records.is_here
    from scipy import stats

    test = stats.ttest_ind(first, second, equal_var=False)
    return [
        (
            f"Reads of one byte at 10 and at 16 UTC are {abs(test.statistic):.1f} standard errors apart, p = "
            f"{test.pvalue:.2g}. The study found p < 0.0001"
            f"{'.' if records.is_here else '; in the lab all hours are alike.'}"
        )
    ]


def _cluster_sentence(records: Records, speeds: Sequence[float]) -> str:
    """What explains five clusters of large reads: in the lab the study's windows, here what was measured."""
    if not records.is_here:
        return (
            "A window of 65,535 bytes would explain the study's five clusters of 100 MB reads by five distances: 4, 5, "
            "6, 8 and 10 ms there and back give 16.4, 13.1, 10.9, 8.2 and 6.6 MB/s. It would also explain why two more "
            "milliseconds, from 10 April on, took a third of the throughput. The lab has one distance."
        )
    if len(speeds) < _CLUSTER_READ_COUNT_MIN:
        return f"{len(speeds)} reads of 100 MB are too few to tell clusters: {_CLUSTER_READ_COUNT_MIN} are needed."
    low, high = 100 * quantile(speeds, 0.05), 100 * quantile(speeds, 0.95)
    heaps, addresses = peak_count(speeds), len(records.addresses())
    return (
        f"{len(speeds)} reads of 100 MB form {heaps} cluster{'s' * (heaps != 1)} between {low:.1f} and {high:.1f} MB/s "
        f"(the study: five), and {_addresses(addresses)} answered. With the window of 65,535 bytes that limited the "
        f"study's reads, {high:.1f} MB/s would take {65_535 / 1e6 / (high * 1e-3):.1f} ms there and back."
    )


def _addresses(count: int) -> str:
    return "1 address" if count == 1 else f"{count} addresses"


def _trouble_sentences(records: Records) -> list[str]:
    writes, reads = records.below("write/"), records.below("read/")
    right, wrong = (
        math.fsum(record.values.get(f"checksum_{which}_count", 0.0) for record in writes)
        for which in ("right", "wrong")
    )
    if right + wrong == 0:  # in the lab
        return []
    checked = (
        f"{wrong:.0f} of {right + wrong:.0f} writes arrived with another checksum than they were sent with"
        if right
        else "this store's ETags are no MD5 of what was written, so that they do not show write errors"
    )
    return [
        (
            f"{_retry_count(writes):.0f} writes and {_retry_count(reads):.0f} reads had to be tried again; {checked}. "
            f"The table multiplies these to the {_STUDY_TEST_COUNT:,} tests of the study, with each pair as one test."
        )
    ]


def _hedge_sentence(pairs: Sequence[tuple[float, float]]) -> str:
    """What a second request gains, from pairs that were measured in direct succession."""
    single = [seconds for pair in pairs for seconds in pair]
    first_of_two = [min(pair) for pair in pairs]
    after = quantile(single, 0.95)
    # The later one stands for the second request; both orders of a pair are equally valid.
    hedged = [
        min(first, after + second) if first > after else first
        for pair in pairs
        for first, second in (pair, pair[::-1])
    ]
    share = fmean([float(seconds > after) for seconds in single])
    tail, hedged_tail = quantile(single, 0.99), quantile(hedged, 0.99)
    usd = S3_TARIFF.usd(read_request_count=1_000_000)
    return (
        f"99 of 100 reads of one byte take at most {1e3 * tail:.0f} ms. Of two requests at once the first answer takes "
        f"at most {1e3 * quantile(first_of_two, 0.99):.0f} ms, for ${usd:.2f} more per million reads. With a second "
        f"request only after {1e3 * after:.0f} ms, when 95 % have answered, it takes {1e3 * hedged_tail:.0f} ms, for "
        f"${share * usd:.2f} more ({100 * share:.0f} % more requests)."
    )


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="poisson-probes",
        title="Reads and writes at random times",
        study="001",
        section="5.1 to 5.6",
        summary="Pairs of requests for 1 B to 100 MB, at exponential intervals, for days.",
        steps=_poisson_steps,
        quantities=_poisson_quantities,
        intervals=_poisson_intervals,
        plots=_poisson_plots,
        grids=_poisson_grids,
        answer=_poisson_answer,
    ),
)
