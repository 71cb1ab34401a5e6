"""Clients that others wrote, told as exported, on an S3 that others wrote: each accepts it, and cuts as advised."""

import asyncio
import contextlib
import json
import os
import random
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.upload import S3UploadSetting
from penstock.trial.stage import CREDENTIALS
from penstock.units import MiB
from tests.integration.scripted_advisor import ScriptedAdvisor, Served, a_recommendation, served_in_thread
from tests.programs import printed
from tests.real import provision, servers

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the builds

SIZE = 20 * MiB + 77
PART = 6 * MiB
PART_COUNT = 4
KEYS = {name.lower(): value for name, value in CREDENTIALS.items() if "KEY" in name}
ADVICE = a_recommendation(
    setting=S3UploadSetting(thread_count=3, part_size_bytes=PART),
    derived={
        "connection_pool_count": 4,
        "multipart_threshold_bytes": PART,
        "hedge_timeout_seconds": 2.0,
        "rate_limit_bytes_per_second": 200e6,
    },
)

READING = a_recommendation(
    "s3_download",
    setting=S3DownloadSetting(thread_count=3, range_size_bytes=PART),
    derived={
        "connection_pool_count": 4,
        "multipart_threshold_bytes": PART,
        "hedge_timeout_seconds": 2.0,
        "rate_limit_bytes_per_second": 200e6,
        "read_ahead_bytes": 3.0 * PART,
        "block_size_bytes": 20e6,
        "coalesced_gap_bytes": 2e6,
        "io_chunk_bytes": 262144.0,
    },
)


class Bench:
    """A daemon that advises, a bucket, a file, and an environment that knows both."""

    def __init__(self, folder: Path, served: Served, url: str, bucket: str) -> None:
        self.url, self.bucket, self.folder = url, bucket, folder
        self.file = folder / "big"
        self.file.write_bytes(random.Random(1).randbytes(SIZE))
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))},
            **CREDENTIALS,
            "AWS_REGION": servers.REGION,
            "AWS_DEFAULT_REGION": servers.REGION,
            "AWS_CONFIG_FILE": str(folder / "aws-config"),
            "HOME": str(folder),
            "PENSTOCK_SOCKET": str(served.socket_path),
            "S3_ENDPOINT_URL": url,
            "RCLONE_CONFIG": os.devnull,
            "RCLONE_CONFIG_REAL_TYPE": "s3",
            "RCLONE_CONFIG_REAL_PROVIDER": "Other",
            "RCLONE_CONFIG_REAL_ENV_AUTH": "true",
            "RCLONE_CONFIG_REAL_REGION": servers.REGION,
            "RCLONE_CONFIG_REAL_ENDPOINT": url,
        }

    def exported(self, target: str, *more: str) -> str:
        """What the command prints."""
        words = ["export", target, "--object-size", str(SIZE), *more]
        done = CliRunner().invoke(cli, words, env=self.environment)
        assert done.exit_code == 0, done.output
        return done.stdout

    def options(self, target: str) -> dict[str, Any]:
        """The same, read as JSON."""
        found: dict[str, Any] = json.loads(self.exported(target, "--json"))["options"]
        return found

    def shell(self, program: Path, script: str) -> None:
        """Run a script in which the program is found by its name."""
        path = f"{program.parent}:{self.environment['PATH']}"
        printed(["sh", "-euc", script], env=self.environment | {"PATH": path}, cwd=self.folder)

    def config(self) -> dict[str, Any]:
        """How a client from Python gets there."""
        return {"endpoint_url": self.url, "region_name": servers.REGION}


@pytest.fixture
def bench(tmp_path: Path, s3_url: str, bucket: str) -> Iterator[Bench]:
    """One for each test."""
    with served_in_thread(tmp_path, ScriptedAdvisor([ADVICE, READING])) as served:
        yield Bench(tmp_path, served, s3_url, bucket)


@contextlib.contextmanager
def boto3_as_told(bench: Bench, target: str) -> Iterator[tuple[Any, Any]]:
    """A client, and how it transfers: its options are keyword arguments as they are."""
    import boto3 as sdk
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    options = bench.options(target)
    client = sdk.client("s3", config=Config(**options["Config"]), **bench.config(), **KEYS)
    with contextlib.closing(client):
        yield client, TransferConfig(**options["TransferConfig"])


def boto3(bench: Bench) -> None:
    """Up."""
    with boto3_as_told(bench, "boto3") as (client, transfer):
        client.upload_file(str(bench.file), bench.bucket, "big", Config=transfer)


def aiobotocore(bench: Bench) -> None:
    """A pool, and the application's own parts and semaphore."""
    asyncio.run(_in_parts(bench, bench.options("aiobotocore")))


async def _in_parts(bench: Bench, options: Mapping[str, Any]) -> None:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import AioSession

    own, body = options["application"], bench.file.read_bytes()
    assert len(body) >= own["multipart_threshold_bytes"]
    room, size = asyncio.Semaphore(own["part_concurrency"]), own["part_size_bytes"]
    config = AioConfig(**options["AioConfig"])
    async with AioSession().create_client("s3", config=config, **bench.config(), **KEYS) as client:
        place = {"Bucket": bench.bucket, "Key": "big"}
        place["UploadId"] = (await client.create_multipart_upload(**place))["UploadId"]

        async def send(number: int) -> dict[str, Any]:
            part = body[(number - 1) * size : number * size]
            async with room:
                answer = await client.upload_part(**place, PartNumber=number, Body=part)
            return {"PartNumber": number, "ETag": answer["ETag"]}

        parts = await asyncio.gather(*map(send, range(1, -(-len(body) // size) + 1)))
        await client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})


def s5cmd(bench: Bench) -> None:
    """Its flags with the verb among them."""
    bench.shell(provision.s5cmd(), f"s5cmd {bench.exported('s5cmd').strip()} big s3://{bench.bucket}/big")


def rclone_flags(bench: Bench) -> None:
    """As flags."""
    _rclone(bench, "", bench.exported("rclone", "--format", "flags").strip())


def rclone_environment(bench: Bench) -> None:
    """As lines that a shell evaluates."""
    _rclone(bench, f"eval {shlex.quote(bench.exported('rclone', '--format', 'env'))}", "")


def rclone_configuration(bench: Bench) -> None:
    """As lines of a remote."""
    (bench.folder / "rclone.conf").write_text(
        f"[own]\ntype = s3\nprovider = Other\nenv_auth = true\nendpoint = {bench.url}\n"
        f"region = {servers.REGION}\n" + bench.exported("rclone", "--format", "config")
    )
    _rclone(bench, "", "--config rclone.conf", remote="own")


def _rclone(bench: Bench, before: str, flags: str, remote: str = "real") -> None:
    copy = f"rclone copyto --s3-no-check-bucket {flags} big {remote}:{bench.bucket}/big"
    bench.shell(provision.rclone(), f"{before}\n{copy}")


def aws_commands(bench: Bench) -> None:
    """As commands, which write into the configuration that is named."""
    _aws(bench, bench.exported("aws-cli"))
    assert "preferred_transfer_client = default" in (bench.folder / "aws-config").read_text()


def aws_configuration(bench: Bench) -> None:
    """As a section of that configuration."""
    (bench.folder / "aws-config").write_text("[default]\n" + bench.exported("aws-cli", "--format", "config"))
    _aws(bench, "")


def aws_2_commands(bench: Bench) -> None:
    """The same by the second version, which refuses what it does not know."""
    _aws(bench, bench.exported("aws-cli"), provision.aws_cli_2)


def _aws(bench: Bench, before: str, program: Callable[[], Path] = provision.aws_cli) -> None:
    copy = f"aws --endpoint-url {bench.url} s3 cp --only-show-errors big s3://{bench.bucket}/big"
    bench.shell(program(), f"{before}\n{copy}")


CLIENTS: tuple[Callable[[Bench], None], ...] = (
    boto3,
    aiobotocore,
    s5cmd,
    rclone_flags,
    rclone_environment,
    rclone_configuration,
    aws_commands,
    aws_configuration,
    aws_2_commands,
)


def assert_arrived(bench: Bench) -> None:
    """Every byte, in as many parts as were advised: the ETag ends with their number."""
    stored = servers.plain_client("s3", bench.url).get_object(Bucket=bench.bucket, Key="big")
    assert stored["Body"].read() == bench.file.read_bytes()
    assert stored["ETag"].strip('"').endswith(f"-{PART_COUNT}")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_client_uploads_as_exported(client: Callable[[Bench], None], bench: Bench) -> None:
    """It accepts every option, and cuts the object as advised."""
    client(bench)
    assert_arrived(bench)


@pytest.mark.parametrize(
    ("program", "command"),
    [
        (provision.s5cmd, "s5cmd cp big s3://{bucket}/big"),
        (provision.rclone, "rclone copyto --s3-no-check-bucket big real:{bucket}/big"),
        (provision.aws_cli, "aws s3 cp --only-show-errors big s3://{bucket}/big --endpoint-url {url}"),
        (provision.aws_cli_2, "aws s3 cp --only-show-errors big s3://{bucket}/big --endpoint-url {url}"),
    ],
    ids=["s5cmd", "rclone", "aws", "aws 2"],
)
def test_a_client_uploads_as_it_is_run(program: Callable[[], Path], command: str, bench: Bench) -> None:
    """`penstock exec` does the same without a word of the user, and leaves no configuration behind."""
    where = program()
    words = command.format(bucket=bench.bucket, url=bench.url)
    run = shlex.join([sys.executable, "-c", "from penstock.cli.main import main; main()", "exec", "--"])
    bench.shell(where, f"PYTHONPATH={shlex.quote(str(Path(__file__).parents[2]))} {run} {words}")
    assert_arrived(bench)
    assert not (bench.folder / "aws-config").exists()


def boto3_download(bench: Bench) -> None:
    """Down."""
    with boto3_as_told(bench, "boto3-download") as (client, transfer):
        client.download_file(bench.bucket, "big", str(bench.folder / "back"), Config=transfer)


def s5cmd_download(bench: Bench) -> None:
    """Its flags with the verb among them."""
    flags = bench.exported("s5cmd-download").strip()
    bench.shell(provision.s5cmd(), f"s5cmd {flags} s3://{bench.bucket}/big back")


def rclone_download(bench: Bench) -> None:
    """As flags; what is cut is told by what it logs."""
    flags = bench.exported("rclone-download").strip()
    copy = f"rclone copyto -vv --log-file log {flags} real:{bench.bucket}/big back"
    bench.shell(provision.rclone(), copy)
    cut = f"Starting multi-thread copy with {PART_COUNT} chunks of size 6Mi with 3 parallel streams"
    assert cut in (bench.folder / "log").read_text()


def aws_download(bench: Bench, program: Callable[[], Path] = provision.aws_cli) -> None:
    """As commands, which write into the configuration that is named."""
    copy = f"aws --endpoint-url {bench.url} s3 cp --only-show-errors s3://{bench.bucket}/big back"
    bench.shell(program(), f"{bench.exported('aws-cli-download')}\n{copy}")


def aws_2_download(bench: Bench) -> None:
    """The same by the second version."""
    aws_download(bench, provision.aws_cli_2)


def s5cmd_run(bench: Bench) -> None:
    """By `penstock exec`, with the size stated."""
    run = shlex.join([sys.executable, "-c", "from penstock.cli.main import main; main()", "exec"])
    words = f"--object-size {SIZE} -- s5cmd cp s3://{bench.bucket}/big back"
    where = f"PYTHONPATH={shlex.quote(str(Path(__file__).parents[2]))}"
    bench.shell(provision.s5cmd(), f"{where} {run} {words}")


@pytest.mark.parametrize(
    "client",
    [boto3_download, s5cmd_download, rclone_download, aws_download, aws_2_download, s5cmd_run],
    ids=lambda client: client.__name__,
)
def test_a_client_downloads_as_exported(client: Callable[[Bench], None], bench: Bench) -> None:
    """It accepts every option, and brings every byte."""
    put = servers.plain_client("s3", bench.url)
    put.put_object(Bucket=bench.bucket, Key="big", Body=bench.file.read_bytes())
    put.close()
    client(bench)
    assert (bench.folder / "back").read_bytes() == bench.file.read_bytes()
