"""Knows how objects and uploads are removed from a bucket, fast and completely: in batches, or in parallel."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from penstock.probes.outside import (
    DELETED_COUNT_MAX,
    Missing,
    ObjectStore,
    Refused,
    Throttled,
    VersionRequests,
    page_count,
)

MULTIPART_NAME = "object"  # of a run's one key that is uploaded in parts
REQUEST_COUNT_AT_ONCE_MAX = 16  # single deletions in parallel: nearly as fast as a batch, and gentle
# Pauses in seconds before a throttled request is made again, one after another.
PATIENCE = (0.25, 0.5, 1.0, 2.0)

ResultT = TypeVar("ResultT")


class Removal:
    """Removes things from one bucket. Each method tries everything, and then raises the first RequestError.

    Things that are gone already are no error. A probe does not retry, because its cost is limited by what it reserved;
    a sweep has patience with a store that throttles.
    """

    def __init__(self, store: ObjectStore, bucket: str, *, patience: Sequence[float] = ()) -> None:
        self._store = store
        self._bucket = bucket
        self._patience = patience
        self._room = asyncio.Semaphore(REQUEST_COUNT_AT_ONCE_MAX)
        self._turn = asyncio.Lock()  # of requests that are retried
        self.request_count = 0
        self.listing_count = 0  # part of the above; only listings cost money

    async def clear(self, name: str) -> int:
        """Remove a key with its unfinished uploads, or a whole run if the name ends with a slash; returns the count."""
        is_run = name.endswith("/")
        counts = await all_tried(
            self.abort_uploads(name + MULTIPART_NAME if is_run else name),
            self._delete_found(name, is_run=is_run),
        )
        await self._delete_one(name)  # old versions, after an interrupted deletion: listings do not show them
        return sum(counts)

    async def keys_below(self, prefix: str) -> list[str]:
        uploads = await self._list(lambda: self._store.list_multipart_uploads(self._bucket, prefix))
        objects = await self._list(lambda: self._store.list_objects(self._bucket, prefix))
        return [*objects, *(key for key, _ in uploads)]

    async def abort_uploads(self, key: str) -> int:
        """Abort unfinished uploads of exactly this key, as some stores list by whole keys only; returns the count."""
        with contextlib.suppress(Missing):  # the bucket is gone, and everything with it
            listed = await self._list(lambda: self._store.list_multipart_uploads(self._bucket, key))
            found = [upload_id for listed_key, upload_id in listed if listed_key == key]
            await all_tried(*(self.abort(key, upload_id) for upload_id in found))
            return len(found)
        return 0

    async def abort(self, key: str, upload_id: str) -> None:
        with contextlib.suppress(Missing):
            await self._ask(lambda: self._store.abort_multipart_upload(self._bucket, key, upload_id))

    async def delete(self, keys: Iterable[str]) -> None:
        named = sorted(keys)
        starts = range(0, len(named), DELETED_COUNT_MAX)
        batches = (named[start : start + DELETED_COUNT_MAX] for start in starts)
        await all_tried(*map(self._delete_batch, batches))

    async def _delete_found(self, name: str, *, is_run: bool) -> int:
        with contextlib.suppress(Missing):
            listed = await self._list(lambda: self._store.list_objects(self._bucket, name))
            found = [key for key in listed if is_run or key == name]
            await self.delete(found)
            return len(found)
        return 0

    async def _delete_batch(self, keys: Sequence[str]) -> None:
        """Delete by one request; key by key if that is refused for any reason."""
        if len(keys) > 1:
            with contextlib.suppress(Refused):
                with contextlib.suppress(Missing):
                    await self._delete(lambda: self._store.delete_objects(self._bucket, keys))
                return
        await all_tried(*map(self._delete_one, keys))

    async def _delete_one(self, key: str) -> None:
        with contextlib.suppress(Missing):
            await self._delete(lambda: self._store.delete_object(self._bucket, key))

    async def _delete(self, request: Callable[[], Awaitable[VersionRequests]]) -> None:
        of_versions = await self._ask(request)
        self.listing_count += of_versions.listing_count
        self.request_count += sum(of_versions)

    async def _list(self, request: Callable[[], Awaitable[list[ResultT]]]) -> list[ResultT]:
        self.listing_count += 1
        listed = await self._ask(request)
        more_pages = page_count(len(listed)) - 1
        self.listing_count += more_pages
        self.request_count += more_pages
        return listed

    async def _ask(self, request: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Make a request, and again after each pause while it is throttled. Raises RequestError."""
        try:
            async with self._room:
                self.request_count += 1
                return await request()
        except Throttled as throttled:
            trouble = throttled
        async with self._turn:
            for pause_seconds in self._patience:
                await asyncio.sleep(pause_seconds)
                try:
                    self.request_count += 1
                    return await request()
                except Throttled as throttled:
                    trouble = throttled
            self._patience = ()  # the others that wait for their turn would retry in vain, too
        raise trouble


async def all_tried(*attempts: Coroutine[Any, Any, ResultT]) -> list[ResultT]:
    """Run all of them in parallel to their ends; returns their results, or raises the first error."""
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
