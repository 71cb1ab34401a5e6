"""Writing a stream into an object: how large its parts are, and how much of it is held."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.advice import Advice
from penstock.client.targets.advised import PART_COUNT_MAX, PART_SIZE_BYTES_MAX, PART_SIZE_BYTES_MIN
from penstock.client.transfers import writing
from penstock.client.transfers.multipart import stream_part_bytes
from penstock.client.transfers.writer import ObjectWriter, open_writer
from penstock.units import GiB, MiB, TiB
from tests.advice import an_advice
from tests.sdk import a_meta


class Store:
    """An S3 client that keeps the sizes of parts, each for as long as it is told."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.held: set[int] = set()
        self.let_go = threading.Event()
        self.changed = threading.Condition()
        self.meta = a_meta()

    def create_multipart_upload(self, **_: Any) -> dict[str, str]:
        """As boto3's."""
        return {"UploadId": "one"}

    def upload_part(self, *, Body: bytes, PartNumber: int, **_: Any) -> dict[str, str]:  # noqa: N803
        """As boto3's."""
        with self.changed:
            self.held.add(PartNumber)
            self.changed.notify_all()
        self.let_go.wait(20.0)
        self.sizes.append(len(Body))
        return {"ETag": "tag"}

    def put_object(self, *, Body: bytes, **_: Any) -> dict[str, str]:  # noqa: N803
        """As boto3's."""
        self.sizes.append(len(Body))
        return {"ETag": "tag"}

    def complete_multipart_upload(self, **_: Any) -> dict[str, str]:
        """As boto3's."""
        return {"ETag": "tag"}

    def abort_multipart_upload(self, **_: Any) -> None:
        """As boto3's."""


def advice(threads: int = 4, part: int = PART_SIZE_BYTES_MIN, **changes: Any) -> Advice:
    setting = {"thread_count": threads, "part_size_bytes": part}
    return an_advice(payload_size_bytes=64 * MiB, setting=setting, **changes)


def parts_held(store: Store, count: int, **options: Any) -> ObjectWriter:
    """A writer that waits, with so many parts under way and no more."""
    file = open_writer(store, "bucket", "key", **options)
    writing_on = threading.Thread(target=lambda: [file.write(bytes(MiB)) for _ in range(60)], daemon=True)
    writing_on.start()
    with store.changed:
        assert store.changed.wait_for(lambda: len(store.held) >= count, 20.0)
    writing_on.join(0.2)
    assert writing_on.is_alive()
    assert len(store.held) == count
    assert file.tell() == (count + 1) * file.part_size_bytes
    store.let_go.set()
    writing_on.join(20.0)
    file.close()
    assert sum(store.sizes) == 60 * MiB
    return file


@settings(max_examples=8)  # of 10,000 parts each
@given(
    advised=st.integers(PART_SIZE_BYTES_MIN, GiB),
    changes=st.lists(st.tuples(st.integers(0, PART_COUNT_MAX), st.integers(PART_SIZE_BYTES_MIN, GiB))),
)
def test_parts_never_run_out(advised: int, changes: list[tuple[int, int]]) -> None:
    """Whatever is advised meanwhile, 10,000 parts hold 5 TiB, and S3 takes each."""
    sent, later = 0, dict(changes)
    for count in range(PART_COUNT_MAX):
        advised = later.get(count, advised)
        size = stream_part_bytes(advised, count, sent)
        assert advised <= size <= PART_SIZE_BYTES_MAX
        sent += size
    assert sent >= 5 * TiB


def test_parts_grow_as_the_manual_says() -> None:
    """Late, and not by more than the rest of the way needs."""
    sizes, sent = dict[str, int](), 0
    for count in range(PART_COUNT_MAX):
        size = stream_part_bytes(8 * MiB, count, sent)
        sent += size
        for name, bound in {"10 GiB": 9 * GiB, "100 GiB": 100 * GiB, "1 TiB": TiB}.items():
            if sent <= bound:
                sizes[name] = size // MiB
    assert sizes == {"10 GiB": 8, "100 GiB": 114, "1 TiB": 537}
    assert size <= 1.6 * GiB


def test_a_size_that_is_stated_has_its_parts_from_the_beginning() -> None:
    """As large as 10,000 of them have to be, and the same to the end."""
    file = open_writer(Store(), "bucket", "key", size_bytes=5 * TiB, advice=advice())
    assert file.part_size_bytes == 525 * MiB
    sizes = {
        stream_part_bytes(file.part_size_bytes, count, count * 525 * MiB) for count in range(PART_COUNT_MAX)
    }
    assert sizes == {525 * MiB}
    file.abort()


def test_no_more_is_held_than_is_advised() -> None:
    """And the part that is filled meanwhile: then who writes waits."""
    parts_held(Store(), 4, advice=advice(threads=4))


def test_streams_that_are_written_together_share() -> None:
    """What is advised is for all of them."""
    parts_held(Store(), 2, advice=advice(threads=4, demand={"object_count": 2}))


def test_a_stated_memory_holds_the_part_that_is_filled_too() -> None:
    """Not one more than was promised."""
    parts_held(Store(), 2, advice=advice(threads=3), memory_bytes_max="15MiB")


def test_a_limit_of_the_pod_holds_where_none_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it, and the part that is filled too."""
    monkeypatch.setattr("penstock.client.transfers.writing.memory_share_bytes", lambda: 15 * MiB)
    parts_held(Store(), 2, advice=advice(threads=3))


def test_a_client_that_keeps_few_connections_has_as_many_parts_under_way() -> None:
    """Others would be made anew for each part."""
    store = Store()
    store.meta.config.max_pool_connections = 2
    parts_held(store, 2, advice=advice(threads=8))


def test_advice_is_asked_again_when_more_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that becomes long is advised as one."""
    asked = list[int]()

    def advise_in(_place: Any, _operation: Any, size: int, _demand: Any) -> Advice:
        asked.append(size)
        return advice(part=PART_SIZE_BYTES_MIN if size <= 64 * MiB else 16 * MiB)

    monkeypatch.setattr(writing, "advise_in", advise_in)
    store = Store()
    store.let_go.set()
    with open_writer(store, "bucket", "key") as file:
        file.write(bytes(100 * MiB))
    assert asked == [64 * MiB, 4 * 65 * MiB]
    assert sorted(store.sizes) == [3 * MiB, *[5 * MiB] * 13, 16 * MiB, 16 * MiB]


@pytest.mark.parametrize(("named", "endpoint"), [("r2", None), (None, "https://a.r2.cloudflarestorage.com")])
def test_where_parts_have_to_be_equal_they_stay_as_the_first(
    named: str | None, endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is advised for what it becomes; and where no more fit, that is said before the store refuses it."""

    def advise_in(_place: Any, _operation: Any, size: int, _demand: Any) -> Advice:
        return advice(part=PART_SIZE_BYTES_MIN if size <= 64 * MiB else 16 * MiB, store=named)

    monkeypatch.setattr(writing, "advise_in", advise_in)
    monkeypatch.setattr(writing, "PART_COUNT_MAX", 21)
    store = Store()
    store.meta.endpoint_url = endpoint
    store.let_go.set()
    with open_writer(store, "bucket", "key") as file:
        file.write(bytes(103 * MiB))
    assert sorted(store.sizes) == [3 * MiB, *[5 * MiB] * 20]
    with (
        pytest.raises(OSError, match="state a larger size_bytes"),
        open_writer(store, "bucket", "key") as file,
    ):
        file.write(bytes(106 * MiB))


def test_without_threads_parts_are_sent_where_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may have no more of them."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    store = Store()
    store.let_go.set()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with open_writer(store, "bucket", "key", advice=advice()) as file:
        file.write(bytes(12 * MiB))
    assert store.sizes == [5 * MiB, 5 * MiB, 2 * MiB]


def test_what_is_no_content_is_refused_and_harms_nothing() -> None:
    """Text, which has to be encoded first; and what was closed."""
    store = Store()
    with open_writer(store, "bucket", "key", advice=advice()) as file:
        assert file.writable()
        assert not file.seekable()
        with pytest.raises(TypeError, match="bytes-like"):
            file.write("text")  # type: ignore[arg-type]
        file.write(memoryview(b"content"))
    assert store.sizes == [7]
    with pytest.raises(ValueError, match="closed"):
        file.write(b"")


def test_what_another_thread_aborts_is_closed_for_who_writes() -> None:
    """Who waits for room does not wait for ever."""
    store, seen = Store(), list[BaseException]()
    file = open_writer(store, "bucket", "key", advice=advice(threads=1))

    def write_on() -> None:
        try:
            file.write(bytes(20 * MiB))
        except ValueError as trouble:
            seen.append(trouble)

    writing_on = threading.Thread(target=write_on)
    writing_on.start()
    with store.changed:
        assert store.changed.wait_for(lambda: bool(store.held), 20.0)
    threading.Timer(0.1, store.let_go.set).start()
    file.abort()
    writing_on.join(20.0)
    assert "closed" in str(seen[0])
