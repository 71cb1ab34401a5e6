"""Knows how far the reports of applications are believed beside penstock's own measurements.

Anyone on the host may send reports, and only measuring can check them. So own measurements come first:

1. The place is fitted to own measurements alone. A report *agrees* if all that it says is within `AGREEMENT_DEVIATIONS`
   of what this fit expects of one more measurement of the same setting. If little was measured, this admits much;
   if much was measured, it admits hardly more than what is known already.
2. A client may be faster or slower than penstock throughout, by up to `CLIENT_OFFSET_MAX`. This offset, the weighted
   median over one client's reports from one user, is subtracted first. The fit then learns it as the client's own.
3. A client is not believed at all if fewer than half of its reports agree.
4. The rest is thinned: one user makes up at most `USER_SHARE_MAX` of the evidence, and all users together at most
   `REPORTED_SHARE_MAX`, however many reports arrive.
5. Throttling and failures are believed only if own measurements met them too.

So reports may refine what is known and fill in what is not, but they cannot overturn measurements. When the place has
changed, reports no longer agree, so that they no longer replace probes, and new probes overturn the old ones. If there
are no new probes, the veto of own measurements ends after `VETO_DAYS`: if the place was not probed for that long and
fewer than half of the reports of these days agree (the mean over users), these reports become the evidence, and the
earlier measurements only their prior.

If nothing was measured, tables and a neighbour take the place of the fit, and admit a factor of about 50. The reports
that agree are then all the evidence, shared evenly among their users. They never count as measurements: advice stays
within a factor of two of the advice without them, or of a setting about which at least two users reported alike
(`corroborated`). So a single user can refine what tables say, but decide nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from penstock.models.model import Array, Fit, PerformanceModel
from penstock.vocabulary import Context, Observation, Origin, setting_values

_KeyT = TypeVar("_KeyT", bound=Hashable)

AGREEMENT_DEVIATIONS = 2.0
CLIENT_OFFSET_MAX = 0.25  # of the logarithm: between 0.78 and 1.28 times what penstock's own client reaches
AGREED_SHARE_MIN = 0.5
USER_SHARE_MAX = 0.2
REPORTED_SHARE_MAX = 0.4
# How many agreeing reports of one user, and of all users, are learned from however little was measured.
USER_COUNT_MIN = 2
REPORTED_COUNT_MIN = 4
UNPROBED_COUNT_MAX = 32  # reports that are learned from if nothing was probed
HEARD_COUNT_MAX = 128  # reports that are examined
HEARD_COUNT_MAX_PER_USER = 32
VETO_DAYS = 7.0  # working probes are only hours apart; and a week of reports covers all days of the week


@runtime_checkable
class LearnsFromTheNewest(Protocol):
    """A model that learns from a bounded number of observations."""

    @property
    def observation_count_max(self) -> int:
        """How many of the newest observations it learns from."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """Which reports were examined, which of these are believed, and which of these are learned from.

    All are reduced to the fields that a model learns from. `probes` are the own measurements to learn from beside the
    reports: all of them, or the newest that a fit has room for; none if reports overrule them.
    """

    heard: tuple[Observation[Any], ...]
    believed: tuple[Observation[Any], ...]
    learned_from: tuple[Observation[Any], ...]
    probes: tuple[Observation[Any], ...]

    @property
    def disbelieved_count(self) -> int:
        return len(self.heard) - len(self.believed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """The context and the time of a believed report; a fresh one replaces a probe."""

    context: Context
    started_at: datetime


def own(observations: Sequence[Observation[Any]]) -> tuple[Observation[Any], ...]:
    """The observations that penstock measured itself."""
    return tuple(o for o in observations if o.origin is Origin.PROBE)


def reported(observations: Sequence[Observation[Any]]) -> tuple[Observation[Any], ...]:
    """The observations that applications reported."""
    return tuple(o for o in observations if o.origin is Origin.APPLICATION)


def hear(
    model: PerformanceModel[Any],
    fit: Fit,
    probes: Sequence[Observation[Any]],
    reports: Sequence[Observation[Any]],
) -> Hearing:
    """Decide which reports to learn from beside these probes; `fit` is the fit to the probes alone."""
    chosen = _thinned(reports, HEARD_COUNT_MAX, HEARD_COUNT_MAX_PER_USER)
    heard = tuple(_essence(model, report) for report in chosen)
    agreed = tuple(_agreed(model, fit, _without_unknown_trouble(probes, heard) if probes else heard))
    alone = _overruling(probes, heard, agreed) if probes else agreed
    if alone or not probes:
        return Hearing(
            heard=heard,
            believed=alone,
            learned_from=_thinned(alone, UNPROBED_COUNT_MAX, None),
            probes=(),
        )
    room = model.observation_count_max if isinstance(model, LearnsFromTheNewest) else math.inf
    user_max = max(USER_COUNT_MIN, _beside(len(probes), USER_SHARE_MAX, room))
    total_max = max(REPORTED_COUNT_MIN, _beside(len(probes), REPORTED_SHARE_MAX, room))
    learned_from = _thinned(agreed, total_max, user_max)
    excess = max(0, len(probes) + len(learned_from) - room)
    return Hearing(
        heard=heard,
        believed=agreed,
        learned_from=learned_from,
        probes=tuple(sorted(probes, key=lambda o: o.started_at)[int(excess) :]),
    )


def corroborated(
    model: PerformanceModel[Any], reports: Sequence[Observation[Any]]
) -> tuple[Observation[Any], ...]:
    """The reports that another user's reports of the same setting confirm, to within `CLIENT_OFFSET_MAX`.

    Values are compared by their median for each user; the result is in the order of time.
    """
    found: list[Observation[Any]] = []
    for alike in _grouped(reports, _what_was_tried).values():
        by_user = reports_by_user(alike)
        values = {
            uid: math.log(max(float(np.median([model.measured_value(o) for o in of_user])), 1e-300))
            for uid, of_user in by_user.items()
        }
        for uid, of_user in by_user.items():
            others = (abs(values[uid] - value) for other, value in values.items() if other != uid)
            if min(others, default=math.inf) <= CLIENT_OFFSET_MAX:
                found += of_user
    return tuple(sorted(found, key=lambda o: o.started_at))


def _overruling(
    probes: Sequence[Observation[Any]],
    heard: Sequence[Observation[Any]],
    agreed: Sequence[Observation[Any]],
) -> tuple[Observation[Any], ...]:
    """The reports of the last `VETO_DAYS`, if nothing was probed in that time and too few of them agree; else none.

    The share that agrees is a mean over users, so that it does not matter how many reports each of them sends.
    """
    if not heard:
        return ()
    since = max(o.started_at for o in heard) - timedelta(days=VETO_DAYS)
    if any(o.started_at >= since for o in probes):
        return ()
    recent = tuple(o for o in heard if o.started_at >= since)
    is_agreed = {id(o) for o in agreed}
    shares = [np.mean([id(o) in is_agreed for o in of_user]) for of_user in reports_by_user(recent).values()]
    return recent if np.mean(shares) < AGREED_SHARE_MIN else ()


def _beside(count: int, share: float, room: float) -> int:
    """How many reports beside `count` measurements make up this share of all, or of the room if that is less."""
    return math.floor(min(count * share / (1.0 - share), share * room))


def _essence(model: PerformanceModel[Any], report: Observation[Any]) -> Observation[Any]:
    """The report reduced to what is learned from it, at the setting that was really used."""
    kept = model.reported_measures
    essence = replace(
        report,
        client=reporter(report),
        measures={name: value for name, value in report.measures.items() if name in kept},
        client_cpu_fraction=0.0,  # an application's includes its own work
        latency_seconds_mean=0.0,
        latency_seconds_p50=0.0,
        latency_seconds_p99=0.0,
    )
    return replace(essence, setting=model.in_use(essence))


def reporter(report: Observation[Any]) -> str:
    """``boto3 of user 1000``: the reporting client, by a name that no other user can take."""
    return f"{report.client} of user {report.reporter_uid}"


def _without_unknown_trouble(
    probes: Sequence[Observation[Any]], reports: Sequence[Observation[Any]]
) -> list[Observation[Any]]:
    throttled, failed = any(o.throttled_count for o in probes), any(o.failed_count for o in probes)
    return [r for r in reports if (throttled or not r.throttled_count) and (failed or not r.failed_count)]


def _agreed(
    model: PerformanceModel[Any], fit: Fit, reports: Sequence[Observation[Any]]
) -> list[Observation[Any]]:
    agreed: list[Observation[Any]] = []
    for group in _grouped(reports, lambda report: report.client).values():
        residual, deviation = model.discrepancies(fit, group)
        residual[:, 0] -= _client_offset(residual[:, 0], deviation[:, 0])
        with np.errstate(invalid="ignore"):
            is_agreed = np.all(~(np.abs(residual) > AGREEMENT_DEVIATIONS * deviation), axis=1)
        if is_agreed.mean() >= AGREED_SHARE_MIN:
            agreed += [report for report, agrees in zip(group, is_agreed.tolist(), strict=True) if agrees]
    return agreed


def _client_offset(residual: Array, deviation: Array) -> float:
    """The bounded median of the residuals, weighted by the precision of what is expected of each report."""
    is_known = np.isfinite(residual)
    if not is_known.any():
        return 0.0
    order = np.argsort(residual[is_known])
    weights = np.cumsum(deviation[is_known][order] ** -2.0)
    middle = residual[is_known][order][np.searchsorted(weights, 0.5 * weights[-1])]
    return min(max(float(middle), -CLIENT_OFFSET_MAX), CLIENT_OFFSET_MAX)


def _thinned(
    reports: Sequence[Observation[Any]], total_max: int, user_max: int | None
) -> tuple[Observation[Any], ...]:
    """The newest reports, taking users in turn, and for each user settings and sizes in turn; oldest first."""
    queues = [_varied(group)[:user_max] for group in reports_by_user(reports).values()]
    chosen = _in_turn(queues)[:total_max]
    return tuple(sorted(chosen, key=lambda o: o.started_at))


def reports_by_user(reports: Sequence[Observation[Any]]) -> dict[int | None, list[Observation[Any]]]:
    """The reports of each user, in the given order."""
    return _grouped(reports, lambda report: report.reporter_uid)


def _grouped(
    reports: Iterable[Observation[Any]], key: Callable[[Observation[Any]], _KeyT]
) -> dict[_KeyT, list[Observation[Any]]]:
    found: dict[_KeyT, list[Observation[Any]]] = {}
    for report in reports:
        found.setdefault(key(report), []).append(report)
    return found


def _varied(reports: Sequence[Observation[Any]]) -> list[Observation[Any]]:
    """Newest first, with settings and sizes in turn: a thousand reports of one do not hide the only one of another."""
    newest_first = sorted(reports, key=lambda o: o.started_at, reverse=True)
    return _in_turn(list(_grouped(newest_first, _what_was_tried).values()))


def _what_was_tried(report: Observation[Any]) -> tuple[Any, ...]:
    return (report.context, *setting_values(report.setting).values())


def _in_turn(queues: Sequence[Sequence[Observation[Any]]]) -> list[Observation[Any]]:
    longest = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]
