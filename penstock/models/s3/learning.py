"""Knows how the law of a transfer is learned from evidence: from which prior, since which change, and whether at all.

The prior is a neighbour's posterior or comes from tables; after a change of the place, it is a loosened posterior of
the state before. If a model without a law explains the measurements better, predictions use that instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from penstock.models.inference import shapeless
from penstock.models.inference.misfit import Unexplained
from penstock.models.inference.regression import (
    Peak,
    Problem,
    beside_the_others,
    explain,
    maximise,
    sample,
    unexplained,
)
from penstock.models.model import Array, Fit, Suspicion
from penstock.models.s3.evidence import Evidence
from penstock.models.s3.explanations import OFF_MODEL_EVIDENCE, favour_of_law, starts
from penstock.models.s3.lateness import Lateness
from penstock.models.s3.posterior import Posterior
from penstock.models.s3.priors import choose_prior
from penstock.models.s3.stays import Known, follow
from penstock.vocabulary import Place

_DRAW_COUNT = 48
_UNEXPLAINED_COUNT = 12  # each used with four of the draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What was learned of a place since it last changed."""

    draws: Array
    unexplained: tuple[Unexplained, ...]
    residual_fraction_p50: float
    weights: Array
    shapes: Array | None
    known: Known
    suspicion: Suspicion

    def posterior(self, credit_bytes: float | None, lateness: Lateness) -> Posterior:
        return Posterior(
            draws=self.draws,
            unexplained=self.unexplained,
            evidence=self.known.stay.evidence,
            weights=self.weights,
            shapes=self.shapes,
            credit_bytes=credit_bytes,
            lateness=lateness,
        )


def learn(place: Place, evidence: Evidence, neighbour: Fit | None, seed: int) -> Learned:
    """The posterior since the last change, and whether the law is believed."""
    known = follow(evidence, choose_prior(place, evidence, neighbour))
    evidence, prior = known.stay.evidence, known.stay.prior
    problem = evidence.problem(prior)
    peak = maximise(problem, starts(evidence, prior))
    problem, peak, chances = explain(problem, peak)
    beside = unexplained(problem, peak, chances, count=_UNEXPLAINED_COUNT, seed=seed)
    weights, shapes, suspicion = peak.weights, None, known.suspicion
    if _is_explained_without_law(evidence, problem, peak):
        weights, shapes, suspicion = _without_law(evidence, peak.weights, seed)
    return Learned(
        draws=sample(problem, peak, beside, count=_DRAW_COUNT, seed=seed),
        unexplained=beside,
        residual_fraction_p50=_residual_fraction(problem, peak),
        weights=weights,
        shapes=shapes,
        known=known,
        suspicion=suspicion,
    )


def _is_explained_without_law(evidence: Evidence, problem: Problem, peak: Peak) -> bool:
    """Whether a model without a law explains the measurements better than the law."""
    favour = favour_of_law(evidence, problem, peak)
    return favour is not None and favour < -OFF_MODEL_EVIDENCE


def _without_law(evidence: Evidence, weights: Array, seed: int) -> tuple[Array, Array, Suspicion]:
    """The probability that each row is no dip, draws of hyperparameters, and the suspicion, all without the law.

    A law that is given up would be surprised by every measurement, and advice would never move again.
    """
    is_sight, sightings = evidence.is_sight(), shapeless.weighed(evidence.sightings(weights))
    weights = weights.copy()
    weights[is_sight] = sightings.weights
    shapes = shapeless.learn(sightings, count=_DRAW_COUNT, seed=seed)
    away, deviation = shapeless.newest_beside_the_others(sightings, shapes)
    return weights, shapes, Suspicion(surprise=away / deviation, value_ratio=exp(away))


def _residual_fraction(problem: Problem, peak: Peak) -> float:
    if not problem.data.has_misfit.any():
        return 0.0
    residual = beside_the_others(problem, peak)[0][problem.data.has_misfit]
    return float(np.median(np.abs(np.expm1(np.clip(residual, -5.0, 5.0)))))
