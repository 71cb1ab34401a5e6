"""Knows `penstock lab`: an S3 and an SQS of known physics, for experiments of one's own."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import click

from penstock.cli.examples import examples
from penstock.cli.interruption import end_tidily
from penstock.cli.output import filled, json_option, print_json
from penstock.cli.quantities import Name
from penstock.cli.trouble import TroubleError, WrongUsageError, cannot_run, ended_by
from penstock.lab.server import HERE
from penstock.lab.worlds import DEMO, WORLDS
from penstock.trial.laboratory import FOREIGN, Laboratory, laboratory
from penstock.trial.stage import StageError

_STOP_SECONDS_MAX = 10.0
_OPEN = (
    "Warning: whoever reaches {address} can read, write and delete in this lab, without credentials and without TLS. "
    "Let a firewall admit the hosts of the experiment and nobody else."
)
_SIGNALLED = 128  # plus the signal number: the shells' exit code for a signal


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "penstock lab > lab.env &                          then, in any shell: . ./lab.env",
        "penstock lab -- python experiment.py              with boto3, as it is",
        "penstock lab --world throttled -- sh -c 's5cmd cp big.bin \"s3://$LAB_BUCKET/\"'",
        "penstock lab --world unhindered --listen 10.0.0.2:9000     for `penstock measure run host-to-host` elsewhere",
        "penstock lab --json | jq .environment",
        "penstock lab --list",
    ),
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option(
    "--world",
    "world_name",
    type=Name(tuple(WORLDS)),
    default=DEMO.name,
    show_default=True,
    help="Which world to start; --list describes each.",
)
@click.option(
    "--listen",
    metavar="ADDRESS[:PORT]",
    help="One of this host's addresses, where other hosts reach S3, and SQS on the next port. Whoever does so reads, "
    "writes and deletes there: nothing is checked.",
)
@click.option("--list", "is_list", is_flag=True, help="List the worlds and end.")
@json_option
def lab(*, command: Sequence[str], world_name: str, listen: str | None, is_list: bool, as_json: bool) -> None:
    """Start an S3 and an SQS whose physics are known, on the loopback interface, for experiments of your own.

    It prints the variables by which SDKs and command lines of AWS find both, and a bucket and a queue in them, for a
    shell to read. Both are there until Ctrl-C or SIGTERM, and leave nothing behind. With a COMMAND they are there for
    as long as it runs: it finds the variables in its environment, and penstock ends with its exit code. They check no
    credentials. The lab is for times and not for contents: of an object or a part above 1 MiB, and beyond 256 MiB in
    all, it keeps the size and at most the first 64 KiB, and the rest reads as zeros.
    """
    if is_list:
        _list(as_json=as_json)
        return
    address, port = (HERE, 0) if listen is None else _address(listen)
    if listen is not None:
        click.echo(_OPEN.format(address=address), err=True)
    end_tidily()
    with ended_by(StageError), laboratory(WORLDS[world_name], address=address, port=port) as found:
        if command:
            kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
            sys.exit(_run(command, kept | found.environment(os.environ)))
        with contextlib.suppress(KeyboardInterrupt):  # the normal end
            _tell(found, as_json=as_json)
            while True:
                signal.pause()


def _address(listen: str) -> tuple[str, int]:
    """The address and port to listen on; refuses "all interfaces", which would open more than intended."""
    try:
        is_bare = listen.count(":") > 1 and "[" not in listen  # IPv6 without a port
        where = urlsplit(f"//[{listen}]" if is_bare else f"//{listen}")
        address, port = ipaddress.ip_address(where.hostname or ""), where.port or 0
    except ValueError:
        raise WrongUsageError(
            f"--listen {listen} is no address of a host, such as 10.0.0.2 or 10.0.0.2:9000"
        ) from None
    if address.is_unspecified:
        raise WrongUsageError(
            f"--listen {listen} is every address: name the one by which the other hosts reach this one"
        )
    return str(address), port


def _list(*, as_json: bool) -> None:
    stories = {name: world.story for name, world in WORLDS.items()}
    if as_json:
        print_json(stories)
        return
    for name, story in stories.items():
        click.echo(filled(f"{name:14}{story}", 14))


def _tell(found: Laboratory, *, as_json: bool) -> None:
    environment = found.environment(os.environ)
    if as_json:
        print_json({"world": found.world.name, "environment": environment, "unset": FOREIGN})
        return
    about = f"The lab's world {found.world.name}. {found.world.story}"
    click.echo(f"{about} It is there until Ctrl-C.", err=True)
    click.echo(f"unset {' '.join(FOREIGN)}")
    for name, value in environment.items():
        click.echo(f"export {name}={shlex.quote(value)}")


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command to its end; when penstock is ended, the command is ended, too."""
    try:
        child = subprocess.Popen(command, env=environment)  # noqa: S603 - what the user asks for
    except OSError as trouble:
        raise TroubleError(f"{command[0]} cannot be run: {cannot_run(trouble)}") from trouble
    try:
        code = child.wait()
    except BaseException:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_STOP_SECONDS_MAX)
        child.kill()
        raise
    return code if code >= 0 else _SIGNALLED - code
