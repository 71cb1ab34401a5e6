"""Knows the published parallel transfers of whole gigabytes, reads in a surge, and transfers between instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from penstock.experiments.calibrations import BETWEEN_HOSTS, SURGE
from penstock.experiments.experiment import (
    GB,
    MB,
    Experiment,
    Form,
    Plot,
    Quantities,
    Records,
    Step,
    as_numbers,
    busiest,
    curve_plot,
    curve_series,
    download_step,
    each_of,
    enough,
    knee,
    published_points,
    upload_step,
)
from penstock.units import counted

_DOWNLOADS = {
    "ssl": {1: 12.6, 2: 21.0, 3: 31.3, 4: 37.5, 6: 46.6, 8: 49.8},
    "plain": {1: 10.2, 2: 20.0, 3: 29.6, 4: 37.6, 6: 46.5, 8: 51.5},
}
_BETWEEN_HOSTS = {1: 75.0, 2: 88.0, 3: 96.0}
_UPLOADS = {1: 6.9, 2: 14.2, 4: 23.6, 6: 37.6, 8: 48.0, 12: 53.8}
_SCHEMES = {"ssl": "with TLS", "plain": "without TLS"}
_STREAMS, _SINGLE_BYTES = "host/streams/", "host/single-bytes"
_FULL_FRACTION = 0.8  # of a processor


def _curl_steps(form: Form) -> Sequence[Step]:
    """Also twelve downloads, and uploads without TLS, which the study did not publish."""
    size, most = (4 * MB, 2) if form is Form.SHORT else (GB, 12)
    ways = [
        ("down", download_step, _DOWNLOADS["ssl"]),
        ("up", upload_step, _UPLOADS),
        ("down", download_step, (12,)),
    ]
    return [
        step(f"{way}/{scheme}/{n}", "m1.large", size, n, count=n, is_plain=scheme == "plain")
        for way, step, counts in ways
        for scheme in _DOWNLOADS
        for n in counts
        if n <= most
    ]


def _curl_quantities(records: Records) -> Quantities:
    return {
        record.label.replace("/", "."): record.megabytes_per_second
        for prefix in ("down/", "up/")
        for record in records.below(prefix)
    }


def _curl_plots(records: Records) -> Sequence[Plot]:
    plots = []
    published = {"Downloads": ("down", _DOWNLOADS), "Uploads": ("up", {"ssl": _UPLOADS})}
    for title, (prefix, tables) in published.items():
        seeds = [published_points(name, table) for name, table in tables.items()]
        plots += _with_each(curve_plot(records, f"{title} of 1 GB", prefix, ("ssl", "plain"), seeds))
    return plots


def _with_each(plot: Plot) -> list[Plot]:
    """The plot for all streams together, and the one for each stream."""
    every = replace(plot, x_title="streams")
    return [every, replace(every, title=f"{plot.title}, each stream", series=each_of(plot.series))]


def _curl_answer(records: Records) -> Sequence[str]:
    curves, up = (
        {scheme: records.curve(f"{way}/{scheme}/") for scheme in _DOWNLOADS} for way in ("down", "up")
    )
    down_scheme, up_scheme = "plain" if curves["plain"] else "ssl", "ssl" if up["ssl"] else "plain"
    sentences = [
        *_gains(curves[down_scheme], f"download {_SCHEMES[down_scheme]}"),
        *_gains(up[up_scheme], f"upload {_SCHEMES[up_scheme]}"),
    ]
    if not records.is_here:
        sentences.append(
            "In the study TLS changed downloads by at most 6 % from two streams on. One stream was faster with it "
            "(12.6 against 10.2 MB/s), which the lab does not explain: there TLS costs nothing."
        )
    elif both := sorted(curves["ssl"].keys() & curves["plain"].keys()):
        shares = [100 * curves["ssl"][n] / curves["plain"][n] for n in both]
        sentences.append(
            f"Downloads with TLS have {min(shares):.0f} to {max(shares):.0f} % of the throughput of those without, "
            "by number of streams."
        )
    elif curves[down_scheme]:
        sentences.append(f"What TLS costs was not measured: all downloads were {_SCHEMES[down_scheme]}.")
    return sentences


def _gains(curve: Mapping[float, float], noun: str) -> list[str]:
    if len(curve) < 2:
        return []
    (most, first), *others = [
        (later, (curve[later] - curve[earlier]) / (later - earlier))
        for earlier, later in pairwise(sorted(curve))
    ]
    rest = "".join(f", {gain:.1f} up to {n:.0f}" for n, gain in others)
    return [f"Each further {noun} adds {first:.1f} MB/s up to {most:.0f} at once{rest}."]


def _host_steps(form: Form) -> Sequence[Step]:
    """Also six and twelve streams, which the study did not try, and single bytes for the latency."""
    size, counts = (4 * MB, (1, 2, 3)) if form is Form.SHORT else (GB, (*_BETWEEN_HOSTS, 6, 12))
    return [
        download_step(_SINGLE_BYTES, "host-to-host", 1, 1, count=20),
        *(download_step(f"{_STREAMS}{n}", "host-to-host", size, n, count=n) for n in counts),
    ]


def _host_quantities(records: Records) -> Quantities:
    return {f"host.{n:.0f}": rate for n, rate in records.curve(_STREAMS).items()}


def _host_plots(records: Records) -> Sequence[Plot]:
    seeds = [published_points("1 to 3", _BETWEEN_HOSTS)]
    return _with_each(curve_plot(records, "From another host", "host", ("streams",), seeds))


def _host_answer(records: Records) -> Sequence[str]:
    curve = records.curve(_STREAMS)
    sentences = _gains(curve, "stream")
    if single := records.get(_SINGLE_BYTES):
        milliseconds = 1e3 * single.values["latency_seconds_p50"]
        sentences.append(
            f"A read of one byte takes {milliseconds:.2f} ms: the way there and back, and the server's own time."
        )
    if not records.is_here:
        wire = BETWEEN_HOSTS.host_rate_bytes_per_second / 1e6
        shares = ", ".join(f"{n:.0f}: {100 * rate / wire:.0f} %" for n, rate in curve.items())
        sentences.append(
            f"In the lab each stream could fill the wire, whose 1 Gbit/s carry {wire:.0f} MB/s of bodies, but streams "
            f"use it at random times and wait for each other. Used, by number of streams: {shares}."
        )
    elif curve:
        busy = busiest(records.below(_STREAMS))
        limit = "it may be the limit" if busy >= _FULL_FRACTION else "it is not the limit"
        sentences.append(
            f"{enough(curve, 'stream')}. The process that read wanted {100 * busy:.0f} % of a processor: {limit}. "
            "Whether the process that served was the limit, only its own host can tell."
        )
    return sentences


# The surge

_MORE_BY_A_PROCESS = 1.5
_HOSTS = {"one host": 1, "two hosts": 2}


def _surge_steps(form: Form) -> Sequence[Step]:
    is_short = form is Form.SHORT
    size, count, threads = (MB, 6, 2) if is_short else (100 * MB, 600 * 32 // 100, 6)
    return [
        download_step(
            f"surge/{copies}/{n}",
            "surge",
            size,
            n,
            count=count,
            copy_count=copies,
            process_count=1,
            duration_seconds=None if is_short else 600.0,
        )
        for copies in (1, 2)
        for n in range(1, threads + 1)
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
    rates = {name: records.curve(f"surge/{count}/") for name, count in _HOSTS.items()}
    measured = [curve_series(name, curve) for name, curve in rates.items() if curve]
    plot = Plot(
        title="Reads of 100 MB, one host and two",
        x_title="threads",
        y_title="MB/s",
        series=[*measured, published_points("one host", {1: 10.0, 6: 30.0})],
    )
    each = [
        replace(one, y=[rate / _HOSTS.get(one.name, 1) for rate in one.y]) for one in each_of(plot.series)
    ]
    return [replace(plot, title="Reads of 100 MB, each thread", series=each), plot]


def _surge_answer(records: Records) -> Sequence[str]:
    curve, two = records.curve("surge/1/"), records.curve("surge/2/")
    if len(curve) < 2:
        return []
    most = max(two.keys() & curve.keys(), default=0.0)
    ratio = two[most] / curve[most] if most else 0.0
    if not records.is_here:
        return _surge_of_the_lab(curve, ratio)
    busy = busiest(records.below("surge/1/"))
    least, last = min(curve), max(curve)
    share = curve[last] / last / (curve[least] / least)
    told = (
        f"{enough(curve, 'thread')}. With {last:.0f} each carried {share:.2f} of what it carried with {least:.0f}, and "
        f"the busiest process wanted {100 * busy:.0f} % of a processor."
    )
    if most:
        is_full = knee({n: rate for n, rate in curve.items() if n <= most}) < most
        limit = "this host or the service is the limit"
        if ratio > _MORE_BY_A_PROCESS:
            limit = "a process is the limit" if is_full else "more threads in one process might do the same"
        each = counted(round(most), "thread")
        told += f" Two such processes with {each} each carried {ratio:.1f} times as much: {limit}."
    return [told]


def _surge_of_the_lab(curve: Mapping[float, float], ratio: float) -> Sequence[str]:
    """In the lab nothing but the host's rate limits many threads, and hosts share nothing."""
    told, rate = enough(curve, "thread"), SURGE.host_rate_bytes_per_second
    if knee(curve) < max(curve):
        told += (
            f". The limit is the {rate * 8 / 1e6:.0f} Mbit/s of the host, {rate / 1e6:.1f} MB/s, which alone give the "
            "study's figures; the study supposes contention for the processor"
        )
    hosts = (
        f"Two hosts carry {ratio:.1f} times as much because in the lab each has a path of its own and the service has "
        "no limit. On real services two processes stand for them, and share this host's path."
    )
    return [f"{told}.", hosts]


EXPERIMENTS: Sequence[Experiment] = (
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
        name="host-to-host",
        title="From one instance to another",
        study="004",
        section="between instances",
        summary="One to twelve whole objects at a time, from whatever serves S3 on another host.",
        needs_endpoint=True,
        steps=_host_steps,
        quantities=_host_quantities,
        plots=_host_plots,
        answer=_host_answer,
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
        grids=as_numbers(lambda records: _surge_plots(records)[1:]),
        answer=_surge_answer,
    ),
)
