"""What an application finds by the name of the client or of its SDK: all of it, imported when it is asked for."""

from __future__ import annotations

import ast
import pydoc
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock import client
from penstock.client import aiobotocore, boto3
from tests.programs import printed

FACADES = pytest.mark.parametrize(
    "module", [client, boto3, aiobotocore], ids=["client", "boto3", "aiobotocore"]
)


def told_to_checkers(module: ModuleType) -> dict[str, str]:
    """By name, the module that has it, as the file says for type checkers."""
    assert module.__file__
    imports = [
        node
        for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
        if isinstance(node, ast.ImportFrom)
    ]
    return {
        alias.name: str(node.module) for node in imports for alias in node.names if alias.asname == alias.name
    }


@FACADES
def test_what_checkers_are_told_is_what_there_is(module: ModuleType) -> None:
    """Each name, from where it is, and no other."""
    told = told_to_checkers(module)
    assert dir(module) == sorted(told)
    for name, home in told.items():
        assert getattr(module, name) is getattr(sys.modules[home], name)


@FACADES
def test_all_of_it_is_found_by_who_names_nothing(module: ModuleType) -> None:
    """`import *` brings it, and nothing else; `help` explains it."""
    found: dict[str, Any] = {}
    exec(f"from {module.__name__} import *", found)  # noqa: S102 - it may stand in a module only
    assert sorted(found.keys() - {"__builtins__"}) == dir(module)
    page = pydoc.plain(pydoc.render_doc(module))
    assert [name for name in dir(module) if name not in page] == []


@FACADES
def test_a_name_that_is_not_offered(module: ModuleType) -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="has no attribute 'upload_fils'"):
        module.upload_fils  # noqa: B018


def test_nothing_is_imported_that_nobody_asked_for() -> None:
    """Who wants a configuration waits for no transfers."""
    program = (
        "import sys; from penstock.client import boto3; boto3.client_config; "
        "print([name for name in sys.modules if name.startswith('penstock.client.')])"
    )
    found = printed([sys.executable, "-c", program])
    assert "boto3_config" in found
    assert not any(f"penstock.client.{name}" in found for name in ("transfers", "queues"))
