"""Knows which rows of evidence an observation of a transfer comes to.

Measures of an observation that are used when they are there: `part_count`, `connection_count`, `create_seconds`,
`complete_seconds`, `first_byte_seconds_mean`, `steady_throughput_bytes_per_second`, and `part_seconds_mean`: with the
duration it says how long connections were idle, a ratio in which the noise of the day cancels. So does it in
`client_cpu_demand_fraction`, which says how much the processor of the client has to give, with `worker_count`
processes; and `bw_out_allowance_exceeded`, a good share of `host_transmitted_packet_count`, that it was all that the
host may send.
The names of one direction are its own (`Direction`); these are those of uploads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log

import numpy as np

from penstock.models.inference.misfit import SIGMA_TYPICAL
from penstock.models.s3.credits import burst_flags
from penstock.models.s3.directions import S3SettingT, burst_ceiling
from penstock.models.s3.evidence import IDLE_FLOOR, Evidence, Kind, Row, throughput_noise_scale
from penstock.models.s3.law import Transfers
from penstock.vocabulary import STRAY_FRACTION_MAX, Observation, Place, is_stray

# Observations, the newest: of older ones only the throughput is kept, which saves half the fit, and what was refused:
# advice that keeps below a limit meets no more refusals, and a limit that is forgotten is crossed again.
_DETAILED_COUNT = 20
_KEPT = (Kind.WHOLE, Kind.STEADY, Kind.THROTTLED)


def evidence_of(place: Place, observations: Sequence[Observation[S3SettingT]]) -> Evidence:
    """The rows of all observations of one place, oldest first."""
    workers = max((_worker_count(observation) for observation in observations), default=1.0)
    observations = _without_outgrown(observations, workers)
    bursts = burst_flags(burst_ceiling(place), observations)
    clients = sorted({o.client for o in observations} - {"penstock"})
    rows: list[Row] = []
    refused, bound = _refused_flags(observations), _host_bound_flags(observations, bursts)
    for index, (observation, is_burst, is_refused, is_bound) in enumerate(
        zip(observations, bursts, refused, bound, strict=True)
    ):
        client = clients.index(observation.client) if observation.client in clients else -1
        is_recent = index >= len(observations) - _DETAILED_COUNT
        rows += [
            row
            for row in _rows(
                observation,
                float(is_burst),
                client,
                workers,
                index,
                is_refused=is_refused,
                is_host_bound=is_bound,
            )
            if is_recent or row[0] in _KEPT
        ]
    return Evidence(rows=tuple(rows))


def _refused_flags(observations: Sequence[Observation[S3SettingT]]) -> list[bool]:
    """Whether each observation met the limit on requests: where refusals are no rarity, each of them tells of it."""
    are_rare = is_stray(
        sum(o.throttled_count for o in observations), sum(o.request_count for o in observations)
    )
    return [
        o.throttled_count > STRAY_FRACTION_MAX * o.request_count
        and not (are_rare and is_stray(o.throttled_count, o.request_count))
        for o in observations
    ]


def _rows(
    observation: Observation[S3SettingT],
    is_burst: float,
    client: int,
    workers: float,
    index: int,
    *,
    is_refused: bool,
    is_host_bound: bool,
) -> list[Row]:
    """The equations of one observation; none when nothing arrived."""
    if observation.transferred_bytes <= 0 or observation.duration_seconds <= 0:
        return []
    shape = _shape(observation)
    hours = observation.started_at.timestamp() / 3600.0
    size = float(max(observation.context.payload_size_bytes, 1))

    def row(kind: int, value: float, noise_scale: float = 1.0, *, is_trusted: float = 0.0) -> Row:
        place = (
            shape.n,
            shape.s,
            shape.full,
            shape.rest,
            float(observation.transferred_bytes),
            shape.objects,
        )
        group = float(client) if kind <= Kind.STEADY else -1.0
        about = (float(kind), value, noise_scale, is_trusted, group)
        return (*about, *place, is_burst, hours, float(index), size)

    crowding = _crowding(observation)
    doubt = _doubt_of_the_refused(observation) if is_refused else _doubt_of_the_end(observation, shape)
    doubt += crowding if _is_cpu_bound(observation) else 0.0
    steady = observation.measures.get("steady_throughput_bytes_per_second", 0.0)
    is_whole = observation.transferred_bytes >= observation.context.payload_size_bytes and shape.objects > 0
    if steady > 0 and not is_whole:
        noise_scale = throughput_noise_scale(shape.n) + doubt
        rows = [row(Kind.STEADY, log(steady), noise_scale, is_trusted=float(is_refused))]
    else:
        value = log(observation.throughput_bytes_per_second)
        rows = [row(Kind.WHOLE, value, throughput_noise_scale(shape.n) + doubt, is_trusted=float(is_refused))]
    if shape.objects > 0:
        rows += [
            row(Kind.IDLE, share, noise_scale + doubt) for share, noise_scale in _idle(observation, shape)
        ]
    if object_seconds(observation) > 0:
        rows.append(row(Kind.OBJECT, log(object_seconds(observation)), 4.0))
    if min(observation.client_cpu_fraction, _cpu_demand(observation)) >= _CPU_TOLD:
        share = _cpu_demand(observation) * _worker_count(observation) / workers
        rows.append(row(Kind.CPU, log(observation.throughput_bytes_per_second / share), 2.0 + crowding))
    if (first_byte := observation.measures.get("first_byte_seconds_mean", 0.0)) > 0:
        rows.append(row(Kind.FIRST_BYTE, log(first_byte), _FIRST_BYTE_NOISE))
    if is_host_bound:
        rows.append(row(Kind.CEILING, rows[0][1], 2.0))
    if is_refused:
        admission = _admission(observation, steady / shape.s if rows[0][0] == Kind.STEADY else 0.0)
        rows += [row(Kind.THROTTLED, rate, noise_scale, is_trusted=1.0) for rate, noise_scale in admission]
    return rows


def _admission(observation: Observation[S3SettingT], steady: float) -> list[tuple[float, float]]:
    """The logarithm of how many requests a second were admitted while others were refused, with its noise scale.

    At the end those wait that were refused, and nobody else asks: it is what was `steady`, or that of all the time,
    where the probe does not say when which were refused.
    """
    measures, seconds = observation.measures, observation.duration_seconds
    answered = max(observation.request_count - observation.throttled_count - observation.failed_count, 1)
    admitted = steady * seconds or float(answered)
    if "admitted_count" in measures:
        admitted, seconds = measures["admitted_count"], measures["refusing_seconds"]
    if not admitted:
        return []
    requests_per_refusal = max(observation.request_count / observation.throttled_count, 1.0)
    unknown = _REFUSED_BY_CHANCE * requests_per_refusal + _TOKENS_UNKNOWN / admitted
    return [(log(admitted / seconds), 2.0 + unknown / SIGMA_TYPICAL)]


# What goes through may lie below what is admitted by so much, as a logarithm, over the share that is refused: a bucket
# of three requests that refuses one in thirty by chance admits a quarter less than its rate.
_REFUSED_BY_CHANCE = 0.01
_TOKENS_UNKNOWN = 1.0  # in a bucket that is found empty: less than what the next request takes
_WAITED = 0.4  # as a logarithm: who is refused waits, in short probes for as long as all the others take
# Of the time the busiest process ran: enough to say what all of it would do. Waiting alone tells of others: one that
# wakes up for ten parts in five seconds has waited for a third of them where the host is crowded.
_CPU_TOLD = 0.1
_CPU_BOUND = 0.9
# What precedes the first byte is not all that a request costs, and it waits in queues as well.
_FIRST_BYTE_NOISE = 4.0
_HOST_BOUND = 0.01  # of its packets the host queued or dropped; a burst of an instant touches fewer


def _is_cpu_bound(observation: Observation[S3SettingT]) -> bool:
    return _cpu_demand(observation) >= _CPU_BOUND


def _cpu_demand(observation: Observation[S3SettingT]) -> float:
    return min(observation.measures.get("client_cpu_demand_fraction", 0.0), 1.0)


def _crowding(observation: Observation[S3SettingT]) -> float:
    """By how much the noise scale grows where others had the processor: how crowded it is next time nobody knows."""
    demand = _cpu_demand(observation)
    ran = min(max(observation.client_cpu_fraction, _RAN_LEAST), demand)
    return log(demand / ran) / SIGMA_TYPICAL if ran > 0 else 0.0


_RAN_LEAST = 0.01  # of the time; who ran for less is known too little


def _host_bound_flags(observations: Sequence[Observation[S3SettingT]], bursts: Sequence[bool]) -> list[bool]:
    """Whether the network's driver held each observation back, and it was the ceiling, with as many credits.

    The driver counts bursts of an instant as well, and with segmentation offload over large buffers: more than 1 % was
    held back at a quarter of what the same host reached. So fewer connections have to have gone free, and nothing may
    have been much faster.
    """
    pairs = list(zip(observations, bursts, strict=True))
    fastest, fewest = {False: 0.0, True: 0.0}, {False: inf, True: inf}
    for o, is_burst in pairs:
        fastest[is_burst] = max(fastest[is_burst], o.throughput_bytes_per_second)
        if o.client == "penstock" and not _is_host_bound(o):  # nothing was counted beside a report
            fewest[is_burst] = min(fewest[is_burst], connections_used(o))
    return [
        _is_host_bound(o)
        and o.throughput_bytes_per_second >= _PLATEAU * fastest[is_burst]
        and connections_used(o) > fewest[is_burst]
        for o, is_burst in pairs
    ]


_PLATEAU = 0.8  # of the fastest: the same ceiling, on a day when measurements vary


def _is_host_bound(observation: Observation[S3SettingT]) -> bool:
    measures, direction = observation.measures, observation.setting.direction
    packets = measures.get(direction.packet_measure, 0.0)
    return measures.get(direction.allowance_measure, 0.0) > _HOST_BOUND * packets > 0


def _without_outgrown(
    observations: Sequence[Observation[S3SettingT]], workers: float
) -> list[Observation[S3SettingT]]:
    """Leave out what fewer processes measured at their limit, once so many of them measured here."""
    return [o for o in observations if not _is_cpu_bound(o) or _worker_count(o) >= workers]


def _worker_count(observation: Observation[S3SettingT]) -> float:
    return observation.measures.get("worker_count", 1.0)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How an observation's bytes were split into waves."""

    n: float
    s: float
    full: float
    rest: float
    objects: float

    @property
    def parts(self) -> float:
        return self.full * self.n + self.rest


def _shape(observation: Observation[S3SettingT]) -> _Shape:
    measures, size = observation.measures, max(observation.context.payload_size_bytes, 1)
    s = float(min(observation.setting.request_size_bytes, size))
    counted = measures.get(f"{observation.setting.direction.part_noun}_count")
    parts = max(1.0, ceil(observation.transferred_bytes / s) if counted is None else counted)
    n = min(measures.get("connection_count", float(observation.setting.thread_count)), parts)
    full = float(parts // n)
    return _Shape(n, observation.transferred_bytes / parts, full, parts - full * n, 1.0 if s < size else 0.0)


def connections_used(observation: Observation[S3SettingT]) -> float:
    """How many connections had something to send: no more than there were requests."""
    return _shape(observation).n


def moved(observations: Sequence[Observation[S3SettingT]], *, is_burst: bool) -> Transfers:
    """What was moved, split as it is in the rows of evidence: an object that went whole was one request."""
    shapes = [_shape(observation) for observation in observations]
    return Transfers(
        n=np.array([shape.n for shape in shapes]),
        s=np.array([shape.s for shape in shapes]),
        full=np.array([shape.full for shape in shapes]),
        rest=np.array([shape.rest for shape in shapes]),
        transferred=np.array([float(observation.transferred_bytes) for observation in observations]),
        objects=np.array([shape.objects for shape in shapes]),
        is_burst=np.full(len(shapes), float(is_burst)),
        is_steady=np.zeros(len(shapes), dtype=np.bool_),
        size=np.array([float(max(o.context.payload_size_bytes, 1)) for o in observations]),
    )


def object_seconds(observation: Observation[S3SettingT]) -> float:
    """Seconds that creating and completing the object took; 0 where they were not measured."""
    measures = observation.measures
    return measures.get("create_seconds", 0.0) + measures.get("complete_seconds", 0.0)


def _doubt_of_the_refused(observation: Observation[S3SettingT]) -> float:
    """By how much the noise scale grows where a probe ended without those that were refused, or soon after."""
    measures = observation.measures
    is_whole = observation.transferred_bytes >= observation.context.payload_size_bytes
    is_steady = measures.get("steady_throughput_bytes_per_second", 0.0) > 0
    return 0.0 if is_whole or is_steady or "admitted_count" not in measures else _WAITED / SIGMA_TYPICAL


_STRAGGLED = 2.0  # times as long as nine of ten requests, wave by wave, account for


def _doubt_of_the_end(observation: Observation[S3SettingT], shape: _Shape) -> float:
    """By how much the noise scale grows where all waited for a request or two, so that the rest says what is usual.

    One GET of thousands takes a second: where 64 ranges are read at a time in a tenth of that, it makes the transfer
    look like one of a server that collapses under so many, of which every request would be slow.
    """
    p90 = observation.measures.get(f"{observation.setting.direction.part_noun}_seconds_p90", 0.0)
    usual = object_seconds(observation) + (shape.full + (shape.rest > 0)) * p90
    ratio = observation.duration_seconds / usual if p90 > 0 else 1.0
    return max(log(ratio / _STRAGGLED), 0.0) / SIGMA_TYPICAL


_PART_SPREAD = 0.3  # of the time of one part, relative: how well a mean of parts is known


def _idle(observation: Observation[S3SettingT], shape: _Shape) -> list[tuple[float, float]]:
    """The idle share of the connections' time, with its noise scale, where part times are known."""
    mean = observation.measures.get(f"{observation.setting.direction.part_noun}_seconds_mean", 0.0)
    if mean <= 0:
        return []
    idle = 1.0 - shape.parts * mean / (shape.n * observation.duration_seconds)
    value = max(idle, 0.25 * IDLE_FLOOR - IDLE_FLOOR) + IDLE_FLOOR
    spread = _PART_SPREAD / shape.parts**0.5 / value
    return [(log(value), max(2.0, spread / SIGMA_TYPICAL))]
