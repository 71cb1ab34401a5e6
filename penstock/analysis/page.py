"""Knows a fleet's page, made from small answers: what to use where, who is slow and why, what changed and cost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import Any

from penstock.analysis.schema import PLACE
from penstock.operations.table import OPERATIONS
from penstock.optimizer.verdict import LIMITS
from penstock.report.difference import welch
from penstock.report.figure import Table
from penstock.report.markdown import markdown_tables
from penstock.report.page import render_tables
from penstock.report.wording import gain_span, interval, percent, times_words
from penstock.units import counted, format_bytes, money, number
from penstock.vocabulary import Estimate

SLOW_FRACTION = 0.7  # of the median over the hosts of a place; slower hosts are named
PEER_COUNT_MIN = 3  # hosts; with fewer, none is called slow
HOST_OBSERVATION_COUNT_MIN = 8  # a host's first measurements use few threads, and say nothing about it
CHANGE_RATIO = 1.3
CHANGE_COUNT_MIN = 3  # measurements on each compared day
CHANGE_DAY_COUNT_MIN = 2  # on each side: a single day does not show how much days vary by chance
DAYS_COMPARED = 7
ROW_COUNT_MAX = 50  # of each table, the worst first
_FULL_CPU_FRACTION = 0.85
_REFUSED_FRACTION = 0.02
_SLOWER_RATIO = 1.4
_FITTED = ("value", "value_low", "value_high", "gain", "gain_low", "gain_high")

Row = Mapping[str, Any]
Page = dict[str, Any]


def page(answers: Mapping[str, Sequence[Row]], source: str) -> Page:
    """As JSON values; the same for the same answers, whichever engine gave them."""
    spent = list(map(dict, answers["spent"]))
    return {
        "source": source,
        "host_count": len({row["host"] for row in answers["hosts"]}),
        "observation_count": sum(row["observation_count"] for row in answers["places"]),
        "usd": round(sum(row["usd"] for row in spent), 6),
        "places": sorted(_places(answers["places"], answers["fits"]), key=lambda row: -(row["gain"] or 0.0)),
        "slow_hosts": sorted(_slow(answers["hosts"]), key=lambda row: row["fraction"])[:ROW_COUNT_MAX],
        "changes": sorted(_changes(answers["days"]), key=lambda row: -max(row["ratio"], 1 / row["ratio"]))[
            :ROW_COUNT_MAX
        ],
        "spent": spent,
    }


def _places(places: Iterable[Row], fits: Iterable[Row]) -> Iterator[dict[str, Any]]:
    fit_of = {_key(row): row for row in fits}
    for place in places:
        fit = fit_of.get(_key(place), {})
        yield {
            **{name: _digits(value) for name, value in place.items()},
            "payload_size_bytes": fit.get("payload_size_bytes"),
            "setting": json.loads(fit["setting"]) if fit else None,
            **{name: _digits(fit.get(name)) for name in _FITTED},
            "bottleneck": fit.get("bottleneck"),
        }


def _slow(hosts: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Hosts that are much slower than others of the same place with the same size, and what differs."""
    context = itemgetter(*PLACE, "payload_size_bytes")
    for _, group in groupby(sorted(hosts, key=context), key=context):
        peers = [row for row in group if row["observation_count"] >= HOST_OBSERVATION_COUNT_MIN]
        if not peers:
            continue
        usual = median(row["value"] for row in peers)
        if len(peers) < PEER_COUNT_MIN or usual <= 0:
            continue
        for row in peers:
            fraction = row["value"] / usual
            if fraction < SLOW_FRACTION:
                yield {
                    **{name: row[name] for name in (*PLACE, "payload_size_bytes", "host")},
                    "value": _digits(row["value"]),
                    "fraction": _digits(fraction),
                    "why": _why(row, peers),
                }


def _why(row: Row, peers: Sequence[Row]) -> str:
    refused, latency = (
        median(peer[name] for peer in peers) for name in ("refused_fraction", "latency_seconds")
    )
    if row["refused_fraction"] > max(_REFUSED_FRACTION, 2 * refused):
        return f"{percent(row['refused_fraction'])} of its requests are refused"
    if row["client_cpu_fraction"] > _FULL_CPU_FRACTION:
        return f"its probes keep a processor {percent(row['client_cpu_fraction'])} busy"
    if min(latency, row["latency_seconds"]) <= 0:
        return "not known: requests were not timed"
    longer = row["latency_seconds"] / latency
    told = f"its requests take {longer:.1f} times as long as others'"
    return told if longer > _SLOWER_RATIO else f"{told}: fewer are under way, or its network carries less"


def _changes(days: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """For each context, the day that divides its days best, if they differ across it by more than chance."""
    context = itemgetter(*PLACE, "payload_size_bytes")
    for _, group in groupby(sorted(days, key=lambda row: (*context(row), row["day"])), key=context):
        known = [row for row in group if row["observation_count"] >= CHANGE_COUNT_MIN and row["value"] > 0]
        dividing = range(CHANGE_DAY_COUNT_MIN, len(known) - CHANGE_DAY_COUNT_MIN + 1)
        if not dividing:
            continue
        values = [math.log(row["value"]) for row in known]
        at = min(dividing, key=lambda i: _scatter(values[:i]) + _scatter(values[i:]))
        after, before = values[at : at + DAYS_COMPARED], values[max(0, at - DAYS_COMPARED) : at]
        ratio, moved = math.exp(median(after) - median(before)), welch(after, before)
        row = known[at]
        is_certain = moved is not None and (moved.low > 0 or moved.high < 0)
        if is_certain and max(ratio, 1 / ratio) >= CHANGE_RATIO:
            named = {name: row[name] for name in (*PLACE, "payload_size_bytes", "day")}
            yield {**named, "ratio": _digits(ratio)}


def _scatter(values: Sequence[float]) -> float:
    """The sum of squares around their mean."""
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in PLACE)


def _digits(value: Any) -> Any:
    """A float rounded to nine digits: the last ones depend on the order of summation."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


# --- For people


def rendered(found: Page, form: str) -> str:
    """The page as `json`, `markdown` or `html`."""
    if form == "json":
        return json.dumps(found, indent=2, default=str) + "\n"
    lead = (
        f"{counted(found['observation_count'], 'observation')} of {counted(found['host_count'], 'host')} in "
        f"{found['source']}; "
        f"the probes in these files cost {money(found['usd'])}."
    )
    return (markdown_tables if form == "markdown" else render_tables)("The fleet", lead, list(_tables(found)))


def _tables(found: Page) -> Iterator[tuple[str, Table]]:
    for title, rows in _rows(found):
        yield title, Table(tuple(rows[0]) if rows else (), tuple(tuple(row.values()) for row in rows))


def _rows(found: Page) -> Iterator[tuple[str, list[dict[str, str]]]]:
    yield "What to use where", [_place_words(row) for row in found["places"]]
    yield (
        "Who is slow, and why",
        [
            {
                **_where(row),
                "host": row["host"],
                "of the median host": percent(row["fraction"]),
                "why": row["why"],
            }
            for row in found["slow_hosts"]
        ],
    )
    yield (
        "What changed, and where",
        [
            {**_where(row), "since": row["day"], "compared with before": percent(row["ratio"])}
            for row in found["changes"]
        ],
    )
    yield (
        "What it cost",
        [
            {
                "region": row["region"],
                "instance type": row["instance_type"],
                "operation": row["operation"],
                "hosts": str(row["host_count"]),
                "requests": f"{row['request_count']:,.0f}",
                "moved": format_bytes(int(row["transferred_bytes"])),
                "dollars": number(row["usd"]),
            }
            for row in found["spent"]
        ],
    )


def _where(row: Row) -> dict[str, str]:
    named = {
        "operation": str(row["operation"]),
        "region": str(row["region"]),
        "instance type": str(row["instance_type"]),
    }
    size = row.get("payload_size_bytes")
    return named | ({"size": format_bytes(size)} if size else {})


def _estimate(row: Row, name: str) -> Estimate:
    return Estimate(row[f"{name}_low"], row[name], row[f"{name}_high"])


def _place_words(row: Row) -> dict[str, str]:
    operation = OPERATIONS.get(row["operation"])
    advised, expected, gained = "-", "-", "-"
    if operation is not None and row["setting"] is not None:
        metric: str = operation.model.value_metric
        advised = operation.words.setting_in_full(row["setting"], row["payload_size_bytes"])
        expected = interval(metric, _estimate(row, "value"))
        if row["gain"] is not None:
            gain = _estimate(row, "gain")
            gained = f"{times_words(gain.expected)}{gain_span(gain)}"
    return {
        **_where(row),
        "hosts": str(row["host_count"]),
        "observations": f"{row['observation_count']:,}",
        "refused": percent(row["refused_fraction"]),
        "set": advised,
        "over the SDK's default": gained,
        "expects (90 %)": expected,
        "limit": LIMITS.get(row["bottleneck"], "not known"),
    }
