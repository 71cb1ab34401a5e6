"""Knows the long form: `python -m tests.fuzz [--count N] [--seed WORD] [--minutes M]`, which `make fuzz` runs."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.daemon import fuzzed_daemon, speak
from tests.fuzz.datagrams import shout
from tests.fuzz.mutation import Mutator
from tests.fuzz.neighbours import beside_hostile_users
from tests.fuzz.readers import reader_of
from tests.programs import descriptor_count, resident_bytes

SHARES = {
    "socket": 0.35,
    "snapshot": 0.15,
    "client": 0.20,
    "datagram": 0.10,
    "port": 0.10,
    "metadata": 0.03,
    "responses": 0.02,
    "configuration": 0.03,
    "database": 0.02,
}
"""Of all inputs: by what one of them takes."""
WARM_UP = 0.2  # of the inputs: after these, nothing grows any more
GROWTH_BYTES_MAX = 48 << 20  # of what is remembered and bounded, and of what the allocator keeps
_MEMORY = next((name for name in ("/dev/shm",) if Path(name).is_dir()), None)  # noqa: S108 - as fast as a file can be
_SLICE = 5000


def main() -> int:
    """Run it, print a line for each part, and end with 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz all that reads.")
    parser.add_argument("parts", nargs="*", help=f"any of: {', '.join(SHARES)}, neighbours (default: all)")
    parser.add_argument("--count", type=int, default=1_000_000, help="of inputs, over all parts")
    parser.add_argument("--seed", default="long", help="a word; another one gives other inputs")
    parser.add_argument("--minutes", type=float, default=10.0, help="of two hostile users beside root")
    given = parser.parse_args()
    findings: list[str] = []
    for part in given.parts or [*SHARES, "neighbours"]:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(dir=_MEMORY) as name:
            if part == "neighbours":
                count, found, told = _neighbours(Path(name), given.minutes)
            elif part == "port":
                count, found, told = _port(Path(name), given.seed, int(given.count * SHARES[part]))
            elif part == "socket":
                count, found, told = _socket(Path(name), given.seed, int(given.count * SHARES[part]))
            else:
                count, found, told = _reader(part, Path(name), given.seed, int(given.count * SHARES[part]))
        _say(f"{part:14}{count:>9,} in {time.monotonic() - begun:6.0f} s  {len(found)} findings  {told}")
        for finding in found[:20]:
            _say(f"    {finding}")
        findings += found
    return 1 if findings else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _slices(count: int) -> Iterator[range]:
    return (range(start, min(start + _SLICE, count)) for start in range(0, count, _SLICE))


def _socket(folder: Path, seed: str, count: int) -> tuple[int, list[str], str]:
    found: list[str] = []
    statuses: dict[str, int] = {}
    held, slowest = 0, 0.0
    with fuzzed_daemon(folder) as daemon:
        socket_count = daemon.socket_count
        for numbers in _slices(count):
            heard = asyncio.run(speak(daemon.socket_path, seed, numbers))
            found += heard.findings
            for status, number in heard.statuses.items():
                statuses[status] = statuses.get(status, 0) + number
            slowest = max(slowest, daemon.answer_seconds())
            if not held and numbers.stop >= WARM_UP * count:
                held = daemon.resident_bytes
        growth = daemon.resident_bytes - held
        if growth > GROWTH_BYTES_MAX:
            found.append(f"the daemon grew by {growth >> 20} MiB")
        if not daemon.has_let_go(socket_count):
            found.append(f"{daemon.socket_count - socket_count} more sockets are open")
        lines = daemon.log_path.read_text().splitlines()
        found += [f"in the log: {line[:300]}" for line in lines if "level=info" not in line]
    counted = ", ".join(f"{status}: {number:,}" for status, number in sorted(statuses.items()))
    told = f"grew by {growth / 2**20:.1f} MiB, a proper question took {slowest:.3f} s at most; {counted}"
    return count, found, told


def _port(folder: Path, seed: str, count: int) -> tuple[int, list[str], str]:
    found: list[str] = []
    held = 0
    with fuzzed_daemon(folder) as daemon:
        for numbers in _slices(count):
            found += shout(daemon, seed, numbers)
            if not held and numbers.stop >= WARM_UP * count:
                held = daemon.resident_bytes
        growth = daemon.resident_bytes - held
        if growth > GROWTH_BYTES_MAX:
            found.append(f"the daemon grew by {growth >> 20} MiB")
        counts = daemon.datagram_counts()
        lines = daemon.log_path.read_text().splitlines()
        found += [f"in the log: {line[:300]}" for line in lines if "level=info" not in line]
    counted = ", ".join(f"{name.removesuffix('_count')}: {number:,}" for name, number in counts.items())
    return count, found, f"grew by {growth / 2**20:.1f} MiB; {counted}"


def _reader(name: str, folder: Path, seed: str, count: int) -> tuple[int, list[str], str]:
    found: list[str] = []
    held, open_count = 0, 0
    with reader_of(name, folder) as reader:
        for number in range(count):
            try:
                reader.feed(Mutator(seed, number))
            except (Exception, SystemExit) as trouble:  # noqa: BLE001 - whatever it is, it is what was looked for
                found.append(f"{seed}/{number}: {type(trouble).__name__}: {trouble}"[:300])
            if number == int(WARM_UP * count):
                held, open_count = resident_bytes(), descriptor_count()
        growth = resident_bytes() - held
        if growth > GROWTH_BYTES_MAX:
            found.append(f"it grew by {growth >> 20} MiB")
        if descriptor_count() > open_count + 8:
            found.append(f"{descriptor_count() - open_count} more files are open")
    return count, found, f"grew by {growth / 2**20:.1f} MiB"


def _neighbours(folder: Path, minutes: float) -> tuple[int, list[str], str]:
    if os.geteuid() != 0:
        return 0, [], "skipped: only root can become two other users"
    answers = beside_hostile_users(folder, 60.0 * minutes)
    return len(answers.seconds), answers.failures, answers.sentence()


if __name__ == "__main__":
    sys.exit(main())
