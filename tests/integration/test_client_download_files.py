"""Objects downloaded by boto3 and aiobotocore as advised, from the lab's S3 and with a daemon beside them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Lock, Timer
from typing import Any

import pytest

from penstock.client.reporting import Reporter
from penstock.client.transfers import aiobotocore_transfers, boto3_transfers
from penstock.client.transfers.aiobotocore_reader import whole_body
from penstock.client.transfers.many_files import File, Summary, object_below
from penstock.client.transfers.reader import open_object
from penstock.lab.worlds import NEAR
from penstock.models.s3.download import S3DownloadSetting
from penstock.units import KiB, MiB
from tests.advice import a_download_advice
from tests.daemon_house import lab_bucket
from tests.integration.scripted_advisor import ScriptedAdvisor, Served, a_recommendation, served_in_thread
from tests.integration.test_client_upload_files import LINK
from tests.integration.uploading import LIBRARIES, session_of
from tests.real.servers import plain_client

SIZES = {"p/empty": 0, "p/small": 3, "p/sub/file": 100 * KiB, "p/split": 3 * MiB + 1}
DERIVED = {"multipart_threshold_bytes": 2 * MiB, "connection_pool_count": 7}
ADVICE = a_download_advice(MiB, 6, MiB, derived=DERIVED)

every_library = pytest.mark.parametrize("library", LIBRARIES)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The lab's S3, with objects of all kinds of sizes, which are only read."""
    world = dataclasses.replace(NEAR, link=LINK)
    with lab_bucket(tmp_path_factory.mktemp("lab"), world) as endpoint_url:
        client = plain_client("s3", endpoint_url)
        for key, size in SIZES.items():
            client.put_object(Bucket="bucket", Key=key, Body=bytes(size))
        client.close()
        yield endpoint_url


def download(library: str, session: Any, objects: Any, **options: Any) -> Summary:
    """With this library."""
    options = {"advice": ADVICE, **options}
    if library == "boto3":
        return boto3_transfers.download_files(session, objects, "bucket", **options)
    return asyncio.run(aiobotocore_transfers.download_files(session, objects, "bucket", **options))


def found_below(folder: Path) -> dict[str, int]:
    """Every file, with its size."""
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }


@every_library
def test_objects_of_all_sizes_arrive_where_they_belong(library: str, url: str, tmp_path: Path) -> None:
    """By key and path; folders are made, progress counts each byte once, and nothing else is left."""
    folder, moved = tmp_path / "to", list[int]()
    objects = {key: folder / key for key in SIZES}
    summary = download(library, session_of(library, url), objects, callback=moved.append)
    summary.raise_for_failed()
    assert (summary.moved_count, sum(moved)) == (len(SIZES), sum(SIZES.values()))
    assert found_below(folder) == SIZES


@every_library
def test_what_fails_is_named_and_leaves_no_file(library: str, url: str, tmp_path: Path) -> None:
    """An object that does not exist, and a path whose folder is a file; what was there before stays."""
    (tmp_path / "file").write_text("before")
    told: list[File] = []
    objects = {"gone": tmp_path / "file", "p/small": tmp_path / "file/below", "p/split": tmp_path / "to"}
    summary = download(library, session_of(library, url), objects, on_file=told.append)
    assert {file.key for file in summary.failed} == {"gone", "p/small"}
    assert len(told) == 3
    assert (tmp_path / "file").read_text() == "before"
    assert (tmp_path / "to").stat().st_size == SIZES["p/split"]
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} >= {"file", "to"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("to.")]


@every_library
def test_names_that_are_long_or_none_are_no_trouble_of_others(library: str, url: str, tmp_path: Path) -> None:
    """A key may hold whatever its writer liked."""
    long, wide = tmp_path / ("n" * 255), tmp_path / ("é" * 127)
    objects = {"p/split": long, "p/sub/file": wide, "p/small": f"{tmp_path}/no\0folder/file"}
    summary = download(library, session_of(library, url), objects)
    assert [(file.key, type(file.error)) for file in summary.failed] == [("p/small", ValueError)]
    found = found_below(tmp_path)
    assert (found[long.name], found[wide.name]) == (SIZES["p/split"], SIZES["p/sub/file"])


def test_a_prefix_is_listed_with_its_sizes_and_asked_for_once(url: str, tmp_path: Path) -> None:
    """No object is looked at again: as many requests are reported as there are bodies to be read."""
    client = plain_client("s3", url)
    objects = list(boto3_transfers.objects_below(client, "bucket", "p/", tmp_path / "to"))
    assert {file.key: file.size_bytes for file in objects} == SIZES
    looked_at: list[str] = []
    client.meta.events.register("before-call.s3.HeadObject", lambda **_: looked_at.append("one"))
    boto3_transfers.download_files(client, objects, "bucket", advice=ADVICE).raise_for_failed()
    assert found_below(tmp_path / "to") == {key.removeprefix("p/"): size for key, size in SIZES.items()}
    assert looked_at == []
    client.close()


def test_a_client_with_few_connections_is_told_the_one_for_downloads(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that is made for uploads would be sized for them."""
    client = plain_client("s3", url)
    advice = a_download_advice(MiB, 64, MiB, derived=DERIVED)
    objects = {key: tmp_path / str(index) for index, key in enumerate(SIZES)}
    boto3_transfers.download_files(client, objects, "bucket", advice=advice).raise_for_failed()
    assert "the client keeps 10 connections: hand over a boto3.Session, or make" in caplog.text
    assert "penstock.client.boto3.download_client_config" in caplog.text
    client.close()


def test_a_key_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """Whoever may write to the bucket may not write to the host."""
    for key in ("p/../../etc/passwd", "p/..", "p/a/../../../b"):
        file = object_below(tmp_path, "p/", {"Key": key, "Size": 1})
        assert file is not None
        assert isinstance(file.error, ValueError)
    inside = object_below(tmp_path, "p/", {"Key": "p//etc/passwd", "Size": 1})
    assert inside is not None
    assert (inside.error, inside.path) == (None, str(tmp_path / "etc/passwd"))
    assert object_below(tmp_path, "p/", {"Key": "p/folder/", "Size": 0}) is None


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A daemon that advises three threads for downloads."""
    setting = S3DownloadSetting(thread_count=3, range_size_bytes=MiB)
    derived = {"connection_pool_count": 4, "multipart_threshold_bytes": MiB}
    advice = a_recommendation("s3_download", setting=setting, derived=derived)
    with served_in_thread(tmp_path, ScriptedAdvisor([advice], region="eu-central-1")) as running:
        monkeypatch.setenv("PENSTOCK_SOCKET", str(running.socket_path))
        monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(tmp_path / "none"))
        yield running


@every_library
def test_one_object_is_advised_and_reported(library: str, url: str, server: Served, tmp_path: Path) -> None:
    """For its size and for a file; the daemon hears of four ranges, and when their first bytes came."""
    reporter, path = Reporter(socket=str(server.socket_path)), tmp_path / "to"
    if library == "boto3":
        client = plain_client("s3", url)
        boto3_transfers.download_file(client, "bucket", "p/split", path, reporter=reporter)
        client.close()
    else:
        session = session_of(library, url)
        asyncio.run(
            aiobotocore_transfers.download_file(session, "bucket", "p/split", path, reporter=reporter)
        )
    assert path.stat().st_size == SIZES["p/split"]
    question = server.advisor.questions[0]
    assert (question.operation, question.payload_size_bytes) == ("s3_download", SIZES["p/split"])
    assert question.demand.sink == "file"
    assert reporter.flush()
    (observed,) = server.advisor.recorded
    assert observed.setting == S3DownloadSetting(thread_count=3, range_size_bytes=MiB)
    assert (observed.request_count, observed.transferred_bytes) == (4, SIZES["p/split"])
    assert 0 < observed.measures["first_byte_seconds_mean"] < observed.duration_seconds
    assert observed.measures["sink_bytes_per_second"] > 0
    reporter.close()


@every_library
def test_how_fast_the_files_took_it_is_told(library: str, url: str, server: Served, tmp_path: Path) -> None:
    """So that a disk which is the limit can be named, and is not taken for the network."""
    reporter = Reporter(socket=str(server.socket_path))
    objects = {"p/split": tmp_path / "to"}
    download(library, session_of(library, url), objects, reporter=reporter)
    assert reporter.flush()
    (observed,) = server.advisor.recorded
    # The link carries 200 MB/s; a write into the page cache takes less time than it took to arrive.
    assert observed.measures["sink_bytes_per_second"] > observed.throughput_bytes_per_second
    reporter.close()


def test_what_waits_for_a_slow_file_is_bounded(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six files have four ranges each to read, and none is written at first; few are held beyond the requests."""
    held, lock, gate = [0], Lock(), Event()
    write = aiobotocore_transfers._write

    async def reading(*arguments: Any) -> bytearray:
        content = await whole_body(*arguments)
        with lock:
            held.append(held[-1] + 1)
        return content

    def writing(*arguments: Any) -> None:
        gate.wait()
        write(*arguments)
        with lock:
            held.append(held[-1] - 1)

    monkeypatch.setattr(aiobotocore_transfers, "whole_body", reading)
    monkeypatch.setattr(aiobotocore_transfers, "_write", writing)
    files = [File(str(tmp_path / str(number)), "p/split", -1) for number in range(6)]
    Timer(1.0, gate.set).start()
    download("aiobotocore", session_of("aiobotocore", url), files).raise_for_failed()
    assert max(held) <= ADVICE.setting["thread_count"] + 2


def test_what_is_missing_is_told_as_the_library_does(url: str, tmp_path: Path) -> None:
    """Nothing of penstock stands before it."""
    from botocore.exceptions import ClientError

    client = plain_client("s3", url)
    with pytest.raises(ClientError, match="404"):
        boto3_transfers.download_file(client, "bucket", "gone", tmp_path / "to", advice=ADVICE)
    with pytest.raises(ClientError, match="404"):
        open_object(client, "bucket", "gone")
    session = session_of("aiobotocore", url)
    with pytest.raises(ClientError, match="404"):
        asyncio.run(aiobotocore_transfers.download_file(session, "bucket", "gone", tmp_path / "to"))
    assert not (tmp_path / "to").exists()
    client.close()


def test_a_file_is_read_from_a_real_client(url: str, server: Served) -> None:
    """`open_object` asks for the size and for advice, and reads in ranges."""
    client = plain_client("s3", url)
    with open_object(client, "bucket", "p/split") as file:
        assert len(file.read()) == SIZES["p/split"]
        assert (file.seek(MiB), len(file.read(10))) == (MiB, 10)
        assert file.thread_count == 3
    assert server.advisor.questions[0].demand.sink == "memory"
    client.close()


@every_library
def test_a_special_file_is_written_to_as_it_is(library: str, url: str) -> None:
    """Nothing takes the place of /dev/null."""
    download(library, session_of(library, url), {"p/split": os.devnull}).raise_for_failed()
    assert not Path(os.devnull).is_file()
