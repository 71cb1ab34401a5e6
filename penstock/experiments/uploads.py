"""Knows the published experiments with uploads: clients by file size, threads, and one bottleneck after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from penstock.experiments.calibrations import FASTER, RAM_DISK, WORLDS
from penstock.experiments.experiment import (
    MB,
    Experiment,
    Form,
    Plot,
    Quantities,
    Record,
    Records,
    Series,
    Step,
    as_numbers,
    busiest,
    curve_plot,
    curve_series,
    enough,
    knee,
    level,
    published_points,
    upload_step,
)
from penstock.models.s3.parts import PART_COUNT_MAX
from penstock.trial.simulated_host import World
from penstock.tuning.clients import small_object_count
from penstock.units import MiB, counted

PART = 5 * MiB
_SHORT_OBJECT = 12 * MiB


# Clients by file size


_CLIENT_CONNECTIONS = {"one-connection": 1, "cyberduck": 5, "transfer-manager": 10}
_REAL_CLIENTS = ("boto3", "s5cmd", "rclone", "aws")  # as `penstock tune --client` runs them
_SDK_THREADS, _SDK_PART = 10, 8 * MiB  # the transfer manager's defaults


def _client_steps(form: Form) -> Sequence[Step]:
    megabytes = (1, 16) if form is Form.SHORT else (1, 4, 16, 64, 128)
    sizes = [n * MB for n in megabytes]
    steps = [_client_step(*client, size) for client in _CLIENT_CONNECTIONS.items() for size in sizes]
    if form is Form.LAB:  # real clients need sockets
        return steps
    real_sizes = sizes[1:] if form is Form.SHORT else sizes
    return [*steps, *(_real_client_step(client, size) for client in _REAL_CLIENTS for size in real_sizes)]


def _real_client_step(client: str, size: int) -> Step:
    """A file in parts; a file too small for parts is moved many times, so that threads are files in flight."""
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
    """In parts, if the client makes parts and the file is larger than one."""
    label = f"client/{client}/{size // MB}"
    if threads == 1 or size <= PART:
        return upload_step(label, "hdd", size, 1, count=1)
    return upload_step(label, "hdd", size, threads, part_size_bytes=PART)


def _client_plots(records: Records) -> Sequence[Plot]:
    seeds = [published_points("transfer-manager", {512.0: 5.20})]
    clients = (*_CLIENT_CONNECTIONS, *_REAL_CLIENTS)
    plot = curve_plot(records, "Upload by client and file", "client", clients, seeds)
    return [replace(plot, x_title="MB", is_log_x=True)]


def _client_answer(records: Records) -> Sequence[str]:
    one, ten = (records.curve(f"client/{client}/") for client in ("one-connection", "transfer-manager"))
    found = []
    if both := one.keys() & ten.keys():
        largest = max(both)
        part_count = math.ceil(largest * MB / PART)
        used = min(part_count, _CLIENT_CONNECTIONS["transfer-manager"])
        found.append(
            f"A file of {largest:.0f} MB has {counted(part_count, 'part')}, and goes {ten[largest] / one[largest]:.1f} "
            f"times as fast over {counted(used, 'connection')} as over one. A file of up to {PART // MiB} MiB is one "
            "request with each client."
        )
    if not records.is_here:
        found.append(
            "Real clients need real services: without `--lab` those of "
            f"{', '.join(_REAL_CLIENTS)} that are installed are run as well, with ten connections."
        )
    elif any(records.below(f"client/{client}/") for client in _REAL_CLIENTS):
        found.append(
            "Programs are timed from their start, as their users wait for them; boto3 is timed when it is loaded."
        )
    return found


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
    """Outside the lab bodies are in memory and the host is given: only the lab varies disk and processors."""
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


def _thread_plots(records: Records) -> Sequence[Plot]:
    points = [
        published_points("hdd", {10: 5.20, 14: 6.21}),
        published_points("ram-disk", {20: 22.96}),
        published_points("faster", {20: 30.69}),
    ]
    return [curve_plot(records, "Upload of 512 MB by threads", "threads", _CLIENT_WORLDS, points)]


def _thread_answer(records: Records) -> Sequence[str]:
    if records.is_here:
        curve = records.curve("threads/ram-disk/")
        return [f"Bodies come from memory here. {enough(curve, 'thread')}."] if len(curve) > 1 else []
    best = []
    for world in _CLIENT_WORLDS:
        if curve := records.curve(f"threads/{world}/"):
            n = max(curve, key=lambda at: curve[at])
            best.append(f"{n:.0f} threads from {world} ({curve[n]:.1f} MB/s)")
    return [f"Best of those that were tried: {', '.join(best)}."] if best else []


# Bottlenecks


_FULL_PROCESSOR = 0.9  # busy fraction of a full processor
_STILL_GROWING = 0.8  # of the gain that additional threads would bring if they shared nothing
_COUNTS_THAT_TELL = 3  # of threads or parts; two single runs say nothing about larger counts
_PART_SIZES = tuple(mib * MiB for mib in (5, 8, 16, 32, 64, 128))


def _bottleneck_steps(form: Form) -> Sequence[Step]:
    is_short = form is Form.SHORT
    size, merging_threads = (_SHORT_OBJECT, 4) if is_short else (512 * MB, 20)
    without = [
        upload_step(f"without/{world}/{n}", world, size, n, part_size_bytes=PART)
        for world in _client_worlds(form)
        for n in ((2, 4) if is_short else (10, 20, 30))
    ]
    merges = [
        upload_step(f"merge/{math.ceil(size / part)}", "faster", size, merging_threads, part_size_bytes=part)
        for part in (_PART_SIZES[:2] if is_short else _PART_SIZES)
    ]
    return [*without, *merges]


def _bottleneck_quantities(records: Records) -> Quantities:
    values: dict[str, float] = {}
    if not records.is_here:
        values["network.120"] = RAM_DISK.host_rate_bytes_per_second * 8 / 1e9
    if merges := _merges(records).values():
        values["merge.seconds"] = max(seconds for seconds, _ in merges)
        values["merge.share"] = 100 * max(seconds / of_all for seconds, of_all in merges)
    return values


def _bottleneck_plots(records: Records) -> Sequence[Plot]:
    merges = _merges(records)
    seconds = {parts: a for parts, (a, _) in merges.items()}
    shares = {parts: 100 * a / b for parts, (a, b) in merges.items()}
    until = max(merges, default=0.0)
    return [
        curve_plot(records, "With the disk, from memory, and on a faster client", "without", _CLIENT_WORLDS),
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
            series=[curve_series("complete", seconds), level("below", 1.0, until)],
        ),
        Plot(
            title="Share of merging",
            x_title="parts",
            y_title="% of the upload",
            series=[curve_series("complete", shares), level("below", 3.0, until)],
        ),
    ]


def _merges(records: Records) -> dict[float, tuple[float, float]]:
    """Seconds of merging and of the whole upload, by the number of parts."""
    return {
        float(record.last_word): (record.values["complete_seconds"], record.values["duration_seconds"])
        for record in sorted(records.below("merge/"), key=lambda record: float(record.last_word))
    }


def _processor_series(records: Records) -> list[Series]:
    """On real services the busiest process's measured demand; in the lab what its law derives from the throughput."""
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
            found.append(curve_series(world, shares))
    return found


def _bottleneck_answer(records: Records) -> Sequence[str]:
    sentences = []
    best = {
        world: max(curve.values())
        for world in _CLIENT_WORLDS
        if (curve := records.curve(f"without/{world}/"))
    }
    if len(best) == len(_CLIENT_WORLDS):
        network, processors = FASTER.host_rate_bytes_per_second, FASTER.cpu_rate_bytes_per_second or 0.0
        sentences.append(
            f"The first limit is the disk ({best['hdd']:.1f} MB/s with it, {best['ram-disk']:.1f} without), the second "
            f"the processors ({best['faster']:.1f} MB/s with twice as many, and faster ones), the third the number of "
            f"connections. The network is none: it carries {network / 1e6:.0f} MB/s, and the faster client's "
            f"processors at most {processors / 1e6:.0f}."
        )
    elif records.is_here and (here := records.below("without/ram-disk/")):
        sentences.append(_limit_here(here))
    merges = _merges(records)
    if len(merges) > 1:
        few, many = min(merges), max(merges)
        each = max(0.0, (merges[many][0] - merges[few][0]) / (many - few))
        shares = {parts: 100 * seconds / of_all for parts, (seconds, of_all) in merges.items()}
        most_seconds = merges[many][0] + each * (PART_COUNT_MAX - many)
        of_all_seconds = merges[many][1] * PART_COUNT_MAX / many
        beyond = (
            f"each further part takes {1e3 * each:.2f} ms, so {PART_COUNT_MAX:,} parts of {PART // MiB} "
            f"MiB would take {most_seconds:.0f} s of {of_all_seconds / 60:.0f} minutes at this rate: "
            f"{100 * most_seconds / of_all_seconds:.1f} %"
        )
        if len(merges) < _COUNTS_THAT_TELL:
            beyond = "two counts of parts are too few to say what each further one takes"
        sentences.append(
            f"Merging takes {shares[few]:.1f} % of an upload's time with {few:.0f} parts and {shares[many]:.1f} % with "
            f"{many:.0f}; {beyond}."
        )
    return sentences


def _limit_here(records: Sequence[Record]) -> str:
    """On real services the disk is not involved, and the other limits show in the figures."""
    rates = {float(record.last_word): record.megabytes_per_second for record in records}
    busy = busiest(records)
    few, many = min(rates), max(rates)
    limit = "each thread carries less than with fewer, but more threads still carry more"
    if len(rates) < _COUNTS_THAT_TELL:
        limit = "too few thread counts to name the limit"
    elif busy >= _FULL_PROCESSOR:
        limit = "the limit is the processor"
    elif rates[many] / rates[few] >= _STILL_GROWING * many / few:
        limit = "the limit is the connections, and more threads would carry more"
    elif knee(rates) < many:
        limit = "the limit is the network or the service"
    return (
        f"Bodies come from memory here, so that no disk is involved. {many:.0f} threads carried "
        f"{rates[many] / rates[few]:.1f} times as much as {few:.0f} ({rates[many]:.1f} MB/s against "
        f"{rates[few]:.1f}), and the busiest process wanted {100 * busy:.0f} % of a processor: {limit}."
    )


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="upload-clients",
        title="Clients by file size",
        study="000",
        section="III, figure 8",
        summary="Uploads with one, five and ten connections, as the clients of the study made them.",
        steps=_client_steps,
        plots=_client_plots,
        grids=as_numbers(_client_plots),
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
        grids=as_numbers(_thread_plots),
        answer=_thread_answer,
    ),
    Experiment(
        name="bottlenecks",
        title="Disk, processors and network as limits",
        study="000",
        section="III, figures 12 and 14",
        summary="One limit of an upload after another is removed; and the time to merge its parts.",
        steps=_bottleneck_steps,
        quantities=_bottleneck_quantities,
        plots=_bottleneck_plots,
        grids=as_numbers(_bottleneck_plots),
        answer=_bottleneck_answer,
    ),
)
