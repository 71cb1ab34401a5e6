import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.sqs.delivery import SqsDeliverySetting
from penstock.models.sqs.duplicate_loop import DeleteLoop
from penstock.models.sqs.plan import Conditions, ConditionsError, _choose, plan, plan_rescue, read_conditions


def a_document(**more: Any) -> dict[str, Any]:
    """The seed's queue."""
    return {
        "message_rate_per_second": 50,
        "send_seconds": 0.020,
        "receive_seconds": 0.024,
        "delete_seconds": 0.020286,
        "delivery_latency_seconds": 0.153,
        "visibility_timeout_seconds": 30,
    } | more


def test_the_seeds_queue_gets_more_deleters_and_both_windows() -> None:
    """Where the seed sent at 45 a second with a window of 10, the advice carries all 50 within 160 ms."""
    found = plan(read_conditions(a_document(latency_objective_seconds=0.160)))
    assert 49.0 <= found.goodput_messages_per_second.expected <= 50.5
    assert found.goodput_messages_per_second.low < 50.0 < found.goodput_messages_per_second.high
    assert found.delivery_latency_seconds_mean.expected <= 0.160
    setting = found.setting
    threads = (setting.sender_thread_count, setting.receiver_thread_count, setting.deleter_thread_count)
    assert found.connection_pool_count == sum(threads) + 2
    assert found.setting.deleter_thread_count * found.setting.batch_message_count >= 2
    assert 15 <= found.setting.send_window_message_count <= 24
    assert found.collapse_after_seconds is not None
    assert found.collapse_after_seconds.expected / 60 == pytest.approx(35, abs=1)


def test_a_latency_of_short_polls_is_an_upper_end() -> None:
    """What long polls leave out of it is not known: a wide interval below it, and the same advice."""
    long_polled = plan(read_conditions(a_document()))
    short_polled = plan(read_conditions(a_document(receive_wait_seconds=0)))
    ours, theirs = short_polled.delivery_latency_seconds_mean, long_polled.delivery_latency_seconds_mean
    assert ours.expected < 0.75 * theirs.expected
    assert ours.low < 0.45 * theirs.expected
    assert ours.high < theirs.expected
    assert short_polled.setting == long_polled.setting
    assert plan(read_conditions(a_document(receive_wait_seconds=20))) == long_polled


def test_in_the_west_the_send_window_is_wider() -> None:
    """At 300 ms one wants 22 to 28 places for single messages, not 10."""
    found = plan(read_conditions(a_document(delivery_latency_seconds=0.3, latency_objective_seconds=0.31)))
    assert found.setting.batch_message_count == 1
    assert 22 <= found.setting.send_window_message_count <= 32


def test_with_one_deleter_it_deletes_in_batches() -> None:
    """Batches multiply a deleter that cannot be multiplied."""
    found = plan(read_conditions(a_document(deleter_count_max=1)))
    assert found.setting.deleter_thread_count == 1
    assert found.setting.batch_message_count > 1
    assert found.goodput_messages_per_second.expected >= 49.0


@pytest.mark.parametrize("action", ["send", "receive", "delete"])
def test_where_messages_took_all_of_a_request_there_is_a_plan(action: str) -> None:
    """A busy machine measures it so; a request that took no time itself would be divided by."""
    seconds = {f"{action}_seconds_per_message": a_document()[f"{action}_seconds"]}
    found = plan(read_conditions(a_document(deleter_count_max=1, **seconds)))
    assert found.goodput_messages_per_second.expected > 25.0


def test_of_two_ways_that_carry_all_the_one_with_fewer_threads_is_chosen() -> None:
    """All threads count, whatever they are for; and what comes sooner only among equals."""
    conditions = read_conditions(a_document())
    counts = [(3, 2, 4), (2, 3, 4), (4, 2, 2), (2, 5, 2), (1, 4, 4)]
    names = ("sender_thread_count", "receiver_thread_count", "deleter_thread_count")
    settings = [
        SqsDeliverySetting(**dict(zip(names, threads, strict=True)), batch_message_count=1)
        for threads in counts
    ]
    for goodput, chosen in (
        ([50.0] * 5, 2),
        ([50.0, 50.0, 40.0, 50.0, 50.0], 4),
        ([40.0, 50.0, 40.0, 40.0, 40.0], 1),
    ):
        outcome = SimpleNamespace(
            goodput=np.array([goodput]), latency_seconds=np.array([[0.3, 0.3, 0.3, 0.2, 0.1]])
        )
        assert _choose(conditions, settings, cast("Any", outcome)) == chosen
    in_time = read_conditions(a_document(latency_objective_seconds=0.35))
    soon = read_conditions(a_document(latency_objective_seconds=0.15))
    outcome = SimpleNamespace(
        goodput=np.full((1, 5), 50.0), latency_seconds=np.array([[0.3, 0.3, 0.3, 0.2, 0.1]])
    )
    assert [_choose(each, settings, cast("Any", outcome)) for each in (in_time, soon)] == [2, 4]


def test_what_cannot_be_carried_is_limited_and_said() -> None:
    """More than one deleter can do even in batches: the send rate limit protects the queue, and the plan says so."""
    found = plan(read_conditions(a_document(message_rate_per_second=500, deleter_count_max=1)))
    assert found.setting.send_rate_limit_messages_per_second < 300
    assert "more deleters" in found.explanation


def test_a_fifo_queue_is_carried_in_batches() -> None:
    """300 requests a second of each kind leave no other way to 1,000 messages a second."""
    found = plan(read_conditions(a_document(message_rate_per_second=1000, service_class="fifo")))
    assert found.setting.batch_message_count >= 4
    assert found.goodput_messages_per_second.expected >= 990


def test_long_work_gets_a_longer_visibility_timeout() -> None:
    """The timeout leaves six times the work, and receivers are counted with their work."""
    found = plan(read_conditions(a_document(work_seconds=20.0)))
    assert found.visibility_timeout_seconds >= 120
    assert found.setting.receiver_thread_count == 256


def test_the_document_is_json_with_intervals() -> None:
    """Every estimate has low, expected and high; knobs are on top."""
    document = json.loads(json.dumps(plan(read_conditions(a_document())).document()))
    assert document["receive_window_message_count"] >= 1
    assert set(document["goodput_messages_per_second"]) == {"low", "expected", "high"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"sned_seconds": 1}, "sned_seconds: not known"),
        ({"send_seconds": -1}, "send_seconds: -1 must be more than 0"),
        ({"send_seconds": "fast"}, "send_seconds: 'fast' is not a number"),
        ({"deleter_count_max": 1.5}, "not a whole number"),
        ({"service_class": "express"}, "service_class"),
        ({"delete_seconds_per_message": 1.0}, "more than delete_seconds"),
    ],
)
def test_conditions_that_cannot_be_are_refused(change: dict[str, Any], complaint: str) -> None:
    """Each mistake is named with what was expected."""
    with pytest.raises(ConditionsError, match=complaint):
        read_conditions(a_document(**change))


def test_every_mistake_is_told_at_once() -> None:
    """Three missing fields are three lines."""
    with pytest.raises(ConditionsError) as caught:
        read_conditions({"message_rate_per_second": 50})
    assert len(str(caught.value).splitlines()) == 3


@given(
    st.floats(1, 2000), st.floats(0.002, 0.1), st.floats(0.002, 0.1), st.floats(0.002, 0.1), st.floats(5, 300)
)
def test_every_plan_is_stable(
    rate: float, send: float, receive: float, delete: float, timeout_seconds: float
) -> None:
    """The receive window never holds more than half a timeout's deletes, and the limit never exceeds the capacity."""
    conditions = Conditions(
        message_rate_per_second=rate,
        send_seconds=send,
        receive_seconds=receive,
        delete_seconds=delete,
        visibility_timeout_seconds=timeout_seconds,
    )
    setting = plan(conditions).setting
    batch = setting.batch_message_count
    capacity = setting.deleter_thread_count * batch / (delete * (0.8 + 0.2 * batch))
    assert setting.send_rate_limit_messages_per_second <= capacity
    loop = DeleteLoop(
        arrival_rate_per_second=rate,
        delete_rate_per_second=capacity,
        visibility_timeout_seconds=timeout_seconds,
    )
    assert 1 <= setting.receive_window_message_count <= loop.receive_window_message_count()


def test_a_collapsed_queue_gets_a_rescue() -> None:
    """Batches, a receive window and few deleters, done within five minutes."""
    found = plan_rescue(
        read_conditions(a_document()), undeleted_message_count=40_000, visible_message_count=0
    )
    assert found.recovered_after_seconds <= 300
    assert found.batch_message_count == 10
