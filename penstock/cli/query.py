"""Knows `penstock query` and `penstock explain`: the same questions, answered with the advice or with its reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import click

from penstock.cli.daemon import call, socket_option
from penstock.cli.examples import examples
from penstock.cli.output import json_option, print_json, print_mapping, print_table, text
from penstock.cli.quantities import BYTES, RATE, SECONDS
from penstock.cli.trouble import WrongUsageError
from penstock.units import counted, label
from penstock.vocabulary import Objective, Regime

Command: TypeAlias = Callable[..., None]


@click.group(
    epilog=examples(
        "penstock query s3-upload --object-size 1GiB",
        "penstock query s3-upload --object-size 200MiB --memory-max 256MiB --objective frugal",
        "penstock query sqs-delivery --rate 500 --work-seconds 20ms",
    )
)
def query() -> None:
    """Ask how to transfer something."""


@click.group(
    epilog=examples(
        "penstock explain s3-upload --object-size 1GiB", "penstock explain sqs-delivery --rate 500 --json"
    )
)
def explain() -> None:
    """Ask why that is the advice: what was measured, what was fitted, what was rejected."""


def object_size_option(*, required: bool) -> Callable[[Command], Command]:
    """The option for the size of one object."""
    return click.option(
        "--object-size", "payload_size_bytes", type=BYTES, required=required, help="Such as 1GiB."
    )


def upload_demand_options(command: Command) -> Command:
    """Give a command the options for the limits of an upload."""
    for option in reversed(
        [
            click.option(
                "--objects", "object_count", type=click.IntRange(1), help="How many move at a time."
            ),
            click.option("--memory-max", "memory_bytes_max", type=BYTES, help="For buffers, such as 256MiB."),
            click.option(
                "--bandwidth-max",
                "bandwidth_bytes_per_second_max",
                type=RATE,
                help="Such as 50MB/s or 1Gbps.",
            ),
        ]
    ):
        command = option(command)
    return command


def s3_upload_options(command: Command) -> Command:
    """Give a command the options of a question about an upload."""
    return object_size_option(required=True)(upload_demand_options(command))


def queue_demand_options(command: Command) -> Command:
    """Give a command the options for the load of a queue."""
    for option in reversed(
        [
            click.option(
                "--rate",
                "message_rate_per_second",
                type=click.FloatRange(0, min_open=True),
                help="Messages per second.",
            ),
            click.option(
                "--message-groups",
                "message_group_count",
                type=click.IntRange(1),
                help="Of a FIFO queue: how many are in use.",
            ),
            click.option(
                "--work-seconds", "work_seconds", type=SECONDS, help="The consumer's own time, such as 20ms."
            ),
            click.option(
                "--latency-objective",
                "latency_objective_seconds",
                type=SECONDS,
                help="Send to receive, such as 250ms.",
            ),
            click.option(
                "--visibility-timeout",
                "visibility_timeout_seconds",
                type=SECONDS,
                help="Of the queue, such as 30s.",
            ),
        ]
    ):
        command = option(command)
    return command


def message_size_option(command: Command) -> Command:
    """How large a message is."""
    option = click.option(
        "--message-size",
        "payload_size_bytes",
        type=BYTES,
        default="1KiB",
        show_default=True,
        help="Such as 4KiB.",
    )
    return option(command)


def sqs_delivery_options(command: Command) -> Command:
    """Give a command the options of a question about a queue."""
    return message_size_option(queue_demand_options(command))


def common_options(command: Command) -> Command:
    """Give a command the options that every question has."""
    for option in reversed(
        [
            click.option(
                "--threads-max", "thread_count_max", type=click.IntRange(1), help="Use no more threads."
            ),
            click.option(
                "--objective",
                type=click.Choice([objective.value for objective in Objective]),
                help="The most throughput, the least latency, or frugal: 80 % for much less.",
            ),
            click.option(
                "--regime",
                type=click.Choice([regime.value for regime in Regime]),
                help="What the host sustains, or can do while it bursts.",
            ),
            click.option("--region", help="Another region than the daemon's."),
            click.option("--instance-type", help="Another instance type than this host's."),
            click.option(
                "--service-class",
                help="standard or express (S3); standard, fifo or fifo-high-throughput (SQS).",
            ),
            json_option,
            socket_option,
        ]
    ):
        command = option(command)
    return command


def parameters_of(operation: str, stated: Mapping[str, object]) -> dict[str, str]:
    """The question as the socket takes it: what was not stated is left out."""
    return {"operation": operation} | {
        name: str(value) for name, value in stated.items() if value is not None
    }


def _add(group: click.Group, name: str, options: Callable[[Command], Command], purpose: str) -> None:
    """One question of a group. The options carry the names of the socket's own query parameters."""
    target, show = ("/v1/recommendation", show_advice) if group is query else ("/v1/explain", print_mapping)

    @group.command(name, help=purpose)
    @options
    @common_options
    def command(*, as_json: bool, socket_path: str, **stated: object) -> None:
        parameters = parameters_of(name.replace("-", "_"), stated)
        document = call(socket_path, "GET", target, parameters=parameters)
        if group is query:
            refuse_too_little_memory(document)
        print_json(document) if as_json else show(document)


def memory_trouble(document: Mapping[str, Any]) -> str | None:
    """Why the memory that was allowed cannot do, in one sentence; None when it can."""
    least = document["derived"].get("memory_bytes_min")
    if least is None:
        return None
    asked = text("_bytes", document["demand"]["memory_bytes_max"])
    return (
        f"--memory-max {asked} cannot be kept for {text('_bytes', document['payload_size_bytes'])}: "
        f"no setting holds less than {text('_bytes', least)}; allow {least} or more"
    )


def refuse_too_little_memory(document: Mapping[str, Any]) -> None:
    """Raise WrongUsageError for advice that holds more than was allowed."""
    trouble = memory_trouble(document)
    if trouble is not None:
        raise WrongUsageError(trouble)


def show_advice(document: Mapping[str, Any]) -> None:
    """One recommendation for people: what to use, what to expect, what it rests on."""
    place = f"{document['region']}, {document['instance_type']}"
    size = text("_bytes", document["payload_size_bytes"])
    bundle = {**document["setting"], **document["derived"]}
    rows = [(label(name), _advised(name, value)) for name, value in bundle.items()]
    print_table(("use", ""), rows, title=f"{document['operation']} of {size} ({place})")
    expected = [
        (label(name), *(text(name, estimate[bound]) for bound in ("low", "expected", "high")))
        for name, estimate in document["prediction"].items()
    ]
    if expected:
        click.echo()
        print_table(("expect", "low", "expected", "high"), expected)
    click.echo()
    click.echo(document["explanation"])
    click.echo(_evidence(document))


def _advised(name: str, value: float) -> str:
    """The value; a window or a rate limit of 0 is none."""
    is_limit = "_limit_" in name or "_window_" in name
    return "none" if is_limit and value == 0 else text(name, value)


def _evidence(document: Mapping[str, Any]) -> str:
    if document["observation_count"] == 0:
        return f"Basis: {document['basis']}, nothing was measured. Limited by: {document['bottleneck']}."
    age = text("_seconds", document["newest_observation_age_seconds"])
    return (
        f"Basis: {document['basis']}, {counted(document['observation_count'], 'observation')}, the newest {age} old "
        f"when this was issued. Limited by: {document['bottleneck']}."
    )


_add(
    query,
    "s3-upload",
    s3_upload_options,
    "Threads, part size and the rest of the bundle for uploading objects of a size.",
)
_add(query, "sqs-delivery", sqs_delivery_options, "Threads, batches, rates and windows for driving a queue.")
_add(explain, "s3-upload", s3_upload_options, "Why uploads of this size are advised as they are.")
_add(explain, "sqs-delivery", sqs_delivery_options, "Why a queue is advised to be driven as it is.")
