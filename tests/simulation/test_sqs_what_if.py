"""What the plan says of stated conditions, held against the simulated queue, which shares no formula with it."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sqs_campaigns import advised
from bench.sqs_world import play
from penstock.lab.sqs import ActionTruth, QueueTruth
from penstock.models.sqs.plan import Conditions, SqsPlan, plan
from penstock.probes.sqs.conduct import BLAST
from penstock.trial.simulated_host import World

SECONDS = st.floats(1e-4, 5.0)


def a_condition(seed: int) -> Conditions:
    """A queue that somebody might plan for."""
    rng = random.Random(seed)
    receive = rng.uniform(0.005, 0.05)
    send = rng.uniform(0.005, 0.05)
    return Conditions(
        message_rate_per_second=rng.uniform(5.0, 150.0),
        send_seconds=send,
        receive_seconds=receive,
        delete_seconds=rng.uniform(0.005, 0.05),
        delivery_latency_seconds=send / 2.0 + receive + rng.uniform(0.005, 0.1),
        visibility_timeout_seconds=float(rng.randrange(10, 60)),
        send_seconds_variation=0.4,
        receive_seconds_variation=0.4,
        delete_seconds_variation=0.4,
    )


def the_queue(conditions: Conditions) -> World:
    """The simulated queue that is as stated."""

    def request(seconds: float) -> ActionTruth:
        return ActionTruth(
            request_seconds=0.8 * seconds,
            message_seconds=0.2 * seconds,
            variation=conditions.delete_seconds_variation,
        )

    latency = conditions.delivery_latency_seconds or 0.0
    spread_seconds = latency - conditions.send_seconds / 2.0 - conditions.receive_seconds
    queue = QueueTruth(
        send=request(conditions.send_seconds),
        receive=request(conditions.receive_seconds),
        delete=request(conditions.delete_seconds),
        spread_seconds_median=spread_seconds,
        spread_sigma=0.1,
        visibility_timeout_seconds=round(conditions.visibility_timeout_seconds),
    )
    return World(queue=queue)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.days) for seed in range(4, 12))]
)
def test_the_queue_carries_what_the_plan_says(seed: int) -> None:
    """Goodput within 5 %, and no message twice."""
    conditions = a_condition(seed)
    found = plan(conditions)
    conduct = advised(found, conditions.message_rate_per_second, long_polls=True)
    tally = play(the_queue(conditions), conduct, 61.0, seed=seed)
    carried = tally.rate_between("deleted_count", 10.5, 60.5)
    assert carried == pytest.approx(found.goodput_messages_per_second.expected, rel=0.05)
    assert tally.total.duplicate_count == 0


@pytest.mark.parametrize(
    "seed", [0, 2, *(pytest.param(seed, marks=pytest.mark.days) for seed in (1, 3, 4, 5))]
)
def test_the_queue_collapses_when_the_plan_says(seed: int) -> None:
    """With a deleter 6 to 20 % slower than the sender and nothing bounded: the date within 20 %."""
    conditions = a_condition(seed)
    rng = random.Random(seed)
    conditions = replace(
        conditions,
        message_rate_per_second=1.0 / conditions.send_seconds,
        receive_seconds=min(conditions.receive_seconds, conditions.send_seconds),
        delete_seconds=conditions.send_seconds * rng.uniform(1.06, 1.2),
        visibility_timeout_seconds=float(rng.randrange(8, 16)),
    )
    found = plan(conditions).collapse_after_seconds
    assert found is not None
    tally = play(the_queue(conditions), BLAST, 1.3 * found.expected, seed=seed)
    assert tally.overdue_at_seconds == pytest.approx(found.expected, rel=0.2)


@settings(max_examples=150)
@given(
    st.builds(
        Conditions,
        message_rate_per_second=st.floats(0.01, 1e5),
        send_seconds=SECONDS,
        receive_seconds=SECONDS,
        delete_seconds=SECONDS,
        delivery_latency_seconds=st.none() | st.floats(1e-4, 100.0),
        visibility_timeout_seconds=st.floats(1.0, 43_200.0),
        send_seconds_variation=st.floats(0.0, 3.0),
        receive_seconds_variation=st.floats(0.0, 3.0),
        delete_seconds_variation=st.floats(0.0, 3.0),
        deleter_count_max=st.none() | st.integers(1, 500),
        work_seconds=st.just(0.0) | st.floats(1e-3, 600.0),
        latency_objective_seconds=st.none() | st.floats(1e-3, 100.0),
        payload_size_bytes=st.integers(1, 1 << 20),
        service_class=st.sampled_from(["standard", "fifo"]),
    )
)
def test_whatever_is_stated_the_plan_is_stable(conditions: Conditions) -> None:
    """No crash, nothing that is not a number, and the three conditions under which no copy comes back."""
    found = plan(conditions)
    setting, capacity = found.setting, delete_capacity(conditions, found)
    half_a_timeout = 0.5 * found.visibility_timeout_seconds * capacity
    assert setting.receive_window_message_count <= max(half_a_timeout, 1.0) * (1 + 1e-9)
    assert setting.send_rate_limit_messages_per_second <= capacity * (1 + 1e-9)
    assert found.visibility_timeout_seconds >= 6.0 * conditions.work_seconds
    for estimate in (found.goodput_messages_per_second, found.delivery_latency_seconds_mean):
        assert 0 <= estimate.low <= estimate.high < math.inf
        assert estimate.expected > 0


def delete_capacity(conditions: Conditions, found: SqsPlan) -> float:
    """What the planned deleters can do, at a fifth of a request's time for each message."""
    batch = found.setting.batch_message_count
    seconds = conditions.delete_seconds * (0.8 + 0.2 * batch)
    return found.setting.deleter_thread_count * batch / seconds
