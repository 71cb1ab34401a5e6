"""Many files uploaded by boto3 or aiobotocore, to whatever speaks S3."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from penstock.client.transfers import aiobotocore_transfers, boto3_transfers
from penstock.client.transfers.many_files import Summary, files_below
from penstock.trial.stage import CREDENTIALS
from penstock.units import KiB, MiB
from tests.advice import an_advice
from tests.real.servers import REGION

LIBRARIES = ("boto3", "aiobotocore")
SIZES = {"empty": 0, "small": 3, "sub/file": 100 * KiB, "sub/whole": 5 * MiB, "split": 12 * MiB + 1}
ADVICE = an_advice(
    payload_size_bytes=MiB,
    setting={"thread_count": 12, "part_size_bytes": 5 * MiB},
    derived={"multipart_threshold_bytes": 8 * MiB, "connection_pool_count": 13},
)


def a_folder(folder: Path) -> Path:
    """Files of all kinds of sizes."""
    root = folder / "files"
    for name, size in SIZES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((name.encode() * (size // len(name) + 1))[:size])
    return root


def session_of(library: str, url: str) -> Any:
    """A session that finds the server."""
    if library == "boto3":
        import boto3

        session: Any = boto3.Session(region_name=REGION, **credentials())
        return _At(session, "client", url)
    from aiobotocore.session import get_session

    async_session: Any = get_session()
    async_session.set_config_variable("region", REGION)
    async_session.set_credentials(*credentials().values())
    return _At(async_session, "create_client", url)


def credentials() -> dict[str, str]:
    """As a session takes them."""
    return {
        "aws_access_key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    }


class _At:
    """A session whose clients talk to one server; by variables of the environment it would be every session."""

    def __init__(self, session: Any, method: str, url: str) -> None:
        self._session = session
        setattr(self, method, lambda *words, **options: self._make(method, url, words, options))

    def _make(self, method: str, url: str, words: Any, options: Any) -> Any:
        from botocore.config import Config

        config = options.pop("config").merge(Config(s3={"addressing_style": "path"}))
        return getattr(self._session, method)(*words, endpoint_url=url, config=config, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "meta":
            raise AttributeError(name)
        return getattr(self._session, name)


def upload(library: str, session: Any, files: Any, bucket: str, **options: Any) -> Summary:
    """With this library."""
    options = {"advice": ADVICE, **options}
    if library == "boto3":
        return boto3_transfers.upload_files(session, files, bucket, **options)
    return asyncio.run(aiobotocore_transfers.upload_files(session, files, bucket, **options))


def stored(client: Any, bucket: str) -> dict[str, int]:
    """Keys and sizes."""
    answer = client.list_objects_v2(Bucket=bucket)
    return {found["Key"]: found["Size"] for found in answer.get("Contents", [])}


def unfinished(client: Any, bucket: str) -> list[str]:
    """Uploads that nobody completed."""
    answer = client.list_multipart_uploads(Bucket=bucket)
    return [found["Key"] for found in answer.get("Uploads", [])]


def mixed_folder_arrives(library: str, session: Any, client: Any, bucket: str, folder: Path) -> None:
    """All of it, and progress counts each byte once."""
    root, moved = a_folder(folder), list[int]()
    summary = upload(library, session, files_below(root, "p/"), bucket, callback=moved.append)
    summary.raise_for_failed()
    assert (summary.moved_count, summary.moved_bytes) == (len(SIZES), sum(SIZES.values()))
    assert sum(moved) == sum(SIZES.values())
    assert stored(client, bucket) == {f"p/{name}": size for name, size in SIZES.items()}
    assert unfinished(client, bucket) == []
