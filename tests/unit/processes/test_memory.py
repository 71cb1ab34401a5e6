"""What a process that rests gives back."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from penstock.processes import memory
from penstock.units import MiB
from tests.programs import printed

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
    assert int(printed([sys.executable, "-c", HELD_BY_A_SMALL_ONE])) > 20 * MiB


def test_without_glibc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alpine's libc has neither function."""
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    memory.keep_little()
    memory.give_back()


def test_where_a_kernel_does_not_tell_what_lies_where_it_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may be built without that, and a daemon that could not start for it would be no daemon at all."""
    monkeypatch.setattr(memory, "_SMAPS", tmp_path / "smaps")
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


SMAPS = """\
7f00-7f01 r-xp 00000000 fe:00 1   /usr/lib/libsame.so
Rss:                   4 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
7f01-7f02 r--p 00001000 fe:00 1   /usr/lib/relocated.so
Rss:                   4 kB
Anonymous:             4 kB
7f02-7f03 rw-p 00002000 fe:00 1   /usr/lib/written.so
Anonymous:             0 kB
7f03-7f04 r--p 00000000 00:00 0
Anonymous:             0 kB
7f04-7f06 r--p 00000000 fe:00 2   /usr/lib/of constants.so
Rss:                   8 kB
Anonymous:             0 kB
"""


def test_only_what_is_as_in_its_file_is_unmapped() -> None:
    """What was relocated or written would be lost."""
    assert list(memory.unchanged(SMAPS)) == [(0x7F00, 0x7F01), (0x7F04, 0x7F06)]
