"""The conductor when the disk, the clock or an application does what nobody wishes for."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from penstock.api.wire import recommendation_document
from penstock.daemon.cycle.conductor import REPORTS_PAUSE_SECONDS, REPORTS_SETTLE_SECONDS
from penstock.daemon.cycle.thinker import ThinkerError
from penstock.daemon.spending.budget import DAY, Ledger, left, total
from penstock.lab.virtual_time import VirtualClock
from penstock.models import burst
from penstock.operations.sections.downloads import DownloadSection
from penstock.operations.sections.objects import ObjectSection
from penstock.probes.probe import inconclusive
from penstock.units import GiB, MiB
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Objective,
    Observation,
    Origin,
    Outcome,
    Place,
    ProbePlan,
    Reason,
)
from tests.factories import CONTEXT, NOON, PLACE, a_leftover, a_queue_setting, an_observation
from tests.inline_thinker import InlineThinker
from tests.unit.daemon.house import DAY_LIMIT, House
from tests.unit.daemon.test_advisory import advisory_of

SQS_PLACE = Place(operation="sqs_delivery", region=PLACE.region, instance_type=PLACE.instance_type)


async def test_a_report_about_what_is_not_probed_is_learned_from(house: House) -> None:
    """Applications may report any operation; that must not end the daemon."""
    context = Context(place=SQS_PLACE, payload_size_bytes=1024)
    reported: Observation[Any] = an_observation(
        origin=Origin.APPLICATION,
        context=context,
        setting=a_queue_setting(1, 1, 1, batch=1),
    )

    await house.store.add_observation(reported)
    house.conductor.note_reports([reported])
    await house.live(10.0)
    assert SQS_PLACE in house.thinker.asked
    assert house.board.fit(SQS_PLACE) is not None


async def test_a_full_disk_costs_no_budget(house: House) -> None:
    """What could not be written down is not done, so it is not paid for either."""
    house.lock_disk()
    for _ in range(10):
        await house.conductor.run_cycle(CONTEXT, Reason.REQUESTED)
    assert house.probe.run_count == 0
    assert house.conductor.ledger.spent(NOON) == Cost()


async def test_too_little_memory_for_fits_does_not_end_the_daemon(house: House) -> None:
    """Cycle after cycle whose fit was killed is trouble that is named, not a failure of the program."""
    house.thinker.trouble = ThinkerError("killed: raise MemoryMax")
    await house.live(10 * 86400.0)
    assert house.conductor.cycle_count > 3
    assert any("raise MemoryMax" in trouble.sentence for trouble in house.conductor.troubles.now())


async def test_a_measurement_outlives_a_disk_that_fills_meanwhile(house: House) -> None:
    """When the disk fills during a probe, the observation waits in memory and the true cost counts."""
    house.probe.before_end = house.lock_disk
    cycle = await house.conductor.run_cycle(CONTEXT)
    assert isinstance(cycle.outcome, Observation)
    assert len(house.disk.observations(PLACE, count_max=9)) == 1
    assert house.conductor.ledger.spent(NOON).duration_seconds == 2.0


async def test_housekeeping_survives_a_full_disk(house: House) -> None:
    """What is old can wait for a disk that can be written to; the daemon goes on."""
    house.lock_disk()
    await house.live(4 * 3600.0)
    house.lock_disk(is_locked=False)
    await house.live(4 * 3600.0)
    assert house.probe.run_count > 0


async def test_housekeeping_keeps_up_with_many_reports(house: House) -> None:
    """However many values applications report in an hour, what is old goes, but for what the place is learned from."""
    old = [an_observation(started_at=NOON - timedelta(days=2, seconds=n)) for n in range(12_000)]

    house.disk.add_observations(old)
    await house.live(1.0)
    assert house.disk.observations(PLACE, count_max=20_000) == old[99::-1]


async def test_a_clock_that_was_ahead_at_the_start_does_not_silence_the_daemon(house: House) -> None:
    """When the date is corrected by a year, probing goes on by the new date."""
    house.clock.ahead = timedelta(days=365)
    living = asyncio.create_task(house.live(6 * 3600.0))
    await asyncio.sleep(1.0)
    house.clock.ahead = timedelta()
    await living
    assert house.probe.run_count > 0


async def test_a_clock_set_back_gives_no_budget_back_until_it_is_believed(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """What was spent by a clock that was ahead counts, and it is said; a day after a word, probing goes on.

    What was left may be spent meanwhile.
    """
    house.clock.ahead = timedelta(days=400)
    await house.live(24 * 3600.0)
    house.clock.ahead = timedelta()
    before = house.probe.run_count
    assert before > 0
    await house.live(3 * 24 * 3600.0)
    spent = house.conductor.ledger.spent(house.clock.now())
    assert left(DAY_LIMIT, spent) + spent == DAY_LIMIT
    assert before / 4 < house.probe.run_count - before < 3 * before / 4  # a quarter was left of each day
    before = house.probe.run_count
    advisory = advisory_of(house)
    status = advisory.status()
    assert status["spent_per_day"]["request_count"] > 0
    (clock,) = (t for t in advisory.troubles() if t["name"] == "clock")
    assert "and no more in 25 hours" in await advisory.believe_clock()
    assert "penstock believe-clock" in clock["sentence"]
    await house.live(1.0)
    assert [t["name"] for t in advisory.troubles() if t["name"] == "clock"] == []
    on_disk = Ledger(DAY_LIMIT, tuple(house.disk.spend())).spent(house.clock.now())
    counted = house.conductor.ledger.spent(house.clock.now())
    assert on_disk.request_count == counted.request_count > 0
    assert on_disk.usd == pytest.approx(counted.usd)
    await house.live(2 * 24 * 3600.0)
    assert house.probe.run_count > before
    assert await advisory.believe_clock() == "nothing was spent at a date in the future"
    said = [r.getMessage() for r in caplog.records if "clock" in r.getMessage()]
    assert len(said) == 2
    assert said[0].startswith("trouble with clock: it stands at 2026-03-02 12:00 UTC, and $")
    assert said[1] == "the trouble with clock is over"


async def test_a_clock_that_is_set_back_while_something_is_planned_gives_no_budget(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was over when the cycle began counts again when the probe would: it waits, and no cycle fails."""
    conductor, deliberate = house.conductor, house.thinker.deliberate
    conductor.ledger, _ = conductor.ledger.reserve(CONTEXT.operation, DAY_LIMIT, house.clock.now())
    house.clock.ahead = timedelta(days=2)

    async def set_back(model: Any, case: Any) -> Any:  # of any operation
        house.clock.ahead = timedelta()
        return await deliberate(model, case)

    monkeypatch.setattr(house.thinker, "deliberate", set_back)
    cycle = await conductor.run_cycle(CONTEXT)
    assert "not probed" in cycle.sentence
    assert house.probe.run_count == 0


async def test_a_stopped_sweep_is_paid_for(house: House) -> None:
    """A stop or a reload in the middle of it: what it asked for counts, in memory and for the next life."""
    house.disk.record_leftover(a_leftover(), now=NOON - DAY)
    running = asyncio.create_task(house.conductor.sweep())
    await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    spent = house.conductor.ledger.spent(NOON)
    assert spent.request_count > 0
    assert total(house.disk.spend(since=NOON - DAY)) == spent


async def test_no_age_is_negative(house: House) -> None:
    """Measurements of a clock that was ahead are as new as can be, not newer."""
    (fit,) = house.board.fits()
    ahead = replace(fit, observation_count=1, newest_observation_at=NOON + timedelta(days=400))
    await house.board.post(ahead, house.clock.now())
    metrics = advisory_of(house).metrics().decode()
    (line,) = (x for x in metrics.splitlines() if x.startswith("penstock_newest_observation_age_seconds{"))
    assert float(line.split()[-1]) == 0.0
    advice = house.board.recommend(CONTEXT, Demand(objective=Objective.FRUGAL), house.clock.now())
    document = recommendation_document(advice, generation=1)
    assert document["newest_observation_age_seconds"] == 0.0


async def test_bytes_that_were_moved_in_vain_are_paid_for(house: House) -> None:
    """A failed part costs as much as one that arrived: the day's limit is on what was sent."""
    house.probe.moved_bytes = 3 * 64 * MiB
    await house.conductor.run_cycle(CONTEXT)
    assert house.conductor.ledger.spent(NOON).transferred_bytes == 3 * 64 * MiB


async def test_a_probe_is_the_first_of_its_context_until_one_has_measured(house: House) -> None:
    """What it needs may have to be made, whatever an earlier life of the daemon measured; or again, where one fails."""

    async def in_vain(plan: ProbePlan[Any]) -> Outcome[Any]:
        return inconclusive(plan, house.clock.now(), "in vain", Cost())

    measuring, house.probe.run = house.probe.run, in_vain  # type: ignore[method-assign]
    assert (await house.conductor.run_cycle(CONTEXT)).has_failed
    house.probe.run = measuring  # type: ignore[method-assign]
    for _ in range(2):
        await house.conductor.run_cycle(CONTEXT)
    house.probe.run = in_vain  # type: ignore[method-assign]
    for _ in range(2):
        await house.conductor.run_cycle(CONTEXT)
    assert house.thinker.firsts == [True, True, False, False, True]


async def test_what_is_observed_of_prices_counts_from_the_next_probe_on(house: House) -> None:
    """Also in the next life, which begins with the newest observation."""
    house.probe.measures = {"key_request_count_each": 1.0}
    await house.conductor.run_cycle(CONTEXT)
    (seen,) = house.observed
    assert seen.measures == house.probe.measures
    house.tariff = replace(house.tariff, key_request_count=1.0)
    await house.conductor.run_cycle(CONTEXT)
    assert [tariff.key_request_count for tariff in house.thinker.tariffs] == [0.0, 1.0]
    house.observed.clear()
    await house.conductor.prepare()
    assert [observation.measures for observation in house.observed] == [house.probe.measures]


async def test_what_the_operator_put_is_not_paid_for(house: House) -> None:
    """A probe that reads an object of his is no dearer than the next one."""
    watch = house.conductor._watches[CONTEXT]
    house.conductor._watches[CONTEXT] = replace(watch, section=DownloadSection(object_key="mine"))
    await house.conductor.run_cycle(CONTEXT)
    assert house.thinker.firsts == [False]


async def test_a_size_that_no_probe_can_hold_is_left_alone_with_the_reason(house: House) -> None:
    """A part is 5 MiB at least, so 1 MiB is not kept by any setting: nothing is probed, and the log says why."""
    watch = house.conductor._watches[CONTEXT]
    section = ObjectSection(memory_bytes_max=MiB)
    house.conductor._watches[CONTEXT] = replace(watch, section=section)
    house.conductor.learner.thinker = InlineThinker()
    assert (await house.conductor.run_cycle(CONTEXT, Reason.REQUESTED)).has_failed
    assert house.probe.run_count == 0
    assert house.conductor.cycles[-1].sentence.endswith(
        "not probed, a probe needs at least 5 MiB of memory, but "
        "probes.s3_upload.memory_bytes_max allows only 1 MiB: raise it"
    )
    assert next(iter(house.conductor.standings)).postponed_until is not None


async def test_what_passes_by_itself_has_not_failed(house: House) -> None:
    """A day's budget that is used up is what it is for, and a measurement is none of a failure either."""
    house.probe.moved_bytes = GiB
    cycles = [await house.conductor.run_cycle(CONTEXT) for _ in range(8)]
    assert {cycle.outcome is None for cycle in cycles} == {True, False}
    assert not any(cycle.has_failed for cycle in cycles)


async def test_burst_credits_are_settled_by_what_was_sent_above_the_baseline(house: House) -> None:
    """Whatever was planned: 1 GiB moved in two seconds, of which the baseline would have carried a part."""
    limits = burst.ceiling(PLACE.instance_type)
    assert limits is not None

    above = GiB - limits.baseline_bytes_per_second * an_observation().duration_seconds
    house.probe.moved_bytes = GiB
    await house.conductor.run_cycle(CONTEXT)
    assert house.conductor.ledger.spent(NOON).credit_bytes == ceil(above) > 0


async def test_credits_that_are_spent_are_the_reason_that_is_given(house: House) -> None:
    """Where not even the gentlest probe is to be had for them, and when it will be."""
    tiny = replace(CONTEXT, place=replace(PLACE, instance_type="t3.nano"))

    watch = replace(house.conductor._watches[CONTEXT], context=tiny)
    house.conductor._watches[tiny] = watch
    house.conductor._avoided[tiny] = deque(maxlen=1)
    (known,) = house.conductor.standings
    house.conductor.standings._standings[tiny] = replace(known, context=tiny)
    house.conductor.learner.thinker = InlineThinker()
    ample = Cost(transferred_bytes=10**12, request_count=10**6, usd=100.0, duration_seconds=86400.0)
    house.conductor.ledger = Ledger(replace(ample, credit_bytes=MiB))
    await house.conductor.run_cycle(tiny)
    assert house.probe.run_count == 0
    sentence = house.conductor.cycles[-1].sentence
    assert "of burst credit, but budget.credit_fraction_per_day allows only 1 MiB of burst credit" in sentence


async def test_dollars_that_are_spent_are_the_reason_that_is_given(house: House) -> None:
    """Where not even the gentlest probe is to be had for them: by the key that binds, not as if none were worth it."""
    house.conductor.learner.thinker = InlineThinker()
    ample = Cost(transferred_bytes=10**12, request_count=10**6, usd=100.0, duration_seconds=86400.0)
    house.conductor.ledger = Ledger(
        replace(ample, credit_bytes=10**12), usd_limits={CONTEXT.operation: 0.0001}
    )
    await house.conductor.run_cycle(CONTEXT)
    assert house.probe.run_count == 0
    sentence = house.conductor.cycles[-1].sentence
    assert f"but probes.{CONTEXT.operation}.usd_per_day allows only $0.0001 in 24 hours: raise it" in sentence


async def test_what_failed_is_tried_again_where_nothing_else_is_left(house: House) -> None:
    """A service was down, and each setting that may be tried failed: it is probed when it is due, not hours later."""
    house.thinker.heeds_failures = True
    house.conductor._avoided[CONTEXT].extend(3 * [an_observation().setting])
    await house.conductor.run_cycle(CONTEXT)
    assert house.probe.run_count == 1


async def test_a_stopped_probe_gives_back_what_it_did_not_spend(house: House) -> None:
    """A stop or a reload in the middle of a probe costs what was used, in memory and for the next life."""
    house.probe.used = Cost(transferred_bytes=5, request_count=2)
    running = asyncio.create_task(house.conductor.run_cycle(CONTEXT))
    await asyncio.sleep(1.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert total(house.disk.spend(since=NOON - DAY)) == house.conductor.ledger.spent(NOON)
    spent = house.conductor.ledger.spent(NOON)
    assert (spent.transferred_bytes, spent.request_count, spent.duration_seconds) == (5, 2, 1.0)


async def test_a_start_survives_a_thinker_that_dies(clock: VirtualClock, tmp_path: Path) -> None:
    """Without memory for a first fit the daemon serves the defaults and says so, and does not end."""
    house = House(tmp_path, clock)
    house.thinker.trouble = ThinkerError("killed")
    await house.conductor.prepare()
    house.thinker.trouble = None
    await house.conductor.run_cycle(CONTEXT)
    assert house.probe.run_count == 1
    await house.store.close()


async def test_what_was_reported_waits_for_a_thinker_that_lives(house: House) -> None:
    """A fit that is killed is not forgotten: nobody reports the same again."""
    report: Observation[Any] = an_observation(
        origin=Origin.APPLICATION, context=replace(CONTEXT, place=replace(PLACE, region="far-1"))
    )
    await house.store.add_observation(report)
    house.conductor.note_reports([report])
    house.thinker.trouble = ThinkerError("killed")
    await house.live(REPORTS_SETTLE_SECONDS + 1.0)
    house.thinker.trouble = None
    await house.live(REPORTS_PAUSE_SECONDS)
    assert house.board.fit(report.context.place) is not None
