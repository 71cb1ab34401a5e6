"""Knows the remarks that accompany advice for S3: what would help, what would hurt, and what was not measured."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log

import numpy as np

from penstock.models.burst import Ceiling
from penstock.models.model import Array
from penstock.models.s3.law import CPU_PER_BYTE, CPU_PER_REQUEST, HOST_RATE, Transfers
from penstock.models.s3.posterior import SURE, Posterior
from penstock.units import format_bytes, format_rate, format_seconds, number

_HURTS = 0.03  # of throughput: a loss that is mentioned


def sentences(
    posterior: Posterior,
    transfers: Transfers,
    doubled: Transfers,
    log_gains: Array,
    *,
    limit: str,
    why_not_more: str,
    is_by_host: bool,
) -> Iterator[str]:
    """Sentences about the first of the transfers; `doubled` has twice the threads, which may not be allowed.

    `limit` is what limits the first, `log_gains` (draws,) are those of doubling. A faster host is mentioned only if the
    bytes pass the host.
    """
    if np.mean(np.expm1(log_gains) < -_HURTS) >= SURE:
        yield f"More connections make it slower: twice as many would bring {_percent(log_gains)}."
    else:
        twice, alike = f"Twice the connections would bring {_percent(log_gains)}", "the same number on "
        if doubled.n[0] == transfers.n[0]:
            twice, alike = "More connections would not help, as each request already has one", ""
        elif why_not_more and log_gains.mean() > 0.0:
            twice += f", but {why_not_more}"
        faster = f"{alike}a host and path twice as fast would bring "
        faster += _percent(_log_gains_of_a_faster_path(posterior, transfers))
        yield f"{twice}; {faster}." if is_by_host else f"{twice}."
    # A ceiling that was met by larger requests was not seen with these.
    if limit != "host-ceiling" and (seen := posterior.rising_connection_count):
        yield f"No ceiling was seen with up to {seen} connections."
    if not posterior.evidence.measurements().tells_weather:
        yield "The interval holds for this hour: how much other hours differ was not measured."


def of_regime(limits: Ceiling, moved_bytes: int | None, left_bytes: float, *, is_burst: bool) -> str:
    """A sentence on which ceiling of a burstable host the advice is for, and why."""
    left = format_bytes(left_bytes)
    if moved_bytes is None:
        return f"This advice is for what the host sustains: endless work outlasts the {left} of burst credits left."
    if not left_bytes:
        return "This advice is for what the host sustains: its burst credits are spent, by probes or by other traffic."
    spent = format_bytes(limits.burst_credits_spent(moved_bytes))
    if is_burst:
        taken = f"the transfer takes at most {spent} of {left} in burst credits"
        return f"This advice is for while the host bursts: {taken}."
    return (
        f"This advice is for what the host sustains: the transfer could take {spent} of burst credits, "
        f"and the host had {left} left."
    )


def of_patience(borne_bytes: float, lasting_rate: float) -> str:
    """A sentence on what happens to long transfers."""
    return (
        "Applications reported that the store began to refuse transfers after about "
        f"{format_bytes(borne_bytes)}: limit this one to {format_rate(lasting_rate)}."
    )


def of_second_readings(cold_seconds: float, warm_seconds: float) -> str:
    """A sentence on a store that caches what was read recently, which makes first reads slower."""
    return (
        f"Data that had been read before began to arrive after {format_seconds(warm_seconds)}, other data "
        f"after {format_seconds(cold_seconds)}: reading each byte once is slower than reading it again."
    )


_LATE_TOLD = 0.02  # of the usual time: a delay that is mentioned


def of_late_requests(posterior: Posterior, transfers: Transfers) -> str | None:
    """A sentence on the average cost of late requests, if some were seen and it is not negligible; else None."""
    late, usual = posterior.lateness, posterior.log_throughput(transfers)
    delay_fraction = float(late.delay_fraction(transfers, usual)[:, 0].mean())
    if not late.seen_count or delay_fraction < _LATE_TOLD:
        return None
    return (
        f"One request in {number(1.0 / late.fraction)} is late by about {format_seconds(late.seconds)}, which makes "
        f"such a transfer {100 * delay_fraction:.0f} % longer on average; fewer, larger requests are hit less often."
    )


_STATE_SHARE_MIN, _STATE_COUNT_MIN = 0.25, 4  # of the measurements; fewer are taken for dips
# How far apart the means of two states must be, as a logarithm, and in deviations within each. (The means of the two
# halves of normal noise are 2.6 of these deviations apart.)
_STATES_APART, _STATES_APART_DEVIATIONS = 0.25, 5.0
_SWITCHES_MIN = 0.5  # changes of state, over as many as there would be by chance


def of_two_states(posterior: Posterior, transfers: Transfers) -> str | None:
    """A sentence on the rates of two states of the path, if measurements fall into two groups whatever their setting.

    The states must alternate: if the path became slower once, or for hours, that is a change or weather. Else None.
    """
    by_age = posterior.residuals
    off = np.sort(by_age)
    least = max(_STATE_COUNT_MIN, ceil(_STATE_SHARE_MIN * len(off)))
    if len(off) < 2 * least:
        return None
    splits = [(off[:at], off[at:]) for at in range(least, len(off) - least + 1)]
    low, high = min(splits, key=lambda pair: sum(len(each) * each.var() for each in pair))
    apart, within = high.mean() - low.mean(), (np.append(low - low.mean(), high - high.mean())).std()
    if apart < max(_STATES_APART, _STATES_APART_DEVIATIONS * within):
        return None
    switch_count = np.count_nonzero(np.diff(by_age >= high[0]))
    if switch_count < _SWITCHES_MIN * 2.0 * len(low) * len(high) / len(off):
        return None
    usual = posterior.log_throughput(transfers)[:, 0].mean()
    fast, slow = (format_rate(float(np.exp(usual + each.mean()))) for each in (high, low))
    return (
        f"The path has two states: {len(high)} of {len(off)} measurements point to about {fast}, the "
        f"others to {slow}. Which comes next cannot be predicted, so the interval covers both."
    )


def _log_gains_of_a_faster_path(posterior: Posterior, transfers: Transfers) -> Array:
    faster = posterior.draws.copy()
    faster[:, HOST_RATE] += log(2)
    faster[:, [CPU_PER_REQUEST, CPU_PER_BYTE]] -= log(2)
    then, now = (transfers.log_throughput(draws)[:, 0] for draws in (faster, posterior.draws))
    return np.asarray(then - now, dtype=np.float64)


def _percent(log_gains: Array) -> str:
    """The mean gain as a percentage; the mean is of logarithms, as for all expected values."""
    return f"{round(100 * float(np.expm1(log_gains.mean()))):+d} %"
