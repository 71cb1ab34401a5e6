"""`penstock report` against real database files."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.cli.main import run
from penstock.daemon.budget import Spend
from penstock.daemon.store import Store
from penstock.vocabulary import Cost
from tests.factories import NOON, PLACE, SETTING_TYPES, an_inconclusive
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


def plain(value: object) -> object:
    """As JSON writes it."""
    return json.loads(msgspec.json.encode(value))


def test_the_page_is_written_where_it_was_asked_for(database: Path, tmp_path: Path) -> None:
    """One file, whole."""
    output = tmp_path / "page.html"
    assert run(["report", "--database", str(database), "--output", str(output)]) == 0
    assert output.read_text().rstrip().endswith("</html>")


def test_reading_changes_nothing(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is the same byte for byte."""
    before = database.read_bytes()
    written(database, capsys)
    assert database.read_bytes() == before


def test_since_leaves_out_what_is_older(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The advice that stands is shown however old it is."""
    document = json.loads(written(database, capsys, "--json", "--since", "1s"))
    (place,) = document["places"]
    assert place["observation_count"] == 0
    assert place["measured"] == []
    assert document["spending"] == []
    assert place["advice"]


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


def test_a_newer_database_is_refused_with_a_sentence(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guessing at a schema would be worse."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert "has version 99" in complaint(database, capsys)


@pytest.mark.parametrize("offset", [0, 4096 * 2], ids=["head", "pages"])
def test_a_broken_database_is_refused_with_a_sentence(
    database: Path, capsys: pytest.CaptureFixture[str], offset: int
) -> None:
    """Wherever it is broken."""
    content = bytearray(database.read_bytes())
    content[offset:] = b"\xa5" * len(content[offset:])
    database.write_bytes(content)
    assert "cannot be" in complaint(database, capsys)


def test_a_directory_is_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence says what to check."""
    assert "cannot be used" in complaint(tmp_path, capsys)


def test_a_page_that_cannot_be_written_is_a_sentence(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And exit code 1."""
    output = tmp_path / "no" / "page.html"
    assert run(["report", "--database", str(database), "--output", str(output)]) == 1
    assert "cannot be written" in capsys.readouterr().err
