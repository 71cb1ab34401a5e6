"""Knows `penstock export`: advice as one client's own options, to be piped, evaluated or pasted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from penstock.cli.daemon import advice_in_force
from penstock.cli.examples import examples
from penstock.cli.output import options, print_json, print_table, text
from penstock.cli.quantities import Name
from penstock.cli.query import (
    common_options,
    demand_options,
    optional_size_option,
    parameters_of,
    refuse_too_little_memory,
    store_option,
)
from penstock.cli.trouble import NotReadyError, WrongUsageError
from penstock.client.targets.stores import store_for, variables_for
from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import Target, Translation, translate
from penstock.operations.operation import Service
from penstock.operations.table import OPERATIONS

FORMS = ("flags", "env", "config", "commands", "json")

_SIZES = {f"{row.words.payload}_size_bytes": row.words for row in OPERATIONS.values()}
"""What moves, by the field that states its size; operations that move the same thing share the option."""
_DEMANDS = tuple(dict.fromkeys(name for row in OPERATIONS.values() for name in row.words.demand))


_stating = options(
    *(optional_size_option(words, name) for name, words in _SIZES.items()), demand_options(_DEMANDS)
)
"""The options of a question about any operation."""


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
@click.argument("name", metavar="[TARGET]", type=Name(tuple(TARGETS)), required=False)
@click.option("--list", "is_list", is_flag=True, help="List the targets and their forms.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Which of the target's forms to print; the first in --list is the usual one.",
)
@store_option
@_stating
@common_options
def export(
    *,
    name: str | None,
    is_list: bool,
    form: str | None,
    store: str | None,
    as_json: bool,
    socket_path: str,
    **stated: Any,
) -> None:
    """Print the advice as options of one client.

    Standard output has nothing but what the client or the shell takes. What the client cannot be told, and what the
    advice rests on, are comments where it is a file that is printed, else on standard error.

    Where there is no daemon (exit code 3), nothing is known yet or the advice has expired (4), standard output is
    empty, and the client's own defaults serve: with `eval "$(...)"` a script goes on as if it had not asked.
    """
    if is_list:
        _show_list(as_json=as_json)
    elif name is None:
        raise WrongUsageError("name a target: `penstock export --list` shows them")
    else:
        target = TARGETS[name]
        form = _form(target, "json" if as_json else form)
        document = _ask(target, socket_path, stated)
        _show(target, form, document, translate(target, document), _variables(target, store, document))


def _show_list(*, as_json: bool) -> None:
    if as_json:
        rows = [
            {"target": t.name, "operation": t.operation, "formats": _forms(t), "purpose": t.purpose}
            for t in TARGETS.values()
        ]
        print_json({"targets": rows})
        return
    lines = [(t.name, _moved(t), ", ".join(_forms(t)), t.purpose) for t in TARGETS.values()]
    print_table(("target", "moves", "formats", ""), lines)


def _forms(target: Target) -> list[str]:
    """The target's forms, the usual one first."""
    return [*target.writers, "json"]


def _form(target: Target, form: str | None) -> str:
    known = _forms(target)
    if form is None:
        return known[0]
    if form not in known:
        raise WrongUsageError(f"{target.name} has no {form} form: it has {', '.join(known)}")
    return form


def _ask(target: Target, socket_path: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The daemon's answer.

    Raises TroubleError, also if the daemon knows only boto3's defaults, if the advice has expired, or if it cannot
    respect a limit of the question.
    """
    document = advice_in_force(socket_path, _question(target, stated))
    if document["basis"] == "default":
        raise NotReadyError(
            f"nothing is known about this place yet, so use the defaults of {target.name}: see `penstock "
            "status`, or wait with `penstock wait`"
        )
    refuse_too_little_memory(document)
    return document


def _question(target: Target, stated: Mapping[str, Any]) -> dict[str, str]:
    """The query parameters. Raises WrongUsageError for an option of the other kind of target, or without a size."""
    words = OPERATIONS[target.operation].words
    size = f"{words.payload}_size_bytes"
    strange = {*_SIZES, *_DEMANDS} - {size, *words.demand}
    wrong = [_flag(field) for field in stated if field in strange and stated[field] is not None]
    if wrong:
        raise WrongUsageError(
            f"{target.name} moves {_moved(target)}: {', '.join(wrong)} {'are' if wrong[1:] else 'is'} not for them"
        )
    asked = {field: value for field, value in stated.items() if field not in strange}
    asked["payload_size_bytes"] = asked.pop(size) or words.payload_default
    if asked["payload_size_bytes"] is None:
        raise WrongUsageError(
            f"{_flag(size)} is missing: of one {words.payload}, such as {words.payload_example}"
        )
    return parameters_of(target.operation, asked)


def _moved(target: Target) -> str:
    return OPERATIONS[target.operation].words.payload + "s"


def _flag(field: str) -> str:
    """The option that states this field."""
    return next(p.opts[0] for p in export.params if p.name == field)


def _variables(target: Target, store: str | None, document: Mapping[str, Any]) -> Mapping[str, str]:
    """Environment variables for the store: the stated one, or that of the environment's or the daemon's endpoint."""
    if OPERATIONS[target.operation].service is not Service.S3:
        return {}
    return variables_for(store_for(store, document, os.environ))


def _show(
    target: Target,
    form: str,
    document: Mapping[str, Any],
    translation: Translation,
    variables: Mapping[str, str],
) -> None:
    if form == "json":
        about = ("operation", "payload_size_bytes", "basis", "explanation")
        print_json(
            {
                "target": target.name,
                **{name: document[name] for name in about},
                "options": translation.named(),
                "inexpressible": dict(translation.inexpressible),
                "environment": dict(variables),
            }
        )
        return
    remarks = _remarks(target, document, translation)
    if variables and form != "env":
        remarks.append(f"this store takes no checksums of AWS: {_assigned(variables)}")
    is_file = form == "config"
    if is_file:
        click.echo("\n".join(_comments(target, remarks)))
    click.echo("\n".join(target.writers[form](translation)))
    if form == "env":
        click.echo("".join(f"export {pair}\n" for pair in _assigned(variables).split()), nl=False)
    if not is_file:
        click.echo("\n".join(f"# {remark}" for remark in remarks), err=True)


def _assigned(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in variables.items())


def _remarks(target: Target, document: Mapping[str, Any], translation: Translation) -> list[str]:
    """What the advice is for, what it is based on, and what it lacks."""
    size = text("_bytes", document["payload_size_bytes"])
    about = f"penstock, {document['operation']} of {size}, {document['basis']}: {document['explanation']}"
    missing = [
        f"{target.name} cannot be told {field}: {reason}"
        for field, reason in translation.inexpressible.items()
    ]
    return [about, *missing]


def _comments(target: Target, remarks: Sequence[str]) -> list[str]:
    end = " -->" if target.comment == "<!--" else ""
    # In XML two hyphens would end the comment.
    return [
        f"{target.comment} {re.sub('-(?=-)', '- ', remark) if end else remark}{end}" for remark in remarks
    ]
