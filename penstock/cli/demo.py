"""Knows `penstock demo`: how its story and its proof are told to a viewer."""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING

import click

from penstock.cli.examples import examples
from penstock.cli.interruption import end_tidily
from penstock.cli.output import json_option, print_json, print_table
from penstock.cli.trouble import TroubleError, ended_by
from penstock.operations.s3.upload import UPLOAD
from penstock.units import number

if TYPE_CHECKING:
    from penstock.trial.demo import DemoResult
    from penstock.trial.faces.face import Told

_HEADINGS = {
    "start": "Setting the stage",
    "learn": "Learning: each line is a probe over HTTP, a fit, and what is advised after it",
    "cost": "What the probes took",
    "advise": "Asking the socket as an application does",
    "prove": "Proving it with plain boto3",
}


@click.command(
    epilog=examples("penstock demo", f"penstock demo --json | jq .{UPLOAD.name}.advised_over_optimum")
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="The seed of everything random in it.",
)
@json_option
def demo(*, seed: int, as_json: bool) -> None:
    """Watch it measure, decide and advise; no AWS account needed.

    It starts an S3 and an SQS whose physics are known and a real penstockd on them, lets it learn, asks its socket, and
    proves the advice: the same file and the same queue, with the defaults of boto3 and with what was advised, beside
    the best that the physics allow. It takes under three minutes, uses the loopback interface only, and leaves
    nothing behind, also after Ctrl-C or when its terminal is closed. The story is told on standard error, the result on
    standard output.
    """
    from penstock.trial.demo import play
    from penstock.trial.stage import StageError

    if importlib.util.find_spec("boto3") is None:
        raise TroubleError(
            "the demo proves its advice with boto3, which is not here: pip install 'penstock[demo]'"
        )
    end_tidily()
    with ended_by(StageError):
        result = play(_Teller(), seed=seed)
    if as_json:
        print_json(result.document())
    else:
        _show(result)


class _Teller:
    """Prints the story line by line, as it happens."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._step = ""

    def __call__(self, told: Told) -> None:
        if told.step != self._step:
            self._step = told.step
            click.secho(f"\n{_HEADINGS[told.step]}", err=True, bold=True)
        click.echo(f"{time.monotonic() - self._started:5.0f} s  {told.sentence}", err=True)


def _show(result: DemoResult) -> None:
    for proof in result.proofs.values():
        shown = proof.shown()
        click.echo()
        print_table(shown.headings, shown.rows, title=shown.title)
        click.echo(shown.sentence)
    usd = sum(cost["usd"] for cost in result.costs.values())
    click.echo(f"\nOn AWS, in the region, its probes would have cost ${number(usd)}.")
    click.echo(
        f"It learned for {result.learning_seconds:.0f} s; all in all {result.duration_seconds:.0f} s. "
        "Whether the numbers are honest can be read in penstock/trial/faces and penstock/lab/worlds.py."
    )
