"""Sending to and working off a queue in an event loop, over real sockets, with aiobotocore and the lab's SQS."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.config import AioConfig

from penstock.client.queues import sending
from penstock.client.queues.aiobotocore_producer import AsyncQueueProducer
from penstock.client.queues.aiobotocore_queue import AsyncQueueConsumer
from penstock.client.reporting import Reporter
from penstock.lab.worlds import NEAR
from penstock.trial.stage import lab_endpoint
from tests.advice import a_queue_advice
from tests.integration.scripted_advisor import ScriptedAdvisor, served_in_thread
from tests.integration.uploading import session_of
from tests.loopback import Answers, Server, serving
from tests.waiting import comes

ADVICE = a_queue_advice()
POLL_SECONDS = 1


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An SQS for all tests of this file."""
    with lab_endpoint("sqs", NEAR, tmp_path_factory.mktemp("lab")) as url:
        yield url


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Any]:
    """With a connection for each task, and nothing that botocore tries again by itself."""
    config = AioConfig(max_pool_connections=20, retries={"total_max_attempts": 1})
    async with session_of("aiobotocore", url).create_client("sqs", config=config) as client:
        yield client


async def a_queue(client: Any, ending: str = "", **attributes: str) -> str:
    """A new one."""
    if ending:
        attributes["FifoQueue"] = "true"
    name = f"aio-{uuid.uuid4().hex[:12]}{ending}"
    url: str = (await client.create_queue(QueueName=name, Attributes=attributes))["QueueUrl"]
    return url


@pytest.fixture
def reporter(tmp_path: Path) -> Iterator[Reporter]:
    """To nobody."""
    one = Reporter(socket=str(tmp_path / "nobody"))
    yield one
    one.close()


async def received(client: Any, url: str, count: int) -> Counter[str]:
    """How often anybody else receives what there is, until it is so many."""
    found = Counter[str]()
    while len(found) < count:
        answer = await client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2)
        assert answer.get("Messages"), f"{len(found)} of {count} can be received"
        found.update(message["Body"] for message in answer["Messages"])
    return found


async def test_a_daemon_that_comes_later_is_followed_and_reported_to(
    lab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, both work as the SDK does by itself; all that is sent is handled once."""
    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "penstock.sock"))
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(tmp_path / "recommendations.json"))
    advisor, handled = ScriptedAdvisor(), Counter[str]()
    reporter = Reporter(socket=str(tmp_path / "penstock.sock"))

    async def handle(message: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        handled.update([message["Body"]])

    async with client_of(lab) as client:
        url = await a_queue(client)
        options: Any = {"reporter": reporter, "report_seconds": 0.05, "long_poll_seconds": POLL_SECONDS}
        async with AsyncExitStack() as consuming:
            consumer = await consuming.enter_async_context(AsyncQueueConsumer(client, url, handle, **options))
            async with AsyncQueueProducer(client, url) as producer:
                assert {consumer.advice.basis, producer.advice.basis} == {"default"}
                await (await producer.send("first"))
                await comes(lambda: handled)
            with served_in_thread(tmp_path, advisor) as served:
                await comes(lambda: consumer.advice.basis == "measured")
                async with AsyncQueueProducer(client, url) as producer:
                    assert producer.advice.basis == "measured"
                    sent = await asyncio.gather(*(producer.send(str(n)) for n in range(100)))
                await comes(lambda: len(handled) == 101)
                consumer.stop()
                await comes(lambda: consumer.undeleted_count == 0)
                # On a busy host no 0.05 s may see both a receive and a delete: all together are reported at the end.
                await consuming.aclose()
                await comes(lambda: advisor.recorded)
                assert served is not None
        assert {one.client for one in advisor.recorded} == {"aiobotocore"}
        assert len({future.result()["MessageId"] for future in sent}) == 100
        left = await client.receive_message(QueueUrl=url)
    reporter.close()
    assert set(handled.values()) == {1}
    assert not left.get("Messages")


async def test_groups_keep_their_order_from_sender_to_handler(lab: str, reporter: Reporter) -> None:
    """Also where a message cannot be handled at first: what follows it in its group waits, another group does not."""
    handled: list[str] = []

    async def handle(message: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        handled.append(message["Body"])
        if message["Body"] == "a1" and handled.count("a1") == 1:
            raise ValueError("not yet")

    async with client_of(lab) as client:
        url = await a_queue(client, ".fifo", VisibilityTimeout="1")
        async with AsyncQueueProducer(client, url, advice=ADVICE) as producer:
            for name in ("a1", "a2", "a3", "b1", "b2", "b3"):
                await producer.send(name, MessageGroupId=name[0], MessageDeduplicationId=name)
        options: Any = {"advice": ADVICE, "reporter": reporter, "long_poll_seconds": POLL_SECONDS}
        async with AsyncQueueConsumer(client, url, handle, **options):
            await comes(lambda: len(handled) == 7)
    assert [name for name in handled if name[0] == "a"] == ["a1", "a1", "a2", "a3"]
    assert [name for name in handled if name[0] == "b"] == ["b1", "b2", "b3"]


@pytest.mark.parametrize("ending", ["", ".fifo"])
async def test_who_is_cancelled_leaves_all_to_others_at_once(
    ending: str, lab: str, reporter: Reporter
) -> None:
    """What was being handled, too, and each in its order; nobody waits for five minutes."""
    begun: list[str] = []

    async def handle(message: Mapping[str, Any]) -> None:
        begun.append(message["Body"])
        await asyncio.sleep(200.0)

    names = [f"{group}{n}" for group in "abc" for n in range(5)]
    async with client_of(lab) as client:
        url = await a_queue(client, ending, VisibilityTimeout="300")
        async with AsyncQueueProducer(client, url, advice=ADVICE) as producer:
            for name in names:
                words = {"MessageGroupId": name[0], "MessageDeduplicationId": name} if ending else {}
                await producer.send(name, **words)
        options: Any = {"advice": ADVICE, "reporter": reporter, "long_poll_seconds": POLL_SECONDS}
        running = asyncio.ensure_future(AsyncQueueConsumer(client, url, handle, **options).run())
        await comes(lambda: begun)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        found = await received(client, url, len(names))
    assert set(found.values()) == {1}
    if ending:
        assert all([name for name in found if name[0] == g] == [f"{g}{n}" for n in range(5)] for g in "abc")


async def test_what_was_accepted_arrives_though_the_buffer_is_full_at_the_end(
    lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once each, and no other."""
    monkeypatch.setattr(sending, "HELD_COUNT_MAX", 7)
    async with client_of(lab) as client:
        url = await a_queue(client)
        async with AsyncQueueProducer(client, url, advice=ADVICE) as producer:
            sends = [asyncio.ensure_future(producer.send(str(n))) for n in range(50)]
            await comes(sends[9].done)
        done = await asyncio.gather(*sends, return_exceptions=True)
        accepted = [str(n) for n, one in enumerate(done) if not isinstance(one, RuntimeError)]
        assert 10 <= len(accepted) < 50
        assert await received(client, url, len(accepted)) == Counter(accepted)


class Throttling(Server):
    """An SQS that takes one request in three, and of that one message in two."""

    def __init__(self) -> None:
        super().__init__(_Throttled)
        self.taken: list[str] = []
        self.asked_count = 0
        self.counting = threading.Lock()


class _Throttled(Answers):
    server: Throttling

    def reply(self) -> None:
        entries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["Entries"]
        server = self.server
        with server.counting:
            server.asked_count += 1
            if server.asked_count % 3:
                code = "com.amazonaws.sqs#RequestThrottled"
                self.answer(400, json.dumps({"__type": code, "message": "slow down"}).encode())
                return
            taken, refused = entries[::2], entries[1::2]
            server.taken += [entry["MessageBody"] for entry in taken]
        document = {
            "Successful": [
                {"Id": entry["Id"], "MessageId": entry["MessageBody"], "MD5OfMessageBody": ""}
                for entry in taken
            ],
            "Failed": [
                {"Id": entry["Id"], "SenderFault": False, "Code": "InternalError"} for entry in refused
            ],
        }
        self.answer(200, json.dumps(document).encode())


async def test_a_server_that_throttles_gets_each_message_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what failed is sent again, and nobody is told of it."""
    monkeypatch.setattr(sending, "_PAUSE_SECONDS", 0.005)
    server, given = Throttling(), a_queue_advice(derived={"batch_linger_seconds": 0.002})
    with serving(server) as endpoint:
        async with client_of(endpoint) as client:
            url = f"{endpoint}/queue.fifo"
            async with AsyncQueueProducer(client, url, advice=given) as producer:
                sent = [await producer.send(f"{n % 4}-{n}", MessageGroupId=str(n % 4)) for n in range(24)]
            assert [future.result()["MessageId"] for future in sent] == [f"{n % 4}-{n}" for n in range(24)]
        assert server.asked_count > 3 * 6
        for group in range(4):
            taken = [name for name in server.taken if name.startswith(f"{group}-")]
            assert taken == [f"{group}-{n}" for n in range(group, 24, 4)]
