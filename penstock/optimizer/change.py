"""Knows how a change of a place is described: what was learned and advised before it, and what is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.models.model import Fit, PerformanceModel, is_current, is_newly_changed
from penstock.vocabulary import AdviceMoved, Change, Context, Demand, Estimate, Moved, Recommendation


def is_same_change(fit: Fit, known: Change[Any] | None) -> bool:
    """Whether the change that this fit found is the known one."""
    return known is not None and not is_newly_changed(fit, known.known_until)


def described(
    model: PerformanceModel[Any],
    *,
    before: Fit,
    after: Fit,
    advised: Mapping[Context, Recommendation[Any]],
    advising: Sequence[Recommendation[Any]],
    known: Change[Any] | None,
    now: datetime,
) -> Change[Any]:
    """The change that the fit `after` found. `advised` is the advice before it, `advising` the present one.

    The first fits after a change know little about the new state, so a change that is already `known` is described
    again with what has been learned since.
    """
    assert after.changed_at is not None
    newest_at = after.newest_observation_at or now
    return Change(
        place=after.place,
        changed_at=after.changed_at,
        unchanged_at=before.newest_observation_at,
        noticed_at=known.noticed_at if known else now,
        known_until=known.known_until if known else newest_at,
        parameters={
            name: Moved(before.parameters[name], estimate)
            for name, estimate in after.parameters.items()
            if name in before.parameters
        },
        advice=tuple(
            AdviceMoved(
                payload_size_bytes=made.context.payload_size_bytes,
                before=advised[made.context].setting,
                after=made.setting,
                value=_moved(model, before, after, advised[made.context]),
            )
            for made in advising
            if made.context in advised
        ),
        as_until=after.earlier[-1][1] if after.earlier else None,
    )


def _moved(
    model: PerformanceModel[Any], before: Fit, after: Fit, advised: Recommendation[Any]
) -> Moved | None:
    """What the earlier setting was expected to do, and what is expected of it now; None if unknown."""
    if not is_current(before, model):
        return None
    then, now = (_value(model, fit, advised) for fit in (before, after))
    return Moved(then, now) if then and now else None


def _value(model: PerformanceModel[Any], fit: Fit, advised: Recommendation[Any]) -> Estimate | None:
    return model.predict(fit, advised.context, advised.setting, Demand()).get(model.value_metric)
