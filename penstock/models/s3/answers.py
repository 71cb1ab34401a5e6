"""Knows what follows from a posterior of transfers: intervals, the bottleneck, and further client options."""

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
from penstock.models.s3.credits import ON_CREDITS
from penstock.models.s3.directions import S3SettingT, burst_ceiling, planned_transfers
from penstock.models.s3.evidence import throughput_noise_scale
from penstock.models.s3.law import PREFIX_RATE, Transfers
from penstock.models.s3.posterior import SURE, Posterior
from penstock.units import MiB
from penstock.vocabulary import Context, Demand, Estimate, Regime

# The misfit of the law, as a standard deviation of a logarithm, where nothing near was measured that could show it. On
# 63 worlds (seeds 61101 to 61103), after 24 probes, 90 % intervals held .82 of measurements far and near without it,
# and .89 with it.
_UNSEEN_LAW = 0.15


def interval(posterior: Posterior, transfers: Transfers, demand: Demand, line: Ceiling | None) -> Estimate:
    """The 90 % interval of one future measurement of throughput, including dips and within the bandwidth limit.

    It does not exceed the rate of the host's network `line` (None if unknown), unless something was faster; nor is more
    expected than the line carries without credits, if the transfer has none. A ceiling that was not seen may be just
    beyond: the interval for more connections extends down to what was seen with fewer.
    """
    return next(intervals(posterior, transfers, demand, line))


def intervals(
    posterior: Posterior, transfers: Transfers, demand: Demand, line: Ceiling | None
) -> Iterator[Estimate]:
    """The interval of each transfer, as in `interval`."""
    expectations, deviations = foreseen(posterior, transfers, unseen=_UNSEEN_LAW)
    dips = dip_fraction(posterior.weights, sqrt(posterior.noise_variance))
    most = inf if line is None else log(line.burst_bytes_per_second)
    is_beyond = beyond_what_was_seen(posterior, transfers)
    expectations = np.minimum(expectations, _log_ceilings(posterior, transfers, line))
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
    """Which transfers have more connections than were measured, if no ceiling was seen with these: (transfers,)."""
    seen = posterior.rising_connection_count
    return np.asarray((seen > 0) & (transfers.n > seen), dtype=np.bool_)


def foreseen(posterior: Posterior, transfers: Transfers, *, unseen: float = 0.0) -> tuple[Array, Array]:
    """The logarithm of each transfer's expected throughput, and the standard deviation of a measurement without dips.

    `unseen` is the standard deviation of the law's misfit where no measurement is near.
    """
    values = posterior.log_throughput(transfers)
    scales = np.array([throughput_noise_scale(n) for n in transfers.n])
    # Measurements within one hour do not tell how much hours differ: the interval is for this hour, as a remark says.
    is_told = posterior.evidence.measurements().tells_weather
    noise = posterior.noise_variance * scales**2 + is_told * posterior.weather_variance
    off = posterior.misfit_variance(transfers)
    if posterior.shapes is None:
        off = off + (unseen * posterior.strangeness(transfers)) ** 2
    deviation = np.sqrt(values.var(axis=0) + off + noise)
    return values.mean(axis=0), widened(float(posterior.weights.sum())) * deviation


def log_bandwidth(demand: Demand) -> float:
    """The logarithm of the stated bandwidth limit in bytes per second; infinite if there is none."""
    return log(demand.bandwidth_bytes_per_second_max or inf)


def _log_ceilings(posterior: Posterior, transfers: Transfers, line: Ceiling | None) -> Array:
    """Logarithms of what the host's network carries of each transfer, with credits or without: (transfers,).

    It is the rate of its line or, if that is more, the highest rate that was measured and did not need credits.
    """
    if line is None:
        return np.full(len(transfers.n), inf)
    lasting = log(line.baseline_bytes_per_second)
    sure = lasting + log(ON_CREDITS) if line.is_burstable else inf
    without = max(lasting, posterior.evidence.log_fastest_within(sure))
    with_credits = max(log(line.burst_bytes_per_second), posterior.evidence.log_fastest)
    return np.where(transfers.is_burst, with_credits, without)


def within_line(posterior: Posterior, transfers: Transfers, logs: Array, line: Ceiling | None) -> Array:
    """Draws of logarithms of throughput, (draws, transfers), of which no more is expected than the line carries."""
    beyond = logs.mean(axis=0) - _log_ceilings(posterior, transfers, line)
    return np.asarray(logs - np.maximum(beyond, 0.0), dtype=np.float64)


def usual_rates(posterior: Posterior, transfers: Transfers, demand: Demand, line: Ceiling | None) -> Array:
    """The expected bytes per second of each transfer: the middle of its interval."""
    logs = posterior.log_throughput(transfers).mean(axis=0)
    logs = np.minimum(logs, _log_ceilings(posterior, transfers, line))
    return np.asarray(
        np.minimum(np.exp(logs), demand.bandwidth_bytes_per_second_max or inf), dtype=np.float64
    )


def mean_rate(posterior: Posterior, transfers: Transfers, demand: Demand) -> float:
    """The mean over draws of the first transfer's bytes per second."""
    logs = np.minimum(posterior.log_throughput(transfers)[:, 0], log_bandwidth(demand))
    return float(np.exp(logs).mean())


_MEMORY_FULL = 0.85  # of the memory limit


def bottleneck(posterior: Posterior, transfers: Transfers, demand: Demand) -> str:
    """The limit of the first transfer that matters most in nearly all draws; "unsure" if they do not agree."""
    bandwidth = log_bandwidth(demand)
    if np.mean(posterior.log_throughput(transfers)[:, 0] >= bandwidth) >= SURE:
        return "demand"
    matter = {name: values[:, 0] for name, values in transfers.what_matters(posterior.draws).items()}
    if not posterior.evidence.tells_of_processor:
        # Throughput alone cannot tell the processor from the network, which is the likelier limit.
        matter["host-ceiling"] = matter["host-ceiling"] + matter.pop("client-cpu")
    most = np.argmax(np.stack(list(matter.values())), axis=0)
    shares = {name: float(np.mean(most == index)) for index, name in enumerate(matter)}
    name = max(shares, key=lambda each: shares[each])
    if shares[name] < SURE or (name == "connections" and beyond_what_was_seen(posterior, transfers)[0]):
        return "unsure"
    held_bytes = float(transfers.n[0] * transfers.s[0])
    is_full = held_bytes > _MEMORY_FULL * (demand.memory_bytes_max or inf)
    return "memory" if name == "connections" and is_full else name


_LIMIT_QUANTILE = 0.25  # of the draws, because a limit that is too high meets refusals
# Times that quantile: throughput lost below the limit is lost entirely, while above it only a few requests are refused.
# With it, clients of small objects (bench `small-objects`, seeds 31, 771 and 4242) reached .95, .923 and .886 of the
# best instead of .918, .889 and .845, and .002 to .006 more of all requests were refused.
_LIMIT_ROOM = 1.15


def request_rate_limit(posterior: Posterior) -> float:
    """The most requests per second to make if more would be refused: slightly above the known limit."""
    drawn = exp(float(quantiles(posterior.draws[:, PREFIX_RATE], [_LIMIT_QUANTILE])[0]))
    return _LIMIT_ROOM * max(drawn, posterior.evidence.carried_rate_per_second)


_TAIL_RATIO = 2.4  # of the 99th percentile over the usual time, if too few requests were measured
HEDGE_RATIO = 1.25  # times that percentile, so that about one request in two hundred is sent again


def hedge_seconds(
    posterior: Posterior, transfers: Transfers, demand: Demand, tail_ratio: float | None
) -> float:
    """Seconds after which to send a part again: slightly more than the 99th percentile of request times."""
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
    """The size from which clients split objects: where parts pay off, consistent with the advice for this size."""
    size, part = context.payload_size_bytes, setting.request_size_bytes
    pays_from = _splitting_pays_from_bytes(posterior, setting, demand)
    return min(pays_from, float(size)) if part < size else max(pays_from, size + 1.0)


def _splitting_pays_from_bytes(posterior: Posterior, setting: S3SettingT, demand: Demand) -> float:
    """The smallest of some object sizes at which parts of this size are faster than moving objects whole."""
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
    """Rates of a burstable host with and without credits, and how long the credits left last; else empty."""
    limits = burst_ceiling(context.place)
    if limits is None:
        return {}
    both = {"is_burst": float(demand.regime is Regime.BURST)}
    for name, flag in (("sustained", 0.0), ("burst", 1.0)):
        at = replace(transfers, is_burst=np.full_like(transfers.is_burst, flag))
        both[f"{name}_throughput_bytes_per_second"] = float(usual_rates(posterior, at, demand, limits)[0])
    if posterior.credit_bytes is not None:
        rate = both["burst_throughput_bytes_per_second"]
        if rate > limits.baseline_bytes_per_second:
            both["burst_seconds_left"] = limits.burst_seconds_left(
                posterior.credit_bytes, rate_bytes_per_second=rate
            )
    return both
