"""Manual pages say what --help says, and shells complete without importing every command."""

from __future__ import annotations

import re
import shutil
import sys

import click
import pytest
from click.shell_completion import ShellComplete

from penstock.cli.main import cli
from penstock.cli.manual import completions, pages
from tests.programs import printed, ran
from tests.unit.cli.test_help import commands


@pytest.fixture(scope="module")
def manual() -> dict[str, str]:
    """All pages, as they are read."""
    return {name: page.replace("\\-", "-") for name, page in pages().items()}


def test_every_command_and_every_option_is_in_a_page(manual: dict[str, str]) -> None:
    """Of a group in the group's page."""
    assert set(manual) == {"penstock.1", "penstockd.8"} | {
        f"penstock-{path[0]}.1" for path, _ in commands(cli) if path
    }
    for path, command in commands(cli):
        page = manual[f"penstock-{path[0]}.1" if path else "penstock.1"]
        assert " ".join(("penstock", *path)) in page
        assert "-h, --help" in page
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[0] in page, (path, parameter.opts)
    assert "--config" in manual["penstockd.8"]


def test_examples_keep_their_lines(manual: dict[str, str]) -> None:
    """They are to be pasted."""
    assert re.search(r"^ *penstock watch$", manual["penstock-watch.1"], re.MULTILINE)
    assert "\b" not in "".join(manual.values())


def test_no_page_is_of_the_terminal_that_it_was_made_in(
    manual: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as wide, nor in its colours, which Python's own help has from 3.14 on."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert {name: page.replace("\\-", "-") for name, page in pages().items()} == manual
    assert "\033" not in "".join(manual.values())


@pytest.mark.skipif(
    shutil.which("groff") is None, reason="groff is not installed: pages cannot be judged here"
)
def test_roff_has_nothing_to_say_of_the_pages() -> None:
    """No unknown request and no stray escape; only lines that cannot be broken may be long."""
    together = "".join(pages().values())
    judged = ran(["groff", "-man", "-Tutf8", "-ww", "-z"], input=together)
    assert judged.returncode == 0
    told = [line for line in judged.stderr.splitlines() if "cannot" not in line and "break" not in line]
    assert told == []


def test_the_names_of_commands_are_completed_with_no_command_imported() -> None:
    """Whoever presses the key waits for click alone."""
    program = (
        "import sys, os\n"
        "os.environ.update(_PENSTOCK_COMPLETE='bash_complete', COMP_WORDS='penstock sta', COMP_CWORD='1')\n"
        "from penstock.cli.main import cli\n"
        "try: cli.main(prog_name='penstock')\n"
        "except SystemExit: pass\n"
        "print(sorted(name for name in sys.modules if name.startswith(('penstock.cli.status', 'numpy'))))"
    )
    assert printed([sys.executable, "-c", program]).splitlines() == ["plain,status", "[]"]


def test_each_shell_gets_its_script() -> None:
    """At the place where it looks, with the variable by which the program is asked."""
    found = completions()
    assert len(found) == 3
    assert all("_PENSTOCK_COMPLETE" in script for script in found.values())


def test_options_are_completed_too() -> None:
    """Of a command, by its own list."""
    context = ShellComplete(cli, {}, "penstock", "_PENSTOCK_COMPLETE")
    assert "--timeout" in {item.value for item in context.get_completions(["wait"], "--t")}
