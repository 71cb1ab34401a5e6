"""What is installed where: applications get the client alone, from Python 3.9 on, and the daemon comes as an extra."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from packaging.requirements import Requirement

from tests.programs import ran

ROOT = Path(__file__).parents[2]
CLIENT = sorted((ROOT / "penstock" / "client").rglob("*.py"))
OLDEST = (3, 9)
# What the standard library has gained since, where it would be looked for.
_YOUNGER = {
    "datetime": {"UTC"},
    "asyncio": {"timeout", "TaskGroup", "Runner"},
    "enum": {"StrEnum"},
    "typing": {"Self", "assert_never", "TypeAlias", "ParamSpec"},
    "itertools": {"pairwise", "batched"},
    "tomllib": {"load", "loads"},
}
_YOUNGER_KEYWORDS = {"zip": {"strict"}, "dataclass": {"slots", "kw_only"}, "field": {"kw_only"}}


def _younger(tree: ast.AST) -> Iterator[str]:
    """Uses of what Python 3.9 does not have, although it can be parsed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in _YOUNGER.get(node.value.id, ()):
                yield f"line {node.lineno}: {node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names} & _YOUNGER.get(node.module or "", set())
            yield from (f"line {node.lineno}: {name}" for name in names)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            keywords = {k.arg for k in node.keywords} & _YOUNGER_KEYWORDS.get(name, set())
            yield from (f"line {node.lineno}: {name}({keyword}=)" for keyword in keywords)


@pytest.mark.parametrize("path", CLIENT, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_client_runs_from_python_3_9_on(path: Path) -> None:
    """It parses there, evaluates no annotation, and uses nothing that came later."""
    source = path.read_text()
    tree = ast.parse(source, feature_version=OLDEST)
    has_annotations = any(isinstance(n, (ast.AnnAssign, ast.FunctionDef)) for n in ast.walk(tree))
    assert not has_annotations or "from __future__ import annotations" in source
    assert list(_younger(tree)) == []


def test_what_is_younger_is_noticed() -> None:
    """The list above is looked through as it should be."""
    source = "from enum import StrEnum\nimport datetime\ndatetime.UTC\nzip(a, b, strict=True)"
    assert len(list(_younger(ast.parse(source)))) == 3
    with pytest.raises(SyntaxError):
        ast.parse("match a:\n    case 1: pass", feature_version=OLDEST)


def test_what_builds_it_runs_wherever_it_is_installed() -> None:
    """`pip install .` builds it with the Python of the application, and hatchling left 3.9 after 1.27."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert [
        str(each.specifier)
        for each in map(Requirement, wanted)
        if each.name == "hatchling"
        and (each.marker is None or each.marker.evaluate({"python_version": "3.9"}))
    ] == ["==1.27.0"]


def test_a_plain_install_brings_nothing_else() -> None:
    """The daemon's libraries are an extra, and the oldest Python is the client's."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
    assert any(line.startswith("aiobotocore") for line in project["optional-dependencies"]["daemon"])
    assert project["requires-python"].startswith(">=" + ".".join(map(str, OLDEST)))


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of an application that installed the wheel and nothing else: its Python."""
    folder = tmp_path_factory.mktemp("application")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    return folder / "venv" / "bin" / "python"


def _run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return ran([python, *arguments], env=environment, cwd=python.parent)


def test_the_wheel_alone_serves_an_application(application: Path) -> None:
    """Every module of the client that needs no SDK is imported, and there is advice without a daemon."""
    modules = [".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for p in CLIENT]
    program = (
        f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
        "from penstock.client.advice import advise\n"
        "print(advise('s3_upload', 1 << 30).basis)\n"
        "print([n for n in sys.modules if n.partition('.')[0] in ('numpy', 'msgspec', 'click', 'aiohttp')])"
    )
    done = _run(application, "-W", "error", "-c", program)
    assert done.stdout.splitlines() == ["default", "[]"], done.stderr


def test_the_wheel_brings_the_units(application: Path) -> None:
    """What `penstock service install` puts in place is in every installation."""
    done = _run(
        application,
        "-c",
        "from importlib.resources import files\n"
        "print(*sorted(each.name for each in (files('penstock.cli') / 'systemd').iterdir()))",
    )
    shipped = sorted(path.name for path in (ROOT / "penstock/cli/systemd").iterdir())
    assert done.stdout.split() == shipped, done.stderr
    assert {"penstock.service", "penstock.socket", "penstock.sysusers", "penstock.tmpfiles"} < set(shipped)


_SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.mark.parametrize("command", ["penstock", "penstockd"])
@pytest.mark.parametrize("arguments", [(), ("demo",), ("--config", "missing.toml")])
def test_where_only_the_client_is_installed_a_command_says_what_is_missing(
    application: Path, tmp_path: Path, command: str, arguments: tuple[str, ...]
) -> None:
    """In one sentence, with the words to install the rest; also where an application brings a part of it along."""
    (tmp_path / "click").symlink_to(Path(click.__file__).parent)
    module, _, function = _SCRIPTS[command].partition(":")
    program = f"import sys; sys.path.append({str(tmp_path)!r}); from {module} import {function}; sys.exit({function}())"
    _refuses(_run(application, "-c", program, *arguments), command)


def test_the_module_says_so_too(application: Path) -> None:
    """Where scripts are not on the path."""
    _refuses(_run(application, "-m", "penstock"), "penstock")


def _refuses(done: subprocess.CompletedProcess[str], command: str) -> None:
    assert done.returncode == 1
    assert done.stderr.startswith(f"{command}: only what applications import is installed here")
    assert "pip install 'penstock[daemon]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
