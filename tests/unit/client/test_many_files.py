"""How many files of any sizes are planned: what is asked for them, what moves together, and what is kept of it."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.advice import Advice, default_advice
from penstock.client.transfers import many_files
from penstock.client.transfers.many_files import (
    File,
    FilesFailedError,
    Summary,
    batches,
    files_below,
    object_below,
    planned,
    wanted,
)
from penstock.units import GiB, KiB, MiB
from tests.advice import an_advice


def advice(threads: int, part_mib: int = 8, basis: str = "measured") -> Advice:
    """So many threads."""
    setting = {"thread_count": threads, "part_size_bytes": part_mib * MiB}
    return an_advice(setting=setting, derived={"multipart_threshold_bytes": 16 * MiB}, basis=basis)


def files(**sizes: int) -> list[File]:
    """Named by their keys."""
    return [File(key, key, size) for key, size in sizes.items()]


def many(count: int, size: int) -> list[File]:
    """So many of about this size."""
    return [File(f"{size}-{n}", f"{size}-{n}", size + n) for n in range(count)]


def by_size(size_bytes: int, _: int) -> Advice:
    """Small files are bound by latency, and want many connections."""
    return advice(16 if size_bytes >= 8 * MiB else 60)


def test_sizes_that_want_the_same_move_together_and_others_after_them() -> None:
    """The largest first, because what begins last must not last long."""
    mixed = many(300, 64 * KiB) + many(40, 100 * MiB) + many(200, MiB) + many(20, 30 * MiB)
    found = batches(mixed, by_size)
    assert [(batch.thread_count, len(batch.files)) for batch in found] == [(16, 60), (60, 500)]
    sizes = [file.size_bytes for batch in found for file in batch.files]
    assert sizes == sorted(sizes, reverse=True)


def test_a_few_files_of_another_size_are_no_batch_of_their_own() -> None:
    """They go along with the many, however they come, and change little; and a large one is split for all that."""
    for few in (many(1, 20 * MiB), many(3, KiB)):
        (batch,) = batches(many(500, MiB) + few, by_size)
        assert 55 <= batch.thread_count <= 60
        assert len(batch.files) == 500 + len(few)
    assert batches(many(500, MiB) + many(1, 20 * MiB), by_size)[0].request_count == 503


def test_sizes_of_which_there_are_few_agree_on_a_number_by_their_bytes() -> None:
    """Small files that ask for hundreds of connections do not impose them on large ones that go with them."""

    def ask(size_bytes: int, _: int) -> Advice:
        return advice({64: 13, 16: 24, 1: 87}.get(size_bytes >> 20, 259), part_mib=5)

    mixed = many(300, 100 * KiB) + many(150, MiB) + many(6, 16 * MiB) + many(1, 64 * MiB)
    (batch,) = batches(mixed, ask)
    assert 40 <= batch.thread_count <= 55


def test_each_size_is_asked_about_with_the_number_of_its_files() -> None:
    """Advice for one file of a size is not advice for a thousand."""
    asked: list[tuple[int, int]] = []

    def ask(size_bytes: int, count: int) -> Advice:
        asked.append((size_bytes, count))
        return advice(20)

    batches([*files(a=GiB, b=GiB), *many(3, MiB), *files(empty=0)], ask)
    assert asked == [(GiB, 2), (MiB + 1, 3), (1, 1)]


def test_nobody_who_does_not_answer_is_asked_for_every_size() -> None:
    """A daemon that hangs holds up an application once."""
    asked: list[int] = []

    def ask(size_bytes: int, _: int) -> Advice:
        asked.append(size_bytes)
        return default_advice("s3_upload", size_bytes, "nobody")

    (batch,) = batches(files(a=GiB, b=MiB, c=KiB), ask)
    assert asked == [GiB]
    assert (batch.thread_count, batch.part_size_bytes) == (10, 8 * MiB)


def test_what_cannot_be_read_is_told_and_the_rest_is_planned(tmp_path: Path) -> None:
    """Files go away while others are looked at."""
    (tmp_path / "there").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for a writer
    files = {tmp_path / name: name for name in ("there", "gone", "pipe")} | {"no\0path": "odd"}
    ((found, unreadable),) = planned(files, by_size)
    assert [file.key for batch in found for file in batch.files] == ["there"]
    assert [(file.key, type(file.error)) for file in unreadable] == [
        ("gone", FileNotFoundError),
        ("pipe", OSError),
        ("odd", ValueError),
    ]


def test_no_more_files_are_known_at_a_time_than_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million of them take no more memory than these."""
    monkeypatch.setattr(many_files, "WINDOW_FILE_COUNT", 10)
    taken, path = itertools.count(), tmp_path / "file"
    path.touch()

    def endless() -> Iterator[tuple[Path, str]]:
        while True:
            yield path, str(next(taken))

    plans = planned(endless(), by_size)
    for _ in range(2):
        found, _unreadable = next(plans)
        assert sum(len(batch.files) for batch in found) == 10
    assert next(taken) == 20


def test_a_folder_is_its_files_with_their_places_in_it(tmp_path: Path) -> None:
    """Keys have slashes, and begin with what was asked for."""
    for name in ("one", "sub/two", "sub/deeper/three"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    found = dict(files_below(tmp_path, "backup/"))
    assert set(found.values()) == {"backup/one", "backup/sub/two", "backup/sub/deeper/three"}
    assert found[str(tmp_path / "one")] == "backup/one"


def test_a_folder_that_cannot_be_listed_is_named_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup must not be called complete without it."""
    ((_, (gone,)),) = planned(files_below(tmp_path / "gone", "p/"), by_size)
    assert (gone.path, type(gone.error)) == (str(tmp_path / "gone"), FileNotFoundError)

    listed = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return listed(path)

    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    monkeypatch.setattr(os, "scandir", scandir)
    assert set(dict(files_below(tmp_path)).values()) == {"open/file", "closed"}


def test_a_summary_keeps_so_many_reasons_and_raises_one_exception_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A million failures do not fill the memory."""
    monkeypatch.setattr(many_files, "FAILED_COUNT_MAX", 2)
    told: list[File] = []
    summary = Summary(told.append)
    summary.note(File("good", "good", 7))
    summary.raise_for_failed()
    for name in ("bad", "worse", "worst"):
        summary.note(File(name, name, 1, OSError("no")))
    assert (summary.moved_count, summary.moved_bytes, summary.failed_count) == (1, 7, 3)
    assert [file.path for file in summary.failed] == ["bad", "worse"]
    assert len(told) == 4
    with pytest.raises(
        FilesFailedError, match="3 of 4 files were not moved; the first was bad: no"
    ) as raised:
        summary.raise_for_failed()
    assert raised.value.failed == summary.failed


def test_what_failed_keeps_nothing_but_the_reason() -> None:
    """Else each of ten thousand failures would keep the body that was to be sent."""

    class Body:
        pass

    bodies = list[weakref.ref[Body]]()

    def send() -> None:
        body = Body()
        bodies.append(weakref.ref(body))
        raise ConnectionRefusedError

    def move() -> None:
        try:
            send()
        except OSError as trouble:
            raise LookupError("nobody there") from trouble

    file = File("bad", "bad")
    try:
        move()
    except LookupError as trouble:
        file.fail(trouble)
    gc.collect()
    assert [body() for body in bodies] == [None]
    assert isinstance(file.error, LookupError)


def test_the_exception_for_all_goes_from_one_process_to_another() -> None:
    """A pool of processes whose answer cannot be read would wait for it for ever, or break."""
    summary = Summary()
    summary.note(File("bad", "bad", 1, OSError("no")))
    with pytest.raises(FilesFailedError) as raised:
        summary.raise_for_failed()
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - our own
    assert (str(again), again.failed[0].path) == (str(raised.value), "bad")


def test_files_that_are_too_unlike_are_no_evidence() -> None:
    """What they took says nothing of one size, nor does it where some failed."""
    (alike,) = batches(many(9, MiB), by_size)
    assert alike.is_evidence()
    alike.files[0].error = OSError("no")
    assert not alike.is_evidence()
    (mixed,) = batches([*many(9, MiB), *files(one=40 * MiB)], by_size)
    assert not mixed.is_evidence()


def test_what_is_reported_is_what_was_in_force() -> None:
    """No more threads than requests, and a legal part size for what went whole."""
    (whole,) = batches(many(9, MiB), by_size)
    assert whole.setting(1000) == {"thread_count": 9, "part_size_bytes": 5 * MiB}
    (split,) = batches(many(2, 64 * MiB), by_size)
    assert split.setting(4) == {"thread_count": 4, "part_size_bytes": 8 * MiB}


def test_of_two_objects_that_go_to_one_file_the_second_is_named_as_failed() -> None:
    """Else the one that ends last would be all that is left of them, and both would count as moved."""
    pairs = [("a/b", "to/b"), ("a//b", "to/b"), ("one", os.devnull), ("two", os.devnull)]
    (found,) = wanted(pairs)
    assert [file.key for file in found if file.error] == ["a//b"]
    assert "'a/b' goes to to/b, too" in str(found[1].error)
    assert [file.size_bytes for file in found] == [-1, 0, -1, -1]  # what has failed is not asked for


@pytest.mark.parametrize("other", ["./to/b", "to//b", "to/../to/b", str(Path.cwd() / "to/b")])
def test_one_file_has_many_names(other: str) -> None:
    """Who states the paths may write them in two ways; what came first would be gone, and called moved."""
    (found,) = wanted([("one", "to/b"), ("two", other)])
    assert [file.key for file in found if file.error] == ["two"]


def test_of_two_files_that_go_to_one_key_the_second_is_named_as_failed(tmp_path: Path) -> None:
    """One of them would be lost, and both called moved. One that cannot be read takes nobody's key."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    pairs = [("gone", "one"), ("a", "one"), ("b", "one"), ("c", "two")]
    ((found, failed),) = planned([(tmp_path / name, key) for name, key in pairs], by_size)
    assert [Path(file.path).name for batch in found for file in batch.files] == ["a", "c"]
    assert [Path(file.path).name for file in failed] == ["gone", "b"]
    assert f"'{tmp_path / 'a'}' goes to the key 'one', too" in str(failed[1].error)


@pytest.mark.parametrize("given", [["ab"], [b"ab"], "ab", [7], [("a", "b", 3)]])
@pytest.mark.parametrize(
    "plan", [lambda given: list(planned(given, by_size)), lambda given: list(wanted(given))]
)
def test_what_is_no_pair_is_told_what_pairs_are(plan: Callable[[object], object], given: object) -> None:
    """Of a name alone the first letter would be the path, and the second the key."""
    with pytest.raises(TypeError, match=r"is no pair: uploads take \(path, key\), downloads \(key, path\)"):
        plan(given)


def test_one_that_has_failed_takes_nobodys_place() -> None:
    """It will not be written."""
    (found,) = wanted([File("to", "one", 1, ValueError("no")), File("to", "two", 1)])
    assert found[1].error is None


@pytest.mark.parametrize("key", ["p/./a", "p/b/../a"])
def test_a_key_that_leads_to_the_place_of_another_is_not_followed(key: str, tmp_path: Path) -> None:
    """Of `p/a` the file would be another object's."""
    file = object_below(tmp_path, "p/", {"Key": key, "Size": 1})
    assert file is not None
    assert "is the place of another key" in str(file.error)
