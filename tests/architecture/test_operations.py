"""An operation is known by its row alone: nobody else names it, and operations do not know each other."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import grimp
import pytest

from penstock.operations.table import OPERATIONS

ROOT = Path(__file__).parents[2]
OWN = frozenset(  # the files of an operation: its model, its probe and its row
    f"{room}/{name.replace('_', '/', 1)}.py"
    for room in ("models", "probes", "operations")
    for name in OPERATIONS
)
FILES = sorted(
    path
    for path in (ROOT / "penstock").rglob("*.*")
    if path.suffix != ".pyc" and path.relative_to(ROOT / "penstock").as_posix() not in OWN
)
NAMES = [name for row in OPERATIONS.values() for name in (row.name, row.command)]
NAMED = re.compile(rf"(?<![\w-])({'|'.join(NAMES)})(?![\w-])")
MAY_NAME = {
    "client/operations.py": "the table of those who import nothing of the daemon's",
    "cli/systemd/penstock.toml": "an example for operators, who name what they have probed",
    "experiments/experiments.md": "the manual, with the configuration of a far end",
    "probes/sqs/own_queue.py": "the queue of a delivery's probe, as the journal names it",
    "probes/sqs/queue_application.py": "the operation whose client reaches what a measurement by hand left",
    "models/s3/directions.py": "what tables say of each before anything is measured",
}
_QUEUE = (
    "what is about queues alone: one that is watched, one that is measured by hand, one that is asked what if"
)
MAY_ASK_FOR_A_ROW = {
    "cli.demo": "an example for jq",
    "cli.exec": "programs that upload or download",
    "cli.measure": _QUEUE,
    "cli.tune": "clients that upload or download, with a size of their own for each",
    "cli.what_if": _QUEUE,
    "daemon.advisory": _QUEUE,
    "daemon.backlog_watch": _QUEUE,
    "daemon.contradictions": _QUEUE,
    "daemon.spending.tariffs": f"{_QUEUE}; and a bucket of the fleet, which is reached as uploads reach theirs",
    "experiments.experiment": "published studies of transfers and queues",
    "operations.table": "the table",
    "tuning.session": "uploads, where nothing is said",
}


def names_in(path: Path) -> Iterator[str]:
    """Where a file names an operation; what is said to its reader, in docstrings and comments, is not counted."""
    if path.suffix != ".py":
        yield from NAMED.findall(path.read_text(encoding="utf-8"))
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield from (f"line {node.lineno}: {found}" for found in NAMED.findall(node.value))
        for attribute in ("id", "attr", "arg", "name"):  # of names, attributes, arguments and what is defined
            found = getattr(node, attribute, None)
            if isinstance(found, str) and found in NAMES:
                yield f"line {getattr(node, 'lineno', 0)}: {found}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_names_an_operation_but_the_table(path: Path) -> None:
    """What is about one operation takes its name from the row: a new one is found everywhere, or nowhere."""
    if path.relative_to(ROOT / "penstock").as_posix() not in MAY_NAME:
        assert list(names_in(path)) == []


def test_who_may_name_an_operation_does() -> None:
    """An excuse that nobody needs is taken back."""
    assert all(list(names_in(ROOT / "penstock" / name)) for name in MAY_NAME)


def test_the_manual_names_every_operation() -> None:
    """Where the manual lists what can be asked, probed and configured, it lists the table."""
    listed = json.loads((ROOT / "docs/openapi.json").read_text())["components"]["schemas"]["OperationKind"]
    assert listed["enum"] == list(OPERATIONS)
    for page in ("README.md", "docs/configuration.md", "docs/socket-protocol.md"):
        assert {name for name in OPERATIONS if name in (ROOT / page).read_text()} == OPERATIONS.keys(), page


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    """Who imports whom, in functions as well."""
    return grimp.build_graph("penstock")


def test_nobody_asks_for_a_row_by_name_but_the_table(imports: grimp.ImportGraph) -> None:
    """Who imports a row knows an operation as well as who writes its name; in the lab, its face does."""
    rows = [f"penstock.operations.{name.replace('_', '.', 1)}" for name in OPERATIONS]
    asking = {who for row in rows for who in imports.find_modules_that_directly_import(row)}
    found = {who.removeprefix("penstock.") for who in asking}
    assert {who for who in found if not who.startswith("trial.faces.")} == MAY_ASK_FOR_A_ROW.keys()


@pytest.mark.parametrize(("one", "other"), tuple(permutations(OPERATIONS, 2)))
def test_operations_do_not_know_each_other(imports: grimp.ImportGraph, one: str, other: str) -> None:
    """What two of them share is in files of its own, which know neither: nothing of one leads to any of the other."""
    importers, imported = (
        {f"penstock.{room}.{name.replace('_', '.', 1)}" for room in ("models", "probes", "operations")}
        for name in (one, other)
    )
    assert importers | imported <= imports.modules
    chains = [
        imports.find_shortest_chain(importer=who, imported=whom) for who in importers for whom in imported
    ]
    assert [chain for chain in chains if chain is not None] == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_model_and_a_probe_are_made_of_does_not_know_them(
    imports: grimp.ImportGraph, name: str
) -> None:
    """A new one is put upon what is there: nothing that an operation is made of leads back to it."""
    for room in ("models", "probes"):
        module = f"penstock.{room}.{name.replace('_', '.', 1)}"
        beneath = imports.find_upstream_modules(module)
        assert module in imports.modules
        assert imports.find_downstream_modules(module) & beneath == set()
