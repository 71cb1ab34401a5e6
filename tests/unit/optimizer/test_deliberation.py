"""Rules of deliberation: history in, fit and proposal out, always the same, safe and affordable."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from penstock.models.model import Belief, Suspicion
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.optimizer import surrogate
from penstock.optimizer.deliberation import Conclusion
from penstock.optimizer.gradient import knowledge_gradient
from penstock.optimizer.proposal import _share
from penstock.units import GiB, MiB, TiB
from penstock.vocabulary import Cost, Demand, Observation, Origin, Reason
from tests.factories import concluded as concluded_of
from tests.factories import recommended
from tests.unit.models.s3.upload_world import UploadWorld, a_place, a_setting, history

MODEL, WORLD = S3UploadModel(), UploadWorld()
AMPLE = Cost(
    transferred_bytes=10**13, request_count=10**7, usd=100.0, credit_bytes=10**13, duration_seconds=3600.0
)
Probes = list[Observation[S3UploadSetting]]


def concluded(probes: Probes, *, asks: bool = True, **case: Any) -> Conclusion[S3UploadSetting]:
    """The conclusion about the world."""
    usual = {"place": WORLD.place, "cost_max": AMPLE, "seed": 5}
    asked = {"next_context": WORLD.context} if asks else {}
    return concluded_of(observations=probes, **{**usual, **asked, **case})


def tuned(world: UploadWorld, count: int) -> tuple[Probes, float]:
    """Probes that were proposed one after another, and the share of the best that the advice reaches."""
    probes: Probes = []
    for index in range(count):
        plan = concluded(probes).plan
        assert plan is not None
        probes.append(world.observe(plan.setting, index))
    fit = concluded(probes, asks=False).fit
    advised = recommended(MODEL, fit, world.context).setting
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


def test_nothing_asked_nothing_proposed() -> None:
    """A case without a context is for the fit alone."""
    assert concluded(history(WORLD, 3), asks=False).plan is None


def test_credits_are_a_bound_like_any_other() -> None:
    """A host that bursts is probed within what is left of its bucket, and not at all where nothing goes slowly."""
    tiny = UploadWorld(place=a_place(instance_type="t3.nano"))
    for allowed, is_planned in ((10**12, True), (50 * MiB, True), (MiB, False)):
        plan = concluded(
            [tiny.observe(a_setting(n), i) for i, n in enumerate((4, 16, 32))],
            place=tiny.place,
            next_context=tiny.context,
            cost_max=replace(AMPLE, credit_bytes=allowed),
        ).plan
        assert (plan is not None) is is_planned
        assert plan is None or 0 < plan.cost_max.credit_bytes <= allowed


def test_reports_of_late_refusals_hold_long_transfers_back_and_no_others() -> None:
    """A store that refuses after gigabytes is met by no probe: applications tell, and short ones stay as they are."""
    probes = history(WORLD, 10)
    told = [
        replace(
            WORLD.observe(a_setting(48), 20 + i),
            transferred_bytes=30 * GiB,
            duration_seconds=30 * GiB / 180e6,
            request_count=5000,
            throttled_count=1000,
            origin=Origin.APPLICATION,
            reporter_uid=1000,
        )
        for i in range(2)
    ]
    before, after, one = (
        concluded(each, asks=False).fit for each in (probes, probes + told, probes + told[:1])
    )
    short, long = (replace(WORLD.context, payload_size_bytes=size) for size in (2 * GiB, 100 * GiB))
    (was, was_long), (now, now_long), (_, once) = (
        [recommended(MODEL, fit, context) for context in (short, long)] for fit in (before, after, one)
    )
    assert now.setting == was.setting
    assert once.setting == was_long.setting
    assert now_long.setting.thread_count < 0.5 * was_long.setting.thread_count
    assert now_long.derived["rate_limit_bytes_per_second"] == pytest.approx(180e6, rel=0.05)
    assert now_long.bottleneck == "request-rate"
    assert "the store began to refuse transfers after about " in now_long.explanation
    # A limit of bytes is enough, whatever its last digit.
    for mean in range(100, 120):
        lasting = replace(after, state={**after.state, "patience": [10 * GiB, 1e6 * mean]})
        derived = recommended(MODEL, lasting, long).derived
        assert derived["rate_limit_bytes_per_second"] == 1e6 * mean
        assert "request_rate_limit_per_second" not in derived


def test_one_measurement_far_off_sends_a_probe_to_the_incumbent() -> None:
    """It may be a stray: nothing is learned anew yet, but the next probe looks where the advice stands."""
    probes = history(WORLD, 14)
    calm = concluded(probes)
    slow = concluded([*probes, WORLD.observe(a_setting(16), 14, factor=0.25)])
    assert calm.plan is not None
    assert slow.plan is not None
    assert not calm.fit.suspicion.is_raised
    assert slow.fit.drift_count == 0
    assert slow.fit.suspicion.value_ratio == pytest.approx(0.25, rel=0.2)
    assert slow.plan.reason is Reason.VERIFY


def test_a_suspicion_is_followed_elsewhere_once_two_probes_looked_near_the_advice() -> None:
    """Also where the advice has moved a little since: what has changed is told by other settings."""
    probes = history(WORLD, 14)
    fit = concluded(probes, asks=False).fit
    suspected = replace(fit, suspicion=Suspicion(level=0.9))
    first = concluded(probes, fit=suspected).plan
    assert first is not None
    assert first.reason is Reason.VERIFY
    near = replace(first.setting, thread_count=first.setting.thread_count + 1)
    probes += [WORLD.observe(near, 14 + i) for i in range(2)]
    after = concluded(probes, fit=suspected).plan
    assert after is not None
    assert after.setting != first.setting


def test_off_model_places_get_a_second_opinion() -> None:
    """Where the physics is wrong, belief comes from the Gaussian process alone, and follows the measurements."""
    probes = history(WORLD, 8)
    fit = replace(concluded(probes, asks=False).fit, is_off_model=True)
    settings = [o.setting for o in probes]
    belief = surrogate.belief(MODEL, fit, probes, settings, context=WORLD.context, demand=Demand(), seed=2)
    measured = np.log([MODEL.measured_value(o) for o in probes])
    assert belief.mean == pytest.approx(measured, abs=0.35)


def test_surrogate_starts_from_the_model() -> None:
    """With too little to learn from, belief spreads around what the model expects."""
    fit = concluded(history(WORLD, 2), asks=False).fit
    settings = [a_setting(8), a_setting(64)]
    belief = surrogate.belief(MODEL, fit, [], settings, context=WORLD.context, demand=Demand(), seed=2)
    expected = np.log(MODEL.appraise(fit, WORLD.context, settings, Demand()).value)
    assert belief.mean == pytest.approx(expected)
    assert belief.variance.min() > 0.05**2


@pytest.mark.parametrize(
    ("ahead", "sigma", "repeats"), [(0.0, 0.05, 1), (0.0, 0.3, 1), (-0.3, 0.6, 3), (-0.2, 0.6, 10)]
)
def test_knowledge_gradient_is_that_of_a_lognormal_belief(ahead: float, sigma: float, repeats: int) -> None:
    """One value is certain, the other is worth an option on it: where one measurement changes nothing, one of a few.

    Black and Scholes: ahead by so much of the logarithm, and moved by so much.
    """
    spread = 0.5 if ahead == 0 else -ahead
    belief = NormalDist(mu=ahead - 0.5 * spread**2, sigma=spread)
    drawn = np.zeros((4000, 2))
    drawn[:, 1] = [belief.inv_cdf((i + 0.5) / 4000) for i in range(4000)]
    moves = spread**2 / np.hypot(spread, sigma / np.sqrt(repeats))
    of_one, of_other = (NormalDist().cdf(ahead / moves + sign * moves / 2) for sign in (1, -1))
    expected = (np.exp(ahead) * of_one - of_other) / repeats + 1e-3 * spread * np.exp(ahead)
    gains = knowledge_gradient(Belief(draws=drawn, besides=np.zeros((2, 2))), sigma)
    assert gains[0] == pytest.approx(0.0, abs=1e-9)
    assert gains[1] == pytest.approx(expected, rel=0.15)


def test_the_price_of_a_probe_is_its_mean_share_of_the_bounds() -> None:
    """What has no bound takes no part; and nothing is free."""
    cost_max = Cost(transferred_bytes=100, request_count=10, usd=0.5)
    cost = Cost(transferred_bytes=50, request_count=1, usd=0.45, duration_seconds=7.0)
    free = _share(Cost(), cost_max)
    assert free > 0.0
    assert _share(cost, cost_max) - free == pytest.approx((0.5 + 0.1 + 0.9) / 3)
    assert _share(cost, Cost()) == free


def test_warm_start_dares_what_the_neighbour_bears() -> None:
    """With a neighbour the first probe is no ramp, and hardly more than the advice that the neighbour leads to."""
    teacher = concluded(history(WORLD, 12), asks=False).fit
    plan = concluded([], prior=teacher).plan
    advised = recommended(MODEL, teacher, WORLD.context).setting
    assert plan is not None
    assert plan.reason is not Reason.RAMP
    assert plan.setting.thread_count <= 2 * advised.thread_count


def test_advice_that_nobody_looked_at_for_a_while_is_verified_however_long_the_history() -> None:
    """A history that is full has always the same length: what counts is what was measured last."""
    probes = history(WORLD, 14)
    far = [WORLD.observe(a_setting(4, 5), 14 + i) for i in range(10)]
    reasons = []
    for count in range(6, 11):
        plan = concluded([*probes, *far[:count]]).plan
        assert plan is not None
        reasons.append(plan.reason)
        seen = WORLD.observe(plan.setting, 14 + count)
        after = concluded([*probes, *far[:count], seen]).plan
        assert after is not None
        assert after.setting != plan.setting, "not twice in a row"
    assert reasons == [Reason.VERIFY] * 5


def test_nothing_as_large_as_what_could_not_be_measured_is_proposed() -> None:
    """A request that did not end in time tells of those that are nearly as large, with as many beside them."""
    probes = history(WORLD, 9)
    proposed = concluded(probes).plan
    assert proposed is not None
    slow = replace(proposed.setting, part_size_bytes=max(5 * MiB, 4 * proposed.setting.part_size_bytes // 5))
    plan = concluded(probes, avoided=(slow,)).plan
    assert plan is not None
    is_fewer = 2 * plan.setting.thread_count <= slow.thread_count
    assert is_fewer or 2 * plan.setting.part_size_bytes <= slow.part_size_bytes


def test_what_is_to_be_avoided_is_not_proposed() -> None:
    """Neither as the most telling probe nor to verify."""
    probes, avoided = history(WORLD, 9), list[S3UploadSetting]()
    for _ in range(3):
        plan = concluded(probes, avoided=tuple(avoided)).plan
        assert plan is not None
        assert plan.setting not in avoided
        avoided.append(plan.setting)


@pytest.mark.parametrize(
    "demand", [Demand(thread_count_max=1), Demand(memory_bytes_max=8 * MiB), Demand(thread_count_max=7)]
)
def test_the_first_probe_keeps_the_limits(demand: Demand) -> None:
    """What the operator allows is less than what the ramp begins with."""
    plan = concluded([], demand=demand).plan
    assert plan is not None
    assert plan.setting.thread_count <= (demand.thread_count_max or 4)
    memory_bytes = plan.setting.thread_count * plan.setting.part_size_bytes
    assert memory_bytes <= (demand.memory_bytes_max or memory_bytes)


@pytest.mark.parametrize("count", [0, 6])
def test_nothing_is_tried_where_no_setting_keeps_the_memory(count: int) -> None:
    """Parts of 1 TiB are 105 MiB at least: the conclusion says how much, and is silent where that is allowed."""
    context, least = replace(WORLD.context, payload_size_bytes=TiB), ceil(TiB / 10_000)
    for allowed, is_kept in ((64 * MiB, False), (least - 1, False), (least, True)):
        demand = Demand(memory_bytes_max=allowed)
        conclusion = concluded(history(WORLD, count), next_context=context, demand=demand)
        assert (conclusion.plan is not None) is is_kept
        assert conclusion.memory_bytes_min == (None if is_kept else least)


@pytest.mark.parametrize("size", [5 * MiB, 6 * MiB, 20 * MiB, 64 * GiB])
def test_no_probe_holds_more_than_is_allowed(size: int) -> None:
    """From the first to the last, whatever is worth knowing."""
    world, demand = replace(WORLD, size=size), Demand(memory_bytes_max=20 * MiB)
    probes: Probes = []
    for index in range(6):
        plan = concluded(probes, next_context=world.context, demand=demand).plan
        assert plan is not None
        assert plan.setting.memory_bytes(size) <= 20 * MiB
        probes.append(world.observe(plan.setting, index))


def test_threads_that_had_no_part_to_send_prove_nothing() -> None:
    """Of 256 threads on four parts only four were busy: a large object dares four times as many, not more."""
    small = replace(WORLD, size=32 * MiB)
    probes = [small.observe(a_setting(256), i) for i in range(3)]
    plan = concluded(probes, next_context=replace(WORLD.context, payload_size_bytes=100 * GiB)).plan
    assert plan is not None
    assert plan.setting.thread_count <= 16


@pytest.mark.long
@pytest.mark.parametrize(
    ("now", "needed_max"),
    [
        (replace(WORLD, connection_bytes_per_second=WORLD.connection_bytes_per_second / 4), 256),
        (replace(WORLD, host_bytes_per_second=WORLD.host_bytes_per_second / 3), 32),
    ],
    ids=["slower connections", "lower ceiling"],
)
def test_after_a_change_four_probes_lead_to_the_new_best(now: UploadWorld, needed_max: int) -> None:
    """And on the way the advice never takes more than a step to the wrong side."""
    probes, standing, threads = history(WORLD, 16), None, list[int]()
    for count in range(5):  # the last advice has seen four
        conclusion = concluded(probes)
        standing = recommended(MODEL, conclusion.fit, WORLD.context, previous=standing)
        threads.append(standing.setting.thread_count)
        assert conclusion.plan is not None
        probes.append(now.observe(conclusion.plan.setting, 16 + count))
    best = max(now.truth(a_setting(n)) for n in range(8, 300, 8))
    assert now.truth(standing.setting if standing else a_setting(1)) > 0.95 * best
    is_more_wanted = needed_max > threads[0]
    assert all(n >= threads[0] / 2 if is_more_wanted else n <= 2 * threads[0] for n in threads)
