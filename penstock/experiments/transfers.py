"""Knows the published experiments with objects: clients, threads, bottlenecks, reads through a month, and sizes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby, pairwise

from penstock.experiments.calibrations import COLO_HTTP, COLO_HTTPS, RAM_DISK, WORLDS
from penstock.experiments.experiment import (
    S3_TARIFF,
    Experiment,
    Form,
    Plot,
    Quantities,
    Record,
    Records,
    Series,
    Step,
    download_step,
    level,
    mean,
    published,
    quantile,
    upload_step,
)
from penstock.trial.simulated_host import World
from penstock.tuning.clients import small_object_count
from penstock.units import KiB, MiB

MB = 1_000_000
GB = 1_000 * MB
PART = 5 * MiB
_SHORT_OBJECT = 12 * MiB


# Clients by file size


_CLIENT_CONNECTIONS = {"one-connection": 1, "cyberduck": 5, "transfer-manager": 10}


_REAL_CLIENTS = ("boto3", "s5cmd", "rclone", "aws")  # as `penstock tune --client` runs them
_SDK_THREADS, _SDK_PART = 10, 8 * MiB  # the transfer manager's own


def _client_steps(form: Form) -> Sequence[Step]:
    sizes = (1 * MB, 16 * MB) if form is Form.SHORT else (1 * MB, 4 * MB, 16 * MB, 64 * MB, 128 * MB)
    steps = [
        _client_step(client, threads, size)
        for client, threads in _CLIENT_CONNECTIONS.items()
        for size in sizes
    ]
    if form is Form.LAB:  # they need sockets
        return steps
    real_sizes = sizes[1:] if form is Form.SHORT else sizes
    return [*steps, *(_real_client_step(client, size) for client in _REAL_CLIENTS for size in real_sizes)]


def _real_client_step(client: str, size: int) -> Step:
    """A file in parts; one that is too small for parts many times over, because then threads are files."""
    count = small_object_count(size, _SDK_THREADS) if size <= PART else None
    return upload_step(
        f"client/{client}/{size // MB}",
        "hdd",
        size,
        _SDK_THREADS,
        count=count,
        part_size_bytes=None if count else _SDK_PART,
        client=client,
    )


def _client_step(client: str, threads: int, size: int) -> Step:
    """Parts, where the client makes parts and the file is larger than one."""
    label = f"client/{client}/{size // MB}"
    if threads == 1 or size <= PART:
        return upload_step(label, "hdd", size, 1, count=1)
    return upload_step(label, "hdd", size, threads, part_size_bytes=PART)


def _client_plots(records: Records) -> Sequence[Plot]:
    series = [
        Series(name=client, x=list(curve), y=list(curve.values()))
        for client in (*_CLIENT_CONNECTIONS, *_REAL_CLIENTS)
        if (curve := records.curve(f"client/{client}/"))
    ]
    return [
        Plot(
            title="Upload by client and file",
            x_title="MB",
            y_title="MB/s",
            series=[*series, _points("transfer-manager", {512.0: 5.20})],
            is_log_x=True,
        )
    ]


def _client_answer(records: Records) -> Sequence[str]:
    curves = {client: records.curve(f"client/{client}/") for client in _CLIENT_CONNECTIONS}
    if not all(curves.values()):
        return []
    largest = max(curves["one-connection"])
    ratio = curves["transfer-manager"][largest] / curves["one-connection"][largest]
    real = {client: curve for client in _REAL_CLIENTS if (curve := records.curve(f"client/{client}/"))}
    measured = [
        f"{client} {curve[max(curve)]:.1f} MB/s at {max(curve):.0f} MB" for client, curve in real.items()
    ]
    return [
        (
            f"A client is as fast as it has connections: ten of them move a file of {largest:.0f} MB {ratio:.1f} "
            "times as fast as one."
        ),
        (
            f"Real clients, with the ready-made commands of `penstock tune` and ten connections: {', '.join(measured)}."
            if measured
            else "Real clients need real services: without `--lab` those that are installed are run by file size, with "
            "the ready-made commands of `penstock tune`."
        ),
    ]


# Threads


_THREADS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 25, 30)
_CLIENT_WORLDS = ("hdd", "ram-disk", "faster")


def _thread_steps(form: Form) -> Sequence[Step]:
    threads, size = ((1, 2), _SHORT_OBJECT) if form is Form.SHORT else (_THREADS, 512 * MB)
    return [
        upload_step(f"threads/{world}/{n}", world, size, n, part_size_bytes=PART)
        for world in _client_worlds(form)
        for n in threads
    ]


def _client_worlds(form: Form) -> Sequence[str]:
    """A probe's bodies are in memory, and the host is what it is: disk and processors are changed in the lab alone."""
    return _CLIENT_WORLDS if form is Form.LAB else ("ram-disk",)


def _thread_quantities(records: Records) -> Quantities:
    wanted = {
        "hdd.10": "threads/hdd/10",
        "hdd.14": "threads/hdd/14",
        "ram-disk.20": "threads/ram-disk/20",
        "faster.20": "threads/faster/20",
    }
    return {
        name: record.megabytes_per_second for name, label in wanted.items() if (record := records.get(label))
    }


def _curve_plot(
    records: Records, title: str, prefix: str, names: Sequence[str], seeds: Sequence[Series] = ()
) -> Plot:
    series = [
        Series(name=name, x=list(curve), y=list(curve.values()))
        for name in names
        if (curve := records.curve(f"{prefix}/{name}/"))
    ]
    return Plot(title=title, x_title="threads", y_title="MB/s", series=[*series, *seeds])


def _points(name: str, points: Mapping[float, float]) -> Series:
    return published(name, list(points), list(points.values()))


def _thread_plots(records: Records) -> Sequence[Plot]:
    points = [
        _points("hdd", {10: 5.20, 14: 6.21}),
        _points("ram-disk", {20: 22.96}),
        _points("faster", {20: 30.69}),
    ]
    return [_curve_plot(records, "Upload of 512 MB by threads", "threads", _CLIENT_WORLDS, points)]


def _thread_answer(records: Records) -> Sequence[str]:
    best = {}
    for world in _CLIENT_WORLDS:
        if curve := records.curve(f"threads/{world}/"):
            n = max(curve, key=lambda at: curve[at])
            best[world] = f"{n:.0f} threads from {world} ({curve[n]:.1f} MB/s)"
    return [f"Best of those that were tried: {', '.join(best.values())}."] if best else []


# Bottlenecks


_FULL_PROCESSOR = 0.9  # of the time
_STILL_GROWING = 0.8  # of what as many threads more would bring if they did not share anything
_PART_COUNT_MAX = 10_000  # of S3
_PART_SIZES_MIB = (5, 8, 16, 32, 64, 128)


def _bottleneck_steps(form: Form) -> Sequence[Step]:
    size = _SHORT_OBJECT if form is Form.SHORT else 512 * MB
    worlds = _client_worlds(form)
    sizes = _PART_SIZES_MIB[:2] if form is Form.SHORT else _PART_SIZES_MIB
    steps = [
        upload_step(f"without/{world}/{n}", world, size, n, part_size_bytes=PART)
        for world in worlds
        for n in ((2, 4) if form is Form.SHORT else (10, 20, 30))
    ]
    return [
        *steps,
        *(
            upload_step(
                f"merge/{math.ceil(size / (mib * MiB))}",
                "faster",
                size,
                4 if form is Form.SHORT else 20,
                part_size_bytes=mib * MiB,
            )
            for mib in sizes
        ),
    ]


def _bottleneck_quantities(records: Records) -> Quantities:
    values: dict[str, float] = {}
    if not records.is_here:
        values["network.120"] = RAM_DISK.host_rate_bytes_per_second * 8 / 1e9
    merges = records.below("merge/")
    if merges:
        values["merge.seconds"] = max(record.values["complete_seconds"] for record in merges)
        values["merge.share"] = 100 * max(
            record.values["complete_seconds"] / record.values["duration_seconds"] for record in merges
        )
    return values


def _bottleneck_plots(records: Records) -> Sequence[Plot]:
    merges = _merges(records)
    parts = list(merges)
    until = max(parts, default=0.0)
    return [
        _curve_plot(records, "With the disk, from memory, and on a faster client", "without", _CLIENT_WORLDS),
        Plot(
            title="How busy the processors are",
            x_title="threads",
            y_title="%",
            series=[
                *_processor_series(records),
                level("from memory, in the end", 100.0, 30.0, 20.0),
                level("faster client", 50.0, 30.0),
            ],
        ),
        Plot(
            title="Time to merge the parts",
            x_title="parts",
            y_title="s",
            series=[
                Series(name="complete", x=parts, y=[seconds for seconds, _ in merges.values()]),
                level("below", 1.0, until),
            ],
        ),
        Plot(
            title="Share of merging",
            x_title="parts",
            y_title="% of the upload",
            series=[
                Series(name="complete", x=parts, y=[100 * a / b for a, b in merges.values()]),
                level("below", 3.0, until),
            ],
        ),
    ]


def _merges(records: Records) -> dict[float, tuple[float, float]]:
    """Seconds of merging and of all of the upload, by the number of parts."""
    found = {
        float(record.label.rsplit("/", 1)[-1]): (
            record.values["complete_seconds"],
            record.values["duration_seconds"],
        )
        for record in records.below("merge/")
    }
    return dict(sorted(found.items()))


def _processor_series(records: Records) -> list[Series]:
    """Here as it was measured, the busiest process; in the lab what its law makes of the throughput."""
    found = []
    for world in _CLIENT_WORLDS:
        shares = {}
        for n, rate in records.curve(f"without/{world}/").items():
            path = WORLDS[world]
            assert not isinstance(path, World)
            link, of_all = path[0], path[0].cpu_rate_bytes_per_second
            if records.is_here:
                record = records.get(f"without/{world}/{n:.0f}")
                shares[n] = 100 * record.values.get("client_cpu_demand_fraction", 0.0) if record else 0.0
            elif of_all is not None:
                shares[n] = 100 * rate * 1e6 * (1.0 + link.cpu_switch_fraction * (n - 1)) / of_all
        if shares:
            found.append(Series(name=world, x=list(shares), y=list(shares.values())))
    return found


def _bottleneck_answer(records: Records) -> Sequence[str]:
    sentences = []
    best = {
        world: max(curve.values())
        for world in _CLIENT_WORLDS
        if (curve := records.curve(f"without/{world}/"))
    }
    if len(best) == len(_CLIENT_WORLDS):
        sentences.append(
            f"The limit is the disk first ({best['hdd']:.1f} MB/s with it, {best['ram-disk']:.1f} without), then the "
            f"processors ({best['faster']:.1f} MB/s with twice as many), and then the connections: the network would "
            "carry 125 MB/s, and 72 connections of 1.75 MB/s would fill it."
        )
    elif here := records.below("without/ram-disk/"):
        sentences.append(_limit_here(here))
    merges = _merges(records)
    if len(merges) > 1:
        few, many = min(merges), max(merges)
        shares = {parts: 100 * seconds / of_all for parts, (seconds, of_all) in merges.items()}
        each = max(0.0, (merges[many][0] - merges[few][0]) / (many - few))
        most_seconds = merges[many][0] + each * (_PART_COUNT_MAX - many)
        of_all_seconds = merges[many][1] * _PART_COUNT_MAX / many
        sentences.append(
            f"Merging takes {shares[few]:.1f} % of the time for {few:.0f} parts and {shares[many]:.1f} % for "
            f"{many:.0f}; "
            f"each further part takes {1e3 * each:.2f} ms, so {_PART_COUNT_MAX:,} parts of {PART // MiB} MiB "
            "would take "
            f"{most_seconds:.0f} s of {of_all_seconds / 60:.0f} minutes at this rate: "
            f"{100 * most_seconds / of_all_seconds:.1f} %."
        )
    return sentences


def _limit_here(records: Sequence[Record]) -> str:
    """On real services the disk is out of it, and the others are told by what they show."""
    rates = {float(record.label.rsplit("/", 1)[-1]): record.megabytes_per_second for record in records}
    busy = max(record.values.get("client_cpu_demand_fraction", 0.0) for record in records)
    few, many = min(rates), max(rates)
    limit = "the connections: more threads would carry more"
    if busy >= _FULL_PROCESSOR:
        limit = "the processor"
    elif rates[many] / rates[few] < _STILL_GROWING * many / few:
        limit = "the network or the service"
    return (
        f"Here bodies come from memory, so the disk is out of it; {100 * busy:.0f} % of a processor were wanted, and "
        f"{many:.0f} threads carry {rates[many] / rates[few]:.1f} times as much as {few:.0f} "
        f"({rates[many]:.1f} MB/s against {rates[few]:.1f}): the limit is {limit}."
    )


# Reads and writes at random times


_COMPARED_HOURS = (10.0, 16.0)  # UTC, of single bytes: p < 0.0001
_CLUSTER_READ_COUNT_MIN = 100
_STUDY_TEST_COUNT = 107_556  # 5.8
_SIZES = {"1B": 1, "1KB": 1_000, "1MB": MB, "16MB": 16 * MB, "100MB": 100 * MB}


def _poisson(counts: dict[str, int], wait_seconds_mean: float) -> Sequence[Step]:
    """Pairs of requests, one right after the other, at exponential distances."""
    chance = random.Random("poisson-probes")
    turns = [(size, index) for size, count in counts.items() for index in range(count)]
    chance.shuffle(turns)
    steps = []
    for size, index in turns:
        # Single bytes are read from a cache, larger objects from a disk: what the lab makes of it.
        world = "ec2-2007" if _SIZES[size] < MB else "ec2-2007-disk"
        for kind, step in (("read", download_step), ("write", upload_step)):
            wait_seconds = chance.expovariate(1.0 / wait_seconds_mean)
            label = f"{kind}/{size}/{index}"
            steps.append(step(label, world, _SIZES[size], 1, count=2, wait_seconds=wait_seconds))
    return steps


def _poisson_steps(form: Form) -> Sequence[Step]:
    if form is Form.LAB:
        return _poisson({"1B": 1500, "1KB": 100, "1MB": 600, "16MB": 100, "100MB": 600}, 1800.0)
    if form is Form.SHORT:
        return _poisson({"1B": 3, "1KB": 2, "1MB": 2}, 0.2)
    return _poisson(dict.fromkeys(_SIZES, 100), 300.0)


def pair_of(record: Record) -> tuple[float, float]:
    """The seconds of the two requests, the shorter one first: their mean and the larger one are known."""
    longer = record.values["latency_seconds_p99"]
    return 2.0 * record.values["latency_seconds_mean"] - longer, longer


def _speeds(records: Records, kind: str, size: str) -> list[tuple[float, float]]:
    """Requests a second of each pair."""
    return [
        (1.0 / longer, 1.0 / shorter)
        for record in records.below(f"{kind}/{size}/")
        for shorter, longer in [pair_of(record)]
        if shorter > 0
    ]


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Of pairs whose order does not matter: each counts both ways."""
    both = [*pairs, *((b, a) for a, b in pairs)]
    middle = mean([a for a, _ in both])
    variance = mean([(a - middle) ** 2 for a, _ in both])
    return mean([(a - middle) * (b - middle) for a, b in both]) / variance if variance > 0 else 0.0


def _all(records: Records, kind: str, size: str) -> list[float]:
    return [speed for pair in _speeds(records, kind, size) for speed in pair]


def _poisson_quantities(records: Records) -> Quantities:
    values = {}
    reads, writes = (_all(records, kind, "1B") for kind in ("read", "write"))
    if reads and writes:
        values["tps.most"] = quantile([*reads, *writes], 0.5)
        values["write.slow"] = 100 * mean([float(tps < 10.0) for tps in writes])
        values["read.slow"] = 100 * mean([float(tps < 10.0) for tps in reads])
        values["pairs.1B"] = correlation(_speeds(records, "read", "1B"))
    if large := _speeds(records, "read", "100MB"):
        values["pairs.100MB"] = correlation(large)
    for kind in ("read", "write"):
        if speeds := _all(records, kind, "1MB"):
            values[f"{kind}.1MB"] = quantile(speeds, 0.5)
            values[f"ec2.{kind}-mean"] = 1e3 * mean(speeds)  # KB/s
    return values | _troubles(records)


def _troubles(records: Records) -> dict[str, float]:
    """Retries and errors in as many tests as the study made; nothing of the lab, which fails as often as it is told."""
    writes, reads = records.below("write/"), records.below("read/")
    checked = [record for record in writes if "checksum_right_count" in record.values]
    if not checked or not reads:
        return {}
    scale = _STUDY_TEST_COUNT / (len(writes) + len(reads))
    found = {"retries.write": scale * _retry_count(writes), "retries.read": scale * _retry_count(reads)}
    if any(record.values["checksum_right_count"] for record in checked):  # else its ETags are no MD5
        found["errors.write"] = scale * math.fsum(record.values["checksum_wrong_count"] for record in checked)
    return found


def _retry_count(records: Sequence[Record]) -> float:
    return math.fsum(record.values["throttled_count"] + record.values["failed_count"] for record in records)


def _poisson_plots(records: Records) -> Sequence[Plot]:
    plots = [_cdf_plot(records, kind) for kind in ("read", "write")]
    for size, unit, r in (("1B", "transactions/s", 0.22), ("100MB", "objects/s", 0.85)):
        if speeds := _all(records, "read", size):
            most = [(10.0, 50.0)] if size == "1B" else []
            plots += [_histogram(speeds, f"Reads of {size}", unit, most), _pairs_plot(records, size, unit, r)]
    return [*plots, *_hourly_plots(records), *_daily_plots(records)]


def _pairs_plot(records: Records, size: str, unit: str, r: float) -> Plot:
    """Of the study there is a coefficient: the line on which a second read is to be expected after a first one."""
    pairs = _speeds(records, "read", size)
    both = [pair if index % 2 else pair[::-1] for index, pair in enumerate(pairs)]
    middle, ends = mean(_all(records, "read", size)), [min(a for a, _ in both), max(a for a, _ in both)]
    return Plot(
        title=f"Two successive reads of {size}",
        x_title=f"first, {unit}",
        y_title=f"second, {unit}",
        series=[
            Series(
                name=f"pairs, r = {correlation(pairs):.2f}",
                x=[a for a, _ in both],
                y=[b for _, b in both],
                is_line=False,
            ),
            published(f"r = {r}", ends, [middle + r * (end - middle) for end in ends], is_line=True),
        ],
    )


_PUBLISHED_SHARES = {  # of single bytes slower than 10 a second, and the median of a megabyte
    "read": [_points("shares", {10.0: 0.05, 1e6: 0.5})],
    "write": [_points("shares", {10.0: 0.40, 5e6: 0.5})],
}


def _cdf_plot(records: Records, kind: str) -> Plot:
    series = []
    for size, size_bytes in _SIZES.items():
        speeds = sorted(size_bytes * tps for tps in _all(records, kind, size))
        if speeds:
            step = max(1, len(speeds) // 200)
            shares = [(index + 1) / len(speeds) for index in range(len(speeds))]
            series.append(Series(name=size, x=speeds[::step], y=shares[::step]))
    series += _PUBLISHED_SHARES[kind]
    return Plot(
        title=f"How fast a {kind} is", x_title="bytes/s", y_title="share", series=series, is_log_x=True
    )


_BIN_COUNT = 30


def _counted(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Middles of bins of one width, and how many values are in each."""
    low, high = min(values), max(values)
    width = (high - low) / _BIN_COUNT or 1.0
    counts = [0.0] * (_BIN_COUNT + 1)
    for value in values:
        counts[int((value - low) / width)] += 1.0
    return [low + (index + 0.5) * width for index in range(_BIN_COUNT + 1)], counts


def _histogram(values: Sequence[float], title: str, unit: str, most: Sequence[tuple[float, float]]) -> Plot:
    middles, counts = _counted(values)
    seeds = [
        published(
            f"most from {low:g} to {high:g}",
            [low, low, high, high],
            [0.0, *[max(counts)] * 2, 0.0],
            is_line=True,
        )
        for low, high in most
    ]
    return Plot(
        title=title,
        x_title=unit,
        y_title="requests",
        series=[Series(name="all", x=middles, y=counts), *seeds],
    )


def peak_count(values: Sequence[float]) -> int:
    """Heaps of a histogram: each with a twentieth of the values, and a valley of half its height to the next."""
    _, counts = _counted(values)
    smooth = [mean(counts[max(0, index - 1) : index + 2]) for index in range(len(counts))]
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
    """Requests a second by hour of the day."""
    found: dict[int, list[float]] = {}
    for record in records.below(f"read/{size}/"):
        hour = datetime.fromisoformat(record.started_at).hour
        shorter, longer = pair_of(record)
        found.setdefault(hour, []).extend((1.0 / shorter, 1.0 / longer))
    return dict(sorted(found.items()))


def _hourly_plots(records: Records) -> list[Plot]:
    plots = []
    for size, unit, scale in (("100MB", "MB/s", 100.0), ("1B", "transactions/s", 1.0)):
        hours = {hour: scale * mean(speeds) for hour, speeds in _hours(records, size).items()}
        if len(hours) < 2:
            continue
        series = [Series(name="mean", x=[float(hour) for hour in hours], y=list(hours.values()))]
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
        "mean": [mean(speeds) for speeds in days.values()],
        "5 of 100 are slower": [quantile(speeds, 0.05) for speeds in days.values()],
        "95 of 100 are slower": [quantile(speeds, 0.95) for speeds in days.values()],
    }
    series = [Series(name=name, x=numbers, y=values) for name, values in curves.items()]
    return [Plot(title="Reads of 100MB by the day", x_title="day", y_title="MB/s", series=series)]


def welch_t(first: Sequence[float], second: Sequence[float]) -> float:
    """How many standard errors two means are apart; 0 where there are too few."""
    if min(len(first), len(second)) < 2:
        return 0.0

    def squared_error(values: Sequence[float]) -> float:
        middle = mean(values)
        return math.fsum((v - middle) ** 2 for v in values) / (len(values) - 1) / len(values)

    error = math.sqrt(squared_error(first) + squared_error(second))
    return (mean(first) - mean(second)) / error if error > 0 else 0.0


def _poisson_answer(records: Records) -> Sequence[str]:
    sentences = []
    pairs = [pair_of(record) for record in records.below("read/1B/")]
    if len(pairs) > 20:
        sentences += _hedge_sentences(pairs)
    elif records.is_here:
        sentences.append(
            f"{len(pairs)} pairs of single bytes are too few to say what a second request is worth."
        )
    sentences += _hour_sentences(records)
    large = _speeds(records, "read", "100MB")
    if len(large) > 1:
        r = correlation(large)
        advice = (
            "both are slow or neither: drop the second" if r > 0.5 else "one may be slow alone: keep both"
        )
        sentences.append(f"Of two reads of 100 MB (r = {r:.2f}) {advice}.")
    sentences.append(_cluster_sentence(records, [speed for pair in large for speed in pair]))
    if addresses := records.addresses():
        sentences.append(
            f"{_addresses(len(addresses))} answered {sum(row.request_count for row in addresses)} requests (the study: "
            f"10 in six weeks), {addresses[0].address} most of them: {addresses[0].request_count}."
        )
    return [*sentences, *_trouble_sentences(records)]


def _hour_sentences(records: Records) -> list[str]:
    """Two hours of the day: Welch's t, and how likely that much is by chance."""
    hours = _hours(records)
    first, second = (hours.get(int(hour), []) for hour in _COMPARED_HOURS)
    if min(len(first), len(second)) < 2:
        return [
            "No single bytes were read both at 10 and at 16 UTC, which the study compares."
        ] * records.is_here
    t = abs(welch_t(first, second))
    return [
        (
            f"Reads at 10 and at 16 UTC are {t:.1f} standard errors apart, p = {math.erfc(t / math.sqrt(2)):.2g} (the "
            f"study: significant, p < 0.0001{'' if records.is_here else '; the days of the lab have no hours'})."
        )
    ]


def _cluster_sentence(records: Records, speeds: Sequence[float]) -> str:
    """What gives five clusters of large reads: of the lab by what the study says of windows, here by what came."""
    if not records.is_here:
        return (
            "Five clusters of 100 MB reads are what a window of 65,535 bytes makes of five distances: 65,535 B "
            "in 4, 5, "
            "6, 8 and 10 ms are 16.4, 13.1, 10.9, 8.2 and 6.6 MB/s, and nine addresses answered. The two milliseconds "
            "that were added on 10 April took a third of it for the same reason."
        )
    if len(speeds) < _CLUSTER_READ_COUNT_MIN:
        return f"{len(speeds)} reads of 100 MB are too few to tell clusters: {_CLUSTER_READ_COUNT_MIN} are needed."
    low, high = 100 * quantile(speeds, 0.05), 100 * quantile(speeds, 0.95)
    heaps, addresses = peak_count(speeds), len(records.addresses())
    return (
        f"{len(speeds)} reads of 100 MB form {heaps} cluster{'s' * (heaps != 1)} between {low:.1f} and {high:.1f} MB/s "
        f"(the study: five), and {_addresses(addresses)} answered. A window of 65,535 bytes, which held the study's, "
        f"would have allowed {65_535 / 1e6 / (high * 1e-3):.1f} ms there and back for the fastest."
    )


def _addresses(count: int) -> str:
    return "1 address" if count == 1 else f"{count} addresses"


def _trouble_sentences(records: Records) -> list[str]:
    writes, reads = records.below("write/"), records.below("read/")
    right, wrong = (
        math.fsum(record.values.get(f"checksum_{which}_count", 0.0) for record in writes)
        for which in ("right", "wrong")
    )
    if right + wrong == 0:  # of the lab
        return []
    checked = (
        f"{wrong:.0f} of {right + wrong:.0f} writes arrived with another checksum than they were sent with"
        if right
        else "this store's ETags are no MD5 of what was written, so that write errors cannot be told by them"
    )
    return [
        (
            f"{_retry_count(writes):.0f} writes and {_retry_count(reads):.0f} reads were to be tried again, and "
            f"{checked}. In the table these are counted for {_STUDY_TEST_COUNT:,} tests, as many as the study made."
        )
    ]


def _hedge_sentences(pairs: Sequence[tuple[float, float]]) -> list[str]:
    """What a second request is worth, from pairs that were measured one right after the other."""
    single = [seconds for pair in pairs for seconds in pair]
    first_of_two = [min(pair) for pair in pairs]
    after = quantile(single, 0.95)
    # The later one is the second request; whichever order they came in, each is as good as the other.
    hedged = [
        min(first, after + second) if first > after else first
        for pair in pairs
        for first, second in (pair, pair[::-1])
    ]
    share = mean([float(seconds > after) for seconds in single])
    usd = S3_TARIFF.usd(read_request_count=1_000_000)
    return [
        (
            "Two requests at once, and the first answer taken: the 99th percentile falls from "
            f"{1e3 * quantile(single, 0.99):.0f} to {1e3 * quantile(first_of_two, 0.99):.0f} ms at twice the price. "
            f"A second one after {1e3 * after:.0f} ms, when 95 % have answered, brings "
            f"{1e3 * quantile(hedged, 0.99):.0f} ms for {100 * share:.0f} % more requests, "
            f"${share * usd:.2f} more for a million reads where the other way takes ${usd:.2f} more: that is the one "
            "worth sending."
        ),
    ]


# The surge

_MORE_BY_A_PROCESS = 1.5


def _surge_steps(form: Form) -> Sequence[Step]:
    seconds, size = (1.0, MB) if form is Form.SHORT else (600.0, 100 * MB)
    count = 6 if form is Form.SHORT else math.ceil(600 * 32 * MB / size)
    return [
        download_step(
            f"surge/{copies}/{n}",
            "surge",
            size,
            n,
            count=count,
            copy_count=copies,
            process_count=1,
            **({} if form is Form.SHORT else {"duration_seconds": seconds}),
        )
        for copies in (1, 2)
        for n in ((1, 2) if form is Form.SHORT else range(1, 7))
    ]


def _surge_quantities(records: Records) -> Quantities:
    curve = records.curve("surge/1/")
    if 1.0 not in curve or 6.0 not in curve:
        return {}
    return {
        "surge.ratio": curve[6.0] / curve[1.0],
        "surge.aggregate": curve[6.0],
        "surge.per-thread": curve[6.0] / 6.0 / curve[1.0],
    }


def _surge_plots(records: Records) -> Sequence[Plot]:
    each = [
        replace(one, y=[rate / n / int(one.name) for n, rate in zip(one.x, one.y, strict=True)])
        for one in _curve_plot(records, "", "surge", ("1", "2")).series
    ]
    return [
        Plot(
            title="Reads of 100 MB, each thread",
            x_title="threads",
            y_title="MB/s",
            series=[*each, _points("one host", {1: 10.0, 6: 5.0})],
        ),
        _curve_plot(
            records,
            "Reads of 100 MB, one host and two",
            "surge",
            ("1", "2"),
            [_points("one host", {1: 10.0, 6: 30.0})],
        ),
    ]


def _surge_answer(records: Records) -> Sequence[str]:
    curve, two = records.curve("surge/1/"), records.curve("surge/2/")
    if len(curve) < 2:
        return []
    knee = min(n for n, rate in curve.items() if rate > 0.95 * max(curve.values()))
    most = max(two.keys() & curve.keys(), default=knee)
    ratio = two.get(most, 0.0) / curve[most]
    if not records.is_here:
        return [
            (
                f"{knee:.0f} threads are enough: the host's 250 Mbit/s are the limit from there on, not its processor. "
                f"Two hosts move {ratio:.1f} times as much, so the service is not the limit either. In the lab each "
                "host is "
                "a link of its own; on real services a process of its own, so that two share what this host has."
            )
        ]
    busy = max(r.values.get("client_cpu_demand_fraction", 0.0) for r in records.below("surge/1/"))
    return [
        f"Of up to {max(curve):.0f} threads {knee:.0f} are enough here for {max(curve.values()):.1f} MB/s; each of "
        f"{max(curve):.0f} has {curve[max(curve)] / max(curve) / curve[min(curve)] * min(curve):.2f} of what one alone "
        f"has, and the busiest process wants {100 * busy:.0f} % of a processor. Two processes with {most:.0f} threads "
        f"each move {ratio:.1f} times as much as one: "
        + (
            "the process was the limit."
            if ratio > _MORE_BY_A_PROCESS
            else "this host or the service is the limit."
        )
    ]


# Threads by object size


_GRID_THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SIZES_KIB = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_GRID_WORLDS = ("colo-https", "colo-http", "m1.xlarge", "cc1.4xlarge")
_ENDS = {  # of real services, and what is like them in the lab
    "near-tls": "m1.xlarge",
    "near-plain": "m1.xlarge",
    "far-tls": "colo-https",
    "far-plain": "colo-http",
}
_SMALL_KIB_MAX = 128


def _grid_steps(form: Form) -> Sequence[Step]:
    if form is Form.LAB:
        return _grid_in_lab()
    if form is Form.SHORT:
        return _grid((1, 4), (1, 64), worlds=_ENDS, count=8)
    steps: list[Step] = []
    for end in _ENDS:
        steps += _grid((1,), (1,), worlds=(end,), count=1, prefix="warm-up")
        for repetition in range(1, 5):
            steps += _grid(
                _GRID_THREADS, (*_SIZES_KIB, 4096), worlds=(end,), count=512, prefix=f"grid-{repetition}"
            )
    return steps


def _grid_in_lab() -> Sequence[Step]:
    return [
        *_grid(_GRID_THREADS, _SIZES_KIB, worlds=_GRID_WORLDS, count=512),
        *_grid((128, 256, 512), (4096,), worlds=("cc1.4xlarge",), count=512),
    ]


def _grid(
    threads: Sequence[int],
    sizes_kib: Sequence[int],
    *,
    worlds: Iterable[str],
    count: int,
    prefix: str = "grid",
) -> list[Step]:
    return [
        upload_step(
            f"{prefix}/{world}/{kib}/{n}",
            _ENDS.get(world, world),
            kib * KiB,
            n,
            count=count,
            is_plain=world in {"colo-http", "near-plain", "far-plain"},
            is_far=world.startswith("far-"),
        )
        for world in worlds
        for kib in sizes_kib
        for n in threads
    ]


def grid_curve(records: Records, world: str, kib: int) -> dict[float, float]:
    """MiB/s by threads: the mean of the repetitions."""
    sums: dict[float, list[float]] = {}
    for prefix in ("grid", "grid-1", "grid-2", "grid-3", "grid-4"):
        for n, rate in records.curve(f"{prefix}/{world}/{kib}/").items():
            sums.setdefault(n, []).append(rate * 1e6 / MiB)
    return {n: mean(rates) for n, rates in sums.items()}


def _like(records: Records, world: str, kib: int) -> dict[float, float]:
    """The curve of a world of the lab; of real services that of the end in its place, without TLS as published."""
    if not records.is_here:
        return grid_curve(records, world, kib)
    ends = {"colo-https": ["far-tls"], "colo-http": ["far-plain"]}.get(world, ["near-plain", "near-tls"])
    return next((curve for end in ends if (curve := grid_curve(records, end, kib))), {})


def best_threads(curve: dict[float, float]) -> float:
    """Those with the highest throughput."""
    return max(curve, key=lambda n: curve[n])


def _grid_quantities(records: Records) -> Quantities:
    values: dict[str, float] = {}
    for world in ("colo-https", "colo-http"):
        best = {kib: best_threads(curve) for kib in _SIZES_KIB if (curve := _like(records, world, kib))}
        small = [n for kib, n in best.items() if kib <= _SMALL_KIB_MAX]
        large = [n for kib, n in best.items() if kib > _SMALL_KIB_MAX]
        if small and large:  # that of most sizes
            name = world.removeprefix("colo-")
            values[f"{name}.small"], values[f"{name}.large"] = quantile(small, 0.5), quantile(large, 0.5)
    wanted = {
        "m1.1KB": ("m1.xlarge", 1),
        "colo.1KB": ("colo-http", 1),
        "m1.32KB": ("m1.xlarge", 32),
        "m1.1024KB": ("m1.xlarge", 1024),
        "cc.2048KB": ("cc1.4xlarge", 2048),
        "cc.4096KB": ("cc1.4xlarge", 4096),
    }
    for name, (world, kib) in wanted.items():
        if curve := _like(records, world, kib):
            values[name] = max(curve.values())
    return values


_PUBLISHED_PEAKS = {"m1.xlarge": {64.0: 460.0}, "cc1.4xlarge": {128.0: 1091.7, 256.0: 1117.9}}  # by threads


def _grid_plots(records: Records) -> Sequence[Plot]:
    plots = []
    for world in (*_GRID_WORLDS, *_ENDS):
        series = [
            Series(name=f"{kib} KB", x=list(curve), y=list(curve.values()))
            for kib in (1, 16, 128, 512, 2048)
            if (curve := grid_curve(records, world, kib))
        ]
        if series:
            if world in _PUBLISHED_PEAKS:
                series.append(_points("1 to 4 MB", _PUBLISHED_PEAKS[world]))
            plots.append(_by_threads(f"Objects from {world}", series))
    return [*plots, *_grid_summaries(records)] if plots else []


def _by_threads(title: str, series: Sequence[Series]) -> Plot:
    return Plot(title=title, x_title="threads", y_title="MiB/s", series=series, is_log_x=True, is_log_y=True)


_PUBLISHED_MOST = {
    "m1.xlarge": {1: 5.2, 32: 120.0, 1024: 460.0},
    "colo": {1: 1.0},
    "cc1.4xlarge": {2048: 1091.7, 4096: 1117.9},
}
_PUBLISHED_BEST = {  # threads by KB
    "TLS": {1: 64, 128: 64, 256: 128, 2048: 128},
    "plain": {1: 128, 128: 128, 256: 256, 2048: 256},
}


def _grid_summaries(records: Records) -> list[Plot]:
    """Over all sizes: the smallest objects, the most of each size, its best thread count, and what TLS costs."""
    curves = {
        world: {kib: curve for kib in (*_SIZES_KIB, 4096) if (curve := grid_curve(records, world, kib))}
        for world in (*_GRID_WORLDS, *_ENDS)
    }
    smallest = [
        Series(name=world, x=list(by_size[1]), y=list(by_size[1].values()))
        for world, by_size in curves.items()
        if 1 in by_size
    ]
    most = {
        world: {kib: max(curve.values()) for kib, curve in found.items()} for world, found in curves.items()
    }
    best = {
        world: {kib: best_threads(curve) for kib, curve in found.items()} for world, found in curves.items()
    }
    gains: dict[str, dict[int, float]] = {}
    for plain, tls in (("colo-http", "colo-https"), ("near-plain", "near-tls"), ("far-plain", "far-tls")):
        for kib in curves[plain].keys() & curves[tls].keys():
            pairs = [(rate, curves[tls][kib].get(n, 0.0)) for n, rate in curves[plain][kib].items()]
            gains.setdefault(plain, {})[kib] = mean([100 * a / b for a, b in pairs if b > 0])

    def by_size(
        title: str, unit: str, found: Mapping[str, Mapping[int, float]], seeds: Sequence[Series]
    ) -> Plot:
        series = [
            Series(
                name=world,
                x=[float(kib) for kib in sorted(values)],
                y=[values[kib] for kib in sorted(values)],
            )
            for world, values in found.items()
            if values
        ]
        return Plot(
            title=title, x_title="KB", y_title=unit, series=[*series, *seeds], is_log_x=True, is_log_y=True
        )

    seeds = [
        _points(name, {float(kib): rate for kib, rate in found.items()})
        for name, found in _PUBLISHED_MOST.items()
    ]
    counts = [
        published(name, list(found), list(found.values()), is_line=True)
        for name, found in _PUBLISHED_BEST.items()
    ]
    return [
        _by_threads(
            "Objects of 1 KB", [*smallest, published("TLS up to, plain up to", [64, 128], [0.5, 1.0])]
        ),
        by_size("The most of each size", "MiB/s", most, seeds),
        by_size("Best thread count", "threads", best, counts),
        by_size(
            "Without TLS over with it, mean of the thread counts", "%", gains, [_points("colo", {1: 200.0})]
        ),
    ]


def _best_by_size(records: Records) -> list[str]:
    """The best of the thread counts that were tried, for each size."""
    sentences = []
    for world in (*_GRID_WORLDS, *_ENDS):
        curves = {kib: grid_curve(records, world, kib) for kib in (*_SIZES_KIB, 4096)}
        best = [(best_threads(curve), kib) for kib, curve in curves.items() if curve]
        if best:
            alike = [(n, [kib for _, kib in group]) for n, group in groupby(best, key=lambda pair: pair[0])]
            counts = ", ".join(f"{n:.0f} up to {sizes[-1]} KB" for n, sizes in alike)
            sentences.append(f"Best thread count of those that were tried, {world}: {counts}.")
    return sentences


def _grid_answer(records: Records) -> Sequence[str]:
    law = _law_here(records) if records.is_here else [_law_of_the_lab()]
    return [*law, *_best_by_size(records)]


def _law_of_the_lab() -> str:
    def best(kib: int, latency_seconds: float, coherency: float, rate: float) -> float:
        return math.sqrt((latency_seconds + kib * KiB / rate) / (latency_seconds * coherency))

    rate, sentences = COLO_HTTP.connection_rate_bytes_per_second, []
    for name, link in (("TLS", COLO_HTTPS), ("plain", COLO_HTTP)):
        latency = link.round_trips_per_request * link.round_trip_seconds + link.service_latency_seconds_median
        counts = [best(kib, latency, link.latency_coherency, rate) for kib in (1, 128, 2048)]
        sentences.append(
            f"{name}: {counts[0]:.0f} threads at 1 KB, {counts[1]:.0f} at 128 KB, {counts[2]:.0f} at 2 MB, before "
            "the network is full"
        )
    return (
        "The best thread count is a matter of the host first: each request delays the others a little, and the root "
        "of 1 over that delay is the best count where objects are small. Size multiplies it by the root of 1 + its "
        "time on the wire over its latency. Distance alone does not move it: twice the round trip is twice the "
        "latency at any count. " + "; ".join(sentences) + ". Powers of two hide the rest."
    )


def _law_here(records: Records) -> list[str]:
    """Size, distance or the host: what moved the best thread count in this run, and what was not told apart."""
    found = []
    for scheme in ("tls", "plain"):
        by_end = {}
        for end in ("near", "far"):
            curves = {kib: grid_curve(records, f"{end}-{scheme}", kib) for kib in (*_SIZES_KIB, 4096)}
            curves = {kib: curve for kib, curve in curves.items() if 1.0 in curve}
            if curves:
                by_end[end] = curves
        for end, curves in by_end.items():
            small, large = min(curves), max(curves)
            found.append(
                f"Size, {end}, {_SCHEMES[scheme]}: {best_threads(curves[small]):.0f} threads are best at {small} KB "
                "and "
                f"{best_threads(curves[large]):.0f} at {large} KB."
            )
        if len(by_end) == 2:
            kib = min(by_end["near"].keys() & by_end["far"].keys())
            near, far = by_end["near"][kib], by_end["far"][kib]
            near_ms, far_ms = (1e3 * kib / KiB / curve[1.0] for curve in (near, far))
            found.append(
                f"Distance, {_SCHEMES[scheme]}: one request of {kib} KB takes {near_ms:.1f} ms near and "
                f"{far_ms:.1f} ms "
                f"far, where {best_threads(near):.0f} and {best_threads(far):.0f} threads are best and carry "
                f"{max(near.values()):.2f} and {max(far.values()):.2f} MiB/s."
            )
    if found and not any(record.label.split("/")[1].startswith("far") for record in records.below("grid")):
        found.append("What distance does was not measured: name the other end with --far.")
    counts = {float(record.label.rsplit("/", 1)[-1]) for record in records.below("grid")}
    if found and len(counts) < _COUNTS_THAT_TELL:
        found.append(f"Only {len(counts)} thread counts were tried, too few to name the best one.")
    return found


_SCHEMES = {"tls": "with TLS", "plain": "without TLS"}
_COUNTS_THAT_TELL = 4


# Parallel transfers of a gigabyte


_DOWNLOADS = {
    "ssl": {1: 12.6, 2: 21.0, 3: 31.3, 4: 37.5, 6: 46.6, 8: 49.8},
    "plain": {1: 10.2, 2: 20.0, 3: 29.6, 4: 37.6, 6: 46.5, 8: 51.5},
}
_UPLOADS = {1: 6.9, 2: 14.2, 4: 23.6, 6: 37.6, 8: 48.0, 12: 53.8}


def _curl_steps(form: Form) -> Sequence[Step]:
    size = 4 * MB if form is Form.SHORT else GB

    def counts(table: dict[int, float]) -> list[int]:
        return [1, 2] if form is Form.SHORT else list(table)

    steps = [
        download_step(f"down/{scheme}/{n}", "m1.large", size, n, count=n, is_plain=scheme == "plain")
        for scheme, table in _DOWNLOADS.items()
        for n in counts(table)
    ]
    steps += [
        upload_step(f"up/{scheme}/{n}", "m1.large", size, n, count=n, is_plain=scheme == "plain")
        for scheme in _DOWNLOADS
        for n in counts(_UPLOADS)
    ]
    if form is Form.SHORT:
        return steps
    more = [
        download_step(f"down/{scheme}/12", "m1.large", size, 12, count=12, is_plain=scheme == "plain")
        for scheme in _DOWNLOADS
    ]
    return [*steps, *more]  # twelve, and uploads without TLS: the study did not publish these


def _curl_quantities(records: Records) -> Quantities:
    return {
        record.label.replace("/", "."): record.megabytes_per_second
        for prefix in ("down/", "up/")
        for record in records.below(prefix)
    }


def _curl_plots(records: Records) -> Sequence[Plot]:
    plots = []
    uploads = {"ssl": _UPLOADS}
    for title, prefix, tables in (("Downloads", "down", _DOWNLOADS), ("Uploads", "up", uploads)):
        all_of_it = _curve_plot(records, f"{title} of 1 GB", prefix, ("ssl", "plain"))
        seeds = [_points(name, {float(n): v for n, v in table.items()}) for name, table in tables.items()]
        plots += [_with(all_of_it, seeds), _each_stream(all_of_it, seeds)]
    return plots


def _with(plot: Plot, seeds: Sequence[Series]) -> Plot:
    return replace(plot, series=[*plot.series, *seeds])


def _each_stream(plot: Plot, seeds: Sequence[Series]) -> Plot:
    """The same divided by the streams."""
    series = [
        replace(one, y=[rate / n for n, rate in zip(one.x, one.y, strict=True)])
        for one in (*plot.series, *seeds)
    ]
    return replace(plot, title=f"{plot.title}, each stream", series=series)


def _curl_answer(records: Records) -> Sequence[str]:
    curves = {scheme: records.curve(f"down/{scheme}/") for scheme in _DOWNLOADS}
    sentences = []
    if (curve := curves["plain"] or curves["ssl"]) and len(curve) > 1:
        gains = [
            f"{later:.0f}: {(curve[later] - curve[earlier]) / (later - earlier):.1f}"
            for earlier, later in pairwise(sorted(curve))
        ]
        sentences.append(
            f"What each further stream adds, in MB/s, up to so many streams: {', '.join(gains)}."
        )
    if not records.is_here:
        sentences.append(
            "TLS changes nothing that the network would notice; one encrypted stream was faster than one without (12.6 "
            "against 10.2 MB/s), which no law of sharing explains."
        )
    elif both := sorted(curves["ssl"].keys() & curves["plain"].keys()):
        shares = [100 * curves["ssl"][n] / curves["plain"][n] for n in both]
        sentences.append(
            f"With TLS {min(shares):.0f} to {max(shares):.0f} % of what comes without it, by the number of streams."
        )
    elif sentences:
        sentences.append("What TLS costs was not measured: this endpoint is spoken to in one way alone.")
    return sentences


def _nothing(records: Records) -> Quantities:
    del records
    return {}


def _no_plots(records: Records) -> Sequence[Plot]:
    del records
    return []


def _needs_hosts(what: str) -> Callable[[Records], Sequence[str]]:
    return lambda _: [what]


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="upload-clients",
        title="Clients by file size",
        study="000",
        section="III, figure 8",
        summary="Uploads with one, five and ten connections, as the clients of the study made them.",
        steps=_client_steps,
        quantities=_nothing,
        plots=_client_plots,
        answer=_client_answer,
    ),
    Experiment(
        name="upload-threads",
        title="Uploads of 512 MB by threads",
        study="000",
        section="III, figures 10, 11 and 13",
        summary="From a hard disk, from memory, and from memory on a faster client.",
        steps=_thread_steps,
        quantities=_thread_quantities,
        plots=_thread_plots,
        answer=_thread_answer,
    ),
    Experiment(
        name="bottlenecks",
        title="Disk, processors and network, one after another",
        study="000",
        section="III, figures 12 and 14",
        summary="What limits an upload, by taking it away; and what merging the parts takes.",
        steps=_bottleneck_steps,
        quantities=_bottleneck_quantities,
        plots=_bottleneck_plots,
        answer=_bottleneck_answer,
    ),
    Experiment(
        name="poisson-probes",
        title="Reads and writes at random times",
        study="001",
        section="5.1 to 5.6",
        summary="Pairs of requests of 1 B to 100 MB at exponential distances, for days.",
        steps=_poisson_steps,
        quantities=_poisson_quantities,
        plots=_poisson_plots,
        answer=_poisson_answer,
    ),
    Experiment(
        name="surge",
        title="One to six threads, one host and two",
        study="001",
        section="5.7, figure 8",
        summary="Reads of 100 MB for ten minutes each.",
        steps=_surge_steps,
        quantities=_surge_quantities,
        plots=_surge_plots,
        answer=_surge_answer,
    ),
    Experiment(
        name="threads-by-size",
        title="The best number of threads for an object size",
        study="002",
        section="all",
        summary="512 objects of 1 KB to 4 MB with 1 to 256 threads, with TLS and without, near and far.",
        steps=_grid_steps,
        quantities=_grid_quantities,
        plots=_grid_plots,
        answer=_grid_answer,
    ),
    Experiment(
        name="parallel-curls",
        title="Parallel transfers of a gigabyte",
        study="004",
        section="EC2 and S3",
        summary="One to twelve whole objects at a time, down and up.",
        steps=_curl_steps,
        quantities=_curl_quantities,
        plots=_curl_plots,
        answer=_curl_answer,
    ),
    Experiment(
        name="locations",
        title="The same reads from elsewhere",
        study="001",
        section="5.9, table 2",
        summary="Deferred: needs hosts in other places. Run `poisson-probes` on each of them and compare the reports.",
        steps=lambda _: (),
        quantities=_nothing,
        plots=_no_plots,
        answer=_needs_hosts(
            "It would be answered by `penstock measure run poisson-probes` on a host in each place."
        ),
    ),
    Experiment(
        name="host-to-host",
        title="From one instance to another",
        study="004",
        section="between instances",
        summary="Deferred: needs a second host with a web server; penstock measures S3 and SQS.",
        steps=lambda _: (),
        quantities=_nothing,
        plots=_no_plots,
        answer=_needs_hosts(
            "It would be answered by `curl` against a second instance, one to three at a time."
        ),
    ),
)
