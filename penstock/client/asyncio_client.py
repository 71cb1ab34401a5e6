"""Knows how to get advice inside an event loop without holding it up."""

from __future__ import annotations

import asyncio

from penstock.client import advice


async def advise(operation: str, payload_size_bytes: int, **demand: object) -> advice.Advice:
    """What `penstock.client.advice.advise` returns, asked in a thread."""
    return await asyncio.to_thread(advice.advise, operation, payload_size_bytes, **demand)
