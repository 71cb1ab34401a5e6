"""Knows `penstock probe`, `reload` and `believe-clock`: what the daemon does only for root and its control group."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.daemon import call, socket_option
from penstock.cli.examples import examples
from penstock.cli.output import json_option, print_detail
from penstock.cli.query import size_option
from penstock.operations.operation import Operation
from penstock.operations.table import OPERATIONS


@click.group(
    epilog=examples(
        *(
            f"sudo penstock probe {row.command} --{row.words.payload}-size {row.words.payload_example}"
            for row in OPERATIONS.values()
        )
    )
)
def probe() -> None:
    """Have the daemon measure something now, within its budget."""


def _add(row: Operation[Any, Any]) -> None:
    @probe.command(row.command, help=row.words.probe)
    @size_option(row.words)
    @json_option
    @socket_option
    def command(*, payload_size_bytes: int, as_json: bool, socket_path: str) -> None:
        request = {"operation": row.name, "payload_size_bytes": payload_size_bytes}
        print_detail(call(socket_path, "POST", "/v1/probe", document=request), as_json=as_json)


for _row in OPERATIONS.values():
    _add(_row)


@click.command(epilog=examples("penstock config check && sudo penstock reload"))
@json_option
@socket_option
def reload(*, as_json: bool, socket_path: str) -> None:
    """Have the daemon read its configuration again; a mistake in it changes nothing."""
    print_detail(call(socket_path, "POST", "/-/reload", timeout_seconds=60.0), as_json=as_json)


@click.command(epilog=examples("penstock status | grep clock", "sudo penstock believe-clock"))
@json_option
@socket_option
def believe_clock(*, as_json: bool, socket_path: str) -> None:
    """Tell the daemon that the clock is right now, after it was ahead.

    What was spent at dates that have not come yet counts against the budget until they have. From now on it counts as
    spent now, and stops counting after 25 hours.
    """
    print_detail(call(socket_path, "POST", "/-/believe-clock"), as_json=as_json)
