"""What an application hears, from a real daemon, from a file, and from nobody."""

from __future__ import annotations

import json
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.client import advice as advice_module
from penstock.client import asyncio_client
from penstock.client.advice import Adviser, advise, in_force
from penstock.client.boto3_config import connection_pool_count, transfer_arguments
from penstock.client.connection import Connections, NoDaemonError, RefusedError, ask, stream
from penstock.client.demand import Demand
from penstock.units import GiB, MiB
from tests.advice import an_answer
from tests.integration.scripted_advisor import ScriptedAdvisor, Served, a_recommendation, served_in_thread
from tests.programs import descriptor_count, printed
from tests.speaker import speaking


def an_adviser(folder: Path) -> Adviser:
    """An application that looks in this folder."""
    return Adviser(socket=str(folder / "penstock.sock"), snapshot=str(folder / "recommendations.json"))


def test_a_standing_question_is_answered_by_the_file_alone(server: Served) -> None:
    """The daemon is not asked for what it has published, and sizes nearby share the advice."""
    adviser = an_adviser(server.socket_path.parent)
    for size in (GiB, GiB + GiB // 2, GiB // 2):
        advice = adviser.advise("s3_upload", size)
        assert advice.setting == {"thread_count": 32, "part_size_bytes": 16 * MiB}
        assert advice.basis == "measured"
    assert server.advisor.questions == []


def test_new_advice_is_noticed(server: Served) -> None:
    """What the application remembers ends with the next snapshot."""
    adviser = an_adviser(server.socket_path.parent)
    assert adviser.advise("s3_upload", GiB).explanation == "32 threads reach the ceiling of this host."
    server.advisor.recommendations = [a_recommendation(explanation="new")]
    server.publish()
    assert adviser.advise("s3_upload", GiB).explanation == "new"


def test_another_question_goes_to_the_daemon_once(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demand of one's own, or another size, is asked over the socket and then remembered."""
    asked, ask_it = list[str](), Connections.ask

    def counting(self: Connections, method: str, target: str, **more: Any) -> Any:
        asked.append(target)
        return ask_it(self, method, target, **more)

    monkeypatch.setattr(Connections, "ask", counting)
    adviser = an_adviser(server.socket_path.parent)
    for _ in range(3):
        assert adviser.advise("s3_upload", GiB, objective="frugal", thread_count_max=8).basis == "measured"
        assert adviser.advise("s3_upload", 8 * MiB).payload_size_bytes == 8 * MiB
    assert len(asked) == 2
    assert server.advisor.questions[0].demand.thread_count_max == 8


def test_without_a_daemon_the_sdk_decides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No daemon is no reason to fail: the defaults, marked as such, and one line in the log."""
    adviser = an_adviser(tmp_path)
    with caplog.at_level(logging.WARNING):
        for size in (GiB, MiB):
            advice = adviser.advise("s3_upload", size)
            assert advice.basis == "default"
            assert advice.setting == {"thread_count": 10, "part_size_bytes": 8 * MiB}
    assert len(caplog.records) == 1
    assert adviser.advise("s3_nothing", 1).setting == {}  # type: ignore[arg-type]


def a_snapshot(**setting: Any) -> bytes:
    """A file with one piece of advice."""
    return json.dumps(
        {"recommendations": [an_answer(setting={"part_size_bytes": 8 * MiB, **setting})]}
    ).encode()


def test_a_sound_snapshot_is_advice(tmp_path: Path) -> None:
    """The least that a file must have."""
    (tmp_path / "recommendations.json").write_bytes(a_snapshot(thread_count=8))
    assert an_adviser(tmp_path).advise("s3_upload", GiB).basis == "measured"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"recommendations": 7}',
        b'{"recommendations": [{"operation": "s3_upload"}]}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
        a_snapshot(thread_count=float("nan")),
        a_snapshot(thread_count=float("inf")),
        a_snapshot(thread_count=None),
        a_snapshot(threads=8),
        b'{"recommendations": [{"operation": "s3_upload", "payload_size_bytes": 1073741824, "setting": []}]}',
    ],
)
def test_a_damaged_snapshot_is_no_advice(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in the file, the application gets something to work with; and it is read once."""
    reads, read = list[int](), advice_module._read_snapshot

    def counting(descriptor: int, size_bytes: int) -> Any:
        reads.append(size_bytes)
        return read(descriptor, size_bytes)

    monkeypatch.setattr(advice_module, "_read_snapshot", counting)
    (tmp_path / "recommendations.json").write_bytes(content)
    adviser = an_adviser(tmp_path)
    for size in (GiB, MiB, "no size"):
        assert adviser.advise("s3_upload", size).basis == "default"
    assert reads == [len(content)]


def test_no_exception_reaches_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even that of a mistake of ours."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(Adviser, "_refresh", fail)
    advice = an_adviser(tmp_path).advise("s3_upload", GiB)
    assert advice.basis == "default"
    assert "a mistake" in advice.explanation


def test_advice_without_what_it_is_for_says_what_is_missing() -> None:
    """Whoever reads the log learns that it is the advice, and not the status of the answer, that is wrong."""
    with pytest.raises(
        ValueError, match="advice about s3_upload has no part_size_bytes: it is damaged, or of another"
    ):
        in_force(an_answer(setting={"thread_count": 8}), "s3_upload")


@pytest.mark.parametrize("operation", ["s3_download", "s3_nothing"])
def test_advice_that_this_client_does_not_know_yet_is_advice(operation: str) -> None:
    """A later daemon measures more: what its advice holds is for the application to know."""
    setting = {"thread_count": 8, "range_size_bytes": 8 * MiB}
    advice = in_force(an_answer(operation=operation, setting=setting), operation)
    assert advice.setting == {"thread_count": 8, "range_size_bytes": 8 * MiB}


def test_a_snapshot_that_cannot_be_read_is_no_advice(tmp_path: Path) -> None:
    """A folder in its place, for one; and however often it is asked for, it holds no more than one descriptor."""
    (tmp_path / "recommendations.json").mkdir()
    adviser, before = an_adviser(tmp_path), descriptor_count()
    assert {adviser.advise("s3_upload", GiB).basis for _ in range(5)} == {"default"}
    assert descriptor_count() <= before + 1


def test_a_process_without_files_to_import_from_gets_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application that has run out of descriptors before it asks is not hurt by this one, too."""

    def none_left(*_: object) -> None:
        raise ImportError("Too many open files")

    # Some versions of pathlib import as a path is made.
    socket, snapshot = str(tmp_path / "penstock.sock"), str(tmp_path / "recommendations.json")
    with served_in_thread(tmp_path):
        monkeypatch.setattr("builtins.__import__", none_left)
        advice = Adviser(socket=socket, snapshot=snapshot).advise("s3_upload", GiB)
        monkeypatch.undo()
    assert advice.basis == "default"


def test_a_forked_child_does_not_wait_for_its_parents_lock(server: Served) -> None:
    """A thread of the parent that was reading a new snapshot does not read it in the child."""
    adviser = an_adviser(server.socket_path.parent)
    adviser._lock.acquire()
    adviser._process_id -= 1  # as it looks to a child
    assert adviser.advise("s3_upload", GiB).basis == "measured"


def test_expired_advice_of_a_living_daemon_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A daemon whose probes fail for a day goes on answering; an application does as its SDK does, and says why."""
    expired = a_recommendation(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    with served_in_thread(tmp_path, ScriptedAdvisor(recommendations=[expired])) as server:
        adviser = an_adviser(tmp_path)
        demands: tuple[Demand, ...] = ({}, {"objective": "frugal"})
        for demand in demands:
            advice = adviser.advise("s3_upload", GiB, **demand)
            assert (advice.basis, transfer_arguments(advice)["max_concurrency"]) == ("default", 10)
            assert "the advice has expired" in advice.explanation
        assert len(server.advisor.questions) == 2
    assert len(caplog.records) == 1


def test_valid_advice_outlives_its_daemon(tmp_path: Path) -> None:
    """A restart of the daemon is not noticed by who reads the file."""
    with served_in_thread(tmp_path):
        pass
    assert an_adviser(tmp_path).advise("s3_upload", GiB).basis == "measured"


def test_a_refusal_is_not_the_applications_problem(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    """A demand that the daemon does not understand gives the defaults, and says what was wrong."""
    advice = an_adviser(server.socket_path.parent).advise("s3_upload", GiB, objective="turbo")  # type: ignore[arg-type]
    assert advice.basis == "default"
    assert "'turbo' is not one of throughput" in caplog.text


def test_a_misspelled_keyword_gets_the_defaults_and_is_said_once(
    server: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a limit, without which no advice is safe; and its line is not said after each answer to others."""
    monkeypatch.setattr(advice_module, "_DEFAULT_AGE_SECONDS_MAX", 0.0)
    adviser, misspelled = an_adviser(server.socket_path.parent), {"memry_max": 3}
    for size in (GiB, MiB, 2 * MiB):
        assert adviser.advise("s3_upload", size, objective="frugal").basis == "measured"
        advice = adviser.advise("s3_upload", GiB, **misspelled)  # type: ignore[arg-type]
        assert advice.basis == "default"
    (record,) = caplog.records
    assert "memry_max: is not known; expected" in record.getMessage()
    assert "memory_bytes_max" in record.getMessage()


def test_a_direction_that_is_not_advised_gets_the_defaults(tmp_path: Path) -> None:
    """Downloads are asked for by their own name, and have words of their own."""
    advice = an_adviser(tmp_path).advise("s3_download", GiB)
    assert advice.basis == "default"
    assert advice.setting == {"thread_count": 10, "range_size_bytes": 8 * MiB}


def test_unknown_keys_are_ignored(tmp_path: Path) -> None:
    """A newer daemon says more; an older client does not mind."""
    with served_in_thread(tmp_path) as server:
        document: dict[str, Any] = json.loads(server.snapshot_path.read_bytes())
    document["novelty"] = document["recommendations"][0]["novelty"] = {"x": 1}
    (tmp_path / "recommendations.json").write_text(json.dumps(document), encoding="utf-8")
    assert an_adviser(tmp_path).advise("s3_upload", GiB).basis == "measured"


def test_refusals_that_are_remembered_are_bounded(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each is said once; an application that makes up names does not grow by it."""
    monkeypatch.setattr(advice_module, "_REFUSAL_COUNT_MAX", 3)
    adviser = an_adviser(server.socket_path.parent)
    for number in range(9):
        adviser.advise("s3_upload", GiB, **{f"made_up_{number}": 1})  # type: ignore[arg-type]
    assert len(adviser._refusals) == 3


async def test_paths_come_from_the_environment(
    server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The module-level function looks where the environment says; so does its asyncio sister."""
    monkeypatch.setenv("PENSTOCK_SOCKET", str(server.socket_path))
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(server.snapshot_path))
    assert advise("s3_upload", GiB).basis == "measured"
    assert (await asyncio_client.advise("s3_upload", GiB)).basis == "measured"
    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "nobody.sock"))
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(tmp_path / "nothing.json"))
    assert advise("s3_upload", GiB).basis == "default"


def test_a_daemon_that_is_named_is_not_mistaken_for_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who names its socket reads the file beside that, not what the daemon at the usual place says."""
    monkeypatch.delenv("PENSTOCK_SNAPSHOT", raising=False)
    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "penstock.sock"))
    assert advise("s3_upload", GiB).basis == "default"
    (tmp_path / "recommendations.json").write_bytes(a_snapshot(thread_count=8))
    assert advise("s3_upload", GiB).basis == "measured"
    assert Adviser(socket="/penstock.sock")._snapshot_path == "/recommendations.json"
    assert Adviser(socket="penstock.sock")._snapshot_path == "recommendations.json"


def test_boto3_gets_a_connection_for_each_thread(tmp_path: Path) -> None:
    """Advised or default, the pool is never smaller than the threads that use it."""
    default = an_adviser(tmp_path).advise("s3_upload", GiB)
    assert transfer_arguments(default) == {
        "max_concurrency": 10,
        "multipart_chunksize": 8 * MiB,
        "multipart_threshold": 8 * MiB,
        "preferred_transfer_client": "classic",
    }
    assert connection_pool_count(default) == 10
    assert connection_pool_count(an_adviser(tmp_path).advise("sqs_delivery", 1024)) == 10


def test_a_transfer_config_is_what_was_advised(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real boto3 takes the numbers as they are."""
    pytest.importorskip("boto3")
    from penstock.client import boto3 as advised

    monkeypatch.setenv("PENSTOCK_SOCKET", str(server.socket_path))
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(server.snapshot_path))
    config = advised.transfer_config(GiB)
    assert (config.max_concurrency, config.multipart_chunksize) == (32, 16 * MiB)
    assert advised.client_config(GiB).max_pool_connections == 36


def test_the_client_brings_little_along() -> None:
    """Nothing but the standard library, and of that neither typing nor dataclasses nor logging nor http."""
    program = "import sys, penstock.client.advice; print(*sys.modules)"
    loaded = set(printed([sys.executable, "-I", "-c", program]).split())
    assert loaded.isdisjoint(
        {"typing", "dataclasses", "logging", "http.client", "asyncio", "aiohttp", "numpy"}
    )
    assert {name for name in loaded if name.startswith("penstock")} == {
        "penstock",
        "penstock.client",
        "penstock.client.advice",
        "penstock.client.complaint",
        "penstock.client.confinement",
        "penstock.client.elsewhere",
        "penstock.client.connection",
        "penstock.client.operations",
        "penstock.client.sizes",
    }


@pytest.mark.parametrize(
    "module", ["reporting", "transfers.boto3_transfers", "queues.boto3_queue", "queues.sending"]
)
def test_reporting_brings_little_along_either(module: str) -> None:
    """An SDK, JSON and logging are imported when they are used."""
    program = f"import sys, penstock.client.{module}; print(*sys.modules)"
    loaded = printed([sys.executable, "-I", "-c", program]).split()
    assert f"penstock.client.{module}" in loaded
    assert set(loaded).isdisjoint(
        {"boto3", "botocore", "typing", "dataclasses", "json", "logging", "asyncio", "http.client"}
    )


def test_nobody_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    """The sentence names the path and the ways out."""
    with pytest.raises(NoDaemonError, match=r"penstockd.*PENSTOCK_SOCKET"):
        ask(str(tmp_path / "nobody.sock"), "GET", "/v1/status")


def test_a_stream_gives_a_line_for_each_state(server: Served) -> None:
    """The first line is there at once."""
    lines = stream(str(server.socket_path), "/v1/watch")
    assert json.loads(next(lines))["generation"] == 1
    lines.close()  # type: ignore[attr-defined]  # it is a generator


def test_a_kept_connection_survives_a_restart_of_the_daemon(tmp_path: Path) -> None:
    """The next question goes to the new daemon, as if nothing had been."""
    connections = Connections(str(tmp_path / "penstock.sock"))
    for _ in range(2):
        with served_in_thread(tmp_path):
            for _ in range(2):
                assert connections.ask("GET", "/v1/status").status == 200
            assert len(connections._idle) == 1
    with pytest.raises(NoDaemonError):
        connections.ask("GET", "/v1/status")
    connections.close()


def test_threads_share_kept_connections(server: Served) -> None:
    """Each gets the answer to its own question."""
    connections = Connections(str(server.socket_path))
    target = "/v1/recommendation?operation=s3_upload&payload_size_bytes="

    def asked(size: int) -> int:
        answers = {json.loads(connections.ask("GET", f"{target}{size}").body)["payload_size_bytes"]}
        assert len(answers) == 1
        return int(answers.pop())

    sizes = list(range(1, 101))
    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(asked, sizes)) == sizes
    assert 1 <= len(connections._idle) <= 8
    connections.close()


def test_a_forked_child_does_not_read_its_parents_answers(server: Served) -> None:
    """It connects anew, and leaves the parent's connection as it was."""
    connections = Connections(str(server.socket_path))
    connections.ask("GET", "/v1/status")
    kept = connections._idle[0]
    connections._process_id -= 1  # as it looks to a child
    connections.ask("GET", "/v1/status")
    assert kept.fileno() == -1
    connections.close()


@pytest.mark.parametrize(
    "spoken",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n",
        b"HTTP/1.1 200",
        b"x" * 300_000,
    ],
)
def test_whatever_answers_on_the_socket_is_no_exception_of_another_kind(
    tmp_path: Path, spoken: bytes
) -> None:
    """Another program on the path is no daemon, and is told apart from one in a sentence."""
    path = tmp_path / "other.sock"
    with (
        speaking(path, spoken),
        pytest.raises(
            NoDaemonError, match=r"accepts connections but does not answer|went away before it had"
        ),
    ):
        ask(str(path), "GET", "/v1/status")


def test_a_refused_stream_says_why(server: Served) -> None:
    """The daemon's own sentence, with its status."""
    with pytest.raises(RefusedError, match="there is nothing here") as refusal:
        next(iter(stream(str(server.socket_path), "/v1/nothing")))
    assert refusal.value.status == 404


def test_a_refusal_that_is_nested_without_an_end_is_one(tmp_path: Path) -> None:
    """Whoever refuses a stream so is no daemon, and no reason to end the application."""
    path = tmp_path / "other.sock"
    body = b"[" * 100_000
    refusal = b"HTTP/1.0 404 No\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with speaking(path, refusal), pytest.raises(RefusedError):
        next(iter(stream(str(path), "/v1/watch")))


def test_an_application_that_closes_every_file_still_gets_advice(server: Served, tmp_path: Path) -> None:
    """And keeps the file that has the number of the snapshot by then."""
    adviser = an_adviser(server.socket_path.parent)
    adviser.advise("s3_upload", GiB)
    number = adviser._descriptor
    os.close(number)
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_WRONLY)
    assert other == number
    server.advisor.recommendations = [a_recommendation(explanation="new")]
    server.publish()
    assert adviser.advise("s3_upload", GiB).explanation == "new"
    assert os.write(other, b"still open") == 10
    os.close(other)


def test_many_threads_notice_a_new_snapshot_once(server: Served) -> None:
    """However many read, one file is held open."""
    adviser = an_adviser(server.socket_path.parent)
    before = descriptor_count()
    with ThreadPoolExecutor(8) as threads:
        for _ in range(10):
            server.publish()
            bases = threads.map(lambda _: adviser.advise("s3_upload", GiB).basis, range(16))
            assert set(bases) == {"measured"}
    assert descriptor_count() <= before + 1
