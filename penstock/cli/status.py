"""Knows `penstock status` and `penstock wait`: what the daemon does, and when it has measured advice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from penstock.cli.daemon import call, socket_option
from penstock.cli.examples import examples
from penstock.cli.output import NARROW, filled, json_option, print_detail, print_json, print_mapping
from penstock.cli.quantities import SECONDS
from penstock.cli.trouble import NoDaemonError, NotReadyError, TroubleError
from penstock.operations.table import OPERATIONS
from penstock.report.wording import age_words
from penstock.units import format_bytes, format_seconds

_CYCLE_COUNT_SHOWN = 5
_VERDICT_COUNT_SHOWN = 2 * len(OPERATIONS) + 2  # two sizes of each operation, and two more
_LEASE_COUNT_SHOWN = 10
_PAUSE_SECONDS = 0.5
_ANSWER_SECONDS_MIN = 1.0  # on a busy host an answer takes a while, however short the --timeout
_ANSWER_SECONDS_MAX = 10.0


@click.command(epilog=examples("penstock status", "penstock status --json | jq .spent_per_day"))
@json_option
@socket_option
def status(*, as_json: bool, socket_path: str) -> None:
    """Show what the daemon does, knows and has spent."""
    document = call(socket_path, "GET", "/v1/status")
    if as_json:
        print_json(document)
        return
    for remark in _remarks(document):
        click.secho(filled(remark), bold=True)
    contexts = document["contexts"]
    for context in contexts[:_VERDICT_COUNT_SHOWN]:
        click.echo(filled(_verdict(context)))
    if (more := len(contexts) - _VERDICT_COUNT_SHOWN) > 0:
        click.echo(filled(f"... and {more} more of what is measured: see them with --json"))
    print_mapping(_in_short(document, datetime.now(UTC)), width=NARROW)
    cycles = document.get("cycles", [])[-_CYCLE_COUNT_SHOWN:]
    for index, cycle in enumerate(cycles):
        click.echo("\n" * (index == 0) + filled(f"{cycle['at'][11:16]} {cycle['sentence']}"))


def _remarks(document: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong, one sentence each."""
    for trouble in document.get("troubles", []):
        since = f" (since {trouble['since_at'][:16].replace('T', ' ')} UTC)" if trouble["since_at"] else ""
        yield f"trouble with {trouble['subject']}{since}: {trouble['sentence']}"
    if remark := document.get("leftover_remark"):
        yield f"{remark}. See `penstock leftovers list`."
    if ends_at := document["host"].get("quiet_until"):
        yield f"no probe begins before {ends_at[:16].replace('T', ' ')} UTC: these are quiet hours"
    if remark := document.get("cost_remark"):
        yield remark
    for queue in document.get("queues", []):
        if queue["alarm"] not in {"calm", "unknown"}:
            yield f"queue {queue['name']}: {queue['explanation']}"


def _verdict(context: Mapping[str, Any]) -> str:
    """``s3_upload of 64 MiB in eu-west-1: Set 29 threads x 8.8 MiB: 2.3 times boto3's defaults ...``."""
    size = format_bytes(context["payload_size_bytes"])
    return f"{context['operation']} of {size} in {context['region']}: {context['verdict']}"


def _in_short(document: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The document for people: without what sentences already told, and with dates as ages."""
    told = {"trouble", "troubles", "leftover_remark", "cost_remark", "cycles"}
    shown: dict[str, Any] = {}
    for name, value in document.items():
        if name == "spent_per_day" or name in told:
            continue
        if name in _SECTIONS:
            shown |= _SECTIONS[name](document, now)
        elif name == "next_probe_due_at" and value is not None:
            shown["next_probe_due"] = "now" if _until(value, now) is None else _aged(name, value, now)
        else:
            shown[name.removesuffix("_at")] = _aged(name, value, now)
    return shown


def _aged(name: str, value: Any, now: datetime) -> Any:
    """A date as an age; any other value unchanged."""
    is_date = isinstance(value, str) and name.endswith("_at")
    return age_words(datetime.fromisoformat(value), now) if is_date else value


def _until(value: str | None, now: datetime) -> float | None:
    """Seconds left until then; None if it has passed."""
    left = 0.0 if value is None else (datetime.fromisoformat(value) - now).total_seconds()
    return left if left > 0 else None


def _spending(document: Mapping[str, Any], _now: datetime) -> dict[str, Any]:
    spent = document["spent_per_day"]
    rows = {
        name: {"spent": spent.get(name), "budget": limit}
        for name, limit in document["budget_per_day"].items()
    }
    return {"in the last 24 hours, by clock hours": rows}


def _costs(document: Mapping[str, Any], _now: datetime) -> dict[str, Any]:
    rows = [
        {
            "operation": operation,
            "spent_usd": cost["spent"]["usd"],
            "budget_usd": cost.get("usd_per_day"),
            "typically_usd": cost["day"]["typically"]["usd"] if "day" in cost else None,
            "moved_bytes": cost["spent"]["transferred_bytes"],
            "requests": cost["spent"]["request_count"],
            "by": cost.get("network_path", "") + (" and KMS" if cost.get("key_request_count") else "")
            or None,
        }
        for operation, cost in (*document["costs"].items(), *_fleet_costs(document))
        if "day" in cost or cost["spent"]["request_count"] > 0
    ]
    return {"what each operation costs in 24 hours": rows} if rows else {}


def _fleet_costs(document: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What the fleet spent, beyond all operations, so that the rows add up to the total."""
    total, parts = document["spent_per_day"], [cost["spent"] for cost in document["costs"].values()]
    rest = {
        name: total[name] - sum(part[name] for part in parts)
        for name in ("usd", "transferred_bytes", "request_count")
    }
    return [] if document["fleet"] is None else [("fleet", {"spent": rest})]


def _contexts(document: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    return {
        "what is measured": [
            {
                "operation": context["operation"],
                "region": context["region"],
                "size_bytes": context["payload_size_bytes"],
                "probes": context["observation_count"],
                "reports": context["fresh_report_count"],
                "last": _aged("_at", context["last_attempt_at"], now),
                "waits_seconds": _until(context["postponed_until"], now),
            }
            for context in document["contexts"]
        ]
    }


def _host(document: Mapping[str, Any], _now: datetime) -> dict[str, Any]:
    host = document["host"]
    rows = {
        name: {"now_fraction": host[f"others_{name}_fraction"], "probes_wait_from_fraction": host[limit]}
        for name, limit in (("cpu", "host_cpu_fraction_max"), ("network", "host_network_fraction_max"))
    }
    return {"others on this host": rows}


def _harm(document: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Empty if no application was heard beside a probe."""
    harm = document["harm"]
    if harm["last"] is None:
        return {}
    cost = harm["last"]["latency_increase_seconds"]
    return {
        "applications beside the last probe": {
            "ended": _aged("_at", harm["last"]["ended_at"], now),
            "attempts": harm["last"]["attempt_count"],
            "longer_by_seconds": cost["expected"],
            "at_least_seconds": cost["low"],
            "probes_broken_off_in_a_day": harm["broken_off_count"],
        }
    }


def _leases(document: Mapping[str, Any], _now: datetime) -> dict[str, Any]:
    leases = document["leases"]
    resources = any(lease["resource"] for lease in leases)  # leases of different resources share nothing
    rows = [
        {
            "operation": lease["operation"],
            **({"of": lease["resource"]} if resources else {}),
            "size_bytes": lease["payload_size_bytes"],
            "part_fraction": lease["host_fraction"],
            "share": OPERATIONS[lease["operation"]].words.setting(
                lease["setting"], lease["payload_size_bytes"]
            ),
            "client": lease["client"],
            "process": str(lease["process_id"]),
            "uid": str(lease["uid"]),
        }
        for lease in leases[:_LEASE_COUNT_SHOWN]
    ]
    return {"lease_count": len(leases)} | ({"leases": rows} if rows else {})


def _queues(document: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    names = ("name", "region", "alarm", "visible_message_count", "not_visible_message_count")
    return {
        "queues": [
            {
                **{name.removesuffix("_message_count"): queue[name] for name in names},
                "oldest_undeleted_seconds": queue["oldest_undeleted_seconds"],
                "seen": _aged("_at", queue["seen_at"], now),
            }
            for queue in document["queues"]
        ]
    }


def _fleet(document: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    fleet = document["fleet"]
    if fleet is None:
        return {}
    rows = [
        {
            "operation": place["operation"],
            "region": place["region"],
            "hosts": place["host_count"],
            "probes": place["observation_count"],
            "newest": _aged("_at", place["newest_observation_at"], now),
            "dropped": place["dropped"],
        }
        for place in fleet["places"]
    ]
    return {"fleet": fleet["sentence"]} | ({"what the fleet measured": rows} if rows else {})


def _shared_limits(document: Mapping[str, Any], _now: datetime) -> dict[str, Any]:
    limits = document["shared_limits"]
    rows = [{"limit": one["limit"], "part": one["sentence"], "trouble": one["trouble"]} for one in limits]
    return {"shared limits": rows} if rows else {}


_SECTIONS: Mapping[str, Callable[[Mapping[str, Any], datetime], dict[str, Any]]] = {
    "budget_per_day": _spending,
    "contexts": _contexts,
    "costs": _costs,
    "fleet": _fleet,
    "harm": _harm,
    "host": _host,
    "leases": _leases,
    "queues": _queues,
    "shared_limits": _shared_limits,
}
"""Sections that are shown in another form than the socket's, to fit a terminal."""


@click.command(
    epilog=examples(
        "penstock wait --timeout 5m && ./nightly-backup",
        "penstock wait --timeout 0s --max-age 1h           only look",
    )
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=SECONDS,
    default="5m",
    show_default=True,
    help="Give up after this time.",
)
@click.option(
    "--max-age", "age_seconds_max", type=SECONDS, help="Ignore advice that rests on older measurements."
)
@json_option
@socket_option
def wait(*, timeout_seconds: float, age_seconds_max: float | None, as_json: bool, socket_path: str) -> None:
    """Wait until there is advice from measurements for every operation that is probed.

    Ends with 0 when there is, with 4 when the time is over, with 3 when no daemon answered in all that time.
    """
    parameters = {} if age_seconds_max is None else {"max_age_seconds": str(age_seconds_max)}
    deadline = time.monotonic() + timeout_seconds
    told = ""
    while True:
        try:
            document = call(
                socket_path, "GET", "/v1/ready", parameters=parameters, timeout_seconds=_patience(deadline)
            )
            break
        except (NoDaemonError, NotReadyError) as trouble:
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0:
                raise _given_up(trouble, told, timeout_seconds) from trouble
            if trouble.message != told:
                told = trouble.message
                click.echo(f"waiting: {told}", err=True)
            time.sleep(min(_PAUSE_SECONDS, left_seconds))
    print_detail(document, as_json=as_json)


def _patience(deadline: float) -> float:
    """The timeout for one answer, so that a hung daemon does not prolong the wait."""
    return min(_ANSWER_SECONDS_MAX, max(_ANSWER_SECONDS_MIN, deadline - time.monotonic()))


def _given_up(trouble: TroubleError, told: str, timeout_seconds: float) -> TroubleError:
    """The trouble that outlasted the wait; in brief, if its message was printed already."""
    if trouble.message != told:
        return trouble
    return type(trouble)(f"that has not changed in {format_seconds(timeout_seconds)}")
