"""Knows what a fit of transfers remembers, and predicts from it: draws of the law, and the evidence around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from penstock.models.inference import shapeless
from penstock.models.inference.regression import Measurements, Misfit, matern, noise_covariance
from penstock.models.model import STATE_VERSION, Array
from penstock.models.s3.evidence import Evidence
from penstock.models.s3.lateness import Lateness
from penstock.models.s3.law import Transfers

FIT_STATE_VERSION = 9  # of what follows; fits that were stored under another are not read


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """Draws of the parameters, and the evidence around them: enough to predict.

    What is the same for every question is worked out with the first.
    """

    draws: Array
    sigma: float
    misfit: Misfit
    evidence: Evidence
    weights: Array
    shapes: Array | None  # of what is known without the law, where the law is not believed
    credit_bytes: float | None
    lateness: Lateness

    def to_state(self) -> dict[str, Any]:
        return {
            STATE_VERSION: FIT_STATE_VERSION,
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
            "late_fraction": self.lateness.fraction,
            "late_seconds": self.lateness.seconds,
            "late_seen_count": self.lateness.seen_count,
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> Posterior:
        """What it was made of; nobody changes a state."""
        return _read(_Same(state))

    @cached_property
    def _sightings(self) -> shapeless.Sightings:
        return self.evidence.sightings(self.weights)

    @cached_property
    def _data(self) -> Measurements:
        return self.evidence.measurements()

    @cached_property
    def _residual(self) -> Array:
        """Of the evidence, by draws."""
        return self._data.log_values - self.evidence.law()(self.draws)

    @cached_property
    def _noise(self) -> Array:
        return noise_covariance(self._data, self.misfit, self.sigma, self.weights)

    @cached_property
    def _doubtful(self) -> Posterior:
        """The same, where the law is off by as much as it may be."""
        return replace(self, misfit=replace(self.misfit, amplitude=self.misfit.doubt))

    def log_throughput(self, transfers: Transfers) -> Array:
        """Draws of the logarithm, (draws, settings)."""
        if self.shapes is not None:
            return shapeless.means(self._sightings, self.shapes, _points(transfers))
        values = transfers.log_throughput(self.draws)
        if self.misfit.amplitude == 0 or not self.evidence.rows:
            return values
        return np.asarray(values + self.misfit_at(transfers)[0], dtype=np.float64)

    def misfit_variance(self, transfers: Transfers) -> Array:
        """How much the law may be off at each setting, as a variance (settings,)."""
        if self.shapes is not None:
            return shapeless.variance(self._sightings, self.shapes, _points(transfers))
        known = np.zeros(len(transfers.n))
        if self.evidence.rows:
            _, gain, reach = self._doubtful.misfit_at(transfers)
            known = np.einsum("sn,ns->s", reach, gain)
        return np.maximum(self.misfit.doubt**2 - known, 0.0)

    def strangeness(self, transfers: Transfers) -> Array:
        """How little the nearest measurement tells of each setting, as a share of a variance (settings,)."""
        seen = self._data.coordinates[self._data.has_misfit]
        if not len(seen):
            return np.ones(len(transfers.n))
        told = matern(_coordinates(transfers), seen, Misfit().length_octaves).max(axis=1)
        return np.asarray(1.0 - told**2, dtype=np.float64)

    def together(self, transfers: Transfers) -> Array:
        """Draws of the logarithm around what is predicted, (draws, settings), for comparing a few settings.

        They share the draws of the parameters and the misfit: only what tells the settings apart makes them differ.
        """
        centre = self.log_throughput(transfers)
        if self.shapes is None:
            values, covariance = self.doubted(transfers)
        else:
            values = centre
            covariance = shapeless.covariance(self._sightings, self.shapes, _points(transfers))
        variances, axes = np.linalg.eigh(covariance)  # of settings that do the same it has no inverse
        drawn = values + _wiggles(axes * np.sqrt(np.maximum(variances, 0.0)), len(values))
        return np.asarray(drawn - drawn.mean(axis=0) + centre.mean(axis=0), dtype=np.float64)

    def doubted(self, transfers: Transfers) -> tuple[Array, Array]:
        """What the law and the evidence say of the logarithm by draws, and how far the law may be off, together."""
        values = transfers.log_throughput(self.draws)
        here = _coordinates(transfers)
        covariance = self.misfit.doubt**2 * matern(here, here, self.misfit.length_octaves)
        if self.evidence.rows:
            shift, gain, reach = self._doubtful.misfit_at(transfers)
            values, covariance = values + shift, covariance - reach @ gain
        return values, np.asarray(covariance, dtype=np.float64)

    def misfit_at(self, transfers: Transfers) -> tuple[Array, Array, Array]:
        """What the Gaussian process adds to each draw, the gain that does it, and the covariance with the evidence."""
        reach = matern(_coordinates(transfers), self._data.coordinates, self.misfit.length_octaves)
        reach = np.asarray(self.misfit.amplitude**2 * reach * self._data.has_misfit, dtype=np.float64)
        gain = np.asarray(np.linalg.solve(self._noise, reach.T), dtype=np.float64)
        return np.asarray(self._residual @ gain, dtype=np.float64), gain, reach


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A state by which it is, not by what it says: what was read of it is kept as long as it."""

    state: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.state is self.state

    def __hash__(self) -> int:
        return id(self.state)


@lru_cache(maxsize=4)
def _read(same: _Same) -> Posterior:
    state = same.state
    first, second = state["misfit_length_octaves"]
    return Posterior(
        draws=np.array(state["draws"], dtype=np.float64),
        sigma=state["sigma"],
        misfit=Misfit(
            amplitude=state["misfit_amplitude"],
            doubt=state["misfit_doubt"],
            weather=state["misfit_weather"],
            length_octaves=(first, second),
        ),
        evidence=Evidence(rows=tuple(tuple(row) for row in state["rows"])),
        weights=np.array(state["weights"], dtype=np.float64),
        shapes=None if state["shapes"] is None else np.array(state["shapes"], dtype=np.float64),
        credit_bytes=state["credit_bytes"],
        lateness=Lateness(
            fraction=state["late_fraction"],
            seconds=state["late_seconds"],
            seen_count=state["late_seen_count"],
        ),
    )


def _wiggles(factor: Array, count: int) -> Array:
    """So many draws around nothing, (draws, settings), the second half mirroring the first."""
    normal = np.random.default_rng(len(factor)).standard_normal((count // 2, len(factor)))
    return np.asarray(np.concatenate([normal, -normal])[:count] @ factor.T, dtype=np.float64)


def _points(transfers: Transfers) -> Array:
    return np.column_stack([_coordinates(transfers), np.log2(transfers.size)])


def _coordinates(transfers: Transfers) -> Array:
    return np.stack([np.log2(transfers.n), np.log2(transfers.s)], axis=1)
