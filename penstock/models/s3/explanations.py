"""Knows how explanations of the same measurements are compared: priors with each other, and the law with no law."""

from __future__ import annotations

import numpy as np

from penstock.models.inference import shapeless
from penstock.models.inference.misfit import Misfit
from penstock.models.inference.posterior import Gaussian
from penstock.models.inference.regression import Peak, Problem, law_log_evidence, log_evidence, settle
from penstock.models.model import Array
from penstock.models.s3.evidence import COLUMNS, Evidence
from penstock.models.s3.law import CONNECTION_RATE, CPU_PER_REQUEST, HOST_RATE, LATENCY

SIGMA_COMPARED = 0.12  # the least noise with which explanations are compared
# The misfit of the law with which explanations are compared.
SPREAD_COMPARED = Misfit(amplitude=0.1, length_octaves=(2.0, 4.0))


def score(evidence: Evidence, belief: Gaussian, sigma: float) -> float:
    """The log evidence of the measurements under this prior, with this noise."""
    return log_evidence(evidence.problem(belief, SPREAD_COMPARED), starts(evidence, belief), sigma=sigma)


def settled(evidence: Evidence, belief: Gaussian, peak: Peak, sigma: float) -> tuple[Peak, float]:
    """The best peak and its log evidence under this prior, searched for also from a known peak."""
    theta = np.vstack([peak.theta, starts(evidence, belief)])
    return settle(evidence.problem(belief, SPREAD_COMPARED), theta, sigma=sigma)


def starts(evidence: Evidence, prior: Gaussian) -> Array:
    """Starting points of a search, (starts, parameters): the prior mean, and what the measurements suggest.

    They suggest slow connections, slow requests, a host ceiling, or requests that cost much processor time.
    """
    rates = evidence.table[evidence.is_throughput()]
    found = np.repeat(prior.mean[None], 5, axis=0)
    if not len(rates):
        return found[:1]
    log_value, n, s = rates[:, 1], rates[:, COLUMNS.index("n")], rates[:, COLUMNS.index("s")]
    best = int(np.argmax(log_value - np.log(n)))
    single = float(log_value[best] - np.log(n[best]))
    found[1:, HOST_RATE] = np.maximum(log_value.max() + 0.02, prior.mean[HOST_RATE] - 4.0)
    found[1, CONNECTION_RATE], found[1, LATENCY] = single + 0.1, prior.mean[LATENCY] - 1.0
    found[2, CONNECTION_RATE], found[2, LATENCY] = single + 0.7, np.log(s[best]) - single - 0.7
    found[3:, CONNECTION_RATE] = max(single + 0.2, float(prior.mean[CONNECTION_RATE]))
    found[4, CPU_PER_REQUEST] = -float((log_value - np.log(s)).max())
    return found


_OFF_MODEL_COUNT_MIN = 8
OFF_MODEL_EVIDENCE = 1.0  # log evidence, by which a model without a law must explain measurements better


def favour_of_law(evidence: Evidence, problem: Problem, peak: Peak) -> float | None:
    """The log evidence of the law less that of a model without a law; None while there are too few measurements.

    It is 0 if requests were refused, so that the law is kept: only it knows what that means for larger settings.
    """
    if evidence.is_throttled().any():
        return 0.0
    sightings = evidence.sightings(peak.weights)
    if len(sightings.log_values) < _OFF_MODEL_COUNT_MIN:
        return None
    lawful = law_log_evidence(problem, peak, evidence.is_sight(), evidence.is_host_limit())
    return lawful - shapeless.log_evidence(sightings)
