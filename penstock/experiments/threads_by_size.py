"""Knows the published search for the best number of threads by object size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from penstock.experiments.calibrations import COLO_HTTP, COLO_HTTPS
from penstock.experiments.experiment import (
    Experiment,
    Form,
    Plot,
    Quantities,
    Records,
    Series,
    Step,
    as_numbers,
    curve_series,
    published_points,
    quantile,
    upload_step,
)
from penstock.units import KiB, MiB

_GRID_THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SIZES_KIB = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_ALL_KIB = (*_SIZES_KIB, 4096)
_GRID_WORLDS = ("colo-https", "colo-http", "m1.xlarge", "cc1.4xlarge")
_ENDS = {  # of real services, with the lab's counterparts
    "near-tls": "m1.xlarge",
    "near-plain": "m1.xlarge",
    "far-tls": "colo-https",
    "far-plain": "colo-http",
}
_SMALL_KIB_MAX = 128


def _grid_steps(form: Form) -> Sequence[Step]:
    if form is Form.LAB:
        return [
            *_grid(_GRID_THREADS, _SIZES_KIB, worlds=_GRID_WORLDS, count=512),
            *_grid((128, 256, 512), (4096,), worlds=("cc1.4xlarge",), count=512),
        ]
    if form is Form.SHORT:
        return _grid((1, 4), (1, 64), worlds=_ENDS, count=8)
    steps: list[Step] = []
    for end in _ENDS:
        steps += _grid((1,), (1,), worlds=(end,), count=1, prefix="warm-up")
        for repetition in range(1, 5):
            steps += _grid(_GRID_THREADS, _ALL_KIB, worlds=(end,), count=512, prefix=f"grid-{repetition}")
    return steps


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
    """MiB/s by threads, averaged over repetitions."""
    sums: dict[float, list[float]] = {}
    for prefix in ("grid", "grid-1", "grid-2", "grid-3", "grid-4"):
        for n, rate in records.curve(f"{prefix}/{world}/{kib}/").items():
            sums.setdefault(n, []).append(rate * 1e6 / MiB)
    return {n: fmean(rates) for n, rates in sums.items()}


def _by_size(records: Records, world: str) -> dict[int, dict[float, float]]:
    """The curve of each size that was measured."""
    return {kib: curve for kib in _ALL_KIB if (curve := grid_curve(records, world, kib))}


def _like(records: Records, world: str, kib: int) -> dict[float, float]:
    """The curve of a lab world; on real services that of its counterpart, without TLS as published."""
    if not records.is_here:
        return grid_curve(records, world, kib)
    ends = {"colo-https": ["far-tls"], "colo-http": ["far-plain"]}.get(world, ["near-plain", "near-tls"])
    return next((curve for end in ends if (curve := grid_curve(records, end, kib))), {})


def best_threads(curve: dict[float, float]) -> float:
    """The number with the highest throughput."""
    return max(curve, key=lambda n: curve[n])


def _most(curve: dict[float, float]) -> float:
    return max(curve.values())


def _grid_quantities(records: Records) -> Quantities:
    values: dict[str, float] = {}
    for world in ("colo-https", "colo-http"):
        best = {kib: best_threads(curve) for kib in _SIZES_KIB if (curve := _like(records, world, kib))}
        small = [n for kib, n in best.items() if kib <= _SMALL_KIB_MAX]
        large = [n for kib, n in best.items() if kib > _SMALL_KIB_MAX]
        if small and large:  # the median over sizes
            name = world.removeprefix("colo-")
            values[f"{name}.small"], values[f"{name}.large"] = quantile(small, 0.5), quantile(large, 0.5)
    # With the study's number of threads, where it states one.
    wanted: dict[str, tuple[str, int, float | None]] = {
        "m1.1KB": ("m1.xlarge", 1, None),
        "colo.1KB": ("colo-http", 1, None),
        "m1.32KB": ("m1.xlarge", 32, None),
        "m1.1024KB": ("m1.xlarge", 1024, 64.0),
        "cc.2048KB": ("cc1.4xlarge", 2048, 128.0),
        "cc.4096KB": ("cc1.4xlarge", 4096, 256.0),
    }
    for name, (world, kib, threads) in wanted.items():
        if curve := _like(records, world, kib):
            values[name] = curve.get(threads, _most(curve)) if threads else _most(curve)
    return values


_PUBLISHED_PEAKS = {"m1.xlarge": {64.0: 460.0}, "cc1.4xlarge": {128.0: 1091.7, 256.0: 1117.9}}  # by threads


def _grid_plots(records: Records) -> Sequence[Plot]:
    plots = []
    for world in (*_GRID_WORLDS, *_ENDS):
        series = [
            curve_series(f"{kib} KB", curve)
            for kib in (1, 16, 128, 512, 2048)
            if (curve := grid_curve(records, world, kib))
        ]
        if series:
            if world in _PUBLISHED_PEAKS:
                series.append(published_points("1 to 4 MB", _PUBLISHED_PEAKS[world]))
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
    """Over all sizes: the smallest objects, the maximum of each size, its best thread count, and the cost of TLS."""
    curves = {world: _by_size(records, world) for world in (*_GRID_WORLDS, *_ENDS)}
    smallest = [curve_series(world, found[1]) for world, found in curves.items() if 1 in found]
    most, best = (
        {world: {kib: of(curve) for kib, curve in found.items()} for world, found in curves.items()}
        for of in (_most, best_threads)
    )

    def by_size(
        title: str, unit: str, found: Mapping[str, Mapping[int, float]], seeds: Sequence[Series]
    ) -> Plot:
        series = [
            curve_series(world, dict(sorted(values.items()))) for world, values in found.items() if values
        ]
        return Plot(
            title=title, x_title="KB", y_title=unit, series=[*series, *seeds], is_log_x=True, is_log_y=True
        )

    up_to = published_points("TLS up to, plain up to", {64: 0.5, 128: 1.0})
    seeds = [published_points(name, found) for name, found in _PUBLISHED_MOST.items()]
    counts = [published_points(name, found, is_line=True) for name, found in _PUBLISHED_BEST.items()]
    gained = [published_points("colo", {1: 200.0})]
    return [
        _by_threads("Objects of 1 KB", [*smallest, up_to]),
        by_size("The most of each size", "MiB/s", most, seeds),
        by_size("Best thread count", "threads", best, counts),
        by_size("Without TLS over with it, mean of the thread counts", "%", _without_tls(records), gained),
    ]


def _by_size_plots(records: Records) -> list[Plot]:
    """The plots that are better as tables; without best counts if few were tried."""
    _, most, best, gains = _grid_summaries(records)
    return [most, best, gains] if _is_telling(records) else [most, gains]


def _without_tls(records: Records) -> dict[str, dict[int, float]]:
    """Throughput without TLS in percent of that with it, by size, averaged over thread counts; for worlds with both."""
    gains: dict[str, dict[int, float]] = {}
    for plain, tls in (("colo-http", "colo-https"), ("near-plain", "near-tls"), ("far-plain", "far-tls")):
        with_it = _by_size(records, tls)
        for kib, curve in _by_size(records, plain).items():
            pairs = [(rate, with_it.get(kib, {}).get(n, 0.0)) for n, rate in curve.items()]
            if ratios := [100 * a / b for a, b in pairs if b > 0]:
                gains.setdefault(plain, {})[kib] = fmean(ratios)
    return gains


def _tls_by_size(records: Records) -> list[str]:
    return [
        f"Without TLS objects of {min(by_size)} KB go {by_size[min(by_size)] / 100:.1f} times as fast and those of "
        f"{max(by_size)} KB {by_size[max(by_size)] / 100:.1f} times, averaged over thread counts ({world}). The study "
        "found twice at 1 KB, and less with larger objects."
        for world, by_size in _without_tls(records).items()
    ]


def _grid_answer(records: Records) -> Sequence[str]:
    law = _law_here(records) if records.is_here else [_law_of_the_lab()]
    found = [*law, *_tls_by_size(records)]
    small, large = (grid_curve(records, world, 1) for world in ("m1.xlarge", "cc1.4xlarge"))
    if small and large:
        found.append(
            f"At 1 KB cc1.4xlarge carries {_most(large):.1f} MiB/s and m1.xlarge {_most(small):.1f}. In the study "
            "m1.xlarge was faster up to 16 KB. It does not say why, and the lab does not show it."
        )
    return [*found, "MB in the figures of this study are 1,048,576 bytes."] if found else []


def _law_of_the_lab() -> str:
    def best(kib: int, latency_seconds: float, coherency: float, rate: float) -> float:
        return math.sqrt((latency_seconds + kib * KiB / rate) / (latency_seconds * coherency))

    rate, sentences = COLO_HTTP.connection_rate_bytes_per_second, []
    for name, link in (("with TLS", COLO_HTTPS), ("without", COLO_HTTP)):
        latency = link.round_trips_per_request * link.round_trip_seconds + link.service_latency_seconds_median
        counts = [best(kib, latency, link.latency_coherency, rate) for kib in (1, 128, 2048)]
        sentences.append(
            f"{name} {counts[0]:.0f} threads at 1 KB, {counts[1]:.0f} at 128 KB and {counts[2]:.0f} at 2 MB"
        )
    return (
        "In the lab's law requests in flight delay each other. With small objects the best thread count is one over "
        "the root of that delay; with larger ones more, by the root of one plus the time on the wire over the latency. "
        "Distance alone does not move it, because it is in the latency of any count. So, while the network is not "
        f"full, the best are {'; '.join(sentences)}. The tables have powers of two only."
    )


def _law_here(records: Records) -> list[str]:
    """What moved the best thread count in this run: size, distance or the host; and what could not be told apart."""
    found = []
    for scheme in ("tls", "plain"):
        by_end = {}
        for end in ("near", "far"):
            found_here = _by_size(records, f"{end}-{scheme}")
            if curves := {kib: curve for kib, curve in found_here.items() if 1.0 in curve}:
                by_end[end] = curves
        for end, curves in by_end.items() if _is_telling(records) else ():
            small, large = min(curves), max(curves)
            found.append(
                f"Size, {end}, {_SCHEMES[scheme]}: {best_threads(curves[small]):.0f} threads are best at {small} KB "
                f"and {best_threads(curves[large]):.0f} at {large} KB."
            )
        if both := by_end.get("near", {}).keys() & by_end.get("far", {}).keys():
            kib = min(both)
            near, far = by_end["near"][kib], by_end["far"][kib]
            near_ms, far_ms = (1e3 * kib / KiB / curve[1.0] for curve in (near, far))
            times = f"{near_ms:.1f} ms near and {far_ms:.1f} ms far"
            told = f"Distance, {_SCHEMES[scheme]}: one request of {kib} KB takes {times}"
            if _is_telling(records):
                told += (
                    f", where {best_threads(near):.0f} and {best_threads(far):.0f} threads are best and carry "
                    f"{max(near.values()):.2f} and {max(far.values()):.2f} MiB/s"
                )
            found.append(f"{told}.")
    if len(records) and not any(
        record.label.split("/")[1].startswith("far") for record in records.below("grid")
    ):
        found.append("What distance does was not measured: name the other end with --far.")
    if len(records) and not _is_telling(records):
        found.append(f"Only {len(_counts(records))} thread counts were tried, too few to name the best one.")
    return found


def _counts(records: Records) -> set[float]:
    return {float(record.last_word) for record in records.below("grid")}


def _is_telling(records: Records) -> bool:
    """Whether enough thread counts were tried to find the best one."""
    return len(_counts(records)) >= _COUNTS_THAT_TELL


_SCHEMES = {"tls": "with TLS", "plain": "without TLS"}
_COUNTS_THAT_TELL = 4


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="threads-by-size",
        title="The best number of threads for an object size",
        study="002",
        section="all",
        summary="512 objects of 1 KB to 4 MB with 1 to 256 threads, with TLS and without, near and far.",
        steps=_grid_steps,
        quantities=_grid_quantities,
        plots=_grid_plots,
        grids=as_numbers(_by_size_plots),
        answer=_grid_answer,
    ),
)
