"""Rationing: a budget that is less than what the intervals ask for lasts the day, whatever is in a hurry."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from penstock.daemon.spending.budget import Ledger
from penstock.daemon.spending.rationing import EVENLY, Stretch, Want, stretches
from penstock.units import GiB, MiB
from penstock.vocabulary import Cost
from tests.factories import NOON

LIMIT = Cost(
    transferred_bytes=64 * GiB, request_count=10_000, usd=1.0, credit_bytes=GiB, duration_seconds=4000.0
)
PROBE = Cost(transferred_bytes=512 * MiB, request_count=20, usd=1e-4, duration_seconds=3.0)
STEP = timedelta(minutes=5)
UPLOAD, DELIVERY = "s3_upload", "sqs_delivery"


def _moments(
    days: float, *, probe: Cost = PROBE, is_hurried: bool = False, limit: Cost = LIMIT
) -> list[datetime]:
    """When a context is probed that wants to be every five minutes, all the time."""
    ledger, now, moments = Ledger(limit), NOON, list[datetime]()
    while now < NOON + timedelta(days=days):
        want = Want(operation=UPLOAD, cost=probe, gap_seconds=STEP.total_seconds())
        found = stretches(ledger, [want], now)[UPLOAD]
        gap = STEP * (found.hurried if is_hurried else found.usual)
        if (not moments or now >= moments[-1] + gap) and ledger.allows(UPLOAD, probe, now).is_allowed:
            ledger, _ = ledger.reserve(UPLOAD, probe, now)
            moments.append(now)
        now += STEP
    return moments


@pytest.mark.parametrize("is_hurried", [False, True])
def test_a_budget_lasts_the_day(is_hurried: bool) -> None:
    """Of 288 wanted probes a day 128 are paid for: four hours never pass without one, and most of it is used."""
    moments = _moments(5, is_hurried=is_hurried)
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert max(gaps) < timedelta(hours=4)
    settled = [moment for moment in moments if moment >= NOON + timedelta(days=2)]
    assert len(settled) / 3 > 0.55 * LIMIT.transferred_bytes / PROBE.transferred_bytes


def test_what_is_steady_comes_evenly() -> None:
    """Once a day is over no hour has twice what another has."""
    settled = [moment for moment in _moments(5) if moment >= NOON + timedelta(days=2)]
    each_hour = [
        sum(NOON + timedelta(days=2, hours=h) <= m < NOON + timedelta(days=2, hours=h + 1) for m in settled)
        for h in range(72)
    ]
    paid = EVENLY * LIMIT.transferred_bytes / PROBE.transferred_bytes / 25
    assert min(each_hour) > 0.6 * paid
    assert max(each_hour) < 1.6 * paid


def test_what_is_new_is_learned_at_once() -> None:
    """Half of the budget is there for who is in a hurry, and the other half for the rest of the day."""
    moments = _moments(1, is_hurried=True)
    at_once = sum(later - earlier == STEP for earlier, later in pairwise(moments))
    assert 0.45 < at_once * PROBE.transferred_bytes / LIMIT.transferred_bytes < 0.6


def test_few_probes_are_not_kept_waiting() -> None:
    """Where a day pays for three, all of them tell of a new place in its first hour."""
    dear = Cost(transferred_bytes=LIMIT.transferred_bytes * 3 // 10)
    assert len([m for m in _moments(1, probe=dear, is_hurried=True) if m < NOON + timedelta(hours=1)]) == 3


def test_nothing_is_stretched_where_no_budget_binds() -> None:
    """Whatever was spent before."""
    ledger, _ = Ledger(LIMIT).reserve(UPLOAD, PROBE, NOON)
    want = Want(operation=UPLOAD, cost=PROBE, gap_seconds=3600.0)
    assert stretches(ledger, [want], NOON + STEP) == {UPLOAD: Stretch()}


def test_what_a_clock_that_was_ahead_has_dated_is_spent_once() -> None:
    """It counts until the clock has passed it, and is not spread over all that time: probes would all but cease."""
    ledger, _ = Ledger(LIMIT).reserve(UPLOAD, PROBE, NOON + timedelta(days=400))
    want = Want(operation=UPLOAD, cost=PROBE, gap_seconds=3600.0)
    assert stretches(ledger, [want], NOON) == {UPLOAD: Stretch()}


def test_who_takes_little_waits_for_nobody() -> None:
    """Messages hardly move bytes: they come as often as ever where uploads run short of them."""
    ledger, _ = Ledger(LIMIT).reserve(UPLOAD, Cost(transferred_bytes=LIMIT.transferred_bytes * 7 // 10), NOON)
    wants = [
        Want(operation=UPLOAD, cost=PROBE, gap_seconds=300.0),
        Want(operation=DELIVERY, cost=Cost(transferred_bytes=MiB, request_count=50), gap_seconds=1800.0),
    ]
    found = stretches(ledger, wants, NOON + STEP)
    assert found[DELIVERY].usual == 1.0
    assert found[UPLOAD].usual > 5.0


def test_the_dollars_of_one_operation_stretch_no_other() -> None:
    """Each has its own limit of them."""
    ledger = Ledger(LIMIT, usd_limits={UPLOAD: 0.01, DELIVERY: 0.01})
    ledger, _ = ledger.reserve(UPLOAD, Cost(usd=0.007), NOON)
    wants = [Want(operation=name, cost=Cost(usd=0.001), gap_seconds=7200.0) for name in (UPLOAD, DELIVERY)]
    found = stretches(ledger, wants, NOON + STEP)
    assert found[DELIVERY] == Stretch()
    assert found[UPLOAD].usual > 5.0
