"""Knows the demo: a real daemon on a lab link learns, is asked as an application asks, and is proved right or wrong.

Everything that is shown was measured: the daemon is a process of its own that probes the lab's S3 and SQS over HTTP;
the proof is made with plain boto3, once with its defaults and once with the advice; the known optimum comes from the
physics that the lab was given.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.client import boto3 as advised_boto3
from penstock.client.advice import Advice, Adviser
from penstock.lab.optimum import UploadOptimum, best_goodput_messages_per_second, upload_optimum
from penstock.lab.worlds import DEMO
from penstock.trial.queue_application import QueueApplication, QueueRun
from penstock.trial.stage import CREDENTIALS, daemon, lab_endpoint, status_of
from penstock.units import KiB, MiB, counted, format_rate

REGION = "lab-1"
BUCKET = "penstock-demo"
OBJECT_SIZE_BYTES = 192 * MiB
MESSAGE_SIZE_BYTES = KiB
LEARNING_SECONDS_MAX = 80.0
OBSERVATION_COUNT_ENOUGH = 8  # of each operation
UPLOAD_ROUND_COUNT = 2
QUEUE_WARM_UP_SECONDS = 3.0
QUEUE_MEASURED_SECONDS = 12.0
_POLL_SECONDS = 0.25
_TEMPORARY_PATH_LENGTH_MAX = 60  # a socket's path has room for 107 bytes

_CONFIGURATION = """\
[daemon]
state_directory = "{directory}/state"
runtime_directory = "{directory}/run"
seed = {seed}

[host]
region = "{region}"
instance_type = "lab"

[aws]
s3_endpoint_url = "{s3_endpoint_url}"
sqs_endpoint_url = "{sqs_endpoint_url}"

[probes.s3_upload]
is_enabled = true
bucket = "{bucket}"
object_size_bytes = [{object_size_bytes}]
mean_interval_seconds = "1s"
duration_seconds_max = "5s"
transferred_bytes_max = "{transferred_bytes_max}"
thread_count_max = 128

[probes.sqs_delivery]
is_enabled = true
usd_per_day = 100
message_size_bytes = [{message_size_bytes}]
mean_interval_seconds = "1s"
duration_seconds_max = "4s"
thread_count_max = 32
visibility_timeout_seconds = "{visibility_timeout_seconds}s"

[budget]  # of a lab, where nothing costs money
usd_per_day = 100
duty_cycle_fraction = 1
host_cpu_fraction_max = 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One line of the story, as it happens."""

    step: str  # "start", "learn", "advise", "prove", "done"
    sentence: str


Tell = Callable[[Told], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadProof:
    """The same file by plain boto3 without and with advice, beside what the link can do at best."""

    object_size_bytes: int
    default_setting: Mapping[str, float]
    default_bytes_per_second: float
    advised_setting: Mapping[str, float]
    advised_bytes_per_second: float
    predicted_bytes_per_second: Mapping[str, float]
    optimum_setting: Mapping[str, float]
    optimum_bytes_per_second: float
    advised_over_optimum: float
    advised_over_default: float
    probe_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryProof:
    """The same queue driven by plain boto3 without and with advice, beside what it can do at best."""

    default_setting: Mapping[str, float]
    default_messages_per_second: float
    default_duplicate_count: int
    advised_setting: Mapping[str, float]
    advised_messages_per_second: float
    best_messages_per_second: float
    advised_over_best: float
    advised_over_default: float
    duplicate_count: int
    throttled_count: int
    probe_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What the demo prints as one document."""

    s3_upload: UploadProof
    sqs_delivery: DeliveryProof
    learning_seconds: float
    duration_seconds: float

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def play(tell: Tell, *, seed: int = 1) -> DemoResult:
    """Play the whole demo. Raises StageError when a process of it fails; leaves nothing behind, also on Ctrl-C."""
    started = time.monotonic()
    with contextlib.ExitStack() as stage:
        directory = Path(stage.enter_context(_temporary_directory()))
        tell(Told(step="start", sentence=f"A lab with known physics. {DEMO.story}"))
        s3_endpoint_url = stage.enter_context(lab_endpoint("s3", DEMO, directory))
        sqs_endpoint_url = stage.enter_context(lab_endpoint("sqs", DEMO, directory))
        clients = _Clients(s3_endpoint_url, sqs_endpoint_url)
        clients.s3().create_bucket(Bucket=BUCKET)
        configuration_file = _configure(directory, clients, seed)
        with daemon(configuration_file, directory / "run/penstock.sock") as running:
            tell(
                Told(step="start", sentence=f"penstockd runs as process {running.pid} and knows nothing yet.")
            )
            learning_seconds = _learn(tell, directory / "run/penstock.sock", running.check)
            upload_advice, delivery_advice = _ask(tell, directory)
            counts = _probe_counts(directory / "run/penstock.sock")
        tell(Told(step="prove", sentence="penstockd has stopped; now plain boto3 has the link for itself."))
        s3_upload = _prove_upload(tell, clients, directory, upload_advice, counts["s3_upload"])
        sqs_delivery = _prove_delivery(tell, clients, delivery_advice, counts["sqs_delivery"])
    return DemoResult(
        s3_upload=s3_upload,
        sqs_delivery=sqs_delivery,
        learning_seconds=learning_seconds,
        duration_seconds=time.monotonic() - started,
    )


def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """Where the system puts such things, unless a socket's path would be too long there."""
    is_short = len(tempfile.gettempdir()) <= _TEMPORARY_PATH_LENGTH_MAX
    return tempfile.TemporaryDirectory(prefix="penstock-demo-", dir=None if is_short else "/tmp")  # noqa: S108


@dataclass(frozen=True, slots=True)
class _Clients:
    """Plain boto3 clients for the lab."""

    s3_endpoint_url: str
    sqs_endpoint_url: str

    def s3(self, config: Any = None) -> Any:
        """S3; `config` is a botocore Config."""
        return self._client("s3", self.s3_endpoint_url, config)

    def sqs(self, connection_count: int) -> Any:
        """SQS with room for that many connections."""
        from botocore.config import Config

        return self._client(
            "sqs", self.sqs_endpoint_url, Config(max_pool_connections=max(10, connection_count))
        )

    def _client(self, service: str, endpoint_url: str, config: Any) -> Any:
        import boto3
        from botocore.config import Config

        path_style = Config(s3={"addressing_style": "path"})
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=endpoint_url,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=path_style.merge(config) if config else path_style,
        )


def _configure(directory: Path, clients: _Clients, seed: int) -> Path:
    for name in ("state", "run"):
        (directory / name).mkdir()
    file = directory / "penstock.toml"
    file.write_text(
        _CONFIGURATION.format(
            directory=directory,
            seed=seed,
            region=REGION,
            bucket=BUCKET,
            s3_endpoint_url=clients.s3_endpoint_url,
            sqs_endpoint_url=clients.sqs_endpoint_url,
            object_size_bytes=OBJECT_SIZE_BYTES,
            transferred_bytes_max=2 * OBJECT_SIZE_BYTES,
            message_size_bytes=MESSAGE_SIZE_BYTES,
            visibility_timeout_seconds=DEMO.queue.visibility_timeout_seconds,
        )
    )
    return file


def _learn(tell: Tell, socket_path: Path, check: Callable[[], None]) -> float:
    """Watch the daemon until it has measured enough of each operation; returns how long that took."""
    started, told_count = time.monotonic(), 0
    while time.monotonic() - started < LEARNING_SECONDS_MAX:
        check()
        status = status_of(socket_path)
        if status is not None:
            fresh = min(status["cycle_count"] - told_count, len(status["cycles"]))
            for cycle in status["cycles"][len(status["cycles"]) - fresh :]:
                tell(Told(step="learn", sentence=cycle["sentence"]))
            told_count = status["cycle_count"]
            counts = [context["observation_count"] for context in status["contexts"]]
            if counts and min(counts) >= OBSERVATION_COUNT_ENOUGH:  # none are known before it has begun
                break
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - started


def _probe_counts(socket_path: Path) -> dict[str, int]:
    status = status_of(socket_path) or {"contexts": []}
    return {context["operation"]: context["observation_count"] for context in status["contexts"]}


def _ask(tell: Tell, directory: Path) -> tuple[Advice, Advice]:
    """Ask as an application would."""
    adviser = Adviser(
        socket=str(directory / "run/penstock.sock"), snapshot=str(directory / "run/recommendations.json")
    )
    upload = adviser.advise("s3_upload", OBJECT_SIZE_BYTES)
    delivery = adviser.advise(
        "sqs_delivery",
        MESSAGE_SIZE_BYTES,
        visibility_timeout_seconds=float(DEMO.queue.visibility_timeout_seconds),
    )
    for advice in (upload, delivery):
        tell(Told(step="advise", sentence=f"{advice.operation}: {advice.explanation}"))
    return upload, delivery


def _prove_upload(
    tell: Tell, clients: _Clients, directory: Path, advice: Advice, probe_count: int
) -> UploadProof:
    from boto3.s3.transfer import TransferConfig

    file = directory / "payload"
    file.write_bytes(os.urandom(OBJECT_SIZE_BYTES))
    plain = TransferConfig()
    advised = advised_boto3.transfer_config(OBJECT_SIZE_BYTES, advice=advice)
    advised_client = clients.s3(advised_boto3.client_config(OBJECT_SIZE_BYTES, advice=advice))
    rates: dict[str, list[float]] = {"default": [], "advised": []}
    for _ in range(UPLOAD_ROUND_COUNT):
        for name, client, config in (("default", clients.s3(), plain), ("advised", advised_client, advised)):
            rate = _upload(client, file, config)
            rates[name].append(rate)
            threads = counted(config.max_request_concurrency, "thread")
            sentence = f"boto3, {name}: {threads}, {format_rate(rate)}"
            tell(Told(step="prove", sentence=sentence))
    default_rate, advised_rate = (statistics.median(rates[name]) for name in ("default", "advised"))
    optimum = upload_optimum(DEMO.link, OBJECT_SIZE_BYTES)
    return UploadProof(
        object_size_bytes=OBJECT_SIZE_BYTES,
        default_setting={
            "thread_count": plain.max_request_concurrency,
            "part_size_bytes": plain.multipart_chunksize,
        },
        default_bytes_per_second=default_rate,
        advised_setting=dict(advice.setting),
        advised_bytes_per_second=advised_rate,
        predicted_bytes_per_second=advice.document["prediction"]["throughput_bytes_per_second"],
        optimum_setting=_optimum_setting(optimum),
        optimum_bytes_per_second=optimum.throughput_bytes_per_second,
        advised_over_optimum=advised_rate / optimum.throughput_bytes_per_second,
        advised_over_default=advised_rate / default_rate,
        probe_count=probe_count,
    )


def _optimum_setting(optimum: UploadOptimum) -> dict[str, float]:
    return {"thread_count": optimum.thread_count, "part_size_bytes": optimum.part_size_bytes}


def _upload(client: Any, file: Path, config: Any) -> float:
    started = time.perf_counter()
    client.upload_file(str(file), BUCKET, "proof", Config=config)
    rate = OBJECT_SIZE_BYTES / (time.perf_counter() - started)
    client.delete_object(Bucket=BUCKET, Key="proof")
    return rate


def _prove_delivery(tell: Tell, clients: _Clients, advice: Advice, probe_count: int) -> DeliveryProof:
    default_setting = {name: 0.0 if _is_limit(name) else 1.0 for name in advice.setting}
    default = _drive(clients, "demo-default", default_setting)
    tell(Told(step="prove", sentence=f"boto3, one thread each: {_describe(default)}"))
    pause_seconds = advice.derived.get("receive_pause_at_oldest_undeleted_seconds", math.inf)
    advised = _drive(clients, "demo-advised", advice.setting, receive_pause_seconds=pause_seconds)
    tell(Told(step="prove", sentence=f"boto3, advised: {_describe(advised)}"))
    best = best_goodput_messages_per_second(DEMO.queue)
    return DeliveryProof(
        default_setting=default_setting,
        default_messages_per_second=default.goodput_messages_per_second,
        default_duplicate_count=default.duplicate_count,
        advised_setting=dict(advice.setting),
        advised_messages_per_second=advised.goodput_messages_per_second,
        best_messages_per_second=best,
        advised_over_best=advised.goodput_messages_per_second / best,
        advised_over_default=advised.goodput_messages_per_second
        / max(default.goodput_messages_per_second, 1e-9),
        duplicate_count=advised.duplicate_count,
        throttled_count=advised.throttled_count,
        probe_count=probe_count,
    )


def _drive(
    clients: _Clients, name: str, setting: Mapping[str, float], *, receive_pause_seconds: float = math.inf
) -> QueueRun:
    with _queue(clients, name) as url:
        application = QueueApplication(
            clients.sqs,
            url,
            setting,
            message_rate_per_second=None,
            body="x" * (MESSAGE_SIZE_BYTES - 16),
            receive_pause_seconds=receive_pause_seconds,
        )
        return application.run(warm_up_seconds=QUEUE_WARM_UP_SECONDS, measured_seconds=QUEUE_MEASURED_SECONDS)


@contextlib.contextmanager
def _queue(clients: _Clients, name: str) -> Iterator[str]:
    client = clients.sqs(10)
    timeout = str(DEMO.queue.visibility_timeout_seconds)
    url: str = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": timeout})["QueueUrl"]
    try:
        yield url
    finally:
        client.delete_queue(QueueUrl=url)


def _is_limit(name: str) -> bool:
    return "window" in name or "limit" in name


def _describe(run: QueueRun) -> str:
    return f"{run.goodput_messages_per_second:.0f} messages/s, {run.duplicate_count} duplicates"
