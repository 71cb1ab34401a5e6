"""Which probe is next: rules of the choice, on a model that is a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from penstock.models.model import Appraisal, Belief, Cell, Suspicion
from penstock.optimizer.gradient import knowledge_gradient
from penstock.optimizer.proposal import (
    Quest,
    _ramp_step,
    _reachable,
    _should_verify,
    propose,
    unkept_memory_bytes,
)
from penstock.units import MiB
from penstock.vocabulary import Cost, Demand, Observation, Reason, Regime, knob
from tests.factories import CONTEXT, NOON, a_fit, an_observation

AMPLE = Cost(transferred_bytes=10**6, request_count=10**6, usd=1e6, credit_bytes=10**6, duration_seconds=60.0)


@dataclass(frozen=True, slots=True)
class Threads:
    """What is tuned."""

    thread_count: int = knob(1, 1024)


@dataclass
class Table:
    """A model that says of each number of threads what is believed: the logarithm's mean and deviation."""

    beliefs: dict[int, tuple[float, float]]
    prices: dict[int, int] | None = None  # in bytes, where a probe of all costs not the same
    refused: dict[int, float] | None = None
    setting_type = Threads

    def candidates(self, _fit: Any, _context: Any, demand: Demand) -> list[Threads]:
        self._regime = demand.regime
        return [Threads(n) for n in self.beliefs]

    def appraise(self, _fit: Any, _context: Any, settings: Sequence[Threads], _demand: Any) -> Appraisal:
        counts = np.array([s.thread_count for s in settings], dtype=np.float64)
        ones = np.ones(len(settings))
        return Appraisal(
            value=np.exp([self.beliefs.get(s.thread_count, (0.0, 0.0))[0] for s in settings]),
            latency_seconds=ones,
            connection_count=counts,
            memory_bytes=counts * MiB,
            request_rate_per_second=ones,
            refused_fraction=np.array([(self.refused or {}).get(s.thread_count, 0.0) for s in settings]),
        )

    def ramp(self, _context: Any) -> list[Threads]:
        return [Threads(4), Threads(8), Threads(16)]

    def legal(self, _context: Any, setting: Threads) -> Threads:
        return setting

    def measured_value(self, observation: Observation[Any]) -> float:
        return observation.throughput_bytes_per_second

    def probe_costs(self, _fit: Any, _context: Any, settings: Sequence[Threads], _tariff: Any) -> list[Cost]:
        prices = [(self.prices or {}).get(setting.thread_count, 100) for setting in settings]
        return [Cost(transferred_bytes=price, request_count=7, duration_seconds=90.0) for price in prices]

    def probe_seconds_min(self, _fit: Any, _context: Any, setting: Threads) -> float:
        return setting.thread_count / 10.0


class Preparing(Table):
    """One that needs something to be there."""

    def cost_ahead(self, _context: Any, _tariff: Any) -> Cost:
        return Cost(transferred_bytes=1000, request_count=5)


class Believing(Table):
    """One that says what it believes, of each number of threads by itself."""

    def belief(self, _fit: Any, _context: Any, settings: Sequence[Threads], _demand: Any) -> Belief:
        means, deviations = np.array([self.beliefs[s.thread_count] for s in settings]).T
        return Belief(draws=means[None], besides=np.diag(deviations**2))


def a_quest(model: Table, measured: Sequence[tuple[int, float]] = (), **changes: Any) -> Quest:
    """After these measurements, threads and throughput, the oldest first; -1 is one of nothing but refusals."""
    history = [
        an_observation(
            setting=Threads(count),
            transferred_bytes=int(1000 * max(value, 0.0)),
            duration_seconds=1.0,
            request_count=100,
            throttled_count=50 if value < 0 else 0,
        )
        for count, value in measured
    ]
    quest = Quest(
        model=model,  # type: ignore[arg-type]  # has what a proposal asks for
        fit=a_fit(residual_fraction_p50=0.05, suspicion=Suspicion()),
        history=history,
        context=CONTEXT,
        demand=Demand(),
        cost_max=AMPLE,
        seed=3,
    )
    return replace(quest, **changes)


SURE = dict.fromkeys((4, 8, 16, 32), (0.0, 0.01))


@pytest.mark.parametrize(
    ("measured", "step"),
    [
        ([], 4),
        ([(4, 100)], 8),
        ([(4, 100), (8, 50)], None),
        ([(4, 100), (8, 116)], 16),
        ([(4, 100), (8, 114)], None),
        ([(4, 100), (8, 90), (4, 80), (8, 120)], 16),
        ([(8, 100)], 4),
        ([(4, -1)], None),
        ([(4, 100), (8, -1)], None),
        ([(4, 100), (8, 200), (16, 400)], None),
    ],
)
def test_a_ramp_goes_on_as_long_as_it_pays(measured: list[tuple[int, float]], step: int | None) -> None:
    """Each step by the best that was seen of it and of the one before; refusals end it."""
    found = _ramp_step(a_quest(Table(SURE), measured))
    assert found == (None if step is None else Threads(step))


def test_who_knows_better_needs_no_ramp() -> None:
    """A neighbour's knowledge, or a posterior to draw from once something was measured; another size is no step."""
    assert _ramp_step(a_quest(Table(SURE), has_prior=True)) is None
    assert _ramp_step(a_quest(Believing(SURE))) == Threads(4)
    assert _ramp_step(a_quest(Believing(SURE), [(4, 100)])) is None
    quest = a_quest(Table(SURE), [(4, 100)])
    assert _ramp_step(replace(quest, context=replace(CONTEXT, payload_size_bytes=1))) is None


def test_what_a_neighbour_advises_is_tried_first() -> None:
    """Few threads cost less and tell something, too; but then no more than twice as many would be advised."""
    model = Believing({2: (0.0, 0.6), 16: (1.0, 0.5), 32: (0.2, 0.5)}, prices={2: 1, 16: 100, 32: 100})
    first = propose(a_quest(model, has_prior=True))
    assert first is not None
    assert (first.setting, first.reason) == (Threads(16), Reason.VERIFY)


@pytest.mark.parametrize(("most", "step"), [(5, 4), (4, 4), (3, 2), (1, 2)])
def test_a_ramp_keeps_the_limits(most: int, step: int) -> None:
    """Where none of its steps does, the gentlest setting there is."""
    model = Table({16: (0.0, 0.1), 2: (0.0, 0.1), 8: (0.0, 0.1)})
    assert _ramp_step(a_quest(model, demand=Demand(thread_count_max=most))) == Threads(step)


def test_memory_that_cannot_be_kept_is_told() -> None:
    """To the byte."""
    for most, told in ((None, None), (4 * MiB, None), (4 * MiB - 1, 4 * MiB)):
        quest = a_quest(Believing(SURE), demand=Demand(memory_bytes_max=most))
        assert unkept_memory_bytes(quest) == told
        assert (propose(quest) is None) is (told is not None)


@pytest.mark.parametrize(
    ("measured", "has_prior", "reachable"),
    [
        ([], False, [4, 8, 16]),
        ([(8, 100)], False, [4, 8, 16, 32]),
        ([(2, 100)], False, [4, 8]),
        ([(2, 100), (64, -1)], False, [4, 8]),
        ([(64, -1)], False, [4, 8, 16]),
        ([(1, 100)], False, [4]),
        ([(0.5, 100)], False, [4]),
        ([], True, [4, 8, 16, 32]),
    ],
)
def test_no_more_is_dared_than_four_times_what_went_well(
    measured: list[Any], has_prior: bool, reachable: list[int]
) -> None:
    """A neighbour's advice is dared as well; and where nothing may be dared, the least is."""
    model = Believing({4: (0.0, 0.1), 8: (0.1, 0.1), 16: (0.2, 0.1), 32: (5.0, 0.1), 64: (0.0, 0.1)})
    quest = a_quest(model, measured, has_prior=has_prior)
    counts = np.array([float(n) for n in model.beliefs])
    field: Any = type("Field", (), {"connections": counts, "incumbent": 3})
    assert counts[_reachable(quest, field)].tolist() == reachable


@pytest.mark.parametrize(
    ("refused", "reachable"),
    [
        ([(2, 40), (4, 76)], 8),
        ([(2, 40), (4, 76), (8, 80)], 8),
        ([(2, 40), (4, 76), (8, 90)], 16),
        ([(2, 40), (4, 45)], 4),
        ([(4, 76)], 4),
        ([(4, 90)], 8),
        ([(2, 0), (4, 0), (8, 0)], 4),
    ],
)
def test_what_is_refused_and_pays_all_the_same_dares_twice_as_much(
    refused: list[tuple[int, float]], reachable: int
) -> None:
    """Two threads that wait after each refusal reach less than one that is hardly refused, and four more again."""
    model = Believing(dict.fromkeys((1, 2, 4, 8, 16, 32), (0.0, 0.1)))
    history = [
        an_observation(
            setting=Threads(count),
            transferred_bytes=int(1000 * value),
            duration_seconds=1.0,
            request_count=100,
            throttled_count=0 if count == 1 else 10,
        )
        for count, value in [(1, 75.0), *refused]
    ]
    counts = np.array([float(n) for n in model.beliefs])
    field: Any = type("Field", (), {"connections": counts, "incumbent": 0})
    of_client, of_probes = (a_quest(model, history=history, asks_again=asks) for asks in (True, False))
    assert counts[_reachable(of_client, field)].max() == reachable
    assert counts[_reachable(of_probes, field)].max() == 4


def test_the_way_to_advice_that_is_out_of_reach_is_by_the_best_within_it() -> None:
    """That can be paid for, however much is out of reach."""
    beyond = dict.fromkeys(range(64, 128), (5.0, 0.1))
    model = Believing({2: (0.0, 0.1), 6: (0.2, 0.1), 8: (0.1, 0.1), **beyond})
    for price, count in ((100, 6), (10**7, 8)):
        model.prices = {6: price}
        plan = propose(a_quest(model, [(2, 100)]))
        assert plan is not None
        assert (plan.setting, plan.reason) == (Threads(count), Reason.RAMP)


def test_what_was_refused_on_the_way_to_the_advice_is_not_asked_for_again() -> None:
    """The next best is, until nothing within reach is left to climb to."""
    model = Believing({2: (0.0, 0.1), 6: (0.2, 0.1), 8: (0.3, 0.1), 64: (5.0, 0.1)})
    for refused, step in (([8], 6), ([8, 6], None)):
        plan = propose(a_quest(model, [(2, 100), *((count, -1) for count in refused)]))
        assert plan is not None
        assert (plan.setting if plan.reason is Reason.RAMP else None) == (step and Threads(step))


@pytest.mark.parametrize(
    ("counts", "suspicion", "is_due"),
    [
        ([], 9.0, False),
        ([16, 16], 9.0, False),
        ([4, 16], 9.0, True),
        ([16, 4], 9.0, True),
        ([16, 16, 4], 9.0, True),
        ([16, 4], 0.0, False),
        ([4] * 12, 0.0, True),
        ([4] * 11, 0.0, False),
        ([4] * 12 + [12], 0.0, False),  # within half an octave of 16
        ([4] * 12 + [11], 0.0, True),
        ([4] * 9 + [16, 4, 4], 0.0, False),
        ([4] * 9 + [12] + [4] * 2, 0.0, False),
        ([4] * 9 + [12] + [4] * 3, 0.0, True),
    ],
)
def test_the_advice_is_verified_when_in_doubt_and_now_and_then(
    counts: list[int], suspicion: float, is_due: bool
) -> None:
    """Twice while a change is suspected; else when nothing near was measured among the last."""
    quest = a_quest(Believing(SURE), [(count, 100) for count in counts])
    quest = replace(quest, fit=replace(quest.fit, suspicion=Suspicion(surprise=suspicion)))
    assert _should_verify(quest, Threads(16)) is is_due


@pytest.mark.parametrize(
    ("measured", "surprise", "value_ratio", "count"),
    [
        ([(16, 1), (32, 1.2)], 9.0, 1.2, 32),
        ([(16, 1), (32, 1.1)], 9.0, 1.1, 16),  # hardly better than the advice
        ([(16, 1), (32, 1.2)], 0.0, 1.2, 8),  # as expected
        ([(16, 1), (32, -1)], 9.0, 1.2, 16),  # refused
        ([(16, 1), (4, 1.2)], 9.0, 0.8, 16),  # worse than was expected of it
        ([(32, 1.2), (32, 1.2)], 9.0, 1.2, 16),  # it was looked at twice
        ([(16, 1), (64, 1.2)], 9.0, 1.2, 16),  # no longer allowed
    ],
)
def test_what_beat_the_advice_by_surprise_is_measured_again(
    measured: list[tuple[int, float]], surprise: float, value_ratio: float, count: int
) -> None:
    """The advice goes as it always did where it was a ceiling that was lifted."""
    best = float(np.log(1000.0))
    model = Believing({4: (best - 1.0, 0.01), 8: (best - 0.1, 0.4), 16: (best, 0.01), 32: (best, 0.01)})
    quest = a_quest(model, measured)
    suspicion = Suspicion(surprise=surprise, value_ratio=value_ratio)
    plan = propose(replace(quest, fit=replace(quest.fit, suspicion=suspicion)))
    assert plan is not None
    assert plan.setting == Threads(count)


def a_cell_of_32(value: float, hours: int, *, had_trouble: bool = False) -> Cell:
    """Two measurements with so many threads, the newest so long after noon; knobs are floats, as evidence has them."""
    return Cell(
        payload_size_bytes=CONTEXT.payload_size_bytes,
        setting={"thread_count": 32.0},
        count=2,
        value_median=value,
        had_trouble=had_trouble,
        newest_at=NOON + timedelta(hours=hours),
    )


@pytest.mark.parametrize(
    ("hours", "value", "had_trouble", "count"),
    [(-3, 2000.0, False, 32), (-1, 2000.0, False, 16), (-3, 1100.0, False, 16), (-3, 2000.0, True, 16)],
)
def test_what_surpasses_is_looked_at_where_the_place_did_best_before_it_changed(
    hours: int, value: float, had_trouble: bool, count: int
) -> None:
    """It may be that again: of what was measured since, or was hardly better, nothing is expected."""
    best = float(np.log(1000.0))
    model = Believing({4: (best - 1.0, 0.01), 16: (best, 0.01), 32: (best, 0.01)})
    quest = a_quest(model, [(8, 1), (16, 1.2)])
    cell = a_cell_of_32(value, hours, had_trouble=had_trouble)
    fit = a_fit(
        changed_at=NOON - timedelta(hours=2),
        suspicion=Suspicion(surprise=9.0, value_ratio=1.2),
        cells=(cell,),
    )
    plan = propose(replace(quest, fit=fit))
    assert plan is not None
    assert plan.setting == Threads(count)
    assert isinstance(plan.setting.thread_count, int), "no probe is made with half a thread"


@pytest.mark.parametrize(
    ("measured", "value", "is_looked_at"),
    [
        ([(4, 1), (16, 1), (4, 1), (16, 1), (4, 1), (16, 1)], 2000.0, True),
        ([(4, 1), (16, 1), (4, 1), (16, 1), (4, 1)], 2000.0, False),
        ([(32, 1), (16, 1), (4, 1), (16, 1), (4, 1), (16, 1)], 2000.0, False),
        ([(4, 1), (16, 1), (4, 1), (16, 1), (4, 1), (16, 1)], 1100.0, False),
    ],
    ids=["long enough", "too soon", "it was just there", "it was hardly better"],
)
def test_a_place_that_changed_is_measured_now_and_then_as_it_was_before(
    measured: list[tuple[int, float]], value: float, *, is_looked_at: bool
) -> None:
    """A ceiling that is lifted again shows nowhere else: below it few threads do as well as many."""
    best = float(np.log(1000.0))
    model = Believing({4: (best - 0.3, 0.3), 16: (best, 0.01), 32: (best, 0.01)})
    cell = a_cell_of_32(value, -3)
    quest = a_quest(model, measured)
    plan = propose(replace(quest, fit=a_fit(changed_at=NOON - timedelta(hours=2), cells=(cell,))))
    assert plan is not None
    assert (plan.setting == Threads(32)) is is_looked_at


MANY = [(n, 100.0) for n in (4, 8, 16, 32)]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 8),
        ({"prices": {8: 10**6}}, 16),  # as much as all that there is to spend
        ({"prices": {8: 10**6 + 1}}, 16),
        ({"prices": {8: 10**6}, "beliefs": SURE | {8: (0.0, 0.5), 16: (0.0, 0.35)}}, 8),
        # As the advice would weigh connections.
        ({"beliefs": SURE | {4: (0.3, 0.01), 8: (0.0, 0.45), 16: (0.0, 0.46)}}, 8),
        ({"refused": {8: 0.3}}, 16),
        ({"beliefs": {4: (0.0, 0.01), 8: (0.0, 0.4), 16: (0.0, 0.5), 32: (0.0, 0.01)}}, 16),
        ({"beliefs": {4: (0.0, 0.01), 8: (-9.0, 0.5), 16: (0.0, 0.4), 32: (0.0, 0.01)}}, 16),
    ],
)
def test_what_tells_most_for_its_price_is_measured(changes: dict[str, Any], count: int) -> None:
    """What may be the best and is not known; dear and refused probes have to tell more, and hopeless ones tell less."""
    table = {"beliefs": {4: (0.0, 0.01), 8: (0.0, 0.5), 16: (0.0, 0.48), 32: (0.0, 0.01)}} | changes
    plan = propose(a_quest(Believing(**table), MANY))
    assert plan is not None
    assert plan.setting == Threads(count)


@pytest.mark.parametrize("unknown", [1, 150, 400])
def test_what_may_be_the_best_is_found_among_many(unknown: int) -> None:
    """However many there are, wherever it is."""
    beliefs = dict.fromkeys(range(1, 401), (0.0, 0.01)) | {unknown: (0.0, 0.5)}
    plan = propose(a_quest(Believing(beliefs), [(200, 100.0)]))
    assert plan is not None
    assert plan.setting == Threads(unknown)


def test_what_was_just_measured_tells_less() -> None:
    """Of two of which as little is known, the other."""
    model = Believing({4: (0.0, 0.01), 8: (0.0, 0.5), 16: (0.0, 0.45), 32: (0.0, 0.01)})
    for measured, count in (([(8, 100.0)], 16), ([(8, 100.0)] + [(4, 100.0)] * 10, 8)):
        plan = propose(a_quest(model, measured))
        assert plan is not None
        assert plan.setting == Threads(count)


@pytest.mark.parametrize(
    ("changes", "is_planned"),
    [
        ({}, True),
        ({"cost_max": replace(AMPLE, transferred_bytes=100, request_count=7)}, True),
        ({"cost_max": replace(AMPLE, transferred_bytes=99)}, False),
        ({"cost_max": replace(AMPLE, request_count=6)}, False),
        ({"cost_max": replace(AMPLE, duration_seconds=0.4)}, True),  # four threads need as much
        ({"cost_max": replace(AMPLE, duration_seconds=0.39)}, False),
        ({"avoided": tuple(Threads(n) for n in SURE)}, False),
    ],
)
def test_a_plan_is_within_every_bound(changes: dict[str, Any], is_planned: bool) -> None:
    """A probe may be broken off, but not before it has measured; it carries its bounds and its seed."""
    quest = a_quest(Believing(SURE), MANY, **changes)
    plan = propose(quest)
    assert (plan is not None) is is_planned
    if plan is not None:
        seconds = quest.cost_max.duration_seconds
        assert plan.cost_max == Cost(
            transferred_bytes=100, request_count=7, duration_seconds=min(90.0, seconds)
        )
        assert (plan.seed, plan.context) == (quest.seed, quest.context)


class WithCredits(Believing):
    """What the burst serves costs credits, and what is sustained does not."""

    def probe_costs(self, fit: Any, context: Any, settings: Sequence[Threads], tariff: Any) -> list[Cost]:
        costs = super().probe_costs(fit, context, settings, tariff)
        if self._regime is Regime.SUSTAINED:
            return costs
        return [replace(cost, credit_bytes=2 * 10**6) for cost in costs]


def test_without_credits_what_the_host_sustains_is_learned() -> None:
    """Unless only the burst is asked for."""
    for regime, is_planned in ((Regime.AUTO, True), (Regime.SUSTAINED, True), (Regime.BURST, False)):
        plan = propose(a_quest(WithCredits(SURE), MANY, demand=Demand(regime=regime)))
        assert (plan is not None) is is_planned


@pytest.mark.parametrize(
    ("unknown", "reason"), [(16, Reason.VERIFY), (8, Reason.REFINE), (32, Reason.REFINE), (4, Reason.EXPLORE)]
)
def test_a_plan_says_what_it_is_for(unknown: int, reason: Reason) -> None:
    """Within an octave of the advice it refines, beyond that it explores."""
    beliefs = dict.fromkeys((4, 8, 32), (-0.4, 0.01)) | {16: (0.0, 0.01)}
    beliefs[unknown] = (beliefs[unknown][0], 0.8)
    plan = propose(a_quest(Believing(beliefs), MANY))
    assert plan is not None
    assert (plan.setting, plan.reason) == (Threads(unknown), reason)


def test_what_a_measurement_gains_is_relative_and_more_with_less_noise() -> None:
    """Twice of everything is no news; nor is what moves with nothing; and what moves together is learned together."""
    half = np.random.default_rng(2).standard_normal((300, 3))
    drawn = np.concatenate([half, -half]) * [0.01, 0.5, 0.5] + [0.0, -0.1, -8.0]
    drawn[:, 2] = 4.0 * (drawn[:, 1] + 0.1) - 8.0  # hopeless, and tells all of the second
    gains = gained(drawn, 0.2)
    assert gained(drawn + 3.0, 0.2) == pytest.approx(gains)
    assert gains[1] < gained(drawn, 0.05)[1]
    assert gains[2] > gains[1] > 10 * gains[0] > 0.0
    apart = np.concatenate([half, -half]) * [0.01, 0.5, 0.5] + [0.0, -0.1, -8.0]
    assert gained(apart, 0.2)[2] < 0.01 * gains[2]
    small = 0.05 * (drawn - [0.0, -0.1, -8.0]) / [0.01, 0.5, 2.0] * [0.0, 1.0, 1.0] + [0.0, 0.0, -8.0]
    _, first, second = gained(small, 0.01)
    # What is hopeless tells as much, and is of no interest by itself.
    assert first - second == pytest.approx(1e-3 * np.std(small[:, 1]), rel=0.01)


def gained(drawn: Any, sigma: float) -> Any:
    """By draws alone."""
    belief = Belief(draws=drawn, besides=np.zeros((drawn.shape[1], drawn.shape[1])))
    return knowledge_gradient(belief, sigma)


def test_what_is_known_together_counts_whether_it_is_drawn_or_stated() -> None:
    """A covariance that is stated is the same knowledge as draws that have it, and no draw is taken for chance."""
    covariance = np.array([[0.01, 0.04, 0.0], [0.04, 0.25, 0.0], [0.0, 0.0, 0.09]])
    half = np.random.default_rng(4).standard_normal((4000, 3)) @ np.linalg.cholesky(covariance).T
    drawn = np.concatenate([half, -half])
    stated = Belief(draws=np.zeros((1, 3)), besides=covariance)
    expected = gained(drawn, 0.1)
    assert knowledge_gradient(stated, 0.1) == pytest.approx(expected, rel=0.05)
    few = Belief(draws=drawn[:12], besides=np.zeros((3, 3)))
    assert few.covariance[2, 1] == 0.0
    assert stated.covariance == pytest.approx(covariance)


def test_what_has_to_be_there_first_is_paid_by_the_first_probe_alone() -> None:
    """Whatever is known of the place: another size was measured, or the daemon began anew."""
    quest = a_quest(Preparing({4: (0.0, 0.1)}), [(4, 1.0)])
    first, later = (propose(replace(quest, is_first=is_first)) for is_first in (True, False))
    assert first is not None
    assert later is not None
    assert first.cost_max == later.cost_max + Cost(transferred_bytes=1000, request_count=5)
