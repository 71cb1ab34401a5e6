"""SDKs and readers that others wrote, told as exported: what a server counts is what was advised."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from boto3.s3.transfer import TransferConfig

from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import translate
from penstock.units import MiB
from tests.programs import printed
from tests.real import provision, servers
from tests.real.exported import (
    ENVIRONMENT,
    PART,
    PART_COUNT,
    PATH,
    SIZE,
    advice,
    asserted_parts,
    asserted_ranges,
    exported,
    python,
)
from tests.real.fault_proxy import FaultProxy, Truth, between

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the builds


@pytest.fixture
def way(s3_url: str) -> Iterator[tuple[str, FaultProxy]]:
    """The server at the end of the path, and what comes by."""
    with between(PATH, s3_url) as found:
        yield found


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
    printed(["node", module, *arguments], env=ENVIRONMENT)


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
import software.amazon.awssdk.core.async.AsyncResponseTransformer;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.services.s3.S3AsyncClient;
import software.amazon.awssdk.services.s3.multipart.MultipartConfiguration;
import software.amazon.awssdk.services.s3.multipart.ParallelConfiguration;

class Told {{
  public static void main(String[] given) {{
    try (var s3 = {client}.endpointOverride(URI.create(given[0])).forcePathStyle(true).build()) {{
      {call}.join();
    }}
  }}
}}
"""
_JAVA_UPLOAD = (
    's3.putObject(to -> to.bucket(given[1]).key("big"), AsyncRequestBody.fromFile(Path.of(given[2])))'
)
_JAVA_DOWNLOAD = """
s3.getObject(from -> from.bucket(given[1]).key("big"), AsyncResponseTransformer.toFile(Path.of(given[2] + ".back")))
"""


def java(folder: Path, client: str, call: str, url: str, bucket: str) -> None:
    """Run a program with this builder of a client and this call; javac has nothing to say about it."""
    jars = f"{provision.aws_sdk_for_java()}/*"
    source = folder / "Told.java"
    source.write_text(_JAVA.format(client=client, call=call))
    subprocess.run(["javac", "-Xlint:all", "-Werror", "-cp", jars, "-d", folder, source], check=True)
    printed(["java", "-cp", f"{folder}:{jars}", "Told", url, bucket, str(folder / "big")], env=ENVIRONMENT)


def test_java_sends_as_many_parts_at_once_as_advised(
    way: tuple[str, FaultProxy], bucket: str, tmp_path: Path
) -> None:
    """Without the CRT: by its buffer alone it sent all parts of a file at once."""
    url, proxy = way
    (tmp_path / "big").write_bytes(bytes(SIZE))
    lines = exported("java-sdk-v2", advice("s3_upload", 2, PART, connection_pool_count=20))
    named = {line.partition(".")[0]: line for line in lines}
    split = (
        f"{named['MultipartConfiguration']}.parallelConfiguration({named['ParallelConfiguration']}.build())"
    )
    client = (
        f"S3AsyncClient.builder().multipartEnabled(true).multipartConfiguration({split}.build())"
        f".httpClientBuilder({named['NettyNioAsyncHttpClient']})"
    )
    java(tmp_path, client, _JAVA_UPLOAD, url, bucket)
    asserted_parts(proxy.truth, 2)


def test_java_reads_as_many_parts_at_once_as_advised(
    way: tuple[str, FaultProxy], s3_url: str, bucket: str, tmp_path: Path
) -> None:
    """Without the CRT: in the parts in which the object was uploaded."""
    (tmp_path / "big").write_bytes(bytes(SIZE))
    s3, size = servers.plain_client("s3", s3_url), TransferConfig(multipart_chunksize=PART)
    s3.upload_file(str(tmp_path / "big"), bucket, "big", Config=size)
    s3.close()
    document = advice("s3_download", 4, 4 * MiB, read_ahead_bytes=16 * MiB)
    _, parallel, http = exported("java-sdk-v2-download", document)
    split = f"MultipartConfiguration.builder().parallelConfiguration({parallel}.build())"
    client = (
        f"S3AsyncClient.builder().multipartEnabled(true).multipartConfiguration({split}.build())"
        f".httpClientBuilder({http})"
    )
    java(tmp_path, client, _JAVA_DOWNLOAD, way[0], bucket)
    assert (tmp_path / "big.back").read_bytes() == bytes(SIZE)
    asserted_ranges(way[1].truth, PART_COUNT, 4)


def test_java_with_the_crt_sends_and_reads_as_advised(
    way: tuple[str, FaultProxy], bucket: str, tmp_path: Path
) -> None:
    """Its connections are those that it is told, also where they are fewer than its ten."""
    url, proxy = way
    (tmp_path / "big").write_bytes(bytes(SIZE))
    java(tmp_path, exported("java-sdk-v2", advice("s3_upload", 3, PART))[0], _JAVA_UPLOAD, url, bucket)
    asserted_parts(proxy.truth, 3)
    document = advice("s3_download", 4, 4 * MiB, read_ahead_bytes=16 * MiB)
    java(tmp_path, exported("java-sdk-v2-download", document)[0], _JAVA_DOWNLOAD, url, bucket)
    assert (tmp_path / "big.back").read_bytes() == bytes(SIZE)
    asserted_ranges(proxy.truth, 11, 4)


_GO = """
package main

import (
	"context"
	"io"
	"net/http"
	"os"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

func check(err error) {{
	if err != nil {{
		panic(err)
	}}
}}

func main() {{
	ctx, how, bucket, key, name := context.Background(), os.Args[1], &os.Args[2], &os.Args[3], os.Args[4]
	get := &s3.GetObjectInput{{Bucket: bucket, Key: key}}
	transport := awshttp.NewBuildableClient().WithTransportOptions({transport})
	settings, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(transport))
	check(err)
	client := s3.NewFromConfig(settings, func(o *s3.Options) {{ o.UsePathStyle = true }})
	sends := transfermanager.New(client, {sends})
	reads := transfermanager.New(client, {reads})
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	check(err)
	switch how {{
	case "send":
		_, err = sends.UploadObject(ctx, &transfermanager.UploadObjectInput{{Bucket: bucket, Key: key, Body: file}})
	case "send as before":
		put := &s3.PutObjectInput{{Bucket: bucket, Key: key, Body: file}}
		_, err = manager.NewUploader(client, {uploads}).Upload(ctx, put)
	case "read":
		to := &transfermanager.DownloadObjectInput{{Bucket: bucket, Key: key, WriterAt: file}}
		_, err = reads.DownloadObject(ctx, to)
	case "read on":
		object, failed := reads.GetObject(ctx, &transfermanager.GetObjectInput{{Bucket: bucket, Key: key}})
		check(failed)
		_, err = io.Copy(file, object.Body)
	case "read as before":
		_, err = manager.NewDownloader(client, {downloads}).Download(ctx, file, get)
	}}
	check(err)
}}
"""


def test_go_sends_and_reads_as_advised(s3_url: str, bucket: str, tmp_path: Path) -> None:
    """By both of its managers, to files and to a stream, the functions pasted as they are."""
    sends, uploads, transport = exported("go-transfermanager", advice("s3_upload", 3, PART))
    reading = advice("s3_download", 4, 4 * MiB, read_ahead_bytes=16 * MiB)
    reads, downloads, _ = exported("go-transfermanager-download", reading)
    source = tmp_path / "told.go"
    words = {"sends": sends, "uploads": uploads, "reads": reads, "downloads": downloads}
    source.write_text(_GO.format(**words, transport=transport))
    program = provision.go_program(source)
    (tmp_path / "big").write_bytes(bytes(SIZE))

    def truth_of(how: str, name: str) -> Truth:
        with between(PATH, s3_url) as (url, proxy):
            environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL_S3": url}
            printed([program, how, bucket, "big", tmp_path / name], env=environment)
            return proxy.truth

    for how in ("send", "send as before"):
        asserted_parts(truth_of(how, "big"), 3)
    for how in ("read", "read on", "read as before"):
        asserted_ranges(truth_of(how, how), 11, 4)
        assert (tmp_path / how).read_bytes() == bytes(SIZE)


# What is told is the connector's own part: of PyTorch it takes two classes to derive from, and 2 GB are not fetched.
_TORCH = """
import sys
from types import ModuleType
torch = sys.modules["torch"] = ModuleType("torch")
torch.__version__ = "none"
torch.utils = sys.modules["torch.utils"] = ModuleType("torch.utils")
torch.utils.data = sys.modules["torch.utils.data"] = ModuleType("torch.utils.data")
torch.utils.data.Dataset = torch.utils.data.IterableDataset = list
from s3torchconnector import S3ClientConfig, S3ReaderConstructor
from s3torchconnector._s3client import S3Client
url, region, bucket, file, *told = sys.argv[1:]
config, *readers = [eval(line.replace("S3ClientConfig(", "S3ClientConfig(force_path_style=True, ")) for line in told]
s3 = S3Client(region=region, endpoint=url, s3client_config=config)
if not readers:
    with s3.put_object(bucket, "big") as to:
        to.write(open(file, "rb").read())
elif len(readers) == 1:
    assert s3.get_object(bucket, "big").read() == open(file, "rb").read()
else:
    found = s3.get_object(bucket, "big", reader_constructor=readers[0])
    for place in (0, 100, 2 << 20, 20 << 20):
        found.seek(place)
        found.read(1000)
"""


def test_the_connector_of_pytorch_sends_and_reads_as_advised(
    s3_url: str, bucket: str, tmp_path: Path
) -> None:
    """Its connections are those that it is told, from ten on; a buffer of a reader is a request."""
    size, part_count = 14 * PART, 14
    (tmp_path / "big").write_bytes(bytes(size))

    def truth_of(target: str, document: dict[str, Any]) -> Truth:
        with between(PATH, s3_url) as (url, proxy):
            where = [url, servers.REGION, bucket, str(tmp_path / "big")]
            python(_TORCH, [provision.torch_connector()], *where, *exported(target, document))
            return proxy.truth

    sent = truth_of("pytorch", advice("s3_upload", 12, PART))
    assert (sent.counts["UploadPart"], sent.at_once_max["UploadPart"]) == (part_count, 12)
    reading = advice("s3_download", 12, PART, block_size_bytes=2 * MiB, coalesced_gap_bytes=MiB)
    asserted_ranges(truth_of("pytorch-download", reading), part_count, 12)
    reading["demand"]["access"] = "random"
    assert truth_of("pytorch-download", reading).counts["GetObject"] == 3


def test_duckdb_sends_the_parts_that_it_is_told(s3_url: str, bucket: str) -> None:
    """It rounds them up to its own blocks, and so they are exported; by itself it opens a connection for each."""
    lines = exported("duckdb", advice("s3_upload", 2, PART))
    with between(PATH, s3_url) as (url, proxy):
        python(_DUCKDB, [provision.readers()], url, bucket, "\n".join(lines))
    assert proxy.truth.at_once_max["UploadPart"] == len(proxy.truth.connections) == 2
    told = translate(TARGETS["duckdb"], advice("s3_upload", 3, PART)).named()
    part = int(told["s3_uploader_max_filesize"].removesuffix("B")) // told["s3_uploader_max_parts_per_file"]
    first = servers.plain_client("s3", s3_url).get_object(Bucket=bucket, Key="data", PartNumber=1)
    first["Body"].close()
    assert first["ContentLength"] == part


_DUCKDB = """
import os, sys
from pathlib import Path
import duckdb
url, bucket, told = sys.argv[1:]
extension = next(Path(duckdb.__file__).parents[1].glob("duckdb_extension_httpfs/extensions/*/httpfs.duckdb_extension"))
database = duckdb.connect(config={"allow_unsigned_extensions": True})
database.execute(f"INSTALL '{extension}'")
for line in told.splitlines():
    database.execute(line)
key, secret, region = (os.environ[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"))
database.execute(
    f"CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION '{region}', "
    f"ENDPOINT '{url.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false)"
)
rows = "(SELECT hash(i) a, hash(a) b, hash(b) c FROM range(600000) t(i))"
database.execute(f"COPY {rows} TO 's3://{bucket}/data' (FORMAT parquet, COMPRESSION uncompressed)")
"""


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
    told = {
        name: str(value) for name, value in translate(TARGETS["polars-download"], document).named().items()
    }
    python(_POLARS, [provision.readers()], s3_url, bucket, **told)


# Four files of 15 MiB, more or less.
_POLARS_SINK = """
import random
column = polars.Series([random.getrandbits(60) for _ in range(1_000_000)])
data = polars.DataFrame(dict.fromkeys("abcdefgh", column)).with_columns(k=polars.int_range(polars.len()) % 4)
files = polars.PartitionBy(f"s3://{bucket}/files/", key="k")
data.lazy().sink_parquet(files, storage_options=options, compression="uncompressed")
"""


def test_polars_sends_several_files_as_advised(s3_url: str, bucket: str) -> None:
    """A sink of several files has options of its own; by itself it sends all parts of each at once."""
    document = advice("s3_upload", 4, 8 * MiB)
    document["demand"]["object_count"] = 4
    told = {name: str(value) for name, value in translate(TARGETS["polars"], document).named().items()}
    with between(PATH, s3_url) as (url, proxy):
        sink = _POLARS.partition("data =")[0] + _POLARS_SINK
        python(sink, [provision.readers()], url, bucket, **told)
    assert proxy.truth.counts["CompleteMultipartUpload"] == 4
    assert proxy.truth.counts["UploadPart"] == 8
    assert proxy.truth.at_once_max["UploadPart"] == 4
