"""What keeps the daemon from its work is said where an operator looks, once."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from penstock.daemon.spending.budget import Verdict
from penstock.daemon.troubles import FAILURE_COUNT_MIN, TOLD_AGAIN_SECONDS, Troubles
from penstock.units import GiB, MiB
from penstock.vocabulary import Inconclusive, Outcome, ProbePlan
from tests.factories import CONTEXT, NOON, a_context, an_observation
from tests.unit.daemon.house import House
from tests.unit.daemon.test_advisory import advisory_of

NO_CREDENTIALS = "no credentials: name a profile in aws.profile (request 1F2E3D4C5B6A7988)"
LARGE = a_context(payload_size_bytes=GiB)


class Hours:
    """A clock that is set."""

    def __init__(self) -> None:
        self.hours = 0.0

    def now(self) -> Any:
        """The date."""
        return NOON + timedelta(hours=self.hours)

    def monotonic_seconds(self) -> float:
        """Since noon."""
        return 3600.0 * self.hours


def some_troubles() -> tuple[Troubles, Hours]:
    clock = Hours()
    return Troubles(clock), clock


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def test_one_failure_is_no_trouble_where_others_went_well(caplog: pytest.LogCaptureFixture) -> None:
    """A stray is not told; three in a row are, and one measurement ends it."""
    troubles, _ = some_troubles()
    for count in range(1, FAILURE_COUNT_MIN + 1):
        troubles.note_failed(CONTEXT, "no route to the host", is_known=True)
        assert bool(troubles.now()) == (count == FAILURE_COUNT_MIN)
    (trouble,) = troubles.now()
    assert trouble.subject == "s3_upload 64 MiB in eu-central-1"
    troubles.note_measured(CONTEXT)
    assert troubles.now() == ()
    assert warnings_of(caplog) == [
        "trouble with s3_upload 64 MiB in eu-central-1: no route to the host",
        "the trouble with s3_upload in eu-central-1 is over",
    ]


def test_what_ails_all_sizes_alike_is_one_trouble(caplog: pytest.LogCaptureFixture) -> None:
    """Numbers and ids of requests are no other reason; another reason is told, too."""
    troubles, _ = some_troubles()
    for number in range(40):
        for context in (CONTEXT, LARGE):
            reason = f"no credentials (request {number:016X}, after {number} s)"
            troubles.note_failed(context, reason, is_known=False)
    (trouble,) = troubles.now()
    assert trouble.payload_size_bytes == (64 * MiB, GiB)
    assert trouble.since_at == NOON
    troubles.note_failed(LARGE, "the bucket is not there", is_known=False)
    assert len(troubles.now()) == 2
    troubles.note_measured(CONTEXT)
    assert len(warnings_of(caplog)) == 2
    troubles.note_measured(LARGE)
    assert warnings_of(caplog)[2:] == ["the trouble with s3_upload in eu-central-1 is over"]


def test_what_comes_and_goes_is_told_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    """Two reasons that take turns do not fill the log."""
    troubles, clock = some_troubles()
    for number in range(50):
        troubles.note_failed(CONTEXT, ("no route", "no name")[number % 2], is_known=False)
    assert len(warnings_of(caplog)) == 2
    clock.hours = TOLD_AGAIN_SECONDS / 3600.0
    troubles.note_failed(CONTEXT, "no route", is_known=False)
    assert len(warnings_of(caplog)) == 3


def test_what_stops_probes_ends_when_they_are_tried_again() -> None:
    """A limit that forbids every probe is trouble at once; a budget that is spent is none."""
    troubles, _ = some_troubles()
    troubles.note_stopped(CONTEXT, "one probe may need 1 GiB, and the budget allows 1 MiB: raise it")
    assert len(troubles.now()) == 1
    troubles.note_postponed(CONTEXT)
    assert troubles.now() == ()
    troubles.note_failed(CONTEXT, "no route", is_known=False)
    troubles.note_postponed(CONTEXT)
    assert len(troubles.now()) == 1, "a failing probe is not mended by waiting"


# --- In a daemon


def failing(house: House, reason: str) -> None:
    """From now on no probe can measure."""

    async def run(plan: ProbePlan[Any]) -> Outcome[Any]:
        house.probe.run_count += 1
        await asyncio.sleep(1.0)
        return Inconclusive(
            context=plan.context, setting=plan.setting, started_at=house.clock.now(), reason=reason
        )

    house.probe.run = run  # type: ignore[method-assign]


async def test_without_credentials_everybody_hears_of_it(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """In the status, in a metric and once in the log, however many cycles fail."""
    failing(house, NO_CREDENTIALS)
    await house.live(6 * 3600.0)
    advisory = advisory_of(house)
    status = advisory.status()
    assert status["trouble"] == f"s3_upload 64 MiB in eu-central-1: {NO_CREDENTIALS}"
    (trouble,) = status["troubles"]
    assert (trouble["name"], trouble["operation"]) == ("s3_upload", "s3_upload")
    assert trouble["since_at"] < house.clock.now() - timedelta(hours=1)
    assert 'penstock_trouble{name="s3_upload",region="eu-central-1"} 1.0' in advisory.metrics().decode()
    assert house.probe.run_count > 10
    assert warnings_of(caplog) == [f"trouble with s3_upload 64 MiB in eu-central-1: {NO_CREDENTIALS}"]


async def test_trouble_that_is_over_is_gone(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """The next measurement says so."""
    run = house.probe.run
    failing(house, NO_CREDENTIALS)
    await house.live(6 * 3600.0)
    house.probe.run = run  # type: ignore[method-assign]
    await house.live(6 * 3600.0)
    advisory = advisory_of(house)
    assert (advisory.status()["trouble"], advisory.status()["troubles"]) == (None, [])
    assert 'penstock_trouble{name="s3_upload",region="eu-central-1"} 0.0' in advisory.metrics().decode()
    assert warnings_of(caplog)[1:] == ["the trouble with s3_upload in eu-central-1 is over"]


async def test_what_outlasts_the_advice_is_trouble(house: House) -> None:
    """A host that is busy for half a day stops nothing for good, but its applications fall back to the defaults."""
    await house.live(3600.0)
    assert advisory_of(house).status()["trouble"] is None
    for _ in range(24):
        later = house.clock.now() + timedelta(minutes=30)
        house.verdict = Verdict("the host is 90% busy", later)
        await house.live(1800.0)
    trouble = advisory_of(house).status()["trouble"]
    assert "its advice has expired (2026-03-01" in trouble
    assert trouble.endswith("): not probed, the host is 90% busy")


async def test_a_disk_in_trouble_is_among_them(house: House) -> None:
    """What nobody can write down stops probes as well."""
    house.lock_disk()
    await house.live(4 * 3600.0)
    await house.store.add_observation(an_observation())
    names = {trouble["name"] for trouble in advisory_of(house).troubles()}
    assert names == {"database", "s3_upload"}
    house.lock_disk(is_locked=False)
