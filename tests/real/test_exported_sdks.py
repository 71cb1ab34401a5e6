"""SDKs and readers that others wrote, told as exported: what a server counts is what was advised."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import translate
from penstock.lab.link import LinkTruth
from penstock.trial.stage import CREDENTIALS
from penstock.units import MiB
from tests.programs import ran
from tests.real import provision, servers
from tests.real.fault_proxy import FaultProxy, Truth, between

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the builds

PATH = LinkTruth(  # a request takes long beside what a busy machine delays it, so that all that may go is under way
    round_trip_seconds=0.02,
    connection_rate_bytes_per_second=20e6,
    host_rate_bytes_per_second=1e9,
    service_latency_seconds_median=0.5,
)
SIZE, PART, PART_COUNT = 42 * MiB, 6 * MiB, 7
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
    **CREDENTIALS,
    "AWS_REGION": servers.REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture
def way(s3_url: str) -> Iterator[tuple[str, FaultProxy]]:
    """The server at the end of the path, and what comes by."""
    with between(PATH, s3_url) as found:
        yield found


def advice(operation: str, thread_count: int, size: int, **derived: float) -> dict[str, Any]:
    """As the socket answers."""
    knob = {"s3_upload": "part_size_bytes", "s3_download": "range_size_bytes"}[operation]
    return {
        "payload_size_bytes": SIZE,
        "setting": {"thread_count": thread_count, knob: size},
        "derived": {"connection_pool_count": thread_count + 1, **derived},
        "demand": {"object_count": 1},
    }


def exported(target: str, document: dict[str, Any]) -> list[str]:
    """The lines of its usual form."""
    row = TARGETS[target]
    return next(iter(row.writers.values()))(translate(row, document))


def asserted_parts(truth: Truth, thread_count: int) -> None:
    """As many parts as advised, as many at once, and no connection beyond those."""
    assert truth.counts["UploadPart"] == PART_COUNT
    assert truth.at_once_max["UploadPart"] == thread_count
    assert len(truth.connections) <= thread_count + 1


_JAVASCRIPT = """
import {{ S3Client as Client, GetObjectCommand }} from "@aws-sdk/client-s3";
import {{ Upload }} from "@aws-sdk/lib-storage";
import {{ NodeHttpHandler }} from "@smithy/node-http-handler";
import {{ readFileSync }} from "node:fs";
const [url, Bucket, file] = process.argv.slice(2);
class S3Client extends Client {{
  constructor(options) {{ super({{ ...options, endpoint: url, forcePathStyle: true }}); }}
}}
{exported}
{body}
"""
_NODE_UPLOAD = """
await new Upload({ client: s3, params: { Bucket, Key: "big", Body: readFileSync(file) }, ...options }).done();
"""
_NODE_READS = """
await Promise.all(Array.from({ length: rangeConcurrency }, async () => {
  const answer = await s3.send(new GetObjectCommand({ Bucket, Key: "small", Range: `bytes=0-${rangeSizeBytes - 1}` }));
  await answer.Body.transformToByteArray();
}));
"""


def node(folder: Path, lines: list[str], body: str, *arguments: str) -> None:
    """Run a module with these lines before its body."""
    (folder / "node_modules").symlink_to(provision.aws_sdk_for_javascript())
    module = folder / "run.mjs"
    module.write_text(_JAVASCRIPT.format(exported="\n".join(lines), body=body))
    done = ran(["node", module, *arguments], env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr


def test_node_uploads_on_the_connections_that_are_advised(
    way: tuple[str, FaultProxy], bucket: str, tmp_path: Path
) -> None:
    """By itself it opens one anew for each part."""
    url, proxy = way
    (tmp_path / "big").write_bytes(bytes(SIZE))
    lines = exported("node-lib-storage", advice("s3_upload", 3, PART))
    node(tmp_path, lines, _NODE_UPLOAD, url, bucket, str(tmp_path / "big"))
    asserted_parts(proxy.truth, 3)


def test_node_reads_at_once_what_is_advised_without_tls_too(
    way: tuple[str, FaultProxy], s3_url: str, bucket: str, tmp_path: Path
) -> None:
    """By itself it has 50 sockets, and those of http apart from those of https."""
    url, proxy = way
    servers.plain_client("s3", s3_url).put_object(Bucket=bucket, Key="small", Body=bytes(MiB))
    lines = exported("node-download", advice("s3_download", 60, 4096))
    node(tmp_path, lines, _NODE_READS, url, bucket)
    assert proxy.truth.at_once_max["GetObject"] == 60


_JAVA = """
import java.net.URI;
import java.nio.file.Path;
import software.amazon.awssdk.core.async.AsyncRequestBody;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.services.s3.S3AsyncClient;
import software.amazon.awssdk.services.s3.multipart.MultipartConfiguration;
import software.amazon.awssdk.services.s3.multipart.ParallelConfiguration;

class Told {{
  public static void main(String[] given) {{
    var split = {split}.parallelConfiguration({parallel}.build());
    try (var s3 = S3AsyncClient.builder().multipartEnabled(true).multipartConfiguration(split.build())
        .httpClientBuilder({http}).endpointOverride(URI.create(given[0])).forcePathStyle(true).build()) {{
      s3.putObject(to -> to.bucket(given[1]).key("big"), AsyncRequestBody.fromFile(Path.of(given[2]))).join();
    }}
  }}
}}
"""


def test_java_sends_as_many_parts_at_once_as_advised(
    way: tuple[str, FaultProxy], bucket: str, tmp_path: Path
) -> None:
    """Without the CRT: by its buffer alone it sent all parts of a file at once."""
    url, proxy = way
    jars = f"{provision.aws_sdk_for_java()}/*"
    (tmp_path / "big").write_bytes(bytes(SIZE))
    lines = exported("java-sdk-v2", advice("s3_upload", 2, PART, connection_pool_count=20))
    named = {line.partition(".")[0]: line for line in lines}
    source = tmp_path / "Told.java"
    source.write_text(
        _JAVA.format(
            split=named["MultipartConfiguration"],
            parallel=named["ParallelConfiguration"],
            http=named["NettyNioAsyncHttpClient"],
        )
    )
    subprocess.run(["javac", "-cp", jars, "-d", tmp_path, source], check=True)
    command = ["java", "-cp", f"{tmp_path}:{jars}", "Told", url, bucket, str(tmp_path / "big")]
    done = ran(command, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    asserted_parts(proxy.truth, 2)


_POLARS = """
import os, sys, polars
url, bucket = sys.argv[1:]
options = {
    "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
    "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
    "aws_region": os.environ["AWS_REGION"],
    "aws_endpoint_url": url,
    "aws_allow_http": "true",
}
data = polars.DataFrame({name: list(range(200_000)) for name in "abcd"})
data.write_parquet(f"s3://{bucket}/data", storage_options=options, compression="uncompressed", use_pyarrow=False)
found = polars.scan_parquet(f"s3://{bucket}/data", storage_options=options).select(polars.all().sum()).collect()
assert found.row(0) == (sum(range(200_000)),) * 4
"""


@pytest.mark.parametrize(("threads", "size", "ahead"), [(1, MiB, MiB), (5, MiB, 5 * MiB), (2, 20 * MiB, MiB)])
def test_polars_reads_with_whatever_is_advised(
    threads: int, size: int, ahead: int, s3_url: str, bucket: str
) -> None:
    """A byte budget below any of its chunks ends in a panic."""
    document = advice("s3_download", threads, size, read_ahead_bytes=ahead)
    told = translate(TARGETS["polars-download"], document).named()
    environment = {**ENVIRONMENT, "PYTHONPATH": str(provision.readers())}
    environment |= {name: str(value) for name, value in told.items()}
    done = ran([sys.executable, "-c", _POLARS, s3_url, bucket], env=environment)
    assert done.returncode == 0, done.stderr
