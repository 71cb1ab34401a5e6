"""The dashboard and the alert rules ask for what the daemon says."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import click
import pytest

from penstock.cli.main import cli
from penstock.daemon import metrics
from penstock.operations.table import OPERATIONS
from tests.programs import printed

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/penstock.json").read_text(encoding="utf-8"))
RULES = DEPLOY / "prometheus/penstock-alerts.yaml"
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_every_metric_that_is_asked_for_is_told() -> None:
    """By its name on the wire, where counters end in _total."""
    source = Path(metrics.__file__).read_text(encoding="utf-8")
    told = set(re.findall(r'"(penstock_\w+)"', source))
    told |= {f"{name}_total" for name in re.findall(r'_counter\(\s*"(penstock_\w+)"', source)}
    rules = re.findall(r"expr: (.+)", RULES.read_text(encoding="utf-8"))
    asked = set(re.findall(r"penstock_\w+", " ".join([*EXPRESSIONS, *rules])))
    assert len(asked) > 12
    assert asked <= told


def test_what_is_expected_of_every_operation_is_shown() -> None:
    """A host that drives queues alone would otherwise see an empty panel."""
    predicted = [expression for expression in EXPRESSIONS if "penstock_predicted_value" in expression]
    for row in OPERATIONS.values():
        assert any(_selects(expression, row.model.value_metric) for expression in predicted), row.name
        assert not any(_selects(expression, "request_rate_per_second") for expression in predicted)


def _selects(expression: str, metric: str) -> bool:
    """Whether the matchers of the label `metric` let this one through, as Prometheus anchors them."""
    matchers = re.findall(r'metric(=~|!~|=|!=)"([^"]*)"', expression)
    return all((re.fullmatch(pattern, metric) is None) == (sign[0] == "!") for sign, pattern in matchers)


def test_alerts_name_commands_that_there_are() -> None:
    """Who is woken by one types what it says."""
    named = re.findall(r"`penstock ([a-z-]+)", RULES.read_text(encoding="utf-8"))
    assert len(named) > 3
    assert set(named) <= set(cli.list_commands(click.Context(cli)))


def test_panels_do_not_overlap() -> None:
    """Each has its place on the grid of 24 columns, and a number of its own."""
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (apt-get install prometheus)"
)
def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    """Of the rules, and of the dashboard as if they were rules."""
    asked = [re.sub(r"\$\w+", "a", expression) for expression in EXPRESSIONS]
    rules = [{"record": f"panel:{index}", "expr": expression} for index, expression in enumerate(asked)]
    panels = tmp_path / "panels.yaml"
    panels.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    printed(["promtool", "check", "rules", str(RULES), str(panels)])
