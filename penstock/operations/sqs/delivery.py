"""The row of `sqs_delivery`: messages through a queue, by senders, receivers and deleters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.operations.operation import Driven, Equipment, Operation, Service, Ward, Words
from penstock.units import KiB, MiB, counted, number

if TYPE_CHECKING:
    from penstock.listening.tally import Series
    from penstock.models.model import PerformanceModel
    from penstock.models.sqs.setting import SqsDeliverySetting
    from penstock.operations.sections.queues import QueueSection
    from penstock.probes.finding import Finding
    from penstock.probes.probe import Probe


def _section() -> type[QueueSection]:
    from penstock.operations.sections.queues import QueueSection

    return QueueSection


def _model() -> PerformanceModel[SqsDeliverySetting]:
    from penstock.models.sqs.delivery import SqsDeliveryModel

    return SqsDeliveryModel()


async def _probe(section: QueueSection, equipment: Equipment) -> Probe[SqsDeliverySetting]:
    from penstock.probes.sqs.delivery import SqsDeliveryProbe

    return SqsDeliveryProbe(
        queues=await equipment.outside.message_queues(equipment.region),
        clock=equipment.clock,
        journal=equipment.journal,
        queue_name=f"{section.queue_name_prefix}-{equipment.host_name}",
        service_class=section.service_class,
        visibility_timeout_seconds=int(section.visibility_timeout_seconds),
        loop_tick_seconds=equipment.loop_tick_seconds,
    )


async def _permissions(section: QueueSection, ward: Ward) -> AsyncIterator[Finding]:
    from penstock.probes.sqs.permissions import try_delivery

    async for finding in try_delivery(
        await ward.outside.message_queues(ward.region),
        subject=ward.subject,
        queue_name=f"{section.queue_name_prefix}-{ward.host_name}",
        service_class=section.service_class,
    ):
        yield finding


def _in_short(values: Mapping[str, float], _payload_size_bytes: int) -> str:
    """``2/3/5 x 10, window 2,800``: senders, receivers and deleters, the batch size, and the bounds."""
    threads = "/".join(number(values[f"{role}_thread_count"]) for role in ("sender", "receiver", "deleter"))
    limits = {
        "window": values["receive_window_message_count"],
        "send window": values["send_window_message_count"],
        "limit": values["send_rate_limit_messages_per_second"],
    }
    bounds = "".join(
        f", {name} {number(value)}{'/s' * (name == 'limit')}" for name, value in limits.items() if value
    )
    return f"{threads} x {number(values['batch_message_count'])}{bounds}"


def _in_full(values: Mapping[str, float], payload_size_bytes: int) -> str:
    """``2 senders, 3 receivers, 5 deleters, batches of 10, window 2,800``."""
    threads = ", ".join(
        counted(values[f"{role}_thread_count"], role) for role in ("sender", "receiver", "deleter")
    )
    bounds = _in_short(values, payload_size_bytes).partition(",")[2]
    return f"{threads}, batches of {number(values['batch_message_count'])}{bounds and ','}{bounds}"


_SENT_AND_DELETED = {"sender": ("sends", "SendMessage"), "deleter": ("deletes", "DeleteMessage")}


def _driven(
    apis: Mapping[str, Series], advised: SqsDeliverySetting, _own: SqsDeliverySetting
) -> Driven[SqsDeliverySetting] | None:
    """How an application drives queues, by its sends and deletes, single or in batches; None if it has neither."""
    told = {role: _one_by_one(apis, api) for role, (_, api) in _SENT_AND_DELETED.items()}
    single = {role: in_flight for role, in_flight in told.items() if in_flight}
    if not single:
        in_batches = any(f"{api}Batch" in apis for _, api in _SENT_AND_DELETED.values())
        return Driven(sentence="in batches", setting=None) if in_batches else None
    # Single requests as heard, and everything else as wide as advised, so that what was heard is the limit.
    wide = {
        f"{role}_thread_count": getattr(advised, f"{role}_thread_count") * advised.batch_message_count
        for role in ("sender", "receiver", "deleter")
    }
    as_heard = {f"{role}_thread_count": max(1, round(in_flight)) for role, in_flight in single.items()}
    one_by_one = (
        f"{_SENT_AND_DELETED[role][0]} go one by one, {n:.1f} in flight" for role, n in single.items()
    )
    return Driven(
        sentence=" and ".join(one_by_one),
        setting=replace(advised, **(wide | as_heard), batch_message_count=1),
    )


def _one_by_one(apis: Mapping[str, Series], api: str) -> float:
    """How many single requests are in flight; 0 if there are at least as many batch requests."""
    single, batches = apis.get(api), apis.get(f"{api}Batch")
    if single is None or (batches is not None and batches.attempt_count >= single.attempt_count):
        return 0.0
    return single.in_flight_count_max


DELIVERY = Operation(
    name="sqs_delivery",
    service=Service.SQS,
    service_classes=("standard", "fifo", "fifo-high-throughput"),
    load_section=_section,
    load_model=_model,
    make_probe=_probe,
    try_permissions=_permissions,
    driven=_driven,
    untold_payload_bytes=KiB,
    payload_size_bytes_max=MiB,
    payload_ladder_bytes=(KiB, 16 * KiB, 256 * KiB),
    words=Words(
        payload="message",
        payload_example="4KiB",
        payload_default="1KiB",
        demand=(
            "message_rate_per_second",
            "message_group_count",
            "work_seconds",
            "latency_objective_seconds",
            "visibility_timeout_seconds",
        ),
        setting=_in_short,
        setting_in_full=_in_full,
        request_rate_help="more queues, or fuller batches where they hold fewer than ten messages",
        learned=tuple(f"{action}_request_seconds" for action in ("send", "receive", "delete")),
        advice="how to drive a queue at 500 messages/s",
        query="Threads, batches, rates and windows for driving a queue.",
        explain="Why a queue is advised to be driven as it is.",
        probe="Measure the delivery of messages of this size.",
        examples=("--rate 500", "--rate 500 --work-seconds 20ms"),
    ),
)
