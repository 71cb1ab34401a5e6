"""Knows how far applications' reports are believed beside what penstock measured itself.

Anybody on the host may report, and nobody can check a report but by measuring. So own measurements come first:

1. The place is fitted to own measurements alone. A report is *agreed with* when everything that it says lies within
   `AGREEMENT_DEVIATIONS` of what that fit expects of one more measurement of the same setting. Where little was
   measured this admits much, and where much was measured it admits hardly more than what is known already.
2. Another client may be faster or slower as a whole, by up to `CLIENT_OFFSET_MAX`: that offset, the weighted median
   over the reports of one client of one user, is taken off before. The fit then learns it as the client's own.
3. A client of whose reports fewer than half are agreed with is not believed at all.
4. What remains is thinned: one user makes up at most `USER_SHARE_MAX` of the evidence and all users together at most
   `REPORTED_SHARE_MAX`. However many reports arrive, they weigh no more.
5. Throttling and failures are believed only where own measurements met the same.

So reports may sharpen what is known and fill in what is not. They cannot overturn what was measured: when the world
has changed, reports stop being agreed with, probes stop being stretched by them, and the probes overturn it. Where no
probe comes to do that, own measurements have their veto for `VETO_DAYS`: when nothing was probed in the place for so
long, and fewer than half of the reports of these days are agreed with, the mean over users, these reports are the
evidence. What was measured before is then where belief begins, and no more than that.

Where nothing was measured, what tables and a neighbour say takes the place of the fit: it admits a factor of some 50.
What is left is all the evidence there is, shared evenly among the users who send some. It is never taken for a
measurement: advice stays within a factor of two of what would be advised without it, or of a setting of which at least
two users reported alike (`corroborated`). So a user who is alone there sharpens what tables say, and decides nothing
else.
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
CLIENT_OFFSET_MAX = 0.25  # of the logarithm: between 0.78 and 1.28 of what penstock's own client reaches
AGREED_SHARE_MIN = 0.5
USER_SHARE_MAX = 0.2
REPORTED_SHARE_MAX = 0.4
USER_COUNT_MIN = 2  # reports of one user, and of all, that count however little was measured
REPORTED_COUNT_MIN = 4
UNPROBED_COUNT_MAX = 32  # reports that are learned from where nothing was probed
HEARD_COUNT_MAX = 128  # reports that are looked at
HEARD_COUNT_MAX_PER_USER = 32
VETO_DAYS = 7.0  # probes that run are hours apart, and a week of reports has seen each of its days


@runtime_checkable
class LearnsFromTheNewest(Protocol):
    """A model that learns from a bounded number of observations: older ones say the same."""

    @property
    def observation_count_max(self) -> int:
        """How many of the newest it learns from."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """Which reports were looked at, which of these are believed, and which are learned from.

    All without what is not learned from. `probes` are the own measurements to learn from beside the reports: all of
    them, or the newest that a fit has room for; none where there are none, and none where reports overrule them.
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
    """When a report about a context that is believed was made: fresh ones stand in for probes."""

    context: Context
    started_at: datetime


def own(observations: Sequence[Observation[Any]]) -> tuple[Observation[Any], ...]:
    """What penstock measured itself."""
    return tuple(o for o in observations if o.origin is Origin.PROBE)


def reported(observations: Sequence[Observation[Any]]) -> tuple[Observation[Any], ...]:
    """What applications said."""
    return tuple(o for o in observations if o.origin is Origin.APPLICATION)


def hear(
    model: PerformanceModel[Any],
    fit: Fit,
    probes: Sequence[Observation[Any]],
    reports: Sequence[Observation[Any]],
) -> Hearing:
    """The reports that may be learned from beside these probes; `fit` is that of the probes alone."""
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
    """Those of settings at which another user reported about the same: nobody who is alone has a say in these."""
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
    """The reports of the last `VETO_DAYS`, where nothing was probed in these and too few of them are agreed with.

    The share is the mean over users: how many reports one of them sends does not count.
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
    """How many beside `count` others make up this share of all that there is room for."""
    return math.floor(min(count * share / (1.0 - share), share * room))


def _essence(model: PerformanceModel[Any], report: Observation[Any]) -> Observation[Any]:
    """Only what is learned from, at the setting that was in use."""
    kept = model.reported_measures
    essence = replace(
        report,
        client=reporter(report),
        measures={name: value for name, value in report.measures.items() if name in kept},
        client_cpu_fraction=0.0,  # of an application, its own work included
        latency_seconds_mean=0.0,
        latency_seconds_p50=0.0,
        latency_seconds_p99=0.0,
    )
    return replace(essence, setting=model.in_use(essence))


def reporter(report: Observation[Any]) -> str:
    """``boto3 of user 1000``: whose report it is, by a name that no other user can take."""
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
    """The median, in which a report counts the more the better it is known what to expect of it."""
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
    """The newest, users in turn, and of each user its settings and sizes in turn; oldest first."""
    queues = [_varied(group)[:user_max] for group in reports_by_user(reports).values()]
    chosen = _in_turn(queues)[:total_max]
    return tuple(sorted(chosen, key=lambda o: o.started_at))


def reports_by_user(reports: Sequence[Observation[Any]]) -> dict[int | None, list[Observation[Any]]]:
    """Those of each user, in their order."""
    return _grouped(reports, lambda report: report.reporter_uid)


def _grouped(
    reports: Iterable[Observation[Any]], key: Callable[[Observation[Any]], _KeyT]
) -> dict[_KeyT, list[Observation[Any]]]:
    found: dict[_KeyT, list[Observation[Any]]] = {}
    for report in reports:
        found.setdefault(key(report), []).append(report)
    return found


def _varied(reports: Sequence[Observation[Any]]) -> list[Observation[Any]]:
    """Newest first, what was tried in turn: a thousand reports of one setting do not hide the one of another."""
    newest_first = sorted(reports, key=lambda o: o.started_at, reverse=True)
    return _in_turn(list(_grouped(newest_first, _what_was_tried).values()))


def _what_was_tried(report: Observation[Any]) -> tuple[Any, ...]:
    return (report.context, *setting_values(report.setting).values())


def _in_turn(queues: Sequence[Sequence[Observation[Any]]]) -> list[Observation[Any]]:
    longest = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]
