"""Knows how a delivery's advice is proved: a queue driven by plain boto3 without and with it, beside its best."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.client.advice import Advice
from penstock.lab.optimum import best_goodput_messages_per_second
from penstock.lab.worlds import DEMO
from penstock.operations.sqs.delivery import DELIVERY
from penstock.trial.faces.face import Clients, Face, Shown, Stage, Told, times
from penstock.trial.queue_application import QueueApplication, QueueRun
from penstock.units import KiB

MESSAGE_SIZE_BYTES = KiB
WARM_UP_SECONDS = 3.0
MEASURED_SECONDS = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryProof:
    """The same queue driven by plain boto3 without and with advice, beside what it can do at best."""

    default_setting: Mapping[str, float]
    default_messages_per_second: float
    default_duplicate_count: int
    advised_setting: Mapping[str, float]
    advised_messages_per_second: float
    best_messages_per_second: float
    advised_over_best: float
    advised_over_default: float
    duplicate_count: int
    throttled_count: int
    probe_count: int

    def shown(self) -> Shown:
        default, advised = self.default_messages_per_second, self.advised_messages_per_second
        default_words, advised_words = (
            DELIVERY.words.setting(setting, MESSAGE_SIZE_BYTES)
            for setting in (self.default_setting, self.advised_setting)
        )
        rows = (
            ("boto3, one thread each", default_words, default, self.default_duplicate_count),
            ("boto3, advised", advised_words, advised, self.duplicate_count),
            ("known best", "", self.best_messages_per_second, 0),
        )
        return Shown(
            title=f"SQS: sent, received and deleted, after {self.probe_count} probes",
            headings=("", "send/receive/delete x batch", "goodput", "duplicates", "over default"),
            rows=[
                (who, threads, f"{rate:.0f}/s", str(duplicates), times(rate / max(default, 1e-9)))
                for who, threads, rate, duplicates in rows
            ],
            sentence=f"The advice reaches {self.advised_over_best:.1%} of the known best of the queue.",
        )


def _prove(stage: Stage, advice: Advice, probe_count: int) -> DeliveryProof:
    default_setting = {name: 0.0 if _is_limit(name) else 1.0 for name in advice.setting}
    default = _drive(stage.clients, "demo-default", default_setting)
    stage.tell(Told(step="prove", sentence=f"boto3, one thread each: {_describe(default)}"))
    pause_seconds = advice.derived.get("receive_pause_at_oldest_undeleted_seconds", math.inf)
    advised = _drive(stage.clients, "demo-advised", advice.setting, receive_pause_seconds=pause_seconds)
    stage.tell(Told(step="prove", sentence=f"boto3, advised: {_describe(advised)}"))
    best = best_goodput_messages_per_second(DEMO.queue)
    return DeliveryProof(
        default_setting=default_setting,
        default_messages_per_second=default.goodput_messages_per_second,
        default_duplicate_count=default.duplicate_count,
        advised_setting=dict(advice.setting),
        advised_messages_per_second=advised.goodput_messages_per_second,
        best_messages_per_second=best,
        advised_over_best=advised.goodput_messages_per_second / best,
        advised_over_default=advised.goodput_messages_per_second
        / max(default.goodput_messages_per_second, 1e-9),
        duplicate_count=advised.duplicate_count,
        throttled_count=advised.throttled_count,
        probe_count=probe_count,
    )


def _drive(
    clients: Clients, name: str, setting: Mapping[str, float], *, receive_pause_seconds: float = math.inf
) -> QueueRun:
    with _queue(clients, name) as url:
        application = QueueApplication(
            clients.sqs,
            url,
            setting,
            message_rate_per_second=None,
            body="x" * (MESSAGE_SIZE_BYTES - 16),
            receive_pause_seconds=receive_pause_seconds,
        )
        return application.run(warm_up_seconds=WARM_UP_SECONDS, measured_seconds=MEASURED_SECONDS)


@contextlib.contextmanager
def _queue(clients: Clients, name: str) -> Iterator[str]:
    client = clients.sqs(10)
    timeout = str(DEMO.queue.visibility_timeout_seconds)
    url: str = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": timeout})["QueueUrl"]
    try:
        yield url
    finally:
        client.delete_queue(QueueUrl=url)


def _is_limit(name: str) -> bool:
    return "window" in name or "limit" in name


def _describe(run: QueueRun) -> str:
    return f"{run.goodput_messages_per_second:.0f} messages/s, {run.duplicate_count} duplicates"


FACE = Face(
    row=DELIVERY,
    section={
        "is_enabled": True,
        "message_size_bytes": [MESSAGE_SIZE_BYTES],
        "mean_interval_seconds": "1s",
        "duration_seconds_max": "4s",
        "thread_count_max": 32,
        "visibility_timeout_seconds": DEMO.queue.visibility_timeout_seconds,
    },
    payload_size_bytes=MESSAGE_SIZE_BYTES,
    demand={"visibility_timeout_seconds": float(DEMO.queue.visibility_timeout_seconds)},
    prove=_prove,
)
