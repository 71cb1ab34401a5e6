"""What runs left is tried again until it is gone, and named when it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.probes.outside import Denied, Unreachable
from penstock.tuning import remains
from penstock.tuning.remains import Left, Remains, remove, remove_noted, write_note
from tests.unit.probes.fakes import MemoryStore


class Services:
    """A store of memory in place of S3, and pauses that take no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = MemoryStore(small_seconds=0.0, lists_uploads_by_key_only=True)
        self.slept: list[float] = []
        monkeypatch.setattr("penstock.probes.aws.objects.open_object_store", lambda _access: self)
        monkeypatch.setattr("time.sleep", self.slept.append)

    async def __aenter__(self) -> MemoryStore:
        return self.store

    async def __aexit__(self, *_exception: object) -> None:
        pass


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Services:
    """All that a removal touches."""
    return Services(monkeypatch)


def a_run(name: str = "run") -> Remains:
    """One run with two files."""
    return Remains(
        bucket="bucket",
        endpoint_url=None,
        region="eu-west-1",
        prefix=f"penstock-tune/{name}/",
        file_names=("000000", "000001"),
        is_in_parts=True,
    )


def test_objects_and_unfinished_uploads_are_removed_by_their_keys(services: Services) -> None:
    """Also on a store that lists uploads by nothing but their own key."""
    services.store.objects = {"penstock-tune/run/000000", "penstock-tune/other/000000"}
    services.store.uploads = {"1": "penstock-tune/run/000001", "2": "penstock-tune/run2/000001"}
    remove(a_run())
    assert services.store.objects == {"penstock-tune/other/000000"}
    assert list(services.store.uploads) == ["2"]


def test_a_removal_is_tried_again(services: Services) -> None:
    """After a pause each time; the last trouble is raised."""
    services.store.trouble = lambda action, n: (
        Unreachable("lost") if action == "delete_batch" and n < 2 else None
    )
    remove(a_run(), pauses_seconds=(0.5, 2.0))
    assert services.slept[-2:] == [0.5, 2.0]
    services.store.trouble = lambda _action, _n: Denied("no DeleteObject")
    with pytest.raises(Denied):
        remove(a_run(), pauses_seconds=(0.5,))


def test_notes_are_torn_up_when_nothing_is_left(services: Services, tmp_path: Path) -> None:
    """What cannot be removed is named with its reason, and one refusal is enough to know of the others."""
    for name in ("a", "b"):
        write_note(a_run(name), tmp_path / "notes", name)
        services.store.objects.add(f"penstock-tune/{name}/000001")
    (tmp_path / "notes" / "torn.json").write_bytes(b"{")
    services.store.trouble = lambda _action, _n: Denied("no DeleteObject")
    assert remove_noted(tmp_path / "notes") == [
        Left(url=f"s3://bucket/penstock-tune/{name}/", reason="no DeleteObject") for name in ("a", "b")
    ]
    assert services.store.counts["delete_batch"] == 1
    services.store.trouble = lambda _action, _n: None
    assert remove_noted(tmp_path / "notes") == []
    assert (services.store.objects, list((tmp_path / "notes").iterdir())) == (set(), [])
    assert remove_noted(tmp_path / "nowhere") == []


def test_a_store_that_does_not_answer_is_not_waited_for(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever interrupted a run waits ten seconds at most."""
    monkeypatch.setattr(remains, "_SECONDS_MAX", 0.0)
    services.store.small_seconds = 3600.0
    with pytest.raises(Unreachable, match="within 0 s"):
        remove(a_run())
