from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lab.backlog_walk import oldest_undeleted_seconds
from penstock.lab.queue_campaign import BLAST, Conduct, QueueCampaign, QueueWorld, RequestTime

QUICK = QueueWorld(variation=0.3, propagation_seconds=(0.002, 0.006))


@settings(max_examples=25, deadline=None)
@given(
    senders=st.integers(1, 6),
    receivers=st.integers(1, 6),
    deleters=st.integers(1, 6),
    batch=st.integers(1, 10),
    window=st.integers(0, 60),
    long_polls=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_messages_are_conserved(
    *, senders: int, receivers: int, deleters: int, batch: int, window: int, long_polls: bool, seed: int
) -> None:
    """However it is driven: nothing is received that was not sent, nor deleted that was not received."""
    conduct = Conduct(
        sender_count=senders,
        receiver_count=receivers,
        deleter_count=deleters,
        send_batch=batch,
        delete_batch=batch,
        send_window=max(window, batch),
        receive_window=100,
        long_polls=long_polls,
    )
    total = QueueCampaign(QUICK, conduct, seed=seed).run(20.0).total
    assert total.deleted <= total.received_unique <= total.sent + senders * batch
    assert total.deleted > 0
    assert total.sent - total.received_unique <= max(window, batch)


def test_an_undeleted_message_comes_again_after_the_timeout() -> None:
    """With the deleter stopped, each message comes once in a visibility timeout."""
    world = replace(QUICK, visibility_timeout_seconds=5.0, deleter_outages=((0.0, 1000.0),))
    conduct = replace(BLAST, send_rate_limit_per_second=1.0)
    result = QueueCampaign(world, conduct, seed=1, sample_seconds=1.0).run(60.0)
    assert result.total.received_unique == pytest.approx(60, abs=2)
    assert result.rate_between("received_again", 0.0, 5.0) == 0
    assert result.total.received_again == pytest.approx(sum((60 - at) // 5 for at in range(60)), rel=0.1)


def test_the_rate_limit_and_the_offer_hold() -> None:
    """The limit bounds the pace; what is offered and could not be sent is sent later."""
    limited = QueueCampaign(QUICK, replace(BLAST, send_rate_limit_per_second=20.0), seed=1).run(60.0)
    assert limited.goodput_per_second == pytest.approx(20.0, rel=0.02)
    stopped = replace(QUICK, deleter_outages=((10.0, 20.0),))
    conduct = replace(BLAST, offered_per_second=20.0, oldest_undeleted_seconds_max=1.0)
    caught_up = QueueCampaign(stopped, conduct, seed=1, sample_seconds=1.0).run(60.0)
    assert caught_up.rate_between("sent", 12.0, 19.0) == 0
    assert caught_up.total.sent == pytest.approx(1200, abs=3)


def test_one_core_bounds_all_requests() -> None:
    """2 ms of one core a request are 500 requests a second, whatever the threads."""
    world = replace(QUICK, client_seconds_per_request=0.002)
    conduct = Conduct(
        sender_count=20,
        receiver_count=20,
        deleter_count=20,
        send_window=100,
        receive_batch=1,
        long_polls=True,
    )
    total = QueueCampaign(world, conduct, seed=1).run(20.0).total
    requests = total.send_requests + total.receive_requests + total.delete_requests
    assert requests / 20.0 == pytest.approx(500, rel=0.05)


def test_garfinkel_was_bound_by_one_request_at_a_time() -> None:
    """228 ms a send are 4.3 a second; 194 ms a receive and 192 ms a delete are 2.6, and 5.2 by 256 at a time."""
    send, receive, delete = (RequestTime(fixed_seconds=s) for s in (0.228, 0.194, 0.192))
    assert 1 / send.mean_seconds(1) == pytest.approx(4.3, rel=0.05)
    assert 1 / (receive.mean_seconds(1) + delete.mean_seconds(1)) == pytest.approx(2.6, rel=0.05)
    assert 256 / (receive.mean_seconds(256) + 256 * delete.mean_seconds(1)) == pytest.approx(5.2, rel=0.05)


@pytest.mark.parametrize(("load", "age_seconds"), [(0.5, 0.0), (1.1, 3600.0 * (1 - 1 / 1.1))])
def test_the_backlog_ages_by_what_the_deleter_lacks(load: float, age_seconds: float) -> None:
    """With room it stays young; at load rho the head of the line is 1 - 1/rho of the time old."""
    ages = oldest_undeleted_seconds(
        arrival_rate_per_second=50.0,
        load=load,
        variation=1.0,
        duration_seconds=3600.0,
        sample_seconds=1.0,
        seed=1,
    )
    assert ages[-1] == pytest.approx(age_seconds, rel=0.1, abs=0.5)
