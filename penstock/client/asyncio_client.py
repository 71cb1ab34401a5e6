"""Knows how to get advice, and a share of the host, inside an event loop without holding it up."""

from __future__ import annotations

import asyncio

from penstock.client import advice as blocking
from penstock.client.advice import Advice
from penstock.client.lease import Lease, Share

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any


async def advise(operation: str, payload_size_bytes: int | str, **demand: object) -> Advice:
    """What `penstock.client.advice.advise` returns, asked in a thread."""
    return await asyncio.to_thread(blocking.advise, operation, payload_size_bytes, **demand)


class AsyncLease(Share):
    """A `penstock.client.lease.Lease` for `async with`: the same arguments but `on_change`, the same properties.

    It is taken and given back in a thread; `changes` waits for new shares.
    """

    def __init__(self, operation: str, payload_size_bytes: int | str, **options: Any) -> None:
        self._has_changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lease = Lease(operation, payload_size_bytes, on_change=self._tell, **options)

    @property
    def advice(self) -> Advice:  # type: ignore[override]  # which nobody sets here
        """The newest share."""
        return self._lease.advice

    async def __aenter__(self) -> AsyncLease:
        """Take it: the share is there when this returns, if a daemon is."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._lease.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give it back."""
        self._lease.close()

    async def changes(self) -> AsyncGenerator[Advice, None]:
        """The share now, and each one that follows; who is slow hears the newest."""
        while True:
            self._has_changed.clear()
            yield self._lease.advice
            await self._has_changed.wait()

    def _tell(self, _advice: Advice) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._has_changed.set)
        except RuntimeError:
            pass  # the loop was closed, and nobody waits there
