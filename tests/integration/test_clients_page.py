"""The page about clients names every one of them, and what it tells people to type works."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.client import advise
from penstock.client.operations import SDK_DEFAULTS
from penstock.client.targets.launch import PROGRAMS
from penstock.client.targets.table import TARGETS
from tests.integration.scripted_advisor import served_in_thread

PAGE = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")
EXPORTS = re.findall(
    r"penstock (export [^\n|)>\"#]+)", "\n".join(re.findall(r"```sh\n(.+?)```", PAGE, re.DOTALL))
)
RUNS = re.findall(r"penstock (exec [^\n]+)", "\n".join(re.findall(r"```sh\n(.+?)```", PAGE, re.DOTALL)))


def test_every_target_and_every_program_is_on_the_page() -> None:
    """None is missing, and none is there that does not exist."""
    cells = {
        name
        for row in re.findall(r"^\| (`[^|]+) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`([\w.-]+)`", row)
    }
    assert set(TARGETS) | set(PROGRAMS) <= cells


@pytest.mark.parametrize(
    "command", [*EXPORTS, *(f"exec --json {line.removeprefix('exec ')}" for line in RUNS)]
)
def test_what_is_to_be_typed_is_understood(command: str, tmp_path: Path) -> None:
    """Each export prints something, and each run is at least a known client."""
    with served_in_thread(tmp_path) as server:
        done = CliRunner().invoke(cli, shlex.split(command), env={"PENSTOCK_SOCKET": str(server.socket_path)})
    assert done.exit_code == 0, done.output
    assert done.stdout


def test_there_are_examples_of_both() -> None:
    """The patterns above find what they are for."""
    assert len(EXPORTS) >= 5
    assert len(RUNS) >= 4


def test_a_socket_that_is_none_has_the_sdk_work_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page has it for tests that shall not depend on a daemon."""
    assert "`PENSTOCK_SOCKET=/dev/null`" in PAGE
    monkeypatch.setenv("PENSTOCK_SOCKET", "/dev/null")
    monkeypatch.delenv("PENSTOCK_SNAPSHOT", raising=False)
    advice = advise("s3_upload", 1 << 30)
    assert (advice.basis, advice.setting) == ("default", SDK_DEFAULTS["s3_upload"]["setting"])
