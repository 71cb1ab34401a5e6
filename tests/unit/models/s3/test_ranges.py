"""The upload model kept to what one client can be told."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.models.model import HasBelief
from penstock.models.s3.ranges import DownloadRanges, Ranges, UploadRanges, ranged_model
from penstock.models.s3.upload import S3UploadSetting
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import Demand
from tests.unit.models.s3.upload_world import a_context, a_setting

FIT = ranged_model(UploadRanges()).fit(a_context().place, [], prior=None, seed=0)


NO_WHOLE_MIB = UploadRanges(
    thread_count_min=1, thread_count_max=1, part_size_bytes_min=5 * MiB + 1, part_size_bytes_max=5 * MiB + 2
)


@st.composite
def all_ranges(draw: st.DrawFn) -> UploadRanges:
    """Ranges of one value and of many, and part sizes that are no whole MiB."""
    threads = sorted(draw(st.tuples(*[st.integers(1, 400)] * 2)))
    parts = sorted(draw(st.tuples(*[st.integers(5 * MiB, 2 * GiB)] * 2)))
    if draw(st.booleans()):
        threads = [threads[0]] * 2
    if draw(st.booleans()):
        parts = [parts[0]] * 2
    return UploadRanges(
        thread_count_min=threads[0],
        thread_count_max=threads[1],
        part_size_bytes_min=parts[0],
        part_size_bytes_max=parts[1],
    )


@settings(max_examples=25)
@example(ranges=NO_WHOLE_MIB, size=5 * MiB + 2, memory=None)
@given(ranges=all_ranges(), size=st.integers(1, 400 * GiB), memory=st.none() | st.integers(MiB, 8 * GiB))
def test_all_that_is_considered_lies_within(ranges: UploadRanges, size: int, memory: int | None) -> None:
    """Candidates and ramp are never empty, within the ranges and the memory, and legal as they are."""
    if ranges.trouble(size, memory):
        return
    model, context = ranged_model(ranges), a_context(size=size)
    candidates = model.candidates(
        FIT, context, Demand(memory_bytes_max=memory, thread_count_max=ranges.thread_count_max)
    )
    assert candidates
    assert len(set(candidates)) == len(candidates)
    for setting in [*candidates, *model.ramp(context)]:
        assert ranges.thread_count_min <= setting.thread_count <= ranges.thread_count_max
        assert ranges.part_size_bytes_min <= setting.request_size_bytes <= ranges.part_size_bytes_max
        assert setting.request_size_bytes * 10_000 >= size
        assert model.legal(context, setting) == setting
    for setting in candidates:
        assert memory is None or setting.memory_bytes(size) <= memory


def test_part_sizes_are_whole_mebibytes() -> None:
    """Also where the object is not: some clients can be told nothing else."""
    context = a_context(size=700 * MiB + 12345)
    for setting in ranged_model(UploadRanges()).candidates(FIT, context, Demand()):
        assert setting.request_size_bytes % MiB == 0


def test_what_is_to_be_avoided_is_not_considered() -> None:
    """Unless nothing else is left."""
    context, avoided = a_context(), a_setting(4)
    model = ranged_model(UploadRanges(), frozenset({avoided}))
    assert avoided not in model.candidates(FIT, context, Demand())
    assert avoided not in model.ramp(context)
    only = UploadRanges(
        thread_count_min=4, thread_count_max=4, part_size_bytes_min=8 * MiB, part_size_bytes_max=8 * MiB
    )
    last = ranged_model(only, frozenset({avoided}))
    assert list(last.candidates(FIT, context, Demand())) == [avoided]


def test_it_draws_as_the_upload_model_does() -> None:
    """The knowledge gradient is lost on a model that does not."""
    assert isinstance(ranged_model(UploadRanges()), HasBelief)


@pytest.mark.parametrize(
    ("ranges", "size", "memory", "sentence"),
    [
        (UploadRanges(thread_count_min=0), GiB, None, "threads go from 1"),
        (UploadRanges(thread_count_min=9, thread_count_max=8), GiB, None, "lower end first"),
        (UploadRanges(thread_count_max=5000), GiB, None, "threads go from 1"),
        (UploadRanges(part_size_bytes_min=512 * KiB), GiB, None, "5MiB to 5GiB"),
        (UploadRanges(part_size_bytes_max=6 * GiB), GiB, None, "5MiB to 5GiB"),
        (UploadRanges(part_size_bytes_max=8 * MiB), 100 * GiB, None, "at most 10,000 parts"),
        (UploadRanges(thread_count_min=64), GiB, 256 * MiB, "320 MiB in memory"),
        (UploadRanges(thread_count_min=64), 100 * GiB, 660 * MiB, "704 MiB in memory"),  # 11 MiB for 10.24
        (UploadRanges(), GiB, 256 * MiB, None),
        (UploadRanges(thread_count_min=64), 1000, 256 * MiB, None),
        (UploadRanges(thread_count_min=64), 40 * MiB, 40 * MiB, None),  # no more than all of it is held
        (UploadRanges(thread_count_min=64, part_size_bytes_min=24 * MiB), 40 * MiB, 40 * MiB, None),  # in one
        (UploadRanges(thread_count_min=64), 40 * MiB, 39 * MiB, "40 MiB in memory"),
        # What is asked for is whole MiB where that is within the range.
        (DownloadRanges(range_size_bytes_min=64 * KiB), 10 * MiB, 512 * KiB, "1 MiB in memory"),
        (DownloadRanges(range_size_bytes_min=64 * KiB, range_size_bytes_max=MiB - 1), 10 * MiB, MiB, None),
    ],
)
def test_impossible_ranges_are_refused_in_a_sentence(
    ranges: Ranges, size: int, memory: int | None, sentence: str | None
) -> None:
    """Before anything is run."""
    trouble = ranges.trouble(size, memory)
    assert trouble is None if sentence is None else sentence in (trouble or "")


def test_the_ends_are_reached() -> None:
    """Neither end of a range is out of reach."""
    ranges = UploadRanges(
        thread_count_min=3, thread_count_max=50, part_size_bytes_min=7 * MiB, part_size_bytes_max=33 * MiB
    )
    candidates = ranged_model(ranges).candidates(FIT, a_context(), Demand())
    assert {3, 50} <= {setting.thread_count for setting in candidates}
    assert min(x.request_size_bytes for x in candidates) == 7 * MiB
    assert max(x.request_size_bytes for x in candidates) == 33 * MiB
    assert all(isinstance(x, S3UploadSetting) for x in candidates)
