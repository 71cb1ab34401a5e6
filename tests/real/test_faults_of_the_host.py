"""A running daemon, and what its own host does to it: disk, database, socket, clock, processors, memory, files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.trial.stage import CREDENTIALS, Process, process, status_of
from tests.daemon_house import DaemonHouse, has_measured
from tests.loopback import Answers, Server, serving
from tests.programs import descriptor_count, ran
from tests.real import provision
from tests.real.fault_proxy import FaultProxy, faulty_ways
from tests.real.servers import REGION
from tests.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

WAIT_SECONDS_MAX = 180.0


@pytest.fixture
def way(tmp_path: Path, s3_url: str, sqs_url: str, bucket: str) -> Iterator[tuple[DaemonHouse, FaultProxy]]:
    """A place for a daemon, and the way to its SQS; what it leaves outside is looked for at the end."""
    with faulty_ways(tmp_path, s3_url, sqs_url, bucket, wait_seconds_max=WAIT_SECONDS_MAX) as (house, ways):
        yield house, ways["sqs"]


@pytest.fixture
def house(way: tuple[DaemonHouse, FaultProxy]) -> DaemonHouse:
    """Where the way does not matter."""
    return way[0]


@contextlib.contextmanager
def started(
    house: DaemonHouse, wrapper: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """A daemon, run by another program, that answers."""
    command = [sys.executable, "-m", "penstock.daemon.main", "--config", str(house.configuration_file)]
    with process([*wrapper, *command], environment) as running:
        until(lambda: is_up(house, running))
        yield running


def is_up(house: DaemonHouse, running: Process) -> bool:
    """Whether it answers; raises when it is dead."""
    running.check()
    return status_of(house.socket_path) is not None


def measured(house: DaemonHouse) -> list[str]:
    """When what is in the database was begun."""
    with contextlib.closing(sqlite3.connect(house.directory / "state/penstock.db")) as books:
        return [at for (at,) in books.execute("SELECT started_at FROM observations ORDER BY started_at")]


def attempts(house: DaemonHouse) -> int:
    """Of all contexts, as the daemon tells them."""
    return sum(context["observation_count"] for context in house.ask("/v1/status")["contexts"])


def measures_again(house: DaemonHouse) -> None:
    """Three more than now."""
    before = attempts(house)
    house.wait_for(lambda status: sum(c["observation_count"] for c in status["contexts"]) >= before + 3)


def test_a_locked_database_is_waited_for(house: DaemonHouse) -> None:
    """Another program holds it: the socket answers, nothing is probed unwritten, and it goes on once it is free."""
    with house.daemon():
        house.wait_for(has_measured(1))
        with contextlib.closing(sqlite3.connect(house.directory / "state/penstock.db")) as other:
            other.execute("BEGIN EXCLUSIVE")
            house.wait_for(lambda status: "another program holds the database locked" in json.dumps(status))
            assert house.advice("s3_upload", "24MiB")["setting"]
            other.rollback()
        measures_again(house)


def test_a_database_that_is_deleted_is_begun_again(house: DaemonHouse) -> None:
    """What is measured after somebody removed the files is there for the next life."""
    with house.daemon():
        house.wait_for(has_measured(1))
        for file in (house.directory / "state").glob("penstock.db*"):
            if not file.name.endswith("lock"):
                file.unlink()
        moment = datetime.now(UTC).isoformat()
        measures_again(house)
    assert [at for at in measured(house) if at > moment]
    house.swept_by_next_life("s3_upload", "24MiB")


def test_a_database_that_is_overwritten_is_set_aside(house: DaemonHouse) -> None:
    """Garbage over the file of a running daemon: it answers, and the next life at the latest begins a new one."""
    state = house.directory / "state"
    with house.daemon() as running:
        house.wait_for(has_measured(1))
        for name in ("penstock.db", "penstock.db-wal"):
            with (state / name).open("r+b") as file:
                file.write(b"not a database".ljust((state / name).stat().st_size, b"x"))
        measures_again(house)
        running.check()
    house.swept_by_next_life("s3_upload", "24MiB")
    assert list(state.glob("penstock.db.corrupt-*"))


def test_a_socket_that_is_removed_is_there_again(house: DaemonHouse) -> None:
    """With the snapshot beside it."""
    with house.daemon():
        for name in ("penstock.sock", "recommendations.json"):
            (house.directory / "run" / name).unlink()
        until(lambda: status_of(house.socket_path) is not None)
        until((house.directory / "run/recommendations.json").exists)


def test_a_disk_that_fills_up_and_has_room_again(house: DaemonHouse) -> None:
    """Nothing is probed that could not be written down; with room again it goes on, and nothing was lost."""
    in_small_disk = ["unshare", "--mount", "sh", "-c"]
    mount = f'mount -t tmpfs -o size=3m tmpfs {house.directory}/state && exec "$@"'
    if subprocess.run([*in_small_disk, mount, "sh", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    with started(house, [*in_small_disk, mount, "sh"]) as running:
        house.wait_for(has_measured(1))
        inside = Path(f"/proc/{running.pid}/root{house.directory}/state")
        with contextlib.suppress(OSError), (inside / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        house.wait_for(lambda status: "the disk is full: free some space" in json.dumps(status))
        assert house.advice("s3_upload", "24MiB")["setting"]
        (inside / "filler").unlink()
        measures_again(house)


def test_a_read_only_state_is_named(house: DaemonHouse) -> None:
    """At the start, where nothing can be written: a sentence with the directory, and status 1."""
    read_only = f'mount --bind -o ro {house.directory}/state {house.directory}/state && exec "$@"'
    command = [sys.executable, "-m", "penstock.daemon.main", "--config", str(house.configuration_file)]
    ended = ran(["unshare", "--mount", "sh", "-c", read_only, "sh", *command], timeout=60)
    if "unshare" in ended.stderr or "mount:" in ended.stderr:
        pytest.skip(ended.stderr)
    assert ended.returncode == 1
    assert str(house.directory / "state") in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_minute_of_standing_still_is_no_measurement(house: DaemonHouse) -> None:
    """SIGSTOP in the midst of a probe: what it saw is not called a measurement, and it goes on."""
    with house.daemon() as running:
        house.wait_for(has_measured(1))
        house.wait_for(lambda status: status["activity"].startswith("probing"))
        os.kill(running.pid, signal.SIGSTOP)
        time.sleep(6.0)
        os.kill(running.pid, signal.SIGCONT)
        measures_again(house)
    with contextlib.closing(sqlite3.connect(house.directory / "state/penstock.db")) as books:
        documents = [json.loads(text) for (text,) in books.execute("SELECT document FROM observations")]
    assert max(document["duration_seconds"] for document in documents) < 6.0


def test_64_descriptors(house: DaemonHouse) -> None:
    """Where they do not reach for a probe's connections, that is what is said; who asks is answered."""
    text = house.configuration_file.read_text().replace("thread_count_max = 8", "thread_count_max = 256")
    house.configuration_file.write_text(text)
    with started(house, ["prlimit", "--nofile=64:64"]) as running:
        house.wait_for(has_measured(2))
        crowd = []
        for _ in range(100):  # more than there are descriptors for
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(5.0)
            one.connect(str(house.socket_path))
            crowd.append(one)
        time.sleep(1.0)
        for one in crowd:
            one.close()
        until(lambda: status_of(house.socket_path) is not None)
        measures_again(house)
        assert descriptor_count(running.pid) < 64


def test_what_fits_is_killed_for_want_of_memory(house: DaemonHouse) -> None:
    """Time and again, as the kernel would: it has to take what fits first, and the daemon goes on."""
    with house.daemon() as running:
        for _ in range(4):
            until(lambda: kill_first_to_go(running.pid))
            assert house.advice("s3_upload", "24MiB")["setting"]
        measures_again(house)
        running.check()


def kill_first_to_go(daemon_process_id: int) -> bool:
    """The child that the kernel would take; False while there is none."""
    for file in Path(f"/proc/{daemon_process_id}/task").glob("*/children"):
        for child in file.read_text().split():
            with contextlib.suppress(OSError):
                if int(Path(f"/proc/{child}/oom_score_adj").read_text()) == 1000:
                    os.kill(int(child), signal.SIGKILL)
                    return True
    return False


def test_a_name_that_is_lost_and_found(way: tuple[DaemonHouse, FaultProxy]) -> None:
    """No address for the endpoint's name while it runs, and one again."""
    house, _ = way
    hosts = house.directory / "hosts"
    here = "127.0.0.1 localhost store.penstock.test\n"
    hosts.write_text(here)
    text = house.configuration_file.read_text().replace("http://127.0.0.1", "http://store.penstock.test")
    dear = text.replace("thread_count_max = 8", "thread_count_max = 8\nusd_per_day = 100")  # for all it knows
    house.configuration_file.write_text(dear)
    mount = f'mount --bind {hosts} /etc/hosts && exec "$@"'
    if subprocess.run(["unshare", "--mount", "sh", "-c", mount, "sh", "true"], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    with started(house, ["unshare", "--mount", "sh", "-c", mount, "sh"]):
        house.wait_for(has_measured(1))
        hosts.write_text("127.0.0.1 localhost\n")
        house.wait_for(lambda status: "cannot be resolved" in json.dumps(status["cycles"]))
        hosts.write_text(here)
        measures_again(house)


def test_metadata_that_never_answers_is_not_waited_for(house: DaemonHouse) -> None:
    """Neither region nor type is known, the first answer comes all the same, and the status says what to set."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        text = house.configuration_file.read_text()
        stated = f'region = "{REGION}"\ninstance_type = "here"\n'
        house.configuration_file.write_text(
            text.replace(stated, f'imds_endpoint_url = "http://127.0.0.1:{port}"\n')
        )
        with started(house, environment={"AWS_EC2_METADATA_DISABLED": "false"}):
            assert house.advice("s3_upload", "24MiB")["basis"] == "default"


@pytest.mark.parametrize("step", ["+400d", "-800s"])
def test_a_clock_that_steps_while_it_runs(step: str, house: DaemonHouse) -> None:
    """Forward by more than a year, or back as far as S3 takes signatures: it goes on, and no budget comes back."""
    library = provision.libfaketime()
    offset = house.directory / "faketime"
    offset.write_text("+0d")
    environment = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with started(house, environment=environment):
        house.wait_for(has_measured(1))
        spent = house.ask("/v1/status")["spent_per_day"]["transferred_bytes"]
        offset.write_text(step)
        measures_again(house)
        if step.startswith("-"):
            assert house.ask("/v1/status")["spent_per_day"]["transferred_bytes"] >= spent


def test_credentials_expire_and_rotate_under_a_probe(way: tuple[DaemonHouse, FaultProxy]) -> None:
    """The role's token is no longer taken in the midst of a probe: that is said, and the next one is taken up."""
    house, proxy = way
    text = house.configuration_file.read_text()
    uploads, downloads = "[probes.s3_upload]\nis_enabled = true", "[probes.s3_download]\nis_enabled = true"
    for section in (uploads, downloads):  # the S3 that is here takes no tokens
        text = text.replace(section, section.replace("true", "false"))
    house.configuration_file.write_text(text)
    with role_credentials() as (url, tokens):
        environment = {
            "AWS_ACCESS_KEY_ID": "",
            "AWS_SECRET_ACCESS_KEY": "",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": url,
        }
        proxy.expects_token = tokens[-1]
        with started(house, environment=environment):
            house.wait_for(has_measured(1))
            house.wait_for(lambda status: status["activity"].startswith("probing"))
            proxy.expects_token = "second"  # noqa: S105 - in a test
            house.wait_for(lambda status: "session token has expired" in json.dumps(status["cycles"]))
            tokens.append("second")
            measures_again(house)


@contextlib.contextmanager
def role_credentials() -> Iterator[tuple[str, list[str]]]:
    """Where a container finds those of its role: the server's own, with the last of the tokens."""
    tokens = ["first"]

    class Role(Answers):
        def reply(self) -> None:
            # Soon enough to be renewed at each request.
            expires_at = datetime.now(UTC) + timedelta(minutes=12)
            document = {
                "AccessKeyId": CREDENTIALS["AWS_ACCESS_KEY_ID"],
                "SecretAccessKey": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
                "Token": tokens[-1],
                "Expiration": f"{expires_at:%Y-%m-%dT%H:%M:%SZ}",
            }
            self.answer(200, json.dumps(document).encode())

    with serving(Server(Role)) as url:
        yield f"{url}/role", tokens
