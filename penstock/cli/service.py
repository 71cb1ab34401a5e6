"""Knows `penstock service`: installs and removes the service's commands, units, user and socket."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli.examples import examples
from penstock.cli.installation import (
    KEPT,
    Action,
    Layout,
    carry_out,
    hidden,
    installation,
    refusals,
    removal,
    unreachable,
)
from penstock.cli.output import json_option, options, print_json
from penstock.cli.trouble import TroubleError


@click.group(
    epilog=examples(
        "sudo penstock service install               then edit /etc/penstock/penstock.toml",
        "sudo penstock service install --enable      and start it now, and with the host",
        "penstock service install --dry-run          only look",
        "sudo penstock service uninstall             state and configuration stay",
    )
)
def service() -> None:
    """Install or remove the service: commands, units, user, socket, and an example configuration.

    Install penstock[daemon] into an environment that is open to all users, such as /opt/penstock, and run this command
    from there. A newer version is put in place the same way; what was measured and configured stays.
    """


root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default="/",
    show_default=True,
    help="The directory that stands for /, while a package is made.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
_options = options(
    click.option(
        "--prefix",
        type=click.Path(path_type=Path, file_okay=False),
        default="/usr/local",
        show_default=True,
        help="Where commands and units go.",
    ),
    root_option,
    dry_run_option,
    json_option,
)


@service.command()
@_options
@click.option(
    "--commands",
    type=click.Path(path_type=Path),
    help="The directory of penstock and penstockd, now or later; without it, that of this Python.",
)
@click.option("--enable", "is_enabled", is_flag=True, help="Start it now, and whenever the host starts.")
def install(
    *, prefix: Path, root: Path, commands: Path | None, is_enabled: bool, dry_run: bool, as_json: bool
) -> None:
    """Install it, or upgrade an older version; ends with 1 when something is in the way.

    A configuration is written where there is none, and never changed. State stays. Where the service runs, it is
    started again.
    """
    where = commands or Path(sys.executable).parent
    layout = _layout(prefix, root, where)
    actions = installation(layout, is_enabled=is_enabled)
    troubles = [hidden(layout), None if commands and not layout.is_live else unreachable(where)]
    do(actions, layout, [trouble for trouble in troubles if trouble], dry_run=dry_run, as_json=as_json)
    if layout.is_live and not (as_json or is_enabled):
        click.echo(
            "next: edit /etc/penstock/penstock.toml, `penstock config check`, and "
            "`systemctl enable --now penstock.socket penstock.service`"
        )


@service.command()
@_options
@click.option("--purge", "is_purged", is_flag=True, help="Remove state and configuration as well.")
def uninstall(*, prefix: Path, root: Path, is_purged: bool, dry_run: bool, as_json: bool) -> None:
    """Stop the service and remove what was installed; state, configuration and the user penstock stay.

    What probes may have left outside is known to the state: `penstock leftovers remove` before --purge.
    """
    layout = _layout(prefix, root, Path(sys.executable).parent)
    do(removal(layout, is_purged=is_purged), layout, [], dry_run=dry_run, as_json=as_json)
    if not (as_json or is_purged):
        kept = [str(layout.root / name) for name in KEPT if (layout.root / name).exists()]
        click.echo(f"kept: {', '.join(kept)}" if kept else "nothing is there to be kept")


def _layout(prefix: Path, root: Path, commands: Path) -> Layout:
    return Layout(root=root.absolute(), prefix=Path("/") / prefix, commands=commands.absolute())


def do(
    actions: Sequence[Action], layout: Layout, troubles: Sequence[str], *, dry_run: bool, as_json: bool
) -> None:
    """Carry out the actions, unless anything stands in the way of one; print what is or would be done.

    Raises TroubleError, also for an action that fails; those before it stay done.
    """
    if dry_run and not as_json:
        click.echo("\n".join(map(str, actions)))
    if found := [*troubles, *refusals(actions)]:
        raise TroubleError("; ".join(found))
    if not dry_run:
        if layout.is_live and os.geteuid() != 0:
            raise TroubleError("only root may do this: sudo penstock ..., or look with --dry-run")
        _carry_out_all(actions, is_said=not as_json)
    if as_json:
        done = {} if dry_run else {"is_done": True}
        print_json({"actions": [str(action) for action in actions], "is_dry_run": dry_run, **done})


def _carry_out_all(actions: Sequence[Action], *, is_said: bool) -> None:
    own_mask = os.umask(0o022)  # new folders are readable for all users, whatever root's umask is
    done: list[str] = []
    try:
        for action in actions:
            _carry_out(action)
            done.append(str(action))
    finally:
        os.umask(own_mask)
        # Not one by one: a reader that leaves, such as `grep -q`, must not end an installation halfway.
        if is_said and done:
            click.echo("\n".join(done))


def _carry_out(action: Action) -> None:
    try:
        carry_out(action)
    except OSError as trouble:
        raise TroubleError(f"cannot {action}: {trouble.strerror}") from trouble
    except subprocess.CalledProcessError as trouble:
        said = f"{trouble.stderr}".strip() or f"it ended with {trouble.returncode}"
        raise TroubleError(f"cannot {action}: {said}") from trouble
