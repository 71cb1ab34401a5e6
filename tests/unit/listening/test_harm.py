"""What a probe costs applications is told by the attempts beside it, held against those before it."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from penstock.listening.harm import ATTEMPT_COUNT_MIN, harm, window
from penstock.listening.tally import Tally
from tests.unit.listening.test_tally import ATTEMPT

LIST = replace(ATTEMPT, key=replace(ATTEMPT.key, api="ListParts"))


def test_each_application_is_held_against_itself() -> None:
    """A probe that adds 30 ms to every attempt costs 30 ms, though the dear calls are rarer beside it."""
    chance, tally = random.Random(3), Tally()

    def heard(at: float, dear_count: int, cheap_count: int, added: float) -> None:
        for told, seconds, count in ((ATTEMPT, 1.0, dear_count), (LIST, 0.05, cheap_count)):
            for _ in range(count):
                latency = added + seconds * chance.uniform(0.9, 1.1)
                tally.hear(replace(told, latency_seconds=latency), at)

    heard(10.0, 400, 100, 0.0)
    before = tally.totals()
    heard(20.0, 100, 400, 0.03)
    found = harm(before, window(before, tally.totals()))
    assert found is not None
    assert found.attempt_count == 500
    assert found.latency_increase_seconds.low < 0.03 < found.latency_increase_seconds.high
    assert found.latency_increase_seconds.expected == pytest.approx(0.03, abs=0.005)


def test_refusals_beside_it_are_those_that_came_more() -> None:
    """A tenth was refused before, and three tenths are."""
    tally = Tally()
    for number in range(100):
        tally.hear(replace(ATTEMPT, is_refused=number % 10 == 0), 1.0)
    before = tally.totals()
    for number in range(100):
        tally.hear(replace(ATTEMPT, is_refused=number % 10 < 3), 2.0)
    found = harm(before, window(before, tally.totals()))
    assert found is not None
    assert found.refused_fraction_increase == pytest.approx(0.2)


def test_few_attempts_say_nothing() -> None:
    """Nor does who was not heard before: there is nothing to hold it against."""
    tally = Tally()
    for _ in range(ATTEMPT_COUNT_MIN - 1):
        tally.hear(ATTEMPT, 1.0)
    before = tally.totals()
    for _ in range(1000):
        tally.hear(replace(ATTEMPT, latency_seconds=9.0), 2.0)
        tally.hear(LIST, 2.0)
    assert harm(before, window(before, tally.totals())) is None
