"""What becomes of a download whose object is written again after its connection broke."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.client.advice import default_advice
from penstock.client.transfers.boto3_transfers import download_file, download_files
from penstock.units import KiB, MiB
from tests.loopback import Answers, Server, serving
from tests.real.servers import plain_client

OLD, NEW = b"A" * (3 * MiB), b"B" * MiB


class _Answers(Answers):
    server: Rewritten

    def reply(self) -> None:
        """As S3 does."""
        if self.command == "HEAD":
            self.answer(200, OLD, ETag='"old"')
        elif not self.server.is_written_again:
            self.server.is_written_again = self.close_connection = True
            self.answer(200, OLD[: 2 * MiB + KiB], size_bytes=len(OLD), ETag='"old"')
        elif self.headers.get("If-Match") in {None, '"new"'}:
            self.answer(200, NEW, ETag='"new"')
        else:
            self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")


class Rewritten(Server):
    """A store with the old version, whose body is cut off; then with the new one, which is shorter."""

    is_written_again = False


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("size_bytes", [None, len(OLD)])
def test_no_file_is_made_of_two_versions(tmp_path: Path, *, is_alone: bool, size_bytes: int | None) -> None:
    """Read whole, it is read again from its beginning: the end of the first would be left behind the second."""
    path, advice = tmp_path / "file", default_advice("s3_download", len(OLD), "")
    with serving(Rewritten(_Answers)) as url, contextlib.closing(plain_client("s3", url)) as client:
        if is_alone:
            with pytest.raises(Exception, match="did not match expected ETag"):
                download_file(client, "bucket", "key", path, size_bytes=size_bytes, advice=advice)
        else:
            (failed,) = download_files(client, {"key": path}, "bucket", advice=advice).failed
            assert "did not match expected ETag" in str(failed.error)
    assert list(tmp_path.iterdir()) == []
