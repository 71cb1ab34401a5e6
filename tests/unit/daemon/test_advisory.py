"""What an operator may ask of a living daemon."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.daemon.advisory import Advisory
from penstock.daemon.api import RefusedError
from penstock.daemon.backlog_watch import BacklogWatch
from penstock.daemon.config import WatchedQueueSection
from penstock.daemon.leases import Appetite, LeaseBook
from penstock.daemon.services import SERVICES
from penstock.daemon.wire import Claim, read_question
from penstock.vocabulary import Place
from tests.factories import CONTEXT, NOON, SETTING
from tests.unit.daemon.house import House, story

HOME = Place(operation="", region="elsewhere-1", instance_type="c5.large")


def advisory_of(house: House, leases: LeaseBook | None = None) -> Advisory:
    """On a host that lives in another region than it probes."""
    return Advisory(
        services=SERVICES,
        board=house.board,
        conductor=house.conductor,
        backlogs=BacklogWatch(house.clock, WatchedQueueSection(), region=HOME.region),
        store=house.store,
        clock=house.clock,
        home=HOME,
        started_at=NOON,
        reload=lambda: asyncio.sleep(0, ""),
        leases=leases,
    )


def test_a_probe_can_be_asked_for_wherever_it_is_made(tmp_path: Path) -> None:
    """A size that is probed in another region, or of another class, can be asked for like any other."""

    async def told(house: House) -> None:
        await advisory_of(house).request_probe(CONTEXT.operation, CONTEXT.payload_size_bytes)
        await house.live(10.0)

    assert story(tmp_path, told).probe.run_count == 1


def test_a_probe_of_a_size_that_is_not_probed_is_refused(tmp_path: Path) -> None:
    """The refusal names the sizes that there are."""

    async def told(house: House) -> None:
        with pytest.raises(RefusedError, match=f"the configured sizes are {CONTEXT.payload_size_bytes}$"):
            await advisory_of(house).request_probe(CONTEXT.operation, 1)
        with pytest.raises(RefusedError, match="its probes are not enabled"):
            await advisory_of(house).request_probe("sqs_delivery", 1)

    story(tmp_path, told)


def test_leases_are_shown_to_people_and_to_dashboards(tmp_path: Path) -> None:
    """Who holds what, and how much is held of each knob that is divided."""

    async def told(house: House) -> None:
        book = LeaseBook()
        advisory = advisory_of(house, book)
        question = read_question([("operation", "s3_upload"), ("payload_size_bytes", "1GiB")], SERVICES)
        for process_id in (7, 8):
            wanted = Appetite(setting=SETTING, use_fraction=1.0)
            book.grant(Claim(question=question), wanted, process_id=process_id, uid=1000, now=NOON)
        rows = advisory.status()["leases"]
        assert [(row["process_id"], row["setting"]["thread_count"]) for row in rows] == [(7, 5), (8, 5)]
        metrics = advisory.metrics().decode()
        assert 'penstock_leases{operation="s3_upload"} 2.0' in metrics
        assert 'penstock_leased_setting{knob="thread_count",operation="s3_upload"} 10.0' in metrics
        assert 'knob="part_size_bytes",operation="s3_upload"}' not in metrics

    story(tmp_path, told)
