"""Reports of applications: they arrive, they hold nobody up, and they end with the process."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client import reporting
from penstock.client.reporting import BATCH_COUNT_MAX, REPORT_COUNT_BURST, WAITING_COUNT_MAX, Reporter
from penstock.units import MiB
from penstock.vocabulary import Origin
from tests.integration.conftest import PATIENCE_SECONDS
from tests.integration.scripted_advisor import Served, served_in_thread

Open = Callable[..., Reporter]


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for others to share a post, or long for a daemon."""
    monkeypatch.setattr(reporting, "_LINGER_SECONDS", 0.0)
    monkeypatch.setattr(reporting, "_PAUSE_SECONDS", 0.05)


@pytest.fixture
def open_reporter() -> Iterator[Open]:
    """Reporters that end with the test."""
    with contextlib.ExitStack() as ends:

        def open_one(path: Path, *, timeout_seconds: float | None = None) -> Reporter:
            reporter = Reporter(socket=str(path), timeout_seconds=timeout_seconds)
            ends.callback(reporter.close)
            return reporter

        yield open_one


def tell(
    reporter: Reporter, size: int = 64 * MiB, *, transferred_bytes: int = 64 * MiB, thread_count: int = 8
) -> bool:
    """One upload of two seconds."""
    return reporter.report(
        "s3_upload",
        size,
        {"thread_count": thread_count, "part_size_bytes": 8 * MiB},
        duration_seconds=2.0,
        transferred_bytes=transferred_bytes,
        request_count=10,
        client="boto3",
        throttled_count=1,
        region=None,
    )


def test_a_report_arrives_as_it_was_made(server: Served, open_reporter: Open) -> None:
    """With the user that the kernel names; what is not stated is left out."""
    reporter = open_reporter(server.socket_path)
    assert tell(reporter)
    assert reporter.flush()
    (observation,) = server.advisor.recorded
    assert observation.origin is Origin.APPLICATION
    assert observation.client == "boto3"
    assert observation.throttled_count == 1
    assert observation.context.place.region == server.advisor.region
    assert server.advisor.reporters == {(os.geteuid(), os.getpid())}
    assert reporter.posted_count == 1


def test_many_reports_share_posts_and_each_is_judged_by_itself(
    server: Served, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that are refused are counted; one line in the log has the first reason."""
    reporter = open_reporter(server.socket_path)
    with caplog.at_level(logging.WARNING):
        for n in range(60):
            tell(reporter, thread_count=0 if n % 3 == 0 else 8, transferred_bytes=1 if n % 3 == 1 else MiB)
        assert reporter.flush()
    assert (reporter.posted_count, reporter.refused_count, reporter.dropped_count) == (20, 40, 0)
    assert len(server.advisor.recorded) == 20
    assert len(caplog.records) == 1
    assert "expected 1 to 1024" in caplog.text


def test_without_a_daemon_reports_wait_and_the_oldest_go(
    tmp_path: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is raised, nothing grows, and what waits is posted when a daemon comes."""
    monkeypatch.setattr(reporting, "REPORT_COUNT_BURST", 10.0 * WAITING_COUNT_MAX)
    reporter = open_reporter(tmp_path / "penstock.sock")
    for n in range(WAITING_COUNT_MAX + 500):
        tell(reporter, 64 * MiB + n)
    assert not reporter.flush(timeout_seconds=0.1)
    assert 500 <= reporter.dropped_count <= 500 + BATCH_COUNT_MAX
    with served_in_thread(tmp_path) as server:
        assert reporter.flush()
        newest = max(o.context.payload_size_bytes for o in server.advisor.recorded)
        assert len(server.advisor.recorded) == WAITING_COUNT_MAX + 500 - reporter.dropped_count
    assert newest == 64 * MiB + WAITING_COUNT_MAX + 499
    assert len(caplog.records) == 1


def test_a_daemon_that_hangs_holds_nobody_up(tmp_path: Path, open_reporter: Open) -> None:
    """It accepts and says nothing: reporting goes on at the price of a queue, and flushing ends in time."""
    path = tmp_path / "hung.sock"
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(path))
        hung.listen()
        reporter = open_reporter(path)
        began = time.monotonic()
        for _ in range(50):
            assert tell(reporter)
        assert not reporter.flush(timeout_seconds=0.3)
        assert time.monotonic() - began < PATIENCE_SECONDS / 2  # not one answer was waited for
        assert reporter.posted_count == 0


def test_a_process_that_moves_much_reports_a_share_of_it(
    server: Served, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the daemon would refuse from this user is not sent."""
    monkeypatch.setattr(reporting, "REPORT_COUNT_PER_SECOND", 0.0)  # as long as this takes
    reporter = open_reporter(server.socket_path)
    told = [tell(reporter) for _ in range(1000)]
    assert sum(told) == REPORT_COUNT_BURST
    assert reporter.dropped_count == told.count(False)


def test_what_cannot_be_written_is_refused_and_harms_nothing(server: Served, open_reporter: Open) -> None:
    """A number that is none, or an answer that is none."""
    reporter = open_reporter(server.socket_path)
    reporter.report(
        "s3_upload",
        1,
        {"thread_count": float("nan")},
        duration_seconds=1.0,
        transferred_bytes=1,
        request_count=1,
    )
    assert reporter.flush()
    assert reporter.refused_count == 1
    tell(reporter)
    assert reporter.flush()
    assert reporter.posted_count == 1


_APPLICATION = """
import os, sys
from penstock.client import reporting
from penstock.client.reporting import report
if "patient" in sys.argv:
    reporting._TIMEOUT_SECONDS = reporting._EXIT_SECONDS_MAX = 60.0
def tell(size):
    report("s3_upload", size, {"thread_count": 8, "part_size_bytes": 8 << 20},
           duration_seconds=1.0, transferred_bytes=1 << 20, request_count=1)
tell(1)
if "fork" in sys.argv:
    child = os.fork()
    tell(2 if child else 3)
    if child:
        os.waitpid(child, 0)
"""


@pytest.mark.parametrize(("arguments", "sizes"), [(["patient"], {1}), (["patient", "fork"], {1, 2, 3})])
def test_what_is_left_at_the_end_is_posted(server: Served, arguments: list[str], sizes: set[int]) -> None:
    """Of the process, and of a child that it forked."""
    environment = {**os.environ, "PENSTOCK_SOCKET": str(server.socket_path)}
    subprocess.run([sys.executable, "-c", _APPLICATION, *arguments], env=environment, check=True, timeout=120)
    assert {o.context.payload_size_bytes for o in server.advisor.recorded} == sizes
    assert len(server.advisor.recorded) == len(sizes)


def test_no_more_threads_is_no_exception(
    server: Served, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transfer that is done must not fail for its report; when there are threads again, reports are posted."""
    reporter = open_reporter(server.socket_path)

    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        assert not tell(reporter)
        assert reporter.dropped_count == 1
    assert tell(reporter)
    assert reporter.flush()
    assert reporter.posted_count == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_waits_for_no_report_of_its_parent(tmp_path: Path, open_reporter: Open) -> None:
    """What waits in the parent is not the child's to post, and what was locked there is not locked here."""
    reporter = open_reporter(tmp_path / "none")
    tell(reporter)
    with reporter._changed:
        child = os.fork()
        if child == 0:
            os._exit(0 if reporter.flush(timeout_seconds=5.0) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_an_end_without_a_daemon_takes_half_a_second_at_most(tmp_path: Path) -> None:
    """However much waits."""
    environment = {**os.environ, "PENSTOCK_SOCKET": str(tmp_path / "none")}
    subprocess.run([sys.executable, "-c", _APPLICATION], env=environment, check=True, timeout=60)


def test_threads_share_a_reporter(server: Served, open_reporter: Open) -> None:
    """No report is lost between them."""
    reporter = open_reporter(server.socket_path)
    threads = [
        threading.Thread(target=lambda n=n: [tell(reporter, 100 * n + m + 1) for m in range(10)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reporter.flush()
    assert len({o.context.payload_size_bytes for o in server.advisor.recorded}) == 80


def test_a_full_disk_of_the_daemon_is_not_for_the_application(
    server: Served, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Reports that cannot be kept are dropped and counted, without a word in the log and without another try."""
    server.advisor.is_full = True
    reporter = open_reporter(server.socket_path)
    tell(reporter)
    assert reporter.flush()
    server.advisor.is_full = False
    tell(reporter)
    assert reporter.flush()
    assert (reporter.dropped_count, reporter.refused_count, reporter.posted_count) == (1, 0, 1)
    assert caplog.records == []
