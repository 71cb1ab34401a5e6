"""Knows `penstock watch`: the current advice, and each change of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from penstock.cli.daemon import socket_option, states, why_expired
from penstock.cli.examples import examples
from penstock.cli.output import text
from penstock.operations.table import OPERATIONS
from penstock.units import label


@click.command(
    epilog=examples("penstock watch", 'penstock watch --json | while read -r line; do ./apply "$line"; done')
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print each recommendation that changed as a line of JSON."
)
@socket_option
def watch(*, as_json: bool, socket_path: str) -> None:
    """Print the advice now, and whenever it changes, until Ctrl-C.

    A daemon that ends is waited for, up to five minutes: whoever follows it is told by a line on standard error.
    """
    import json

    known: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for state in states(socket_path):
        for document in state["recommendations"]:
            key = tuple(
                document[name] for name in ("operation", "region", "instance_type", "payload_size_bytes")
            )
            before = known.get(key)
            if before is None or _says(before) != _says(document):
                click.echo(json.dumps(document) if as_json else line(document, before))
            known[key] = document


def _says(document: Mapping[str, Any]) -> tuple[Any, ...]:
    """What an application would act on, without dates and counts."""
    return document["setting"], document["derived"], document["basis"]


def line(document: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """One line: the setting in short; if only other advised values changed, these as well."""
    in_short, size_bytes = OPERATIONS[document["operation"]].words.setting, document["payload_size_bytes"]
    setting, size = in_short(document["setting"], size_bytes), text("_bytes", size_bytes)
    basis = document["basis"] + (", expired" if why_expired(document) else "")
    what = f"{document['operation']} {size} in {document['region']}"
    told = f"{document['issued_at'][:19]}  {what} ({basis}): {setting}"
    if before is None or before["setting"] != document["setting"]:
        return told
    changed = (
        f", {label(name)} {text(name, value)}"
        for name, value in document["derived"].items()
        if before["derived"].get(name) != value
    )
    return told + "".join(changed)
