"""Knows how probes are rationed where a budget binds: what is allowed in 24 hours lasts them.

Let S(t) be what of today's spending still counts at a moment t of the next day; it falls as what was spent grows old.
The fastest even rate at which hardly more than three quarters of a limit are ever spent is

    rate = min over t of (3/4 limit - S(t) + one probe) / (t - now),

with one probe more because n of them divide a day into n + 1 gaps. Where all probes together would cost more, each gap
is as many times as long; of what is scarce, whoever takes little goes short of nothing. What is new, or may have
changed, is not kept waiting, as long as a quarter of the limit a day remains for all others: so half of it is there for
a beginning or for a stormy day.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.daemon.spending.budget import DAY, HOUR, KEYS, Ledger, leaves_at
from penstock.vocabulary import Cost, Spend

EVENLY = 0.75  # of a limit: what is spent in a day where intervals ask for more
_KEPT = 0.25  # of a limit: what can still be spent evenly in a day when something is in a hurry
_STRETCH_MAX = 500.0  # where nothing is left; it is looked at again when there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What a context would spend by itself."""

    operation: str
    cost: Cost  # of one probe
    gap_seconds: float  # between two, on average


@dataclass(frozen=True, slots=True)
class Stretch:
    """How many times as long the gaps of an operation's probes are; at least 1."""

    usual: float = 1.0
    hurried: float = 1.0  # of what is new, or may have changed


def stretches(ledger: Ledger, wants: Sequence[Want], now: datetime) -> Mapping[str, Stretch]:
    """Of each operation that wants something."""
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
    """What may be spent in 24 hours from now on, evenly; without bounds where nothing was. `ones`: of one probe."""
    # What was spent at dates that have not come yet counts for longer than that, and is no less spent.
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
    """How much of what each wants the limit of all allows, and by which key of the configuration.

    Of what is scarce, whoever takes little goes short of nothing: a few megabytes are always left beside uploads that
    wait for a hundred. So an equal part is kept for each, and what it leaves goes to the others.
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
    """How much of what is wanted the limit allows."""
    return min(1.0, limit / wanted) if wanted > 0 else 1.0
