"""Knows how long a message takes from a sender whose connection has yet to be opened to a receiver that waits."""

from __future__ import annotations

import asyncio

from penstock.probes.outside import RequestError
from penstock.probes.sqs.run import Bodies, Run


async def cold_delivery_seconds(run: Run) -> float | None:
    """Of one message; None when it did not come. The receiver waits on the one connection there is."""
    purse = run.purse
    if not purse.claim(sent_bytes=run.body_bytes, reserve_request_count=2) or not purse.claim(
        received_bytes=run.body_bytes
    ):
        return None
    seconds = None
    receiving = asyncio.create_task(run.queue.receive(1))
    try:
        await asyncio.sleep(0)
        began_seconds = run.stopwatch.elapsed_seconds()
        body = Bodies(run.body_bytes).body(0)
        await run.queue.send([body])
        messages = await receiving
        if [message.body for message in messages] == [body]:
            seconds = run.stopwatch.elapsed_seconds() - began_seconds
        if messages and purse.claim():
            await run.queue.delete([message.receipt_handle for message in messages])
    except RequestError as error:
        await run.patience.bear(error)
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
    return seconds
