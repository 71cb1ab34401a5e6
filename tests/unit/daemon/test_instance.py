"""What tells a machine apart from every other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.daemon import instance


def test_a_host_of_any_name_can_have_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the longest prefix, and the word of a queue that is made anew: SQS takes names of 80."""
    monkeypatch.setattr("platform.node", lambda: "ip-172-31-100-200.eu-west-1.compute.internal")
    name = instance.host_name()
    assert name.startswith("ip-172-31-100-200-")
    assert len(f"{'p' * 40}-{name}-0123abcd.fifo") <= 80


def test_pods_of_one_machine_are_hosts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share the board, and how their names begin; else each would remove the queue of the other."""
    monkeypatch.setattr(instance, "text_of", lambda _file: "the board")
    names, seeds = set(), set()
    for pod in ("application-7d4b9c6f5d-x2x4z", "application-7d4b9c6f5d-k8k9w", "a", "-", ""):
        monkeypatch.setattr("platform.node", lambda pod=pod: pod)
        names.add(instance.host_name())
        seeds.add(instance.machine_seed())
    assert (len(names), len(seeds)) == (4, 5)
    assert all(len(name) <= 24 for name in names)


def test_machine_seed_stays_and_differs(tmp_path: Path) -> None:
    """Each machine has its own, always the same, whatever disk it was started from; one that tells none has a name."""
    for name, disk, board in (("a", "a", "1"), ("b", "b", "1"), ("copy of a", "a", "2")):
        told = {"etc/machine-id": disk * 32, "sys/devices/virtual/dmi/id/board_asset_tag": f"i-{board}"}
        for file, text in told.items():
            (tmp_path / name / file).parent.mkdir(parents=True)
            (tmp_path / name / file).write_text(f"{text}\n")
    names = ("a", "a", "b", "copy of a", "none")
    seeds = [instance.machine_seed(tmp_path / name) for name in names]
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)
