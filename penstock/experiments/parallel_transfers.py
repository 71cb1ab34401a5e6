"""Knows the published parallel transfers of whole gigabytes, reads in a surge, and transfers between instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from penstock.experiments.calibrations import BETWEEN_HOSTS
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

_DOWNLOADS = {
    "ssl": {1: 12.6, 2: 21.0, 3: 31.3, 4: 37.5, 6: 46.6, 8: 49.8},
    "plain": {1: 10.2, 2: 20.0, 3: 29.6, 4: 37.6, 6: 46.5, 8: 51.5},
}
_BETWEEN_HOSTS = {1: 75.0, 2: 88.0, 3: 96.0}
_UPLOADS = {1: 6.9, 2: 14.2, 4: 23.6, 6: 37.6, 8: 48.0, 12: 53.8}
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
    sentences = _gains(curves["plain"] or curves["ssl"], "download") + _gains(
        up["ssl"] or up["plain"], "upload"
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


def _gains(curve: Mapping[float, float], noun: str) -> list[str]:
    if len(curve) < 2:
        return []
    gains = [
        f"{later:.0f}: {(curve[later] - curve[earlier]) / (later - earlier):.1f}"
        for earlier, later in pairwise(sorted(curve))
    ]
    return [f"What each further {noun} adds, in MB/s, up to so many at once: {', '.join(gains)}."]


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
            f"A single byte comes after {milliseconds:.2f} ms: the way there and back, and the server."
        )
    if not records.is_here:
        wire = BETWEEN_HOSTS.host_rate_bytes_per_second / 1e6
        shares = ", ".join(f"{n:.0f}: {100 * rate / wire:.0f} %" for n, rate in curve.items())
        sentences.append(
            f"No stream is slow by itself: each asks for all of a wire of 1 Gbit/s, which carries {wire:.0f} MB/s in "
            f"full segments, and waits for it as random arrivals wait. So many streams have so much of it: {shares}."
        )
    elif curve:
        busy = busiest(records.below(_STREAMS))
        limit = "it may be the limit" if busy >= _FULL_FRACTION else "it is not the limit"
        sentences.append(
            f"{enough(curve, 'streams')}. The process that read wanted {100 * busy:.0f} % of a processor: {limit}. "
            "Of the one that served, only its own host can tell."
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
        sentence = (
            f"{knee(curve):.0f} threads are enough: the host's 250 Mbit/s are the limit from there on, not its "
            f"processor. Two hosts move {ratio:.1f} times as much, so the service is not the limit either. In the "
            "lab each host is a link of its own; on real services a process, so that two share what this host has."
        )
        return [sentence]
    busy = busiest(records.below("surge/1/"))
    least, last = min(curve), max(curve)
    share = curve[last] / last / (curve[least] / least)
    told = (
        f"{enough(curve, 'threads')}; each of {last:.0f} has {share:.2f} of what one alone has, and the busiest "
        f"process wants {100 * busy:.0f} % of a processor."
    )
    if most:
        limit = "a process" if ratio > _MORE_BY_A_PROCESS else "this host or the service"
        told += f" Two processes with {most:.0f} threads each move {ratio:.1f} times as much: {limit} is the limit."
    return [told]


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
