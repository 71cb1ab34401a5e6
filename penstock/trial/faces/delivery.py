"""Knows how advice for a queue is proved: plain boto3 drives it without and with the advice, beside the known best."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.client.advice import Advice
from penstock.clock import SystemClock
from penstock.lab.optimum import best_goodput_messages_per_second
from penstock.lab.worlds import DEMO
from penstock.operations.sqs.delivery import DELIVERY
from penstock.probes.aws.queues import AwsMessageQueues
from penstock.probes.sqs.application import TROUBLE_COUNT_MAX, Means, MeasurementApplication, Stint
from penstock.probes.sqs.conduct import Conduct, conduct_of
from penstock.probes.sqs.run import Bodies, BoundQueue, HopelessError, Patience
from penstock.trial.faces.face import Clients, Face, Shown, Stage, Told, times
from penstock.trial.stage import StageError
from penstock.units import KiB

MESSAGE_SIZE_BYTES = KiB
WARM_UP_SECONDS = 3.0
MEASURED_SECONDS = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryProof:
    """A queue driven by plain boto3 without and with advice, beside the best that it can do."""

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
    pause_seconds = advice.derived.get("receive_pause_at_oldest_undeleted_seconds", 0.0)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueueRun:
    """The result of driving the queue for a while."""

    goodput_messages_per_second: float  # distinct messages deleted in the measured time
    duplicate_count: int  # in the whole run
    throttled_count: int  # likewise


class _InThreads:
    """A boto3 client that makes each request in a thread, as an application does."""

    def __init__(self, client: Any, pool: ThreadPoolExecutor) -> None:
        self._client, self._pool = client, pool

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        def request(**parameters: Any) -> Awaitable[Any]:
            made = partial(getattr(self._client, name), **parameters)
            return asyncio.get_running_loop().run_in_executor(self._pool, made)

        return request


def _drive(
    clients: Clients, name: str, setting: Mapping[str, float], *, receive_pause_seconds: float = 0.0
) -> _QueueRun:
    whole = {name: int(value) for name, value in setting.items()}
    conduct = replace(conduct_of(DELIVERY.setting_type(**whole)), receive_pause_seconds=receive_pause_seconds)
    with _queue(clients, name) as url:
        try:
            return asyncio.run(_driven(clients, url, conduct))
        except HopelessError as trouble:
            raise StageError(str(trouble)) from trouble


async def _driven(clients: Clients, url: str, conduct: Conduct) -> _QueueRun:
    thread_count = conduct.sender_count + conduct.receiver_count + conduct.deleter_count
    patience, seconds = Patience(in_a_row_max=TROUBLE_COUNT_MAX), WARM_UP_SECONDS + MEASURED_SECONDS + 1.0
    with ThreadPoolExecutor(thread_count) as pool:
        application = MeasurementApplication(
            BoundQueue(AwsMessageQueues(_InThreads(clients.sqs(thread_count), pool)), url),
            SystemClock(),
            conduct,
            stint=Stint(drains=True),  # its polls are short, so that its threads end soon
            means=Means(patience=patience, bodies=Bodies(MESSAGE_SIZE_BYTES)),
        )
        await application.drive(seconds, lambda _: None)
    began_seconds = WARM_UP_SECONDS + 0.5  # samples are taken slightly after each full second
    tally, ended_seconds = application.tally, began_seconds + MEASURED_SECONDS
    return _QueueRun(
        goodput_messages_per_second=tally.rate_between("deleted_count", began_seconds, ended_seconds),
        duplicate_count=tally.total.duplicate_count,
        throttled_count=patience.throttled_count,
    )


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


def _describe(run: _QueueRun) -> str:
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
