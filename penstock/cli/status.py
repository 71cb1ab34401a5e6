"""Knows `penstock status` and `penstock wait`: what the daemon does, and when it has something to say."""

from __future__ import annotations

import time

import click

from penstock.cli.daemon import call, socket_option
from penstock.cli.examples import examples
from penstock.cli.output import json_option, print_json, print_mapping
from penstock.cli.quantities import SECONDS
from penstock.cli.trouble import NoDaemonError, NotReadyError, TroubleError
from penstock.units import format_seconds

_PAUSE_SECONDS = 0.5


@click.command(epilog=examples("penstock status", "penstock status --json | jq .spent_per_day"))
@json_option
@socket_option
def status(*, as_json: bool, socket_path: str) -> None:
    """Show what the daemon does, knows and has spent."""
    document = call(socket_path, "GET", "/v1/status")
    if as_json:
        print_json(document)
        return
    for queue in document.get("queues", []):
        if queue["alarm"] not in {"calm", "unknown"}:
            click.secho(f"queue {queue['name']}: {queue['explanation']}", bold=True)
    # The sentences are above; a table of the rest is wide enough.
    document["queues"] = [
        {name: value for name, value in queue.items() if name != "explanation"}
        for queue in document.get("queues", [])
    ]
    print_mapping(document)


@click.command(
    epilog=examples(
        "penstock wait --timeout 5m && ./nightly-backup",
        "penstock wait --timeout 0s --max-age 1h           only look",
    )
)
@click.option(
    "--timeout", "timeout_seconds", type=SECONDS, default="5m", show_default=True, help="Give up after this."
)
@click.option(
    "--max-age", "age_seconds_max", type=SECONDS, help="Advice on older measurements does not count."
)
@json_option
@socket_option
def wait(*, timeout_seconds: float, age_seconds_max: float | None, as_json: bool, socket_path: str) -> None:
    """Wait until there is advice from measurements for every operation that is probed.

    Ends with 0 when there is, with 4 when it was not in time, with 3 when no daemon answered in all that time.
    """
    parameters = {} if age_seconds_max is None else {"max_age_seconds": str(age_seconds_max)}
    deadline = time.monotonic() + timeout_seconds
    told = ""
    while True:
        try:
            document = call(socket_path, "GET", "/v1/ready", parameters=parameters)
            break
        except (NoDaemonError, NotReadyError) as trouble:
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0:
                raise _given_up(trouble, told, timeout_seconds) from trouble
            if trouble.message != told:
                told = trouble.message
                click.echo(f"waiting: {told}", err=True)
            time.sleep(min(_PAUSE_SECONDS, left_seconds))
    if as_json:
        print_json(document)
    else:
        click.echo(document["detail"])


def _given_up(trouble: TroubleError, told: str, timeout_seconds: float) -> TroubleError:
    """The trouble that outlasted the waiting, in few words where the reader was told the rest when it began."""
    if trouble.message != told:
        return trouble
    return type(trouble)(f"that has not changed in {format_seconds(timeout_seconds)}")
