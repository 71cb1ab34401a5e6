"""The standings: what a change, and one that was none, make of what the schedule knows."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from penstock.daemon.cycle.standings import Standings
from penstock.daemon.memory.async_store import AsyncStore
from penstock.daemon.memory.store import Store
from penstock.daemon.schedule import LEARNING_COUNT, is_in_a_hurry
from penstock.daemon.spending import rationing
from penstock.daemon.spending.budget import Ledger
from penstock.daemon.spending.rationing import Stretch, Want
from penstock.lab.virtual_time import VirtualClock
from penstock.vocabulary import Cost
from tests.factories import CONTEXT, NOON, SETTING_TYPES, a_fit

HOUR = timedelta(hours=1)
CALM = a_fit(changed_at=None, newest_observation_at=NOON)


async def loaded(folder: Path, clock: VirtualClock) -> Standings:
    """Of one context that nobody has measured."""
    standings = Standings(1, NOON)
    with closing(Store(folder / "penstock.db", SETTING_TYPES)) as store:
        await standings.load(AsyncStore(store, clock.now), {CONTEXT: 600.0})
    return standings


async def learned(folder: Path, clock: VirtualClock) -> Standings:
    """The same, once it is known."""
    standings = await loaded(folder, clock)
    for _ in range(LEARNING_COUNT):
        standings.note_measured(CONTEXT, CALM)
    return standings


async def test_a_change_that_is_taken_back_gives_the_count_back(tmp_path: Path, clock: VirtualClock) -> None:
    """A place that changed is learned anew, at four times the pace; one that did not after all is known as before."""
    standings = await learned(tmp_path, clock)
    (known,) = standings
    assert not is_in_a_hurry(known)
    standings.note_measured(CONTEXT, a_fit(changed_at=NOON + HOUR, newest_observation_at=NOON + 2 * HOUR))
    (changed,) = standings
    assert changed.observation_count == 1
    assert is_in_a_hurry(changed)
    standings.note_measured(CONTEXT, CALM)
    (after_all,) = standings
    assert after_all.observation_count == LEARNING_COUNT + 2
    assert not is_in_a_hurry(after_all)


async def test_a_place_that_is_again_what_it_was_is_not_learned_anew(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """The count of before is given back, and nothing is in a hurry; taken again where it was another one after all."""
    standings = await learned(tmp_path, clock)
    gone_at, back_at = (NOON + hours * HOUR for hours in (LEARNING_COUNT, LEARNING_COUNT + 2))
    another = a_fit(changed_at=gone_at, newest_observation_at=gone_at + HOUR)
    again = a_fit(changed_at=back_at, earlier=((NOON, gone_at),), newest_observation_at=back_at + HOUR)
    for fit, count in ((another, 1), (again, LEARNING_COUNT + 2), (another, 3), (again, LEARNING_COUNT + 4)):
        standings.note_measured(CONTEXT, fit)
        (known,) = standings
        assert known.observation_count == count
        assert is_in_a_hurry(known) is (fit is another)


async def test_what_is_reported_divides_no_budget_again(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports wake the conductor many times a second: gaps are stretched anew after a probe, and each minute."""
    standings, ledgers = await loaded(tmp_path, clock), [Ledger(Cost(usd=1.0)), Ledger(Cost(usd=1.0))]
    calls, stretches = list[Ledger](), rationing.stretches

    def counted(ledger: Ledger, wants: Sequence[Want], now: datetime) -> Mapping[str, Stretch]:
        calls.append(ledger)
        return stretches(ledger, wants, now)

    monkeypatch.setattr(rationing, "stretches", counted)
    for ledger, at in ((0, 0), (0, 1), (0, 59), (0, 60), (1, 61), (1, 62)):
        standings.ration(ledgers[ledger], NOON + timedelta(seconds=at))
    assert len(calls) == 3
    standings.hasten({(CONTEXT.operation, CONTEXT.place.region)})
    standings.ration(ledgers[1], NOON + timedelta(seconds=63))
    assert len(calls) == 4
