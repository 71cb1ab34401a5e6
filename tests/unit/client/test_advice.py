"""Which answers are advice, for how long, and for which question; without a daemon."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client import advice as advice_module
from penstock.client.advice import Adviser, StaleAdviceError, default_advice, in_force
from penstock.client.connection import Answer, Connections, NoDaemonError
from penstock.client.sizes import SIZE_BYTES_MAX
from penstock.units import GiB, MiB
from tests.advice import an_answer


def in_seconds(seconds: float) -> str:
    """A moment, as the daemon writes it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def an_adviser(folder: Path, *answers: dict[str, Any]) -> Adviser:
    """An application without a daemon, that finds these answers in the file."""
    if answers:
        (folder / "snapshot.json").write_text(json.dumps({"recommendations": answers}), encoding="utf-8")
    return Adviser(socket=str(folder / "nobody.sock"), snapshot=str(folder / "snapshot.json"))


class Daemon:
    """Answers on the socket as it is told to, notes what it is asked, and has a clock that stands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        self.status, self.document = 200, an_answer()
        self.asked: list[str] = []
        self.silent_seconds = 0.0  # before it is given up, where it does not answer
        monkeypatch.setattr(Connections, "ask", lambda _, method, target: self._answer(method, target))
        monkeypatch.setattr(advice_module, "time", SimpleNamespace(monotonic=lambda: self.seconds))

    def _answer(self, method: str, target: str) -> Answer:
        self.asked.append(f"{method} {target}")
        if not self.status:
            self.seconds += self.silent_seconds
            raise NoDaemonError("nobody is there")
        return Answer(self.status, "application/json", json.dumps(self.document).encode())


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """One that answers with sound advice."""
    return Daemon(monkeypatch)


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": 1},
        {"basis": None},
        {"explanation": []},
        {"payload_size_bytes": "1"},
        {"payload_size_bytes": -1},
        {"payload_size_bytes": SIZE_BYTES_MAX + 1},
        {"setting": []},
        {"setting": {"thread_count": "8", "part_size_bytes": MiB}},
        {"setting": {"thread_count": 1_000_001, "part_size_bytes": MiB}},
        {"setting": {"thread_count": 8, "part_size_bytes": 2e18}},
        {"setting": {"thread_count": 8, "part_size_bytes": -2e18}},
        {"setting": {"thread_count": 8, "part_size_bytes": float("nan")}},
        {"derived": None},
        {"derived": {"connection_pool_count": None}},
        {"derived": {"connection_pool_count": float("inf")}},
        {"expires_at": None},
        {"expires_at": 5},
        {"expires_at": "tomorrow"},
        {"expires_at": "2999-01-01T00:00:00"},
        {"demand": []},
        {"demand": {"object_count": "many"}},
        {"demand": {"object_count": 2e18}},
    ],
)
def test_an_answer_with_one_flaw_is_none(changes: dict[str, Any]) -> None:
    """A damaged answer must not become a damaged transfer; nor does what is no document."""
    for document in (an_answer(**changes), [an_answer()]):
        with pytest.raises(ValueError, match="what the daemon answers is no advice"):
            in_force(document, "s3_upload")


@pytest.mark.parametrize(
    "changes",
    [
        {"payload_size_bytes": 0},
        {"payload_size_bytes": SIZE_BYTES_MAX},
        {"setting": {"thread_count": 1_000_000, "part_size_bytes": 1 << 59}},
        {"derived": {"x": -1e18, "y": 1e18, "z_count": 0, "w": 0.5}},
        {"setting": {"thread_count": 8, "part_size_bytes": 8 * MiB, "of_a_newer_daemon": 1}},
        {"demand": {}},
        {"demand": {"object_count": 1_000_000_000_000}},
        {"expires_at": "2999-01-01T00:00:00+02:00"},
    ],
)
def test_an_answer_at_its_bounds_is_advice(changes: dict[str, Any]) -> None:
    """What is odd is not damaged."""
    assert in_force(an_answer(**changes), "s3_upload").basis == "measured"


def test_an_answer_about_another_operation_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An application must not find knobs that are not of what it asked about."""
    Daemon(monkeypatch).document = an_answer(operation="0", setting={"thread_countx": 8})
    advice = an_adviser(tmp_path).advise("s3_upload", GiB)
    assert (advice.basis, advice.setting["thread_count"]) == ("default", 10)
    assert "answers about 0, not about s3_upload" in advice.explanation


def test_advice_has_its_time_and_defaults_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has expired, and be it now, is refused with the moment, in UTC."""

    class Frozen(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Frozen:
            return cls(2030, 1, 1, tzinfo=tz)

    monkeypatch.setattr(advice_module, "datetime", Frozen)
    assert in_force(an_answer(expires_at="2030-01-01T00:00:00.5Z"), "s3_upload").seconds_left() == 0.5
    with pytest.raises(StaleAdviceError):
        in_force(an_answer(expires_at="2030-01-01T00:00:00Z"), "s3_upload")
    with pytest.raises(StaleAdviceError, match=r"2020-02-02 02:02 UTC.*penstock status"):
        in_force(an_answer(expires_at="2020-02-02T02:02:00Z"), "s3_upload")
    default = default_advice("s3_upload", 5, "a reason")
    assert (default.seconds_left(), default.has_expired()) == (float("inf"), False)
    assert default.explanation.endswith("there is no advice: a reason")
    assert repr(default).startswith("Advice(s3_upload, 5 bytes, default: {'thread_count': 10")


@pytest.mark.parametrize(
    ("asked", "found"),
    [(90, 100), (80, 70), (70, 70), (200, 100), (201, None), (35, 70), (34, None), (1, 0), (0, 0), (3, None)],
)
def test_the_nearest_standing_advice_serves(tmp_path: Path, asked: int, found: int | None) -> None:
    """By ratio, up to twice the size or half of it; of the same operation, and in force."""
    others = [
        an_answer(payload_size_bytes=88, operation="s3_nothing"),
        an_answer(payload_size_bytes=91, operation="s3_uploads"),
        an_answer(payload_size_bytes=89, expires_at=in_seconds(-1)),
    ]
    standing = [an_answer(payload_size_bytes=size) for size in (100, 0, 70)]
    advice = an_adviser(tmp_path, *others, *standing).advise("s3_upload", asked)
    assert advice.payload_size_bytes == (asked if found is None else found)
    assert advice.basis == ("default" if found is None else "measured")


def test_what_is_no_size_gets_the_defaults(tmp_path: Path) -> None:
    """And is told so; text and numbers are the same question."""
    adviser = an_adviser(tmp_path, an_answer(payload_size_bytes=SIZE_BYTES_MAX))
    for size in (SIZE_BYTES_MAX, str(SIZE_BYTES_MAX)):
        assert adviser.advise("s3_upload", size).basis == "measured"
    for size in (SIZE_BYTES_MAX + 1, -1, "much"):
        advice = adviser.advise("s3_upload", size)
        assert (advice.basis, advice.payload_size_bytes) == ("default", 0)
        assert "is not a size" in advice.explanation


def test_about_nothing_nobody_is_asked(
    tmp_path: Path, daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty file is nobody's mistake: what the SDK does by itself serves, and no line in the log says why."""
    advice = an_adviser(tmp_path).advise("s3_upload", 0, memory_bytes_max="1GiB")
    assert (advice.basis, daemon.asked, caplog.messages) == ("default", [], [])


def test_an_answer_is_remembered_for_a_minute_or_as_long_as_it_is_valid(
    tmp_path: Path, daemon: Daemon
) -> None:
    """The daemon is asked once meanwhile, with what is stated and nothing else."""
    adviser = an_adviser(tmp_path)
    for seconds, count in ((0.0, 1), (59.0, 1), (61.0, 2), (100.0, 2), (122.0, 3)):
        daemon.seconds = 1000.0 + seconds
        assert adviser.advise("s3_upload", "1GiB", region=None, objective="frugal").basis == "measured"
        assert len(daemon.asked) == count
    asked = "GET /v1/recommendation?operation=s3_upload&payload_size_bytes=1073741824&objective=frugal"
    assert set(daemon.asked) == {asked}
    daemon.document = an_answer(expires_at=in_seconds(30))
    for seconds, count in ((200.0, 4), (225.0, 4), (231.0, 5)):
        daemon.seconds = 1000.0 + seconds
        adviser.advise("s3_upload", "1GiB", region=None, objective="frugal")
        assert len(daemon.asked) == count


def test_a_daemon_that_does_not_answer_is_tried_again_soon(
    tmp_path: Path, daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    """After seconds, for each question; said once until somebody answers."""
    daemon.status = 0
    adviser = an_adviser(tmp_path)
    for seconds, count in ((0.0, 1), (4.5, 1), (5.5, 2), (11.0, 3)):
        daemon.seconds = 1000.0 + seconds
        assert adviser.advise("s3_upload", GiB).basis == "default"
        assert len(daemon.asked) == count
    assert len(caplog.records) == 1
    for status, lines in ((200, 1), (0, 2)):
        daemon.status, daemon.seconds = status, daemon.seconds + 100.0
        adviser.advise("s3_upload", GiB)
        assert len(caplog.records) == lines


def test_a_daemon_that_hangs_holds_an_application_up_once(tmp_path: Path, daemon: Daemon) -> None:
    """However many sizes its files have: it is left alone for seconds, and then waited for once more."""
    daemon.status, daemon.silent_seconds = 0, 0.5
    adviser = an_adviser(tmp_path)
    for begin, count in ((2000.0, 1), (2006.0, 2)):
        daemon.seconds = begin
        for size in range(1, 9):
            advice = adviser.advise("s3_upload", size * MiB)
            assert (advice.basis, advice.payload_size_bytes) == ("default", size * MiB)
            assert "nobody is there" in advice.explanation
        assert len(daemon.asked) == count
    daemon.status, daemon.seconds = 200, 2020.0
    assert adviser.advise("s3_upload", MiB).basis == "measured"


@pytest.mark.parametrize(
    ("status", "document", "sentence"),
    [
        (400, {"detail": "no such region"}, "no such region"),
        (500, {}, "answered with status 500"),
        (404, [], "answered with status 404"),
        (201, an_answer(), "answered with status 201"),
    ],
)
def test_a_refusal_is_passed_on(
    tmp_path: Path, daemon: Daemon, status: int, document: Any, sentence: str
) -> None:
    """In the daemon's own words, if there are any."""
    daemon.status, daemon.document = status, document
    advice = an_adviser(tmp_path).advise("s3_upload", GiB)
    assert advice.basis == "default"
    assert sentence in advice.explanation


def test_a_refusal_that_could_not_be_said_is_said_later(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal is said once, and no silence counts as that."""
    said: list[str] = []

    def complain(_: str, sentence: str) -> bool:
        said.append(sentence)
        return len(said) > 1

    monkeypatch.setattr(advice_module, "complain", complain)
    adviser, daemon.status, daemon.document = an_adviser(tmp_path), 400, {"detail": "no such region"}
    for size in (1, 2, 3, 4):
        adviser.advise("s3_upload", size)
    assert said == ["no such region"] * 2


def test_answers_are_forgotten_before_they_are_too_many(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once; until then each is remembered."""
    monkeypatch.setattr(advice_module, "_ANSWER_COUNT_MAX", 3)
    adviser = an_adviser(tmp_path)
    for size, count in ((1, 1), (2, 2), (3, 3), (1, 3), (2, 3), (3, 3), (4, 4), (4, 4), (1, 5), (4, 5)):
        adviser.advise("s3_upload", size)
        assert len(daemon.asked) == count


def test_a_snapshot_that_stays_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one with all that a daemon can hold, and whatever is asked."""
    reads, read = list[int](), advice_module._read_snapshot

    def counting(descriptor: int, size_bytes: int) -> Any:
        reads.append(size_bytes)
        return read(descriptor, size_bytes)

    monkeypatch.setattr(advice_module, "_read_snapshot", counting)
    adviser = an_adviser(tmp_path, *(an_answer(payload_size_bytes=3**n) for n in range(29)))
    for n in range(29):
        assert adviser.advise("s3_upload", 3**n).payload_size_bytes == 3**n
    assert len(reads) == 1


def test_a_snapshot_is_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last byte of it."""
    adviser = an_adviser(tmp_path, an_answer())
    size_bytes = (tmp_path / "snapshot.json").stat().st_size
    for bound, basis in ((size_bytes - 1, "default"), (size_bytes, "measured")):
        monkeypatch.setattr(advice_module, "_SNAPSHOT_BYTES_MAX", bound)
        assert an_adviser(tmp_path).advise("s3_upload", GiB).basis == basis
    assert adviser.advise("s3_upload", GiB).basis == "measured"


def test_another_file_is_noticed_by_its_time_or_by_its_place(tmp_path: Path) -> None:
    """Written over, or put in its stead with the very same time; and when there is none any more."""
    path = tmp_path / "snapshot.json"
    adviser = an_adviser(tmp_path, an_answer(explanation="first"))
    os.utime(path, ns=(5, 5))
    assert adviser.advise("s3_upload", GiB).explanation == "first"
    path.write_bytes(path.read_bytes().replace(b"first", b"again"))
    os.utime(path, ns=(4, 4))
    assert adviser.advise("s3_upload", GiB).explanation == "again"
    other = tmp_path / "other.json"
    other.write_bytes(path.read_bytes().replace(b"again", b"other"))
    os.utime(other, ns=(4, 4))
    other.rename(path)
    assert adviser.advise("s3_upload", GiB).explanation == "other"
    path.unlink()
    assert adviser.advise("s3_upload", GiB).basis == "default"


def test_a_reader_that_was_interrupted_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler that asks while the file is being exchanged goes on with what there is, and leaves the lock."""
    monkeypatch.setattr(advice_module, "_SOCKET_TIMEOUT_SECONDS", 0.01)
    adviser = an_adviser(tmp_path, an_answer())
    adviser._lock.acquire()
    assert adviser.advise("s3_upload", GiB).basis == "default"
    assert adviser._lock.locked()
    adviser._lock.release()
    assert adviser.advise("s3_upload", 2 * GiB).basis == "measured"
    assert not adviser._lock.locked()
