"""Knows how many measurements lie where: counts on a grid over two quantities, of bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.models.inference.histogram import CLASSES_PER_OCTAVE, class_of
from penstock.report.tally import HOUR_SECONDS, Tally

COLUMN_COUNT = 48
_CLASSES_PER_COLUMN = 4  # of a knob: four columns per octave
_HALF = 2.0 ** (_CLASSES_PER_COLUMN / CLASSES_PER_OCTAVE / 2)  # half a column, so powers of two are centred
_CLASSES_PER_ROW = 2
_CLASSES_PER_RATIO_ROW = 4
RATIO_CLASSES = (class_of(0.05), class_of(5.0))  # ratios beyond are counted in the outermost rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """Edges of columns and rows, one more than there are of each, and the count in each field, row by row."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """The total."""
        return sum(map(sum, self.counts))

    def y_within(self, fraction: float) -> float:
        """The lowest edge below which this fraction of all lies."""
        wanted, seen = fraction * self.count, 0
        for edge, row in zip(self.y[1:], self.counts, strict=True):
            seen += sum(row)
            if seen >= wanted:
                return edge
        return self.y[-1]


def over_knob(tally: Tally, payload_size_bytes: int, knob: str) -> Density | None:
    """Measurements of one size, over a knob; None if there are none."""
    levels = [
        (float(getattr(setting, knob)), histogram)
        for (size, setting), histogram in tally.levels.items()
        if size == payload_size_bytes and getattr(setting, knob) > 0
    ]
    if not levels:
        return None
    fields: Counter[tuple[int, int]] = Counter()
    for value, histogram in levels:
        for number, count in enumerate(histogram.counts, start=histogram.first):
            if count:
                column = class_of(value * _HALF) // _CLASSES_PER_COLUMN
                fields[column, number // _CLASSES_PER_ROW] += count
    columns, rows = _span(x for x, _ in fields), _span(y for _, y in fields)
    return Density(
        x=tuple(_ends(n * _CLASSES_PER_COLUMN) / _HALF for n in (*columns, columns.stop)),
        y=tuple(_ends(n * _CLASSES_PER_ROW) for n in (*rows, rows.stop)),
        counts=tuple(tuple(fields[x, y] for x in columns) for y in rows),
    )


def over_time(tally: Tally) -> Density | None:
    """Successful measurements relative to what is expected now, over time; None if nothing is expected."""
    if not tally.course:
        return None
    first, last = min(tally.course), max(tally.course)
    width = -(-(last - first + 1) // COLUMN_COUNT)  # hours
    lowest, highest = RATIO_CLASSES
    fields: Counter[tuple[int, int]] = Counter()
    for hour, histogram in tally.course.items():
        for number, count in enumerate(histogram.counts, start=histogram.first):
            row = min(max(number, lowest), highest) // _CLASSES_PER_RATIO_ROW
            fields[(hour - first) // width, row] += count
    columns, rows = _span(x for x, _ in fields), _span(y for _, y in fields)
    return Density(
        x=tuple(float((first + n * width) * HOUR_SECONDS) for n in (*columns, columns.stop)),
        y=tuple(_ends(n * _CLASSES_PER_RATIO_ROW) for n in (*rows, rows.stop)),
        counts=tuple(tuple(fields[x, y] for x in columns) for y in rows),
    )


def _span(numbers: Iterable[int]) -> range:
    known = list(numbers)
    return range(min(known), max(known) + 1)


def _ends(number: int) -> float:
    """The value at which a class begins."""
    return float(2.0 ** (number / CLASSES_PER_OCTAVE))
