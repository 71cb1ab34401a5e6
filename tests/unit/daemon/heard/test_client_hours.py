"""What was heard is kept by the hour: written anew while the hour lasts, bounded, and shown in the report."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.daemon.heard.client_hours import HOUR_SECONDS, keep_client_hours
from penstock.daemon.heard.hearing import Hearing
from penstock.daemon.memory import retention
from penstock.daemon.memory.async_store import AsyncStore
from penstock.daemon.memory.store import Store
from penstock.lab.virtual_time import VirtualClock
from penstock.operations.table import setting_types
from penstock.vocabulary import ClientHour, Estimate, Histogram, ProbeHarm
from tests.factories import NOON, PLACE
from tests.unit.daemon.heard.test_hearing import a_datagram

DAY = timedelta(days=1)


def an_hour(number: int = 0, *, user_id: int | None = None, name: str = "backup") -> ClientHour:
    """Of an application that uploads parts, ten in flight."""
    return ClientHour(
        began_at=NOON + timedelta(hours=number),
        ended_at=NOON + timedelta(hours=number + 1),
        name=name,
        product="Boto3",
        version="1.43.117",
        user_id=user_id,
        service="S3",
        api="UploadPart",
        region=PLACE.region,
        call_count=3600,
        attempt_count=3650,
        retry_count=50,
        refused_count=50,
        refused_fraction_max=0.25,
        failed_count=0,
        in_flight_count_mean=9.5,
        in_flight_count_max=10.0,
        latencies=Histogram(first=-20, counts=(1825, 1825)),
    )


def a_harm() -> ProbeHarm:
    """Of a probe that cost 12 ms."""
    return ProbeHarm(
        started_at=NOON,
        ended_at=NOON + timedelta(minutes=1),
        operation="s3_upload",
        region="eu-west-1",
        payload_size_bytes=1 << 29,
        attempt_count=60,
        latency_increase_seconds=Estimate(0.010, 0.012, 0.014),
        refused_fraction_increase=0.0,
        is_held_against_after=True,
        is_broken_off=False,
    )


async def test_all_that_was_heard_is_kept_once(clock: VirtualClock, tmp_path: Path) -> None:
    """Over two hours and a half, to the end of the daemon, however often it was written meanwhile."""
    store = AsyncStore(Store(tmp_path / "penstock.db", setting_types()), clock.now)
    hearing = Hearing(clock)
    keeping = asyncio.create_task(keep_client_hours(hearing, store, clock))
    for _ in range(int(2.5 * HOUR_SECONDS / 10)):
        hearing.hear(a_datagram())
        await asyncio.sleep(10.0)
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping
    hours = await store.run(lambda s: s.client_hours(count_max=100))
    await store.close()
    assert len(hours) == 3
    assert sum(hour.attempt_count for hour in hours) == int(2.5 * HOUR_SECONDS / 10)
    assert all("SECRETS" not in repr(hour) for hour in hours)


def test_a_user_makes_room_for_his_own_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that one user makes up displace no hour of another; what is too old goes."""
    monkeypatch.setattr(retention, "CLIENT_HOUR_COUNT_MAX_PER_USER", 5)
    with contextlib.closing(Store(tmp_path / "penstock.db", setting_types())) as store:
        store.put_client_hours([an_hour(user_id=8), an_hour()])
        store.put_client_hours([an_hour(user_id=8)])  # the same once more
        store.put_client_hours([an_hour(number, user_id=7) for number in range(50)])
        store.add_harm(a_harm())
        while store.prune(now=NOON + DAY, retention_seconds=10 * 86400.0):
            pass
        kept = store.client_hours(count_max=100)
        assert [hour.user_id for hour in kept].count(7) == 5
        assert {8, None} < {hour.user_id for hour in kept}
        assert store.harms(count_max=10) == [a_harm()]
        while store.prune(now=NOON + 100 * DAY, retention_seconds=10 * 86400.0):
            pass
        assert not store.client_hours(count_max=100)
        assert not store.harms(count_max=10)
