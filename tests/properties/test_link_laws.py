"""Laws of the link, whatever the flows."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.lab.link import Episodes, Link, LinkTruth
from penstock.lab.virtual_time import VirtualClock, run_virtually

# A law is no faster on a busy machine.
unhurried = settings(deadline=None, max_examples=50)

Flow = tuple[float, float]

flows = st.lists(st.tuples(st.floats(0, 50), st.floats(1, 500)), min_size=1, max_size=15)
dips = st.none() | st.builds(
    Episodes,
    gap_seconds_mean=st.floats(5, 50),
    duration_seconds_mean=st.floats(2, 20),
    fraction_low=st.just(0.1),
    fraction_high=st.floats(0.1, 0.9),
)
truths = st.builds(
    LinkTruth,
    round_trip_seconds=st.floats(0.001, 0.3),
    connection_rate_bytes_per_second=st.floats(5, 50),
    host_rate_bytes_per_second=st.floats(20, 200),
    window_bytes=st.none() | st.floats(2, 50),
    oversubscription_loss=st.floats(0, 0.5),
    dips=dips,
    tenant=dips,
)


def carried(truth: LinkTruth, story: list[Flow], *, seed: int = 0) -> tuple[list[float], float]:
    """When each flow of (start, size) ended, and what the link says it carried."""

    async def tell(clock: VirtualClock) -> tuple[list[float], float]:
        link = Link(truth, seed=seed)

        async def flow(start: float, size: float) -> float:
            await asyncio.sleep(start)
            await link.carry(size)
            return clock.monotonic_seconds()

        return list(await asyncio.gather(*(flow(*one) for one in story))), link.carried_bytes

    return run_virtually(tell, start_at=datetime(2026, 1, 1, tzinfo=UTC))


@unhurried
@given(truths, flows)
def test_every_byte_is_carried_once(truth: LinkTruth, story: list[Flow]) -> None:
    """What the link carried is what was pushed."""
    _, carried_bytes = carried(truth, story)
    assert carried_bytes == pytest.approx(sum(size for _, size in story), rel=1e-6)


@unhurried
@given(truths, flows)
def test_nobody_is_faster_than_the_link(truth: LinkTruth, story: list[Flow]) -> None:
    """No flow beats one connection, and no stretch of time beats the host."""
    ends, _ = carried(truth, story)
    for (start, size), end in zip(story, ends, strict=True):
        assert end - start >= size / truth.stream_rate_bytes_per_second * (1 - 1e-6) - 1e-6
        begun_after = sum(s for (b, s), e in zip(story, ends, strict=True) if b >= start and e <= end)
        assert end - start >= begun_after / truth.host_rate_bytes_per_second * (1 - 1e-6) - 1e-6


@unhurried
@given(truths, flows)
def test_a_smaller_flow_begun_together_ends_first(truth: LinkTruth, story: list[Flow]) -> None:
    """Sharing is equal: of flows that begin together the shorter is never later."""
    together = [(0.0, size) for _, size in story]
    ends, _ = carried(truth, together)
    by_size = sorted(zip((size for _, size in together), ends, strict=True))
    assert all(first[1] <= second[1] + 1e-6 for first, second in itertools.pairwise(by_size))


@unhurried
@given(truths, flows, st.integers(0, 1000))
def test_the_same_seed_is_the_same_world(truth: LinkTruth, story: list[Flow], seed: int) -> None:
    """A world can be visited again."""
    assert carried(truth, story, seed=seed) == carried(truth, story, seed=seed)


@unhurried
@example(5.0, 60.0, 23.0, [25.0, 15.0])  # looked at when less than a byte of credit was left
@given(
    st.floats(5, 50),
    st.floats(60, 200),
    st.floats(10, 2000),
    st.lists(st.floats(1, 2000), min_size=1, max_size=10),
)
def test_a_burst_is_worth_its_credits(
    baseline: float, burst: float, credit: float, sizes: list[float]
) -> None:
    """In any time t a host carries at most credits + baseline * t."""
    truth = LinkTruth(
        round_trip_seconds=0.01,
        connection_rate_bytes_per_second=100.0,
        host_rate_bytes_per_second=baseline,
        burst_rate_bytes_per_second=burst,
        credit_bytes=credit,
    )
    ends, carried_bytes = carried(truth, [(0.0, size) for size in sizes])
    assert carried_bytes <= credit + baseline * max(ends) + len(sizes) + 1
