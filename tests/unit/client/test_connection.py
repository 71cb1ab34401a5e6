"""How long a question to the daemon may take, by a clock that stands still."""

from __future__ import annotations

import time

import pytest

from penstock.client import connection
from penstock.client.connection import Connections, NoDaemonError


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
