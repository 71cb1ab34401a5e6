"""Knows the prior of a place, before anything was measured there: from tables, or from a neighbour's posterior."""

from __future__ import annotations

from math import inf, log

import numpy as np

from penstock.models.inference.posterior import Gaussian
from penstock.models.inference.regression import maximise, settle
from penstock.models.model import Fit
from penstock.models.s3.credits import ON_CREDITS
from penstock.models.s3.directions import host_ceiling
from penstock.models.s3.evidence import Evidence
from penstock.models.s3.explanations import SIGMA_COMPARED, score, starts
from penstock.models.s3.law import (
    BURST_FACTOR,
    COLD_LATENCIES,
    CONNECTION_RATE,
    CPU_PER_BYTE,
    CPU_PER_REQUEST,
    HOST_RATE,
    LATENCY,
    OBJECT_SECONDS,
    OBJECT_SECONDS_PER_PART,
    PARAMETERS,
    PREFIX_RATE,
    TAIL_SHARE,
    WAVE_MIXING,
)
from penstock.models.s3.tables import (
    behind_a_slower_path,
    from_the_other_direction,
    perhaps_without_pause,
    table_prior,
    where_requests_are_refused,
)
from penstock.vocabulary import UNKNOWN, Place

_NEIGHBOUR_FAVOUR = 1.0  # of log evidence, by which tables must explain the measurements better


def choose_prior(place: Place, evidence: Evidence, neighbour: Fit | None) -> Gaussian:
    """The neighbour's posterior, widened, unless tables alone explain the measurements here better."""
    table = _table(place, evidence)
    if neighbour is None:
        return table
    inherited = _inherit(neighbour, place, table)
    if not evidence.rows:
        return inherited
    near, far = (score(evidence, belief, SIGMA_COMPARED) for belief in (inherited, table))
    return inherited if near + _NEIGHBOUR_FAVOUR >= far else table


_SIGMA_LEAST = 0.03
_TABLE_FAVOUR = 0.5  # of log evidence


def _table(place: Place, evidence: Evidence) -> Gaussian:
    """The prior from tables, or, if likelier, one with a path slower than the host, as through a gateway.

    The second is considered if nothing reached half of the host's rate. On a burstable host it already is if nothing
    was clearly faster than its baseline, because then no burst was seen.
    """
    table, limits = table_prior(place), host_ceiling(place)
    if evidence.is_throttled().any():
        table = where_requests_are_refused(table)
    if evidence.tells_totals_alone:
        table = perhaps_without_pause(table)
    if limits is None:
        return table
    widest = ON_CREDITS if limits.is_burstable else 0.5
    if not -inf < evidence.log_fastest < table.mean[HOST_RATE] + log(widest):
        return table
    beliefs = (table, behind_a_slower_path(table))
    peaks = [maximise(evidence.problem(belief), starts(evidence, belief)[:3]) for belief in beliefs]
    # The wrong belief takes more for noise.
    sigma = max(_SIGMA_LEAST, min(peak.sigma for peak in peaks))
    direct, slower = (
        settle(evidence.problem(belief), peak.theta[None], sigma=sigma)[1]
        for belief, peak in zip(beliefs, peaks, strict=True)
    )
    return beliefs[int(slower > direct + _TABLE_FAVOUR)]


_OF_THE_SERVICE = (
    LATENCY,
    CONNECTION_RATE,
    PREFIX_RATE,
    OBJECT_SECONDS,
    OBJECT_SECONDS_PER_PART,
    COLD_LATENCIES,
)
_OF_THE_HOST = (HOST_RATE, BURST_FACTOR, CPU_PER_REQUEST, CPU_PER_BYTE)
_WIDENED = 1.5  # times the covariance: beliefs about another place or time are less certain here
# Standard deviations of logarithms: between the same place at different times, between places in what they share,
# between services in different regions, and between hosts of different types. They are chosen, not measured; a
# misleading neighbour is dropped.
_FAMILIAR, _ELSEWHERE, _OTHER_SERVICE, _OTHER_HOST = 0.05, 0.15, 0.6, 0.8


def _inherit(neighbour: Fit, place: Place, table: Gaussian) -> Gaussian:
    """A neighbour's posterior, widened in the parameters in which the places may differ.

    Latency and connection rate depend on region and service class, the host's ceiling on the instance type.
    """
    draws = np.array(neighbour.state["draws"], dtype=np.float64)
    if neighbour.place.operation != place.operation:
        return from_the_other_direction(draws, neighbour.place, table)
    mean, covariance = draws.mean(axis=0), _WIDENED * np.cov(draws.T) + 1e-6 * np.eye(len(PARAMETERS))
    there = neighbour.place
    is_same_service = (there.region, there.service_class) == (place.region, place.service_class)
    is_same_host = there.instance_type == place.instance_type
    familiar = _FAMILIAR if there == place else _ELSEWHERE
    extra = np.full(len(PARAMETERS), familiar)
    extra[list(_OF_THE_SERVICE)] = familiar if is_same_service else _OTHER_SERVICE
    extra[list(_OF_THE_HOST)] = familiar if is_same_host else _OTHER_HOST
    if not is_same_host and place.instance_type != UNKNOWN and host_ceiling(place) is not None:
        for index in (HOST_RATE, BURST_FACTOR):
            mean[index] = table.mean[index]
            covariance[index, :] = covariance[:, index] = 0.0
            extra[index] = table.covariance[index, index] ** 0.5
    return Gaussian(mean=mean, covariance=covariance + np.diag(extra**2))


# Standard deviations of logarithms by which parameters move at a change: any of them, those of single requests and of
# the ends of transfers, and those that move most. Simulated changes are by factors of 2 to 4. The share that the
# end of a transfer takes moves with them: it is large where each request ends by itself, small below a common ceiling.
_MOVED, _MOVED_AROUND, _MOVED_MOST = 0.2, 0.4, 0.9
_LOOSENED = 2.0  # times the covariance


def loosen(belief: Gaussian) -> Gaussian:
    """The prior after a change: everything may have moved, and most the two rates and the share of the end."""
    extra = np.full(len(PARAMETERS), _MOVED)
    extra[[LATENCY, OBJECT_SECONDS, OBJECT_SECONDS_PER_PART, WAVE_MIXING]] = _MOVED_AROUND
    extra[[HOST_RATE, CONNECTION_RATE, TAIL_SHARE]] = _MOVED_MOST
    return Gaussian(mean=belief.mean, covariance=_LOOSENED * belief.covariance + np.diag(extra**2))


def revisited(belief: Gaussian) -> Gaussian:
    """The prior of a place that is again in an earlier state: nothing has moved by much."""
    extra = np.full(len(PARAMETERS), _FAMILIAR)
    return Gaussian(mean=belief.mean, covariance=_WIDENED * belief.covariance + np.diag(extra**2))
