"""The table of experiments: each is data, has a cost before it is run, and answers with numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from penstock.experiments.archive import Archive, newest_measured
from penstock.experiments.experiment import Form, Record, Records
from penstock.experiments.page import page_html, section_html
from penstock.experiments.table import EXPERIMENTS
from penstock.experiments.transfers import correlation, welch_t
from penstock.experiments.virtually import run_in_lab

DEFERRED = {"locations", "host-to-host"}


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("form", Form)
def test_a_plan_says_what_it_costs_before_it_is_run(name: str, form: Form) -> None:
    """Labels of their own and a bound on everything; the short form fits into a gigabyte and ten cents."""
    experiment = EXPERIMENTS[name]
    steps = experiment.steps(form)
    assert len({step.label for step in steps}) == len(steps)
    assert bool(steps) is (name not in DEFERRED)
    for step in steps:
        cost = step.cost_of_all
        assert 0 < cost.duration_seconds < math.inf
        assert cost.request_count > 0
        assert cost.usd > 0
    if form is Form.SHORT:
        assert experiment.cost(form).transferred_bytes < 1e9
        assert experiment.cost(form).usd < 0.10


@pytest.mark.parametrize("name", ["parallel-curls", "surge", "bottlenecks"])
def test_a_page_has_the_figures_the_table_and_an_answer(name: str) -> None:
    """Published points beside the lab's, drawn; and what the models say, with numbers."""
    experiment = EXPERIMENTS[name]
    lab = Records(run_in_lab(experiment.steps(Form.LAB)))
    page = page_html({name: section_html(experiment, lab, Records([]))})
    assert page.count("<svg") == len(experiment.plots(lab))
    assert any("published" in series.name for plot in experiment.plots(lab) for series in plot.series)
    assert any(character.isdigit() for sentence in experiment.answer(lab) for character in sentence)


def test_every_experiment_bears_to_have_measured_nothing() -> None:
    """A run that was ended at once has no quantities that are wrong, no figures, and a page all the same."""
    for experiment in EXPERIMENTS.values():
        assert "<h2>" in section_html(experiment, Records([]), Records([]))
        assert all(math.isfinite(value) for value in experiment.quantities(Records([])).values())


def a_record(label: str, value: float = 1.0) -> Record:
    """Of one step."""
    return Record(label=label, started_at="2026-01-01T00:00:00+00:00", values={"duration_seconds": value})


def test_records_outlive_a_crash_and_know_their_plans(tmp_path: Path) -> None:
    """A line that was cut short is none, what follows it is; another table of plans begins anew."""
    surge = EXPERIMENTS["surge"]
    archive = Archive(tmp_path, surge, Form.SHORT, place="here")
    archive.append(a_record("one"))
    with archive.path.open("a") as file:
        file.write('{"steps": "torn')
    archive.append(a_record("two"))
    assert [record.label for record in archive.read()] == ["one", "two"]
    assert len(newest_measured(tmp_path, surge)) == 2
    archive.path.write_text(archive.path.read_text().replace('"steps":"', '"steps":"0'))
    assert archive.read() == []


def test_pairs_whose_order_is_unknown_have_a_correlation() -> None:
    """1 where both are alike, -1 where one makes up for the other."""
    assert correlation([(1.0, 1.0), (2.0, 2.0), (5.0, 5.0)]) == pytest.approx(1.0)
    assert correlation([(1.0, 3.0), (3.0, 1.0), (1.0, 3.0)]) == pytest.approx(-1.0)


def test_means_are_compared_by_their_errors() -> None:
    """Welch's t of two samples, by hand."""
    assert welch_t([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]) == pytest.approx(-1.0 / math.sqrt(2 / 3))
    assert welch_t([1.0], [2.0, 3.0]) == 0.0
