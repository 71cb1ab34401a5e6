"""Batches of which a server over a socket takes a part: what it did not take goes again, one by one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from penstock.clock import SystemClock
from penstock.lab.http_sqs import sqs_application
from penstock.lab.server import serving
from penstock.lab.sqs import ActionTruth, QueueTruth, SqsService
from penstock.probes.aws.access import Access, Credentials
from penstock.probes.aws.queues import open_message_queues
from penstock.probes.sqs.application import MeasurementApplication, Stint
from penstock.probes.sqs.conduct import Conduct
from penstock.probes.sqs.run import BoundQueue

AT_ONCE = ActionTruth(request_seconds=0.0, variation=0.0)
MESSAGE_COUNT = 40
BATCHES = {"SendMessageBatch": "SendMessage", "DeleteMessageBatch": "DeleteMessage"}


def refusing(seen: Counter[str]) -> Callable[..., Awaitable[web.StreamResponse]]:
    """A server whose batches fail in their first entry and their last, if there is more than one."""

    @web.middleware
    async def middleware(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> web.StreamResponse:
        action = request.headers["X-Amz-Target"].removeprefix("AmazonSQS.")
        seen[action] += 1
        document = await request.json()
        entries = document.get("Entries", [])
        if action not in BATCHES or len(entries) < 2:
            return await handler(request)
        refused = [entries[0], *entries[2:][-1:]]
        seen[f"refused by {action}"] += len(refused)
        document["Entries"] = [entry for entry in entries if entry not in refused]
        request._read_bytes = json.dumps(document).encode()
        response = await handler(request)
        assert isinstance(response.body, bytes)
        failed = [{"Id": entry["Id"], "SenderFault": False, "Code": "InternalError"} for entry in refused]
        answer = {**json.loads(response.body), "Failed": failed}
        return web.Response(body=json.dumps(answer), content_type="application/x-amz-json-1.0")

    return middleware


async def test_what_a_batch_did_not_take_goes_again_singly() -> None:
    """Every message is sent, received and deleted once; those that were refused by a request of their own."""
    service = SqsService(
        QueueTruth(send=AT_ONCE, receive=AT_ONCE, delete=AT_ONCE), clock=SystemClock(), seed=0
    )
    seen: Counter[str] = Counter()
    server = sqs_application(service)
    server.middlewares.append(refusing(seen))
    async with serving(server) as endpoint_url:
        access = Access(
            region="us-east-1",
            endpoint_url=endpoint_url,
            credentials=Credentials(access_key="lab", secret_key="lab"),  # noqa: S106
        )
        async with open_message_queues(access) as queues:
            url = await queues.create_queue("q", {})
            clock = SystemClock()
            application = MeasurementApplication(
                BoundQueue(queues, url),
                clock,
                Conduct(send_batch=10, delete_batch=10, long_polls=True),
                stint=Stint(message_count_max=MESSAGE_COUNT),
            )
            await application.drive(120.0, lambda _: None)
    total = application.tally.total
    assert (total.sent_count, total.received_count, total.deleted_count) == (MESSAGE_COUNT,) * 3
    assert total.duplicate_count == 0
    assert service.queue("q").message_ids == []
    assert seen["SendMessage"] == seen["refused by SendMessageBatch"] > 0
    assert seen["DeleteMessage"] >= seen["refused by DeleteMessageBatch"] > 0
