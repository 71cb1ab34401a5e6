"""A real boto3 transfer keeps to a share that changes while it is under way."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.client import boto3_lease
from penstock.client.advice import Advice, default_advice
from penstock.client.lease import Share
from penstock.client.transfers.writer import open_writer
from penstock.lab.worlds import DEMO
from penstock.units import MiB
from tests.advice import an_advice
from tests.daemon_house import lab_bucket
from tests.real.servers import plain_client


class AShare(Share):
    """A lease of that many threads."""

    def __init__(self, thread_count: int) -> None:
        self.become(thread_count)

    def become(self, thread_count: int) -> None:
        """As if others had come or gone."""
        document = dict(default_advice("s3_upload", MiB, "a test").document)
        self.advice = Advice(
            document | {"setting": {"thread_count": thread_count, "part_size_bytes": 5 * MiB}}
        )


def test_no_more_are_let_through_than_the_share_has_threads() -> None:
    """Who waits is let through when another is done, or when the share grows; who asks twice is let through at once."""
    share = AShare(2)
    turns = boto3_lease.Turns(share)
    let_through, done = threading.Semaphore(0), threading.Event()

    def request() -> None:
        turns.take()
        turns.take()
        let_through.release()
        done.wait(20)
        turns.give_back()
        turns.give_back()

    threads = [threading.Thread(target=request) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        assert let_through.acquire(timeout=60)
    assert turns.held_count == 2
    share.become(4)
    for _ in range(2):
        assert let_through.acquire(timeout=60)
    assert turns.held_count == 4
    done.set()
    for thread in threads:
        thread.join(20)
    assert turns.held_count == 0


def test_a_forked_child_waits_for_no_turn_of_its_parent() -> None:
    """A thread that is not there holds neither a turn there nor the lock."""
    turns = boto3_lease.Turns(AShare(1))
    turns._holders.add(-1)
    turns._changed.acquire()
    turns._process_id -= 1  # as it looks to a child
    waiting = threading.Thread(target=turns.take, daemon=True)
    waiting.start()
    waiting.join(10)
    assert not waiting.is_alive()
    assert turns.held_count == 1


def test_a_thread_that_ended_holds_no_turn() -> None:
    """A request that fails before it is sent ends without a word of botocore: its body cannot be read, for one."""
    turns = boto3_lease.Turns(AShare(1))
    failing = threading.Thread(target=turns.take)
    failing.start()
    failing.join()
    assert turns.held_count == 1
    next_one = threading.Thread(target=turns.take, daemon=True)
    next_one.start()
    next_one.join(10)
    assert not next_one.is_alive()


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the lab's S3, behind a link that takes a moment for each part."""
    pytest.importorskip("boto3")
    link = dataclasses.replace(
        DEMO.link,
        round_trip_seconds=0.01,
        host_rate_bytes_per_second=4e8,
        connection_rate_bytes_per_second=4e7,
    )
    with (
        lab_bucket(tmp_path, dataclasses.replace(DEMO, link=link)) as url,
        closing(plain_client("s3", url)) as client,
    ):
        yield client


def followed(s3: Any) -> tuple[boto3_lease.Turns, list[int]]:
    """A share of two, and of six once eight parts were sent; and how many were on their way with each of them."""
    share, most = AShare(2), list[int]()
    turns = boto3_lease.follow(s3, share)

    def note(**_: object) -> None:
        most.append(turns.held_count)
        if len(most) == 8:
            share.become(6)

    s3.meta.events.register("before-send.s3.UploadPart", note)
    return turns, most


def test_a_transfer_follows_its_share(s3: Any, tmp_path: Path) -> None:
    """Eight threads of boto3 send two parts at a time, and six from the moment that the share is six."""
    from boto3.s3.transfer import TransferConfig

    turns, most = followed(s3)
    (tmp_path / "object").write_bytes(bytes(120 * MiB))
    config = TransferConfig(max_concurrency=8, multipart_chunksize=5 * MiB, multipart_threshold=5 * MiB)
    s3.upload_file(str(tmp_path / "object"), "bucket", "key", Config=config)
    assert len(most) == 24
    assert max(most[:8]) == 2
    assert 2 < max(most) <= 6
    assert turns.held_count == 0


def test_a_stream_follows_its_share(s3: Any) -> None:
    """Its eight threads, too, send two parts at a time, and six from the moment that the share is six."""
    turns, most = followed(s3)
    setting = {"thread_count": 8, "part_size_bytes": 5 * MiB}
    with open_writer(s3, "bucket", "key", advice=an_advice(setting=setting)) as file:
        for _ in range(24):
            file.write(bytes(5 * MiB))
    assert len(most) == 24
    assert max(most[:8]) == 2
    assert 2 < max(most) <= 6
    assert turns.held_count == 0
