"""Knows how a change of a place is written down, so that it outlives the fit that noticed it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from penstock.daemon.sentences import describe
from penstock.daemon.store import Store
from penstock.models.model import Fit, PerformanceModel
from penstock.optimizer.change import described, is_same_change
from penstock.vocabulary import Change, Demand, Recommendation

SETTLED_AFTER = timedelta(days=2)  # from then on what is found anew says nothing more of what it was

_log = logging.getLogger(__name__)


def note_change(
    store: Store,
    model: PerformanceModel[Any],
    fit: Fit,
    advising: Sequence[Recommendation[Any]],
    now: datetime,
) -> Change[Any] | None:
    """Write down the change that this fit found; None when it found none, or none that is news."""
    if fit.changed_at is None:
        return None
    known = next(iter(store.changes(place=fit.place, count_max=1)), None)
    known = known if is_same_change(fit, known) else None
    before = store.fit_before(fit.place, fit.changed_at)
    if before is None or (known is not None and now > known.noticed_at + SETTLED_AFTER):
        return None
    contexts = [made.context for made in advising]
    stood = {context: store.advice_before(context, Demand(), fit.changed_at) for context in contexts}
    change = described(
        model,
        before=before,
        after=fit,
        advised={context: made for context, made in stood.items() if made is not None},
        advising=advising,
        known=known,
        now=now,
    )
    store.put_change(change)
    if known is None and advising:
        _log.info(
            "%s: the place changed at %s", describe(contexts[0]), f"{fit.changed_at:%Y-%m-%d %H:%M} UTC"
        )
    return change
