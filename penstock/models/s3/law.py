"""Knows the law of a transfer from or to S3: the physics of its throughput, the same for uploads and downloads.

One request of s bytes on a warm connection takes L + s/B, so n connections move n s / (L + s/B) until a limit is met:

    T(n, s)  = softmin_p( n s / (L + s/B),  H,  R s ) / overload / throttling
    H        = softmin_p( C,  s / (a + b s) )             the host: its network C, its CPU per request and per byte
    overload = 1 + beta max(0, q - k),    q = n s / (L + s/B) / H     past about twice the knee throughput falls
    throttling = 1 + gamma min(max(0, demanded requests / R - 1), 1.46)    503s cost more than the requests they refuse

A path with a window of W bytes and a round-trip time of RTT limits one connection to W/RTT. B is this or the
connection's own rate, whichever is smaller; no measurement of throughput can tell the two apart.

One object of S bytes has k = ceil(S/s) parts. They go in floor(k/n) full waves of n parts and a last one of the rest,

    lockstep = full n s / T(n, s) + rest s / T(rest, s)

where rest = k - n floor(k/n). As a function of n this has steps where connections are the limit (an almost empty wave
takes as long as a full one), and is smooth where the host is. Parts take unequal times, so that waves dissolve into a
flow, and the last part is late by a share h of a part's time:

    flow     = k s / T(n, s)
    seconds  = (1 - m) lockstep + m flow + cold + h n s / T(n, s) + D + d k      D, d: create and complete
    cold     = max(0, (1 + c) L + s/B - n s / T(n, s))

without h, D and d if an object is moved whole, and without D and d if no object is created. Cold connections need
handshakes and slow start, which take c L for all of them concurrently: it makes no difference to a first wave that the
host makes slower than that.

A payload that cannot be split, or is not worth splitting, is moved whole: then n is the number of objects in flight,
and T(n, S) is the throughput of many of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.models.model import Array

THREAD_COUNT_MAX = 1024


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
# The index of each, in the same order.
(
    LATENCY,  # L
    CONNECTION_RATE,  # B
    HOST_RATE,  # C
    BURST_FACTOR,
    PREFIX_RATE,  # R
    CPU_PER_REQUEST,  # a
    CPU_PER_BYTE,  # b
    KNEE_SHARPNESS,  # p
    OVERLOAD_SLOPE,  # beta
    OVERLOAD_ONSET,  # k
    THROTTLING_SLOPE,  # gamma
    OBJECT_SECONDS,  # D
    OBJECT_SECONDS_PER_PART,  # d
    WAVE_MIXING,
    TAIL_SHARE,  # h
    COLD_LATENCIES,  # c
) = range(len(PARAMETERS))

# --- The law for arrays: from parameters (draws, parameters) and settings (settings,) to (draws, settings). ---


class _Parameters:
    """Parameters by index, each with shape (draws, 1) to broadcast against settings: their logarithms and values."""

    def __init__(self, theta: Array) -> None:
        self.log = theta.T[:, :, None]
        self.value = np.exp(self.log)


class _Requests:
    """n connections that request s bytes each, and logarithms of these, which are the same for every draw."""

    def __init__(self, n: Array, s: Array, is_burst: Array) -> None:
        self.s, self.is_burst = s, is_burst
        self.log_s, self.log_bytes = np.log(s), np.log(n * s)


def _softmin(p: Array, one: Array, other: Array) -> Array:
    return np.asarray(
        np.minimum(one, other) - np.log1p(np.exp(-p * np.abs(one - other))) / p, dtype=np.float64
    )


def _log_rates(theta: Array, asked: _Requests) -> Array:
    """Logarithm of T(n, s), in bytes per second, with n busy connections.

    A row of parameters that equals the row before in all parameters of T, as under `derivatives`, is not computed anew.
    """
    if len(theta) == 1:
        return _log_rate(_Parameters(theta), asked)
    rated = theta[:, : THROTTLING_SLOPE + 1]
    is_other = np.append(True, (rated[1:] != rated[:-1]).any(axis=1))
    rates = _log_rate(_Parameters(theta[is_other]), asked)
    return np.asarray(rates[np.cumsum(is_other) - 1], dtype=np.float64)


def _log_rate(at: _Parameters, asked: _Requests) -> Array:
    p = at.value[KNEE_SHARPNESS]
    connections, host = _log_limits(at, asked)
    prefix = at.log[PREFIX_RATE] + asked.log_s
    reached = _softmin(p, connections, host)
    lost = _log_overload(at, connections - host) + _log_throttling(at, reached - prefix)
    return np.asarray(_softmin(p, reached, prefix) - lost, dtype=np.float64)


def _log_overload(at: _Parameters, log_demand: Array) -> Array:
    """Logarithm of the loss from more connections than the host can feed.

    `log_demand` is the logarithm of what they could carry over what the host can.
    """
    excess = np.exp(np.minimum(log_demand, 7.0)) - at.value[OVERLOAD_ONSET]
    return np.asarray(np.log1p(at.value[OVERLOAD_SLOPE] * np.maximum(excess, 0.0)), dtype=np.float64)


def _log_limits(at: _Parameters, asked: _Requests) -> tuple[Array, Array]:
    """Logarithms of what the connections and what the host could carry, in bytes per second."""
    host = _softmin(at.value[KNEE_SHARPNESS], _log_network(at, asked.is_burst), _log_cpu(at, asked))
    return _log_connections(at, asked), host


def _log_connections(at: _Parameters, asked: _Requests) -> Array:
    """Logarithm of what n connections could carry in requests of s bytes, in bytes per second."""
    request_seconds = at.value[LATENCY] + asked.s / at.value[CONNECTION_RATE]
    return np.asarray(asked.log_bytes - np.log(request_seconds), dtype=np.float64)


_LOG_EXCESS_MAX = 0.9  # 2.46 times the admitted rate


def _log_throttling(at: _Parameters, log_excess: Array) -> Array:
    """Logarithm of the loss from refusals, given the logarithm of the demanded over the admitted request rate.

    It is bounded, because connections that wait before they retry demand nothing.
    """
    refused = np.expm1(np.minimum(np.maximum(log_excess, 0.0), _LOG_EXCESS_MAX))
    return np.asarray(np.log1p(at.value[THROTTLING_SLOPE] * refused), dtype=np.float64)


def log_admitted(theta: Array, n: Array, s: Array, is_burst: Array) -> Array:
    """Logarithm of the requests per second that are admitted while others are refused, (draws, settings)."""
    at, asked = _Parameters(theta), _Requests(n, s, is_burst)
    demanded = np.minimum(*_log_limits(at, asked)) - asked.log_s
    admitted = at.log[PREFIX_RATE]
    return np.asarray(admitted - _log_throttling(at, demanded - admitted), dtype=np.float64)


def log_object_seconds(theta: Array, parts: Array) -> Array:
    """Logarithm of the seconds to create and complete objects with these numbers of parts, (draws, objects)."""
    value = _Parameters(theta).value
    return np.asarray(
        np.log(value[OBJECT_SECONDS] + parts * value[OBJECT_SECONDS_PER_PART]), dtype=np.float64
    )


def log_network(theta: Array, is_burst: Array) -> Array:
    """Logarithm of the host's network rate in bytes per second, (draws, settings)."""
    return _log_network(_Parameters(theta), is_burst)


def _log_network(at: _Parameters, is_burst: Array) -> Array:
    return np.asarray(at.log[HOST_RATE] + is_burst * np.maximum(at.log[BURST_FACTOR], 0.0), dtype=np.float64)


def _log_cpu(at: _Parameters, asked: _Requests) -> Array:
    """Logarithm of what the client's processor can move in requests of s bytes, in bytes per second."""
    seconds = at.value[CPU_PER_REQUEST] + asked.s * at.value[CPU_PER_BYTE]
    return np.asarray(asked.log_s - np.log(seconds), dtype=np.float64)


def log_cpu_beside(theta: Array, n: Array, s: Array, is_burst: Array) -> Array:
    """Logarithm of what the client's processor can move with n connections, in bytes per second, (draws, settings).

    If the processor is the host's limit, switching between connections costs it some of its rate.
    """
    at, asked = _Parameters(theta), _Requests(n, s, is_burst)
    connections, host = _log_limits(at, asked)
    cpu, network = _log_cpu(at, asked), _log_network(at, is_burst)
    is_limit = 1.0 / (1.0 + np.exp(-_LIMIT_SHARPNESS * np.clip(network - cpu, -2.0, 2.0)))
    return np.asarray(cpu - is_limit * _log_overload(at, connections - host), dtype=np.float64)


_LIMIT_SHARPNESS = 4.0


# The parameters that make up each limit, and the sign of their change when it is raised.
_LIMITS: dict[str, dict[int, float]] = {
    "connections": {CONNECTION_RATE: 1.0, LATENCY: -1.0},
    "host-ceiling": {HOST_RATE: 1.0},
    "client-cpu": {CPU_PER_REQUEST: -1.0, CPU_PER_BYTE: -1.0},
    "request-rate": {PREFIX_RATE: 1.0},
}
_LIMIT_STEP = 0.2  # of the logarithm, so that a knee shows slightly before it is reached


@dataclass(frozen=True, slots=True)
class Course:
    """The course of transfers, each field (draws, settings). Seconds are only for those that are not steady."""

    log_throughput: Array  # bytes per second
    wave_seconds: Array  # of each full wave
    last_seconds: Array  # of the last wave, which is not full
    cold_seconds: Array  # that the first wave takes longer than the others
    seconds: Array  # of the whole transfer


@dataclass(frozen=True, kw_only=True)  # without slots, for the cached properties
class Transfers:
    """How the bytes of transfers are split, as arrays (settings,): `full` waves of n requests of s bytes, then `rest`.

    For steady transfers (a part of a large object, or a stream of small ones) only the steady rate counts.
    """

    n: Array
    s: Array
    full: Array
    rest: Array
    transferred: Array
    objects: Array  # how often D occurs
    is_burst: Array
    is_steady: NDArray[np.bool_]
    size: Array  # of one object

    def log_throughput(self, theta: Array) -> Array:
        """Logarithm of throughput in bytes per second, (draws, settings)."""
        return self.course(theta).log_throughput

    def log_limits(self, theta: Array) -> dict[str, Array]:
        """Logarithms of what each part of the path could carry by itself in bytes per second, (draws, settings)."""
        at, asked = _Parameters(theta), _Requests(self.n, self.s, self.is_burst)
        return {
            "connections": _log_connections(at, asked),
            "host-ceiling": _log_network(at, self.is_burst),
            "client-cpu": _log_cpu(at, asked),
            "request-rate": at.log[PREFIX_RATE] + asked.log_s,
        }

    def what_matters(self, theta: Array) -> dict[str, Array]:
        """The elasticity of throughput with respect to each limit: d log T / d log limit, (draws, settings)."""
        steps = np.zeros((2, len(_LIMITS), theta.shape[1]))
        for step, moves in zip(steps[0], _LIMITS.values(), strict=True):
            step[list(moves)] = [_LIMIT_STEP * sign for sign in moves.values()]
        steps[1] = -steps[0]
        moved = (theta + steps[:, :, None]).reshape(-1, theta.shape[1])
        raised, lowered = self.log_throughput(moved).reshape(2, len(_LIMITS), len(theta), -1)
        return dict(zip(_LIMITS, (raised - lowered) / (2.0 * _LIMIT_STEP), strict=True))

    def refused_fraction(self, theta: Array) -> Array:
        """The share of demanded requests, as far as the host carries them, that S3 refuses, (draws, settings)."""
        limits = self.log_limits(theta)
        demanded = np.minimum(limits["connections"], np.minimum(limits["host-ceiling"], limits["client-cpu"]))
        return np.asarray(-np.expm1(np.minimum(limits["request-rate"] - demanded, 0.0)), dtype=np.float64)

    def course(self, theta: Array) -> Course:
        """The course of the transfers for draws of the parameters (draws, parameters)."""
        at, count = _Parameters(theta), len(self.n)
        rates = _log_rates(theta, self._asked)
        steady, ending = rates[:, :count], rates[:, count:]
        if len(self._steady) == count:
            return Course(steady, *[np.zeros_like(steady)] * 4)
        wave = self._wave_bytes * np.exp(-steady)
        last = np.zeros_like(wave)
        last[:, self._left] = self._left_bytes * np.exp(-ending)
        lockstep = self.full * wave + last
        mixing = self._is_split / (1.0 + 1.0 / at.value[WAVE_MIXING])
        moving = lockstep + mixing * (self._waves * wave - lockstep)
        late = (
            at.value[TAIL_SHARE] * wave
            + at.value[OBJECT_SECONDS]
            + self._object_parts * at.value[OBJECT_SECONDS_PER_PART]
        )
        first = at.value[LATENCY] * (1.0 + at.value[COLD_LATENCIES]) + self.s / at.value[CONNECTION_RATE]
        cold = np.maximum(first - wave, 0.0)
        seconds = moving + cold + self.objects * late
        logs = self._log_transferred - np.log(seconds)
        if len(self._steady):
            logs[:, self._steady] = steady[:, self._steady]
        return Course(logs, wave, last, cold, seconds)

    def idle_fraction(self, course: Course) -> Array:
        """The share of the connections' time in which they carried no request, (draws, settings)."""
        busy = self.full * course.wave_seconds + self._left_share * course.last_seconds + course.cold_seconds
        return np.asarray(1.0 - busy / course.seconds, dtype=np.float64)

    # What is the same for every draw of the parameters.

    @cached_property
    def _steady(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.is_steady)

    @cached_property
    def _wave_bytes(self) -> Array:
        return self.n * self.s

    @cached_property
    def _left_bytes(self) -> Array:
        return np.asarray((self.rest * self.s)[self._left], dtype=np.float64)

    @cached_property
    def _left_share(self) -> Array:
        return self.rest / self.n

    @cached_property
    def _parts(self) -> Array:
        return self.full * self.n + self.rest

    @cached_property
    def _is_split(self) -> NDArray[np.bool_]:
        return self._parts > self.n

    @cached_property
    def _waves(self) -> Array:
        return self._parts / self.n

    @cached_property
    def _object_parts(self) -> Array:
        return self._parts * self.size / self.transferred

    @cached_property
    def _log_transferred(self) -> Array:
        return np.asarray(np.log(np.maximum(self.transferred, 1.0)), dtype=np.float64)

    @cached_property
    def _left(self) -> NDArray[np.intp]:
        """The indices of transfers with a last wave that is not full."""
        return np.flatnonzero((self.rest > 0) & ~self.is_steady)

    @cached_property
    def _asked(self) -> _Requests:
        """The requests of a full wave of each transfer, followed by those of the last waves that are not full."""
        waves, left = (self.n, self.s, self.is_burst), (self.rest, self.s, self.is_burst)
        return _Requests(*(np.append(each, rest[self._left]) for each, rest in zip(waves, left, strict=True)))
