"""Places set side by side: told apart by their files, and what makes them differ said of what was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.experiments.archive import Archive
from penstock.experiments.experiment import Form, Record, Records
from penstock.experiments.table import EXPERIMENTS

LOCATIONS = EXPERIMENTS["locations"]
LINE_BYTES_PER_SECOND = 1e9


def a_place(
    name: str,
    *,
    round_trip: float,
    round_trips: float = 17.0,
    extra: float = 0.0,
    line: float = LINE_BYTES_PER_SECOND,
) -> list[Record]:
    """One whose megabyte takes so many round trips, and something beside; eight at once share a line."""
    byte_seconds, megabyte_seconds = 0.03 + round_trip, 0.03 + round_trips * round_trip + extra
    found = []
    for kind in ("read", "write"):
        rate = min(1e6 / megabyte_seconds, line)
        sizes = {"1B": (byte_seconds, 1.0), "1MB": (megabyte_seconds, rate)}
        sizes["8x1MB"] = (8e6 / min(8 * rate, line), min(8 * rate, line))
        for size, (seconds, throughput) in sizes.items():
            values = {
                "latency_seconds_mean": seconds,
                "latency_seconds_p99": seconds,
                "throughput_bytes_per_second": throughput,
            }
            found.append(
                Record(label=f"{name}/{kind}/{size}/0", started_at="2026-01-01T00:00:00+00:00", values=values)
            )
    return found


def said_of(*places: Sequence[Record]) -> str:
    """The sentences after a run on real services."""
    return " ".join(
        LOCATIONS.answers(Records([record for place in places for record in place], is_here=True))
    )


def test_distance_is_named_where_the_round_trip_is_all() -> None:
    """16 round trips for each megabyte, wherever the host is: fifteen windows, of 67 KB."""
    places = [a_place(f"p{ms}", round_trip=1e-3 * ms, round_trips=16.0) for ms in (1, 20, 80, 150)]
    said = said_of(*places)
    assert "a read of 1 MB takes 16.0 ms longer, which explains 100.0 %" in said
    assert "a round trip for every 67 KB" in said
    assert "a single connection does not use all there is" in said
    assert "This is one place" not in said


def test_more_than_distance_is_named_where_something_else_holds_a_place() -> None:
    """The nearest is the slowest: no number of round trips says that."""
    said = said_of(
        a_place("near", round_trip=0.02, extra=3.0),
        a_place("mid", round_trip=0.06),
        a_place("far", round_trip=0.1),
    )
    assert "More than distance makes them differ" in said
    assert "a round trip for every" not in said


def test_a_line_that_eight_connections_do_not_fill_better_is_named() -> None:
    """And the other place beside it, where they do."""
    said = said_of(a_place("thin", round_trip=0.02, line=3e6), a_place("wide", round_trip=0.1))
    assert "reads from thin 1.1, writes from thin 1.1. There the line" in said
    assert "Elsewhere eight requests at once carry 8.0 to 8.0 times" in said
    assert "Two places do not tell" in said


def test_one_place_says_how_to_compare_it() -> None:
    """And says nothing of distance."""
    said = said_of(a_place("here", round_trip=0.02))
    assert "--with NAME.jsonl" in said
    assert "For each millisecond" not in said
    near = said_of(a_place("a", round_trip=0.02), a_place("b", round_trip=0.021))
    assert "too close to tell" in near


def begun_after(seconds: float, *, read: float, write: float | None) -> str:
    """Of a place whose megabytes begin so much later than single bytes, and take so long; None if none was written."""
    found = []
    for kind, size, first, longest in (
        ("read", "1B", 0.02, 0.02),
        ("read", "1MB", 0.02 + seconds, read),
        ("write", "1MB", 0.0, write),
    ):
        if longest is None:
            continue
        values = {
            "latency_seconds_mean": longest,
            "latency_seconds_p99": longest,
            "first_byte_seconds_mean": first,
        }
        label = f"here/{kind}/{size}/0"
        found.append(Record(label=label, started_at="2026-01-01T00:00:00+00:00", values=values))
    return said_of(found)


def test_reads_that_are_faster_are_not_said_to_be_slower() -> None:
    """Even where the service needs its time before it answers."""
    assert "begins 30 ms later" in begun_after(0.03, read=0.06, write=0.1)
    assert "slower than writes" not in begun_after(0.03, read=0.06, write=0.1)
    assert "slower than writes" in begun_after(0.05, read=0.2, write=0.1)
    assert "begins 50 ms later" in begun_after(0.05, read=0.2, write=None)
    assert "slower than writes" not in begun_after(0.05, read=0.2, write=None)


def report(directory: Path, *words: str) -> Result:
    """Of what is kept there."""
    return CliRunner().invoke(cli, ["measure", "report", "locations", "--directory", str(directory), *words])


def measured_at(directory: Path, round_trip: float) -> Archive:
    """What a host elsewhere keeps."""
    archive = Archive(directory, LOCATIONS, Form.FULL, place="aws-us-east-1")
    archive.append(*a_place("here", round_trip=round_trip))
    return archive


def test_what_was_measured_elsewhere_is_one_file_with_the_name_of_the_place(tmp_path: Path) -> None:
    """Taken out there, set beside what was measured here; a published place fills its figure."""
    measured_at(tmp_path / "there", 0.1)
    taken = tmp_path / "netherlands.jsonl"
    assert report(tmp_path / "there", "--output", str(taken)).exit_code == 0
    measured_at(tmp_path / "own", 0.01)
    Archive(tmp_path / "own", LOCATIONS, Form.LAB).append(*a_place("mit", round_trip=0.05))  # it need not run
    page = tmp_path / "page.html"
    shown = report(tmp_path / "own", "--with", str(taken), "--output", str(page))
    rows = [
        line.split()[0] for line in shown.stdout.splitlines() if line.startswith(("netherlands ", "here "))
    ]
    assert rows == ["netherlands", "here"] * 2  # the slower first, in both tables
    assert "<td>netherlands</td>" in page.read_text()
    document = json.loads(report(tmp_path / "own", "--with", str(taken), "--json").stdout)
    (read,) = [fact for fact in document["facts"] if fact["name"] == "location.netherlands.read"]
    assert read["here"] == pytest.approx(1e3 / (0.03 + 17 * 0.1))
    assert document["tables"][0]["rows"][0][0] == "netherlands"


def test_a_file_that_compares_nothing_is_refused(tmp_path: Path) -> None:
    """That of another experiment, a damaged one, two of one name, before the lab runs; no other one has places."""
    kept = measured_at(tmp_path / "there", 0.1)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(kept.path.read_text().replace('"values":{', '"values":7,"rest":{'))
    good, again = tmp_path / "mit.jsonl", tmp_path / "again" / "mit.jsonl"
    again.parent.mkdir()
    for path in (good, again):
        path.write_text(kept.path.read_text())
    empty = tmp_path / "empty"
    refused = report(empty, "--with", str(damaged))
    assert "has nothing of locations" in refused.stderr
    assert "in the lab" not in refused.stderr
    assert "two places are called mit" in report(empty, "--with", str(good), "--with", str(again)).stderr
    assert "nothing was measured yet" in report(empty, "--output", str(tmp_path / "none.jsonl")).stderr
    other = CliRunner().invoke(cli, ["measure", "report", "surge", "--with", str(good)])
    assert "--with compares the places of locations" in other.stderr
