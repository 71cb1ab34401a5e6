"""Knows every key of the configuration: type, default and bounds; and how to say all that is wrong at once.

Later files win, key by key:

    /usr/lib/penstock/*.toml  <  /etc/penstock/penstock.toml  <  /etc/penstock/penstock.d/*.toml

An endpoint that no file names is the one of the environment, if any: the SDK would use it, unpriced and unnamed.
Each file is checked by itself, so that a problem names the file it is in; the keys of all files are then laid
over each other as a flat table of dotted paths. Credentials have no key here: a profile is named, and the SDK
finds them.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from penstock.client.targets.stores import STORES_BY_NAME, Store, store_at
from penstock.daemon import quiet_hours, regions, sdk_environment
from penstock.fleet import limit as fleet_limit
from penstock.models.prices import service_price
from penstock.models.sqs.queue_class import class_of
from penstock.operations.operation import Operation, SectionT, Service
from penstock.operations.sections.section import Contradiction, Section
from penstock.operations.sections.values import (
    SECONDS_MAX,
    BucketName,
    Count,
    Directory,
    EndpointUrl,
    Fraction,
    KeyPrefix,
    Kind,
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
from penstock.operations.sqs.delivery import DELIVERY
from penstock.operations.table import OPERATIONS
from penstock.units import GiB, UnitError, parse_bytes, parse_seconds
from penstock.vocabulary import FREE

MAIN_FILE = Path("/etc/penstock/penstock.toml")
VENDOR_DIRECTORY = Path("/usr/lib/penstock")
DEFAULT_ORIGIN = "default"
AUTO = "auto"
_OF_ENVIRONMENT = "the environment"
_ENDPOINT_KEYS = {Service.S3: "aws.s3_endpoint_url", Service.SQS: "aws.sqs_endpoint_url"}


class DaemonSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[daemon]: where it lives and how it speaks."""

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
        """The local socket."""
        return Path(self.runtime_directory) / "penstock.sock"

    @property
    def snapshot_path(self) -> Path:
        """The file that holds all current advice."""
        return Path(self.runtime_directory) / "recommendations.json"

    @property
    def database_path(self) -> Path:
        """What was measured and advised."""
        return Path(self.state_directory) / "penstock.db"

    @property
    def socket_mode_bits(self) -> int:
        """The permissions of the socket as a number."""
        return int(self.socket_mode, 8)


class HostSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[host]: what this machine is, when it cannot or should not be asked."""

    region: Region = AUTO
    instance_type: Name = AUTO
    imds_endpoint_url: EndpointUrl = "http://169.254.169.254"


class AwsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[aws]: which services, and whose credentials by name. Empty means the SDK's own choice."""

    profile: str = ""
    s3_endpoint_url: EndpointUrl = ""
    s3_store: Literal["auto", "r2", "minio", "ceph", "b2", "gcs"] = "auto"
    sqs_endpoint_url: EndpointUrl = ""
    connect_timeout_seconds: Seconds = 5.0
    read_timeout_seconds: Seconds = 30.0

    @property
    def endpoint_urls(self) -> Mapping[Service, str]:
        """By service; empty where it is that of AWS."""
        return {Service.S3: self.s3_endpoint_url, Service.SQS: self.sqs_endpoint_url}

    @property
    def store(self) -> Store | None:
        """What S3 is here, as stated or as its endpoint tells; None for AWS, and where nothing tells."""
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
        """[probes]: when, and a table for each operation, by its name."""

        quiet_hours: tuple[str, ...] = ()

        def __init__(self, **sections: Section) -> None: ...

        def __getattr__(self, operation: str) -> Any:  # the section of the operation's own type
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
    """[watched_queue]: an application's own queue, of which only attributes are read."""

    name: QueueName = ""
    region: Region = AUTO
    interval_seconds: WatchInterval = 15.0
    delete_rate_messages_per_second: MessageRate = 0.0

    @property
    def request_count_per_day(self) -> int:
        """The most that watching takes in 24 hours."""
        return math.ceil(86400.0 / self.interval_seconds) + 10 if self.name else 0

    @property
    def service_class(self) -> str:
        """By which its requests are priced."""
        return class_of(self.name)

    @property
    def usd_per_day_min(self) -> float:
        """What these requests cost, whichever way they take."""
        price = service_price(Service.SQS.value, self.service_class)
        return self.request_count_per_day * price.usd_per_write_request

    def region_or(self, home_region: str) -> str:
        """Where the queue is."""
        return home_region if self.region == AUTO else self.region


class ListenSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[listen]: where SDKs of this host may tell what their applications do."""

    is_enabled: bool = False
    address: Literal["127.0.0.1", "::1"] = "127.0.0.1"
    port: Port = 31000
    latency_increase_seconds_max: Seconds = 0.1


SharedLimitText: TypeAlias = Annotated[
    str,
    bounds(
        f'a name, the operations that count and what is borne, such as "backups: {next(iter(OPERATIONS))} at 3500/s"',
        pattern=fleet_limit.PATTERN,
    ),
]


class FleetSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[fleet]: the bucket in which hosts tell each other what they measured. Without one, each learns alone."""

    bucket: BucketName = ""
    region: Region = AUTO
    key_prefix: KeyPrefix = "penstock-fleet/"
    may_write: bool = False
    prober_count: Annotated[int, bounds("a whole number from 0 to 64", ge=0, le=64)] = 0
    shared_limits: tuple[SharedLimitText, ...] = ()

    def region_or(self, home_region: str) -> str:
        """Where the bucket is."""
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
    """[advice]: how long it holds and what it rests on."""

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
        """What is said of this operation."""
        section: SectionT = getattr(self.probes, row.name)
        return section

    def sections(self) -> Iterator[tuple[Operation[Any, Any], Section]]:
        """All operations, each with its section."""
        return ((row, self.section_of(row)) for row in OPERATIONS.values())

    def enabled(self) -> Iterator[tuple[Operation[Any, Any], Section]]:
        """The operations that are probed, each with its section."""
        return ((row, section) for row, section in self.sections() if section.is_enabled)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it is, what was found, what was expected."""

    file: str
    key: str  # the dotted path; empty when the file itself is the problem
    sentence: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        return f"{where}: {self.sentence}"


class ConfigError(Exception):
    """The configuration cannot be used; `problems` holds every mistake in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class LoadedConfiguration:
    """A configuration and which file each of its values came from."""

    configuration: Configuration
    origins: Mapping[str, str]  # by dotted path; what is not here is a default
    files: tuple[Path, ...]  # in the order in which they were laid over each other

    def warnings(self) -> list[Problem]:
        """What may well be a mistake, and may be newer than this penstock: regions that nobody has heard of."""
        return [
            Problem(
                self.origins.get(key, DEFAULT_ORIGIN),
                key,
                f'found "{name}", which is no region that the SDK knows{regions.hint(name)}',
            )
            for key, name in _aws_regions(self.configuration)
            if not regions.is_known(name)
        ]

    def endpoints_of_environment(self) -> list[str]:
        """A sentence for each endpoint that no file names: whoever starts the daemon may have another environment."""
        return [
            f"{service.value.upper()} is {self.configuration.aws.endpoint_urls[service]}, as {origin} says: "
            f"a daemon that is started without it uses AWS, unless {key} names it"
            for service, key in _ENDPOINT_KEYS.items()
            if (origin := self.origins.get(key, "")).endswith(_OF_ENVIRONMENT)
        ]

    def effective(self) -> dict[str, Any]:
        """Every key by section as ``{"value": ..., "origin": ...}``, as JSON (hence Any)."""
        return self._table(self.configuration, "")

    def _table(self, section: Struct, prefix: str) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for field in msgspec.structs.fields(section):
            value, path = getattr(section, field.name), prefix + field.name
            if isinstance(value, Struct):
                rows[field.name] = self._table(value, path + ".")
            else:
                plain = list(value) if isinstance(value, tuple) else value
                rows[field.name] = {"value": plain, "origin": self.origins.get(path, DEFAULT_ORIGIN)}
        return rows


def load(
    main_file: Path | None = None, *, root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> LoadedConfiguration:
    """Read all files and lay them over each other. Raises ConfigError with every mistake.

    A `main_file` that is named must exist; the default one need not. `root` stands before the default paths. What is
    read of `environment` are the endpoints that the SDK would take from it.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    files = list(_files(main_file, root, problems))
    for file in files:
        leaves = _read_file(file, problems)
        values.update(leaves)
        origins.update(dict.fromkeys(leaves, str(file)))
    for service, variable, url in sdk_environment.endpoints(environment):
        key = _ENDPOINT_KEYS[service]
        if not values.get(key):
            origins[key] = f"{variable} of {_OF_ENVIRONMENT}"
            try:
                values[key] = _read_value(url, EndpointUrl)
            except ValueError as error:
                problems.append(Problem(origins[key], key, str(error)))
    configuration = _build(Configuration, values, "")
    unreadable = {problem.key for problem in problems} - origins.keys()  # a default stands in for them
    for wrong in _contradictions(configuration):
        if wrong.key not in unreadable:
            origin = next((origins[k] for k in (wrong.key, *wrong.because) if k in origins), DEFAULT_ORIGIN)
            problems.append(Problem(origin, wrong.key, wrong.sentence))
    if problems:
        raise ConfigError(problems)
    return LoadedConfiguration(configuration, origins, tuple(files))


def all_keys(section: type[Struct] = Configuration, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every dotted path with its default and its type, in the order of declaration (Any: each its own)."""
    hints = get_type_hints(section, include_extras=True)
    for field in msgspec.structs.fields(section):
        hint = hints[field.name]
        if _is_section(hint):
            yield from all_keys(hint, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, field.default, hint


def expectation(hint: Any) -> str:
    """What a key of this type expects, in words (Any: a type hint)."""
    kind = _kind(hint)
    if kind is not None:
        return kind.expected
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in get_args(hint))
    if get_origin(hint) is tuple:
        return f"a list, each {expectation(get_args(hint)[0])}"
    return {bool: "true or false", str: "text in quotes"}[hint]


def _files(main_file: Path | None, root: Path, problems: list[Problem]) -> Iterator[Path]:
    yield from sorted((root / VENDOR_DIRECTORY.relative_to("/")).glob("*.toml"))
    main = main_file or root / MAIN_FILE.relative_to("/")
    if main.exists():
        yield main
    elif main_file is not None:
        problems.append(
            Problem(str(main), "", "there is no such file; name one with --config, or leave it out")
        )
    yield from sorted(main.with_suffix(".d").glob("*.toml"))


def _read_file(file: Path, problems: list[Problem]) -> dict[str, Any]:
    """The valid values of one file by dotted path; what is wrong goes to `problems`."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(Problem(str(file), "", f"it cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        problems.append(Problem(str(file), "", f"it is not UTF-8 text (byte {error.start})"))
    except tomllib.TOMLDecodeError as error:
        problems.append(_syntax_problem(file, str(error)))
    except RecursionError:
        problems.append(Problem(str(file), "", "it is nested deeper than any configuration"))
    except ValueError:  # that the others are, too: Python reads no integer of more than some thousand digits
        problems.append(Problem(str(file), "", "it has a number that is longer than any that is meant"))
    else:
        return dict(_read_table(Configuration, table, "", str(file), problems))
    return {}


def _syntax_problem(file: Path, message: str) -> Problem:
    position = re.search(r" ?\(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if position is None or position.group(1) is None:
        return Problem(str(file), "", f"not TOML: {message}")
    place = f"{file}:{position.group(1)}:{position.group(2)}"
    return Problem(place, "", f"not TOML: {message[: position.start()]}")


def _read_table(
    section: type[Struct], table: Mapping[str, Any], prefix: str, file: str, problems: list[Problem]
) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(section, include_extras=True)
    for key, raw in table.items():
        path = prefix + key
        if key not in section.__struct_fields__:
            problems.append(Problem(file, path, _unknown_key(key, section)))
        elif not _is_section(hints[key]):
            try:
                yield path, _read_value(raw, hints[key])
            except ValueError as error:
                problems.append(Problem(file, path, str(error)))
        elif isinstance(raw, dict):
            yield from _read_table(hints[key], raw, path + ".", file, problems)
        else:
            problems.append(Problem(file, path, f"found {_shown(raw)}; expected a table, [{path}]"))


def _unknown_key(key: str, section: type[Struct]) -> str:
    import difflib

    if re.search("secret|password|token|access_?key|credential", key, re.IGNORECASE):
        return "unknown key; credentials never belong in the configuration: name a profile in aws.profile"
    names = section.__struct_fields__
    close = (
        difflib.get_close_matches(key, names, n=1, cutoff=0.6)
        or [n for n in names if n.startswith(key + "_")][:1]
    )
    if close:
        return f"unknown key; did you mean {close[0]}?"
    elsewhere = [path for path, _, _ in all_keys() if path.rpartition(".")[2] == key]
    if elsewhere:
        return f"unknown key here; did you mean {elsewhere[0]}?"
    return f"unknown key; expected one of {', '.join(names)}"


def _read_value(raw: Any, hint: Any) -> Any:
    """The value as the type says, or a ValueError that speaks to the operator (Any: raw TOML)."""
    try:
        return _convert(raw, hint)
    except UnitError as error:
        raise ValueError(str(error)) from None
    except msgspec.ValidationError:
        raise ValueError(f"found {_shown(raw)}; expected {_expectation_of(raw, hint)}") from None


def _convert(raw: Any, hint: Any) -> Any:
    kind = _kind(hint)
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(bare) is tuple and isinstance(raw, list):
        return msgspec.convert(tuple(_convert(item, get_args(bare)[0]) for item in raw), hint)
    if kind is not None and kind.parse is not None and isinstance(raw, str):
        number = kind.parse(raw)
        raw = round(number) if bare is int else number
    if isinstance(raw, float) and not math.isfinite(raw):
        raise msgspec.ValidationError("not finite")
    return msgspec.convert(raw, hint)


def _expectation_of(raw: Any, hint: Any) -> str:
    """Of a list whose elements are wrong, what each element should be."""
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(bare) is tuple and isinstance(raw, list) and raw:
        return f"a list, each {expectation(get_args(bare)[0])}"
    return expectation(hint)


def _shown(raw: Any) -> str:
    """A found value, as TOML writes it, cut short; the user part of a URL is never repeated."""
    if isinstance(raw, str) and "@" in raw:
        return f'a URL at "{urlsplit(raw).hostname or "?"}" with a user name'
    text = json.dumps(raw, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _build(section: type[Struct], values: Mapping[str, Any], prefix: str) -> Any:
    """The section from the flat table (Any: mypy cannot follow a Struct chosen at run time)."""
    hints = get_type_hints(section)
    arguments: dict[str, Any] = {}
    for name in section.__struct_fields__:
        path = prefix + name
        if _is_section(hints[name]):
            arguments[name] = _build(hints[name], values, path + ".")
        elif path in values:
            arguments[name] = values[path]
    return section(**arguments)


def _contradictions(configuration: Configuration) -> Iterator[Contradiction]:
    """Values that are fine alone and wrong together."""
    for name, row in OPERATIONS.items():
        yield from configuration.section_of(row).contradictions(f"probes.{name}")
    yield from _misplaced(configuration)
    if quiet_hours.fill_the_day(map(quiet_hours.parse, configuration.probes.quiet_hours)):
        yield Contradiction("probes.quiet_hours", "they fill the day, so that nothing would ever be probed")
    for key, name in _aws_regions(configuration):
        if not regions.looks_like_a_region(name):
            expected = 'expected the name of a region, such as "eu-central-1"'
            yield Contradiction(key, f'found "{name}"; {expected}{regions.hint(name)}')
    yield from _starved(configuration)
    yield from _of_fleet(configuration)
    watched = configuration.watched_queue
    for key, most in (
        ("budget.usd_per_day", configuration.budget.usd_per_day),
        (f"probes.{DELIVERY.name}.usd_per_day", configuration.section_of(DELIVERY).usd_per_day),
    ):
        if watched.usd_per_day_min > most:
            need, limit = f"${watched.usd_per_day_min:.3g}", f"${most:.3g}"
            sentence = f"watching takes {need} a day, and {key} allows {limit}: ask less often"
            yield Contradiction("watched_queue.interval_seconds", sentence, ("watched_queue.name", key))


def _misplaced(configuration: Configuration) -> Iterator[Contradiction]:
    """A store that is stated where something else is, and what it does not have."""
    key, endpoint = "aws.s3_store", "aws.s3_endpoint_url"
    aws, store = configuration.aws, configuration.aws.store
    if store is None:
        return
    seen = store_at(aws.s3_endpoint_url)
    if not aws.s3_endpoint_url:
        sentence = f'found "{store.name}"; expected {endpoint} as well: without it S3 is that of AWS'
        yield Contradiction(key, sentence)
    elif seen not in {None, store}:
        sentence = f'found "{store.name}"; {endpoint} is that of {seen.title if seen else ""}'
        yield Contradiction(key, sentence, (endpoint,))
    for row, section in configuration.sections():
        if row.service is Service.S3 and section.service_class == "express":
            sentence = f'found "express"; {store.title} has no directory buckets'
            yield Contradiction(f"probes.{row.name}.service_class", sentence, (key, endpoint))


def _of_fleet(configuration: Configuration) -> Iterator[Contradiction]:
    fleet = configuration.fleet
    if "{" in fleet.bucket:
        yield Contradiction(
            "fleet.bucket", f'found "{fleet.bucket}"; expected one bucket for all regions, without braces'
        )
    if fleet.may_write and not fleet.bucket:
        yield Contradiction(
            "fleet.bucket", "missing; expected the name of a bucket, because fleet.may_write is true"
        )
    if fleet.shared_limits and not fleet.bucket:
        yield Contradiction(
            "fleet.bucket", "missing; hosts that share fleet.shared_limits see each other in a bucket"
        )
    shared = [fleet_limit.parse(text) for text in fleet.shared_limits]
    if len({limit.name for limit in shared}) < len(shared) or len(shared) > fleet_limit.LIMIT_COUNT_MAX:
        most = fleet_limit.LIMIT_COUNT_MAX
        yield Contradiction("fleet.shared_limits", f"expected no name twice, and no more than {most} of them")
    for limit in shared:
        if unknown := sorted(set(limit.operations) - OPERATIONS.keys()):
            known = ", ".join(OPERATIONS)
            yield Contradiction(
                "fleet.shared_limits", f'found "{unknown[0]}" in {limit.name}; expected some of {known}'
            )
        if not limit.requests_per_second:
            yield Contradiction("fleet.shared_limits", f"{limit.name} bears 0/s; expected more")
    for row, section in configuration.sections():
        theirs = getattr(section, "key_prefix", "")
        if fleet.bucket and theirs and fleet.key_prefix.startswith(theirs):
            sentence = f'found "{fleet.key_prefix}", below which probes.{row.name}.key_prefix is swept'
            yield Contradiction("fleet.key_prefix", sentence)


def _aws_regions(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """The regions of AWS that are named, with their keys; where an endpoint is named, its regions are its own."""
    aws = configuration.aws
    endpoints = aws.endpoint_urls
    for row, section in configuration.sections():
        if not endpoints[row.service]:
            yield from ((f"probes.{row.name}.regions", name) for name in section.regions)
    at_home = [row.service for row, section in configuration.enabled() if not section.regions]
    if not all(endpoints[service] for service in at_home or endpoints):
        yield from (("host.region", name) for name in (configuration.host.region,) if name != AUTO)
    watched = configuration.watched_queue
    if watched.name and watched.region != AUTO and not aws.sqs_endpoint_url:
        yield "watched_queue.region", watched.region
    if configuration.fleet.bucket and configuration.fleet.region != AUTO and not aws.s3_endpoint_url:
        yield "fleet.region", configuration.fleet.region


_NEEDED = {
    "transferred_bytes": "transferred_bytes_per_day",
    "request_count": "request_count_per_day",
    "usd": "usd_per_day",
    "duration_seconds": "duty_cycle_fraction",
}


def _starved(configuration: Configuration) -> Iterator[Contradiction]:
    """Budgets of nothing that a probe which is enabled needs something of: it would never run."""
    for row, section in configuration.enabled():
        path, because = f"probes.{row.name}", (f"probes.{row.name}.is_enabled",)
        for name, key in _NEEDED.items():
            needs = name != "transferred_bytes" or section.cost_max(FREE).transferred_bytes > 0
            if needs and not getattr(configuration.budget, key):
                sentence = f"found 0; a probe needs some of it, and {path}.is_enabled is true"
                yield Contradiction(f"budget.{key}", sentence, because)
        if section.usd_per_day == 0:
            sentence = "found 0; a probe costs something, and is_enabled is true"
            yield Contradiction(f"{path}.usd_per_day", sentence, because)


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def _kind(hint: Any) -> Kind | None:
    for item in getattr(hint, "__metadata__", ()):
        if isinstance(item, Meta) and item.extra:
            return item.extra["kind"]  # type: ignore[no-any-return]  # msgspec types `extra` as a plain dict
    return None
