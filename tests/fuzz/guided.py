"""Knows how coverage guides the inputs: Atheris bends what a `Mutator` draws its chances from.

    python -m tests.fuzz.guided [--count N] [PART ...]

Each part runs in a process of its own, since Atheris ends the one it runs in. A finding is a traceback, and a file
of the bytes that led there, which the same part reads again: `python -m tests.fuzz.guided PART --again FILE`.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.mutation import Mutator

# What is written where all inputs are guided by: our own code, and what reads the answers of services for it.
_INSTRUMENTED = ["penstock", "botocore.parsers"]
_INPUT_BYTES_MAX = 512  # of chances: a few dozen
_FIRST_COUNT = 64  # inputs to begin with
_HANG_SECONDS = 60


class _Drawn(random.Random):
    """Chances that are read from bytes, and are the least when these end."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data, self._at = data, 0

    def getrandbits(self, k: int, /) -> int:
        size = (k + 7) // 8
        piece, self._at = self._data[self._at : self._at + size], self._at + size
        return int.from_bytes(piece, "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(32) / 2.0**32


def main() -> int:
    """A line for each part; ends with 1 where something was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.guided", description="Fuzz where code is new."
    )
    parser.add_argument(
        "parts", nargs="*", help="what `python -m tests.fuzz` reads in one process (default: all)"
    )
    parser.add_argument("--count", type=int, default=100_000, help="inputs of each part (default: 100,000)")
    parser.add_argument(
        "--again", type=Path, help="a file that a finding left: of one part, run in this process"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.again or given.here:
        _fuzz(given.parts[0], given.count, given.again)
    from tests.fuzz.readers import READERS  # not where they are to be instrumented

    found = [_examine(part, given.count) for part in given.parts or READERS]
    return int(any(found))


def _examine(part: str, count: int) -> bool:
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.fuzz.guided", part, "--here", "--count", str(count)]
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    told = ended.stdout + ended.stderr
    reached = re.findall(r"#(\d+)\s.*?cov: (\d+)", told)
    growth = f"from {reached[0][1]} to {reached[-1][1]} edges" if reached else "no edges"
    seconds = time.monotonic() - began
    sys.stdout.write(f"{part:14}{int(reached[-1][0]) if reached else 0:>9,} in {seconds:6.0f} s  {growth}\n")
    if ended.returncode:
        sys.stdout.write("\n".join(told.splitlines()[-40:]) + "\n")
    sys.stdout.flush()
    return ended.returncode != 0


def _fuzz(part: str, count: int, again: Path | None) -> None:
    """Never returns: Atheris ends the process."""
    import atheris

    with atheris.instrument_imports(include=_INSTRUMENTED):
        from tests.fuzz.readers import reader_of

    with tempfile.TemporaryDirectory() as name, reader_of(part, Path(name)) as reader:
        first = Path(name) / "first"
        first.mkdir()
        for number in range(_FIRST_COUNT):
            (first / str(number)).write_bytes(random.Random(number).randbytes(_INPUT_BYTES_MAX))

        def feed(data: bytes) -> None:
            mutator = Mutator("guided", 0)
            mutator.chance = _Drawn(data)
            reader.feed(mutator)

        arguments = [f"-runs={count}", f"-max_len={_INPUT_BYTES_MAX}", f"-timeout={_HANG_SECONDS}", "-seed=1"]
        kept = [f"-artifact_prefix={Path.cwd()}/{part}-", "-len_control=0", "-rss_limit_mb=0"]
        atheris.Setup([sys.argv[0], *arguments, *kept, str(again or first)], feed)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
