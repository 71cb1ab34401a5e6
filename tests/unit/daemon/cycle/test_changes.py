"""A change of a place is written down once, with what stood before it, and outlives the fit that noticed it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.daemon.cycle.learning import SETTLED_AFTER, note_change
from penstock.daemon.memory.store import Store
from penstock.models.model import Fit
from penstock.optimizer.recommendation import recommend
from penstock.vocabulary import Change, Demand
from tests.factories import CONTEXT, NOON, PLACE, SETTING_TYPES
from tests.unit.report.materials import HOUR, UPLOAD, a_real_fit, real_advice, some_observations

CHANGED_AT = NOON + 20 * HOUR


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A daemon has measured, learned and advised for hours."""
    with closing(Store(tmp_path / "penstock.db", SETTING_TYPES)) as store:
        store.add_fit(a_real_fit(), fitted_at=NOON + 5 * HOUR)
        store.add_recommendation(real_advice())
        yield store


def slower_fit(**changes: Any) -> Fit:
    """What is learned when everything takes twice as long."""
    slower = [dataclasses.replace(o, duration_seconds=2 * o.duration_seconds) for o in some_observations()]
    found: dict[str, Any] = {"changed_at": CHANGED_AT, "newest_observation_at": CHANGED_AT + 4 * HOUR}
    return dataclasses.replace(UPLOAD.fit(PLACE, slower, prior=None, seed=1), **(found | changes))


def noted(store: Store, fit: Fit, now: datetime) -> Change[Any] | None:
    """As the conductor does it after a fit."""
    advice = recommend(UPLOAD, fit, CONTEXT, Demand(), previous=None, now=now, validity_seconds=3600.0)
    return note_change(store, UPLOAD, fit, [advice], now)


def test_a_change_says_what_was_before_and_what_is_since(store: Store) -> None:
    """Half the throughput of the setting that was advised, by the fits before and after."""
    change = noted(store, slower_fit(), CHANGED_AT + 4 * HOUR)
    assert change is not None
    (moved,) = change.advice
    assert moved.before == real_advice().setting
    assert moved.value is not None
    assert 0.4 < moved.value.after.expected / moved.value.before.expected < 0.6
    assert change.unchanged_at == NOON + 5 * HOUR
    assert change.parameters
    assert store.changes(count_max=9) == [change]


def test_the_same_change_found_again_is_one(store: Store) -> None:
    """Each fit finds it again, not always at the same measurement; another one comes after what was known then."""
    first = noted(store, slower_fit(), CHANGED_AT + 4 * HOUR)
    again = noted(store, slower_fit(changed_at=CHANGED_AT + HOUR), CHANGED_AT + 6 * HOUR)
    assert first is not None
    assert again is not None
    assert store.changes(count_max=9) == [again]
    assert again.noticed_at == first.noticed_at
    assert noted(store, slower_fit(), first.noticed_at + SETTLED_AFTER + timedelta(seconds=1)) is None
    later = slower_fit(changed_at=CHANGED_AT + 5 * HOUR, newest_observation_at=CHANGED_AT + 9 * HOUR)
    noted(store, later, CHANGED_AT + 9 * HOUR)
    assert len(store.changes(count_max=9)) == 2


def test_a_calm_place_has_no_changes(store: Store) -> None:
    """Nor has one that nothing was known of before."""
    assert noted(store, slower_fit(changed_at=None), NOON + 9 * HOUR) is None
    assert noted(store, slower_fit(changed_at=NOON + HOUR), NOON + 9 * HOUR) is None
    assert store.changes(count_max=9) == []
