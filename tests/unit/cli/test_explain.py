"""`penstock explain`: ten lines, and no word that is not explained."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.api.wire import encode, read_question
from penstock.cli import query
from penstock.cli.main import cli
from penstock.cli.output import print_mapping
from penstock.cli.query import reasons
from penstock.models.model import Fit
from penstock.operations.operation import Operation
from penstock.operations.table import OPERATIONS
from penstock.units import label
from penstock.vocabulary import Access, Basis, Estimate, Objective, Place, Reason, Regime, Sink
from tests.factories import NOON
from tests.integration.scripted_advisor import a_status
from tests.unit.daemon.house import House
from tests.unit.daemon.test_advisory import advisory_of

DOCS = Path(__file__).parents[3] / "docs"
GLOSSARY = (DOCS / "glossary.md").read_text(encoding="utf-8")
MANUAL = GLOSSARY + (DOCS / "socket-protocol.md").read_text(encoding="utf-8")
ROWS = tuple(OPERATIONS.values())
# What everybody knows who reads this; a new word of the field belongs into the glossary instead.
ORDINARY_WORDS = """
a after all alone an and any anything applications are as asked at be before beside best better
beyond boto3 boto3's bound bring but by cannot carries carry case connection connections delete
differ do docs does each enough estimated every expected expects explained falls fast fewest for
from full gb gives glossary group half has have here holds host host's hour hours how if in instead
interval is it itself kb kept known latency learned least less limits many mb md mean measured
measurement measurements memory message messages met more ms much near network no none not nothing
now number of on one only or other others out path pay peak per place quickest reach reached reaches
receive reported reports request requests s same second seen send setting settings short shortest
show size so still such take than that the then there they this throughput time times to told tried
twice under unlike up use used was way well were what which while whole with within words worth
would yet
"""
ORDINARY = frozenset(ORDINARY_WORDS.split())


async def explained(
    row: Operation[Any, Any], house: House, objective: Objective, **changes: Any
) -> dict[str, Any]:
    """What the socket says of a place that is known from tables, or as if it had been measured."""
    place = Place(operation=row.name, region="ap-southeast-2", instance_type="u7inh-32tb.480xlarge")
    fit: Fit = dataclasses.replace(row.model.fit(place, (), prior=None, seed=0), **changes)
    await house.board.post(fit, NOON)
    stated = {"objective": objective.value, "region": place.region, "instance_type": place.instance_type}
    if "message_rate_per_second" in row.words.demand:
        stated |= {"message_rate_per_second": "500", "latency_objective_seconds": "250ms"}
    size = row.words.payload_example
    pairs = {"operation": row.name, "payload_size_bytes": size, **stated}.items()
    found: dict[str, Any] = json.loads(encode(advisory_of(house).explain(read_question(list(pairs)))))
    return found


def keys(document: Any) -> Iterator[str]:
    """Every name in it."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield name
            yield from keys(value)
    elif isinstance(document, list):
        for value in document:
            yield from keys(value)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("objective", list(Objective))
async def test_the_reasons_are_ten_lines_of_words_that_are_explained(
    row: Operation[Any, Any], objective: Objective, house: House
) -> None:
    """What is learned from tables and what is measured alike, on a terminal of 80 columns."""
    terms = {word for line in re.findall(r"^\| (.+?) \|", GLOSSARY, re.MULTILINE) for word in _words(line)}
    terms |= {word for name in re.findall(r"`(\w+)`", GLOSSARY) for word in _words(label(name))}
    for changes in ({}, {"observation_count": 12, "newest_observation_at": NOON}):
        lines = reasons(await explained(row, house, objective, **changes), row.words)
        assert len(lines) <= 10
        assert max(map(len, lines)) <= 80
        assert lines[1].startswith("Use ")
        told = [line for line in lines[1:] if not line.startswith("In the report: #")]  # a name, and no words
        assert len(told) == len(lines) - 2
        undefined = _words(" ".join(told)) - terms - ORDINARY
        assert not undefined, f"docs/glossary.md says nothing of {sorted(undefined)}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_one_setting_has_one_figure(row: Operation[Any, Any], house: House) -> None:
    """What is advised is the first of what it was chosen from; where little is known a mean would be thrice as much."""
    found = await explained(row, house, Objective.THROUGHPUT)
    advice, first = found["recommendation"], found["alternatives"][0]
    predicted = {name: estimate["expected"] for name, estimate in advice["prediction"].items()}
    assert first["setting"] == advice["setting"]
    assert first[row.model.value_metric] == pytest.approx(predicted[row.model.value_metric], rel=1e-6)
    if "request_rate_per_second" in predicted:
        told = advice["derived"]["request_rate_per_second"]
        assert told == pytest.approx(predicted["request_rate_per_second"], rel=0.01)
        assert first["latency_seconds"] == pytest.approx(predicted["latency_seconds"], rel=1e-6)


def _words(text: str) -> set[str]:
    """Words without numbers, in the singular."""
    found = re.findall(r"[a-z][a-z0-9']*", text.lower())
    return {*found} if not found else {word if word in ORDINARY else word.removesuffix("s") for word in found}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_every_name_of_the_whole_explanation_is_in_the_manual(
    row: Operation[Any, Any], house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parameters, alternatives and the rest: in the glossary or on the page of the protocol."""
    document = await explained(row, house, Objective.THROUGHPUT)
    print_mapping(document)
    assert all(label(name) in capsys.readouterr().out for name in ("alternatives",))
    ours = set(keys(document)) - {"recommendation", "fit", *row.model.setting_type.__dataclass_fields__}
    unnamed = sorted(name for name in ours if f"`{name}`" not in MANUAL)
    assert not unnamed, f"docs/glossary.md says nothing of {', '.join(unnamed)}"


@pytest.mark.parametrize("kind", [Basis, Reason, Objective, Regime, Access, Sink])
def test_every_word_that_answers_use_is_in_the_manual(kind: Any) -> None:
    """A basis, a reason for a probe, an aim."""
    assert [word.value for word in kind if f"`{word.value}`" not in MANUAL] == []


def test_a_long_explanation_is_cut_and_nothing_learned_is_said_so() -> None:
    """Ten lines are ten lines, whatever the daemon says."""
    row = OPERATIONS["sqs_delivery"]
    advice = {
        "operation": row.name,
        "region": "r",
        "instance_type": "i",
        "payload_size_bytes": 1024,
        "setting": dict.fromkeys(row.model.setting_type.__dataclass_fields__, 100000),
        "explanation": "It is a very long story. " * 50,
    }
    parameters = {name: dataclasses.asdict(Estimate(1.0, 123.456, 3.0)) for name in row.words.learned}
    fit = {"parameters": parameters, "observation_count": 1_234_567}
    lines = reasons({"recommendation": advice, "fit": fit}, row.words)
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 80
    assert not any("Known" in line for line in reasons({"recommendation": advice, "fit": None}, row.words))


def test_what_nobody_saw_is_not_said_to_be_known() -> None:
    """A ceiling between 56 MB/s and 9 GB/s is what was supposed before, and its middle is no news."""
    row = OPERATIONS["s3_upload"]
    advice = {"operation": row.name, "region": "r", "instance_type": "i", "payload_size_bytes": 1024}
    advice |= {"setting": {"thread_count": 8, "part_size_bytes": 1024}, "explanation": "It is so."}
    parameters = {
        "request_seconds": {"low": 0.02, "expected": 0.03, "high": 0.04},
        "connection_bytes_per_second": {"low": 1e7, "expected": 2e7, "high": 3e7},
        "host_bytes_per_second": {"low": 5.6e7, "expected": 5.58e8, "high": 9e9},
    }
    document = {"recommendation": advice, "fit": {"parameters": parameters, "observation_count": 12}}
    lines = reasons(document, row.words)
    assert "Known: request 30 ms, connection 20 MB/s. Not seen yet: host." in lines
    parameters["host_bytes_per_second"]["high"] = 2e8
    assert "Known: request 30 ms, connection 20 MB/s, host 558 MB/s." in reasons(document, row.words)
    advice["derived"] = {"is_burst": 1.0}  # which may be expected to be faster than what is known of the host
    assert "Known: request 30 ms, connection 20 MB/s, host 558 MB/s sustained." in reasons(
        document, row.words
    )


def test_an_explanation_that_is_cut_still_says_what_is_gained() -> None:
    """Its last sentence is what somebody reads first; whole sentences between are left out."""
    row = OPERATIONS["s3_upload"]
    gain = "2.31 times as fast as boto3's default (90 %: 2.1 to 2.5), with 29 connections instead of 10."
    advice = {"operation": row.name, "region": "r", "instance_type": "i", "payload_size_bytes": 1024}
    advice |= {"setting": {"thread_count": 8, "part_size_bytes": 1024}}
    for middle in ("Twice as many are no faster. ", "Twice as many are no faster. " * 20):
        advice["explanation"] = f"Expects 37.5 MB/s (90 %: 35 to 40 MB/s). {middle}{gain}"
        lines = reasons({"recommendation": advice, "fit": None}, row.words)
        assert gain in " ".join(lines)
        assert "Expects 37.5 MB/s" in lines[2]
        assert "..." not in " ".join(lines)
        assert len(lines) <= 10


def test_what_limits_is_not_cut_where_there_are_lines_for_it() -> None:
    """Who asks why wants that of all things: what few words of the setting leave is the explanation's."""
    row = OPERATIONS["s3_upload"]
    advice = {"operation": row.name, "region": "r", "instance_type": "i", "payload_size_bytes": 1024}
    advice |= {"setting": {"thread_count": 13, "part_size_bytes": 5 << 20}}
    advice["explanation"] = (
        "Expects 27.1 MB/s (90 %: 22.9 MB/s to 28.7 MB/s) with only as many connections as are worth it, "
        "estimated from other settings measured here; the throughput of one connection is the limit. "
        "More connections would not help, as each request already has one; a host and path twice as fast "
        "would bring +0 %. 1.51 times as fast as "
        "boto3's default (90 %: 1.47 to 1.56), with 13 connections instead of 8."
    )
    parameters = {name: dataclasses.asdict(Estimate(1.0, 1.2, 1.4)) for name in row.words.learned}
    lines = reasons(
        {"recommendation": advice, "fit": {"parameters": parameters, "observation_count": 29}}, row.words
    )
    assert "the throughput of one connection is the limit" in " ".join(lines)
    assert len(lines) == 10


@pytest.mark.parametrize(
    ("region", "service_class", "why"),
    [
        ("eu-west-1", "standard", ""),
        (
            "eu-west-1",
            "express",
            (
                "s3_upload is not probed as express, and waiting changes nothing; it is probed as standard: "
                "see service_class in [probes.s3_upload]"
            ),
        ),
        (
            "eu-wset-1",
            "standard",
            "s3_upload is not probed in eu-wset-1, and waiting changes nothing; it is probed only in eu-west-1",
        ),
    ],
)
def test_nobody_waits_for_measurements_of_a_place_that_is_not_probed(
    monkeypatch: pytest.MonkeyPatch, region: str, service_class: str, why: str
) -> None:
    """A region that is misspelled, or another class, gets what the SDK does by itself, and that is said."""
    advice = {"operation": "s3_upload", "region": region, "service_class": service_class, "basis": "default"}
    monkeypatch.setattr(query, "advice_in_force", lambda *_: {**advice, "derived": {}})
    monkeypatch.setattr(query, "call", lambda *_: json.loads(encode(a_status())))
    asked = CliRunner().invoke(cli, ["query", "s3-upload", "--object-size", "1GiB", "--json"])
    assert asked.stderr.strip() == why
