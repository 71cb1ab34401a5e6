"""Many files at a time to versitygw: checksums, parts and contents are as S3 wants them."""

from pathlib import Path

import pytest

from tests.integration import uploading
from tests.integration.uploading import LIBRARIES, SIZES, session_of
from tests.real.servers import plain_client

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the build


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_mixed_folder_arrives(library: str, s3_url: str, bucket: str, tmp_path: Path) -> None:
    """Byte by byte, with the checksums that botocore adds by itself."""
    client = plain_client("s3", s3_url)
    uploading.mixed_folder_arrives(library, session_of(library, s3_url), client, bucket, tmp_path)
    for name in SIZES:
        body = client.get_object(Bucket=bucket, Key=f"p/{name}")["Body"].read()
        assert body == (tmp_path / "files" / name).read_bytes()
    client.close()


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_added_to_an_object_reaches_each_of_them(
    library: str, s3_url: str, bucket: str, tmp_path: Path
) -> None:
    """Whole and in parts, with a checksum that was asked for."""
    client = plain_client("s3", s3_url)
    root = uploading.a_folder(tmp_path)
    added = {"ContentType": "text/plain", "Metadata": {"origin": "test"}, "ChecksumAlgorithm": "SHA256"}
    files = [(root / name, name) for name in ("small", "split")]
    summary = uploading.upload(library, session_of(library, s3_url), files, bucket, extra_args=added)
    summary.raise_for_failed()
    for name in ("small", "split"):
        head = client.head_object(Bucket=bucket, Key=name)
        assert (head["ContentType"], head["Metadata"]) == ("text/plain", {"origin": "test"})
    client.close()
