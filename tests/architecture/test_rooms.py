"""The shape of the house: which rooms compute, which act, and what every file owes its reader."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import printed, ran

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "penstock"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
PURE = (
    "models",
    "optimizer",
    "listening",
    "fleet",
    "vocabulary.py",
    "units.py",
    "client/advice.py",
    "report",
)
FUNCTION_LINE_COUNT_MAX = 60
# Whoever catches every exception hides mistakes: each of these is an edge behind which others must live on.
CATCHES_ALL = {
    ("penstock/api/routes.py", "explain_trouble"): "one bad request must not look like a dead daemon",
    (
        "penstock/client/advice.py",
        "advise",
    ): "an application gets advice or the defaults, and never an exception",
    (
        "penstock/client/queues/aiobotocore_producer.py",
        "_send",
    ): "whatever aiobotocore raises is for who waits for the message",
    (
        "penstock/client/queues/consuming.py",
        "_ask",
    ): "whatever botocore or aiobotocore raises, the consumer goes on",
    (
        "penstock/client/transfers/aiobotocore_transfers.py",
        "_outcome",
    ): "whatever a file fails of is told with it, and others go on",
    ("penstock/client/arguments.py", "arguments_of"): "what cannot be told to a library is left to it",
    (
        "penstock/client/queues/boto3_producer.py",
        "_send",
    ): "whatever botocore raises is for who waits for the message",
    (
        "penstock/client/transfers/boto3_transfers.py",
        "_outcome",
    ): "whatever a file fails of is told with it, and others go on",
    ("penstock/client/complaint.py", "complain"): "a handler of the application's own log may raise anything",
    (
        "penstock/client/lease.py",
        "_take",
    ): "what an application states may be anything, and its transfer goes on",
    (
        "penstock/client/queues/boto3_queue.py",
        "_work_off",
    ): "the application's own work on a message may raise anything",
    (
        "penstock/client/queues/sending.py",
        "_end",
    ): "who hears of a message may raise anything, and others follow",
    (
        "penstock/client/transfers/threads.py",
        "_call",
    ): "the future carries it to whoever waits, as of any executor",
    (
        "penstock/daemon/cycle/conductor.py",
        "run",
    ): "a cycle that failed is told, and three in a row end the process",
    (
        "penstock/processes/dialogue.py",
        "_serve",
    ): "whoever asked from another process is told, whatever it is",
    (
        "penstock/lab/virtual_time.py",
        "run_in_executor",
    ): "the future carries it to whoever awaits, as asyncio's does",
}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_knows(path: Path) -> None:
    """The first line of a file is a sentence about it."""
    docstring = ast.get_docstring(tree_of(path))
    assert docstring
    assert docstring.splitlines()[0].rstrip().endswith((".", ":", ","))


@pytest.mark.parametrize("path", [p for p in MODULES if p.name == "__init__.py"], ids=name_of)
def test_a_package_file_is_a_docstring(path: Path) -> None:
    """Nothing is re-exported: import cycles run through packages that do."""
    assert len(tree_of(path).body) == 1 or path == PACKAGE / "client/__init__.py"


def test_the_door_of_the_client_imports_nothing() -> None:
    """It offers names, each of which is imported when an application asks for it."""
    imported = [
        n.module for n in tree_of(PACKAGE / "client/__init__.py").body if isinstance(n, ast.ImportFrom)
    ]
    assert imported == ["__future__", "penstock.client.elsewhere"]


@pytest.mark.parametrize(
    "path", [p for p in MODULES if p.relative_to(PACKAGE).as_posix().startswith(PURE)], ids=name_of
)
def test_pure_rooms_hold_no_coroutines(path: Path) -> None:
    """What computes does not wait."""
    assert not [n.lineno for n in ast.walk(tree_of(path)) if isinstance(n, (ast.AsyncFunctionDef, ast.Await))]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_can_be_read_at_a_glance(path: Path) -> None:
    """No function is longer than a screen."""
    functions = [n for n in ast.walk(tree_of(path)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    long = [f.name for f in functions if (f.end_lineno or f.lineno) - f.lineno >= FUNCTION_LINE_COUNT_MAX]
    assert not long


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Whether it takes every exception and does not end by raising it again."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    is_broad = any(
        c is None or (isinstance(c, ast.Name) and c.id in {"Exception", "BaseException"}) for c in caught
    )
    last = handler.body[-1]
    return is_broad and not (isinstance(last, ast.Raise) and last.exc is None)


def edges(node: ast.AST, function: str = "") -> Iterator[str]:
    """The innermost function around each handler that catches all."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        function = node.name
    if isinstance(node, ast.ExceptHandler) and catches_all(node):
        yield function
    for child in ast.iter_child_nodes(node):
        yield from edges(child, function)


def test_every_exception_is_caught_at_the_listed_edges_alone() -> None:
    """Trouble that is expected has a name; the edges where anything may come are listed, each with its reason."""
    found = [(name_of(path), function) for path in MODULES for function in edges(tree_of(path))]
    assert sorted(found) == sorted(CATCHES_ALL)


EXPLODED = re.compile(
    r"[(\[{]\n[^\n#]*  # [^\n]*\n *[)\]}][^\n]*$|^ *[)\]}][,:]?  # (?!noqa|type|fmt)[^\n]*$", re.MULTILINE
)


def test_a_comment_stands_above_what_it_would_break_apart() -> None:
    """A comment behind a line that is too long for it makes the formatter spread a plain line over three."""
    found = [
        f"{name_of(path)}:{text[: match.start()].count(chr(10)) + 1}"
        for room in ("penstock", "tests", "bench")
        for path in sorted((ROOT / room).rglob("*.py"))
        for text in [path.read_text(encoding="utf-8")]
        for match in EXPLODED.finditer(text)
    ]
    assert not found


def test_there_is_no_drawer() -> None:
    """A helper lives beside its only user; what is shared has a name of its own."""
    drawers = {"utils", "util", "helpers", "common", "misc", "core"}
    assert not [name_of(p) for p in MODULES if p.stem in drawers or p.parent.name in drawers]


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_a_test_states_the_rule_that_it_protects(path: Path) -> None:
    """Every test has a docstring."""
    tests = [
        n
        for n in ast.walk(tree_of(path))
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name.startswith("test_")
    ]
    assert not [t.name for t in tests if not ast.get_docstring(t)]


def test_nothing_speaks_of_one_machine() -> None:
    """No path of a machine and no address of a registry is in what is shipped."""
    listed = ran(["git", "-C", str(ROOT), "ls-files"]).stdout.split()
    files = [ROOT / name for name in listed] or [*MODULES, *TESTS]
    machine = re.compile(
        r"/(?:wo" r"rk|ro" r"ot|ho" r"me)/[a-z]|py" r"pi\.org|registry\.npm" r"js|proxy\.go" r"lang"
    )
    found = [
        name_of(path)
        for path in files
        if path.is_file() and path.stat().st_size < 2**20 and machine.search(path.read_text(errors="replace"))
    ]
    assert not found


def test_imports_keep_to_their_contracts() -> None:
    """The walls between the rooms stand; each broken one is named by a sentence."""
    printed([Path(sys.executable).with_name("lint-imports")], cwd=ROOT)


def test_the_daemon_process_never_loads_what_fits(tmp_path: Path) -> None:
    """Neither what fits nor, before the first request to AWS and the first scrape, what those take; also to advise."""
    code = (
        "import sys, penstock.daemon.app; from penstock.operations.table import OPERATIONS; "
        "from penstock.optimizer.choice import from_tables; from penstock.vocabulary import Place; "
        "[from_tables(row.model, Place(operation=name, region='here-1', instance_type='m7i.large'))"
        " for name, row in OPERATIONS.items()]; "
        "heavy = ('skopt', 'sklearn', 'scipy', 'httpx', 'aiobotocore', 'botocore', 'prometheus_client', "
        "'numpy.ma', 'opentelemetry', 'statistics'); print([m for m in heavy if m in sys.modules])"
    )
    assert printed([sys.executable, "-c", code], cwd=tmp_path).strip() == "[]"


def test_the_readme_names_the_two_commands() -> None:
    """A newcomer finds the demo and the tests."""
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def test_nothing_is_raised_where_a_group_is_caught() -> None:
    """What `except*` raises is a group of its own in Python 3.11.2, which nobody above expects."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        for caught in ast.walk(tree_of(path))
        if isinstance(caught, ast.TryStar)
        for handler in caught.handlers
        for node in ast.walk(handler)
        if isinstance(node, ast.Raise)
    ]
    assert not found
