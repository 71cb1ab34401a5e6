"""Knows the named worlds: each has a path to S3 and a queue service, and a sentence on what is special about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.lab.link import Episodes, LinkTruth
from penstock.lab.sqs import ActionTruth, QueueTruth
from penstock.units import GiB, MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The truth of one place of the lab."""

    name: str
    story: str  # one sentence on what there is to find out
    link: LinkTruth  # for writes to S3
    queue: QueueTruth
    inbound: LinkTruth | None = None  # for reads; None is the same as for writes


def _world(*, name: str, story: str, link: LinkTruth, reads: dict[str, Any], queue: QueueTruth) -> World:
    """A world in which reads differ from writes in these fields."""
    return World(name=name, story=story, link=link, queue=queue, inbound=replace(link, **reads))


_ORDINARY_QUEUE = QueueTruth(  # end to end as published in 2022: 14, 16, 34 and 105 ms
    send=ActionTruth(request_seconds=0.0082, message_seconds=0.0008, variation=0.35),
    receive=ActionTruth(request_seconds=0.0075, message_seconds=0.0005, variation=0.35),
    delete=ActionTruth(request_seconds=0.0075, message_seconds=0.0006, variation=0.35),
    spread_seconds_median=0.003,
    spread_sigma=0.8,
    contention=0.0042,
    coherency=6.9e-5,
    straggler_fraction=0.001,
    straggler_seconds=0.25,
)

_SIXTY_A_SECOND = partial(ActionTruth, message_seconds=0.0010, variation=0.2, request_rate_per_second_max=60)

DEMO = _world(
    name="demo",
    story="Slow connections and a fast host: 24 are needed, boto3 opens 10; and a queue that takes "
    "60 requests a second of each kind and whose deletes take twice as long as its sends.",
    link=LinkTruth(
        round_trip_seconds=0.020,
        connection_rate_bytes_per_second=2.4e6,
        host_rate_bytes_per_second=56e6,
        service_latency_seconds_median=0.020,
        service_latency_sigma=0.25,
        oversubscription_loss=0.1,
    ),
    reads={
        "connection_rate_bytes_per_second": 1.6e6,
        "host_rate_bytes_per_second": 32e6,
        "service_latency_seconds_median": 0.030,
    },
    queue=QueueTruth(
        send=_SIXTY_A_SECOND(request_seconds=0.0170),
        receive=_SIXTY_A_SECOND(request_seconds=0.0150),
        delete=_SIXTY_A_SECOND(request_seconds=0.0350),
        spread_seconds_median=0.005,
        spread_sigma=0.3,
        visibility_timeout_seconds=6,
    ),
)

_NEAR_READS = {  # AWS's own transfer manager assumes 30 ms, as for writes, and 90 MB/s for a GET
    "connection_rate_bytes_per_second": 90e6,
    "service_latency_sigma": 0.5,
    "straggler_seconds": 1.0,
}

NEAR = _world(
    name="near",
    story="The same zone, a quiet 10 Gbit/s host: uploads at 20 MB/s a connection, so 60 are needed.",
    link=LinkTruth(
        round_trip_seconds=0.001,
        connection_rate_bytes_per_second=20e6,
        host_rate_bytes_per_second=1.2e9,
        service_latency_seconds_median=0.030,
        service_latency_sigma=0.35,
        straggler_fraction=0.0003,
        straggler_seconds=2.0,
    ),
    reads={**_NEAR_READS, "prefix_request_rate_per_second": 5500},
    queue=_ORDINARY_QUEUE,
)

REGIONAL = _world(
    name="regional",
    story="The same region on a busy day: dips, a neighbour on the host, a mild fall past the knee.",
    link=LinkTruth(
        round_trip_seconds=0.004,
        connection_rate_bytes_per_second=26e6,
        host_rate_bytes_per_second=600e6,
        service_latency_seconds_median=0.035,
        service_latency_sigma=0.45,
        straggler_fraction=0.001,
        oversubscription_loss=0.15,
        dips=Episodes(gap_seconds_mean=120, duration_seconds_mean=8, fraction_low=0.1, fraction_high=0.4),
        tenant=Episodes(gap_seconds_mean=600, duration_seconds_mean=60, fraction_low=0.1, fraction_high=0.5),
    ),
    reads={
        "connection_rate_bytes_per_second": 60e6,
        "service_latency_seconds_median": 0.030,
        "service_latency_sigma": 0.5,
        "straggler_seconds": 1.0,
        "oversubscription_loss": 0.1,
        "cold_read_seconds": 0.015,
        "cache_bytes": float(GiB),
    },
    queue=_ORDINARY_QUEUE,
)

CROSS_REGION = _world(
    name="cross-region",
    story="130 ms away: the window of 2.6 MB allows 20 MB/s a connection, whatever the connection could do.",
    link=LinkTruth(
        round_trip_seconds=0.130,
        connection_rate_bytes_per_second=90e6,
        window_bytes=2.6e6,
        host_rate_bytes_per_second=500e6,
        service_latency_seconds_median=0.045,
        service_latency_sigma=0.4,
        dips=Episodes(gap_seconds_mean=90, duration_seconds_mean=10, fraction_low=0.1, fraction_high=0.4),
    ),
    reads={"service_latency_seconds_median": 0.035},
    queue=QueueTruth(
        send=ActionTruth(request_seconds=0.140, message_seconds=0.0008, variation=0.2),
        receive=ActionTruth(request_seconds=0.138, message_seconds=0.0005, variation=0.2),
        delete=ActionTruth(request_seconds=0.138, message_seconds=0.0006, variation=0.2),
        spread_seconds_median=0.003,
        spread_sigma=0.8,
    ),
)

THROTTLED = _world(
    name="throttled",
    story="Small objects under one prefix that takes 40 requests a second: more threads only earn more 503s.",
    link=LinkTruth(
        round_trip_seconds=0.004,
        connection_rate_bytes_per_second=20e6,
        host_rate_bytes_per_second=300e6,
        service_latency_seconds_median=0.040,
        service_latency_sigma=0.35,
        prefix_request_rate_per_second=40,
    ),
    reads={
        "connection_rate_bytes_per_second": 60e6,
        "service_latency_seconds_median": 0.030,
        "prefix_request_rate_per_second": 60,
    },
    queue=QueueTruth(  # a FIFO queue's quota, without its order
        send=ActionTruth(request_seconds=0.012, message_seconds=0.0008, request_rate_per_second_max=300),
        receive=ActionTruth(request_seconds=0.010, message_seconds=0.0005, request_rate_per_second_max=300),
        delete=ActionTruth(request_seconds=0.010, message_seconds=0.0006, request_rate_per_second_max=300),
    ),
)

BURSTABLE = _world(
    name="burstable",
    story="A small instance: 5 Gbit/s while credits last, 0.75 Gbit/s after; two answers, not one.",
    link=replace(
        NEAR.link,
        host_rate_bytes_per_second=94e6,
        burst_rate_bytes_per_second=625e6,
        credit_bytes=float(60 * GiB),
    ),
    reads=_NEAR_READS,
    queue=_ORDINARY_QUEUE,
)

CROWDED = _world(
    name="crowded",
    story="An edge site behind a thin, lossy line: eight connections fill it and the ninth already hurts.",
    link=LinkTruth(
        round_trip_seconds=0.045,
        connection_rate_bytes_per_second=1.5e6,
        window_bytes=float(MiB),
        host_rate_bytes_per_second=12e6,
        service_latency_seconds_median=0.050,
        service_latency_sigma=0.4,
        oversubscription_loss=0.5,
        dips=Episodes(gap_seconds_mean=45, duration_seconds_mean=6, fraction_low=0.1, fraction_high=0.5),
    ),
    reads={
        "connection_rate_bytes_per_second": 3e6,
        "host_rate_bytes_per_second": 24e6,
        "service_latency_seconds_median": 0.040,
    },
    queue=QueueTruth(
        send=ActionTruth(request_seconds=0.060, message_seconds=0.001, variation=0.5),
        receive=ActionTruth(request_seconds=0.058, message_seconds=0.001, variation=0.5),
        delete=ActionTruth(request_seconds=0.058, message_seconds=0.001, variation=0.5),
        spread_seconds_median=0.005,
        spread_sigma=0.5,
    ),
)

PAPER = World(
    name="paper",
    story="The queue of 2011: one deleter 1.43 % slower than the sender, and a visibility timeout of 30 s.",
    link=LinkTruth(
        round_trip_seconds=0.001,
        connection_rate_bytes_per_second=10e6,
        host_rate_bytes_per_second=10e6,
        service_latency_seconds_median=0.080,
        service_latency_sigma=0.4,
    ),
    queue=QueueTruth(
        send=ActionTruth(request_seconds=0.020, variation=0.6),
        receive=ActionTruth(request_seconds=0.020, message_seconds=0.004, variation=0.6),
        delete=ActionTruth(request_seconds=0.020286, variation=0.6),
        spread_seconds_median=0.044,
        spread_sigma=0.05,
    ),
)

IMPATIENT = World(
    name="impatient",
    story="A store that takes twelve gigabytes without a pause and then refuses all for two minutes: no probe sees it.",
    link=LinkTruth(
        round_trip_seconds=0.004,
        connection_rate_bytes_per_second=20e6,
        host_rate_bytes_per_second=400e6,
        service_latency_seconds_median=0.030,
        service_latency_sigma=0.35,
        patience_bytes=12e9,  # users report 18 to 30 GB
        refusal_seconds=120.0,
    ),
    queue=_ORDINARY_QUEUE,
)

UNHINDERED = World(
    name="unhindered",
    story="S3 with nothing but the network in between and the two hosts: for another host, with --listen.",
    link=LinkTruth(
        round_trip_seconds=0.0,
        connection_rate_bytes_per_second=1e12,
        host_rate_bytes_per_second=1e12,
        service_latency_seconds_median=0.0,
    ),
    queue=_ORDINARY_QUEUE,
)

WORLDS = {
    world.name: world
    for world in (
        DEMO,
        NEAR,
        REGIONAL,
        CROSS_REGION,
        THROTTLED,
        BURSTABLE,
        CROWDED,
        PAPER,
        IMPATIENT,
        UNHINDERED,
    )
}
