"""How servers are built for `make test-real`: with stand-ins for the tools, so that nothing is downloaded here."""

from pathlib import Path

import pytest

from tests.real import provision


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole path for programs, and an empty cache."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def add(tools: Path, name: str, script: str) -> None:
    (tools / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    (tools / name).chmod(0o755)


def test_a_missing_tool_is_named(tools: Path) -> None:
    """Whoever sees the skip knows what to install."""
    add(tools, "java", "exit 0")
    with pytest.raises(provision.ToolMissingError, match="mvn must be"):
        provision.elasticmq()
    with pytest.raises(provision.ToolMissingError, match="go must be"):
        provision.versitygw()


def test_what_is_built_is_built_once(tools: Path) -> None:
    """The second time it comes from the cache, and needs no tool."""
    add(tools, "go", 'echo built > "$GOBIN/versitygw"')
    first = provision.versitygw()
    (tools / "go").unlink()

    assert provision.versitygw() == first
    assert first.read_text() == "built\n"
    assert str(provision.cache_directory()) in str(first)


def test_a_build_that_fails_says_why_and_leaves_nothing_to_be_taken_for_a_whole_one(tools: Path) -> None:
    """Half a build is not found by the next run, which builds again."""
    add(tools, "go", 'echo half > "$GOBIN/versitygw"; echo the registry is away; exit 1')
    with pytest.raises(provision.BuildError, match="the registry is away"):
        provision.versitygw()
    assert [file.suffix for file in provision.cache_directory().iterdir()] == [".lock"]

    add(tools, "go", 'echo whole > "$GOBIN/versitygw"')
    assert provision.versitygw().read_text() == "whole\n"


def test_a_build_that_hangs_is_ended_with_its_children(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that waits for a registry for ever does not hold up the tests for ever."""
    monkeypatch.setattr(provision, "BUILD_SECONDS_MAX", 0.2)
    add(tools, "go", "sleep 600 & sleep 600")
    with pytest.raises(provision.BuildError, match="took longer"):
        provision.versitygw()
