"""The board: what stands, what is news, what comes back after a restart, and who is a neighbour."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from penstock.daemon import assembly
from penstock.daemon import board as board_module
from penstock.daemon.board import Board, nearest
from penstock.daemon.config import Configuration, ProbesSection
from penstock.fleet.limit import FleetShare
from penstock.models.model import Fit
from penstock.models.s3.upload import S3UploadSetting
from penstock.operations.sections.objects import ObjectSection
from penstock.operations.table import OPERATIONS
from penstock.units import GiB, MiB, TiB, format_bytes
from penstock.vocabulary import Basis, Context, Demand, Place, Recommendation
from tests.factories import CONTEXT, NOON, PLACE, SETTING, a_fit, an_observation

MODEL = OPERATIONS["s3_upload"].model
VALIDITY_SECONDS = 3600.0


def a_board(*contexts: Context, **changes: Any) -> Board:
    return Board(
        contexts or (CONTEXT,),
        thread_count_max={"s3_upload": 16},
        region=PLACE.region,
        instance_type=PLACE.instance_type,
        validity_seconds=VALIDITY_SECONDS,
        **changes,
    )


def a_learned_fit(count: int = 3) -> Fit:
    observations = [
        an_observation(started_at=NOON + timedelta(minutes=i), duration_seconds=2.0 + 0.01 * i)
        for i in range(count)
    ]
    return MODEL.fit(PLACE, observations, prior=None, seed=1)


async def test_a_first_fit_is_news_and_the_same_again_is_not() -> None:
    """Watchers and the store hear of changes only."""
    board, fit = a_board(), a_learned_fit()

    assert [r.context for r in await board.post(fit, NOON)] == [CONTEXT]
    assert await board.post(fit, NOON + timedelta(minutes=1)) == []


def test_advice_names_the_store_whose_rules_hold() -> None:
    """In answers, in what stands and in shares of leases; that of an operation on something else does not."""
    board = a_board(stores={"s3_upload": "ceph"})
    queue = Context(place=dataclasses.replace(PLACE, operation="sqs_delivery"), payload_size_bytes=1)
    assert board.recommend(CONTEXT, Demand(), NOON).store == "ceph"
    assert board.snapshot(NOON).recommendations[0].store == "ceph"
    assert board.assess(CONTEXT, Demand(), SETTING, NOON).store == "ceph"
    assert not board.recommend(queue, Demand(), NOON).store


async def test_the_generation_rises_with_each_fit() -> None:
    """A client can tell that something may have changed."""
    board = a_board()
    before = board.generation
    await board.post(a_learned_fit(), NOON)

    assert board.generation > before


async def test_advice_is_as_old_as_its_fit() -> None:
    """Asking again later does not make the evidence younger; and none of it is from the future."""
    board = a_board()
    await board.post(a_learned_fit(), NOON)
    later = board.recommend(CONTEXT, Demand(), NOON + timedelta(hours=5))

    assert later.issued_at == NOON
    assert later.has_expired(NOON + timedelta(hours=5))


async def test_a_fit_to_nothing_newer_makes_advice_no_younger() -> None:
    """Reports that nobody believes bring fits as well, and must not keep old advice in force."""
    board, later = a_board(), NOON + timedelta(hours=5)
    await board.post(a_learned_fit(), NOON + timedelta(hours=1))
    first = board.recommend(CONTEXT, Demand(), later)
    await board.post(a_learned_fit(), later)
    await board.post(dataclasses.replace(a_learned_fit(), newest_observation_at=None), later)
    again = board.recommend(CONTEXT, Demand(), later)
    assert (again.issued_at, again.expires_at) == (first.issued_at, first.expires_at)
    assert again.has_expired(later)
    assert board.assess(CONTEXT, Demand(), SETTING, later).issued_at == first.issued_at


async def test_what_was_believed_once_does_not_make_advice_younger_again() -> None:
    """Neither when it is taken back nor when it is believed once more."""
    board, later = a_board(), NOON + timedelta(hours=5)
    for count, at in ((3, NOON), (4, NOON + timedelta(hours=1)), (3, later), (4, later)):
        await board.post(a_learned_fit(count), at)
    assert board.recommend(CONTEXT, Demand(), later).issued_at == NOON + timedelta(hours=1)


async def test_something_newer_makes_advice_new() -> None:
    """A daemon that goes on measuring goes on advising, also after a restart and where tables were all it had."""
    board, later = a_board(), NOON + timedelta(hours=5)
    for count in (0, 3, 4):
        await board.post(a_learned_fit(count), later + timedelta(hours=count))
        assert board.recommend(CONTEXT, Demand(), later).issued_at == later + timedelta(hours=count)
    board.restore([a_learned_fit(3)], [], later)
    await board.post(a_learned_fit(4), later)
    assert board.recommend(CONTEXT, Demand(), later).issued_at == later


async def test_a_restart_makes_advice_neither_younger_nor_older() -> None:
    """Whether the last fit was kept or has to be made anew: both are as old as the newest observation."""
    kept, anew, later = a_board(), a_board(), NOON + timedelta(days=20)
    kept.restore([a_learned_fit()], [], later)
    await anew.post(a_learned_fit(), later)
    for board in (kept, anew):
        assert board.recommend(CONTEXT, Demand(), later).issued_at == NOON + timedelta(minutes=2)


async def test_advice_of_a_clock_that_was_ahead_does_not_hold_until_then() -> None:
    """It is dated as of now when the clock steps back, and what is measured from then on makes it new again."""
    board, then = a_board(), NOON + timedelta(days=365)
    await board.post(dataclasses.replace(a_learned_fit(), newest_observation_at=then), then)
    board.recommend(CONTEXT, Demand(), NOON)
    board.assess(CONTEXT, Demand(), SETTING, NOON)
    assert board.redate(NOON)
    for now in (NOON, NOON + timedelta(hours=2)):
        for advice in (
            board.recommend(CONTEXT, Demand(), now),
            board.assess(CONTEXT, Demand(), SETTING, now),
        ):
            assert advice.expires_at == NOON + timedelta(seconds=VALIDITY_SECONDS)
    later = NOON + timedelta(hours=2)
    await board.post(dataclasses.replace(a_learned_fit(), newest_observation_at=later), later)
    assert board.recommend(CONTEXT, Demand(), later).issued_at == later


async def test_a_clock_that_was_behind_for_a_while_makes_no_advice_older() -> None:
    """Whichever of two dates was wrong: once it is right again, what was advised is as old as it is."""
    board = a_board()
    await board.post(a_learned_fit(), NOON)
    advised = board.recommend(CONTEXT, Demand(), NOON)
    behind = NOON - timedelta(days=9)
    assert board.redate(behind)
    assert board.recommend(CONTEXT, Demand(), behind).issued_at == behind
    assert board.recommend(CONTEXT, Demand(), NOON + timedelta(minutes=9)) == advised


def test_without_a_fit_the_sdk_default_stands() -> None:
    """An application always gets an answer."""
    assert a_board().recommend(CONTEXT, Demand(), NOON).basis is Basis.DEFAULT


async def test_a_restored_board_gives_the_same_advice() -> None:
    """After a restart nothing has to be measured or fitted again."""
    first, second = a_board(), a_board()
    fit = a_learned_fit()
    changed = await first.post(fit, NOON)
    second.restore([fit], changed, NOON + timedelta(minutes=10))

    before = first.recommend(CONTEXT, Demand(), NOON)
    after = second.recommend(CONTEXT, Demand(), NOON + timedelta(minutes=10))
    assert (after.setting, after.basis) == (before.setting, before.basis)


def test_places_that_users_speak_of_do_not_pile_up_over_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each life lets every user speak of some; the newest are taken up again, and what was measured always."""
    monkeypatch.setattr(board_module, "PLACE_COUNT_MAX", 4)
    board = a_board()
    reported = [
        a_fit(
            place=dataclasses.replace(PLACE, region=f"made-up-{i}"),
            is_from_reports=True,
            newest_observation_at=NOON + timedelta(minutes=i),
            state=a_learned_fit().state,
        )
        for i in range(6)
    ]
    board.restore([a_learned_fit(), *reported], [], NOON)
    assert {fit.place for fit in board.fits()} == {PLACE, *(fit.place for fit in reported[2:])}


async def test_any_size_is_answered_from_the_same_fit() -> None:
    """Sizes that were never probed rest on the physics of those that were."""
    board = a_board()
    await board.post(a_learned_fit(), NOON)
    advice = board.recommend(dataclasses.replace(CONTEXT, payload_size_bytes=777 * MiB), Demand(), NOON)

    assert advice.basis is Basis.MODEL


async def test_no_number_of_odd_questions_displaces_what_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standing advice is the very same answer afterwards; what was asked is forgotten, oldest first."""
    monkeypatch.setattr(board_module, "_ANSWER_COUNT_MAX", 8)
    board = a_board()
    await board.post(a_learned_fit(), NOON)
    (standing,) = board.snapshot(NOON).recommendations
    asked = [board.recommend(CONTEXT, Demand(work_seconds=float(n + 1)), NOON) for n in range(20)]
    assert board.snapshot(NOON).recommendations[0] is standing
    assert board.recommend(CONTEXT, Demand(work_seconds=20.0), NOON) is asked[-1]
    assert board.recommend(CONTEXT, Demand(work_seconds=1.0), NOON) is not asked[0]
    assert len(board._answers) <= 8 + 1
    assert len(board._previous) <= 8 + 1


async def test_nothing_beyond_the_operators_limits_is_advised() -> None:
    """A limit of the configuration holds for advice as it does for probes; the question is echoed as it was asked."""
    board = a_board()
    await board.post(a_learned_fit(), NOON)
    for size in (64 * 1024, 64 * MiB, 64 * 1024 * MiB):
        context = dataclasses.replace(CONTEXT, payload_size_bytes=size)
        advice = board.recommend(context, Demand(thread_count_max=500), NOON)
        assert advice.setting.thread_count <= 16
        assert advice.demand == Demand(thread_count_max=500)


async def test_advice_keeps_to_what_the_fleet_leaves_to_this_host() -> None:
    """Threads are scaled to it, as for a lease; the answer says what the part is, and of what."""
    free = a_board()
    await free.post(a_learned_fit(), NOON)
    alone = free.recommend(CONTEXT, Demand(), NOON)
    rate = free.request_rate_per_second(alone)
    assert rate > 0

    async def advised(requests_per_second: float) -> Recommendation[Any]:
        share = FleetShare(
            limit="backups",
            limit_requests_per_second=8 * rate,
            requests_per_second=requests_per_second,
            wanted_per_second=rate,
            host_count=8,
            is_alone=False,
        )
        board = a_board(fleet_share={"s3_upload": share}.get)
        await board.post(a_learned_fit(), NOON)
        return board.recommend(CONTEXT, Demand(), NOON)

    enough, little = await advised(rate), await advised(rate / 4)
    assert enough.setting == alone.setting
    assert little.setting.thread_count == max(1, round(alone.setting.thread_count / 4))
    assert little.setting.part_size_bytes == alone.setting.part_size_bytes
    assert little.derived["request_rate_limit_per_second"] == pytest.approx(rate / 4)
    assert little.derived["fleet_fraction"] == pytest.approx(1 / 32)
    assert "for this one of 8 hosts" in little.explanation


async def test_what_a_probe_may_hold_does_not_bound_an_application() -> None:
    """Its own memory does; the operator's limit on threads bounds both, also where more memory would do."""
    section = ObjectSection(memory_bytes_max=GiB, thread_count_max=12)
    board = assembly.board_of(Configuration(probes=ProbesSection(s3_upload=section)), PLACE)
    await board.post(a_learned_fit(), NOON)
    context = dataclasses.replace(CONTEXT, payload_size_bytes=5 * TiB)

    def advised(demand: Demand) -> S3UploadSetting:
        setting = board.recommend(context, demand, NOON).setting
        assert isinstance(setting, S3UploadSetting)
        return setting

    for demand in (Demand(), Demand(memory_bytes_max=64 * GiB)):
        setting = advised(demand)
        assert GiB < setting.thread_count * setting.part_size_bytes <= 64 * GiB
        assert 1 < setting.thread_count <= 12
    setting = advised(Demand(memory_bytes_max=2 * GiB))
    assert GiB < setting.thread_count * setting.part_size_bytes <= 2 * GiB


@pytest.mark.parametrize(
    ("operation", "size", "least"),
    [
        ("s3_upload", GiB, 5 * MiB),
        ("s3_upload", 6 * MiB, 5 * MiB),  # the mean part is 3 MiB
        ("s3_upload", MiB, MiB),
        ("sqs_delivery", 1024, None),
    ],
)
async def test_a_memory_limit_that_cannot_be_kept_is_not_broken_in_silence(
    operation: str, size: int, least: int | None
) -> None:
    """There is an answer all the same: it holds the least, and says how much that is."""
    board, place = a_board(), dataclasses.replace(PLACE, operation=operation)
    context = Context(place=place, payload_size_bytes=size)
    await board.post(OPERATIONS[operation].model.fit(place, (), prior=None, seed=1), NOON)
    short = board.recommend(context, Demand(memory_bytes_max=1024), NOON)
    held = int(short.derived["memory_bytes_min"])
    assert held == (least or held)
    assert f"at least {format_bytes(held)} ({held:,} bytes) for buffers, and 1 KiB are" in short.explanation
    enough = board.recommend(context, Demand(memory_bytes_max=held), NOON)
    assert enough.setting == short.setting
    assert "memory_bytes_min" not in enough.derived
    assert "bytes)" not in enough.explanation
    if operation == "s3_upload":
        assert "memory_bytes_min" in board.recommend(context, Demand(memory_bytes_max=held - 1), NOON).derived


@pytest.mark.parametrize(
    ("operation", "size", "most"),
    [("s3_upload", 20 * MiB, 30 * MiB), ("s3_upload", 20 * MiB, 64 * MiB), ("sqs_delivery", 1024, GiB)],
)
def test_what_keeps_the_memory_is_not_said_to_break_it(operation: str, size: int, most: int) -> None:
    """Ten threads of 8 MiB hold no more than the three parts of 20 MiB."""
    context = Context(place=dataclasses.replace(PLACE, operation=operation), payload_size_bytes=size)
    advice = a_board().recommend(context, Demand(memory_bytes_max=most), NOON)
    assert advice.setting == OPERATIONS[operation].model.default_setting(context)
    assert "for buffers" not in advice.explanation


def test_the_least_without_a_fit_says_when_it_holds_more_than_was_allowed() -> None:
    """One part of 5 MiB: less cannot be held, and nothing is known here."""
    advice = a_board().recommend(CONTEXT, Demand(memory_bytes_max=MiB), NOON)
    assert "as close to the SDK's default as the limits allow" in advice.explanation
    assert "It holds 5 MiB (5,242,880 bytes) for buffers, and 1 MiB are allowed." in advice.explanation
    assert advice.derived == {}


async def test_what_was_never_measured_stays_near_the_default() -> None:
    """Tables alone do not make anybody open hundreds of connections."""
    board = Board(
        (CONTEXT,),
        thread_count_max={},
        region=PLACE.region,
        instance_type="p5",
        validity_seconds=VALIDITY_SECONDS,
    )
    await board.post(MODEL.fit(PLACE, (), prior=None, seed=1), NOON)

    assert board.recommend(CONTEXT, Demand(), NOON).setting.thread_count <= 40


def test_the_nearest_neighbour_shares_the_region_first() -> None:
    """What belongs to the region weighs more than what belongs to the host."""
    same_region = a_fit(place=dataclasses.replace(PLACE, instance_type="m7g.large"))
    same_host = a_fit(place=dataclasses.replace(PLACE, region="us-west-2"))

    assert nearest(PLACE, [same_host, same_region]) == same_region


def test_a_place_is_not_its_own_neighbour_and_ignorance_is_none() -> None:
    """A prior that rests on nothing, on itself or on another operation is no prior."""
    itself = a_fit()
    ignorant = a_fit(place=dataclasses.replace(PLACE, region="us-west-2"), observation_count=0)
    foreign = a_fit(place=dataclasses.replace(PLACE, operation="sqs_delivery", region="us-west-2"))

    assert nearest(PLACE, [itself, ignorant, foreign]) is None


def test_a_kindred_operation_is_nearer_than_the_same_host_elsewhere() -> None:
    """What downloads found of this way and this host comes after uploads by the same way, and before all else."""
    kindred = {"s3_download"}
    download = a_fit(place=dataclasses.replace(PLACE, operation="s3_download"))
    same_region = a_fit(place=dataclasses.replace(PLACE, instance_type="m7g.large"))
    same_host = a_fit(place=dataclasses.replace(PLACE, region="us-west-2"))
    elsewhere = a_fit(place=dataclasses.replace(download.place, region="us-west-2"))

    assert nearest(PLACE, [same_region, same_host, download], kindred) == same_region
    assert nearest(PLACE, [same_host, download], kindred) == download
    assert nearest(PLACE, [elsewhere], kindred) is None
    assert nearest(PLACE, [download]) is None


def test_what_was_measured_is_a_nearer_neighbour_than_what_was_reported() -> None:
    """Anybody may report about any region; a place that penstock measured comes first, however far it is."""
    reported = a_fit(
        place=dataclasses.replace(PLACE, instance_type="m7g.large"),
        observation_count=30,
        is_from_reports=True,
    )
    far = Place(operation="s3_upload", region="us-west-2", instance_type="m7g.large")
    measured = a_fit(place=far, observation_count=1)

    assert nearest(PLACE, [reported, measured]) == measured
    assert nearest(PLACE, [reported]) == reported


def test_the_neighbour_does_not_depend_on_which_place_was_fitted_first() -> None:
    """Of two that are as near, with as many measurements of their own, it is always the same."""
    one, other = (
        a_fit(place=dataclasses.replace(PLACE, region=region)) for region in ("us-west-2", "us-east-1")
    )
    heard = dataclasses.replace(other, observation_count=9, alone=other)

    assert nearest(PLACE, [one, heard]) == nearest(PLACE, [heard, one]) == one


def test_a_fit_of_an_unknown_operation_is_left_alone() -> None:
    """A database of a newer version may hold operations that this one does not know."""
    board = a_board()
    unknown = a_fit(place=dataclasses.replace(PLACE, operation="dynamodb_write"))
    board.restore([unknown], [], NOON)

    assert board.fits() == []


def test_a_fit_of_another_version_is_left_alone() -> None:
    """What an older or newer penstock stored is not misread: the SDK's default stands until there is a new fit."""
    fit = a_learned_fit()
    versions = [{**fit.state, "version": 10**6}, {k: v for k, v in fit.state.items() if k != "version"}]
    for state in (*versions, {}):
        board = a_board()
        board.restore([dataclasses.replace(fit, state=state)], [], NOON)
        assert board.fits() == []
        assert board.recommend(CONTEXT, Demand(), NOON).basis is Basis.DEFAULT


async def test_any_setting_can_be_assessed() -> None:
    """What was chosen elsewhere is told what to expect, from the fit that stands; without one, nothing is expected."""
    board, few = a_board(), dataclasses.replace(SETTING, thread_count=2)
    assert board.assess(CONTEXT, Demand(), few, NOON).prediction == {}
    for count in (3, 6):
        await board.post(a_learned_fit(count), NOON)
        assessed = board.assess(CONTEXT, Demand(), few, NOON)
        assert (assessed.setting, assessed.observation_count) == (few, count)
        more = board.assess(CONTEXT, Demand(), SETTING, NOON)
        assert (
            assessed.prediction["throughput_bytes_per_second"].expected
            < more.prediction["throughput_bytes_per_second"].expected
        )


async def test_advice_that_is_as_good_stands_within_the_operators_limits() -> None:
    """A fit that says nearly the same changes nothing, unless the operator allows less than it did."""
    board, fit = a_board(), a_learned_fit(6)
    await board.post(fit, NOON)
    first = board.recommend(CONTEXT, Demand(), NOON)

    def again(**knobs: int) -> S3UploadSetting:
        """What is advised after a restart, when this was before."""
        setting = dataclasses.replace(first.setting, **knobs)
        restarted = a_board()
        restarted.restore([fit], [dataclasses.replace(first, setting=setting)], NOON)
        advised = restarted.recommend(CONTEXT, Demand(), NOON)
        assert advised.demand == Demand()
        found: S3UploadSetting = advised.setting
        return found

    near = dataclasses.replace(first.setting, part_size_bytes=5_300_000)
    assert [again(), again(part_size_bytes=5_300_000)] == [first.setting, near]
    assert again(thread_count=17) == first.setting
