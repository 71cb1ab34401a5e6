"""Knows `penstock export`: advice in the words of one client, so that it can be piped, evaluated or pasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from penstock.cli.daemon import call
from penstock.cli.examples import examples
from penstock.cli.output import print_json, print_table, text
from penstock.cli.quantities import BYTES
from penstock.cli.query import (
    common_options,
    object_size_option,
    parameters_of,
    queue_demand_options,
    refuse_too_little_memory,
    upload_demand_options,
)
from penstock.cli.trouble import NotReadyError, WrongUsageError
from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import Target, Translation, translate
from penstock.units import KiB

FORMS = ("flags", "env", "config", "commands", "json")
MESSAGE_SIZE_BYTES = KiB

_UPLOAD_ONLY = {
    "payload_size_bytes": "--object-size",
    "object_count": "--objects",
    "memory_bytes_max": "--memory-max",
    "bandwidth_bytes_per_second_max": "--bandwidth-max",
}
_QUEUE_ONLY = {
    "message_size_bytes": "--message-size",
    "message_rate_per_second": "--rate",
    "message_group_count": "--message-groups",
    "work_seconds": "--work-seconds",
    "latency_objective_seconds": "--latency-objective",
    "visibility_timeout_seconds": "--visibility-timeout",
}


@click.command(
    name="export",
    epilog=examples(
        "penstock export --list",
        'eval "$(penstock export rclone --object-size 1GiB --format env)"; rclone copy big.bin remote:bucket',
        "s5cmd $(penstock export s5cmd --object-size 1GiB || echo cp) big.bin s3://bucket/",
        "penstock export spark --object-size 256MiB >> spark-defaults.conf",
        "penstock export boto3 --object-size 1GiB --json | jq .options.TransferConfig",
        "penstock export celery --rate 500 --work-seconds 20ms",
    ),
)
@click.argument("name", metavar="[TARGET]", type=click.Choice(tuple(TARGETS)), required=False)
@click.option("--list", "is_list", is_flag=True, help="Show the targets and their forms.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Which of the target's forms; the first in --list is the usual one.",
)
@object_size_option(required=False)
@upload_demand_options
@queue_demand_options
@click.option("--message-size", "message_size_bytes", type=BYTES, help="Such as 4KiB.  [default: 1KiB]")
@common_options
def export(
    *, name: str | None, is_list: bool, form: str | None, as_json: bool, socket_path: str, **stated: Any
) -> None:
    """Print the advice in the words of one client.

    Standard output has nothing but what the client or the shell takes. What the client cannot be told, and what the
    advice rests on, are comments where it is a file that is printed, else on standard error.

    Where there is no daemon (exit code 3) or nothing is known yet (4), standard output is empty, and the client's own
    defaults serve: with `eval "$(...)"` a script goes on as if it had not asked.
    """
    if is_list:
        _show_list(as_json=as_json)
    elif name is None:
        raise WrongUsageError("name a target: `penstock export --list` shows them")
    else:
        target = TARGETS[name]
        form = _form(target, "json" if as_json else form)
        document = _ask(target, socket_path, stated)
        _show(target, form, document, translate(target, document))


def _show_list(*, as_json: bool) -> None:
    rows = [
        {
            "target": target.name,
            "operation": target.operation,
            "formats": [*target.writers, "json"],
            "purpose": target.purpose,
        }
        for target in TARGETS.values()
    ]
    if as_json:
        print_json({"targets": rows})
        return
    headings = ("target", "moves", "formats", "")
    lines = [
        (
            target.name,
            "objects" if target.operation == "s3_upload" else "messages",
            ", ".join([*target.writers, "json"]),
            target.purpose,
        )
        for target in TARGETS.values()
    ]
    print_table(headings, lines)


def _form(target: Target, form: str | None) -> str:
    known = (*target.writers, "json")
    if form is None:
        return known[0]
    if form not in known:
        raise WrongUsageError(f"{target.name} has no {form} form: it has {', '.join(known)}")
    return form


def _ask(target: Target, socket_path: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The daemon's answer.

    Raises TroubleError, also when it knows no more than what boto3 does by itself, or cannot keep what was asked for.
    """
    document = call(socket_path, "GET", "/v1/recommendation", parameters=_question(target, stated))
    if document["basis"] == "default":
        raise NotReadyError(
            f"nothing is known about this place yet, so the defaults of {target.name} serve: "
            "see `penstock status`, or wait with `penstock wait`"
        )
    refuse_too_little_memory(document)
    return document


def _question(target: Target, stated: Mapping[str, Any]) -> dict[str, str]:
    """What to ask. Raises WrongUsageError for an option of the other kind of target, or without a size."""
    is_upload = target.operation == "s3_upload"
    strange = _QUEUE_ONLY if is_upload else _UPLOAD_ONLY
    wrong = [option for field, option in strange.items() if stated[field] is not None]
    moved = "objects" if is_upload else "messages"
    if wrong:
        raise WrongUsageError(f"{target.name} moves {moved}: {', '.join(wrong)} cannot be said of them")
    asked = {field: value for field, value in stated.items() if field not in strange}
    if not is_upload:
        asked["payload_size_bytes"] = asked.pop("message_size_bytes") or MESSAGE_SIZE_BYTES
    elif asked["payload_size_bytes"] is None:
        raise WrongUsageError("--object-size is missing: of one object, such as 1GiB")
    return parameters_of(target.operation, asked)


def _show(target: Target, form: str, document: Mapping[str, Any], translation: Translation) -> None:
    if form == "json":
        about = ("operation", "payload_size_bytes", "basis", "explanation")
        print_json(
            {
                "target": target.name,
                **{name: document[name] for name in about},
                "options": translation.named(),
                "inexpressible": dict(translation.inexpressible),
            }
        )
        return
    remarks = _remarks(target, document, translation)
    is_file = form == "config"
    if is_file:
        click.echo("\n".join(_comments(target, remarks)))
    click.echo("\n".join(target.writers[form](translation)))
    if not is_file:
        click.echo("\n".join(f"# {remark}" for remark in remarks), err=True)


def _remarks(target: Target, document: Mapping[str, Any], translation: Translation) -> list[str]:
    """What it is for and rests on, and what is missing in it."""
    size = text("_bytes", document["payload_size_bytes"])
    about = f"penstock, {document['operation']} of {size}, {document['basis']}: {document['explanation']}"
    missing = [
        f"{target.name} cannot be told {field}: {reason}"
        for field, reason in translation.inexpressible.items()
    ]
    return [about, *missing]


def _comments(target: Target, remarks: Sequence[str]) -> list[str]:
    end = " -->" if target.comment == "<!--" else ""
    return [f"{target.comment} {remark.replace('--', '- -') if end else remark}{end}" for remark in remarks]
