"""The real daemon as a process, on the lab's services over HTTP: it learns, survives, refuses and cleans up."""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.main import cli
from penstock.client.connection import ask
from penstock.trial.stage import CREDENTIALS, process, status_of
from tests.daemon_house import BOUNDLESS, FAST, HERE, DaemonHouse, lab_endpoints
from tests.loopback import Answers, Server, serving
from tests.programs import ran
from tests.waiting import until

WAIT_SECONDS_MAX = 120.0
BUCKET = "test-bucket"
CONFIGURATION = f"""{HERE}
connect_timeout_seconds = "1s"
read_timeout_seconds = "5s"
[probes.s3_upload]
is_enabled = true
bucket = "test-bucket"
object_size_bytes = ["6MiB"]
mean_interval_seconds = "0.4s"
duration_seconds_max = "2s"
thread_count_max = 16
[probes.sqs_delivery]
is_enabled = true
usd_per_day = 100
mean_interval_seconds = "0.4s"
duration_seconds_max = "1s"
thread_count_max = 8
{BOUNDLESS}"""


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with lab_endpoints(tmp_path_factory.mktemp("lab"), FAST, BUCKET) as urls:
        yield urls


@pytest.fixture
def stage(tmp_path: Path, endpoints: dict[str, str]) -> DaemonHouse:
    """A place in the lab, and no daemon yet."""
    return DaemonHouse(tmp_path, CONFIGURATION, urls=endpoints, bucket=BUCKET, region="lab-1")


def run_daemon(stage: DaemonHouse, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, which must come by itself."""
    return ran(
        [sys.executable, "-m", "penstock.daemon.main", "--config", str(stage.configuration_file)],
        timeout=WAIT_SECONDS_MAX,
        env={**os.environ, **CREDENTIALS, **environment},
    )


def test_it_learns_advises_and_leaves_nothing_behind(stage: DaemonHouse) -> None:
    """From the first probe over HTTP to an answer over the socket; after SIGTERM all is gone but the database."""
    with stage.daemon():
        assert stage.advice("s3_upload", "6MiB")["basis"] in {"default", "prior"}
        stage.wait_for(has_measured_s3(3))
        advice = stage.advice("s3_upload", "6MiB")
        snapshot = json.loads((stage.directory / "run/recommendations.json").read_text())

    assert advice["basis"] in {"model", "measured"}
    assert advice["setting"] in [r["setting"] for r in snapshot["recommendations"]]
    assert not stage.socket_path.exists()
    assert stage.leftovers() == []


def test_it_ends_while_the_process_that_probes_is_starting(stage: DaemonHouse) -> None:
    """What is asked of that one, and taken back, is heard by it a second later, both at once."""
    command = [sys.executable, "-m", "penstock.daemon.main", "--config", str(stage.configuration_file)]
    with subprocess.Popen(command, env={**os.environ, **CREDENTIALS}, stderr=subprocess.DEVNULL) as running:
        try:
            until(lambda: b"penstock.daemon.outside.prober_process" in commands_below(running.pid))
            running.terminate()
            assert running.wait(60.0) == 0  # it would wait longer for an answer that does not come
        finally:
            running.kill()


def test_one_whose_package_was_replaced_says_that_it_wants_a_restart(stage: DaemonHouse) -> None:
    """What it would start then may be gone or speak in other words: it stays what it was, and starts nothing."""
    packages = stage.directory / "packages"
    is_no_file = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(penstock.__file__).parent, packages / "penstock", ignore=is_no_file)
    command = [sys.executable, "-P", "-m", "penstock.daemon.main", "--config", str(stage.configuration_file)]
    with process(command, {"PYTHONPATH": str(packages)}) as running:
        stage.wait_for(has_measured_s3(1))
        metrics = ask(str(stage.socket_path), "GET", "/metrics").body.decode()
        module = packages / "penstock/daemon/outside/prober_process.py"
        module.rename(module.with_name("renamed.py"))
        for child in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split():
            if b"prober" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)

        def wants_restart(status: dict[str, Any]) -> bool:
            asking = {each["name"] for each in status["troubles"] if "restart it" in each["sentence"]}
            return "package" in asking and len(asking) > 1

        stage.wait_for(wants_restart)
        later = ask(str(stage.socket_path), "GET", "/metrics").body.decode()
        running.check()
        assert stage.advice("s3_upload", "6MiB")["setting"]
    assert 'penstock_trouble{name="package",region=""} 1.0' in later
    assert build_info(metrics) == build_info(later)
    stage.swept_by_next_life("s3_upload", "6MiB")


def build_info(metrics: str) -> list[str]:
    """What Prometheus is told of the version."""
    return [line for line in metrics.splitlines() if line.startswith("penstock_build_info")]


def commands_below(process_id: int) -> bytes:
    """Of its children."""
    found = b""
    for child in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found += Path(f"/proc/{child}/cmdline").read_bytes()
    return found


def test_a_watched_queue_is_warned_of_and_not_touched(stage: DaemonHouse) -> None:
    """What an application leaves undeleted is dated in status, explain and metrics; the queue stays as it was."""
    # What is received stays so, however long the daemon takes to start.
    lasting = {"VisibilityTimeout": "3600"}
    url = stage.sqs.create_queue(QueueName="orders", Attributes=lasting)["QueueUrl"]
    for _ in range(13):
        entries = [{"Id": str(index), "MessageBody": "x"} for index in range(10)]
        stage.sqs.send_message_batch(QueueUrl=url, Entries=entries)
    received = 0
    while received < 120:
        answer = stage.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        received += len(answer.get("Messages", []))
    configured = stage.configuration_file.read_text().replace("is_enabled = true", "is_enabled = false")
    watched = '[watched_queue]\nname = "orders"\ninterval_seconds = "1s"\ndelete_rate_messages_per_second = 0.0833333\n'
    stage.configuration_file.write_text(configured + watched)
    with stage.daemon():
        (queue,) = stage.wait_for(lambda status: bool(status["queues"][0]["seen_at"]))["queues"]
        explained = stage.ask("/v1/explain?operation=sqs_delivery&payload_size_bytes=1KiB")["queues"]
        metrics = ask(str(stage.socket_path), "GET", "/metrics").body.decode()
        shown = CliRunner().invoke(cli, ["status", "--socket", str(stage.socket_path)])
    assert queue["alarm"] == "warn"
    assert queue["oldest_undeleted_seconds"] == pytest.approx(12 * received, rel=1e-3)
    assert queue["not_visible_message_count"] == received
    assert explained[0]["name"] == "orders"
    assert 'penstock_queue_alarm{queue="orders",region="lab-1",source="attributes"} 1.0' in metrics
    assert shown.output.startswith("queue orders: the oldest undeleted message is")
    attributes = stage.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert int(attributes["ApproximateNumberOfMessagesNotVisible"]) == received
    assert int(attributes["ApproximateNumberOfMessages"]) == 130 - received
    stage.sqs.delete_queue(QueueUrl=url)


def test_a_killed_daemon_advises_at_once_and_sweeps(stage: DaemonHouse) -> None:
    """After `kill -9` in the middle of its work the next life gives the same advice and removes what was left."""
    with stage.daemon() as running:
        stage.wait_for(has_measured_s3(2))
        while True:
            # Something of S3, which has no URL as queues have.
            until(lambda: any(not left.startswith("http") for left in stage.leftovers()))
            os.kill(lab_process_id("s3"), signal.SIGSTOP)  # so that no probe ends between advice and death
            if is_probing_s3(stage.ask("/v1/status")):
                break
            os.kill(lab_process_id("s3"), signal.SIGCONT)
        advice = stage.advice("s3_upload", "6MiB")
        os.kill(running.pid, signal.SIGKILL)
        os.kill(lab_process_id("s3"), signal.SIGCONT)
    assert stage.leftovers() != []

    again = stage.swept_by_next_life("s3_upload", "6MiB")
    assert again["setting"] == advice["setting"]
    assert again["basis"] == advice["basis"]


def has_measured_s3(count: int) -> Callable[[dict[str, Any]], bool]:
    """Of a status: S3 was measured so often, and the queue, which a busy host is rightly not measured by, was tried."""

    def holds(status: dict[str, Any]) -> bool:
        contexts = {context["operation"]: context for context in status["contexts"]}
        return (
            contexts.keys() == {"s3_upload", "sqs_delivery"}
            and contexts["s3_upload"]["observation_count"] >= count
            and contexts["sqs_delivery"]["attempt_count"] >= count
        )

    return holds


def is_probing_s3(status: dict[str, Any]) -> bool:
    """Whether a probe of it is under way."""
    return str(status["activity"]).startswith("probing s3")


def lab_process_id(service: str) -> int:
    """Of the lab's server of this service, which this process started."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    command = f"penstock.lab.server\0{service}\0".encode()
    (found,) = (int(child) for child in children if command in Path(f"/proc/{child}/cmdline").read_bytes())
    return found


def test_every_mistake_in_the_configuration_is_named(stage: DaemonHouse) -> None:
    """A malformed configuration ends it as it ends `config check`: status 1, a line for each mistake, no traceback."""
    stage.configuration_file.write_text('[daemon]\nseeed = 1\n[budget]\nusd_per_day = "a lot"\n')
    ended = run_daemon(stage)

    assert ended.returncode == 1
    assert "daemon.seeed" in ended.stderr
    assert "did you mean seed" in ended.stderr
    assert "budget.usd_per_day" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_socket_in_use_is_left_alone(stage: DaemonHouse) -> None:
    """A second daemon on the same socket ends with a sentence, and the first one goes on."""
    with stage.daemon():
        ended = run_daemon(stage)
        assert status_of(stage.socket_path) is not None

    assert ended.returncode == 1
    assert "already in use" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_state_directory_in_use_is_left_alone(stage: DaemonHouse) -> None:
    """Two daemons never share a database, whatever their sockets."""
    with stage.daemon():
        (stage.directory / "elsewhere").mkdir()
        text = stage.configuration_file.read_text()
        stage.configuration_file.write_text(
            text.replace(f"{stage.directory}/run", f"{stage.directory}/elsewhere")
        )
        ended = run_daemon(stage)

    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr


def test_an_unreachable_endpoint_is_said_and_survived(stage: DaemonHouse) -> None:
    """Without a network it serves what it knows, and its status says what is wrong."""
    text = stage.configuration_file.read_text()
    lines = [
        's3_endpoint_url = "http://127.0.0.1:9"' if line.startswith("s3_endpoint_url") else line
        for line in text.splitlines()
    ]
    stage.configuration_file.write_text("\n".join(lines))
    with stage.daemon():
        status = stage.wait_for(
            lambda status: any("refused" in cycle["sentence"] for cycle in status["cycles"])
        )
        assert stage.advice("s3_upload", "6MiB")["setting"]["thread_count"] >= 1

    assert any("check that it runs" in cycle["sentence"] for cycle in status["cycles"])


def test_missing_credentials_are_said_and_survived(stage: DaemonHouse) -> None:
    """Without credentials it serves what it knows, and its status says what to do."""
    environment = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    command = [sys.executable, "-m", "penstock.daemon.main", "--config", str(stage.configuration_file)]
    with process(command, environment):
        status = stage.wait_for(lambda status: any("redentials" in c["sentence"] for c in status["cycles"]))
        assert stage.advice("s3_upload", "6MiB")["setting"]["thread_count"] >= 1

    assert status["cycles"]


def test_a_corrupted_database_is_set_aside(stage: DaemonHouse) -> None:
    """Garbage in place of the database does not stop the service, and is kept for whoever wants to look."""
    (stage.directory / "state/penstock.db").write_bytes(b"this is not a database" * 1000)
    with stage.daemon():
        assert stage.advice("s3_upload", "6MiB")["basis"] in {"default", "prior"}

    assert list((stage.directory / "state").glob("penstock.db.corrupt-*"))


def test_reload_takes_up_a_new_configuration_and_refuses_a_bad_one(stage: DaemonHouse) -> None:
    """SIGHUP with a mistake changes nothing; with a good file the next life has it, on the same socket."""
    with stage.daemon() as running:
        good = stage.configuration_file.read_text()
        stage.configuration_file.write_text("[daemon]\nnonsense = 1\n")
        answer = ask(str(stage.socket_path), "POST", "/-/reload", body=b"")
        assert answer.status == 409
        assert b"nonsense" in answer.body

        stage.configuration_file.write_text(good.replace('["6MiB"]', '["7MiB"]'))
        os.kill(running.pid, signal.SIGHUP)
        stage.wait_for(lambda status: any(c["payload_size_bytes"] == 7 * 2**20 for c in status["contexts"]))


class Metadata(Server):
    """Those of an instance; nothing is told before they are up."""

    is_up = False


class _Told(Answers):
    server: Metadata

    def reply(self) -> None:
        """The document, also in the place of a token."""
        is_told = self.server.is_up and "public" not in self.path
        self.answer(200 if is_told else 404, b'{"region": "lab-1", "instanceType": "m7i.large"}')


def test_a_host_that_starts_before_its_metadata_is_known_soon_after(
    stage: DaemonHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until somebody restarted it, it would measure for a place that there is not, and without the fleet."""
    asked = {**CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "false"}
    monkeypatch.setattr("penstock.trial.stage.CREDENTIALS", asked)
    metadata = Metadata(_Told)
    with serving(metadata) as url:
        told = stage.configuration_file.read_text()
        stage.configuration_file.write_text(
            told.replace('instance_type = "lab"', f'imds_endpoint_url = "{url}"')
        )
        with stage.daemon():
            stage.wait_for(lambda status: status["instance_type"] == "unknown")
            metadata.is_up = True
            stage.wait_for(lambda status: status["instance_type"] == "m7i.large")


def test_one_cycle_in_the_foreground(stage: DaemonHouse) -> None:
    """`penstock run --once --json` measures each context once and prints one document."""
    document = stage.once()
    assert {cycle["operation"] for cycle in document["cycles"]} == {"s3_upload", "sqs_delivery"}
    for cycle in document["cycles"]:  # of a busy host requests to a queue rightly tell nothing
        assert cycle["is_conclusive"] or cycle["operation"] == "sqs_delivery", cycle["sentence"]
    assert stage.leftovers() == []


def test_the_manager_is_told_of_a_stop_before_the_clean_up(
    stage: DaemonHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager waits for a clean-up at a slow service: it hears of it first, and how long it may take."""
    path = stage.directory / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        manager.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        with stage.daemon():
            pass
        told = []
        with contextlib.suppress(BlockingIOError):
            while True:
                told.append(manager.recv(4096).decode())
    assert any(message.startswith("READY=1") for message in told)
    assert told[-2].startswith("STOPPING=1")
    assert told[-1].startswith("EXTEND_TIMEOUT_USEC=")


def test_reload_refuses_what_it_cannot_change(stage: DaemonHouse) -> None:
    """A socket that is there keeps its mode until a restart, and that is said."""
    with stage.daemon():
        text = stage.configuration_file.read_text()
        stage.configuration_file.write_text(text.replace("[daemon]", '[daemon]\nsocket_mode = "0600"'))
        answer = ask(str(stage.socket_path), "POST", "/-/reload", body=b"")
        assert answer.status == 409
        assert b"daemon.socket_mode changes only with a restart" in answer.body


def test_a_full_disk_takes_no_more_than_it_may_lose(stage: DaemonHouse) -> None:
    """Reports wait in memory up to a bound, then are refused; what is lost at the end is said, and ends it with 1."""
    text = stage.configuration_file.read_text()
    stage.configuration_file.write_text(text.replace("is_enabled = true", "is_enabled = false"))
    command = [sys.executable, "-m", "penstock.daemon.main", "--config", str(stage.configuration_file)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **CREDENTIALS}
    ) as running:
        try:
            stage.wait_for(lambda status: status["activity"] == "idle")
            resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (0, 0))  # as if no byte fitted any more
            answers = [
                ask(str(stage.socket_path), "POST", "/v1/observations", body=reports(50)) for _ in range(6)
            ]
            waiting = stage.ask("/v1/status")["trouble"]
        finally:
            running.terminate()
        _, log = running.communicate(timeout=WAIT_SECONDS_MAX)

    assert [answer.status for answer in answers] == [202] * 4 + [507] * 2
    assert json.loads(answers[-1].body)["title"] == "Insufficient Storage"
    assert "200 reports" in waiting
    assert running.returncode == 1
    (lost,) = [line for line in log.splitlines() if "level=error" in line]
    assert "200 reports" in lost
    assert "are lost" in lost


def reports(count: int) -> bytes:
    """So many uploads of an application, as they are posted."""
    report = {
        "operation": "s3_upload",
        "payload_size_bytes": 64 << 20,
        "setting": {"thread_count": 8, "part_size_bytes": 8 << 20},
        "started_at": (datetime.now(UTC) - timedelta(seconds=10)).isoformat(),
        "duration_seconds": 2.0,
        "transferred_bytes": 64 << 20,
        "request_count": 10,
    }
    return json.dumps({"observations": [report] * count}).encode()
