"""The servers of this folder: built once, run once for all tests, skipped with the reason where they cannot be had."""

import os
import uuid
from collections.abc import Generator, Iterator

import pytest

from tests.real import provision, servers


def _skipped_without_tools() -> Generator[None, object, object]:
    """The test is skipped, with the missing tool named; where CI is set nobody reads skips, so there it fails."""
    try:
        return (yield)
    except provision.ToolMissingError as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"cannot be had here: {missing}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """What its fixtures need."""
    return (yield from _skipped_without_tools())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """What it needs itself."""
    return (yield from _skipped_without_tools())


@pytest.fixture(scope="session")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a strict S3."""
    with servers.s3_server(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Minio]:
    """The S3 that lists unfinished uploads by their exact key alone."""
    with servers.minio_server(tmp_path_factory.mktemp("minio")) as running:
        yield running


@pytest.fixture(params=["versitygw", "minio"])
def store(request: pytest.FixtureRequest) -> str:
    """Each of the two in turn, by its name."""
    name: str = request.param
    return name


@pytest.fixture
def store_url(store: str, request: pytest.FixtureRequest) -> str:
    """Its URL."""
    url: str = request.getfixturevalue("minio").url if store == "minio" else request.getfixturevalue("s3_url")
    return url


@pytest.fixture(scope="session")
def sqs_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a strict SQS."""
    with servers.sqs_server(tmp_path_factory.mktemp("sqs")) as url:
        yield url


@pytest.fixture
def bucket(s3_url: str) -> str:
    """An empty bucket of the test's own."""
    name = f"real-{uuid.uuid4().hex[:12]}"
    servers.plain_client("s3", s3_url).create_bucket(Bucket=name)
    return name
