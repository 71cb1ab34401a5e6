"""The routes, asked over a real unix socket."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.api import routes as api_module
from penstock.api.complaints import LINE_COUNT_MAX
from penstock.api.listener import ConnectionLimits
from penstock.api.peer import Peer
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import Basis, Demand, Objective
from tests.integration.scripted_advisor import (
    NO_CREDENTIALS,
    ScriptedAdvisor,
    Served,
    a_recommendation,
    served,
)

ONE = "/v1/recommendation?operation=s3_upload&payload_size_bytes=1GiB"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    """A daemon with two recommendations."""
    async with served(tmp_path) as running:
        yield running


@pytest.fixture
async def client(server: Served) -> AsyncIterator[aiohttp.ClientSession]:
    """Somebody who asks it."""
    connector = aiohttp.UnixConnector(path=str(server.socket_path))
    async with aiohttp.ClientSession("http://localhost", connector=connector) as session:
        yield session


async def problem_of(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The document of a refusal, which always has the same shape."""
    assert response.content_type == "application/problem+json"
    document: dict[str, Any] = json.loads(await response.read())
    assert document["status"] == response.status
    assert document["title"]
    assert document["detail"]
    return document


async def test_a_question_is_answered_with_one_flat_document(
    server: Served, client: aiohttp.ClientSession
) -> None:
    """The answer carries the advice, what it rests on, and the question."""
    async with client.get(ONE + "&objective=frugal&thread_count_max=8") as response:
        document = await response.json()
    assert response.status == 200
    assert document["setting"] == {"thread_count": 32, "part_size_bytes": 16 * MiB}
    assert document["generation"] == 1
    assert server.advisor.questions[-1].demand == Demand(objective=Objective.FRUGAL, thread_count_max=8)


async def test_a_bad_question_is_told_all_that_is_wrong(client: aiohttp.ClientSession) -> None:
    """One round trip tells every mistake, each with its parameter."""
    async with client.get(
        "/v1/recommendation?operation=s3_nothing&payload_size_bytes=big&region=A%20B"
    ) as response:
        document = await problem_of(response)
    assert response.status == 400
    assert {error["where"] for error in document["errors"]} == {"operation", "payload_size_bytes", "region"}


async def test_the_list_and_the_snapshot_are_the_same_bytes(
    server: Served, client: aiohttp.ClientSession
) -> None:
    """Who reads the file and who asks the socket cannot hear different things."""
    for generation in (1, 2):
        server.advisor.generation = generation
        server.api.publish()
        async with client.get("/v1/recommendations") as response:
            body = await response.read()
        assert body == server.snapshot_path.read_bytes()
        assert json.loads(body)["generation"] == generation


@pytest.mark.parametrize("target", ["/v1/recommendations", ONE])
async def test_what_the_client_has_is_not_sent_again(
    server: Served, client: aiohttp.ClientSession, target: str
) -> None:
    """A poll costs a few bytes until the advice changes."""
    server.advisor.recommendations = [a_recommendation()]
    server.api.publish()
    async with client.get(target) as response:
        etag = response.headers["ETag"]
    async with client.get(target, headers={"If-None-Match": etag}) as response:
        assert response.status == 304
        assert await response.read() == b""
    server.advisor.generation += 1
    server.api.publish()
    async with client.get(target, headers={"If-None-Match": etag}) as response:
        assert response.status == 200
        assert response.headers["ETag"] != etag


async def test_a_watcher_hears_the_state_and_then_each_change(
    server: Served, client: aiohttp.ClientSession
) -> None:
    """The first line is the present state; every line is the list itself."""
    async with client.get("/v1/watch") as response:
        assert response.content_type == "application/x-ndjson"
        assert await response.content.readline() == server.snapshot_path.read_bytes()
        server.advisor.generation = 2
        server.api.publish()
        assert json.loads(await response.content.readline())["generation"] == 2


async def test_a_slow_watcher_skips_to_the_newest_state(server: Served) -> None:
    """Nothing is kept for a watcher that does not read, and nobody waits for it."""
    server.advisor.recommendations *= 40
    reader, writer = await asyncio.open_unix_connection(str(server.socket_path), limit=2**22)
    writer.write(b"GET /v1/watch HTTP/1.0\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # typeshed knows a write transport only
    for generation in range(2, 502):
        server.advisor.generation = generation
        server.api.publish()
        await asyncio.sleep(0)
    writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
    heard: list[int] = []
    while not heard or heard[-1] < 501:
        heard.append(json.loads(await reader.readline())["generation"])
    assert heard == sorted(heard)
    assert len(heard) < 250
    writer.close()


async def test_a_watch_ends_with_the_daemon(tmp_path: Path) -> None:
    """A watcher does not keep the daemon from stopping, and sees the end of the stream."""
    async with served(tmp_path) as server:
        reader, writer = await asyncio.open_unix_connection(str(server.socket_path))
        writer.write(b"GET /v1/watch HTTP/1.0\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await reader.readline()
    assert await reader.read() == b""
    writer.close()


async def test_readiness_is_a_status_code(server: Served, client: aiohttp.ClientSession) -> None:
    """A script needs no parser: 200 when every operation has advice from measurements, else 503."""
    async with client.get("/v1/ready?max_age_seconds=3600") as response:
        assert response.status == 200
    async with client.get("/v1/ready?max_age_seconds=60") as response:
        document = await problem_of(response)
        assert response.status == 503
        assert document["waiting_for"] == ["s3_upload", "sqs_delivery"]
    async with client.get("/v1/ready?max_age_seconds=soon") as response:
        assert response.status == 400


@pytest.mark.parametrize(
    "changes",
    [
        {"basis": Basis.PRIOR},
        {"basis": Basis.REPORTED},
        {"basis": Basis.DEFAULT, "newest_observation_at": None},
        {"expires_at": datetime.now(UTC) - timedelta(seconds=1)},
    ],
)
async def test_guesses_and_expired_advice_are_not_ready(
    server: Served, client: aiohttp.ClientSession, changes: dict[str, Any]
) -> None:
    """Ready means measured and in force."""
    server.advisor.recommendations[0] = a_recommendation(**changes)
    server.api.publish()
    async with client.get("/v1/ready") as response:
        assert (await problem_of(response))["waiting_for"] == ["s3_upload"]


async def test_trouble_is_said_with_what_is_ready_and_with_what_is_not(
    server: Served, client: aiohttp.ClientSession
) -> None:
    """The status code goes by the advice that is in force; whoever waits in vain hears why."""
    server.advisor.ailments = [NO_CREDENTIALS]
    async with client.get("/v1/ready") as response:
        assert response.status == 200
        assert (await response.json())["troubles"] == [NO_CREDENTIALS]
    server.advisor.recommendations[0] = a_recommendation(basis=Basis.PRIOR)
    server.api.publish()
    async with client.get("/v1/ready") as response:
        problem = await problem_of(response)
    assert problem["status"] == 503
    assert problem["troubles"] == [NO_CREDENTIALS]
    assert problem["detail"] == (
        "no fresh advice from measurements for s3_upload; s3_upload 64 MiB in eu-west-1: no credentials: name a "
        "profile in aws.profile"
    )


@pytest.mark.parametrize(("probed", "status"), [(("s3_upload",), 200), ((), 503)])
async def test_only_what_is_probed_is_waited_for(
    server: Served, client: aiohttp.ClientSession, probed: tuple[str, ...], status: int
) -> None:
    """An operation that is not measured here keeps nobody waiting; where nothing is, nothing will come."""
    server.advisor.probed_operations = probed
    server.advisor.recommendations[1] = a_recommendation("sqs_delivery", KiB, basis=Basis.DEFAULT)
    server.api.publish()
    async with client.get("/v1/ready") as response:
        assert response.status == status


async def test_status_explanation_and_metrics_are_passed_on(client: aiohttp.ClientSession) -> None:
    """What the daemon says of itself is not changed on the way."""
    async with client.get("/v1/status") as response:
        assert (await response.json())["spent_per_day"]["transferred_bytes"] == 3 * GiB
    async with client.get("/v1/explain?operation=s3_upload&payload_size_bytes=1GiB") as response:
        assert (await response.json())["fit"]["residual_fraction_p50"] == 0.021
    async with client.get("/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert b"penstock_probes_total 12" in await response.read()


def a_post(count: int = 1) -> dict[str, Any]:
    """What an application reports."""
    report = {
        "operation": "s3_upload",
        "payload_size_bytes": 64 * MiB,
        "setting": {"thread_count": 8, "part_size_bytes": 8 * MiB},
        "started_at": datetime.now(UTC).isoformat(),
        "duration_seconds": 2.0,
        "transferred_bytes": 64 * MiB,
        "request_count": 10,
    }
    return {"observations": [report] * count}


async def test_reports_are_recorded(server: Served, client: aiohttp.ClientSession) -> None:
    """An application's own measurement reaches the advisor, with the user who made it."""
    async with client.post("/v1/observations", json=a_post(3)) as response:
        assert response.status == 202
        assert await response.json() == {"accepted_count": 3, "refused": []}
    assert len(server.advisor.recorded) == 3
    assert server.advisor.reporters == {(os.geteuid(), os.getpid())}


async def test_each_report_is_kept_or_refused_by_itself(
    server: Served, client: aiohttp.ClientSession
) -> None:
    """The answer says which ones are not kept, and why; the others are."""
    post = a_post(4)
    post["observations"][1] = post["observations"][1] | {"setting": {"thread_count": 0}}
    post["observations"][3] = post["observations"][3] | {"transferred_bytes": 1}
    async with client.post("/v1/observations", json=post) as response:
        assert response.status == 202
        answer = await response.json()
    assert answer["accepted_count"] == 2
    assert [(refused["index"], len(refused["errors"])) for refused in answer["refused"]] == [(1, 2), (3, 1)]
    assert answer["refused"][1]["errors"] == [{"where": "observations[3]", "detail": "it is too small"}]
    assert len(server.advisor.recorded) == 2


@pytest.mark.parametrize(("change", "status"), [({"setting": {}}, 400), ({"transferred_bytes": 1}, 409)])
async def test_a_post_of_which_nothing_is_kept_is_refused(
    server: Served, client: aiohttp.ClientSession, change: dict[str, Any], status: int
) -> None:
    """As unreadable, or as not wanted."""
    post = {"observations": [a_post()["observations"][0] | change] * 2}
    async with client.post("/v1/observations", json=post) as response:
        assert response.status == status
        await problem_of(response)
    assert server.advisor.recorded == []


async def test_a_body_that_is_too_large_is_refused(server: Served, client: aiohttp.ClientSession) -> None:
    """A megabyte of report is read to its limit and no further."""
    async with client.post("/v1/observations", data=b"x" * 2**20) as response:
        assert response.status == 413
        await problem_of(response)
    async with client.get("/v1/status") as response:
        assert response.status == 200


async def test_control_is_for_those_who_may(server: Served, client: aiohttp.ClientSession) -> None:
    """The tests run as the daemon's own user, who may."""
    async with client.post("/-/reload") as response:
        assert (await response.json())["detail"] == "nothing changed"
    async with client.post(
        "/v1/probe", json={"operation": "s3_upload", "payload_size_bytes": GiB}
    ) as response:
        assert response.status == 202


@pytest.mark.parametrize(("group_ids", "status"), [({100}, 403), ({100, 42}, 200)])
async def test_strangers_need_the_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_ids: set[int], status: int
) -> None:
    """Another user may read, and may control only as a member of the group."""
    stranger = Peer(process_id=1, uid=12345, group_ids=frozenset(group_ids))
    monkeypatch.setattr(api_module, "peer_behind", lambda _socket: stranger)
    async with served(tmp_path, control_gid=42) as server:
        connector = aiohttp.UnixConnector(path=str(server.socket_path))
        async with aiohttp.ClientSession("http://localhost", connector=connector) as client:
            async with client.post("/-/reload") as response:
                assert response.status == status
            async with client.delete("/v1/leftovers") as response:
                assert response.status == status
            for target in ("/v1/status", "/v1/leftovers"):
                async with client.get(target) as response:
                    assert response.status == 200


async def test_what_the_daemon_will_not_do_it_says(server: Served, client: aiohttp.ClientSession) -> None:
    """A refusal is an answer with a reason, not a failure."""
    server.advisor.refusal = "the budget of today is spent; ask again tomorrow"
    async with client.post(
        "/v1/probe", json={"operation": "s3_upload", "payload_size_bytes": GiB}
    ) as response:
        assert response.status == 409
        assert (await problem_of(response))["detail"] == server.advisor.refusal


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/recommendation", 404),
        ("POST", "/v1/status", 405),
        ("GET", "/-/reload", 405),
    ],
)
async def test_a_wrong_door_says_so(
    server: Served, client: aiohttp.ClientSession, method: str, target: str, status: int
) -> None:
    """Even what is not there answers in the one shape of a refusal."""
    async with client.request(method, target) as response:
        assert response.status == status
        await problem_of(response)


@pytest.fixture
def defect(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for advice meets it."""

    def fail(_question: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server.advisor, "recommend", fail)


@pytest.mark.usefixtures("defect")
async def test_a_fault_of_the_daemon_is_an_answer_too(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect costs one answer; the log has the details, the client has a sentence."""
    async with client.get(ONE) as response:
        assert response.status == 500
        await problem_of(response)
    assert "cannot answer GET /v1/recommendation" in caplog.text
    async with client.get("/v1/status") as response:
        assert response.status == 200


@pytest.mark.usefixtures("defect")
async def test_a_fault_that_is_provoked_again_and_again_does_not_fill_the_log(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may ask: the log has a few of each user's tracebacks, every answer is one."""
    for _ in range(4 * LINE_COUNT_MAX):
        async with client.get(ONE) as response:
            assert response.status == 500
    assert caplog.text.count("cannot answer GET") == LINE_COUNT_MAX


@pytest.mark.parametrize("target", ["/v1/observations", "/v1/leases", "/v1/probe"])
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b'{"operation":"\xff"}'),
        ({"Content-Encoding": "gzip"}, b"\x1f\x8b\x08 and no more"),
        ({"Content-Encoding": "deflate"}, b'{"operation":"s3_upload"}'),
        ({"Transfer-Encoding": "chunked"}, b"zz\r\n"),
    ],
)
async def test_a_broken_body_is_its_senders_mistake(
    server: Served, caplog: pytest.LogCaptureFixture, target: str, headers: dict[str, str], body: bytes
) -> None:
    """It costs an answer, and not a line of the log."""
    reader, writer = await asyncio.open_unix_connection(str(server.socket_path))
    length = {} if "Transfer-Encoding" in headers else {"Content-Length": len(body)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | length).items())
    writer.write(f"POST {target} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode() + body)
    status_line = await reader.readline()
    writer.close()
    assert b" 400 Bad Request" in status_line
    assert caplog.text == ""


async def test_a_snapshot_that_cannot_be_written_does_not_silence_the_socket(tmp_path: Path) -> None:
    """A full disk is trouble; whoever asks the socket gets the new advice."""
    (tmp_path / "recommendations.json").mkdir()
    advisor = ScriptedAdvisor(recommendations=[a_recommendation("sqs_delivery", KiB)])
    async with served(tmp_path, advisor) as server:
        assert "cannot write the snapshot" in (server.api.mend_snapshot() or "")
        connector = aiohttp.UnixConnector(path=str(server.socket_path))
        async with (
            aiohttp.ClientSession("http://localhost", connector=connector) as client,
            client.get("/v1/recommendations") as response,
        ):
            assert len((await response.json())["recommendations"]) == 1


def test_the_limits_let_a_thousand_watch() -> None:
    """One user's watchers are counted in hundreds, so the default cap stays above a thousand."""
    assert ConnectionLimits().connection_count_max_per_uid > 1000
