"""A world of the benchmarks is the lab's queue with a host of its own: a core, stops of its deleters, a full heap."""

from dataclasses import replace

import pytest

from bench.sqs_world import HinderedWorld, observe, play
from penstock.lab.sqs import ActionTruth, QueueTruth
from penstock.probes.sqs.conduct import BLAST, Conduct
from tests.factories import a_queue_setting

REQUEST = ActionTruth(request_seconds=0.020, variation=0.3)
QUICK = HinderedWorld(
    queue=QueueTruth(send=REQUEST, receive=REQUEST, delete=REQUEST, spread_seconds_median=0.004)
)
MANY = Conduct(
    sender_count=20, receiver_count=20, deleter_count=20, send_window=100, receive_batch=1, long_polls=True
)


def test_a_stopped_deleter_lets_each_message_come_once_in_a_timeout() -> None:
    """With deletes that never go through, copies come back again and again."""
    world = replace(
        QUICK, queue=replace(QUICK.queue, visibility_timeout_seconds=5), deleter_outages=((0.0, 1000.0),)
    )
    tally = play(world, replace(BLAST, send_rate_limit_per_second=1.0), 60.0, seed=1)
    assert tally.total.received_count == pytest.approx(60, abs=2)
    assert tally.rate_between("duplicate_count", 0.0, 5.0) == 0
    assert tally.total.duplicate_count == pytest.approx(sum((60 - at) // 5 for at in range(60)), rel=0.1)
    assert tally.total.deleted_count == 0


def test_what_could_not_be_sent_is_sent_after_the_stop() -> None:
    """What is offered piles up while the deletes stand still and the rules hold the sender back."""
    conduct = replace(BLAST, offered_per_second=20.0, oldest_undeleted_seconds_max=1.0)
    tally = play(replace(QUICK, deleter_outages=((10.0, 20.0),)), conduct, 60.0, seed=1)
    assert tally.rate_between("sent_count", 12.5, 19.5) == 0
    assert tally.total.sent_count == pytest.approx(1200, abs=3)


def test_one_core_bounds_all_requests() -> None:
    """2 ms of one core a request are 500 requests a second, whatever the threads."""
    tally = play(replace(QUICK, client_seconds_per_request=0.002), MANY, 10.0, seed=1)
    assert tally.total.request_count / 10.0 == pytest.approx(500, rel=0.05)


def test_a_probe_says_how_busy_the_core_was() -> None:
    """As a real one does, whose processor cannot be asked in virtual time."""
    setting = a_queue_setting(4, 4, 4, batch=1)
    idle, busy = (
        observe(replace(QUICK, client_seconds_per_request=seconds), setting, seed=1)
        for seconds in (0.0002, 0.002)
    )
    assert idle.client_cpu_fraction < 0.2
    assert busy.client_cpu_fraction > 0.8


def test_a_full_heap_ends_the_run() -> None:
    """Where garbage is collected for three quarters of the time, nobody waits for the application any more."""
    conduct = replace(BLAST, sender_count=4)
    tally = play(replace(QUICK, heap_entry_count_max=1000), conduct, 600.0, seed=1)
    assert tally.duration_seconds < 100.0


def test_the_same_seed_gives_the_same_run() -> None:
    """Chance is an argument."""
    first, second = (play(QUICK, MANY, 5.0, seed=7) for _ in range(2))
    assert first == second
