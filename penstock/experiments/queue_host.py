"""Knows how processes that stand for hosts make an application's requests to a queue.

An application in one event loop is one processor of one host. For a study with two hosts, `queue_hosts` starts that
many processes of `python -m penstock.experiments.queue_host` (`penstock.probes.apart`). The application still decides
what is sent, received and deleted; its own process makes and removes the queues.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import cast

from penstock.probes import apart
from penstock.probes.aws.access import Access
from penstock.probes.aws.queues import open_message_queues
from penstock.probes.outside import Messages
from penstock.processes import companion

START_SECONDS_MAX = 60.0
_GONE = "a process that made the requests ended unexpectedly: was it killed for lack of memory?"


@contextlib.asynccontextmanager
async def queue_hosts(count: int, access: Access) -> AsyncIterator[Messages]:
    """Start this many processes, which are ready on entry and gone on exit. Raises RequestError."""
    module, assignment = "penstock.experiments.queue_host", (access, None)
    async with apart.several(
        count, module, assignment, gone=_GONE, start_seconds_max=START_SECONDS_MAX
    ) as hosts:
        yield cast("Messages", companion.Remote(hosts.request))


if __name__ == "__main__":
    import uvloop

    companion.settled()
    uvloop.run(apart.work(open_message_queues))
