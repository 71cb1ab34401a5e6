"""Knows what a posterior answers about transfers: intervals, what limits them, and what clients are told besides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import exp, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from penstock.models.burst import Ceiling
from penstock.models.inference.draws import quantiles
from penstock.models.inference.posterior import dip_fraction, quantile_beside_dips, widened
from penstock.models.model import Array
from penstock.models.s3.directions import S3SettingT, burst_ceiling, planned_transfers
from penstock.models.s3.evidence import throughput_noise_scale
from penstock.models.s3.law import PREFIX_RATE, Transfers
from penstock.models.s3.posterior import SURE, Posterior
from penstock.units import MiB
from penstock.vocabulary import Context, Demand, Estimate, Regime

# How far the law may be off, as a logarithm, where nothing near was measured and so nothing could show it. On 63 worlds
# of seeds 61101 to 61103 .82 of measurements far and near were within 90 % after 24 probes without it, .89 with it.
_UNSEEN_LAW = 0.15


def interval(posterior: Posterior, transfers: Transfers, demand: Demand, line: Ceiling | None) -> Estimate:
    """The 90 % interval of one future measurement, with the dips that it may meet and within the bandwidth limit.

    Nor is more promised than the host's line carries (None where nobody knows), as long as nothing was faster. Where no
    ceiling was seen, it may be just beyond: the interval of more connections holds what was seen with fewer.
    """
    return next(intervals(posterior, transfers, demand, line))


def intervals(
    posterior: Posterior, transfers: Transfers, demand: Demand, line: Ceiling | None
) -> Iterator[Estimate]:
    """That of each of the transfers."""
    expectations, deviations = foreseen(posterior, transfers, unseen=_UNSEEN_LAW)
    dips = dip_fraction(posterior.weights, sqrt(posterior.noise_variance))
    most = inf if line is None else log(line.burst_bytes_per_second)
    is_beyond = beyond_what_was_seen(posterior, transfers)
    for expected, deviation, beyond in zip(
        expectations.tolist(), deviations.tolist(), is_beyond, strict=True
    ):
        low, high = (quantile_beside_dips(p, deviation=deviation, dip_fraction=dips) for p in (0.05, 0.95))
        reached = (
            min(expected + low, posterior.evidence.log_fastest if beyond else inf),
            expected,
            min(expected + high, max(expected, most, posterior.evidence.log_fastest)),
        )
        yield Estimate(*(exp(min(value, log_bandwidth(demand))) for value in reached))


def beyond_what_was_seen(posterior: Posterior, transfers: Transfers) -> NDArray[np.bool_]:
    """Which of the transfers have more connections than were measured, where no ceiling was seen with these."""
    seen = posterior.rising_connection_count
    return np.asarray((seen > 0) & (transfers.n > seen), dtype=np.bool_)


def foreseen(posterior: Posterior, transfers: Transfers, *, unseen: float = 0.0) -> tuple[Array, Array]:
    """Logarithm of what is expected of each of the transfers, and the deviation of a measurement that is no dip.

    `unseen` is how far the law may be off where no measurement is near.
    """
    values = posterior.log_throughput(transfers)
    scales = np.array([throughput_noise_scale(n) for n in transfers.n])
    # Within one hour nothing tells how much hours differ: the interval is for this one, and its remark says so.
    is_told = posterior.evidence.measurements().tells_weather
    noise = posterior.noise_variance * scales**2 + is_told * posterior.weather_variance
    off = posterior.misfit_variance(transfers)
    if posterior.shapes is None:
        off = off + (unseen * posterior.strangeness(transfers)) ** 2
    deviation = np.sqrt(values.var(axis=0) + off + noise)
    return values.mean(axis=0), widened(float(posterior.weights.sum())) * deviation


def log_bandwidth(demand: Demand) -> float:
    """Of the limit that was stated, bytes per second; infinite where none was."""
    return log(demand.bandwidth_bytes_per_second_max or inf)


def usual_rates(posterior: Posterior, transfers: Transfers, demand: Demand) -> Array:
    """Bytes per second that are expected of each of the transfers: the middle of its interval."""
    logs = posterior.log_throughput(transfers).mean(axis=0)
    return np.asarray(np.exp(np.minimum(logs, log_bandwidth(demand))), dtype=np.float64)


def mean_rate(posterior: Posterior, transfers: Transfers, demand: Demand) -> float:
    """Bytes per second of the first of the transfers."""
    logs = np.minimum(posterior.log_throughput(transfers)[:, 0], log_bandwidth(demand))
    return float(np.exp(logs).mean())


_MEMORY_FULL = 0.85  # of what is allowed


def bottleneck(posterior: Posterior, transfers: Transfers, demand: Demand) -> str:
    """The limit that matters most in nearly all draws; where they do not agree nobody is sure."""
    bandwidth = log_bandwidth(demand)
    if np.mean(posterior.log_throughput(transfers)[:, 0] >= bandwidth) >= SURE:
        return "demand"
    matter = {name: values[:, 0] for name, values in transfers.what_matters(posterior.draws).items()}
    if not posterior.evidence.tells_of_processor:
        # Throughput alone cannot tell the processor from the network, which is the likelier of the two.
        matter["host-ceiling"] = matter["host-ceiling"] + matter.pop("client-cpu")
    most = np.argmax(np.stack(list(matter.values())), axis=0)
    shares = {name: float(np.mean(most == index)) for index, name in enumerate(matter)}
    name = max(shares, key=lambda each: shares[each])
    if shares[name] < SURE or (name == "connections" and beyond_what_was_seen(posterior, transfers)[0]):
        return "unsure"
    held_bytes = float(transfers.n[0] * transfers.s[0])
    is_full = held_bytes > _MEMORY_FULL * (demand.memory_bytes_max or inf)
    return "memory" if name == "connections" and is_full else name


_LIMIT_QUANTILE = 0.25  # of the draws: a limit that is guessed too high is met by refusals
# Over what is so known: what is asked too little is lost whole, and what is asked too much is refused a few times. Of
# clients of small objects (bench `small-objects`, seeds 31, 771 and 4242) .918, .889 and .845 of the best were .95,
# .923 and .886 with it, and of all requests .002 to .006 more were refused.
_LIMIT_ROOM = 1.15


def request_rate_limit(posterior: Posterior) -> float:
    """How many requests a second to make at the most, where more would be refused; a little more than went through."""
    drawn = exp(float(quantiles(posterior.draws[:, PREFIX_RATE], [_LIMIT_QUANTILE])[0]))
    return _LIMIT_ROOM * max(drawn, posterior.evidence.carried_rate_per_second)


_TAIL_RATIO = 2.4  # of the 99th percentile over the usual time, where too few requests were measured
HEDGE_RATIO = 1.25  # over that percentile: about one request in two hundred is sent again


def hedge_seconds(
    posterior: Posterior, transfers: Transfers, demand: Demand, tail_ratio: float | None
) -> float:
    """When to send a part again: a little after the slowest of a hundred, as they were measured."""
    steady = replace(transfers, is_steady=np.ones_like(transfers.is_steady))
    return max(
        1.0,
        HEDGE_RATIO
        * (tail_ratio or _TAIL_RATIO)
        * float(transfers.n[0] * transfers.s[0])
        / mean_rate(posterior, steady, demand),
    )


_THRESHOLDS = np.array([6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128], dtype=np.float64) * MiB


def threshold_bytes(posterior: Posterior, context: Context, setting: S3SettingT, demand: Demand) -> float:
    """The size from which clients split: where parts pay, and as is advised for objects of this size."""
    size, part = context.payload_size_bytes, setting.request_size_bytes
    pays_from = _splitting_pays_from_bytes(posterior, setting, demand)
    return min(pays_from, float(size)) if part < size else max(pays_from, size + 1.0)


def _splitting_pays_from_bytes(posterior: Posterior, setting: S3SettingT, demand: Demand) -> float:
    """The least of some sizes above the part from which parts of it beat single PUTs of the same objects."""
    sizes = _THRESHOLDS[setting.request_size_bytes < _THRESHOLDS]
    threads = np.full(len(sizes), float(setting.thread_count))
    part = np.full(len(sizes), float(setting.request_size_bytes))
    split, whole = (
        planned_transfers(
            setting.direction,
            sizes,
            threads,
            each,
            object_count=demand.object_count,
            is_burst=demand.regime is Regime.BURST,
        ).log_throughput(posterior.draws)
        for each in (part, sizes)
    )
    paying = sizes[(split - whole).mean(axis=0) > 0]
    return float(paying[0]) if len(paying) else max(float(_THRESHOLDS[-1]), setting.request_size_bytes + 1.0)


def burst_bundle(
    posterior: Posterior, context: Context, transfers: Transfers, demand: Demand
) -> dict[str, float]:
    """What a burstable host reaches with credits and without, and how long the credits of the last measurement last."""
    limits = burst_ceiling(context.place)
    if limits is None:
        return {}
    both = {"is_burst": float(demand.regime is Regime.BURST)}
    for name, flag in (("sustained", 0.0), ("burst", 1.0)):
        at = replace(transfers, is_burst=np.full_like(transfers.is_burst, flag))
        both[f"{name}_throughput_bytes_per_second"] = float(usual_rates(posterior, at, demand)[0])
    if posterior.credit_bytes is not None:
        rate = both["burst_throughput_bytes_per_second"]
        if rate > limits.baseline_bytes_per_second:
            both["burst_seconds_left"] = limits.burst_seconds_left(
                posterior.credit_bytes, rate_bytes_per_second=rate
            )
    return both
