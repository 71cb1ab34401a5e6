"""What a start removes of what was left outside by this host's earlier lives, and by hosts that are no more."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from penstock.daemon.assembly import Surroundings, assembled
from penstock.daemon.config import Configuration, DaemonSection, ProbesSection
from penstock.daemon.instance import HostIdentity
from penstock.lab.virtual_time import VirtualClock
from penstock.operations.sections.objects import ObjectSection
from penstock.probes.leftovers import run_name
from penstock.probes.outside import Denied, ObjectStore
from tests.inline_thinker import InlineThinker
from tests.unit.daemon.house import Outside
from tests.unit.probes.fakes import START_AT, MemoryStore


class TwoRegions(Outside):
    """A bucket in each, of which the second may not be listed."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = {"eu-west-1": MemoryStore(), "eu-west-2": MemoryStore()}
        self.stores["eu-west-2"].trouble = lambda _action, _count: Denied("no ListBucket")

    async def object_store(self, region: str, _endpoint_url: str | None = None) -> ObjectStore:
        return self.stores[region]


async def test_objects_of_hosts_that_are_no_more_are_removed_at_the_start_and_daily(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Of every bucket that is probed; one that may not be listed stops neither the others nor the start."""
    outside = TwoRegions()
    orphan = f"penstock-probe/{run_name(START_AT - timedelta(days=3))}object"
    for store in outside.stores.values():
        store.objects = {orphan, "penstock-probe/somebody's"}
    directory = str(tmp_path)
    configuration = Configuration(
        daemon=DaemonSection(state_directory=directory, runtime_directory=directory),
        probes=ProbesSection(
            s3_upload=ObjectSection(is_enabled=True, bucket="b-{region}", regions=tuple(outside.stores))
        ),
    )

    surroundings = Surroundings(
        clock=clock,
        outside=outside,
        thinker=InlineThinker(),
        identity=HostIdentity(region="eu-west-1", instance_type="c6i.large", sentence=""),
        host_name="host",
        seed=1,
    )
    async with assembled(configuration, surroundings) as app:
        found = outside.stores["eu-west-1"].objects
        for pause_seconds, is_looked_for in ((10.0, True), (86_000.0, False), (1000.0, True)):
            found.add(orphan)
            await asyncio.sleep(pause_seconds)
            await app.conductor.sweep()
            assert found == {"penstock-probe/somebody's"} | (set() if is_looked_for else {orphan})
    assert orphan in outside.stores["eu-west-2"].objects
