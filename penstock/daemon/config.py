"""Knows every key of the configuration: its type, default and bounds.

There is no key for credentials: the configuration names a profile, and the SDK finds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from penstock.client.targets.stores import STORES_BY_NAME, Store, store_at
from penstock.daemon import quiet_hours
from penstock.fleet import limit as fleet_limit
from penstock.models.prices import service_price
from penstock.models.sqs.queue_class import class_of
from penstock.operations.operation import Operation, SectionT, Service
from penstock.operations.sections.section import Section
from penstock.operations.sections.values import (
    SECONDS_MAX,
    BucketName,
    Count,
    Directory,
    EndpointUrl,
    Fraction,
    KeyPrefix,
    MessageRate,
    Name,
    Port,
    QueueName,
    Region,
    Seconds,
    Seed,
    SocketMode,
    Usd,
    WatchInterval,
    bounds,
)
from penstock.operations.table import OPERATIONS
from penstock.units import GiB, parse_bytes, parse_seconds

AUTO = "auto"


class DaemonSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[daemon]: its directories, socket and log."""

    state_directory: Directory = "/var/lib/penstock"
    runtime_directory: Directory = "/run/penstock"
    socket_mode: SocketMode = "0666"
    control_group: Name = "penstock"
    seed: Seed = 0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "logfmt", "json"] = "auto"
    connection_count_max: Count = 2048
    connection_count_max_per_user: Count = 1280

    @property
    def socket_path(self) -> Path:
        return Path(self.runtime_directory) / "penstock.sock"

    @property
    def snapshot_path(self) -> Path:
        return Path(self.runtime_directory) / "recommendations.json"

    @property
    def database_path(self) -> Path:
        return Path(self.state_directory) / "penstock.db"


class HostSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[host]: the region and the instance type, where they cannot or should not be detected."""

    region: Region = AUTO
    instance_type: Name = AUTO
    imds_endpoint_url: EndpointUrl = "http://169.254.169.254"


class AwsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[aws]: the endpoints of the services, and the profile for credentials. Empty means the SDK's own choice."""

    profile: str = ""
    s3_endpoint_url: EndpointUrl = ""
    s3_store: Literal["auto", "r2", "minio", "ceph", "b2", "gcs"] = "auto"
    sqs_endpoint_url: EndpointUrl = ""
    connect_timeout_seconds: Seconds = 5.0
    read_timeout_seconds: Seconds = 30.0

    @property
    def endpoint_urls(self) -> Mapping[Service, str]:
        """The endpoint of each service; empty where it is AWS's."""
        return {Service.S3: self.s3_endpoint_url, Service.SQS: self.sqs_endpoint_url}

    @property
    def store(self) -> Store | None:
        """The store behind S3, as configured or as its endpoint shows; None for AWS or an unknown store."""
        return STORES_BY_NAME.get(self.s3_store) or store_at(self.s3_endpoint_url)


QuietSpan: TypeAlias = Annotated[
    str,
    bounds(
        'hours of the day with their zone, such as "08:00-18:00 local" or "22:30-06:00 UTC"',
        pattern=quiet_hours.PATTERN,
    ),
]

if TYPE_CHECKING:

    class ProbesSection(Struct, frozen=True):
        """[probes]: the quiet hours, and a table for each operation, by its name."""

        quiet_hours: tuple[str, ...] = ()

        def __init__(self, **sections: Section) -> None: ...

        def __getattr__(self, operation: str) -> Any:  # a section of the operation's own type
            ...

else:
    ProbesSection = msgspec.defstruct(
        "ProbesSection",
        [
            ("quiet_hours", tuple[QuietSpan, ...], ()),
            *((name, row.section_type, row.section_type()) for name, row in OPERATIONS.items()),
        ],
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


class WatchedQueueSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[watched_queue]: an application's own queue, of which only the attributes are read."""

    name: QueueName = ""
    region: Region = AUTO
    interval_seconds: WatchInterval = 15.0
    delete_rate_messages_per_second: MessageRate = 0.0

    @property
    def request_count_per_day(self) -> int:
        """The most requests that watching takes in 24 hours."""
        return math.ceil(86400.0 / self.interval_seconds) + 10 if self.name else 0

    @property
    def service_class(self) -> str:
        """The class of the queue, by which its requests are priced."""
        return class_of(self.name)

    @property
    def usd_per_day_min(self) -> float:
        """What these requests cost in 24 hours at least, whatever network path they take."""
        price = service_price(Service.SQS.value, self.service_class)
        return self.request_count_per_day * price.usd_per_write_request

    def region_or(self, home_region: str) -> str:
        return home_region if self.region == AUTO else self.region


class ListenSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[listen]: the local UDP port to which SDKs report what their applications do."""

    is_enabled: bool = False
    address: Literal["127.0.0.1", "::1"] = "127.0.0.1"
    port: Port = 31000
    latency_increase_seconds_max: Seconds = 0.1


SharedLimitText: TypeAlias = Annotated[
    str,
    bounds(
        f'a name, the operations that count and the limit, such as "backups: {next(iter(OPERATIONS))} at 3500/s"',
        pattern=fleet_limit.PATTERN,
    ),
]


class FleetSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[fleet]: the bucket in which hosts share what they measured. Without one, each host learns alone."""

    bucket: BucketName = ""
    region: Region = AUTO
    key_prefix: KeyPrefix = "penstock-fleet/"
    may_write: bool = False
    prober_count: Annotated[int, bounds("a whole number from 0 to 64", ge=0, le=64)] = 0
    shared_limits: tuple[SharedLimitText, ...] = ()

    def region_or(self, home_region: str) -> str:
        return home_region if self.region == AUTO else self.region


class BudgetSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[budget]: what all probes together may cost in any 24 hours."""

    transferred_bytes_per_day: Annotated[
        int, bounds('a size of at least 0, such as "64GiB"', parse=parse_bytes, ge=0)
    ] = 64 * GiB
    request_count_per_day: Annotated[int, bounds("a whole number of at least 0", ge=0)] = 100_000
    usd_per_day: Usd = 0.05
    credit_fraction_per_day: Fraction = 0.10
    duty_cycle_fraction: Fraction = 0.05
    host_cpu_fraction_max: Fraction = 0.50
    host_network_fraction_max: Fraction = 0.30


class AdviceSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[advice]: how long it is valid, and how many observations it uses."""

    validity_seconds: Seconds = 6 * 3600.0
    fit_observation_count_max: Annotated[int, bounds("a whole number from 10 to 1000", ge=10, le=1000)] = 100
    observation_retention_seconds: Annotated[
        float,
        bounds('a duration from 1h to 36500d, such as "90d"', parse=parse_seconds, ge=3600, le=SECONDS_MAX),
    ] = 90 * 86400.0


class Configuration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sections. `Configuration()` is what an empty file means."""

    daemon: DaemonSection = DaemonSection()
    host: HostSection = HostSection()
    aws: AwsSection = AwsSection()
    probes: ProbesSection = ProbesSection()
    watched_queue: WatchedQueueSection = WatchedQueueSection()
    listen: ListenSection = ListenSection()
    fleet: FleetSection = FleetSection()
    budget: BudgetSection = BudgetSection()
    advice: AdviceSection = AdviceSection()

    def section_of(self, row: Operation[SectionT, Any]) -> SectionT:
        section: SectionT = getattr(self.probes, row.name)
        return section

    def sections(self) -> Iterator[tuple[Operation[Any, Any], Section]]:
        return ((row, self.section_of(row)) for row in OPERATIONS.values())

    def enabled(self) -> Iterator[tuple[Operation[Any, Any], Section]]:
        """The operations that are probed, each with its section."""
        return ((row, section) for row, section in self.sections() if section.is_enabled)

    @property
    def thread_count_limits(self) -> dict[str, int]:
        """The most threads that the operator allows, by operation, for probes and for advice alike."""
        return {row.name: section.thread_count_max for row, section in self.sections()}

    @property
    def usd_limits(self) -> dict[str, float]:
        """What each operation may cost in 24 hours."""
        return {row.name: section.usd_per_day for row, section in self.sections()}
