"""Hours of the day in which nothing is probed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from penstock.daemon.config_files import ConfigError, load
from penstock.daemon.quiet_hours import fill_the_day, parse, quiet_fraction, quiet_until
from penstock.lab import worlds
from tests.scenario import Scenario, play

NEW_YORK = ZoneInfo("America/New_York")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("spans", "now", "ends"),
    [
        (["08:00-18:00 UTC"], "2026-03-01 07:59", None),
        (["08:00-18:00 UTC"], "2026-03-01 08:00", "2026-03-01 18:00"),
        (["08:00-18:00 UTC"], "2026-03-01 18:00", None),
        (["22:30-06:00 UTC"], "2026-03-01 23:00", "2026-03-02 06:00"),
        (["22:30-06:00 UTC"], "2026-03-01 05:59", "2026-03-01 06:00"),
        (["20:00-24:00 UTC"], "2026-03-01 21:00", "2026-03-02 00:00"),
        (["08:00-12:00 UTC", "12:00-13:00 UTC"], "2026-03-01 09:00", "2026-03-01 13:00"),
        (["08:00-18:00 local"], "2026-01-15 14:00", "2026-01-15 23:00"),  # five hours behind in winter
        (["08:00-18:00 local"], "2026-07-15 12:30", "2026-07-15 22:00"),  # and four in summer
        (["22:00-06:00 local"], "2026-03-08 04:00", "2026-03-08 10:00"),  # the night that is an hour shorter
        (["02:15-03:15 local"], "2026-03-08 07:00", "2026-03-08 07:15"),  # 15 minutes of it, from 3:00
        (["01:00-02:30 local"], "2026-03-08 06:30", "2026-03-08 07:00"),  # the clocks go from 2:00 to 3:00
        (["02:00-02:45 local"], "2026-03-08 07:10", None),
        (["01:15-01:45 local"], "2026-11-01 05:20", "2026-11-01 05:45"),  # of the hour that comes twice
        (["01:15-01:45 local"], "2026-11-01 06:20", "2026-11-01 06:45"),
        (["00:30-01:30 local"], "2026-11-01 06:10", "2026-11-01 06:30"),
        (["00:00-24:00 UTC"], "2026-03-01 12:00", "2026-03-03 12:00"),  # no end, so at least not soon
    ],
)
def test_quiet_ends_when_the_hours_say(spans: list[str], now: str, ends: str | None) -> None:
    """The beginning is part of them, the end is not; nights reach into the next day; local hours follow the zone."""
    found = quiet_until(map(parse, spans), at(now), NEW_YORK)
    assert found == (None if ends is None else at(ends))


def test_hours_that_fill_the_day_do(tmp_path: Path) -> None:
    """Nothing would ever be probed, and the operator is told; a minute that is left is enough."""
    assert fill_the_day(map(parse, ["06:00-18:00 UTC", "18:00-06:00 UTC"]))
    assert not fill_the_day(map(parse, ["06:00-18:00 UTC", "18:00-05:59 UTC"]))
    assert not fill_the_day([])
    file = tmp_path / "penstock.toml"
    file.write_text('[probes]\nquiet_hours = ["00:00-24:00 local", "8-18"]', encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"probes\.quiet_hours: found .*; expected a list, each hours of the day"
    ):
        load(file, root=tmp_path)
    file.write_text('[probes]\nquiet_hours = ["00:00-24:00 local"]', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"probes\.quiet_hours: they fill the whole day"):
        load(file, root=tmp_path)


def test_how_much_of_the_day_is_quiet() -> None:
    """What two spans share counts once, also where they are of two zones."""
    summer = at("2026-07-15 12:00")  # four hours behind UTC
    assert quiet_fraction(map(parse, ["22:00-05:00 UTC", "00:00-02:00 local"]), summer, NEW_YORK) == 8 / 24
    assert quiet_fraction(map(parse, ["20:00-20:30 local"]), summer, NEW_YORK) == 0.5 / 24
    assert quiet_fraction((), summer, NEW_YORK) == 0.0


def test_nothing_is_probed_in_quiet_hours_and_again_after_them() -> None:
    """Through an hour: some probes before and after, none begins within, and the cycles say why."""
    hour = play(Scenario(link=worlds.NEAR.link, days=0.045, seed=2, quiet_hours=("00:10-00:30 UTC",)))
    minutes = [c.at.minute for c in hour.cycles if c.outcome is not None and c.at.hour == 0]
    assert any(minute < 10 for minute in minutes)
    assert any(minute >= 30 for minute in minutes)
    assert not [minute for minute in minutes if 11 <= minute < 30]  # one may end in them
    assert any("quiet hours, until 2026-01-05 00:30 UTC" in cycle.sentence for cycle in hour.cycles)
