"""Knows the published parallel transfers of whole gigabytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from penstock.experiments.experiment import (
    GB,
    MB,
    Experiment,
    Form,
    Plot,
    Quantities,
    Records,
    Step,
    curve_plot,
    download_step,
    each_of,
    published_points,
    upload_step,
)

_DOWNLOADS = {
    "ssl": {1: 12.6, 2: 21.0, 3: 31.3, 4: 37.5, 6: 46.6, 8: 49.8},
    "plain": {1: 10.2, 2: 20.0, 3: 29.6, 4: 37.6, 6: 46.5, 8: 51.5},
}
_UPLOADS = {1: 6.9, 2: 14.2, 4: 23.6, 6: 37.6, 8: 48.0, 12: 53.8}


def _curl_steps(form: Form) -> Sequence[Step]:
    """Also twelve down, and uploads without TLS: the study did not publish these."""
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
        plot = curve_plot(records, f"{title} of 1 GB", prefix, ("ssl", "plain"), seeds)
        plots += [plot, replace(plot, title=f"{plot.title}, each stream", series=each_of(plot.series))]
    return plots


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
        summary="Deferred: needs a second host with a web server; penstock measures S3 and SQS.",
        answer=lambda _: [
            "It would be answered by `curl` against a second instance, one to three at a time."
        ],
    ),
)
