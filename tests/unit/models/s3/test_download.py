"""What the download model learns, and what it answers: of whole objects, of ranges here and there, into files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from penstock.models.model import Fit
from penstock.models.s3.download import S3DownloadModel, S3DownloadSetting
from penstock.models.s3.read_objects import READ_OBJECT_BYTES_MAX
from penstock.models.s3.upload import S3UploadModel
from penstock.optimizer import evidence
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import Access, Basis, Demand, Objective, Observation, Origin, Recommendation, Sink
from tests.factories import S3_TARIFF, recommended
from tests.unit.models.s3 import upload_world
from tests.unit.models.s3.download_world import DownloadWorld, a_context, a_place, a_setting, history
from tests.unit.models.s3.upload_world import UploadWorld
from tests.unit.models.told import told

MODEL = S3DownloadModel()
NEAR = DownloadWorld(size=4 * GiB)
FAR = DownloadWorld(
    first_byte_seconds=0.17, connection_bytes_per_second=20e6, host_bytes_per_second=400e6, size=4 * GiB
)
EVERY_WORLD = pytest.mark.parametrize("world", [NEAR, FAR], ids=["near", "far"])


def fitted(observations: Sequence[Observation[S3DownloadSetting]], *, prior: Fit | None = None) -> Fit:
    return MODEL.fit(a_place(), observations, prior=prior, seed=0)


def advice(fit: Fit, size: int = 4 * GiB, demand: Demand | None = None) -> Recommendation[S3DownloadSetting]:
    return recommended(MODEL, fit, a_context(size=size), demand or Demand())


def test_without_knowledge_it_does_as_boto3() -> None:
    """Ten threads and ranges of 8 MiB; what is smaller goes in one GET."""
    assert MODEL.default_setting(a_context()) == a_setting(10, 8)
    assert MODEL.default_setting(a_context(size=3 * MiB)) == a_setting(10, 3)


@EVERY_WORLD
def test_eight_probes_are_enough(world: DownloadWorld) -> None:
    """The advice reaches 97 % of the best, near and far, with little more than the connections that takes."""
    found = advice(fitted(history(world, 8))).setting
    best = max(world.truth(a_setting(n, mib)) for n in range(1, 257, 3) for mib in (4, 8, 16, 32))
    assert world.truth(found) > 0.97 * best
    assert found.thread_count <= 64


@pytest.mark.parametrize("is_straggler", [True, False], ids=["one is late", "all are slow"])
def test_one_request_that_is_late_is_no_server_that_collapses(is_straggler: bool) -> None:
    """All wait for one of 64 ranges, which says little of 64; where each of them took as long it says what it seems."""
    world = DownloadWorld(size=64 * MiB)
    seen = [world.observe(a_setting(*pair), index) for index, pair in enumerate(((4, 8), (16, 4), (64, 1)))]
    late_seconds = seen[-1].duration_seconds + 1.0
    usual = seen[-1].measures["range_seconds_mean"]
    ranges = (
        {"mean": usual, "p90": 1.3 * usual} if is_straggler else {"mean": late_seconds, "p90": late_seconds}
    )
    measures = {**seen[-1].measures, **{f"range_seconds_{name}": value for name, value in ranges.items()}}
    seen[-1] = replace(seen[-1], duration_seconds=late_seconds, measures=measures)
    wide = MODEL.predict(fitted(seen), world.context, a_setting(64, 1), Demand())[
        "throughput_bytes_per_second"
    ]
    share = wide.expected / world.truth(a_setting(64, 1))
    assert share > 0.4 if is_straggler else share < 0.2


def test_one_probe_tells_the_first_byte_from_the_body() -> None:
    """Sizes need not differ: what passed before the first byte was timed."""
    told = NEAR.observe(a_setting(4), 0)
    untold = replace(told, measures={k: v for k, v in told.measures.items() if not k.startswith("first")})
    widths = []
    for observation in (told, untold):
        latency = fitted([observation]).parameters["request_seconds"]
        assert latency.low < NEAR.first_byte_seconds < latency.high
        widths.append(latency.high / latency.low)
    assert widths[0] < 0.6 * widths[1]


@EVERY_WORLD
def test_random_ranges_follow_from_whole_objects(world: DownloadWorld) -> None:
    """A reader of 256 KiB here and there is advised from probes of large ranges, and needs many more of them."""
    fit = fitted(history(world, 8))
    demand = Demand(access=Access.RANDOM, range_size_bytes=256 * KiB)
    found = advice(fit, 4 * GiB, demand)
    n = found.setting.thread_count
    predicted, truth = found.prediction["throughput_bytes_per_second"], world.rate(n, 256 * KiB)
    assert found.setting.range_size_bytes == 256 * KiB
    assert predicted.low < truth < predicted.high
    assert predicted.expected > 0.5 * truth  # a limit on requests was never met, and may be there
    assert truth > 0.9 * world.host_bytes_per_second
    assert n > 2 * advice(fit).setting.thread_count


@pytest.mark.parametrize("counts", [(2, 4, 6, 8), (2, 4, 6, 8, 16), (4, 16, 64, 30, 40, 50)])
def test_where_no_ceiling_was_seen_random_ranges_go_one_step_further(counts: Sequence[int]) -> None:
    """Twice the threads that were measured, however many probes of whole objects there were: not what physics says."""
    rising = DownloadWorld(connection_bytes_per_second=5e6, host_bytes_per_second=50e9, size=4 * GiB)
    probes = [rising.observe(a_setting(n), index) for index, n in enumerate(counts)]
    fit = evidence.attach(fitted(probes), MODEL, probes)
    found = advice(fit, demand=Demand(access=Access.RANDOM, range_size_bytes=256 * KiB)).setting
    assert max(counts) < found.thread_count <= 2 * max(counts)


def test_many_small_objects_are_a_stream() -> None:
    """Objects of 64 KiB go whole; threads count how many of them are on their way."""
    found = advice(fitted(history(NEAR, 8)), 64 * KiB)
    assert found.setting.range_size_bytes == 64 * KiB
    predicted = found.prediction["throughput_bytes_per_second"]
    assert predicted.low < NEAR.rate(found.setting.thread_count, 64 * KiB) < predicted.high
    assert found.setting.thread_count > 64


def moved_below_a_limit(threads: int, index: int) -> Observation[S3DownloadSetting]:
    """Eighty objects of 64 KiB in 0.16 s each, from a store that takes 20 requests a second."""
    wanted, limit = threads / 0.16, 20.0
    seconds, refused = 80 / min(wanted, limit), round(80 * max(0.0, 1.0 - limit / wanted))
    return Observation(
        context=a_context(size=64 * KiB),
        setting=a_setting(threads, 1 / 16),
        started_at=datetime(2026, 3, 1, index, tzinfo=UTC),
        duration_seconds=seconds,
        transferred_bytes=80 * 64 * KiB,
        request_count=80 + refused,
        throttled_count=refused,
        measures={},
    )


def test_a_store_that_refuses_early_is_believed() -> None:
    """Tables know of limits a hundred times as high: neither these nor what one thread showed is explained away."""
    probes = [moved_below_a_limit(n, index) for index, n in enumerate((4, 1, 4, 1, 4, 1, 1, 1))]
    fit = evidence.attach(fitted(probes), MODEL, probes)
    limit = fit.parameters["prefix_requests_per_second"]
    assert limit.low < 25.0
    assert limit.expected < 30.0
    for threads in (1, 2):
        told = MODEL.predict(fit, a_context(size=64 * KiB), a_setting(threads, 1 / 16), Demand())
        truth = threads / 0.16 * 64 * KiB
        assert told["throughput_bytes_per_second"].expected == pytest.approx(truth, rel=0.15)
    assert advice(fit, 64 * KiB).setting.thread_count == 3, "between what went well and what did not"


@pytest.mark.parametrize("objective", list(Objective))
def test_the_first_byte_is_predicted(objective: Objective) -> None:
    """When it comes, with the tail that was measured: whatever the application aims at."""
    told = {"first_byte_seconds_p50": 0.03, "first_byte_seconds_p99": 0.12}
    probes = [NEAR.observe(a_setting(16, 4), i, told) for i in range(3)]
    found = advice(fitted(probes), demand=Demand(objective=objective)).prediction["first_byte_seconds"]
    assert found.expected == pytest.approx(0.03)
    assert 0.06 < found.high < 0.12


@pytest.mark.parametrize(
    ("again", "warm_seconds", "is_said"),
    [(1.0, 0.01, True), (1.0, 0.028, False), (0.5, 0.01, False)],
    ids=["sooner", "as soon", "mixed"],
)
def test_it_is_said_where_second_readings_are_answered_sooner(
    again: float, warm_seconds: float, *, is_said: bool
) -> None:
    """Three first readings and three second ones tell; what is half of each tells nothing."""
    probes = [
        NEAR.observe(
            a_setting(16, 4), i, {"first_byte_seconds_p50": seconds, "read_before_fraction": fraction}
        )
        for i, (seconds, fraction) in enumerate([(0.03, 0.0)] * 3 + [(warm_seconds, again)] * 3)
    ]
    said = " ".join(told(MODEL, fitted(probes), a_context(), a_setting(16, 4), Demand()))
    assert ("had been read before began to arrive after 10 ms, other data after 30 ms" in said) is is_said


def test_a_request_is_asked_again_after_the_tail_that_was_measured() -> None:
    """Twice the tail is twice the time-out, a little above the slowest of a hundred."""
    timeouts = []
    for ratio in (2.0, 4.0):
        probes = [
            replace(
                NEAR.observe(a_setting(16, 4), i), latency_seconds_p50=0.1, latency_seconds_p99=0.1 * ratio
            )
            for i in range(3)
        ]
        timeouts.append(
            MODEL.derive(fitted(probes), a_context(), a_setting(8, 8), Demand())["hedge_timeout_seconds"]
        )
    usual = NEAR.first_byte_seconds + 8 * MiB / NEAR.connection_bytes_per_second
    assert timeouts[1] == pytest.approx(2 * timeouts[0], rel=0.2)
    assert 2.0 * usual < timeouts[0] < 4.0 * usual


def test_readers_are_told_their_sizes() -> None:
    """A hole is worth reading through while that takes less than a request; blocks are large against it."""
    found = advice(fitted(history(NEAR, 8)))
    hole = NEAR.first_byte_seconds * NEAR.connection_bytes_per_second
    derived, setting = found.derived, found.setting
    assert derived["coalesced_gap_bytes"] == pytest.approx(hole, rel=0.4)
    assert derived["block_size_bytes"] == pytest.approx(9 * derived["coalesced_gap_bytes"], rel=1e-3)
    assert derived["read_ahead_bytes"] == setting.thread_count * setting.range_size_bytes
    assert derived["connection_pool_count"] > setting.thread_count


def test_what_waits_for_a_slow_file_stays_within_memory() -> None:
    """boto3 holds a thousand chunks for its file: they get smaller with the memory that is allowed."""
    fit = fitted(history(NEAR, 4))
    plain, tight = (
        MODEL.derive(fit, a_context(), a_setting(4), Demand(memory_bytes_max=most))["io_chunk_bytes"]
        for most in (None, 64 * MiB)
    )
    assert plain == 256 * KiB
    assert 1000 * tight <= 64 * MiB


# --- Files ---


def reports_into_a_file(rate: float) -> list[Observation[S3DownloadSetting]]:
    """Of an application whose file takes so much."""
    found = [NEAR.observe(a_setting(16), 10 + i, {"sink_bytes_per_second": rate}) for i in range(3)]
    return [
        replace(o, duration_seconds=o.transferred_bytes / rate, origin=Origin.APPLICATION, client="boto3")
        for o in found
    ]


def test_the_disk_is_named_where_it_is_the_limit() -> None:
    """To who writes into a file the disk is the bottleneck; what memory takes is as before."""
    fit = fitted([*history(NEAR, 6), *reports_into_a_file(150e6)])
    file, memory = (advice(fit, demand=Demand(sink=sink)) for sink in (Sink.FILE, Sink.MEMORY))
    assert file.bottleneck == "disk"
    assert "the disk cannot take more" in file.explanation
    assert file.prediction["throughput_bytes_per_second"].high == pytest.approx(150e6)
    assert file.setting.thread_count < memory.setting.thread_count
    assert memory.prediction["throughput_bytes_per_second"].expected > 1e9
    assert memory.bottleneck != "disk"


def test_a_slow_file_teaches_nothing_of_the_network() -> None:
    """The law is fitted as if such reports had not come."""
    probes = history(NEAR, 6)
    assert fitted([*probes, *reports_into_a_file(150e6)]).parameters == fitted(probes).parameters


def test_a_slow_file_is_no_lie() -> None:
    """A report that its file held back agrees with what is expected of it."""
    residual, deviation = MODEL.discrepancies(fitted(history(NEAR, 6)), reports_into_a_file(150e6))
    assert abs(residual[0, 0]) < deviation[0, 0]


# --- The other direction ---


def an_upload_fit(*, is_far: bool) -> Fit:
    world = UploadWorld(
        request_seconds=0.2 if is_far else 0.03,
        connection_bytes_per_second=5e6 if is_far else 20e6,
        host_bytes_per_second=400e6,
    )
    return S3UploadModel().fit(world.place, upload_world.history(world, 8), prior=None, seed=0)


def test_uploads_of_a_place_say_how_far_it_is() -> None:
    """Where uploads are slow to begin and slow to go, downloads are believed to be, before one was made."""
    upload = an_upload_fit(is_far=True)
    table, far = fitted(()), fitted((), prior=upload)
    slower, name = far.parameters["request_seconds"], "connection_bytes_per_second"
    assert slower.expected > 1.5 * table.parameters["request_seconds"].expected
    assert far.parameters[name].expected < 0.5 * table.parameters[name].expected
    assert advice(far).basis is Basis.PRIOR


def test_uploads_that_ran_into_the_ceiling_say_where_it_is() -> None:
    """It is the same host."""
    upload = an_upload_fit(is_far=False)
    seen, heard = (fit.parameters["host_bytes_per_second"] for fit in (upload, fitted((), prior=upload)))
    assert heard.expected == pytest.approx(seen.expected, rel=0.2)


def test_uploads_that_say_the_wrong_thing_are_not_heard() -> None:
    """Uploads behind a slow proxy do not spoil what downloads have measured."""
    probes = history(NEAR, 4)
    alone, misled = fitted(probes), fitted(probes, prior=an_upload_fit(is_far=True))
    rates = [NEAR.truth(advice(fit).setting) for fit in (alone, misled)]
    assert rates[1] > 0.97 * rates[0]


def test_a_ceiling_that_uploads_never_saw_is_found_as_soon_as_without_them() -> None:
    """Slow uploads stay below the host's ceiling, and blame what they cannot tell apart; downloads run into it."""
    upload = an_upload_fit(is_far=True)
    for count in (3, 6):
        found = fitted(history(FAR, count), prior=upload).parameters["host_bytes_per_second"]
        assert found.expected == pytest.approx(FAR.host_bytes_per_second, rel=0.2)


def test_downloads_say_it_of_uploads_as_well() -> None:
    """The door is open both ways."""
    download = fitted(history(FAR, 8))
    place = upload_world.a_place()
    table, told = (S3UploadModel().fit(place, (), prior=prior, seed=0) for prior in (None, download))
    name = "request_seconds"
    assert told.parameters[name].expected > 2.0 * table.parameters[name].expected
    low, high = told.parameters[name].low, told.parameters[name].high
    assert high / low < table.parameters[name].high / table.parameters[name].low


# --- What it costs ---


def test_what_is_read_is_paid_once() -> None:
    """Before the first probe what is read may have to be put; probes read alone, with GETs that cost a twelfth."""
    context, fit = a_context(), fitted(history(NEAR, 2))
    ahead = MODEL.cost_ahead(context, S3_TARIFF)
    reading = MODEL.probe_costs(fit, context, [a_setting(8)], S3_TARIFF)[0]
    assert ahead.transferred_bytes == READ_OBJECT_BYTES_MAX
    assert ahead.usd > 30 * 0.005 / 1000
    way_usd = S3_TARIFF.usd_per_received_byte * reading.transferred_bytes
    assert way_usd < reading.usd < way_usd + 0.005 / 1000 * reading.request_count


def test_what_means_nothing_is_not_told() -> None:
    """Nothing is created and nothing completed."""
    names = fitted(()).parameters
    assert not [name for name in names if name.startswith("object_")]
    assert "request_seconds" in names
