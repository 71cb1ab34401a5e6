"""Knows what a fit of transfers remembers, and predicts from it: draws of the law, and the evidence around them."""

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

SURE = 0.8  # of the draws
_MATTERS = 0.5  # of the logarithm of throughput over that of a limit: it is that which holds it back
_NEAR_OCTAVES = (1.5, 3.0)  # of threads and of parts: what is so far apart tells little of each other
FIT_STATE_VERSION = 11  # of what follows; fits that were stored under another are not read


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """Draws of the parameters, and the evidence around them: enough to predict.

    What is the same for every question is worked out with the first.
    """

    draws: Array
    unexplained: tuple[Unexplained, ...]  # beside the draws, in turns
    evidence: Evidence
    weights: Array
    shapes: Array | None  # of what is known without the law, where the law is not believed
    credit_bytes: float | None
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
        """What it was made of; nobody changes a state."""
        return _read(_Same(state))

    @cached_property
    def _sightings(self) -> shapeless.Sightings:
        return self.evidence.sightings(self.weights)

    @cached_property
    def rising_connection_count(self) -> int:
        """The most connections that were measured, where even they were all that held throughput back; 0 elsewhere."""
        widest = self.evidence.widest()
        if widest is None:
            return 0
        matters = widest.what_matters(self.draws)["connections"][:, 0]
        return int(widest.n[0]) if np.mean(matters > _MATTERS) >= SURE else 0

    @property
    def residuals(self) -> Array:
        """Of the logarithm of each throughput that one client saw, beside what is expected of its setting."""
        if self.shapes is not None:
            seen = self._sightings
            expected = shapeless.means(seen, self.shapes, seen.points)
            return np.asarray(seen.log_values - expected.mean(axis=0), dtype=np.float64)
        law = self.evidence.law()(self.draws)[:, self.evidence.is_throughput()]
        expected = self._beside(law, self._data.coordinates)
        # Other clients are another group, not a state.
        is_seen = self.evidence.is_sight()[self.evidence.is_throughput()]
        return np.asarray((self._data.log_values - expected.mean(axis=0))[is_seen], dtype=np.float64)

    @cached_property
    def _data(self) -> Measurements:
        """Of throughput."""
        every = self.evidence.measurements()
        return every.of(np.flatnonzero(every.has_misfit))

    @cached_property
    def _remainders(self) -> list[Remainder]:
        """What the draws leave for each of the misfits to say."""
        is_rate, turns = self.evidence.is_throughput(), len(self.unexplained)
        residual = self._data.log_values - self.evidence.law()(self.draws)[:, is_rate]
        return [
            Remainder(replace(each, weights=each.weights[is_rate]), self._data, residual[turn::turns])
            for turn, each in enumerate(self.unexplained)
        ]

    def log_throughput(self, transfers: Transfers) -> Array:
        """Draws of the logarithm, (draws, settings)."""
        if self.shapes is not None:
            return shapeless.means(self._sightings, self.shapes, _points(transfers))
        return self._beside(transfers.log_throughput(self.draws), self._coordinates(transfers))

    def _beside(self, values: Array, here: Array) -> Array:
        """What the draws of the law say of coordinates, with what its misfits say besides."""
        for turn, (each, reach) in enumerate(self._reached(here)):
            values[turn :: len(self._remainders)] += each.means(reach)
        return values

    def misfit_variance(self, transfers: Transfers) -> Array:
        """How much the law may be off at each setting, as a variance (settings,)."""
        if self.shapes is not None:
            return shapeless.variance(self._sightings, self.shapes, _points(transfers))
        here = self._coordinates(transfers)
        return np.asarray(
            np.mean([each.variance(reach) for each, reach in self._reached(here)], axis=0), dtype=np.float64
        )

    @property
    def noise_variance(self) -> float:
        """Of a measurement whose noise scale is 1."""
        return float(np.mean([each.sigma**2 for each in self.unexplained]))

    @property
    def weather_variance(self) -> float:
        """Of what all measurements within an hour share."""
        return float(np.mean([each.misfit.weather**2 for each in self.unexplained]))

    def strangeness(self, transfers: Transfers) -> Array:
        """How little the nearest measurement tells of each setting, as a share of a variance (settings,)."""
        seen = self._data.coordinates[:, :2]
        if not len(seen):
            return np.ones(len(transfers.n))
        told = matern(_knobs(transfers), seen, _NEAR_OCTAVES).max(axis=1)
        return np.asarray(1.0 - told**2, dtype=np.float64)

    def _coordinates(self, transfers: Transfers) -> Array:
        """As the misfits see them; on credits or not is one where all was measured without."""
        is_told = bool(self.evidence.column("is_burst").any())
        return np.column_stack([_knobs(transfers), is_told * transfers.is_burst])

    def together(self, transfers: Transfers) -> Array:
        """Draws of the logarithm around what is predicted, (draws, settings), for comparing a few settings.

        They share the draws of the parameters and the misfit: only what tells the settings apart makes them differ.
        """
        values = self.log_throughput(transfers)
        # Of settings that do the same it has no inverse.
        variances, axes = np.linalg.eigh(self.covariance(transfers))
        return values + _wiggles(axes * np.sqrt(np.maximum(variances, 0.0)), len(values))

    def covariance(self, transfers: Transfers) -> Array:
        """What is not known of settings beyond the spread of the draws, together: (settings, settings)."""
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
        """Each remainder, with what its misfit says of coordinates (settings, 3) by those that were measured."""
        return zip(self._remainders, covariances(self._misfits, here, self._data.coordinates), strict=True)


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
    """So many draws around nothing, (draws, settings), the second half mirroring the first."""
    normal = np.random.default_rng(len(factor)).standard_normal((count // 2, len(factor)))
    return np.asarray(np.concatenate([normal, -normal])[:count] @ factor.T, dtype=np.float64)


def _points(transfers: Transfers) -> Array:
    return np.column_stack([_knobs(transfers), np.log2(transfers.size)])


def _knobs(transfers: Transfers) -> Array:
    return np.stack([np.log2(transfers.n), np.log2(transfers.s)], axis=1)
