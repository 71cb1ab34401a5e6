"""Knows what the seams of the probes owe, and the probes that go through them, whoever is at the other end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.clock import SystemClock
from penstock.models.sqs.queue_class import QUEUE_CLASSES
from penstock.probes.outside import MessageQueues, Missing, ObjectStore, ReceivedMessage, Refused
from penstock.probes.s3.download import S3DownloadProbe
from penstock.probes.s3.upload import S3UploadProbe
from penstock.probes.s3.workspace import Workspace
from penstock.probes.sharing import SIGN
from penstock.probes.sqs.delivery import SqsDeliveryProbe
from penstock.units import MiB
from penstock.vocabulary import Cost, Observation, ProbePlan
from tests.unit.probes.fakes import MemoryJournal, a_delivery_plan

UNJUDGED_SECONDS = 3600.0  # between ticks: how busy this machine is decides no test
MODEST = Cost(transferred_bytes=64 * MiB, request_count=500, usd=10.0, duration_seconds=30.0)
DELIVERED = Cost(transferred_bytes=64 * MiB, request_count=2000, usd=10.0, duration_seconds=4.0)


class OneStore:
    """`penstock.operations.operation.Outside` with one store, wherever, and no queues."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def object_store(self, _region: str, _endpoint_url: str | None = None) -> ObjectStore:
        return self._store

    async def message_queues(self, region: str, _endpoint_url: str | None = None) -> MessageQueues:
        raise NotImplementedError(region)


async def objects_come_and_go(store: ObjectStore, bucket: str) -> None:
    """Parts, completion, abort, lists and deletion; what is not there is missing."""
    upload_id, unfinished = [
        await store.create_multipart_upload(bucket, key) for key in ("a/object", "a/unfinished")
    ]
    etags = [await store.upload_part(bucket, "a/object", upload_id, n, bytes(5 * MiB)) for n in (1, 2)]
    uploads = await store.list_multipart_uploads(bucket, "a/")
    assert sorted(uploads) == [("a/object", upload_id), ("a/unfinished", unfinished)]
    with pytest.raises(Refused):
        await store.complete_multipart_upload(bucket, "a/unfinished", unfinished, ['"wrong"'])
    await store.complete_multipart_upload(bucket, "a/object", upload_id, etags)
    await store.abort_multipart_upload(bucket, "a/unfinished", unfinished)
    for asking in (
        store.upload_part(bucket, "a/unfinished", unfinished, 1, b"x"),
        store.abort_multipart_upload(bucket, "a/unfinished", unfinished),
        store.create_multipart_upload("no-such-bucket", "key"),
    ):
        with pytest.raises(Missing):
            await asking
    await store.put_object(bucket, "other", b"x")
    assert await store.list_multipart_uploads(bucket, "") == []
    assert await store.list_objects(bucket, "a/") == ["a/object"]
    for key in ("a/object", "a/object", "other"):  # deleting nothing is no error in S3
        await store.delete_object(bucket, key)
    assert await store.list_objects(bucket, "") == []


async def messages_come_and_go(queues: MessageQueues) -> None:
    """A queue is found by its name, messages go one by one and in batches, and all of it is gone in the end."""
    with pytest.raises(Missing):
        await queues.find_queue("penstock-a")
    url = await queues.create_queue("penstock-a", {"VisibilityTimeout": "45"})
    assert await queues.find_queue("penstock-a") == url
    assert await queues.list_queues("penstock-") == ["penstock-a"]
    assert (await queues.queue_attributes(url))["VisibilityTimeout"] == "45"
    bodies = [f"body {n}" for n in range(10)]
    assert [await queues.send(url, bodies[:1]), await queues.send(url, bodies[1:])] == [1, 9]
    received: list[ReceivedMessage] = []
    while len(received) < 10:
        received += await queues.receive(url, message_count_max=10, wait_seconds=1)
    assert sorted(message.body for message in received) == bodies
    assert (await queues.queue_attributes(url))["ApproximateNumberOfMessagesNotVisible"] == "10"
    handles = [message.receipt_handle for message in received]
    assert [await queues.delete(url, handles[:1]), await queues.delete(url, handles[1:])] == [1, 9]
    await queues.delete_queue(url)
    with pytest.raises(Missing):
        await queues.find_queue("penstock-a")


async def uploads_are_measured(workspace: Workspace, plan: ProbePlan[Any]) -> Observation[Any]:
    """All bytes arrive, and nothing stays."""
    probe = S3UploadProbe(workspace)
    try:
        outcome = await probe.run(plan)
    finally:
        await probe.close()
        assert await workspace.journal.open_entries() == []
    assert isinstance(outcome, Observation), outcome
    assert outcome.failed_count == outcome.throttled_count == 0
    size, count = plan.context.payload_size_bytes, outcome.measures["part_count"]
    assert outcome.transferred_bytes == (size if size > plan.setting.part_size_bytes else size * count)
    assert await left_in(workspace) == []
    return outcome


async def downloads_are_measured(workspace: Workspace, plan: ProbePlan[Any]) -> Observation[Any]:
    """What is to be read is put, found by its name by a second host, read in ranges or whole, and removed.

    Beside it lies what each of the two says of reading it.
    """
    probes = [S3DownloadProbe(workspace) for _ in range(2)]
    for reader_count, probe in enumerate(probes, start=1):
        outcome = await probe.run(plan)
        assert isinstance(outcome, Observation), outcome
        assert outcome.failed_count == outcome.throttled_count == 0
        assert 0 < outcome.measures["first_byte_seconds_mean"] < outcome.measures["range_seconds_mean"]
        assert outcome.measures["read_object_bytes"] == plan.context.payload_size_bytes
        assert outcome.transferred_bytes == outcome.measures["downloaded_bytes"]
        assert Counter(SIGN in key for key in await left_in(workspace)) == {False: 1, True: reader_count}
    for probe in probes:
        await probe.close()
    assert await left_in(workspace) == []
    assert await workspace.journal.open_entries() == []
    assert isinstance(outcome, Observation)
    return outcome


async def deliveries_are_measured(queues: MessageQueues, batch: int, service_class: str) -> None:
    """Every message is delivered once, and the queue goes with the probe."""
    journal, suffix = MemoryJournal(), QUEUE_CLASSES[service_class].name_suffix
    probe = SqsDeliveryProbe(
        queues,
        SystemClock(),
        journal,
        queue_name="probe",
        service_class=service_class,
        loop_tick_seconds=UNJUDGED_SECONDS,
    )
    # A FIFO queue takes 300 requests a second of each kind, which a fast machine reaches.
    plan = a_delivery_plan(
        batch_message_count=batch, send_rate_limit_messages_per_second=200.0 * batch, cost_max=DELIVERED
    )
    outcome = await probe.run(plan)
    assert await queues.list_queues("probe") == [f"probe{suffix}"]
    await probe.close()
    assert await queues.list_queues("probe") == []
    assert isinstance(outcome, Observation), outcome
    assert outcome.failed_count == outcome.throttled_count == 0
    assert outcome.measures["sent_count"] == outcome.measures["deleted_count"] > 0
    assert outcome.measures["duplicate_count"] == outcome.measures["left_count"] == 0
    assert outcome.request_count <= DELIVERED.request_count
    assert await journal.open_entries() == []


def workspace_in(store: ObjectStore, bucket: str) -> Workspace:
    """For a probe that no lateness of this machine makes inconclusive."""
    return Workspace(store, SystemClock(), MemoryJournal(), bucket, loop_tick_seconds=UNJUDGED_SECONDS)


async def left_in(workspace: Workspace) -> list[str]:
    """Keys of objects and of unfinished uploads."""
    store, bucket = workspace.store, workspace.bucket
    uploads = await store.list_multipart_uploads(bucket, "")
    return [*await store.list_objects(bucket, ""), *(key for key, _ in uploads)]
