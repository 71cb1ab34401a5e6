"""Knows how a watching client is sent the newest state, without waking the tasks of clients that are up to date."""

from __future__ import annotations

import asyncio

from aiohttp import HttpVersion11, web


class Watcher:
    """A watching client. If it has taken everything so far, it is sent the new state without waking its handler."""

    def __init__(self, request: web.Request) -> None:
        self.told = b""
        self._transport = request.transport
        self._is_chunked = request.version >= HttpVersion11
        self._behind: asyncio.Future[None] | None = None  # while the handler waits

    def tell(self, line: bytes, chunk: bytes) -> None:
        """Send the new state, or leave it to the handler if the client has not taken everything before."""
        transport = self._transport
        if self._behind is None or transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size():
            self.wake()
            return
        transport.write(chunk if self._is_chunked else line)
        self.told = line

    async def is_behind(self) -> None:
        """Wait until the handler has something to do."""
        self._behind = asyncio.get_running_loop().create_future()
        try:
            await self._behind
        finally:
            self._behind = None

    def wake(self) -> None:
        """Wake the handler."""
        if self._behind is not None and not self._behind.done():
            self._behind.set_result(None)
