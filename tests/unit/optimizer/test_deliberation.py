"""Rules of deliberation: history in, fit and proposal out, always the same, safe and affordable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.models.s3_upload import S3UploadModel, S3UploadSetting
from penstock.optimizer import surrogate
from penstock.optimizer.deliberation import Conclusion, Question, deliberate
from penstock.optimizer.proposal import knowledge_gradient
from penstock.optimizer.recommendation import recommend
from penstock.units import GiB
from penstock.vocabulary import Cost, Demand, Observation, Reason
from tests.unit.models.upload_world import FIRST_AT, UploadWorld, a_setting, history

MODEL, WORLD = S3UploadModel(), UploadWorld()
AMPLE = Cost(
    transferred_bytes=10**13, request_count=10**7, usd=100.0, credit_bytes=10**13, duration_seconds=3600.0
)
Probes = list[Observation[S3UploadSetting]]


def concluded(probes: Probes, *, cost_max: Cost = AMPLE, asks: bool = True, seed: int = 5, **rest: object) -> (
    Conclusion[S3UploadSetting]
):  # fmt: skip
    """The conclusion about the world."""
    question = Question(
        place=WORLD.place,
        observations=tuple(probes),
        prior=None,
        next_context=WORLD.context if asks else None,
        cost_max=cost_max,
        demand=Demand(),
        seed=seed,
    )
    return deliberate(MODEL, replace(question, **rest))  # type: ignore[arg-type]


def tuned(world: UploadWorld, count: int) -> tuple[Probes, float]:
    """Probes that were proposed one after another, and the share of the best that the advice reaches."""
    probes: Probes = []
    for index in range(count):
        plan = concluded(probes).plan
        assert plan is not None
        probes.append(world.observe(plan.setting, index))
    fit = concluded(probes, asks=False).fit
    advised = recommend(
        MODEL, fit, world.context, Demand(), previous=None, now=FIRST_AT, validity_seconds=60.0
    ).setting
    best = max(world.truth(a_setting(n, p)) for n in range(4, 256, 4) for p in (5, 8, 12, 16, 24, 32))
    return probes, world.truth(advised) / best


def test_six_cold_probes_come_near_the_best() -> None:
    """A cold place is advised to within five percent after six probes."""
    assert tuned(WORLD, 6)[1] >= 0.95


def test_cold_start_is_gentle() -> None:
    """Four threads first, and never more than four times what was tried before."""
    probes, _ = tuned(WORLD, 5)
    threads = [o.setting.thread_count for o in probes]
    assert threads[0] == 4
    assert all(after <= 4 * max(threads[: i + 1]) for i, after in enumerate(threads[1:]))


def test_first_probe_of_a_cold_place_is_the_ramp() -> None:
    """And it says so."""
    plan = concluded([]).plan
    assert plan is not None
    assert plan.reason is Reason.RAMP


def test_same_question_same_answer() -> None:
    """Nothing hidden: history and seed decide."""
    probes = history(WORLD, 6)
    assert concluded(probes) == concluded(probes)


def test_nothing_asked_nothing_proposed() -> None:
    """A question without a context is for the fit alone."""
    assert concluded(history(WORLD, 3), asks=False).plan is None


def test_nothing_affordable_nothing_proposed() -> None:
    """Without money there is no plan, whatever would be worth knowing."""
    assert concluded(history(WORLD, 6), cost_max=replace(AMPLE, transferred_bytes=1000)).plan is None


def test_every_plan_is_within_its_bounds() -> None:
    """What a probe may cost is never more than what was allowed."""
    bound = Cost(transferred_bytes=GiB, request_count=400, usd=0.01, credit_bytes=0, duration_seconds=5.0)
    plan = concluded(history(WORLD, 5), cost_max=bound).plan
    assert plan is not None
    assert plan.cost_max.transferred_bytes <= GiB
    assert plan.cost_max.request_count <= 400
    assert plan.cost_max.duration_seconds <= 5.0


def test_suspicion_of_change_sends_a_probe_to_the_incumbent() -> None:
    """When two probes fell short, the next one looks where the advice stands."""
    probes = history(WORLD, 14)
    slow = replace(WORLD, host_bytes_per_second=330e6)
    probes += [slow.observe(a_setting(n), 14 + i) for i, n in enumerate((90, 64))]
    conclusion = concluded(probes)
    assert conclusion.plan is not None
    assert conclusion.fit.drift_count == 1 or conclusion.plan.reason is Reason.VERIFY


def test_off_model_places_get_a_second_opinion() -> None:
    """Where the physics is wrong, draws come from the Gaussian process alone, and they follow the measurements."""
    probes = history(WORLD, 8)
    fit = replace(concluded(probes, asks=False).fit, is_off_model=True)
    settings = [o.setting for o in probes]
    drawn = surrogate.draws(MODEL, fit, probes, settings, context=WORLD.context, demand=Demand(), seed=2)
    measured = np.log([MODEL.measured_value(o) for o in probes])
    assert drawn.mean(axis=0) == pytest.approx(measured, abs=0.35)


def test_surrogate_starts_from_the_model() -> None:
    """With too little to learn from, the draws spread around what the model expects."""
    fit = concluded(history(WORLD, 2), asks=False).fit
    settings = [a_setting(8), a_setting(64)]
    drawn = surrogate.draws(MODEL, fit, [], settings, context=WORLD.context, demand=Demand(), seed=2)
    expected = np.log(MODEL.appraise(fit, WORLD.context, settings, Demand()).value)
    assert drawn.mean(axis=0) == pytest.approx(expected, abs=0.3)
    assert drawn.std(axis=0).min() > 0.05


def test_knowledge_gradient_wants_what_could_change_the_advice() -> None:
    """A setting whose value is certain teaches nothing; one that may be the best teaches most."""
    rng = np.random.default_rng(0)
    draws = np.zeros((48, 3))
    draws[:, 1] = 0.5 * rng.standard_normal(48)
    draws[:, 2] = -3.0 + 0.5 * rng.standard_normal(48)
    gains = knowledge_gradient(draws, [0, 1, 2], 0.05)
    assert gains[1] > 10 * gains[2] > 10 * gains[0]


def test_warm_start_dares_what_the_neighbour_bears() -> None:
    """With a neighbour the first probe is no ramp, and hardly more than the advice that the neighbour leads to."""
    teacher = concluded(history(WORLD, 12), asks=False).fit
    plan = concluded([], prior=teacher).plan
    advised = recommend(
        MODEL, teacher, WORLD.context, Demand(), previous=None, now=FIRST_AT, validity_seconds=60.0
    ).setting
    assert plan is not None
    assert plan.reason is not Reason.RAMP
    assert plan.setting.thread_count <= 2 * advised.thread_count
