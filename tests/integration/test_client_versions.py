"""What becomes of a download whose object is written again after its connection broke."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from penstock.client.advice import default_advice
from penstock.client.boto3_transfers import download_file, download_files
from penstock.units import KiB, MiB

OLD, NEW = b"A" * (3 * MiB), b"B" * MiB


class Rewritten(BaseHTTPRequestHandler):
    """The old version, whose body is cut off; then the new one, which is shorter."""

    protocol_version = "HTTP/1.1"
    is_written_again = False

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        """Before it is written again."""
        self._answer(200, '"old"', len(OLD), b"")

    def do_GET(self) -> None:
        """As S3 does."""
        if not Rewritten.is_written_again:
            Rewritten.is_written_again = self.close_connection = True
            self._answer(200, '"old"', len(OLD), OLD[: 2 * MiB + KiB])
        elif self.headers.get("If-Match") in {None, '"new"'}:
            self._answer(200, '"new"', len(NEW), NEW)
        else:
            refusal = b"<Error><Code>PreconditionFailed</Code></Error>"
            self._answer(412, "", len(refusal), refusal)

    def _answer(self, status: int, etag: str, size_bytes: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(size_bytes))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def rewritten() -> Iterator[str]:
    """The URL of a store in which that happens."""
    Rewritten.is_written_again = False
    with ThreadingHTTPServer(("127.0.0.1", 0), Rewritten) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("size_bytes", [None, len(OLD)])
def test_no_file_is_made_of_two_versions(tmp_path: Path, *, is_alone: bool, size_bytes: int | None) -> None:
    """Read whole, it is read again from its beginning: the end of the first would be left behind the second."""
    path, advice = tmp_path / "file", default_advice("s3_download", len(OLD), "")
    with rewritten() as url:
        client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="eu-west-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",  # noqa: S106
            config=Config(s3={"addressing_style": "path"}),
        )
        with contextlib.closing(client):
            if is_alone:
                with pytest.raises(Exception, match="did not match expected ETag"):
                    download_file(client, "bucket", "key", path, size_bytes=size_bytes, advice=advice)
            else:
                (failed,) = download_files(client, {"key": path}, "bucket", advice=advice).failed
                assert "did not match expected ETag" in str(failed.error)
    assert list(tmp_path.iterdir()) == []
