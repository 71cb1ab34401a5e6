"""Queues that drift towards the duplicate loop are seen early, and a watched one is never touched."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.daemon import metrics
from penstock.daemon.backlog_watch import SPELL, SUBJECT_COUNT_MAX, BacklogWatch
from penstock.daemon.config import WatchedQueueSection
from penstock.daemon.troubles import Troubles
from penstock.lab.sqs import ActionTruth, QueueTruth, Sending, SqsService
from penstock.lab.virtual_time import VirtualClock
from penstock.models.sqs.backlog_warning import Alarm, BacklogSpell
from penstock.probes.outside import MessageQueues, ObjectStore
from penstock.trial.simulated_aws import SimulatedMessageQueues
from penstock.vocabulary import Context, Observation, Origin, Place
from tests.factories import NOON, a_queue_setting, an_observation

REGION = "lab-1"
ACTION = ActionTruth(request_seconds=0.01)
ORDERS = WatchedQueueSection(name="orders", delete_rate_messages_per_second=20.0)
PLACE = Place(operation="sqs_delivery", region=REGION, instance_type="lab")


class Outside:
    """The lab's SQS."""

    def __init__(self, clock: VirtualClock) -> None:
        self.service = SqsService(QueueTruth(send=ACTION, receive=ACTION, delete=ACTION), clock=clock, seed=1)
        self.remembered: list[BacklogSpell] = []
        self.troubles = Troubles(clock)
        self.watch: asyncio.Task[None] | None = None

    async def remember(self, spell: BacklogSpell) -> None:
        self.remembered.append(spell)

    async def message_queues(self, region: str, _endpoint_url: str | None = None) -> MessageQueues:
        assert region == REGION
        return SimulatedMessageQueues(self.service)

    async def object_store(self, region: str, _endpoint_url: str | None = None) -> ObjectStore:
        raise NotImplementedError(region)


async def application(outside: Outside, *, sent_per_second: int, deleted_per_second: int) -> None:
    """Receives all there is and deletes in order: directly on the queue, so that the service counts none of it."""
    queue = outside.service.queue("orders")
    handles: list[str] = []
    while True:
        for _ in range(sent_per_second):
            queue.add(Sending(body="x"), 0.0)
        handles += [copy.receipt_handle for copy in queue.take(10_000, 30.0, every_shard=True)]
        for handle in handles[:deleted_per_second]:
            queue.remove(handle)
        del handles[:deleted_per_second]
        await asyncio.sleep(1.0)


async def worked(outside: Outside, seconds: float, *, sent_per_second: int) -> None:
    """The application works on the queue for so long; its deleters delete twenty messages a second."""
    await outside.service.create_queue("orders", {})
    working = asyncio.create_task(
        application(outside, sent_per_second=sent_per_second, deleted_per_second=20)
    )
    await asyncio.sleep(seconds)
    working.cancel()


def begin_to_watch(
    clock: VirtualClock, section: WatchedQueueSection = ORDERS
) -> tuple[Outside, BacklogWatch]:
    """The queue, and who watches it from now on."""
    outside, backlogs = Outside(clock), BacklogWatch(clock, section, region=REGION)
    outside.watch = asyncio.create_task(backlogs.watch(outside, outside.remember, outside.troubles))
    return outside, backlogs


def a_report(at_seconds: float, **measures: float) -> Observation[Any]:
    """What an application reported of the last half minute."""
    return an_observation(
        context=Context(place=PLACE, payload_size_bytes=1024),
        setting=a_queue_setting(1, 1, 1, batch=1),
        started_at=NOON + timedelta(seconds=at_seconds - 30.0),
        duration_seconds=30.0,
        origin=Origin.APPLICATION,
        client="boto3",
        measures=measures,
    )


async def test_an_overload_is_dated_before_it_collapses(clock: VirtualClock) -> None:
    """A fifth too much for the deleters: the timeout of 30 s is reached after 150 s, and announced from 50 s on."""
    outside, backlogs = begin_to_watch(clock)
    await worked(outside, 100.0, sent_per_second=24)
    (backlog,) = backlogs.backlogs()
    assert backlog.warning is not None
    assert backlog.warning.alarm is Alarm.ACT
    assert backlog.warning.reaches_timeout_at is not None
    due_seconds = (backlog.warning.reaches_timeout_at - NOON).total_seconds()
    assert due_seconds == pytest.approx(150.0, abs=20.0)
    assert backlog.growth_messages_per_second == pytest.approx(4.0, rel=0.1)
    assert backlog.not_visible_message_count == pytest.approx(4.0 * clock.monotonic_seconds(), rel=0.2)
    assert "reaches the visibility timeout in" in backlog.explanation


async def test_the_most_of_each_quarter_of_an_hour_is_remembered(clock: VirtualClock) -> None:
    """Two are over after 35 minutes; each has the most that was seen in it."""
    outside, _backlogs = begin_to_watch(clock)
    await worked(outside, 300.0, sent_per_second=24)
    await asyncio.sleep(1800.0)
    first, second = outside.remembered
    assert (first.queue, first.region) == ("orders", REGION)
    assert first.not_visible_message_count > 500
    assert first.oldest_undeleted_seconds == pytest.approx(first.not_visible_message_count / 20.0)
    assert second.began_at - first.began_at >= SPELL
    assert second.not_visible_message_count < first.not_visible_message_count


async def test_a_queue_that_keeps_up_is_calm(clock: VirtualClock) -> None:
    """No alarm while the deleters delete what is sent."""
    outside, backlogs = begin_to_watch(clock)
    await worked(outside, 1800.0, sent_per_second=19)
    (backlog,) = backlogs.backlogs()
    assert backlog.warning is not None
    assert backlog.warning.alarm is Alarm.CALM


async def test_a_watched_queue_is_only_asked_for_attributes(clock: VirtualClock) -> None:
    """In an hour: its URL once, its attributes every 15 s, and no other request to anything."""
    outside, _backlogs = begin_to_watch(clock)
    await outside.service.create_queue("orders", {})
    await asyncio.sleep(3600.0)
    counts = dict(outside.service.counts.by_action)
    assert counts.pop(("orders", "create_queue")) == 1
    assert 1 <= counts.pop(("orders", "get_queue_url")) <= 2
    assert counts.pop(("orders", "get_queue_attributes")) == pytest.approx(240, abs=2)
    assert counts == {}
    assert ORDERS.request_count_per_day >= 24 * 240 + 2


async def test_a_queue_that_is_not_there_yet_is_found_later(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The trouble is told once, as a sentence; when the queue appears it is watched."""
    caplog.set_level(logging.WARNING)
    outside, backlogs = begin_to_watch(clock)
    await asyncio.sleep(120.0)
    (backlog,) = backlogs.backlogs()
    assert "no queue orders" in backlog.explanation
    await outside.service.create_queue("orders", {})
    await asyncio.sleep(20.0)
    (backlog,) = backlogs.backlogs()
    assert backlog.warning is not None
    assert backlog.trouble is None
    said = [r.message for r in caplog.records if r.name.endswith("troubles")]
    assert len(said) == 2
    assert "is not watched" in said[0]
    assert said[1] == "the trouble with watched_queue is over"


async def test_a_queue_that_is_seen_no_more_is_not_calm(clock: VirtualClock) -> None:
    """Who took the right away to look took the warning away; a minute without an answer is borne."""
    outside, backlogs = begin_to_watch(clock)
    await worked(outside, 60.0, sent_per_second=19)
    assert backlogs.backlogs()[0].document()["alarm"] == "calm"
    await outside.service.delete_queue("orders")
    await asyncio.sleep(20.0)
    assert not outside.troubles.now()
    await asyncio.sleep(3600.0)
    (backlog,) = backlogs.backlogs()
    assert backlog.document()["alarm"] == "unknown"
    assert backlog.visible_message_count is None
    assert "orders is not watched" in outside.troubles.now()[0].sentence


async def test_without_a_delete_rate_the_age_is_not_guessed(clock: VirtualClock) -> None:
    """Counts are shown, no alarm is raised, and the sentence says what is missing; a report supplies it."""
    outside, backlogs = begin_to_watch(clock, WatchedQueueSection(name="orders"))
    await outside.service.create_queue("orders", {})
    working = asyncio.create_task(application(outside, sent_per_second=24, deleted_per_second=20))
    await asyncio.sleep(60.0)
    (backlog,) = backlogs.backlogs()
    assert backlog.document()["alarm"] == "unknown"
    assert backlog.document()["not_visible_message_count"] > 100
    assert "watched_queue.delete_rate_messages_per_second" in backlog.explanation
    backlogs.note_reports([a_report(60.0, deleted_count=600, received_count=720)])
    await asyncio.sleep(15.0)
    watched = next(s for s in backlogs.backlogs() if s.source == "attributes")
    working.cancel()
    assert watched.warning is not None
    assert watched.warning.oldest_undeleted_seconds == pytest.approx(15.0, abs=3.0)


@pytest.mark.parametrize(
    "measures_at",
    [
        lambda seconds: {"oldest_undeleted_seconds": seconds / 60.0},
        lambda seconds: {"oldest_undeleted_seconds_max": seconds / 60.0},
        lambda _seconds: {"received_count": 60 * 30, "deleted_count": 59 * 30},
    ],
)
async def test_reports_of_an_application_are_dated_too(
    clock: VirtualClock, measures_at: Callable[[float], dict[str, float]]
) -> None:
    """Ages as reported, or what was received beyond what was deleted: a second of age more in each minute."""
    _outside, backlogs = begin_to_watch(clock, WatchedQueueSection())
    for seconds in range(30, 901, 30):
        await asyncio.sleep(30.0)
        backlogs.note_reports([a_report(float(seconds), **measures_at(float(seconds)))])
    (backlog,) = backlogs.backlogs()
    assert backlog.warning is not None
    assert backlog.warning.alarm is Alarm.ACT
    assert backlog.warning.reaches_timeout_at is not None
    due_seconds = (backlog.warning.reaches_timeout_at - NOON).total_seconds()
    assert due_seconds == pytest.approx(1800.0, rel=0.06)
    await asyncio.sleep(3600.0)
    assert backlogs.backlogs() == []  # silent for so long, it says nothing about now


async def test_however_many_applications_report_memory_is_bounded(clock: VirtualClock) -> None:
    """The one that was silent for longest makes room."""
    _outside, backlogs = begin_to_watch(clock, WatchedQueueSection())
    await asyncio.sleep(30.0)
    for number in range(3 * SUBJECT_COUNT_MAX):
        report = a_report(30.0, oldest_undeleted_seconds=1.0)
        backlogs.note_reports([dataclasses.replace(report, client=f"app-{number}")])
    names = {backlog.name for backlog in backlogs.backlogs()}
    assert len(names) == SUBJECT_COUNT_MAX
    assert f"of app-{3 * SUBJECT_COUNT_MAX - 1} of user None" in names


async def test_a_user_who_makes_up_applications_hides_nobody_and_fills_nothing(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Of whatever they are called: another's alarm is kept, the log has a few lines a minute, and metrics one queue."""
    caplog.set_level(logging.INFO)
    _outside, backlogs = begin_to_watch(clock, WatchedQueueSection())
    await asyncio.sleep(30.0)
    report = a_report(30.0, oldest_undeleted_seconds=20.0)
    backlogs.note_reports([dataclasses.replace(report, reporter_uid=1)])
    for number in range(3 * SUBJECT_COUNT_MAX):
        backlogs.note_reports([dataclasses.replace(report, client=f"job-{number}", reporter_uid=2)])
    found = backlogs.backlogs()
    assert "of boto3 of user 1" in {backlog.name for backlog in found}
    assert len([r for r in caplog.records if "queue of job-" in r.getMessage()]) <= 5
    _messages, _ages, alarms, _dues = metrics._queue_families(found)
    told = {sample.labels["queue"]: sample.value for sample in alarms.samples}
    assert told == {"of user 1": 2, "of user 2": 2}


async def test_no_two_queues_have_one_name(clock: VirtualClock) -> None:
    """The same program of two users, and on a FIFO queue: a metric that is there twice is not read at all."""
    _outside, backlogs = begin_to_watch(clock, WatchedQueueSection())
    await asyncio.sleep(30.0)
    report = a_report(30.0, oldest_undeleted_seconds=1.0)
    fifo = dataclasses.replace(PLACE, service_class="fifo")
    on_fifo = dataclasses.replace(report, context=dataclasses.replace(report.context, place=fifo))
    backlogs.note_reports(
        [dataclasses.replace(r, reporter_uid=uid) for r in (report, on_fifo) for uid in (1, 2)]
    )
    assert len({backlog.name for backlog in backlogs.backlogs()}) == 4


async def test_the_rate_that_the_operator_states_stands_whatever_is_reported(clock: VirtualClock) -> None:
    """Another queue's consumer, or a liar, must not make the messages of this one look younger than they are."""
    _outside, backlogs = begin_to_watch(clock)
    backlogs.note_reports([a_report(0.0, deleted_count=10.0**6)])
    backlogs.note_attributes({"ApproximateNumberOfMessagesNotVisible": "200"})
    (age,) = {
        s.warning.oldest_undeleted_seconds for s in backlogs.backlogs() if s.name == "orders" and s.warning
    }
    assert age == pytest.approx(10.0)


async def test_the_deletes_of_all_processes_of_an_application_add_up(clock: VirtualClock) -> None:
    """Three that delete 20 a second each delete 60: by one of them, the queue's messages would look thrice as old."""
    _outside, backlogs = begin_to_watch(clock, WatchedQueueSection(name="orders"))
    for seconds in (30.0, 40.0, 50.0, 60.0):  # the first reports twice
        backlogs.note_reports([a_report(seconds, deleted_count=600.0)], process_id=1 + int(seconds) // 10 % 3)
    await asyncio.sleep(60.0)
    backlogs.note_attributes({"ApproximateNumberOfMessagesNotVisible": "600"})
    assert _watched_age(backlogs) == pytest.approx(10.0)
    backlogs.note_reports([a_report(200.0, deleted_count=600.0)], process_id=1)  # the others have ended
    backlogs.note_attributes({"ApproximateNumberOfMessagesNotVisible": "600"})
    assert _watched_age(backlogs) == pytest.approx(30.0)


def _watched_age(backlogs: BacklogWatch) -> float:
    (watched,) = (b for b in backlogs.backlogs() if b.source == "attributes")
    assert watched.warning is not None
    return watched.warning.oldest_undeleted_seconds


async def test_one_process_that_falls_behind_is_not_hidden_by_those_that_keep_up(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reported last: the alarm is that of the worst, is said once, and what differs is no drift."""
    caplog.set_level(logging.INFO)
    _outside, backlogs = begin_to_watch(clock, WatchedQueueSection())
    for turn in range(1, 6):
        for process_id, age in ((1, 0.5), (2, 12.0), (3, 0.7)):
            await asyncio.sleep(10.0)
            at_seconds = 30.0 * turn + 10.0 * process_id
            backlogs.note_reports([a_report(at_seconds, oldest_undeleted_seconds=age)], process_id)
    (backlog,) = backlogs.backlogs()
    assert backlog.warning is not None
    assert backlog.warning.alarm is Alarm.WARN
    assert backlog.warning.drift_seconds_per_second == pytest.approx(0.0, abs=0.01)
    assert len([record for record in caplog.records if "queue of boto3" in record.getMessage()]) == 1


async def test_what_one_process_receives_and_another_deletes_is_no_backlog(clock: VirtualClock) -> None:
    """Counts are of the queue, not of who reports them: what was left a report ago is deleted by now."""
    _outside, backlogs = begin_to_watch(clock, WatchedQueueSection())
    await asyncio.sleep(60.0)
    backlogs.note_reports([a_report(30.0, received_count=1200.0, deleted_count=600.0)], process_id=1)
    backlogs.note_reports([a_report(40.0, received_count=0.0, deleted_count=600.0)], process_id=2)
    (backlog,) = backlogs.backlogs()
    assert backlog.warning is not None
    assert backlog.warning.alarm is Alarm.CALM
