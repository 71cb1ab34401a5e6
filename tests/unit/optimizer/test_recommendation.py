"""Rules of advice: always an answer, never more than is needed, never beyond a limit, and no flutter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import numpy as np
import pytest

from penstock.models.model import Appraisal, Array, Fit, Periods, Suspicion
from penstock.models.s3 import answers
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.optimizer import evidence
from penstock.optimizer.recommendation import alternatives, assess
from penstock.units import MiB
from penstock.vocabulary import Basis, Context, Demand, Estimate, Objective, Obstacle, Recommendation
from tests.factories import recommended
from tests.unit.models.s3.upload_world import UploadWorld, a_setting, history

MODEL, WORLD = S3UploadModel(), UploadWorld()
NOW = datetime(2026, 1, 6, tzinfo=UTC)
PROBES = history(WORLD, 14)
FIT = evidence.attach(MODEL.fit(WORLD.place, PROBES, prior=None, seed=1), MODEL, PROBES)


Advice = Recommendation[S3UploadSetting]


def advice(demand: Demand | None = None, *, fit: Fit | None = FIT, previous: Advice | None = None) -> Advice:
    """Advice for the world."""
    demand = demand or Demand()
    return recommended(MODEL, fit, WORLD.context, demand, previous=previous)


def test_a_fit_that_cannot_be_read_is_none() -> None:
    """What another version stored is not guessed at."""
    old = {"draws": FIT.state["draws"]}
    assert advice(fit=replace(FIT, state=old)).basis is Basis.DEFAULT


def test_prior_alone_is_called_a_prior() -> None:
    """Tables are not measurements."""
    found = advice(fit=MODEL.fit(WORLD.place, [], prior=None, seed=1))
    assert found.basis is Basis.PRIOR
    assert "estimated from tables and neighbours, not measured here" in found.explanation


def test_advice_is_near_the_best_with_few_connections() -> None:
    """Within a few percent of the best truth, with hardly more connections than the knee needs."""
    found = advice()
    best = max(WORLD.truth(a_setting(n, p)) for n in range(8, 200, 4) for p in (5, 8, 12, 16, 24))
    assert WORLD.truth(found.setting) >= 0.95 * best
    assert found.setting.thread_count <= 75


@pytest.mark.parametrize("objective", list(Objective))
def test_limits_hold_for_every_objective(objective: Objective) -> None:
    """Threads and memory never exceed what the application stated."""
    demand = Demand(objective=objective, memory_bytes_max=128 * MiB, thread_count_max=12)
    found = advice(demand)
    assert found.setting.thread_count <= 12
    assert found.setting.thread_count * found.setting.part_size_bytes <= 128 * MiB


def test_stated_bandwidth_needs_fewer_connections() -> None:
    """Whoever may only use a tenth is not told to open everything."""
    limited = advice(Demand(bandwidth_bytes_per_second_max=60e6))
    assert limited.setting.thread_count < advice().setting.thread_count / 3
    assert limited.derived["rate_limit_bytes_per_second"] == 60e6
    assert limited.bottleneck == "demand"


def test_frugal_takes_less() -> None:
    """Four fifths of the best for less memory and fewer connections."""
    frugal, full = advice(Demand(objective=Objective.FRUGAL)), advice()
    assert frugal.derived["memory_bytes"] < full.derived["memory_bytes"]
    assert WORLD.truth(frugal.setting) >= 0.7 * WORLD.truth(full.setting)


def test_the_peak_takes_more() -> None:
    """Connections that bring less than they are usually worth."""
    peak, worth = advice(Demand(objective=Objective.PEAK)), advice()
    assert peak.setting.thread_count > worth.setting.thread_count
    assert WORLD.truth(peak.setting) > WORLD.truth(worth.setting)


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.PEAK])
def test_advice_that_is_as_good_stands(objective: Objective) -> None:
    """A few more probes do not make the advice flutter."""
    demand = Demand(objective=objective)
    first = advice(demand)
    more = [*PROBES, *history(WORLD, 4, first=14)]
    later = evidence.attach(MODEL.fit(WORLD.place, more, prior=None, seed=1), MODEL, more)
    assert advice(demand, fit=later, previous=first).setting == first.setting


def test_advice_waits_for_the_next_measurement_after_a_surprise() -> None:
    """The advice stands, its interval reaches as far as what was seen at once, and it says that it may have changed."""
    standing = replace(advice(), setting=a_setting(40, 8))
    suspicion = Suspicion(surprise=-9.0, value_ratio=0.25)
    calm, suspicious = (
        advice(fit=fit, previous=standing) for fit in (FIT, replace(FIT, suspicion=suspicion))
    )
    assert suspicious.setting == standing.setting
    name = MODEL.value_metric
    assert suspicious.prediction[name].low == pytest.approx(0.25 * suspicious.prediction[name].expected)
    assert suspicious.prediction[name].high < 1.1 * calm.prediction[name].high
    rate, seconds = (suspicious.prediction[name] for name in ("request_rate_per_second", "latency_seconds"))
    assert rate.low == pytest.approx(0.25 * rate.expected)
    assert rate.high < 2 * rate.expected
    assert seconds.high == pytest.approx(4 * seconds.expected)
    assert seconds.low > seconds.expected / 2
    said = "This place may have changed. The newest measurement reached 25 % of what was expected; the advice stays"
    assert f"{said} as it is until the next." in suspicious.explanation
    assert "may have changed" not in calm.explanation


def test_what_surprised_is_named_where_it_was_not_the_value() -> None:
    """Requests may take twice as long and as many be done: 100 % of what was expected is no reason to look again."""
    suspicion = Suspicion(surprise=-9.0, value_ratio=1.0, subject="delete requests", subject_ratio=2.0)
    several = replace(suspicion, surprise=-1.0, level=0.8)
    calm, suspicious, level = (
        advice(fit=fit) for fit in (FIT, replace(FIT, suspicion=suspicion), replace(FIT, suspicion=several))
    )
    words = "In the newest measurement delete requests took 200 % of the expected time"
    assert f"This place may have changed. {words}" in suspicious.explanation
    turned = "This place may have changed. Several measurements in a row were off in the same direction."
    assert f"{turned} {words}" in level.explanation
    assert suspicious.prediction["request_rate_per_second"] == calm.prediction["request_rate_per_second"]
    seconds = suspicious.prediction["latency_seconds"]
    assert seconds.high == pytest.approx(2 * seconds.expected)


def test_advice_stands_until_a_change_was_seen_with_more_threads_than_one() -> None:
    """Slower with forty may be each connection or all of them: whether more or fewer are wanted is not known yet."""
    standing = replace(advice(), setting=a_setting(40, 8))
    alike = [WORLD.observe(a_setting(n, 8), 20 + i, factor=0.3) for i, n in enumerate((40, 40, 48, 40))]
    other = WORLD.observe(a_setting(96, 8), 24, factor=0.5)
    for since, stands in ((alike[:1], True), (alike, True), ([*alike, other], False)):
        fit = replace(FIT, changed_at=since[0].started_at)
        found = advice(fit=evidence.attach(fit, MODEL, [*PROBES, *since]), previous=standing)
        assert (found.setting == standing.setting) is stands


def test_which_limit_moved_is_not_known_from_one_number_of_threads() -> None:
    """After a change, whatever the posterior makes of the prior: slower is each connection, or all of them together."""
    alike = [WORLD.observe(a_setting(40, 8), 20 + i, factor=0.3) for i in range(2)]
    other = WORLD.observe(a_setting(96, 8), 24, factor=0.5)
    fit = replace(FIT, changed_at=alike[0].started_at)
    before, few, enough = (
        advice(fit=each).bottleneck
        for each in (
            FIT,
            *(evidence.attach(fit, MODEL, [*PROBES, *some]) for some in (alike, [*alike, other])),
        )
    )
    assert (before, few, enough) == ("host-ceiling", "unsure", "host-ceiling")


def test_advice_goes_by_steps_while_little_was_measured_since_a_change() -> None:
    """Two dips after it must not lead to a single thread; six measurements are worth going all the way."""
    standing = replace(advice(), setting=a_setting(8, 8))
    assert advice().setting.thread_count > 16
    since = [WORLD.observe(a_setting(n, 8), 20 + i) for i, n in enumerate((8, 40, 32, 48, 40, 40))]
    fit = replace(FIT, changed_at=since[0].started_at)
    few, enough = (evidence.attach(fit, MODEL, [*PROBES, *some]) for some in (since[:3], since))
    assert 8 < advice(fit=few, previous=standing).setting.thread_count <= 16
    assert advice(fit=enough, previous=standing).setting.thread_count > 16


def test_advice_for_another_question_does_not_stand() -> None:
    """Hysteresis belongs to one context and demand."""
    other = advice(Demand(thread_count_max=4))
    assert advice(previous=other).setting == advice().setting


def test_advice_beyond_what_was_measured_does_not_stand() -> None:
    """Nothing that is out of reach for new advice is kept from old one."""
    few = [WORLD.observe(a_setting(n, 8), n) for n in range(3, 9)]
    fit = evidence.attach(MODEL.fit(WORLD.place, few, prior=None, seed=1), MODEL, few)
    beyond = replace(advice(fit=fit), setting=a_setting(512, 8))
    assert advice(fit=fit, previous=beyond).setting == advice(fit=fit).setting


@pytest.mark.parametrize(
    "demand",
    [Demand(thread_count_max=2, memory_bytes_max=16 * MiB), Demand(memory_bytes_max=8 * MiB)],
)
def test_without_a_fit_the_limits_hold_as_well(demand: Demand) -> None:
    """What the SDK does by itself may be more than the application has."""
    found = advice(demand, fit=None)
    assert found.basis is Basis.DEFAULT
    assert found.setting.thread_count <= (demand.thread_count_max or 10)
    assert found.setting.thread_count * found.setting.part_size_bytes <= (demand.memory_bytes_max or 0)


def test_what_was_measured_again_is_not_forgotten() -> None:
    """Of many settings those that were measured last travel with the fit."""
    probes = [WORLD.observe(a_setting(4 + i), i) for i in range(70)]
    probes.append(WORLD.observe(a_setting(4), 70))
    kept = [cell.setting["thread_count"] for cell in evidence.attach(FIT, MODEL, probes).cells]
    assert kept[-1] == 4
    assert 5 not in kept


@pytest.mark.parametrize("earlier", [(), ((WORLD.observe(a_setting(64), 0).started_at,) * 2,)])
def test_what_a_setting_did_while_the_place_was_another_is_kept_apart(earlier: Periods) -> None:
    """It is looked at again once the place may be that again, and is no measurement of what it is now."""
    slower = replace(WORLD, host_bytes_per_second=200e6)
    probes = [world.observe(a_setting(64), i) for i, world in enumerate([WORLD, WORLD, WORLD, slower])]
    fit = replace(FIT, changed_at=probes[3].started_at, earlier=earlier)
    before, now = evidence.attach(fit, MODEL, probes).cells
    assert (before.count, now.count) == (3, 1)
    assert before.value_median > 500e6
    assert now.value_median < 220e6
    assert not evidence.is_current(before, fit)
    assert evidence.is_current(now, fit)


def test_poor_advice_does_not_stand() -> None:
    """What was advised before is given up when it is clearly worse."""
    poor = replace(advice(), setting=a_setting(6))
    assert advice(previous=poor).setting == advice().setting


def test_measured_advice_says_so() -> None:
    """The basis is `measured` when the advised setting was probed at this size, `model` when others were."""
    setting = advice().setting
    more = [*PROBES, WORLD.observe(setting, 14)]
    fit = evidence.attach(MODEL.fit(WORLD.place, more, prior=None, seed=1), MODEL, more)
    assert advice(fit=fit, previous=advice()).basis is Basis.MEASURED
    assert advice(fit=replace(fit, cells=())).basis is Basis.MODEL
    changed = replace(fit, changed_at=more[-1].started_at + timedelta(seconds=1))
    assert advice(fit=changed, previous=advice()).basis is Basis.MODEL, "before the place changed"


def test_explanation_says_what_to_expect_what_would_help_and_what_it_is_worth() -> None:
    """In numbers with units and intervals: beside what more of it would bring, and beside the default."""
    expected, help_, worth = advice().explanation.split(". ")
    assert "MB/s (90 %: " in expected
    assert help_.startswith("Twice the connections would bring ")
    assert re.fullmatch(
        r"[\d.]+ times as fast as boto3's default \(90 %: [\d.]+ to [\d.]+\), with \d+ connections instead of 10\.",
        worth,
    )


class Pretends(S3UploadModel):
    """Expects so much of what the SDK does by itself, and of all else, whatever was measured."""

    def __init__(self, own: float, others: float) -> None:
        super().__init__()
        object.__setattr__(self, "expected", (own, others))

    expected: tuple[float, float]

    def _values(self, settings: Sequence[S3UploadSetting], demand: Demand) -> Array:
        own = self.advisable_default(FIT, WORLD.context, demand)
        return np.array([self.expected[setting != own] for setting in settings])

    def appraise(
        self, fit: Fit, context: Context, settings: Sequence[S3UploadSetting], demand: Demand
    ) -> Appraisal:
        """As pretended, and no more known."""
        values = self._values(settings, demand)
        real = S3UploadModel.appraise(self, fit, context, settings, demand)
        return replace(real, value=values, latency_seconds=1e9 / values)

    def log_gains(self, _fit: Fit, _context: Context, settings: Any, reference: Any, demand: Demand) -> Array:
        """As pretended, in each of two draws."""
        logs = np.log(self._values([reference, *settings], demand))
        return np.tile(logs[1:] - logs[0], (2, 1))


def pretended(own: float, others: float, demand: Demand, previous: Advice | None = None) -> Advice:
    """The advice where that is expected."""
    model = Pretends(own, others)
    return recommended(model, FIT, WORLD.context, demand, previous=previous)


OWN = MODEL.default_setting(WORLD.context)


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.LATENCY])
def test_advice_is_never_expected_to_be_slower_than_the_default_beyond_what_the_aim_allows(
    objective: Objective,
) -> None:
    """Also where old advice would be kept, which is good enough with a percent less."""
    demand = Demand(objective=objective)
    old = advice(demand)
    assert old.setting != OWN
    for own in (103.0, 200.0):
        found = pretended(own, 100.0, demand, previous=old)
        assert found.setting == OWN
        assert found.gain_over_default == Estimate(1.0, 1.0, 1.0)
        assert found.explanation.endswith(" This is boto3's default.")


def test_a_little_less_than_the_default_for_fewer_connections_says_so() -> None:
    """Within the two percent that the aim gives for them."""
    found = pretended(101.0, 100.0, Demand())
    assert found.setting.thread_count == 2
    assert found.explanation.endswith(
        " As fast as boto3's default to within 2 %, with 2 connections instead of 10."
    )


def test_what_gains_nothing_and_saves_no_connections_is_not_advised() -> None:
    """The default needs no change of code; less memory alone, or half a percent, is no reason for one."""

    class Many(Pretends):
        """Has no use for fewer threads than the SDK."""

        def candidates(self, fit: Fit, context: Context, demand: Demand) -> list[S3UploadSetting]:
            return [x for x in super().candidates(fit, context, demand) if x.thread_count >= OWN.thread_count]

    for others, is_own in ((100.5, True), (101.5, True), (103.0, False)):
        found = recommended(Many(100.0, others), FIT, WORLD.context)
        assert (found.setting == OWN) == is_own


def test_frugality_falls_behind_the_default_and_says_why() -> None:
    """Four fifths of the best are its aim."""
    found = pretended(100.0, 85.0, Demand(objective=Objective.FRUGAL))
    assert found.setting.thread_count == 2
    assert found.explanation.endswith(
        " 0.85 times as fast as boto3's default, with 2 connections instead of 10: the objective allows that."
    )


def test_limits_that_exclude_the_default_are_named() -> None:
    """With four threads the application gets what four threads can do, and hears what that is."""
    found = advice(Demand(thread_count_max=4))
    assert found.gain_over_default is not None
    assert found.gain_over_default.high < 0.6
    assert found.explanation.endswith(
        "with 4 connections instead of 10: the limits that are set allow no more."
    )


def test_a_given_setting_is_compared_as_well() -> None:
    """The share of a lease has its gain, too."""
    told = assess(MODEL, FIT, WORLD.context, Demand(), a_setting(5), now=NOW, validity_seconds=600.0)
    assert told.gain_over_default is not None
    assert told.explanation.endswith("with 5 connections instead of 10.")


def test_where_physics_is_wrong_advice_stays_where_it_was_measured() -> None:
    """Off-model, a setting nobody measured is not advised on the word of the law."""
    found = advice(fit=replace(FIT, is_off_model=True)).setting
    near = [
        o.setting
        for o in PROBES
        if abs(np.log2(o.setting.thread_count / found.thread_count)) <= 0.3
        and abs(np.log2(o.setting.part_size_bytes / found.part_size_bytes)) <= 0.3
    ]
    assert near


def test_a_few_probes_with_few_threads_are_no_reason_for_very_many() -> None:
    """A dip at the end of the ramp looks like a ceiling, or the other way about: more than four times is not dared."""
    slow = UploadWorld(connection_bytes_per_second=3e6, host_bytes_per_second=30e6)
    probes = [slow.observe(a_setting(n, 8), index) for index, n in enumerate((2, 5, 10, 20))]
    fit = evidence.attach(MODEL.fit(slow.place, probes, prior=None, seed=0), MODEL, probes)
    found = recommended(MODEL, fit, slow.context).setting
    assert found.thread_count <= 80


def test_what_is_not_dared_is_said_beside_what_it_would_bring() -> None:
    """Else twice the connections would promise half as much again, and nothing tell why they are not advised."""
    few = [WORLD.observe(a_setting(n), index) for index, n in enumerate((2, 5))]
    fit = evidence.attach(MODEL.fit(WORLD.place, few, prior=None, seed=1), MODEL, few)
    held, limited = advice(fit=fit), advice(Demand(thread_count_max=10), fit=fit)
    assert held.setting.thread_count == limited.setting.thread_count == 10
    why = "More than 10 threads are not advised before probes have tried more."
    assert why in held.explanation
    assert why not in limited.explanation
    assert "are not advised before" not in advice().explanation
    assert (held.obstacle, limited.obstacle, advice().obstacle) == (Obstacle.UNTRIED, Obstacle.THREADS, None)
    held_bytes = limited.derived["memory_bytes"]
    assert advice(Demand(memory_bytes_max=int(held_bytes))).obstacle is Obstacle.MEMORY


def test_what_limits_is_found_out_once_for_an_answer() -> None:
    """A question on the socket waits for it: three times the same took a tenth of an answer."""
    with mock.patch.object(answers, "bottleneck", wraps=answers.bottleneck) as asked:
        assert advice().bottleneck == "host-ceiling"
    assert asked.call_count == 1


@pytest.mark.parametrize("demand", [Demand(), Demand(objective=Objective.FRUGAL), Demand(thread_count_max=6)])
def test_the_first_alternative_is_the_advice(demand: Demand) -> None:
    """Then comes what it was chosen from: good ones by their price, within the same limits."""
    advised = advice(demand).setting
    settings, appraisal = alternatives(MODEL, FIT, WORLD.context, demand, advised=advised, count_max=8)
    assert settings[0] == advised
    assert len(set(settings)) == len(settings) == len(appraisal.value) == 8
    assert max(s.thread_count for s in settings) <= (demand.thread_count_max or 1024)
    assert list(appraisal.value) == pytest.approx(
        list(MODEL.appraise(FIT, WORLD.context, settings, demand).value)
    )
    share = 0.8 if demand.objective is Objective.FRUGAL else 0.98
    assert min(appraisal.value[:2]) >= 0.99 * share * max(appraisal.value)


@pytest.mark.parametrize(
    ("limit", "rate", "said", "named"),
    [
        ("demand", 50.0, "; this carries the rate that was asked for.", "demand"),
        ("demand", 100.9, "; this carries the rate that was asked for to within 2 %.", "demand"),
        ("demand", 120.0, "; this falls short of the 120 B/s that were asked for.", "unsure"),
        ("memory", 50.0, "; memory is the limit.", "memory"),
        (
            "memory",
            120.0,
            "; memory is the limit, and this falls short of the 120 B/s that were asked for.",
            "memory",
        ),
    ],
)
def test_what_is_said_of_a_demand_is_what_is_expected(limit: str, rate: float, said: str, named: str) -> None:
    """The words and the name go by the expectation, not by the model's mode; whoever asked for more is told."""

    class Carries(S3UploadModel):
        """Expects a hundred, and says what the limit is."""

        def predict(self, *_: object) -> dict[str, Estimate]:
            return {self.value_metric: Estimate(90.0, 100.0, 110.0)}

        def bottleneck(self, *_: object) -> str:
            return limit

    demand = Demand(message_rate_per_second=rate)
    found = recommended(Carries(), FIT, WORLD.context, demand)
    assert f"{said} " in found.explanation
    assert found.bottleneck == named
