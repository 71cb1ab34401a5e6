"""Whether a place is slower at some hours or days than chance explains."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from penstock.report.rhythm import Rhythm, Sample, corrected, rhythm_sentence, rhythms
from tests.factories import NOON


def samples(
    *, days: int, slower: float = 0.0, weekend: float = 0.0, step: float = 0.0, seed: int = 1
) -> list[Sample]:
    """Twelve a day of four settings, with a noise of 10 %; slower from 8 to 18, at weekends, or from half time on."""
    chance = random.Random(seed)
    found = []
    for n in range(12 * days):
        at = NOON + timedelta(hours=2 * n + 2 * chance.random())
        value = chance.gauss(0, 0.1) + slower * (8 <= at.hour < 18) + weekend * (at.weekday() >= 5)
        found.append(Sample(at, f"setting {chance.randrange(4)}", value + step * (n > 6 * days)))
    return found


def found(asked: list[Sample]) -> list[Rhythm]:
    """Those that are there for certain."""
    return [rhythm for rhythm in corrected(rhythms(asked)) if rhythm.is_significant]


@pytest.mark.parametrize("dips", [0, 4])
def test_a_daily_rhythm_is_found_with_its_hours_and_its_size(dips: int) -> None:
    """A fifth less from 8 to 18; the interval holds it, even if a few nightly measurements went at a tenth."""
    asked = samples(days=14, slower=-0.223)
    early = [n for n, one in enumerate(asked) if 2 <= one.at.hour < 6]
    for n in early[::4][:dips]:
        asked[n] = asked[n].less(2.3)
    (rhythm,) = found(asked)
    begins, ends = (int(word[:2]) for word in rhythm.span.split() if ":" in word)
    assert abs(begins - 8) <= 1
    assert abs(ends - 18) <= 1
    assert rhythm.fraction is not None
    assert rhythm.fraction.low < -0.2 < rhythm.fraction.high
    assert "chance does as much in less than one of 1,000,000 such places" in rhythm_sentence(rhythm)


def test_a_weekly_rhythm_is_found() -> None:
    """Four weeks of slow weekends."""
    (rhythm,) = found(samples(days=28, weekend=-0.3))
    assert rhythm.question == "day of the week"
    assert rhythm.span in {"on Saturdays", "on Sundays"}


def test_calm_weeks_and_changes_have_none() -> None:
    """Of forty places without a rhythm, half of which changed, none is said to have one."""
    asked = [r for seed in range(40) for r in rhythms(samples(days=21, step=-0.5 * (seed % 2), seed=seed))]
    assert len(asked) >= 40
    assert [r for r in corrected(asked) if r.is_significant] == []


def test_other_settings_at_other_hours_make_none() -> None:
    """What is tried by day and what by night differ; a setting is compared with itself alone."""
    asked = [
        Sample(s.at, f"of {s.at.hour // 12}", s.log_ratio - 0.8 * (s.at.hour < 12)) for s in samples(days=10)
    ]
    assert found(asked) == []
    assert rhythms(samples(days=2)) == []
