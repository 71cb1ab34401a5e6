"""What holds for every quantity that is written for people."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.units import (
    UnitError,
    counted,
    format_bytes,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_bytes_per_second,
    parse_seconds,
    quantity,
    rounded,
)

NAMES = ("part_size_bytes", "throughput_bytes_per_second", "latency_seconds_p99", "sent_messages_per_second")
SIZES = (
    {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    | {"B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9}
    | {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
)
FORMATS = (format_bytes, format_rate, format_seconds)


@given(value=st.floats(1e-3, 1e14), name=st.sampled_from(NAMES))
@example(value=999.9e3, name="throughput_bytes_per_second")
@example(value=999.5, name="throughput_bytes_per_second")
@example(value=999.7 * 1024, name="part_size_bytes")
@example(value=0.99996, name="latency_seconds_p99")
@example(value=1e8, name="latency_seconds_p99")
def test_what_is_large_has_no_exponent(value: float, name: str) -> None:
    """Nobody reads "1e+03 kB/s"; what is negative is written as what is not, with a sign."""
    shown = quantity(name, value)
    assert re.fullmatch(r"[0-9.,]+ [A-Za-z/]+", shown), shown
    assert quantity(name, -value) == f"-{shown}"


@given(count=st.integers(1, 6000), unit=st.sampled_from(("", "TiB", "d", "Tbps")))
@example(count=400, unit="TiB")
def test_a_quantity_is_finite_or_refused(count: int, unit: str) -> None:
    """However many digits somebody writes: from a stranger it is a mistake of his, not one of ours."""
    for read in (parse_bytes, parse_seconds, parse_bytes_per_second):
        try:
            found = read("9" * count + unit)
        except UnitError as error:
            assert len(str(error)) < 200  # noqa: PT017 - it may be read, too
        else:
            assert math.isfinite(found)


@given(value=st.floats(1e-3, 1e14), write=st.sampled_from(FORMATS))
def test_what_is_written_is_the_value_to_three_digits(value: float, write: Callable[[float], str]) -> None:
    """The unit is chosen for the reader; it never changes what is said."""
    written, _, unit = write(value).partition(" ")
    size = SIZES[unit]
    assert float(written) * size == pytest.approx(value, rel=0.0051, abs=0.5 if unit == "B" else 0)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_rate(999.9e3), "1 MB/s"),
        (format_rate(999.4e3), "999 kB/s"),
        (format_rate(999.9e9), "1000 GB/s"),
        (format_bytes(1023 * 1024), "1023 KiB"),
        (format_bytes(1023.9 * 1024), "1 MiB"),
        (format_bytes(999.7 * 1024), "1000 KiB"),
        (format_seconds(0.9997), "1 s"),
        (format_seconds(119.9), "2 min"),
        (format_seconds(90.0), "90 s"),
        (format_seconds(0.0), "0 s"),
        (counted(1, "thread"), "1 thread"),
        (counted(1024, "thread"), "1,024 threads"),
    ],
)
def test_the_unit_is_chosen_for_what_is_written(shown: str, expected: str) -> None:
    """After rounding: 999.9 of one unit are 1 of the next."""
    assert shown == expected


@given(value=st.floats(1e-9, 1e15))
@example(value=0.1234567890123456)
@example(value=8388608.0)
def test_what_is_advised_has_four_digits_and_whole_numbers_are_kept(value: float) -> None:
    """A threshold in bytes is what it is; nobody sets the sixteenth digit of a time."""
    kept = rounded(value)
    assert kept == pytest.approx(value, rel=5e-4)
    assert rounded(kept) == kept
    assert float(value).is_integer() is False or kept == value
    assert len(f"{rounded(0.1234567890123456)}") == len("0.1235")
