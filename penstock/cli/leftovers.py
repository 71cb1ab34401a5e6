"""Knows `penstock leftovers`: lists and removes what probes left outside, with a daemon or without."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from penstock.cli.config import file_option, load_configuration
from penstock.cli.daemon import call, socket_of, socket_option
from penstock.cli.examples import examples
from penstock.cli.output import json_option, print_json, print_table
from penstock.cli.trouble import NoDaemonError, SilentDaemonError, TroubleError, ended_by
from penstock.units import counted, format_seconds

_REMOVAL_SECONDS_MAX = 90.0  # the daemon answers within 60 s


@click.group(
    epilog=examples(
        "penstock leftovers list",
        "sudo penstock leftovers remove",
        "sudo penstock leftovers remove --forget       where credentials or endpoint are gone for ever",
        "sudo -u penstock penstock leftovers remove    where no daemon runs any more",
    )
)
def leftovers() -> None:
    """List and remove what probes left behind.

    Probes remove what they make, and the daemon retries what could not be removed. The command asks a running
    daemon; without one it reads the database of the configuration.
    """


@leftovers.command("list")
@json_option
@socket_option
@file_option
def list_(*, as_json: bool, socket_path: str, main_file: Path | None) -> None:
    """List what is left behind: objects, unfinished uploads and queues."""
    document = _known(socket_path, main_file)
    if as_json:
        print_json(document)
    else:
        _show(document["leftovers"])


@leftovers.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option(
    "--forget", "forgets", is_flag=True, help="Give up on what cannot be removed, and do not try it again."
)
@json_option
@socket_option
@file_option
def remove(*, dry_run: bool, forgets: bool, as_json: bool, socket_path: str, main_file: Path | None) -> None:
    """Remove all of it now; ends with 1 when something could not be removed."""
    document = (
        _known(socket_path, main_file) if dry_run else _removed(socket_path, main_file, forgets=forgets)
    )
    if as_json:
        print_json(document)
    else:
        if dry_run and document["leftovers"]:
            click.echo("This would be removed:")
        for removed in document["removed"]:
            click.echo(f"removed {_described(removed)}")
        if forgets and not dry_run and document["leftovers"]:
            click.echo("This is not tried again:")
        _show(document["leftovers"])
    kept = [left for left in document["leftovers"] if left["reason"]]
    if kept and not dry_run and not forgets:
        raise TroubleError(f"{counted(len(kept), 'thing')} could not be removed: {kept[0]['reason']}")


def _known(socket_path: str, main_file: Path | None) -> Mapping[str, Any]:
    path = _socket(socket_path, main_file)
    if (known := _answer(path, "GET")) is not None:
        return known
    from penstock.clock import SystemClock
    from penstock.daemon.memory.database import StoreError, holder
    from penstock.daemon.memory.store import Store
    from penstock.daemon.outside.sweeper import LeftBehind
    from penstock.operations.table import setting_types

    database = load_configuration(main_file).configuration.daemon.database_path
    _must_be_there(database, path)
    if (process := holder(database)) is not None:  # what the daemon is using would look left behind
        raise TroubleError(
            f"penstockd (process {process}) works on {database}: name its socket with --socket"
        )
    now = SystemClock().now()
    with ended_by(StoreError), contextlib.closing(Store.open_read_only(database, setting_types())) as store:
        left = [LeftBehind(leftover=x, since=since) for x, since in store.dated_leftovers().items()]
    return {"removed": [], "leftovers": [entry.document(now) for entry in left]}


def _removed(socket_path: str, main_file: Path | None, *, forgets: bool) -> Mapping[str, Any]:
    path, parameters = _socket(socket_path, main_file), {"forget": "true"} if forgets else None
    if (removed := _answer(path, "DELETE", parameters, timeout_seconds=_REMOVAL_SECONDS_MAX)) is not None:
        return removed
    from penstock.daemon.app import remove_leftovers
    from penstock.daemon.memory.database import StoreError

    configuration = load_configuration(main_file).configuration
    _must_be_there(configuration.daemon.database_path, path)
    with ended_by(StoreError):  # for instance, a daemon with another socket holds the database
        return asyncio.run(remove_leftovers(configuration, forgets=forgets))


def _answer(
    socket_path: str,
    method: str,
    parameters: Mapping[str, str] | None = None,
    *,
    timeout_seconds: float = 10.0,
) -> Mapping[str, Any] | None:
    """The daemon's answer; None if there is no daemon. Raises TroubleError, also for a daemon that does not answer."""
    try:
        return call(
            socket_path, method, "/v1/leftovers", parameters=parameters, timeout_seconds=timeout_seconds
        )
    except SilentDaemonError:
        raise
    except NoDaemonError:
        return None


def _socket(socket_path: str, main_file: Path | None) -> str:
    """The daemon's socket; reads a configuration only if --config names one."""
    if main_file is None:
        return socket_path
    return socket_of(socket_path, load_configuration(main_file).configuration.daemon.socket_path)


def _must_be_there(path: Path, socket_path: str) -> None:
    """Raises TroubleError if there is no database: opening one would create it, owned by this user."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise TroubleError(
            f"no daemon answers on {socket_path}, and there is no database at {path}, so that nothing tells what is "
            "left: name the daemon's configuration with --config, or its socket with --socket; where no daemon ever "
            "ran, nothing is left"
        ) from None
    except OSError as trouble:
        raise TroubleError(f"the database {path} cannot be opened ({trouble.strerror})") from trouble


def _show(left: Sequence[Mapping[str, Any]]) -> None:
    if not left:
        click.echo("Nothing is left behind.")
        return
    rows = [(_described(entry), format_seconds(entry["age_seconds"]), _state(entry)) for entry in left]
    print_table(("left behind", "for", ""), rows)


def _described(entry: Mapping[str, Any]) -> str:
    if entry["kind"] == "sqs_queue":
        return f"queue {entry['name']} in {entry['container']}"
    return f"s3://{entry['container']}/{entry['name']}"


def _state(entry: Mapping[str, Any]) -> str:
    if entry["is_empty"]:
        return "nothing is there now; it is looked at once more for requests that were on their way"
    return str(entry["reason"])
