"""Knows the configuration that operations on queues share: the probes' own queues, and limits for probes."""

from __future__ import annotations

from typing import Literal

from penstock.models.sqs.queue_class import billed_count
from penstock.operations.sections.section import Section
from penstock.operations.sections.values import (
    Count,
    MessageSizes,
    QueueNamePrefix,
    QueuePath,
    Seconds,
    Usd,
    VisibilityTimeout,
)
from penstock.probes.probe import Leftover
from penstock.units import KiB
from penstock.vocabulary import Cost, Tariff

_ROLE_COUNT = 3  # senders, receivers and deleters: each role may have `thread_count_max` threads


class QueueSection(Section, frozen=True, kw_only=True):
    """The keys of every operation on queues."""

    mean_interval_seconds: Seconds = 1800.0
    service_class: Literal["standard", "fifo", "fifo-high-throughput"] = "standard"
    network_path: QueuePath = "auto"
    queue_name_prefix: QueueNamePrefix = "penstock-probe"
    message_size_bytes: MessageSizes = (KiB,)
    request_count_max: Count = 3000
    usd_per_day: Usd = 0.03
    visibility_timeout_seconds: VisibilityTimeout = 30.0

    @property
    def payload_size_bytes(self) -> tuple[int, ...]:
        return self.message_size_bytes

    def cost_max(self, tariff: Tariff) -> Cost:
        """See `Section`: full batches of the largest messages, sent, received and deleted."""
        from penstock.models.sqs.setting import (
            BATCH_MESSAGE_COUNT_MAX,
            BATCH_SIZE_BYTES_MAX,
            PROBED_BYTES_MIN,
        )

        size_bytes = max(PROBED_BYTES_MIN, *self.message_size_bytes)
        batch_bytes = min(BATCH_MESSAGE_COUNT_MAX * size_bytes, BATCH_SIZE_BYTES_MAX)
        one_way_bytes = self.request_count_max / _ROLE_COUNT * batch_bytes
        return Cost(
            request_count=self.request_count_max,
            usd=tariff.usd(
                write_request_count=self.request_count_max * billed_count(batch_bytes),
                sent_bytes=one_way_bytes,
                received_bytes=one_way_bytes,
            ),
            duration_seconds=self.duration_seconds_max,
        )

    @property
    def connection_count_max(self) -> int:
        return _ROLE_COUNT * self.thread_count_max

    def region_of(self, leftover: Leftover, home_region: str) -> str | None:
        return leftover.container if leftover.container in (self.regions or (home_region,)) else None
