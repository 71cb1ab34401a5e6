"""`penstock report` against real database files."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli, run
from penstock.cli.report import _bounds, read_material
from penstock.daemon.config import Configuration
from penstock.daemon.memory.database import migrations
from penstock.daemon.memory.store import Store
from penstock.models.inference.histogram import histogram_of
from penstock.models.model import Cell
from penstock.models.sqs.backlog_warning import BacklogSpell
from penstock.report.document import schema
from penstock.report.findings import SCHEMA, Report
from penstock.units import KiB, MiB
from penstock.vocabulary import Cost, Demand, Spend
from tests.factories import CONTEXT, NOON, PLACE, SETTING_TYPES, an_inconclusive
from tests.unit.report.materials import a_real_fit, real_advice, some_observations


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A daemon was here, measured, advised and stopped."""
    path = tmp_path / "penstock.db"
    with closing(Store(path, SETTING_TYPES)) as store:
        store.add_observations(some_observations())
        store.add_inconclusive(an_inconclusive())
        store.add_fit(a_real_fit(), fitted_at=NOON)
        for hours in (0.5, 3.5):
            store.add_recommendation(real_advice(hours))
        store.add_spend(Spend(hour_at=NOON, operation="s3_upload", cost=Cost(request_count=7, usd=0.01)))
    return path


def written(database: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints."""
    assert run(["report", "--database", str(database), "--output", "-", *arguments]) == 0
    return capsys.readouterr().out


def complaint(database: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a failing command says."""
    assert run(["report", "--database", str(database), "--output", "-"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return " ".join(err.split())


def test_the_page_is_written_as_it_says_whatever_the_locale(database: Path) -> None:
    """It names its own encoding; in that of a terminal it would be another page, or none."""
    command = [sys.executable, "-m", "penstock", "report", "--database", str(database), "--output", "-"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    page = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True).stdout
    assert not page.isascii()
    assert "\\x" not in page.decode()[:20_000]


def test_the_json_holds_the_values_of_the_store(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is rounded, renamed or left out on the way."""
    (place,) = json.loads(written(database, capsys, "--json"))["places"]
    with closing(Store.open_read_only(database, SETTING_TYPES)) as store:
        history = store.recommendation_history(real_advice().context, count_max=10)
        observations = store.observations(PLACE, count_max=10)
        (fit,) = store.fits()
        inconclusives = store.inconclusives(count_max=10)
        spends = store.spend()
    assert place["histories"][0]["recommendations"] == plain(history)
    assert [m["value"] for m in place["measured"]] == [o.throughput_bytes_per_second for o in observations]
    assert [m["setting"] for m in place["measured"]] == plain([o.setting for o in observations])
    assert place["fit"]["parameters"] == plain(fit.parameters)
    assert place["inconclusives"] == plain(inconclusives)
    document = json.loads(written(database, capsys, "--format", "json"))
    assert [s["cost"] for s in document["spending"]] == plain([s.cost for s in spends])


def test_what_is_counted_of_times_is_not_held_once_more_of_each(database: Path) -> None:
    """Histograms of the newest of sixty places were half of the memory that a report took."""
    times = {"request_seconds": histogram_of([0.1, 0.2])}
    with closing(Store(database, SETTING_TYPES)) as store:
        newest = store.observations(PLACE, count_max=1)[0]
        store.add_observations([dataclasses.replace(newest, histograms=times)])
    material = read_material(database, None, now=NOON, since=None)
    assert not any(one.histograms for one in material.observations[PLACE])
    assert material.tallies[PLACE].times


def plain(value: object) -> object:
    """As JSON writes it."""
    return json.loads(msgspec.json.encode(value))


def test_the_page_is_written_where_it_was_asked_for(database: Path, tmp_path: Path) -> None:
    """One file, whole."""
    output = tmp_path / "page.html"
    assert run(["report", "--database", str(database), "--output", str(output)]) == 0
    assert output.read_text().rstrip().endswith("</html>")


def test_a_link_is_neither_followed_nor_replaced(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may put a link where root writes a report must not choose what root overwrites."""
    precious, link = tmp_path / "precious", tmp_path / "week.html"
    precious.write_text("kept", encoding="utf-8")
    link.symlink_to(precious)
    assert run(["report", "--database", str(database), "--output", str(link)]) == 1
    assert f"week.html is a link to {precious}: name that file" in capsys.readouterr().err
    assert (precious.read_text(encoding="utf-8"), link.is_symlink()) == ("kept", True)


def test_an_earlier_page_is_replaced_at_once_and_keeps_its_mode(database: Path, tmp_path: Path) -> None:
    """Whoever reads it meanwhile has all of the old one."""
    output = tmp_path / "week.html"
    output.write_text("old", encoding="utf-8")
    output.chmod(0o640)
    with output.open(encoding="utf-8") as reader:
        assert run(["report", "--database", str(database), "--output", str(output)]) == 0
        assert reader.read() == "old"
    assert output.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert output.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == sorted({output, *tmp_path.glob("penstock.db*")})


def test_what_is_no_file_is_written_into(database: Path, tmp_path: Path) -> None:
    """A pipe or a device stays what it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert run(["report", "--database", str(database), "--output", str(pipe), "--format", "markdown"]) == 0
    assert os.read(reading, 6) == b"**pens"
    os.close(reading)
    assert pipe.is_fifo()


def test_reading_changes_nothing(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is the same byte for byte."""
    before = database.read_bytes()
    written(database, capsys)
    assert database.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--since", "7"], "7d"),
        (["--compare", "7"], "7d"),
        (["--output", ""], "names no file"),
        (["--json", "--format", "markdown"], "another format"),
        (["--full"], "--format markdown"),
    ],
)
def test_what_may_be_meant_otherwise_is_refused(database: Path, words: list[str], told: str) -> None:
    """Seven seconds are hardly what is meant, nor is the folder that one is in, nor one of two formats."""
    refused = CliRunner().invoke(cli, ["report", "--database", str(database), *words])
    assert (refused.exit_code, told in refused.output) == (2, True)


def test_since_leaves_out_what_is_older(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The advice that stands is shown however old it is."""
    document = json.loads(written(database, capsys, "--json", "--since", "1s"))
    (place,) = document["places"]
    assert place["observation_count"] == 0
    assert place["measured"] == []
    assert document["spending"] == []
    assert place["advice"]


def test_since_leaves_the_verdict_with_the_size_that_was_measured(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing is so young, the first of the sizes that advice is kept for was perhaps never tried."""
    small = dataclasses.replace(CONTEXT, payload_size_bytes=64 * KiB)
    setting = {"thread_count": 8, "part_size_bytes": 8.0 * MiB}
    measured = Cell(
        payload_size_bytes=CONTEXT.payload_size_bytes,
        setting=setting,
        count=9,
        value_median=1e8,
        had_trouble=False,
        newest_at=NOON,
    )
    with closing(Store(database, SETTING_TYPES)) as store:
        store.add_fit(dataclasses.replace(a_real_fit(), cells=(measured,)), fitted_at=NOON)
        store.add_recommendation(dataclasses.replace(real_advice(), context=small))
    (place,) = json.loads(written(database, capsys, "--json", "--since", "1s"))["places"]
    assert place["verdict"]["payload_size_bytes"] == CONTEXT.payload_size_bytes


def test_the_configuration_names_database_and_budget(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the daemon that wrote it was configured."""
    file = tmp_path / "penstock.toml"
    file.write_text(f'[daemon]\nstate_directory = "{database.parent}"\n[budget]\nrequest_count_per_day = 7\n')
    assert run(["report", "--config", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["daily_limit"]["request_count"] == 7
    assert "budget-used-up" in {remark["code"] for remark in document["remarks"]}


def test_advice_is_bounded_as_the_daemon_bounds_it(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the most threads that the operator allows, and not by what a probe may hold."""
    file = tmp_path / "penstock.toml"

    def advised(limit: str) -> dict[str, int]:
        file.write_text(f'[daemon]\nstate_directory = "{database.parent}"\n[probes.s3_upload]\n{limit}\n')
        assert run(["report", "--config", str(file), "--json"]) == 0
        (place,) = json.loads(capsys.readouterr().out)["places"]
        recommendation = place["advice"][0]["recommendation"]
        assert recommendation["demand"]["thread_count_max"] is None
        setting: dict[str, int] = recommendation["setting"]
        return setting

    assert advised("")["thread_count"] > 3
    assert advised("thread_count_max = 3")["thread_count"] <= 3
    assert advised('memory_bytes_max = "8MiB"') == advised("")


def test_a_database_alone_is_of_a_daemon_without_a_configuration() -> None:
    """Bounded by nothing, the page would advise a queue more threads than the daemon that wrote the database did."""
    context = dataclasses.replace(CONTEXT, place=dataclasses.replace(PLACE, operation="sqs_delivery"))
    named, empty = (_bounds([], each)(context, Demand()) for each in (None, Configuration()))
    assert named == empty
    assert named.thread_count_max is not None


def test_an_empty_database_makes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon that has just started."""
    path = tmp_path / "penstock.db"
    Store(path, SETTING_TYPES).close()
    assert "holds no observations" in written(path, capsys)
    assert json.loads(written(path, capsys, "--json"))["places"] == []


def test_a_missing_database_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is created in its place."""
    path = tmp_path / "nothing.db"
    assert f"there is no database at {path}" in complaint(path, capsys)
    assert not path.exists()


def test_of_a_newer_database_is_shown_what_is_known(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that is new is not missed, a column that is gone is; what is shown says that there is more."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("ALTER TABLE observations ADD COLUMN colour TEXT")
        connection.execute("CREATE TABLE moods (mood TEXT)")
        connection.execute("DROP TABLE spend")
        connection.commit()
    before = database.read_bytes()
    document = json.loads(written(database, capsys, "--json"))
    assert document["places"][0]["observation_count"] == 6
    assert document["damage"] == [
        f"it is of version 99 and this penstock knows up to {max(migrations())}: what is new in it is not shown",
        "the table of spend is missing",
    ]
    assert "database-damaged" in {remark["code"] for remark in document["remarks"]}
    assert database.read_bytes() == before


def test_a_page_of_noise_costs_no_more_than_what_was_on_it(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flipped bytes in one page refused the whole report."""
    with closing(sqlite3.connect(database)) as connection:
        root = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'recommendations'"
        ).fetchone()[0]
    content = bytearray(database.read_bytes())
    content[4096 * (root - 1) : 4096 * root] = b"\xa5" * 4096
    database.write_bytes(content)
    document = json.loads(written(database, capsys, "--json"))
    assert document["places"][0]["observation_count"] == 6
    assert document["damage"] == ["recommendations has 1 place that cannot be read"]
    assert bytes(content) == database.read_bytes()


def test_of_a_file_that_was_cut_off_is_shown_what_is_left(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However much is missing, the report is a page or a sentence, and never a traceback."""
    content = database.read_bytes()
    shown = 0
    for size in range(4096, len(content), 4096 * 2):
        database.write_bytes(content[:size])
        code = run(["report", "--database", str(database), "--output", "-", "--json"])
        out, err = capsys.readouterr()
        assert code in {0, 1}
        assert "Traceback" not in err
        shown += code == 0 and bool(json.loads(out)["damage"])
    assert shown > 2


def test_a_file_that_is_none_is_refused_with_a_sentence(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing can be read without its head; it is said once what the file is not."""
    database.write_bytes(b"\xa5" * 8192)
    said = complaint(database, capsys)
    assert said.count(str(database)) == 1
    assert "file is not a database" in said
    assert "name another with --database" in said


def test_the_same_database_and_date_make_the_same_bytes(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page can be checked by making it again."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1772400000")
    for form in ("html", "markdown", "json"):
        first, second = (written(database, capsys, "--format", form) for _ in range(2))
        assert first == second
        assert "2026-03-01" in first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    assert run(["report", "--database", str(database), "--output", "-"]) == 2
    assert "SOURCE_DATE_EPOCH is 'soon'" in capsys.readouterr().err


def test_places_that_are_read_side_by_side_say_the_same(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many processes read a large database changes nothing; what none of them understands is counted once."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1772400000")
    away = dataclasses.replace(PLACE, region="eu-west-3")
    elsewhere = [
        dataclasses.replace(o, context=dataclasses.replace(o.context, place=away))
        for o in some_observations()
    ]
    with closing(Store(database, SETTING_TYPES)) as store:
        store.add_observations(elsewhere)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE observations SET document = '{}' WHERE observation_id = 3")
        connection.commit()
    alone = written(database, capsys, "--json")
    assert json.loads(alone)["unreadable_count"] == 1
    monkeypatch.setattr("penstock.cli.report.OBSERVATION_COUNT_OF_ONE_PROCESS", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _process_id: {0, 1})
    assert written(database, capsys, "--json") == alone


def test_the_json_keeps_to_its_schema(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The schema is in the manual, its number in the document; whoever reads it can hold one against the other."""
    text = written(database, capsys, "--json")
    assert json.loads(text)["schema"] == SCHEMA
    msgspec.json.decode(text, type=Report)
    kept = Path(__file__).parents[2] / "docs" / "report.schema.json"
    assert kept.read_text(encoding="utf-8") == schema(), (
        "raise SCHEMA where a key went, and write the schema anew with penstock.report.document.schema"
    )


@pytest.mark.parametrize("what", ["2026-03-01T14:30", "3h", "other.db", "eu-central-1"])
def test_two_times_hosts_and_regions_are_compared(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Differences have intervals; what is the same does not differ for certain."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1772386200")  # 17:30
    other = database.parent / "other.db"
    other.write_bytes(database.read_bytes())
    document = json.loads(
        written(database, capsys, "--json", "--compare", str(other) if what == "other.db" else what)
    )
    (comparison,) = document["comparisons"]
    for difference in comparison["differences"]:
        fraction = difference["fraction"] or {"low": 0, "high": 0}  # all alike: nothing to tell chance by
        assert fraction["low"] <= 0 <= fraction["high"]
    assert len(comparison["differences"]) == (what != "eu-central-1")  # there is no other place here


def test_what_cannot_be_compared_is_wrong_usage(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence says what can be."""
    assert run(["report", "--database", str(database), "--output", "-", "--compare", "mars"]) == 2
    assert "no region of this database (eu-central-1)" in capsys.readouterr().err


def test_a_page_that_replaces_another_says_what_is_new_since(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weekly page compares itself with the one of last week."""
    output = tmp_path / "week.html"
    for seconds in ("1772375000", "1772386200"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", seconds)
        assert run(["report", "--database", str(database), "--output", str(output)]) == 0
    page = output.read_text(encoding="utf-8")
    assert "Since the last report" in page
    assert "since 2026-03-01 14:23 UTC" in page


@pytest.mark.parametrize("date", ["2026-03-01T12:00:00", "0001-01-01T00:00:00+23:00", "some day"])
def test_a_page_whose_date_was_tampered_with_is_replaced_all_the_same(
    database: Path, tmp_path: Path, date: str
) -> None:
    """Who may write where a report is written must not keep it from being written."""
    output = tmp_path / "week.html"
    output.write_text(f'<meta name="penstock-generated-at" content="{date}">', encoding="utf-8")
    assert run(["report", "--database", str(database), "--output", str(output)]) == 0
    assert date not in output.read_text(encoding="utf-8")


def test_a_directory_is_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor one that is broken, nor does the disk report an error."""
    assert complaint(tmp_path, capsys) == f"Error: {tmp_path} is a directory: name the database in it"


def test_a_page_that_cannot_be_written_is_a_sentence(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And exit code 1."""
    output = tmp_path / "no" / "page.html"
    assert run(["report", "--database", str(database), "--output", str(output)]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_what_a_watched_queue_held_is_drawn_until_it_is_too_old(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over time, with its most; forgotten like what was measured."""
    with closing(Store(database, SETTING_TYPES)) as store:
        for n in range(8):
            store.add_backlog(
                BacklogSpell(
                    region="eu-central-1",
                    queue="orders",
                    began_at=NOON + n * timedelta(minutes=15),
                    visible_message_count=3.0,
                    not_visible_message_count=100.0 * n,
                    oldest_undeleted_seconds=2.5 * n,
                    visibility_timeout_seconds=30.0,
                )
            )
    page = written(database, capsys)
    assert "The backlog of orders over time" in page
    assert "At most 700 messages were received and not deleted, on 2026-03-01 at 13:45 UTC" in page
    assert "58% of the visibility timeout" in page
    assert len(json.loads(written(database, capsys, "--json"))["backlogs"]) == 8
    with closing(Store(database, SETTING_TYPES)) as store:
        store.prune(now=NOON + timedelta(days=2), retention_seconds=86400.0)
        assert store.backlogs() == []
