"""What holds for every test: nothing of the machine leaks in, and hypothesis is reproducible in CI."""

import os

import pytest
from hypothesis import HealthCheck, settings

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


@pytest.fixture(autouse=True)
def _nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDKs read the environment and ~/.aws: a developer's profile must not change what a test asserts."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "PENSTOCK_", "NOTIFY_", "LISTEN_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest begins first: three minutes at the end would be waited for by everybody."""
    items.sort(key=lambda item: "test_the_whole_of_it" not in item.nodeid)
