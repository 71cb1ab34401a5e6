"""Applications are heard over a real socket: at a bounded rate, without their secrets, and to no effect on advice."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.daemon.backlog_watch import BacklogWatch
from penstock.daemon.config import ListenSection, WatchedQueueSection
from penstock.daemon.config_files import ConfigError, load
from penstock.daemon.heard import hearing as hearing_module
from penstock.daemon.heard.audit import COMPARED_COUNT_MAX, Audit
from penstock.daemon.heard.hearing import Hearing
from penstock.daemon.heard.senders import Senders
from penstock.daemon.troubles import Troubles
from penstock.lab.virtual_time import VirtualClock
from penstock.operations.table import OPERATIONS
from penstock.units import MiB, format_bytes
from penstock.vocabulary import Demand
from tests.factories import CONTEXT, NOON, PLACE, Noon
from tests.unit.daemon.test_board import a_board, a_learned_fit
from tests.waiting import comes

CANARY = "CANARY7SECRETS"


def a_datagram(**changed: object) -> bytes:
    """A part that was uploaded, as an SDK tells it."""
    said = {
        "Version": 1,
        "ClientId": "backup",
        "Type": "ApiCallAttempt",
        "Service": "S3",
        "Api": "UploadPart",
        "Region": PLACE.region,
        "UserAgent": "Boto3/1.43.117 md/Botocore#1.43.117",
        "AttemptLatency": 100,
        "HttpStatusCode": 200,
        "AccessKey": CANARY,
        "SessionToken": f"{CANARY}-TOKEN",
        "Fqdn": "private-bucket.example",
    }
    return json.dumps(said | changed).encode()


@contextlib.asynccontextmanager
async def listening(hearing: Hearing) -> AsyncIterator[socket.socket]:
    """Somebody who can send to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    section = ListenSection(is_enabled=True, port=port)
    task = asyncio.create_task(hearing.listen(section, Troubles(SystemClock())))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        await comes(lambda: hearing.is_listening)
        yield sender
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_what_is_told_is_shown_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """Neither key nor token nor bucket is in a document, a metric, the log or anything that is kept."""
    caplog.set_level(logging.DEBUG)
    hearing = Hearing(SystemClock())
    async with listening(hearing) as sender:
        for datagram in (a_datagram(), b"{" + CANARY.encode(), a_datagram(AttemptLatency=CANARY)):
            sender.send(datagram)
        await comes(lambda: hearing.heard_count + hearing.unreadable_count == 3)
        audit = Audit(a_board(), hearing, SystemClock(), PLACE)
        document = audit.document()
        kept = repr((document, audit.counts(), hearing.series(), caplog.text))
        assert document["clients"][0]["name"] == "backup"
        assert (document["heard_count"], document["unreadable_count"]) == (1, 2)
        assert CANARY not in kept
        assert "private-bucket" not in kept
    assert not hearing.is_listening


async def test_a_flood_is_read_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many in a turn nobody reads; what the kernel has no room for is counted, and the loop stays free."""
    monkeypatch.setattr(hearing_module, "TURN_SECONDS", 3600.0)
    monkeypatch.setattr(hearing_module, "DATAGRAM_COUNT_MAX_PER_TURN", 100)

    hearing = Hearing(SystemClock())
    async with listening(hearing) as sender:
        for _ in range(4000):
            sender.send(b"x" * 1000)
        for _ in range(50):
            await asyncio.sleep(0)
        assert hearing.unreadable_count == 100
        assert hearing.dropped_count > 0
    assert hearing.dropped_count > 0  # also of a socket that is closed


async def test_what_waited_is_dated_when_it_came() -> None:
    """A daemon that was busy meanwhile reads many at once: requests one after another are still one in flight."""
    hearing = Hearing(SystemClock())
    async with listening(hearing) as sender:
        for _ in range(10):
            time.sleep(0.01)  # noqa: ASYNC251 - the loop is kept from reading, and the requests are real
            sender.send(a_datagram(AttemptLatency=10))
        await comes(lambda: hearing.heard_count == 10)
    (heard,) = hearing.series()
    assert heard.in_flight_count_mean == pytest.approx(1.0, rel=0.1)
    assert heard.user_id == os.getuid()


def test_a_port_of_two_users_is_nobodys(tmp_path: Path) -> None:
    """Of one it is his, also after he has ended; what the kernel does not say is not guessed."""
    table = tmp_path / "udp"
    row = " 1: 0100007F:{port:04X} 0100007F:7918 01 00000000:00000000 00:00000000 00000000 {user} 0 9 2 0 0\n"
    rows = [row.format(port=port, user=user) for port, user in ((5000, 7), (5001, 7), (5001, 8), (5002, 9))]
    table.write_text("header\n" + "".join(rows))
    senders = Senders([table, tmp_path / "missing"])
    assert [senders.user_id(port, 1.0) for port in (5000, 5001, 5002, 5003)] == [7, None, 9, None]
    table.write_text("header\n" + rows[0])
    assert [senders.user_id(port, 3.0) for port in (5000, 5002)] == [7, 9]


async def test_a_port_that_is_taken_is_a_trouble() -> None:
    """Somebody else hears the SDKs, such as an agent of AWS: it is said, and the daemon lives on."""
    troubles, hearing = Troubles(SystemClock()), Hearing(SystemClock())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        section = ListenSection(is_enabled=True, port=taken.getsockname()[1])
        task = asyncio.create_task(hearing.listen(section, troubles))
        await comes(lambda: bool(troubles.now()))
        task.cancel()
    assert "AWS_CSM_PORT" in troubles.now()[0].sentence
    assert not hearing.is_listening


async def test_a_host_without_ipv6_is_a_trouble_of_who_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel makes no such socket; the daemon lives all the same."""

    def refuse(*_arguments: object) -> socket.socket:
        raise OSError(97, "Address family not supported by protocol")

    troubles = Troubles(SystemClock())
    with monkeypatch.context() as without:
        without.setattr(socket, "socket", refuse)
        section = ListenSection(is_enabled=True, address="::1")
        task = asyncio.create_task(Hearing(SystemClock()).listen(section, troubles))
        await asyncio.wait({task}, timeout=0.1)
    assert not task.done()
    task.cancel()
    assert "Address family not supported" in troubles.now()[0].sentence


async def test_uploads_are_held_against_the_advice_and_do_not_move_it() -> None:
    """Too few in flight would gain, with an interval; the advice itself is what it was."""
    board, hearing = a_board(), Hearing(Noon())
    await board.post(a_learned_fit(), NOON)
    before, generation = board.recommend(CONTEXT, Demand(), NOON), board.generation
    for name, latency in (("slow", 50), ("wide", 400)):
        for _ in range(100):
            hearing.hear(a_datagram(ClientId=name, AttemptLatency=latency))
    document = Audit(board, hearing, Noon(), PLACE).document()
    assert {client["name"] for client in document["clients"]} == {"slow", "wide"}
    for client in document["clients"]:
        (advice,) = client["advice"]
        assert advice["operation"] == "s3_upload"
        assert advice["gain"]["low"] <= advice["gain"]["expected"] <= advice["gain"]["high"]
    assert (board.recommend(CONTEXT, Demand(), NOON), board.generation) == (before, generation)


@pytest.mark.parametrize(
    ("ended_count", "copied_count", "size_bytes"),
    [(0, 0, 512 * MiB), (3, 0, 64 * MiB), (25, 0, 8 * MiB), (1, 0, 192 * MiB), (6, 24, 64 * MiB)],
)
def test_an_object_is_as_large_as_its_parts_together(
    ended_count: int, copied_count: int, size_bytes: int
) -> None:
    """What thirty-two threads bring an object of eight parts is not what they bring one of sixty-four.

    An application that copies as well completes what it has copied by the same call.
    """
    hearing = Hearing(Noon())
    heard = {"UploadPart": 24, "UploadPartCopy": copied_count, "CompleteMultipartUpload": ended_count}
    for api, count in heard.items():
        for _ in range(count):
            hearing.hear(a_datagram(Api=api))
            hearing.hear(a_datagram(Api=api, Type="ApiCall", Latency=100, AttemptCount=1))
    (client,) = Audit(a_board(), hearing, Noon(), PLACE).document()["clients"]
    (advice,) = client["advice"]
    assert advice["payload_size_bytes"] == size_bytes
    assert f"for objects of {format_bytes(size_bytes)}" in advice["sentence"]


def test_what_came_before_it_was_known_whose_it_is_is_not_held_against_advice() -> None:
    """The table of sockets is looked into ten times a second: until then a new socket is nobody's."""
    hearing = Hearing(Noon())
    for user_id in (None, 1000, 1000):
        hearing.hear(a_datagram(), user_id=user_id)
    clients = Audit(a_board(), hearing, Noon(), PLACE).document()["clients"]
    assert {client["user_id"]: len(client["advice"]) for client in clients} == {None: 0, 1000: 1}


def test_a_crowd_of_names_costs_a_bounded_number_of_comparisons() -> None:
    """Forged applications cannot keep the socket waiting: only the busiest are held against advice."""
    hearing = Hearing(SystemClock())
    for number in range(2 * COMPARED_COUNT_MAX):
        hearing.hear(a_datagram(ClientId=f"forged{number}"))
    document = Audit(a_board(), hearing, SystemClock(), PLACE).document()
    assert len(document["clients"]) == 2 * COMPARED_COUNT_MAX
    assert sum(len(client["advice"]) for client in document["clients"]) == COMPARED_COUNT_MAX


async def test_deletes_one_by_one_are_held_against_batches() -> None:
    """A consumer that deletes single messages would carry more in batches; one that has batches is left alone."""
    row, hearing, board = OPERATIONS["sqs_delivery"], Hearing(Noon()), a_board()
    place = dataclasses.replace(PLACE, operation=row.name)
    await board.post(row.model.fit(place, [], prior=None, seed=1), NOON)
    for name, api in (("single", "DeleteMessage"), ("batched", "DeleteMessageBatch")):
        hearing.hear(a_datagram(ClientId=name, Service="SQS", Api=api, AttemptLatency=20))
    first, second = Audit(board, hearing, Noon(), PLACE).document()["clients"]
    assert (first["name"], second["name"]) == ("single", "batched")
    assert first["advice"][0]["gain"]["low"] > 1.5
    assert "deletes go one by one, 1.0 in flight" in first["advice"][0]["sentence"]
    assert second["advice"][0]["gain"] is None


def test_only_loopback_can_be_listened_on(tmp_path: Path) -> None:
    """No configuration opens the port to other hosts."""
    file = tmp_path / "penstock.toml"
    file.write_text('[listen]\nis_enabled = true\naddress = "0.0.0.0"\n')
    with pytest.raises(ConfigError, match=r"listen\.address"):
        load(file, root=tmp_path)


async def test_no_more_is_deleted_than_is_received(clock: VirtualClock) -> None:
    """Batches that look full are not where receives bring little, and the warning comes as much sooner."""
    hearing, queue = (Hearing(clock), {"Service": "SQS", "Type": "ApiCall", "Latency": 20, "AttemptCount": 1})
    for number in range(60):
        for _ in range(10):
            hearing.hear(a_datagram(Api="DeleteMessageBatch", **queue))
        for _ in range(2):
            hearing.hear(a_datagram(Api="ReceiveMessage", **queue))
        await asyncio.sleep(1.0)
        if number == 29:
            assert hearing.deleted_messages_per_second(PLACE.region) == pytest.approx(20.0, rel=0.05)
    assert hearing.deleted_messages_per_second("elsewhere-1") == 0.0


async def test_deletes_that_are_heard_warn_before_a_collapse_where_nothing_else_tells_of_them(
    clock: VirtualClock,
) -> None:
    """The age of what is not visible follows from them; a rate that the operator states comes first."""
    hearing = Hearing(clock)
    stated = WatchedQueueSection(name="orders", delete_rate_messages_per_second=100.0)
    unstated = WatchedQueueSection(name="orders")
    watches = [BacklogWatch(clock, section, region=PLACE.region) for section in (unstated, stated)]
    for watch in watches:
        watch.heard_delete_rate = hearing.deleted_messages_per_second
    for _ in range(60):
        for _ in range(10):
            said = {"Service": "SQS", "Type": "ApiCall", "Latency": 20, "AttemptCount": 1}
            hearing.hear(a_datagram(Api="DeleteMessage", **said))
        hearing.hear(a_datagram(Api="DeleteMessageBatch", Region="elsewhere-1", **said))
        await asyncio.sleep(1.0)
    for watch in watches:
        watch.note_attributes({"ApproximateNumberOfMessagesNotVisible": "600", "VisibilityTimeout": "30"})
    ages = [watch.backlogs()[0].document()["oldest_undeleted_seconds"] for watch in watches]
    assert ages == [pytest.approx(60.0, rel=0.02), pytest.approx(6.0)]
    assert watches[0].backlogs()[0].document()["alarm"] != "calm"
