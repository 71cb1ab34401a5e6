"""A daemon goes on removing what its probes left behind: soon, then ever rarer, and never while it measures."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from penstock.daemon.advisory import Advisory
from penstock.daemon.config import Configuration, ProbesSection
from penstock.daemon.memory.database import DiskTrouble
from penstock.daemon.outside import sweeper
from penstock.daemon.outside.whereabouts import Whereabouts
from penstock.daemon.spending.budget import Verdict
from penstock.operations.sections.objects import ObjectSection
from penstock.probes.leftovers import SweepSummary
from penstock.probes.outside import Denied, Failed, Forbidden, RequestError, Unreachable
from penstock.probes.probe import Leftover, LeftoverKind
from tests.factories import NOON
from tests.unit.daemon.house import TARIFFS, WHEREABOUTS, House
from tests.unit.daemon.test_advisory import advisory_of
from tests.unit.probes.fakes import no_trouble

HOUR = 3600.0


def a_run(number: int = 1) -> Leftover:
    """What one probe uploads."""
    return Leftover(
        kind=LeftoverKind.S3_OBJECT, service="s3_upload", container="bucket", name=f"penstock/{number}/"
    )


QUEUE = Leftover(kind=LeftoverKind.SQS_QUEUE, service="sqs_delivery", container="r", name="mine")


async def leave_behind(house: House, *runs: Leftover) -> None:
    """As a probe does whose clean-up failed."""
    for run in runs:
        await house.store.record(run)
        house.outside.objects.objects.add(f"{run.name}0001")
        await house.store.abandon(run)


def refusing(kind: type[RequestError]) -> Callable[[str, int], RequestError | None]:
    """Whatever is deleted."""
    return lambda action, _: (
        kind("DeleteObject is not allowed") if action in {"delete", "delete_batch"} else None
    )


DENIED = refusing(Denied)
FORBIDDEN = refusing(Forbidden)  # by a policy that no permission outweighs
BROKEN = refusing(Failed)  # by a service that does not get to it


async def test_what_is_left_behind_is_removed_while_the_daemon_runs(house: House) -> None:
    """No restart is needed: it is tried again until it is gone, and its entry is struck out after that."""
    await leave_behind(house, a_run())
    house.outside.objects.trouble = lambda _action, n: Unreachable("an outage") if n < 3 else None
    await house.live(10 * 60.0)
    assert house.outside.objects.objects == set()
    assert await house.store.open_entries() == []


async def test_tries_become_rarer_in_a_long_outage(house: House) -> None:
    """A day without the service costs some fifty tries, not thousands; and half an hour after it nothing is left."""
    await leave_behind(house, a_run())
    house.outside.objects.trouble = lambda _action, _n: Unreachable("an outage")
    house.verdict = Verdict("busy")  # nothing is probed meanwhile
    await house.live(24 * HOUR)
    assert 40 < house.outside.objects.counts["list"] < 2 * 70
    house.outside.objects.trouble = no_trouble
    await house.live(sweeper.PAUSE_SECONDS_MAX + 2 * sweeper.SETTLED_SECONDS)
    assert (house.outside.objects.objects, await house.store.open_entries()) == (set(), [])


async def test_each_try_that_fails_doubles_the_pause_up_to_half_an_hour(house: House) -> None:
    """What was found empty is looked at once more; after that only strangers' leftovers are, once a day."""
    broom = house.conductor.sweeper
    pauses = []
    await leave_behind(house, a_run())
    house.outside.objects.trouble = DENIED
    for _ in range(8):
        await broom.sweep()
        pauses.append(round(broom.due_in_seconds))
    house.outside.objects.trouble = no_trouble
    for _ in range(2):
        await broom.sweep()
        pauses.append(round(broom.due_in_seconds))
        await asyncio.sleep(broom.due_in_seconds)
    assert pauses[:8] == [30, 60, 120, 240, 480, 960, 1800, 1800]
    assert pauses[-1] == 86400
    await leave_behind(house, a_run(2))
    house.outside.objects.trouble = DENIED
    await broom.sweep()
    assert broom.due_in_seconds == 30.0


async def test_a_leftover_is_never_younger_than_new(house: House) -> None:
    """Where the clock was set back after a probe; and what it left is taken for settled, for nobody knows its age."""
    broom = house.conductor.sweeper
    await leave_behind(house, a_run())
    house.clock.ahead = timedelta(days=-1)
    await broom.look(was_reached=False)
    assert broom.oldest_age_seconds == 0.0
    await broom.sweep()
    assert broom.left == ()


async def test_hope_and_something_new_hasten_the_next_try(house: House) -> None:
    """A probe that reached the service, or left something; one that did neither changes nothing."""
    broom = house.conductor.sweeper
    await leave_behind(house, a_run())
    await broom.look(was_reached=False)
    for is_new, was_reached in ((False, False), (True, False), (False, True)):
        broom._be_due_in(1000.0)
        if is_new:
            await leave_behind(house, a_run(2))
        await broom.look(was_reached=was_reached)
        assert (broom.due_in_seconds <= sweeper.PAUSE_SECONDS) == (is_new or was_reached)


async def test_what_is_in_use_is_not_swept(house: House) -> None:
    """The queue of a living probe is in the journal, and stays."""
    house.outside.queues.attributes = {"mine": {}}
    await house.store.record(QUEUE)
    await house.live(HOUR)
    assert list(house.outside.queues.attributes) == ["mine"]
    assert house.conductor.sweeper.left == ()
    await house.store.abandon(QUEUE)
    await house.live(HOUR)
    assert list(house.outside.queues.attributes) == []


async def test_nothing_is_swept_while_a_probe_measures(house: House) -> None:
    """Whoever asks for it in the midst of a probe is answered after that."""
    asked: list[asyncio.Future[SweepSummary]] = []

    await house.live(1.0)
    await leave_behind(house, a_run())
    requests_before = house.outside.objects.request_count

    def at_the_end_of_a_probe() -> None:
        if not asked:
            asked.append(house.conductor.request_sweep())
            assert house.outside.objects.request_count == requests_before

    house.probe.before_end = at_the_end_of_a_probe
    await house.live(HOUR)
    assert asked[0].result().removed == [a_run()]


async def test_a_sweep_ends_within_a_minute(house: House) -> None:
    """A service that answers nothing holds up no probe for longer."""
    await leave_behind(house, a_run())
    house.outside.objects.small_seconds = 1e6
    before = house.clock.monotonic_seconds()
    await house.conductor.sweep()
    assert house.clock.monotonic_seconds() - before == pytest.approx(sweeper.SWEEP_SECONDS_MAX)
    assert house.conductor.sweeper.due_in_seconds > 0


async def test_old_leftovers_are_warned_of_once(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """After an hour, one line for all of them, however often they are tried after that."""

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == sweeper.__name__]

    await leave_behind(house, a_run(1), a_run(2))
    house.outside.objects.trouble = DENIED
    house.verdict = Verdict("busy")  # nothing is probed meanwhile
    with caplog.at_level(logging.WARNING, logger=sweeper.__name__):
        await house.live(0.9 * HOUR)
        assert warnings() == []
        await house.live(24 * HOUR)
    (warning,) = warnings()
    assert warning == (
        "2 things left behind for more than 60 min, such as penstock/1/ in bucket: DeleteObject is not allowed. "
        "`penstock leftovers list` names all"
    )


@pytest.mark.parametrize(
    ("trouble", "left_count"),
    [(BROKEN, sweeper.LEFT_COUNT_MAX), (DENIED, 1), (FORBIDDEN, 1)],
)
async def test_an_operation_rests_that_cannot_clean_up(
    house: House, trouble: Callable[[str, int], RequestError | None], left_count: int
) -> None:
    """Each probe would leave more objects in a bucket from which nothing may be deleted: by a policy, or by a lock."""
    await leave_behind(house, *map(a_run, range(left_count)))
    house.outside.objects.trouble = trouble
    await house.live(HOUR)
    assert house.probe.run_count == 0
    assert {house.conductor.sweeper.refusal(other) for other in ("s3_download", "sqs_delivery")} == {None}
    assert "could not be removed (DeleteObject is not allowed)" in house.conductor.cycles[-1].sentence
    house.outside.objects.trouble = no_trouble
    await house.live(HOUR)
    assert house.probe.run_count > 0


async def test_what_lies_in_the_bucket_of_yesterday_keeps_no_probe_from_the_one_of_today(
    house: House,
) -> None:
    """Nothing may be deleted there, so another bucket was named: the next probe adds nothing to what stays."""
    await leave_behind(house, dataclasses.replace(a_run(), container="old", region="r", endpoint_url=""))
    house.outside.objects.trouble = FORBIDDEN
    await house.live(HOUR)
    assert house.probe.run_count > 0
    assert "it lies in old, r, which is not probed any more" in (house.conductor.sweeper.remark or "")


async def test_leftovers_are_shown_and_counted(house: House) -> None:
    """In the status, as a metric, and one by one; what was found empty counts no more."""
    advisory: Advisory = advisory_of(house)
    assert advisory.status()["leftover_remark"] is None
    await leave_behind(house, a_run())
    house.outside.objects.trouble = DENIED
    await house.live(2 * HOUR)
    status, metrics = advisory.status(), advisory.metrics().decode()
    assert status["leftover_count"] == 1
    assert status["leftover_remark"] == (
        "1 thing that probes made could not be removed, the oldest for 2 h: DeleteObject is not allowed"
    )
    assert "penstock_leftovers 1.0" in metrics
    assert "penstock_leftover_oldest_age_seconds 72" in metrics
    house.outside.objects.trouble = no_trouble
    (entry,) = advisory.leftovers()["leftovers"]
    assert (entry["name"], entry["reason"]) == (a_run().name, "DeleteObject is not allowed")
    removing = asyncio.create_task(advisory.remove_leftovers())
    await house.live(60.0)
    document = await removing
    assert [removed["name"] for removed in document["removed"]] == [a_run().name]
    assert "penstock_leftovers 0.0" in advisory.metrics().decode()


def test_what_nobody_has_looked_for_yet_is_neither_empty_nor_refused() -> None:
    """As the journal alone has it, which is read where no daemon runs."""
    assert sweeper.LeftBehind(leftover=QUEUE, since=NOON).document(NOON + timedelta(hours=1)) == {
        "kind": "sqs_queue",
        "operation": "sqs_delivery",
        "container": "r",
        "name": "mine",
        "age_seconds": HOUR,
        "reason": "",
        "is_empty": False,
    }


async def test_clean_up_is_booked(house: House) -> None:
    """Its listings cost money, and its requests count, though no budget forbids them.

    What another version of penstock left is removed as well, and of no operation that could be asked for its price.
    """
    strange = dataclasses.replace(a_run(2), service="s3_sideload")
    await leave_behind(house, a_run(), strange)
    await house.conductor.sweep()
    spent = house.conductor.ledger.spent(house.clock.now())
    assert house.outside.objects.objects == set()
    assert spent.request_count == 4
    assert spent.usd > 2 * 0.005 / 1000
    assert spent.usd == pytest.approx(2 * 0.005 / 1000, rel=0.5), "and their way"
    (row,) = await house.store.run(lambda store: store.spend())
    assert row.cost == spent


async def test_what_a_long_probe_had_on_its_way_is_looked_for(house: House) -> None:
    """An entry is as old as its probe: where probes may take long, it is struck out that much later."""
    await leave_behind(house, a_run())
    section = ObjectSection(duration_seconds_max=600.0)
    configuration = Configuration(probes=ProbesSection(s3_upload=section))
    broom = sweeper.Sweeper(
        house.outside, house.store, house.clock, tariffs=TARIFFS, whereabouts=Whereabouts(configuration, "r")
    )
    await asyncio.sleep(sweeper.SETTLED_SECONDS + 500.0)
    await broom.sweep()
    assert [left.is_empty for left in broom.left] == [True]
    house.outside.objects.objects.add(f"{a_run().name}0002")  # from the buffers of a slow path
    await asyncio.sleep(150.0)
    await broom.sweep()
    assert (house.outside.objects.objects, broom.left) == (set(), ())


async def test_where_the_journal_cannot_be_read_what_is_known_stands(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed all the same, and looked for again."""

    async def unreadable() -> None:
        raise DiskTrouble("the disk image is malformed")

    broom = house.conductor.sweeper
    await leave_behind(house, a_run())
    await broom.look(was_reached=False)
    monkeypatch.setattr(house.store, "left_behind", unreadable)
    await broom.sweep()
    assert house.outside.objects.objects == set()
    assert [left.leftover for left in broom.left] == [a_run()]


async def test_what_a_lost_machine_left_is_removed_by_who_has_its_disk(house: House) -> None:
    """Objects once nobody writes them any more; a queue, which does not say who uses it, when the operator says so."""
    queue, run, read = (
        dataclasses.replace(made, machine="lost", region="r", endpoint_url="")
        for made in (QUEUE, a_run(), dataclasses.replace(a_run(), name="penstock/1-reads-9/"))
    )
    sign = dataclasses.replace(read, name=f"{read.name}used-by-it")
    await house.outside.queues.create_queue(queue.name, {})
    for left in (queue, run, read, sign):
        await house.store.record(left)
        await house.store.abandon(left)
    house.outside.objects.objects |= {f"{run.name}0001", f"{read.name}object"}
    await house.outside.objects.put_if("bucket", sign.name, b"", None)
    broom = sweeper.Sweeper(
        house.outside,
        house.store,
        house.clock,
        tariffs=TARIFFS,
        whereabouts=dataclasses.replace(WHEREABOUTS, machine="heir"),
    )
    await broom.sweep()
    assert (len(house.outside.objects.objects), broom.count, broom.remark) == (2, 0, None)
    assert {told["name"] for told in broom.document()["leftovers"]} == {queue.name, run.name, read.name}
    assert all("another machine" in told["reason"] for told in broom.document()["leftovers"])
    await asyncio.sleep(25 * HOUR)
    await broom.sweep()
    assert house.outside.objects.objects == {f"{read.name}object"}  # for three days, as its sign says
    assert await house.store.open_entries() == [queue]
    broom.hurry()
    await broom.sweep()
    assert await house.store.open_entries() == []
    assert await house.outside.queues.list_queues("") == []


async def test_what_can_never_be_removed_is_forgotten_when_the_operator_says_so(house: House) -> None:
    """Its credentials are gone for ever: it was tried each half hour, and its operation rested."""
    await leave_behind(house, *map(a_run, range(12)))
    house.outside.objects.trouble = DENIED
    broom = house.conductor.sweeper
    await broom.sweep()
    assert broom.refusal("s3_upload") is not None
    asked = advisory_of(house).remove_leftovers(forgets=True)
    _, document = await asyncio.gather(house.live(30.0), asked)
    assert len(document["leftovers"]) == 12
    assert all("not allowed" in told["reason"] for told in document["leftovers"])
    assert (broom.count, broom.remark, broom.refusal("s3_upload")) == (0, None, None)
    assert await house.store.open_entries() == []


async def test_a_full_disk_ends_no_sweep(house: House) -> None:
    """What is gone outside is gone; its entry is struck out once there is room."""
    await leave_behind(house, a_run())
    await house.live(sweeper.SETTLED_SECONDS / 2)
    house.lock_disk()
    await house.live(HOUR)
    assert house.outside.objects.objects == set()
    house.lock_disk(is_locked=False)
    await house.live(HOUR)
    assert await house.store.open_entries() == []
