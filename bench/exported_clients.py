"""Knows how much faster clients that others wrote are when they are told what penstock exports for them.

On a real S3 server behind one shaped link: a few uploads teach the optimizer that the daemon uses, and what it then
advises is told to every client in that client's own words. Beside it: the client as it comes, and the best of a grid.
A default that takes long is measured once, since the link alone sets its rate; everything else in turns.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

from bench import results
from bench.real_links import (
    Client,
    Defaults,
    Measured,
    NotMeasuredError,
    Purse,
    ShapedLink,
    _client,
    _end_of,
    _tune,
)
from bench.surfaces import BenchSetting
from penstock.lab.link import LinkTruth
from penstock.models.s3.upload import PART_SIZE_BYTES_MIN
from penstock.units import GiB, MiB

SHARE_OF_BEST_MIN = 0.9
SECONDS_MAX = {False: 500.0, True: 1500.0}  # by form: short, long
ROUND_COUNT = {False: 2, True: 4}
PROBE_COUNT = 6
FINALIST_COUNT = 2  # of the grid
LONG_SECONDS = 10.0
_BYTES_MAX = 40 * GiB
_SEED = 1

LINK = ShapedLink(
    name="many-connections",
    story="20 ms away, 3 MB/s a connection, 30 MB/s in all; one object of 48 MiB",
    truth=LinkTruth(
        round_trip_seconds=0.020,
        connection_rate_bytes_per_second=3e6,
        host_rate_bytes_per_second=30e6,
        service_latency_seconds_median=0.030,
        service_latency_sigma=0.3,
    ),
    object_size_bytes=48 * MiB,
)

CLIENTS: Mapping[str, Defaults] = {
    "boto3": Defaults(large=(10, 8 * MiB), small_thread_count=10),
    "aiobotocore": Defaults(large=(10, 8 * MiB), small_thread_count=10),
    "s5cmd": Defaults(large=(5, 50 * MiB), small_thread_count=256),
    # Below 200 MiB it does not split.
    "rclone": Defaults(large=(1, 48 * MiB), small_thread_count=4),
    "aws": Defaults(large=(10, 8 * MiB), small_thread_count=10),
}
"""What each does by itself, which is noted; it is not told so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One client."""

    client: str
    server: str
    default: Measured
    advised: Measured
    best: Measured  # of the grid
    grid: tuple[Measured, ...]

    @property
    def over_default(self) -> float:
        """What being told is worth."""
        return self.advised.bytes_per_second / self.default.bytes_per_second

    @property
    def share_of_best(self) -> float:
        """How much of what the client can do."""
        return self.advised.bytes_per_second / self.best.bytes_per_second

    @property
    def is_served(self) -> bool:
        """Near its best, and faster than by itself where there was room for that."""
        had_room = self.default.bytes_per_second < SHARE_OF_BEST_MIN * self.best.bytes_per_second
        return self.share_of_best >= SHARE_OF_BEST_MIN and (self.over_default > 1.0 or not had_room)


def grid() -> list[BenchSetting]:
    """Threads up to what the link carries, with parts from the smallest that there may be."""
    parts = [ceil(LINK.object_size_bytes / count / MiB) * MiB for count in (10, 6, 3)]
    points = [(threads, part) for part in parts for threads in (3, 6, 10)]
    return [
        LINK.transfer.setting(threads, max(part, PART_SIZE_BYTES_MIN))
        for threads, part in points
        if threads <= ceil(LINK.object_size_bytes / part)
    ]


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure every client, print the table, keep it under `results/`."""
    began = time.monotonic()
    purse = Purse(bytes_left=_BYTES_MAX, seconds_max=SECONDS_MAX[long], began_seconds=began)
    rows: list[Row] = []
    gaps: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="penstock-exported-") as folder,
        _end_of(LINK, Path(folder)) as end,
    ):
        with contextlib.closing(_client("boto3", LINK, end, purse)) as teacher:
            advised = _tune(teacher, LINK, PROBE_COUNT)[1]
        (end.directory / "boto3-files").rename(end.directory / "teacher-files")
        for name in CLIENTS:
            try:
                with contextlib.closing(_client(name, LINK, end, purse)) as client:
                    rows.append(_judge(client, end.server, advised, ROUND_COUNT[long]))
                print(_line(rows[-1]), flush=True)
            except NotMeasuredError as trouble:
                gaps.append(f"{name}: {trouble}")
                print(f"{name:12s} not measured: {trouble}", flush=True)
    return conclude(rows, gaps, seconds=time.monotonic() - began, long=long)


def _judge(client: Client, server: str, advised: BenchSetting, round_count: int) -> Row:
    client.move(advised)  # opens files and caches; not counted
    chance = random.Random(_SEED)
    points = grid()
    screened = {point: _rate(client, point) for point in chance.sample(points, len(points))}
    finalists = sorted(points, key=lambda point: -screened[point])[:FINALIST_COUNT]
    default = CLIENTS[client.name].on(LINK)
    # The default is told nothing, so it is kept apart from a point of the grid with the same numbers.
    turns: list[BenchSetting | None] = [None, *dict.fromkeys([advised, *finalists])]
    rates: dict[BenchSetting | None, list[float]] = {turn: [] for turn in turns}
    for _ in range(round_count):
        for turn in chance.sample(turns, len(turns)):
            rates[turn].append(_rate(client, turn or default, is_told=turn is not None))
        if None in turns and LINK.object_size_bytes / rates[None][-1] > LONG_SECONDS:
            turns.remove(None)
    measured = {turn: _measured(turn or default, *seen) for turn, seen in rates.items()}
    return Row(
        client=client.name,
        server=server,
        default=measured[None],
        advised=measured[advised],
        best=max((measured[point] for point in finalists), key=lambda m: m.bytes_per_second),
        grid=tuple(_measured(point, rate) for point, rate in screened.items()),
    )


def _rate(client: Client, setting: BenchSetting, *, is_told: bool = True) -> float:
    observation = client.move(setting, is_told=is_told)
    if observation.failed_count:
        raise NotMeasuredError(f"{client.name} failed with {setting}")
    return observation.throughput_bytes_per_second


def _measured(setting: BenchSetting, *rates: float) -> Measured:
    return Measured(setting=setting, bytes_per_second=statistics.median(rates), rounds=tuple(rates))


def conclude(rows: list[Row], gaps: list[str], *, seconds: float, long: bool) -> dict[str, Any]:
    """Print the table and the verdict, and write them down."""
    print("\nA rate is followed by threads x MiB of a part.")
    print(f"{LINK.name}: {LINK.story}")
    print("\n" + _HEADER)
    for row in rows:
        print(_line(row))
    worst = min((row.share_of_best for row in rows), default=0.0)
    verdict = "pass" if rows and not gaps and all(row.is_served for row in rows) else "MISS"
    print(
        f"\nadvised / best of the grid, worst: {worst:.3f}  >= {SHARE_OF_BEST_MIN}, each over default  {verdict}"
    )
    for gap in gaps:
        print(f"not measured: {gap}")
    print(f"{len(rows)} clients in {seconds:.0f} s; figures in bench/results/exported_clients.json")
    found = {
        "form": "long" if long else "short",
        "seconds": seconds,
        "link": LINK.story,
        "rows": [
            asdict(row) | {"over_default": row.over_default, "share_of_best": row.share_of_best}
            for row in rows
        ],
        "not_measured": gaps,
        "worst_share_of_best": worst,
        "verdict": verdict,
    }
    results.keep("exported_clients", found)
    return found


_HEADER = (
    f"{'client':12s} {'default MB/s':>18s} {'advised MB/s':>18s} {'best of grid MB/s':>18s}"
    f" {'advised/default':>15s} {'advised/best':>12s}"
)


def _line(row: Row) -> str:
    shown = [_shown(measured) for measured in (row.default, row.advised, row.best)]
    rates = " ".join(f"{text:>18s}" for text in shown)
    return f"{row.client:12s} {rates} {row.over_default:15.2f} {row.share_of_best:12.3f}"


def _shown(measured: Measured) -> str:
    setting = measured.setting
    return f"{measured.bytes_per_second / 1e6:.1f} ({setting.thread_count} x {setting.request_size_bytes / MiB:.3g})"
