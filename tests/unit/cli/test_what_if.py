"""`penstock what-if` as people and scripts use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli

CONDITIONS = {
    "message_rate_per_second": 50,
    "send_seconds": 0.020,
    "receive_seconds": 0.024,
    "delete_seconds": 0.020286,
    "delivery_latency_seconds": 0.153,
    "visibility_timeout_seconds": 30,
}
PAGE = Path(__file__).parents[3] / "docs" / "what-if.md"


def what_if(stdin: str, *arguments: str) -> Result:
    """One run of the command."""
    return CliRunner().invoke(cli, ["what-if", "sqs-delivery", *arguments], input=stdin)


def answer(*arguments: str, **more: Any) -> dict[str, Any]:
    """Its JSON document, which holds no NaN and no infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    result = what_if(json.dumps(CONDITIONS | more), "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout, parse_constant=refuse)
    return document


def test_the_document_holds_everything_that_was_promised() -> None:
    """Names are a contract: scripts read them."""
    document = answer(
        send_seconds_per_message=0.002,
        receive_seconds_per_message=0.004,
        delete_seconds_per_message=0.002,
        send_seconds_variation=0.5,
        receive_seconds_variation=0.5,
        delete_seconds_variation=0.5,
        deleter_count_max=4,
        work_seconds=0.01,
        latency_objective_seconds=0.16,
    )
    counts = ("sender_thread_count", "receiver_thread_count", "deleter_thread_count", "batch_message_count")
    windows = ("send_window_message_count", "receive_window_message_count")
    for name in (*counts, *windows):
        assert document[name] >= 1, name
        assert isinstance(document[name], int), name
    assert document["send_rate_limit_messages_per_second"] > 50
    estimates = ("goodput_messages_per_second", "delivery_latency_seconds_mean", "collapse_after_seconds")
    for name in estimates:
        estimate = document[name]
        assert estimate["low"] <= estimate["expected"] <= estimate["high"], name
    assert "rescue" not in document


def test_a_queue_that_never_collapses_by_itself_says_null() -> None:
    """With a deleter that has room there is no time to collapse, only the outage that would do it."""
    document = answer(delete_seconds=0.01)
    assert document["collapse_after_seconds"] is None
    assert document["deleter_outage_seconds_max"] > 30


def test_people_read_what_to_use_and_what_to_expect() -> None:
    """Two tables and a sentence."""
    result = what_if(json.dumps(CONDITIONS))
    assert result.exit_code == 0
    assert "How to drive the queue at 50/s" in result.stdout
    assert "receive window message count" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("It carries 50 messages/s")


def test_a_collapsed_queue_is_given_a_rescue() -> None:
    """Either count asks for it, and the time until the queue is well is told."""
    document = answer("--undeleted", "30000", "--visible", "20000")
    assert document["rescue"]["batch_message_count"] == 10
    assert document["rescue"]["recovered_after_seconds"] > 0
    assert answer("--visible", "100")["rescue"]["recovered_after_seconds"] < 60
    assert "How to rescue it" in what_if(json.dumps(CONDITIONS), "--undeleted", "9").stdout


def test_a_rescue_that_cannot_be_is_said() -> None:
    """One deleter below the arrivals never clears a backlog, in JSON as null and to people as a sentence."""
    fast = {"message_rate_per_second": 5000, "deleter_count_max": 1}
    assert answer("--undeleted", "10", **fast)["rescue"]["recovered_after_seconds"] is None
    result = what_if(json.dumps(CONDITIONS | fast), "--undeleted", "10")
    assert "does not recover at this rate with so few deleters: allow more, or send less" in result.stdout
    result = what_if(json.dumps(CONDITIONS | {"work_seconds": 60}), "--undeleted", "10")
    assert "does not recover at this rate with so few receivers: shorten the work, or" in result.stdout


def test_conditions_can_be_a_file(tmp_path: Path) -> None:
    """The same answer from a file as from standard input."""
    file = tmp_path / "conditions.json"
    file.write_text(json.dumps(CONDITIONS))
    result = what_if("", "--conditions", str(file), "--json")
    assert json.loads(result.stdout) == answer()


@pytest.mark.parametrize(
    ("stdin", "sentences"),
    [
        ("", ["not JSON", "message_rate_per_second"]),
        ("{", ["not JSON"]),
        ("[" * 100_000, ["not JSON"]),
        ("[1]", ["one JSON object"]),
        (
            '{"message_rate_per_second": 50}',
            ["send_seconds: missing", "receive_seconds: m", "delete_seconds: m"],
        ),
        (json.dumps(CONDITIONS | {"send_seconds": None}), ["send_seconds: missing"]),
        (
            json.dumps(CONDITIONS | {"send_seconds": 0, "deleter_count_max": 0.5}),
            ["more than 0", "whole number"],
        ),
        (json.dumps(CONDITIONS | {"send_seconds": float("nan")}), ["is not a number"]),
        (json.dumps(CONDITIONS | {"send_seconds": float("inf")}), ["at most 10; it is in seconds"]),
        (json.dumps(CONDITIONS | {"message_rate_per_second": 10**400}), ["at most 1,000,000"]),
        (json.dumps(CONDITIONS | {"payload_size_bytes": 2**21}), ["at most 1,048,576"]),
        (
            json.dumps(CONDITIONS | {"service_class": ["fifo"]}),
            ["say one of standard, fifo, fifo-high-throughput"],
        ),
        (
            json.dumps(CONDITIONS | {"send_seconds_per_message": 1, "delete_seconds_per_message": 1}),
            ["send_seconds_per_message: more", "delete_seconds_per_message: more"],
        ),
    ],
)
def test_every_mistake_is_told_at_once(stdin: str, sentences: list[str]) -> None:
    """Wrong conditions end with 2, a sentence for each mistake, and nothing on standard output."""
    result = what_if(stdin, "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for sentence in sentences:
        assert sentence in result.stderr


def test_on_a_terminal_it_explains_instead_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who types the bare command is shown a first example."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    result = what_if("")
    assert result.exit_code == 2
    assert "penstock what-if sqs-delivery <<'END'" in result.stderr


def test_the_example_on_the_page_is_what_is_printed() -> None:
    """Documentation that was executed stays true."""
    parts = PAGE.read_text(encoding="utf-8").split("```")
    conditions = next(part for part in parts if part.startswith("json\n")).removeprefix("json\n")
    shown = next(part for part in parts if part.startswith("text\n")).removeprefix("text\n")
    assert what_if(conditions).stdout == shown


def test_the_page_names_every_condition_and_every_answer() -> None:
    """An undocumented name is a failing test."""
    from penstock.models.sqs.plan import Conditions

    page = PAGE.read_text(encoding="utf-8")
    names = [
        *Conditions.__dataclass_fields__,
        *answer("--undeleted", "1"),
        *answer("--undeleted", "1")["rescue"],
    ]
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.parametrize("rate", [12_345, 123_456])
def test_a_large_rate_is_said_in_digits(rate: int) -> None:
    """The sentence has no exponent, whether the rate can be carried or not."""
    explanation = answer(message_rate_per_second=rate)["explanation"]
    assert f"{rate:,} messages/s" in explanation
    assert "e+" not in explanation
