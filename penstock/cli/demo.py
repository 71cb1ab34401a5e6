"""Knows `penstock demo`: how its story and its proof are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.examples import examples
from penstock.cli.output import json_option, label, print_json, print_table, text
from penstock.cli.trouble import TroubleError

if TYPE_CHECKING:
    from penstock.trial.demo import Told


@click.command(epilog=examples("penstock demo", "penstock demo --json | jq .s3_upload.advised_over_optimum"))
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of all chance in it.")
@json_option
def demo(*, seed: int, as_json: bool) -> None:
    """Watch it measure, decide and advise; no AWS account needed.

    It starts S3 and SQS on a link whose physics are known, lets penstockd learn it, and proves the advice: the same
    file and the same queue, with the defaults of boto3 and with what was advised.
    """
    from penstock.trial.demo import play
    from penstock.trial.stage import StageError

    def tell(told: Told) -> None:
        click.echo(
            f"{told.step:>7}  {told.sentence}", err=as_json
        )  # the document has standard output for itself

    try:
        document = play(tell, seed=seed).document()
    except StageError as trouble:
        raise TroubleError(str(trouble)) from trouble
    if as_json:
        print_json(document)
    else:
        _show_upload(document["s3_upload"])
        _show_delivery(document["sqs_delivery"])


def _show_upload(proof: Mapping[str, Any]) -> None:
    rows = [
        (who, _setting(proof[f"{who}_setting"]), text("_bytes_per_second", proof[f"{who}_bytes_per_second"]))
        for who in ("default", "advised", "optimum")
    ]
    size = text("_bytes", proof["object_size_bytes"])
    click.echo()
    print_table(("", "setting", "throughput"), rows, title=f"Uploading {size} with boto3")
    click.echo(
        f"The advice reaches {proof['advised_over_optimum']:.0%} of the known optimum and "
        f"{proof['advised_over_default']:.1f} times the default, after {proof['probe_count']} probes."
    )


def _show_delivery(proof: Mapping[str, Any]) -> None:
    rows = [
        (who, _setting(proof[f"{who}_setting"]), text("_per_second", proof[f"{who}_messages_per_second"]))
        for who in ("default", "advised")
    ]
    rows.append(("best", "", text("_per_second", proof["best_messages_per_second"])))
    click.echo()
    print_table(("", "setting", "messages"), rows, title="Driving a queue with boto3")
    click.echo(
        f"The advice reaches {proof['advised_over_best']:.0%} of the best goodput with "
        f"{proof['duplicate_count']} duplicates, after {proof['probe_count']} probes."
    )


def _setting(setting: Mapping[str, float]) -> str:
    return ", ".join(f"{label(name)} {text(name, value)}" for name, value in setting.items() if value)
