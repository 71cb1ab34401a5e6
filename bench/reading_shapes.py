"""Knows what advice gains for libraries that read data: one large object, many small ones, random ranges.

The server is a versitygw behind a shaped link. A few downloads teach the daemon's model; it is then asked about each
shape as by an application, and s3fs, PyArrow, DuckDB and Polars read it by default and as advised, in turns. For each
shape there are also other thread counts with the advised range size: a grid on which the advice should be near the
best. The long form reads a gibibyte, 500 objects of one mebibyte, and 200 ranges of 256 KiB out of 4 GiB; the short
form an eighth of the bytes.

    python -m bench.reading_shapes [--scale 0.01] [READER ...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench import results
from bench.shaped_links import BUCKET, End, Purse, ShapedLink, begun, end_of
from bench.surfaces import DOWNLOADING
from penstock.lab.link import LinkTruth
from penstock.models.s3.download import S3DownloadModel
from penstock.optimizer.recommendation import recommend
from penstock.trial.stage import CREDENTIALS
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import Access, Demand, Observation, Recommendation
from tests.real import provision, servers

SCALE = {False: 1 / 8, True: 1.0}  # by form: short, long
ROUND_COUNT = {False: 2, True: 3}
READERS = ("s3fs", "pyarrow", "duckdb", "polars")
RANGE_BYTES = 256 * KiB
READING_SECONDS_MAX = 600.0
_VALUE_BYTES = 8
_GROUP_BYTES = MiB  # row groups of sequential data, as DuckDB writes columns
_COUNT_MIN = 50
_LONG_SECONDS = 10.0  # longer transfers are measured once, since the link alone sets their rate
# Threads, and MiB per range: as the daemon starts, up to more threads than fill the link. Without these there would
# be no evidence of a ceiling.
_PROBES = ((4, 8), (16, 4), (64, 1), (32, 2), (24, 1), (12, 1))
_SEED = 1

LINK = ShapedLink(
    name="data-lake",
    story="20 ms away, 4 MB/s a connection, 64 MB/s in all",
    truth=LinkTruth(
        round_trip_seconds=0.020,
        connection_rate_bytes_per_second=4e6,
        host_rate_bytes_per_second=64e6,
        service_latency_seconds_median=0.030,
        service_latency_sigma=0.3,
    ),
    object_size_bytes=64 * MiB,
    transfer=DOWNLOADING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is read, and how advice is asked for."""

    name: str
    object_count: int
    object_size_bytes: int
    demand: Demand
    range_count: int = 0  # 0 reads everything

    @property
    def group_bytes(self) -> int:
        """The payload of one row group."""
        return RANGE_BYTES if self.range_count else min(_GROUP_BYTES, self.object_size_bytes)

    @property
    def group_count(self) -> int:
        """Row groups of one object."""
        return max(1, self.object_size_bytes // self.group_bytes)

    @property
    def objects(self) -> dict[str, list[int]]:
        """By object name: the number of row groups, and of rows in each."""
        described = [self.group_count, self.group_bytes // _VALUE_BYTES]
        return {f"{self.name}-{index:03d}.parquet": described for index in range(self.object_count)}

    @property
    def groups(self) -> list[int]:
        """The row groups to read from a large object, at random places."""
        wanted = min(self.range_count, self.group_count)
        return sorted(random.Random(_SEED).sample(range(self.group_count), wanted))


def shapes(scale: float) -> tuple[Shape, ...]:
    """The three shapes, with fewer bytes if the scale is below 1."""

    def scaled(count: int) -> int:
        return max(_COUNT_MIN, round(count * scale))

    size = max(16 * _GROUP_BYTES, round(GiB * scale))
    return (
        Shape(name="large", object_count=1, object_size_bytes=size, demand=Demand()),
        Shape(
            name="small",
            object_count=scaled(500),
            object_size_bytes=MiB,
            demand=Demand(object_count=scaled(500)),
        ),
        Shape(
            name="random",
            object_count=1,
            object_size_bytes=4 * size,
            demand=Demand(access=Access.RANDOM, range_size_bytes=RANGE_BYTES),
            range_count=scaled(200),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One shape and reader, in bytes per second, medians over the rounds."""

    shape: str
    reader: str
    thread_count: int
    request_size_bytes: int
    default_bytes_per_second: float
    advised_bytes_per_second: float
    grid: Mapping[int, float]  # by threads

    @property
    def over_default(self) -> float:
        """The gain from the advice."""
        return self.advised_bytes_per_second / self.default_bytes_per_second

    @property
    def share_of_best(self) -> float:
        """Relative to the fastest of the grid; the advice may be faster than all of it."""
        return self.advised_bytes_per_second / max(self.grid.values())

    def __str__(self) -> str:
        """One line of the table."""
        return (
            f"{self.shape:7s} {self.reader:8s} {self.default_bytes_per_second / 1e6:13.2f}"
            f" {self.advised_bytes_per_second / 1e6:13.2f} ({self.thread_count} x {self.request_size_bytes / MiB:.3g})"
            f" {self.over_default:8.2f} {self.share_of_best:8.2f}"
        )


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure every shape with every reader, print the table, keep it under `results/`."""
    return measure(SCALE[long], READERS, ROUND_COUNT[long])


def measure(scale: float, readers: Sequence[str], round_count: int) -> dict[str, Any]:
    """With this fraction of the bytes, this many times."""
    packages, wanted = provision.readers(), shapes(scale)
    print(f"{LINK.name}: {LINK.story}; MB/s, and threads x MiB of a range")
    print(f"{'shape':7s} {'reader':8s} {'default':>13s} {'advised':>13s} {'':10s} /default /best", flush=True)
    rows = []
    with _stage(packages, wanted) as end:
        advised = _advice(end, wanted)
        for shape in wanted:
            for name in readers:
                row = _judge(
                    name, shape, advised[shape.name], end, packages=packages, round_count=round_count
                )
                rows.append(row)
                print(row, flush=True)
    found = {
        "scale": scale,
        "link": LINK.story,
        "packages": provision.READERS,
        "rows": [
            asdict(row) | {"over_default": row.over_default, "share_of_best": row.share_of_best}
            for row in rows
        ],
    }
    results.keep("reading_shapes", found)
    return found


@contextlib.contextmanager
def _stage(packages: Path, wanted: Sequence[Shape]) -> Iterator[End]:
    """A server behind the link, with the data."""
    with tempfile.TemporaryDirectory(prefix="penstock-shapes-") as name:
        folder = Path(name)
        made = folder / "made"
        made.mkdir()
        objects = {key: described for shape in wanted for key, described in shape.objects.items()}
        _python(packages, ["make"], {"folder": str(made), "objects": objects})
        with end_of(LINK, folder) as end:
            client = servers.plain_client("s3", end.direct_url)
            for file in sorted(made.iterdir()):
                client.upload_file(str(file), BUCKET, file.name)
                file.unlink()
            yield end


def _advice(end: End, wanted: Sequence[Shape]) -> dict[str, Recommendation[Any]]:
    """By shape, after a few downloads by boto3."""
    purse = Purse(bytes_left=GiB, seconds_max=READING_SECONDS_MAX, began_seconds=time.monotonic())
    with contextlib.closing(begun("boto3", LINK, end, purse)) as client:
        seen: list[Observation[Any]] = [client.move(LINK.transfer.setting(n, m * MiB)) for n, m in _PROBES]
    model = S3DownloadModel()
    fit = model.fit(LINK.context.place, seen, prior=None, seed=_SEED)
    return {
        shape.name: recommend(
            model,
            fit,
            replace(LINK.context, payload_size_bytes=shape.object_size_bytes),
            shape.demand,
            previous=None,
            now=datetime.now(UTC),
            validity_seconds=3600.0,
        )
        for shape in wanted
    }


def _judge(
    name: str, shape: Shape, advice: Recommendation[Any], end: End, *, packages: Path, round_count: int
) -> Row:
    """The default, the advice, and a third, half and twice its threads, in turns; 0 threads is the default."""
    threads, size = advice.setting.thread_count, advice.setting.request_size_bytes
    told = {"request_size_bytes": size, "coalesced_gap_bytes": int(advice.derived["coalesced_gap_bytes"])}
    turns = [0, *dict.fromkeys((max(1, threads // 3), max(1, threads // 2), threads, 2 * threads))]
    rates: dict[int, list[float]] = {turn: [] for turn in turns}
    chance = random.Random(_SEED)
    for _ in range(round_count):
        for turn in chance.sample(turns, len(turns)):
            request = _request(shape, end) | {"told": told | {"thread_count": turn} if turn else {}}
            read = _python(packages, [name, shape.name], request)
            rates[turn].append(read["bytes"] / read["seconds"])
            if read["seconds"] > _LONG_SECONDS:
                turns.remove(turn)
    middle = {turn: statistics.median(seen) for turn, seen in rates.items()}
    return Row(
        shape=shape.name,
        reader=name,
        thread_count=threads,
        request_size_bytes=size,
        default_bytes_per_second=middle.pop(0),
        advised_bytes_per_second=middle[threads],
        grid=middle,
    )


def _request(shape: Shape, end: End) -> dict[str, Any]:
    return {
        "url": end.url,
        "region": servers.REGION,
        "key": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "secret": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        "objects": [f"{BUCKET}/{name}" for name in shape.objects],
        "groups": shape.groups,
        "ranges": [(group * RANGE_BYTES, (group + 1) * RANGE_BYTES) for group in shape.groups],
    }


def _python(packages: Path, arguments: Sequence[str], request: Mapping[str, Any]) -> dict[str, Any]:
    """Run `bench/readers.py` with its own packages. Raises CalledProcessError with its output."""
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("readers.py")), *arguments],
        input=msgspec.json.encode(request),
        env={**os.environ, "PYTHONPATH": str(packages), "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        timeout=READING_SECONDS_MAX,
        check=False,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)} failed: {ended.stderr.decode()[-600:]}")
    found: dict[str, Any] = json.loads(ended.stdout or b"{}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.reading_shapes", description="Read three shapes.")
    parser.add_argument("readers", nargs="*", help=f"any of: {', '.join(READERS)} (default: all)")
    parser.add_argument("--scale", type=float, default=SCALE[False], help="1 is a gibibyte and more")
    parsed = parser.parse_args()
    measure(parsed.scale, parsed.readers or READERS, ROUND_COUNT[False])
