"""Knows `penstock watch`: the advice that stands, and each change of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from penstock.cli.daemon import socket_option, states
from penstock.cli.examples import examples
from penstock.cli.output import text
from penstock.units import label


@click.command(
    epilog=examples("penstock watch", 'penstock watch --json | while read -r line; do ./apply "$line"; done')
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print each recommendation that changed as a line of JSON."
)
@socket_option
def watch(*, as_json: bool, socket_path: str) -> None:
    """Print the advice now, and whenever it changes, until Ctrl-C."""
    import json

    known: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for state in states(socket_path):
        for document in state["recommendations"]:
            key = tuple(
                document[name] for name in ("operation", "region", "instance_type", "payload_size_bytes")
            )
            if known.get(key) is None or _says(known[key]) != _says(document):
                click.echo(json.dumps(document) if as_json else _line(document))
            known[key] = document


def _says(document: Mapping[str, Any]) -> tuple[Any, ...]:
    """What an application would do differently, without dates and counts."""
    return document["setting"], document["derived"], document["basis"]


def _line(document: Mapping[str, Any]) -> str:
    values = {**document["setting"], **document["derived"]}
    setting = ", ".join(f"{label(name)} {text(name, value)}" for name, value in values.items() if value)
    size = text("_bytes", document["payload_size_bytes"])
    return f"{document['issued_at'][:19]}  {document['operation']} {size} ({document['basis']}): {setting}"
