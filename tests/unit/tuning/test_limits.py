"""What failures suggest: a limit that separates them from successes, until runs contradict it."""

from __future__ import annotations

import pytest

from penstock.models.s3.upload import S3UploadSetting
from penstock.tuning.command import Failure
from penstock.tuning.limits import most_to_try, suspected_limit
from penstock.tuning.state import Trial
from penstock.units import MiB
from tests.unit.tuning.tuned_clients import SIZE, Client, a_setting, a_trial

FAILED = Failure(reason="it ended with status 1")
SLOW = Failure(reason="it took longer than 1 s", is_timeout=True)

NO_COMMAND = Failure(reason="it ended with status 127 (no such command)", is_no_command=True)


def history(words: str) -> list[Trial]:
    """Trials with parts of 8 MiB: a number of threads each, with an x where it failed."""
    return [
        a_trial(Client(), a_setting(int(word.rstrip("x"))), index, FAILED if word.endswith("x") else None)
        for index, word in enumerate(words.split())
    ]


def most(trials: list[Trial]) -> int | None:
    """How far the next run may go."""
    limit = suspected_limit(trials, SIZE)
    return None if limit is None else most_to_try(limit, trials, SIZE)


@pytest.mark.parametrize(
    ("words", "threads"),
    [
        ("4 16 64x", 32),
        ("4 16 64x 24", 39),
        ("4 16 64x 24 24", None),  # once is bad luck
        ("4 16x 8x 5x 4 4", None),  # so are several in a row: an outage looks like that
        ("4 8x 16 64x", None),  # as many failures that no limit explains
        ("4 8x 16 64x 24 48x", 33),
        ("4 16x 8 11x", 9),
        ("4 16x 8 11x 9 9", 9),
        ("4 16x 8 11x 9 9 9", 11),  # the least that failed is tried again
        ("4 16x 8 11x 9 9 9 11x", 9),
        ("4 16x 8 11x 9 9 9 11x 9 9 9 9", 9),
        ("4 16x 8 11x 9 9 9 11x 9 9 9 9 9", 11),  # confirmed, so it took longer
        ("4 16x 8 11x 9 9 9 11", None),  # what failed with 11 was bad luck, and so may be the rest
        ("4 16x 8 11x 9 9 9 16", None),
    ],
)
def test_a_limit_is_tried_again_and_lifted_by_a_success(words: str, threads: int | None) -> None:
    """After some successes, and later with each confirmation."""
    assert most(history(words)) == threads


def test_a_success_with_as_much_of_everything_contradicts_a_failure() -> None:
    """Neither limit can explain such a failure, so it does not hide the limit that explains the others."""
    limit = suspected_limit(history("4x 8 16 64x"), SIZE)
    assert limit is not None
    assert limit.document() == {
        "thread_count_max": 16,
        "failed_thread_count_min": 64,
        "failed_probe_count": 1,
    }


def test_what_took_too_long_suggests_nothing() -> None:
    """More threads may be faster."""
    assert suspected_limit([*history("4 16"), a_trial(Client(), a_setting(64), 2, SLOW)], SIZE) is None


def test_a_command_that_is_not_there_suggests_nothing() -> None:
    """Nothing was run."""
    gone = a_trial(Client(), a_setting(64), 2, NO_COMMAND)
    assert suspected_limit([*history("4 16"), gone], SIZE) is None


def test_a_limit_on_memory_is_named_where_threads_do_not_explain_it() -> None:
    """Few threads with large parts failed where many with small ones worked."""
    failed = a_trial(Client(), a_setting(32, 64), 2, FAILED)
    limit = suspected_limit([*history("4 64"), failed], 4 * SIZE)
    assert limit is not None
    assert limit.document() == {
        "memory_bytes_max": 512 * MiB,
        "failed_memory_bytes_min": 2048 * MiB,
        "failed_probe_count": 1,
    }


def test_both_that_held_all_of_an_object_do_not_differ_in_memory() -> None:
    """Threads without a part hold nothing: what failed held no more than what worked."""
    failed = a_trial(Client(), a_setting(32, 64), 2, FAILED)
    assert suspected_limit([*history("4 64"), failed], SIZE) is None


def test_the_fewest_threads_there_are_cannot_be_too_many() -> None:
    """Where no fewer threads are possible, a failure says nothing about threads."""
    failed = a_trial(Client(), S3UploadSetting(thread_count=16, part_size_bytes=64 * MiB), 0, FAILED)
    limit = suspected_limit([failed], SIZE, thread_count_min=16)
    assert limit is not None
    assert limit.name == "memory_bytes"
