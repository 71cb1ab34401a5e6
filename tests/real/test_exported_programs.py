"""Programs that others wrote, told as exported: how much they have under way at once is what was advised."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.units import MiB
from tests.programs import printed
from tests.real import provision, servers
from tests.real.exported import ENVIRONMENT, PART_COUNT, PATH, SIZE, advice, exported
from tests.real.fault_proxy import Truth, between

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the builds

FILE_COUNT, FILE_SIZE = 6, 13 * MiB
ODD = 6 * MiB + 12345
"""A size that has no larger unit than the byte; s5cmd rounds it to whole MiB."""


def truth_of(program: Path, script: str, folder: Path, s3_url: str) -> Truth:
    """What came by while a shell ran a script in that folder; rclone has a remote `real`."""
    with between(PATH, s3_url) as (url, proxy):
        remote = {
            "TYPE": "s3",
            "PROVIDER": "Other",
            "ENV_AUTH": "true",
            "REGION": servers.REGION,
            "ENDPOINT": url,
        }
        environment = {
            **ENVIRONMENT,
            **{f"RCLONE_CONFIG_REAL_{name}": value for name, value in remote.items()},
            **dict.fromkeys(("AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"), url),
            "AWS_DEFAULT_REGION": servers.REGION,
            "RCLONE_CONFIG": os.devnull,
            "AWS_CONFIG_FILE": str(folder / "aws-config"),
            "HOME": str(folder),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
        }
        printed(["sh", "-euc", script], env=environment, cwd=folder)
        return proxy.truth


@pytest.mark.parametrize(
    ("program", "target", "script"),
    [
        (provision.s5cmd, "s5cmd", "s5cmd {told} many/ s3://{bucket}/many/"),
        (provision.rclone, "rclone", "rclone copy --s3-no-check-bucket {told} many real:{bucket}/many"),
    ],
    ids=["s5cmd", "rclone"],
)
def test_a_folder_is_sent_with_the_threads_that_are_advised(  # noqa: PLR0917  # two of them are the servers'
    program: Callable[[], Path], target: str, script: str, s3_url: str, bucket: str, tmp_path: Path
) -> None:
    """Three files at a time, and two parts of each."""
    (tmp_path / "many").mkdir()
    for number in range(FILE_COUNT):
        (tmp_path / f"many/{number}").write_bytes(bytes(FILE_SIZE))
    document = advice("s3_upload", 6, ODD)
    document |= {"payload_size_bytes": FILE_SIZE, "demand": {"object_count": 3}}
    told = " ".join(exported(target, document))
    truth = truth_of(program(), script.format(told=told, bucket=bucket), tmp_path, s3_url)
    assert truth.counts["UploadPart"] == 3 * FILE_COUNT
    assert truth.at_once_max["CompleteMultipartUpload"] <= 3
    assert truth.at_once_max["UploadPart"] == 6


AWS = "{told}\naws s3 cp --only-show-errors {ways}"


def test_the_aws_cli_sends_with_the_threads_that_are_advised(
    s3_url: str, bucket: str, tmp_path: Path
) -> None:
    """Of one file; its threads are those of all files together."""
    (tmp_path / "big").write_bytes(bytes(SIZE))
    told = "\n".join(exported("aws-cli", advice("s3_upload", 3, ODD)))
    script = AWS.format(told=told, ways=f"big s3://{bucket}/big")
    truth = truth_of(provision.aws_cli(), script, tmp_path, s3_url)
    assert (truth.counts["UploadPart"], truth.at_once_max["UploadPart"]) == (PART_COUNT, 3)


@pytest.mark.parametrize(
    ("program", "target", "script"),
    [
        (provision.s5cmd, "s5cmd-download", "s5cmd {told} s3://{bucket}/big back"),
        (provision.rclone, "rclone-download", "rclone copyto {told} real:{bucket}/big back"),
        (provision.aws_cli, "aws-cli-download", AWS.replace("{ways}", "s3://{bucket}/big back")),
    ],
    ids=["s5cmd", "rclone", "aws"],
)
def test_an_object_is_read_with_the_threads_that_are_advised(  # noqa: PLR0917  # two of them are the servers'
    program: Callable[[], Path], target: str, script: str, s3_url: str, bucket: str, tmp_path: Path
) -> None:
    """In ranges of the advised size."""
    s3 = servers.plain_client("s3", s3_url)
    s3.put_object(Bucket=bucket, Key="big", Body=bytes(SIZE))
    s3.close()
    told = "\n".join(exported(target, advice("s3_download", 4, ODD, io_chunk_bytes=MiB)))
    truth = truth_of(program(), script.format(told=told, bucket=bucket), tmp_path, s3_url)
    assert (truth.counts["GetObject"], truth.at_once_max["GetObject"]) == (PART_COUNT, 4)
    assert (tmp_path / "back").read_bytes() == bytes(SIZE)
