"""Knows what can be wrong with a daemon and its host, and what to do about it: THE TABLE of checks is `CHECKS`.

Each check looks at a `Patient` and yields its findings. Permissions are tried as each operation's row defines.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import re
import resource
import struct
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from penstock.client.targets.stores import STORES_BY_NAME
from penstock.daemon import host, instance
from penstock.daemon.config_files import LoadedConfiguration
from penstock.daemon.instance import HostIdentity
from penstock.daemon.memory.database import holder
from penstock.daemon.spending.tariffs import Tariffs, is_aws
from penstock.models.prices import GB
from penstock.operations.operation import Outside, Service, Ward
from penstock.probes.finding import NO_ANSWER, NO_CREDENTIALS, Finding, Health
from penstock.probes.outside import RequestError
from penstock.units import MiB, counted, format_bytes, format_seconds, number
from penstock.vocabulary import UNKNOWN

_DAEMON_BYTES = 300 * MiB  # memory of the daemon and its fitting process, beside that of a probe
_DESCRIPTORS_BESIDE = 64  # files, the database and child processes, beside connections
_CLOCK_ERROR_SECONDS_MAX = 1.0
_TIME_ERROR = 5  # returned by adjtimex when the clock is not synchronised
_TIMEX_BYTES, _MAXERROR_AT = 256, 24
_SDKS = ("aiobotocore", "botocore")
_CHOICES_OF_ENDPOINTS = {"UseFIPS": "use_fips_endpoint", "UseDualStack": "use_dualstack_endpoint"}
_UNIT = "penstock.service"
_SYSTEMD_SECONDS_MAX = 10.0
_CHEAPER_WAYS: Mapping[Service, str] = {  # cheaper than the assumed one
    Service.S3: "by a gateway endpoint, or from a public address, bytes cost nothing",
    Service.SQS: "from a public address bytes cost nothing, by an interface endpoint little; SQS has no gateway",
}


@dataclass(frozen=True, kw_only=True)
class Patient:
    """Everything that the checks look at."""

    loaded: LoadedConfiguration
    identity: HostIdentity
    socket_path: str  # where the daemon was asked
    status: Mapping[str, Any] | None  # the daemon's own status; None where no daemon answers
    silence: Finding | None = None  # where something holds the socket and does not answer
    root: Path = Path("/")
    unit: Callable[[], Mapping[str, str]]  # properties of the systemd unit; empty without systemd
    clock_error_seconds: Callable[[], float | None]  # None where the clock is not synchronised

    @cached_property
    def tariffs(self) -> Tariffs:
        """The network paths and prices, as the daemon would use them."""
        return Tariffs(self.loaded.configuration, self.identity)


def _versions(patient: Patient) -> Iterator[Finding]:
    own = version("penstock")
    running = own if patient.status is None else patient.status["version"]
    if running != own:
        sentence = f"the running daemon is version {running}, but version {own} is installed"
        yield Finding("versions", Health.POOR, sentence, _start_again(patient))
        return
    sdks = ", ".join(f"{name} {version(name)}" for name in _SDKS)
    yield Finding("versions", Health.WELL, f"penstock {own}, Python {platform.python_version()}, {sdks}")


def _start_again(patient: Patient) -> str:
    return f"systemctl restart {_UNIT}" if patient.unit() else "start penstockd again"


def _configuration(patient: Patient) -> Iterator[Finding]:
    for warning in patient.loaded.warnings():
        yield Finding("configuration", Health.POOR, str(warning), "penstock config check")
    for sentence in patient.loaded.endpoints_of_environment():
        yield Finding("configuration", Health.WELL, sentence)
    enabled = [row.name for row, _ in patient.loaded.configuration.enabled()]
    running = None if patient.status is None else {each["operation"] for each in patient.status["contexts"]}
    if running is not None and running != set(enabled):
        read = ", ".join(map(str, patient.loaded.files)) or "no file"
        sentence = (
            f"the configuration read here ({read}) probes {', '.join(enabled) or 'nothing'}, but the "
            f"running daemon probes {', '.join(sorted(running)) or 'nothing'}"
        )
        remedy = "name the daemon's own file (--config), or run `penstock reload` if it has changed"
        yield Finding("configuration", Health.POOR, sentence, remedy)
    elif enabled:
        yield Finding(
            "configuration",
            Health.WELL,
            f"{', '.join(enabled)} {'is' if len(enabled) == 1 else 'are'} probed",
        )
    else:
        remedy = "set is_enabled in a [probes] section of /etc/penstock/penstock.toml"
        yield Finding("configuration", Health.POOR, "nothing is probed", remedy)


def _daemon(patient: Patient) -> Iterator[Finding]:
    path, database = patient.socket_path, patient.loaded.configuration.daemon.database_path
    if patient.silence is not None:
        yield patient.silence
        return
    if patient.status is None and (process := holder(database)) is not None:
        remedy = (
            f"systemctl restart penstock.socket {_UNIT}"
            if patient.unit()
            else f"name the socket it listens on (--socket); where it was removed, kill -HUP {process} makes it again"
        )
        sentence = f"penstockd (process {process}) works on {database}, and nobody answers on {path}"
        yield Finding("daemon", Health.ILL, sentence, remedy)
        return
    if patient.status is None:
        service = f"systemctl enable --now penstock.socket {_UNIT}, and see journalctl -u penstock"
        remedy = (
            service
            if patient.unit()
            else "start penstockd, or name the socket of the one that runs (--socket)"
        )
        yield Finding("daemon", Health.ILL, f"nobody answers on {path}", remedy)
        return
    yield Finding("daemon", Health.WELL, f"it answers on {path}, and is {patient.status['activity']}")
    for trouble in patient.status["troubles"]:
        yield Finding(trouble["subject"], Health.ILL, trouble["sentence"])


def _service(patient: Patient) -> Iterator[Finding]:
    unit = patient.unit()
    if not unit:
        yield Finding("unit", Health.UNKNOWN, "there is no systemd to ask")
    elif unit.get("LoadState") != "loaded":
        remedy = "sudo penstock service install"
        yield Finding("unit", Health.POOR, f"{_UNIT} is not installed: nothing starts the daemon", remedy)
    elif unit.get("NeedDaemonReload") == "yes":
        yield Finding(
            "unit", Health.POOR, f"{_UNIT} has changed since systemd read it", "systemctl daemon-reload"
        )
    elif unit.get("ActiveState") != "active":
        sentence = f"{_UNIT} is {unit.get('ActiveState', UNKNOWN)}"
        yield Finding("unit", Health.ILL, sentence, f"systemctl status {_UNIT}")
    elif unit.get("UnitFileState") != "enabled":
        remedy = f"systemctl enable penstock.socket {_UNIT}"
        yield Finding("unit", Health.POOR, f"{_UNIT} runs, but does not start with the host", remedy)
    else:
        yield Finding("unit", Health.WELL, f"{_UNIT} runs, and starts with the host")


def _leftovers(patient: Patient) -> Iterator[Finding]:
    if patient.status is None:
        remedy = "penstock leftovers list"
        yield Finding("leftovers", Health.UNKNOWN, "no daemon tells", remedy)
    elif remark := patient.status["leftover_remark"]:
        yield Finding("leftovers", Health.POOR, remark, "penstock leftovers remove")
    else:
        yield Finding("leftovers", Health.WELL, "probes left nothing behind that could not be removed")


def _fleet(patient: Patient) -> Iterator[Finding]:
    section = patient.loaded.configuration.fleet
    if not section.bucket:
        yield Finding("fleet", Health.WELL, "no bucket is named: this host learns alone")
        return
    if UNKNOWN in {patient.identity.region, patient.identity.instance_type}:
        sentence = "the bucket is not used: other hosts cannot learn from a host of unknown region or type"
        yield Finding("fleet", Health.POOR, sentence, "set host.region and host.instance_type")
        return
    told = patient.status.get("fleet") if patient.status is not None else None
    if told is None:
        yield Finding("fleet", Health.UNKNOWN, "no daemon tells")
    elif told["trouble"] is not None or (told["visited_at"] and told["is_writing"] != section.may_write):
        remedy = "allow it as docs/fleet.md shows, or set fleet.may_write = false where hosts only read"
        yield Finding("fleet", Health.POOR, told["sentence"], remedy)
    else:
        yield Finding("fleet", Health.WELL, told["sentence"])


def _clock(patient: Patient) -> Iterator[Finding]:
    error = patient.clock_error_seconds()
    remedy = "run chronyd or systemd-timesyncd: SQS refuses requests whose clock is 5 minutes off, S3 15"
    if error is None:
        yield Finding("clock", Health.POOR, "nothing synchronises the clock", remedy)
    elif error > _CLOCK_ERROR_SECONDS_MAX:
        yield Finding("clock", Health.POOR, f"the clock may be off by {format_seconds(error)}", remedy)
    else:
        yield Finding("clock", Health.WELL, f"synchronised to within {format_seconds(error)}")


def _metadata(patient: Patient) -> Iterator[Finding]:
    identity = patient.identity
    known = f"{identity.region}, {identity.instance_type}"
    if UNKNOWN not in {identity.region, identity.instance_type}:
        status = patient.status or {"region": identity.region, "instance_type": identity.instance_type}
        if (running := f"{status['region']}, {status['instance_type']}") != known:
            sentence = f"{known} as it is asked here ({identity.sentence}), and the daemon goes by {running}"
            yield Finding("host", Health.POOR, sentence, _start_again(patient))
        else:
            yield Finding("host", Health.WELL, f"{known}: {identity.sentence}")
        return
    remedy = (
        "set host.region and host.instance_type, or unset AWS_EC2_METADATA_DISABLED on EC2"
        if identity.sentence == instance.METADATA_DISABLED
        else "set host.region and host.instance_type; in a container on EC2 the metadata need a hop limit of 2 "
        "(aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2)"
    )
    health = Health.ILL if identity.region == UNKNOWN else Health.POOR
    yield Finding("host", health, f"{known}: {identity.sentence}", remedy)


def _allowances(patient: Patient) -> Iterator[Finding]:
    counters = host.sample(patient.root).allowance_exceeded
    exceeded = {name.removesuffix("_allowance_exceeded"): count for name, count in counters.items() if count}
    if not counters:
        yield Finding("network allowance", Health.UNKNOWN, "no ENA adapter reports what it held back")
    elif exceeded:
        told = ", ".join(f"{counted(count, 'packet')} by {name}" for name, count in exceeded.items())
        sentence = f"the instance held packets back since it started: {told}"
        yield Finding(
            "network allowance", Health.POOR, sentence, "use a larger instance type, or send less at a time"
        )
    else:
        yield Finding("network allowance", Health.WELL, "the instance held no packet back since it started")


def _limits(patient: Patient) -> Iterator[Finding]:
    unit, database = patient.unit(), patient.loaded.configuration.daemon.database_path
    group = unit.get("ControlGroup") or _group_of(holder(database) or ("" if unit else "self"), patient.root)
    folder = patient.root / "sys/fs/cgroup" / group.strip("/")
    enabled = [section for _, section in patient.loaded.configuration.enabled()]
    needed = _DAEMON_BYTES + max((section.memory_bytes_max or 0 for section in enabled), default=0)
    limits = [*_memory_limits(folder, patient.root / "sys/fs/cgroup"), *_stated_limits(unit)]
    limit = min(limits, default=None)
    if limit is not None and limit < needed:
        sentence = (
            f"probes and daemon need up to {format_bytes(needed)}, but may use only {format_bytes(limit)}"
        )
        yield Finding("memory", Health.POOR, sentence, "lower memory_bytes_max of the probes, or allow more")
    else:
        told = "there is no limit" if limit is None else f"the limit is {format_bytes(limit)}"
        yield Finding(
            "memory", Health.WELL, f"probes and daemon need up to {format_bytes(needed)}, and {told}"
        )
    throttled = re.search(r"^nr_throttled (\d+)$", host.text_of(folder / "cpu.stat"), re.MULTILINE)
    if throttled and int(throttled.group(1)):
        sentence = (
            f"a CPU quota has stopped it {counted(int(throttled.group(1)), 'time')}: probes measure that"
        )
        yield Finding("processor", Health.POOR, sentence, "use CPUWeight in place of CPUQuota")


def _pools(patient: Patient) -> Iterator[Finding]:
    daemon, enabled = patient.loaded.configuration.daemon, list(patient.loaded.configuration.enabled())
    pools = {
        service: max((s.connection_count_max for row, s in enabled if row.service is service), default=0)
        for service in Service
    }
    needed = daemon.connection_count_max + sum(pools.values()) + _DESCRIPTORS_BESIDE
    stated = patient.unit().get("LimitNOFILE", "")
    limit = int(stated) if stated.isdigit() else resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    told = ", ".join(
        f"{counted(count, 'connection')} to {service}" for service, count in pools.items() if count
    )
    if 0 <= limit < needed:
        sentence = f"{needed} files may have to be open at a time, but only {limit} are allowed"
        yield Finding(
            "pools", Health.POOR, sentence, "raise LimitNOFILE, or lower daemon.connection_count_max"
        )
    else:
        yield Finding(
            "pools", Health.WELL, f"room for {told or 'no probe'}, and {daemon.connection_count_max} clients"
        )


def _ways(patient: Patient) -> Iterator[Finding]:
    for row, section in patient.loaded.configuration.enabled():
        way = patient.tariffs.ways[row.name]
        for region in patient.tariffs.regions(section):
            subject, price = f"{row.name} in {region}", patient.tariffs.of(row, region)
            stored_usd = GB * price.usd_per_stored_byte_day / 24
            stored = f" (${number(stored_usd)} of it for an hour of storage)" if stored_usd else ""
            sentence = (
                f"the route is {way.path} ({way.reason}), at ${number(GB * price.usd_per_sent_byte)} for a GB that "
                f"is sent{stored} and ${number(GB * price.usd_per_received_byte)} for one that is received"
            )
            if way.is_assumed:
                remedy = f"state probes.{row.name}.network_path: {_CHEAPER_WAYS[row.service]}"
                yield Finding(subject, Health.POOR, sentence, remedy)
            elif UNKNOWN not in {region, patient.identity.region} != {region}:
                yield Finding(subject, Health.POOR, f"{sentence}; it is in another region, which costs money")
            else:
                yield Finding(subject, Health.WELL, sentence)
            if proxies := getproxies():  # the SDK's endpoint rules are read only for these
                aws = patient.loaded.configuration.aws
                endpoint = aws.endpoint_urls[row.service] or _endpoint(row.service, region, aws.profile)
                yield from _between(subject, endpoint, proxies)


def _endpoint(service: Service, region: str, profile: str) -> str:
    """The URL that the SDK would use, with its choice of FIPS and dual stack; empty where there is no such endpoint."""
    from botocore import exceptions, loaders, session
    from botocore.endpoint_provider import EndpointProvider

    is_chosen = dict.fromkeys(_CHOICES_OF_ENDPOINTS, False)
    # Mistakes in those files are reported where credentials are looked for.
    with contextlib.suppress(exceptions.BotoCoreError, OSError):
        files = session.Session(profile=profile or None)
        is_chosen = {
            name: bool(files.get_config_variable(key)) for name, key in _CHOICES_OF_ENDPOINTS.items()
        }
    loader = loaders.create_loader()
    rules = EndpointProvider(
        loader.load_service_model(service, "endpoint-rule-set-1"), loader.load_data("partitions")
    )
    with contextlib.suppress(exceptions.EndpointProviderError):  # such as FIPS where there is none
        return str(rules.resolve_endpoint(Region=region, **is_chosen).url)
    return ""


def _between(subject: str, endpoint: str, proxies: Mapping[str, str]) -> Iterator[Finding]:
    """The proxy of the environment that the SDK would use for this endpoint, if any."""
    url = urlsplit(endpoint)
    if url.scheme in proxies and not proxy_bypass(host_name := url.netloc):
        name = urlsplit("//" + re.split("//|@", proxies[url.scheme])[-1]).hostname  # without a password
        sentence = (
            f"requests to {host_name} go through a proxy ({name}): that is what probes measure, and load"
        )
        remedy = f"name {host_name} in NO_PROXY where applications use no proxy; else lower thread_count_max"
        yield Finding(subject, Health.POOR, sentence, remedy)


def _store(patient: Patient) -> Iterator[Finding]:
    """Which store is behind S3."""
    aws = patient.loaded.configuration.aws
    if (store := aws.store) is not None:
        told = "takes the checksums" if store.has_checksums else "refuses the checksums"
        sentence = f"{store.title}: clients are told that it {told} which SDKs of AWS add"
        yield Finding("store", Health.WELL, sentence)
    elif aws.s3_endpoint_url and not is_aws(aws.s3_endpoint_url):
        remedy = f"state aws.s3_store if it is one of {', '.join(STORES_BY_NAME)}"
        sentence = (
            f"{aws.s3_endpoint_url} does not tell which store it is, so none of its own rules are known"
        )
        yield Finding("store", Health.UNKNOWN, sentence, remedy)
    else:
        yield Finding("store", Health.WELL, "S3 is that of AWS")


CHECKS: tuple[Callable[[Patient], Iterator[Finding]], ...] = (
    _versions,
    _configuration,
    _daemon,
    _service,
    _leftovers,
    _fleet,
    _clock,
    _metadata,
    _allowances,
    _limits,
    _pools,
    _ways,
    _store,
)


async def permissions(patient: Patient, outside: Outside) -> AsyncIterator[Finding]:
    """Try each action of each probed operation in each region, with the least possible effect."""
    for row, section in patient.loaded.configuration.enabled():
        for region in patient.tariffs.regions(section):
            ward = Ward(
                outside=outside,
                region=region,
                host_name=instance.host_name(),
                subject=f"{row.name} in {region}",
            )
            hopeless = {NO_CREDENTIALS, NO_ANSWER}  # then all further actions would fail, too
            told = set[tuple[str, str]]()  # remedies and causes that were yielded
            try:
                async for finding in row.try_permissions(section, ward):
                    why = finding.remedy, finding.cause or finding.sentence
                    if why not in told:
                        yield finding
                    told.add(why)
                    if finding.remedy in hopeless:
                        break
                    hopeless = {NO_CREDENTIALS}  # the service answers, and what was created must be removed
            except RequestError as trouble:  # before any action
                yield Finding(ward.subject, Health.ILL, str(trouble), NO_CREDENTIALS)


def unit_properties() -> Mapping[str, str]:
    """The systemd unit's properties; empty where there is no systemd."""
    try:
        told = subprocess.run(  # noqa: S603 - as it stands here
            ["systemctl", "show", _UNIT],  # noqa: S607 - wherever it is
            capture_output=True,
            text=True,
            timeout=_SYSTEMD_SECONDS_MAX,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(line.split("=", 1) for line in told.splitlines() if "=" in line)


def clock_error_seconds() -> float | None:
    """The kernel's bound on the error of its clock; None where nothing synchronises it."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zero: ask, and change nothing
    state = ctypes.CDLL(None).adjtimex(timex)
    if state in {-1, _TIME_ERROR}:
        return None
    (microseconds,) = struct.unpack_from("l", timex, _MAXERROR_AT)
    return float(microseconds) / 1e6


def _memory_limits(folder: Path, top: Path) -> Iterator[int]:
    """The memory limits of a control group and of its parents, in bytes."""
    for group in (folder, *folder.parents):
        text = host.text_of(group / "memory.max").strip()
        if text.isdigit():
            yield int(text)
        if group == top:
            return


def _stated_limits(unit: Mapping[str, str]) -> Iterator[int]:
    """The memory limits that the unit states, in bytes, also while it does not run."""
    for name in ("MemoryHigh", "MemoryMax"):
        if (stated := unit.get(name, "")).isdigit():
            yield int(stated)


def _group_of(process: str, root: Path) -> str:
    """The path of the process's control group in the unified hierarchy; empty where it has none."""
    found = re.search(r"^0::(.+)$", host.text_of(root / f"proc/{process}/cgroup"), re.MULTILINE)
    return found.group(1) if found else ""
