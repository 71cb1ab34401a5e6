"""What holds for every test with a real socket: a machine that stops for seconds is not a daemon that hangs."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

from penstock.cli import exec as exec_command
from penstock.client import advice, lease, reporting
from penstock.probes.aws.files import LeanFiles
from penstock.probes.measurement import Effort
from penstock.probes.s3 import workers
from penstock.trial.stage import CREDENTIALS
from tests.integration.scripted_advisor import Served, served_in_thread

PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second without an answer is no daemon to an application; here it is a busy machine.

    Tests of what happens then say their own limit, or find nobody on the socket. Nor does a probe in the test's own
    process refuse to measure on a host that is too busy to be measured.
    """
    monkeypatch.setattr(advice, "_SOCKET_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(lease, "_CONNECT_SECONDS_MAX", PATIENCE_SECONDS)
    monkeypatch.setattr(reporting, "_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(exec_command, "_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(workers, "START_SECONDS_MAX", PATIENCE_SECONDS)
    monkeypatch.setattr(Effort, "disturbance", lambda *_, **__: None)


@pytest.fixture(autouse=True, scope="session")
def _services_are_described_once() -> Iterator[None]:
    """SDKs parse a megabyte for each client anew; what they read changes in no test."""
    with pytest.MonkeyPatch.context() as patch:
        for files in (JSONFileLoader, LeanFiles):
            patch.setattr(files, "_load_file", _remembering(files))
        yield


def _remembering(files: type[Any]) -> Callable[[Any, str, Any], Any]:  # Any: botocore has no types
    read = files._load_file
    known = cache(lambda path, open_file: read(files(), path, open_file))
    return lambda _, path, open_file: known(path, open_file)


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the lab, where SDKs find them."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """A daemon that runs beside the test, and advises 32 threads and parts of 16 MiB, whatever the size."""
    with served_in_thread(tmp_path) as running:
        yield running
