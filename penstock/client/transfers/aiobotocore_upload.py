"""Knows how one object is uploaded by aiobotocore, whole or in parts, and what must not be left half done meanwhile."""

from __future__ import annotations

import asyncio

from penstock.client.transfers.multipart import ABORT_SECONDS_MAX, Upload

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")


class AsyncUpload(Upload):
    """The requests of an `Upload`. Raises what aiobotocore raises."""

    def __init__(self, client: Any, bucket: str, key: str, extra_args: Mapping[str, Any]) -> None:
        super().__init__(client, bucket, key, extra_args)
        self._client = client

    async def put(self, body: bytes) -> Any:
        """As a whole."""
        return await self._client.put_object(**self.whole(body))

    async def begin(self) -> None:
        """To be awaited to its end: without the number that the answer has, it could not be removed."""
        self.note_begun(await self._client.create_multipart_upload(**self.first()))

    async def send(self, number: int, body: bytes) -> None:
        """One part."""
        self.note_part(number, await self._client.upload_part(**self.part(number, body)))

    async def complete(self) -> Any:
        """When all parts have arrived."""
        return await self._client.complete_multipart_upload(**self.last())

    async def remove(self) -> None:
        """Leave nothing behind that has to be paid for."""
        from botocore.exceptions import BotoCoreError, ClientError

        if not self.is_begun:
            return
        try:
            await asyncio.wait_for(self._client.abort_multipart_upload(**self.removal()), ABORT_SECONDS_MAX)
        except (BotoCoreError, ClientError, OSError, asyncio.TimeoutError) as trouble:  # noqa: UP041 - Python 3.9
            self.say_left_behind(trouble)
