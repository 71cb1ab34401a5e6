"""Each published figure, as the lab has it: generated from the table, one test for a row."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from penstock.experiments.experiment import Form, Quantities, Records
from penstock.experiments.facts import Fact, Kind, Verdict, counts, facts
from penstock.experiments.table import EXPERIMENTS
from penstock.experiments.virtually import run_in_lab

PAGE = Path(__file__).parents[3] / "docs" / "experiments.md"
QUICK = {
    "upload-clients",
    "upload-threads",
    "bottlenecks",
    "surge",
    "parallel-curls",
    "locations",
    "host-to-host",
}


@cache
def in_the_lab(name: str) -> Quantities:
    """What the lab measures, once for all rows."""
    experiment = EXPERIMENTS[name]
    records = run_in_lab(experiment.steps(Form.LAB))
    assert [record.reason for record in records if record.reason] == []
    return experiment.quantities(Records(records))


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(fact, id=fact.name, marks=[] if fact.experiment in QUICK else [pytest.mark.long])
        for fact in facts()
    ],
)
@pytest.mark.timeout(1800)
def test_a_published_figure_comes_to_what_the_table_says(fact: Fact) -> None:
    """Within 5 % or the scatter that the study states it is reproduced; otherwise the table says missed, or why not."""
    measured = in_the_lab(fact.experiment).get(fact.name)
    assert fact.judged(measured) is fact.verdict, f"{fact.value} {fact.unit}, in the lab {measured}"


def test_every_figure_of_the_studies_has_its_row() -> None:
    """84, each with a name and an experiment of its own; at least 55 fitted or predicted, 25 of them predicted."""
    assert len({fact.name for fact in facts()}) == 84
    assert {fact.experiment for fact in facts()} <= set(EXPERIMENTS)
    reproduced = Counter(fact.kind for fact in facts() if fact.verdict is Verdict.REPRODUCED)
    assert reproduced[Kind.FITTED] + reproduced[Kind.PREDICTED] >= 55
    assert reproduced[Kind.PREDICTED] >= 25


def test_no_tolerance_is_wider_than_five_percent() -> None:
    """Unless the row names the study's own scatter; what is not simply reproduced says why."""
    for fact in facts():
        assert fact.tolerance == 0.05 or fact.tolerance_source != "5 %", fact.name
        assert fact.remark or fact.kind is Kind.INPUT, fact.name


def test_the_manual_shows_what_the_table_says() -> None:
    """Every figure on a line with its kind and verdict, and how many there are of each."""
    page = PAGE.read_text(encoding="utf-8")
    for fact in facts():
        line = next(line for line in page.splitlines() if line.startswith(f"| `{fact.name}` |"))
        assert f"| {fact.kind.value or '-'} | {fact.verdict.value} |" in line, line
    for kind, verdict, number in counts({fact.name: fact.verdict for fact in facts()}):
        assert re.search(rf"^\| {re.escape(kind)} \| {verdict} \| {number} \|$", page, re.MULTILINE), kind
