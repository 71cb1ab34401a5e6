"""Uploads with boto3 that are advised and reported: against the lab's S3, with a daemon beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.client.advice import Advice, Adviser
from penstock.client.reporting import Reporter
from penstock.client.transfers.boto3_transfers import upload_file
from penstock.lab.link import LinkTruth
from penstock.lab.worlds import NEAR
from penstock.models.s3.upload import S3UploadSetting
from penstock.trial.stage import lab_endpoint
from penstock.units import MiB
from penstock.vocabulary import Observation
from tests.daemon_house import lab_bucket
from tests.factories import a_link
from tests.integration.scripted_advisor import ScriptedAdvisor, Served, a_recommendation, served_in_thread
from tests.real.servers import plain_client

SIZE = 21 * MiB
LINK = a_link()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """A daemon that advises six threads and parts of 5 MiB."""
    setting = S3UploadSetting(thread_count=6, part_size_bytes=5 * MiB)
    derived = {"multipart_threshold_bytes": 8.0 * MiB, "connection_pool_count": 7.0}
    advice = a_recommendation(setting=setting, derived=derived)
    with served_in_thread(tmp_path, ScriptedAdvisor([advice])) as running:
        yield running


@pytest.fixture
def reporter(server: Served) -> Iterator[Reporter]:
    """To that daemon."""
    one = Reporter(socket=str(server.socket_path))
    yield one
    one.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of 21 MiB."""
    path = tmp_path / "object"
    with path.open("wb") as file:
        file.truncate(SIZE)
    return path


def advice_of(server: Served, size: int = SIZE) -> Advice:
    """What the daemon advises."""
    folder = server.socket_path.parent
    return Adviser(socket=str(server.socket_path), snapshot=str(folder / "none")).advise("s3_upload", size)


def uploads(
    server: Served, reporter: Reporter, folder: Path, path: Path, keys: list[str], *, link: LinkTruth = LINK
) -> list[Observation[Any]]:
    """What is reported of uploads to these keys, all at once."""
    with lab_bucket(folder, dataclasses.replace(NEAR, link=link)) as url:
        client = plain_client("s3", url)
        advice = advice_of(server)
        with ThreadPoolExecutor(len(keys)) as pool:
            list(
                pool.map(
                    lambda key: upload_file(client, path, "bucket", key, advice=advice, reporter=reporter),
                    keys,
                )
            )
        for key in keys:
            assert client.head_object(Bucket="bucket", Key=key)["ContentLength"] == path.stat().st_size
        client.close()
    assert reporter.flush()
    return server.advisor.recorded


def test_an_upload_is_advised_and_reported(
    server: Served, reporter: Reporter, tmp_path: Path, path: Path
) -> None:
    """What the daemon hears is what was in force and what happened: five parts, and two requests around them."""
    (observed,) = uploads(server, reporter, tmp_path, path, ["one"])
    assert observed.setting == S3UploadSetting(thread_count=6, part_size_bytes=5 * MiB)
    assert observed.transferred_bytes == SIZE
    assert observed.request_count == 7
    assert observed.throttled_count == observed.failed_count == 0
    assert observed.client == "boto3"
    assert observed.context.place.service_class == "standard"
    assert 0 < observed.latency_seconds_p50 <= observed.latency_seconds_p99 <= observed.duration_seconds
    assert 0.1 < observed.duration_seconds < 20  # at 200 MB/s


def test_uploads_at_the_same_time_are_told_apart(
    server: Served, reporter: Reporter, tmp_path: Path, path: Path
) -> None:
    """Each counts its own requests on the client that they share."""
    observed = uploads(server, reporter, tmp_path, path, ["one", "two", "three"])
    assert [o.request_count for o in observed] == [7, 7, 7]


def test_a_small_file_goes_whole(server: Served, reporter: Reporter, tmp_path: Path, path: Path) -> None:
    """One request on one connection, and the part size of a report must be a legal one."""
    with path.open("r+b") as file:
        file.truncate(MiB)
    (observed,) = uploads(server, reporter, tmp_path, path, ["small"])
    assert observed.setting == S3UploadSetting(thread_count=1, part_size_bytes=5 * MiB)
    assert (observed.request_count, observed.transferred_bytes) == (1, MiB)


def test_what_the_sdk_tries_again_is_counted(
    server: Served, reporter: Reporter, tmp_path: Path, path: Path
) -> None:
    """S3 refuses more than a few requests a second: botocore hides that, the report does not."""
    narrow = dataclasses.replace(LINK, prefix_request_rate_per_second=5.0)
    (observed,) = uploads(server, reporter, tmp_path, path, ["one"], link=narrow)
    assert observed.throttled_count > 0
    assert observed.request_count == 7 + observed.throttled_count


def test_an_upload_that_fails_raises_what_boto3_raises_and_is_not_reported(
    server: Served, reporter: Reporter, tmp_path: Path, path: Path
) -> None:
    """There is nothing to learn from it; and without a bucket there is no upload."""
    from boto3.exceptions import S3UploadFailedError

    with lab_endpoint("s3", dataclasses.replace(NEAR, link=LINK), tmp_path) as url:
        client = plain_client("s3", url)
        with pytest.raises(S3UploadFailedError, match="NoSuchBucket"):
            upload_file(client, path, "nowhere", "key", advice=advice_of(server), reporter=reporter)
        client.close()
    assert reporter.flush()
    assert server.advisor.recorded == []
