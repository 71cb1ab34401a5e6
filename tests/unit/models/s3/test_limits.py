"""What the processor and the network's driver say about where the limit is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from unittest import mock

import pytest

from penstock.models.model import Fit
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.optimizer.comparison import gain
from penstock.units import GiB, MiB
from penstock.vocabulary import Demand, Observation
from tests.unit.models.s3.upload_world import UploadWorld, a_context, a_place, a_setting
from tests.unit.models.told import told

MODEL = S3UploadModel()
SLOW = UploadWorld(host_bytes_per_second=300e6)
FAST = UploadWorld(host_bytes_per_second=600e6)
RAMP = (4, 16, 64, 128)


def noted(
    world: UploadWorld, threads: Iterable[int], note: Mapping[int, Mapping[str, float]], *, begin: int = 0
) -> list[Observation[S3UploadSetting]]:
    """Probes in a world, with what was noted beside those with so many threads, by processes that never waited."""
    found = [world.observe(a_setting(n), begin + index) for index, n in enumerate(threads)]
    notes = [note.get(observation.setting.thread_count, {}) for observation in found]
    return [
        replace(o, measures={**o.measures, **n}, client_cpu_fraction=n.get("client_cpu_demand_fraction", 0.0))
        for o, n in zip(found, notes, strict=True)
    ]


def fitted(world: UploadWorld, observations: list[Observation[S3UploadSetting]]) -> Fit:
    """The fit to these, without a neighbour."""
    return MODEL.fit(world.place, observations, prior=None, seed=1)


def bottleneck(world: UploadWorld, fit: Fit, threads: int = 128) -> str:
    """What limits with so many threads."""
    return MODEL.bottleneck(fit, world.context, a_setting(threads), Demand())


def full(worker_count: int) -> dict[str, float]:
    """Processes that had no time left."""
    return {"client_cpu_demand_fraction": 0.98, "worker_count": worker_count}


def working(world: UploadWorld, threads: Iterable[int], *, full_at: float) -> dict[int, dict[str, float]]:
    """One process that has no time left at so many bytes per second."""
    shares = {n: world.truth(a_setting(n)) / full_at for n in threads}
    return {n: {"client_cpu_demand_fraction": share, "worker_count": 1} for n, share in shares.items()}


def test_a_full_processor_is_named_and_not_the_network() -> None:
    """The same throughputs speak for the network as long as the client was idle."""
    idle = {n: {"client_cpu_demand_fraction": 0.3, "worker_count": 1} for n in RAMP}
    assert bottleneck(SLOW, fitted(SLOW, noted(SLOW, RAMP, idle))) == "host-ceiling"
    busy = fitted(SLOW, noted(SLOW, RAMP, idle | {64: full(1), 128: full(1)}))
    assert bottleneck(SLOW, busy) == "client-cpu"
    assert bottleneck(SLOW, busy, threads=4) == "connections"


def test_what_one_process_measured_at_its_limit_is_forgotten_when_two_measured() -> None:
    """It was the limit of the prober, and not of the host."""
    alone = noted(SLOW, RAMP, {64: full(1), 128: full(1)})
    two = noted(
        FAST, RAMP, {n: {"client_cpu_demand_fraction": 0.6, "worker_count": 2} for n in RAMP}, begin=4
    )
    fit = fitted(FAST, alone + two)
    expected = MODEL.predict(fit, FAST.context, a_setting(128), Demand())["throughput_bytes_per_second"]
    assert expected.expected == pytest.approx(FAST.truth(a_setting(128)), rel=0.1)
    assert bottleneck(FAST, fit) == "host-ceiling"
    assert fit.drift_count == 0


def test_an_hour_when_others_had_the_processor_does_not_bind_the_client_for_good() -> None:
    """What was faster at another time could not have been, were the processor the limit."""
    crowded = noted(SLOW, [64], {64: full(1)})
    later = noted(FAST, [*RAMP, 64, 128], working(FAST, RAMP, full_at=1.2e9), begin=1)
    fit = fitted(FAST, crowded + later)
    assert bottleneck(FAST, fit) == "host-ceiling"


def test_a_processor_that_is_half_full_says_what_all_of_it_would_do() -> None:
    """Before its limit is reached, and without the noise of the day: it slows the work and the counting alike."""
    few = (4, 16)
    quick = fitted(FAST, noted(FAST, few, working(FAST, few, full_at=2e9)))
    slow = fitted(FAST, noted(FAST, few, working(FAST, few, full_at=200e6)))
    assert bottleneck(FAST, quick) != "client-cpu"
    assert bottleneck(FAST, slow) == "client-cpu"


def test_waiting_for_a_processor_that_others_have_is_not_work() -> None:
    """Who wakes up rarely on a crowded host waits for long, and would have time left for hundreds of times as much."""
    few = (4, 16)
    crowded = noted(FAST, few, working(FAST, few, full_at=200e6))
    ran = [replace(o, client_cpu_fraction=0.02) for o in crowded]
    cpu_seconds = [fitted(FAST, some).parameters["cpu_seconds_per_byte"].expected for some in (crowded, ran)]
    assert bottleneck(FAST, fitted(FAST, ran)) != "client-cpu"
    assert cpu_seconds[1] < 0.2 * cpu_seconds[0]


def test_a_limit_is_named_only_where_it_is_sure() -> None:
    """Two small probes leave open whether the network or the processor, twice as fast as they were, gives first."""
    few = (4, 16)
    half = fitted(FAST, noted(FAST, few, working(FAST, few, full_at=400e6)))
    assert bottleneck(FAST, half) == "unsure"


def test_what_would_help_is_said() -> None:
    """On the rising side twice the connections, beyond the knee only a faster path; and that no ceiling was seen."""
    few = fitted(FAST, noted(FAST, [2, 4, 3, 4], {}))
    many = fitted(SLOW, noted(SLOW, [*RAMP, 64, 96], {}))
    rising = " ".join(told(MODEL, few, FAST.context, a_setting(4), Demand()))
    flat = " ".join(told(MODEL, many, SLOW.context, a_setting(48), Demand()))
    assert "No ceiling was seen with up to 4 connections." in rising
    assert float(rising.split("Twice the connections would bring ")[1].split(" %")[0]) > 70
    assert "No ceiling" not in flat
    # The same number gains little at the knee, where both hold it back.
    assert "%; the same number on a host and path" in flat
    assert float(flat.split("a host and path twice as fast would bring ")[1].split(" %")[0]) > 50


def test_what_more_would_bring_is_what_is_expected_elsewhere() -> None:
    """The report and the gain over clients count on average; where beliefs are skewed, the middle is another number."""
    few = fitted(FAST, noted(FAST, [2, 16, 24], {}))
    at, twice = a_setting(32), a_setting(64)
    words = " ".join(told(MODEL, few, FAST.context, at, Demand()))
    over = gain(MODEL, few, FAST.context, Demand(), setting=twice, reference=at).expected
    assert f"Twice the connections would bring {100 * (over - 1):+.0f} %" in words


def test_a_limit_of_connections_is_named_beside_what_more_would_bring() -> None:
    """Else the reader wonders why what brings so much is not advised."""
    few = fitted(FAST, noted(FAST, [2, 4, 3, 4], {}))
    held = 4 * a_setting(4).part_size_bytes
    limited, full, free = (
        " ".join(told(MODEL, few, FAST.context, a_setting(4), demand))
        for demand in (
            Demand(thread_count_max=4),
            Demand(memory_bytes_max=held),
            Demand(thread_count_max=8, memory_bytes_max=2 * held),
        )
    )
    assert re.search(r"Twice the connections would bring \+\d+ %, but no more than 4 are allowed; ", limited)
    assert re.search(
        r"Twice the connections would bring \+\d+ %, but that is more memory than is allowed; ", full
    )
    assert "allowed" not in free
    many = fitted(SLOW, noted(SLOW, [*RAMP, 64, 96], {}))
    falling = " ".join(told(MODEL, many, SLOW.context, a_setting(48), Demand(thread_count_max=48)))
    assert "allowed" not in falling  # where more bring nothing, nobody wonders


def test_a_ceiling_that_limits_is_not_said_to_be_unseen() -> None:
    """Small objects showed none with 256 connections; of large ones it is named, and one of both sentences is wrong."""
    unseen = fitted(FAST, noted(FAST, [2, 4, 3, 4], {}))
    setting, demand = a_setting(4), Demand()
    with mock.patch.object(type(MODEL), "bottleneck", return_value="host-ceiling"):
        assert "No ceiling" not in " ".join(told(MODEL, unseen, FAST.context, setting, demand))


def test_more_connections_than_requests_are_named_as_such() -> None:
    """Where each request has a connection, "twice the connections: +0 %" would contradict that they are the limit."""
    fit = fitted(FAST, noted(FAST, [2, 4, 3, 4], {}))
    whole = replace(FAST.context, payload_size_bytes=4 * a_setting(4).part_size_bytes)
    assert "each request already has one; a host" in " ".join(told(MODEL, fit, whole, a_setting(4), Demand()))


def test_that_more_connections_hurt_is_said() -> None:
    """Where throughput falls beyond the knee, nobody is told that twice as many bring something."""
    probes = noted(SLOW, [*RAMP, 64, 128, 256, 200, 32], {})
    crowded = [
        replace(o, duration_seconds=o.duration_seconds * (1.0 + 0.01 * max(o.setting.thread_count - 40, 0)))
        for o in probes
    ]
    said = told(MODEL, fitted(SLOW, crowded), SLOW.context, a_setting(128), Demand())[0]
    assert said.startswith("More connections make it slower")


def test_packets_that_the_host_held_back_are_the_ceiling() -> None:
    """Near the knee one probe that touched it says where it is; its throughput alone could be the connections'."""
    held = {"bw_out_allowance_exceeded": 40_000.0, "host_transmitted_packet_count": 400_000.0}
    world = UploadWorld(host_bytes_per_second=200e6)
    untold = fitted(world, noted(world, [4, 16], {}))
    told = fitted(world, noted(world, [4, 16], {16: held}))
    ceilings = [fit.parameters["host_bytes_per_second"] for fit in (untold, told)]
    widths = [ceiling.high / ceiling.low for ceiling in ceilings]
    assert widths[1] < 0.5 * widths[0]
    assert ceilings[1].low < 200e6 < ceilings[1].high
    assert bottleneck(world, told) == "host-ceiling"


def test_packets_held_back_with_the_fewest_connections_are_no_ceiling() -> None:
    """As long as nothing else was tried, or all were held back, nothing shows a plateau."""
    held = {"bw_out_allowance_exceeded": 40_000.0, "host_transmitted_packet_count": 400_000.0}
    for threads in ((4,), (4, 16)):
        plain, said = (noted(SLOW, threads, note) for note in ({}, dict.fromkeys(threads, held)))
        assert fitted(SLOW, said).state == fitted(SLOW, plain).state
        report = replace(noted(SLOW, [1], {}, begin=2)[0], client="boto3 of user 1000", measures={})
        assert fitted(SLOW, [*said, report]).state == fitted(SLOW, [*plain, report]).state


def test_a_path_with_two_states_is_told_by_what_each_gives() -> None:
    """A neighbour that takes half and comes and goes is no noise, and dips are no neighbour."""
    threads = (4, 16, 64, 24, 32, 28, 40, 20, 24, 32, 28, 36)
    calm = noted(SLOW, threads, {})
    shares = (0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0), (0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0)
    shared, dipped = (
        [
            replace(o, duration_seconds=o.duration_seconds * (1 + is_slow))
            for o, is_slow in zip(calm, slow, strict=True)
        ]
        for slow in shares
    )
    said = [
        " ".join(told(MODEL, fitted(SLOW, some), SLOW.context, a_setting(24), Demand()))
        for some in (calm, dipped)
    ]
    assert not any("two states" in words for words in said)
    words = " ".join(told(MODEL, fitted(SLOW, shared), SLOW.context, a_setting(24), Demand()))
    found = re.search(
        r"two states: [56] of 12 measurements point to about (\d+) MB/s, the others to (\d+) MB/s", words
    )
    assert found, words
    fast, slow = map(float, found.groups())
    assert (fast, slow) == pytest.approx((280, 140), rel=0.15)


def test_what_became_slower_once_has_no_two_states() -> None:
    """Too little for a change that is sure, and what comes next is as the last was."""
    calm = noted(SLOW, (4, 16, 64, 24, 32, 28, 40, 20, 24, 32, 28, 36), {})
    slower = [replace(o, duration_seconds=1.42 * o.duration_seconds) for o in calm[7:]]
    fit = fitted(SLOW, [*calm[:7], *slower])
    assert fit.changed_at is None
    assert "two states" not in " ".join(told(MODEL, fit, SLOW.context, a_setting(24), Demand()))


def test_an_application_that_is_slower_is_no_second_state() -> None:
    """What it reports differs from probes each time, and so the path does not."""
    probes = noted(SLOW, (4, 16, 64, 24, 32, 28, 40, 20), {})
    reports = [
        replace(o, duration_seconds=1.5 * o.duration_seconds, client="aws-cli of user 1000", measures={})
        for o in noted(SLOW, (24, 32, 28, 40, 20, 36), {}, begin=8)
    ]
    fit = fitted(SLOW, [*probes, *reports])
    assert "two states" not in " ".join(told(MODEL, fit, SLOW.context, a_setting(24), Demand()))


def test_a_burst_of_an_instant_is_no_ceiling() -> None:
    """A few packets of many are held back on any busy host."""
    few = {"bw_out_allowance_exceeded": 40.0, "host_transmitted_packet_count": 400_000.0}
    observations = noted(SLOW, [4, 16], {})
    noticed = noted(SLOW, [4, 16], {4: few, 16: few})
    assert fitted(SLOW, noticed).state == fitted(SLOW, observations).state


@pytest.mark.parametrize("share", [0.02, 0.05, 0.3])
def test_a_processor_that_was_idle_is_not_named(share: float) -> None:
    """Where the table's network is far from full, something else must be the limit, and not what had time left."""
    world = replace(SLOW, place=a_place(instance_type="c5n.18xlarge"))
    threads = (4, 16, 64, 128, 40, 96, 80)
    fit = fitted(world, noted(world, threads, working(world, threads, full_at=300e6 / share)))
    assert bottleneck(world, fit) == "host-ceiling"


def test_a_path_may_be_far_slower_than_the_host() -> None:
    """As through a gateway: what is measured of the ceiling counts, and not the table."""
    world = replace(SLOW, place=a_place(instance_type="c5n.18xlarge"))
    threads = (4, 16, 64, 128, 40, 96, 80, 32, 20, 100, 8, 50)
    fit = fitted(world, noted(world, threads, working(world, threads, full_at=1e9)))
    assert bottleneck(world, fit) == "host-ceiling"
    assert fit.parameters["host_bytes_per_second"].expected < 600e6


@pytest.mark.parametrize("host_bytes_per_second", [6e6, 12e6, 40e6])
def test_a_path_may_be_a_hundredth_of_the_host(host_bytes_per_second: float) -> None:
    """As an edge site's line: a plateau that seven transfers show is one, and is not promised three times over."""
    world = UploadWorld(
        place=a_place(instance_type="c6in.2xlarge"),
        host_bytes_per_second=host_bytes_per_second,
        connection_bytes_per_second=host_bytes_per_second / 8,
        request_seconds=0.13,
        noise=0.01,
        size=64 * MiB,
    )
    probed = [a_setting(*each) for each in ((4, 8), (13, 5), (12, 5), (9, 7.1), (8, 8), (12, 5.4), (10, 6.4))]
    fit = fitted(world, [world.observe(setting, index) for index, setting in enumerate(probed)])
    assert fit.parameters["host_bytes_per_second"].expected < 2 * host_bytes_per_second
    larger = MODEL.predict(fit, a_context(size=GiB, place=world.place), a_setting(26, 40), Demand())
    assert larger["throughput_bytes_per_second"].high < 2.5 * host_bytes_per_second


def test_packets_held_back_where_others_were_much_faster_are_no_ceiling() -> None:
    """The driver counts bursts of an instant, too: at a quarter of what the host reached they say nothing of it."""
    held = {"bw_out_allowance_exceeded": 40_000.0, "host_transmitted_packet_count": 400_000.0}
    plain = noted(SLOW, [4, 64, 128], {})
    said = noted(SLOW, [4, 64, 128], {4: held})
    assert fitted(SLOW, said).state == fitted(SLOW, plain).state
    assert fitted(SLOW, noted(SLOW, [4, 64, 128], {128: held})).state != fitted(SLOW, plain).state
