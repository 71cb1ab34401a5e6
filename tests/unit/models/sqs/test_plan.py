import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.sqs.duplicate_loop import DeleteLoop
from penstock.models.sqs.plan import (
    Conditions,
    ConditionsError,
    SqsPlan,
    _choose,
    plan,
    plan_rescue,
    read_conditions,
)
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.units import KiB, MiB
from penstock.vocabulary import Estimate


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


def planned(**more: Any) -> SqsPlan:
    """For the seed's queue, with these changes."""
    return plan(read_conditions(a_document(**more)))


def test_the_seeds_queue_gets_more_deleters_and_both_windows() -> None:
    """Where the seed sent at 45 a second with a window of 10, the advice carries all 50 within 160 ms."""
    found = plan(read_conditions(a_document(latency_objective_seconds=0.160)))
    assert 49.0 <= found.goodput_messages_per_second.expected <= 50.5
    assert found.goodput_messages_per_second.low < 50.0 < found.goodput_messages_per_second.high
    assert found.delivery_latency_seconds_mean.expected <= 0.160
    assert found.setting.deleter_thread_count * found.setting.batch_message_count >= 2
    assert 15 <= found.setting.send_window_message_count <= 24
    assert found.collapse_after_seconds is not None
    assert found.collapse_after_seconds.expected / 60 == pytest.approx(35, abs=1)


@pytest.mark.parametrize("rate", [0.01, 0.1, 1.0])
def test_no_more_is_carried_than_is_sent(rate: float) -> None:
    """However few messages a minute counts: at one in 100 s more was expected by a quarter."""
    carried = planned(message_rate_per_second=rate).goodput_messages_per_second
    assert carried.expected == pytest.approx(rate, rel=0.1)
    assert carried.low < rate < carried.high


def test_a_latency_of_short_polls_is_an_upper_end() -> None:
    """What long polls leave out of it is not known: a wide interval below it, and the same advice."""
    long_polled = plan(read_conditions(a_document()))
    short_polled = plan(read_conditions(a_document(receive_wait_seconds=0)))
    ours, theirs = short_polled.delivery_latency_seconds_mean, long_polled.delivery_latency_seconds_mean
    assert ours.expected < 0.75 * theirs.expected
    assert 0.3 * theirs.expected < ours.low < 0.45 * theirs.expected
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
        ([60.0, 50.0, 50.0, 50.0, 50.0], 2),
        ([50.0, 50.0, 40.0, 50.0, 50.0], 4),
        ([40.0, 50.0, 40.0, 40.0, 40.0], 1),
    ):
        outcome = SimpleNamespace(
            goodput=np.array([goodput]), latency_seconds=np.array([[0.3, 0.3, 0.3, 0.2, 0.1]])
        )
        assert _choose(conditions, settings, cast("Any", outcome)) == chosen
    in_time = read_conditions(a_document(latency_objective_seconds=0.305))
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
    """The timeout leaves six times the work, as far as SQS has one, and receivers are counted with their work."""
    assert planned(work_seconds=20.0).setting.receiver_thread_count == 256
    for work_seconds, timeout_seconds in ((20.0, 120), (5.1, 31), (1.0, 30), (10_800.0, 43_200)):
        assert planned(work_seconds=work_seconds).visibility_timeout_seconds == timeout_seconds


@pytest.mark.parametrize("rate", [2, 10, 50])
@pytest.mark.parametrize("work_seconds", [0.05, 0.5, 5.0, 30.0])
def test_what_is_worked_on_is_deleted_before_it_comes_back(rate: float, work_seconds: float) -> None:
    """A full receive window, and a batch in the hands of one receiver, take half of the timeout, and no rest begins."""
    found = planned(message_rate_per_second=rate, work_seconds=work_seconds)
    half_a_timeout, setting = found.visibility_timeout_seconds / 2.0, found.setting
    window_seconds = setting.receive_window_message_count * work_seconds / setting.receiver_thread_count
    assert window_seconds <= half_a_timeout
    assert setting.batch_message_count * work_seconds <= half_a_timeout
    assert found.receive_pause_at_oldest_undeleted_seconds > half_a_timeout
    assert setting.receive_window_message_count >= (
        setting.receiver_thread_count * setting.batch_message_count
    )
    rescued = plan_rescue(
        read_conditions(a_document(work_seconds=work_seconds)),
        undeleted_message_count=1000,
        visible_message_count=1000,
    )
    assert rescued.batch_message_count * work_seconds <= half_a_timeout
    window_seconds = rescued.receive_window_message_count * work_seconds / rescued.receiver_thread_count
    assert window_seconds <= half_a_timeout


def test_work_that_holds_all_receivers_is_said() -> None:
    """More deleters would not help."""
    assert "occupies every receiver a host may have" in planned(work_seconds=20.0).explanation


def test_no_more_is_promised_than_one_processor_can_ask_for() -> None:
    """2,000 single messages a second are 6,000 requests; a client that takes less for each carries them."""
    hurried = {"message_rate_per_second": 2000, "latency_objective_seconds": 0.15, "payload_size_bytes": MiB}
    assert planned(**hurried).goodput_messages_per_second.high < 1000
    fast = planned(**hurried, client_seconds_per_request=1e-5)
    assert fast.goodput_messages_per_second.expected == pytest.approx(2000, rel=0.01)


def test_a_queue_that_is_hardly_used_is_as_late_as_was_measured() -> None:
    """From the start of a send; where nobody measured it, half a send, half a receive, and some time to spread."""
    for stated, seconds in ((0.3, 0.3), (0.07, 0.07), (None, 0.0676)):
        found = planned(message_rate_per_second=1, send_seconds=0.1, delivery_latency_seconds=stated)
        assert found.delivery_latency_seconds_mean.expected == pytest.approx(seconds, rel=0.02)


def test_a_batch_waits_for_its_messages_as_long_as_the_objective_leaves() -> None:
    """At most until it is full, and unasked no longer than a second."""
    slow = {"message_rate_per_second": 10, "delete_seconds": 0.4, "deleter_count_max": 1}
    free = planned(**slow)
    assert free.setting.batch_message_count == 10
    assert free.batch_linger_seconds == pytest.approx(0.9)
    for objective_seconds, latency_seconds in ((0.5, 0.5), (0.3, 0.3), (9.0, 0.643)):
        found = planned(**slow, latency_objective_seconds=objective_seconds)
        assert found.delivery_latency_seconds_mean.expected == pytest.approx(latency_seconds, rel=0.01)
    assert planned(**slow, latency_objective_seconds=0.1).batch_linger_seconds == 0.0
    slower = {"message_rate_per_second": 2, "delete_seconds": 2.0, "deleter_count_max": 1}
    assert planned(**slower).batch_linger_seconds == 1.0


@pytest.mark.parametrize(("payload_size_bytes", "batch"), [(8 * KiB, 10), (300 * KiB, 3), (MiB, 1)])
def test_a_batch_is_no_larger_than_a_request_may_be(payload_size_bytes: int, batch: int) -> None:
    """1 MiB for all of its messages, also where larger batches would carry more."""
    found = planned(message_rate_per_second=500, deleter_count_max=1, payload_size_bytes=payload_size_bytes)
    assert found.setting.batch_message_count == batch


def test_what_varies_more_comes_later_and_is_told_less_surely() -> None:
    """On either side of what is taken where nothing is stated."""

    def width(estimate: Estimate | None) -> float:
        assert estimate is not None
        return estimate.high - estimate.low

    for action, told in (
        ("send", lambda found: width(found.goodput_messages_per_second)),
        ("send", lambda found: found.delivery_latency_seconds_mean.expected),
        ("receive", lambda found: found.delivery_latency_seconds_mean.expected),
        ("delete", lambda found: width(found.collapse_after_seconds)),
    ):
        name = f"{action}_seconds_variation"
        calm, usual, wild = (planned(**more) for more in ({name: 0.5}, {}, {name: 0.8}))
        assert told(calm) < told(usual) < told(wild)


def test_what_threatens_the_queue_is_said() -> None:
    """Deleters that are slower than senders lose it by themselves, others only when they stop for long."""
    slower, faster = planned(), planned(delete_seconds=0.015)
    assert "collapses by itself" in slower.explanation
    assert (slower.deleter_outage_seconds_max, faster.collapse_after_seconds) == (0.0, None)
    assert "a deleter stopped for 32 s collapses" in faster.explanation
    assert faster.deleter_outage_seconds_max == pytest.approx(32.5)
    # Not what is planned for: its deleters are 70 % busy, in batches.
    assert all(
        "; with a deleter for each sender, no batches" in found.explanation for found in (slower, faster)
    )


def test_few_groups_bound_the_rate_and_the_danger() -> None:
    """Each has one receiver at a time, and holds no more than SQS hands out of it undeleted."""
    fifo = {"message_rate_per_second": 200, "service_class": "fifo"}
    one, two, enough = (planned(**fifo, message_group_count=count) for count in (1, 2, None))
    assert [found.message_group_count_min for found in (one, two, enough)] == [3, 3, 3]
    assert "3 message groups would carry it" in one.explanation
    assert one.goodput_messages_per_second.high < 150
    assert two.goodput_messages_per_second.expected > 199
    assert "so few groups cannot fill the queue" in two.explanation
    assert (one.collapse_after_seconds, two.collapse_after_seconds) == (None, None)
    for many in (enough, planned(**fifo, message_group_count=100_000)):
        assert many.collapse_after_seconds is not None
    assert planned().message_group_count_min is None
    assert "message_group_count_min" not in planned().document()
    assert two.document()["message_group_count_min"] == 3


def test_a_message_a_year_gets_a_plan() -> None:
    """Nothing is divided by what is hardly there."""
    assert planned(message_rate_per_second=3e-8).goodput_messages_per_second.expected > 0


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
        ({"deleter_count_max": 0}, "not a whole number"),
        ({"service_class": "express"}, "service_class: 'express'; say one of"),
        ({"service_class": 1}, "service_class: 1; say one of"),
        ({"send_seconds": 0}, "must be more than 0"),
        ({"send_seconds": 20}, "must be at most 10; it is in seconds, and 20 ms are 0.020"),
        ({"work_seconds": -1}, "must be at least 0"),
        ({"send_seconds": True}, "True is not a number"),
        ({"send_seconds": float("nan")}, "nan is not a number"),
        ({"delete_seconds_per_message": 1.0}, "more than delete_seconds"),
    ],
)
def test_conditions_that_cannot_be_are_refused(change: dict[str, Any], complaint: str) -> None:
    """Each mistake is named with what was expected."""
    with pytest.raises(ConditionsError, match=complaint):
        read_conditions(a_document(**change))


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("visibility_timeout_seconds", 12 * 3600),
        ("payload_size_bytes", MiB),
        ("message_rate_per_second", 1_000_000),
        ("deleter_count_max", 1_000_000),
        ("message_group_count", 1_000_000_000),
        ("send_seconds_variation", 100),
        ("delete_seconds", 10),
        ("delivery_latency_seconds", 60),
    ],
)
def test_what_is_beyond_any_queue_is_a_slip_of_the_unit(name: str, most: int) -> None:
    """SQS's own bounds, and what nobody has."""
    assert getattr(read_conditions(a_document(**{name: most})), name) == most
    with pytest.raises(ConditionsError, match=f"{name}: must be at most {most:,}"):
        read_conditions(a_document(**{name: most + 1}))


def test_nothing_is_a_number_where_nothing_can_be() -> None:
    """No work, no wait, no variation; and what is whole may be written as a fraction."""
    nothing = dict.fromkeys(
        ("work_seconds", "receive_wait_seconds", "send_seconds_per_message", "delete_seconds_variation"), 0
    )
    found = read_conditions(a_document(deleter_count_max=2.0, latency_objective_seconds=None, **nothing))
    assert (found.work_seconds, found.delete_seconds_variation) == (0, 0)
    assert repr(found.deleter_count_max) == "2"


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
    found = plan(conditions)
    setting = found.setting
    threads = (setting.sender_thread_count, setting.receiver_thread_count, setting.deleter_thread_count)
    assert found.connection_pool_count == sum(threads) + 2
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


@pytest.mark.parametrize(
    ("receive_seconds", "each_seconds"), [(0.024, 0.004), (0.024, 0.02), (0.1, 0.005), (0.19, 0.0)]
)
def test_a_rescue_takes_as_long_as_its_requests(receive_seconds: float, each_seconds: float) -> None:
    """A batch of ten takes a single message's time and nine more messages'; all copies go before one is received."""
    stated = {
        "receive_seconds": receive_seconds,
        "receive_seconds_per_message": each_seconds,
        "delete_seconds_per_message": each_seconds,
    }
    found = plan_rescue(
        read_conditions(a_document(**stated)), undeleted_message_count=40_000, visible_message_count=10_000
    )
    receiver_rate = 10 / (receive_seconds + 9 * min(each_seconds, 0.95 * receive_seconds))
    rate = found.deleter_thread_count * 10 / (0.020286 + 9 * min(each_seconds, 0.95 * 0.020286))
    assert found.delete_rate_per_second == pytest.approx(rate)
    receive_rate = found.receiver_thread_count * receiver_rate
    assert found.receive_rate_per_second == pytest.approx(receive_rate)
    assert rate <= receive_rate < rate + receiver_rate
    paused_seconds = 40_000 / rate
    spare = min(rate, receive_rate) - 50
    after_seconds = paused_seconds + (10_000 + 50 * paused_seconds) / spare
    assert found.recovered_after_seconds == pytest.approx(after_seconds, rel=1e-3)


@pytest.mark.parametrize("rate", [50, 200, 12_000])
@pytest.mark.parametrize("work_seconds", [0.0, 0.01])
def test_a_rescue_has_receivers_for_its_deleters(rate: float, work_seconds: float) -> None:
    """150,000 messages are gone within minutes at rates that one receiver cannot carry, with work as without."""
    found = plan_rescue(
        read_conditions(a_document(message_rate_per_second=rate, work_seconds=work_seconds)),
        undeleted_message_count=30_000,
        visible_message_count=120_000,
    )
    assert found.receive_rate_per_second >= found.delete_rate_per_second > rate
    assert found.receiver_thread_count >= found.delete_rate_per_second * work_seconds
    assert found.recovered_after_seconds <= 240


def test_long_work_is_why_a_rescue_fails() -> None:
    """A minute for each message holds all receivers there may be, and more of what was sent comes than they take."""
    found = plan_rescue(
        read_conditions(a_document(work_seconds=60.0)), undeleted_message_count=10, visible_message_count=10
    )
    assert found.receive_rate_per_second < 50 < found.delete_rate_per_second
    assert found.recovered_after_seconds == float("inf")
