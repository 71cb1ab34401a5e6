"""How much memory a process may use is found where pods, containers and units of systemd say it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.client import confinement
from penstock.client.confinement import memory_limit_bytes
from penstock.units import GiB, MiB

V1_NONE = str((1 << 63) - 4096)
# By what the process is told of its groups, and by what stands in their files below /sys/fs/cgroup.
POD = ("0::/\n", {"memory.max": f"{512 * MiB}\n"}, 512 * MiB)
NESTED_UNIT = (
    "0::/system.slice/backup.service/worker\n",
    {
        "system.slice/memory.max": str(4 * GiB),
        "system.slice/backup.service/memory.max": str(2 * GiB),
        "system.slice/backup.service/memory.high": str(GiB),
        "system.slice/backup.service/worker/memory.max": "max",
    },
    GiB,
)
OLD_CONTAINER = (  # which sees its own group at the top, and is told its name outside
    "9:name=systemd:/docker/5d1f\n4:memory:/docker/5d1f\n0::/\n",
    {"memory/memory.limit_in_bytes": str(256 * MiB)},
    256 * MiB,
)
OLD_HOST = ("4:cpu,memory:/\n", {"memory/memory.limit_in_bytes": V1_NONE}, None)
SIBLING = ("0::/../neighbour\n", {"memory.max": str(64 * MiB), "../neighbour/memory.max": str(MiB)}, 64 * MiB)
RECLAIMED = ("0::/\n", {"memory.max": str(GiB), "memory.high": "0\n"}, GiB)
FREE = ("0::/user.slice\n", {"user.slice/memory.max": "max\n"}, None)
STRANGE = ("what is this\n:\n", {"memory.max": "many"}, None)


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [POD, NESTED_UNIT, OLD_CONTAINER, OLD_HOST, SIBLING, RECLAIMED, FREE, STRANGE],
)
def test_the_least_of_all_groups_counts(
    tmp_path: Path, groups: str, files: dict[str, str], limit: int | None
) -> None:
    """A group may allow less than those within it."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_limit_bytes(str(tmp_path)) == limit


def test_where_there_are_no_groups_there_is_no_limit(tmp_path: Path) -> None:
    """As on every other system than Linux."""
    assert memory_limit_bytes(str(tmp_path)) is None


def test_half_is_for_what_is_moved_and_a_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod may be resized while it runs; files are not read with every question."""
    limits, now = [GiB, None], [1000.0]
    monkeypatch.setattr(confinement, "memory_limit_bytes", lambda: limits.pop(0))
    monkeypatch.setattr(confinement, "_seen", confinement._Seen())
    monkeypatch.setattr(confinement, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert [confinement.memory_share_bytes() for _ in range(3)] == [512 * MiB] * 3
    now[0] += 61
    assert confinement.memory_share_bytes() is None
