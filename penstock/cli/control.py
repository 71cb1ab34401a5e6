"""Knows `penstock probe` and `penstock reload`: what the daemon does for root and its control group alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from penstock.cli.daemon import call, socket_option
from penstock.cli.examples import examples
from penstock.cli.output import json_option, print_json
from penstock.cli.quantities import BYTES
from penstock.cli.query import message_size_option


@click.group(
    epilog=examples(
        "sudo penstock probe s3-upload --object-size 1GiB",
        "sudo penstock probe sqs-delivery --message-size 4KiB",
    )
)
def probe() -> None:
    """Have the daemon measure something now, within its budget."""


@probe.command("s3-upload")
@click.option("--object-size", "payload_size_bytes", type=BYTES, required=True, help="Such as 1GiB.")
@json_option
@socket_option
def probe_s3_upload(*, payload_size_bytes: int, as_json: bool, socket_path: str) -> None:
    """Measure an upload of this size."""
    _request_probe(socket_path, "s3_upload", payload_size_bytes, as_json=as_json)


@probe.command("sqs-delivery")
@message_size_option
@json_option
@socket_option
def probe_sqs_delivery(*, payload_size_bytes: int, as_json: bool, socket_path: str) -> None:
    """Measure the delivery of messages of this size."""
    _request_probe(socket_path, "sqs_delivery", payload_size_bytes, as_json=as_json)


@click.command(epilog=examples("penstock config check && sudo penstock reload"))
@json_option
@socket_option
def reload(*, as_json: bool, socket_path: str) -> None:
    """Have the daemon read its configuration again; a mistake in it changes nothing."""
    _tell(call(socket_path, "POST", "/-/reload", timeout_seconds=60.0), as_json=as_json)


def _request_probe(socket_path: str, operation: str, payload_size_bytes: int, *, as_json: bool) -> None:
    request = {"operation": operation, "payload_size_bytes": payload_size_bytes}
    _tell(call(socket_path, "POST", "/v1/probe", document=request), as_json=as_json)


def _tell(document: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        click.echo(document["detail"])
