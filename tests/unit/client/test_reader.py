"""Reading an object as a file: what is fetched, when, and that what is read is what is there."""

from __future__ import annotations

import io
import pickle
import random
import sys
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.advice import Advice
from penstock.client.transfers.reader import ObjectReader, open_object
from penstock.client.transfers.reading import merged
from penstock.units import KiB, MiB
from tests.advice import a_download_advice
from tests.programs import printed
from tests.sdk import a_meta

ROOT = Path(__file__).parents[3]
CONTENT = random.Random(1).randbytes(3 * MiB)


def advice(threads: int = 4, part: int = 256 * KiB, gap: int = 1000, objects: int = 1) -> Advice:
    """As a daemon gives it."""
    derived = {"read_ahead_bytes": threads * part, "coalesced_gap_bytes": gap}
    return a_download_advice(len(CONTENT), threads, part, derived=derived, demand={"object_count": objects})


class Store:
    """An S3 client with one object, which notes the ranges that it is asked for."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.ranges: list[tuple[int, int]] = []
        self.tags: set[str] = set()
        self.lock = threading.Lock()
        self.meta = a_meta()

    def head_object(self, **_: Any) -> dict[str, Any]:
        """As boto3's."""
        return {"ContentLength": len(self.content), "ETag": '"one"'}

    def get_object(self, *, Range: str, IfMatch: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        """As boto3's."""
        start, end = (int(word) for word in Range.removeprefix("bytes=").split("-"))
        with self.lock:
            self.ranges.append((start, end + 1))
            self.tags.add(IfMatch)
        return {"Body": io.BytesIO(self.content[start : end + 1])}


@contextmanager
def reading(store: Store, **options: Any) -> Iterator[ObjectReader]:
    with open_object(store, "bucket", "key", **{"advice": advice(), **options}) as file:
        yield file


def threads_ended(file: ObjectReader) -> None:
    """With all that was asked for."""
    file._pool.end()
    for thread in file._pool._threads:
        thread.join(20.0)


def test_who_reads_on_gets_ever_larger_ranges_ahead_of_him() -> None:
    """The first is small, the last are as advised, none is fetched twice, and all is what is there."""
    store = Store()
    with reading(store) as file:
        pieces = iter(lambda: file.read(10 * KiB), b"")
        assert b"".join(pieces) == CONTENT
    found = sorted(store.ranges)
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    sizes = [end - start for start, end in found]
    assert sizes[0] == 64 * KiB
    assert sizes.count(256 * KiB) >= 9
    assert len(sizes) < 20
    assert store.tags == {'"one"'}


def test_who_seeks_gets_what_he_asks_for_and_no_more() -> None:
    """The end of a Parquet file, and then columns of it."""
    store = Store()
    with reading(store) as file:
        file.seek(-8, io.SEEK_END)
        assert file.read(8) == CONTENT[-8:]
        file.seek(MiB)
        assert file.read(1000) == CONTENT[MiB : MiB + 1000]
    assert store.ranges == [(3 * MiB - 8, 3 * MiB), (MiB, MiB + 1000)]


def test_who_skips_less_than_a_request_costs_reads_on() -> None:
    """As `torch.load` does, which leaves out a few bytes before each tensor: two hundred were four hundred requests."""
    store = Store()
    with reading(store) as file:
        for start in range(MiB, 2 * MiB, 5000):
            file.seek(start)
            assert file.read(4100) == CONTENT[start : start + 4100]
    assert len(store.ranges) < 20
    assert sum(end - start for start, end in store.ranges) < 3 * MiB


def test_a_member_of_an_archive_is_one_request() -> None:
    """Wherever it lies: what says where its content begins is not asked for by itself, word by word."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        for number in range(20):
            written.writestr(f"{number}", CONTENT[3000 * number : 3000 * (number + 1)])
    store = Store(archive.getvalue())
    with reading(store, advice=advice(gap=8000)) as file, zipfile.ZipFile(file) as read:
        store.ranges.clear()
        for number in range(19, -1, -1):
            assert read.read(f"{number}") == CONTENT[3000 * number : 3000 * (number + 1)]
    assert len(store.ranges) == 20


def test_who_skips_more_than_a_request_costs_has_nothing_fetched_between() -> None:
    """Every tenth row of a table."""
    store = Store()
    with reading(store) as file:
        for start in range(MiB, 2 * MiB, 50_000):
            file.seek(start)
            file.read(4100)
    assert {end - start for start, end in store.ranges} == {4100}


def test_a_reader_here_and_there_has_nothing_read_ahead() -> None:
    """Not even where he reads on."""
    store = Store()
    with reading(store, access="random") as file:
        assert file.read(1000) + file.read(1000) == CONTENT[:2000]
    assert store.ranges == [(0, 1000), (1000, 2000)]


def test_who_goes_elsewhere_has_nothing_fetched_on_the_way_there() -> None:
    """Not for a read of all that is left, either."""
    store = Store()
    with reading(store) as file:
        file.read(4)
        file.seek(-100, io.SEEK_END)
        assert file.read() == CONTENT[-100:]
    assert store.ranges == [(0, 64 * KiB), (3 * MiB - 100, 3 * MiB)]


@pytest.mark.parametrize(("objects", "thread_count", "ranges_ahead"), [(2, 2, 2), (3, 1, 1), (100, 1, 1)])
def test_objects_that_are_read_at_a_time_share_what_is_advised(
    objects: int, thread_count: int, ranges_ahead: int
) -> None:
    """Eight workers of a data loader had the threads of the host each."""
    with reading(Store(), advice=advice(objects=objects)) as file:
        assert file.thread_count == thread_count
        assert file.read_ahead_bytes // file.range_size_bytes == ranges_ahead


def test_the_whole_is_read_in_advised_ranges() -> None:
    """`read()` without a size."""
    store = Store()
    with reading(store) as file:
        assert file.read() == CONTENT
        assert file.read() == b""
    assert {end - start for start, end in store.ranges} == {256 * KiB}


def test_what_is_read_as_a_whole_is_held_once() -> None:
    """And not once more while it is copied: of a large object that took as long as to read it."""
    store = Store(bytes(32 * MiB))
    with reading(store, advice=advice(threads=1, part=MiB)) as file:
        file.read(1)  # what is made for the first read only
        file.seek(0)
        tracemalloc.start()
        try:
            content = file.read()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(content) == 32 * MiB
    assert peak < 48 * MiB


def test_pieces_that_are_near_share_a_request() -> None:
    """Over a gap that is cheaper read; in the order in which they were asked for, and none beyond the end."""
    store = Store()
    wanted = [(5000, 100), (0, 100), (1000, 100), (MiB, 300 * KiB), (3 * MiB - 10, 99), (9 * MiB, 5)]
    with reading(store) as file:
        assert file.read_ranges(wanted) == [CONTENT[start : start + size] for start, size in wanted]
    assert sorted(store.ranges) == [(0, 1100), (5000, 5100), (MiB, MiB + 300 * KiB), (3 * MiB - 10, 3 * MiB)]


def test_ranges_are_merged_up_to_the_gap_where_that_is_more_than_a_range() -> None:
    """A reader of small ranges is advised to read through a megabyte, which a range of its own size has no room for."""
    store = Store()
    wanted = [(n * 300 * KiB, 10) for n in range(8)]
    with reading(store, advice=advice(gap=MiB)) as file:
        assert file.read_ranges(wanted) == [CONTENT[start : start + size] for start, size in wanted]
    assert sorted(store.ranges) == [(0, 900 * KiB + 10), (1200 * KiB, 2100 * KiB + 10)]


@given(
    wanted=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), max_size=20),
    gap=st.integers(0, 20),
    size_max=st.integers(1, 100),
)
def test_all_that_is_wanted_lies_in_the_last_range_that_begins_before_it(
    wanted: list[tuple[int, int]], gap: int, size_max: int
) -> None:
    """However pieces overlap; and no request is larger than allowed but for a piece that is."""
    pairs = [(start, start + size) for start, size in wanted]
    found = merged(pairs, gap, size_max)
    assert found == sorted(found)
    for start, end in pairs:
        if start < end:
            last = [piece for piece in found if piece[0] <= start][-1]
            assert end <= last[1]
    longest = max((end - start for start, end in pairs), default=0)
    assert all(end - start <= max(size_max, longest) for start, end in found)


@pytest.mark.parametrize("content", [b"", b"PK"])
def test_an_object_that_is_too_short_to_be_an_archive_is_none(content: bytes) -> None:
    """Zipfile looks for the end before the beginning, and takes OSError alone for an answer."""
    with reading(Store(content)) as file:
        assert not zipfile.is_zipfile(file)


def test_what_is_closed_says_nothing_of_itself() -> None:
    """As of a file, each is a ValueError."""
    with reading(Store()) as file:
        pass
    for question in (file.tell, file.readable, file.seekable):
        with pytest.raises(ValueError, match="closed"):
            question()


@pytest.mark.parametrize(
    "read", [lambda file: file.read(), lambda file: file.read_ranges([(0, MiB), (MiB, 9)])]
)
@pytest.mark.parametrize("has_come", [True, False])
def test_a_read_of_what_another_thread_closes_ends_as_of_a_file(
    read: Callable[[ObjectReader], object], has_come: bool
) -> None:
    """And not with what became of the request, or of its place in a queue; nothing more is asked for."""
    store, is_asked, go_on = Store(), threading.Event(), threading.Event()
    get, troubles = store.get_object, list[BaseException]()

    def late(**request: Any) -> dict[str, Any]:
        is_asked.set()
        go_on.wait(20.0)
        if not has_come:
            raise ConnectionError("the socket was shut down")
        return get(**request)

    store.get_object = late  # type: ignore[method-assign]
    with reading(store, advice=advice(threads=1)) as file:

        def try_it() -> None:
            try:
                read(file)
            except BaseException as trouble:  # noqa: BLE001 - whatever it is
                troubles.append(trouble)

        thread = threading.Thread(target=try_it)
        thread.start()
        is_asked.wait(20.0)
        file.close()
        go_on.set()
        thread.join()
    threads_ended(file)
    assert [(type(trouble), str(trouble)) for trouble in troubles] == [(ValueError, "the object is closed")]
    assert len(store.ranges) == has_come
    assert not file._ahead


def test_what_is_short_or_closed_is_an_error() -> None:
    """A body that ends early is not taken for the object."""
    store = Store()
    with reading(store) as file:
        store.content = CONTENT[:100]
        with pytest.raises(OSError, match="100 bytes came of"):
            file.read()
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


def test_a_read_that_failed_can_be_tried_again() -> None:
    """From where it began, though a part of it had come; and what failed is asked for anew."""
    store = Store()
    with reading(store) as file:
        file.read(1)
        store.content = CONTENT[:MiB]
        with pytest.raises(OSError, match="bytes came of"):
            file.read()
        assert file.tell() == 1
        store.content = CONTENT
        assert file.read() == CONTENT[1:]


def test_pieces_that_nobody_waits_for_any_more_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them has failed: the rest would hold up the reads that follow, and the end of the process."""
    store, asked, go_on = Store(), list[str](), threading.Event()

    def get(*, Range: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        asked.append(Range)
        if len(asked) > 1:
            go_on.wait(20.0)
        raise ConnectionError("gone")

    monkeypatch.setattr(store, "get_object", get)
    with reading(store, advice=advice(threads=1, gap=0)) as file:
        with pytest.raises(ConnectionError, match="gone"):
            file.read_ranges([(n * KiB, 10) for n in range(100)])
        go_on.set()
        threads_ended(file)
    assert len(asked) <= 2


def test_a_process_ends_though_a_server_is_silent() -> None:
    """Also where nobody closed what was read: nothing that is read ahead is waited for."""
    program = """
import threading
from penstock.client.transfers.reader import open_object
from tests.unit.client.test_reader import Store, advice

class Silent(Store):
    def get_object(self, *, Range, **request):
        if int(Range[len("bytes=") :].partition("-")[0]) >= 512 << 10:
            threading.Event().wait()
        return super().get_object(Range=Range, **request)

file = open_object(Silent(), "bucket", "key", advice=advice())
while not file._ahead or file._ahead[-1].start < 512 << 10:
    file.read(32 << 10)
print("read")
"""
    assert printed([sys.executable, "-c", program], cwd=ROOT, timeout=60) == "read\n"


def test_a_forked_child_reads_on() -> None:
    """It has none of the threads that its parent reads with."""
    program = """
import os
import warnings
from tests.unit.client.test_reader import CONTENT, Store, reading

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
with reading(Store()) as file:
    file.read()
    file.seek(5)
    child = os.fork()
    if not child:
        os._exit(not file.read(7) == CONTENT[5:12])
    print(os.waitpid(child, 0)[1], file.read(7) == CONTENT[5:12])
"""
    assert printed([sys.executable, "-c", program], cwd=ROOT, timeout=60) == "0 True\n"


def test_advice_that_cannot_be_read_keeps_nobody_from_reading(caplog: pytest.LogCaptureFixture) -> None:
    """The SDK's own numbers serve."""
    broken = Advice({**advice().document, "setting": {}})
    with reading(Store(), advice=broken) as file:
        assert (file.range_size_bytes, file.thread_count) == (8 * MiB, 8)
        assert file.read(10) == CONTENT[:10]
    assert "cannot be read" in caplog.text


def test_where_there_are_no_threads_it_reads_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of the interpreter."""
    with reading(Store()) as file:

        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(file._pool, "submit", refuse)
        assert file.read() == CONTENT


def test_lines_are_looked_for_in_what_is_there() -> None:
    """And not byte by byte; nor are the pieces in which they are looked for requests of their own."""
    lines = b"".join(b"%d\n" % number for number in range(30_000))
    for options in ({}, {"access": "random"}):
        store = Store(lines)
        with reading(store, **options) as file:
            reads: list[int] = []
            plain = file.read
            file.read = lambda size, plain=plain, reads=reads: reads.append(1) or plain(size)  # type: ignore[method-assign,misc,assignment]
            assert b"".join(file) == lines
        assert 30_000 <= len(reads) < 31_000
        assert len(store.ranges) < 30


def test_what_could_not_be_looked_at_is_asked_for_again() -> None:
    """A line that fails is read when the store is back."""
    store = Store(b"one\ntwo\n")
    with reading(store) as file:
        store.content = b""
        with pytest.raises(OSError, match="0 bytes came of 8"):
            file.readline()
        store.content = b"one\ntwo\n"
        assert file.readline() == b"one\n"


def test_a_size_may_be_more_than_any_memory_or_none() -> None:
    """Of `read`: what is left is what is read."""
    with reading(Store()) as file:
        assert file.read(1 << 60) == CONTENT
        file.seek(-5, io.SEEK_END)
        assert file.read(None) == CONTENT[-5:]


def test_a_place_that_is_none_is_an_error_as_of_files() -> None:
    """ValueError and TypeError, which readers of files expect."""
    with reading(Store()) as file:
        with pytest.raises(ValueError, match="whence"):
            file.seek(0, 7)
        with pytest.raises(TypeError):
            file.seek(1.5)  # type: ignore[arg-type]


def test_threads_that_share_it_read_each_byte_once() -> None:
    """They have one position, and none gets what another was about to take."""
    found = list[bytes]()
    with reading(Store(), advice=advice(part=16 * KiB)) as file:

        def read_on() -> None:
            while piece := file.read(1000):
                found.append(piece)

        threads = [threading.Thread(target=read_on) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == sorted(CONTENT[start : start + 1000] for start in range(0, len(CONTENT), 1000))


def test_who_seeks_while_another_reads_does_not_change_what_is_read() -> None:
    """Of a file, too, a seek waits for the read: else bytes of another place came without a word."""
    store, is_asked, go_on, is_elsewhere = Store(), *(threading.Event() for _ in range(3))
    get = store.get_object

    def late(**request: Any) -> dict[str, Any]:
        is_asked.set()
        go_on.wait(20.0)
        return get(**request)

    store.get_object = late  # type: ignore[method-assign]
    with reading(store) as file:

        def go_elsewhere() -> None:
            is_asked.wait(20.0)
            threading.Timer(0.1, go_on.set).start()  # which a seek that does not wait is before
            file.seek(1000)
            is_elsewhere.set()

        thread = threading.Thread(target=go_elsewhere)
        thread.start()
        assert file.read(64 * KiB) == CONTENT[: 64 * KiB]
        thread.join()
        assert is_elsewhere.is_set()
        assert file.tell() == 1000
        assert file.read(10) == CONTENT[1000:1010]


@pytest.mark.parametrize("piece", [(-8, 8), (5, -1)])
def test_a_piece_that_cannot_be_is_no_other_piece(piece: tuple[int, int]) -> None:
    """An offset below 0, as of a footer that is longer than its file, is not taken for the beginning."""
    store = Store()
    with reading(store) as file, pytest.raises(ValueError, match="0 or more"):
        file.read_ranges([(0, 10), piece])
    assert store.ranges == []


def test_a_piece_that_is_large_is_many_requests() -> None:
    """Which go at a time; one that is a little larger than a range is no two small ones."""
    store = Store()
    with reading(store) as file:
        wanted = [(10, MiB + 1), (2 * MiB, 300 * KiB)]
        assert file.read_ranges(wanted) == [CONTENT[start : start + size] for start, size in wanted]
    assert [end - start for start, end in sorted(store.ranges)] == [256 * KiB] * 3 + [
        256 * KiB + 1,
        300 * KiB,
    ]


def test_what_is_open_cannot_be_pickled() -> None:
    """And says what to do, and not that some class of botocore was not found."""
    with reading(Store()) as file, pytest.raises(TypeError, match="open it where it is read"):
        pickle.dumps(file)
