"""The store on a disk that is really full: a small tmpfs in a mount namespace of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import ran

IN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
MOUNT = 'mount -t tmpfs -o size=700k tmpfs "$1"'
STORY = """
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from penstock.daemon.memory.database import DiskTrouble
from penstock.daemon.memory.store import Store
from tests.factories import NOON, PLACE, SETTING_TYPES, a_leftover, an_observation

path, filler = Path(sys.argv[1]) / "penstock.db", Path(sys.argv[1]) / "filler"
store = Store(path, SETTING_TYPES)
store.record_leftover(a_leftover(), now=NOON)
with suppress(OSError), filler.open("wb", buffering=0) as file:
    while file.write(bytes(4096)):
        pass
observations = [an_observation(started_at=NOON + timedelta(seconds=n)) for n in range(100)]
for observation in observations:
    store.add_observations([observation])
assert "the disk is full: free some space" in store.trouble, store.trouble
assert store.observations(PLACE, count_max=999) == observations
refused = 0
try:
    for number in range(1000):
        store.record_leftover(a_leftover(name=f"{number}" * 50), now=NOON)
except DiskTrouble:
    refused = number + 1
assert refused
filler.unlink()
assert store.flush()
store.close()
store = Store(path, SETTING_TYPES)
assert store.take_notices() == []
assert store.observations(PLACE, count_max=999) == observations
assert len(store.open_leftovers()) == refused
store.close()
print("the story ends well")
"""


def test_nothing_is_lost_while_the_disk_is_full(tmp_path: Path) -> None:
    """Measurements wait in memory, the journal refuses, and once there is room all of it is on the disk."""
    attempt = subprocess.run([*IN_NAMESPACE, MOUNT, "sh", str(tmp_path)], capture_output=True, check=False)
    if attempt.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {attempt.stderr.decode().strip()}")
    done = ran(
        [*IN_NAMESPACE, f'{MOUNT} && exec "$2" -c "$3" "$1"', "sh", str(tmp_path), sys.executable, STORY],
        cwd=Path(__file__).parents[2],
        timeout=60,
    )
    assert done.stdout == "the story ends well\n"
    (warning,) = done.stderr.splitlines()  # once, not for each value
    assert "the disk is full: free some space. What is measured and reported waits in memory" in warning
