"""The servers of this folder: built once, run once for all tests, skipped with the reason where they cannot be had."""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.real import provision, servers

ServerT = TypeVar("ServerT")


@pytest.fixture(scope="session")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a strict S3."""
    with _running(servers.s3_server, tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Minio]:
    """The S3 that lists unfinished uploads by their exact key alone."""
    with _running(servers.minio_server, tmp_path_factory.mktemp("minio")) as running:
        yield running


@pytest.fixture(scope="session")
def sqs_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a strict SQS."""
    with _running(servers.sqs_server, tmp_path_factory.mktemp("sqs")) as url:
        yield url


@pytest.fixture
def bucket(s3_url: str) -> str:
    """An empty bucket of the test's own."""
    name = f"real-{uuid.uuid4().hex[:12]}"
    servers.plain_client("s3", s3_url).create_bucket(Bucket=name)
    return name


@contextlib.contextmanager
def _running(server: Callable[[Path], AbstractContextManager[ServerT]], directory: Path) -> Iterator[ServerT]:
    """The server, or a skip that names the missing tool; where CI is set nobody reads skips, so there it fails."""
    with contextlib.ExitStack() as stage:
        try:
            running = stage.enter_context(server(directory))
        except provision.ToolMissingError as missing:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"no real server here: {missing}")
        yield running
