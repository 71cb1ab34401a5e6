"""Knows what to say about a change of a place: when it came, how large it is, and which parameters moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from penstock.models.model import Fit, PerformanceModel
from penstock.optimizer.verdict import signed_percent
from penstock.report.difference import log_deviation, ratio, signed_span, welch
from penstock.report.wording import date_words
from penstock.units import label, quantity
from penstock.vocabulary import NORMAL_90, AdviceMoved, Change, Estimate, Observation, knobs

# Measurements near the advised setting, on each side; with fewer, the fits tell the size of the change.
MEASURED_COUNT_MIN = 4
BEFORE_COUNT_MAX = 24
_NEAR = 1.6  # knob values within this ratio count as near
_MOVED_COUNT_MAX = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFinding:
    """One change of a place, with its size."""

    changed_at: datetime  # the first measurement after it
    unchanged_at: datetime | None  # the last measurement before it; the change came in between
    noticed_at: datetime
    fraction: Estimate | None  # change in the value of the advised setting: -0.43 is 43 % less
    is_measured: bool  # from measurements on both sides; else from the fits of that time
    moved: tuple[str, ...]  # parameters that moved, in words
    advised_before: Any  # of the operation's own type
    advised_after: Any
    payload_size_bytes: int | None
    as_until: datetime | None  # the place is again as it was until then
    # With what was measured since, the newest fit takes both sides for the same state, which varies.
    is_withdrawn: bool

    @property
    def is_certain(self) -> bool:
        """Whether the interval excludes no change."""
        return self.fraction is not None and (self.fraction.low > 0 or self.fraction.high < 0)


def change_findings(
    model: PerformanceModel[Any],
    changes: Sequence[Change[Any]],
    observations: Sequence[Observation[Any]],
    payload_size_bytes: int | None,
    fit: Fit | None = None,
) -> tuple[ChangeFinding, ...]:
    """The changes of one place, oldest first, for the payload size that is measured most; `fit` is its newest.

    The measurements on each side of a change extend to the next certain change: a repeated alarm about the same change
    does not end them.
    """
    ordered = sorted(changes, key=lambda c: c.changed_at)
    moments = [change.changed_at for change in ordered]
    for _ in range(2):
        found = [
            replace(
                _finding(
                    model, change, _between(observations, change.changed_at, moments), payload_size_bytes
                ),
                is_withdrawn=fit is not None and _is_withdrawn(change, fit, observations),
            )
            for change in ordered
        ]
        moments = [each.changed_at for each in found if each.is_certain and not each.is_withdrawn]
    return tuple(found)


def _between(
    observations: Sequence[Observation[Any]], moment: datetime, moments: Sequence[datetime]
) -> list[Observation[Any]]:
    """The observations between the nearest of these moments before this one, and the nearest after it."""
    begin = max((other for other in moments if other < moment), default=None)
    end = min((other for other in moments if other > moment), default=None)
    return [
        o
        for o in observations
        if (begin is None or begin <= o.started_at) and (end is None or o.started_at < end)
    ]


def change_sentence(finding: ChangeFinding, metric: str) -> str:
    """``Throughput fell by 38 % (30 to 45 %) on 2026-04-10 at 14:20 UTC; connection from 26 to 15 MB/s``."""
    words = label(metric).capitalize()
    if finding.is_withdrawn:
        return f"{words} varies: what changed on {_moment_words(finding.changed_at)} UTC did not last."
    if finding.fraction is None:
        said = f"{words} changed"
    elif finding.is_certain:
        size = finding.fraction
        verb = "fell" if size.expected < 0 else "rose"
        much, *ends = (
            signed_percent(each).lstrip("+-")
            for each in (size.expected, *sorted((size.low, size.high), key=abs))
        )
        said = f"{words} {verb} by {much} ({ends[0].removesuffix(' %')} to {ends[1]})"
    else:
        said = f"The place changed, {label(metric)} by {signed_span(finding.fraction)}"
    moved = f"; {', '.join(finding.moved)}" if finding.moved else ""
    again = (
        f"; the place is again as it was until {_moment_words(finding.as_until)}" if finding.as_until else ""
    )
    return f"{said} on {_moment_words(finding.changed_at)} UTC{moved}{again}."


def _moment_words(moment: datetime) -> str:
    return date_words(moment).replace(" ", " at ")


def _is_withdrawn(change: Change[Any], fit: Fit, observations: Sequence[Observation[Any]]) -> bool:
    """Whether the fit learned from measurements on both sides of the change as from one state."""
    if change.unchanged_at is None or not fit.observation_count:
        return False
    if not (fit.is_about(change.changed_at) and fit.is_about(change.unchanged_at)):
        return False
    learned = [o for o in observations if fit.is_about(o.started_at)][-fit.observation_count :]
    return sum(o.started_at < change.changed_at for o in learned) >= MEASURED_COUNT_MIN


def _finding(
    model: PerformanceModel[Any],
    change: Change[Any],
    observations: Sequence[Observation[Any]],
    payload_size_bytes: int | None,
) -> ChangeFinding:
    of_size = (moved for moved in change.advice if moved.payload_size_bytes == payload_size_bytes)
    moved = next(of_size, next(iter(change.advice), None))
    measured = _measured_fraction(model, change, moved, observations) if moved else None
    return ChangeFinding(
        changed_at=change.changed_at,
        unchanged_at=change.unchanged_at,
        noticed_at=change.noticed_at,
        fraction=measured
        or (ratio(moved.value.after, moved.value.before) if moved and moved.value else None),
        is_measured=measured is not None,
        moved=_moved_words(change),
        advised_before=moved.before if moved else None,
        advised_after=moved.after if moved else None,
        payload_size_bytes=moved.payload_size_bytes if moved else None,
        as_until=change.as_until,
        is_withdrawn=False,
    )


def _measured_fraction(
    model: PerformanceModel[Any],
    change: Change[Any],
    moved: AdviceMoved[Any],
    observations: Sequence[Observation[Any]],
) -> Estimate | None:
    """From measurements near the advised setting on both sides, with Welch's interval of the logarithms."""
    near = [
        (o.started_at, math.log(value))
        for o in observations
        if o.context.payload_size_bytes == moved.payload_size_bytes
        and _is_near(o.setting, moved.before)
        and (value := model.measured_value(o)) > 0
    ]
    before = [value for at, value in near if at < change.changed_at][-BEFORE_COUNT_MAX:]
    after = [value for at, value in near if at >= change.changed_at]
    if min(len(before), len(after)) < MEASURED_COUNT_MIN:
        return None
    return welch(after, before)


def _is_near(one: Any, other: Any) -> bool:
    """Whether each knob is within the ratio `_NEAR` of the other setting's."""
    pairs = ((float(getattr(one, name)), float(getattr(other, name))) for name in knobs(other))
    return all(max(pair) <= _NEAR * min(pair) or pair[0] == pair[1] for pair in pairs)


def _moved_words(change: Change[Any]) -> tuple[str, ...]:
    """The parameters that certainly moved, the farthest first; those without a unit would tell readers nothing."""
    moved = []
    for name, one in change.parameters.items():
        if min(one.before.low, one.after.low) <= 0 or "_second" not in name:
            continue
        distance = abs(math.log(one.after.expected / one.before.expected))
        spread = math.hypot(log_deviation(one.before), log_deviation(one.after))
        if distance > NORMAL_90 * max(spread, 1e-6):
            moved.append((distance / max(spread, 0.05), name, one))
    return tuple(
        f"{label(name)} from {quantity(name, one.before.expected)} to {quantity(name, one.after.expected)}"
        for _, name, one in sorted(moved, key=lambda each: -each[0])[:_MOVED_COUNT_MAX]
    )
