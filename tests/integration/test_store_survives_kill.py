"""The store against `kill -9`, in a process of its own."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.daemon.memory.store import Store
from tests.factories import PLACE, SETTING_TYPES

WRITER = """
import sys
from datetime import timedelta
from pathlib import Path
from penstock.daemon.memory.store import Store
from tests.factories import NOON, SETTING_TYPES, a_leftover, an_observation

store = Store(Path(sys.argv[1]), SETTING_TYPES)
for number in range(1_000_000):
    store.record_leftover(a_leftover(name=str(number)), now=NOON)
    store.add_observations([an_observation(started_at=NOON + timedelta(seconds=number))])
    print(number, flush=True)
"""


@pytest.mark.parametrize("line_count", [1, 20, 150])
def test_what_was_acknowledged_survives(tmp_path: Path, line_count: int) -> None:
    """After `kill -9` at any moment, every acknowledged entry and observation is there, and the lock is free."""
    path = tmp_path / "penstock.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(line_count)][-1] + 1
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    store = Store(path, SETTING_TYPES)
    assert store.take_notices() == []
    assert {f"{number}" for number in range(acknowledged)} <= {entry.name for entry in store.open_leftovers()}
    assert len(store.observations(PLACE, count_max=1_000_000)) >= acknowledged
    store.close()
