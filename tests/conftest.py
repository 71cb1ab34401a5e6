"""What holds for every test: nothing of the machine leaks in, hypothesis is reproducible in CI, and time can jump."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, settings

from penstock.lab.virtual_time import VirtualClock, VirtualTimeLoop

settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci",
    max_examples=50,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported: two workers share two cores
# Whom a shell began in the background ignores Ctrl-C, and so would every program that is begun here; by nohup, the end
# of the terminal. What is handled is not inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(autouse=True)
def _nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDKs read the environment and ~/.aws: a developer's profile must not change what a test asserts.

    Nor must a limit of memory under which the suite is run.
    """
    monkeypatch.setattr("penstock.client.confinement.memory_limit_bytes", lambda: None)
    for name in list(os.environ):
        if name.startswith(("AWS_", "PENSTOCK_", "NOTIFY_", "LISTEN_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


def pytest_asyncio_loop_factories(
    item: pytest.Function,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A coroutine that asks for the `clock`, or for what needs it, runs in virtual time: a week takes no longer."""
    return {"loop": VirtualTimeLoop if "clock" in item.fixturenames else asyncio.new_event_loop}


@pytest.fixture
async def clock() -> VirtualClock:
    """The time of a test's own world."""
    from tests.factories import NOON

    return VirtualClock(asyncio.get_running_loop(), NOON)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest begins first: three minutes at the end would be waited for by everybody."""
    items.sort(key=lambda item: "test_the_whole_of_it" not in item.nodeid)
