"""How long a question to the daemon may take, by a clock that stands still."""

from __future__ import annotations

import errno
import pickle
import select
import socket
import threading
import time
from pathlib import Path

import pytest

from penstock.client import connection
from penstock.client.advice import StaleAdviceError
from penstock.client.connection import Connections, NoDaemonError, RefusedError, SilentError, ask
from tests.advice import an_advice


class Trickling:
    """A connection on which some of an answer comes every 0.4 s."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.timeout_seconds = 0.0

    def settimeout(self, seconds: float) -> None:
        self.timeout_seconds = seconds

    def sendall(self, _request: bytes) -> None:
        pass

    def recv(self, _size_bytes: int) -> bytes:
        self.seconds += min(0.4, self.timeout_seconds)
        if self.timeout_seconds < 0.4:
            raise TimeoutError
        return b"H"

    def close(self) -> None:
        pass


def test_a_question_takes_no_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the daemon spends it: what was waited for already is not granted again to each step."""
    trickling = Trickling()
    monkeypatch.setattr(time, "monotonic", lambda: trickling.seconds)
    monkeypatch.setattr(connection, "_connect", lambda *_: trickling)
    with pytest.raises(NoDaemonError):
        Connections("any", timeout_seconds=0.5).ask("GET", "/")
    assert trickling.seconds == pytest.approx(0.5)


@pytest.mark.parametrize("has_room_in_time", [True, False])
def test_a_full_queue_of_callers_is_waited_for(tmp_path: Path, *, has_room_in_time: bool) -> None:
    """A unix socket refuses at once while it is full; whoever asks has time until its limit."""
    path = str(tmp_path / "busy.sock")
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as other:
        busy.bind(path)
        busy.listen(0)
        other.connect(path)

        def serve() -> None:
            busy.accept()[0].close()
            caller = busy.accept()[0]
            caller.recv(65536)
            caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            caller.close()

        later = threading.Timer(0.1, serve)
        if has_room_in_time:
            later.start()
            assert ask(path, "GET", "/", timeout_seconds=60.0).body == b"ok"
            later.join()
        else:
            with pytest.raises(SilentError, match=r"no daemon answers on .*takes too long") as full:
                ask(path, "GET", "/", timeout_seconds=0.1)
            assert "start penstock" not in full.value.remedy  # one runs, and systemd would do nothing


@pytest.mark.parametrize("hangs", [True, False])
def test_a_daemon_that_ends_is_told_from_one_that_hangs(tmp_path: Path, *, hangs: bool) -> None:
    """Callers that it had not accepted yet are reset when it is started anew: it does not hang, and is asked again."""
    path = str(tmp_path / "daemon.sock")
    daemon = socket.socket(socket.AF_UNIX)
    daemon.bind(path)
    daemon.listen(8)
    if not hangs:

        def end_unaccepted() -> None:
            select.select([daemon], [], [], 60.0)
            daemon.close()

        ending = threading.Thread(target=end_unaccepted)
        ending.start()
    said = "accepts connections but does not answer" if hangs else "went away before it had answered"
    with pytest.raises(SilentError, match=said) as silent:
        ask(path, "GET", "/", timeout_seconds=0.1 if hangs else 60.0)
    assert silent.value.remedy.startswith("see its log" if hangs else "ask again")
    if hangs:
        daemon.close()
    else:
        ending.join()


def test_a_socket_that_is_closed_to_this_user_is_held_by_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """To start a daemon, as is said where there is none, would not help."""

    def closed(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(connection, "_enter", closed)
    with pytest.raises(SilentError, match=r"/run/x.sock is closed to this user \(Permission denied\)"):
        ask("/run/x.sock", "GET", "/v1/status")


@pytest.mark.parametrize(
    "error",
    [
        NoDaemonError("nobody answers"),
        SilentError("it does not answer", "see its log"),
        RefusedError(404, "there is nothing here"),
        StaleAdviceError(an_advice(expires_at="2020-02-02T02:02:00Z")),
    ],
)
def test_why_there_is_no_answer_can_be_told_to_another_process(error: Exception) -> None:
    """A pool of processes broke, or waited for ever, where what a task raised could not be read again."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - what was written here
    assert (type(again), str(again)) == (type(error), str(error))
    assert {name: getattr(again, name) for name in vars(error)} == vars(error)
