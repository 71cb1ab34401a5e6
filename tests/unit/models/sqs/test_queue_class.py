"""What the order of message groups allows, against a queue that keeps it; quotas and prices as documented."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime

import pytest

from penstock.lab.sqs import ActionTruth, QueueTruth, Sending, SqsService
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.models.prices import service_price
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.models.sqs.plan import Conditions, plan
from penstock.models.sqs.queue_class import (
    QUEUE_CLASSES,
    class_of,
    queue_class,
    request_rate_max_per_second,
)
from penstock.vocabulary import Context, Demand, Place

NAME = "q.fifo"
SEND = ActionTruth(request_seconds=0.010, message_seconds=0.001, variation=0.0)
RECEIVE = ActionTruth(request_seconds=0.020, message_seconds=0.002, variation=0.0)
DELETE = ActionTruth(request_seconds=0.030, message_seconds=0.001, variation=0.0)
CONDITIONS = Conditions(
    message_rate_per_second=2000.0,
    send_seconds=0.011,
    send_seconds_per_message=0.001,
    receive_seconds=0.022,
    receive_seconds_per_message=0.002,
    delete_seconds=0.031,
    delete_seconds_per_message=0.001,
    work_seconds=0.004,
    send_seconds_variation=0.0,
    receive_seconds_variation=0.0,
    delete_seconds_variation=0.0,
    visibility_timeout_seconds=60.0,
    service_class="fifo",
)


def carried_per_second(group_count: int, *, receiver_count: int, batch: int) -> float:
    """What a full FIFO queue gives to many consumers, each of which receives, works, deletes and begins again."""

    async def story(clock: VirtualClock) -> float:
        service = SqsService(QueueTruth(send=SEND, receive=RECEIVE, delete=DELETE), clock=clock, seed=1)
        await service.create_queue(NAME, {"FifoQueue": "true"})
        queue = service.queue(NAME)
        for number in range(6000):
            group = f"{number % group_count}"
            queue.add(Sending(body="x", group=group, deduplication_id=f"{number}"), 0.0)
        deleted_count = 0

        async def consume() -> None:
            nonlocal deleted_count
            while True:
                copies = await service.receive(NAME, message_count_max=batch, wait_seconds=20)
                await asyncio.sleep(CONDITIONS.work_seconds * len(copies))
                await service.delete(NAME, [copy.receipt_handle for copy in copies])
                deleted_count += len(copies)

        consumers = [asyncio.create_task(consume()) for _ in range(receiver_count)]
        await asyncio.sleep(2.0)
        before_count = deleted_count
        await asyncio.sleep(4.0)
        for consumer in consumers:
            consumer.cancel()
        return (deleted_count - before_count) / 4.0

    return run_virtually(story, start_at=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(("group_count", "batch"), [(1, 1), (3, 5), (8, 10)])
def test_groups_bound_what_many_consumers_carry(group_count: int, batch: int) -> None:
    """However many consumers there are: G b / (the receive but for its way there, the work, half a delete)."""
    held_seconds = 0.020 / 2 + 0.002 * batch + 0.004 * batch + (0.030 + 0.001 * batch) / 2
    measured = carried_per_second(group_count, receiver_count=4 * group_count, batch=batch)
    assert measured == pytest.approx(group_count * batch / held_seconds, rel=0.06)


@pytest.mark.parametrize("group_count", [2, 6])
def test_a_plan_promises_what_the_groups_carry(group_count: int) -> None:
    """With few groups the advice sends no more than the queue gives, and says how many groups would be enough."""
    found = plan(dataclasses.replace(CONDITIONS, message_group_count=group_count))
    batch = found.setting.batch_message_count
    carried = carried_per_second(group_count, receiver_count=8 * group_count, batch=batch)
    promised = found.goodput_messages_per_second
    assert 0.85 * carried <= promised.expected <= 1.02 * carried
    assert found.setting.send_rate_limit_messages_per_second <= carried
    assert found.setting.receiver_thread_count <= 2 * group_count
    assert found.message_group_count_min is not None
    assert f"{found.message_group_count_min} message groups would carry it" in found.explanation
    enough = plan(dataclasses.replace(CONDITIONS, message_group_count=found.message_group_count_min))
    assert enough.goodput_messages_per_second.expected >= 0.99 * CONDITIONS.message_rate_per_second


def test_few_groups_cannot_collapse() -> None:
    """Ten messages of a group at a time are a receive window of their own, if deleted within the timeout."""
    overloaded = dataclasses.replace(
        CONDITIONS, message_rate_per_second=100.0, work_seconds=0.0, send_seconds=0.010
    )
    assert plan(dataclasses.replace(overloaded, service_class="standard")).collapse_after_seconds is not None
    assert plan(dataclasses.replace(overloaded, message_group_count=1000)).collapse_after_seconds is not None
    assert plan(dataclasses.replace(overloaded, message_group_count=20)).collapse_after_seconds is None


def test_groups_do_not_matter_where_there_is_no_order() -> None:
    """A standard queue is advised the same whatever groups are stated."""
    stated = dataclasses.replace(CONDITIONS, service_class="standard", message_group_count=1)
    assert plan(stated).setting == plan(dataclasses.replace(stated, message_group_count=None)).setting
    assert "message_group_count_min" not in plan(stated).document()


def test_the_daemon_advises_by_groups_too() -> None:
    """A stated number of groups bounds the prediction, is named as the bottleneck, and the number needed is derived."""
    model = SqsDeliveryModel()
    place = Place(operation="sqs_delivery", region="eu-west-1", instance_type="x", service_class="fifo")
    fit = model.fit(place, (), prior=None, seed=1)
    context = Context(place=place, payload_size_bytes=1024)

    def goodput(demand: Demand) -> float:
        setting = max(
            model.candidates(fit, context, demand),
            key=lambda s: model.predict(fit, context, s, demand)[model.value_metric].expected,
        )
        if demand.message_group_count is not None:
            assert model.bottleneck(fit, context, setting, demand) == "message-groups"
        derived = model.derive(fit, context, setting, demand)
        assert derived["message_group_count_min"] >= 1
        assert derived["deduplication_seconds"] == 300.0
        return model.predict(fit, context, setting, demand)[model.value_metric].expected

    few = goodput(Demand(work_seconds=0.05, message_group_count=2))
    assert few < 2 / 0.05
    assert goodput(Demand(work_seconds=0.05)) > 3 * few


def test_quotas_and_prices() -> None:
    """300 requests a second without high throughput; with it by region; half a dollar more for a million in order."""
    assert request_rate_max_per_second("standard", "eu-west-1") == float("inf")
    assert request_rate_max_per_second("fifo", "eu-west-1") == 300.0
    assert request_rate_max_per_second("fifo-high-throughput", "us-east-1") == 70_000.0
    assert request_rate_max_per_second("fifo-high-throughput", "eu-north-1") == 2_400.0
    prices = [
        service_price("sqs", class_of(name)).usd_per_write_request for name in ("orders", "orders.fifo")
    ]
    assert prices == [0.40e-6, 0.50e-6]
    assert all(row.keeps_order == row.name_suffix.endswith(".fifo") for row in QUEUE_CLASSES.values())
    assert queue_class("unheard of") is QUEUE_CLASSES["standard"]
