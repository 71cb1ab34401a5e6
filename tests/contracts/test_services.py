"""Every row of the table of services keeps the protocols: a new operation needs no line of its own here."""

import dataclasses
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.vocabulary
from penstock.daemon.services import SERVICES, Service
from penstock.lab import worlds
from penstock.models.model import Fit
from penstock.optimizer.deliberation import Question, deliberate
from penstock.optimizer.recommendation import recommend
from penstock.trial.scenario import START_AT, Scenario, Week, play
from penstock.vocabulary import Basis, Context, Cost, Demand, Inconclusive, Observation, Place, Scale, knobs

OPERATIONS = sorted(SERVICES)
NOW = datetime(2026, 3, 1, tzinfo=UTC)
AMPLE = Cost(
    transferred_bytes=2**40, request_count=10**6, usd=100.0, credit_bytes=2**40, duration_seconds=3600.0
)
WORLD = worlds.NEAR


@pytest.fixture(params=OPERATIONS)
def service(request: pytest.FixtureRequest) -> Service[Any]:
    """One row."""
    return SERVICES[request.param]


def context_of(service: Service[Any], size: int | None = None) -> Context:
    """A place in the lab."""
    place = Place(operation=service.model.operation, region="lab-1", instance_type="lab")
    return Context(place=place, payload_size_bytes=size or service.payload_ladder_bytes[0])


def a_setting(service: Service[Any], fractions: list[float]) -> Any:
    """A setting somewhere between the bounds of its knobs, legal or not."""
    values = {}
    types = {field.name: field.type for field in dataclasses.fields(service.setting_type)}
    for fraction, (name, knob) in zip(fractions, knobs(service.setting_type).items(), strict=False):
        if knob.scale is Scale.LOG and knob.low > 0:
            value = knob.low * (knob.high / knob.low) ** fraction
        else:
            value = knob.low + (knob.high - knob.low) * fraction
        values[name] = int(value) if types[name] in (int, "int") else value
    return service.setting_type(**values)


_fractions = st.lists(st.floats(0, 1), min_size=12, max_size=12)
_ladder_steps = st.integers(0, 100)


@pytest.fixture(scope="module")
def week() -> Week:
    """Two days of a daemon in the lab, with every operation of the table."""
    return play(Scenario(link=WORLD.link, queue=WORLD.queue, days=0.6, seed=11))


def observations_of(service: Service[Any], week: Week) -> tuple[Observation[Any], ...]:
    return tuple(o for o in week.observations if o.context.operation == service.model.operation)


def fitted(service: Service[Any], week: Week) -> Fit:
    observations = observations_of(service, week)
    return service.model.fit(observations[0].context.place, observations, prior=None, seed=1)


def test_the_table_is_keyed_by_the_models_own_names() -> None:
    """An operation has one spelling."""
    assert {name: service.model.operation for name, service in SERVICES.items()} == {n: n for n in OPERATIONS}


def test_a_service_has_the_same_file_name_in_models_and_probes() -> None:
    """The same file name in both rooms is what a service is."""
    package = Path(penstock.vocabulary.__file__).parent
    for name in OPERATIONS:
        assert (package / "models" / f"{name}.py").exists()
        assert (package / "probes" / f"{name}.py").exists()


@given(fractions=_fractions, step=_ladder_steps)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_legal_settings_stay_as_they_are(operation: str, fractions: list[float], step: int) -> None:
    """`legal` is idempotent and stays within the knobs, whatever it is given."""
    service = SERVICES[operation]
    ladder = service.payload_ladder_bytes
    context = context_of(service, ladder[step % len(ladder)])
    legal = service.model.legal(context, a_setting(service, fractions))

    assert service.model.legal(context, legal) == legal
    for name, knob in knobs(service.setting_type).items():
        assert knob.low <= getattr(legal, name) <= knob.high


def test_defaults_and_ramps_are_legal(service: Service[Any]) -> None:
    """What is tried and advised without knowledge must be accepted by the service."""
    for size in service.payload_ladder_bytes:
        context = context_of(service, size)
        for setting in (service.model.default_setting(context), *service.model.ramp(context)):
            assert service.model.legal(context, setting) == setting


def test_a_fit_without_observations_is_the_prior(service: Service[Any]) -> None:
    """The model answers before anything was measured, and says that nothing was."""
    context = context_of(service)
    fit = service.model.fit(context.place, (), prior=None, seed=1)
    prediction = service.model.predict(fit, context, service.model.default_setting(context), Demand())

    assert fit.observation_count == 0
    assert prediction[service.model.value_metric].expected > 0


def test_intervals_are_ordered_and_positive(service: Service[Any], week: Week) -> None:
    """In every estimate low <= expected <= high, all finite, none below zero."""
    fit = fitted(service, week)
    for size in service.payload_ladder_bytes:
        context = context_of(service, size)
        for setting in list(service.model.candidates(fit, context, Demand()))[::7]:
            for estimate in service.model.predict(fit, context, setting, Demand()).values():
                assert 0 <= estimate.low <= estimate.expected <= estimate.high
                assert math.isfinite(estimate.high)


def test_a_fit_survives_json(service: Service[Any], week: Week) -> None:
    """A restarted daemon predicts from the stored document exactly what it predicted before."""
    fit = fitted(service, week)
    context = context_of(service, service.payload_ladder_bytes[-1])
    settings = list(service.model.candidates(fit, context, Demand()))
    restored = msgspec.json.decode(json.dumps(json.loads(msgspec.json.encode(fit))), type=Fit)

    before = service.model.appraise(fit, context, settings, Demand())
    after = service.model.appraise(restored, context, settings, Demand())
    np.testing.assert_array_equal(before.value, after.value)


def test_candidates_keep_the_demands_limits(service: Service[Any], week: Week) -> None:
    """A hard limit is hard: no candidate needs more threads than are allowed."""
    fit, context = fitted(service, week), context_of(service)
    for limit in (6, 12, 24):
        demand = Demand(thread_count_max=limit)
        candidates = service.model.candidates(fit, context, demand)
        assert candidates
        assert service.model.appraise(fit, context, candidates, demand).connection_count.max() <= limit


def test_the_same_question_has_the_same_answer(service: Service[Any], week: Week) -> None:
    """History in, proposal out: nothing else plays a part."""
    observations = observations_of(service, week)
    context = observations[-1].context
    question = Question(
        place=context.place,
        observations=observations[:8],
        prior=None,
        next_context=context,
        cost_max=AMPLE,
        demand=Demand(thread_count_max=64),
        seed=5,
    )
    first, second = deliberate(service.model, question), deliberate(service.model, question)

    assert first.plan == second.plan
    assert first.fit == second.fit


@pytest.mark.parametrize("share", [1.0, 0.3, 0.05])
def test_a_plan_costs_no_more_than_was_allowed(service: Service[Any], week: Week, share: float) -> None:
    """The proposal fits what can be afforded, or there is none."""
    observations = observations_of(service, week)
    allowed = Cost(
        transferred_bytes=int(share * 2**28),
        request_count=int(share * 2000),
        usd=share * 0.01,
        credit_bytes=2**40,
        duration_seconds=share * 20,
    )
    question = Question(
        place=observations[0].context.place,
        observations=observations,
        prior=None,
        next_context=observations[0].context,
        cost_max=allowed,
        demand=Demand(thread_count_max=64),
        seed=5,
    )
    plan = deliberate(service.model, question).plan
    if plan is not None:
        for field in dataclasses.fields(Cost):
            assert getattr(plan.cost_max, field.name) <= getattr(allowed, field.name), field.name


def test_advice_without_a_fit_is_the_sdks_default(service: Service[Any]) -> None:
    """An application always gets an answer, and it says what it rests on."""
    context = context_of(service)
    advice = recommend(
        service.model, None, context, Demand(), previous=None, now=NOW, validity_seconds=3600.0
    )

    assert advice.basis is Basis.DEFAULT
    assert advice.setting == service.model.default_setting(context)


def test_advice_is_among_the_legal(service: Service[Any], week: Week) -> None:
    """What is advised can be used as it stands, at any size, and expires."""
    fit = fitted(service, week)
    for size in (*service.payload_ladder_bytes, 12_345_678):
        context = context_of(service, size)
        advice = recommend(
            service.model, fit, context, Demand(), previous=None, now=NOW, validity_seconds=3600.0
        )
        assert service.model.legal(context, advice.setting) == advice.setting
        assert advice.expires_at > advice.issued_at
        assert advice.explanation
        json.dumps(dict(advice.derived))


def test_probes_leave_nothing_behind(week: Week) -> None:
    """After days of probing no object, upload or queue is left."""
    assert week.observations
    assert week.leftover_names == ()


def test_probes_cost_what_they_say(week: Week) -> None:
    """The ledger's sum is what the probes moved, also in vain, and no less than what arrived."""
    assert all(o.measures["attempted_bytes"] >= o.transferred_bytes for o in week.observations)
    in_vain = [c.outcome for c in week.cycles if isinstance(c.outcome, Inconclusive)]
    moved = sum(o.measures["attempted_bytes"] for o in week.observations)
    moved += sum(o.transferred_bytes for o in in_vain)
    booked = sum(s.cost.transferred_bytes for s in week.spends)
    assert booked == moved


def test_observations_are_about_what_was_asked(service: Service[Any], week: Week) -> None:
    """The measured value is the one that the model predicts, positive and dated within the days."""
    observations = observations_of(service, week)
    assert len(observations) >= 5
    for observation in observations:
        assert observation.started_at >= START_AT
        assert service.model.measured_value(observation) > 0
        assert observation.request_count > 0
