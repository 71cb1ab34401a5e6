"""Knows `penstock measure`: the measurement application of the published queue collapse, on a real queue."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.examples import examples
from penstock.cli.experiments import (
    list_experiments,
    report_experiment,
    run_experiment,
    show_experiment,
    until_signalled,
)
from penstock.cli.interruption import end_tidily
from penstock.cli.output import json_option, print_json, print_table, text
from penstock.cli.quantities import SECONDS
from penstock.cli.trouble import INTERRUPTED, TroubleError, WrongUsageError
from penstock.clock import SystemClock
from penstock.operations.sqs.delivery import DELIVERY
from penstock.units import format_seconds

if TYPE_CHECKING:
    from penstock.probes.sqs.queue_application import Course, QueueDrive
    from penstock.probes.sqs.tally import Sample
    from penstock.vocabulary import ProbePlan

_MODES = ("blast", "rate-controlled", "advised")
_COMMAND = f"penstock measure {DELIVERY.command}"
_RESCUED = "rescued"
_LOCAL_REGION = "us-east-1"  # a self-hosted endpoint needs some region, but any will do
_SECONDS_MAX = 7 * 86_400.0


@click.group(
    epilog=examples(
        "penstock measure list",
        "penstock measure run parallel-curls --lab       a published experiment, in seconds and without AWS",
        f"{_COMMAND} --region eu-central-1 --mode rate-controlled",
        f"{_COMMAND} --endpoint-url http://localhost:9324 --mode all --throttle-deletes 50",
        f"{_COMMAND} --region eu-central-1 --mode advised --json | jq '.results[0].conditions'",
    )
)
def measure() -> None:
    """Run published experiments again, or drive a queue and see it collapse; no daemon is needed."""


for _command in (list_experiments, show_experiment, run_experiment, report_experiment):
    measure.add_command(_command)


@measure.command(DELIVERY.command)
@click.option(
    "--mode",
    type=click.Choice([*_MODES, _RESCUED, "all"]),
    default="all",
    show_default=True,
    help="Nothing bounded; the published rules; what penstock advises; a collapse and its rescue; or the first three.",
)
@click.option(
    "--seconds", "seconds", type=SECONDS, default="60s", show_default=True, help="How long each mode runs."
)
@click.option(
    "--visibility-timeout",
    "visibility_timeout_seconds",
    type=SECONDS,
    default="5s",
    show_default=True,
    help="Of the queue, in whole seconds; SQS's default is 30s, and a short one shows a collapse sooner.",
)
@click.option(
    "--rate",
    "message_rate_per_second",
    type=click.FloatRange(0, min_open=True),
    help="Messages to send a second; without it, as many as one sender can.",
)
@click.option(
    "--delete-delay",
    "delete_delay_seconds",
    type=SECONDS,
    default="0s",
    help="Slow each delete request down by this much; more deleters still delete more.",
)
@click.option(
    "--throttle-deletes",
    "delete_requests_per_second_max",
    type=click.FloatRange(0, min_open=True),
    metavar="PER_SECOND",
    help="At most so many delete requests a second, by all deleters together.",
)
@click.option(
    "--queue-prefix",
    default="penstock-measure",
    show_default=True,
    help="How the names of the queues begin; they are made for each mode and removed after it.",
)
@click.option("--endpoint-url", help="Of an SQS that is not AWS's.")
@click.option("--region", envvar=["AWS_REGION", "AWS_DEFAULT_REGION"], help="Of the queue.")
@click.option("--profile", help="Of the AWS configuration; without it, the usual credentials.")
@json_option
def measure_delivery(*, as_json: bool, **given: Any) -> None:
    """Send, receive and delete, as fast as it goes or by the rules, and see what becomes of it.

    In blast mode a sender, a receiver and a deleter do what they can; once the oldest message that is not deleted is as
    old as the visibility timeout, copies come back, and the deletes achieve nothing any more. In rate-controlled mode
    fewer than ten messages are in the server, and senders pause while the oldest undeleted message is older than half
    the timeout. In advised mode the queue is measured with some fifty messages first, and driven as penstock plans for
    it. In rescued mode blast is left to collapse, and then rescued with the sender going on.

    On AWS every request is billed: the summary says how many there were. Ctrl-C, or a queue that no longer answers,
    ends a run early; its queue is removed, and what was measured until then is shown.
    """
    _check(given)
    end_tidily()
    modes = _MODES if given["mode"] == "all" else (given["mode"],)
    results, trouble, was_interrupted = asyncio.run(_measured(modes, given))
    document = {
        "was_interrupted": was_interrupted,
        "trouble": trouble,
        "visibility_timeout_seconds": int(given["visibility_timeout_seconds"]),
        "results": [{"mode": mode, **course.document()} for mode, course in results.items()],
    }
    if as_json:
        print_json(document)
    elif results or trouble is None:
        _show(document)
    if trouble is not None:
        raise TroubleError(trouble)
    if was_interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _check(given: Mapping[str, Any]) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported, below
    from penstock.probes.sqs.queue_application import QUEUE_PREFIX_LENGTH_MAX

    timeout_seconds = given["visibility_timeout_seconds"]
    if not 1 <= timeout_seconds <= 43_200 or timeout_seconds != int(timeout_seconds):
        raise WrongUsageError("--visibility-timeout is a whole number of seconds, from 1s to 12h")
    if not 0 < given["seconds"] <= _SECONDS_MAX:
        raise WrongUsageError("--seconds is more than 0 and at most 7d")
    prefix = given["queue_prefix"]
    if not prefix.replace("-", "").replace("_", "").isalnum() or not prefix.isascii():
        raise WrongUsageError("--queue-prefix is made of letters, digits, - and _")
    if len(prefix) > QUEUE_PREFIX_LENGTH_MAX:
        raise WrongUsageError(f"--queue-prefix has at most {QUEUE_PREFIX_LENGTH_MAX} characters")
    if given["region"] is None and given["endpoint_url"] is None:
        raise WrongUsageError("say --region, or --endpoint-url for an SQS that is not AWS's")


def _plan(mode: str, given: Mapping[str, Any]) -> ProbePlan[QueueDrive]:
    """A plan limited by its duration alone."""
    from penstock.models.sqs.setting import PROBED_BYTES_MIN
    from penstock.probes.sqs.queue_application import OPERATION, drive_of
    from penstock.vocabulary import UNKNOWN, Context, Cost, Place, ProbePlan, Reason

    place = Place(operation=OPERATION, region=given["region"] or _LOCAL_REGION, instance_type=UNKNOWN)
    drive = drive_of(
        mode,
        visibility_timeout_seconds=int(given["visibility_timeout_seconds"]),
        offered_per_second=given["message_rate_per_second"] or 0.0,
        delete_delay_seconds=given["delete_delay_seconds"],
        delete_requests_per_second_max=given["delete_requests_per_second_max"] or 0.0,
    )
    return ProbePlan(
        context=Context(place=place, payload_size_bytes=PROBED_BYTES_MIN),
        setting=drive,
        reason=Reason.REQUESTED,
        cost_max=Cost(request_count=10**9, duration_seconds=given["seconds"]),
    )


async def _measured(
    modes: Sequence[str], given: Mapping[str, Any]
) -> tuple[Mapping[str, Course], str | None, bool]:
    """Results by mode, also of a run that ended early; why it could not go on; and whether it was interrupted."""
    from penstock.probes.aws.access import Access
    from penstock.probes.aws.queues import open_message_queues
    from penstock.probes.outside import MessageQueues, RequestError
    from penstock.probes.probe import NoJournal
    from penstock.probes.sqs.queue_application import QueueApplicationProbe
    from penstock.vocabulary import Inconclusive

    results: dict[str, Course] = {}

    async def measure_all(queues: MessageQueues) -> str | None:
        for mode in modes:
            probe = QueueApplicationProbe(
                queues,
                SystemClock(),
                NoJournal(),
                queue_prefix=given["queue_prefix"],
                tell=lambda sample, mode=mode: _tell(mode, sample),  # type: ignore[misc]
            )
            try:
                outcome = await probe.run(_plan(mode, given))
            finally:
                if probe.course is not None and probe.course.tally.duration_seconds > 0:
                    results[mode] = probe.course
            if isinstance(outcome, Inconclusive):
                return outcome.reason
        return None

    access = Access(
        region=given["region"] or _LOCAL_REGION, endpoint_url=given["endpoint_url"], profile=given["profile"]
    )
    try:
        async with open_message_queues(access) as queues:
            try:
                return results, await until_signalled(measure_all(queues)), False
            except asyncio.CancelledError:
                return results, None, True
    except RequestError as trouble:
        return results, str(trouble), False


def _tell(mode: str, sample: Sample) -> None:
    counts = sample.counts
    click.echo(
        f"{sample.at_seconds:5.0f} s  {mode:15}  sent {counts.sent_count:5}  received {counts.received_count:5}"
        f"  duplicates {counts.duplicate_count:5}  deleted {counts.deleted_count:5}"
        f"  backlog {sample.undeleted_count:6}  oldest {format_seconds(sample.oldest_undeleted_seconds):>8}"
        f"  latency {format_seconds(counts.latency_seconds_mean):>8}",
        err=True,
    )


def _show(document: Mapping[str, Any]) -> None:
    headings = (
        "",
        "goodput",
        "at the end",
        "latency",
        "p99",
        "duplicates",
        "at the end",
        "oldest",
        "overdue after",
    )
    rows = [
        (
            result["mode"],
            f"{result['goodput_messages_per_second']:.1f}/s",
            _last(result["last_goodput_messages_per_second"]),
            text("_seconds", result["latency_seconds_mean"]),
            text("_seconds", result["latency_seconds_p99"]),
            text("", result["duplicate_count"]),
            _last(result["last_duplicates_per_second"]),
            text("_seconds", result["oldest_undeleted_seconds_max"]),
            "never" if (after := result["collapsed_after_seconds"]) is None else format_seconds(after),
        )
        for result in document["results"]
    ]
    if not rows:
        click.echo("Nothing was measured.")
        return
    timeout = format_seconds(document["visibility_timeout_seconds"])
    print_table(headings, rows, title=f"Messages deleted for good, with a visibility timeout of {timeout}")
    for result in document["results"]:
        if result["mode"] == _RESCUED:
            click.echo(f"\n{_rescue_sentence(result)}")
    requests = sum(result["request_count"] for result in document["results"])
    usd = sum(result["usd"] for result in document["results"])
    click.echo(
        f"\n{requests:,} requests; at AWS's list price ${usd:.4f}. The end is the last quarter of each run. "
        "Overdue: the oldest undeleted message was as old as the visibility timeout."
    )


def _last(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}/s"


def _rescue_sentence(result: Mapping[str, Any]) -> str:
    if result["rescued_at_seconds"] is None:
        return (
            "It did not stay collapsed long enough to be rescued: allow more --seconds, or slow deletes down."
        )
    rescued = f"Rescued after {format_seconds(result['rescued_at_seconds'])}"
    if result["recovered_after_seconds"] is None:
        return f"{rescued}, and had not recovered at the end: allow more --seconds, or send less with --rate."
    return f"{rescued}, recovered {format_seconds(result['recovered_after_seconds'])} later."
