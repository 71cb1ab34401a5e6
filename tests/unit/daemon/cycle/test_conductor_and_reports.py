"""What reports of applications do to the days of the daemon: fewer probes, and never more than so many fits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.daemon.cycle.conductor import REPORTS_PAUSE_SECONDS
from penstock.models.model import PerformanceModel
from penstock.optimizer import reports
from penstock.optimizer.deliberation import Case, Conclusion
from penstock.units import MiB
from penstock.vocabulary import Observation, Origin
from tests.factories import CONTEXT, a_context, an_observation
from tests.unit.daemon.house import CannedThinker, House

HOUR = 3600.0


class CredulousThinker(CannedThinker):
    """Believes every report, or none."""

    def __init__(self, *, is_credulous: bool = True) -> None:
        super().__init__()
        self._is_credulous = is_credulous
        self.seen: Sequence[Observation[Any]] = ()

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        conclusion = await super().deliberate(model, case)
        self.seen = case.observations
        said = reports.reported(case.observations)
        believed = [reports.Believed(context=o.context, started_at=o.started_at) for o in said]
        return Conclusion(
            fit=conclusion.fit,
            plan=conclusion.plan,
            believed=tuple(believed) if self._is_credulous else (),
            disbelieved_count=0 if self._is_credulous else len(said),
        )


async def _report(house: House, *, every_seconds: float, payload_size_bytes: int) -> None:
    """An application that reports its transfers as they end."""
    while True:
        await asyncio.sleep(every_seconds)
        report: Observation[Any] = an_observation(
            context=a_context(payload_size_bytes=payload_size_bytes),
            started_at=house.clock.now() - timedelta(seconds=2),
            origin=Origin.APPLICATION,
            reporter_uid=1001,
        )
        await house.store.add_observation(report)
        house.conductor.note_reports([report])


async def probe_counts(
    house: House,
    *,
    is_credulous: bool = True,
    payload_size_bytes: int = CONTEXT.payload_size_bytes,
    phases: tuple[bool, ...] = (False, True),
) -> list[int]:
    """Probes in ten hours each, while no application reports or one does, every eight minutes."""
    counts = []
    house.thinker = house.conductor.learner.thinker = CredulousThinker(is_credulous=is_credulous)
    await house.live(3 * HOUR)  # until it is known
    for is_reporting in phases:
        application = (
            asyncio.create_task(_report(house, every_seconds=480.0, payload_size_bytes=payload_size_bytes))
            if is_reporting
            else asyncio.create_task(asyncio.sleep(0))
        )
        before = house.probe.run_count
        await house.live(10 * HOUR)
        counts.append(house.probe.run_count - before)
        application.cancel()
    return counts


async def test_probing_slows_down_while_applications_report_and_never_stops(house: House) -> None:
    """To about a quarter; and it comes back when they fall silent."""
    before, during, after = await probe_counts(house, phases=(False, True, False))
    assert 0.1 * before < during < 0.5 * before
    assert after > 0.6 * before


@pytest.mark.parametrize(
    ("is_credulous", "payload_size_bytes"), [(False, CONTEXT.payload_size_bytes), (True, 100 * 64 * MiB)]
)
async def test_reports_that_are_not_believed_or_of_another_size_slow_nothing_down(
    house: House, *, is_credulous: bool, payload_size_bytes: int
) -> None:
    """A liar cannot silence the probes, and a stream of large objects says little about small ones."""
    before, during = await probe_counts(
        house, is_credulous=is_credulous, payload_size_bytes=payload_size_bytes
    )
    assert during > 0.6 * before


async def test_a_stream_of_reports_costs_few_fits(house: House) -> None:
    """However often somebody reports, reports are learned from every two minutes at the most."""
    application = asyncio.create_task(
        _report(house, every_seconds=20.0, payload_size_bytes=CONTEXT.payload_size_bytes)
    )
    await house.live(HOUR)
    application.cancel()
    for_reports = len(house.thinker.asked) - 2 * house.probe.run_count
    assert HOUR / REPORTS_PAUSE_SECONDS - 5 < for_reports <= HOUR / REPORTS_PAUSE_SECONDS + 2


async def test_what_applications_moved_beside_each_other_is_learned_from_together(house: House) -> None:
    """Two of a user that upload at a time are taken for what they moved together, not for a slower host."""
    thinker = house.thinker = house.conductor.learner.thinker = CredulousThinker()
    said: list[Observation[Any]] = [
        an_observation(
            started_at=house.clock.now() - timedelta(seconds=2), origin=Origin.APPLICATION, reporter_uid=1001
        )
        for _ in range(2)
    ]
    for report in said:
        await house.store.add_observation(report)
    house.conductor.note_reports(said)
    await house.live(REPORTS_PAUSE_SECONDS)
    assert [o.transferred_bytes for o in reports.reported(thinker.seen)] == [128 * MiB, 128 * MiB]


async def test_reports_that_are_not_believed_are_said_once(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in each cycle that looks at them again; and again when there are more of them."""
    caplog.set_level("INFO")
    house.thinker = house.conductor.learner.thinker = CredulousThinker(is_credulous=False)
    for count in (1, 2):
        report: Observation[Any] = an_observation(
            started_at=house.clock.now() - timedelta(seconds=2), origin=Origin.APPLICATION, reporter_uid=1001
        )
        await house.store.add_observation(report)
        house.conductor.note_reports([report])
        await house.live(3 * HOUR)
        said = [record.getMessage() for record in caplog.records if "not believed" in record.getMessage()]
        assert len(said) == count
    assert said[-1].endswith("2 reports of applications")
