"""Knows how observations of a queue are read: as columns of measurements, and limits on request rates.

The request rates that the service admits and the client's CPU allows are bounds, and are read off the observations
directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.models.model import Array, Fit
from penstock.models.sqs.physics import ACTIONS, Drive, drive_of
from penstock.models.sqs.queue_class import request_rate_max_per_second
from penstock.vocabulary import Observation, Origin, Place

# In the names of measures: sent_count counts messages, send_request_count requests.
PAST = dict(zip(ACTIONS, ("sent", "received", "deleted"), strict=True))
IDLE_BATCHES = (1, 2, 5, 10)  # messages per request when a probe times requests one after another
UNLIMITED = 1e9
_THROTTLED_FRACTION = 0.002  # of requests
_GRACE_SECONDS = 1.0  # of requests at the limit, which are admitted before it takes effect
CLIENT_SECONDS_PER_REQUEST = 0.65e-3  # measured: 0.56-0.74 ms of one core with aiobotocore


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Observations as columns (observations,); NaN where one does not state a value."""

    drive: Drive
    filled: dict[str, Array]  # messages per request, by action
    seconds: dict[str, Array]  # of a request, by action
    idle_seconds: dict[str, Array]  # of a single request, by action: for each batch size, all observations
    request_rate: Array
    received_rate: Array
    has_idle_receives: NDArray[np.bool_]  # whether receives that waited for a message are in the mean
    goodput: Array  # NaN if throttled, because that measures the client's pauses
    latency_seconds: Array  # likewise
    latency_seconds_p99: Array  # likewise
    caps: tuple[float, float]  # from `ceilings`


def columns_of(observations: Sequence[Observation[Any]], caps: tuple[float, float]) -> Columns:
    """The columns of these observations, with the limits `caps` of service and client."""

    def measured(name: str) -> Array:
        values = np.array([float(o.measures.get(name, np.nan)) for o in observations])
        return np.where(values > 0, values, np.nan)

    def idle_measured(action: str) -> Array:
        return np.concatenate([measured(f"idle_{action}_seconds_batch_{batch}") for batch in IDLE_BATCHES])

    durations = np.array([o.duration_seconds for o in observations])
    sizes = np.array([float(o.context.payload_size_bytes) for o in observations])
    latency = np.array([o.latency_seconds_mean or np.nan for o in observations])
    latency_p99 = np.array([o.latency_seconds_p99 or np.nan for o in observations])
    goodput = np.array([measured_goodput(o) or np.nan for o in observations])
    is_throttled = np.array([_is_throttled(o) for o in observations])
    return Columns(
        drive=drive_of([o.setting for o in observations], sizes),
        filled={action: np.array([_filled(o, action) for o in observations]) for action in ACTIONS},
        seconds={action: measured(f"{action}_seconds_mean") for action in ACTIONS},
        idle_seconds={action: idle for action in ACTIONS if np.isfinite(idle := idle_measured(action)).any()},
        request_rate=np.array([float(o.request_count) for o in observations]) / durations,
        received_rate=measured("received_count") / durations,
        has_idle_receives=np.array([o.origin is Origin.APPLICATION for o in observations]),
        goodput=np.where(is_throttled, np.nan, goodput),
        latency_seconds=np.where(is_throttled, np.nan, latency),
        latency_seconds_p99=np.where(is_throttled, np.nan, latency_p99),
        caps=caps,
    )


def ceilings(
    place: Place, observations: Sequence[Observation[Any]], prior: Fit | None
) -> tuple[float, float]:
    """Requests per second that the service admits for each action, and the client's CPU for all together."""
    standing = prior.state if prior is not None else {}
    quota = min(request_rate_max_per_second(place.service_class, place.region), UNLIMITED)
    request_rate = float(standing.get("request_rate_max_per_second", quota))
    refused = [_carried_rate(o) for o in observations if _is_throttled(o)]
    admitted = [_carried_rate(o) for o in observations if o.throttled_count == 0]
    if not refused and max(admitted, default=0.0) > request_rate:
        request_rate = quota  # the neighbour's limit does not apply here
    if refused:
        # The most that was ever sustained, because applications that follow the advice stay below the limit.
        request_rate = max([*refused, *admitted])
    spent = [
        o.client_cpu_fraction * o.duration_seconds / o.request_count
        for o in observations
        if o.client_cpu_fraction > 0 and o.request_count >= 50
    ]
    seconds = float(np.median(spent)) if spent else CLIENT_SECONDS_PER_REQUEST
    return request_rate, 1.0 / seconds


def _is_throttled(observation: Observation[Any]) -> bool:
    return observation.throttled_count > _THROTTLED_FRACTION * observation.request_count


def _carried_rate(observation: Observation[Any]) -> float:
    """The sustained rate of admitted requests per second of the busiest action; always positive.

    A service admits about a second's worth of requests before its limit takes effect, and a probe lasts only a few
    seconds, so requests are divided by one second more. If the steady goodput in full batches implies a higher rate,
    there was no such grace. If no request was admitted, the rate is taken to be less than one request's.
    """
    counts = [_request_count(observation, action) for action in ACTIONS]
    counts[1] += observation.measures.get("empty_receive_count", 0.0)
    admitted = max(1.0, *counts) / (observation.duration_seconds + _GRACE_SECONDS)
    return max(admitted, measured_goodput(observation) / float(observation.setting.batch_message_count))


def _request_count(observation: Observation[Any], action: str) -> float:
    """How many requests succeeded, as stated, or else as the number of messages implies for full batches."""
    stated = observation.measures.get(f"{action}_request_count")
    if stated is not None:
        return float(stated)
    return float(
        observation.measures.get(f"{PAST[action]}_count", 0.0) / observation.setting.batch_message_count
    )


def measured_goodput(observation: Observation[Any]) -> float:
    """Unique messages per second, as stated, or else as the observation's bytes imply."""
    stated = observation.measures.get("goodput_messages_per_second")
    if stated is not None:
        return float(stated)
    return observation.throughput_bytes_per_second / max(observation.context.payload_size_bytes, 1)


def _filled(observation: Observation[Any], action: str) -> float:
    """Mean number of messages per request, from the counts, or else as implied by rates and threads."""
    batch = float(observation.setting.batch_message_count)
    count = observation.measures.get(f"{PAST[action]}_count")
    requests = observation.measures.get(f"{action}_request_count")
    if count and requests:
        return float(np.clip(count / requests, 1.0, 10.0))
    if action == "send" or not count:
        return batch
    threads = (
        observation.setting.receiver_thread_count
        if action == "receive"
        else observation.setting.deleter_thread_count
    )
    seconds = observation.measures.get(f"{action}_seconds_mean", 0.0)
    return float(np.clip(count / observation.duration_seconds * seconds / threads, 1.0, batch))
