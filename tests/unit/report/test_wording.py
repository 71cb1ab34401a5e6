"""How names and values are put into words."""

from __future__ import annotations

import pytest

from penstock.report.wording import span
from penstock.units import MiB, label, number, quantity
from penstock.vocabulary import Estimate


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("part_size_bytes", 8 * MiB, "8 MiB"),
        ("throughput_bytes_per_second", 37.5e6, "37.5 MB/s"),
        ("goodput_messages_per_second", 3500.0, "3,500 messages/s"),
        ("request_rate_per_second", 0.868, "0.868/s"),
        ("cpu_seconds_per_byte", 3.3e-10, "0.33 ns"),
        ("hedge_timeout_seconds", 1.5, "1.5 s"),
        ("thread_count", 24, "24"),
        ("usd", 0.0189, "$0.0189"),
        ("latency_seconds", float("nan"), "-"),
    ],
)
def test_a_value_is_shown_in_the_unit_of_its_name(name: str, value: float, words: str) -> None:
    """No table and no figure needs to know which operation a name belongs to."""
    assert quantity(name, value) == words


def test_a_label_leaves_out_the_unit_that_the_value_shows() -> None:
    """People read "part size", not "part size bytes"."""
    assert label("part_size_bytes") == "part size"
    assert label("latency_seconds_p99") == "latency p99"
    assert label("thread_count") == "thread count"


def test_an_interval_says_a_shared_unit_once() -> None:
    """Short where it can be, clear where the units differ."""
    assert span("throughput_bytes_per_second", Estimate(35e6, 37e6, 40e6)) == "35 to 40 MB/s"
    assert span("throughput_bytes_per_second", Estimate(9e5, 1e6, 2e6)) == "900 kB/s to 2 MB/s"


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (1234.5, "1,234"), (0.000333, "0.000333"), (2e-9, "2.00e-09")]
)
def test_numbers_are_plain_digits_where_one_can_do_without_an_exponent(value: float, words: str) -> None:
    """Three digits that count."""
    assert number(value) == words
