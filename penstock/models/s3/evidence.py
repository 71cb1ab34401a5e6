"""Knows what rows of evidence say about the law of transfers: each row is one equation for its parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from functools import cached_property
from math import inf
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.models.inference import shapeless
from penstock.models.inference.misfit import Measurements, Misfit
from penstock.models.inference.posterior import Gaussian
from penstock.models.inference.regression import Problem
from penstock.models.model import Array
from penstock.models.s3.law import (
    LATENCY,
    Transfers,
    log_admitted,
    log_cpu_beside,
    log_network,
    log_object_seconds,
)


class Kind(IntEnum):
    """What a row is about."""

    WHOLE = 0  # throughput of a whole transfer
    STEADY = 1  # throughput while all connections are busy
    OBJECT = 2  # seconds to create and complete an object
    THROTTLED = 3  # requests per second that were admitted while others were refused
    IDLE = 4  # the share of time in which connections were idle
    CPU = 5  # bytes per second that the client's processor could move
    CEILING = 6  # throughput that the host's network held back
    FIRST_BYTE = 7  # seconds until the first byte


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Rows of numbers as they are stored in `Fit.state`; each is one equation for the parameters."""

    rows: tuple[Row, ...]

    @cached_property
    def table(self) -> Array:
        return np.array(self.rows, dtype=np.float64).reshape(-1, len(COLUMNS))

    def column(self, name: str) -> Array:
        return self.table[:, COLUMNS.index(name)]

    def law(self) -> Law:
        return Law(self)

    def problem(self, prior: Gaussian, misfit: Misfit | None = None) -> Problem:
        return Problem(law=self.law(), data=self.measurements(), prior=prior, misfit=misfit or Misfit())

    def measurements(self) -> Measurements:
        return Measurements(
            log_values=self.column("log_value"),
            noise_scale=self.column("noise_scale"),
            is_trusted=self.column("is_trusted") > 0,
            coordinates=np.column_stack(
                [np.log2(self.column("n")), np.log2(self.column("s")), self.column("is_burst")]
            ),
            has_misfit=self.is_throughput(),
            group=self.column("client").astype(np.int64),
            hours=self.column("hours"),
        )

    def is_throughput(self) -> NDArray[np.bool_]:
        """Which rows are throughput, of whole transfers or of their steady part: shape (rows,)."""
        return np.asarray(self.column("kind") <= Kind.STEADY, dtype=np.bool_)

    def is_host_limit(self) -> NDArray[np.bool_]:
        """Which rows are direct evidence of a limit of the host: its processor or its network allowance."""
        return np.isin(self.column("kind"), (Kind.CPU, Kind.CEILING))

    @property
    def tells_of_processor(self) -> bool:
        """Whether the client's processor was busy enough to show what it can do."""
        return bool((self.column("kind") == Kind.CPU).any())

    @property
    def tells_totals_alone(self) -> bool:
        """Whether the bytes and seconds of whole transfers are all that is known about throughput."""
        return (
            bool(self.rows) and not np.isin(self.column("kind"), (Kind.STEADY, Kind.OBJECT, Kind.IDLE)).any()
        )

    @property
    def begins_at(self) -> datetime:
        """When the oldest of the measurements was made."""
        return datetime.fromtimestamp(3600.0 * float(self.column("hours").min()), UTC)

    def is_throttled(self) -> NDArray[np.bool_]:
        """Which rows are rates of requests that were admitted while others were refused."""
        return np.asarray(self.column("kind") == Kind.THROTTLED, dtype=np.bool_)

    @property
    def log_fastest(self) -> float:
        """The logarithm of the highest throughput measured, in bytes per second; -inf if there is none."""
        return self.log_fastest_within(inf)

    def log_fastest_within(self, log_most: float) -> float:
        """The same of those that were at most so fast."""
        rates = self.column("log_value")[self.is_throughput()]
        return float(rates[rates <= log_most].max(initial=-inf))

    @property
    def carried_rate_per_second(self) -> float:
        """The highest rate of requests per second at which objects were moved whole; 0 if there is none.

        The requests that a full token bucket lets through at once are left out.
        """
        is_whole = self.is_throughput() & (self.column("objects") == 0)
        rates = np.exp(self.column("log_value")) / self.column("s")
        counts = self.column("transferred") / self.column("s")
        sustained = rates * np.maximum(1.0 - _ADMITTED_AT_ONCE / counts, 0.0)
        return float(sustained[is_whole].max(initial=0.0))

    def is_sight(self) -> NDArray[np.bool_]:
        """Which rows are throughput of one client: penstock itself, or else the one with the most reports."""
        rates, client = self.is_throughput(), self.column("client")
        known, counts = np.unique(client[rates], return_counts=True)
        if not len(known):
            return rates
        followed = known[0] if known[0] < 0 else known[np.argmax(counts)]
        return np.asarray(rates & (client == followed), dtype=np.bool_)

    def widest(self) -> Transfers | None:
        """The transfer with the most connections, taken as steady; None if none was measured."""
        rates = self.table[self.is_sight()]
        if not len(rates):
            return None
        row = rates[np.argmax(rates[:, COLUMNS.index("n")])]
        values = {name: row[COLUMNS.index(name)][None] for name in (*_SPLIT_COLUMNS, "size")}
        return Transfers(**values, is_steady=np.array([True]))

    def of(self, indices: Iterable[int]) -> Evidence:
        """The evidence of the rows with these indices."""
        return Evidence(rows=tuple(self.rows[index] for index in indices))

    def seen(self) -> Evidence:
        """This evidence without the throughput of other clients than that of `is_sight`."""
        return self.of(np.flatnonzero(self.is_sight() | ~self.is_throughput()))

    def upto(self, observation: int) -> Evidence:
        """The evidence up to and including this observation."""
        index = COLUMNS.index("observation")
        return Evidence(rows=tuple(row for row in self.rows if row[index] <= observation))

    def split(self, first: int) -> tuple[Evidence, Evidence]:
        """The evidence before this observation, and that from it on."""
        before = self.upto(first - 1)
        return before, Evidence(rows=self.rows[len(before.rows) :])

    def sightings(self, weights: Array) -> shapeless.Sightings:
        """The throughput rows for a model without a law. `weights` are those of all rows."""
        rates = self.is_sight()
        names = ("n", "s", "size")
        return shapeless.Sightings(
            points=np.log2(np.stack([self.column(name)[rates] for name in names], axis=1)),
            log_values=self.column("log_value")[rates],
            noise_scale=self.column("noise_scale")[rates],
            weights=np.minimum(weights[rates], 1.0),
        )


_ADMITTED_AT_ONCE = 100  # requests: the size of a token bucket


Row: TypeAlias = tuple[float, ...]
COLUMNS = (
    "kind",
    "log_value",
    "noise_scale",
    "is_trusted",
    "client",
    "n",
    "s",
    "full",
    "rest",
    "transferred",
    "objects",
    "is_burst",
    "hours",
    "observation",
    "size",
)
IDLE_FLOOR = 0.02  # differences between idle shares below this do not count


class Law:
    """Predicts the logarithm of each row of evidence from parameters: (draws, parameters) to (draws, rows).

    Rows about one transfer, and transfers that were split alike, share their computation.
    """

    def __init__(self, evidence: Evidence) -> None:
        kind = evidence.column("kind")
        columns = [evidence.column(name) for name in _SPLIT_COLUMNS]
        n, s, full, rest, *_, is_burst = columns
        parts = np.maximum(full * n + rest, 1.0)
        is_steady = (kind != Kind.WHOLE) & (kind != Kind.IDLE)
        unique, self._place = _unique_rows(np.stack([*columns, is_steady], axis=1), kind)
        split = dict(zip(_SPLIT_COLUMNS, unique.T, strict=False))
        self._transfers = Transfers(**split, is_steady=unique[:, -1] > 0, size=split["transferred"])
        self._idle = np.flatnonzero(kind == Kind.IDLE)
        # Rows that are not about a transfer's time, each kind with its law and the columns that this needs.
        self._besides = [
            (rows, of, [each[rows] for each in needed])
            for told, of, needed in (
                (Kind.OBJECT, log_object_seconds, (parts,)),
                (Kind.THROTTLED, log_admitted, (n, s, is_burst)),
                (Kind.CPU, log_cpu_beside, (n, s, is_burst)),
                (Kind.CEILING, log_network, (is_burst,)),
                (Kind.FIRST_BYTE, _log_first_byte, ()),
            )
            if len(rows := np.flatnonzero(kind == told))
        ]

    def __call__(self, theta: Array) -> Array:
        course = self._transfers.course(theta)
        values = course.log_throughput[:, self._place]
        if len(self._idle):
            idle = self._transfers.idle_fraction(course)[:, self._place[self._idle]]
            values[:, self._idle] = np.log(np.maximum(idle, 0.0) + IDLE_FLOOR)
        for rows, of, needed in self._besides:
            values[:, rows] = of(theta, *needed)
        return np.asarray(values, dtype=np.float64)


def _log_first_byte(theta: Array) -> Array:
    return theta[:, LATENCY, None]


_SPLIT_COLUMNS = ("n", "s", "full", "rest", "transferred", "objects", "is_burst")


def _unique_rows(table: Array, kind: Array) -> tuple[Array, NDArray[np.int64]]:
    """The distinct transfers, and for each row the index of its transfer (arbitrary if it is about none)."""
    timed = (kind == Kind.WHOLE) | (kind == Kind.STEADY) | (kind == Kind.IDLE)
    unique, inverse = np.unique(table[timed], axis=0, return_inverse=True)
    place = np.zeros(len(table), dtype=np.int64)
    place[timed] = inverse.reshape(-1)
    return unique if len(unique) else table[:1], place


def throughput_noise_scale(connection_count: float) -> float:
    """The noise of throughput relative to the typical: more connections meet more of the day's traffic.

    Published S3 curves have a coefficient of variation of 5 % with one connection and 12 % with 256.
    """
    return 0.62 + 0.11 * float(np.log2(connection_count))
