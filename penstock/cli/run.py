"""Knows `penstock run`: measure and advise in the foreground, without a daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from penstock.cli.config import file_option, load_configuration
from penstock.cli.examples import examples
from penstock.cli.output import any_of, json_option, print_json
from penstock.cli.query import show_advice
from penstock.cli.trouble import TroubleError, WrongUsageError, ended_by
from penstock.operations.table import OPERATIONS


@click.command(
    epilog=examples(
        "penstock run --once --config ./penstock.toml", "penstock run --once --json | jq .recommendations"
    )
)
@click.option("--once", is_flag=True, help="One cycle: probe what is due, learn, advise, end.")
@file_option
@json_option
def run(*, once: bool, main_file: Path | None, as_json: bool) -> None:
    """Measure and advise in the foreground, without a daemon.

    It uses the database of the daemon, which must not run meanwhile, and its budget. It ends with 1 where all
    probes of an operation in a region failed; what waits for tomorrow's budget, or for a quiet host, is no failure.
    """
    if not once:
        raise WrongUsageError("say --once for one cycle in the foreground; `penstockd` runs for good")
    configuration = load_configuration(main_file).configuration
    if not any(configuration.enabled()):
        sections = any_of([f"[probes.{name}]" for name in OPERATIONS])
        raise TroubleError(
            f"no probe is enabled: set is_enabled under {sections}, and name the file with --config"
        )
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported, below
    from penstock.daemon.app import run_once
    from penstock.daemon.memory.database import StoreError

    with ended_by(StoreError):
        document = asyncio.run(run_once(configuration))
    if as_json:
        print_json(document)
    else:
        _show(document)
    _must_have_measured(document["cycles"])


def _show(document: Mapping[str, Any]) -> None:
    """Print each cycle's outcome, and the advice for what it was about; JSON has that of all sizes and operations."""
    for cycle in document["cycles"]:
        click.echo(cycle["sentence"])
    tried = [[cycle[name] for name in _CONTEXT] for cycle in document["cycles"]]
    for recommendation in document["recommendations"]:
        if [recommendation[name] for name in _CONTEXT] in tried:
            click.echo()
            show_advice(recommendation)


_CONTEXT = ("operation", "region", "payload_size_bytes")


def _must_have_measured(cycles: Sequence[Mapping[str, Any]]) -> None:
    """For schedulers, which see only exit codes. Raises TroubleError."""
    measured = {_path(cycle) for cycle in cycles if cycle["is_conclusive"]}
    failed = [cycle for cycle in cycles if cycle["has_failed"] and _path(cycle) not in measured]
    if failed:
        told = {_path(cycle): cycle["sentence"] for cycle in reversed(failed)}  # keeps the first of each
        raise TroubleError(f"nothing was measured: {'; '.join(reversed(told.values()))}")


def _path(cycle: Mapping[str, Any]) -> tuple[str, str]:
    """The operation and region, since a failure usually concerns all sizes."""
    return cycle["operation"], cycle["region"]
