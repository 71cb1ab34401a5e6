"""The host's counters, read from a fake root directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.daemon import host


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _fake_root(root: Path, *, cpu: str, own: int = 0, sent: int = 0) -> Path:
    _write(root / "proc/stat", f"cpu  {cpu} 0 0\ncpu0 1 2 3\n")
    _write(root / "proc/self/stat", f"42 (a) b) (c) S {'0 ' * 10}{own} 0 0 0 20 0\n")
    for name in ("eth0", "docker0", "lo"):
        _write(root / f"sys/class/net/{name}/statistics/rx_bytes", "1000\n")
        _write(root / f"sys/class/net/{name}/statistics/tx_bytes", f"{sent}\n")
        _write(root / f"sys/class/net/{name}/statistics/tx_packets", f"{sent // 100}\n")
    (root / "sys/class/net/eth0/device").mkdir(exist_ok=True)
    return root


def test_live_children_are_own_work(tmp_path: Path) -> None:
    """The child that fits must not make the host look busy with somebody else's work."""
    without = host.sample(tmp_path, lambda _name: {}).own_ticks
    _write(tmp_path / "proc/self/task/42/children", "43 44 ")
    _write(tmp_path / "proc/43/stat", f"43 (fit) S {'0 ' * 10}5 2 0 0 20 0\n")

    assert host.sample(tmp_path, lambda _name: {}).own_ticks == without + 7


def test_a_child_may_end_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads were there, and are not any more when they are listed."""
    _write(tmp_path / "proc/self/task/42/children", "43 ")
    glob = Path.glob

    def ended(path: Path, pattern: str) -> Iterator[Path]:
        if pattern.startswith("43/"):
            raise FileNotFoundError
        return iter(glob(path, pattern))

    monkeypatch.setattr(Path, "glob", ended)
    host.sample(tmp_path, lambda _name: {})


def test_busy_fraction_leaves_out_the_own_share(tmp_path: Path) -> None:
    """Of 100 ticks 60 were busy, 20 of them ours; waiting and stolen ticks are nobody's work."""
    before = host.sample(_fake_root(tmp_path, cpu="0 0 0 0 0 0 0 0"), lambda _: {})
    after = host.sample(_fake_root(tmp_path, cpu="40 5 10 25 10 3 2 5", own=20), lambda _: {})
    used = host.usage(before, after)
    assert used.others_busy_fraction == pytest.approx(0.4)


def test_bytes_are_those_of_real_devices(tmp_path: Path) -> None:
    """A bridge counts the bytes of the device once more, and loopback is no network."""
    before = host.sample(_fake_root(tmp_path, cpu="1 0 0 0 0 0 0 0"), lambda _: {})
    after = host.sample(_fake_root(tmp_path, cpu="2 0 0 0 0 0 0 0", sent=500), lambda _: {})
    assert (host.usage(before, after).transmitted_bytes, host.usage(before, after).received_bytes) == (500, 0)


def test_without_devices_all_but_the_loopback_count(tmp_path: Path) -> None:
    """A container sees only virtual interfaces."""
    root = _fake_root(tmp_path, cpu="1 0 0 0 0 0 0 0")
    (root / "sys/class/net/eth0/device").rmdir()
    assert host.sample(root, lambda _: {}).received_bytes == 2000


@pytest.mark.parametrize(("name", "group_id"), [("root", 0), ("opreators", None), ("root\0", None)])
def test_a_group_is_here_or_is_not(name: str, group_id: int | None) -> None:
    """Also one that can be no group's name, which a configuration may have all the same."""
    assert host.group_id(name) == group_id


def test_only_allowances_are_told_of_the_counters_of_a_driver(tmp_path: Path) -> None:
    """The host's own limit was met so often; other counters of the driver are not ours."""
    root = _fake_root(tmp_path, cpu="1 0 0 0 0 0 0 0")
    counters = {"bw_out_allowance_exceeded": 5, "pps_allowance_exceeded": 1, "tx_queue_stops": 7}
    exceeded = host.sample(root, lambda _: counters).allowance_exceeded
    assert exceeded == {"bw_out_allowance_exceeded": 5, "pps_allowance_exceeded": 1}


def test_what_the_children_of_this_process_move_is_told_apart(tmp_path: Path) -> None:
    """They speak to AWS; what this process reads and writes are files and answers, however much that is."""
    root = _fake_root(tmp_path, cpu="1 0 0 0 0 0 0 0", sent=700)
    _write(root / "proc/self/io", "rchar: 100\nwchar: 400\nsyscr: 9\nwrite_bytes: 8\n")
    _write(root / "proc/self/task/42/children", "43 ")
    _write(root / "proc/43/io", "rchar: 1\nwchar: 20\n")
    sample = host.sample(root, lambda _name: {})
    assert (sample.own_received_bytes, sample.own_transmitted_bytes) == (1, 20)
    assert sample.transmitted_bytes == 700
    assert host.usage(host.HostSample(), sample).own_transmitted_bytes == 20


def test_a_host_that_shows_nothing(tmp_path: Path) -> None:
    """Without /proc and /sys there are zeros, not errors."""
    empty = host.sample(tmp_path)
    assert empty == host.HostSample()
    assert host.usage(empty, empty).others_busy_fraction == 0.0


def test_counters_that_went_back_count_as_still(tmp_path: Path) -> None:
    """A driver that was loaded again begins at zero."""
    before = host.HostSample(
        total_ticks=100, busy_ticks=50, own_ticks=9, received_bytes=9, transmitted_bytes=9
    )
    used = host.usage(before, host.HostSample(total_ticks=200, busy_ticks=40))
    assert (used.others_busy_fraction, used.received_bytes, used.transmitted_bytes) == (0.0, 0, 0)


def test_this_very_host() -> None:
    """The real files and the real ioctl answer with numbers, or with nothing, but do not fail."""
    sample = host.sample()
    assert 0 < sample.busy_ticks <= sample.total_ticks
    assert sample.own_ticks > 0
    for interface in Path("/sys/class/net").iterdir():
        assert all(count >= 0 for count in host.driver_statistics(interface.name).values())
    assert host.driver_statistics("no-such-device") == {}
