import dataclasses
import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.sqs_world import CONTEXT, PLACE, a_setting, a_world, observe, with_actions
from penstock.lab.sqs import ActionTruth, QueueTruth
from penstock.models.model import Fit
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.models.sqs.learning import _parameters
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.optimizer.deliberation import Case, deliberate
from penstock.trial.simulated_host import World
from penstock.units import KiB, MiB
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Estimate,
    Objective,
    Observation,
    Origin,
    Place,
    Reason,
    knobs,
    setting_values,
)
from tests.factories import recommended
from tests.unit.models.told import told

MODEL = SqsDeliveryModel()
# The deleter is a tenth slower than the sender, and everything takes about 20 ms.
WORLD = World(
    queue=QueueTruth(
        send=ActionTruth(request_seconds=0.017, message_seconds=0.001),
        receive=ActionTruth(request_seconds=0.015, message_seconds=0.001),
        delete=ActionTruth(request_seconds=0.0188, message_seconds=0.001),
        spread_seconds_median=0.0055,
        spread_sigma=0.3,
        visibility_timeout_seconds=8,
    )
)


def learned(*, more: int) -> Fit:
    """The fit after the ramp and a few probes of that world."""
    settings = [*MODEL.ramp(CONTEXT), *(a_setting(seed) for seed in range(more))]
    observations = [observe(WORLD, s, seed=i, number=i) for i, s in enumerate(settings)]
    return MODEL.fit(PLACE, observations, prior=None, seed=1)


@cache
def a_fit() -> Fit:
    """The same after four of them."""
    return learned(more=4)


@given(
    st.builds(
        SqsDeliverySetting,
        sender_thread_count=st.integers(-5, 1000),
        receiver_thread_count=st.integers(-5, 1000),
        deleter_thread_count=st.integers(-5, 1000),
        batch_message_count=st.integers(-5, 100),
        send_rate_limit_messages_per_second=st.floats(-1e6, 1e6),
        send_window_message_count=st.integers(-5, 10**6),
        receive_window_message_count=st.integers(-5, 10**6),
    ),
    st.integers(0, 3 * MiB),
)
def test_legal_is_within_the_knobs_and_idempotent(setting: SqsDeliverySetting, size_bytes: int) -> None:
    """Whatever is asked, SQS accepts the answer: bounds, and a full batch within one request's size."""
    context = Context(place=PLACE, payload_size_bytes=size_bytes)
    legal = MODEL.legal(context, setting)
    for name, bounds in knobs(legal).items():
        assert bounds.low <= getattr(legal, name) <= bounds.high
    assert legal.batch_message_count == 1 or legal.batch_message_count * size_bytes <= MiB
    assert MODEL.legal(context, legal) == legal


def test_the_model_works_with_no_observation() -> None:
    """Tables serve as the prior: everything is answered, with wide intervals."""
    fit = MODEL.fit(PLACE, [], prior=None, seed=1)
    setting = MODEL.candidates(fit, CONTEXT, Demand())[0]
    estimate = MODEL.predict(fit, CONTEXT, setting, Demand())["goodput_messages_per_second"]
    assert fit.observation_count == 0
    assert estimate.high / estimate.low > 2


def test_no_parameter_is_outside_of_its_interval() -> None:
    """Also where what is most likely is all that is likely, not even by a rounding."""
    for mode in np.random.default_rng(1).uniform(-15.0, 5.0, (20, 12)):
        for estimate in _parameters(np.tile(mode, (48, 1)), mode, (1e9, 1e3)).values():
            assert estimate.low <= estimate.expected <= estimate.high


def test_a_fit_survives_json() -> None:
    """A restart predicts what was predicted before."""
    restored = dataclasses.replace(a_fit(), state=json.loads(json.dumps(a_fit().state)))
    setting = MODEL.candidates(a_fit(), CONTEXT, Demand())[0]
    assert MODEL.predict(restored, CONTEXT, setting, Demand()) == MODEL.predict(
        a_fit(), CONTEXT, setting, Demand()
    )


def test_the_same_history_and_seed_give_the_same_fit() -> None:
    """Nothing hidden decides."""
    assert learned(more=1) == learned(more=1)


def test_the_costs_of_the_world_are_found() -> None:
    """Requests within an eighth, from eight probes."""
    for name, truth in (
        ("send_request_seconds", 0.017),
        ("receive_request_seconds", 0.015),
        ("delete_request_seconds", 0.0188),
    ):
        assert a_fit().parameters[name].expected == pytest.approx(truth, rel=0.125)
    assert a_fit().residual_fraction_p50 < 0.05
    assert not a_fit().is_off_model


@pytest.mark.parametrize("rate", [20.0, 200.0, 900.0])
def test_advice_for_a_rate_carries_it_with_no_duplicate(rate: float) -> None:
    """Held against the world itself: at least 97 % of the rate, and nothing delivered twice."""
    demand = Demand(message_rate_per_second=rate)
    candidates = MODEL.candidates(a_fit(), CONTEXT, demand)
    appraisal = MODEL.appraise(a_fit(), CONTEXT, candidates, demand)
    chosen = candidates[int(appraisal.connection_count.argmin())]
    observation = observe(WORLD, chosen, seed=99)
    assert MODEL.measured_value(observation) >= 0.97 * rate
    assert observation.measures["duplicate_count"] == 0


def test_few_threads_or_a_busy_client_are_named_as_the_limit() -> None:
    """Two senders leave the CPU idle; with forty, all threads wait for it, however many more there are."""
    by_count = {c.sender_thread_count: c for c in MODEL.candidates(a_fit(), CONTEXT, Demand())}
    assert MODEL.bottleneck(a_fit(), CONTEXT, by_count[2], Demand()) == "connections"
    assert MODEL.bottleneck(a_fit(), CONTEXT, by_count[40], Demand()) == "client-cpu"
    unmeasured = MODEL.fit(PLACE, (), prior=None, seed=0)
    for count in (2, 40):
        assert MODEL.bottleneck(unmeasured, CONTEXT, by_count[count], Demand()) == "unknown"
    assert MODEL.bottleneck(unmeasured, CONTEXT, by_count[2], Demand(message_rate_per_second=5.0)) == "demand"


def test_how_few_senders_were_tried_is_said_in_plain_words() -> None:
    """One was, and two were."""
    for count, said in ((1, "No more than 1 sender was tried:"), (2, "No more than 2 senders were tried:")):
        tried = [dataclasses.replace(a_setting(0), sender_thread_count=count)]
        fit = MODEL.fit(PLACE, [observe(WORLD, s, seed=1, number=1) for s in tried], prior=None, seed=1)
        beyond = dataclasses.replace(tried[0], sender_thread_count=40)
        assert told(MODEL, fit, CONTEXT, beyond, Demand())[0].startswith(said)


def test_long_work_on_a_message_is_named_as_the_limit() -> None:
    """With 20 s each it is what holds the receivers; with a millisecond their requests are."""
    for work_seconds, count_max, limit in ((20.0, 64, "work"), (0.001, 6, "connections")):
        demand = Demand(work_seconds=work_seconds, thread_count_max=count_max)
        chosen = recommended(MODEL, a_fit(), CONTEXT, demand)
        assert chosen.bottleneck == limit
        span = "times as fast as boto3's default (90 %"
        assert (span in chosen.explanation) is (limit == "connections")


def test_every_candidate_is_complete_and_stable() -> None:
    """Each has windows, a limit within its delete capacity, and is legal as it is."""
    for candidate in MODEL.candidates(a_fit(), CONTEXT, Demand()):
        derived = MODEL.derive(a_fit(), CONTEXT, candidate, Demand())
        assert MODEL.legal(CONTEXT, candidate) == candidate
        assert candidate.send_window_message_count > 0
        held_seconds = candidate.receive_window_message_count / derived["delete_capacity_messages_per_second"]
        assert 0 < held_seconds <= 0.5 * 8.0 + 1e-6
        assert candidate.send_rate_limit_messages_per_second <= derived["delete_capacity_messages_per_second"]


def test_what_waiting_for_a_batch_adds_is_said() -> None:
    """Half of the linger, on average; an objective leaves as much as keeps the mean of all messages within it."""
    batched = dataclasses.replace(MODEL.default_setting(CONTEXT), batch_message_count=10)
    slow = Demand(message_rate_per_second=20)
    (words,) = told(MODEL, a_fit(), CONTEXT, batched, slow)
    assert "adds 225 ms to the latency of a message" in words
    assert MODEL.derive(a_fit(), CONTEXT, batched, slow)["batch_linger_seconds"] == pytest.approx(0.45)
    assert told(MODEL, a_fit(), CONTEXT, MODEL.default_setting(CONTEXT), slow) == ()
    soon = dataclasses.replace(slow, latency_objective_seconds=0.1)
    waited = MODEL.derive(a_fit(), CONTEXT, batched, soon)["batch_linger_seconds"] / 2.0
    latency = MODEL.predict(a_fit(), CONTEXT, batched, soon)["delivery_latency_seconds_mean"].expected
    assert latency + waited == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("work_seconds", [0.2, 5.0, 30.0])
def test_no_message_comes_back_while_it_is_worked_on(work_seconds: float) -> None:
    """A full receive window, and a batch in the hands of one receiver, take half of the timeout at most."""
    demand = Demand(message_rate_per_second=10, work_seconds=work_seconds)
    for setting in (
        *MODEL.candidates(a_fit(), CONTEXT, demand),
        MODEL.advisable_default(a_fit(), CONTEXT, demand),
    ):
        derived = MODEL.derive(a_fit(), CONTEXT, setting, demand)
        half_a_timeout = derived["visibility_timeout_seconds"] / 2.0
        assert setting.batch_message_count * work_seconds <= half_a_timeout
        held_seconds = setting.receive_window_message_count * work_seconds / setting.receiver_thread_count
        assert held_seconds <= half_a_timeout


def test_hard_limits_hold_while_they_can() -> None:
    """Few threads are kept to; what no setting meets is met as nearly as possible, never with nothing."""
    few = MODEL.candidates(a_fit(), CONTEXT, Demand(thread_count_max=6))
    assert all(s.thread_count <= 6 for s in few)
    assert MODEL.candidates(a_fit(), CONTEXT, Demand(thread_count_max=1, latency_objective_seconds=1e-9))


@pytest.mark.parametrize("work_seconds", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("rate", [None, 5.0, 500.0])
@pytest.mark.parametrize("limit", [3, 8, 64])
def test_no_more_threads_than_were_allowed(limit: int, rate: float | None, work_seconds: float) -> None:
    """However long the work keeps a receiver: with fewer of them less is carried."""
    demand = Demand(thread_count_max=limit, message_rate_per_second=rate, work_seconds=work_seconds)
    found = recommended(MODEL, a_fit(), CONTEXT, demand).setting
    assert found.thread_count <= limit


def test_no_more_is_expected_than_is_sent() -> None:
    """A first probe at 10 messages a second that counted 10.4 had 71.8 expected of a lease limited to 69."""
    probe = observe(WORLD, MODEL.ramp(CONTEXT)[0], seed=1)
    measured = {**probe.measures, "goodput_messages_per_second": 10.6}
    fit = MODEL.fit(PLACE, [dataclasses.replace(probe, measures=measured)], prior=None, seed=1)
    held = dataclasses.replace(a_setting(3), send_rate_limit_messages_per_second=20.0)
    found = MODEL.predict(fit, CONTEXT, held, Demand())["goodput_messages_per_second"]
    assert 19.0 < found.expected <= 20.0
    assert MODEL.usual(fit, CONTEXT, [held], Demand())[0] == pytest.approx(found.expected)


def test_the_least_latency_is_that_of_the_rate_that_was_asked_for() -> None:
    """The default's single messages are the soonest, but it carries a fortieth; nor may it stand."""
    asked = Demand(objective=Objective.LATENCY, message_rate_per_second=2000.0)
    found = recommended(MODEL, a_fit(), CONTEXT, asked)
    assert found.prediction["goodput_messages_per_second"].expected >= 0.98 * 2000.0
    assert found.gain_over_default is not None
    assert found.gain_over_default.expected < 0.9
    assert "the default does not carry the rate that was asked for." in found.explanation
    own = MODEL.advisable_default(a_fit(), CONTEXT, asked)
    again = recommended(MODEL, a_fit(), CONTEXT, asked, previous=dataclasses.replace(found, setting=own))
    assert again.setting == found.setting


def test_throttling_teaches_the_request_rate() -> None:
    """After refusals near 60 requests a second, nothing is advised beyond, and the limit is named."""
    settings = [*MODEL.ramp(CONTEXT), a_setting(3)]
    observations = [observe(WORLD, s, seed=i, number=i) for i, s in enumerate(settings)]
    refused = _held_to(observations[-1], request_rate_per_second=60.0)
    fit = MODEL.fit(PLACE, [*observations[:3], refused], prior=None, seed=1)
    best = max(MODEL.candidates(fit, CONTEXT, Demand()), key=lambda s: s.send_rate_limit_messages_per_second)
    assert fit.parameters["request_rate_max_per_second"].expected == pytest.approx(60.0, rel=0.15)
    assert best.send_rate_limit_messages_per_second <= 60.0 * best.batch_message_count
    assert MODEL.bottleneck(fit, CONTEXT, best, Demand()) == "request-rate"


def test_where_all_was_refused_less_than_one_request_was_admitted() -> None:
    """A limit of none at all would make every rate a division by it."""
    probe = observe(WORLD, MODEL.ramp(CONTEXT)[0], seed=1, number=1)
    nothing = {"sent_count": 0.0, "goodput_messages_per_second": 0.0}
    refused = dataclasses.replace(probe, throttled_count=probe.request_count, measures=nothing)
    limit = MODEL.fit(PLACE, [refused], prior=None, seed=1).parameters["request_rate_max_per_second"]
    assert 0.0 < limit.expected <= 1.0 / probe.duration_seconds


def test_a_place_that_changed_is_learned_anew() -> None:
    """Requests twice as long after a move of the service: the new times count, and the change is counted.

    Once it has moved back, all counts again that was measured there.
    """
    slower = with_actions(
        WORLD,
        send=ActionTruth(request_seconds=0.034, message_seconds=0.002),
        receive=ActionTruth(request_seconds=0.030, message_seconds=0.002),
        delete=ActionTruth(request_seconds=0.0376, message_seconds=0.002),
    )
    settings = [*MODEL.ramp(CONTEXT), *(a_setting(seed) for seed in range(6))]
    before = [observe(WORLD, s, seed=i, number=i) for i, s in enumerate(settings)]
    after = [observe(slower, s, seed=50 + i, number=50 + i) for i, s in enumerate(settings)]
    fit = MODEL.fit(PLACE, [*before, *after], prior=None, seed=1)
    assert fit.drift_count == 1
    assert fit.parameters["send_request_seconds"].expected == pytest.approx(0.034, rel=0.1)
    assert MODEL.fit(PLACE, before, prior=None, seed=1).drift_count == 0
    again = [observe(WORLD, s, seed=90 + i, number=90 + i) for i, s in enumerate(settings[:4])]
    back = MODEL.fit(PLACE, [*before, *after, *again], prior=None, seed=1)
    assert back.drift_count == 2
    assert back.observation_count == len(before) + len(again)
    assert back.earlier == ((before[0].started_at, after[0].started_at),)


def test_advice_beyond_what_was_tried_says_so() -> None:
    """The physics may be right: what it rests on is said."""
    tried = max(
        s.sender_thread_count for s in [*MODEL.ramp(CONTEXT), *(a_setting(seed) for seed in range(4))]
    )
    beyond, within = (
        dataclasses.replace(a_setting(0), sender_thread_count=count) for count in (tried + 1, tried)
    )
    assert str(tried) in " ".join(told(MODEL, a_fit(), CONTEXT, beyond, Demand()))
    assert not told(MODEL, a_fit(), CONTEXT, within, Demand())


def test_one_slow_measurement_is_a_suspicion_and_no_change_yet() -> None:
    """Deletes alone three times as long, once: it may be a stray, and it is looked at again."""
    settings = [*MODEL.ramp(CONTEXT), *(a_setting(seed) for seed in range(8))]
    calm = [observe(WORLD, s, seed=i, number=i) for i, s in enumerate(settings)]
    slow = with_actions(WORLD, delete=ActionTruth(request_seconds=0.0564, message_seconds=0.003))
    surprising = observe(slow, settings[-1], seed=90, number=90)
    assert not MODEL.fit(PLACE, calm, prior=None, seed=1).suspicion.is_raised
    case = Case(
        place=PLACE,
        observations=(*calm, surprising),
        prior=None,
        next_context=CONTEXT,
        cost_max=Cost(
            transferred_bytes=10**12,
            request_count=10**9,
            usd=1e6,
            credit_bytes=10**15,
            duration_seconds=1e6,
        ),
        demand=Demand(),
        seed=1,
    )
    found = deliberate(MODEL, case)
    assert found.fit.drift_count == 0
    assert found.fit.suspicion.is_surprised
    assert found.fit.suspicion.value_ratio < 0.6
    assert found.fit.suspicion.subject == "delete requests"
    assert found.fit.suspicion.subject_ratio == pytest.approx(3.0, rel=0.3)
    assert found.plan is not None
    assert found.plan.reason is Reason.VERIFY


def test_an_application_that_says_little_is_still_evidence() -> None:
    """Only bytes and time: goodput is learned, and no request time is made up."""
    reported = [
        dataclasses.replace(observe(WORLD, s, seed=i, number=i), measures={}, origin=Origin.APPLICATION)
        for i, s in enumerate(MODEL.ramp(CONTEXT))
    ]
    fit = MODEL.fit(PLACE, reported, prior=None, seed=1)
    assert fit.observation_count == len(reported)
    setting = reported[1].setting
    expected = MODEL.predict(fit, CONTEXT, setting, Demand())["goodput_messages_per_second"].expected
    assert expected == pytest.approx(MODEL.measured_value(reported[1]), rel=0.15)


def test_large_messages_take_longer_and_one_fit_serves_all_sizes() -> None:
    """Probes of 1 KiB and of 64 KiB at 2 MB/s: both are predicted from the one fit."""
    large = Context(place=PLACE, payload_size_bytes=64 * KiB)
    slower = with_actions(
        WORLD,
        send=ActionTruth(request_seconds=0.017, message_seconds=0.001 + 64 * KiB / 2e6),
        receive=ActionTruth(request_seconds=0.015, message_seconds=0.001 + 64 * KiB / 2e6),
    )
    small_probes = [observe(WORLD, s, seed=i, number=i) for i, s in enumerate(MODEL.ramp(CONTEXT))]
    large_probes = [
        dataclasses.replace(observe(slower, s, seed=40 + i, number=40 + i), context=large)
        for i, s in enumerate(MODEL.ramp(CONTEXT))
    ]
    fit = MODEL.fit(PLACE, [*small_probes, *large_probes], prior=None, seed=1)
    for probe in (small_probes[2], large_probes[2]):
        prediction = MODEL.predict(fit, probe.context, probe.setting, Demand())
        expected = prediction["goodput_messages_per_second"].expected
        assert expected == pytest.approx(MODEL.measured_value(probe), rel=0.1)


def test_a_fifo_queue_starts_from_its_quota() -> None:
    """300 requests a second of each kind are known before the first probe."""
    place = Place(operation="sqs_delivery", region="lab", instance_type="x", service_class="fifo")
    fit = MODEL.fit(place, [], prior=None, seed=1)
    assert fit.parameters["request_rate_max_per_second"].expected == 300.0


def test_blast_shows_when_it_will_collapse() -> None:
    """The default setting, against a deleter 10 % slower than the sender, has a date; an advised one has none."""
    blast = MODEL.default_setting(CONTEXT)
    derived = MODEL.derive(a_fit(), CONTEXT, blast, Demand())
    assert derived["collapse_after_seconds_without_receive_window"] < 3600
    assert derived["warn_at_oldest_undeleted_seconds"] == pytest.approx(8 / 3)
    advised = MODEL.candidates(a_fit(), CONTEXT, Demand(message_rate_per_second=40.0))[0]
    assert "collapse_after_seconds_without_receive_window" not in MODEL.derive(
        a_fit(), CONTEXT, advised, Demand(message_rate_per_second=40.0)
    )


def test_large_messages_are_billed_by_chunks() -> None:
    """Ten messages of 64 KiB cost ten times a request of ten small ones, in sends and receives."""
    setting = dataclasses.replace(MODEL.ramp(CONTEXT)[2], send_rate_limit_messages_per_second=200.0)
    small = MODEL.derive(a_fit(), CONTEXT, setting, Demand())["usd_per_million_messages"]
    large_context = Context(place=PLACE, payload_size_bytes=64 * KiB)
    large = MODEL.derive(a_fit(), large_context, setting, Demand())["usd_per_million_messages"]
    assert small == pytest.approx(0.12, rel=0.05)
    assert large > 6 * small


def test_a_neighbour_is_a_better_start_than_tables() -> None:
    """With its fit as the prior, goodput that was never measured here is foretold more narrowly."""
    setting = a_setting(77)
    cold = MODEL.fit(PLACE, [], prior=None, seed=1)
    warm = MODEL.fit(PLACE, [], prior=a_fit(), seed=1)

    def width(fit: Fit) -> float:
        estimate = MODEL.predict(fit, CONTEXT, setting, Demand())["goodput_messages_per_second"]
        return estimate.high / estimate.low

    assert width(warm) < width(cold)


def test_unseen_settings_are_predicted() -> None:
    """Two worlds, twelve probes each, eight settings never tried: median error of goodput at most 5 %."""
    errors = []
    for world_seed in range(2):
        world = a_world(world_seed)
        tried = [*MODEL.ramp(CONTEXT), *(a_setting(1000 * world_seed + i) for i in range(8))]
        fit = MODEL.fit(
            PLACE,
            [observe(world, s, seed=i, number=i) for i, s in enumerate(tried)],
            prior=None,
            seed=1,
        )
        for index in range(8):
            setting = a_setting(1000 * world_seed + 500 + index)
            measured = MODEL.measured_value(observe(world, setting, seed=500 + index))
            expected = MODEL.predict(fit, CONTEXT, setting, Demand())["goodput_messages_per_second"].expected
            errors.append(abs(measured / expected - 1.0))
    assert sorted(errors)[len(errors) // 2] <= 0.05


def _held_to(
    observation: Observation[SqsDeliverySetting], *, request_rate_per_second: float
) -> Observation[SqsDeliverySetting]:
    """The same probe where the service took so many requests of each kind a second and refused others."""
    count = request_rate_per_second * observation.duration_seconds
    messages = count * observation.setting.batch_message_count
    return dataclasses.replace(
        observation,
        throttled_count=20,
        request_count=round(3 * count),
        measures={
            **observation.measures,
            "send_request_count": count,
            "receive_request_count": count,
            "delete_request_count": count,
            "sent_count": messages,
            "received_count": messages,
            "deleted_count": messages,
            "goodput_messages_per_second": messages / observation.duration_seconds,
        },
    )


def test_setting_values_are_numbers_of_the_right_kind() -> None:
    """Counts stay whole numbers: clients use them as they are."""
    for name, value in setting_values(MODEL.candidates(a_fit(), CONTEXT, Demand())[0]).items():
        assert isinstance(value, float if name.endswith("per_second") else int)


@pytest.mark.parametrize("rate", [5_000.0, 1e6, 1e9])
def test_a_demand_that_nothing_meets_is_met_as_far_as_it_can_be(rate: float) -> None:
    """Asking for the moon gives no worse advice than asking for as much as there is, and keeps to the limits."""
    limit = 24

    def best(rate: float) -> tuple[float, float]:
        demand = Demand(message_rate_per_second=rate, thread_count_max=limit)
        settings = MODEL.candidates(a_fit(), CONTEXT, demand)
        appraisal = MODEL.appraise(a_fit(), CONTEXT, settings, demand)
        index = int(appraisal.value.argmax())
        return float(appraisal.value[index]), float(appraisal.connection_count[index])

    goodput, connection_count = best(rate)
    assert goodput >= 0.9 * best(500.0)[0]
    assert connection_count <= limit


def test_advice_that_gains_nothing_over_the_default_says_what_it_has_beside_it() -> None:
    """Where one message at a time carries the load, what is left to give is that a backlog cannot collapse."""
    demand = Demand(message_rate_per_second=5.0)
    advice = recommended(MODEL, a_fit(), CONTEXT, demand)
    assert advice.gain_over_default == Estimate(1.0, 1.0, 1.0)
    assert advice.explanation.endswith(
        " As fast as boto3's default to within 2 %, with 4 connections instead of 3 and limits on what is "
        "in flight, where boto3 sets none."
    )


def test_the_default_may_be_advised_with_limits_alone() -> None:
    """One thread each and one message at a time, no faster than the deleter, with the windows of all advice."""
    own = MODEL.advisable_default(a_fit(), CONTEXT, Demand())
    counts = (own.sender_thread_count, own.receiver_thread_count, own.deleter_thread_count)
    assert (counts, own.batch_message_count) == ((1, 1, 1), 1)
    assert own.send_rate_limit_messages_per_second > 0
    assert 0 < own.receive_window_message_count < 120_000
    assert 0 < own.send_window_message_count < 120_000
    assert MODEL.legal(CONTEXT, own) == own
    slow = MODEL.advisable_default(a_fit(), CONTEXT, Demand(message_rate_per_second=5.0))
    assert slow.send_rate_limit_messages_per_second == pytest.approx(5.25)
