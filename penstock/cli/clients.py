"""Knows `penstock clients`: what applications do by their own SDKs' reports, and how to enable these for a unit."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from penstock.cli.daemon import call, socket_option
from penstock.cli.examples import examples
from penstock.cli.installation import Action, Layout, Run, Write
from penstock.cli.output import filled, json_option, print_json, print_table, text
from penstock.cli.service import do, dry_run_option, root_option
from penstock.cli.trouble import TroubleError, WrongUsageError

_DROP_IN = "penstock-clients.conf"
_UNIT = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
# Where systemd looks for services (systemd.unit(5), "Unit File Load Path"), including generated and transient ones.
_UNIT_FOLDERS = (
    *(f"{above}/systemd/system{kind}" for above in ("etc", "run") for kind in ("", ".control", ".attached")),
    *(f"run/systemd/{made}" for made in ("transient", "generator", "generator.early", "generator.late")),
    *(f"{above}/systemd/system" for above in ("usr/local/lib", "usr/lib", "lib")),
)
_NO_SERVICE = (".timer", ".socket", ".path", ".target", ".slice", ".scope", ".mount")
_NAMES = (
    "calls_per_second",
    "in_flight_count_max",
    "latency_seconds_p50",
    "latency_seconds_p99",
    "retry_count",
    "refused_count",
)
_HEADINGS = ("client", "call", "rate", "in flight", "p50", "p99", "retries", "refused")


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "penstock clients",
        "penstock clients --json | jq '.clients[] | select(.advice[].gain.expected > 1.5) | .name'",
        "sudo penstock clients enable --unit backup      then restart it",
        "AWS_CSM_ENABLED=true ./nightly-backup           for one command",
    ),
)
@json_option
@socket_option
@click.pass_context
def clients(context: click.Context, *, as_json: bool, socket_path: str) -> None:
    """Show what applications do, and what they would gain; whoever would gain most comes first.

    It covers the last five minutes, as the applications' own SDKs report them: no line of theirs is changed. The daemon
    listens with `is_enabled` in [listen], and an SDK reports with AWS_CSM_ENABLED=true in its environment.
    """
    if context.invoked_subcommand is not None:
        return
    document = call(socket_path, "GET", "/v1/clients")
    if as_json:
        print_json(document)
        return
    if document["clients"]:
        print_table(_HEADINGS, [row for client in document["clients"] for row in _rows(client)])
        for client in document["clients"]:
            for advice in client["advice"]:
                where = f"{advice['operation']} in {advice['region']}"
                click.echo(filled(f"{_name(client)}, {where}: {advice['sentence']}"))
    for sentence in _remarks(document):
        click.echo(filled(sentence))


@clients.command()
@click.option("--unit", required=True, metavar="NAME", help="A service of systemd, such as backup.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=31000, show_default=True, help="As in [listen]."
)
@click.option("--force", is_flag=True, help="Also for a service that is not there yet.")
@dry_run_option
@root_option
@json_option
def enable(*, unit: str, port: int, force: bool, dry_run: bool, root: Path, as_json: bool) -> None:
    """Have the SDKs of a unit report what they do, from its next start; nothing is started here."""
    name = unit.removesuffix(".service")
    if not _UNIT.fullmatch(name):
        raise WrongUsageError(f"{unit!r} is no name of a service: letters, digits, and _ . @ -")
    if name.endswith(_NO_SERVICE):
        raise WrongUsageError(f"{unit} is not a service: name the service that it starts")
    layout = Layout(root=root.absolute(), commands=Path())
    if not force and not _is_there(layout.root, name):
        raise TroubleError(
            f"systemd knows no {name}.service below {layout.root}, so nothing was written: find its name with "
            "`systemctl list-unit-files --type=service`, or say --force for one that is yet to come"
        )
    drop_in = layout.root / "etc/systemd/system" / f"{name}.service.d" / _DROP_IN
    actions: list[Action] = [Write(drop_in, _drop_in(name, port))]
    if layout.is_booted:
        actions.append(Run(("systemctl", "daemon-reload")))
    do(actions, layout, [], dry_run=dry_run, as_json=as_json)
    if not as_json:
        click.echo(f"next: systemctl restart {name}.service")
        click.echo(f"to undo it: rm {drop_in} && systemctl daemon-reload && systemctl restart {name}.service")


def _is_there(root: Path, name: str) -> bool:
    """Whether the service, or the template of its instance, has a file; a masked service has a link."""
    template, at, _ = name.partition("@")
    names = {f"{name}.service", f"{template}{at}.service"}
    return any(os.path.lexists(root / folder / file) for folder in _UNIT_FOLDERS for file in names)


def _drop_in(name: str, port: int) -> str:
    # Go's SDK counts as enabled only if the port is set.
    values = {"AWS_CSM_ENABLED": "true", "AWS_CSM_PORT": str(port), "AWS_CSM_CLIENT_ID": name}
    lines = (f"Environment={key}={value}\n" for key, value in values.items())
    return f"# Written by `penstock clients enable`; see `penstock clients`.\n[Service]\n{''.join(lines)}"


def _name(client: Mapping[str, Any]) -> str:
    """``backup (Boto3 1.43.117, of root)``."""
    sdk = f"{client['product']} {client['version']}".strip()
    if client["user_id"] is not None:
        sdk = f"{sdk}, of {_user_name(client['user_id'])}"
    return f"{client['name']} ({sdk})" if client["name"] else sdk


def _user_name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"user {user_id}"


def _rows(client: Mapping[str, Any]) -> Iterator[list[str]]:
    shown = _name(client)
    for api in client["apis"]:
        yield [shown, f"{api['service']} {api['api']}", *(text(name, api[name]) for name in _NAMES)]
        shown = ""


def _remarks(document: Mapping[str, Any]) -> Iterator[str]:
    if not document["is_listening"]:
        yield "penstock does not listen to applications: set is_enabled in [listen], and run `penstock reload`."
    elif not document["clients"]:
        yield "No application reported lately: SDKs do with AWS_CSM_ENABLED=true (`penstock clients enable`)."
    if document["dropped_count"]:
        yield f"{document['dropped_count']} datagrams were lost, so applications did more than is shown."
    if document["unplaced_count"]:
        yield f"{document['unplaced_count']} datagrams came from more applications than there is room for."
