"""The SDKs of the benchmark as processes of their own, on the lab's S3: they do what they are told, and count."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from bench.real_clients import body_of
from bench.shaped_links import BUCKET, End, NotMeasuredError, Purse, ShapedLink, begun, put_what_is_read
from bench.surfaces import DOWNLOADING
from penstock.lab.worlds import NEAR, World
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.upload import S3UploadSetting
from penstock.units import KiB, MiB
from tests.daemon_house import lab_bucket
from tests.factories import a_link
from tests.real.servers import plain_client

LINK = ShapedLink(
    name="short",
    story="for a test",
    truth=a_link(connection_rate_bytes_per_second=50e6, host_rate_bytes_per_second=100e6),
    object_size_bytes=11 * MiB,
)


@pytest.fixture
def end(tmp_path: Path) -> Iterator[End]:
    """The lab's S3 with the benchmark's bucket."""
    world = World(name="short", story="for a test", link=LINK.truth, queue=NEAR.queue)
    with lab_bucket(tmp_path, world, BUCKET) as url:
        yield End(server="lab", url=url, directory=tmp_path)


def a_purse() -> Purse:
    return Purse(bytes_left=100 * MiB, seconds_max=100.0, began_seconds=monotonic())


@pytest.mark.parametrize("name", ["boto3", "aiobotocore"])
def test_one_large_object_goes_in_parts_and_many_small_ones_whole(name: str, end: End) -> None:
    """Everything arrives under its name, in as many parts as were asked for."""
    setting = S3UploadSetting(thread_count=3, part_size_bytes=5 * MiB)
    with closing(begun(name, LINK, end, a_purse())) as client:
        large = client.move(setting)
        client.link = replace(LINK, object_size_bytes=10 * KiB, object_count=7)
        small = client.move(setting)

    assert (large.transferred_bytes, large.request_count) == (11 * MiB, 3)
    assert (small.transferred_bytes, small.request_count) == (70 * KiB, 7)
    assert large.failed_count == small.failed_count == 0
    stored = plain_client("s3", end.url).list_objects_v2(Bucket=BUCKET)["Contents"]
    # The small ones have overwritten the large one, which had the first name.
    assert [(o["Key"], o["Size"]) for o in stored] == [(f"{index:05d}", 10 * KiB) for index in range(7)]


def test_downloads_go_in_ranges_and_land_whole(end: End) -> None:
    """What was put is read back byte for byte, split or whole; what is missing counts as failed."""
    reading = replace(LINK, transfer=DOWNLOADING, object_size_bytes=MiB)
    put_what_is_read(plain_client("s3", end.url), reading)
    setting = S3DownloadSetting(thread_count=3, range_size_bytes=256 * KiB)
    with closing(begun("boto3", reading, end, a_purse())) as client:
        large = client.move(setting)
        client.link = replace(reading, object_size_bytes=10 * KiB, object_count=2)
        missing = client.move(setting)

    assert (large.transferred_bytes, large.request_count, large.failed_count) == (MiB, 4, 0)
    landed = end.directory / "boto3-files" / "downloaded" / f"{MiB}x1" / "00000"
    assert landed.read_bytes() == body_of(0, MiB)
    assert (missing.transferred_bytes, missing.failed_count) == (0, 2)


def test_a_client_that_ends_is_told_with_its_last_words(end: End) -> None:
    """A client that cannot start is a gap in the table with a reason, not a crash."""
    broken = replace(end, directory=end.directory / "elsewhere")
    broken.directory.mkdir()
    with closing(begun("boto3", LINK, broken, a_purse())) as client:
        (broken.directory / "boto3-files").rmdir()
        with pytest.raises(NotMeasuredError, match="FileNotFoundError"):
            client.move(S3UploadSetting(thread_count=1, part_size_bytes=5 * MiB))
