"""Knows how good the advice is on real S3 servers behind shaped links, for clients that others wrote.

For each link and client, in one run and close together in time: a full grid of threads and request sizes, the client's
default, and the advice after a few transfers by that client, chosen by the optimizer that the daemon uses. The best few
of the grid are then measured again, in turns, and one of them is named the best. The one that is named so was lucky as
well: only what it, the default and the advice reach in further rounds is compared, each round holding all three, until
their ratio is known well enough, or the time of this pair is over. Every part is bounded: bytes, seconds, and the time
of a single transfer.

Uploads are here; the links and clients of downloads are in `real_downloads`, and those of one client's advice for
others in `exported_clients`.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import product
from math import ceil
from pathlib import Path
from select import select
from typing import IO, Any, TypeAlias, cast

import msgspec

from bench import results
from bench.penstock_tuner import PenstockTuner
from bench.real_clients import Job, Report, body_of
from bench.surfaces import UPLOADING, BenchSetting, Limits, Transfer
from penstock.client.targets.unadvised import unadvised_settings
from penstock.lab.link import LinkTruth
from penstock.lab.worlds import NEAR, World
from penstock.trial.stage import CREDENTIALS, lab_endpoint
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import UNKNOWN, Context, Observation, Place
from tests.real import provision, servers

TARGET = 0.95  # advised / best of the grid
PROBE_COUNT = 8
FINALIST_COUNT = 3  # of the grid
ROUND_COUNT = 2  # that name the best of the finalists
DUEL_ROUND_COUNTS = 5, 15  # the least and the most, afresh, of the advice beside the best
PAIR_SECONDS_MAX = 80.0  # of a link and a client: from then on no more than the least of rounds
DUEL_WIDTH = 1.08  # upper over lower end of the ratio's interval: known well enough
LONG_SECONDS = 10.0  # a default that takes longer is measured once, since the link alone sets its rate
_RESAMPLE_COUNT = 1000
TRANSFER_SECONDS_MAX = 90.0
BYTES_MAX = {False: 4 * GiB, True: 40 * GiB}  # by form: short, long
SECONDS_MAX = {False: 300.0, True: 3600.0}
BUCKET = "links"
THREAD_COUNT_MAX = 32
_REST_SECONDS = 0.3  # before a transfer where the request rate is limited: what was used up has recovered
_SEED = 1
# It has a pool of ten connections but no transfer manager: the part size is boto3's.
_SAME_AS = {"aiobotocore": "boto3", "aws": "AWS CLI"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedLink:
    """A path, and what is moved over it."""

    name: str
    story: str
    truth: LinkTruth
    object_size_bytes: int = 48 * MiB
    object_count: int = 1
    transfer: Transfer = UPLOADING
    request_counts: Sequence[int] = (10, 8, 6, 4, 3, 2)  # that the object is cut into
    # Of these, as many as there are requests at the most.
    thread_counts: Sequence[int] = (2, 3, 4, 6, 8, 10)

    @property
    def limits(self) -> Limits:
        """What the optimizer may use."""
        low = self.transfer.request_size_bytes_low
        if self.transfer is not UPLOADING:
            low = min(low, self.object_size_bytes)
        return Limits(
            object_size_bytes=self.object_size_bytes,
            thread_count_max=THREAD_COUNT_MAX,
            part_size_bytes_min=low,
            part_size_bytes_max=max(self.object_size_bytes, low),
            transfer=self.transfer,
        )

    @property
    def grid(self) -> list[BenchSetting]:
        """Every number of threads that makes a difference, with every way to cut the object; one request as well."""
        setting = self.transfer.setting
        if self.object_count > 1:
            return [self.whole(n) for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)]
        settings = [setting(1, self.object_size_bytes)]
        for request_count in self.request_counts:
            size = ceil(self.object_size_bytes / request_count / MiB) * MiB
            settings += [setting(n, size) for n in self.thread_counts if n <= request_count]
        return settings

    def whole(self, thread_count: int) -> BenchSetting:
        """So many threads, each with a small object of its own."""
        return self.transfer.setting(thread_count, self.limits.part_size_bytes_min)

    def unadvised(self, client: str) -> BenchSetting:
        """What a client does when nobody advises it: noted, not told."""
        known = unadvised_settings(self.transfer.operation, self.object_size_bytes)
        threads, request_size_bytes = map(int, known[_SAME_AS.get(client, client)].values())
        if self.object_count > 1:
            return self.whole(threads)
        return self.transfer.setting(threads, request_size_bytes)

    @property
    def context(self) -> Context:
        """As the model knows it."""
        place = Place(operation=self.transfer.operation, region=self.name, instance_type=UNKNOWN)
        return Context(place=place, payload_size_bytes=self.object_size_bytes)

    def job(self, setting: BenchSetting) -> Job:
        """One transfer with this setting."""
        return Job(
            thread_count=setting.thread_count,
            request_size_bytes=setting.request_size_bytes,
            object_size_bytes=self.object_size_bytes,
            object_count=self.object_count,
            operation=self.transfer.operation,
        )


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
PROGRAMS = {"s5cmd": provision.s5cmd, "rclone": provision.rclone, "aws": provision.aws_cli}
"""Clients that are programs, and where each is built."""


class NotMeasuredError(RuntimeError):
    """A bound was met or a client failed; the message says which."""


@dataclass(slots=True)
class Purse:
    """What may still be spent; asked before every transfer."""

    bytes_left: int
    seconds_max: float
    began_seconds: float

    def spend(self, size_bytes: int) -> None:
        """Take it. Raises NotMeasuredError when that is too much."""
        if size_bytes > self.bytes_left:
            raise NotMeasuredError("the bytes of this benchmark are spent")
        if time.monotonic() - self.began_seconds > self.seconds_max:
            raise NotMeasuredError("the time of this benchmark is over")
        self.bytes_left -= size_bytes


class Client:
    """One client process on one link."""

    def __init__(
        self, name: str, link: ShapedLink, command: Sequence[str], *, log: Path, purse: Purse
    ) -> None:
        self.name = name
        self.link = link
        self.moved_bytes = 0
        self._purse = purse
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, **CREDENTIALS, "AWS_REGION": servers.REGION},
            )
        self._jobs = cast("IO[bytes]", self._process.stdin)
        self._reports = cast("IO[bytes]", self._process.stdout)

    def move(self, setting: BenchSetting, *, is_told: bool = True) -> Observation[BenchSetting]:
        """Upload or download once; when not told, the setting is only noted. Raises NotMeasuredError."""
        job = msgspec.structs.replace(self.link.job(setting), is_told=is_told)
        self._purse.spend(job.transferred_bytes)
        self.moved_bytes += job.transferred_bytes
        if self.link.truth.prefix_request_rate_per_second is not None:
            time.sleep(_REST_SECONDS)
        started_at = datetime.now(UTC)
        report = self._carry_out(job)
        arrived = self.link.object_count - min(report.failed_count, self.link.object_count)
        return Observation(
            context=self.link.context,
            setting=setting,
            started_at=started_at,
            duration_seconds=report.duration_seconds,
            transferred_bytes=arrived * self.link.object_size_bytes,
            request_count=job.part_count * job.object_count + report.throttled_count,
            throttled_count=report.throttled_count,
            failed_count=report.failed_count,
            # A probe without the client's name: the optimizer chose it, and it is this client that it is about.
        )

    def close(self) -> None:
        """End it."""
        self._jobs.close()
        self._process.terminate()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reports.close()

    def _carry_out(self, job: Job) -> Report:
        with contextlib.suppress(BrokenPipeError):
            self._jobs.write(msgspec.json.encode(job) + b"\n")
            self._jobs.flush()
        if not select([self._reports], [], [], TRANSFER_SECONDS_MAX)[0]:
            raise NotMeasuredError(f"{self.name} did not end {job} within {TRANSFER_SECONDS_MAX:.0f} s")
        line = self._reports.readline()
        if not line:
            raise NotMeasuredError(f"{self.name} ended: {self._log.read_text()[-300:].strip()}")
        return msgspec.json.decode(line, type=Report)


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
    best: Measured  # of the grid
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
        """The fewest with which a point of the grid came within 5 % of the best point."""
        fastest = max(point.bytes_per_second for point in self.grid)
        return min(p.setting.thread_count for p in self.grid if p.bytes_per_second >= TARGET * fastest)

    @property
    def share_of_best(self) -> float:
        """What the benchmark is about."""
        return self.advised.bytes_per_second / self.best.bytes_per_second

    @property
    def share_interval(self) -> tuple[float, float]:
        """Of 90 %."""
        return _ratio_interval(self.advised.rounds, self.best.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What is measured together: every link with every client, on every server."""

    name: str  # of the figures
    links: Sequence[ShapedLink]
    clients: Sequence[str]
    servers: Sequence[str] = ("versitygw",)
    target: float = TARGET
    # The client by which the advice for all of them is learned; without it each learns its own.
    teacher: str = ""


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure every link with every client (short: one of each), print the table, keep it under `results/`."""
    suite = Suite(name="real_links", links=LINKS, clients=CLIENTS)
    return measure(suite if long else a_sample_of(suite), long=long)


def a_sample_of(suite: Suite) -> Suite:
    """One link, one client, one server."""
    return replace(suite, links=suite.links[:1], clients=suite.clients[:1], servers=suite.servers[:1])


def measure(suite: Suite, *, long: bool) -> dict[str, Any]:
    """Measure all of it within the bounds of a form."""
    began = time.monotonic()
    purse = Purse(bytes_left=BYTES_MAX[long], seconds_max=SECONDS_MAX[long], began_seconds=began)
    rows: list[Row] = []
    gaps: list[str] = []
    with tempfile.TemporaryDirectory(prefix="penstock-links-") as folder:
        for server, link in product(suite.servers, suite.links):
            directory = Path(folder) / f"{server}-{link.name}"
            directory.mkdir()
            with _end_of(link, directory, server) as end:
                taught = _taught(suite.teacher, link, end, purse) if suite.teacher else None
                for name in suite.clients:
                    try:
                        rows.append(_judge(name, link, end, purse, taught=taught))
                        print(_line(rows[-1]), flush=True)
                    except NotMeasuredError as trouble:
                        gaps.append(f"{server}, {link.name}, {name}: {trouble}")
                        print(f"{link.name:13s} {name:12s} not measured: {trouble}", flush=True)
    return _conclude(suite, rows, gaps, seconds=time.monotonic() - began, long=long)


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """What is at the end of a link, and a folder for what is needed to get there."""

    server: str
    url: str
    directory: Path
    direct_url: str = ""  # past the link


@contextlib.contextmanager
def _minio(directory: Path) -> Iterator[str]:
    with servers.minio_server(directory) as running:
        yield running.url


SERVERS: Mapping[str, Callable[[Path], contextlib.AbstractContextManager[str]]] = {
    "versitygw": servers.s3_server,
    "minio": _minio,
}


@contextlib.contextmanager
def _end_of(link: ShapedLink, directory: Path, server: str = "versitygw") -> Iterator[_End]:
    """A real server at the end of the link, or, where it cannot be built, the lab's own S3."""
    with contextlib.ExitStack() as stage:
        try:
            direct = stage.enter_context(SERVERS[server](directory))
            url = stage.enter_context(servers.at_the_end_of(link.truth, direct, directory))
            found = _End(server=server, url=url, directory=directory, direct_url=direct)
        except (provision.ToolMissingError, provision.BuildError) as trouble:
            print(f"  no real server ({trouble}); instead the lab's own", flush=True)
            world = World(name=link.name, story=link.story, link=link.truth, queue=NEAR.queue)
            direct = stage.enter_context(lab_endpoint("s3", world, directory))
            found = _End(server="lab", url=direct, directory=directory, direct_url=direct)
        client = servers.plain_client("s3", direct)
        client.create_bucket(Bucket=BUCKET)
        if link.transfer is not UPLOADING:
            _put_what_is_read(client, link)
        yield found


def _put_what_is_read(client: Any, link: ShapedLink) -> None:
    job = link.job(link.grid[0])
    for index, key in enumerate(job.keys):
        body = body_of(index, link.object_size_bytes)
        client.put_object(Bucket=BUCKET, Key=job.prefix + key, Body=body)


def _taught(name: str, link: ShapedLink, end: _End, purse: Purse) -> _Taught:
    folder = end.directory / "teacher"
    folder.mkdir()
    with contextlib.closing(_client(name, link, replace(end, directory=folder), purse)) as client:
        return _tune(client, link)


def _judge(name: str, link: ShapedLink, end: _End, purse: Purse, *, taught: _Taught | None) -> Row:
    """Probes first, so that the advice knows nothing of the grid; then the grid, then all finalists in turns."""
    default, is_over = link.unadvised(name), _after(PAIR_SECONDS_MAX)
    with contextlib.closing(_client(name, link, end, purse)) as client:
        client.move(default, is_told=False)  # opens files and caches; not counted
        tuner, advised, probing = taught or _tune(client, link)
        advised = _told(client, advised)
        screened, screening = _screen(client, link.grid)
        finalists = sorted(link.grid, key=lambda setting: -screened[setting])[:FINALIST_COUNT]
        named = _in_turns(client, finalists, default, lambda rounds: len(rounds) >= ROUND_COUNT)
        best = max(finalists, key=lambda setting: named[setting].bytes_per_second)
        # The default is told nothing, so it is kept apart from a point of the grid with the same numbers.
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


def _client(name: str, link: ShapedLink, end: _End, purse: Purse) -> Client:
    folder = end.directory / f"{name}-files"
    folder.mkdir()
    command = [sys.executable, "-m", "bench.real_clients", name, "--endpoint-url", end.url]
    command += ["--region", servers.REGION, "--bucket", BUCKET, "--folder", str(folder)]
    if name in PROGRAMS:
        try:
            command += ["--program", str(PROGRAMS[name]())]
        except (provision.ToolMissingError, provision.BuildError) as trouble:
            raise NotMeasuredError(str(trouble)) from trouble
    return Client(name, link, command, log=end.directory / f"{name}.log", purse=purse)


@dataclass(frozen=True, slots=True)
class _Effort:
    moved_bytes: int
    seconds: float  # of transfers


_Taught: TypeAlias = tuple[PenstockTuner, BenchSetting, _Effort]


def _tune(client: Client, link: ShapedLink) -> _Taught:
    """The advice after a few transfers, each chosen after the one before it."""
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
    """The setting as the client takes it: s5cmd has parts of whole MiB, and a small object is one request in any."""
    if client.link.object_count > 1:
        return client.link.whole(setting.thread_count)
    if client.name != "s5cmd":
        return setting
    size = ceil(setting.request_size_bytes / MiB) * MiB
    return client.link.transfer.setting(setting.thread_count, size)


def _screen(client: Client, grid: Sequence[BenchSetting]) -> tuple[dict[BenchSetting, float], _Effort]:
    """Every point of the grid once, in an order of chance."""
    before, seconds, found = client.moved_bytes, 0.0, {}
    for setting in random.Random(_SEED).sample(grid, len(grid)):
        observation = client.move(setting)
        seconds += observation.duration_seconds
        found[setting] = observation.throughput_bytes_per_second
    return found, _Effort(client.moved_bytes - before, seconds)


_Rounds: TypeAlias = Sequence[Mapping[Any, float]]  # the rate of each setting, round by round


def _in_turns(
    client: Client,
    settings: Sequence[BenchSetting | None],
    default: BenchSetting,
    is_enough: Callable[[_Rounds], bool],
) -> dict[BenchSetting | None, Measured]:
    """Each setting once a round, in an order of chance; None is the default, which is told nothing."""
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
    """Whether so much time went by since now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _is_settled(rounds: _Rounds, *, is_over: bool = False) -> bool:
    """Whether the advice and the best, the last two where they differ, are told apart well enough, or for too long."""
    least, most = DUEL_ROUND_COUNTS[0], DUEL_ROUND_COUNTS[0 if is_over else 1]
    if not least <= len(rounds) < most:
        return len(rounds) >= most
    told = [setting for setting in rounds[0] if setting is not None]
    one, other = ([each[setting] for each in rounds] for setting in (told[0], told[-1]))
    low, high = _ratio_interval(one, other)
    return high <= DUEL_WIDTH * low


def _ratio_interval(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The 90 % interval of the ratio of medians, by drawing whole rounds again."""
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
    """Rate, threads, and MiB of a request where objects are split."""
    setting = measured.setting
    size = f" x {setting.request_size_bytes / MiB:.3g}" if is_split else ""
    return f"{measured.bytes_per_second / 1e6:.2f} ({setting.thread_count}{size})"


if __name__ == "__main__":
    run(long="--long" in sys.argv)
