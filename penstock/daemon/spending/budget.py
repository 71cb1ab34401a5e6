"""Knows what probes may cost in any 24 hours, and refuses in advance every act that would exceed it.

The invariant: no 24 hours of the calendar contain more reserved cost than the limit, whatever the order of acts,
restarts and steps of the clock. Costs are kept by the hour in which the act was allowed, so a row counts until the last
act that may be in it is a day old: 25 hours from the row's beginning. When the clock steps back, rows lie in the
future. Nobody knows how long ago they were spent, so they count until the clock has passed them, or until the operator
says that the clock is right: then they count as spent at that moment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from penstock.daemon.config import BudgetSection
from penstock.units import format_bytes, format_seconds, money
from penstock.vocabulary import Cost, Spend

ROW_COUNT_MAX = 2000  # a month of two operations; a clock that steps there and back finds its rows again
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
BUSY_RETRY = timedelta(minutes=1)
KEYS = {  # the key of the configuration that limits each field of a cost
    "transferred_bytes": "budget.transferred_bytes_per_day",
    "request_count": "budget.request_count_per_day",
    "usd": "budget.usd_per_day",
    "credit_bytes": "budget.credit_fraction_per_day",
    "duration_seconds": "budget.duty_cycle_fraction",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an act is allowed: an empty sentence, or why not, and when to ask again (None: never, at this limit)."""

    sentence: str = ""
    retry_at: datetime | None = None

    @property
    def is_allowed(self) -> bool:
        return not self.sentence


ALLOWED = Verdict()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The limit of a day, and what was reserved or spent. Immutable: every act returns a new ledger."""

    limit: Cost
    spends: tuple[Spend, ...] = ()
    usd_limits: Mapping[str, float] = field(default_factory=dict)  # of single operations, within that of all

    def spent(self, now: datetime, operation: str | None = None) -> Cost:
        """The sum of what counts against the limit at this moment, of all operations or of one."""
        return total(self.counted(now, operation))

    def counted(self, now: datetime, operation: str | None = None) -> Sequence[Spend]:
        """The rows that count against the limit at this moment, of all operations or of one."""
        return [s for s in self.spends if now < leaves_at(s) and operation in {None, s.operation}]

    def ahead(self, now: datetime) -> Sequence[Spend]:
        """The rows of hours in the future, the latest last."""
        return [s for s in self.spends if s.hour_at > now and any(dataclasses.astuple(s.cost))]

    def believing(self, now: datetime) -> Self:
        """The ledger if the clock is right: rows of the future count as spent in this hour."""
        ahead = self.ahead(now)
        past = dataclasses.replace(self, spends=tuple(s for s in self.spends if s.hour_at <= now))
        for spend in ahead:
            past = past._with(dataclasses.replace(spend, hour_at=hour_of(now)), now)  # noqa: SLF001 - of its kind
        return past

    def affordable(self, operation: str, now: datetime) -> Cost:
        """What this operation may still spend now."""
        of_all = left(self.limit, self.spent(now))
        own_limit = self.own_limit(operation)
        own = left(own_limit, self.spent(now, operation))
        return dataclasses.replace(of_all, usd=min(of_all.usd, own.usd))

    def allows(self, operation: str, cost: Cost, now: datetime) -> Verdict:
        """Whether an act of at most this cost stays within the limit of all, and within the operation's own dollars."""
        shortage = self._shortage(operation, cost, now)
        if shortage is None:
            return ALLOWED
        retry_at = self._retry_at(operation, cost, now)
        return Verdict(shortage.sentence(cost, retry_at), retry_at)

    def reserve(self, operation: str, cost: Cost, now: datetime) -> tuple[Self, Spend]:
        """The ledger with the act in it, and the row that must be on disk before the act begins.

        Callers ask `allows` first, except for clean-up, which counts but is never forbidden.
        """
        spend = Spend(hour_at=hour_of(now), operation=operation, cost=cost)
        return self._with(spend, now), spend

    def settle(self, reserved: Spend, cost: Cost, now: datetime) -> tuple[Self, Spend]:
        """The ledger with the true cost instead of the reserved one, and the correction to add on disk."""
        correction = dataclasses.replace(reserved, cost=cost - reserved.cost)
        return self._with(correction, now), correction

    def _with(self, spend: Spend, now: datetime) -> Self:
        """The ledger with one more row, merged by hour and operation; of too many, those farthest from now go."""
        merged: dict[tuple[datetime, str], Spend] = {}
        for row in (*self.spends, spend):
            key = (row.hour_at, row.operation)
            merged[key] = dataclasses.replace(row, cost=merged[key].cost + row.cost) if key in merged else row
        nearest = sorted(merged.values(), key=lambda row: abs(row.hour_at - now))[:ROW_COUNT_MAX]
        return dataclasses.replace(self, spends=tuple(sorted(nearest, key=lambda row: row.hour_at)))

    def own_limit(self, operation: str) -> Cost:
        """The limit of all operations, with the dollars of this one."""
        return dataclasses.replace(self.limit, usd=self.usd_limits.get(operation, self.limit.usd))

    def _shortage(self, operation: str, cost: Cost, now: datetime) -> _Shortage | None:
        """The first limit that the cost would exceed, of all operations, then of this one; None if it fits."""
        bounds = (
            (KEYS, self.limit, self.spent(now)),
            (
                {"usd": f"probes.{operation}.usd_per_day"},
                self.own_limit(operation),
                self.spent(now, operation),
            ),
        )
        for keys, limit, spent in bounds:
            name = _short(spent, cost, limit, keys)
            if name is not None:
                return _Shortage(
                    name=name,
                    key=keys[name],
                    limit=getattr(limit, name),
                    left=getattr(left(limit, spent), name),
                )
        return None

    def _retry_at(self, operation: str, cost: Cost, now: datetime) -> datetime | None:
        """The first moment at which enough rows have aged out; None if the cost never fits."""
        moments = sorted(map(leaves_at, self.spends))
        fits = (at for at in moments if at > now and self._shortage(operation, cost, at) is None)
        return next(fits, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shortage:
    """A limit that a cost would exceed."""

    name: str  # the field of the cost
    key: str  # the key of the configuration that sets the limit
    limit: float
    left: float

    def sentence(self, cost: Cost, retry_at: datetime | None) -> str:
        need, limit = (_shown(self.name, amount) for amount in (getattr(cost, self.name), self.limit))
        if retry_at is None:
            return f"one probe may need {need}, but {self.key} allows only {limit} in 24 hours: raise it"
        left, again = _shown(self.name, self.left), f"{retry_at:%Y-%m-%d %H:%M} UTC"
        return f"a probe may need {need}; of {limit} in 24 hours ({self.key}) {left} are left until {again}"


def daily_limit(section: BudgetSection, *, credit_bytes_per_day: float = 0.0) -> Cost:
    """The configured limit; `credit_bytes_per_day` are the host's burst credits, of which a fraction may be spent."""
    return Cost(
        transferred_bytes=section.transferred_bytes_per_day,
        request_count=section.request_count_per_day,
        usd=section.usd_per_day,
        credit_bytes=int(section.credit_fraction_per_day * credit_bytes_per_day),
        duration_seconds=section.duty_cycle_fraction * DAY.total_seconds(),
    )


def host_verdict(
    cpu_fraction: float, network_fraction: float | None, section: BudgetSection, now: datetime
) -> Verdict:
    """Whether the host has room for a probe beside its own work.

    `network_fraction` is None where the capacity of the network is unknown; then it forbids nothing.
    """
    for what, fraction, key in (
        ("processors", cpu_fraction, "host_cpu_fraction_max"),
        ("network", network_fraction or 0.0, "host_network_fraction_max"),
    ):
        most = getattr(section, key)
        if fraction > most:
            sentence = f"the host's own work keeps its {what} {fraction:.0%} busy, more than budget.{key} = {most:.0%}"
            return Verdict(sentence, now + BUSY_RETRY)
    return ALLOWED


def total(spends: Iterable[Spend]) -> Cost:
    """The sum of all rows."""
    return sum((spend.cost for spend in spends), Cost())


def _short(spent: Cost, cost: Cost, limit: Cost, names: Iterable[str]) -> str | None:
    """The first field in which the limit would be exceeded, among those of which the act takes anything."""
    wanted = spent + cost
    return next(
        (name for name in names if getattr(cost, name) > 0 and getattr(wanted, name) > getattr(limit, name)),
        None,
    )


def left(limit: Cost, spent: Cost) -> Cost:
    """What is left of the limit, field by field; never negative."""
    return Cost(**{name: max(0, getattr(limit, name) - getattr(spent, name)) for name in KEYS})


def leaves_at(spend: Spend) -> datetime:
    """The moment from which the row counts no more."""
    return spend.hour_at + DAY + HOUR


def hour_of(now: datetime) -> datetime:
    """The beginning of the hour."""
    return now.replace(minute=0, second=0, microsecond=0)


def _shown(name: str, amount: float) -> str:
    if name.endswith("_bytes"):
        return format_bytes(amount) + (" of burst credit" if name == "credit_bytes" else "")
    if name == "duration_seconds":
        return format_seconds(amount) + " of probing"
    return money(amount) if name == "usd" else f"{amount:,.0f} requests"
