import dataclasses

import numpy as np
import pytest

from bench.sqs_world import HinderedWorld, play
from penstock.lab.sqs import ActionTruth, QueueTruth
from penstock.models.model import Array
from penstock.models.sqs import learning
from penstock.models.sqs.physics import Drive, QueueCosts, forecast, request_seconds
from penstock.models.sqs.setting import RATE_LIMIT_MAX, complete_setting
from penstock.probes.sqs.conduct import Conduct
from penstock.trial.simulated_host import World
from penstock.vocabulary import Demand


def some_costs(**changes: float) -> QueueCosts:
    """16 ms a request and 4 ms a message, and nothing that limits beside it."""
    values = {
        "send_request_seconds": 0.016,
        "send_message_seconds": 0.004,
        "receive_request_seconds": 0.016,
        "receive_message_seconds": 0.004,
        "delete_request_seconds": 0.016,
        "delete_message_seconds": 0.004,
        "payload_seconds_per_byte": 0.0,
        "contention_fraction": 0.0,
        "coherence_fraction": 0.0,
        "delivery_seconds": 0.020,
        "variation_fraction": 1.0,
        "efficiency_fraction": 1.0,
        "request_rate_max_per_second": 1e9,
        "client_request_rate_max_per_second": 1e9,
    } | changes
    return QueueCosts(**{name: np.array([[value]]) for name, value in values.items()})


def a_drive(**changes: float) -> Drive:
    """One thread of each, single messages, nothing bounded."""
    values = {
        "sender_count": 1.0,
        "receiver_count": 1.0,
        "deleter_count": 1.0,
        "batch_message_count": 1.0,
        "send_rate_limit_per_second": 0.0,
        "send_window": 0.0,
        "receive_window": 0.0,
    } | changes
    columns = {name: np.array([value]) for name, value in values.items()}
    return Drive(
        sender_count=columns["sender_count"],
        receiver_count=columns["receiver_count"],
        deleter_count=columns["deleter_count"],
        batch_message_count=columns["batch_message_count"],
        send_rate_limit_per_second=columns["send_rate_limit_per_second"],
        send_window=columns["send_window"],
        receive_window=columns["receive_window"],
        payload_size_bytes=1024.0,
    )


def only(values: Array) -> float:
    assert values.shape == (1, 1)
    return float(values[0, 0])


@pytest.mark.parametrize(("hosts", "batch", "published"), [(1, 1, 700), (2, 1, 1450), (1, 10, 2500)])
def test_two_constants_are_the_aws_guide(hosts: int, batch: int, published: float) -> None:
    """14 threads a host: 700, 1,450 and, in batches of ten, 2,500 messages a second within 5 %."""
    threads = 14.0 * hosts
    drive = a_drive(
        sender_count=threads, receiver_count=threads, deleter_count=threads, batch_message_count=batch
    )
    assert only(forecast(some_costs(), drive).goodput) == pytest.approx(published, rel=0.05)


@pytest.mark.parametrize(
    ("thread_count", "published"), [(10, 510), (25, 1081), (50, 1887), (100, 2493), (250, 2022)]
)
def test_threads_crowd_as_published(thread_count: int, published: float) -> None:
    """Receive calls at 10 to 250 at a time, as go-cloud measured them, each within 5 %."""
    costs = some_costs(
        receive_request_seconds=1 / 51.7,
        receive_message_seconds=0.0,
        contention_fraction=0.0042,
        coherence_fraction=6.9e-5,
    )
    seconds = request_seconds(costs, "receive", np.array([1.0]), 0.0, np.array([float(thread_count)]))
    assert thread_count / only(seconds) == pytest.approx(published, rel=0.05)


def test_the_slowest_stage_decides() -> None:
    """A deleter half as fast halves the goodput; a client or a service that takes less bounds it."""
    slow = some_costs(delete_request_seconds=0.036)
    assert only(forecast(slow, a_drive()).goodput) == pytest.approx(25.0)
    assert only(forecast(some_costs(request_rate_max_per_second=10.0), a_drive()).goodput) == 10.0
    assert only(
        forecast(some_costs(client_request_rate_max_per_second=30.0), a_drive()).goodput
    ) == pytest.approx(10.0)


@pytest.mark.parametrize("spent_seconds", [0.004, pytest.param(0.002, marks=pytest.mark.days)])
@pytest.mark.parametrize(
    ("senders", "others", "batch"),
    [(8, 9, 10), (16, 13, 10), (24, 20, 10), (24, 30, 10), (20, 20, 4), (12, 12, 1)],
)
def test_spare_threads_take_half_full_batches_of_a_busy_client(
    senders: int, others: int, batch: int, spent_seconds: float
) -> None:
    """With a client short of CPU each stage gets what its threads can hold on to: as simulated, within a tenth."""
    request = ActionTruth(request_seconds=0.016, message_seconds=0.004, variation=0.5)
    queue = QueueTruth(
        send=request, receive=request, delete=request, spread_seconds_median=0.004, spread_sigma=0.3
    )
    world = HinderedWorld(queue=queue, client_seconds_per_request=spent_seconds)
    conduct = Conduct(
        sender_count=senders,
        receiver_count=others,
        deleter_count=others,
        send_batch=batch,
        receive_batch=batch,
        delete_batch=batch,
        send_window=batch * (3 * senders + 8),
        long_polls=True,
    )
    total = play(world, conduct, 10.0, seed=1).total
    costs = some_costs(variation_fraction=0.5, client_request_rate_max_per_second=1.0 / spent_seconds)
    drive = a_drive(
        sender_count=senders,
        receiver_count=others,
        deleter_count=others,
        batch_message_count=batch,
        send_window=conduct.send_window,
    )
    assert only(forecast(costs, drive).goodput) == pytest.approx(total.received_count / 10.0, rel=0.1)


@pytest.mark.parametrize(
    ("send", "receive", "batch", "receivers"),
    [(0.050, 0.004, 1, 2), (0.140, 0.138, 9, 2), (0.140, 0.138, 4, 4), (0.020, 0.020, 5, 2)],
)
def test_a_message_comes_as_soon_as_a_poll_is_there(
    send: float, receive: float, batch: int, receivers: int
) -> None:
    """Before its sender has the answer, or only when a receiver is back: as simulated, within 15 %."""
    chance = {"variation": 0.2}
    queue = QueueTruth(
        send=ActionTruth(request_seconds=send, **chance),
        receive=ActionTruth(request_seconds=receive, **chance),
        delete=ActionTruth(request_seconds=0.010, **chance),
        spread_seconds_median=0.004,
        spread_sigma=0.5,
    )
    rate = 0.8 * batch / send
    conduct = Conduct(
        receiver_count=receivers,
        deleter_count=2,
        send_batch=batch,
        receive_batch=batch,
        delete_batch=batch,
        send_rate_limit_per_second=rate,
        long_polls=True,
    )
    total = play(World(queue=queue), conduct, 60.0, seed=1).total
    costs = some_costs(
        send_request_seconds=send,
        send_message_seconds=1e-6,
        receive_request_seconds=receive,
        receive_message_seconds=1e-6,
        delete_request_seconds=0.010,
        delete_message_seconds=1e-6,
        delivery_seconds=0.0045 + receive / 2.0,
        variation_fraction=0.2,
    )
    drive = a_drive(
        receiver_count=receivers,
        deleter_count=2,
        batch_message_count=batch,
        send_rate_limit_per_second=rate,
    )
    assert only(forecast(costs, drive).latency_seconds) == pytest.approx(total.latency_seconds_mean, rel=0.15)


def test_a_full_send_window_bounds_the_latency() -> None:
    """Little: with a slow receiver the wait is the window over the rate, and without a window it grows."""
    slow = some_costs(receive_request_seconds=0.096)
    windowed = forecast(slow, a_drive(send_window=5.0))
    assert only(windowed.latency_seconds) == pytest.approx(0.5, rel=0.05)
    assert only(forecast(slow, a_drive()).latency_seconds) > 1.0


def test_payload_costs_time_to_send_and_receive_but_not_to_delete() -> None:
    """1 MB at 10 MB/s are 100 ms."""
    costs = some_costs(payload_seconds_per_byte=1e-7)
    drive = dataclasses.replace(a_drive(), payload_size_bytes=1e6)
    outcome = forecast(costs, drive)
    assert only(outcome.send_rate) == pytest.approx(1 / 0.120)
    assert only(outcome.receive_rate) == pytest.approx(1 / 0.120)
    assert only(outcome.delete_rate) == pytest.approx(50.0)


def test_no_rate_is_advised_that_cannot_be_set() -> None:
    """256 threads with batches of ten carry more than the knob says: what is advised has to be legal."""
    fast = {
        f"{action}_{what}_seconds": 1e-4
        for action in ("send", "receive", "delete")
        for what in ("request", "message")
    }
    setting = complete_setting(
        some_costs(**fast), 100, Demand(), batch=10, sender_count=200, visibility_timeout_seconds=30.0
    )
    assert setting.send_rate_limit_messages_per_second == RATE_LIMIT_MAX


def test_the_likeliest_value_of_a_parameter_lies_within_its_interval() -> None:
    """Also where nine of ten draws went elsewhere, as contradictory measurements have them do."""
    draws = np.tile(np.linspace(-1.0, 0.0, 100)[:, None], (1, 20))
    for mode in (-3.0, -0.5, 2.0):
        found = learning._parameters(draws, np.full(20, mode), (1e9, 1e9))
        assert all(e.low <= e.expected <= e.high for e in found.values())
