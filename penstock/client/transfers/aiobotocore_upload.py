"""Knows how aiobotocore uploads one object, whole or in parts, and which steps must not be interrupted."""

from __future__ import annotations

import asyncio
import io

from penstock.client.transfers.multipart import ABORT_SECONDS_MAX, Upload

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")

# aiobotocore asks for a mebibyte, and over TLS has what it gets four times before it is sent.
_AT_A_TIME_BYTES = 256 * 1024


class AsyncUpload(Upload):
    """The requests of an `Upload`. They raise what aiobotocore raises."""

    def __init__(self, client: Any, bucket: str, key: str, extra_args: Mapping[str, Any]) -> None:
        super().__init__(client, bucket, key, extra_args)
        self._client = client

    async def put(self, body: bytes) -> Any:
        """Send the object in one request."""
        return await self._client.put_object(**self.whole(_Shared(body)))

    async def begin(self) -> None:
        """Begin a multipart upload. Await it to its end: without the upload id it answers it could not be removed."""
        self.note_begun(await self._client.create_multipart_upload(**self.first()))

    async def send(self, number: int, body: bytes) -> None:
        """Send one part."""
        self.note_part(number, await self._client.upload_part(**self.part(number, _Shared(body))))

    async def complete(self) -> Any:
        """Complete the upload; all parts must have arrived."""
        return await self._client.complete_multipart_upload(**self.last())

    async def remove(self) -> None:
        """Abort the upload if it has begun, since its parts would be billed. Only logs what aiobotocore raises."""
        from botocore.exceptions import BotoCoreError, ClientError

        if not self.is_begun:
            return
        try:
            await asyncio.wait_for(self._client.abort_multipart_upload(**self.removal()), ABORT_SECONDS_MAX)
        except (BotoCoreError, ClientError, OSError, asyncio.TimeoutError) as trouble:  # noqa: UP041 - Python 3.9
            self.say_left_behind(trouble)


class _Shared(io.BytesIO):
    """The caller's bytes. aiohttp asks for the buffer, to learn its length, and BytesIO has its own by a copy."""

    def getbuffer(self) -> memoryview:
        return memoryview(self.getvalue())

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size, _AT_A_TIME_BYTES) if size else size)
