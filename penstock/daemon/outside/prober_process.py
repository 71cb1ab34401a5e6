"""Knows what the process that speaks to AWS does: it runs probes and sends single requests for the daemon.

Run as `python -m penstock.daemon.outside.prober_process PARENT_PROCESS_ID`; its standard input is the connection to the
daemon.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from penstock.clock import SystemClock
from penstock.daemon import log
from penstock.daemon.outside.aws import AwsOutside
from penstock.daemon.outside.prober import Assignment, Key, Site
from penstock.operations.operation import Equipment, Service
from penstock.operations.table import OPERATIONS
from penstock.probes.on_demand import ProbeOnDemand
from penstock.probes.probe import Journal, Probe
from penstock.processes import companion, memory, package
from penstock.processes.dialogue import Dialogue
from penstock.vocabulary import Outcome, ProbePlan


class Bench:
    """Runs probes and requests as the daemon asks for them."""

    def __init__(self, assignment: Assignment, outside: AwsOutside) -> None:
        package.begun()  # so that probes start no workers of another version
        self._assignment = assignment
        self._outside = outside
        self._clock = SystemClock()
        self._journal = cast("Journal", companion.Remote(self._ask_daemon))
        self._probes: dict[Key, ProbeOnDemand] = {}
        self.dialogue: Dialogue

    async def run(self, key: Key, plan: ProbePlan[Any]) -> Outcome[Any]:
        """Run the plan. Tell its maximal cost first, in case this process is killed, and its true cost at the end."""
        self.dialogue.tell("used", key, plan.cost_max)
        probe = self._probe(key)
        try:
            return await probe.run(plan)
        finally:
            self.dialogue.tell("used", key, probe.used)

    async def close(self, key: Key) -> None:
        await (await self._probe(key).made()).close()

    async def request(
        self, site: Site, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:  # Any: arguments and result of a seam's method
        return await getattr(await self._client(*site), name)(*arguments, **named)

    async def put_away(self) -> Mapping[Key, bytes]:
        """The pickled state of each probe, for the next process."""
        made = ((key, on_demand.probe) for key, on_demand in self._probes.items())
        known = {key: _packed(probe, self._journal) for key, probe in made if probe is not None}
        return {**self._assignment.put_away, **known}

    async def _ask_daemon(self, name: str, arguments: Sequence[Any], _named: Mapping[str, Any]) -> Any:
        return await self.dialogue.ask(name, *arguments)

    def _probe(self, key: Key) -> ProbeOnDemand:
        if key not in self._probes:
            self._probes[key] = ProbeOnDemand(partial(self._made, key), self._clock)
        return self._probes[key]

    async def _made(self, key: Key) -> Probe[Any]:
        """The probe as the previous process saved it, or a new one."""
        operation, region = key
        row = OPERATIONS[operation]
        if (packed := self._assignment.put_away.get(key)) is not None:
            client = await self._client(row.service, region)
            return _unpacked(packed, {_JOURNAL: self._journal, _CLIENT: client})
        equipment = Equipment(
            clock=self._clock,
            journal=self._journal,
            outside=self._outside,
            region=region,
            host_name=self._assignment.host_name,
            loop_tick_seconds=self._assignment.loop_tick_seconds,
        )
        return await row.make_probe(self._assignment.configuration.section_of(row), equipment)

    async def _client(
        self, service: Service, region: str, endpoint_url: str | None = None
    ) -> Any:  # Any: a client of either seam
        if service is Service.S3:
            return await self._outside.object_store(region, endpoint_url)
        return await self._outside.message_queues(region, endpoint_url)


_JOURNAL, _CLIENT = "journal", "client"  # parts of a probe that are not pickled


def _packed(probe: Probe[Any], journal: Journal) -> bytes:
    from penstock.probes.aws.objects import AwsObjectStore
    from penstock.probes.aws.queues import AwsMessageQueues

    class Packer(pickle.Pickler):
        def persistent_id(self, thing: object) -> str | None:
            if thing is journal:
                return _JOURNAL
            return _CLIENT if isinstance(thing, (AwsObjectStore, AwsMessageQueues)) else None

    content = io.BytesIO()
    Packer(content).dump(probe)
    return content.getvalue()


def _unpacked(content: bytes, missing: Mapping[str, Any]) -> Probe[Any]:
    class Unpacker(pickle.Unpickler):  # trusted: pickled by a process like this one
        def persistent_load(self, name: str) -> Any:
            return missing[name]

    probe: Probe[Any] = Unpacker(io.BytesIO(content)).load()
    return probe


async def work() -> None:
    """Serve until the daemon closes the connection."""
    assignment: Assignment
    reader, writer, assignment = await companion.begun()
    section = assignment.configuration.daemon
    log.configure(section.log_level, section.log_format)
    async with AwsOutside(assignment.configuration) as outside:
        bench = Bench(assignment, outside)
        served = {name: getattr(bench, name) for name in ("run", "close", "request", "put_away")}
        bench.dialogue = Dialogue(reader, writer, served=served)
        await bench.dialogue.listening


if __name__ == "__main__":
    import uvloop  # it sends with write(2), which the kernel counts for each process

    companion.settled()
    memory.keep_little()
    with memory.without_certificates():
        import penstock.probes.aws.client  # noqa: F401  # everything here needs it
    uvloop.run(work())
