"""Uploads with boto3, as far as they need neither a daemon nor an S3."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import boto3
import boto3.exceptions
import pytest

from penstock.client import sdk_client
from penstock.client.advice import Advice, default_advice
from penstock.client.transfers.boto3_transfers import download_file, upload_file
from penstock.client.transfers.errand import Errand
from penstock.client.transfers.many_files import make_folder_of
from penstock.client.transfers.reading import Opening
from penstock.units import MiB
from tests.integration.uploading import credentials
from tests.sdk import KeptReports, a_meta


class Client:
    """An S3 client that takes down what it was told to upload."""

    def __init__(self) -> None:
        self.meta = a_meta(10)
        self.uploaded: list[tuple[str, str, str]] = []

    def upload_file(self, path: str, bucket: str, key: str, **_options: Any) -> None:
        """As boto3's."""
        self.uploaded.append((path, bucket, key))

    def download_file(self, *_: str, Config: Any, **_options: Any) -> None:  # noqa: N803
        """As boto3's."""
        self.config = Config


def test_what_cannot_seek_is_written_by_as_many_threads_as_are_advised() -> None:
    """boto3 holds ten ranges for it, if nobody says more; and more is reported."""
    client, setting = Client(), {"thread_count": 32, "range_size_bytes": MiB}
    advice = Advice({**default_advice("s3_download", 64 * MiB, "").document, "setting": setting})
    download_file(client, "bucket", "key", os.devnull, size_bytes=64 * MiB, advice=advice)
    assert client.config.max_in_memory_download_chunks == client.config.max_concurrency == 32


@pytest.mark.parametrize("path", [b"/tmp/file", 3, None])
def test_what_boto3_takes_for_no_path_is_refused_as_it_does(path: Any) -> None:
    """Before anything is asked or opened: bytes would be a path to what is below boto3, and a number a descriptor."""
    client, own = Client(), boto3.client("s3", region_name="eu-west-1")
    for refused in (
        lambda: own.download_file("bucket", "key", path),
        lambda: download_file(client, "bucket", "key", path),
        lambda: own.upload_file(path, "bucket", "key"),
        lambda: upload_file(client, path, "bucket", "key"),
    ):
        with pytest.raises(ValueError, match="Filename must be a string or a path-like object"):
            refused()
    assert not client.uploaded


def test_threads_beyond_the_connections_that_are_kept_are_reported() -> None:
    """Botocore makes more as they are needed: what 32 threads moved is no evidence of ten."""
    client, reporter = Client(), KeptReports()
    setting = {"thread_count": 32, "range_size_bytes": MiB}
    advice = Advice({**default_advice("s3_download", 64 * MiB, "").document, "setting": setting})
    download_file(
        client,
        "bucket",
        "key",
        os.devnull,
        size_bytes=64 * MiB,
        advice=advice,
        reporter=reporter,
    )
    (report,) = reporter.reports
    assert report["setting"] == setting


ACCESS_POINT = "arn:aws:s3:us-west-2:123456789012:accesspoint/mine"
EVERYWHERE = "arn:aws:s3::123456789012:accesspoint/mine.mrap"


@pytest.mark.parametrize(
    ("bucket", "region", "service_class"),
    [
        ("bucket", "eu-west-1", None),
        ("probe--euw1-az1--x-s3", "eu-west-1", "express"),
        ("point--euw1-az1--xa-s3", "eu-west-1", "express"),
        (ACCESS_POINT, "us-west-2", None),
        (EVERYWHERE, "eu-west-1", None),
    ],
)
def test_a_bucket_is_advised_and_reported_for_where_and_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: str, region: str, service_class: str | None
) -> None:
    """A directory bucket is nothing to learn another one from, nor is it driven so; an access point may be far away."""
    asked: list[dict[str, object]] = []

    def advised(operation: str, size: int, **demand: object) -> Advice:
        asked.append({name: demand.get(name) for name in ("region", "service_class")})
        return Advice({**default_advice(operation, size, "").document, "region": "eu-central-1"})

    monkeypatch.setattr(sdk_client, "advise", advised)
    (path := tmp_path / "file").write_bytes(b"some")
    client, reporter = Client(), KeptReports()
    upload_file(client, path, bucket, "key", reporter=reporter)
    download_file(client, bucket, "key", os.devnull, size_bytes=4, reporter=reporter)
    Opening(client, bucket, "key", None, None, {}).found({"ContentLength": 4})
    session = boto3.Session(region_name="us-east-1")  # of which a client elsewhere is made
    Errand(session, bucket, "s3_upload", client_arguments={"region_name": "eu-west-1"}).ask(4, 1)
    first, second = ({"region": region, "service_class": service_class} for region in (None, region))
    assert asked == 4 * [first, second]
    found = [(place["region"], place.get("service_class")) for place in reporter.reports]
    assert found == 2 * [(region, service_class)]


def test_for_an_empty_file_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no advice about nothing, and its absence is no line for the log; the file is uploaded all the same."""
    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "nobody.sock"))
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(tmp_path / "none"))
    path, client = tmp_path / "empty", Client()
    path.touch()
    with caplog.at_level(logging.INFO):
        upload_file(client, path, "bucket", "key")
    assert client.uploaded == [(str(path), "bucket", "key")]
    # What reports of another test still say names a socket of its own.
    assert [line for line in caplog.messages if str(tmp_path) in line or "nobody.sock" not in line] == []


def test_a_download_that_breaks_too_often_raises_what_boto3_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what its transfer manager raises: callers of boto3 catch boto3's, and find why in it."""

    def breaks(**_: object) -> None:
        raise ConnectionResetError

    client = boto3.Session(region_name="eu-west-1", **credentials()).client("s3")
    monkeypatch.setattr(client, "head_object", lambda **_: {"ContentLength": 1, "ETag": '"one"'})
    monkeypatch.setattr(client, "get_object", breaks)
    advice = default_advice("s3_download", 1, "")
    with pytest.raises(boto3.exceptions.RetriesExceededError) as caught:
        download_file(client, "bucket", "key", tmp_path / "file", advice=advice)
    client.close()
    assert isinstance(caught.value.last_exception, ConnectionResetError)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_refused_before_anything_is_asked_for(tmp_path: Path) -> None:
    """And not when the whole object is there, and cannot take the folder's place."""
    with pytest.raises(IsADirectoryError, match="it is a folder: name the file in it"):
        download_file(object(), "bucket", "key", tmp_path)
    with pytest.raises(IsADirectoryError, match="it is a folder: name the file in it"):
        make_folder_of(str(tmp_path))  # which each of many files is begun with


class Lookalike:
    """It uploads, and that is all it has in common with a client of botocore."""

    __slots__ = ("uploaded",)  # nor can it be referred to weakly

    def __init__(self) -> None:
        self.uploaded: list[str] = []

    def upload_file(self, path: str, bucket: str, key: str, **_options: Any) -> None:
        """As boto3's."""
        self.uploaded.append(f"{path} {bucket} {key}")


def test_what_only_behaves_like_a_client_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that went well is not made to fail by what penstock would like to see of it."""
    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "nobody.sock"))
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(tmp_path / "none"))
    path, client = tmp_path / "file", Lookalike()
    path.write_bytes(bytes(20 << 20))
    upload_file(client, path, "bucket", "key")
    assert client.uploaded == [f"{path} bucket key"]
