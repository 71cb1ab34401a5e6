"""What a process that rests gives back."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from penstock.processes import memory
from penstock.units import MiB

HELD_BY_A_SMALL_ONE = """
from penstock.processes import memory
def resident():
    return int(open("/proc/self/statm").read().split()[1])
memory.keep_little()
blocks = [bytearray(b"x" * size) for size in 64 * [400_000]]
small = [bytearray(5000) for _ in range(8)]
before = resident()
del blocks
memory.give_back()
print((before - resident()) * 4096)
"""


@pytest.mark.skipif(memory._glibc() is None, reason="no glibc here")
def test_what_is_free_is_given_back_below_what_is_held() -> None:
    """Blocks that lie below a small one that lives leave the process all the same."""
    done = subprocess.run(
        [sys.executable, "-c", HELD_BY_A_SMALL_ONE], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 20 * MiB


def test_without_glibc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alpine's libc has neither function."""
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    memory.keep_little()
    memory.give_back()


def test_what_grew_is_not_looked_through_again() -> None:
    """The collector works on, on what is made afterwards."""
    before = gc.get_freeze_count()
    try:
        with memory.growing():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
