"""Somebody else's command: whatever it does, there is a report or a reason, and nothing is left of it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.tuning.command import Failure, Report, contradiction, doubt, run_command
from penstock.units import MiB
from tests.waiting import until

REQUEST = {"thread_count": 4, "part_size_bytes": 8388608, "object_size_bytes": 1000, "probe_index": 3}
GOOD = '{"transferred_bytes": 1000, "duration_seconds": 0.5}'
LONG_SECONDS = 60.0  # never waited for


def run(command: str, *, timeout_seconds: float = LONG_SECONDS) -> Report | Failure:
    """One trial of a shell command."""
    return run_command(command, REQUEST, timeout_seconds=timeout_seconds, grace_seconds=LONG_SECONDS)


def python(program: str) -> str:
    """A shell command that runs this program."""
    return shlex.join([sys.executable, "-c", program])


def test_the_proposal_goes_in_and_the_report_comes_out() -> None:
    """One line of JSON each way; what is printed before the last line is nobody's business."""
    program = (
        "import json, sys; q = json.loads(sys.stdin.readline()); assert sys.stdin.read() == ''; print('hello')\n"
        "print(json.dumps({'transferred_bytes': q['object_size_bytes'], 'duration_seconds': 2, "
        "'throttled_count': q['probe_index'], 'failed_count': 1, 'more': [None]}))\nprint()"
    )
    assert run(python(program)) == Report(
        transferred_bytes=1000, duration_seconds=2, throttled_count=3, failed_count=1
    )


def test_a_command_may_ignore_the_proposal() -> None:
    """A command that closes its input at once is as good as any."""
    assert run(f"exec 0<&-; echo {shlex.quote(GOOD)}") == Report(transferred_bytes=1000, duration_seconds=0.5)


@pytest.mark.parametrize(
    "said",
    [
        "done in 3 s",
        "[]",
        "null",
        "{}",
        '{"transferred_bytes": 1000}',
        '{"transferred_bytes": "1000", "duration_seconds": 1}',
        '{"transferred_bytes": true, "duration_seconds": 1}',
        '{"transferred_bytes": 0, "duration_seconds": 1}',
        '{"transferred_bytes": 0.5, "duration_seconds": 1}',
        '{"transferred_bytes": -5, "duration_seconds": 1}',
        '{"transferred_bytes": 1e30, "duration_seconds": 1}',
        '{"transferred_bytes": 1000, "duration_seconds": 0}',
        '{"transferred_bytes": 1000, "duration_seconds": NaN}',
        '{"transferred_bytes": 1000, "duration_seconds": Infinity}',
        '{"transferred_bytes": 1000, "duration_seconds": 1e999}',
        '{"transferred_bytes": 1000, "duration_seconds": 1, "throttled_count": -1}',
        '{"transferred_bytes": 1000, "duration_seconds": 1, "failed_count": 1.5}',
        '{"transferred_bytes": 1000, "duration_seconds": 1, "x": ' + "[" * 30_000,
        "{" + '"a": 1, ' * 20_000 + '"transferred_bytes": 1000, "duration_seconds": 1}',
        "\\377\\376",
    ],
)
def test_a_last_line_that_is_no_report_is_a_failure(said: str, tmp_path: Path) -> None:
    """Text, missing keys, wrong types, impossible numbers, depth, length and bytes: a reason, never an exception."""
    (tmp_path / "said").write_bytes(said.encode().replace(b"\\377\\376", b"\xff\xfe") + b"\n")
    outcome = run(f"cat {shlex.quote(str(tmp_path / 'said'))}")
    assert isinstance(outcome, Failure)
    assert outcome.reason.startswith("its last line is not a report")
    assert len(outcome.reason) < 300


def test_a_report_over_several_lines_is_to_be_one() -> None:
    """As a tool prints that indents; its last line is a bracket."""
    outcome = run(f"echo {shlex.quote(GOOD)} | sed 's/, /,\\n/; s/}}/\\n}}/'")
    assert isinstance(outcome, Failure)
    assert "one line of JSON is expected as the last line" in outcome.reason
    assert outcome.reason.endswith("it is '}'")


def test_a_last_line_that_is_no_report_is_shown() -> None:
    """As much of it as is needed to know it again, and nothing that a terminal would obey."""
    outcome = run("printf 'uploaded 3 files \\033[2J in 2 s\\n'")
    assert isinstance(outcome, Failure)
    assert r"'uploaded 3 files \x1b[2J in 2 s'" in outcome.reason


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo no space left >&2; exit 3", "it ended with status 3"),
        ("there-is-no-such-command-here", "it ended with status 127 (no such command)"),
        ("kill -9 $$", "it was ended by SIGKILL"),
        ("true", "it printed nothing"),
        ("printf '\\n\\n'", "it printed nothing"),
        (f"echo {shlex.quote(GOOD)}; exit 1", "it ended with status 1"),
    ],
)
def test_a_command_that_fails_says_why(command: str, reason: str) -> None:
    """The reason is a sentence; a report before a failure does not count."""
    outcome = run(command)
    assert isinstance(outcome, Failure)
    assert outcome.reason == reason
    assert not outcome.is_timeout
    assert outcome.is_no_command == ("no such command" in reason)


def test_the_end_of_standard_error_is_kept() -> None:
    """The last words matter, however much was said before them and in whatever bytes."""
    outcome = run(
        python("import sys; sys.stderr.buffer.write(b'x' * 10**6 + b'\\xff the disk is full'); sys.exit(1)")
    )
    assert isinstance(outcome, Failure)
    assert outcome.stderr_tail.endswith("\ufffd the disk is full")
    assert len(outcome.stderr_tail) <= 4096


def test_much_output_is_read_and_forgotten() -> None:
    """A talkative command is not blocked by a full pipe."""
    outcome = run(python(f"for i in range(100_000): print('line', i)\nprint('{GOOD}')"))
    assert isinstance(outcome, Report)


def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    """All of the process group goes, also what ignores being asked."""
    pid_file = tmp_path / "pid"
    stubborn = f"trap '' TERM; (sleep 60) & echo $! > {shlex.quote(str(pid_file))}; sleep 60"
    for seconds in (1, 4, 16):  # a busy machine may need longer to begin
        outcome = run_command(stubborn, REQUEST, timeout_seconds=seconds, grace_seconds=0.2)
        assert outcome == Failure(reason=f"it took longer than {seconds} s", is_timeout=True)
        if pid_file.exists() and pid_file.read_text():
            break
    until(lambda: _is_gone(int(pid_file.read_text())))


def test_a_child_that_is_left_behind_is_ended(tmp_path: Path) -> None:
    """A command that ends while a child of it still holds its output is not waited for, and the child goes."""
    pid_file = tmp_path / "pid"
    outcome = run(f"sleep 60 & echo $! > {shlex.quote(str(pid_file))}; echo {shlex.quote(GOOD)}")
    assert isinstance(outcome, Report)
    until(lambda: _is_gone(int(pid_file.read_text())))


def test_nothing_is_left_when_the_tuning_itself_is_killed(tmp_path: Path) -> None:
    """Also what ignores being asked goes, soon after nobody is there any more to ask."""
    pid_file = tmp_path / "pid"
    name = shlex.quote(str(pid_file))
    command = f"trap '' TERM; (sleep 60) & echo $! > {name}~; mv {name}~ {name}; sleep 60; true"
    program = (
        f"from penstock.tuning.command import run_command\nrun_command({command!r}, {{}}, timeout_seconds=60)"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        until(pid_file.exists)
        process.kill()
    until(lambda: _is_gone(int(pid_file.read_text())))


def test_a_child_that_was_not_reaped_is_not_waited_for(tmp_path: Path) -> None:
    """What is dead needs no time to clean up, however long it is kept: one that left the group keeps it here."""
    pid_file = tmp_path / "pid"
    program = (
        "import os, time\n"
        "if not os.fork():\n"
        "    if not os.fork(): os._exit(0)\n"
        "    os.setpgid(0, 0)\n"
        f"    open({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)"
    )
    for seconds in (1.0, 4.0, 16.0):  # as above
        started = time.monotonic()
        outcome = run_command(python(program), REQUEST, timeout_seconds=seconds, grace_seconds=60.0)
        elapsed_seconds = time.monotonic() - started
        if pid_file.exists() and pid_file.read_text():
            break
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    assert isinstance(outcome, Failure)
    assert outcome.is_timeout
    assert elapsed_seconds < 60


def test_ctrl_c_lets_the_command_clean_up_and_passes_on(tmp_path: Path) -> None:
    """The group is asked to end and may remove what it uploaded, also where its shell has gone already."""
    ready, cleaned = tmp_path / "ready", tmp_path / "cleaned"
    program = (
        "import signal, sys, time\n"
        f"def end(*_): time.sleep(0.2); open({str(cleaned)!r}, 'w').close(); sys.exit()\n"
        f"signal.signal(signal.SIGTERM, end); open({str(ready)!r}, 'w').close(); time.sleep(60)"
    )
    interrupter = threading.Thread(target=_interrupt_when, args=(ready,))
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        run(f"{python(program)}; echo after")
    interrupter.join()
    assert cleaned.exists()


def test_another_thread_may_end_it(tmp_path: Path) -> None:
    """As soon as the descriptor can be read: in order, and long before its time is over."""
    ready, cleaned = tmp_path / "ready", tmp_path / "cleaned"
    stop = os.eventfd(0)

    def end() -> None:
        until(ready.exists)
        os.eventfd_write(stop, 1)

    ender = threading.Thread(target=end)
    ender.start()
    command = f"trap 'touch {cleaned}; exit' TERM; touch {ready}; while :; do sleep 0.05; done"
    assert isinstance(run_command(command, REQUEST, timeout_seconds=LONG_SECONDS, stop=stop), Failure)
    ender.join()
    os.close(stop)
    assert cleaned.exists()


@pytest.mark.parametrize(
    ("transferred", "size", "is_strange"),
    [
        (512 * MiB, 512 * MiB, False),
        (300 * MiB, 512 * MiB, False),  # not all of it arrived
        (512 * 1024, 512 * MiB, True),  # KiB
        (8 * 512 * MiB, 512 * MiB, True),  # bits
        (64 * MiB, MiB, False),  # too small for parts: many objects
        (1024, MiB, True),
    ],
)
def test_an_amount_that_contradicts_the_object_is_told(transferred: int, size: int, is_strange: bool) -> None:
    """Both numbers are named."""
    reason = contradiction(Report(transferred_bytes=transferred, duration_seconds=1), size)
    assert (reason is not None) == is_strange
    assert reason is None or (f" {transferred} " in reason and f" {size} " in reason)


@pytest.mark.parametrize(("reported_seconds", "is_strange"), [(12400, True), (12.4, False), (0.2, False)])
def test_a_duration_in_milliseconds_is_doubted(reported_seconds: float, is_strange: bool) -> None:
    """No transfer is longer than the run that it is in; what is shorter was prepared first."""
    report = Report(transferred_bytes=64 * MiB, duration_seconds=reported_seconds)
    reason = doubt(report, took_seconds=12.6)
    assert (reason is not None) == is_strange
    assert reason is None or "duration_seconds 12400 where its run took 12.6 s" in reason


def _interrupt_when(ready: Path) -> None:
    until(ready.exists)
    os.kill(os.getpid(), signal.SIGINT)


def _is_gone(pid: int) -> bool:
    """Or waiting to be buried by whoever adopted it: a signal takes a moment to be carried out."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in {"Z", "X"}
