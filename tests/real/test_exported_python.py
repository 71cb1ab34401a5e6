"""Libraries of Python that others wrote, told as exported: what a server counts is what was advised."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from penstock.units import MiB
from tests.real import provision, servers
from tests.real.exported import (
    PART,
    PATH,
    SIZE,
    advice,
    asserted_parts,
    asserted_ranges,
    exported,
    python,
)
from tests.real.fault_proxy import Truth, between

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the builds

SENDING = advice("s3_upload", 3, PART)
READING = advice(
    "s3_download", 4, 4 * MiB, read_ahead_bytes=16 * MiB, block_size_bytes=2 * MiB, coalesced_gap_bytes=MiB
)
_BEGINNING = """
import os, sys
url, bucket, file, *told = sys.argv[1:]
key, secret, region = (os.environ[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"))
there, starts = f"{bucket}/big", [number * (3 << 20) for number in range(12)]
ends = [start + 1000 for start in starts]

def arguments(call):
    return eval("dict" + next(line for line in told if line.startswith(f"{call}(")).removeprefix(call))

def pieces(of):
    return b"".join(iter(lambda: bytes(of.read(1 << 20)), b""))
"""
_S3FS = """
import s3fs
s3 = s3fs.S3FileSystem(endpoint_url=url, key=key, secret=secret, **arguments("S3FileSystem"))
"""
_S3FS_ALONE = _S3FS.replace(', **arguments("S3FileSystem")', "")
_OBSTORE = """
import obstore
store = obstore.store.S3Store(
    bucket, endpoint=url, region=region, access_key_id=key, secret_access_key=secret,
    client_options={"allow_http": True}, virtual_hosted_style_request=False,
)
path, python = "big", {line.partition("obstore.")[2].partition("(")[0]: line.partition("Python: ")[2] for line in told}
"""
_AWSCRT = """
from awscrt.auth import AwsCredentialsProvider
from awscrt.http import HttpHeaders, HttpRequest
from awscrt.s3 import S3Client, S3RequestTlsMode, S3RequestType, create_default_s3_signing_config
keys = AwsCredentialsProvider.new_static(key, secret)
signing = create_default_s3_signing_config(region=region, credential_provider=keys)
s3 = S3Client(
    region=region, signing_config=signing, tls_mode=S3RequestTlsMode.DISABLED, **arguments("S3Client")
)
def do(verb, kind, **more):
    headers = HttpHeaders([("host", url.removeprefix("http://")), ("content-length", str(os.path.getsize(file)))])
    request = HttpRequest(verb, f"/{there}", headers if verb == "PUT" else HttpHeaders(list(headers)[:1]))
    s3.make_request(type=kind, request=request, **more).finished_future.result()
"""


def truth_of(
    target: str, program: str, document: dict[str, Any], folder: Path, place: tuple[str, str]
) -> Truth:
    """What came by while a program did what its last lines say, with what is exported."""
    s3_url, bucket = place
    packages = (provision.readers(), provision.rust_and_crt())
    with between(PATH, s3_url) as (url, proxy):
        words = [url, bucket, str(folder / "big"), *exported(target, document)]
        python(_BEGINNING + program, packages, *words, AWS_DEFAULT_REGION=servers.REGION)
        return proxy.truth


@pytest.mark.parametrize(
    ("target", "program"),
    [
        pytest.param("s3fs", _S3FS + "s3.put_file(file, there, **arguments('put_file'))", id="s3fs"),
        pytest.param(
            "rust-object-store",
            _OBSTORE + "with open(file, 'rb') as file: eval(python['put'])",
            id="obstore",
        ),
        pytest.param(
            "awscrt",
            _AWSCRT + "do('PUT', S3RequestType.PUT_OBJECT, send_filepath=file)",
            id="awscrt",
        ),
    ],
)
def test_a_library_sends_as_advised(
    target: str, program: str, s3_url: str, bucket: str, tmp_path: Path
) -> None:
    """As many parts, as many at once, and no connections beyond those."""
    (tmp_path / "big").write_bytes(bytes(SIZE))
    asserted_parts(truth_of(target, program, SENDING, tmp_path, (s3_url, bucket)), 3)


@pytest.mark.parametrize(
    ("target", "program", "count", "at_once"),
    [
        pytest.param(
            "s3fs-download",
            _S3FS + "s3.get_file(there, f'{file}.back', **arguments('get_file'))",
            *(11, 4),
            id="s3fs",
        ),
        pytest.param(
            "s3fs-download",
            _S3FS + "with s3.open(there) as of: open(f'{file}.back', 'wb').write(pieces(of))",
            *(14, 1),  # of what is asked for, 1 MiB, and a block beyond it
            id="s3fs, a block at a time",
        ),
        pytest.param(
            "s3fs-download",
            _S3FS + "s3.cat_ranges([there] * 12, starts, ends, **arguments('cat_ranges'))",
            *(12, 4),
            id="s3fs, ranges",
        ),
        pytest.param(
            "rust-object-store-download",
            _OBSTORE + "open(f'{file}.back', 'wb').write(pieces(eval(python['open_reader'])))",
            *(21, 1),
            id="obstore, a block at a time",
        ),
        pytest.param(
            "rust-object-store-download",
            _OBSTORE + "eval(python['get_ranges'])",
            *(12, 10),
            id="obstore, ranges",
        ),
        pytest.param(
            "awscrt-download",
            _AWSCRT + "do('GET', S3RequestType.GET_OBJECT, recv_filepath=f'{file}.back')",
            *(11, 4),
            id="awscrt",
        ),
    ],
)
def test_a_library_reads_as_advised(  # noqa: PLR0917  # two of them are the servers'
    target: str, program: str, count: int, at_once: int, s3_url: str, bucket: str, tmp_path: Path
) -> None:
    """As many ranges, as many at once, and the bytes that there are."""
    content = random.Random(1).randbytes(SIZE)
    s3 = servers.plain_client("s3", s3_url)
    s3.put_object(Bucket=bucket, Key="big", Body=content)
    s3.close()
    (tmp_path / "big").touch()
    truth = truth_of(target, program, READING, tmp_path, (s3_url, bucket))
    asserted_ranges(truth, count, at_once)
    back = tmp_path / "big.back"
    assert not back.exists() or back.read_bytes() == content


_DUCKDB = """
import duckdb, sys
refused, *told = sys.argv[1:]
for line in told: duckdb.execute(line)
try: duckdb.execute(refused)
except duckdb.CatalogException: sys.exit(0)
sys.exit("it takes what only DuckDB 1 is told")
"""


def test_duckdb_2_knows_what_it_is_told() -> None:
    """Each setting has its name and takes the value; version 1 sends by a setting that is refused now."""
    extension, *told = exported("duckdb-download", READING)
    assert extension == "LOAD httpfs;"
    *_, refused, instead = exported("duckdb", SENDING)
    told.append(instead.rpartition(": ")[2])
    python(_DUCKDB, [provision.duckdb_2()], refused, *told)


_PYARROW = """
import pyarrow, pyarrow.fs
exec(told[0])
filesystem = pyarrow.fs.S3FileSystem(access_key=key, secret_key=secret, region=region, endpoint_override=url)
path = there
"""


def test_pyarrow_sends_and_reads_as_advised(s3_url: str, bucket: str, tmp_path: Path) -> None:
    """As many parts at once, though of its own 10 MiB, and as many ranges; a buffer of a stream is a request."""
    (tmp_path / "big").write_bytes(bytes(SIZE))
    send = "with filesystem.open_output_stream(path) as to: to.write(open(file, 'rb').read())"
    sent = truth_of("pyarrow", _PYARROW + send, SENDING, tmp_path, (s3_url, bucket))
    assert (sent.counts["UploadPart"], sent.at_once_max["UploadPart"]) == (5, 3)
    stream = "with eval(told[2]) as of: assert len(pieces(of)) == 42 << 20"
    read = truth_of("pyarrow-download", _PYARROW + stream, READING, tmp_path, (s3_url, bucket))
    asserted_ranges(read, 21, 1)


def test_fsspec_gets_as_many_files_at_once_as_advised(s3_url: str, bucket: str, tmp_path: Path) -> None:
    """With any of its filesystems; ranges that lie near each other become one."""
    s3 = servers.plain_client("s3", s3_url)
    for number in range(6):
        s3.put_object(Bucket=bucket, Key=f"many/{number}", Body=bytes(MiB))
    s3.put_object(Bucket=bucket, Key="big", Body=bytes(SIZE))
    s3.close()
    get = "s3.get(f'{bucket}/many/', f'{file}.many/', recursive=True, **arguments('get'))"
    document = {**READING, "demand": {"object_count": 4}}
    asserted_ranges(
        truth_of("fsspec-download", _S3FS_ALONE + get, document, tmp_path, (s3_url, bucket)), 6, 4
    )
    merge = """
from fsspec.utils import merge_offset_ranges
near = [number << 19 for number in range(12)]
ends = [start + 1000 for start in near]
paths, near, ends = merge_offset_ranges([there] * 12, near, ends, **arguments("merge_offset_ranges"))
s3.cat_ranges(paths, near, ends, **arguments("cat_ranges"))
"""
    asserted_ranges(
        truth_of("fsspec-download", _S3FS_ALONE + merge, READING, tmp_path, (s3_url, bucket)), 1, 1
    )
