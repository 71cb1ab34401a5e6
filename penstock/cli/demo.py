"""Knows `penstock demo`: how its story and its proof are told to somebody who watches."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from penstock.cli.examples import examples
from penstock.cli.output import json_option, print_json, print_table
from penstock.cli.trouble import TroubleError
from penstock.units import format_bytes, format_rate

if TYPE_CHECKING:
    from penstock.trial.demo import DeliveryProof, DemoResult, Told, UploadProof

_HEADINGS = {
    "start": "Setting the stage",
    "learn": "Learning: each line is a probe over HTTP, a fit, and what is advised after it",
    "advise": "Asking the socket as an application does",
    "prove": "Proving it with plain boto3",
}


@click.command(epilog=examples("penstock demo", "penstock demo --json | jq .s3_upload.advised_over_optimum"))
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of all chance in it.")
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
    try:
        result = play(_Teller(), seed=seed)
    except StageError as trouble:
        raise TroubleError(str(trouble)) from trouble
    if as_json:
        print_json(result.document())
    else:
        _show(result)


class _Teller:
    """Tells the story line by line, as it happens."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._step = ""

    def __call__(self, told: Told) -> None:
        if told.step != self._step:
            self._step = told.step
            click.secho(f"\n{_HEADINGS[told.step]}", err=True, bold=True)
        click.echo(f"{time.monotonic() - self._started:5.0f} s  {told.sentence}", err=True)


def _show(result: DemoResult) -> None:
    click.echo()
    _show_upload(result.s3_upload)
    click.echo()
    _show_delivery(result.sqs_delivery)
    click.echo(
        f"\nIt learned for {result.learning_seconds:.0f} s; all in all {result.duration_seconds:.0f} s. "
        "Whether the numbers are honest can be read in penstock/trial/demo.py and penstock/lab/worlds.py."
    )


def _show_upload(proof: UploadProof) -> None:
    optimum_over_default = proof.optimum_bytes_per_second / proof.default_bytes_per_second
    rows = [
        (
            who,
            f"{setting['thread_count']:.0f}",
            format_bytes(setting["part_size_bytes"]),
            format_rate(rate),
            _times(ratio),
        )
        for who, setting, rate, ratio in (
            ("boto3, default", proof.default_setting, proof.default_bytes_per_second, 1.0),
            (
                "boto3, advised",
                proof.advised_setting,
                proof.advised_bytes_per_second,
                proof.advised_over_default,
            ),
            ("known optimum", proof.optimum_setting, proof.optimum_bytes_per_second, optimum_over_default),
        )
    ]
    title = f"S3: a file of {format_bytes(proof.object_size_bytes)}, after {proof.probe_count} probes"
    print_table(("", "threads", "part size", "throughput", "over default"), rows, title=title)
    click.echo(f"The advice reaches {proof.advised_over_optimum:.1%} of the known optimum of the link.")


def _show_delivery(proof: DeliveryProof) -> None:
    default, best = proof.default_messages_per_second, proof.best_messages_per_second
    rows = [
        (who, threads, f"{rate:.0f}/s", duplicates, _times(rate / max(default, 1e-9)))
        for who, threads, rate, duplicates in (
            (
                "boto3, one thread each",
                _threads(proof.default_setting),
                default,
                str(proof.default_duplicate_count),
            ),
            (
                "boto3, advised",
                _threads(proof.advised_setting),
                proof.advised_messages_per_second,
                str(proof.duplicate_count),
            ),
            ("known best", "", best, "0"),
        )
    ]
    headings = ("", "send/receive/delete x batch", "goodput", "duplicates", "over default")
    print_table(headings, rows, title=f"SQS: sent, received and deleted, after {proof.probe_count} probes")
    click.echo(f"The advice reaches {proof.advised_over_best:.1%} of the known best of the queue.")


def _threads(setting: Mapping[str, float]) -> str:
    counts = (setting[f"{role}_thread_count"] for role in ("sender", "receiver", "deleter"))
    return "/".join(f"{count:.0f}" for count in counts) + f" x {setting['batch_message_count']:.0f}"


def _times(ratio: float) -> str:
    return f"{ratio:.2f} x"
