"""What an aim means in numbers: what is good enough, what it costs, and which of the good ones is advised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from penstock.models.model import Appraisal
from penstock.models.s3.upload import S3UploadSetting
from penstock.optimizer import objective
from penstock.optimizer.objective import (
    BARGAIN,
    Bargain,
    choose,
    coordinates,
    is_within,
    price,
    rank,
)
from penstock.units import MiB
from penstock.vocabulary import Demand, Objective, knob
from tests.factories import a_queue_setting

THROUGHPUT, PEAK = Objective.THROUGHPUT, Objective.PEAK
LATENCY, FRUGAL = Objective.LATENCY, Objective.FRUGAL


def an_appraisal(**columns: list[float]) -> Appraisal:
    """Of as many settings as a column has values; what is not named is 1."""
    count = len(next(iter(columns.values())))
    names = (
        "value",
        "latency_seconds",
        "connection_count",
        "memory_bytes",
        "request_rate_per_second",
        "refused_fraction",
    )
    return Appraisal(**{name: np.array(columns.get(name, [1.0] * count)) for name in names})


@pytest.mark.parametrize(
    ("aim", "columns", "chosen"),
    [
        # Within 8 % of the best, an eighth of the connections' share is what throughput is given up for.
        (THROUGHPUT, {"value": [100.0, 97.0, 91.9], "connection_count": [32.0, 16.0, 1.0]}, 1),
        (THROUGHPUT, {"value": [100.0, 97.1], "connection_count": [100.0, 80.0]}, 0),
        (THROUGHPUT, {"value": [100.0, 97.1], "connection_count": [100.0, 78.0]}, 1),
        # Memory counts a twentieth of that.
        (THROUGHPUT, {"value": [10.0, 10.0], "memory_bytes": [2.0 * MiB, 1.0 * MiB]}, 1),
        (
            THROUGHPUT,
            {"value": [1.0, 1.0], "connection_count": [10.0, 9.9], "memory_bytes": [1.0 * MiB, 2.0 * MiB]},
            0,
        ),
        (
            THROUGHPUT,
            {"value": [1.0, 1.0], "connection_count": [10.0, 9.0], "memory_bytes": [1.0 * MiB, 2.0 * MiB]},
            1,
        ),
        # Less than one connection, on average, is less to pay.
        (THROUGHPUT, {"value": [1.0, 1.0], "connection_count": [1.0, 0.5]}, 1),
        # Twice the connections for two hundredths, but not for one.
        (PEAK, {"value": [100.0, 98.0], "connection_count": [32.0, 16.0]}, 0),
        (PEAK, {"value": [100.0, 99.0], "connection_count": [32.0, 16.0]}, 1),
        (PEAK, {"value": [100.0, 97.9], "connection_count": [1024.0, 1.0]}, 0),
        # The fastest within 2 %, and of these what takes least; throughput does not count.
        (
            LATENCY,
            {
                "latency_seconds": [1.0, 1.019, 1.03],
                "connection_count": [9.0, 8.0, 1.0],
                "value": [1.0, 9.0, 9.0],
            },
            1,
        ),
        # Four fifths of the best are enough for the frugal.
        (FRUGAL, {"value": [100.0, 81.0, 79.0], "connection_count": [9.0, 2.0, 1.0]}, 1),
        # Requests for what is carried: half as much as connections and memory.
        (FRUGAL, {"value": [100.0, 100.0], "request_rate_per_second": [50.0, 40.0]}, 1),
        (FRUGAL, {"value": [100.0, 81.0], "request_rate_per_second": [50.0, 45.0]}, 0),
        (
            FRUGAL,
            {"value": [10.0, 10.0], "memory_bytes": [2.0, 3.0], "request_rate_per_second": [9.0, 3.0]},
            1,
        ),
        (
            FRUGAL,
            {"value": [10.0, 10.0], "memory_bytes": [2.0, 3.0], "request_rate_per_second": [9.0, 5.0]},
            0,
        ),
        # However little it is.
        (THROUGHPUT, {"value": [0.4, 0.5]}, 1),
        # Of equals the better one.
        (LATENCY, {"latency_seconds": [1.01, 1.0]}, 1),
    ],
)
def test_the_aim_decides_what_is_advised(
    aim: Objective, columns: dict[str, list[float]], chosen: int
) -> None:
    """The least price of what is good enough."""
    assert choose(an_appraisal(**columns), aim) == chosen


def test_what_is_not_good_enough_has_no_rank() -> None:
    """Of the best, less a slack; and never less than is asked for."""
    found = an_appraisal(value=[100.0, 92.0, 90.0, 87.0])
    assert np.isfinite(rank(found, THROUGHPUT)).tolist() == [True, True, False, False]
    assert np.isfinite(rank(found, THROUGHPUT, slack=0.02)).tolist() == [True, True, True, False]
    assert np.isfinite(rank(found, THROUGHPUT, slack=0.5, least=91.0)).tolist() == [True, True, False, False]


def test_the_terms_of_a_bargain() -> None:
    """The price, less the logarithm of what it brings, weighed; however little all of them bring."""
    useful, cost = np.exp([-3.0, -2.0]), np.array([5.0, 6.0])
    assert Bargain(within=0.9, connections_worth=0.5).rank(useful, cost).tolist() == [11.0, 10.0]
    assert Bargain(within=0.08, connections_worth=1 / 8) == BARGAIN


def test_what_advice_that_stands_may_lack() -> None:
    """A hundredth of the throughput, or 8 % more connections where these count alone."""
    found = {aim: round(objective.kept_within(aim), 9) for aim in Objective}
    assert found == {THROUGHPUT: 0.08, PEAK: 0.64, LATENCY: 0.08, FRUGAL: 0.08}
    assert {aim: objective.probing_worth(aim) for aim in (THROUGHPUT, PEAK, FRUGAL)} == {
        THROUGHPUT: 1 / 8,
        PEAK: 1 / 64,
        FRUGAL: 1 / 8,
    }


def test_nothing_at_all_has_a_price() -> None:
    """No connection, no memory, no time and no value: numbers all the same."""
    nothing = an_appraisal(
        value=[0.0],
        latency_seconds=[0.0],
        connection_count=[0.0],
        memory_bytes=[0.0],
        request_rate_per_second=[0.0],
    )
    for aim in Objective:
        assert np.isfinite(price(nothing, aim)).all()
        assert np.isfinite(rank(nothing, aim)).all()
        assert (objective.utility(nothing, aim) > 0.0).all()


def test_the_share_that_an_aim_must_reach() -> None:
    """Of what the SDK does by itself."""
    assert {aim: objective.required_share(aim) for aim in Objective} == {
        THROUGHPUT: 0.98,
        PEAK: 0.98,
        LATENCY: 0.98,
        FRUGAL: 0.8,
    }


def test_limits_are_kept_to_the_last_thread_and_byte() -> None:
    """Each is one by itself; none is no limit."""
    settings = [S3UploadSetting(thread_count=n, part_size_bytes=8 * MiB) for n in (4, 5, 4)]
    found = an_appraisal(memory_bytes=[10.0, 10.0, 11.0])
    for demand, kept in (
        (Demand(), [True, True, True]),
        (Demand(thread_count_max=4), [True, False, True]),
        (Demand(memory_bytes_max=10), [True, True, False]),
        (Demand(thread_count_max=4, memory_bytes_max=10), [True, False, False]),
    ):
        assert is_within(settings, found, demand).tolist() == kept
    assert is_within(settings[:1], an_appraisal(memory_bytes=[10.0]), Demand(thread_count_max=4)).all()


def test_all_threads_count_whatever_they_are_for() -> None:
    """A queue has three kinds."""
    queue = a_queue_setting(1, 2, 4, batch=10)
    assert objective.thread_counts([queue]).tolist() == [7.0]


def test_settings_are_points_in_octaves() -> None:
    """Zero counts as a half."""

    @dataclass(frozen=True)
    class Made:
        ratio: int = knob(0, 64)
        other: int = knob(0, 64)

    assert coordinates(Made, [Made(8, 4), Made(0, 64)]).tolist() == [[3.0, 2.0], [-1.0, 6.0]]
