"""Knows `penstock what-if`: advice for stated conditions, without a daemon and without a queue."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

import click

from penstock.cli.examples import examples
from penstock.cli.output import estimate_rows, json_option, limit_text, print_json, print_table, text
from penstock.cli.trouble import WrongUsageError
from penstock.operations.sqs.delivery import DELIVERY
from penstock.units import label

if TYPE_CHECKING:
    from penstock.models.sqs.plan import Conditions

_EXAMPLE = """\
{
  "message_rate_per_second": 50,
  "send_seconds": 0.020,
  "receive_seconds": 0.024,
  "delete_seconds": 0.0203,
  "delivery_latency_seconds": 0.153,
  "visibility_timeout_seconds": 30
}"""


@click.group(
    "what-if",
    epilog=examples(
        f"penstock measure {DELIVERY.command} --mode advised --json | jq '.results[0].conditions' > conditions.json",
        f"penstock what-if {DELIVERY.command} < conditions.json",
        f"penstock what-if {DELIVERY.command} --conditions conditions.json --json | jq .receive_window_message_count",
        f"penstock what-if {DELIVERY.command} --undeleted 30000 --visible 120000 < conditions.json",
    ),
)
def what_if() -> None:
    """Ask for advice under stated conditions; no daemon and no queue are needed."""


@what_if.command(DELIVERY.command)
@click.option(
    "--conditions",
    "conditions_file",
    type=click.File(encoding="utf-8"),
    default="-",
    help="The file with the conditions; without it, standard input.",
)
@click.option(
    "--undeleted",
    "undeleted_message_count",
    type=click.IntRange(0, 10**9),
    help="Messages received and not deleted, of a collapsed queue: plans a rescue as well.",
)
@click.option(
    "--visible",
    "visible_message_count",
    type=click.IntRange(0, 10**9),
    help="Messages that wait to be received, of a collapsed queue: plans a rescue as well.",
)
@json_option
def what_if_delivery(
    *,
    conditions_file: IO[str],
    undeleted_message_count: int | None,
    visible_message_count: int | None,
    as_json: bool,
) -> None:
    """Plan how to drive a queue under stated conditions.

    The conditions are one JSON object. It must hold message_rate_per_second, send_seconds, receive_seconds and
    delete_seconds: what a request takes on average for one message. More may be stated; docs/what-if.md lists it
    all. The answer says how many threads, which windows and limits, what to expect, and when the queue collapses
    without them.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported, below
    from penstock.models.sqs.plan import plan

    conditions = _read(conditions_file)
    document = plan(conditions).document()
    if undeleted_message_count is not None or visible_message_count is not None:
        document["rescue"] = _rescue(conditions, undeleted_message_count or 0, visible_message_count or 0)
    if as_json:
        print_json(document)
    else:
        _show(document, conditions)


def _read(file: IO[str]) -> Conditions:
    """The conditions. Raises WrongUsageError, which lists every mistake in them."""
    from penstock.models.sqs.plan import ConditionsError, read_conditions

    if file.isatty():
        raise WrongUsageError(
            "the conditions are read from standard input or from the file that --conditions names; a first one:\n\n"
            f"penstock what-if {DELIVERY.command} <<'END'\n{_EXAMPLE}\nEND"
        )
    try:
        document = json.load(file)
    except (ValueError, RecursionError) as trouble:
        raise WrongUsageError(
            f"the conditions are not JSON ({trouble}); they look like this:\n{_EXAMPLE}"
        ) from trouble
    if not isinstance(document, dict):
        raise WrongUsageError(f"the conditions are one JSON object, such as\n{_EXAMPLE}")
    try:
        return read_conditions(document)
    except ConditionsError as trouble:
        lines = "\n  ".join(str(trouble).splitlines())
        raise WrongUsageError(f"these conditions are not possible:\n  {lines}") from trouble


def _rescue(conditions: Conditions, undeleted_count: int, visible_count: int) -> dict[str, Any]:
    from penstock.models.sqs.plan import plan_rescue

    found = plan_rescue(
        conditions, undeleted_message_count=undeleted_count, visible_message_count=visible_count
    )
    document = dataclasses.asdict(found)
    if math.isinf(found.recovered_after_seconds):  # JSON has no infinity
        document["recovered_after_seconds"] = None
    return document


def _show(document: Mapping[str, Any], conditions: Conditions) -> None:
    estimates = {
        name: value for name, value in document.items() if isinstance(value, Mapping) and "low" in value
    }
    told = {*estimates, "rescue", "explanation", "collapse_after_seconds", "deleter_outage_seconds_max"}
    plain = [(label(n), limit_text(n, value)) for n, value in document.items() if n not in told]
    rate = text("_per_second", conditions.message_rate_per_second)
    print_table(("", ""), plain, title=f"How to drive the queue at {rate}")
    click.echo()
    if "collapse_after_seconds" in estimates:  # under another name: the limits shown above prevent it
        estimates["collapse_without_limits_after_seconds"] = estimates.pop("collapse_after_seconds")
    headings = ("", "low", "expected", "high")
    print_table(headings, estimate_rows(estimates), title="What to expect, nine times of ten")
    click.echo(f"\nIt {document['explanation']}.")
    if "rescue" in document:
        click.echo()
        rescue = [(label(name), text(name, value)) for name, value in document["rescue"].items()]
        print_table(("", ""), rescue, title="How to rescue it, all at once")
        if document["rescue"]["recovered_after_seconds"] is None:
            click.echo(_why_never(document["rescue"], conditions))


def _why_never(rescue: Mapping[str, Any], conditions: Conditions) -> str:
    """What is too slow for the rate of messages, and what would help."""
    if rescue["delete_rate_per_second"] > rescue["receive_rate_per_second"]:
        slow, more = "receivers", "shorten the work" if conditions.work_seconds else "receive on more hosts"
    else:
        slow, more = "deleters", "allow more" if conditions.deleter_count_max else "delete on more hosts"
    return f"It does not recover at this rate with so few {slow}: {more}, or send less."
