"""Which reports are taken down: what can have happened, and no more from one user than his share."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from penstock.daemon import trust
from penstock.daemon.trust import (
    PLACE_COUNT_MAX,
    PLACE_COUNT_MAX_PER_USER,
    REPORT_COUNT_BURST,
    USER_COUNT_MAX,
    Door,
)
from penstock.models.sqs.queue_class import QUEUE_CLASSES
from penstock.vocabulary import Context, Observation, Origin
from tests.factories import CONTEXT, NOON, PLACE, an_observation

GOOD, BAD = 1001, 666


class ManualClock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic_seconds(self) -> float:
        return self.seconds

    def now(self) -> Any:
        return NOON + timedelta(seconds=self.seconds)


def a_door() -> tuple[Door, ManualClock]:
    """Of a host that probes one place, a c5.large."""
    clock = ManualClock()
    return Door(clock, lambda: [PLACE]), clock


def a_report(**changes: Any) -> Observation[Any]:
    """A good one, that has just ended."""
    report = an_observation(origin=Origin.APPLICATION, client="boto3", started_at=NOON - timedelta(seconds=2))
    return dataclasses.replace(report, **changes)


def about(**changes: str) -> Context:
    """Another place."""
    return dataclasses.replace(CONTEXT, place=dataclasses.replace(PLACE, **changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"transferred_bytes": 0}, "nothing arrived"),
        (
            {"transferred_bytes": 0, "measures": {"throughput_bytes_per_second": 5e6}},
            "nothing arrived",
        ),
        ({"duration_seconds": 600.0}, "ends in the future"),
        ({"duration_seconds": 62.1}, "ends in the future"),
        ({"duration_seconds": 0.02}, "3.36 GB/s is more than this host can move"),
        ({"duration_seconds": 0.01}, "6.71 GB/s is more than this host can move (c5.large: 1.25 GB/s)"),
        ({"context": about(service_class="fifo")}, "expected one of standard, express"),
    ],
)
def test_what_cannot_have_happened_is_refused(changes: dict[str, Any], reason: str) -> None:
    """With a sentence that says what to look at."""
    door, _ = a_door()
    refusal = door.refusal(a_report(**changes), GOOD)
    assert refusal is not None
    assert reason in refusal


def test_what_moves_nothing_is_taken_where_its_value_is_told() -> None:
    """Not every operation has bytes; one whose value is a measure of its own says by that what came of it."""
    door, _ = a_door()
    of_messages = about(operation="sqs_delivery")
    for goodput, is_taken in ((0.0, False), (5.0, True)):
        measures = {"goodput_messages_per_second": goodput}
        report = a_report(context=of_messages, transferred_bytes=0, measures=measures)
        assert (door.refusal(report, GOOD) is None) is is_taken


def test_what_a_newer_host_of_the_type_might_do_is_taken() -> None:
    """The table may be old: only what is far beyond it is refused."""
    door, _ = a_door()
    assert door.refusal(a_report(duration_seconds=0.04), GOOD) is None  # 1.7 GB/s
    assert door.refusal(a_report(duration_seconds=62.0), GOOD) is None  # clocks differ by a minute
    assert (
        door.refusal(a_report(context=about(instance_type="z99.huge"), duration_seconds=0.01), GOOD) is None
    )


@pytest.mark.parametrize("service_class", sorted(QUEUE_CLASSES))
def test_every_class_of_queue_can_be_reported_about(service_class: str) -> None:
    """What is probed and advised is also heard of."""
    door, _ = a_door()
    queue = about(operation="sqs_delivery", service_class=service_class)
    assert door.refusal(a_report(context=queue), GOOD) is None


def test_a_user_who_reports_too_often_is_told_so_and_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a burst, then a rate; each user has his own."""
    monkeypatch.setattr(trust, "REPORT_COUNT_PER_SECOND", 2.0)
    door, clock = a_door()
    taken = [door.refusal(a_report(), BAD) is None for _ in range(REPORT_COUNT_BURST + 100)]
    assert sum(taken) == REPORT_COUNT_BURST
    assert "report a share of your transfers" in (door.refusal(a_report(), BAD) or "")
    assert door.refusal(a_report(), GOOD) is None
    clock.seconds = 10.5
    assert sum(door.refusal(a_report(), BAD) is None for _ in range(100)) == 21


def test_what_is_refused_costs_a_user_nothing() -> None:
    """A client that sends nonsense by mistake can still report what is right."""
    door, _ = a_door()
    for _ in range(2 * REPORT_COUNT_BURST):
        assert door.refusal(a_report(transferred_bytes=0), GOOD) is not None
    assert door.refusal(a_report(), GOOD) is None


def test_nobody_makes_the_daemon_fit_place_after_place() -> None:
    """A user may speak of a few places besides those that are probed, all users together of some dozens."""
    door, _ = a_door()
    others = [a_report(context=about(region=f"region-{n}")) for n in range(200)]
    assert sum(door.refusal(report, BAD) is None for report in others) == PLACE_COUNT_MAX_PER_USER
    assert door.refusal(a_report(), BAD) is None
    taken = [
        door.refusal(a_report(context=about(region=f"of-{uid}-{n}")), uid) is None
        for uid in range(50)
        for n in range(PLACE_COUNT_MAX_PER_USER)
    ]
    assert sum(taken) == PLACE_COUNT_MAX - PLACE_COUNT_MAX_PER_USER


def test_users_are_remembered_up_to_a_bound() -> None:
    """Whoever can make thousands of users fills no memory; who has been silent makes room."""
    door, clock = a_door()
    taken = [door.refusal(a_report(), uid) is None for uid in range(2 * USER_COUNT_MAX)]
    assert sum(taken) == USER_COUNT_MAX
    clock.seconds = 3600.0
    taken = [door.refusal(a_report(), 10**6 + uid) is None for uid in range(USER_COUNT_MAX + 9)]
    assert sum(taken) == USER_COUNT_MAX
