"""Knows how an observation of a transfer is turned into rows of evidence.

These measures of an observation are used if present: `part_count`, `connection_count`, `create_seconds`,
`complete_seconds`, `first_byte_seconds_mean` and `steady_throughput_bytes_per_second`. With the duration,
`part_seconds_mean` says how long connections were idle, a ratio in which the day's noise cancels. It also cancels in
`client_cpu_demand_fraction`, which with the throughput says how much the client's processor can do with `worker_count`
processes. If `bw_out_allowance_exceeded` is a good share of `host_transmitted_packet_count`, the host's network was at
its ceiling.

These are the names for uploads; other directions have their own (`Direction`).
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

# The newest observations keep all rows. Older ones keep only throughput, which halves the time of a fit, and refusals:
# advice below a limit meets no more refusals, and would cross it again if the limit were forgotten.
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
    """Whether each observation met the limit on requests: if refusals are common, even a few of them count."""
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
    """The rows of one observation; none if nothing was transferred."""
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
    refused_many = observation.throttled_count > _TRUSTED_REFUSED_FRACTION * observation.request_count
    is_trusted = float(is_refused and refused_many)
    steady = observation.measures.get("steady_throughput_bytes_per_second", 0.0)
    is_whole = observation.transferred_bytes >= observation.context.payload_size_bytes and shape.objects > 0
    if steady > 0 and not is_whole:
        noise_scale = throughput_noise_scale(shape.n) + doubt
        rows = [row(Kind.STEADY, log(steady), noise_scale, is_trusted=is_trusted)]
    else:
        value = log(observation.throughput_bytes_per_second)
        rows = [row(Kind.WHOLE, value, throughput_noise_scale(shape.n) + doubt, is_trusted=is_trusted)]
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
    """The logarithm of the requests per second that were admitted while others were refused, with its noise scale.

    At the end of a probe only the refused requests are still waiting. So the rate is the one while some were refused,
    or, if the probe does not state it, the `steady` rate or the mean over the whole duration.
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


# Of the requests: more refusals explain any loss, which then is no dip. Fewer do not make it three times as slow.
_TRUSTED_REFUSED_FRACTION = 0.15
# By how much the rate that goes through may lie below the admitted rate: a logarithm, over the share of refusals. A
# bucket of three requests that refuses one in thirty by chance admits a quarter less than its rate.
_REFUSED_BY_CHANCE = 0.01
_TOKENS_UNKNOWN = 1.0  # in a bucket that was found empty: less than the next request needs
_WAITED = 0.4  # as a logarithm: in short probes, refused requests wait for as long as all others take
# The share of time for which the busiest process must have run to say what a full processor can do. Waiting for the
# processor is no such evidence: on a crowded host, a process that wakes up for ten parts in five seconds waits for a
# third of them.
_CPU_TOLD = 0.1
_CPU_BOUND = 0.9
# The time to the first byte is not all of a request's fixed time, and includes waiting in queues.
_FIRST_BYTE_NOISE = 4.0
_HOST_BOUND = 0.01  # of the packets were queued or dropped by the host; short bursts affect fewer


def _is_cpu_bound(observation: Observation[S3SettingT]) -> bool:
    return _cpu_demand(observation) >= _CPU_BOUND


def _cpu_demand(observation: Observation[S3SettingT]) -> float:
    return min(observation.measures.get("client_cpu_demand_fraction", 0.0), 1.0)


def _crowding(observation: Observation[S3SettingT]) -> float:
    """The addition to the noise scale if others used the processor: next time it may be more or less crowded."""
    demand = _cpu_demand(observation)
    ran = min(max(observation.client_cpu_fraction, _RAN_LEAST), demand)
    return log(demand / ran) / SIGMA_TYPICAL if ran > 0 else 0.0


_RAN_LEAST = 0.01  # of the time; less is too little to say anything


def _host_bound_flags(observations: Sequence[Observation[S3SettingT]], bursts: Sequence[bool]) -> list[bool]:
    """Whether the host's network allowance held each observation back at the ceiling of its regime.

    The driver also counts short bursts and, with segmentation offload, large buffers: it reported more than 1 % at a
    quarter of what the same host reached. So fewer connections must have been free of it, and nothing in the same
    regime may have been much faster.
    """
    pairs = list(zip(observations, bursts, strict=True))
    fastest, fewest = {False: 0.0, True: 0.0}, {False: inf, True: inf}
    for o, is_burst in pairs:
        fastest[is_burst] = max(fastest[is_burst], o.throughput_bytes_per_second)
        if o.client == "penstock" and not _is_host_bound(o):  # reports do not count packets
            fewest[is_burst] = min(fewest[is_burst], connections_used(o))
    return [
        _is_host_bound(o)
        and o.throughput_bytes_per_second >= _PLATEAU * fastest[is_burst]
        and connections_used(o) > fewest[is_burst]
        for o, is_burst in pairs
    ]


_PLATEAU = 0.8  # of the fastest: still the same ceiling, given how measurements vary


def _is_host_bound(observation: Observation[S3SettingT]) -> bool:
    measures, direction = observation.measures, observation.setting.direction
    packets = measures.get(direction.packet_measure, 0.0)
    return measures.get(direction.allowance_measure, 0.0) > _HOST_BOUND * packets > 0


def _without_outgrown(
    observations: Sequence[Observation[S3SettingT]], workers: float
) -> list[Observation[S3SettingT]]:
    """The observations without those that fewer than `workers` processes made at the limit of their processors."""
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
    """The number of connections that had something to do: at most the number of requests."""
    return _shape(observation).n


def moved(observations: Sequence[Observation[S3SettingT]], *, is_burst: bool) -> Transfers:
    """The transfers of these observations, split as in the rows of evidence: an object moved whole is one request."""
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
    """Seconds to create and complete the object; 0 if not measured."""
    measures = observation.measures
    return measures.get("create_seconds", 0.0) + measures.get("complete_seconds", 0.0)


def _doubt_of_the_refused(observation: Observation[S3SettingT]) -> float:
    """The addition to the noise scale if a probe ended without its refused requests, or soon after them."""
    measures = observation.measures
    is_whole = observation.transferred_bytes >= observation.context.payload_size_bytes
    is_steady = measures.get("steady_throughput_bytes_per_second", 0.0) > 0
    return 0.0 if is_whole or is_steady or "admitted_count" not in measures else _WAITED / SIGMA_TYPICAL


_STRAGGLED = 2.0  # times the duration that the 90th percentile of requests, wave by wave, accounts for


def _doubt_of_the_end(observation: Observation[S3SettingT], shape: _Shape) -> float:
    """The addition to the noise scale if the whole transfer waited for one or two requests.

    One GET in thousands takes a second. If 64 ranges are read at a time in a tenth of that, this one makes the transfer
    look like that of a server that collapses under so many requests, although there every request would be slow.
    """
    p90 = observation.measures.get(f"{observation.setting.direction.part_noun}_seconds_p90", 0.0)
    usual = object_seconds(observation) + (shape.full + (shape.rest > 0)) * p90
    ratio = observation.duration_seconds / usual if p90 > 0 else 1.0
    return max(log(ratio / _STRAGGLED), 0.0) / SIGMA_TYPICAL


_PART_SPREAD = 0.3  # relative standard deviation of the time of one part, for the error of their mean


def _idle(observation: Observation[S3SettingT], shape: _Shape) -> list[tuple[float, float]]:
    """The logarithm of the idle share of the connections' time and its noise scale; empty if part times are unknown."""
    mean = observation.measures.get(f"{observation.setting.direction.part_noun}_seconds_mean", 0.0)
    if mean <= 0:
        return []
    idle = 1.0 - shape.parts * mean / (shape.n * observation.duration_seconds)
    value = max(idle, 0.25 * IDLE_FLOOR - IDLE_FLOOR) + IDLE_FLOOR
    spread = _PART_SPREAD / shape.parts**0.5 / value
    return [(log(value), max(2.0, spread / SIGMA_TYPICAL))]
