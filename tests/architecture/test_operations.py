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
ROOMS = ("api", "cli", "client", "daemon", "experiments", "report", "trial", "tuning")
FILES = sorted(
    path for room in ROOMS for path in (ROOT / "penstock" / room).rglob("*.*") if path.suffix != ".pyc"
)
NAMES = [name for row in OPERATIONS.values() for name in (row.name, row.command)]
NAMED = re.compile(rf"(?<![\w-])({'|'.join(NAMES)})(?![\w-])")
MAY_NAME = {
    "client/operations.py": "the table of those who import nothing of the daemon's",
    "cli/systemd/penstock.toml": "an example for operators, who name what they have probed",
    "experiments/experiments.md": "the manual, with the configuration of a far end",
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
    listed = json.loads((ROOT / "docs/openapi.json").read_text())["components"]["parameters"]["operation"]
    assert listed["schema"]["enum"] == list(OPERATIONS)
    for page in ("README.md", "docs/configuration.md", "docs/socket-protocol.md"):
        assert {name for name in OPERATIONS if name in (ROOT / page).read_text()} == OPERATIONS.keys(), page


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    """Who imports whom, in functions as well."""
    return grimp.build_graph("penstock")


@pytest.mark.parametrize("room", ["models", "probes", "operations"])
@pytest.mark.parametrize(("one", "other"), tuple(permutations(OPERATIONS, 2)))
def test_operations_do_not_know_each_other(
    imports: grimp.ImportGraph, room: str, one: str, other: str
) -> None:
    """What two of them share is in a file of its own, which knows neither."""
    importer, imported = (f"penstock.{room}.{name.replace('_', '.', 1)}" for name in (one, other))
    assert {importer, imported} <= imports.modules
    assert imports.find_shortest_chain(importer=importer, imported=imported) is None
