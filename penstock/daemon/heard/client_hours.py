"""Knows how what was heard of applications is stored for the report: hour by hour, in a bounded number of rows."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from datetime import datetime

from msgspec import structs

from penstock.clock import Clock
from penstock.daemon.heard.hearing import Hearing
from penstock.daemon.memory.async_store import AsyncStore
from penstock.listening.tally import Series
from penstock.vocabulary import Calls, ClientHour

HOUR_SECONDS = 3600.0
WRITE_SECONDS = 600.0  # a crash loses no more than this


async def keep_client_hours(hearing: Hearing, store: AsyncStore, clock: Clock) -> None:
    """Store what is heard every `WRITE_SECONDS`, until cancelled, and once more then."""
    began_at, began_seconds = clock.now(), clock.monotonic_seconds()
    try:
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            is_over = clock.monotonic_seconds() - began_seconds >= HOUR_SECONDS
            await _write(hearing.past(is_over=is_over), store, began_at, clock.now())
            if is_over:
                began_at, began_seconds = clock.now(), clock.monotonic_seconds()
    finally:
        await _write(hearing.past(is_over=False), store, began_at, clock.now())


async def _write(heard: list[Series], store: AsyncStore, began_at: datetime, ended_at: datetime) -> None:
    if heard:
        hours = [_hour(series, began_at, ended_at) for series in heard]
        await store.run(lambda s: s.put_client_hours(hours))


def _hour(series: Series, began_at: datetime, ended_at: datetime) -> ClientHour:
    key = series.key
    return ClientHour(
        began_at=began_at,
        ended_at=ended_at,
        **structs.asdict(key.application),
        user_id=series.user_id,
        service=key.service,
        api=key.api,
        region=key.region,
        **{name: getattr(series, name) for name in (field.name for field in fields(Calls))},
    )
