"""Consumers of queues that others wrote, told as exported: what they ask, and what they hold and have not deleted."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.lab.link import LinkTruth
from penstock.trial.stage import process
from tests.programs import printed
from tests.real import provision, servers
from tests.real.exported import ENVIRONMENT, exported
from tests.real.fault_proxy import FaultProxy, between
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the builds

PATH = LinkTruth(
    round_trip_seconds=0.005,
    connection_rate_bytes_per_second=20e6,
    host_rate_bytes_per_second=1e9,
    service_latency_seconds_median=0.005,
)
RECEIVERS, BATCH, WAIT_SECONDS, HIDDEN_SECONDS, MESSAGES = 3, 4, 2, 900, 40
ADVICE = {
    "payload_size_bytes": 1024,
    "setting": {
        **dict.fromkeys(("sender_thread_count", "deleter_thread_count"), 2),
        "receiver_thread_count": RECEIVERS,
        "batch_message_count": BATCH,
    },
    "derived": {
        "connection_pool_count": 7,
        "wait_time_seconds": WAIT_SECONDS,
        "visibility_timeout_seconds": HIDDEN_SECONDS,
    },
    "demand": {},
}


class Queue:
    """One at the end of the path, and the word on which its handlers go on."""

    def __init__(self, sqs_url: str, way: tuple[str, FaultProxy], folder: Path) -> None:
        self.sqs, (self.endpoint, self.proxy) = servers.plain_client("sqs", sqs_url), way
        self.name, self.go = f"real-{uuid.uuid4().hex[:12]}", folder / "go"
        self.url, self.url_on_the_way = "", ""

    def fill(self) -> None:
        """It hides messages for long by itself, since some consumers cannot be told; there are enough for all."""
        long = {"VisibilityTimeout": str(HIDDEN_SECONDS)}
        self.url = self.sqs.create_queue(QueueName=self.name, Attributes=long)["QueueUrl"]
        self.url_on_the_way = self.url.replace(self.sqs.meta.endpoint_url, self.endpoint)
        for first in range(0, MESSAGES, 10):
            entries = [{"Id": str(first + one), "MessageBody": "work"} for one in range(10)]
            self.sqs.send_message_batch(QueueUrl=self.url, Entries=entries)

    def attribute(self, name: str) -> int:
        """As SQS counts."""
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        return int(found[name])

    def is_held(self, count: int) -> bool:
        """Whether so many are out, and nobody is asking for more."""
        is_quiet = self.proxy.truth.under_way["ReceiveMessage"] == 0
        return is_quiet and self.attribute("ApproximateNumberOfMessagesNotVisible") == count

    def is_empty(self) -> bool:
        """Whether all is worked off and deleted."""
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        return not any(map(self.attribute, names))

    def asked(self, word: str) -> set[Any]:
        """All that was said by this word when messages were asked for."""
        of_queues = self.proxy.truth.asked_of_queues
        return {document.get(word) for what, document in of_queues if what == "ReceiveMessage"}


@pytest.fixture
def queue(sqs_url: str, tmp_path: Path) -> Iterator[Queue]:
    """One for each test."""
    with between(PATH, sqs_url) as way:
        one = Queue(sqs_url, way, tmp_path)
        yield one
        if one.url:
            one.sqs.delete_queue(QueueUrl=one.url)
        one.sqs.close()


def assert_worked_off(
    queue: Queue, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> None:
    """It holds a batch for each receiver as long as nothing is done with them, and then works all off."""
    with process([str(word) for word in command], {**ENVIRONMENT, **(environment or {})}) as consumer:

        def comes_to(is_so: bool) -> bool:
            consumer.check()
            return is_so

        until(lambda: comes_to(queue.is_held(RECEIVERS * BATCH)))
        queue.go.touch()
        until(lambda: comes_to(queue.is_empty()))
    assert queue.asked("WaitTimeSeconds") == {WAIT_SECONDS}


_NODE = """
import {{ Consumer }} from "sqs-consumer";
import {{ existsSync }} from "node:fs";
import {{ setTimeout }} from "node:timers/promises";
const [queueUrl, go] = process.argv.slice(2);
{exported}
const handleMessageBatch = async (messages) => {{
  while (!existsSync(go)) await setTimeout(20);
  return messages;
}};
for (let number = 0; number < consumerCount; number += 1) {{
  Consumer.create({{ queueUrl, handleMessageBatch, ...options }}).start();
}}
"""


def test_sqs_consumer_receives_as_advised(queue: Queue, tmp_path: Path) -> None:
    """A batch at a time for each consumer, hidden for as long as is said, and deleted by one request."""
    queue.fill()
    (tmp_path / "node_modules").symlink_to(provision.sqs_consumer())
    module = tmp_path / "run.mjs"
    module.write_text(_NODE.format(exported="\n".join(exported("sqs-consumer", ADVICE))))
    assert_worked_off(queue, ["node", module, queue.url_on_the_way, queue.go])
    assert queue.asked("MaxNumberOfMessages") == {BATCH}
    assert queue.asked("VisibilityTimeout") == {HIDDEN_SECONDS}
    assert "DeleteMessage" not in queue.proxy.truth.counts


_SPRING = """
import io.awspring.cloud.sqs.annotation.SqsListener;
import java.nio.file.Files;
import java.nio.file.Path;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;

@EnableAutoConfiguration
public class Told {
  @Value("${go}") String go;

  public static void main(String[] given) throws Exception {
    SpringApplication.run(Told.class, given);
    Thread.currentThread().join();
  }

  @SqsListener("${queue}")
  public void handle(String body) throws Exception {
    while (!Files.exists(Path.of(go))) Thread.sleep(20);
  }
}
"""


def test_spring_cloud_aws_listens_as_advised(queue: Queue, tmp_path: Path) -> None:
    """No more at a time than it is told, by what Spring reads beside an application."""
    queue.fill()
    program = tmp_path / "Told.java"
    program.write_text(_SPRING)
    properties = [
        *exported("spring-cloud-aws", ADVICE),
        f"spring.cloud.aws.sqs.endpoint={queue.endpoint}",
        f"spring.cloud.aws.region.static={servers.REGION}",
        f"queue={queue.url_on_the_way}",
        f"go={queue.go}",
        "spring.main.banner-mode=off",
    ]
    (tmp_path / "application.properties").write_text("\n".join(properties))
    jars = f"{provision.spring_cloud_aws()}/*"
    where = f"--spring.config.location=file:{tmp_path}/"
    assert_worked_off(queue, ["java", *servers.JAVA_OPTIONS, "-cp", jars, program, where])
    assert queue.asked("MaxNumberOfMessages") == {BATCH}


_CELERY = """
import os, time
from celery import Celery
{exported}
app = Celery("told", broker=os.environ["BROKER"])
app.conf.update({{name: value for name, value in globals().items() if name.startswith(("worker_", "broker_"))}})
app.conf.broker_transport_options["is_secure"] = False
app.conf.update(task_default_queue=os.environ["QUEUE"], task_acks_late=True, worker_enable_remote_control=False)

@app.task
def work():
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.02)
"""


def test_celery_works_as_advised(queue: Queue, tmp_path: Path) -> None:
    """Its processes hold what they are told; a queue that it makes hides messages for as long as is said."""
    (tmp_path / "told.py").write_text(_CELERY.format(exported="\n".join(exported("celery", ADVICE))))
    keys = ":".join(ENVIRONMENT[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
    environment = {
        "PYTHONPATH": f"{provision.celery()}:{tmp_path}",
        "BROKER": f"sqs://{keys}@{queue.endpoint.removeprefix('http://')}",
        "QUEUE": queue.name,
        "GO": str(queue.go),
        "AWS_DEFAULT_REGION": servers.REGION,
    }
    python = sys.executable
    send = [python, "-c", f"import told\nfor _ in range({MESSAGES}): told.work.delay()"]
    printed(send, env={**ENVIRONMENT, **environment})
    queue.url = queue.sqs.get_queue_url(QueueName=queue.name)["QueueUrl"]
    assert queue.attribute("VisibilityTimeout") == HIDDEN_SECONDS
    alone = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    assert_worked_off(queue, [python, "-m", "celery", "-A", "told", "worker", *alone], environment)
