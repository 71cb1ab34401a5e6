"""The store and what applications report: however much that is, it displaces no measurement and no other user."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.daemon.memory import retention
from penstock.daemon.memory.store import Store
from penstock.vocabulary import Observation, Origin
from tests.factories import NOON, PLACE, SETTING_TYPES, an_observation

SECOND = timedelta(seconds=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store(tmp_path / "penstock.db", SETTING_TYPES)
    yield store
    store.close()


def a_report(number: int = 0, *, uid: int | None = 1001) -> Observation[Any]:
    """What an application says, so many seconds after noon."""
    return an_observation(
        origin=Origin.APPLICATION, client="boto3", reporter_uid=uid, started_at=NOON + number * SECOND
    )


def test_reports_displace_no_measurement(store: Store) -> None:
    """The newest measurements are found under a thousand newer reports."""
    store.add_observations([an_observation(), *(a_report(n) for n in range(1000))])
    assert store.observations(PLACE, count_max=10) == [an_observation()]


def test_each_user_is_heard(store: Store) -> None:
    """One who reports much leaves room for one who reports little."""
    few, many = [a_report(n, uid=7) for n in range(3)], [a_report(n) for n in range(100, 200)]
    store.add_observations([*few, *many])
    heard = store.reports(PLACE, count_max=10, count_max_per_user=5)
    assert heard == [*few, *many[-5:]]
    assert store.reports(PLACE, count_max=4, count_max_per_user=5) == [*few[1:], *many[-2:]]
    assert store.reports(PLACE, count_max=9, count_max_per_user=9, since=NOON + 199 * SECOND) == many[-1:]
    assert store.reported_places() == [PLACE]


def test_a_user_fills_only_his_share_of_the_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond it goes, oldest first; what others said stays."""
    monkeypatch.setattr(retention, "REPORT_COUNT_MAX_PER_USER", 10)
    monkeypatch.setattr(retention, "REPORT_COUNT_MAX", 25)
    store.add_observations([a_report(0, uid=7), *(a_report(n) for n in range(50))])
    while store.prune(now=NOON, retention_seconds=3600.0):
        pass
    kept = store.reports(PLACE, count_max=99, count_max_per_user=99)
    assert Counter(report.reporter_uid for report in kept) == {7: 1, 1001: 10}
    for uid in range(10):
        store.add_observations([a_report(n, uid=uid) for n in range(10)])
    while store.prune(now=NOON, retention_seconds=3600.0):
        pass
    assert len(store.reports(PLACE, count_max=999, count_max_per_user=99)) == 25
    while store.prune(now=NOON + timedelta(days=1), retention_seconds=3600.0):
        pass
    assert store.reports(PLACE, count_max=999, count_max_per_user=99) == []
