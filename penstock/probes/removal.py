"""Knows how what lies in a bucket is removed fast and whole: in batches, or side by side where a store has none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from penstock.probes.outside import Missing, ObjectStore, Refused

MULTIPART_NAME = "object"  # of the one key of a run that is uploaded in parts
KEY_COUNT_MAX = 1000  # of one DeleteObjects
REQUEST_COUNT_AT_ONCE_MAX = 16  # of those for a single thing: nearly as fast as a batch, and gentle

ResultT = TypeVar("ResultT")


class Removal:
    """What is removed from one bucket. Each method tries everything, and raises the first RequestError after that.

    What is gone already is no trouble, whoever removed it.
    """

    def __init__(self, store: ObjectStore, bucket: str) -> None:
        self._store = store
        self._bucket = bucket
        self._room = asyncio.Semaphore(REQUEST_COUNT_AT_ONCE_MAX)
        self.request_count = 0
        self.listing_count = 0  # of these; nothing else of it costs money

    async def clear(self, name: str) -> int:
        """A key with its unfinished uploads, or a whole run when the name ends in a slash; how many there were."""
        is_run = name.endswith("/")
        counts = await all_tried(
            self.abort_uploads(name + MULTIPART_NAME if is_run else name),
            self._delete_found(name, is_run=is_run),
        )
        return sum(counts)

    async def abort_uploads(self, key: str) -> int:
        """Unfinished uploads of exactly this key: some stores list them by nothing less. How many there were."""
        self._count_listing()
        with contextlib.suppress(Missing):  # the bucket is gone, and everything with it
            listed = await self._store.list_multipart_uploads(self._bucket, key)
            found = [upload_id for listed_key, upload_id in listed if listed_key == key]
            await all_tried(*(self.abort(key, upload_id) for upload_id in found))
            return len(found)
        return 0

    async def abort(self, key: str, upload_id: str) -> None:
        """One unfinished upload."""
        async with self._room:
            self.request_count += 1
            with contextlib.suppress(Missing):
                await self._store.abort_multipart_upload(self._bucket, key, upload_id)

    async def delete(self, keys: Iterable[str]) -> None:
        """Objects."""
        named = sorted(keys)
        batches = (named[start : start + KEY_COUNT_MAX] for start in range(0, len(named), KEY_COUNT_MAX))
        await all_tried(*map(self._delete_batch, batches))

    async def _delete_found(self, name: str, *, is_run: bool) -> int:
        self._count_listing()
        with contextlib.suppress(Missing):
            listed = await self._store.list_objects(self._bucket, name)
            found = [key for key in listed if is_run or key == name]
            await self.delete(found)
            return len(found)
        return 0

    async def _delete_batch(self, keys: Sequence[str]) -> None:
        """By one request; what is refused for whatever reason, key by key."""
        if len(keys) == 1 or not await self._is_deleted_at_once(keys):
            await all_tried(*map(self._delete_one, keys))

    async def _is_deleted_at_once(self, keys: Sequence[str]) -> bool:
        async with self._room:
            self.request_count += 1
            try:
                with contextlib.suppress(Missing):
                    await self._store.delete_objects(self._bucket, keys)
            except Refused:
                return False
        return True

    async def _delete_one(self, key: str) -> None:
        async with self._room:
            self.request_count += 1
            with contextlib.suppress(Missing):
                await self._store.delete_object(self._bucket, key)

    def _count_listing(self) -> None:
        self.request_count += 1
        self.listing_count += 1


async def all_tried(*attempts: Coroutine[Any, Any, ResultT]) -> list[ResultT]:
    """All of them side by side to their ends; then what they returned, or the first of their RequestErrors."""
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
