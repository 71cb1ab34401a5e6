"""The moments of the schedule are a Poisson process, whatever interrupts the daemon."""

import dataclasses
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.daemon.schedule import GAP_MEANS_MAX, LEARNING_COUNT, Standing, due_at
from tests.factories import CONTEXT, NOON, a_context

MEAN_SECONDS = 600.0
SETTLED = Standing(context=CONTEXT, mean_interval_seconds=MEAN_SECONDS, observation_count=LEARNING_COUNT)


def _moments(seed: int, count: int, *, uptime_seconds: float | None = None) -> list[float]:
    """When probes are made, in seconds from the start; with `uptime_seconds`, the daemon restarts that often."""
    now, resumed_at, standing = NOON, NOON, SETTLED
    moments: list[float] = []
    while len(moments) < count:
        due = due_at(seed, standing, resumed_at=resumed_at, now=now)
        ends_at = resumed_at + timedelta(seconds=uptime_seconds) if uptime_seconds else due
        if due > ends_at:
            now = resumed_at = ends_at
            continue
        now = due
        moments.append((now - NOON).total_seconds())
        standing = dataclasses.replace(
            standing, attempt_count=standing.attempt_count + 1, last_attempt_at=now
        )
    return moments


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
@pytest.mark.parametrize("uptime_seconds", [None, 300.0, 7200.0])
def test_mean_interval_whatever_the_restarts(seed: int, uptime_seconds: float | None) -> None:
    """Restarts neither bunch nor skip: the mean stays what was asked for (less 0.7 % for the longest gaps)."""
    gaps = np.diff(_moments(seed, 4000, uptime_seconds=uptime_seconds))
    assert np.mean(gaps) == pytest.approx(MEAN_SECONDS, rel=0.06)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_gaps_have_no_memory(seed: int) -> None:
    """Having waited, one waits as long again; and a gap says nothing about the next."""
    gaps = np.diff(_moments(seed, 8000))
    for waited in (300.0, 600.0, 900.0):
        longer = gaps[gaps > waited] - waited
        assert np.mean(longer > 300.0) == pytest.approx(np.exp(-0.5), abs=0.04)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.05


@settings(deadline=None)  # of the machine's load nothing follows
@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.integers(1, 2**40))
def test_gaps_are_bounded_and_repeat(seed: int, count: int, size: int) -> None:
    """The same seed, context and count always give the same gap, above nothing and at most five means."""
    context = a_context(payload_size_bytes=size)
    standing = dataclasses.replace(SETTLED, context=context, attempt_count=count, last_attempt_at=NOON)
    due = due_at(seed, standing, resumed_at=NOON, now=NOON)
    assert NOON <= due <= NOON + timedelta(seconds=MEAN_SECONDS * GAP_MEANS_MAX)
    assert due == due_at(seed, standing, resumed_at=NOON, now=NOON)


def test_contexts_and_seeds_are_independent() -> None:
    """Two hosts, or two sizes on one, do not probe in step."""
    streams = [np.array(_moments(seed, 500)) for seed in range(5)]
    assert all(len(np.intersect1d(a, b)) == 0 for a, b in pairwise(streams))
