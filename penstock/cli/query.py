"""Knows `penstock query` and `penstock explain`: the same questions, answered with advice or with its reasons."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import click

from penstock.cli.daemon import advice_in_force, call, socket_option, why_expired
from penstock.cli.examples import examples
from penstock.cli.output import (
    NARROW,
    Command,
    any_of,
    estimate_rows,
    filled,
    json_option,
    limit_text,
    options,
    print_json,
    print_mapping,
    print_table,
    text,
)
from penstock.cli.quantities import BYTES, RATE, SECONDS
from penstock.cli.trouble import WrongUsageError
from penstock.client.targets.stores import STORES_BY_NAME
from penstock.operations.operation import Operation, Words
from penstock.operations.table import OPERATIONS
from penstock.optimizer.verdict import Verdict, sentence
from penstock.report.anchors import figures_of, place_anchor
from penstock.units import counted, label, number, parse_bytes
from penstock.vocabulary import Access, Basis, Estimate, Objective, Regime, Sink

_DEMAND_OPTIONS: Mapping[str, tuple[str, click.ParamType[Any], str]] = {
    "object_count": ("--objects", click.IntRange(1), "How many objects move at a time."),
    "access": (
        "--access",
        click.Choice([access.value for access in Access]),
        "Whole objects, or ranges at random places of a large one.",
    ),
    "range_size_bytes": ("--range-size", BYTES, "What a random reader asks for, such as 256KiB."),
    "sink": ("--sink", click.Choice([sink.value for sink in Sink]), "Where the data is written to."),
    "memory_bytes_max": ("--memory-max", BYTES, "Memory for buffers, such as 256MiB."),
    "bandwidth_bytes_per_second_max": ("--bandwidth-max", RATE, "The most to use, such as 50MB/s or 1Gbps."),
    "message_rate_per_second": ("--rate", click.FloatRange(0, min_open=True), "Messages per second."),
    "message_group_count": (
        "--message-groups",
        click.IntRange(1),
        "How many message groups of a FIFO queue are in use.",
    ),
    "work_seconds": ("--work-seconds", SECONDS, "Time the consumer works on a message, such as 20ms."),
    "latency_objective_seconds": ("--latency-objective", SECONDS, "From send to receive, such as 250ms."),
    "visibility_timeout_seconds": ("--visibility-timeout", SECONDS, "Of the queue, such as 30s."),
}
"""Options by the field of `Demand` that they state; an operation's row names the fields that apply to it."""


@click.group(
    epilog=examples(
        *(
            f"penstock query {row.command} {line}"
            for row in OPERATIONS.values()
            for line in row.words.examples
        )
    )
)
def query() -> None:
    """Ask how to transfer something."""


@click.group(
    epilog=examples(
        *(f"penstock explain {row.command} {row.words.examples[0]}" for row in OPERATIONS.values()),
        f"penstock explain {next(iter(OPERATIONS.values())).command} --object-size 1GiB --full",
    )
)
def explain() -> None:
    """Ask why the advice is as it is, in ten lines; --full shows all that was fitted, and what was rejected."""


def size_option(words: Words) -> Callable[[Command], Command]:
    """The option for the size of what the operation moves."""
    name, example = f"--{words.payload}-size", f"Such as {words.payload_example}."
    if words.payload_default is None:
        return click.option(name, "payload_size_bytes", type=BYTES, required=True, help=example)
    default = words.payload_default
    return click.option(
        name, "payload_size_bytes", type=BYTES, default=default, show_default=True, help=example
    )


def optional_size_option(words: Words, name: str = "payload_size_bytes") -> Callable[[Command], Command]:
    """The same, for a command that can do without a size, and must know whether it was stated."""
    default = f"  [default: {words.payload_default}]" if words.payload_default else ""
    return click.option(
        f"--{words.payload}-size", name, type=BYTES, help=f"Such as {words.payload_example}.{default}"
    )


def demand_options(names: Iterable[str]) -> Callable[[Command], Command]:
    """A decorator that adds the options for these fields of a demand."""
    stated = ((name, *_DEMAND_OPTIONS[name]) for name in names)
    return options(*(click.option(flag, name, type=kind, help=words) for name, flag, kind, words in stated))


def _service_classes() -> str:
    """The classes of each service, in words: "standard or express (S3); ..."."""
    classes: dict[str, dict[str, None]] = {}
    for row in OPERATIONS.values():
        classes.setdefault(row.service.upper(), {}).update(dict.fromkeys(row.service_classes))
    return "; ".join(f"{any_of(tuple(words))} ({service})" for service, words in classes.items()) + "."


common_options = options(
    click.option(
        "--threads-max", "thread_count_max", type=click.IntRange(1), help="Use at most this many threads."
    ),
    click.option(
        "--objective",
        type=click.Choice([objective.value for objective in Objective]),
        help="Only as many connections as are worth it, peak throughput, least latency, or frugal: 80 % for much less.",
    ),
    click.option(
        "--regime",
        type=click.Choice([regime.value for regime in Regime]),
        help="What the host sustains, or does while it bursts; auto: burst if its credits outlast the transfer.",
    ),
    click.option("--region", help="A region other than the daemon's."),
    click.option("--instance-type", help="An instance type other than this host's."),
    click.option("--service-class", help=_service_classes()),
    json_option,
    socket_option,
)
"""The options of every question."""


store_option = click.option(
    "--store",
    type=click.Choice(tuple(STORES_BY_NAME)),
    help="Which store the bucket is in, if it is not AWS and no endpoint says so.",
)
"""For commands about somebody else's client that moves objects."""


def parameters_of(operation: str, stated: Mapping[str, object]) -> dict[str, str]:
    """The query parameters of the socket; what was not stated is left out."""
    return {"operation": operation} | {
        name: str(value) for name, value in stated.items() if value is not None
    }


def _add(group: click.Group, row: Operation[Any, Any], purpose: str) -> None:
    """Add the question about one operation to a group. Its options are named like the socket's query parameters."""

    def asked(*, as_json: bool, socket_path: str, **stated: object) -> None:
        document = advice_in_force(socket_path, parameters_of(row.name, stated))
        refuse_too_little_memory(document)
        if why := _why_unknown(socket_path, document):
            click.echo(why, err=True)
        print_json(document) if as_json else show_advice(document)

    def explained(*, is_full: bool, as_json: bool, socket_path: str, **stated: object) -> None:
        document = call(socket_path, "GET", "/v1/explain", parameters=parameters_of(row.name, stated))
        if why := why_expired(document["recommendation"]):
            click.echo(f"no longer used: {why}", err=True)
        advice = document["recommendation"]
        document = {**document, "figures": figures_of(_anchor(advice), advice["setting"])}
        if as_json:
            print_json(document)
        elif is_full:
            print_mapping(document)
            click.echo("\nEach name is explained in docs/glossary.md or in docs/socket-protocol.md.")
        else:
            click.echo("\n".join(reasons(document, row.words)))

    command = asked if group is query else _FULL(explained)
    command = size_option(row.words)(demand_options(row.words.demand)(common_options(command)))
    group.command(row.command, help=purpose)(command)


def _why_unknown(socket_path: str, document: Mapping[str, Any]) -> str | None:
    """Why waiting brings no advice, in one sentence: nothing is known there, and nothing is measured. Else None."""
    operation, region, service_class = (document[name] for name in ("operation", "region", "service_class"))
    if document["basis"] != Basis.DEFAULT:
        return None
    contexts = call(socket_path, "GET", "/v1/status")["contexts"]
    probed = [context for context in contexts if context["operation"] == operation]
    regions = sorted({context["region"] for context in probed})
    classes = sorted({context.get("service_class", service_class) for context in probed})
    if region not in regions:
        where = (
            f"only in {', '.join(regions)}" if regions else f"nowhere: see is_enabled in [probes.{operation}]"
        )
        return f"{operation} is not probed in {region}, and waiting changes nothing; it is probed {where}"
    if service_class not in classes:
        where = f"as {', '.join(classes)}: see service_class in [probes.{operation}]"
        return (
            f"{operation} is not probed as {service_class}, and waiting changes nothing; it is probed {where}"
        )
    return None


_FULL = click.option(
    "--full", "is_full", is_flag=True, help="Show all that was fitted and considered, not ten lines."
)
_LINE_COUNT_MAX = 10
_CUT = " ..."  # ends text that was cut


def reasons(document: Mapping[str, Any], words: Words) -> list[str]:
    """The reasons for the advice in at most ten lines; the explanation gets the lines that the rest leaves."""
    advice, fit = document["recommendation"], document["fit"]
    place = f"{advice['region']}, {advice['instance_type']}"
    before = [f"{advice['operation']} of {text('_bytes', advice['payload_size_bytes'])} ({place})"]
    before += _lines(f"Use {words.setting_in_full(advice['setting'], advice['payload_size_bytes'])}.", 2)
    is_burstable = "is_burst" in advice.get("derived", ())
    after = (
        [] if fit is None else _lines(_learned_words(fit["parameters"], words, is_burstable=is_burstable), 1)
    )
    after += _lines(f"In the report: #{_anchor(advice)}", 1)
    count = 0 if fit is None else fit["observation_count"]
    origin = f"From {counted(count, 'observation')}" if count else "From tables alone"
    after.append(f"{origin}. More with --full; words are in docs/glossary.md.")
    return [*before, *_why(advice["explanation"], _LINE_COUNT_MAX - len(before) - len(after)), *after]


def _learned_words(parameters: Mapping[str, Mapping[str, float]], words: Words, *, is_burstable: bool) -> str:
    """Which parameters of the place are known, and which are not: their numbers would be guesses.

    The ceiling that is fitted for a host that bursts is the one without credits.
    """
    estimates = {name: Estimate(**parameters[name]) for name in words.learned if name in parameters}
    known = [
        f"{label(name)} {text(name, e.expected)}" + " sustained" * (is_burstable and name.startswith("host_"))
        for name, e in estimates.items()
        if not e.is_guess
    ]
    unknown = [label(name) for name, e in estimates.items() if e.is_guess]
    said = [("Known", known), ("Not seen yet", unknown)]
    return " ".join(f"{word}: {', '.join(names)}." for word, names in said if names)


def _why(explanation: str, line_count_max: int) -> list[str]:
    """The explanation; if it is too long, sentences before the last are dropped, because the last tells the gain."""
    sentences = re.split(r"(?<=[.]) (?=[A-Z0-9])", explanation)
    lines = _lines(explanation, line_count_max)
    while len(sentences) > 2 and lines[-1].endswith(_CUT):
        del sentences[-2]
        lines = _lines(" ".join(sentences), line_count_max)
    return lines


def _anchor(advice: Mapping[str, Any]) -> str:
    """The anchor of the report's section about this place."""
    where = {name: advice[name] for name in ("operation", "region", "instance_type")}
    return place_anchor(**where, service_class=advice.get("service_class", "standard"))


def _lines(sentence: str, count_max: int) -> list[str]:
    return textwrap.wrap(sentence, NARROW, max_lines=count_max, placeholder=_CUT, break_on_hyphens=False)


def memory_trouble(document: Mapping[str, Any]) -> str | None:
    """Why the advice needs more memory than was allowed, in one sentence; None if it does not."""
    least = document["derived"].get("memory_bytes_min")
    if least is None:
        return None
    asked, said = text("_bytes", document["demand"]["memory_bytes_max"]), text("_bytes", least)
    enough = said if parse_bytes(said) >= least else f"{least:.0f} B"  # the text is rounded, maybe down
    return (
        f"--memory-max {asked} cannot be kept for {text('_bytes', document['payload_size_bytes'])}: "
        f"no setting holds less than {said}; allow {enough} or more"
    )


def refuse_too_little_memory(document: Mapping[str, Any]) -> None:
    """Raise WrongUsageError for advice that needs more memory than was allowed."""
    trouble = memory_trouble(document)
    if trouble is not None:
        raise WrongUsageError(trouble)


def show_advice(document: Mapping[str, Any]) -> None:
    """Print one recommendation: what to use, what to expect, and what it is based on."""
    place = f"{document['region']}, {document['instance_type']}"
    click.echo(filled(_verdict(document)) + "\n")
    size = text("_bytes", document["payload_size_bytes"])
    bundle = {**document["setting"], **document["derived"]}
    rows = [(label(name), limit_text(name, value)) for name, value in bundle.items()]
    print_table(("use", ""), rows, title=f"{document['operation']} of {size} ({place})")
    expected = estimate_rows(document["prediction"])
    gain = document.get("gain_over_default")
    if gain is not None:
        expected.append(
            ("over default", *(f"{number(gain[bound])} x" for bound in ("low", "expected", "high")))
        )
    if expected:
        click.echo()
        print_table(("expect", "low", "expected", "high"), expected)
    click.echo()
    click.echo(filled(document["explanation"]))
    click.echo(filled(_evidence(document)))


def _verdict(document: Mapping[str, Any]) -> str:
    """The verdict in the same sentence as in the report."""
    gain = document.get("gain_over_default")
    in_full = OPERATIONS[document["operation"]].words.setting_in_full
    return sentence(
        Verdict(
            setting_words=in_full(document["setting"], document["payload_size_bytes"]),
            basis=document["basis"],
            bottleneck=document["bottleneck"],
            gains={"boto3": Estimate(**gain)} if gain else {},
        )
    )


def _evidence(document: Mapping[str, Any]) -> str:
    if document["observation_count"] == 0:
        return f"Basis: {document['basis']}, nothing was measured. Limited by: {document['bottleneck']}."
    # The age is as of the advice's issue, which may be long ago.
    age = timedelta(seconds=document["newest_observation_age_seconds"])
    newest_at = datetime.fromisoformat(document["issued_at"]) - age
    return (
        f"Basis: {document['basis']}, {counted(document['observation_count'], 'observation')}, the newest of "
        f"{newest_at:%Y-%m-%d %H:%M} UTC. Limited by: {document['bottleneck']}."
    )


for _row in OPERATIONS.values():
    _add(query, _row, _row.words.query)
    _add(explain, _row, _row.words.explain)
