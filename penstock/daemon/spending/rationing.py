"""Knows how probes are rationed where a budget binds, so that the budget of 24 hours lasts for 24 hours.

Let S(t) be the part of today's spending that still counts at a moment t of the next day; it falls as spending ages.
The fastest even rate that never spends much more than three quarters of a limit is

    rate = min over t of (3/4 limit - S(t) + one probe) / (t - now),

with one probe more because n probes divide a day into n + 1 gaps. Where all probes together would cost more, their gaps
are stretched in proportion; an operation that takes less than its equal part of a scarce budget is not stretched.
Contexts that are new, or may have changed, are not stretched as long as a quarter of the limit per day remains for all
others: so half of the limit is available for a beginning or for an unsteady day.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.daemon.spending.budget import DAY, HOUR, KEYS, Ledger, leaves_at
from penstock.vocabulary import Cost, Spend

EVENLY = 0.75  # fraction of a limit that is spent in a day where the intervals ask for more
_KEPT = 0.25  # of a limit: urgent probes are not stretched while this can still be spent evenly in a day
_STRETCH_MAX = 500.0  # where nothing is left; gaps are worked out again when something is


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What a context would spend without rationing."""

    operation: str
    cost: Cost  # of one probe
    gap_seconds: float  # between two, on average


@dataclass(frozen=True, slots=True)
class Stretch:
    """The factor by which the gaps between an operation's probes are stretched; at least 1."""

    usual: float = 1.0
    hurried: float = 1.0  # for contexts that are new, or may have changed


def stretches(ledger: Ledger, wants: Sequence[Want], now: datetime) -> Mapping[str, Stretch]:
    """The stretch of each operation that wants something."""
    wanted: dict[str, Cost] = {}
    for want in wants:
        daily = want.cost * (DAY.total_seconds() / want.gap_seconds)
        wanted[want.operation] = wanted.get(want.operation, Cost()) + daily
    one = {name: max((getattr(want.cost, name) for want in wants), default=0) for name in KEYS}
    left = _lasting(ledger.counted(now), ledger.limit, one, now)
    own_usd = {
        name: _lasting(ledger.counted(now, name), ledger.own_limit(name), {"usd": one["usd"]}, now)["usd"]
        for name in wanted
    }
    parts = {name: fraction(own_usd[name], cost.usd) for name, cost in wanted.items()}
    shared = divide({name: cost * parts[name] for name, cost in wanted.items()}, left)
    is_ample = all(amount >= _KEPT * getattr(ledger.limit, name) for name, amount in left.items())
    found = {}
    for name, own_part in parts.items():
        usual = 1.0 / max(1.0 / _STRETCH_MAX, own_part * shared[name][0])
        is_unhindered = is_ample and own_usd[name] >= _KEPT * ledger.own_limit(name).usd
        found[name] = Stretch(usual, 1.0 if is_unhindered else usual)
    return found


def _lasting(
    spends: Sequence[Spend], limit: Cost, ones: Mapping[str, float], now: datetime
) -> dict[str, float]:
    """The even rate, per 24 hours from now on, of each field in `ones`, which has one probe's cost.

    It is infinite where nothing was spent.
    """
    # Rows of the future count for longer than 25 hours; they are taken as spent just now.
    ages = [(min(leaves_at(spend) - now, DAY + HOUR).total_seconds(), spend.cost) for spend in spends]
    ahead = sorted({seconds for seconds, _ in ages})
    found = {}
    for name, one in ones.items():
        still = (sum(getattr(cost, name) for seconds, cost in ages if seconds >= at) for at in ahead)
        most = EVENLY * getattr(limit, name) + one
        rates = (max(0.0, most - counted) / at for at, counted in zip(ahead, still, strict=True))
        found[name] = min(rates, default=math.inf) * DAY.total_seconds()
    return found


def divide(wanted: Mapping[str, Cost], limit: Mapping[str, float]) -> Mapping[str, tuple[float, str]]:
    """The fraction of each operation's wish that a shared limit grants, and the key of the tightest limit.

    An equal part is kept for each, and what one does not use goes to the others. So an operation that takes little is
    not held back: a few megabytes are always left beside uploads that want a hundred.
    """
    found = dict.fromkeys(wanted, (1.0, ""))
    for field, most in limit.items():
        left_over, waiting = most, len(wanted)
        for name in sorted(wanted, key=lambda each: getattr(wanted[each], field)):
            got = min(getattr(wanted[name], field), left_over / waiting)
            left_over, waiting = left_over - got, waiting - 1
            found[name] = min(found[name], (fraction(got, getattr(wanted[name], field)), KEYS[field]))
    return found


def fraction(limit: float, wanted: float) -> float:
    """The fraction of what is wanted that the limit allows; at most 1."""
    return min(1.0, limit / wanted) if wanted > 0 else 1.0
