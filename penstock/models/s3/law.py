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


def _column(theta: Array, index: int) -> Array:
    return theta[:, index][:, None]


def _softmin(p: Array, one: Array, other: Array) -> Array:
    gap = np.abs(one - other)
    return np.asarray(np.minimum(one, other) - np.log1p(np.exp(-p * gap)) / p, dtype=np.float64)


def _log_rate(theta: Array, n: Array, s: Array, is_burst: Array) -> Array:
    """Logarithm of T(n, s), bytes per second with n connections busy."""
    p = np.exp(_column(theta, KNEE_SHARPNESS))
    connections, host = _log_limits(theta, n, s, is_burst)
    prefix = _column(theta, PREFIX_RATE) + np.log(s)
    reached = _softmin(p, connections, host)
    throttling = _log_throttling(theta, reached - prefix)
    overload = _log_overload(theta, connections - host)
    return np.asarray(_softmin(p, reached, prefix) - overload - throttling, dtype=np.float64)


def _log_overload(theta: Array, log_demand: Array) -> Array:
    """What connections cost that are more than the host can feed; `log_demand` is of all they could carry over that."""
    excess = np.exp(np.minimum(log_demand, 7.0)) - np.exp(_column(theta, OVERLOAD_ONSET))
    return np.asarray(
        np.log1p(np.exp(_column(theta, OVERLOAD_SLOPE)) * np.maximum(excess, 0.0)), dtype=np.float64
    )


def _log_limits(theta: Array, n: Array, s: Array, is_burst: Array) -> tuple[Array, Array]:
    """Logarithms of what the connections and what the host could carry, bytes per second."""
    return _log_connections(theta, n, s), _softmin(
        np.exp(_column(theta, KNEE_SHARPNESS)), log_network(theta, is_burst), _log_cpu(theta, s)
    )


def _log_connections(theta: Array, n: Array, s: Array) -> Array:
    """Logarithm of what n connections could carry in requests of s bytes, bytes per second."""
    request_seconds = np.exp(_column(theta, LATENCY)) + s * np.exp(-_column(theta, CONNECTION_RATE))
    return np.asarray(np.log(n * s) - np.log(request_seconds), dtype=np.float64)


_LOG_EXCESS_MAX = 0.9  # 2.46 times what is admitted


def _log_throttling(theta: Array, log_excess: Array) -> Array:
    """What refusals cost of the rate that is admitted, where so much more is demanded.

    It is bounded: connections that wait before they ask again do not ask.
    """
    refused = np.exp(np.minimum(log_excess, _LOG_EXCESS_MAX)) - 1.0
    return np.asarray(
        np.log1p(np.exp(_column(theta, THROTTLING_SLOPE)) * np.maximum(refused, 0.0)), dtype=np.float64
    )


def log_admitted(theta: Array, n: Array, s: Array, is_burst: Array) -> Array:
    """Logarithm of the requests per second that are admitted while others are refused."""
    demanded = np.minimum(*_log_limits(theta, n, s, is_burst)) - np.log(s)
    return np.asarray(
        _column(theta, PREFIX_RATE) - _log_throttling(theta, demanded - _column(theta, PREFIX_RATE)),
        dtype=np.float64,
    )


def log_object_seconds(theta: Array, parts: Array) -> Array:
    """Logarithm of the seconds that it takes to create and to complete objects of so many parts."""
    seconds = np.exp(_column(theta, OBJECT_SECONDS)) + parts * np.exp(_column(theta, OBJECT_SECONDS_PER_PART))
    return np.asarray(np.log(seconds), dtype=np.float64)


def log_network(theta: Array, is_burst: Array) -> Array:
    """Logarithm of what the host may send, bytes per second."""
    return np.asarray(
        _column(theta, HOST_RATE) + is_burst * np.maximum(_column(theta, BURST_FACTOR), 0.0), dtype=np.float64
    )


def _log_cpu(theta: Array, s: Array) -> Array:
    """Logarithm of what the client's processor can send in requests of s bytes, bytes per second."""
    seconds = np.exp(_column(theta, CPU_PER_REQUEST)) + s * np.exp(_column(theta, CPU_PER_BYTE))
    return np.asarray(np.log(s) - np.log(seconds), dtype=np.float64)


def log_cpu_beside(theta: Array, n: Array, s: Array, is_burst: Array) -> Array:
    """The same beside n connections: where it is the host's limit, they cost the processor their switching as well."""
    connections, host = _log_limits(theta, n, s, is_burst)
    cpu, network = _log_cpu(theta, s), log_network(theta, is_burst)
    is_limit = 1.0 / (1.0 + np.exp(-_LIMIT_SHARPNESS * np.clip(network - cpu, -2.0, 2.0)))
    return np.asarray(cpu - is_limit * _log_overload(theta, connections - host), dtype=np.float64)


_LIMIT_SHARPNESS = 4.0


# The parameters that a limit is made of, and which way they move when it is raised.
_LIMITS: dict[str, dict[int, float]] = {
    "connections": {CONNECTION_RATE: 1.0, LATENCY: -1.0},
    "host-ceiling": {HOST_RATE: 1.0},
    "client-cpu": {CPU_PER_REQUEST: -1.0, CPU_PER_BYTE: -1.0},
    "request-rate": {PREFIX_RATE: 1.0},
}
_LIMIT_STEP = 0.2  # of the logarithm: a knee is felt from a little before it


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return self.whole(theta)[0]

    def log_limits(self, theta: Array) -> dict[str, Array]:
        """Logarithms of what each part of the path could carry alone, bytes per second, (draws, settings)."""
        return {
            "connections": _log_connections(theta, self.n, self.s),
            "host-ceiling": log_network(theta, self.is_burst),
            "client-cpu": _log_cpu(theta, self.s),
            "request-rate": _column(theta, PREFIX_RATE) + np.log(self.s),
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

    def whole(self, theta: Array) -> tuple[Array, Array]:
        """Logarithm of bytes per second, and the share of the connections' time that no request used."""
        left = np.flatnonzero((self.rest > 0) & ~self.is_steady)
        steady, ending = self._log_rates(theta, left)
        if self.is_steady.all():
            return steady, np.zeros_like(steady)
        wave = self.n * self.s * np.exp(-steady)
        last = np.zeros_like(wave)
        last[:, left] = self.rest[left] * self.s[left] * np.exp(-ending)
        lockstep = self.full * wave + last
        parts = self.full * self.n + self.rest
        mixing = 1.0 / (1.0 + np.exp(-_column(theta, WAVE_MIXING)))
        flow = parts / self.n * wave
        moving = np.where(parts > self.n, (1.0 - mixing) * lockstep + mixing * flow, lockstep)
        late = (
            np.exp(_column(theta, TAIL_SHARE)) * wave
            + np.exp(_column(theta, OBJECT_SECONDS))
            + parts * self.size / self.transferred * np.exp(_column(theta, OBJECT_SECONDS_PER_PART))
        )
        cold = self._cold_start(theta, wave)
        seconds = moving + cold + self.objects * late
        busy = self.full * self.n * wave + self.rest * last + self.n * cold
        idle = 1.0 - busy / (self.n * seconds)
        whole = np.log(np.maximum(self.transferred, 1.0)) - np.log(seconds)
        return np.where(self.is_steady, steady, whole), idle

    def _cold_start(self, theta: Array, wave: Array) -> Array:
        """Seconds by which the first wave is later than the others."""
        latency = np.exp(_column(theta, LATENCY)) * (1.0 + np.exp(_column(theta, COLD_LATENCIES)))
        return np.asarray(
            np.maximum(latency + self.s * np.exp(-_column(theta, CONNECTION_RATE)) - wave, 0.0),
            dtype=np.float64,
        )

    def _log_rates(self, theta: Array, left: NDArray[np.int64]) -> tuple[Array, Array]:
        """Logarithms of T for full waves, and for what some of the transfers have left after them."""
        n, s = np.append(self.n, self.rest[left]), np.append(self.s, self.s[left])
        both = _log_rate(theta, n, s, np.append(self.is_burst, self.is_burst[left]))
        return both[:, : len(self.n)], both[:, len(self.n) :]
