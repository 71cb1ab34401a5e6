"""How `penstock` ends when it is asked to before it has begun."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import ran

# Sends a signal to itself when a module is about to be imported.
PROGRAM = """
import os, signal, sys

class Asking:
    def find_spec(self, name, path, target=None):
        if name == MODULE:
            os.kill(os.getpid(), NUMBER)

sys.meta_path.insert(0, Asking())
sys.argv[0] = "penstock"
from penstock.cli.entry import main
main()
"""
TUNE = ("tune", "s3-upload", "--object-size", "1MiB", "--exec", "false")


def ended(
    words: tuple[str, ...], number: int, module: str, *, before: str = "", program: str = PROGRAM
) -> tuple[int, str]:
    """The exit status and the standard error of a command that is asked to end at this import."""
    whole = f"MODULE, NUMBER = {module!r}, {int(number)}{before}{program}"
    done = ran([sys.executable, "-c", whole, *words], timeout=60)
    return done.returncode, done.stderr.strip()


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (("status",), "click"),
        (("status",), "penstock.cli.status"),
        (("demo",), "penstock.trial.demo"),
        (TUNE, "numpy"),
    ],
)
def test_ctrl_c_during_the_imports_is_quiet(words: tuple[str, ...], module: str) -> None:
    """No command is so young that it shows its imports."""
    assert ended(words, signal.SIGINT, module) == (130, "")


def test_ctrl_c_during_the_imports_of_the_daemon_is_quiet() -> None:
    """It ends as by SIGTERM, which it does not handle before it has something to put in order either."""
    program = PROGRAM.replace("import main\nmain()", "import daemon\ndaemon()")
    assert ended((), signal.SIGINT, "uvloop", program=program) == (-signal.SIGINT, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("words", "module"),
    [
        (("demo",), "click"),
        (("demo",), "penstock.trial.demo"),
        (("measure", "sqs-delivery", "--region", "lab-1"), "numpy"),
        (TUNE, "click"),
        (TUNE, "numpy"),
    ],
)
def test_what_cleans_up_is_asked_to_end_from_its_first_import_on(
    words: tuple[str, ...], module: str, number: int
) -> None:
    """The exit code does not depend on how far it had come."""
    assert ended(words, number, module) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("words", "module"), [(("demo",), "click"), (("demo",), "penstock.trial.demo"), (TUNE, "numpy")]
)
def test_no_callback_of_an_import_loses_that_it_was_asked(
    words: tuple[str, ...], module: str, number: int
) -> None:
    """Whatever a weak reference or a finaliser raises is shown and forgotten, and the command went on."""
    calling_back = (
        "\nclass Dropped:\n    def __del__(self):\n        import os; os.kill(os.getpid(), NUMBER)\n"
    )
    program = PROGRAM.replace("os.kill(os.getpid(), NUMBER)", "Dropped()")
    assert ended(words, number, module, before=calling_back, program=program) == (130, "")


def test_what_is_asked_to_end_ends_so_when_nobody_can_be_told() -> None:
    """A terminal that was closed takes no message, and the exit code is that of an interruption."""
    program = f"MODULE, NUMBER = 'penstock.trial.demo', {int(signal.SIGHUP)}{PROGRAM}"
    with Path("/dev/full").open("w") as lost:
        done = subprocess.run([sys.executable, "-c", program, "demo"], stderr=lost, check=False, timeout=60)
    assert done.returncode == 130


def test_a_terminal_that_goes_does_not_end_what_nohup_keeps() -> None:
    """What is ignored when it begins stays ignored; here the command goes on to its own refusal."""
    ignoring = "\nimport signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    status, errors = ended(("tune", "nothing"), signal.SIGHUP, "click", before=ignoring)
    assert status == 2
    assert "No such command" in errors


def test_what_holds_nothing_ends_by_any_signal() -> None:
    """A service manager takes an end by its own signal for a good one."""
    assert ended(("watch",), signal.SIGTERM, "penstock.cli.watch") == (-signal.SIGTERM, "")
