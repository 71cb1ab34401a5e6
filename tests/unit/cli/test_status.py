"""`penstock status` on a narrow terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.api.leases import Appetite, LeaseBook
from penstock.api.wire import Claim, encode, read_question
from penstock.cli import status
from penstock.cli.main import cli
from penstock.client import connection
from penstock.daemon.backlog_watch import Backlog
from penstock.daemon.spending.forecast import scarcity
from penstock.operations.table import OPERATIONS
from tests.factories import NOON, SETTING
from tests.integration.scripted_advisor import FORECAST, NO_CREDENTIALS, a_status
from tests.unit.daemon.house import House
from tests.unit.daemon.test_advisory import advisory_of

BUCKET = "a-bucket-with-the-longest-name-that-there-may-be-0123456789-abc"
REGIONS = ("ap-southeast-2", "us-gov-west-1", "eu-central-1")


def real_status(house: House) -> dict[str, Any]:
    """What the socket says of a daemon with a lease."""
    book = LeaseBook()
    question = read_question([("operation", "s3_upload"), ("payload_size_bytes", "1GiB")])
    wanted = Appetite(setting=SETTING, use_fraction=1.0)
    book.grant(Claim(question=question, client="boto3"), wanted, process_id=4_194_304, uid=65_534, now=NOON)
    found: dict[str, Any] = json.loads(encode(advisory_of(house, book).status()))
    return found


def a_queue() -> dict[str, Any]:
    """A watched queue with the longest name that there may be, about to collapse."""
    backlog = Backlog(
        label="orders",
        name="q" * 80,
        source="attributes",
        region="ap-southeast-2",
        seen_at=NOON,
        visible_message_count=120_000,
        not_visible_message_count=120_000,
        growth_messages_per_second=1e4,
        visibility_timeout_seconds=30.0,
        warning=None,
    )
    document: dict[str, Any] = json.loads(encode(backlog.document()))
    return {
        **document,
        "alarm": "act",
        "explanation": f"The backlog of {'q' * 80} reaches the visibility timeout.",
    }


async def test_the_scripted_status_is_like_a_real_one(house: House) -> None:
    """Key by key, also of what it lists, or the tests of the commands would be about something else."""
    real, scripted = real_status(house), a_status()
    assert list(scripted) == list(real)
    assert list(scripted["host"]) == list(real["host"])
    assert list(scripted["contexts"][0]) == list(real["contexts"][0])
    assert list(scripted["costs"]["s3_upload"]) == list(real["costs"]["s3_upload"])
    assert list(scripted["budget_per_day"]) == list(real["budget_per_day"])


async def test_a_status_fits_80_columns(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every operation at several sizes in several regions, long names, troubles, leases and queues."""
    full = json.loads(encode(a_status("ap-southeast-2", "u7inh-32tb.480xlarge")))
    context, (cycle,) = full["contexts"][0], full["cycles"]
    full["contexts"] = [
        {**context, "operation": name, "region": region, "payload_size_bytes": size, "observation_count": 1234,
         "attempt_count": 56_789, "postponed_until": full["next_probe_due_at"]}
        for name in OPERATIONS for region in REGIONS for size in (1023 << 20, 50_000 << 30)
    ]  # fmt: skip
    full["costs"] = dict.fromkeys(OPERATIONS, full["costs"]["s3_upload"])
    bound = [replace(FORECAST, operation=name, bound_by=f"probes.{name}.usd_per_day") for name in OPERATIONS]
    trouble = f"the bucket {BUCKET} is not there, or may not be listed: make it, or name another"
    full |= {
        "trouble": trouble,
        "troubles": [{**NO_CREDENTIALS, "sentence": trouble, "since_at": NOON.isoformat()}],
        "leftover_remark": f"2 things that probes made could not be removed, the oldest for 3 h: {BUCKET} is closed",
        "cost_remark": scarcity(bound),
        "activity": f"probing s3_download 50000 GiB in ap-southeast-2 of {BUCKET} with 256 x 512 MiB",
        "leases": real_status(house)["leases"] * 1000,
        "queues": [a_queue()] * 2,
        "cycles": [{**cycle, "sentence": f"{cycle['sentence']} and so on " * 2}] * 20,
    }
    monkeypatch.setattr(status, "call", lambda *_: full)
    shown = CliRunner().invoke(cli, ["status"]).output
    assert max(map(len, shown.splitlines())) <= 80
    assert len(shown.splitlines()) < 50 * len(OPERATIONS)
    said = " ".join(shown.split())
    assert all(name in said for name in (*OPERATIONS, *REGIONS, BUCKET))
    assert trouble in said
    assert said.count("than the intervals ask for") == said.count("this host has no public address") == 1
    assert all(f"{name} about 2 of 140 (probes.{name}.usd_per_day)" in said for name in OPERATIONS)
    assert "$0.0041" in said
    assert "lease count 1,000 " in said


@pytest.mark.parametrize(
    ("size_count", "told"), [(2, ""), (4, f"... and {2 * len(OPERATIONS) - 2} more of what is measured")]
)
def test_verdicts_that_are_not_shown_are_counted(
    monkeypatch: pytest.MonkeyPatch, size_count: int, told: str
) -> None:
    """Two sizes of each operation are shown, the queue's among them; of more it is said how many."""
    document = json.loads(encode(a_status()))
    context = document["contexts"][0]
    document["contexts"] = [
        {**context, "operation": name, "payload_size_bytes": 1 << size}
        for name in OPERATIONS for size in range(size_count)
    ]  # fmt: skip
    monkeypatch.setattr(status, "call", lambda *_: document)
    shown = CliRunner().invoke(cli, ["status"]).output
    assert ("more of what is measured" in shown, told in shown) == (bool(told), True)
    assert "sqs_delivery of 1 B in" in " ".join(shown.split()) or told


async def test_leases_show_what_they_divide_and_how(monkeypatch: pytest.MonkeyPatch, house: House) -> None:
    """Parts of different queues sum to more than one host: what each is of is there where anybody states it."""
    document = real_status(house)
    (lease,) = document["leases"]
    parts = [("orders", 0.75), ("orders", 0.25), ("mails", 1.0), ("", None)]
    for leases, words in (
        ([lease], ["part", "100 %"]),
        ([{**lease, "resource": of, "host_fraction": part} for of, part in parts], ["of", "orders", "75 %"]),
    ):
        monkeypatch.setattr(status, "call", lambda *_, leases=leases: {**document, "leases": leases})
        shown = CliRunner().invoke(cli, ["status"]).output
        table = shown[shown.index("\nleases\n") :].split("\n\n")[0]
        assert all(word in table for word in words)
    assert [line.split()[1] for line in table.splitlines()[3:5]] == ["orders", "orders"]


@pytest.mark.parametrize(
    ("is_of_fleet", "rest", "said"), [(True, 29, True), (True, 0, False), (False, 29, False)]
)
def test_what_the_fleet_costs_is_a_row_so_that_rows_sum_to_what_is_spent(
    monkeypatch: pytest.MonkeyPatch, *, is_of_fleet: bool, rest: int, said: bool
) -> None:
    """Where a bucket is named and was asked."""
    document = json.loads(encode(a_status()))
    spent = document["costs"]["s3_upload"]["spent"]
    document["costs"] = {"s3_upload": document["costs"]["s3_upload"]}
    document["spent_per_day"] |= {name: value + rest for name, value in spent.items()}
    document["fleet"] = {"sentence": "it is read", "places": []} if is_of_fleet else None
    monkeypatch.setattr(status, "call", lambda *_: document)
    lines = CliRunner().invoke(cli, ["status"]).output.splitlines()
    rows = [line.split() for line in lines if line.startswith("fleet ") and line.split()[-1] == "-"]
    assert rows == ([["fleet", "$29", "-", "-", "29", "B", "29", "-"]] if said else [])


@pytest.mark.parametrize(("due_at", "said"), [(NOON.isoformat(), "now"), (None, "-")])
def test_a_probe_that_waits_for_another_is_due_now(
    monkeypatch: pytest.MonkeyPatch, due_at: str | None, said: str
) -> None:
    """Nobody is told that the next probe was a minute ago."""
    document = {**json.loads(encode(a_status())), "next_probe_due_at": due_at}
    monkeypatch.setattr(status, "call", lambda *_: document)
    lines = CliRunner().invoke(cli, ["status"]).output.splitlines()
    (line,) = [line for line in lines if line.startswith("next probe due")]
    assert line.split()[-1] == said


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_a_daemon_of_another_version_is_told_for_one(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It did not know of hosts yet, nor of troubles: that is a sentence and no traceback."""
    body = json.dumps({"version": "0.0.1", "contexts": [], "leases": {}}).encode()
    monkeypatch.setattr(connection, "ask", lambda *_a, **_k: connection.Answer(200, "", body))
    result = CliRunner().invoke(cli, [command])
    assert isinstance(result.exception, SystemExit)
    assert "another version" in result.output + result.stderr
