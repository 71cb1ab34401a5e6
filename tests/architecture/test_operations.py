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
OWN = {  # the files of each operation: its model, its probe and its row
    f"{room}/{name.replace('_', '/', 1)}.py": name
    for room in ("models", "probes", "operations")
    for name in OPERATIONS
}
FILES = sorted(path for path in (ROOT / "penstock").rglob("*.*") if path.suffix != ".pyc")
# However it is spelled, also as a part of a longer name: s3_upload, s3-upload, "S3 upload", S3_UPLOAD, s3_upload_count.
SPELLED = "|".join(name.replace("_", "[ _.-]") for name in OPERATIONS)
NAMED = re.compile(rf"(?<![a-z0-9])({SPELLED})(?![a-z0-9])", re.IGNORECASE)
# Of the client's table: its transfers and queues take them from there.
CONSTANTS = {name.upper() for name in OPERATIONS}
_OF_OTHERS = "options of clients that others wrote"
MAY_NAME = {
    "client/operations.py": "the table of those who import nothing of the daemon's",
    "client/targets/command_lines.py": _OF_OTHERS,
    "client/targets/java.py": _OF_OTHERS,
    "cli/systemd/penstock.toml": "an example for operators, who name what they have probed",
    "experiments/experiments.md": "the manual, with the configuration of a far end",
    "experiments/table.py": "the titles of published studies",
    "probes/sqs/own_queue.py": "the queue of a delivery's probe, as the journal names it",
    "probes/sqs/queue_application.py": "the operation whose client reaches what a measurement by hand left",
    "models/s3/directions.py": "what tables say of each before anything is measured",
}
_QUEUE = (
    "what is about queues alone: one that is watched, one that is measured by hand, one that is asked what if"
)
_PUBLISHED = "published studies of transfers and queues"
MAY_ASK_FOR_ONE = {
    "cli.demo": "an example for jq",
    "cli.exec": "programs that upload or download",
    "cli.measure": _QUEUE,
    "cli.tune": "clients that upload or download, with a size of their own for each",
    "cli.what_if": _QUEUE,
    "daemon.advisory": _QUEUE,
    "daemon.backlog_watch": _QUEUE,
    "daemon.contradictions": _QUEUE,
    "daemon.spending.tariffs": f"{_QUEUE}; and a bucket of the fleet, which is reached as uploads reach theirs",
    "experiments.experiment": _PUBLISHED,
    "experiments.really": _PUBLISHED,
    "experiments.virtually": _PUBLISHED,
    "models.s3.ranges": "clients that upload or download, and what they can be told",
    "models.sqs.plan": _QUEUE,
    "operations.sections.downloads": "the keys of one operation alone",
    "operations.table": "the table",
    "tuning.session": "uploads, where nothing is said",
}


def names_in(path: Path) -> Iterator[str]:
    """Where a file names an operation; what is said to its reader, in docstrings and comments, is not counted."""
    if path.suffix != ".py":
        yield from NAMED.findall(path.read_text(encoding="utf-8"))
        return
    tree, is_of_client = ast.parse(path.read_text(encoding="utf-8")), ROOT / "penstock/client" in path.parents
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and id(node) not in said:
            yield from (f"line {node.lineno}: {found}" for found in NAMED.findall(str(node.value)))
        for attribute in ("id", "attr", "arg", "name"):  # of names, attributes, arguments and what is defined
            found = getattr(node, attribute, None)
            if isinstance(found, str) and NAMED.search(found) and not (is_of_client and found in CONSTANTS):
                yield f"line {getattr(node, 'lineno', 0)}: {found}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_names_an_operation_but_the_table(path: Path) -> None:
    """What is about one operation takes its name from the row: a new one is found everywhere, or nowhere.

    Its own files name it, and no other.
    """
    file = path.relative_to(ROOT / "penstock").as_posix()
    if file not in MAY_NAME:
        assert {found.partition(": ")[2] for found in names_in(path)} <= {OWN.get(file)}, list(names_in(path))


def test_who_may_name_an_operation_does() -> None:
    """An excuse that nobody needs is taken back."""
    assert all(list(names_in(ROOT / "penstock" / name)) for name in MAY_NAME)


def test_the_manual_names_every_operation() -> None:
    """Where the manual lists what can be asked, probed and configured, it lists the table; so does the example."""
    listed = json.loads((ROOT / "docs/openapi.json").read_text())["components"]["schemas"]["OperationKind"]
    assert listed["enum"] == list(OPERATIONS)
    example = "penstock/cli/systemd/penstock.toml"
    for page in ("README.md", "docs/configuration.md", "docs/socket-protocol.md", example):
        assert {name for name in OPERATIONS if name in (ROOT / page).read_text()} == OPERATIONS.keys(), page


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    """Who imports whom, in functions as well."""
    return grimp.build_graph("penstock")


def test_nobody_asks_for_one_by_name_but_the_table(imports: grimp.ImportGraph) -> None:
    """Who imports a row, a model or a probe knows an operation as well as who writes its name.

    In the lab, its face does; and its own files know each other. Who imports a whole room finds all of them in it.
    """
    own = {f"penstock.{file.removesuffix('.py').replace('/', '.')}" for file in OWN}
    rooms = {module.rpartition(".")[0] for module in own}
    asking = {who for each in own | rooms for who in imports.find_modules_that_directly_import(each)} - own
    found = {who.removeprefix("penstock.") for who in asking}
    assert {who for who in found if not who.startswith("trial.faces.")} == MAY_ASK_FOR_ONE.keys()


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
