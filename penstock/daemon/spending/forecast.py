"""Knows what probing will cost as configured, per day and per month, at most and typically, and what limits it.

"At most" is what the budgets allow. "Typically" is the cost of probes that try the advised settings, outside quiet
hours, as often as the intervals say once nothing is new, or as often as the tightest budget pays for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from penstock.daemon import quiet_hours
from penstock.daemon.config import Configuration
from penstock.daemon.schedule import STEADY_PACE
from penstock.daemon.spending import costs
from penstock.daemon.spending.budget import DAY, KEYS, daily_limit, left
from penstock.daemon.spending.rationing import EVENLY, divide, fraction
from penstock.daemon.spending.tariffs import Tariffs, Way
from penstock.models.model import Fit, HasCostAhead
from penstock.operations.operation import Operation
from penstock.operations.sections.section import Section
from penstock.units import money, number
from penstock.vocabulary import Context, Cost, Setting, Tariff

MONTH_DAYS = 30
_BUDGETS = {name: KEYS[name] for name in ("usd", "transferred_bytes", "request_count")}
# An operation may limit these for each of its probes.
_COUNTED = ("transferred_bytes", "request_count")
_AMPLE = 1 << 60  # more bytes or requests than any probe takes

Advised = Callable[[Context], tuple[Fit, Setting] | None]
"""The fit of a place and the setting advised there; None while nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What one operation costs in 24 hours."""

    operation: str
    way: Way
    at_most: Cost
    typically: Cost
    probe_count_wanted: float  # as the intervals say
    probe_count: float  # as the budgets pay for
    bound_by: str | None  # the key of the budget that allows fewer than the intervals ask for
    key_request_count: float  # requests to AWS KMS for each request that writes or reads

    @property
    def sentence(self) -> str:
        """What a day costs, or which budget binds."""
        usd = f"{money(self.at_most.usd)} a day at most, {money(self.typically.usd)} typically"
        return scarcity([self]) or f"{self.operation}: {usd}; {_ways([self])}"

    @property
    def warning(self) -> str | None:
        """What to do where the budget pays for no probe at all; else None."""
        if self.probe_count or self.bound_by is None:
            return None
        stating = f"state probes.{self.operation}.network_path, or " if self.way.is_assumed else ""
        return f"budgets pay for no probe of {self.operation}, so nothing is measured: {stating}raise {self.bound_by}"

    def document(self) -> dict[str, Any]:
        return {
            "network_path": self.way.path.value,
            "network_path_reason": self.way.reason,
            "key_request_count": self.key_request_count,
            **by_period(self.at_most, self.typically),
            "probe_count_per_day": self.probe_count,
            "probe_count_per_day_by_intervals": self.probe_count_wanted,
            "bound_by": self.bound_by,
            "remark": scarcity([self]),
        }


def by_period(at_most: Cost, typically: Cost) -> dict[str, dict[str, dict[str, float]]]:
    """Costs of 24 hours as they are shown: per day and per month."""
    costs = {"at_most": at_most, "typically": typically}
    return {
        period: {manner: shown_cost(cost * days) for manner, cost in costs.items()}
        for period, days in (("day", 1), ("month", MONTH_DAYS))
    }


def together(found: Sequence[Forecast], limit: Cost) -> tuple[Cost, Cost]:
    """What all operations cost in 24 hours, at most and typically; "at most" is bounded by the limit they share."""
    most = sum((forecast.at_most for forecast in found), Cost())
    most = Cost(**{name: min(getattr(most, name), getattr(limit, name)) for name in _BUDGETS})
    return most, sum((forecast.typically for forecast in found), Cost())


def scarcity(found: Iterable[Forecast]) -> str | None:
    """One sentence about operations for which budgets allow fewer probes than intervals ask for; None without any."""
    bound, each = [], []
    for forecast in found:
        counts = (forecast.probe_count, forecast.probe_count_wanted)
        paid, wanted = (number(float(f"{count:.2g}")) for count in counts)
        if forecast.bound_by is not None and paid != wanted:
            bound.append(forecast)
            each.append(f"{forecast.operation} about {paid} of {wanted} ({forecast.bound_by})")
    if not bound:
        return None
    return f"budgets pay for fewer probes a day than the intervals ask for: {', '.join(each)}; {_ways(bound)}"


def _ways(found: Iterable[Forecast]) -> str:
    ways = dict.fromkeys(f"{forecast.way.path} ({forecast.way.reason})" for forecast in found)
    return f"bytes go through {' and '.join(ways)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What an operation would cost in 24 hours if only its intervals limited it."""

    probe_count: float
    unpaid_count: float  # probes of sizes for which the limits do not allow even the gentlest probe
    unpaid_by: str  # the key of that limit
    cost: Cost


def forecasts(
    configuration: Configuration, tariffs: Tariffs, advised: Advised, now: datetime
) -> Sequence[Forecast]:
    """The forecast of each probed operation; empty while nothing is known of one of them."""
    awake = 1.0 - quiet_hours.quiet_fraction(map(quiet_hours.parse, configuration.probes.quiet_hours), now)
    everything = daily_limit(configuration.budget)
    limit, own_usd = left(everything, tariffs.standing_cost()), tariffs.probing_usd_limits()
    wishes: dict[str, _Wish] = {}
    for row, section in configuration.enabled():
        within = dataclasses.replace(limit, usd=min(limit.usd, own_usd[row.name]))
        wish = _wish(row, section, tariffs, within, advised, awake_fraction=awake)
        if wish is None:
            return ()
        wishes[row.name] = wish
    own = {name: fraction(EVENLY * own_usd[name], wish.cost.usd) for name, wish in wishes.items()}
    evenly = {name: EVENLY * getattr(limit, name) for name in _BUDGETS}
    shares = divide({name: wish.cost * own[name] for name, wish in wishes.items()}, evenly)
    return [
        _forecast(
            row,
            section,
            tariffs,
            wishes[row.name],
            part=own[row.name] * shares[row.name][0],
            bound_by=_binding(row.name, wishes[row.name], own[row.name], *shares[row.name]),
            limit=everything,
        )
        for row, section in configuration.enabled()
    ]


def _forecast(
    row: Operation[Any, Any],
    section: Section,
    tariffs: Tariffs,
    wish: _Wish,
    *,
    part: float,
    bound_by: str | None,
    limit: Cost,
) -> Forecast:
    standing = sum((cost for name, cost in tariffs.standing_costs() if name == row.name), Cost())
    paid = [tariffs.of(row, region) for region in tariffs.regions(section)]
    at_most = _at_most(section, paid, limit)
    if wish.probe_count and not wish.cost.transferred_bytes:  # its bytes do not pass the host
        at_most = dataclasses.replace(at_most, transferred_bytes=0)
    return Forecast(
        operation=row.name,
        way=tariffs.ways[row.name],
        at_most=at_most,
        typically=wish.cost * part + standing,
        probe_count_wanted=wish.probe_count + wish.unpaid_count,
        probe_count=wish.probe_count * part,
        bound_by=bound_by,
        key_request_count=max(tariff.key_request_count for tariff in paid),
    )


def _binding(operation: str, wish: _Wish, own: float, common: float, scarce: str) -> str | None:
    """The key of the budget that grants the smallest part of what is wanted; None if all is granted."""
    if common < 1.0:
        return scarce
    if own < 1.0:
        return f"probes.{operation}.usd_per_day"
    return wish.unpaid_by if wish.unpaid_count else None


def _wish(
    row: Operation[Any, Any],
    section: Section,
    tariffs: Tariffs,
    limit: Cost,
    advised: Advised,
    *,
    awake_fraction: float,
) -> _Wish | None:
    """Probes of each size in each region as often as the interval says; None while nothing is known of a place."""
    count_each = awake_fraction * DAY.total_seconds() / (section.mean_interval_seconds * STEADY_PACE)
    count, unpaid_count, unpaid_by, total = 0.0, 0.0, "", Cost()
    for region in tariffs.regions(section):
        tariff = tariffs.of(row, region)
        most = costs.smaller(section.cost_max(tariff), limit)
        for size in section.payload_size_bytes:
            context = Context(place=tariffs.place(row, region), payload_size_bytes=size)
            known = advised(context)
            if known is None:
                return None
            ahead = _cost_ahead(row, section, context, tariff)
            cost = _probe_cost(row, context, tariff, most, known, ahead)
            if cost is None:
                unpaid_count += count_each
                affordable = partial(_probe_cost, row, context, tariff, known=known, ahead=ahead)
                unpaid_by = _unpaid_by(row, section.cost_max(tariff), limit, affordable)
            else:
                count, total = count + count_each, total + cost * count_each
    return _Wish(probe_count=count, unpaid_count=unpaid_count, unpaid_by=unpaid_by, cost=total)


def _unpaid_by(
    row: Operation[Any, Any], own: Cost, limit: Cost, probe_cost: Callable[[Cost], Cost | None]
) -> str:
    """The key of the limit that forbids a probe: the operation's own, one of all operations, else that of dollars."""
    if probe_cost(limit) is not None:
        return f"probes.{row.name}.{next(field for field in _COUNTED if getattr(own, field))}_max"
    for field in _COUNTED:
        if probe_cost(dataclasses.replace(limit, **{field: _AMPLE})) is not None:
            return _BUDGETS[field]
    return f"probes.{row.name}.usd_per_day"


def _cost_ahead(row: Operation[Any, Any], section: Section, context: Context, tariff: Tariff) -> Cost:
    """What the first probe of a context costs in addition, such as to put the object that is read."""
    if isinstance(row.model, HasCostAhead) and section.puts_what_it_needs:
        return row.model.cost_ahead(context, tariff)
    return Cost()


def _probe_cost(  # noqa: PLR0917  # the cost depends on all of these
    row: Operation[Any, Any],
    context: Context,
    tariff: Tariff,
    most: Cost,
    known: tuple[Fit, Setting],
    ahead: Cost,
) -> Cost | None:
    """The cost of a probe of the advised setting, or of the largest affordable step of the ramp; None without any."""
    fit, setting = known
    steps = (row.model.legal(context, step) for step in reversed(row.model.ramp(context)))
    for cost in row.model.probe_costs(fit, context, [setting, *steps], tariff):
        if all(getattr(cost + ahead, name) <= getattr(most, name) for name in _BUDGETS):
            return cost
    return None


def _at_most(section: Section, tariffs: Sequence[Tariff], limit: Cost) -> Cost:
    """What the budgets allow; bytes and requests that have a price are also bounded by the dollars."""
    usd = min(section.usd_per_day, limit.usd)
    byte_usd = min(min(t.usd_per_sent_byte, t.usd_per_received_byte) for t in tariffs)
    request_usd = min(t.usd(free_request_count=1) for t in tariffs)
    return Cost(
        usd=usd,
        transferred_bytes=int(_paid(usd, byte_usd, limit.transferred_bytes)),
        request_count=int(_paid(usd, request_usd, limit.request_count)),
    )


def _paid(usd: float, usd_each: float, most: float) -> float:
    return min(most, usd / usd_each) if usd_each > 0 else most


def shown_cost(cost: Cost) -> dict[str, float]:
    """The fields of a cost that are shown: dollars, and what they pay for."""
    return {name: getattr(cost, name) for name in _BUDGETS} | {"usd": shown_usd(cost.usd)}


def shown_usd(usd: float) -> float:
    """Dollars rounded to 1e-9: smaller digits are rounding errors, as no request is that cheap."""
    return round(usd, 9)
