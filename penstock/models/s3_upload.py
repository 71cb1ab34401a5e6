"""Knows how fast one S3 upload goes: its knobs, the settings that S3 accepts, and the physics of the transfer.

One request of s bytes on a warm connection takes L + s/B, so n connections move n s / (L + s/B) until something gives:

    T(n, s)  = softmin_p( n s / (L + s/B),  H,  R s ) / overload / throttling
    H        = softmin_p( C,  s / (a + b s) )             the host: its network C, its CPU per request and per byte
    overload = 1 + beta max(0, q - k),    q = n s / (L + s/B) / H     past about twice the knee throughput falls
    throttling = 1 + gamma max(0, demanded requests / R - 1)          503s cost more than the requests they refuse

A path with a window of W bytes and a round trip of RTT holds one connection to W/RTT: that is B, whichever of
the two is smaller, and no measurement of throughput can tell them apart.

One object of S bytes has k = ceil(S/s) parts. They go in floor(k/n) full waves of n and a last one of what remains,

    lockstep = full n s / T(n, s) + rest s / T(rest, s)

which is a step for connections (an almost empty wave takes as long as a full one) and smooth where the host is full.
Parts take unequal times, so waves dissolve into a flow, and the last part comes late by a share h of a part's time:

    flow     = k s / T(n, s)
    seconds  = (1 - m) lockstep + m flow + cold + h n s / T(n, s) + D + d k      D, d: create and complete
    cold     = max(0, (1 + c) L + s/B - n s / T(n, s))

with neither h nor D nor d for a single PUT. Cold connections shake hands and start slowly, which takes c L for each of
them, at once: a wave that is slower than that for want of a faster host does not feel it.

A payload of at most 5 MiB cannot be split: then n counts objects in flight and T(n, S) is what many of them reach.

Measures of an observation that are used when they are there: `part_count`, `connection_count`, `create_seconds`,
`complete_seconds`, `steady_throughput_bytes_per_second`, and `part_seconds_mean`: with the duration it says how long
connections were idle, a ratio in which the noise of the day cancels. So does it in `client_cpu_demand_fraction`, which
says how much the processor of the client has to give, with `worker_count` processes; and
`bw_out_allowance_exceeded`, a good share of `host_transmitted_packet_count`, that it was all that the host may send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, exp, inf, log
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.models import burst, drift, shapeless
from penstock.models.model import STATE_VERSION, Appraisal, Fit, shortfall
from penstock.models.prices import upload_usd
from penstock.models.regression import (
    Gaussian,
    Measurements,
    Misfit,
    Peak,
    Problem,
    law_log_evidence,
    learn_misfit,
    log_evidence,
    matern,
    maximise,
    noise_covariance,
    refine,
    sample,
)
from penstock.units import GiB, MiB
from penstock.vocabulary import (
    UNKNOWN,
    Context,
    Cost,
    Demand,
    Estimate,
    Observation,
    Place,
    Prediction,
    Regime,
    knob,
)

Array = NDArray[np.float64]

PART_COUNT_MAX = 10_000
PART_SIZE_BYTES_MIN = 5 * MiB  # the last part may be smaller
PART_SIZE_BYTES_MAX = 5 * GiB
THREAD_COUNT_MAX = 1024

DRAW_COUNT = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class S3UploadSetting:
    """How one object is uploaded. A part size at or above the object's size means a single PUT."""

    thread_count: int = knob(1, THREAD_COUNT_MAX, is_divided=True)
    part_size_bytes: int = knob(PART_SIZE_BYTES_MIN, PART_SIZE_BYTES_MAX)


PARAMETERS = (
    "request_seconds",  # L
    "connection_bytes_per_second",  # B
    "host_bytes_per_second",  # C, sustained
    "burst_factor",  # C while there are credits, over C
    "prefix_requests_per_second",  # R
    "cpu_seconds_per_request",  # a
    "cpu_seconds_per_byte",  # b
    "knee_sharpness",  # p
    "overload_slope",  # beta
    "overload_onset",  # k
    "throttling_slope",  # gamma
    "object_seconds",  # D
    "object_seconds_per_part",  # d
    "wave_mixing",  # m / (1 - m)
    "tail_share",  # h
    "cold_latencies",  # c
)
_L, _B, _C, _G, _R, _CPU_REQUEST, _CPU_BYTE, _P, _BETA, _ONSET, _GAMMA, _D, _D_PART, _MIXING, _TAIL, _COLD = (
    range(len(PARAMETERS))
)

# Typical value and spread of its logarithm. S3: 30 ms and 20 MB/s for PUT are what AWS's own transfer manager assumes
# (Express One Zone: 7.3 ms, 110 MB/s); paths out of the region are slower by up to a hundred.
_TYPICAL: dict[str, tuple[float, float]] = {
    "request_seconds": (0.035, 0.9),
    "connection_bytes_per_second": (20e6, 1.2),
    "host_bytes_per_second": (500e6, 1.8),
    "burst_factor": (1.0, 0.01),
    "prefix_requests_per_second": (3500.0, 0.5),
    "cpu_seconds_per_request": (2e-4, 2.0),
    "cpu_seconds_per_byte": (1 / 3e9, 1.0),
    "knee_sharpness": (6.0, 1.0),
    "overload_slope": (0.05, 1.5),
    "overload_onset": (2.0, 0.3),
    "throttling_slope": (0.5, 0.8),
    "object_seconds": (0.12, 0.9),
    "object_seconds_per_part": (3e-4, 1.2),
    "wave_mixing": (1.0, 1.2),
    "tail_share": (0.3, 0.8),
    "cold_latencies": (
        2.0,
        1.0,
    ),  # three round trips and slow start far away, nothing where connections are kept
}
_TYPICAL_EXPRESS = {
    "request_seconds": (0.0073, 0.7),
    "connection_bytes_per_second": (110e6, 0.7),
    "prefix_requests_per_second": (200_000.0, 0.5),
    "object_seconds": (0.03, 0.8),
}
_SLOW_IS_FAR = -0.6  # correlation of L and B: a long round trip slows a connection and each of its requests
_KNOWN_HOST_SPREAD = 0.25
_BURST_SPREAD = 0.9  # a long path may end far below the burst rate, which says nothing about the baseline


def _table_prior(place: Place) -> Gaussian:
    """What tables say about a place that nobody measured."""
    typical = dict(_TYPICAL)
    if place.service_class == "express":
        typical |= _TYPICAL_EXPRESS
    limits = burst.ceiling(place.instance_type)
    if limits is not None:
        typical["host_bytes_per_second"] = (limits.baseline_bytes_per_second, _KNOWN_HOST_SPREAD)
    if limits is not None and limits.is_burstable:
        factor = limits.burst_bytes_per_second / limits.baseline_bytes_per_second
        typical["burst_factor"] = (factor, _BURST_SPREAD)
    mean = np.log([typical[name][0] for name in PARAMETERS])
    spread = np.array([typical[name][1] for name in PARAMETERS])
    covariance = np.diag(spread**2)
    covariance[_L, _B] = covariance[_B, _L] = _SLOW_IS_FAR * spread[_L] * spread[_B]
    return Gaussian(mean=mean, covariance=covariance)


# --- The law, for arrays: parameters (draws, 12) and settings (settings,) give (draws, settings). ---


def _column(theta: Array, index: int) -> Array:
    return theta[:, index][:, None]


def _softmin(p: Array, one: Array, other: Array) -> Array:
    gap = np.abs(one - other)
    return np.asarray(np.minimum(one, other) - np.log1p(np.exp(-p * gap)) / p, dtype=np.float64)


def _log_rate(theta: Array, n: Array, s: Array, is_burst: Array) -> Array:
    """Logarithm of T(n, s), bytes per second with n connections busy."""
    log_s, p = np.log(s), np.exp(_column(theta, _P))
    connections, host = _log_limits(theta, np.log(n), log_s, is_burst)
    prefix = _column(theta, _R) + log_s
    reached = _softmin(p, connections, host)
    throttling = _log_throttling(theta, reached - prefix)
    overload = _log_overload(theta, connections - host)
    return np.asarray(_softmin(p, reached, prefix) - overload - throttling, dtype=np.float64)


def _log_overload(theta: Array, log_demand: Array) -> Array:
    """What connections cost that are more than the host can feed; `log_demand` is of all they could carry over that."""
    excess = np.exp(np.minimum(log_demand, 7.0)) - np.exp(_column(theta, _ONSET))
    return np.asarray(np.log1p(np.exp(_column(theta, _BETA)) * np.maximum(excess, 0.0)), dtype=np.float64)


def _log_limits(theta: Array, log_n: Array, log_s: Array, is_burst: Array) -> tuple[Array, Array]:
    """Logarithms of what the connections and what the host could carry, bytes per second."""
    connections = log_n + log_s - np.logaddexp(_column(theta, _L), log_s - _column(theta, _B))
    return connections, _softmin(
        np.exp(_column(theta, _P)), _log_network(theta, is_burst), _log_cpu(theta, log_s)
    )


_LOG_EXCESS_MAX = 0.9  # 2.5 times what is admitted


def _log_throttling(theta: Array, log_excess: Array) -> Array:
    """What refusals cost of the rate that is admitted, where so much more is demanded.

    It is bounded: connections that wait before they ask again do not ask.
    """
    refused = np.exp(np.minimum(log_excess, _LOG_EXCESS_MAX)) - 1.0
    return np.asarray(np.log1p(np.exp(_column(theta, _GAMMA)) * np.maximum(refused, 0.0)), dtype=np.float64)


def _log_admitted(theta: Array, log_n: Array, log_s: Array, is_burst: Array) -> Array:
    """Logarithm of the requests per second that are admitted while others are refused."""
    demanded = np.minimum(*_log_limits(theta, log_n, log_s, is_burst)) - log_s
    return np.asarray(
        _column(theta, _R) - _log_throttling(theta, demanded - _column(theta, _R)), dtype=np.float64
    )


def _log_network(theta: Array, is_burst: Array) -> Array:
    """Logarithm of what the host may send, bytes per second."""
    return np.asarray(_column(theta, _C) + is_burst * np.maximum(_column(theta, _G), 0.0), dtype=np.float64)


def _log_cpu(theta: Array, log_s: Array) -> Array:
    """Logarithm of what the client's processor can send in requests of s bytes, bytes per second."""
    cost = np.logaddexp(_column(theta, _CPU_REQUEST), _column(theta, _CPU_BYTE) + log_s)
    return np.asarray(log_s - cost, dtype=np.float64)


def _log_cpu_beside(theta: Array, log_n: Array, log_s: Array, is_burst: Array) -> Array:
    """The same beside n connections: where the processor is the host's limit, they cost it their switching as well."""
    connections, host = _log_limits(theta, log_n, log_s, is_burst)
    cpu, network = _log_cpu(theta, log_s), _log_network(theta, is_burst)
    is_limit = 1.0 / (1.0 + np.exp(-_LIMIT_SHARPNESS * np.clip(network - cpu, -2.0, 2.0)))
    return np.asarray(cpu - is_limit * _log_overload(theta, connections - host), dtype=np.float64)


_LIMIT_SHARPNESS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transfers:
    """Arrays that say how bytes are split: `full` waves of n requests of s bytes, then `rest` requests.

    Without waves (a share of a large object, or a stream of small ones) only the steady rate counts.
    """

    n: Array
    s: Array
    full: Array
    rest: Array
    transferred: Array
    objects: Array  # times D
    is_burst: Array
    is_steady: NDArray[np.bool_]
    size: Array  # of one object

    def log_throughput(self, theta: Array) -> Array:
        """Logarithm of bytes per second, (draws, settings)."""
        return self.whole(theta)[0]

    def whole(self, theta: Array) -> tuple[Array, Array]:
        """Logarithm of bytes per second, and the share of the connections' time that no request used."""
        steady = _log_rate(theta, self.n, self.s, self.is_burst)
        if self.is_steady.all():
            return steady, np.zeros_like(steady)
        wave = self.n * self.s * np.exp(-steady)
        last = self._last_wave(theta)
        lockstep = self.full * wave + last
        parts = self.full * self.n + self.rest
        mixing = 1.0 / (1.0 + np.exp(-_column(theta, _MIXING)))
        flow = parts / self.n * wave
        moving = np.where(parts > self.n, (1.0 - mixing) * lockstep + mixing * flow, lockstep)
        late = (
            np.exp(_column(theta, _TAIL)) * wave
            + np.exp(_column(theta, _D))
            + parts * np.exp(_column(theta, _D_PART))
        )
        cold = self._cold_start(theta, wave)
        seconds = moving + cold + self.objects * late
        busy = self.full * self.n * wave + self.rest * last + self.n * cold
        idle = 1.0 - busy / (self.n * seconds)
        whole = np.log(np.maximum(self.transferred, 1.0)) - np.log(seconds)
        return np.where(self.is_steady, steady, whole), idle

    def _cold_start(self, theta: Array, wave: Array) -> Array:
        """Seconds by which the first wave is later than the others."""
        latency = np.exp(_column(theta, _L)) * (1.0 + np.exp(_column(theta, _COLD)))
        return np.asarray(
            np.maximum(latency + self.s * np.exp(-_column(theta, _B)) - wave, 0.0), dtype=np.float64
        )

    def _last_wave(self, theta: Array) -> Array:
        """Seconds of the requests that are left after the full waves; computed only where there are any."""
        left = np.flatnonzero((self.rest > 0) & ~self.is_steady)
        seconds = np.zeros((len(theta), len(self.n)))
        if len(left):
            rest, s = self.rest[left], self.s[left]
            seconds[:, left] = rest * s * np.exp(-_log_rate(theta, rest, s, self.is_burst[left]))
        return seconds


def _planned(
    size: Array, thread_count: Array, part_size_bytes: Array, *, object_count: int, is_burst: bool
) -> _Transfers:
    """Whole objects of these sizes, `object_count` of them at a time."""
    s = np.minimum(part_size_bytes, size)
    parts = np.ceil(size / s)
    requests = parts * max(object_count, 1)
    stream = size <= PART_SIZE_BYTES_MIN
    n = np.where(stream, thread_count, np.minimum(thread_count, requests))
    full = np.floor(requests / n)
    return _Transfers(
        n=n,
        s=size / parts,  # the last part may be short: the mean is what moves
        full=full,
        rest=requests - full * n,
        transferred=size * max(object_count, 1),
        objects=np.where(parts > 1, 1.0, 0.0),
        is_burst=np.full(s.shape, float(is_burst)),
        is_steady=stream,
        size=size,
    )


# --- Evidence: what observations say about the law. ---


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    """Rows of numbers, as they are kept in `Fit.state`; each is one equation for the parameters."""

    rows: tuple[_Row, ...]

    @cached_property
    def table(self) -> Array:
        return np.array(self.rows, dtype=np.float64).reshape(-1, len(_ROW))

    def column(self, name: str) -> Array:
        return self.table[:, _ROW.index(name)]

    def law(self) -> Law:
        return Law(self)

    def problem(self, prior: Gaussian, misfit: Misfit | None = None) -> Problem:
        return Problem(law=self.law(), data=self.measurements(), prior=prior, misfit=misfit or Misfit())

    def measurements(self) -> Measurements:
        return Measurements(
            log_values=self.column("log_value"),
            noise_scale=self.column("noise_scale"),
            is_trusted=self.column("is_trusted") > 0,
            coordinates=np.stack([np.log2(self.column("n")), np.log2(self.column("s"))], axis=1),
            has_misfit=self.column("kind") <= _STEADY,
            group=self.column("client").astype(np.int64),
            hours=self.column("hours"),
        )

    def is_sight(self) -> NDArray[np.bool_]:
        """Which rows are throughput that penstock measured itself, or anybody where it measured none."""
        rates = self.column("kind") <= _STEADY
        own = rates & (self.column("client") < 0)
        return own if own.any() else rates

    def sightings(self, weights: Array) -> shapeless.Sightings:
        """What was measured of throughput, as one sees it who knows no law. `weights` are those of all rows."""
        rates = self.is_sight()
        names = ("n", "s", "size")
        return shapeless.Sightings(
            points=np.log2(np.stack([self.column(name)[rates] for name in names], axis=1)),
            log_values=self.column("log_value")[rates],
            noise_scale=self.column("noise_scale")[rates],
            weights=np.minimum(weights[rates], 1.0),
        )


_Row: TypeAlias = tuple[float, ...]
_ROW = (
    "kind",
    "log_value",
    "noise_scale",
    "is_trusted",
    "client",
    "n",
    "s",
    "full",
    "rest",
    "transferred",
    "objects",
    "is_burst",
    "hours",
    "observation",
    "size",
)
_WHOLE, _STEADY, _OBJECT, _THROTTLED, _IDLE, _CPU, _CEILING = range(7)
_DETAILED_COUNT = (
    24  # observations, the newest: of older ones only the throughput is kept, which saves half the fit
)
_IDLE_FLOOR = 0.02  # idle shares below this are alike


class Law:
    """The logarithm of each row of evidence, for `regression`.

    Rows about one transfer, and transfers that were split alike, share what is computed of them.
    """

    def __init__(self, evidence: _Evidence) -> None:
        kind = evidence.column("kind")
        self._is_idle, self._is_object, self._is_throttled = (kind == k for k in (_IDLE, _OBJECT, _THROTTLED))
        self._is_cpu, self._is_ceiling = kind == _CPU, kind == _CEILING
        self._log_n, self._log_s = np.log(evidence.column("n")), np.log(evidence.column("s"))
        self._is_burst = evidence.column("is_burst")
        is_steady = (kind != _WHOLE) & (kind != _IDLE)
        columns = [evidence.column(name) for name in _SPLIT_COLUMNS]
        parts = columns[2] * columns[0] + columns[3]
        self._parts = np.maximum(parts, 1.0)
        table = np.stack([*columns, is_steady], axis=1)
        unique, self._place = _unique_rows(table, kind)
        n, s, full, rest, transferred, objects, is_burst, steady = unique.T
        self._transfers = _Transfers(
            n=n,
            s=s,
            full=full,
            rest=rest,
            transferred=transferred,
            objects=objects,
            is_burst=is_burst,
            is_steady=steady > 0,
            size=transferred,
        )

    def __call__(self, theta: Array) -> Array:
        values, idle = (both[:, self._place] for both in self._transfers.whole(theta))
        if self._is_idle.any():
            shares = np.log(np.maximum(idle[:, self._is_idle], 0.0) + _IDLE_FLOOR)
            values[:, self._is_idle] = shares
        if self._is_object.any():
            parts = self._parts[self._is_object]
            ending = np.logaddexp(_column(theta, _D), _column(theta, _D_PART) + np.log(parts))
            values[:, self._is_object] = ending
        if self._is_throttled.any():
            values[:, self._is_throttled] = _log_admitted(
                theta, *(each[self._is_throttled] for each in (self._log_n, self._log_s, self._is_burst))
            )
        if self._is_cpu.any():
            values[:, self._is_cpu] = _log_cpu_beside(
                theta, *(each[self._is_cpu] for each in (self._log_n, self._log_s, self._is_burst))
            )
        if self._is_ceiling.any():
            values[:, self._is_ceiling] = _log_network(theta, self._is_burst[self._is_ceiling])
        return np.asarray(values, dtype=np.float64)


_SPLIT_COLUMNS = ("n", "s", "full", "rest", "transferred", "objects", "is_burst")


def _unique_rows(table: Array, kind: Array) -> tuple[Array, NDArray[np.int64]]:
    """The different transfers, and for each row which of them it is about (any, where it is about none)."""
    timed = np.isin(kind, (_WHOLE, _STEADY, _IDLE))
    unique, inverse = np.unique(table[timed], axis=0, return_inverse=True)
    place = np.zeros(len(table), dtype=np.int64)
    place[timed] = inverse.reshape(-1)
    return unique if len(unique) else table[:1], place


def _evidence(place: Place, observations: Sequence[Observation[S3UploadSetting]]) -> _Evidence:
    limits = burst.ceiling(place.instance_type)
    workers = max((_worker_count(observation) for observation in observations), default=1.0)
    observations = _without_outgrown(observations, workers)
    bursts = _burst_flags(limits, observations)
    clients = sorted({o.client for o in observations} - {"penstock"})
    rows: list[_Row] = []
    for index, (observation, is_burst) in enumerate(zip(observations, bursts, strict=True)):
        client = clients.index(observation.client) if observation.client in clients else -1
        is_recent = index >= len(observations) - _DETAILED_COUNT
        rows += [
            row
            for row in _rows(observation, float(is_burst), client, workers, index)
            if is_recent or row[0] <= _STEADY
        ]
    return _Evidence(rows=tuple(rows))


def _burst_flags(
    limits: burst.Ceiling | None, observations: Sequence[Observation[S3UploadSetting]]
) -> list[bool]:
    """Whether each observation was made on credits. Only what was faster than the baseline says so for certain.

    What was slower is as well explained without credits, whether there were some or not: nobody knows the traffic
    that others sent.
    """
    if limits is None or not limits.is_burstable:
        return [False] * len(observations)
    fast = _ON_CREDITS * limits.baseline_bytes_per_second
    return [o.throughput_bytes_per_second > fast for o in observations]


_ON_CREDITS = 1.3


def _rows(
    observation: Observation[S3UploadSetting], is_burst: float, client: int, workers: float, index: int
) -> list[_Row]:
    """The equations of one observation; none when nothing arrived."""
    if observation.transferred_bytes <= 0 or observation.duration_seconds <= 0:
        return []
    shape = _shape(observation)
    hours = observation.started_at.timestamp() / 3600.0
    size = float(max(observation.context.payload_size_bytes, 1))
    throttled = observation.throttled_count > 0
    trusted = float(throttled or observation.failed_count > 0)

    def row(kind: int, value: float, noise_scale: float = 1.0, *, is_trusted: float = 0.0) -> _Row:
        place = (
            shape.n,
            shape.s,
            shape.full,
            shape.rest,
            float(observation.transferred_bytes),
            shape.objects,
        )
        group = float(client) if kind <= _STEADY else -1.0
        about = (float(kind), value, noise_scale, is_trusted, group)
        return (*about, *place, is_burst, hours, float(index), size)

    steady = observation.measures.get("steady_throughput_bytes_per_second", 0.0)
    is_whole = observation.transferred_bytes >= observation.context.payload_size_bytes and shape.objects > 0
    if steady > 0 and not is_whole:
        rows = [row(_STEADY, log(steady), _spread(shape.n), is_trusted=trusted)]
    else:
        value = log(observation.throughput_bytes_per_second)
        rows = [row(_WHOLE, value, _spread(shape.n), is_trusted=trusted)]
    if shape.objects > 0:
        rows += [row(_IDLE, *idle) for idle in _idle(observation, shape)]
    if _object_seconds(observation) > 0:
        rows.append(row(_OBJECT, log(_object_seconds(observation)), 4.0))
    if _cpu_demand(observation) >= _CPU_TOLD:
        share = _cpu_demand(observation) * _worker_count(observation) / workers
        rows.append(row(_CPU, log(observation.throughput_bytes_per_second / share), 2.0))
    if _is_host_bound(observation):
        rows.append(row(_CEILING, rows[0][1], 2.0))
    if throttled:
        accepted = (
            max(observation.request_count - observation.throttled_count, 1) / observation.duration_seconds
        )
        rows.append(row(_THROTTLED, log(accepted), 2.0, is_trusted=1.0))
    return rows


_CPU_TOLD = 0.1  # of the time the busiest process ran or waited for a processor: enough to say what all of it would do
_CPU_BOUND = 0.9
_HOST_BOUND = 0.01  # of its packets the host queued or dropped; a burst of an instant touches fewer


def _is_cpu_bound(observation: Observation[S3UploadSetting]) -> bool:
    return _cpu_demand(observation) >= _CPU_BOUND


def _cpu_demand(observation: Observation[S3UploadSetting]) -> float:
    return min(observation.measures.get("client_cpu_demand_fraction", 0.0), 1.0)


def _is_host_bound(observation: Observation[S3UploadSetting]) -> bool:
    measures = observation.measures
    sent = measures.get("host_transmitted_packet_count", 0.0)
    return measures.get("bw_out_allowance_exceeded", 0.0) > _HOST_BOUND * sent > 0


def _without_outgrown(
    observations: Sequence[Observation[S3UploadSetting]], workers: float
) -> list[Observation[S3UploadSetting]]:
    """Leave out what fewer processes measured at their limit, once so many of them measured here."""
    return [o for o in observations if not _is_cpu_bound(o) or _worker_count(o) >= workers]


def _worker_count(observation: Observation[S3UploadSetting]) -> float:
    return observation.measures.get("worker_count", 1.0)


def _spread(connection_count: float) -> float:
    """How much throughput varies, over the typical: more connections meet more of the day's traffic.

    A coefficient of variation of 5 % with one connection and of 12 % with 256, as published S3 curves have it.
    """
    return 0.62 + 0.11 * float(np.log2(connection_count))


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


def _shape(observation: Observation[S3UploadSetting]) -> _Shape:
    measures, size = observation.measures, max(observation.context.payload_size_bytes, 1)
    s = float(min(observation.setting.part_size_bytes, size))
    parts = max(1.0, measures.get("part_count", ceil(observation.transferred_bytes / s)))
    n = min(measures.get("connection_count", float(observation.setting.thread_count)), parts)
    full = float(parts // n)
    return _Shape(n, observation.transferred_bytes / parts, full, parts - full * n, 1.0 if s < size else 0.0)


def _object_seconds(observation: Observation[S3UploadSetting]) -> float:
    measures = observation.measures
    return measures.get("create_seconds", 0.0) + measures.get("complete_seconds", 0.0)


_PART_SPREAD = 0.3  # of the time of one part, relative: how well a mean of parts is known


def _idle(observation: Observation[S3UploadSetting], shape: _Shape) -> list[tuple[float, float]]:
    """The idle share of the connections' time, with its noise scale, where part times are known."""
    mean = observation.measures.get("part_seconds_mean", 0.0)
    if mean <= 0:
        return []
    idle = 1.0 - shape.parts * mean / (shape.n * observation.duration_seconds)
    value = max(idle, 0.25 * _IDLE_FLOOR - _IDLE_FLOOR) + _IDLE_FLOOR
    spread = _PART_SPREAD / shape.parts**0.5 / value
    return [(log(value), max(2.0, spread / 0.08))]


# --- What a fit remembers. ---

_STATE_VERSION = 4  # of what follows; fits that were stored under another are not read


@dataclass(frozen=True, slots=True, kw_only=True)
class _Posterior:
    """Draws of the parameters, and the evidence around them: enough to predict."""

    draws: Array
    sigma: float
    misfit: Misfit
    evidence: _Evidence
    weights: Array
    shapes: Array | None  # of what is known without the law, where the law is not believed
    credit_bytes: float | None

    def to_state(self) -> dict[str, Any]:
        return {
            STATE_VERSION: _STATE_VERSION,
            "draws": self.draws.tolist(),
            "sigma": self.sigma,
            "misfit_amplitude": self.misfit.amplitude,
            "misfit_doubt": self.misfit.doubt,
            "misfit_weather": self.misfit.weather,
            "misfit_length_octaves": list(self.misfit.length_octaves),
            "rows": [list(row) for row in self.evidence.rows],
            "weights": self.weights.tolist(),
            "shapes": None if self.shapes is None else self.shapes.tolist(),
            "credit_bytes": self.credit_bytes,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> _Posterior:
        first, second = state["misfit_length_octaves"]
        return cls(
            draws=np.array(state["draws"], dtype=np.float64),
            sigma=state["sigma"],
            misfit=Misfit(
                amplitude=state["misfit_amplitude"],
                doubt=state["misfit_doubt"],
                weather=state["misfit_weather"],
                length_octaves=(first, second),
            ),
            evidence=_Evidence(rows=tuple(tuple(row) for row in state["rows"])),
            weights=np.array(state["weights"], dtype=np.float64),
            shapes=None if state["shapes"] is None else np.array(state["shapes"], dtype=np.float64),
            credit_bytes=state["credit_bytes"],
        )

    def log_throughput(self, transfers: _Transfers) -> Array:
        """Draws of the logarithm, (draws, settings)."""
        if self.shapes is not None:
            return shapeless.means(self.evidence.sightings(self.weights), self.shapes, _points(transfers))
        values = transfers.log_throughput(self.draws)
        if self.misfit.amplitude == 0 or not self.evidence.rows:
            return values
        return np.asarray(values + self._misfit_at(transfers, self.misfit)[0], dtype=np.float64)

    def misfit_variance(self, transfers: _Transfers) -> Array:
        """How much the law may be off at each setting, as a variance (settings,)."""
        if self.shapes is not None:
            sightings = self.evidence.sightings(self.weights)
            return shapeless.variance(sightings, self.shapes, _points(transfers))
        doubted = replace(self.misfit, amplitude=self.misfit.doubt)
        known = np.zeros(len(transfers.n))
        if self.evidence.rows:
            _, gain, reach = self._misfit_at(transfers, doubted)
            known = np.einsum("sn,ns->s", reach, gain)
        return np.maximum(doubted.amplitude**2 - known, 0.0)

    def sampled(self, transfers: _Transfers) -> Array:
        """Draws of the logarithm with the misfit drawn as well, so that settings far from any measurement differ."""
        values = transfers.log_throughput(self.draws)
        here, doubted = _coordinates(transfers), replace(self.misfit, amplitude=self.misfit.doubt)
        covariance = doubted.amplitude**2 * matern(here, here, doubted.length_octaves)
        if self.evidence.rows:
            shift, gain, reach = self._misfit_at(transfers, doubted)
            values, covariance = values + shift, covariance - reach @ gain
        factor = np.linalg.cholesky(covariance + 1e-6 * np.eye(len(here)))
        normal = np.random.default_rng(len(here)).standard_normal((len(values) // 2, len(here)))
        wiggles = np.concatenate([normal, -normal])[: len(values)] @ factor.T
        return np.asarray(values + wiggles, dtype=np.float64)

    def _misfit_at(self, transfers: _Transfers, misfit: Misfit) -> tuple[Array, Array, Array]:
        """What the Gaussian process adds to each draw, the gain that does it, and the covariance with the evidence."""
        data = self.evidence.measurements()
        reach = matern(_coordinates(transfers), data.coordinates, misfit.length_octaves)
        reach = np.asarray(misfit.amplitude**2 * reach * data.has_misfit, dtype=np.float64)
        residual = data.log_values - self.evidence.law()(self.draws)
        noise = noise_covariance(data, misfit, self.sigma, self.weights)
        gain = np.asarray(np.linalg.solve(noise, reach.T), dtype=np.float64)
        return np.asarray(residual @ gain, dtype=np.float64), gain, reach


def _points(transfers: _Transfers) -> Array:
    return np.stack([np.log2(transfers.n), np.log2(transfers.s), np.log2(transfers.size)], axis=1)


def _coordinates(transfers: _Transfers) -> Array:
    return np.stack([np.log2(transfers.n), np.log2(transfers.s)], axis=1)


# --- The model. ---

_THREADS = (1, 2, 3, 4, 5, 6, 7, 8)
_THREAD_RATIO = 1.13
_PART_SIZES_MIB = (5, 6, 8, 11, 16, 23, 32, 45, 64, 128, 256, 512, 1024, 2048, 5120)
_WAVE_COUNT_MAX = 4  # part sizes that make so many full waves are always considered
_SINGLE_PUT_BYTES_MAX = 64 * MiB
_RAMP_THREADS = (4, 16, 64, 256)
_RAMP_PART_BYTES = 8 * MiB
_OBSERVATION_COUNT_MAX = 64  # the newest: older ones of a place that did not change say the same
_PROBE_WAVES = 3
_WAVE_ROOM = 1.25  # over the expected time of one wave of parts
_PROBE_SECONDS = 2.0
_MULTIPART_REQUESTS = (
    6  # create, complete, and at worst what removes it again; a single PUT is one DELETE a thread
)
_INTERVAL = (
    1.9  # standard deviations for 90 %: more than a normal law's 1.645, because noise is uneven over settings
)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3UploadModel:
    """The mechanistic law with priors, a Gaussian process on its residual, and a watch for change.

    The limits narrow what is ever considered, for a client that has only one of the knobs.
    """

    thread_count_max: int = THREAD_COUNT_MAX
    part_size_bytes_min: int = PART_SIZE_BYTES_MIN
    part_size_bytes_max: int = PART_SIZE_BYTES_MAX

    @property
    def operation(self) -> str:
        """The key in the table of services."""
        return "s3_upload"

    @property
    def state_version(self) -> int:
        """Of what `Fit.state` holds: changes whenever that does."""
        return _STATE_VERSION

    @property
    def setting_type(self) -> type[S3UploadSetting]:
        """Threads and part size."""
        return S3UploadSetting

    @property
    def value_metric(self) -> str:
        """Bytes of the object over the seconds from its first request to its last."""
        return "throughput_bytes_per_second"

    def default_setting(self, context: Context) -> S3UploadSetting:
        """What boto3 does: ten threads, 8 MiB, doubled until there are at most 10,000 parts."""
        part_size_bytes = 8 * MiB
        while ceil(context.payload_size_bytes / part_size_bytes) > PART_COUNT_MAX:
            part_size_bytes *= 2
        return self.legal(context, S3UploadSetting(thread_count=10, part_size_bytes=part_size_bytes))

    def legal(self, context: Context, setting: S3UploadSetting) -> S3UploadSetting:
        """Within 5 MiB to 5 GiB and 10,000 parts; no part larger than the object needs."""
        low = max(PART_SIZE_BYTES_MIN, ceil(context.payload_size_bytes / PART_COUNT_MAX))
        high = max(low, min(PART_SIZE_BYTES_MAX, context.payload_size_bytes))
        return S3UploadSetting(
            thread_count=round(min(max(setting.thread_count, 1), THREAD_COUNT_MAX)),
            part_size_bytes=round(min(max(setting.part_size_bytes, low), high)),
        )

    def ramp(self, context: Context) -> Sequence[S3UploadSetting]:
        """Four threads, then four times as many each time."""
        part = min(max(_RAMP_PART_BYTES, self.part_size_bytes_min), self.part_size_bytes_max)
        threads = [n for n in _RAMP_THREADS if n <= self.thread_count_max] or [self.thread_count_max]
        return [self.legal(context, S3UploadSetting(thread_count=n, part_size_bytes=part)) for n in threads]

    def probe_cost(self, fit: Fit, context: Context, setting: S3UploadSetting) -> Cost:
        """Three waves or two seconds, whichever is more, but at most the object; small objects go in a stream."""
        posterior = _Posterior.from_state(fit.state)
        size = max(context.payload_size_bytes, 1)
        s = min(setting.part_size_bytes, size)
        transfers = self._transfers(context, [setting], Demand())
        rate = float(np.exp(posterior.log_throughput(replace(transfers, is_steady=np.array([True])))).mean())
        wanted = max(_PROBE_WAVES * setting.thread_count * s, rate * _PROBE_SECONDS)
        transferred = wanted if size <= PART_SIZE_BYTES_MIN else min(wanted, size)
        transferred = ceil(transferred / s) * s
        parts = ceil(transferred / s)
        requests = parts + (_MULTIPART_REQUESTS if s < size else min(setting.thread_count, parts))
        seconds = transferred / rate + 1.0
        limits = burst.ceiling(context.place.instance_type)
        spare = limits.baseline_bytes_per_second * seconds if limits and limits.is_burstable else inf
        return Cost(
            transferred_bytes=int(transferred),
            request_count=requests,
            usd=upload_usd(
                context.place.service_class, request_count=requests, transferred_bytes=transferred
            ),
            credit_bytes=int(max(0.0, transferred - spare)),
            duration_seconds=5.0 * seconds,  # a dip must not end the probe
        )

    def probe_seconds_min(self, fit: Fit, context: Context, setting: S3UploadSetting) -> float:
        """One wave of parts at the expected rate, with some room for a slow one."""
        posterior = _Posterior.from_state(fit.state)
        transfers = self._transfers(context, [setting], Demand())
        rate = float(
            np.exp(posterior.log_throughput(replace(transfers, is_steady=np.array([True])))[0]).mean()
        )
        size = max(context.payload_size_bytes, 1)
        part = min(setting.part_size_bytes, size)
        thread_count = min(setting.thread_count, ceil(size / part)) if part < size else setting.thread_count
        return _WAVE_ROOM * thread_count * part / rate

    def measured_value(self, observation: Observation[S3UploadSetting]) -> float:
        """Throughput of a whole object, extended from the share of it that was sent."""
        size = observation.context.payload_size_bytes
        steady = observation.measures.get("steady_throughput_bytes_per_second", 0.0)
        if steady <= 0 or observation.transferred_bytes >= size:
            return observation.throughput_bytes_per_second
        return size / (_object_seconds(observation) + size / steady)

    def fit(
        self,
        place: Place,
        observations: Sequence[Observation[S3UploadSetting]],
        *,
        prior: Fit | None,
        seed: int,
    ) -> Fit:
        """The posterior since the place last changed; from the neighbour's parameters where they fit."""
        ordered = sorted(observations, key=lambda o: o.started_at)[-_OBSERVATION_COUNT_MAX:]
        learned = _learn(place, _evidence(place, ordered), prior, seed)
        return Fit(
            place=place,
            parameters=_parameters(learned.draws),
            observation_count=len(ordered),
            newest_observation_at=max((o.started_at for o in ordered), default=None),
            residual_fraction_p50=learned.residual_fraction_p50,
            is_off_model=learned.shapes is not None,
            drift_count=learned.drift_count,
            state=learned.posterior(_credits(place, ordered)).to_state() | {"cusum": learned.cusum_level},
        )

    def candidates(self, fit: Fit, context: Context, demand: Demand) -> Sequence[S3UploadSetting]:
        """A grid of ratios, with part sizes that divide the object evenly and waves that come out full."""
        del fit
        size = max(context.payload_size_bytes, 1)
        threads = self._thread_ladder(demand)
        sizes = self._part_ladder(context)
        pairs = {(n, s) for n in threads for s in sizes}
        pairs |= {(n, ceil(size / (n * m))) for n in threads for m in range(1, _WAVE_COUNT_MAX + 1)}
        low, high = max(sizes[0], self.part_size_bytes_min), max(sizes[-1], self.part_size_bytes_min)
        settings = {
            self.legal(context, S3UploadSetting(thread_count=_useful(n, s, size, demand), part_size_bytes=s))
            for n, s in pairs
            if low <= s <= high
        }
        allowed = [x for x in settings if _memory_bytes(x, size) <= (demand.memory_bytes_max or inf)]
        least = self.legal(context, S3UploadSetting(thread_count=1, part_size_bytes=low))
        return sorted(allowed or [least], key=lambda x: (x.thread_count, x.part_size_bytes))

    def appraise(
        self, fit: Fit, context: Context, settings: Sequence[S3UploadSetting], demand: Demand
    ) -> Appraisal:
        """Posterior means; a stated bandwidth limit caps the value."""
        posterior = _Posterior.from_state(fit.state)
        transfers = self._transfers(context, settings, demand)
        logs = posterior.log_throughput(transfers)
        latency = self._object_latency(posterior, context, settings, demand, logs)
        if demand.bandwidth_bytes_per_second_max is not None:
            logs = np.minimum(logs, log(demand.bandwidth_bytes_per_second_max))
        drawn = np.exp(logs)
        value = drawn.mean(axis=0)
        return Appraisal(
            value=value,
            shortfall=shortfall(drawn),
            latency_seconds=latency,
            connection_count=transfers.n,
            memory_bytes=transfers.n * transfers.s,
            request_rate_per_second=value / transfers.s,
        )

    def draws(self, fit: Fit, context: Context, settings: Sequence[S3UploadSetting], demand: Demand) -> Array:
        """Draws of the logarithm of the value, (draws, settings): what is believed about all settings together."""
        return _Posterior.from_state(fit.state).sampled(self._transfers(context, settings, demand))

    def predict(self, fit: Fit, context: Context, setting: S3UploadSetting, demand: Demand) -> Prediction:
        """Throughput, seconds of one object, requests per second: each for one future measurement."""
        posterior = _Posterior.from_state(fit.state)
        throughput = _interval(posterior, self._transfers(context, [setting], demand))
        size = max(context.payload_size_bytes, 1)
        alone = _interval(
            posterior, self._transfers(context, [setting], replace(demand, object_count=1)), is_single=True
        )
        s = size / ceil(size / min(setting.part_size_bytes, size))
        return {
            "throughput_bytes_per_second": throughput,
            "latency_seconds": Estimate(size / alone.high, size / alone.expected, size / alone.low),
            "request_rate_per_second": Estimate(
                throughput.low / s, throughput.expected / s, throughput.high / s
            ),
        }

    def derive(
        self, fit: Fit, context: Context, setting: S3UploadSetting, demand: Demand
    ) -> Mapping[str, float]:
        """Pool, threshold, limits and time-outs that follow from threads and part size."""
        posterior = _Posterior.from_state(fit.state)
        transfers = self._transfers(context, [setting], demand)
        n, s = float(transfers.n[0]), float(transfers.s[0])
        rate = float(np.exp(posterior.log_throughput(transfers)).mean())
        derived = {
            "connection_pool_count": float(setting.thread_count + 1),
            "multipart_threshold_bytes": _threshold_bytes(posterior, setting),
            "memory_bytes": n * s,
            "crt_target_gbps": 0.4 * setting.thread_count,
            "request_rate_per_second": rate / s,
            "hedge_timeout_seconds": _hedge_seconds(posterior, transfers),
        }
        if demand.bandwidth_bytes_per_second_max is not None:
            derived["rate_limit_bytes_per_second"] = demand.bandwidth_bytes_per_second_max
        return derived | _burst_bundle(posterior, context, transfers)

    def bottleneck(self, fit: Fit, context: Context, setting: S3UploadSetting, demand: Demand) -> str:
        """The term of the soft minimum that is smallest at the posterior mean."""
        if not fit.observation_count:
            return "unknown"
        posterior = _Posterior.from_state(fit.state)
        return _bottleneck(posterior, self._transfers(context, [setting], demand), demand)

    def _transfers(self, context: Context, settings: Sequence[S3UploadSetting], demand: Demand) -> _Transfers:
        threads = np.array([x.thread_count for x in settings], dtype=np.float64)
        parts = np.array([x.part_size_bytes for x in settings], dtype=np.float64)
        size = np.full(len(settings), float(max(context.payload_size_bytes, 1)))
        is_burst = demand.regime is Regime.BURST
        return _planned(size, threads, parts, object_count=demand.object_count, is_burst=is_burst)

    def _object_latency(
        self,
        posterior: _Posterior,
        context: Context,
        settings: Sequence[S3UploadSetting],
        demand: Demand,
        logs: Array,
    ) -> Array:
        """Seconds of one object alone; what was computed for one object at a time serves as it is."""
        size = max(context.payload_size_bytes, 1)
        if demand.object_count > 1 or size <= PART_SIZE_BYTES_MIN:
            alone = self._transfers(context, settings, replace(demand, object_count=1))
            logs = _single(alone).log_throughput(posterior.draws)
        return np.asarray(size * np.exp(-logs).mean(axis=0), dtype=np.float64)

    def _thread_ladder(self, demand: Demand) -> list[int]:
        most = min(self.thread_count_max, demand.thread_count_max or THREAD_COUNT_MAX)
        ladder = [n for n in _THREADS if n <= most]
        while ladder[-1] < most:
            ladder.append(min(most, max(ladder[-1] + 1, round(ladder[-1] * _THREAD_RATIO))))
        return ladder

    def _part_ladder(self, context: Context) -> list[int]:
        """Part sizes that cut the object evenly; the object itself where a single PUT is worth a thought."""
        size = max(context.payload_size_bytes, 1)
        low = max(self.part_size_bytes_min, ceil(size / PART_COUNT_MAX))
        high = max(low, min(self.part_size_bytes_max, size))
        wanted = [min(max(x * MiB, low), high) for x in _PART_SIZES_MIB]
        even = {max(low, ceil(size / ceil(size / s))) for s in wanted}
        if size <= min(_SINGLE_PUT_BYTES_MAX, self.part_size_bytes_max):
            even.add(max(size, low))
        return sorted(even)


def _useful(n: int, s: int, size: int, demand: Demand) -> int:
    """No more threads than there are requests to make."""
    if size <= PART_SIZE_BYTES_MIN:
        return n
    return min(n, ceil(size / s) * max(demand.object_count, 1))


def _memory_bytes(setting: S3UploadSetting, size: int) -> int:
    """One buffer of one part for each connection: what a client that holds parts in memory needs at least."""
    return setting.thread_count * min(setting.part_size_bytes, size)


def _single(transfers: _Transfers) -> _Transfers:
    """The same settings for exactly one object, also where a stream of small ones is meant."""
    one = transfers.is_steady
    return replace(
        transfers,
        full=np.where(one, 0.0, transfers.full),
        rest=np.where(one, 1.0, transfers.rest),
        is_steady=np.zeros_like(one),
    )


# --- Learning. ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    draws: Array
    evidence: _Evidence
    peak: Peak
    misfit: Misfit
    residual_fraction_p50: float
    shapes: Array | None
    drift_count: int
    cusum_level: float

    def posterior(self, credit_bytes: float | None) -> _Posterior:
        return _Posterior(
            draws=self.draws,
            sigma=self.peak.sigma,
            misfit=self.misfit,
            evidence=self.evidence,
            weights=self.peak.weights,
            shapes=self.shapes,
            credit_bytes=credit_bytes,
        )


def _learn(place: Place, evidence: _Evidence, neighbour: Fit | None, seed: int) -> _Learned:
    prior = _choose_prior(place, evidence, neighbour)
    drift_count = 0
    while (changed := _find_change(evidence, prior)).observation is not None:
        before, evidence = _split(evidence, changed.observation)
        prior = _loosen(_posterior_gaussian(before, prior))
        drift_count += 1
    problem = evidence.problem(prior)
    peak = maximise(problem, _starts(evidence, prior))
    problem = replace(problem, misfit=learn_misfit(problem, peak))
    peak = refine(problem, peak)
    return _Learned(
        draws=sample(problem, peak, count=DRAW_COUNT, seed=seed),
        evidence=evidence,
        peak=peak,
        misfit=problem.misfit,
        residual_fraction_p50=_residual_fraction(problem, peak),
        shapes=_shapes_without_law(evidence, problem, peak, seed),
        drift_count=drift_count,
        cusum_level=changed.level,
    )


_OFF_MODEL_COUNT_MIN = 6
_OFF_MODEL_EVIDENCE = 1.0  # of the logarithm: how much better no law at all must explain what was measured


def _shapes_without_law(evidence: _Evidence, problem: Problem, peak: Peak, seed: int) -> Array | None:
    """What is known without the law, where that explains the measurements better than the law does."""
    sightings = evidence.sightings(peak.weights)
    if len(sightings.log_values) < _OFF_MODEL_COUNT_MIN:
        return None
    lawless, shapes = shapeless.learn(sightings, count=DRAW_COUNT, seed=seed)
    lawful = law_log_evidence(problem, peak, evidence.is_sight(), evidence.column("kind") == _THROTTLED)
    return shapes if lawless > lawful + _OFF_MODEL_EVIDENCE else None


def _is_lawless(evidence: _Evidence, prior: Gaussian) -> bool:
    """Whether the law explains these measurements worse than no law does."""
    problem = evidence.problem(prior)
    return _shapes_without_law(evidence, problem, maximise(problem, _starts(evidence, prior)), 0) is not None


_SIGMA_COMPARED = 0.12  # noise, when explanations are compared
_NEIGHBOUR_FAVOUR = 1.0  # of log evidence: a neighbour is believed until the measurements speak against it


def _choose_prior(place: Place, evidence: _Evidence, neighbour: Fit | None) -> Gaussian:
    """The neighbour's posterior, widened, unless what was measured here is likelier from tables alone."""
    table = _table_prior(place)
    if neighbour is None:
        return table
    inherited = _inherit(neighbour, place, table)
    if not evidence.rows:
        return inherited
    near, far = _score(evidence, inherited), _score(evidence, table)
    return inherited if near + _NEIGHBOUR_FAVOUR >= far else table


_OF_THE_SERVICE = (_L, _B, _R, _D, _D_PART, _COLD)
_OF_THE_HOST = (_C, _G, _CPU_REQUEST, _CPU_BYTE)


def _inherit(neighbour: Fit, place: Place, table: Gaussian) -> Gaussian:
    """A neighbour's posterior with what differs between the places let loose.

    Latency and rate of one connection belong to the region and class; the ceiling belongs to the instance type.
    """
    draws = np.array(neighbour.state["draws"], dtype=np.float64)
    mean, covariance = draws.mean(axis=0), 1.5 * np.cov(draws.T) + 1e-6 * np.eye(len(PARAMETERS))
    there = neighbour.place
    is_same_service = (there.region, there.service_class) == (place.region, place.service_class)
    is_same_host = there.instance_type == place.instance_type
    familiar = 0.05 if there == place else 0.15
    extra = np.full(len(PARAMETERS), familiar)
    extra[list(_OF_THE_SERVICE)] = familiar if is_same_service else 0.6
    extra[list(_OF_THE_HOST)] = familiar if is_same_host else 0.8
    if not is_same_host and place.instance_type != UNKNOWN and burst.ceiling(place.instance_type) is not None:
        for index in (_C, _G):
            mean[index] = table.mean[index]
            covariance[index, :] = covariance[:, index] = 0.0
            extra[index] = table.covariance[index, index] ** 0.5
    return Gaussian(mean=mean, covariance=covariance + np.diag(extra**2))


def _loosen(belief: Gaussian) -> Gaussian:
    """After a change: everything may have moved, ceilings most."""
    extra = np.full(len(PARAMETERS), 0.2)
    extra[[_L, _B, _D, _D_PART, _MIXING, _TAIL]] = 0.4
    extra[_C] = 0.9
    return Gaussian(mean=belief.mean, covariance=2.0 * belief.covariance + np.diag(extra**2))


def _posterior_gaussian(evidence: _Evidence, prior: Gaussian) -> Gaussian:
    peak = maximise(evidence.problem(prior), _starts(evidence, prior))
    return Gaussian(mean=peak.theta, covariance=peak.covariance)


def _starts(evidence: _Evidence, prior: Gaussian) -> Array:
    """The prior mean, and what the measurements suggest: slow connections, slow or costly requests, a ceiling."""
    rates = evidence.table[evidence.column("kind") <= _STEADY]
    starts = np.repeat(prior.mean[None], 5, axis=0)
    if not len(rates):
        return starts[:1]
    log_value, n, s = rates[:, 1], rates[:, _ROW.index("n")], rates[:, _ROW.index("s")]
    best = int(np.argmax(log_value - np.log(n)))
    single = float(log_value[best] - np.log(n[best]))
    starts[1:, _C] = np.maximum(log_value.max() + 0.02, prior.mean[_C] - 4.0)
    starts[1, _B], starts[1, _L] = single + 0.1, prior.mean[_L] - 1.0
    starts[2, _B], starts[2, _L] = single + 0.7, np.log(s[best]) - single - 0.7
    starts[3:, _B] = max(single + 0.2, float(prior.mean[_B]))
    starts[4, _CPU_REQUEST] = -float((log_value - np.log(s)).max())
    return starts


@dataclass(frozen=True, slots=True)
class _Change:
    observation: int | None
    level: float


_WATCH_AFTER = 5  # observations
_REFIT_ALWAYS = 9  # observations: up to here each one is learned from before the next is judged
_REFIT_EVERY = 4
_SEEN_COUNT = 24  # observations: enough to expect the next
_MODEL_SPREAD = 0.07  # of the logarithm: what the law may be off by at a place it has not seen


def _find_change(evidence: _Evidence, prior: Gaussian) -> _Change:
    """Follow the measurements one by one; the first observation after a change, when the sums raise the alarm.

    Own measurements, where there are any: another client that comes and goes is no change of the place.
    """
    observation = evidence.column("observation")
    is_throughput = evidence.column("kind") <= _STEADY
    is_own = is_throughput & (evidence.column("client") < 0)
    throughput_rows = np.flatnonzero(is_own if is_own.any() else is_throughput)
    if len(throughput_rows) <= _WATCH_AFTER:
        return _Change(None, 0.0)
    state, peak, law_seen = drift.Cusum(), None, 0
    surprises: list[float] = []
    for count in range(_WATCH_AFTER, len(throughput_rows)):
        row = int(throughput_rows[count])
        if peak is None or count < _REFIT_ALWAYS or count - law_seen >= _REFIT_EVERY:
            oldest = int(throughput_rows[max(0, count - _SEEN_COUNT)])
            seen = _Evidence(rows=evidence.rows[oldest:row])
            start = peak or maximise(seen.problem(prior), _starts(seen, prior))
            peak = refine(seen.problem(prior), start, iterations=2)
            law_seen = count
        surprises.append(_surprise(_Evidence(rows=evidence.rows[row : row + 1]), peak))
        state = state.after(surprises[-1])
        if state.is_alarm:
            changed = drift.changed_count(surprises[-state.run :])
            first = int(observation[int(throughput_rows[count - changed + 1])])
            support = _support_of_change(_upto(evidence, observation[row]), first, prior)
            if support > _CHANGE_EVIDENCE and not _is_lawless(_split(evidence, first)[0], prior):
                return _Change(first, state.level)
            state = drift.Cusum() if support < 0 else state
    return _Change(None, state.level)


_CHANGE_EVIDENCE = 9.0  # logarithm: eight thousand to one, for it is looked for at many places
_SPREAD_COMPARED = Misfit(
    amplitude=0.1, length_octaves=(2.0, 4.0)
)  # of the law, when explanations are compared


def _support_of_change(evidence: _Evidence, first: int, prior: Gaussian) -> float:
    """How much better two places, one after the other, explain the measurements than one: the alarm's second look."""
    before, after = _split(evidence, first)
    loosened = _loosen(_posterior_gaussian(before, prior))
    return _score(before, prior) + _score(after, loosened) - _score(evidence, prior)


def _score(evidence: _Evidence, belief: Gaussian) -> float:
    problem = evidence.problem(belief, _SPREAD_COMPARED)
    return log_evidence(problem, _starts(evidence, belief), sigma=_SIGMA_COMPARED)


def _upto(evidence: _Evidence, observation: float) -> _Evidence:
    index = _ROW.index("observation")
    return _Evidence(rows=tuple(row for row in evidence.rows if row[index] <= observation))


def _surprise(one: _Evidence, peak: Peak) -> float:
    law, data = one.law(), one.measurements()
    moved = np.concatenate([peak.theta[None], peak.theta + 1e-4 * np.eye(len(PARAMETERS))])
    values = law(moved)[:, 0]
    slope = (values[1:] - values[0]) / 1e-4
    variance = (
        data.spread(np.array([peak.sigma]))[0, 0] ** 2 + slope @ peak.covariance @ slope + _MODEL_SPREAD**2
    )
    return float((data.log_values[0] - values[0]) / np.sqrt(variance))


def _split(evidence: _Evidence, first: int) -> tuple[_Evidence, _Evidence]:
    index = _ROW.index("observation")
    before = tuple(row for row in evidence.rows if row[index] < first)
    return _Evidence(rows=before), _Evidence(rows=evidence.rows[len(before) :])


def _residual_fraction(problem: Problem, peak: Peak) -> float:
    data = problem.data
    if not data.has_misfit.any():
        return 0.0
    residual = (data.log_values - problem.law(peak.theta[None])[0])[data.has_misfit]
    return float(np.median(np.abs(np.expm1(np.clip(residual, -5.0, 5.0)))))


def _parameters(draws: Array) -> dict[str, Estimate]:
    low, middle, high = np.exp(np.quantile(draws, [0.05, 0.5, 0.95], axis=0))
    return {
        name: Estimate(float(low[i]), float(middle[i]), float(high[i])) for i, name in enumerate(PARAMETERS)
    }


def _credits(place: Place, observations: Sequence[Observation[S3UploadSetting]]) -> float | None:
    limits = burst.ceiling(place.instance_type)
    if limits is None or not limits.is_burstable:
        return None
    if not observations:
        return limits.credit_bytes_max
    start = observations[0].started_at
    transfers = [
        ((o.started_at - start).total_seconds(), o.duration_seconds, float(o.transferred_bytes))
        for o in observations
    ]
    return burst.credits_at(limits, transfers, at_seconds=transfers[-1][0] + transfers[-1][1])


# --- Answering. ---


def _interval(posterior: _Posterior, transfers: _Transfers, *, is_single: bool = False) -> Estimate:
    """The 90 % interval of one future measurement, with the dips that it may meet."""
    meant = _single(transfers) if is_single else transfers
    values = posterior.log_throughput(meant)[:, 0]
    noise = (posterior.sigma * _spread(float(meant.n[0]))) ** 2 + posterior.misfit.weather**2
    spread = float(np.sqrt(values.var() + posterior.misfit_variance(meant)[0] + noise))
    count = float(posterior.weights.sum())
    reach = _INTERVAL * spread * (1.0 + 1.5 / (3.0 + count))
    dips = (0.4 + float((1 - posterior.weights).sum())) / (8.0 + len(posterior.weights))
    middle = float(values.mean())
    dip_reach = 0.35 * log(dips / 0.05) if dips > 0.05 else 0.0
    return Estimate(exp(middle - max(reach, dip_reach)), exp(middle), exp(middle + reach))


def _bottleneck(posterior: _Posterior, transfers: _Transfers, demand: Demand) -> str:
    theta = posterior.draws.mean(axis=0)[None]
    n, s = transfers.n, transfers.s
    limits = {
        "connections": np.log(n) + np.log(s) - np.logaddexp(theta[0, _L], np.log(s) - theta[0, _B]),
        "host-ceiling": theta[0, _C] + transfers.is_burst * theta[0, _G],
        "client-cpu": np.log(s) - np.logaddexp(theta[0, _CPU_REQUEST], theta[0, _CPU_BYTE] + np.log(s)),
        "request-rate": theta[0, _R] + np.log(s),
    }
    if demand.bandwidth_bytes_per_second_max is not None:
        limits["demand"] = np.log([demand.bandwidth_bytes_per_second_max])
    name = min(limits, key=lambda key: float(np.asarray(limits[key]).reshape(-1)[0]))
    if (
        name == "connections"
        and demand.memory_bytes_max is not None
        and n[0] * s[0] > 0.85 * demand.memory_bytes_max
    ):
        return "memory"
    return name


def _hedge_seconds(posterior: _Posterior, transfers: _Transfers) -> float:
    """When to send a part again: three times its usual time, which about one part in a thousand exceeds."""
    steady = replace(transfers, is_steady=np.ones_like(transfers.is_steady))
    rate = float(np.exp(steady.log_throughput(posterior.draws)).mean())
    return max(1.0, 3.0 * float(transfers.n[0] * transfers.s[0]) / rate)


_THRESHOLDS = np.array([5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128], dtype=np.float64) * MiB


def _threshold_bytes(posterior: _Posterior, setting: S3UploadSetting) -> float:
    """The size from which parts beat a single PUT of the same object alone."""
    count = len(_THRESHOLDS)
    part = np.maximum(np.minimum(float(setting.part_size_bytes), _THRESHOLDS / 2), PART_SIZE_BYTES_MIN)
    threads = np.full(count, float(setting.thread_count))
    split = _planned(_THRESHOLDS, threads, part, object_count=1, is_burst=False)
    whole = _planned(_THRESHOLDS, np.ones(count), _THRESHOLDS, object_count=1, is_burst=False)
    gain = _single(split).log_throughput(posterior.draws) - _single(whole).log_throughput(posterior.draws)
    pays = (gain.mean(axis=0) > 0) & (_THRESHOLDS > PART_SIZE_BYTES_MIN)
    return float(_THRESHOLDS[int(np.argmax(pays))] if pays.any() else _THRESHOLDS[-1])


def _burst_bundle(posterior: _Posterior, context: Context, transfers: _Transfers) -> dict[str, float]:
    """What a burstable host reaches with credits and without, and how long the credits last."""
    limits = burst.ceiling(context.place.instance_type)
    if limits is None or not limits.is_burstable:
        return {}
    both = {}
    for name, flag in (("sustained", 0.0), ("burst", 1.0)):
        at = replace(transfers, is_burst=np.full_like(transfers.is_burst, flag))
        both[f"{name}_throughput_bytes_per_second"] = float(np.exp(at.log_throughput(posterior.draws)).mean())
    if posterior.credit_bytes is not None:
        rate = both["burst_throughput_bytes_per_second"]
        spending = rate - limits.baseline_bytes_per_second
        if spending > 0:
            both["burst_seconds_left"] = posterior.credit_bytes / spending
    return both
