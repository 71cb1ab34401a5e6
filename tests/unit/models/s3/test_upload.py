"""Rules of the upload model: what it must learn, what it must not be fooled by, and what it must remember."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from math import ceil, log

import numpy as np
import pytest

from penstock.api.wire import recommendation_document
from penstock.client.targets.advised import upload_of
from penstock.models import burst
from penstock.models.model import Cell, Fit
from penstock.models.s3.parts import PART_COUNT_MAX, PART_SIZE_BYTES_MIN
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import Context, Demand, Objective, Observation, Regime
from tests.factories import S3_TARIFF, recommended
from tests.unit.models.s3.upload_world import (
    DESIGN,
    FIRST_AT,
    UploadWorld,
    a_context,
    a_place,
    a_setting,
    an_observation,
    history,
    in_waves,
)
from tests.unit.models.told import told

MODEL = S3UploadModel()
WORLD = UploadWorld()


def fit_of(
    world: UploadWorld, observations: Sequence[Observation[S3UploadSetting]], prior: Fit | None = None
) -> Fit:
    """The fit of a world."""
    return MODEL.fit(world.place, observations, prior=prior, seed=3)


def best_of(fit: Fit, context: Context, demand: Demand | None = None) -> S3UploadSetting:
    """The setting with the highest posterior mean."""
    demand = demand or Demand()
    settings = MODEL.candidates(fit, context, demand)
    return settings[int(np.argmax(MODEL.appraise(fit, context, settings, demand).value))]


def test_physics_is_recovered_from_a_dozen_probes() -> None:
    """Rate of one connection and ceiling of the host come out within a quarter, and their intervals hold the truth."""
    fit = fit_of(WORLD, history(WORLD, 12))
    for name, truth in (("connection_bytes_per_second", 15e6), ("host_bytes_per_second", 600e6)):
        assert fit.parameters[name].expected == pytest.approx(truth, rel=0.25), name
        assert fit.parameters[name].low <= truth <= 1.1 * fit.parameters[name].high, name
    assert not fit.is_off_model


def test_part_timings_tell_what_the_end_of_an_object_costs() -> None:
    """Seconds after the last part are read from idle connections, not guessed."""
    slow_end = replace(WORLD, object_seconds=1.5)
    fit = fit_of(slow_end, history(slow_end, 8))
    assert (
        fit.parameters["object_seconds"].expected
        > 4 * fit_of(WORLD, history(WORLD, 8)).parameters["object_seconds"].expected
    )


def test_dips_do_not_drag_the_envelope() -> None:
    """Noise is one-sided: a fifth of the probes at half speed changes the prediction by a few percent."""
    clean = history(WORLD, 15)
    dipped = [WORLD.observe(o.setting, i, factor=0.5) if i % 5 == 4 else o for i, o in enumerate(clean)]
    setting = a_setting(64)
    expected = [
        MODEL.predict(fit_of(WORLD, h), WORLD.context, setting, Demand())[
            "throughput_bytes_per_second"
        ].expected
        for h in (clean, dipped)
    ]
    assert expected[1] == pytest.approx(expected[0], rel=0.08)


def test_throttling_moves_the_advice_down() -> None:
    """503s are evidence of a limit, not noise: with them fewer requests a second look best than without."""
    quiet = history(WORLD, 6)
    throttled = [
        WORLD.observe(o.setting, i, factor=0.35, throttled_count=40) if o.setting.thread_count >= 64 else o
        for i, o in enumerate(quiet)
    ]
    calm, wary = (fit_of(WORLD, h) for h in (quiet, throttled))
    asked = [best_of(fit, WORLD.context) for fit in (wary, calm)]
    assert (
        asked[0].thread_count / asked[0].part_size_bytes
        < 0.8 * asked[1].thread_count / asked[1].part_size_bytes
    )
    assert wary.parameters["prefix_requests_per_second"].expected < 500


def test_the_request_limit_is_above_what_a_storm_of_refusals_lets_through() -> None:
    """Refused requests cost the admitted ones their turn: 80 a second went through once, so 30 are not the limit."""
    calm = [
        an_observation(a_setting(n, 8), index=i, seconds=128 / (8.0 * n)) for i, n in enumerate((4, 8, 10))
    ]
    storm = [
        an_observation(a_setting(n, 8), index=3 + i, seconds=128 / 30, throttled_count=200)
        for i, n in enumerate((64, 128))
    ]
    fit = MODEL.fit(calm[0].context.place, calm + storm, prior=None, seed=1)
    limit = fit.parameters["prefix_requests_per_second"]
    assert 60 < limit.expected < 400
    assert best_of(fit, calm[0].context).thread_count < 64


def test_refusals_of_too_many_at_once_are_no_limit_of_a_second() -> None:
    """Of 32 that begin together 22 are refused, and five a second go through because bodies are large: 40 might."""

    def limit(measures: Mapping[str, float]) -> float:
        calm = [an_observation(a_setting(n, 32), index=n, seconds=1024 / (20 * n)) for n in (4, 8)]
        herd = an_observation(
            a_setting(32, 32), index=9, seconds=2.4, transferred_bytes=12 * 32 * MiB, throttled_count=23
        )
        herd = replace(herd, measures={"part_count": 12.0, **measures})
        fit = MODEL.fit(herd.context.place, [*calm, herd], prior=None, seed=1)
        return fit.parameters["prefix_requests_per_second"].expected

    assert limit({}) < 20
    assert limit({"admitted_count": 4.0, "refusing_seconds": 0.1}) == pytest.approx(40.0, rel=0.5)
    assert limit({"admitted_count": 0.0, "refusing_seconds": 0.0}) > 100  # nothing says what it is


def test_where_requests_are_refused_each_part_of_a_whole_object_may_be_asked_for_twice() -> None:
    """Without the parts that were refused 13 connections look as fast as if none were; not so for a share of it."""
    context, setting = a_context(size=64 * MiB), a_setting(13, 5)
    calm = fit_of(WORLD, history(WORLD, 4))
    cell = Cell(
        payload_size_bytes=context.payload_size_bytes,
        setting={"thread_count": 13.0, "part_size_bytes": 5.0 * MiB},
        count=1,
        value_median=1e8,
        had_trouble=True,
        newest_at=FIRST_AT,
    )
    paid = [
        MODEL.probe_costs(fit, about, [setting], S3_TARIFF)[0]
        for fit in (calm, replace(calm, cells=(cell,)))
        for about in (context, a_context(size=100 * GiB))
    ]
    whole, share, whole_again, share_again = (cost.request_count for cost in paid)
    assert whole_again - whole == 13
    assert share_again == share
    assert paid[2].transferred_bytes == 2 * paid[0].transferred_bytes


def test_right_neighbour_saves_probes() -> None:
    """With the parameters of a neighbour, one probe predicts what takes several without."""
    teacher = fit_of(WORLD, history(WORLD, 16))
    larger = replace(WORLD, size=8 * GiB)
    first = history(larger, 1)
    setting = a_setting(64)
    truth = larger.truth(setting)
    errors = []
    for prior in (teacher, None):
        fit = fit_of(larger, first, prior=prior)
        found = MODEL.predict(fit, larger.context, setting, Demand())["throughput_bytes_per_second"]
        errors.append(abs(np.log(found.expected / truth)))
    assert errors[0] < 0.15
    assert errors[0] < errors[1]


def test_wrong_neighbour_is_dropped() -> None:
    """When the first probes speak against the neighbour, tables serve: the fit is the one without it."""
    stranger = UploadWorld(
        connection_bytes_per_second=200e6, host_bytes_per_second=10e9, request_seconds=0.005
    )
    teacher = fit_of(stranger, history(stranger, 16))
    probes = history(WORLD, 2)
    misled, alone = fit_of(WORLD, probes, prior=teacher), fit_of(WORLD, probes)
    assert misled.parameters == alone.parameters


def test_change_is_noticed_and_what_came_before_forgotten() -> None:
    """When the ceiling falls to a third, a few probes at the old best are enough to see it and to follow."""
    after = replace(WORLD, host_bytes_per_second=200e6)
    now = [after.observe(a_setting(64), 16 + i) for i in range(4)]
    fit = fit_of(WORLD, history(WORLD, 16) + now)
    found = MODEL.predict(fit, WORLD.context, a_setting(64), Demand())["throughput_bytes_per_second"]
    assert fit.drift_count == 1
    assert found.expected == pytest.approx(after.truth(a_setting(64)), rel=0.15)


# Threads and parts in MiB of a ladder and of probes after it, each with what was measured over what is usual there.
TWO_DIPS_BELOW_THE_KNEE = (
    *((8, 8, 0.57), (32, 15, 0.98), (120, 22, 0.89), (458, 14, 0.98), (136, 100, 0.82), (74, 5, 0.47)),
    *((40, 126, 1.13), (40, 44, 1.07), (24, 126, 0.59), (58, 58, 0.99), (66, 15, 0.95), (66, 5, 1.23)),
    *((52, 10, 0.91), (120, 5, 0.96), (46, 5, 0.95), (66, 5, 1.22), (84, 5, 0.86), (58, 5, 1.01)),
    *((46, 22, 0.87), (66, 7, 0.44), (66, 5, 0.49), (66, 5, 0.97), (74, 7, 1.02), (46, 74, 0.94)),
    *((66, 5, 1.24), (58, 7, 1.09), (66, 5, 1.15), (74, 31, 1.05), (52, 131, 0.98), (52, 5, 1.05)),
)


def test_two_dips_that_agree_are_no_law_where_what_is_beside_them_says_so() -> None:
    """The only probes of few threads went at .57 and .59, and what 32 and 40 of them carried cannot be with that."""
    world = replace(WORLD, size=8 * GiB, noise=0.0)
    probes = [
        world.observe(a_setting(threads, part_mib), index, factor=factor)
        for index, (threads, part_mib, factor) in enumerate(TWO_DIPS_BELOW_THE_KNEE)
    ]
    fit = fit_of(world, probes)
    for threads in (16, 24, 32, 40):
        found = MODEL.predict(fit, world.context, a_setting(threads), Demand())["throughput_bytes_per_second"]
        assert found.expected == pytest.approx(world.truth(a_setting(threads)), rel=0.1)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.days) for seed in (1, 2))])
@pytest.mark.parametrize("left", [0.3, 0.45])
def test_what_two_probes_suggest_of_a_change_the_next_prove(left: float, seed: int) -> None:
    """Each connection is slower. The probes that follow with more of them are as fast as ever, and no surprise.

    With them the change is noticed by the fourth, or had been by the second, and it stays so.
    """
    after = replace(WORLD, connection_bytes_per_second=left * WORLD.connection_bytes_per_second)
    probes, counts = history(WORLD, 16, seed=seed), list[int]()
    for index, threads in enumerate((48, 48, 200, 150, 120, 250), start=16):
        probes.append(after.observe(a_setting(threads), index, seed=seed))
        counts.append(fit_of(WORLD, probes).drift_count)
    assert counts == sorted(counts)
    assert counts[3] == 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.days) for seed in (1, 2))])
@pytest.mark.parametrize("left", [0.2, 0.3])
def test_two_dips_in_a_row_are_no_change_once_it_is_as_it_was(left: float, seed: int) -> None:
    """They look like one, and what is measured next tells: what was known before is known again."""
    world = replace(WORLD, noise=0.08)
    probes, counts = history(world, 16, seed=seed), list[int]()
    for threads, factor in ((48, left), (60, left), (8, 1.0), (32, 1.0)):
        probes.append(world.observe(a_setting(threads), len(probes), factor=factor, seed=seed))
        counts.append(fit_of(world, probes).drift_count)
    assert counts == [0, 1, 1, 0]


@pytest.mark.parametrize("count", [3, 8])
def test_what_was_measured_before_counts_again_once_the_place_is_what_it_was(count: int) -> None:
    """A third of the ceiling for a while, and then all of it: what was known is known again, and for certain."""
    slower = replace(WORLD, host_bytes_per_second=200e6)
    probes = history(WORLD, 16)
    for threads in (64, 32, 48, 24, 16, 64, 32, 48)[:count]:
        probes.append(slower.observe(a_setting(threads), len(probes)))
    for threads in (64, 48, 64):
        probes.append(WORLD.observe(a_setting(threads), len(probes)))
    known, fit = fit_of(WORLD, probes[:16]), fit_of(WORLD, probes)
    assert fit.observation_count == 16 + 3
    assert [o for o in probes if not fit.is_about(o.started_at)] == probes[16 : 16 + count]
    assert fit.changed_at == probes[16 + count].started_at
    for threads in (8, 64):
        before, now = (
            MODEL.predict(each, WORLD.context, a_setting(threads), Demand())["throughput_bytes_per_second"]
            for each in (known, fit)
        )
        assert now.expected == pytest.approx(WORLD.truth(a_setting(threads)), rel=0.05)
        assert now.high / now.low < 1.1 * before.high / before.low


def test_what_is_older_than_what_was_learned_from_does_not_count_again() -> None:
    """Where only the newest are looked at, nobody knows what the place was before them."""
    slower = replace(WORLD, host_bytes_per_second=200e6)
    worlds = [slower] * 30 + [WORLD] * 32 + [slower] * 12 + [WORLD] * 20
    probes = [world.observe(a_setting((64, 32, 48)[i % 3]), i) for i, world in enumerate(worlds)]
    fit = fit_of(WORLD, probes)
    assert [fit.is_about(o.started_at) for o in probes] == [False] * 30 + [w is WORLD for w in worlds[30:]]


def test_a_third_place_is_no_return() -> None:
    """It was 600 MB/s, then 200, and is 350 now: nothing of what came before is about that."""
    probes = history(WORLD, 16)
    for ceiling in (200e6, 350e6):
        changed = replace(WORLD, host_bytes_per_second=ceiling)
        for threads in (64, 32, 48, 64, 24, 64, 48):
            probes.append(changed.observe(a_setting(threads), len(probes)))
    fit = fit_of(WORLD, probes)
    assert (fit.drift_count, fit.earlier) == (2, ())
    assert fit.observation_count == 7


@pytest.mark.parametrize(
    ("factor", "left", "seed"), [(0.7, 0.25, 1), (0.7, 0.4, 1), (1.4, 0.25, 1), (1.6, 0.4, 0)]
)
def test_what_surprised_before_a_change_does_not_take_its_place(
    factor: float, left: float, seed: int
) -> None:
    """Three odd probes, and then each connection is slower: all that comes later speaks for the change."""
    before = replace(WORLD, noise=0.08)
    after = replace(before, connection_bytes_per_second=left * WORLD.connection_bytes_per_second)
    probes = history(before, 13, seed=seed)
    for threads in (24, 32, 32):
        probes.append(before.observe(a_setting(threads), len(probes), factor=factor, seed=seed))
    for threads in (24, 40, 200, 256, 128, 80, 120, 100):
        probes.append(after.observe(a_setting(threads), len(probes), seed=seed))
    fit = fit_of(before, probes)
    assert fit.changed_at == probes[16].started_at
    assert fit.observation_count == len(probes) - 16


def test_the_first_refusals_of_a_place_are_a_change_at_once() -> None:
    """Nobody was refused before: one probe that was tells that the limit is new, and the advice leaves it."""
    before = history(WORLD, 16)
    refused = WORLD.observe(a_setting(64), 16, factor=0.1, throttled_count=100)
    assert fit_of(WORLD, [*before, refused]).drift_count == 1
    dipped = WORLD.observe(a_setting(64), 16, factor=0.1)
    assert fit_of(WORLD, [*before, dipped]).drift_count == 0


@pytest.mark.parametrize("seed", range(3))
def test_no_change_is_invented(seed: int) -> None:
    """Ordinary noise with a dip now and then is not drift."""
    noisy = replace(WORLD, noise=0.1)
    probes = [noisy.observe(o.setting, i, seed=seed, factor=0.6 if i % 11 == 7 else 1.0)
              for i, o in enumerate(history(noisy, 40))]  # fmt: skip
    assert fit_of(noisy, probes).drift_count == 0


def test_same_history_gives_the_same_fit_in_any_order() -> None:
    """Observations are dated: the order in which they are handed over does not matter."""
    probes = history(WORLD, 7)
    assert fit_of(WORLD, probes) == fit_of(WORLD, probes[::-1])


def test_another_client_is_an_offset_not_a_lie() -> None:
    """An application's client that is a fifth slower everywhere hardly moves what penstock measured itself."""
    own = history(WORLD, 8)
    theirs = [
        an_observation(
            s,
            context=WORLD.context,
            index=20 + i,
            seconds=WORLD.size / (0.8 * WORLD.truth(s)),
            client="boto3",
        )
        for i, s in enumerate(DESIGN[:4])
    ]
    setting = a_setting(64)
    alone, both = (
        MODEL.predict(fit_of(WORLD, h), WORLD.context, setting, Demand())[
            "throughput_bytes_per_second"
        ].expected
        for h in (own, own + theirs)
    )
    assert both == pytest.approx(alone, rel=0.1)


def test_bare_reports_of_applications_are_enough() -> None:
    """Bytes, seconds, threads and part size, nothing more: still a fit."""
    reports = [replace(o, measures={}, client="s5cmd") for o in history(WORLD, 6)]
    fit = fit_of(WORLD, reports)
    found = MODEL.predict(fit, WORLD.context, a_setting(32), Demand())["throughput_bytes_per_second"]
    assert found.low <= WORLD.truth(a_setting(32)) <= found.high


def test_share_of_a_large_object_speaks_for_the_whole() -> None:
    """A probe that sent a hundredth of an object is extended by its steady rate, not read as a short object."""
    context = a_context(size=100 * GiB)
    probe = an_observation(
        a_setting(16),
        context=context,
        seconds=6.0,
        transferred_bytes=1 * GiB,
        measures={
            "steady_throughput_bytes_per_second": 240e6,
            "create_seconds": 0.05,
            "complete_seconds": 0.45,
        },
    )
    assert MODEL.measured_value(probe) == pytest.approx(240e6, rel=0.01)
    fit = MODEL.fit(context.place, [probe], prior=None, seed=1)
    found = MODEL.predict(fit, context, a_setting(16), Demand())["throughput_bytes_per_second"]
    assert found.expected == pytest.approx(240e6, rel=0.15)


def test_what_full_waves_measured_is_compared_as_the_whole_object_would_be() -> None:
    """Of 32 parts ten threads move thirty in three waves and two in a fourth, which an extrapolated rate leaves out."""
    whole = [in_waves(threads, n) for n, threads in enumerate((1, 2, 4, 6, 7, 10, 12, 14, 20, 24))]
    part = in_waves(10, len(whole), waves=3)
    fit = MODEL.fit(whole[0].context.place, [*whole, part], prior=None, seed=1)
    truth = MODEL.measured_value(in_waves(10, 0))
    assert MODEL.measured_value(part) > 1.2 * truth
    of_whole, of_part = MODEL.comparable_values(fit, [whole[5], part])
    assert of_whole == truth
    assert of_part == pytest.approx(truth, rel=0.05)


def test_small_objects_are_requests_per_second() -> None:
    """A payload that cannot be split is limited by objects in flight: one law, one setting of parts."""
    context = a_context(size=64 * KiB)
    fit = fit_of(WORLD, history(WORLD, 8))
    settings = MODEL.candidates(fit, context, Demand())
    assert {s.part_size_bytes for s in settings} == {PART_SIZE_BYTES_MIN}
    found = MODEL.predict(fit, context, a_setting(8, 5), Demand())["request_rate_per_second"].expected
    assert 8 / 0.2 < found < 8 / 0.005


SMALL = a_context(size=64 * KiB)


def of_small_objects(
    rows: Iterable[tuple[int, float, int]], count: int = 512
) -> list[Observation[S3UploadSetting]]:
    """So many objects each time: with so many threads, at so many a second, and how often one was refused."""
    return [
        replace(
            an_observation(
                a_setting(threads, 5),
                context=SMALL,
                index=index,
                seconds=count / rate,
                transferred_bytes=count * SMALL.payload_size_bytes,
                throttled_count=refused,
            ),
            request_count=count + refused,
        )
        for index, (threads, rate, refused) in enumerate(rows)
    ]


def test_where_requests_are_the_limit_a_rate_is_advised() -> None:
    """250 a second went through cleanly, and storms let 60 through: the limit is named, and stated with the advice."""
    runs = of_small_objects(((4, 128, 0), (8, 250, 0), (16, 60, 10), (32, 55, 60), (64, 50, 120)))
    fit = MODEL.fit(SMALL.place, runs, prior=None, seed=1)
    advice = recommended(MODEL, fit, SMALL)
    assert 6 <= advice.setting.thread_count <= 12
    assert advice.bottleneck == "request-rate"
    limit = fit.parameters["prefix_requests_per_second"].expected
    assert 0.8 * limit < advice.derived["request_rate_limit_per_second"] < 1.15 * limit
    elsewhere = fit_of(WORLD, history(WORLD, 8))
    assert "request_rate_limit_per_second" not in MODEL.derive(
        elsewhere, WORLD.context, a_setting(8), Demand()
    )


def test_a_few_refusals_of_a_hundred_say_only_that_the_limit_is_no_lower() -> None:
    """A bucket of 35 is found empty by chance from a third of its 2,789 a second on, long before that is reached."""
    context = a_context(size=82 * KiB)
    runs = [
        replace(
            an_observation(
                a_setting(threads, 5),
                context=context,
                index=index,
                seconds=6393 / 1800,
                transferred_bytes=6393 * 82 * KiB,
                measures={"steady_throughput_bytes_per_second": rate * 82 * KiB},
            ),
            throttled_count=refused,
            request_count=6393 + refused,
        )
        for index, (threads, rate, refused) in enumerate(
            ((16, 251, 0), (60, 940, 25), (87, 1350, 52), (125, 1950, 90), (180, 2640, 145), (229, 2760, 347))
        )
    ]
    fit = MODEL.fit(context.place, runs, prior=None, seed=1)
    advice = recommended(MODEL, fit, context)
    assert advice.setting.thread_count >= 170
    assert fit.parameters["prefix_requests_per_second"].expected > 2400


def test_the_fewer_are_refused_the_less_is_known_of_the_limit() -> None:
    """One in thirty may be chance, a third is not: what went through with it is the limit."""

    def spread(refused: int) -> float:
        runs = of_small_objects(((4, 130, 0), (8, 260, 0), (16, 400, refused)), 900)
        limit = MODEL.fit(SMALL.place, runs, prior=None, seed=1).parameters["prefix_requests_per_second"]
        return log(limit.high / limit.low)

    assert spread(22) > 1.2 * spread(450)


def test_a_limit_that_advice_keeps_below_is_not_forgotten() -> None:
    """Whoever keeps below it meets no more refusals, for dozens of probes: it stands where it was."""
    rows = [(4, 128.0, 0), (32, 200.0, 300), (16, 210.0, 120)]
    runs = of_small_objects([*rows, *((5, 150.0 + index % 3, 0) for index in range(3, 33))])
    early, late = (
        MODEL.fit(SMALL.place, runs[:count], prior=None, seed=1).parameters["prefix_requests_per_second"]
        for count in (6, 33)
    )
    assert early.expected / 1.5 < late.expected < early.expected * 1.5
    assert late.high < 2 * early.high


def test_burst_and_sustained_are_two_answers() -> None:
    """On a burstable host the regime decides the ceiling, and the bundle says how long the credits last."""
    place = a_place(instance_type="c6i.large")
    quick = UploadWorld(place=place, host_bytes_per_second=1.5e9)
    fit = fit_of(quick, history(quick, 10))
    sustained, burst = (
        best_of(fit, quick.context, Demand(regime=r)) for r in (Regime.SUSTAINED, Regime.BURST)
    )
    assert sustained.thread_count * 4 < burst.thread_count
    derived = MODEL.derive(fit, quick.context, burst, Demand(regime=Regime.BURST))
    assert derived["burst_throughput_bytes_per_second"] > 5 * derived["sustained_throughput_bytes_per_second"]
    assert 0 < derived["burst_seconds_left"] < 3600


@pytest.mark.parametrize("width", [0.6, 0.85, 1.2])
@pytest.mark.parametrize("instance_type", ["m7i.large", "m5.2xlarge"])
def test_credits_widen_no_way_that_is_no_wider_than_the_baseline(instance_type: str, width: float) -> None:
    """Where nothing was faster than the baseline, a burst that nobody saw is not promised."""
    limits = burst.ceiling(instance_type)
    assert limits is not None
    ceiling = width * limits.baseline_bytes_per_second
    narrow = UploadWorld(place=a_place(instance_type=instance_type), host_bytes_per_second=ceiling)
    fit = fit_of(narrow, history(narrow, 12))
    for demand in (Demand(regime=Regime.BURST), Demand(regime=Regime.SUSTAINED)):
        advised = best_of(fit, narrow.context, demand)
        found = MODEL.predict(fit, narrow.context, advised, demand)["throughput_bytes_per_second"]
        assert found.expected == pytest.approx(ceiling, rel=0.2)


def test_who_does_not_say_gets_the_burst_where_it_ends_well_before_the_credits() -> None:
    """Ten gigabytes of them are no matter for a full bucket; a terabyte is, as are neighbours, and what has no end."""
    place = a_place(instance_type="c6i.large")
    quick = UploadWorld(place=place, host_bytes_per_second=1.5e9)
    fit, auto = fit_of(quick, history(quick, 10)), Demand()
    short, long, small = (a_context(place=place, size=size) for size in (10 * GiB, 1024 * GiB, MiB))
    assert MODEL.regime(fit, short, auto) is Regime.BURST
    assert MODEL.regime(fit, long, auto) is MODEL.regime(fit, small, auto) is Regime.SUSTAINED
    assert MODEL.regime(fit, short, auto, beside_bytes=1024 * GiB) is Regime.SUSTAINED
    assert MODEL.regime(fit, short, Demand(regime=Regime.SUSTAINED)) is Regime.SUSTAINED
    for context, regime, words in (
        (short, Regime.BURST, "This advice is for while the host bursts: the transfer takes at most "),
        (long, Regime.SUSTAINED, "This advice is for what the host sustains: the transfer could take "),
        (small, Regime.SUSTAINED, "This advice is for what the host sustains: endless work outlasts the "),
    ):
        made, said = (recommended(MODEL, fit, context, demand) for demand in (auto, Demand(regime=regime)))
        assert made.setting == said.setting
        assert made.derived["is_burst"] == (regime is Regime.BURST)
        assert words in made.explanation
        assert "For w" not in said.explanation


@pytest.mark.parametrize("objects", [1, 1000])
def test_what_is_slower_than_the_baseline_is_not_said_to_burst(objects: int) -> None:
    """It takes no credits, be it one object or work without an end; and what is expected has one number."""
    place = a_place(instance_type="c6i.4xlarge")
    slow = UploadWorld(place=place, host_bytes_per_second=100e6)
    fit = fit_of(slow, history(slow, 10))
    made = recommended(MODEL, fit, a_context(place=place, size=MiB * objects), Demand())
    assert "bursts" not in made.explanation
    assert "sustains" not in made.explanation
    told = ("sustained", "burst")[int(made.derived["is_burst"])]
    expected = made.prediction["throughput_bytes_per_second"].expected
    assert made.derived[f"{told}_throughput_bytes_per_second"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("slow_count", "then_fast", "regime"),
    [(2, False, Regime.BURST), (3, False, Regime.SUSTAINED), (3, True, Regime.BURST)],
)
def test_credits_that_others_spent_are_not_promised(
    slow_count: int, regime: Regime, *, then_fast: bool
) -> None:
    """Nobody told of their traffic: that the same threads go no faster than without credits, again and again, does."""
    place = a_place(instance_type="c6i.large")
    limits = burst.ceiling("c6i.large")
    assert limits is not None
    wide, narrow = (
        UploadWorld(place=place, host_bytes_per_second=rate)
        for rate in (1.2e9, 1.1 * limits.baseline_bytes_per_second)
    )
    wave = a_setting(64)
    seen = [*history(wide, 10), *(narrow.observe(wave, 10 + n) for n in range(slow_count))]
    seen += [wide.observe(wave, 20)] if then_fast else []
    fit = fit_of(wide, seen)
    context = a_context(place=place, size=10 * GiB)
    assert MODEL.regime(fit, context, Demand()) is regime
    found = MODEL.predict(fit, context, wave, Demand())["throughput_bytes_per_second"]
    assert (found.expected < 2 * limits.baseline_bytes_per_second) is (regime is Regime.SUSTAINED)
    refused = [replace(one, throttled_count=one.throttled_count + (one is not seen[0])) for one in seen]
    assert MODEL.regime(fit_of(wide, refused), context, Demand()) is Regime.BURST, "they are slow for that"
    said = " ".join(told(MODEL, fit, context, wave, Demand()))
    assert ("its burst credits are spent" in said) is (regime is Regime.SUSTAINED)


def test_chance_alone_neither_spends_credits_nor_earns_them() -> None:
    """Where half of the measurements are by chance clearly faster than the baseline, there is still one ceiling."""
    place, ratios = a_place(instance_type="c5n.4xlarge"), list[float]()
    limits = burst.ceiling("c5n.4xlarge")
    assert limits is not None
    for seed in range(3):
        world = UploadWorld(
            place=place,
            connection_bytes_per_second=60e6,
            host_bytes_per_second=1.45 * limits.baseline_bytes_per_second,
            noise=0.12,
            size=4 * GiB,
        )
        threads = [
            4,
            16,
            64,
            128,
            32,
            48,
            64,
            96,
            40,
            64,
            56,
            48,
            80,
            64,
            48,
            40,
            56,
            64,
            72,
            48,
            96,
            64,
            56,
            48,
        ]
        fit = fit_of(world, [world.observe(a_setting(n), i, seed=seed) for i, n in enumerate(threads)])
        for setting in (a_setting(48), a_setting(64)):
            found = MODEL.predict(fit, world.context, setting, Demand(regime=Regime.BURST))
            ratios.append(found["throughput_bytes_per_second"].expected / world.truth(setting))
    assert 0.95 < np.mean(ratios) < 1.05


def test_bundle_carries_everything_a_client_can_be_told() -> None:
    """Pool, threshold, memory, CRT target and hedge come with threads and part size; a limit is passed on."""
    fit = fit_of(WORLD, history(WORLD, 8))
    demand = Demand(bandwidth_bytes_per_second_max=50e6)
    derived = MODEL.derive(fit, WORLD.context, a_setting(50), demand)
    assert derived["connection_pool_count"] >= 50
    assert derived["crt_target_gbps"] == pytest.approx(20.0)
    assert derived["memory_bytes"] == pytest.approx(50 * 8 * MiB, rel=0.02)
    assert derived["rate_limit_bytes_per_second"] == 50e6
    assert PART_SIZE_BYTES_MIN < derived["multipart_threshold_bytes"] <= 128 * MiB
    assert derived["hedge_timeout_seconds"] >= 1.0


@pytest.mark.parametrize("objects", [1, 64])
@pytest.mark.parametrize("size", [64 * KiB, 5 * MiB, 6 * MiB, 16 * MiB, 64 * MiB, GiB, 1024 * GiB])
def test_the_threshold_splits_exactly_what_is_advised_to_be_split(size: int, objects: int) -> None:
    """Clients split from it on: it is above what goes whole, and never below a part."""
    context, demand = a_context(size=size), Demand(object_count=objects)
    for world in (WORLD, replace(WORLD, request_seconds=0.5), replace(WORLD, host_bytes_per_second=30e6)):
        fit = fit_of(world, history(world, 6))
        for setting in MODEL.candidates(fit, context, demand)[::9]:
            threshold = MODEL.derive(fit, context, setting, demand)["multipart_threshold_bytes"]
            assert (threshold <= size) is (setting.part_size_bytes < size)
            assert threshold > setting.part_size_bytes


def test_clients_are_told_the_threshold_as_it_is_derived() -> None:
    """Nothing is left to repair where they upload what they asked about."""
    fit = fit_of(WORLD, history(WORLD, 6))
    for size in (MiB, 6 * MiB, 20 * MiB, GiB, 200 * GiB):
        for demand in (Demand(), Demand(object_count=64)):
            advice = recommended(MODEL, fit, a_context(size=size), demand)
            document = recommendation_document(advice, generation=0)
            told = upload_of(document).multipart_threshold_bytes
            assert told == advice.derived["multipart_threshold_bytes"]


def test_objects_are_split_from_where_parts_pay() -> None:
    """Sooner where requests are quick to begin, and connections slow, than the other way round."""
    quick, slow = (
        replace(WORLD, request_seconds=0.005, connection_bytes_per_second=5e6),
        replace(WORLD, request_seconds=1.0, connection_bytes_per_second=200e6, object_seconds=1.0),
    )
    found = [
        MODEL.derive(fit_of(world, history(world, 8)), WORLD.context, a_setting(16), Demand())
        for world in (quick, slow)
    ]
    thresholds = [derived["multipart_threshold_bytes"] for derived in found]
    assert 8 * MiB < thresholds[0] < thresholds[1] <= 128 * MiB


def test_bottleneck_is_named() -> None:
    """Few threads: connections. Many: the host. A stated bandwidth: the demand. Nothing measured: unknown."""
    fit = fit_of(WORLD, history(WORLD, 12))
    assert MODEL.bottleneck(fit, WORLD.context, a_setting(4), Demand()) == "connections"
    assert MODEL.bottleneck(fit, WORLD.context, a_setting(200), Demand()) == "host-ceiling"
    limited = Demand(bandwidth_bytes_per_second_max=10e6)
    assert MODEL.bottleneck(fit, WORLD.context, a_setting(64), limited) == "demand"
    assert MODEL.bottleneck(fit_of(WORLD, []), WORLD.context, a_setting(4), Demand()) == "unknown"


def test_memory_is_a_hard_limit() -> None:
    """No candidate holds more in flight than the application may use."""
    fit = fit_of(WORLD, history(WORLD, 6))
    settings = MODEL.candidates(fit, WORLD.context, Demand(memory_bytes_max=256 * MiB, thread_count_max=40))
    assert settings
    assert all(s.thread_count * s.part_size_bytes <= 256 * MiB and s.thread_count <= 40 for s in settings)
    odd = MODEL.candidates(fit, WORLD.context, Demand(memory_bytes_max=31 * 8 * MiB))
    assert max(s.thread_count for s in odd if s.part_size_bytes == 8 * MiB) == 31, "all that it holds"


@pytest.mark.parametrize(
    ("size", "objects", "threads", "part", "held"),
    [
        (20 * MiB, 1, 10, 8 * MiB, 24 * MiB),  # three parts, whose last is short
        (20 * MiB, 2, 10, 8 * MiB, 48 * MiB),
        (20 * MiB, 9, 10, 8 * MiB, 80 * MiB),
        (20 * MiB, 1, 10, 20 * MiB, 20 * MiB),
        (20 * MiB, 4, 10, 20 * MiB, 80 * MiB),
        (GiB, 1, 10, 8 * MiB, 80 * MiB),
        (64 * KiB, 1, 10, 5 * MiB, 640 * KiB),  # of small objects each thread has one
        (64 * KiB, 4, 10, 5 * MiB, 256 * KiB),  # unless there are no more of them
    ],
)
def test_what_is_held_is_one_part_for_each_request_in_flight(
    size: int, objects: int, threads: int, part: int, held: int
) -> None:
    """The limit is judged by it, and it is what the answer says."""
    setting, context, demand = (
        a_setting(threads, part // MiB),
        a_context(size=size),
        Demand(object_count=objects),
    )
    fit = fit_of(WORLD, [])
    assert setting.memory_bytes(size, objects) == held
    assert MODEL.appraise(fit, context, [setting], demand).memory_bytes[0] == held
    assert MODEL.derive(fit, context, setting, demand)["memory_bytes"] == held


@pytest.mark.parametrize("size", [64 * KiB, MiB, 5 * MiB, 6 * MiB, 20 * MiB])
def test_no_more_threads_are_advised_than_there_are_requests(size: int) -> None:
    """Of seven files that go whole seven can move at a time, however many connections the host would bear."""
    far = replace(WORLD, request_seconds=0.5)
    advice = recommended(MODEL, fit_of(far, history(far, 12)), a_context(size=size), Demand(object_count=7))
    assert advice.setting.thread_count <= 7 * ceil(size / advice.setting.part_size_bytes)
    assert advice.derived["connection_pool_count"] <= 1 + 7 * ceil(size / advice.setting.part_size_bytes)


def test_default_is_what_boto3_does() -> None:
    """Ten threads of 8 MiB, doubled until there are at most 10,000 parts."""
    assert MODEL.default_setting(a_context()) == S3UploadSetting(thread_count=10, part_size_bytes=8 * MiB)
    huge = MODEL.default_setting(a_context(size=200 * GiB))
    assert huge.part_size_bytes == 32 * MiB
    assert ceil(200 * GiB / huge.part_size_bytes) <= PART_COUNT_MAX


def test_ramp_starts_gently() -> None:
    """Four threads first, four times as many each step, never past a limit that was stated."""
    assert [s.thread_count for s in MODEL.ramp(a_context())] == [4, 16, 64, 256]
    assert [s.thread_count for s in S3UploadModel(thread_count_max=20).ramp(a_context())] == [4, 16]


def test_fixed_part_size_leaves_one_dimension() -> None:
    """A client with a fixed part size is never offered another."""
    fixed = S3UploadModel(request_size_bytes_min=16 * MiB, request_size_bytes_max=16 * MiB)
    fit = fixed.fit(WORLD.place, history(WORLD, 4), prior=None, seed=0)
    assert {s.part_size_bytes for s in fixed.candidates(fit, WORLD.context, Demand())} == {16 * MiB}


def test_probe_pays_for_no_more_than_it_needs() -> None:
    """Of a terabyte a probe sends a few waves; of a small object at most the object."""
    fit = fit_of(WORLD, history(WORLD, 6))
    large = MODEL.probe_costs(fit, a_context(size=1024 * GiB), [a_setting(16, 128)], S3_TARIFF)[0]
    small = MODEL.probe_costs(fit, a_context(size=64 * MiB), [a_setting(16)], S3_TARIFF)[0]
    assert 16 * 128 * MiB <= large.transferred_bytes <= 16 * 16 * 128 * MiB
    assert small.transferred_bytes <= 64 * MiB
    assert large.usd > 0
    assert large.credit_bytes == 0


def test_a_probe_is_given_the_time_of_the_ceiling_that_may_be_there() -> None:
    """Of sixteen connections that did half of what four promised, a dip is one account and a ceiling the other."""
    world = UploadWorld(
        connection_bytes_per_second=2.05e6, host_bytes_per_second=15.4e6, request_seconds=0.06, size=512 * MiB
    )
    fit = MODEL.fit(world.place, history(world, 2), prior=None, seed=0)
    wave = a_setting(64)
    cost = MODEL.probe_costs(fit, world.context, [wave], S3_TARIFF)[0]
    assert cost.duration_seconds > cost.transferred_bytes / world.truth(wave)


@pytest.mark.parametrize("instance_type", ["c5.large", "t3.nano", "c6g.2xlarge"])
@pytest.mark.parametrize("count", [0, 3, 8])
def test_a_probe_pays_for_the_credits_that_it_spends(instance_type: str, count: int) -> None:
    """What goes above the baseline while the host bursts, as far as is known; few connections may spend none."""
    limits = burst.ceiling(instance_type)
    assert limits is not None
    world = UploadWorld(
        place=a_place(instance_type=instance_type), host_bytes_per_second=limits.burst_bytes_per_second
    )
    fit = fit_of(world, history(world, count))
    context = replace(world.context, payload_size_bytes=GiB)
    for setting in (a_setting(1), a_setting(16), a_setting(64), a_setting(128, 8)):
        cost = MODEL.probe_costs(fit, context, [setting], S3_TARIFF)[0]
        seconds = cost.transferred_bytes / world.truth(setting)
        spent = limits.credits_spent(cost.transferred_bytes, seconds=seconds)
        assert 0.9 * spent <= cost.credit_bytes <= cost.transferred_bytes
    slow = MODEL.probe_costs(fit, context, [a_setting(1)], S3_TARIFF)[0].credit_bytes
    assert slow < MODEL.probe_costs(fit, context, [a_setting(64)], S3_TARIFF)[0].credit_bytes / 5


def test_hosts_without_a_bucket_spend_no_credits() -> None:
    """Neither a large instance nor one that is not in the table."""
    for instance_type in ("c5n.18xlarge", "unknown"):
        world = UploadWorld(place=a_place(instance_type=instance_type))
        fit = fit_of(world, history(world, 3))
        assert MODEL.probe_costs(fit, world.context, [a_setting(128)], S3_TARIFF)[0].credit_bytes == 0


def test_latency_of_one_object_does_not_gain_from_more_objects() -> None:
    """Many objects at a time raise the throughput, not the speed of each."""
    context = a_context(size=16 * MiB)
    fit = fit_of(WORLD, history(WORLD, 8))
    many = Demand(object_count=64, objective=Objective.LATENCY)
    one, crowd = (MODEL.predict(fit, context, a_setting(64, 16), d) for d in (Demand(), many))
    assert crowd["throughput_bytes_per_second"].expected > 5 * one["throughput_bytes_per_second"].expected
    assert crowd["latency_seconds"].expected == pytest.approx(one["latency_seconds"].expected)


def test_a_failed_request_in_a_dip_is_no_change_of_the_place() -> None:
    """Dips make requests fail; refusals are what no dip explains."""
    for seed in range(3):
        calm = [WORLD.observe(DESIGN[i % 8], i, seed=seed) for i in range(16)]
        dip = WORLD.observe(a_setting(64), 16, factor=0.3, seed=seed)
        assert fit_of(WORLD, [*calm, replace(dip, failed_count=1)]).drift_count == 0


def test_a_slower_client_beside_a_mild_dip_is_no_change_of_the_place() -> None:
    """What another client reaches is never compared with what penstock itself reached."""
    for seed in range(6):
        own = [WORLD.observe(DESIGN[i % 8], i, seed=seed, factor=1.0 if i < 24 else 0.85) for i in range(28)]
        said = [
            replace(
                WORLD.observe(DESIGN[i % 8], 9000 + i, seed=seed, factor=0.8),
                client="boto3",
                started_at=FIRST_AT + timedelta(minutes=241 + 3 * i),
            )
            for i in range(12)
        ]
        assert fit_of(WORLD, [*own, *said]).drift_count == 0


@pytest.mark.parametrize("index", [1, 5])
def test_a_single_refusal_is_no_limit_of_the_place(index: int) -> None:
    """S3 refuses somebody now and then while it divides a prefix."""
    probes = history(WORLD, 10)
    stray = replace(probes[index], throttled_count=1, request_count=probes[index].request_count + 1)
    fit = fit_of(WORLD, [*probes[:index], stray, *probes[index + 1 :]])
    assert fit.drift_count == 0
    assert fit.parameters["prefix_requests_per_second"].expected > 1000


def test_failed_requests_were_not_admitted() -> None:
    """What is refused and what breaks off: neither counts as what the prefix bears."""
    refused = [
        replace(
            WORLD.observe(a_setting(64), i, throttled_count=60),
            failed_count=failed,
            request_count=256 + 60 + failed,
        )
        for i, failed in enumerate((0, 900))
    ]
    alone, both = (
        fit_of(WORLD, [*history(WORLD, 3, first=2), o]).parameters["prefix_requests_per_second"].expected
        for o in refused
    )
    assert both == pytest.approx(alone, rel=0.2)


def test_with_reports_alone_a_second_client_that_is_slower_is_no_change_of_the_place() -> None:
    """Where penstock measured nothing, one client is followed, and the others beside it are not."""
    for seed in range(4):
        reports = [
            replace(WORLD.observe(DESIGN[i % 8], i, seed=seed, factor=factor), client=client)
            for i, (client, factor) in enumerate([("s5cmd", 1.0)] * 30 + [("boto3", 0.5)] * 10)
        ]
        assert fit_of(WORLD, reports).drift_count == 0


def test_with_reports_alone_a_change_is_noticed() -> None:
    """By the client that is followed, while another one reports now and then."""
    reports = [
        replace(
            WORLD.observe(DESIGN[i % 8], i, factor=0.4 if i >= 20 else 1.0),
            client="boto3" if i % 5 == 4 else "s5cmd",
        )
        for i in range(30)
    ]
    assert fit_of(WORLD, reports).drift_count == 1


def test_nothing_is_faster_than_the_stated_bandwidth() -> None:
    """Expectation, latency, time-outs and draws: all of them know the limit."""
    fit = fit_of(WORLD, history(WORLD, 8))
    limit = 2e6
    demand, setting = Demand(bandwidth_bytes_per_second_max=limit), a_setting(16)
    expected = MODEL.predict(fit, WORLD.context, setting, demand)
    assert expected["throughput_bytes_per_second"].high <= limit * 1.001
    assert expected["latency_seconds"].low >= 0.999 * WORLD.size / limit
    assert (
        MODEL.appraise(fit, WORLD.context, [setting], demand).latency_seconds[0] >= 0.999 * WORLD.size / limit
    )
    belief = MODEL.belief(fit, WORLD.context, [setting], demand)
    assert belief.draws.max() <= log(limit) + 1e-9
    assert belief.variance.max() == pytest.approx(0.0)
    hedge = MODEL.derive(fit, WORLD.context, setting, demand)["hedge_timeout_seconds"]
    assert hedge > 2 * 16 * 8 * MiB / limit, "a part takes its turn at the limit"
    assert best_of(fit, WORLD.context, replace(demand, objective=Objective.LATENCY)).thread_count == 1


@pytest.mark.parametrize("instance_type", ["t3.nano", "m7i.large", "m5.24xlarge"])
def test_no_more_is_promised_than_the_line_of_the_host_carries(instance_type: str) -> None:
    """Before anything was measured; what was measured above it is believed."""
    place = a_place(instance_type=instance_type)
    line = burst.ceiling(instance_type)
    assert line is not None
    context = a_context(place=place)
    unknown = MODEL.predict(MODEL.fit(place, [], prior=None, seed=1), context, a_setting(64), Demand())
    throughput = unknown["throughput_bytes_per_second"]
    assert throughput.expected < throughput.high <= line.burst_bytes_per_second * 1.001
    assert unknown["latency_seconds"].low >= 0.999 * context.payload_size_bytes / line.burst_bytes_per_second
    faster = UploadWorld(
        connection_bytes_per_second=100e6, host_bytes_per_second=3 * line.burst_bytes_per_second, place=place
    )
    told = MODEL.predict(fit_of(faster, history(faster, 12)), context, a_setting(128), Demand())
    assert told["throughput_bytes_per_second"].high > line.burst_bytes_per_second


@pytest.mark.parametrize("threads", [(4, 16, 64), (64, 128, 4, 16)])
def test_no_more_is_expected_to_last_than_the_line_carries_or_was_measured(threads: tuple[int, ...]) -> None:
    """Probes of 107 MB/s on a c5.large, which may have taken credits above its 94, promised 116 MB/s without any."""
    world = UploadWorld(
        place=a_place(instance_type="c5.large"),
        host_bytes_per_second=108e6,
        connection_bytes_per_second=60e6,
    )
    probes = [world.observe(a_setting(n), index) for index, n in enumerate(threads)]
    fit, lasting = fit_of(world, probes), Demand(regime=Regime.SUSTAINED)
    fastest = max(MODEL.measured_value(probe) for probe in probes)
    for setting in (a_setting(n) for n in (4, 16, 64, 128)):
        found = MODEL.predict(fit, world.context, setting, lasting)["throughput_bytes_per_second"]
        assert found.low <= found.expected <= found.high
        assert found.expected <= 1.02 * fastest
        assert MODEL.usual(fit, world.context, [setting], lasting)[0] == pytest.approx(found.expected)
        told = MODEL.derive(fit, world.context, setting, lasting)
        assert told["sustained_throughput_bytes_per_second"] == pytest.approx(found.expected)


def test_no_more_is_gained_than_the_line_carries_or_was_measured() -> None:
    """Where 106 MB/s were expected beside 74 of the default, 1.54 times as much was promised."""
    world = UploadWorld(
        place=a_place(instance_type="c5.large"),
        host_bytes_per_second=108e6,
        connection_bytes_per_second=8e6,
    )
    probes = [world.observe(a_setting(n), index) for index, n in enumerate((4, 16, 64))]
    fit, lasting = fit_of(world, probes), Demand(regime=Regime.SUSTAINED)
    default = MODEL.default_setting(world.context)
    for setting in (a_setting(24), a_setting(64)):
        here, there = (
            MODEL.predict(fit, world.context, each, lasting)["throughput_bytes_per_second"].expected
            for each in (setting, default)
        )
        (logs,) = MODEL.log_gains(fit, world.context, [setting], default, lasting).T
        assert np.exp(logs.mean()) == pytest.approx(here / there, rel=0.01)


def test_a_client_that_tells_totals_alone_may_have_no_waves() -> None:
    """256 parts fed without pause: fifty connections carry more than 43, though both would need six waves."""
    stream = UploadWorld(host_bytes_per_second=3e9, object_seconds=0.0, size=GiB)
    totals = [
        replace(stream.observe(a_setting(n, 4), i), measures={})
        for i, n in enumerate((4, 16, 46, 27, 61, 40))
    ]
    fit = fit_of(stream, totals)
    few, more = (
        MODEL.predict(fit, stream.context, a_setting(n, 4), Demand())["throughput_bytes_per_second"].expected
        for n in (43, 50)
    )
    assert more / few > 1.0 + 0.8 * (50 / 43 - 1.0)
