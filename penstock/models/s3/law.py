"""Knows the law of a transfer from or to S3: how fast the physics lets it go, whichever way the bytes travel.

One request of s bytes on a warm connection takes L + s/B, so n connections move n s / (L + s/B) until something gives:

    T(n, s)  = softmin_p( n s / (L + s/B),  H,  R s ) / overload / throttling
    H        = softmin_p( C,  s / (a + b s) )             the host: its network C, its CPU per request and per byte
    overload = 1 + beta max(0, q - k),    q = n s / (L + s/B) / H     past about twice the knee throughput falls
    throttling = 1 + gamma min(max(0, demanded requests / R - 1), 1.46)    503s cost more than the requests they refuse

A path with a window of W bytes and a round trip of RTT holds one connection to W/RTT: that is B, whichever of
the two is smaller, and no measurement of throughput can tell them apart.

One object of S bytes has k = ceil(S/s) parts. They go in floor(k/n) full waves of n and a last one of what remains,

    lockstep = full n s / T(n, s) + rest s / T(rest, s)

which is a step for connections (an almost empty wave takes as long as a full one) and smooth where the host is full.
Parts take unequal times, so waves dissolve into a flow, and the last part comes late by a share h of a part's time:

    flow     = k s / T(n, s)
    seconds  = (1 - m) lockstep + m flow + cold + h n s / T(n, s) + D + d k      D, d: create and complete
    cold     = max(0, (1 + c) L + s/B - n s / T(n, s))

with neither h nor D nor d where an object goes whole, and neither D nor d where nothing is created. Cold connections
shake hands and start slowly, which takes c L for each of them, at once: a wave that is slower than that for want of a
faster host does not feel it.

A payload that is not worth splitting, or cannot be, goes whole: then n counts objects in flight and T(n, S) is what
many of them reach.
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

# --- The law, for arrays: parameters (draws, parameters) and settings (settings,) give (draws, settings). ---


class _Parameters:
    """Parameters (draws, parameters), each as a column beside the settings: its logarithm, and itself."""

    def __init__(self, theta: Array) -> None:
        self.log = theta.T[:, :, None]
        self.value = np.exp(self.log)


class _Requests:
    """n connections that ask for s bytes each, and the logarithms that every draw of the parameters takes of them."""

    def __init__(self, n: Array, s: Array, is_burst: Array) -> None:
        self.s, self.is_burst = s, is_burst
        self.log_s, self.log_bytes = np.log(s), np.log(n * s)


def _softmin(p: Array, one: Array, other: Array) -> Array:
    return np.asarray(
        np.minimum(one, other) - np.log1p(np.exp(-p * np.abs(one - other))) / p, dtype=np.float64
    )


def _log_rates(theta: Array, asked: _Requests) -> Array:
    """Logarithm of T(n, s), bytes per second with n connections busy.

    Of parameters that differ from those before them in no parameter of it, as under `derivatives`, it is the same.
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
    """What connections cost that are more than the host can feed; `log_demand` is of all they could carry over that."""
    excess = np.exp(np.minimum(log_demand, 7.0)) - at.value[OVERLOAD_ONSET]
    return np.asarray(np.log1p(at.value[OVERLOAD_SLOPE] * np.maximum(excess, 0.0)), dtype=np.float64)


def _log_limits(at: _Parameters, asked: _Requests) -> tuple[Array, Array]:
    """Logarithms of what the connections and what the host could carry, bytes per second."""
    host = _softmin(at.value[KNEE_SHARPNESS], _log_network(at, asked.is_burst), _log_cpu(at, asked))
    return _log_connections(at, asked), host


def _log_connections(at: _Parameters, asked: _Requests) -> Array:
    """Logarithm of what n connections could carry in requests of s bytes, bytes per second."""
    request_seconds = at.value[LATENCY] + asked.s / at.value[CONNECTION_RATE]
    return np.asarray(asked.log_bytes - np.log(request_seconds), dtype=np.float64)


_LOG_EXCESS_MAX = 0.9  # 2.46 times what is admitted


def _log_throttling(at: _Parameters, log_excess: Array) -> Array:
    """What refusals cost of the rate that is admitted, where so much more is demanded.

    It is bounded: connections that wait before they ask again do not ask.
    """
    refused = np.expm1(np.minimum(np.maximum(log_excess, 0.0), _LOG_EXCESS_MAX))
    return np.asarray(np.log1p(at.value[THROTTLING_SLOPE] * refused), dtype=np.float64)


def log_admitted(theta: Array, n: Array, s: Array, is_burst: Array) -> Array:
    """Logarithm of the requests per second that are admitted while others are refused."""
    at, asked = _Parameters(theta), _Requests(n, s, is_burst)
    demanded = np.minimum(*_log_limits(at, asked)) - asked.log_s
    admitted = at.log[PREFIX_RATE]
    return np.asarray(admitted - _log_throttling(at, demanded - admitted), dtype=np.float64)


def log_object_seconds(theta: Array, parts: Array) -> Array:
    """Logarithm of the seconds that it takes to create and to complete objects of so many parts."""
    value = _Parameters(theta).value
    return np.asarray(
        np.log(value[OBJECT_SECONDS] + parts * value[OBJECT_SECONDS_PER_PART]), dtype=np.float64
    )


def log_network(theta: Array, is_burst: Array) -> Array:
    """Logarithm of what the host may send, bytes per second."""
    return _log_network(_Parameters(theta), is_burst)


def _log_network(at: _Parameters, is_burst: Array) -> Array:
    return np.asarray(at.log[HOST_RATE] + is_burst * np.maximum(at.log[BURST_FACTOR], 0.0), dtype=np.float64)


def _log_cpu(at: _Parameters, asked: _Requests) -> Array:
    """Logarithm of what the client's processor can send in requests of s bytes, bytes per second."""
    seconds = at.value[CPU_PER_REQUEST] + asked.s * at.value[CPU_PER_BYTE]
    return np.asarray(asked.log_s - np.log(seconds), dtype=np.float64)


def log_cpu_beside(theta: Array, n: Array, s: Array, is_burst: Array) -> Array:
    """The same beside n connections: where it is the host's limit, they cost the processor their switching as well."""
    at, asked = _Parameters(theta), _Requests(n, s, is_burst)
    connections, host = _log_limits(at, asked)
    cpu, network = _log_cpu(at, asked), _log_network(at, is_burst)
    is_limit = 1.0 / (1.0 + np.exp(-_LIMIT_SHARPNESS * np.clip(network - cpu, -2.0, 2.0)))
    return np.asarray(cpu - is_limit * _log_overload(at, connections - host), dtype=np.float64)


_LIMIT_SHARPNESS = 4.0


# The parameters that a limit is made of, and which way they move when it is raised.
_LIMITS: dict[str, dict[int, float]] = {
    "connections": {CONNECTION_RATE: 1.0, LATENCY: -1.0},
    "host-ceiling": {HOST_RATE: 1.0},
    "client-cpu": {CPU_PER_REQUEST: -1.0, CPU_PER_BYTE: -1.0},
    "request-rate": {PREFIX_RATE: 1.0},
}
_LIMIT_STEP = 0.2  # of the logarithm: a knee is felt from a little before it


@dataclass(frozen=True, slots=True)
class Course:
    """How transfers go, (draws, settings). Seconds are of those that are not steady."""

    log_throughput: Array  # bytes per second
    wave_seconds: Array  # of each of the full ones
    last_seconds: Array  # of the one that is not full
    cold_seconds: Array  # by which the first wave is later than the others
    seconds: Array


@dataclass(frozen=True, kw_only=True)  # without slots: what is prepared is kept
class Transfers:
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
        return self.course(theta).log_throughput

    def log_limits(self, theta: Array) -> dict[str, Array]:
        """Logarithms of what each part of the path could carry alone, bytes per second, (draws, settings)."""
        at, asked = _Parameters(theta), _Requests(self.n, self.s, self.is_burst)
        return {
            "connections": _log_connections(at, asked),
            "host-ceiling": _log_network(at, self.is_burst),
            "client-cpu": _log_cpu(at, asked),
            "request-rate": at.log[PREFIX_RATE] + asked.log_s,
        }

    def what_matters(self, theta: Array) -> dict[str, Array]:
        """By how much throughput follows each limit alone: logarithm over logarithm, (draws, settings)."""
        steps = np.zeros((2, len(_LIMITS), theta.shape[1]))
        for step, moves in zip(steps[0], _LIMITS.values(), strict=True):
            step[list(moves)] = [_LIMIT_STEP * sign for sign in moves.values()]
        steps[1] = -steps[0]
        moved = (theta + steps[:, :, None]).reshape(-1, theta.shape[1])
        raised, lowered = self.log_throughput(moved).reshape(2, len(_LIMITS), len(theta), -1)
        return dict(zip(_LIMITS, (raised - lowered) / (2.0 * _LIMIT_STEP), strict=True))

    def refused_fraction(self, theta: Array) -> Array:
        """How much of what the connections demand, as far as the host carries it, is more than S3 admits."""
        limits = self.log_limits(theta)
        demanded = np.minimum(limits["connections"], np.minimum(limits["host-ceiling"], limits["client-cpu"]))
        return np.asarray(-np.expm1(np.minimum(limits["request-rate"] - demanded, 0.0)), dtype=np.float64)

    def course(self, theta: Array) -> Course:
        """How they go under draws of the parameters."""
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
        """The share of the connections' time that no request used."""
        busy = self.full * course.wave_seconds + self._left_share * course.last_seconds + course.cold_seconds
        return np.asarray(1.0 - busy / course.seconds, dtype=np.float64)

    # What every draw of the parameters takes of them.

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
        """Those of which something is left after their full waves."""
        return np.flatnonzero((self.rest > 0) & ~self.is_steady)

    @cached_property
    def _asked(self) -> _Requests:
        """What is asked at a time in full waves, and in what is left of some after them."""
        waves, left = (self.n, self.s, self.is_burst), (self.rest, self.s, self.is_burst)
        return _Requests(*(np.append(each, rest[self._left]) for each, rest in zip(waves, left, strict=True)))
