"""Every row of the table of operations keeps the protocols: a new operation needs no line of its own here."""

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.vocabulary
from penstock.lab import worlds
from penstock.models.model import SURPRISE_AFTER, Fit
from penstock.models.s3.directions import passes_host
from penstock.operations.operation import Operation
from penstock.operations.table import OPERATIONS
from penstock.optimizer.comparison import gain
from penstock.optimizer.deliberation import Case, deliberate
from penstock.optimizer.objective import required_share
from penstock.optimizer.recommendation import recommend
from penstock.vocabulary import (
    Basis,
    Context,
    Cost,
    Demand,
    Inconclusive,
    Objective,
    Observation,
    Place,
    knobs,
)
from tests.factories import recommended
from tests.inline_thinker import DiceThinker
from tests.scenario import START_AT, Scenario, Week, play

NAMES = sorted(OPERATIONS)
NOW = datetime(2026, 3, 1, tzinfo=UTC)
AMPLE = Cost(
    transferred_bytes=2**40, request_count=10**6, usd=100.0, credit_bytes=2**40, duration_seconds=3600.0
)
WORLD = worlds.NEAR
pytestmark = pytest.mark.timeout(1800)  # hours of the daemon's life, on a machine that may be busy


def context_of(row: Operation[Any, Any], size: int | None = None) -> Context:
    """A place in the lab."""
    place = Place(operation=row.model.operation, region="lab-1", instance_type="lab")
    return Context(place=place, payload_size_bytes=size or row.payload_ladder_bytes[0])


def a_setting(row: Operation[Any, Any], fractions: list[float]) -> Any:
    """A setting somewhere between the bounds of its knobs, legal or not."""
    values = {}
    types = {field.name: field.type for field in dataclasses.fields(row.setting_type)}
    for fraction, (name, knob) in zip(fractions, knobs(row.setting_type).items(), strict=False):
        if knob.low > 0:
            value = knob.low * (knob.high / knob.low) ** fraction
        else:
            value = knob.low + (knob.high - knob.low) * fraction
        values[name] = int(value) if types[name] in (int, "int") else value
    return row.setting_type(**values)


_fractions = st.lists(st.floats(0, 1), min_size=12, max_size=12)
_ladder_steps = st.integers(0, 100)


@pytest.fixture(scope="module")
def week() -> Week:
    """Five hours of a daemon in the lab, with every operation of the table, at settings that chance chose.

    Learning from each probe which to make next took two thirds of it, and shows no more of what models keep.
    """
    link, inbound, queue = WORLD.link, WORLD.inbound, WORLD.queue
    return play(Scenario(link=link, inbound=inbound, queue=queue, days=0.22, seed=12, thinker=DiceThinker))


def observations_of(row: Operation[Any, Any], week: Week) -> tuple[Observation[Any], ...]:
    return tuple(o for o in week.observations if o.context.operation == row.model.operation)


@pytest.fixture(scope="module")
def fits(week: Week) -> Mapping[str, Fit]:
    """What each operation's model makes of them."""
    observations = {name: observations_of(row, week) for name, row in OPERATIONS.items()}
    return {
        name: OPERATIONS[name].model.fit(seen[0].context.place, seen, prior=None, seed=1)
        for name, seen in observations.items()
    }


def test_the_table_is_keyed_by_the_models_own_names() -> None:
    """An operation has one spelling."""
    assert {name: row.model.operation for name, row in OPERATIONS.items()} == {n: n for n in OPERATIONS}


def test_a_service_has_the_same_file_name_in_models_and_probes() -> None:
    """The same file name in both rooms, in the folder of the service, is what an operation is."""
    package = Path(penstock.vocabulary.__file__).parent
    for name in NAMES:
        file = Path(name.replace("_", "/", 1) + ".py")
        assert (package / "models" / file).exists()
        assert (package / "probes" / file).exists()


@given(fractions=_fractions, step=_ladder_steps)
@pytest.mark.parametrize("operation", NAMES)
def test_legal_settings_stay_as_they_are(operation: str, fractions: list[float], step: int) -> None:
    """`legal` is idempotent and stays within the knobs, whatever it is given."""
    row = OPERATIONS[operation]
    ladder = row.payload_ladder_bytes
    context = context_of(row, ladder[step % len(ladder)])
    legal = row.model.legal(context, a_setting(row, fractions))

    assert row.model.legal(context, legal) == legal
    for name, knob in knobs(row.setting_type).items():
        assert knob.low <= getattr(legal, name) <= knob.high


def test_a_clear_surprise_is_noticed_and_what_was_measured_is_kept(
    row: Operation[Any, Any], week: Week
) -> None:
    """A measurement at a twentieth of the one before raises a suspicion at once."""
    seen = observations_of(row, week)
    assert len(seen) > SURPRISE_AFTER
    slow = dataclasses.replace(
        seen[-1],
        duration_seconds=_SLOWER * seen[-1].duration_seconds,
        measures={name: _slowed(name, value) for name, value in seen[-1].measures.items()},
    )
    calm, alarmed = (
        deliberate(
            row.model,
            Case(
                place=slow.context.place,
                observations=observations,
                next_context=slow.context,
                cost_max=AMPLE,
                seed=1,
            ),
        )
        for observations in (seen, (*seen[:-1], slow))
    )
    assert not calm.fit.suspicion.is_surprised
    assert alarmed.fit.suspicion.is_surprised
    assert alarmed.fit.suspicion.value_ratio < 0.5
    assert sum(cell.count for cell in alarmed.fit.cells) == len(seen)


_SLOWER = 20.0


def _slowed(name: str, value: float) -> float:
    if name.endswith("_per_second"):
        return value / _SLOWER
    return _SLOWER * value if "_seconds" in name else value


def test_defaults_and_ramps_are_legal(row: Operation[Any, Any]) -> None:
    """What is tried and advised without knowledge must be accepted by the service."""
    for size in row.payload_ladder_bytes:
        context = context_of(row, size)
        for setting in (row.model.default_setting(context), *row.model.ramp(context)):
            assert row.model.legal(context, setting) == setting


def test_a_fit_without_observations_is_the_prior(row: Operation[Any, Any]) -> None:
    """The model answers before anything was measured, and says that nothing was."""
    context = context_of(row)
    fit = row.model.fit(context.place, (), prior=None, seed=1)
    prediction = row.model.predict(fit, context, row.model.default_setting(context), Demand())

    assert fit.observation_count == 0
    assert prediction[row.model.value_metric].expected > 0


def test_intervals_are_ordered_and_positive(row: Operation[Any, Any], fits: Mapping[str, Fit]) -> None:
    """In every estimate low <= expected <= high, all finite, none below zero."""
    fit = fits[row.name]
    for size in row.payload_ladder_bytes:
        context = context_of(row, size)
        for setting in list(row.model.candidates(fit, context, Demand()))[::7]:
            for estimate in row.model.predict(fit, context, setting, Demand()).values():
                assert 0 <= estimate.low <= estimate.expected <= estimate.high
                assert math.isfinite(estimate.high)


def test_a_fit_survives_json(row: Operation[Any, Any], fits: Mapping[str, Fit]) -> None:
    """A restarted daemon predicts from the stored document exactly what it predicted before."""
    fit = fits[row.name]
    context = context_of(row, row.payload_ladder_bytes[-1])
    settings = list(row.model.candidates(fit, context, Demand()))
    restored = msgspec.json.decode(json.dumps(json.loads(msgspec.json.encode(fit))), type=Fit)

    before = row.model.appraise(fit, context, settings, Demand())
    after = row.model.appraise(restored, context, settings, Demand())
    for field in dataclasses.fields(before):
        np.testing.assert_array_equal(getattr(before, field.name), getattr(after, field.name))
    assert row.model.predict(fit, context, settings[0], Demand()) == row.model.predict(
        restored, context, settings[0], Demand()
    )


def test_candidates_keep_the_demands_limits(row: Operation[Any, Any], fits: Mapping[str, Fit]) -> None:
    """A hard limit is hard: no candidate needs more threads than are allowed."""
    fit, context = fits[row.name], context_of(row)
    for limit in (6, 12, 24):
        demand = Demand(thread_count_max=limit)
        candidates = row.model.candidates(fit, context, demand)
        assert candidates
        assert row.model.appraise(fit, context, candidates, demand).connection_count.max() <= limit


def test_the_same_question_has_the_same_answer(row: Operation[Any, Any], week: Week) -> None:
    """History in, proposal out: nothing else plays a part."""
    observations = observations_of(row, week)
    context = observations[-1].context
    case = Case(
        place=context.place,
        observations=observations[:8],
        next_context=context,
        cost_max=AMPLE,
        demand=Demand(thread_count_max=64),
        seed=5,
    )
    first, second = deliberate(row.model, case), deliberate(row.model, case)

    assert first.plan == second.plan
    assert first.fit == second.fit


@pytest.mark.parametrize("share", [1.0, 0.3, 0.05])
def test_a_plan_costs_no_more_than_was_allowed(row: Operation[Any, Any], week: Week, share: float) -> None:
    """The proposal fits what can be afforded, or there is none."""
    observations = observations_of(row, week)
    allowed = Cost(
        transferred_bytes=int(share * 2**28),
        request_count=int(share * 2000),
        usd=share * 0.01,
        credit_bytes=2**40,
        duration_seconds=share * 20,
    )
    case = Case(
        place=observations[0].context.place,
        observations=observations,
        next_context=observations[0].context,
        cost_max=allowed,
        demand=Demand(thread_count_max=64),
        seed=5,
    )
    plan = deliberate(row.model, case).plan
    if plan is not None:
        for field in dataclasses.fields(Cost):
            assert getattr(plan.cost_max, field.name) <= getattr(allowed, field.name), field.name


def test_advice_without_a_fit_is_the_sdks_default(row: Operation[Any, Any]) -> None:
    """An application always gets an answer, and it says what it rests on."""
    context = context_of(row)
    advice = recommend(row.model, None, context, Demand(), previous=None, now=NOW, validity_seconds=3600.0)

    assert advice.basis is Basis.DEFAULT
    assert advice.setting == row.model.default_setting(context)
    assert advice.expires_at == NOW + timedelta(hours=1)


def test_advice_is_among_the_legal(row: Operation[Any, Any], fits: Mapping[str, Fit]) -> None:
    """What is advised can be used as it stands, at any size, and expires."""
    fit = fits[row.name]
    for size in (*row.payload_ladder_bytes, 12_345_678):
        context = context_of(row, size)
        advice = recommended(row.model, fit, context)
        assert row.model.legal(context, advice.setting) == advice.setting
        assert advice.expires_at > advice.issued_at
        assert advice.explanation
        json.dumps(dict(advice.derived))


def test_what_is_usual_is_the_middle_of_what_is_predicted(
    row: Operation[Any, Any], fits: Mapping[str, Fit]
) -> None:
    """Many settings are asked about at once, and a map of them says what the curves beside it say."""
    model, fit, context = row.model, fits[row.name], context_of(row)
    for demand in (Demand(), Demand(bandwidth_bytes_per_second_max=1e6, message_rate_per_second=1.0)):
        settings = model.candidates(fit, context, demand)[:7]
        usual = model.usual(fit, context, settings, demand)
        middles = [model.predict(fit, context, s, demand)[model.value_metric].expected for s in settings]
        assert list(usual) == pytest.approx(middles, rel=1e-9)


@pytest.mark.parametrize("objective", list(Objective))
def test_advice_says_what_it_is_worth_beside_the_default(
    row: Operation[Any, Any], fits: Mapping[str, Fit], objective: Objective
) -> None:
    """Never less than the aim allows: 2 % for most, a fifth for the frugal; and as the two predictions say.

    They say what is usual: where requests come late, what is gained on average is another thing.
    """
    model, fit, demand = row.model, fits[row.name], Demand(objective=objective)
    late = {"late_fraction": 0.0} if "late_fraction" in fit.state else {}
    punctual = dataclasses.replace(fit, state={**fit.state, **late})
    for size in row.payload_ladder_bytes:
        context = context_of(row, size)
        default = model.default_setting(context)
        advice = recommended(model, fit, context, demand)
        assert advice.gain_over_default is not None
        assert advice.gain_over_default.low <= advice.gain_over_default.expected
        assert advice.gain_over_default.expected <= advice.gain_over_default.high
        assert advice.gain_over_default.expected >= required_share(objective)
        if objective is not Objective.LATENCY:
            here, there = (
                model.predict(punctual, context, setting, demand)[model.value_metric].expected
                for setting in (advice.setting, default)
            )
            gained = gain(model, punctual, context, demand, setting=advice.setting, reference=default)
            assert gained.expected == pytest.approx(here / there, rel=1e-6)


PAGE = (Path(__file__).parents[2] / "docs/socket-protocol.md").read_text(encoding="utf-8")


def test_what_is_derived_and_predicted_stands_on_the_page(
    row: Operation[Any, Any], fits: Mapping[str, Fit]
) -> None:
    """A name that no page explains is of no use to anybody: of any setting, class, host and demand."""
    model, fit = row.model, fits[row.name]
    demands = (
        Demand(bandwidth_bytes_per_second_max=1e7, memory_bytes_max=2**30),
        Demand(message_rate_per_second=50.0, latency_objective_seconds=0.2, work_seconds=0.1),
    )
    names: set[str] = set()
    for seed, service_class in enumerate([*row.service_classes] * 20):
        chance = np.random.default_rng(seed)
        place = dataclasses.replace(fit.place, service_class=service_class, instance_type="c5.large")
        here = dataclasses.replace(fit, place=place)
        context = Context(place=place, payload_size_bytes=int(chance.choice(row.payload_ladder_bytes)))
        setting = model.legal(context, a_setting(row, list(chance.random(12))))
        for demand in demands:
            names |= set(model.derive(here, context, setting, demand))
            names |= set(model.predict(here, context, setting, demand))
    unnamed = sorted(name for name in names if f"`{name}`" not in PAGE)
    assert not unnamed, f"docs/socket-protocol.md says nothing of {', '.join(unnamed)}"


def test_probes_leave_nothing_behind(week: Week) -> None:
    """After days of probing no object, upload or queue is left."""
    assert week.observations
    assert week.leftover_names == ()


def test_probes_cost_what_they_say(week: Week) -> None:
    """The ledger's sum is what passed the host, also in vain, and no less than what arrived there."""
    here = [o for o in week.observations if passes_host(o.context.operation)]
    assert all(o.measures["attempted_bytes"] >= o.transferred_bytes for o in here)
    in_vain = [c.outcome for c in week.cycles if isinstance(c.outcome, Inconclusive)]
    moved = sum(o.measures["attempted_bytes"] for o in week.observations)
    moved += sum(o.transferred_bytes for o in in_vain)
    booked = sum(s.cost.transferred_bytes for s in week.spends)
    assert booked == moved


def test_observations_are_about_what_was_asked(row: Operation[Any, Any], week: Week) -> None:
    """The measured value is the one that the model predicts, positive and dated within the days."""
    observations = observations_of(row, week)
    assert len(observations) >= 5
    for observation in observations:
        assert observation.started_at >= START_AT
        assert row.model.measured_value(observation) > 0
        assert observation.request_count > 0
