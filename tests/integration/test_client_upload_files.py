"""Many files at a time, with boto3 and with aiobotocore, against the lab's S3 and with a daemon beside them."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import signal
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.config import AioConfig

from penstock.client.advice import Advice
from penstock.client.reporting import Reporter
from penstock.client.transfers import aiobotocore_transfers, boto3_transfers
from penstock.client.transfers.aiobotocore_upload import AsyncUpload
from penstock.client.transfers.many_files import File, FilesFailedError
from penstock.lab.worlds import NEAR
from penstock.models.s3.upload import S3UploadSetting
from penstock.trial.stage import CREDENTIALS
from penstock.units import MiB
from tests.daemon_house import lab_bucket
from tests.factories import a_link
from tests.integration import uploading
from tests.integration.scripted_advisor import ScriptedAdvisor, Served, a_recommendation, served_in_thread
from tests.integration.uploading import LIBRARIES, session_of, stored, unfinished, upload
from tests.real.servers import plain_client

ROOT = Path(__file__).parents[2]
LINK = a_link()
SLOW = dataclasses.replace(LINK, host_rate_bytes_per_second=4e6)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """Each is tried with all."""
    name: str = request.param
    return name


@pytest.fixture
def url(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The lab's S3, with a bucket."""
    link = getattr(request, "param", LINK)
    with lab_bucket(tmp_path, dataclasses.replace(NEAR, link=link)) as endpoint_url:
        yield endpoint_url


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    """To look from outside, with ten connections."""
    one = plain_client("s3", url)
    yield one
    one.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """A daemon that advises seven threads."""
    setting = S3UploadSetting(thread_count=7, part_size_bytes=5 * MiB)
    with served_in_thread(tmp_path, ScriptedAdvisor([a_recommendation(setting=setting)])) as running:
        yield running


def files_of(folder: Path, count: int, size: int) -> dict[Path, str]:
    """So many files."""
    files = {folder / f"f{n}": f"k{n}" for n in range(count)}
    for path in files:
        path.write_bytes(bytes(size))
    return files


def test_a_mixed_folder_arrives(library: str, url: str, client: Any, tmp_path: Path) -> None:
    """Empty files, small ones, and one that is split."""
    uploading.mixed_folder_arrives(library, session_of(library, url), client, "bucket", tmp_path)


async def test_parts_under_way_are_not_copied(url: str) -> None:
    """By aiohttp itself each would be there once more, in twice the memory that was advised."""
    body = bytes(8 * MiB)
    async with session_of("aiobotocore", url).create_client("s3", config=AioConfig()) as client:
        sending = AsyncUpload(client, "bucket", "key", {})
        await sending.begin()
        tracemalloc.start()
        try:
            await asyncio.gather(*(sending.send(number, body) for number in range(1, 9)))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await sending.complete()
    assert peak_bytes < 2 * len(body)  # copies would be 8


def test_it_is_advised_for_the_number_of_files_and_reported_once(
    library: str, url: str, server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon is asked about twenty files, and hears what was in force and what twenty requests did."""
    monkeypatch.setenv("PENSTOCK_SOCKET", str(server.socket_path))
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(tmp_path / "none"))
    server.advisor.region = "eu-central-1"
    server.publish()
    reporter = Reporter(socket=str(server.socket_path))
    files = files_of(tmp_path, 20, MiB)
    summary = upload(
        library,
        session_of(library, url),
        files,
        "bucket",
        advice=None,
        reporter=reporter,
        memory_bytes_max="1GiB",
    )
    assert (summary.moved_count, summary.failed) == (20, [])
    question = server.advisor.questions[0]
    assert (question.payload_size_bytes, question.demand.object_count) == (MiB, 20)
    assert question.demand.memory_bytes_max == 1 << 30
    assert reporter.flush()
    (observed,) = server.advisor.recorded
    assert observed.setting == S3UploadSetting(thread_count=7, part_size_bytes=5 * MiB)
    assert (observed.context.payload_size_bytes, observed.transferred_bytes) == (MiB, 20 * MiB)
    assert (observed.request_count, observed.client) == (20, library)
    reporter.close()


def test_files_that_fail_are_named_and_the_others_arrive(
    library: str, url: str, client: Any, tmp_path: Path
) -> None:
    """One is gone, one may not be opened as it is a folder, and a key is too long for S3."""
    files: dict[Path, str] = files_of(tmp_path, 5, 100)
    files |= {tmp_path / "gone": "gone", tmp_path: "folder"}
    told: list[File] = []
    summary = upload(library, session_of(library, url), files, "bucket", on_file=told.append)
    assert {file.key for file in summary.failed} == {"gone", "folder"}
    assert all(isinstance(file.error, OSError) for file in summary.failed)
    assert len(told) == 7
    assert set(stored(client, "bucket")) == {f"k{n}" for n in range(5)}


@pytest.mark.parametrize("size", [1000, 12 * MiB])
def test_what_is_there_already_is_not_written_over_where_that_was_asked(
    url: str, client: Any, tmp_path: Path, size: int
) -> None:
    """Whole or in parts: the file is named with S3's word for why, the others arrive, and nothing is left behind.

    boto3's transfer manager knows no such condition, and says so at once.
    """
    client.put_object(Bucket="bucket", Key="k1", Body=b"mine")
    files, never = files_of(tmp_path, 3, size), {"IfNoneMatch": "*"}
    with pytest.raises(ValueError, match="IfNoneMatch"):
        upload("boto3", session_of("boto3", url), files, "bucket", extra_args=never)
    summary = upload("aiobotocore", session_of("aiobotocore", url), files, "bucket", extra_args=never)
    (failed,) = summary.failed
    assert (failed.key, summary.moved_count) == ("k1", 2)
    assert "PreconditionFailed" in str(failed.error)
    assert stored(client, "bucket") == {"k0": size, "k1": 4, "k2": size}
    assert unfinished(client, "bucket") == []


def test_without_a_bucket_every_file_fails_with_the_reason_and_nothing_is_raised(
    library: str, url: str, tmp_path: Path
) -> None:
    """Until one asks for it; and there is nothing to report."""
    reporter = Reporter(socket=str(tmp_path / "nobody"))
    files = {**files_of(tmp_path, 3, 100)}
    summary = upload(library, session_of(library, url), files, "nowhere", reporter=reporter)
    assert (summary.moved_count, summary.failed_count) == (0, 3)
    with pytest.raises(FilesFailedError, match=r"3 of 3 files were not moved.*NoSuchBucket"):
        summary.raise_for_failed()
    assert reporter.dropped_count == 0
    reporter.close()


def test_a_client_that_is_given_is_used_with_what_it_has(
    url: str, server: Served, client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No more threads than it keeps connections; that so few are kept is said in the log."""
    reporter = Reporter(socket=str(server.socket_path))
    wide = {"thread_count": 64, "part_size_bytes": 5 * MiB}
    advice = Advice({**uploading.ADVICE.document, "setting": wide})
    files = files_of(tmp_path, 30, 1000)
    boto3_transfers.upload_files(client, files, "bucket", advice=advice, reporter=reporter)
    assert reporter.flush()
    assert server.advisor.recorded[0].setting.thread_count == 10
    assert "64 threads are advised, and the client keeps 10 connections" in caplog.text
    assert len(stored(client, "bucket")) == 30
    reporter.close()


@pytest.mark.parametrize("url", [SLOW], indirect=True)
def test_an_exception_of_the_caller_stops_what_is_under_way(
    library: str, url: str, client: Any, tmp_path: Path
) -> None:
    """It is raised as it is, and no unfinished upload is left."""

    def refuse(file: File) -> None:
        if file.key == "k1":
            raise LookupError("enough")

    (tmp_path / "big").write_bytes(bytes(40 * MiB))
    files = {tmp_path / "big": "big", **files_of(tmp_path, 3, 100)}
    with pytest.raises(LookupError, match="enough"):
        upload(library, session_of(library, url), files, "bucket", on_file=refuse)
    assert unfinished(client, "bucket") == []
    assert "big" not in stored(client, "bucket")


PROGRAM = """
import os
import sys
import tracemalloc
import warnings
from tests.integration import uploading
try:
    uploading.upload(sys.argv[1], uploading.session_of(sys.argv[1], sys.argv[2]), {sys.argv[3]: "big"}, "bucket",
        callback=lambda size: os.write(1, b"moves\\n"))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("url", [SLOW], indirect=True)
def test_an_interrupt_ends_cleanly(library: str, url: str, client: Any, tmp_path: Path) -> None:
    """Ctrl-C removes the unfinished upload, and the process ends by itself."""
    (tmp_path / "big").write_bytes(bytes(40 * MiB))
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, library, url, str(tmp_path / "big")],
        cwd=ROOT,
        env={**os.environ, **CREDENTIALS},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "moves\n"
    program.send_signal(signal.SIGINT)
    told, trouble = program.communicate(timeout=60)
    assert told.splitlines()[-1] == "interrupted", trouble
    assert program.returncode == 0
    assert unfinished(client, "bucket") == []
    # boto3 ends the parts that are under way: on a machine that is busy enough, they are all that there are.
    assert stored(client, "bucket") in ({}, {"big": 40 * MiB})


@pytest.mark.parametrize("url", [SLOW], indirect=True)
def test_being_cancelled_at_any_moment_leaves_nothing(url: str, client: Any, tmp_path: Path) -> None:
    """Also while an upload is begun whose number nobody knows yet."""
    (tmp_path / "big").write_bytes(bytes(11 * MiB))
    files = {tmp_path / "big": "big"}

    async def be_cancelled() -> None:
        for turns in (0, 20, 40, 60, 80, 120, 400):
            uploads = asyncio.ensure_future(
                aiobotocore_transfers.upload_files(
                    session_of("aiobotocore", url), files, "bucket", advice=uploading.ADVICE
                )
            )
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            uploads.cancel()
            with pytest.raises(asyncio.CancelledError):
                await uploads
            assert await asyncio.to_thread(unfinished, client, "bucket") == []

    asyncio.run(be_cancelled())
    with warnings.catch_warnings():  # a connection that still had something to send ends with its loop
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
