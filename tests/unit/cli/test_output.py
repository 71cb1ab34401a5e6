"""How documents are shown to people."""

from __future__ import annotations

from typing import Any

import click
import pytest

from penstock.cli import output
from penstock.units import MiB


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("part_size_bytes", 8 * MiB, "8 MiB"),
        ("throughput_bytes_per_second", 37.5e6, "37.5 MB/s"),
        ("latency_seconds_p99", 0.153, "153 ms"),
        ("send_rate_limit_messages_per_second", 1234.5, "1,234 messages/s"),
        ("residual_fraction", 0.021, "2.1 %"),
        ("spent_usd", 0.0123, "$0.0123"),
        ("spent_usd", 0.6, "$0.60"),
        ("spent_usd", 97.43, "$97.43"),
        ("spent_usd", 4.0, "$4"),
        ("crt_target_gbps", 12.8, "12.8 Gbit/s"),
        ("thread_count", 1024, "1,024"),
        ("is_off_model", False, "no"),
        ("newest_observation_age_seconds", None, "-"),
        ("trouble", ["a", "b"], "a, b"),
    ],
)
def test_a_value_is_shown_with_the_unit_of_its_name(name: str, value: Any, shown: str) -> None:
    """Names carry units, so nobody has to tell the output what a number is."""
    assert output.text(name, value) == shown


def test_nested_documents_become_titled_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """Alike mappings are rows of a table, and take their unit from the row's name where the column has none."""
    output.print_mapping(
        {
            "operation": "s3_upload",
            "fit": {
                "parameters": {
                    "request_seconds": {"low": 0.01, "expected": 0.02},
                    "knee_count": {"low": 8, "expected": 9},
                }
            },
            "alternatives": [{"setting": {"thread_count": 16}, "memory_bytes": MiB}],
        }
    )
    assert capsys.readouterr().out == (
        "operation  s3_upload\n"
        "\n"
        "fit: parameters\n"
        "            low    expected\n"
        "request     10 ms  20 ms\n"
        "knee count  8      9\n"
        "\n"
        "alternatives\n"
        "thread count  memory\n"
        "16            1 MiB\n"
    )


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_terminal_gets_all_of_a_table_within_its_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    """Cells go on in the next line; what was cut off could not be told apart: `s3_d...` and `s3_d...`."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    row = ("s3_download", "$0.00149", "$0.9997", "$0.0107", "9.68 GiB", "1,948", "gateway-endpoint")
    headings = [f"column {index}" for index in range(len(row))]
    output.print_table(headings, [row], title="Title")
    shown = click.unstyle(capsys.readouterr().out).splitlines()
    assert all(len(line) <= columns for line in shown)
    letters = "".join(shown).replace(" ", "")
    assert sorted(letters) == sorted("".join(["Title", *headings, *row]).replace(" ", ""))


@pytest.mark.parametrize(("columns", "width"), [(40, 40), (200, 80), (3, 20)])
def test_a_sentence_keeps_within_the_terminal_and_within_what_is_read_easily(
    monkeypatch: pytest.MonkeyPatch, columns: int, width: int
) -> None:
    """A line of eighty on a terminal of sixty is one of sixty and one of twenty."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = output.filled("Set 13 threads x 5 MiB: connections are the limit. " * 9).splitlines()
    assert width - 12 < max(map(len, lines)) <= width


def test_what_follows_a_line_is_set_in_below_it() -> None:
    """Of a table of sentences each begins where the others do, and on a narrow terminal there is room for words."""
    first, *others = output.filled(
        "well    versions: " + "penstock and what it stands on " * 9, 8
    ).splitlines()
    assert first.startswith("well    ")
    assert {len(line) - len(line.lstrip()) for line in others} == {8}


def test_a_word_that_is_too_long_goes_on_behind_its_hyphen(capsys: pytest.CaptureFixture[str]) -> None:
    """And not as "gateway-endpoi" and "nt", where there is room for more than one of its letters."""
    output.print_table(("operation", "by"), [("s3_upload", "gateway-endpoint")], width=23)
    assert capsys.readouterr().out.splitlines() == [
        "operation  by",
        "s3_upload  gateway-",
        "           endpoint",
    ]
