"""Processes that make an application's requests as hosts of their own: they share the work, and none is left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.experiments.queue_host import queue_hosts
from penstock.lab.http_sqs import sqs_application
from penstock.lab.server import serving
from penstock.lab.sqs import ActionTruth, QueueTruth, SqsService
from penstock.probes.aws.access import Access, Credentials
from penstock.probes.aws.queues import open_message_queues
from penstock.probes.outside import ANSWERED_BY, Messages, Missing, Unreachable
from penstock.probes.sqs.application import MeasurementApplication, Stint
from penstock.probes.sqs.conduct import Conduct
from penstock.probes.sqs.run import BoundQueue

TRUTH = ActionTruth(request_seconds=0.02, variation=0.0)
MESSAGE_COUNT = 60


def host_ids() -> set[int]:
    """Of those that this process started."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return {int(child) for child in children if b"queue_host" in Path(f"/proc/{child}/cmdline").read_bytes()}


async def send_on(messages: Messages, url: str) -> None:
    """Until that is not possible any more."""
    while True:
        await messages.send(url, ["somebody"])


async def test_two_hosts_carry_what_one_application_asks_for() -> None:
    """All messages through both; errors keep their kind; who dies is told of, and nobody outlives the run."""
    service = SqsService(QueueTruth(send=TRUTH, receive=TRUTH, delete=TRUTH), clock=SystemClock(), seed=0)
    async with serving(sqs_application(service)) as endpoint_url:
        credentials = Credentials(access_key="AKIDLAB", secret_key="of-the-lab")  # noqa: S106
        access = Access(region="us-east-1", endpoint_url=endpoint_url, credentials=credentials)
        clock, addresses = SystemClock(), Counter[str]()
        async with open_message_queues(access) as queues, queue_hosts(2, access) as hosts:
            url = await queues.create_queue("q", {})
            application = MeasurementApplication(
                BoundQueue(hosts, url),
                clock,
                Conduct(sender_count=4, receiver_count=2, deleter_count=4, long_polls=True),
                stint=Stint(message_count_max=MESSAGE_COUNT),
            )
            hearing = ANSWERED_BY.set(addresses)
            await application.drive(120.0, lambda _: None)
            ANSWERED_BY.reset(hearing)
            total = application.tally.total
            assert (total.sent_count, total.deleted_count, total.duplicate_count) == (
                MESSAGE_COUNT,
                MESSAGE_COUNT,
                0,
            )
            assert addresses["127.0.0.1"] >= 2 * MESSAGE_COUNT
            with pytest.raises(Missing):
                await hosts.send(url + "x", ["nobody"])
            assert len(host_ids()) == 2
            for process_id in host_ids():
                os.kill(process_id, signal.SIGKILL)
            async with asyncio.timeout(60):
                with pytest.raises(Unreachable):
                    await send_on(hosts, url)
        assert host_ids() == set()
