"""What the doctor sees on a host, and what it says to do."""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.daemon import doctor, host, instance
from penstock.daemon.config_files import LoadedConfiguration, load
from penstock.daemon.doctor import CHECKS, Patient
from penstock.daemon.instance import HostIdentity
from penstock.daemon.memory.store import Store
from penstock.operations.table import setting_types
from penstock.probes.finding import Finding, Health
from penstock.probes.outside import Barred, Denied, Forbidden, Refused, RequestError
from tests.integration.scripted_advisor import NO_CREDENTIALS, a_status
from tests.unit.daemon.house import Outside

RUNNING = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "UnitFileState": "enabled",
    "NeedDaemonReload": "no",
    "LimitNOFILE": "8192",
    "ControlGroup": "/system.slice/penstock.service",
}
IDENTITY = HostIdentity(
    region="eu-west-1", instance_type="m7i.large", sentence="told", is_instance=True, has_public_address=True
)
PROBES = """
[probes.s3_upload]
is_enabled = true
bucket = "my-bucket"
network_path = "gateway-endpoint"
"""


def configured(folder: Path, text: str = PROBES) -> LoadedConfiguration:
    """From a file."""
    (folder / "penstock.toml").write_text(text)
    return load(folder / "penstock.toml", root=folder)


def findings(folder: Path, **changes: Any) -> list[Finding]:
    """Of a host where all is well but for these."""
    patient = a_patient(folder, **changes)
    return [finding for check in CHECKS for finding in check(patient)]


def finding_on(subject: str, folder: Path, **changes: Any) -> Finding:
    """The one on this subject."""
    (found,) = (finding for finding in findings(folder, **changes) if finding.subject == subject)
    return found


def a_patient(folder: Path, configuration: str = PROBES, **changes: Any) -> Patient:
    """A host where all is well but for these."""
    (folder / "root").mkdir(exist_ok=True)
    healthy: dict[str, Any] = {
        "loaded": configured(folder, configuration),
        "identity": IDENTITY,
        "socket_path": "/run/elsewhere.sock",
        "status": a_status(),
        "root": folder / "root",
        "unit": lambda: RUNNING,
        "clock_error_seconds": lambda: 0.01,
    }
    return Patient(**(healthy | changes))


@pytest.mark.parametrize(
    ("endpoint", "stated", "told"),
    [
        ("", "auto", "of AWS"),
        ("https://bucket.vpce-1.s3.eu-west-1.vpce.amazonaws.com", "auto", "of AWS"),
        ("http://rgw.internal", "auto", "does not tell which store it is"),
        ("http://rgw.internal", "ceph", "refuses the checksums"),
        ("https://0a.r2.cloudflarestorage.com", "auto", "takes the checksums"),
    ],
)
def test_the_store_is_named(tmp_path: Path, endpoint: str, stated: str, told: str) -> None:
    """And where it cannot be, what to state."""
    text = f'{PROBES}\n[aws]\ns3_endpoint_url = "{endpoint}"\ns3_store = "{stated}"\n'
    found = finding_on("store", tmp_path, configuration=text)
    assert told in found.sentence
    assert bool(found.remedy) == (found.health is Health.UNKNOWN)


def test_endpoints_of_the_environment_are_looked_at_like_those_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions are tried there, so that nothing of it is AWS."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    found = findings(tmp_path, configuration="[probes.sqs_delivery]\nis_enabled = true\n")
    told = "\n".join(finding.sentence for finding in found)
    assert "the route is private" in told
    assert "http://127.0.0.1:9000 does not tell which store it is" in told
    assert "SQS is http://127.0.0.1:9000, as AWS_ENDPOINT_URL of the environment says" in told


@pytest.mark.parametrize(("spared", "is_told"), [("", True), (".amazonaws.com", False)])
def test_a_proxy_on_the_way_is_named(
    spared: str, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is measured in the place of S3, and others use it; what it is entered with is nobody's business."""
    monkeypatch.setenv("HTTPS_PROXY", "http://user:password@proxy.corp:3128")
    monkeypatch.setenv("NO_PROXY", spared)
    told = [f.sentence for f in findings(tmp_path) if "proxy" in f.sentence]
    assert bool(told) == is_told
    assert all("(proxy.corp)" in sentence and "s3.eu-west-1.amazonaws.com" in sentence for sentence in told)


@pytest.mark.parametrize(
    ("region", "domain"),
    [
        ("cn-north-1", "amazonaws.com.cn"),
        ("us-gov-west-1", "amazonaws.com"),
        ("eusc-de-east-9", "amazonaws.eu"),
        ("xx-new-1", "amazonaws.com"),
    ],
)
def test_a_proxy_is_said_to_be_on_the_way_to_the_regions_own_domain(
    region: str, domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In China it was looked for under a name that S3 does not have there, and NO_PROXY was told to spare that."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    identity = replace(IDENTITY, region=region)
    told = [f for f in findings(tmp_path, identity=identity) if "proxy" in f.sentence]
    assert [f"s3.{region}.{domain} " in f.remedy for f in told] == [True]
    monkeypatch.setenv("NO_PROXY", f".{domain}")
    assert not [f for f in findings(tmp_path, identity=identity) if "proxy" in f.sentence]


@pytest.mark.parametrize(
    ("variable", "region", "hosts"),
    [
        ("AWS_USE_FIPS_ENDPOINT", "us-east-1", ["s3-fips.{}.amazonaws.com", "sqs-fips.{}.amazonaws.com"]),
        ("AWS_USE_FIPS_ENDPOINT", "us-gov-west-1", ["s3-fips.{}.amazonaws.com", "sqs.{}.amazonaws.com"]),
        ("AWS_USE_FIPS_ENDPOINT", "cn-north-1", ["sqs-fips.{}.amazonaws.com.cn"]),  # of S3 there is none
        ("AWS_USE_DUALSTACK_ENDPOINT", "us-east-1", ["s3.dualstack.{}.amazonaws.com", "sqs.{}.api.aws"]),
        # A profile that is missing.
        ("AWS_PROFILE", "us-east-1", ["s3.{}.amazonaws.com", "sqs.{}.amazonaws.com"]),
    ],
)
def test_a_proxy_is_on_the_way_to_the_endpoint_that_the_sdk_chooses(
    variable: str, region: str, hosts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_PROXY was told to spare a name that nobody asked for, and the one that is asked for went unsaid."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    monkeypatch.setenv(variable, "true")
    identity = replace(IDENTITY, region=region)
    both = f"{PROBES}\n[probes.sqs_delivery]\nis_enabled = true\n"
    found = findings(tmp_path, configuration=both, identity=identity)
    told = [finding.remedy for finding in found if "go through a proxy" in finding.sentence]
    for remedy, name in zip(told, hosts, strict=True):
        assert f"name {name.format(region)} in NO_PROXY" in remedy


def test_files_of_the_sdk_that_cannot_be_parsed_end_no_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with them is told of the credentials; the endpoint is then the usual one."""
    (tmp_path / "broken").write_text("no section")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "broken"))
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    assert any("s3.eu-west-1.amazonaws.com in NO_PROXY" in found.remedy for found in findings(tmp_path))


def test_a_proxy_is_spared_by_a_port_too_and_known_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_PROXY may name a port, which the SDK heeds; a slash in a password ends no name."""
    monkeypatch.setenv("HTTP_PROXY", "http://user:pass/word@proxy.corp:3128")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://store.corp:9000")
    (told,) = (f.sentence for f in findings(tmp_path) if "proxy" in f.sentence)
    assert "requests to store.corp:9000 go through a proxy (proxy.corp)" in told
    monkeypatch.setenv("NO_PROXY", "store.corp:9000")
    assert not [f for f in findings(tmp_path) if "proxy" in f.sentence]


def test_what_is_probed_is_said_of_one_and_of_two(tmp_path: Path) -> None:
    """One is, and two are."""
    both = f"{PROBES}\n[probes.sqs_delivery]\nis_enabled = true\n"
    one, two = (
        finding_on("configuration", tmp_path, configuration=text, status=None).sentence
        for text in (PROBES, both)
    )
    assert one == "s3_upload is probed"
    assert two == "s3_upload, sqs_delivery are probed"


def test_a_free_way_is_not_priced_without_saying_what_for(tmp_path: Path) -> None:
    """What is put is stored for an hour, which the page of the configuration says as well."""
    found = finding_on("s3_upload in eu-west-1", tmp_path)
    told = "$0.0000319 for a GB that is sent ($0.0000319 of it for an hour of storage) and $0 for one"
    assert told in found.sentence
    assert "$0.0000319 a GB" in (Path(__file__).parents[3] / "docs/configuration.md").read_text("utf-8")


def test_ways_are_advised_that_the_service_has(tmp_path: Path) -> None:
    """There is no gateway endpoint of SQS, and the configuration would refuse it."""
    text = "[probes.sqs_delivery]\nis_enabled = true\n[probes.s3_upload]\nis_enabled = true\nbucket = 'my-bucket'\n"
    identity = HostIdentity(region="eu-west-1", instance_type="i", sentence="")
    told = {f.subject: f.remedy for f in findings(tmp_path, configuration=text, identity=identity)}
    assert "by a gateway endpoint" in told["s3_upload in eu-west-1"]
    assert "SQS has no gateway" in told["sqs_delivery in eu-west-1"]
    assert "interface endpoint" in told["sqs_delivery in eu-west-1"]


def group_file(folder: Path, name: str, text: str, group: str = "system.slice/penstock.service") -> None:
    """Of a control group."""
    path = folder / "root/sys/fs/cgroup" / group / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_where_all_is_well_nothing_is_to_be_done(tmp_path: Path) -> None:
    """No remedy but for what cannot be seen, and each check says something."""
    found = findings(tmp_path)
    assert {finding.subject: finding.remedy for finding in found if finding.health != Health.WELL} == {
        "network allowance": ""
    }
    assert len(found) == len(CHECKS)


@pytest.mark.parametrize("status", [None, a_status()])
def test_the_daemon_is_named_by_where_it_was_asked(status: dict[str, Any] | None, tmp_path: Path) -> None:
    """Not by where this configuration would have it: PENSTOCK_SOCKET may say otherwise."""
    told = [f.sentence for f in findings(tmp_path, status=status) if f.subject == "daemon"]
    assert "on /run/elsewhere.sock" in told[0]


@pytest.mark.parametrize(
    ("changes", "subject", "health", "remedy"),
    [
        ({"status": a_status() | {"version": "0.0.9"}}, "versions", Health.POOR, "systemctl restart"),
        (
            {"configuration": "", "status": a_status() | {"contexts": []}},
            "configuration",
            Health.POOR,
            "is_enabled",
        ),
        ({"configuration": "", "status": None}, "configuration", Health.POOR, "is_enabled"),
        ({"configuration": ""}, "configuration", Health.POOR, "(--config)"),
        ({"status": a_status() | {"contexts": []}}, "configuration", Health.POOR, "penstock reload"),
        ({"status": None}, "daemon", Health.ILL, "systemctl enable --now"),
        ({"status": None, "unit": dict}, "daemon", Health.ILL, "start penstockd, or name the socket"),
        (
            {"status": a_status() | {"version": "0.0.9"}, "unit": dict},
            "versions",
            Health.POOR,
            "start penstockd",
        ),
        (
            {"status": a_status() | {"leftover_remark": "3 things"}},
            "leftovers",
            Health.POOR,
            "leftovers remove",
        ),
        ({"unit": lambda: RUNNING | {"LoadState": "not-found"}}, "unit", Health.POOR, "service install"),
        ({"unit": lambda: RUNNING | {"ActiveState": "failed"}}, "unit", Health.ILL, "systemctl status"),
        ({"unit": lambda: RUNNING | {"UnitFileState": "disabled"}}, "unit", Health.POOR, "systemctl enable"),
        ({"unit": lambda: RUNNING | {"NeedDaemonReload": "yes"}}, "unit", Health.POOR, "daemon-reload"),
        ({"unit": lambda: RUNNING | {"LimitNOFILE": "1024"}}, "pools", Health.POOR, "LimitNOFILE"),
        ({"status": a_status(instance_type="unknown")}, "host", Health.POOR, "systemctl restart"),
        ({"clock_error_seconds": lambda: None}, "clock", Health.POOR, "chronyd"),
        ({"clock_error_seconds": lambda: 5.0}, "clock", Health.POOR, "chronyd"),
        (
            {"identity": HostIdentity(region="unknown", instance_type="unknown", sentence="no answer")},
            "host",
            Health.ILL,
            "hop limit",
        ),
        (
            {"configuration": PROBES.replace('network_path = "gateway-endpoint"', "")}
            | {
                "identity": HostIdentity(region="eu-west-1", instance_type="i", sentence="", is_instance=True)
            },
            "s3_upload in eu-west-1",
            Health.POOR,
            "network_path",
        ),
        ({"configuration": f"{PROBES}regions = ['us-east-1']"}, "s3_upload in us-east-1", Health.POOR, ""),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(
    tmp_path: Path, changes: dict[str, Any], subject: str, health: Health, remedy: str
) -> None:
    """One row for each thing that can be wrong."""
    found = finding_on(subject, tmp_path, **changes)
    assert found.health is health
    assert remedy in found.remedy


async def test_metadata_that_are_kept_from_being_asked_need_no_hop_limit(tmp_path: Path) -> None:
    """The way to them is not what is wrong."""
    environment = {"AWS_EC2_METADATA_DISABLED": "true"}
    identity = await instance.identify(configured(tmp_path).configuration.host, environment)
    found = finding_on("host", tmp_path, identity=identity)
    assert "AWS_EC2_METADATA_DISABLED" in found.sentence
    assert "unset AWS_EC2_METADATA_DISABLED" in found.remedy
    assert "hop limit" not in found.remedy


def test_troubles_of_the_daemon_are_findings(tmp_path: Path) -> None:
    """In its own words, which say what to do."""
    found = findings(tmp_path, status=a_status() | {"troubles": [NO_CREDENTIALS]})
    assert Finding(NO_CREDENTIALS["subject"], Health.ILL, NO_CREDENTIALS["sentence"]) in found


def test_memory_without_a_limit_is_said_so(tmp_path: Path) -> None:
    """What is needed, and that nothing bounds it."""
    sentence = finding_on("memory", tmp_path).sentence
    assert sentence.startswith("probes and daemon need up to ")
    assert sentence.endswith(", and there is no limit")


def test_limits_of_the_control_group_are_seen(tmp_path: Path) -> None:
    """Also those of a group around it; a quota that stopped it is told."""
    group_file(tmp_path, "memory.max", "max\n")
    group_file(tmp_path, "memory.max", f"{512 << 20}\n", "system.slice")
    group_file(tmp_path, "cpu.stat", "nr_periods 9\nnr_throttled 7\n")
    found = {finding.subject: finding for finding in findings(tmp_path)}
    assert "512 MiB" in found["memory"].sentence
    assert found["memory"].health is Health.POOR
    assert "7 times" in found["processor"].sentence


def test_limits_of_a_service_are_seen_that_does_not_run(tmp_path: Path) -> None:
    """Those of the shell in which the doctor was asked were told in their place."""
    group_file(tmp_path, "memory.max", f"{2 << 20}\n", "user.slice")
    (tmp_path / "root/proc/self").mkdir(parents=True)
    (tmp_path / "root/proc/self/cgroup").write_text("0::/user.slice\n")
    ended = RUNNING | {"ActiveState": "inactive", "ControlGroup": "", "MemoryMax": "infinity"}
    stated = ended | {"MemoryHigh": f"{512 << 20}"}
    told = [finding_on("memory", tmp_path, unit=lambda unit=unit: unit) for unit in (ended, stated)]
    assert [found.health for found in told] == [Health.WELL, Health.POOR]
    assert "there is no limit" in told[0].sentence
    assert "512 MiB" in told[1].sentence


def test_limits_of_a_daemon_are_seen_that_no_unit_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its own control group, wherever the doctor is."""
    group_file(tmp_path, "memory.max", f"{512 << 20}\n", "daemons")
    (tmp_path / "root/proc/77").mkdir(parents=True)
    (tmp_path / "root/proc/77/cgroup").write_text("0::/daemons\n")
    monkeypatch.setattr(doctor, "holder", lambda _database: "77")
    found = finding_on("memory", tmp_path, unit=dict)
    assert (found.health, "512 MiB" in found.sentence) == (Health.POOR, True)


def test_packets_that_the_instance_held_back_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names of the ENA driver."""
    counters = {"bw_out_allowance_exceeded": 1234, "pps_allowance_exceeded": 0}
    monkeypatch.setattr(host, "sample", lambda _root: host.HostSample(allowance_exceeded=counters))
    found = finding_on("network allowance", tmp_path)
    assert (found.health, "1,234 packets by bw_out" in found.sentence) == (Health.POOR, True)


def test_the_kernel_is_asked_about_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is changed: what is passed in is zero. A state of 5 is a clock that nobody synchronises."""

    class Library:
        def __init__(self, state: int) -> None:
            self.state = state

        def adjtimex(self, timex: Any) -> int:
            assert not any(timex.raw)
            struct.pack_into("l", timex, 24, 250_000)
            return self.state

    for state, expected in ((0, 0.25), (5, None), (-1, None)):
        monkeypatch.setattr("ctypes.CDLL", lambda _name, state=state: Library(state))
        assert doctor.clock_error_seconds() == expected


def test_a_daemon_without_its_socket_is_not_called_absent(tmp_path: Path) -> None:
    """Somebody removed the socket, or it is elsewhere: another daemon would only be refused the database."""
    text = f'{PROBES}\n[daemon]\nstate_directory = "{tmp_path}"\n'
    absent = finding_on("daemon", tmp_path, configuration=text, status=None)
    with contextlib.closing(Store(tmp_path / "penstock.db", setting_types())):
        mute = finding_on("daemon", tmp_path, configuration=text, status=None, unit=dict)
    assert "enable --now" in absent.remedy
    assert f"penstockd (process {os.getpid()}) works on {tmp_path}/penstock.db" in mute.sentence
    assert f"kill -HUP {os.getpid()}" in mute.remedy


def test_a_daemon_that_hangs_is_not_told_to_make_its_socket_again(tmp_path: Path) -> None:
    """Its socket is where it was looked for; what the silence itself says is what to do."""
    text = f'{PROBES}\n[daemon]\nstate_directory = "{tmp_path}"\n'
    silence = Finding(
        "daemon", Health.ILL, "the daemon accepts connections but does not answer", "see its log"
    )
    with contextlib.closing(Store(tmp_path / "penstock.db", setting_types())):
        assert finding_on("daemon", tmp_path, configuration=text, status=None, silence=silence) == silence


def test_without_systemd_nothing_is_known_of_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing fails."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert doctor.unit_properties() == {}


@pytest.mark.parametrize(
    ("fleet", "health"),
    [
        ({}, Health.WELL),
        (
            {"is_writing": False, "sentence": "it is read, and not written: the store ignores If-Match"},
            Health.POOR,
        ),
        ({"trouble": "the bucket does not exist"}, Health.POOR),
    ],
)
def test_a_fleet_that_this_host_should_write_for_and_cannot(
    tmp_path: Path, fleet: dict[str, Any], health: Health
) -> None:
    """It learns alone, or from others, and whoever configured it to tell others hears that it does not."""
    status = a_status()
    status["fleet"] |= fleet
    configuration = f'{PROBES}\n[fleet]\nbucket = "my-fleet"\nmay_write = true\n'
    assert finding_on("fleet", tmp_path, configuration=configuration, status=status).health is health


@pytest.mark.parametrize(
    ("bucket", "kind", "finding_count"),
    [
        ("bucket", Barred, 1),
        ("bucket", Refused, 1),
        ("bucket", Denied, 4),
        ("bucket", Forbidden, 4),
        ("probe--euw1-az1--x-s3", Denied, 1),
    ],
)
async def test_what_is_in_the_way_of_every_action_is_told_once(
    tmp_path: Path, bucket: str, kind: type[RequestError], finding_count: int
) -> None:
    """A clock, or a region, that is wrong is wrong for all; what a policy denies has to be allowed one by one."""
    outside = Outside()
    outside.objects.trouble = lambda action, _count: kind("what is wrong", doing=action)
    is_directory = bucket != "bucket"
    section = PROBES.replace("my-bucket", bucket) + ('service_class = "express"\n' if is_directory else "")
    patient = a_patient(tmp_path, section)
    ill = [finding async for finding in doctor.permissions(patient, outside)]
    assert len(ill) == finding_count
    assert {finding.health for finding in ill} == {Health.ILL}
    assert len({finding.remedy for finding in ill}) == finding_count
