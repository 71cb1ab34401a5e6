"""Knows how to get advice, and a share of the host, inside an event loop without blocking it."""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.client import advice as blocking
from penstock.client.advice import Advice
from penstock.client.lease import Lease, Share
from penstock.client.looping import in_thread

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from typing_extensions import Unpack

    from penstock.client.demand import Demand, LeaseOptions
    from penstock.client.operations import Operation


async def advise(operation: Operation, payload_size_bytes: int | str, **demand: Unpack[Demand]) -> Advice:
    """What `penstock.client.advice.advise` returns, asked in a thread."""
    return await in_thread(partial(blocking.advise, operation, payload_size_bytes, **demand))


class AsyncLease(Share):
    """A `penstock.client.lease.Lease` for `async with`: the same arguments except `on_change`, the same properties.

    Taking it blocks a thread and not the loop. Wait for new shares with `changes`.
    """

    def __init__(
        self, operation: Operation, payload_size_bytes: int | str, **options: Unpack[LeaseOptions]
    ) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event  # of that loop
        self._lease = Lease(operation, payload_size_bytes, on_change=self._tell, **options)

    @property
    def advice(self) -> Advice:  # type: ignore[override]  # a property: nobody sets it here
        """The newest share."""
        return self._lease.advice

    async def __aenter__(self) -> AsyncLease:
        """Take the lease: if there is a daemon, the share is known when this returns."""
        self._has_changed()
        taking = in_thread(self._lease.__enter__)
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda _: self._lease.leave())
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lease.leave()

    async def changes(self) -> AsyncGenerator[Advice, None]:
        """The current share, and each later one; a slow consumer skips to the newest."""
        has_changed = self._has_changed()
        while True:
            has_changed.clear()
            yield self._lease.advice
            await has_changed.wait()

    def _has_changed(self) -> asyncio.Event:
        """The event of the running loop: a lease may be made before any loop runs, and be held in several in turn."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._event, self._loop = asyncio.Event(), loop
        return self._event

    def _tell(self, _advice: Advice) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            pass  # the loop is closed, so nobody waits there
