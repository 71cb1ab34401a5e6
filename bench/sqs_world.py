"""Knows how to hold a setting against the simulated queue: as conduct of the application, and as a probe's record."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from penstock.lab.queue_campaign import CampaignResult, Conduct, QueueCampaign, QueueWorld, RequestTime
from penstock.models.sqs_delivery import SqsDeliverySetting
from penstock.vocabulary import Context, Observation, Place

PLACE = Place(operation="sqs_delivery", region="lab", instance_type="simulated")
CONTEXT = Context(place=PLACE, payload_size_bytes=1024)
_PROBE_SECONDS = 6.0
_WARM_SECONDS = 0.5
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def conduct_of(
    setting: SqsDeliverySetting, *, rate_per_second: float | None = None, long_polls: bool = True
) -> Conduct:
    """The application that heeds the setting; with a rate, it has no more than that to send."""
    limit = setting.send_rate_limit_messages_per_second
    if rate_per_second is not None:
        limit = min(limit or rate_per_second, rate_per_second)
    return Conduct(
        sender_count=setting.sender_thread_count,
        receiver_count=setting.receiver_thread_count,
        deleter_count=setting.deleter_thread_count,
        send_batch=setting.batch_message_count,
        receive_batch=setting.batch_message_count,
        delete_batch=setting.batch_message_count,
        send_rate_limit_per_second=limit,
        send_window=setting.send_window_message_count,
        receive_window=setting.receive_window_message_count,
        polls_only_when_sent=not long_polls,
        long_polls=long_polls,
    )


def observe(
    world: QueueWorld, setting: SqsDeliverySetting, *, seed: int, number: int = 0
) -> Observation[SqsDeliverySetting]:
    """What a probe of this setting records in this world."""
    campaign = QueueCampaign(world, conduct_of(setting), seed=seed, sample_seconds=_WARM_SECONDS)
    result = campaign.run(_PROBE_SECONDS)
    total = result.total
    requests = total.send_requests + total.receive_requests + total.delete_requests
    brought = max(total.receive_requests - total.empty_receives, 1)
    return Observation(
        context=CONTEXT,
        setting=setting,
        started_at=_EPOCH + timedelta(minutes=number),
        duration_seconds=result.duration_seconds,
        transferred_bytes=total.received_unique * CONTEXT.payload_size_bytes,
        request_count=requests,
        latency_seconds_mean=result.latency_seconds_mean,
        latency_seconds_p50=result.latency_seconds_quantile(0.5),
        latency_seconds_p99=result.latency_seconds_quantile(0.99),
        client_cpu_fraction=requests * world.client_seconds_per_request / result.duration_seconds,
        measures={
            "sent_count": total.sent,
            "received_count": total.received_unique + total.received_again,
            "deleted_count": total.deleted,
            "duplicate_count": total.received_again,
            "send_request_count": total.send_requests,
            "receive_request_count": brought,
            "delete_request_count": total.delete_requests,
            "empty_receive_count": total.empty_receives,
            "send_seconds_mean": total.send_seconds / max(total.send_requests, 1),
            "receive_seconds_mean": total.receive_seconds / brought,
            "delete_seconds_mean": total.delete_seconds / max(total.delete_requests, 1),
            "goodput_messages_per_second": steady_goodput(result),
            "oldest_undeleted_seconds_max": result.oldest_undeleted_seconds_max,
            "visibility_timeout_seconds": world.visibility_timeout_seconds,
        },
    )


def steady_goodput(result: CampaignResult) -> float:
    """Messages deleted a second, after the start."""
    return result.rate_between("deleted", _WARM_SECONDS, result.duration_seconds)


def a_world(seed: int) -> QueueWorld:
    """A queue and a client as they may be: request times, batches, chance, propagation and the client's core."""
    rng = random.Random(seed)

    def request(typical_seconds: float) -> RequestTime:
        fixed = typical_seconds * rng.uniform(0.7, 1.3)
        return RequestTime(fixed_seconds=fixed, message_seconds=fixed * rng.uniform(0.02, 0.25))

    typical_seconds = 10 ** rng.uniform(-2.2, -1.4)  # 6 to 40 ms
    return QueueWorld(
        send=request(typical_seconds),
        receive=request(typical_seconds),
        delete=request(typical_seconds),
        variation=rng.uniform(0.2, 0.7),
        propagation_seconds=(0.002, rng.uniform(0.004, 0.03)),
        client_seconds_per_request=rng.uniform(0.2e-3, 0.9e-3),
    )


def a_setting(seed: int) -> SqsDeliverySetting:
    """A stable setting that nobody chose for a reason."""
    rng = random.Random(seed)
    senders = round(2 ** rng.uniform(0.0, 3.6))
    batch = rng.choice((1, 2, 4, 7, 10))
    return SqsDeliverySetting(
        sender_thread_count=senders,
        receiver_thread_count=max(1, round(senders * rng.uniform(0.6, 1.8))),
        deleter_thread_count=max(1, round(senders * rng.uniform(0.6, 2.0))),
        batch_message_count=batch,
        send_rate_limit_messages_per_second=0.0,
        send_window_message_count=batch * round(senders * rng.uniform(1.5, 6.0) + 4),
        receive_window_message_count=batch * senders * 40,
    )


def limited(setting: SqsDeliverySetting, rate_per_second: float) -> SqsDeliverySetting:
    """The same with a send rate limit."""
    return replace(setting, send_rate_limit_messages_per_second=rate_per_second)
