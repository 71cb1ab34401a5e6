"""Knows how good the advice is on real S3 servers behind shaped links, for clients that others wrote.

For each link and client, in one run and close together in time: a full grid of threads and request sizes, the client's
default, and the advice after a few transfers by that client, chosen by the daemon's optimizer. The best few of the grid
are then measured again, in turns, and one of them is named the best. Since the named one was also lucky, only further
rounds count, each with the best, the default and the advice, until their ratio is known well enough, or this pair's
time is over. Everything is bounded: bytes, seconds, and the time of a single transfer.

This file has the uploads; `real_downloads` has the links and clients of downloads, and `exported_clients` those for one
client's advice given to others.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from bench import results
from bench.penstock_tuner import PenstockTuner
from bench.shaped_links import Client, End, NotMeasuredError, Purse, ShapedLink, begun, end_of
from bench.surfaces import UPLOADING, BenchSetting
from penstock.client.targets.advised import download_of, upload_of
from penstock.lab.link import LinkTruth
from penstock.units import GiB, KiB, MiB

TARGET = 0.95  # advised / best of the grid
PROBE_COUNT = 8
FINALIST_COUNT = 3  # from the grid
ROUND_COUNT = 2  # to name the best of the finalists
DUEL_ROUND_COUNTS = 5, 15  # minimum and maximum of new rounds of the advice against the best
PAIR_SECONDS_MAX = 80.0  # for a link and a client; after it, only the minimum of rounds
DUEL_WIDTH = 1.08  # upper over lower end of the ratio's interval that is narrow enough
LONG_SECONDS = 10.0  # a slower default is measured once, since the link alone sets its rate
_RESAMPLE_COUNT = 1000
BYTES_MAX = {False: 4 * GiB, True: 40 * GiB}  # by form: short, long
SECONDS_MAX = {False: 300.0, True: 3600.0}
_SEED = 1


THROTTLED = ShapedLink(
    name="throttled",
    story="80 objects of 64 KiB below a limit of 40 requests a second",
    truth=LinkTruth(
        round_trip_seconds=0.004,
        connection_rate_bytes_per_second=20e6,
        host_rate_bytes_per_second=40e6,
        service_latency_seconds_median=0.040,
        service_latency_sigma=0.35,
        prefix_request_rate_per_second=40,
    ),
    object_size_bytes=64 * KiB,
    object_count=80,
)
LINKS = (
    ShapedLink(
        name="near",
        story="1 ms away, 7 MB/s a connection, 45 MB/s in all",
        truth=LinkTruth(
            round_trip_seconds=0.001,
            connection_rate_bytes_per_second=7e6,
            host_rate_bytes_per_second=45e6,
            service_latency_seconds_median=0.020,
            service_latency_sigma=0.3,
        ),
    ),
    ShapedLink(
        name="regional",
        story="8 ms away, 6 MB/s a connection, 36 MB/s in all, less when crowded",
        truth=LinkTruth(
            round_trip_seconds=0.008,
            connection_rate_bytes_per_second=6e6,
            host_rate_bytes_per_second=36e6,
            service_latency_seconds_median=0.035,
            service_latency_sigma=0.4,
            oversubscription_loss=0.15,
        ),
    ),
    ShapedLink(
        name="cross-region",
        story="130 ms away, a window of 1 MB, 40 MB/s in all",
        truth=LinkTruth(
            round_trip_seconds=0.130,
            connection_rate_bytes_per_second=30e6,
            window_bytes=1e6,
            host_rate_bytes_per_second=40e6,
            service_latency_seconds_median=0.045,
            service_latency_sigma=0.3,
        ),
    ),
    THROTTLED,
)


CLIENTS = ("boto3", "aiobotocore", "s5cmd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A setting and the median of its rounds."""

    setting: BenchSetting
    bytes_per_second: float
    rounds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One link and client."""

    link: str
    client: str
    server: str
    object_count: int
    default: Measured
    advised: Measured
    best: Measured  # from the grid
    predicted_low: float  # the 90 % interval that came with the advice
    predicted_high: float
    probe_count: int
    probe_bytes: int
    probe_seconds: float
    grid: tuple[Measured, ...]  # each point once
    grid_bytes: int
    grid_seconds: float

    @property
    def connections_needed(self) -> int:
        """The fewest connections with which a point of the grid came within 5 % of the best point."""
        fastest = max(point.bytes_per_second for point in self.grid)
        return min(p.setting.thread_count for p in self.grid if p.bytes_per_second >= TARGET * fastest)

    @property
    def share_of_best(self) -> float:
        """The main result."""
        return self.advised.bytes_per_second / self.best.bytes_per_second

    @property
    def share_interval(self) -> tuple[float, float]:
        """Its 90 % interval."""
        return _ratio_interval(self.advised.rounds, self.best.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What is measured together: every link with every client, on every server."""

    name: str  # of the figures
    links: Sequence[ShapedLink]
    clients: Sequence[str]
    servers: Sequence[str] = ("versitygw",)
    target: float = TARGET
    # The client that learns the advice for all; if empty, each learns its own.
    teacher: str = ""


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure every link with every client (short: one of each), print the table, keep it under `results/`."""
    suite = Suite(name="real_links", links=LINKS, clients=CLIENTS)
    return measure(suite if long else a_sample_of(suite), long=long)


def a_sample_of(suite: Suite) -> Suite:
    """One link, one client, one server."""
    return replace(suite, links=suite.links[:1], clients=suite.clients[:1], servers=suite.servers[:1])


def measure(suite: Suite, *, long: bool) -> dict[str, Any]:
    """Measure everything within the bounds of a form."""
    began = time.monotonic()
    purse = Purse(bytes_left=BYTES_MAX[long], seconds_max=SECONDS_MAX[long], began_seconds=began)
    rows: list[Row] = []
    gaps: list[str] = []
    with tempfile.TemporaryDirectory(prefix="penstock-links-") as folder:
        for server, link in product(suite.servers, suite.links):
            directory = Path(folder) / f"{server}-{link.name}"
            directory.mkdir()
            with end_of(link, directory, server) as end:
                taught = _taught(suite.teacher, link, end, purse) if suite.teacher else None
                for name in suite.clients:
                    try:
                        rows.append(_judge(name, link, end, purse, taught=taught))
                        print(_line(rows[-1]), flush=True)
                    except NotMeasuredError as trouble:
                        gaps.append(f"{server}, {link.name}, {name}: {trouble}")
                        print(f"{link.name:13s} {name:12s} not measured: {trouble}", flush=True)
    return _conclude(suite, rows, gaps, seconds=time.monotonic() - began, long=long)


def _taught(name: str, link: ShapedLink, end: End, purse: Purse) -> _Taught:
    folder = end.directory / "teacher"
    folder.mkdir()
    with contextlib.closing(begun(name, link, replace(end, directory=folder), purse)) as client:
        return _tune(client, link)


def _judge(name: str, link: ShapedLink, end: End, purse: Purse, *, taught: _Taught | None) -> Row:
    """Probes first, so that the advice knows nothing of the grid; then the grid, then all finalists in turns."""
    default, is_over = link.unadvised(name), _after(PAIR_SECONDS_MAX)
    with contextlib.closing(begun(name, link, end, purse)) as client:
        client.move(default, is_told=False)  # not counted: it warms files and caches
        tuner, advised, probing = taught or _tune(client, link)
        advised = _told(client, advised)
        screened, screening = _screen(client, link.grid)
        finalists = sorted(link.grid, key=lambda setting: -screened[setting])[:FINALIST_COUNT]
        named = _in_turns(client, finalists, default, lambda rounds: len(rounds) >= ROUND_COUNT)
        best = max(finalists, key=lambda setting: named[setting].bytes_per_second)
        # The default is run without options, so it is kept apart from a grid point with the same numbers.
        measured = _in_turns(
            client, [None, advised, best], default, lambda rounds: _is_settled(rounds, is_over=is_over())
        )
        low, high = tuner.predict_interval(advised)
    return Row(
        link=link.name,
        client=name,
        server=end.server,
        object_count=link.object_count,
        default=measured[None],
        advised=measured[advised],
        best=measured[best],
        predicted_low=low,
        predicted_high=high,
        probe_count=PROBE_COUNT,
        probe_bytes=probing.moved_bytes,
        probe_seconds=probing.seconds,
        grid=tuple(
            Measured(setting=x, bytes_per_second=rate, rounds=(rate,)) for x, rate in screened.items()
        ),
        grid_bytes=screening.moved_bytes,
        grid_seconds=screening.seconds,
    )


@dataclass(frozen=True, slots=True)
class _Effort:
    moved_bytes: int
    seconds: float  # of transfers


_Taught: TypeAlias = tuple[PenstockTuner, BenchSetting, _Effort]


def _tune(client: Client, link: ShapedLink) -> _Taught:
    """The advice after a few transfers, each chosen after the one before."""
    tuner, seconds, before = PenstockTuner(link.context, link.limits), 0.0, client.moved_bytes
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The objective has been evaluated")  # scikit-optimize
        for _ in range(PROBE_COUNT):
            observation = client.move(_told(client, tuner.ask(_SEED)))
            seconds += observation.duration_seconds
            tuner.tell(observation)
        advised = tuner.recommend()
    return tuner, advised, _Effort(client.moved_bytes - before, seconds)


def _told(client: Client, setting: BenchSetting) -> BenchSetting:
    """The setting as the client can be told: s5cmd's parts are whole MiB, and a small object is always one request."""
    link = client.link
    if link.object_count > 1:
        return link.whole(setting.thread_count)
    if client.name != "s5cmd":
        return setting
    read = upload_of if link.transfer is UPLOADING else download_of
    document = {"setting": asdict(setting), "derived": {}, "payload_size_bytes": link.object_size_bytes}
    told = read(document).in_multiples_of(MiB)
    return link.transfer.setting(told.thread_count, told.request_size_bytes)


def _screen(client: Client, grid: Sequence[BenchSetting]) -> tuple[dict[BenchSetting, float], _Effort]:
    """Every point of the grid once, in random order."""
    before, seconds, found = client.moved_bytes, 0.0, {}
    for setting in random.Random(_SEED).sample(grid, len(grid)):
        observation = client.move(setting)
        seconds += observation.duration_seconds
        found[setting] = observation.throughput_bytes_per_second
    return found, _Effort(client.moved_bytes - before, seconds)


_Rounds: TypeAlias = Sequence[Mapping[Any, float]]  # the rate of each setting by round


def _in_turns(
    client: Client,
    settings: Sequence[BenchSetting | None],
    default: BenchSetting,
    is_enough: Callable[[_Rounds], bool],
) -> dict[BenchSetting | None, Measured]:
    """Each setting once a round, in random order; None is the default, without options."""
    distinct, chance = list(dict.fromkeys(settings)), random.Random(_SEED)
    rounds: list[dict[BenchSetting | None, float]] = []
    while not is_enough(rounds):
        rounds.append({})
        for setting in chance.sample(distinct, len(distinct)):
            moved = client.move(setting or default, is_told=setting is not None)
            rounds[-1][setting] = moved.throughput_bytes_per_second
            if setting is None and moved.duration_seconds > LONG_SECONDS:
                distinct.remove(None)
    rates = {setting: [each[setting] for each in rounds if setting in each] for setting in rounds[0]}
    return {
        setting: Measured(
            setting=setting or default, bytes_per_second=statistics.median(seen), rounds=tuple(seen)
        )
        for setting, seen in rates.items()
    }


def _after(seconds: float) -> Callable[[], bool]:
    """Whether this much time has passed since now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _is_settled(rounds: _Rounds, *, is_over: bool = False) -> bool:
    """Whether the advice and the best, if they differ, are distinguished well enough, or have had enough rounds."""
    least, most = DUEL_ROUND_COUNTS[0], DUEL_ROUND_COUNTS[0 if is_over else 1]
    if not least <= len(rounds) < most:
        return len(rounds) >= most
    told = [setting for setting in rounds[0] if setting is not None]
    one, other = ([each[setting] for each in rounds] for setting in (told[0], told[-1]))
    low, high = _ratio_interval(one, other)
    return high <= DUEL_WIDTH * low


def _ratio_interval(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The 90 % interval of the ratio of medians, by bootstrap over whole rounds."""
    chance, count = random.Random(_SEED), len(one)
    ratios = []
    for _ in range(_RESAMPLE_COUNT):
        drawn = chance.choices(range(count), k=count)
        ratios.append(statistics.median(one[i] for i in drawn) / statistics.median(other[i] for i in drawn))
    ratios.sort()
    return ratios[_RESAMPLE_COUNT // 20], ratios[-_RESAMPLE_COUNT // 20]


def _conclude(
    suite: Suite, rows: list[Row], gaps: list[str], *, seconds: float, long: bool
) -> dict[str, Any]:
    """Print the table and the verdict, and write them down."""
    print(
        "\nA rate is followed by threads x MiB of a request; `needed` are the connections for 95 % of the best."
    )
    for link in suite.links:
        print(f"{link.name}: {link.story}")
    print("\n" + _HEADER)
    for row in rows:
        print(_line(row))
    worst = min(rows, key=lambda row: row.share_of_best, default=None)
    share, (low, high) = (worst.share_of_best, worst.share_interval) if worst else (0.0, (0.0, 0.0))
    verdict = "pass" if rows and not gaps and share >= suite.target else "MISS"
    print(
        f"\nadvised / best of the grid, worst: {share:.3f} ({low:.2f} to {high:.2f})  >= {suite.target}  {verdict}"
    )
    for gap in gaps:
        print(f"not measured: {gap}")
    print(f"{len(rows)} pairs in {seconds:.0f} s; figures in bench/results/{suite.name}.json")
    found = {
        "form": "long" if long else "short",
        "seconds": seconds,
        "rows": [_document(row) for row in rows],
        "not_measured": gaps,
        "worst_share_of_best": share,
        "verdict": verdict,
    }
    results.keep(suite.name, found)
    return found


def _document(row: Row) -> dict[str, Any]:
    return asdict(row) | {
        "share_of_best": row.share_of_best,
        "share_interval": row.share_interval,
        "connections_needed": row.connections_needed,
    }


_HEADER = (
    f"{'link':13s} {'server':10s} {'client':12s} {'default MB/s':>18s} {'advised MB/s':>20s} {'best of grid MB/s':>20s}"
    f" {'advised/best':>18s} {'/default':>8s} {'needed':>6s} {'probes':>12s} {'grid':>12s}"
)


def _line(row: Row) -> str:
    probes = f"{row.probe_count}, {row.probe_bytes / 1e6:.0f} MB"
    grid = f"{len(row.grid)}, {row.grid_bytes / 1e6:.0f} MB"
    over_default = row.advised.bytes_per_second / row.default.bytes_per_second
    is_split, (low, high) = row.object_count == 1, row.share_interval
    share = f"{row.share_of_best:.2f} ({low:.2f}-{high:.2f})"
    default, advised, best = (_shown(m, is_split=is_split) for m in (row.default, row.advised, row.best))
    return (
        f"{row.link:13s} {row.server:10s} {row.client:12s} {default:>18s} {advised:>20s} {best:>20s}"
        f" {share:>18s} {over_default:8.2f} {row.connections_needed:6d} {probes:>12s} {grid:>12s}"
    )


def _shown(measured: Measured, *, is_split: bool) -> str:
    """Rate, threads, and MiB per request if objects are split."""
    setting = measured.setting
    size = f" x {setting.request_size_bytes / MiB:.3g}" if is_split else ""
    return f"{measured.bytes_per_second / 1e6:.2f} ({setting.thread_count}{size})"
