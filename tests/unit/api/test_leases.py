"""Leases: what each may use, who counts how much, and what happens when one comes or goes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.leases import (
    LEASE_COUNT_MAX,
    LEASE_COUNT_MAX_PER_UID,
    Appetite,
    Lease,
    LeaseBook,
    TooManyLeasesError,
    appetite,
    apportion,
    divide,
    endless,
    lease_documents,
)
from penstock.api.wire import Claim, Question, UnreadableError, read_claim
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.upload import S3UploadSetting
from penstock.models.sharing import water_fill
from penstock.units import GiB, MiB
from penstock.vocabulary import Basis, Demand, Setting, setting_values
from tests.factories import NOON, a_queue_setting, a_recommendation

WEIGHTS = st.floats(0.1, 10)


def an_upload(thread_count: int, use_fraction: float | None = 1.0) -> Appetite:
    setting = S3UploadSetting(thread_count=thread_count, part_size_bytes=16 * MiB)
    return Appetite(setting=setting, use_fraction=use_fraction)


def a_claim(operation: str = "s3_upload", **changes: Any) -> Claim:
    question = Question(
        operation=operation,
        payload_size_bytes=GiB,
        region=None,
        instance_type=None,
        service_class="standard",
        demand=Demand(),
    )
    return Claim(question=question, **changes)


def granted(book: LeaseBook, wanted: Appetite, *, uid: int = 1000, **changes: Any) -> Lease:
    return book.grant(a_claim(**changes), wanted, process_id=1, uid=uid, now=NOON)


def threads(setting: Setting) -> float:
    return setting_values(setting)["thread_count"]


@pytest.mark.parametrize(("lease_count", "shares"), [(1, [32]), (2, [16, 16]), (5, [7, 7, 6, 6, 6])])
def test_the_shares_of_equals_are_equal_and_sum_to_the_optimum(lease_count: int, shares: list[int]) -> None:
    """The host runs at its optimum, however many work at a time; part sizes stay as they are."""
    divided = divide([an_upload(32)] * lease_count, [1.0] * lease_count)
    assert [threads(share.setting) for share in divided] == shares
    assert {setting_values(share.setting)["part_size_bytes"] for share in divided} == {16 * MiB}


def test_what_one_cannot_use_goes_to_the_others() -> None:
    """An upload that cannot use more than 2 of 32 threads gets these, and its neighbour the other 30."""
    small, large = divide([an_upload(2, 2 / 32), an_upload(32)], [1.0, 1.0])
    assert (threads(small.setting), threads(large.setting)) == (2, 30)


def test_a_weight_of_three_is_three_shares() -> None:
    """Who counts more gets more, in proportion."""
    heavy, light = divide([an_upload(32), an_upload(32)], [3.0, 1.0])
    assert (threads(heavy.setting), threads(light.setting)) == (24, 8)


def test_different_optima_fill_the_host_together() -> None:
    """Half the host is half of each one's own optimum, whatever the size of its objects."""
    small, large = divide([an_upload(64), an_upload(20)], [1.0, 1.0])
    assert (threads(small.setting), threads(large.setting)) == (32, 10)
    assert small.host_fraction == large.host_fraction == 0.5


def test_who_could_use_half_the_host_gets_his_part_of_what_he_could_use() -> None:
    """Three of them have a third of the host each: two thirds of what each would run at."""
    shares = divide([an_upload(12, 0.5)] * 3, [1.0] * 3)
    assert [threads(share.setting) for share in shares] == [8, 8, 8]
    assert sum(share.host_fraction or 0.0 for share in shares) == pytest.approx(1.0)


def test_nobody_is_left_without_a_thread() -> None:
    """With more leases than threads each gets one; and a heavy one pays for the least of the light ones."""
    assert [threads(s.setting) for s in divide([an_upload(4)] * 6, [1.0] * 6)] == [1] * 6
    assert [threads(s.setting) for s in divide([an_upload(12)] * 3, [10.0, 0.1, 0.1])] == [10, 1, 1]


@pytest.mark.parametrize(
    ("wanted", "whole"),
    [
        ([1.5, 10.6], [1, 11]),  # what is left over goes to whom most is missing, not to whom it is most of
        ([3.9, 3.1, 0.1, 0.1, 0.1], [2, 2, 1, 1, 1]),  # the least of the small is paid for in turn
        ([3.0, 0.1, 0.1, 0.1, 0.1], [1, 1, 1, 1, 1]),
        ([2.0, 2.0, 2.0], [2, 2, 2]),
        ([3.9, 5.1, 0.1, 0.1], [3, 4, 1, 1]),
        ([9.5, 2.2, 0.1, 0.1], [9, 1, 1, 1]),
    ],
)
def test_whole_threads_are_given_where_most_is_missing(wanted: list[float], whole: list[int]) -> None:
    """And taken where least is."""
    assert apportion(wanted) == whole


def test_rates_and_windows_of_a_queue_are_divided_and_batches_are_not() -> None:
    """What bounds the queue as a whole is divided; 0 is no limit and stays none."""
    setting = a_queue_setting(
        4, 6, 8, batch=10, send_rate_limit_messages_per_second=500.0, receive_window_message_count=9000
    )
    share, _ = divide([Appetite(setting=setting, use_fraction=1.0)] * 2, [1.0, 1.0])
    assert share.setting == a_queue_setting(
        2, 3, 4, batch=10, send_rate_limit_messages_per_second=250.0, receive_window_message_count=4500
    )


def test_ignorance_is_not_divided() -> None:
    """Where nothing is known, everybody does what his SDK would do anyway."""
    unknown = a_recommendation(setting=S3UploadSetting(thread_count=10, part_size_bytes=8 * MiB))
    wanted = appetite(
        a_recommendation(basis=Basis.DEFAULT, setting=unknown.setting),
        a_recommendation(basis=Basis.DEFAULT, setting=unknown.setting),
    )
    for share in divide([wanted, wanted], [1.0, 1.0]):
        assert share.setting == unknown.setting
        assert share.host_fraction is None
    _, *known = divide([wanted, an_upload(32), an_upload(32)], [1.0, 1.0, 1.0])
    assert [share.host_fraction for share in known] == [0.5, 0.5]


def test_what_a_lease_can_use_is_measured_against_endless_work() -> None:
    """A single small object that runs two threads uses a sixteenth of a host whose optimum is 32."""
    alone = a_recommendation(setting=S3UploadSetting(thread_count=2, part_size_bytes=8 * MiB))
    boundless = a_recommendation(setting=S3UploadSetting(thread_count=32, part_size_bytes=8 * MiB))
    assert appetite(alone, boundless).use_fraction == 1 / 16
    assert appetite(boundless, alone).use_fraction == 1.0
    mine = Demand(object_count=3, thread_count_max=8, memory_bytes_max=MiB, message_rate_per_second=5.0)
    assert endless(mine) == Demand(object_count=endless(Demand()).object_count)


def test_who_comes_and_goes_changes_the_shares_of_the_others() -> None:
    """What is left behind is taken up at once; contenders for something else do not notice."""
    book = LeaseBook()
    first, elsewhere = granted(book, an_upload(32)), granted(book, an_upload(32), resource="queue-b")
    assert threads(book.share(first).setting) == 32
    second = granted(book, an_upload(32))
    assert threads(book.share(first).setting) == 16
    assert book.share(first).lease_count == 2
    book.release(second)
    assert [threads(book.share(lease).setting) for lease in (first, elsewhere)] == [32, 32]
    assert [row["lease_id"] for row in lease_documents(book)] == [first.lease_id, elsewhere.lease_id]


def test_what_comes_in_is_not_taken_from_what_goes_out() -> None:
    """A network card is full in each direction by itself: downloads divide the way in, uploads the way out."""
    book = LeaseBook()
    reading = Appetite(setting=S3DownloadSetting(thread_count=32, range_size_bytes=8 * MiB), use_fraction=1.0)
    out = granted(book, an_upload(32))
    first, second = (granted(book, reading, operation="s3_download") for _ in range(2))
    assert [threads(book.share(lease).setting) for lease in (out, first, second)] == [32, 16, 16]
    assert [book.share(lease).lease_count for lease in (out, first, second)] == [1, 2, 2]


def test_what_others_move_is_their_objects_and_not_ones_own() -> None:
    """Of the same operation; a claim that says no number is of one object."""
    body = b'{"operation":"s3_upload","payload_size_bytes":"1GiB"}'
    book, mine = LeaseBook(), read_claim(body)
    book.grant(mine, an_upload(32), process_id=1, uid=1000, now=NOON)
    for other in ("s3_download", "sqs_delivery"):
        granted(book, an_upload(32), operation=other)
    assert book.claimed_bytes(mine.question) == 0
    for count in (0, 1, 3):
        question = dataclasses.replace(a_claim().question, demand=Demand(object_count=count))
        book.grant(Claim(question=question), an_upload(32), process_id=1, uid=1000, now=NOON)
    assert book.claimed_bytes(mine.question) == 5 * GiB


def test_new_advice_is_divided_anew() -> None:
    """A fit that changes the optimum changes every share; the same advice again is no news."""
    book = LeaseBook()
    first, second = granted(book, an_upload(32)), granted(book, an_upload(32))
    assert not book.appraise(first, an_upload(32))
    assert book.appraise(first, an_upload(8))
    assert book.appraise(second, an_upload(8))
    assert [threads(book.share(lease).setting) for lease in (first, second)] == [4, 4]


def test_leases_have_a_cap_overall_and_for_each_user() -> None:
    """One user cannot keep the others from sharing, nor root; a lease that ends makes room."""
    book = LeaseBook(4, 2)
    mine = [granted(book, an_upload(8), uid=1) for _ in range(2)]
    with pytest.raises(TooManyLeasesError, match="this user holds 2"):
        granted(book, an_upload(8), uid=1)
    granted(book, an_upload(8), uid=2)
    with pytest.raises(TooManyLeasesError, match="few are left for the others"):
        granted(book, an_upload(8), uid=3)
    book.grant(a_claim(), an_upload(8), process_id=1, uid=0, is_in_control=True, now=NOON)
    with pytest.raises(TooManyLeasesError, match="all 4 are taken"):
        book.grant(a_claim(), an_upload(8), process_id=1, uid=0, is_in_control=True, now=NOON)
    book.release(mine[0])
    granted(book, an_upload(8), uid=1)


def test_no_user_may_hold_more_than_half_of_all_leases() -> None:
    """As long as nobody says otherwise."""
    assert LEASE_COUNT_MAX == 2 * LEASE_COUNT_MAX_PER_UID


@given(st.lists(st.tuples(st.floats(0, 1), WEIGHTS), min_size=1, max_size=40))
def test_water_is_all_poured_and_no_glass_runs_over(claims: list[tuple[float, float]]) -> None:
    """Work-conserving, bounded by use, and nobody envies: who is not full has as much for his weight as any other."""
    useful, weights = [use for use, _ in claims], [weight for _, weight in claims]
    fractions = water_fill(useful, weights)
    assert sum(fractions) == pytest.approx(min(1.0, sum(useful)))
    assert all(0 <= f <= u for f, u in zip(fractions, useful, strict=True))
    thirsty = [f / w for f, u, w in zip(fractions, useful, weights, strict=True) if f < u - 1e-9]
    for level in thirsty:
        assert all(f / w <= level + 1e-9 for f, w in zip(fractions, weights, strict=True))


@given(st.lists(st.floats(0.001, 300), min_size=1, max_size=60))
def test_whole_threads_have_the_sum_of_the_exact_ones(wanted: list[float]) -> None:
    """Nobody below one; nobody more than one away, but for those who pay for others' least."""
    whole = apportion(wanted)
    assert min(whole) >= 1
    assert sum(whole) == max(round(sum(wanted)), len(wanted))
    assert all(given <= max(1.0, exact) + 1 for given, exact in zip(whole, wanted, strict=True))


@given(st.lists(st.tuples(st.integers(1, 256), st.floats(0.01, 1.0), WEIGHTS), min_size=1, max_size=30))
def test_a_share_is_never_more_than_the_optimum(claims: list[tuple[int, float, float]]) -> None:
    """A lease lowers what an application would do, and never raises it."""
    wanted = [an_upload(count, use) for count, use, _ in claims]
    for share, alone in zip(divide(wanted, [weight for *_, weight in claims]), wanted, strict=True):
        assert 1 <= threads(share.setting) <= threads(alone.setting)


def test_a_claim_is_a_question_with_a_weight() -> None:
    """Numbers may carry units, as in a query."""
    claim = read_claim(
        b'{"operation":"s3_upload","payload_size_bytes":"1GiB","thread_count_max":8,"weight":2,"client":"boto3"}'
    )
    assert claim.question.payload_size_bytes == GiB
    assert claim.question.demand == Demand(thread_count_max=8)
    assert (claim.weight, claim.client, claim.resource) == (2.0, "boto3", "")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"[]", "Expected `object`"),
        (b'{"operation":"s3_upload"}', "payload_size_bytes: is missing"),
        (b'{"operation":"s3_upload","payload_size_bytes":1,"weight":1000}', r"<= 10.*weight"),
        (b'{"operation":"s3_upload","payload_size_bytes":1,"resource":"\\u001b[2J"}', r"resource"),
        (b'{"operation":"s3_upload","payload_size_bytes":1,"resource":"queue\\n"}', r"resource"),
        (b'{"operation":"s3_upload","payload_size_bytes":1,"client":"boto3\\n"}', r"client"),
        (b'{"operation":"s3_upload","payload_size_bytes":1,"weights":1}', "weights: is not known"),
        (b'{"operation":"s3_upload","payload_size_bytes":true}', "got `bool`"),
    ],
)
def test_a_claim_that_cannot_be_understood_is_told_why(body: bytes, sentence: str) -> None:
    """As every other question is."""
    with pytest.raises(UnreadableError, match=sentence):
        read_claim(body)
