"""An application is never hurt by penstock: not by what surrounds it or what it lacks, nor at its end."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import advice
from penstock.client.advice import Adviser
from tests.integration import all_of_the_client
from tests.integration.scripted_advisor import Served, served_in_thread
from tests.programs import ran

ROOT = Path(__file__).parents[2]
ODD_PATHS = ["", "/", ".", "~", "x" * 5000, "/dev/null", "/dev/zero", "/proc/self/mem", "a\nb", "é" * 60]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A daemon that this process and its children find."""
    with served_in_thread(tmp_path) as running:
        monkeypatch.setenv("PENSTOCK_SOCKET", str(running.socket_path))
        monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(running.snapshot_path))
        yield running


def run(program: str, *, environment: dict[str, str] | None = None) -> str:
    """What an application prints that does this; it ends well, and is silent on standard error but for the log."""
    done = ran([sys.executable, "-W", "error", "-c", program], cwd=ROOT, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("path", ODD_PATHS, ids=[ascii(path)[:20] for path in ODD_PATHS])
def test_odd_variables_are_no_exception(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the variables name, it is no daemon and no snapshot."""
    monkeypatch.setenv("PENSTOCK_SOCKET", path)
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", path)
    all_of_the_client.use()
    all_of_the_client.flush()


def test_variables_that_are_no_text_are_no_exception() -> None:
    """A path of bytes that are not UTF-8 is one that nobody listens on, and is said so in the log."""
    odd = os.fsdecode(b"/tmp/\xff\x80")
    run(
        "from tests.integration import all_of_the_client as c; c.use(); c.flush()",
        environment={"PENSTOCK_SOCKET": odd, "PENSTOCK_SNAPSHOT": odd},
    )


def test_a_pipe_in_the_place_of_the_snapshot_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening it waits for a writer, who never comes."""
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(tmp_path / "pipe"))
    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "nobody"))
    all_of_the_client.use()


def test_a_snapshot_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file of a terabyte takes no memory of the application's."""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(tmp_path / "huge"))
    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "nobody"))
    all_of_the_client.use()


@pytest.mark.parametrize("keeps", [(), ("PENSTOCK_SOCKET", "PENSTOCK_SNAPSHOT")], ids=["alone", "served"])
def test_an_empty_environment_serves(server: Served, keeps: tuple[str, ...]) -> None:
    """No HOME, no PATH, no locale."""
    environment = {name: os.environ[name] for name in keeps}
    program = "import asyncio; from tests.integration import all_of_the_client as c; c.use(); "
    program += "asyncio.run(c.use_in_a_loop())"
    run(program, environment=environment)


def test_a_system_without_unix_sockets_and_forks_serves(server: Served) -> None:
    """As Windows and restricted builds are: the snapshot is advice there, too, and the rest is the SDK's default."""
    program = """
import asyncio, os, socket, select
loop = asyncio.new_event_loop()  # whose own pipe is a pair of such sockets
del socket.AF_UNIX, os.pread, os.register_at_fork, os.fork, os.O_NONBLOCK, select.poll
from penstock.client.advice import advise
from tests.integration import all_of_the_client as c
c.use()
loop.run_until_complete(c.use_in_a_loop())
loop.close()
print(advise("s3_upload", c.SIZE).basis, advise("s3_upload", c.SIZE, objective="frugal").explanation)
"""
    assert run(program).startswith("measured the SDK's default, because there is no advice: no daemon")


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_process_without_descriptors_is_not_hurt(server: Served, is_warm: bool) -> None:
    """Neither one that had used it before, nor one for which modules can no longer be imported."""
    program = f"""
import os, resource, boto3.s3.transfer, botocore.config, aiobotocore.config, socket, json
from tests.integration import all_of_the_client as c
if {is_warm}:
    c.use()
files = []
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))
try:
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
c.use()
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
for file in files:
    os.close(file)
from penstock.client.advice import Adviser
print(Adviser().advise("s3_upload", c.SIZE).basis)
"""
    assert run(program) == "measured\n"


async def test_a_process_without_threads_is_not_hurt(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share stays as it is, and reports are dropped."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        all_of_the_client.use()
        await all_of_the_client.use_in_a_loop()


def test_forked_children_ask_for_themselves(server: Served) -> None:
    """While threads of the parent ask, report and hold leases; none waits for a lock that nobody opens any more.

    The application's log goes nowhere: of standard error, where it would go, Python leaves a child the lock of whoever
    wrote at the fork, and that child waits for ever at its first line, with penstock or without.
    """
    program = """
import logging, os, signal, threading, warnings
logging.getLogger("penstock.client").propagate = False
logging.getLogger("penstock.client").addHandler(logging.NullHandler())
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
from penstock.client import advice
from tests.integration import all_of_the_client as c
c.use()
over = threading.Event()
def work():
    while not over.is_set():
        c.use()
        advice._advisers.clear()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
codes = set()
for _ in range(30):
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            c.use()
            c.flush()
        except BaseException:
            os._exit(1)
        os._exit(0)
    codes.add(os.waitpid(child, 0)[1])
over.set()
for thread in threads:
    thread.join()
print(codes)
"""
    assert run(program) == "{0}\n"


def test_the_end_of_the_interpreter_is_quiet(server: Served) -> None:
    """In functions that run at the exit, in destructors, and in threads that go on meanwhile."""
    program = """
import atexit, threading
from tests.integration import all_of_the_client as c
from penstock.client import advice
from penstock.client.advice import Adviser
from penstock.client.connection import Connections
from penstock.client.lease import Lease
class Late:
    def __del__(self):
        c.use()
late = Late()
late.itself = late
kept = [Adviser(), Connections("nowhere"), Lease("s3_upload", 1)]
kept[0].advise("s3_upload", c.SIZE)
kept[2].__enter__()
kept.append(kept)
atexit.register(c.use)
def go_on():
    while True:
        c.use()
threading.Thread(target=go_on, daemon=True).start()
c.use()
"""
    for _ in range(3):
        run(program)


def test_a_signal_handler_may_ask(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it interrupts the one who is asking, and holds the lock."""
    adviser = Adviser()
    monkeypatch.setattr(advice, "_SOCKET_TIMEOUT_SECONDS", 0.05)  # for the lock alone: sockets have theirs
    with adviser._lock:
        all_of_the_client.usable(adviser.advise("s3_upload", all_of_the_client.SIZE))
