"""The store that counts requests: what it lets through, and who may ask it again."""

from __future__ import annotations

from dataclasses import replace

from bench.small_objects import fresh_store, run_client


def test_a_store_lets_so_many_through_at_once_and_so_many_a_second() -> None:
    """Sixty-four threads want 3,200 a second, and get the depth of the bucket and the rate."""
    store = replace(
        fresh_store(1, 1), depth=20.0, rate_per_second=200.0, request_seconds=0.02, client="s5cmd"
    )
    ran = run_client(store, 64, 3000, 1, is_endless=True)
    assert ran.refused_count > 0
    assert 0.9 * 200.0 < ran.moved_count / ran.seconds < 1.02 * (200.0 + 20.0 / ran.seconds)
    calm = run_client(store, 64, 3000, 1, rate_limit_per_second=150.0)
    assert (calm.refused_count, calm.moved_count) == (0, 3000)
