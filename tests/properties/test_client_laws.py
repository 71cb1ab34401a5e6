"""Whatever stands in a snapshot, comes over the socket or is asked: an application gets something it can work with."""

from __future__ import annotations

import copy
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.advice import Adviser
from penstock.client.lease import Lease
from penstock.client.reporting import Reporter
from tests.advice import an_answer
from tests.integration.all_of_the_client import SIZE, adapt, usable

DERIVED = {
    "connection_pool_count": 9,
    "multipart_threshold_bytes": 8 << 20,
    "rate_limit_bytes_per_second": 1e8,
}
ADVICE = an_answer(derived=DERIVED, demand={"object_count": 3})
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 1e18, 2**63, True])
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


class Awkward:
    """A value of an application that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__
    __hash__ = None  # type: ignore[assignment]


ARGUMENTS = ANYTHING | st.binary(max_size=8) | st.builds(Awkward)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where the snapshot and the socket are."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A snapshot of which some values were replaced by others, keys were lost, or bytes."""
    document: dict[str, Any] = {"recommendations": [copy.deepcopy(ADVICE) for _ in range(2)]}
    for _ in range(draw(st.integers(0, 3))):
        place: dict[str, Any] = draw(st.sampled_from(document["recommendations"]))
        inner = [place, *(value for value in place.values() if isinstance(value, dict) and value)]
        place = draw(st.sampled_from(inner))
        name = draw(st.sampled_from(sorted(place)))
        if draw(st.booleans()):
            place[name] = draw(ANYTHING)
        elif len(place) > 1:
            del place[name]
    content = json.dumps(document).encode()
    return content[: draw(st.integers(0, len(content)))] if draw(st.integers(0, 9)) == 0 else content


@given(content=damaged())
@settings(max_examples=400, deadline=None)
def test_any_snapshot_is_advice_or_none(folder: Path, content: bytes) -> None:
    """What is believed of it can be told to every library."""
    (folder / "snapshot").write_bytes(content)
    advice = Adviser(socket=str(folder / "nobody"), snapshot=str(folder / "snapshot")).advise(
        "s3_upload", SIZE
    )
    usable(advice)
    adapt(advice)


@given(
    operation=ARGUMENTS, size=ARGUMENTS, demand=st.dictionaries(st.text(max_size=8), ARGUMENTS, max_size=3)
)
@settings(max_examples=300, deadline=None)
def test_any_question_has_an_answer(folder: Path, operation: Any, size: Any, demand: dict[str, Any]) -> None:
    """Also one that is none: an advice, a lease, and a report that is refused."""
    for name in ("self", "operation", "payload_size_bytes", "size_bytes", "on_change", "setting", "socket"):
        demand.pop(name, None)
    nobody = str(folder / "nobody")
    usable(Adviser(socket=nobody, snapshot=nobody).advise(operation, size, **demand))
    with Lease(operation, size, socket=nobody, **demand) as lease:
        usable(lease.advice)
    told = Reporter(socket=nobody)
    told._has_complained = True
    told.report(operation, size, demand, duration_seconds=size, transferred_bytes=size, request_count=size)
    told.close(timeout_seconds=0.0)


class Babbler:
    """Says what it is told to whoever connects, and hangs up."""

    def __init__(self, path: Path) -> None:
        self.says = b""
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(self.says)
            except OSError:
                if self._listening.fileno() < 0:
                    return

    def close(self) -> None:
        """Nobody is served any more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture(scope="module")
def babbler(folder: Path) -> Iterator[Babbler]:
    """Something on the socket that is no daemon."""
    one = Babbler(folder / "babbler")
    yield one
    one.close()


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """HTTP, more or less."""
    body = (
        draw(damaged())
        if draw(st.booleans())
        else json.dumps(
            {**ADVICE, **draw(st.dictionaries(st.sampled_from(sorted(ADVICE)), ANYTHING, max_size=2))}
        ).encode()
    )
    status = draw(st.sampled_from([b"200", b"400", b"503", b"2", b"abc", b"-1"]))
    length = draw(st.sampled_from([str(len(body)).encode(), b"-5", b"1e9", b"99999999999", b""]))
    answer = b"HTTP/1.1 " + status + b" OK\r\nContent-Length: " + length + b"\r\n\r\n" + body
    place = draw(st.integers(0, len(answer)))
    junk = draw(st.binary(max_size=5))
    return draw(
        st.sampled_from(
            [answer, answer + b"\n", answer[:place], answer[:place] + junk + answer[place:], junk]
        )
    )


@given(answer=answers())
@settings(max_examples=300, deadline=None)
def test_any_answer_is_advice_or_none(folder: Path, babbler: Babbler, answer: bytes) -> None:
    """Of a question, and of a lease."""
    babbler.says = answer
    path = str(folder / "babbler")
    advice = Adviser(socket=path, snapshot=str(folder / "none")).advise("s3_upload", SIZE, objective="frugal")
    usable(advice)
    adapt(advice)
    with Lease("s3_upload", SIZE, socket=path) as lease:
        usable(lease.advice)
