"""The SQS probe on FIFO queues: a queue of the right kind, groups that hold up nothing, the quota met and told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from penstock.lab.sqs import ActionTruth, QueueTruth, SqsService
from penstock.lab.virtual_time import VirtualClock
from penstock.models.sqs.queue_class import QUEUE_CLASSES
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.probes.sqs.delivery import SqsDeliveryProbe
from penstock.trial.simulated_aws import SimulatedMessageQueues
from penstock.vocabulary import Observation
from tests.unit.probes.fakes import MemoryJournal, a_delivery_plan, virtually

ACTION = ActionTruth(request_seconds=0.006, message_seconds=0.0005)
TRUTH = QueueTruth(send=ACTION, receive=ACTION, delete=ACTION, spread_seconds_median=0.004, spread_sigma=0.4)
PLAN = a_delivery_plan(
    sender_thread_count=2,
    receiver_thread_count=3,
    deleter_thread_count=3,
    batch_message_count=5,
    send_window_message_count=60,
    receive_window_message_count=100,
)


def measured(
    service_class: str,
    setting: Mapping[str, int] = MappingProxyType({}),
    *,
    truth: QueueTruth = TRUTH,
    visibility_timeout_seconds: int = 30,
) -> tuple[Observation[SqsDeliverySetting], list[str], dict[str, str]]:
    """What a probe measured, the names of its queues, and the attributes that the queue had."""

    async def story(clock: VirtualClock) -> tuple[Observation[SqsDeliverySetting], list[str], dict[str, str]]:
        service = SqsService(truth, clock=clock, seed=2)
        journal = MemoryJournal()
        probe = SqsDeliveryProbe(
            SimulatedMessageQueues(service),
            clock,
            journal,
            queue_name="probe",
            service_class=service_class,
            visibility_timeout_seconds=visibility_timeout_seconds,
            loop_tick_seconds=1.0,
        )
        outcome = await probe.run(
            dataclasses.replace(PLAN, setting=dataclasses.replace(PLAN.setting, **dict(setting)))
        )
        assert isinstance(outcome, Observation), outcome
        names = service.queue_names()
        attributes = await service.attributes(names[0]) if names else {}
        await probe.close()
        assert (service.queue_names(), journal.entries) == ([], [])
        return outcome, names, attributes

    return virtually(story)


@pytest.mark.parametrize("service_class", QUEUE_CLASSES)
def test_every_class_of_queue_is_measured_and_emptied(service_class: str) -> None:
    """The same run on each: nothing twice, nothing left, and as quick, for groups are not what limits a probe."""
    observation, names, attributes = measured(service_class)
    row = QUEUE_CLASSES[service_class]
    assert names == [f"probe{row.name_suffix}"]
    assert row.attributes.items() <= attributes.items()
    assert observation.measures["deleted_count"] == observation.measures["sent_count"] > 1000
    assert observation.measures["duplicate_count"] == observation.measures["left_count"] == 0
    assert observation.measures["idle_receive_seconds_batch_10"] == pytest.approx(0.011, rel=0.25)
    assert "cold_delivery_seconds" in observation.measures


def test_the_quota_of_a_fifo_queue_is_met_and_counted() -> None:
    """Single messages from many threads: 300 requests a second get through, the rest is counted as throttled."""
    threads = {"sender_thread_count": 8, "batch_message_count": 1, "send_window_message_count": 200}
    limited, *_ = measured("fifo", threads)
    free, *_ = measured("fifo-high-throughput", threads)
    assert limited.throttled_count > 10
    assert limited.measures["goodput_messages_per_second"] < 340  # with the burst that passes first
    assert free.throttled_count == 0
    assert free.measures["goodput_messages_per_second"] > 400


def test_expired_handles_end_no_run() -> None:
    """Deletes that come after the visibility timeout are refused; the run goes on with what came back."""
    slow = dataclasses.replace(TRUTH, delete=ActionTruth(request_seconds=0.9, variation=0.0))
    setting = {"deleter_thread_count": 1, "sender_thread_count": 1, "receive_window_message_count": 0}
    observation, names, _ = measured("fifo", setting, truth=slow, visibility_timeout_seconds=1)
    assert observation.failed_count > 0
    assert observation.measures["deleted_count"] > 0
    assert observation.measures["left_count"] > 0
    assert names == []  # what was left went with the queue
