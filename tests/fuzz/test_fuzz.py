"""The short form of `make fuzz`: a little of everything that strangers and broken disks may hand to penstock."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from tests.fuzz.daemon import fuzzed_daemon, speak
from tests.fuzz.datagrams import shout
from tests.fuzz.mutation import Mutator
from tests.fuzz.neighbours import beside_hostile_users
from tests.fuzz.readers import READERS, reader_of
from tests.programs import descriptor_count

COUNTS = {
    "configuration": 40,
    "snapshot": 400,
    "client": 300,
    "database": 60,
    "datagram": 4000,
    "metadata": 150,
    "responses": 300,
}
CONVERSATION_COUNT = 1200
DATAGRAM_COUNT = 600
HOSTILE_SECONDS = 4.0


@pytest.mark.parametrize("name", READERS)
def test_whatever_is_in_it_is_read_or_refused(name: str, tmp_path: Path) -> None:
    """A damaged file, or an answer of anything at all, ends in what the reader promises, and leaves no file open."""
    before = descriptor_count()
    with reader_of(name, tmp_path) as reader:
        for number in range(COUNTS[name]):
            reader.feed(Mutator("short", number))
    assert descriptor_count() <= before


def test_whatever_is_said_to_the_socket_is_answered_or_hung_up_on(tmp_path: Path) -> None:
    """No answer of 500, no connection without an end, nothing left open, and not a line of the log for it.

    Nor for what is sent to the port of SDKs, whose keys and tokens are nowhere in the daemon's memory afterwards.
    """
    with fuzzed_daemon(tmp_path) as daemon:
        quiet = daemon.log_path.read_text()
        before = daemon.socket_count
        heard = asyncio.run(speak(daemon.socket_path, "short", range(CONVERSATION_COUNT)))
        assert heard.findings == []
        assert heard.statuses["400"] > heard.statuses["200"] > 0
        daemon.answer_seconds()
        assert daemon.has_let_go(before)
        assert shout(daemon, "short", range(DATAGRAM_COUNT)) == []
        assert daemon.log_path.read_text() == quiet


def test_root_is_answered_whatever_two_users_do() -> None:
    """They fill what they may have of the socket, and ask as much as they can: root has an answer each time."""
    if os.geteuid() != 0:
        pytest.skip("only root can become two other users")
    with tempfile.TemporaryDirectory() as name:  # where others get to, as they do not to pytest's own
        answers = beside_hostile_users(Path(name), HOSTILE_SECONDS)
    assert answers.failures == []
    assert answers.seconds
