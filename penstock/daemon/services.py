"""THE TABLE: one row for each operation that penstock knows. A new operation is a model, a probe and a row here."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol

from penstock.clock import Clock
from penstock.daemon.config import Configuration, S3UploadSection, SqsDeliverySection
from penstock.models.model import PerformanceModel
from penstock.models.s3_upload import S3UploadModel, S3UploadSetting
from penstock.models.sqs_delivery import (
    BATCH_MESSAGE_COUNT_MAX,
    BATCH_SIZE_BYTES_MAX,
    SqsDeliveryModel,
    SqsDeliverySetting,
)
from penstock.models.sqs_queue_class import BILLED_CHUNK_BYTES, queue_class
from penstock.probes import upload_workers
from penstock.probes.outside import MessageQueues, ObjectStore, RequestError
from penstock.probes.probe import Journal, Probe, inconclusive
from penstock.probes.s3_upload import S3UploadProbe
from penstock.probes.sqs_delivery import SqsDeliveryProbe
from penstock.units import GiB, KiB, MiB, TiB
from penstock.vocabulary import Cost, Outcome, ProbePlan, SettingT


class Outside(Protocol):
    """How the two services are reached: AWS in a daemon, the lab in virtual time."""

    async def object_store(self, region: str) -> ObjectStore:
        """S3 in this region."""
        ...

    async def message_queues(self, region: str) -> MessageQueues:
        """SQS in this region."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What a probe is made from."""

    configuration: Configuration
    clock: Clock
    journal: Journal
    outside: Outside
    region: str
    host_name: str  # tells apart the queues of hosts that share an account
    loop_tick_seconds: float  # how often a probe looks how late its event loop is


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the configuration says about one operation, in the words that all operations share."""

    is_enabled: bool
    regions: tuple[str, ...]  # empty: the host's own
    service_class: str
    payload_size_bytes: tuple[int, ...]
    mean_interval_seconds: float
    thread_count_max: int  # of what is tried and of what is advised
    memory_bytes_max: int | None  # of what is tried
    cost_max: Cost  # of one probe; 0 is "no limit of its own" where the operation has none
    usd_per_day: float | None = None  # of all its probes, within what all operations may cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(Generic[SettingT]):
    """One row. The type parameter refuses a probe and a model that do not belong together."""

    model: PerformanceModel[SettingT]
    setting_type: type[SettingT]
    make_probe: Callable[[Equipment], Awaitable[Probe[SettingT]]]
    plan: Callable[[Configuration], Plan]
    payload_noun: str  # what `payload_size_bytes` is the size of
    payload_ladder_bytes: tuple[
        int, ...
    ]  # the sizes that standing advice covers, besides those that are probed


class ProbeOnDemand:
    """A probe that is made when it is first needed, and again after that failed.

    A daemon without usable credentials or network still starts, serves what it knows, and says what is wrong.
    """

    def __init__(self, service: Service[Any], equipment: Equipment) -> None:
        self._service = service
        self._equipment = equipment
        self._probe: Probe[Any] | None = None

    @property
    def used(self) -> Cost:
        """Of the probe that was made; nothing before."""
        return self._probe.used if self._probe is not None else Cost()

    async def run(self, plan: ProbePlan[Any]) -> Outcome[Any]:
        """Make the probe if need be, and run it."""
        if self._probe is None:
            try:
                self._probe = await self._service.make_probe(self._equipment)
            except RequestError as trouble:
                return inconclusive(plan, self._equipment.clock.now(), str(trouble))
        return await self._probe.run(plan)

    async def close(self) -> None:
        """Close what was made."""
        if self._probe is not None:
            await self._probe.close()


async def _s3_upload_probe(equipment: Equipment) -> Probe[S3UploadSetting]:
    from penstock.probes.aws import AwsObjectStore  # half a second; a report is made without

    section = equipment.configuration.probes.s3_upload
    store = await equipment.outside.object_store(equipment.region)
    bucket = section.bucket_in(equipment.region)
    hire = None
    if isinstance(store, AwsObjectStore):  # other processes reach it as this one does
        hire = partial(
            upload_workers.hired,
            access=store.access,
            bucket=bucket,
            loop_tick_seconds=equipment.loop_tick_seconds,
        )
    return S3UploadProbe(
        store=store,
        clock=equipment.clock,
        journal=equipment.journal,
        bucket=bucket,
        key_prefix=section.key_prefix,
        loop_tick_seconds=equipment.loop_tick_seconds,
        hire=hire,
        worker_count_max=min(section.worker_count_max, upload_workers.processor_count()),
    )


async def _sqs_delivery_probe(equipment: Equipment) -> Probe[SqsDeliverySetting]:
    section = equipment.configuration.probes.sqs_delivery
    return SqsDeliveryProbe(
        queues=await equipment.outside.message_queues(equipment.region),
        clock=equipment.clock,
        journal=equipment.journal,
        queue_name=f"{section.queue_name_prefix}-{equipment.host_name}",
        service_class=section.service_class,
        visibility_timeout_seconds=int(section.visibility_timeout_seconds),
        loop_tick_seconds=equipment.loop_tick_seconds,
    )


def _s3_upload_plan(configuration: Configuration) -> Plan:
    section: S3UploadSection = configuration.probes.s3_upload
    return Plan(
        is_enabled=section.is_enabled,
        regions=section.regions,
        service_class=section.service_class,
        payload_size_bytes=section.object_size_bytes,
        mean_interval_seconds=section.mean_interval_seconds,
        thread_count_max=section.thread_count_max,
        memory_bytes_max=section.memory_bytes_max,
        cost_max=Cost(
            transferred_bytes=section.transferred_bytes_max, duration_seconds=section.duration_seconds_max
        ),
    )


def _sqs_delivery_plan(configuration: Configuration) -> Plan:
    section: SqsDeliverySection = configuration.probes.sqs_delivery
    return Plan(
        is_enabled=section.is_enabled,
        regions=section.regions,
        service_class=section.service_class,
        payload_size_bytes=section.message_size_bytes,
        mean_interval_seconds=section.mean_interval_seconds,
        thread_count_max=section.thread_count_max,
        memory_bytes_max=None,
        cost_max=Cost(
            request_count=section.request_count_max,
            usd=section.request_count_max * _usd_per_request_max(section),
            duration_seconds=section.duration_seconds_max,
        ),
        usd_per_day=section.usd_per_day,
    )


def _usd_per_request_max(section: SqsDeliverySection) -> float:
    """Of a full batch of the largest messages, at list price."""
    size_bytes = min(BATCH_MESSAGE_COUNT_MAX * max(section.message_size_bytes), BATCH_SIZE_BYTES_MAX)
    return math.ceil(size_bytes / BILLED_CHUNK_BYTES) * queue_class(section.service_class).usd_per_request


SERVICES: Mapping[str, Service[Any]] = {
    "s3_upload": Service(
        model=S3UploadModel(),
        setting_type=S3UploadSetting,
        make_probe=_s3_upload_probe,
        plan=_s3_upload_plan,
        payload_noun="object",
        payload_ladder_bytes=(64 * KiB, MiB, 8 * MiB, 64 * MiB, 512 * MiB, 4 * GiB, 32 * GiB, TiB),
    ),
    "sqs_delivery": Service(
        model=SqsDeliveryModel(),
        setting_type=SqsDeliverySetting,
        make_probe=_sqs_delivery_probe,
        plan=_sqs_delivery_plan,
        payload_noun="message",
        payload_ladder_bytes=(KiB, 16 * KiB, 256 * KiB),
    ),
}


def setting_types() -> dict[str, type]:
    """The dataclass of each operation's settings, as the store and the socket need it."""
    return {operation: service.setting_type for operation, service in SERVICES.items()}


def thread_count_limits(configuration: Configuration) -> dict[str, int]:
    """The most threads that the operator allows, by operation, for probes and for advice alike."""
    return {
        operation: service.plan(configuration).thread_count_max for operation, service in SERVICES.items()
    }


def watching_cost(configuration: Configuration) -> Cost:
    """What watching a queue takes in 24 hours: set aside, since it goes on whatever probes do."""
    section = configuration.watched_queue
    return Cost(request_count=section.request_count_per_day, usd=section.usd_per_day)


def usd_limits(configuration: Configuration) -> dict[str, float]:
    """What the probes of an operation may cost in 24 hours at list price, where it has a limit of its own."""
    plans = {operation: service.plan(configuration) for operation, service in SERVICES.items()}
    limits = {
        operation: plan.usd_per_day for operation, plan in plans.items() if plan.usd_per_day is not None
    }
    limits["sqs_delivery"] = max(0.0, limits["sqs_delivery"] - watching_cost(configuration).usd)
    return limits
