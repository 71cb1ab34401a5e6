"""Knows the benchmarks by name: `python -m bench [--long] [--seed N] [NAME ...]` runs the named ones, or all."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable
from inspect import signature
from typing import Any

# Module with `run(*, long: bool) -> dict`, or `module:function`; it takes `seeds`, too, where worlds are fresh.
BENCHMARKS = {
    "s3-upload": "bench.harness",
    "s3-download": "bench.harness:run_downloads",
    "learning": "bench.learning",
    "ablation": "bench.ablation",
    "small-objects": "bench.small_objects",
    "change": "bench.change",
    "slow-weather": "bench.slow_weather",
    "days": "bench.days",
    "late-requests": "bench.late_requests",
    "sqs-delivery": "bench.sqs_campaigns",
    "sqs-real": "bench.sqs_real",
    "sqs-choosing": "bench.sqs_choosing",
    "real-links": "bench.real_links",
    "real-downloads": "bench.real_downloads",
    "reading-shapes": "bench.reading_shapes",
    "upload-workers": "bench.upload_workers",
    "sockets": "bench.sockets",
    "hearing": "bench.hearing",
    "promised-gain": "bench.promised_gain",
    "promised-gain-real": "bench.promised_gain_real",
    "leases": "bench.leases",
    "shared-limit": "bench.shared_limit",
    "fleet-page": "bench.fleet_page",
    "many-files": "bench.many_files",
    "exported-clients": "bench.exported_clients",
    "footprint": "bench.footprint",
    "crowd": "bench.crowd",
    "report-size": "bench.report_size",
}


def main() -> None:
    """Run the requested benchmarks, one after another."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run the benchmarks.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of: {', '.join(BENCHMARKS)} (default: all)"
    )
    parser.add_argument("--long", action="store_true", help="all seeds, instead of a few minutes")
    parser.add_argument(
        "--seed",
        type=int,
        action="append",
        default=[],
        help="of fresh worlds or of chance, in place of what is drawn or usual",
    )
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(
            f"no benchmark is called {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}"
        )
    # Before NumPy is imported: with several threads it is several times slower on a busy host.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    runs = {name: _called(name) for name in arguments.names or BENCHMARKS}
    seeds = {"seeds": arguments.seed} if arguments.seed else {}
    if seeds and (
        unseeded := [name for name, run in runs.items() if "seeds" not in signature(run).parameters]
    ):
        parser.error(f"--seed says nothing to {', '.join(unseeded)}")
    for name, run in runs.items():
        print(f"== {name} ({'long' if arguments.long else 'short'} form)", flush=True)
        run(long=arguments.long, **seeds)


def _called(name: str) -> Callable[..., Any]:
    module, _, called = BENCHMARKS[name].partition(":")
    return getattr(importlib.import_module(module), called or "run")  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
