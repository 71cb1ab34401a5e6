"""Knows how the daemon uses its store: on one thread, and as the journal of its probes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from penstock.daemon.memory.database import DiskTrouble, Lost
from penstock.daemon.memory.rows import Row
from penstock.daemon.memory.store import Store
from penstock.models.sqs.backlog_warning import BacklogSpell
from penstock.probes.probe import Leftover
from penstock.vocabulary import Observation

_log = logging.getLogger(__name__)

T = TypeVar("T")
WAITING_REPORT_COUNT_MAX = 200  # while the disk is in trouble: they would be lost if the process ended


class AsyncStore:
    """The store for the daemon: every call runs on the one thread that writes. It is also the probes' journal.

    Observations that arrive during a transaction share the next one.
    """

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._batch: deque[Row[Any]] = deque()
        self._in_use: set[Leftover] = set()

    @property
    def trouble(self) -> str | None:
        """One sentence while values wait in memory."""
        return self._store.trouble

    async def run(self, action: Callable[[Store], T]) -> T:
        """Call a method of the store on its thread: ``await store.run(lambda s: s.fits())``."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, action, self._store)

    async def add_observation(self, observation: Observation[Any]) -> None:
        """Store an observation; on return it is on disk, or waits for a disk in trouble. Raises ValueError."""
        self._batch.append(self._store.observation_row(observation))
        await self.run(self._write_batch)

    async def add_backlog(self, spell: BacklogSpell) -> None:
        await self.run(lambda store: store.add_backlog(spell))

    async def record(self, leftover: Leftover) -> None:
        """Journal something before it is created; on return the entry would survive `kill -9`. Raises DiskTrouble."""
        await self.run(lambda store: store.record_leftover(leftover, now=self._now()))
        self._in_use.add(leftover)

    async def strike(self, leftover: Leftover) -> None:
        """Strike out something that is gone. If the disk refuses, the next sweep looks for it once more."""
        self._in_use.discard(leftover)
        try:
            await self.run(lambda store: store.strike_leftover(leftover))
        except DiskTrouble as trouble:
            _log.warning("%s is gone and stays in the journal: %s", leftover.name, trouble)

    async def abandon(self, leftover: Leftover) -> None:
        """Nobody uses it any more: unless it was struck out, it is a leftover, whose age counts from now."""
        if leftover in self._in_use:
            self._in_use.discard(leftover)
            with suppress(DiskTrouble):  # then it seems older than it is
                await self.run(lambda store: store.date_leftover(leftover, now=self._now()))

    async def left_behind(self) -> dict[Leftover, datetime]:
        """What may still exist outside and is not in use, with its date, oldest first. Raises DiskTrouble."""
        entries = await self.run(Store.dated_leftovers)
        return {leftover: at for leftover, at in entries.items() if leftover not in self._in_use}

    async def open_entries(self) -> list[Leftover]:
        return await self.run(Store.open_leftovers)

    async def close(self) -> None:
        """Write what waits in memory and close the file. Raises Lost, and logs it."""
        try:
            await self.run(self._end)
        except Lost as loss:
            _log.error("%s", loss)
            raise
        finally:
            self._writer.shutdown()

    async def why_no_room(self, report_count: int) -> str | None:
        """Why this many more reports cannot be kept now; None when they can."""
        if self.trouble is None or not await self.run(Store.flush):
            waiting_count = self._store.waiting_report_count + len(self._batch)
            if self.trouble is not None and waiting_count + report_count > WAITING_REPORT_COUNT_MAX:
                return self.trouble
        return None

    def _end(self, store: Store) -> None:
        self._write_batch(store)  # a task that added rows may have been cancelled
        store.close()

    def _write_batch(self, store: Store) -> None:
        rows = []
        while self._batch:
            rows.append(self._batch.popleft())
        if rows:
            store.add_rows(rows)
