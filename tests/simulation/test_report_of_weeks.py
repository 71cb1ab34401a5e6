"""What the report says of weeks whose truth is known: a drift, refusals, a rhythm, and nothing at all."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.cli.report import read_material
from penstock.lab import worlds
from penstock.optimizer.verdict import signed_percent
from penstock.report.findings import PlaceFindings
from penstock.report.study import study
from tests.scenario import START_AT, At, Scenario, play

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

DAYS = 7.0
LINK = worlds.REGIONAL.link
CHANGED_AT = START_AT + timedelta(days=0.45 * DAYS)
SLOWER = dataclasses.replace(
    LINK, connection_rate_bytes_per_second=0.57 * LINK.connection_rate_bytes_per_second
)
REFUSING = dataclasses.replace(LINK, prefix_request_rate_per_second=20)
BUSY = dataclasses.replace(
    LINK,
    connection_rate_bytes_per_second=0.6 * LINK.connection_rate_bytes_per_second,
    host_rate_bytes_per_second=0.6 * LINK.host_rate_bytes_per_second,
)
HOURS = timedelta(hours=1)


def findings(directory: Path, changes: Sequence[At]) -> PlaceFindings:
    """Of the one place, after a week."""
    play(Scenario(link=LINK, days=DAYS, seed=1, changes=tuple(changes)), keep=directory)
    now = START_AT + timedelta(days=DAYS)
    (place,) = study(read_material(directory / "penstock.db", None, now=now, since=None)).places
    return place


def sentence_of(place: PlaceFindings) -> str:
    """The verdict."""
    assert place.verdict is not None
    return place.verdict.sentence


def test_a_drift_is_named_with_its_date_and_size(tmp_path: Path) -> None:
    """Connections lose 43 %: an object of 64 MiB, which also takes two requests around its parts, about a third."""
    place = findings(tmp_path, [At(days=0.45 * DAYS, link=SLOWER)])
    (change,) = [change for change in place.changes if change.is_certain]
    assert abs(change.changed_at - CHANGED_AT) < 6 * HOURS
    assert change.fraction is not None
    assert change.fraction.low < -0.35 < change.fraction.high
    assert f"changed on 8 January, {signed_percent(change.fraction.expected)}" in sentence_of(place)
    assert any(words.startswith("connection from") for words in change.moved)


def test_refusals_are_named_with_their_beginning_and_end(tmp_path: Path) -> None:
    """Half a day at twenty requests a second: between measurements that asked for as much."""
    place = findings(tmp_path, [At(days=0.45 * DAYS, link=REFUSING), At(days=0.45 * DAYS + 0.5, link=LINK)])
    (episode,) = place.episodes
    assert episode.begins_after is not None
    assert episode.ends_before is not None
    assert episode.begins_after < CHANGED_AT < episode.begins_at
    assert episode.ends_at < CHANGED_AT + 12 * HOURS < episode.ends_before
    refused = f"of the requests of {episode.measured_count} measurements were refused on 8 January"
    assert refused in sentence_of(place)


def test_a_rhythm_is_named_with_its_hours_and_size(tmp_path: Path) -> None:
    """Four tenths less from 8 to 18 each day; it is a rhythm, and no change."""
    days = range(int(DAYS))
    hours = ((8 / 24, BUSY), (18 / 24, LINK))
    place = findings(tmp_path, [At(days=day + share, link=link) for day in days for share, link in hours])
    (rhythm,) = [rhythm for rhythm in place.rhythms if rhythm.is_significant]
    assert rhythm.fraction is not None
    assert rhythm.fraction.low < -0.28 < rhythm.fraction.high
    begin, end = map(int, re.findall(r"(\d\d):00", rhythm.span))  # by whole hours, of ten measurements each
    assert (abs(begin - 8) <= 1, abs(end - 18) <= 1) == (True, True)
    assert "slower between" in sentence_of(place)
    assert "changed on" not in sentence_of(place)


def test_a_calm_week_names_nothing(tmp_path: Path) -> None:
    """Dips and neighbours are weather."""
    place = findings(tmp_path, [])
    assert [change for change in place.changes if change.is_certain] == []
    assert place.episodes == ()
    assert not any(rhythm.is_significant for rhythm in place.rhythms)
