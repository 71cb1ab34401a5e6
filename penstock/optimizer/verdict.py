"""Knows the one-sentence summary of advice that the report, the daemon and the commands share.

It is made from plain values, so that the daemon's JSON is enough to write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from penstock.units import counted, ends, format_seconds, number
from penstock.vocabulary import Basis, Estimate

LIMITS = {
    "connections": "the throughput of one connection is the limit",
    "host-ceiling": "a ceiling on the path is the limit",
    "request-rate": "the service's request rate is the limit",
    "client-cpu": "the client's processor is the limit",
    "message-groups": "the message groups are the limit",
    "work": "the consumer's work is the limit",
    "memory": "memory is the limit",
    "disk": "the disk is the limit",
    "demand": "it carries what was asked for",
}
HELP: Mapping[str, str] = {
    "connections": "more connections, or a shorter network path",
    "host-ceiling": "a host with a faster network, if that is the ceiling",
    "client-cpu": "more processes, or a faster processor",
    "message-groups": "more message groups",
    "work": "less work per message, or more receivers",
    "memory": "more memory for buffers",
    "disk": "a faster disk",
}
"""What would help beyond the advice, by bottleneck; for the request rate, the operation's own words say it."""
CHANGE_SUSPECTED = "may have changed, which the next measurement will show"
ALIKE_WITHIN = 0.02  # ratios this close to 1 do not count as a gain


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What there is to say about one place and size. Fields that are None or empty are not mentioned."""

    setting_words: str  # in short, as the operation's row writes it
    basis: str
    bottleneck: str = "unknown"
    gains: Mapping[str, Estimate] = field(default_factory=dict)  # by client, over its own default
    changed_at: datetime | None = None
    changed_fraction: float | None = None  # of the value: -0.43 is 43 % less
    notes: tuple[str, ...] = ()  # what else happened, each a clause
    usd: float | None = None
    usd_period_seconds: float | None = None
    expired_at: datetime | None = None


def sentence(verdict: Verdict) -> str:
    """Such as ``Set 29 x 8.8 MiB: 2.3 times boto3's defaults (2.1 to 2.5); a ceiling on the path is the limit.``."""
    if verdict.basis == Basis.DEFAULT:
        known = "Nothing is known yet: boto3's defaults are advised until something is measured"
        return "; ".join([known, *verdict.notes]) + "."
    clauses = [_worth(verdict)]
    if verdict.bottleneck in LIMITS:
        clauses.append(LIMITS[verdict.bottleneck])
    if verdict.changed_at is not None:
        clauses.append(_changed(verdict.changed_at, verdict.changed_fraction))
    clauses += verdict.notes
    if verdict.usd is not None:
        clauses.append(_cost(verdict.usd, verdict.usd_period_seconds))
    if verdict.expired_at is not None:
        clauses.append(f"out of date since {day_words(verdict.expired_at)}")
    return "; ".join(clauses) + "."


def _worth(verdict: Verdict) -> str:
    """What to set, and its gain over the first client's default and over that of the client that gains most."""
    guess = {
        Basis.PRIOR: " (from tables, not measured here)",
        Basis.REPORTED: " (as applications reported it)",
    }
    setting = verdict.setting_words + guess.get(Basis(verdict.basis), "")
    if not verdict.gains:
        return f"Set {setting}"
    first = next(iter(verdict.gains))
    most = max(verdict.gains, key=lambda client: verdict.gains[client].expected)
    over = verdict.gains[first]
    span = ends(number(over.low), number(over.high))
    if abs(over.expected - 1.0) <= ALIKE_WITHIN:
        words = f"Set {setting}: as fast as {first}'s defaults{span}"
    elif over.low <= 1.0 <= over.high and verdict.basis == Basis.PRIOR:
        guessed = f"Nothing was measured here yet: tables suggest {verdict.setting_words}"
        words = f"{guessed}, not known to do better than {first}'s defaults{span}"
    elif over.low <= 1.0 <= over.high:
        words = f"Set {setting}: not known to do better than {first}'s defaults{span}"
    else:
        words = f"Set {setting}: {number(over.expected)} times {first}'s defaults{span}"
    top = verdict.gains[most]
    if most != first and top.low > 1.0 and top.expected > over.expected * (1.0 + ALIKE_WITHIN):
        words += f", {number(top.expected)} times {most}'s"
    return words


def _changed(at: datetime, fraction: float | None) -> str:
    size = "" if fraction is None else f", {signed_percent(fraction)}"
    return f"changed on {day_words(at)}{size}"


def _cost(usd: float, period_seconds: float | None) -> str:
    amount = f"${usd:.2f}" if usd >= 0.01 else "less than a cent" if usd else "nothing"
    return f"cost {amount}" + (f" in {period_words(period_seconds)}" if period_seconds else "")


def period_words(seconds: float) -> str:
    """``3 clock hours``, because costs are booked by the hour of the clock; from two days on ``2 d``."""
    hour_count = round(seconds / 3600.0)
    return counted(hour_count, "clock hour") if hour_count < 48 else format_seconds(seconds)


def day_words(moment: datetime) -> str:
    """``9 January``."""
    return f"{moment.day} {moment:%B}"


def signed_percent(fraction: float) -> str:
    """``-43 %``, ``+8 %``; a loss of nearly everything is not rounded to all: ``-99.97 %``."""
    is_nearly_all = -1.0 < fraction < -0.995
    return f"{100 * fraction:+.{2 if is_nearly_all else 0}f} %"
