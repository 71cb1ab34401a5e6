"""What applications report: it sharpens what is known, and no user can poison the advice with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from penstock.models.s3.download import S3DownloadModel, S3DownloadSetting
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.optimizer import reports
from penstock.optimizer.choice import unmeasured
from penstock.optimizer.deliberation import Case, Conclusion, deliberate
from penstock.optimizer.objective import coordinates
from penstock.optimizer.recommendation import assess
from penstock.units import MiB
from penstock.vocabulary import Basis, Context, Demand, Observation, Origin, Place
from tests.factories import a_queue_setting, recommended
from tests.factories import concluded as concluded_of
from tests.unit.models.s3.upload_world import (
    DESIGN,
    FIRST_AT,
    UploadWorld,
    a_place,
    a_setting,
    history,
)

MODEL = S3UploadModel()
AFTER = timedelta(days=1)
WORLDS = {
    "fast": UploadWorld(),
    "small": UploadWorld(size=64 * MiB),
    "noisy": UploadWorld(noise=0.15),
}
LIAR, OTHER = 1001, 1002


concluded = partial(concluded_of, a_place())


@cache
def honest(world: UploadWorld, count: int) -> Conclusion[Any]:
    """After probes alone."""
    return concluded(history(world, count))


def advised(world: UploadWorld, conclusion: Conclusion[Any]) -> S3UploadSetting:
    """The setting that is advised then."""
    setting = recommended(MODEL, conclusion.fit, world.context).setting
    assert isinstance(setting, S3UploadSetting)
    return setting


def reached(world: UploadWorld, conclusion: Conclusion[Any]) -> float:
    """What the advice gives in truth, as a fraction of the best there is."""
    best = max(world.truth(s) for s in MODEL.candidates(conclusion.fit, world.context, Demand()))
    return world.truth(advised(world, conclusion)) / best


def a_report(
    world: UploadWorld,
    setting: S3UploadSetting,
    index: int,
    *,
    factor: float = 1.0,
    uid: int = LIAR,
    client: str = "boto3",
) -> Observation[Any]:
    """What an application says of a transfer: the truth of the world times a factor."""
    return dataclasses.replace(
        world.observe(setting, 10_000 + index, factor=factor),
        origin=Origin.APPLICATION,
        client=client,
        reporter_uid=uid,
        started_at=FIRST_AT + AFTER + timedelta(seconds=index),
    )


def fewer(setting: S3UploadSetting) -> S3UploadSetting:
    """Three quarters of the threads: bad, and near enough to be believed."""
    return dataclasses.replace(setting, thread_count=max(1, round(setting.thread_count * 0.75)))


Lie = Callable[[UploadWorld, S3UploadSetting, int], Observation[Any]]
LIES: dict[str, Lie] = {
    "a hundred times": lambda world, _, i: a_report(world, DESIGN[i % 8], i, factor=100.0),
    "a hundredth": lambda world, _, i: a_report(world, DESIGN[i % 8], i, factor=0.01),
    "one bad setting is 30 % better": lambda world, best, i: a_report(world, fewer(best), i, factor=1.3),
    "and under fifty names": lambda world, best, i: a_report(
        world, fewer(best), i, factor=1.3, client=f"c{i % 50}"
    ),
    "and the best is 30 % worse": lambda world, best, i: a_report(
        world, (fewer(best), best)[i % 2], i, factor=(1.3, 0.7)[i % 2]
    ),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_a_thousand_lies_of_one_user_do_not_poison_the_advice(world: UploadWorld, lie: Lie) -> None:
    """After two dozen probes the advice is within 2 % of what it was, whatever one user reports."""
    probes, before = history(world, 24), honest(world, 24)
    best = advised(world, before)
    after = concluded([*probes, *(lie(world, best, i) for i in range(1000))])
    assert reached(world, after) > reached(world, before) - 0.02
    assert after.fit.drift_count == before.fit.drift_count == 0


def test_subtle_lies_early_on_cost_little() -> None:
    """Where only eight probes speak, lies of 15 % on both sides are believed in part: they cost 4 % at the most."""
    world = UploadWorld(host_bytes_per_second=3e9, connection_bytes_per_second=40e6)
    before = honest(world, 8)
    best = advised(world, before)
    lies = [
        a_report(world, (best, fewer(best))[i % 2], i, factor=(0.85, 1.15)[i % 2], uid=LIAR)
        for i in range(1000)
    ]
    assert reached(world, concluded([*history(world, 8), *lies])) > reached(world, before) - 0.05


def test_honest_reports_are_learned_from() -> None:
    """Also those of a client that is a fifth slower as a whole: that is its own, and no news about the place."""
    world = WORLDS["fast"]
    said = [a_report(world, DESIGN[i % 8], i, factor=0.8) for i in range(40)]
    after = concluded([*history(world, 24), *said])
    assert after.believed is not None
    assert len(after.believed) == reports.HEARD_COUNT_MAX_PER_USER
    assert after.disbelieved_count == 0
    assert after.fit.observation_count == 24 + 6  # a fifth of all evidence
    assert reached(world, after) > 0.97


# --- Where nothing was measured

WIDE = UploadWorld(host_bytes_per_second=3e9, connection_bytes_per_second=40e6)
INVENTED: dict[str, Lie] = {
    "one thread is enough": lambda world, _, i: a_report(
        world, a_setting(1, 8), i, factor=world.truth(a_setting(32, 8)) / world.truth(a_setting(1, 8))
    ),
    "few are good and many are bad": lambda world, _, i: a_report(
        world, a_setting((1, 2, 64)[i % 3], 8), i, factor=(6.0, 3.0, 0.2)[i % 3]
    ),
    "many in large parts are best": lambda world, _, i: a_report(world, a_setting(256, 64), i, factor=3.0),
    "everything is refused": lambda world, _, i: dataclasses.replace(
        a_report(world, DESIGN[i % 8], i), throttled_count=5
    ),
}


def guessed(world: UploadWorld) -> S3UploadSetting:
    """What is advised where nobody said anything: from tables, and not far from the SDK's own."""
    fit = concluded([]).fit
    within = unmeasured(MODEL, fit, world.context, Demand())
    advice = recommended(MODEL, fit, world.context, within=within)
    assert advice.basis is Basis.PRIOR
    assert isinstance(advice.setting, S3UploadSetting)
    return advice.setting


def octaves(one: S3UploadSetting, other: S3UploadSetting) -> float:
    """How far apart two settings are, in the knob in which they differ most."""
    return float(np.abs(np.diff(coordinates(S3UploadSetting, [one, other]), axis=0)).max())


@pytest.mark.parametrize("lie", INVENTED.values(), ids=INVENTED.keys())
@pytest.mark.parametrize(
    "world",
    [pytest.param(WORLDS["fast"], id="fast"), pytest.param(WIDE, id="wide", marks=pytest.mark.long)],
)
def test_a_user_who_is_alone_decides_nothing(world: UploadWorld, lie: Lie) -> None:
    """Invented reports move the advice to what the SDK does, or from the tables' by a factor of two at the most."""
    tables = guessed(world)
    after = concluded([lie(world, tables, i) for i in range(600)])
    advice_now, own = advised(world, after), MODEL.default_setting(world.context)
    assert advice_now == own or octaves(advice_now, tables) <= 1.0
    advice = assess(
        MODEL, after.fit, world.context, Demand(), a_setting(8), now=FIRST_AT, validity_seconds=3600.0
    )
    assert advice.basis is Basis.REPORTED
    assert "reported by applications, not measured here" in advice.explanation


def test_an_honest_user_who_is_alone_improves_the_advice() -> None:
    """On a host where nothing is probed his reports are all that there is: they close most of the gap to the best."""
    after = concluded([a_report(WIDE, DESIGN[i % 8], i) for i in range(40)])
    best = max(WIDE.truth(s) for s in MODEL.candidates(after.fit, WIDE.context, Demand()))
    assert after.fit.observation_count == reports.UNPROBED_COUNT_MAX
    assert WIDE.truth(guessed(WIDE)) / best < 0.55
    assert reached(WIDE, after) > 0.9


def test_reports_of_one_setting_say_nothing_of_fewer_threads() -> None:
    """A host of 98 MB/s that reads at 12 with eight may be slow in each connection: seven in small ranges were advised.

    More of them tell, or what the SDK does stands.
    """
    model, size, place = S3DownloadModel(), 64 * MiB, a_place()
    place = dataclasses.replace(place, instance_type="m7i.large")
    uploads = [
        dataclasses.replace(
            a_report(UploadWorld(size=size), a_setting(8, 8), 0),
            context=Context(place=place, payload_size_bytes=size),
            duration_seconds=3.6,
        )
    ]
    beside = deliberate(MODEL, Case(place=place, observations=tuple(uploads), seed=1)).fit
    context = Context(place=dataclasses.replace(place, operation="s3_download"), payload_size_bytes=size)
    read: Observation[Any] = Observation(
        context=context,
        setting=S3DownloadSetting(thread_count=8, range_size_bytes=8 * MiB),
        origin=Origin.APPLICATION,
        started_at=FIRST_AT,
        duration_seconds=5.41,
        transferred_bytes=size,
        request_count=8,
        client="boto3",
        reporter_uid=LIAR,
        measures={"first_byte_seconds_mean": 0.052},
    )
    fit = deliberate(model, Case(place=context.place, observations=(read,), prior=beside, seed=1)).fit
    advice = recommended(model, fit, context)
    own = model.default_setting(context)
    assert advice.basis is Basis.REPORTED
    assert advice.setting == own or advice.setting.thread_count > read.setting.thread_count


def test_reports_of_one_setting_do_not_tell_what_limits() -> None:
    """Half of what there is, by what each connection carries: it looks like a ceiling, and is not called one."""
    world = UploadWorld(size=256 * MiB, connection_bytes_per_second=3e6, host_bytes_per_second=60e6)
    alike = concluded([a_report(world, a_setting(10, 8), i) for i in range(3)]).fit
    unlike = concluded([a_report(world, a_setting((4, 10, 32)[i], 8), i) for i in range(3)]).fit
    told = [
        assess(MODEL, fit, world.context, Demand(), a_setting(10, 8), now=FIRST_AT, validity_seconds=3600.0)
        for fit in (alike, unlike)
    ]
    assert [each.bottleneck for each in told] == ["unsure", "connections"]


def test_users_who_report_alike_may_lead_further() -> None:
    """What two of them saw is seen; a third who says otherwise has no say in it.

    A hundredth is what it costs to believe in late requests where there are none.
    """
    said = [a_report(WIDE, DESIGN[i // 2 % 8], i, uid=(LIAR, OTHER)[i % 2]) for i in range(64)]
    after = concluded(said)
    assert octaves(advised(WIDE, after), guessed(WIDE)) > 1.0
    assert reached(WIDE, after) > 0.98
    lone = [a_report(WIDE, a_setting(1, 8), 100 + i, factor=5.0, uid=LIAR) for i in range(20)]
    others = [a_report(WIDE, a_setting(1, 8), 200 + i, uid=OTHER) for i in range(20)]
    assert {o.setting for o in reports.corroborated(MODEL, [*said, *lone, *others])} == set(DESIGN)


def test_what_no_table_can_explain_is_not_believed() -> None:
    """One connection that carries 8 GB/s: nobody who says so is heard, and the tables' advice stands."""
    said = [a_report(WIDE, a_setting(1, 8), i, factor=8e9 / WIDE.truth(a_setting(1, 8))) for i in range(600)]
    after = concluded(said)
    assert after.believed == ()
    assert after.disbelieved_count == reports.HEARD_COUNT_MAX_PER_USER
    assert after.fit.observation_count == 0
    assert not after.fit.is_from_reports


def test_users_share_what_reports_may_weigh() -> None:
    """One who reports a hundred times as often as another is heard no more often."""
    world = WORLDS["fast"]
    probes = history(world, 24)
    said = [a_report(world, DESIGN[i % 8], i, uid=LIAR) for i in range(500)]
    said += [a_report(world, DESIGN[i % 8], i, uid=OTHER) for i in range(5)]
    hearing = reports.hear(MODEL, honest(world, 24).fit, probes, said)
    users = [report.reporter_uid for report in hearing.learned_from]
    assert users.count(LIAR) == 6
    assert users.count(OTHER) == 5


def test_reports_do_not_push_own_measurements_out_of_a_full_history() -> None:
    """A fit has room for so many: the shares hold within it, however new the reports are."""
    world, users = WORLDS["fast"], 4
    probes = history(world, 100)
    said = [a_report(world, DESIGN[i % 8], i, uid=LIAR + i % users, factor=0.8) for i in range(400)]
    hearing = reports.hear(MODEL, honest(world, 100).fit, probes, said)
    room = MODEL.observation_count_max
    assert len(hearing.learned_from) == int(reports.REPORTED_SHARE_MAX * room)
    assert hearing.probes == tuple(probes[len(hearing.learned_from) - room :])
    after = concluded([*probes, *said]).fit
    assert after.observation_count == room
    expected = MODEL.predict(after, world.context, a_setting(64), Demand())["throughput_bytes_per_second"]
    assert expected.low < world.truth(a_setting(64)) < expected.high


def test_nobody_can_speak_for_penstock_itself() -> None:
    """A report that calls its client by penstock's name is a stranger's all the same."""
    world = WORLDS["fast"]
    said = [a_report(world, DESIGN[i % 8], i, client="penstock") for i in range(8)]
    hearing = reports.hear(MODEL, honest(world, 24).fit, history(world, 24), said)
    assert {report.client for report in hearing.believed} == {f"penstock of user {LIAR}"}


@pytest.mark.parametrize(("throttled_count", "failed_count"), [(3, 0), (0, 3)])
def test_trouble_that_only_reports_know_is_not_learned_from(throttled_count: int, failed_count: int) -> None:
    """Evidence that a fit must not explain away has to be its own."""
    world = WORLDS["fast"]
    said = [
        dataclasses.replace(
            a_report(world, DESIGN[i % 8], i), throttled_count=throttled_count, failed_count=failed_count
        )
        for i in range(8)
    ]
    assert concluded([*history(world, 24), *said]).believed == ()


def test_a_report_of_many_connections_dares_nothing() -> None:
    """The next probe goes no further than four times what was probed before."""
    world = WORLDS["fast"]
    probes = [world.observe(a_setting(4), 0), world.observe(a_setting(8), 1)]
    said = [a_report(world, a_setting(1000, 5), i) for i in range(20)]
    plan = concluded([*probes, *said], next_context=world.context).plan
    assert plan is not None
    assert plan.setting.thread_count <= 32


def test_reports_do_not_say_where_advice_may_lie() -> None:
    """Advice stays near what was measured at a size; reports of bad settings must not be what it stays near to."""
    world = WORLDS["small"]
    large = history(UploadWorld(), 24)
    said = [a_report(world, a_setting(n % 3 + 1, 5 + n % 3), n) for n in range(60)]
    after = concluded([*large, *said])
    assert reached(world, after) > reached(world, concluded(large)) - 0.03


@pytest.mark.parametrize("thread_count", [1, 4, 16, 64])
def test_an_object_that_went_whole_took_one_connection(thread_count: int) -> None:
    """However many threads its client may use: it is believed, and so is what the same client says of large objects."""
    large, small = WORLDS["small"], UploadWorld(size=MiB, object_seconds=0.0)
    said = [a_report(small, a_setting(thread_count, 5), i) for i in range(12)]
    said += [a_report(large, DESIGN[i % 8], 20 + i) for i in range(8)]
    after = concluded([*history(large, 24), *said])
    assert after.believed is not None
    sizes = [report.context.payload_size_bytes for report in after.believed]
    assert sizes.count(large.size) == 8
    assert sizes.count(small.size) > 6  # nothing as small was probed: some are beyond what is expected


def test_single_requests_do_not_measure_a_stream_of_them() -> None:
    """Where nothing is probed, 20 objects one by one say little of 64 at a time, and dare no more than tables do."""
    small = UploadWorld(size=MiB, object_seconds=0.0)
    fit = concluded([a_report(small, a_setting(64, 5), i) for i in range(20)]).fit
    assert [cell.setting["thread_count"] for cell in fit.cells] == [1.0]
    told = assess(
        MODEL, fit, small.context, Demand(), a_setting(64, 5), now=FIRST_AT, validity_seconds=3600.0
    )
    assert told.basis is Basis.REPORTED
    after = concluded([a_report(small, a_setting(64, 5), 1)])
    assert advised(small, after).thread_count <= guessed(small).thread_count


def test_more_threads_than_parts_are_not_in_use() -> None:
    """What measures and limits are reported beside the setting changes nothing about that."""
    world = WORLDS["small"]
    said = dataclasses.replace(
        a_report(world, a_setting(64, 16), 1), measures={"connection_count": 0.0, "part_count": 1e6}
    )
    (believed,) = reports.hear(MODEL, honest(world, 24).fit, [], [said]).believed
    assert believed.setting == a_setting(4, 16)


def said_after(
    days: float, world: UploadWorld, *, count: int = 32, uid: int = LIAR
) -> list[Observation[Any]]:
    """Reports of one user, the last of them so many days after the last of 24 probes."""
    last_at = history(world, 24)[-1].started_at + timedelta(days=days)
    return [
        dataclasses.replace(
            a_report(world, DESIGN[i % 8], i, uid=uid), started_at=last_at - timedelta(minutes=count - 1 - i)
        )
        for i in range(count)
    ]


SLOWED = UploadWorld(host_bytes_per_second=180e6, connection_bytes_per_second=4.5e6)


def test_measurements_lose_their_veto_when_nothing_newer_is_measured() -> None:
    """A world that changed while nothing is probed can be learned of: late, and from reports that agree no more."""
    before, probes = honest(WORLDS["fast"], 24), history(WORLDS["fast"], 24)
    early = concluded([*probes, *said_after(reports.VETO_DAYS - 0.1, SLOWED)])
    late = concluded([*probes, *said_after(reports.VETO_DAYS + 0.1, SLOWED)])
    assert early.fit.newest_observation_at == before.fit.newest_observation_at
    assert early.disbelieved_count == 32
    assert late.disbelieved_count == 0
    assert reached(SLOWED, late) > 0.97
    expected = MODEL.predict(late.fit, SLOWED.context, a_setting(32), Demand())["throughput_bytes_per_second"]
    assert expected.expected == pytest.approx(SLOWED.truth(a_setting(32)), rel=0.1)
    assert {cell.count for cell in late.fit.cells} == {4}  # of the reports alone
    assert late.fit.unreported == dataclasses.replace(before.fit, alone=None)


def test_reports_that_overrule_measurements_stand_in_for_no_probe() -> None:
    """The sooner one is made, the better."""
    late = concluded([*history(WORLDS["fast"], 24), *said_after(reports.VETO_DAYS + 0.1, SLOWED)])
    assert late.believed == ()


def test_one_probe_gives_measurements_their_veto_back() -> None:
    """Whatever was reported in the meantime."""
    world = WORLDS["fast"]
    said = said_after(20.0, SLOWED)
    newest = dataclasses.replace(world.observe(DESIGN[0], 99), started_at=said[0].started_at)
    hearing = reports.hear(MODEL, honest(world, 24).fit, [*history(world, 24), newest], said)
    assert hearing.believed == ()
    assert len(hearing.probes) == 25


def test_old_measurements_stand_while_reports_agree_with_them() -> None:
    """Also when somebody else reports much that does not: users count alike."""
    world = WORLDS["fast"]
    said = said_after(20.0, world, count=4, uid=OTHER) + said_after(20.0, SLOWED, count=500)
    hearing = reports.hear(MODEL, honest(world, 24).fit, history(world, 24), said)
    assert len(hearing.probes) == 24
    assert {report.reporter_uid for report in hearing.believed} == {OTHER}


QUEUE = Place(operation="sqs_delivery", region="eu-west-1", instance_type="m7i.large")


def a_delivery(index: int, *, slower: float = 1.0, uid: int | None = None) -> Observation[Any]:
    """A minute on a queue whose requests take 10 to 15 ms; deletes by a factor slower."""
    filled = (1, 4, 10)[index % 3]
    rate = 20.0 * filled
    seconds = 0.01 + 0.0005 * filled
    # An application's long polls wait for messages: four receivers with little to do measure that.
    polled = seconds if uid is None else max(seconds, 4 * filled / rate)
    measures = {"goodput_messages_per_second": rate}
    for action, past, each in (
        ("send", "sent", seconds),
        ("receive", "received", polled),
        ("delete", "deleted", slower * seconds),
    ):
        measures[f"{action}_seconds_mean"] = each
        measures[f"{action}_request_count"] = 60.0 * rate / filled
        measures[f"{past}_count"] = 60.0 * rate
    return Observation(
        context=Context(place=QUEUE, payload_size_bytes=1024),
        setting=a_queue_setting(4, 4, 4, batch=filled, send_rate_limit_messages_per_second=rate),
        started_at=FIRST_AT + timedelta(minutes=index) + (timedelta() if uid is None else AFTER),
        duration_seconds=60.0,
        transferred_bytes=round(60 * rate * 1024),
        request_count=round(3 * 60 * rate / filled),
        measures=measures,
        origin=Origin.PROBE if uid is None else Origin.APPLICATION,
        reporter_uid=uid,
    )


@pytest.mark.parametrize(
    ("slower", "is_believed"), [(1.0, True), (100.0, False), (0.01, False), (2.0, False)]
)
def test_reports_about_a_queue_must_agree_request_by_request(slower: float, *, is_believed: bool) -> None:
    """An honest goodput does not carry false seconds of one action in with it."""
    model = SqsDeliveryModel()
    probes = [a_delivery(i) for i in range(18)]
    fit = model.fit(QUEUE, probes, prior=None, seed=1)
    said = [a_delivery(i, slower=slower, uid=LIAR) for i in range(12)]
    assert bool(reports.hear(model, fit, probes, said).believed) is is_believed
