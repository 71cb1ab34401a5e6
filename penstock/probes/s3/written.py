"""Knows what one run of a probe writes into a bucket, and how all of it is removed, including requests in flight.

That is one multipart upload whose parts are sent or copied, or objects that are put whole. A request that creates
something goes on to its end in spite of cancellation, because only what was answered can be removed for certain.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.probes.cleaning import Unanswered
from penstock.probes.outside import ObjectStore, RequestError, may_be_done
from penstock.probes.removal import MULTIPART_NAME, Removal, all_tried

MULTIPART_OVERHEAD_REQUEST_COUNT = 4  # create, complete, delete; at worst create, abort, list, abort again

ResultT = TypeVar("ResultT")


@dataclass(kw_only=True)
class Written:
    """What one run has written, and what of it is still to be removed."""

    store: ObjectStore
    bucket: str
    key_prefix: str  # of the run
    removal: Removal = field(init=False)
    upload_id: str | None = None
    etags: dict[int, str] = field(default_factory=dict)  # of the parts, by number
    request_count: int = 0  # to begin and to complete an upload
    _may_be_unfinished: bool = False
    _keys: set[str] = field(default_factory=set)
    _unanswered: Unanswered = field(default_factory=Unanswered)

    def __post_init__(self) -> None:
        self.removal = Removal(self.store, self.bucket)

    @property
    def object_key(self) -> str:
        """The key of the object that is uploaded in parts."""
        return self.key_prefix + MULTIPART_NAME

    async def create(self) -> None:
        self._may_be_unfinished = True  # before the request: its answer may be lost
        self.request_count += 1
        try:
            await self._unanswered.answer_to(self._create_known())
        except RequestError as trouble:
            self._may_be_unfinished = may_be_done(trouble)
            raise

    async def _create_known(self) -> None:
        self.upload_id = await self.store.create_multipart_upload(self.bucket, self.object_key)

    @property
    def consecutive_etags(self) -> Sequence[str]:
        """The ETags from part 1 up to the first missing one: an upload may be completed with fewer parts."""
        numbers = itertools.takewhile(self.etags.__contains__, itertools.count(1))
        return [self.etags[number] for number in numbers]

    async def complete(self, etags: Sequence[str]) -> None:
        assert self.upload_id is not None
        self._keys.add(self.object_key)
        self.request_count += 1
        await self._unanswered.answer_to(self._complete_known(self.upload_id, etags))

    async def _complete_known(self, upload_id: str, etags: Sequence[str]) -> None:
        await self.store.complete_multipart_upload(self.bucket, self.object_key, upload_id, etags)
        self._may_be_unfinished = False

    def key_of_thread(self, thread: int) -> str:
        """The key for whole objects: each thread overwrites its own, so that fewer have to be removed."""
        return f"{self.key_prefix}{thread:04d}"

    async def put(self, key: str, request: Coroutine[object, object, ResultT]) -> ResultT:
        """Make a request that puts an object under this key."""
        is_new = key not in self._keys
        self._keys.add(key)  # before the request: its answer may be lost
        try:
            return await self._unanswered.answer_to(request)
        except RequestError as trouble:
            if is_new and not may_be_done(trouble):
                self._keys.discard(key)
            raise

    async def remove(self) -> None:
        """Abort unfinished uploads and delete objects. Raises RequestError if something may be left."""
        await self._unanswered.are_answered()
        await all_tried(self._abort(), self.removal.delete(self._keys))

    async def _abort(self) -> None:
        """Abort the upload; list uploads if a part in flight may have outlived that, or if the id is unknown."""
        if self._may_be_unfinished:
            if self.upload_id is not None:
                await self.removal.abort(self.object_key, self.upload_id)
            if self.object_key not in self._keys:  # else it was being completed: no parts were in flight
                await self.removal.abort_uploads(self.object_key)
