"""The page of a fleet: from files that hosts wrote, the same whichever engine reads them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.analysis.page import page, rendered
from penstock.analysis.questions import SAMPLE_COUNT, fit_of
from penstock.analysis.schema import (
    OBSERVATION_COLUMNS,
    OBSERVATIONS,
    SPEND_COLUMNS,
    athena_ddl,
    file_path,
    observation_row,
)
from penstock.cli.main import cli
from penstock.cli.observations import write_days
from penstock.daemon.memory.store import Store
from penstock.models.s3.upload import S3UploadSetting
from penstock.operations.table import OPERATIONS, setting_types
from penstock.units import MiB
from penstock.vocabulary import Cost, Spend
from tests.factories import NOON, an_observation

pytest.importorskip("pyarrow", reason="Arrow is not installed (penstock[analysis]): make test-analysis")
pytest.importorskip("duckdb", reason="DuckDB is not installed (penstock[analysis]): make test-analysis")

from penstock.analysis import files, with_duckdb
from tests.fleet_files import CALM, CHANGED, HOSTS, SLOW, write_fleet


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Its folder, and what DuckDB answers."""
    folder = tmp_path_factory.mktemp("fleet")
    write_fleet(folder)
    return folder, with_duckdb.answers(str(folder))


def test_the_page_tells_who_is_slow_what_changed_and_what_it_cost(found: tuple[Path, dict[str, Any]]) -> None:
    """And what to use where, from the same models as a host's own."""
    folder, answers = found
    told = page(answers, str(folder))
    assert told["observation_count"] == 6 * 4 * 2 * 6
    assert told["usd"] == pytest.approx(24 * 0.001)
    assert [(row["host"], row["region"]) for row in told["slow_hosts"]] == [(SLOW, CALM.region)]
    assert "times as long" in told["slow_hosts"][0]["why"]
    assert [(row["region"], row["day"]) for row in told["changes"]] == [(CHANGED.region, "2026-03-04")]
    assert told["changes"][0]["ratio"] == pytest.approx(0.5, rel=0.2)
    assert [row["host_count"] for row in told["places"]] == [len(HOSTS)] * 2
    assert all(row["setting"]["thread_count"] >= 4 for row in told["places"])
    gains = [row["gain"] for row in told["places"]]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.0
    for form in ("markdown", "html"):
        text = rendered(told, form)
        assert CHANGED.region in text
        assert "times as long" in text
        assert f"{gains[0]:.3g} x (" in text
    assert json.loads(rendered(told, "json"))["usd"] == told["usd"]


def test_few_measurements_make_nobody_slow_and_no_change(found: tuple[Path, dict[str, Any]]) -> None:
    """A host's first probes try few threads; of one day on either side nobody knows what chance does."""
    folder, answers = found
    slow = [{**row, "observation_count": 2} if row["host"] == SLOW else row for row in answers["hosts"]]
    two_days = sorted({row["day"] for row in answers["days"]})[1:3]
    days = [row for row in answers["days"] if row["day"] in two_days]
    told = page({**answers, "hosts": slow, "days": days}, str(folder))
    assert told["slow_hosts"] == []
    assert told["changes"] == []


@pytest.mark.parametrize(
    ("differs", "why"),
    [
        ({"refused_fraction": 0.123}, "12 % of its requests are refused"),
        ({"client_cpu_fraction": 0.93}, "its probes keep a processor 93 % busy"),
        ({"latency_seconds": 0.2}, "its requests take 2.0 times as long as others'"),
        (
            {"latency_seconds": 0.13},
            "its requests take 1.3 times as long as others': fewer are under way, or its network carries less",
        ),
        ({"latency_seconds": 0.0}, "not known: requests were not timed"),
    ],
)
def test_a_slow_host_is_explained_by_what_was_measured(differs: dict[str, float], why: str) -> None:
    """In numbers: requests that take a third longer do not take as long."""
    usual = {"observation_count": 9, "value": 100.0, "payload_size_bytes": MiB} | {
        "operation": "s3_upload",
        "region": "r",
        "instance_type": "t",
        "service_class": "standard",
        "refused_fraction": 0.0,
        "client_cpu_fraction": 0.1,
        "latency_seconds": 0.1,
    }
    hosts = [{**usual, "host": f"h{n}"} for n in range(4)]
    slow = {**usual, "host": "slow", "value": 50.0, **differs}
    told = page({"hosts": [*hosts, slow], "places": [], "fits": [], "days": [], "spent": []}, "here")
    assert [(row["host"], row["why"]) for row in told["slow_hosts"]] == [("slow", why)]


def test_hosts_of_several_places_are_counted_once_each(found: tuple[Path, dict[str, Any]]) -> None:
    """Not as many as the place with most has."""
    folder, answers = found
    elsewhere = [{**row, "host": f"far-{row['host']}"} for row in answers["hosts"]]
    told = page({**answers, "hosts": [*answers["hosts"], *elsewhere]}, str(folder))
    assert told["host_count"] == 2 * len(HOSTS)


def test_a_host_writes_its_days_and_the_report_reads_them(tmp_path: Path) -> None:
    """From its database, by the two commands; written again, a day replaces itself."""
    database = tmp_path / "penstock.db"
    store = Store(database, setting_types())
    store.add_observations([an_observation(started_at=NOON)])
    store.close()
    fleet, page_file = tmp_path / "fleet", tmp_path / "page.md"
    run = CliRunner().invoke
    for _ in range(2):
        written = run(
            cli,
            [
                "observations",
                "--to",
                str(fleet),
                "--database",
                str(database),
                "--since",
                "3000d",
                "--host",
                "h",
            ],
        )
        assert written.exit_code == 0, written.output
    assert f"{NOON:%Y-%m-%d}: 1 observation\n" in written.output
    read = run(cli, ["report", "--from", str(fleet), "--format", "markdown", "--output", str(page_file)])
    assert read.exit_code == 0, read.output
    assert "1 observation of 1 host in" in page_file.read_text("utf-8")


def test_a_clock_that_was_ahead_has_no_days_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each day is a question to the database and a request to the bucket, and seventy years have many."""
    days, database = list[str](), tmp_path / "penstock.db"

    def write(_destination: str, path: str, _table: str, _rows: object) -> int:
        days.append(path.split("/")[1])
        return 0

    monkeypatch.setattr(files, "write", write)
    with closing(Store(database, setting_types())) as store:
        ahead = datetime(2099, 5, 1, 12, tzinfo=UTC)
        store.add_observations([an_observation(started_at=ahead)])
        store.add_spend(Spend(hour_at=ahead, operation="s3_upload", cost=Cost(usd=0.1)))
        with closing(Store.open_read_only(database, setting_types())) as reading:
            write_days(reading, "x", "h", datetime.now(UTC) - timedelta(days=1))
    assert "day=2099-05-01" in days
    assert len(set(days)) <= 4


def test_what_another_version_wrote_is_no_evidence() -> None:
    """The rest of its place is fitted without it."""
    model = OPERATIONS["s3_upload"].model
    rows = [
        {**observation_row(an_observation(started_at=NOON + timedelta(minutes=n)), model), "host": "h"}
        for n in range(3)
    ]
    rows[1]["document"] = '{"of": "another version"}'
    (told,) = fit_of(rows)
    assert told["observation_count"] == 2
    assert fit_of(rows[1:2]) == []


@pytest.mark.parametrize(
    "lie",
    [
        {"document": f'{{"x":{"[" * 100_000}{"]" * 100_000}}}'},
        {"transferred_bytes": 10**4000},
        {"transferred_bytes": 10**300, "duration_seconds": 1e-300},
        {"setting": {"thread_count": 0, "part_size_bytes": 0}},
        {"setting": {"thread_count": -5, "part_size_bytes": -5}},
        {"started_at": "9999-12-31T23:59:59Z"},
        {"started_at": "2026-03-01T12:00:00"},
    ],
    ids=["nested", "no number", "too fast", "nothing", "less than nothing", "future", "no time zone"],
)
def test_what_no_probe_can_have_measured_is_no_evidence(lie: dict[str, Any]) -> None:
    """One host that may write into the bucket must not keep all from being advised, nor choose what that is."""
    model = OPERATIONS["s3_upload"].model
    truth = [{**observation_row(an_observation(), model), "host": "h"}]
    document = lie.get("document") or json.dumps(json.loads(truth[0]["document"]) | lie)
    assert fit_of([*truth, {**truth[0], "document": document}]) == fit_of(truth)


@pytest.mark.parametrize(
    "lie",
    [
        dict.fromkeys(OBSERVATION_COLUMNS),
        {"region": None},
        {"region": "x" * 4_000_000},
        {"document": None},
        {"value": math.nan},
    ],
    ids=["nothing", "nowhere", "far too long", "no document", "no number"],
)
def test_rows_that_no_host_writes_are_left_out(tmp_path: Path, lie: dict[str, Any]) -> None:
    """The page is of the others."""
    row = observation_row(an_observation(), OPERATIONS["s3_upload"].model)
    for host, rows in (("a", [row]), ("b", [{**row, **lie}] * 9)):
        files.write(str(tmp_path), file_path(OBSERVATIONS, f"{NOON:%Y-%m-%d}", host), OBSERVATIONS, rows)
    told = page(with_duckdb.answers(str(tmp_path)), "x")
    assert (told["host_count"], told["observation_count"]) == (1, 1)
    assert all(rendered(told, form) for form in ("html", "markdown", "json"))


def test_a_host_whose_clock_was_ahead_leaves_its_place_to_be_advised(tmp_path: Path) -> None:
    """Its probes are the newest for as long as their date has not come, and are no evidence."""
    model = OPERATIONS["s3_upload"].model
    for host, begin, count in (("a", NOON, 9), ("b", datetime(2099, 5, 1, tzinfo=UTC), SAMPLE_COUNT)):
        probes = (an_observation(started_at=begin + timedelta(minutes=number)) for number in range(count))
        rows = [observation_row(probe, model) for probe in probes]
        files.write(str(tmp_path), file_path(OBSERVATIONS, f"{begin:%Y-%m-%d}", host), OBSERVATIONS, rows)
    (fit,) = with_duckdb.answers(str(tmp_path))["fits"]
    assert fit["observation_count"] == 9


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """In a sentence: whoever looks after the bucket removes it."""
    stray = tmp_path / "observations" / "notes.txt"
    stray.parent.mkdir()
    stray.write_text("remember the milk")
    read = CliRunner().invoke(cli, ["report", "--from", str(tmp_path)])
    assert read.exit_code == 1
    assert str(stray) in read.stderr


def test_a_writer_that_is_killed_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    """The report would fail for all hosts until this one writes that day again."""
    row = observation_row(an_observation(), OPERATIONS["s3_upload"].model)

    def rows() -> Iterator[dict[str, Any]]:
        for _ in range(20_000):  # several batches
            yield row
        raise KeyboardInterrupt

    path = file_path(OBSERVATIONS, f"{NOON:%Y-%m-%d}", "a")
    files.write(str(tmp_path), path, OBSERVATIONS, [row])
    with pytest.raises(KeyboardInterrupt):
        files.write(str(tmp_path), path, OBSERVATIONS, rows())
    assert page(with_duckdb.answers(str(tmp_path)), "x")["observation_count"] == 1


def test_a_fleet_is_told_to_dare_no_more_than_its_hosts_are() -> None:
    """What was tried bounds what is advised, on the page as by a daemon that measured the same."""
    model = OPERATIONS["s3_upload"].model
    setting = S3UploadSetting(thread_count=2, part_size_bytes=8 * MiB)
    rows = [{**observation_row(an_observation(setting=setting), model), "host": "h"}]
    (told,) = fit_of(rows)
    assert json.loads(told["setting"])["thread_count"] <= 10  # what the SDK does by itself needs no daring


def test_nothing_there_is_said(tmp_path: Path) -> None:
    """With what would put something there."""
    read = CliRunner().invoke(cli, ["report", "--from", str(tmp_path)], standalone_mode=False)
    assert "penstock observations --to" in str(read.exception)


@pytest.mark.parametrize("place", ["s3://", "s3:///prefix", "s3:/bucket/prefix", "gs://bucket"])
def test_what_is_neither_a_folder_nor_a_bucket_is_refused(place: str, tmp_path: Path) -> None:
    """With what it may be, and before a folder of that name is made."""
    for words in (
        ["report", "--from", place],
        ["observations", "--to", place, "--database", str(tmp_path / "db")],
    ):
        Store(tmp_path / "db", setting_types()).close()
        asked = CliRunner().invoke(cli, words, standalone_mode=False)
        assert "is neither a folder nor s3://bucket/prefix" in str(asked.exception)


@pytest.mark.parametrize("words", [["--to", "x", "--host", "../x"], ["--athena", "fleet"]])
def test_words_that_would_be_written_where_nobody_reads_are_refused(words: list[str]) -> None:
    """A host is one folder, and Athena reads buckets."""
    assert CliRunner().invoke(cli, ["observations", *words]).exit_code == 2


def test_athena_is_told_every_column() -> None:
    """And partitions by day and host."""
    ddl = athena_ddl("s3://b/fleet/")
    assert "LOCATION 's3://b/fleet/observations/'" in ddl
    assert "PARTITIONED BY (day string, host string)" in ddl
    assert all(f"  {name} {kind}" in ddl for name, kind in {**OBSERVATION_COLUMNS, **SPEND_COLUMNS}.items())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # pyspark's and pandas' own
def test_spark_gives_the_same_fits_and_the_same_page(
    found: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its local mode, from the same files."""
    pytest.importorskip("pyspark", reason="pyspark is not installed (penstock[spark])")
    pytest.importorskip("pandas", reason="pandas is not installed (penstock[spark])")
    from pyspark.sql import SparkSession

    from penstock.analysis import with_spark

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    folder, answers = found
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    try:
        sparks = with_spark.answers(spark, str(folder))
    finally:
        spark.stop()
    assert sparks["fits"] == answers["fits"]
    assert rendered(page(sparks, "x"), "html") == rendered(page(answers, "x"), "html")
