"""Knows what a fit of transfers stores, and predicts from it: draws of the law's parameters, and the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from penstock.models.inference import shapeless
from penstock.models.inference.misfit import Measurements, Misfit, Remainder, Unexplained, covariances, matern
from penstock.models.inference.posterior import WEIGHT_MIN
from penstock.models.model import STATE_VERSION, Array
from penstock.models.s3.evidence import Evidence
from penstock.models.s3.lateness import Lateness
from penstock.models.s3.law import Transfers

SURE = 0.8  # of the draws must agree
_MATTERS = 0.5  # elasticity of throughput with respect to a limit, from which on it is what limits
_NEAR_OCTAVES = (1.5, 3.0)  # of threads and part size: so far apart, settings tell little of each other
FIT_STATE_VERSION = 11  # of the stored state; fits with another version are not read


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """Draws of the parameters, and the evidence that they were fitted to: all that predictions need.

    Intermediate results that every question needs are cached.
    """

    draws: Array  # (draws, parameters), logarithms
    unexplained: tuple[Unexplained, ...]  # misfits and noise sizes, assigned to the draws in turn
    evidence: Evidence
    weights: Array  # (rows,): the probability that a row is no dip
    shapes: Array | None  # draws of a model without the law, if the law is given up
    credit_bytes: float | None  # burst credits after the newest measurement
    lateness: Lateness

    def to_state(self) -> dict[str, Any]:
        return {
            STATE_VERSION: FIT_STATE_VERSION,
            "draws": self.draws.tolist(),
            "unexplained": [
                [
                    *(each.misfit.amplitude, *each.misfit.length_octaves, each.misfit.weather, each.sigma),
                    np.flatnonzero(each.weights < 0.5).tolist(),
                ]
                for each in self.unexplained
            ],
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
        """The posterior of a state from `to_state`. It is cached, so the state must not be changed."""
        return _read(_Same(state))

    @cached_property
    def _sightings(self) -> shapeless.Sightings:
        return self.evidence.sightings(self.weights)

    @cached_property
    def rising_connection_count(self) -> int:
        """The most connections measured, if even with these connections were the limit; else 0."""
        widest = self.evidence.widest()
        if widest is None:
            return 0
        matters = widest.what_matters(self.draws)["connections"][:, 0]
        return int(widest.n[0]) if np.mean(matters > _MATTERS) >= SURE else 0

    @property
    def residuals(self) -> Array:
        """Residuals of the logarithm of throughput, for the measurements of one client: (measurements,)."""
        if self.shapes is not None:
            seen = self._sightings
            expected = shapeless.means(seen, self.shapes, seen.points)
            return np.asarray(seen.log_values - expected.mean(axis=0), dtype=np.float64)
        law = self.evidence.law()(self.draws)[:, self.evidence.is_throughput()]
        expected = self._beside(law, self._data.coordinates)
        # Other clients are another group, not another state of the path.
        is_seen = self.evidence.is_sight()[self.evidence.is_throughput()]
        return np.asarray((self._data.log_values - expected.mean(axis=0))[is_seen], dtype=np.float64)

    @cached_property
    def _data(self) -> Measurements:
        """The measurements of throughput."""
        every = self.evidence.measurements()
        return every.of(np.flatnonzero(every.has_misfit))

    @cached_property
    def _remainders(self) -> list[Remainder]:
        """For each misfit, the residuals of its draws, which it explains."""
        is_rate, turns = self.evidence.is_throughput(), len(self.unexplained)
        residual = self._data.log_values - self.evidence.law()(self.draws)[:, is_rate]
        return [
            Remainder(replace(each, weights=each.weights[is_rate]), self._data, residual[turn::turns])
            for turn, each in enumerate(self.unexplained)
        ]

    def log_throughput(self, transfers: Transfers) -> Array:
        """Draws of the logarithm of throughput, with the expectation of the misfit, (draws, settings)."""
        if self.shapes is not None:
            return shapeless.means(self._sightings, self.shapes, _points(transfers))
        return self._beside(transfers.log_throughput(self.draws), self._coordinates(transfers))

    def _beside(self, values: Array, here: Array) -> Array:
        """The law's values (draws, settings) plus the expectation of the misfits at these coordinates; in place."""
        for turn, (each, reach) in enumerate(self._reached(here)):
            values[turn :: len(self._remainders)] += each.means(reach)
        return values

    def misfit_variance(self, transfers: Transfers) -> Array:
        """The variance of the misfit at each setting, (settings,)."""
        if self.shapes is not None:
            return shapeless.variance(self._sightings, self.shapes, _points(transfers))
        here = self._coordinates(transfers)
        return np.asarray(
            np.mean([each.variance(reach) for each, reach in self._reached(here)], axis=0), dtype=np.float64
        )

    @property
    def noise_variance(self) -> float:
        """The noise variance of a measurement whose noise scale is 1."""
        return float(np.mean([each.sigma**2 for each in self.unexplained]))

    @property
    def weather_variance(self) -> float:
        """The variance of weather, the effect that all measurements within an hour share."""
        return float(np.mean([each.misfit.weather**2 for each in self.unexplained]))

    def strangeness(self, transfers: Transfers) -> Array:
        """How little the nearest measurement tells about each setting: a share of a variance, (settings,)."""
        seen = self._data.coordinates[:, :2]
        if not len(seen):
            return np.ones(len(transfers.n))
        told = matern(_knobs(transfers), seen, _NEAR_OCTAVES).max(axis=1)
        return np.asarray(1.0 - told**2, dtype=np.float64)

    def _coordinates(self, transfers: Transfers) -> Array:
        """Coordinates for the misfits, (settings, 3); regimes count as one if none was measured on burst credits."""
        is_told = bool(self.evidence.column("is_burst").any())
        return np.column_stack([_knobs(transfers), is_told * transfers.is_burst])

    def together(self, transfers: Transfers) -> Array:
        """Draws of the logarithm of throughput, including the misfit, (draws, settings), to compare a few settings.

        All settings share the draws of parameters and misfit, so that they differ only in what tells them apart.
        """
        values = self.log_throughput(transfers)
        # By eigenvalues, because the covariance of settings that do the same is singular.
        variances, axes = np.linalg.eigh(self.covariance(transfers))
        return values + _wiggles(axes * np.sqrt(np.maximum(variances, 0.0)), len(values))

    def covariance(self, transfers: Transfers) -> Array:
        """The covariance of the misfit, beyond the spread of the draws: (settings, settings)."""
        if self.shapes is not None:
            return shapeless.covariance(self._sightings, self.shapes, _points(transfers))
        here = self._coordinates(transfers)
        together = covariances(self._misfits, here, here)
        left = [
            every - each.known(reach)
            for every, (each, reach) in zip(together, self._reached(here), strict=True)
        ]
        return np.asarray(np.mean(left, axis=0), dtype=np.float64)

    @property
    def _misfits(self) -> list[Misfit]:
        return [each.misfit for each in self.unexplained]

    def _reached(self, here: Array) -> Iterator[tuple[Remainder, Array]]:
        """Each remainder, with its misfit's covariance of coordinates (settings, 3) with those of measurements."""
        return zip(self._remainders, covariances(self._misfits, here, self._data.coordinates), strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A state compared by identity, as a key of the cache; the cache keeps the state alive."""

    state: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.state is self.state

    def __hash__(self) -> int:
        return id(self.state)


@lru_cache(maxsize=4)
def _read(same: _Same) -> Posterior:
    state = same.state
    return Posterior(
        draws=np.array(state["draws"], dtype=np.float64),
        unexplained=tuple(
            Unexplained(
                Misfit(amplitude=amplitude, length_octaves=(threads, parts), weather=weather),
                sigma,
                weights=np.where(np.isin(np.arange(len(state["rows"])), dips), WEIGHT_MIN, 1.0),
            )
            for amplitude, threads, parts, weather, sigma, dips in state["unexplained"]
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
    """Normal draws around zero, (draws, settings), whose second half mirrors the first; `factor` scales them."""
    normal = np.random.default_rng(len(factor)).standard_normal((count // 2, len(factor)))
    return np.asarray(np.concatenate([normal, -normal])[:count] @ factor.T, dtype=np.float64)


def _points(transfers: Transfers) -> Array:
    return np.column_stack([_knobs(transfers), np.log2(transfers.size)])


def _knobs(transfers: Transfers) -> Array:
    return np.stack([np.log2(transfers.n), np.log2(transfers.s)], axis=1)
