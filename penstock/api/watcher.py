"""Knows how somebody who watches is told the newest state, without waking whoever has nothing to do."""

from __future__ import annotations

import asyncio

from aiohttp import HttpVersion11, web


class Watcher:
    """Somebody who watches. Who has taken everything so far is told at once, without his handler being woken."""

    def __init__(self, request: web.Request) -> None:
        self.told = b""
        self._transport = request.transport
        self._is_chunked = request.version >= HttpVersion11
        self._behind: asyncio.Future[None] | None = None  # while his handler waits

    def tell(self, line: bytes, chunk: bytes) -> None:
        """Send him the new state, or leave it to his handler when there is more that he has not taken."""
        transport = self._transport
        if self._behind is None or transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size():
            self.wake()
            return
        transport.write(chunk if self._is_chunked else line)
        self.told = line

    async def is_behind(self) -> None:
        """Wait until his handler has something to do."""
        self._behind = asyncio.get_running_loop().create_future()
        try:
            await self._behind
        finally:
            self._behind = None

    def wake(self) -> None:
        """Let his handler look."""
        if self._behind is not None and not self._behind.done():
            self._behind.set_result(None)
