"""The known best against what can be worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.lab.link import LinkTruth
from penstock.lab.optimum import DOWNLOADS, UPLOADS, best_goodput_messages_per_second, calm
from penstock.lab.sqs import ActionTruth, QueueTruth
from penstock.lab.worlds import BURSTABLE, DEMO, PAPER, WORLDS
from penstock.units import MiB

A_PATH = LinkTruth(
    round_trip_seconds=0.05,
    connection_rate_bytes_per_second=1e6,
    host_rate_bytes_per_second=4e6,
    service_latency_seconds_median=0.05,
)


def test_a_reference_upload_takes_what_the_formula_says() -> None:
    """Eight parts on two threads: create and complete, and four turns of L + s/B."""
    object_size_bytes = 80_000_000
    got = UPLOADS.throughput_bytes_per_second(
        A_PATH, object_size_bytes, thread_count=2, request_size_bytes=10_000_000
    )
    assert got == pytest.approx(object_size_bytes / (2 * 0.1 + 4 * (0.1 + 10.0)))


def test_chance_is_that_of_the_seed() -> None:
    """What a link with chance lets through differs from seed to seed, and is the same for the same."""
    by_chance = dataclasses.replace(A_PATH, service_latency_sigma=0.5)
    for client in (UPLOADS, DOWNLOADS):
        first, again, other = (
            client.throughput_bytes_per_second(
                by_chance, 80_000_000, thread_count=2, request_size_bytes=10_000_000, seed=seed
            )
            for seed in (1, 1, 2)
        )
        assert first == again != other


def test_the_optimum_fills_the_host_with_few_threads() -> None:
    """At the best setting the host is nearly full, and nothing tried is better."""
    best = UPLOADS.optimum(A_PATH, 400_000_000)
    assert 0.97 * 4e6 < best.throughput_bytes_per_second < 4e6
    assert best.thread_count <= 8


def test_no_setting_beats_the_optimum() -> None:
    """The grid holds the settings that people use."""
    best = UPLOADS.optimum(DEMO.link, 256 * MiB)
    for thread_count in (10, 20, 32, 64):
        usual = UPLOADS.throughput_bytes_per_second(
            calm(DEMO.link), 256 * MiB, thread_count=thread_count, request_size_bytes=8 * MiB
        )
        assert usual <= best.throughput_bytes_per_second * (1 + 1e-9)


def test_an_object_smaller_than_a_part_goes_as_one() -> None:
    """Below the part size there is one request and one thread."""
    best = UPLOADS.optimum(A_PATH, 100_000)
    assert best.thread_count == 1
    assert best.throughput_bytes_per_second == pytest.approx(100_000 / (0.1 + 0.1))


def test_a_reference_download_takes_what_the_formula_says() -> None:
    """Eight ranges on two threads: four turns of L + s/B, and nothing is created or completed."""
    got = DOWNLOADS.throughput_bytes_per_second(
        A_PATH, 80_000_000, thread_count=2, request_size_bytes=10_000_000
    )
    assert got == pytest.approx(80_000_000 / (4 * (0.1 + 10.0)))


def test_throttled_parts_are_sent_again() -> None:
    """An upload under a request limit ends all the same."""
    throttled = dataclasses.replace(A_PATH, prefix_request_rate_per_second=4.0)
    slow, fast = (
        UPLOADS.throughput_bytes_per_second(truth, 40 * MiB, thread_count=8, request_size_bytes=5 * MiB)
        for truth in (throttled, A_PATH)
    )
    assert 0 < slow < fast


def test_a_burst_is_faster_than_what_is_sustained() -> None:
    """The two answers of a small instance differ by its two ceilings."""
    spent = calm(BURSTABLE.link)
    full = dataclasses.replace(
        spent, host_rate_bytes_per_second=BURSTABLE.link.burst_rate_bytes_per_second or 0.0
    )
    sustained, burst = (
        UPLOADS.throughput_bytes_per_second(truth, 1024 * MiB, thread_count=40, request_size_bytes=8 * MiB)
        for truth in (spent, full)
    )
    assert sustained < 94e6 < 5 * sustained < burst


def test_the_best_goodput_is_ten_times_the_lowest_limit() -> None:
    """Where a request limit binds, batches of ten are all there is."""
    assert best_goodput_messages_per_second(DEMO.queue) == pytest.approx(600)


def test_the_best_goodput_is_the_peak_of_the_scalability_law() -> None:
    """With kappa the best concurrency is near sqrt((1 - sigma) / kappa)."""
    action = ActionTruth(request_seconds=0.01)
    truth = QueueTruth(send=action, receive=action, delete=action, contention=0.0, coherency=0.01)
    expected = 10 * 10 / (0.03 * (1 + 0.01 * 10 * 9))
    assert best_goodput_messages_per_second(truth) == pytest.approx(expected)


def test_the_demo_is_worth_tuning() -> None:
    """More connections than boto3's ten are needed: its defaults get less than half of the best."""
    best = UPLOADS.optimum(DEMO.link, 256 * MiB)
    default = UPLOADS.throughput_bytes_per_second(
        calm(DEMO.link), 256 * MiB, thread_count=10, request_size_bytes=8 * MiB
    )
    assert 24 <= best.thread_count <= 32
    assert default < 0.5 * best.throughput_bytes_per_second


def test_the_demos_download_is_worth_tuning() -> None:
    """Also of reads boto3's ten connections are too few, by a third at the least."""
    assert DEMO.inbound is not None
    best = DOWNLOADS.optimum(DEMO.inbound, 256 * MiB)
    default = DOWNLOADS.throughput_bytes_per_second(
        calm(DEMO.inbound), 256 * MiB, thread_count=10, request_size_bytes=8 * MiB
    )
    assert default < 0.6 * best.throughput_bytes_per_second


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_every_world_has_a_best(name: str) -> None:
    """Each named world can be visited: its best is positive and within its host."""
    world = WORLDS[name]
    assert world.name == name
    best = UPLOADS.optimum(world.link, 64 * MiB, request_sizes_bytes=(8 * MiB,))
    assert 0 < best.throughput_bytes_per_second < 1.0001 * world.link.host_rate_bytes_per_second
    inbound = world.inbound or world.link
    read = DOWNLOADS.optimum(inbound, 64 * MiB, request_sizes_bytes=(8 * MiB,))
    assert 0 < read.throughput_bytes_per_second < 1.0001 * inbound.host_rate_bytes_per_second
    assert best_goodput_messages_per_second(world.queue) > 0


def test_the_papers_deleter_is_slower_than_its_sender() -> None:
    """The world of 2011 has the 1.43 % that it is about."""
    ratio = PAPER.queue.delete.request_seconds / PAPER.queue.send.request_seconds
    assert ratio == pytest.approx(1.0143, abs=1e-4)
