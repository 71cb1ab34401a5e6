"""Knows what an experiment is: a table of plans for the ordinary probes, and what is computed from their records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from penstock.models.prices import NetworkPath, tariff
from penstock.models.s3.download import RANGE_SIZE_BYTES_MAX, RANGE_SIZE_BYTES_MIN, S3DownloadSetting
from penstock.models.s3.parts import PART_SIZE_BYTES_MAX, PART_SIZE_BYTES_MIN
from penstock.models.s3.read_objects import READ_OBJECT_PART_BYTES
from penstock.models.s3.upload import S3UploadSetting
from penstock.models.sqs.setting import PROBED_BYTES_MIN
from penstock.operations.s3.download import DOWNLOAD as DOWNLOADS
from penstock.operations.s3.upload import UPLOAD as UPLOADS
from penstock.probes.measurement import percentile
from penstock.probes.sqs.queue_application import OPERATION, OVERHEAD_REQUEST_COUNT, QueueDrive
from penstock.units import counted, number
from penstock.vocabulary import Cost, Setting, Tariff

UPLOAD, DOWNLOAD, QUEUE = UPLOADS.name, DOWNLOADS.name, OPERATION
_REGION = "us-east-1"
S3_TARIFF, SQS_TARIFF = (  # within a region, over an endpoint that is not billed
    tariff(service, "standard", NetworkPath.GATEWAY_ENDPOINT, home=_REGION, region=_REGION)
    for service in ("s3", "sqs")
)
HOUR, MINUTE = 3600.0, 60.0
MB = 1_000_000
GB = 1_000 * MB
CONDITION = "condition_"  # prefix of the conditions that a queue was planned for
HERE = "here"  # the place of this host, in labels that begin with a place
MESSAGE_RATE = 60.0  # messages per second that a plan pays for
CONNECTION_RATE_MIN = 0.25e6  # bytes per second; a slower connection does not complete a step


class Form(StrEnum):
    """How much of an experiment is run."""

    FULL = "full"  # as in the study
    SHORT = "short"  # a minute, to see that it works here
    LAB = "lab"  # in virtual time; fewer repetitions where the lab does not vary by day


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One plan of an experiment. Its label is unique, so that a run can be resumed."""

    label: str
    operation: str  # whose probe runs it
    world: str  # the calibrated place of the lab
    payload_size_bytes: int
    setting: Setting | QueueDrive
    cost_max: Cost
    body_count: int | None = None
    wait_seconds: float = 0.0  # before the step
    is_plain: bool | None = None  # without or with TLS; None: as the endpoint's URL says
    is_far: bool = False  # at the far end, if one is named
    copy_count: int = 1  # copies that run at the same time
    client: str = ""  # a ready-made client of `penstock tune`, in place of the probe
    # Processes that stand for hosts and make each copy's requests on real services; 0: the probe's own process.
    process_count: int = 0

    def usd(self, tariff: Tariff) -> float:
        """What one copy costs at most, in dollars; an object to be read has to be put first."""
        requests, moved = self.cost_max.request_count, self.cost_max.transferred_bytes
        if self.operation == UPLOAD:
            return tariff.usd(write_request_count=requests, sent_bytes=moved)
        if self.operation == QUEUE:
            return tariff.usd(write_request_count=requests, sent_bytes=moved, received_bytes=moved)
        return tariff.usd(
            read_request_count=requests,
            write_request_count=_putting_request_count(self.payload_size_bytes),
            sent_bytes=self.payload_size_bytes,
            received_bytes=moved,
        )

    @property
    def cost_of_all(self) -> Cost:
        """The most that all copies together cost at the same time, at prices within a region."""
        one, n = self.cost_max, self.copy_count
        return Cost(
            transferred_bytes=n * one.transferred_bytes,
            request_count=n * one.request_count,
            usd=n * self.usd(SQS_TARIFF if self.operation == QUEUE else S3_TARIFF),
            duration_seconds=one.duration_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The result of a step: numbers by name, and a queue's samples per second; or the reason why there is none."""

    label: str
    started_at: str  # ISO 8601
    values: Mapping[str, float] = field(default_factory=dict)
    samples: Sequence[Mapping[str, float]] = ()
    arrivals: Sequence[int] = ()
    addresses: Mapping[str, int] = field(default_factory=dict)  # requests by the address that answered them
    reason: str | None = None

    @property
    def last_word(self) -> str:
        """The last part of the label, often a number."""
        return self.label.rsplit("/", 1)[-1]

    @property
    def minutes(self) -> list[float]:
        """The time of each sample, in minutes."""
        return [seconds / 60.0 for seconds in self.column("at_seconds")]

    def column(self, name: str) -> list[float]:
        """One value of each sample."""
        return [sample[name] for sample in self.samples]

    @property
    def messages_per_second(self) -> float:
        """Messages received, without copies."""
        return self.values["received_count"] / self.values["duration_seconds"]

    @property
    def megabytes_per_second(self) -> float:
        """Over all copies."""
        return self.values["throughput_bytes_per_second"] / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address that answered requests: a row of the study's table 1."""

    address: str
    request_count: int
    first_seen_at: str  # ISO 8601: when the step began
    last_seen_at: str


class Records:
    """The records of a run so far, by label; `is_here` tells real services from the lab."""

    def __init__(self, records: Sequence[Record], *, is_here: bool = False, is_short: bool = False) -> None:
        self.is_here = is_here
        self.is_short = is_short
        self._by_label = {record.label: record for record in records if record.reason is None}
        self.troubles = {record.label: record.reason for record in records if record.reason is not None}

    def __len__(self) -> int:
        return len(self._by_label)

    def get(self, label: str) -> Record | None:
        """The record of one step, if it measured."""
        return self._by_label.get(label)

    def below(self, prefix: str) -> list[Record]:
        """The records whose labels begin so, in the order of the steps."""
        return [record for label, record in self._by_label.items() if label.startswith(prefix)]

    def addresses(self) -> list[Address]:
        """The addresses that answered, the most frequent first."""
        found: dict[str, list[Record]] = {}
        for record in self._by_label.values():
            for address in record.addresses:
                found.setdefault(address, []).append(record)
        rows = [
            Address(
                address=address,
                request_count=sum(record.addresses[address] for record in records),
                first_seen_at=min(record.started_at for record in records),
                last_seen_at=max(record.started_at for record in records),
            )
            for address, records in found.items()
        ]
        return sorted(rows, key=lambda row: (-row.request_count, row.address))

    def curve(self, prefix: str) -> dict[float, float]:
        """Megabytes per second by the number at the end of the label."""
        return {float(record.last_word): record.megabytes_per_second for record in self.below(prefix)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line or cloud of a figure."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    is_line: bool = True
    is_published: bool = False  # from the study's text; its drawings are not available


Curve = Mapping[int, float] | Mapping[float, float]


def curve_series(name: str, curve: Curve) -> Series:
    """A line through measured values."""
    return Series(name=name, x=list(curve), y=list(curve.values()))


def level(name: str, value: float, until: float, since: float = 0.0) -> Series:
    """A single published number, as a line over the whole range."""
    return published(name, [since, until], [value, value], is_line=True)


def published(name: str, x: Sequence[float], y: Sequence[float], *, is_line: bool = False) -> Series:
    """What a study says about this figure."""
    return Series(name=f"published, {name}", x=x, y=y, is_line=is_line, is_published=True)


def published_points(name: str, points: Curve, *, is_line: bool = False) -> Series:
    """The same, from a table."""
    return published(name, list(points), list(points.values()), is_line=is_line)


_SHARE_POINT_COUNT_MAX = 200


def shares(name: str, values: Sequence[float]) -> Series:
    """The cumulative distribution of sorted values."""
    every = max(1, len(values) // _SHARE_POINT_COUNT_MAX)
    at_most = [(index + 1) / len(values) for index in range(len(values))]
    return Series(name=name, x=values[::every], y=at_most[::every])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure as numbers: published points and today's."""

    title: str
    x_title: str
    y_title: str
    series: Sequence[Series]
    is_log_x: bool = False
    is_log_y: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of measurements like the study's; None where nothing was measured."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]

    def cells(self) -> list[list[str]]:
        return [[_cell(value) for value in row] for row in self.rows]


def _cell(value: str | float | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else number(value)


SCALED_DOWN = (
    "This was the short form, with fewer requests and smaller objects than the study: it shows that the experiment "
    "works here. Its differences from the published figures say nothing about the services."
)
SHORT_FORM = "short form"
TOO_LITTLE = "This run measured too little to answer what the study left open."

Quantities = Mapping[str, float]
"""Figures by their names in `facts.csv`; those that were not measured are absent."""


Intervals = Mapping[str, tuple[float, float]]
"""90 % intervals by the same names, for figures that are based on repetitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One published experiment, to be repeated."""

    name: str
    title: str
    study: str  # "000" to "004"
    section: str
    summary: str
    steps: Callable[[Form], Sequence[Step]]
    quantities: Callable[[Records], Quantities] = lambda _: {}
    intervals: Callable[[Records], Intervals] = lambda _: {}
    plots: Callable[[Records], Sequence[Plot]]
    grids: Callable[[Records], Sequence[Grid]] = lambda _: ()
    has_places: bool = False  # other hosts' measurements can be compared with it
    needs_endpoint: bool = False  # needs an endpoint of one's own: it is about another host, not about AWS
    answer: Callable[[Records], Sequence[str]]  # sentences about what the study only conjectures

    def answers(self, records: Records) -> Sequence[str]:
        """The answers; for real services those that this run supports, or that it measured too little."""
        found = self.answer(records) or ([TOO_LITTLE] if records.is_here else [])
        return [*[SCALED_DOWN] * records.is_short, *found, *_unmeasured_sentences(records)]

    def tables(self, records: Records) -> Sequence[Grid]:
        """Tables of what was measured; titles have the sizes of the study, which the short form does not."""
        grids = self.grids(records) if len(records) else ()
        return (
            [replace(grid, title=f"{grid.title} ({SHORT_FORM})") for grid in grids]
            if records.is_short
            else grids
        )

    def cost(self, form: Form, *, with_far: bool = True) -> Cost:
        """The most that it costs on real services, at both ends or only at this one."""
        total = Cost()
        for step in self.steps(form):
            if with_far or not step.is_far:
                total = total + step.cost_of_all + Cost(duration_seconds=step.wait_seconds)
        return total


def _unmeasured_sentences(records: Records) -> list[str]:
    """How many steps have no figure, and why the first has none."""
    if not records.troubles:
        return []
    label, reason = next(iter(records.troubles.items()))
    return [f"{counted(len(records.troubles), 'step')} measured nothing; the first, {label}: {reason}."]


def upload_step(
    label: str,
    world: str,
    size: int,
    threads: int,
    *,
    count: int | None = None,
    part_size_bytes: int | None = None,
    **rest: Any,
) -> Step:
    """`count` whole objects, each one request; or with a part size one object in all its parts."""
    setting = S3UploadSetting(
        thread_count=threads,
        part_size_bytes=part_size_bytes or min(max(size, PART_SIZE_BYTES_MIN), PART_SIZE_BYTES_MAX),
    )
    if count is None:
        count = math.ceil(size / setting.part_size_bytes)
    return Step(
        label=label,
        operation=UPLOAD,
        world=world,
        payload_size_bytes=size,
        setting=setting,
        cost_max=_cost(size if part_size_bytes is None else part_size_bytes, count, threads),
        body_count=count,
        **rest,
    )


def download_step(
    label: str,
    world: str,
    size: int,
    threads: int,
    *,
    count: int,
    duration_seconds: float | None = None,
    **rest: Any,
) -> Step:
    """`count` whole objects, each read in one request."""
    range_size_bytes = min(max(size, RANGE_SIZE_BYTES_MIN), RANGE_SIZE_BYTES_MAX)
    return Step(
        label=label,
        operation=DOWNLOAD,
        world=world,
        payload_size_bytes=size,
        setting=S3DownloadSetting(thread_count=threads, range_size_bytes=range_size_bytes),
        # One more, which is put so that it can be read.
        cost_max=_cost(size, count + 1, threads, seconds=duration_seconds, more=_putting_request_count(size)),
        body_count=count,
        **rest,
    )


def queue_step(
    label: str, world: str, drive: QueueDrive, *, seconds: float, rate: float = MESSAGE_RATE, **rest: Any
) -> Step:
    """Drive a queue for so many seconds; the plan pays for three requests per message at this rate, and a reserve."""
    requests = math.ceil(3 * rate * seconds) + 500 + OVERHEAD_REQUEST_COUNT
    return Step(
        label=label,
        operation=QUEUE,
        world=world,
        payload_size_bytes=PROBED_BYTES_MIN,
        setting=drive,
        cost_max=Cost(
            request_count=requests,
            transferred_bytes=10 * PROBED_BYTES_MIN * requests,
            duration_seconds=seconds,
        ),
        **rest,
    )


def _putting_request_count(size: int) -> int:
    """Requests to put an object in parts, look it up and remove it; at most half of a plan goes into putting."""
    return 2 * math.ceil(size / READ_OBJECT_PART_BYTES) + 16


def _cost(body_bytes: int, count: int, threads: int, *, seconds: float | None = None, more: int = 0) -> Cost:
    """The bodies once, and a reserve for the requests around them and for a few failures."""
    spare = 2 + threads // 8
    moved = body_bytes * (count + spare)
    if seconds is None:
        seconds = 120.0 + count / threads + moved / threads / CONNECTION_RATE_MIN
    return Cost(
        transferred_bytes=moved,
        request_count=2 * (count + spare) + 2 * threads + 8 + more,
        duration_seconds=seconds,
    )


def as_numbers(plots: Callable[[Records], Sequence[Plot]]) -> Callable[[Records], Sequence[Grid]]:
    """Tables of the figures' curves, for studies that published few numbers of them."""
    return lambda records: [
        _grid_of(plot) for plot in plots(records) if not all(one.is_published for one in plot.series)
    ]


def _grid_of(plot: Plot) -> Grid:
    curves = [(one.name, dict(zip(one.x, one.y, strict=True))) for one in plot.series if not one.is_published]
    return Grid(
        title=f"{plot.title}, {plot.y_title}",
        headings=(plot.x_title, *(name for name, _ in curves)),
        rows=[
            [x, *(curve.get(x) for _, curve in curves)]
            for x in sorted({x for _, curve in curves for x in curve})
        ],
    )


def quantile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that this fraction of values does not exceed."""
    return percentile(sorted(values), fraction)


def busiest(records: Sequence[Record]) -> float:
    """The highest processor demand of any process that made the records, as a fraction."""
    return max(record.values.get("client_cpu_demand_fraction", 0.0) for record in records)


def knee(curve: Mapping[float, float]) -> float:
    """The smallest number that carries at least 95 % of the maximum."""
    return min(n for n, rate in curve.items() if rate > 0.95 * max(curve.values()))


def enough(curve: Mapping[float, float], noun: str) -> str:
    """A sentence on how many are worth having here, unless each additional one brought more."""
    fewest, most = knee(curve), max(curve)
    told = counted(round(fewest), noun)
    if fewest < most:
        top = max(curve.values())
        return f"{told} carried {curve[fewest]:.1f} MB/s, and up to {most:.0f} never more than {top:.1f}"
    return f"{told}, the most that were tried, carried {curve[fewest]:.1f} MB/s; more may carry more"


def curve_plot(
    records: Records, title: str, prefix: str, names: Sequence[str], seeds: Sequence[Series] = ()
) -> Plot:
    """MB/s over threads, a curve for each name that was run, and the study's."""
    series = [curve_series(name, curve) for name in names if (curve := records.curve(f"{prefix}/{name}/"))]
    return Plot(title=title, x_title="threads", y_title="MB/s", series=[*series, *seeds])


def each_of(series: Sequence[Series]) -> list[Series]:
    """The same divided by the number at which each value is: what each thread or stream gets."""
    return [replace(one, y=[rate / n for n, rate in zip(one.x, one.y, strict=True)]) for one in series]
