"""Knows the demo: a real daemon learns the lab, is asked like by an application, and its advice is put to the test.

All results are measured. The daemon is a process of its own that probes the lab's S3 and SQS over HTTP. The proof is
made with plain boto3: with its defaults, with the advice, and with the setting that is optimal by the lab's physics.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from penstock.client.advice import Advice, Adviser
from penstock.lab.worlds import DEMO
from penstock.trial.faces import delivery, download, upload
from penstock.trial.faces.face import BUCKET, REGION, Clients, Face, Proof, Stage, Tell, Told
from penstock.trial.stage import daemon, lab_endpoint, status_of
from penstock.units import counted, format_bytes, number

if TYPE_CHECKING:
    from penstock.client.operations import Operation

FACES: Mapping[str, Face] = {face.row.name: face for face in (upload.FACE, download.FACE, delivery.FACE)}
"""By operation, in the order of the proofs."""
LEARNING_SECONDS_MAX = 80.0
OBSERVATION_COUNT_ENOUGH = 8  # of each operation
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

{probes}
[budget]  # of a lab, where nothing costs money: it is counted as if it were AWS, in the region
usd_per_day = 100
duty_cycle_fraction = 1
host_cpu_fraction_max = 1
host_network_fraction_max = 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The result of the demo, which it prints as one document."""

    proofs: Mapping[str, Proof]  # by operation
    costs: Mapping[str, Mapping[str, float]]  # by operation: what the probes would have cost on AWS
    learning_seconds: float
    duration_seconds: float

    def document(self) -> dict[str, Any]:
        """The result as JSON values, with each proof under the name of its operation."""
        document = asdict(self)
        return {**document.pop("proofs"), **document}


def play(tell: Tell, *, seed: int = 1) -> DemoResult:
    """Play the whole demo. Raises StageError if one of its processes fails; leaves nothing behind, even on Ctrl-C."""
    started = time.monotonic()
    with contextlib.ExitStack() as stage:
        directory = Path(stage.enter_context(_temporary_directory()))
        tell(Told(step="start", sentence=f"A lab with known physics. {DEMO.story}"))
        s3_endpoint_url = stage.enter_context(lab_endpoint("s3", DEMO, directory))
        sqs_endpoint_url = stage.enter_context(lab_endpoint("sqs", DEMO, directory))
        clients = Clients(s3_endpoint_url, sqs_endpoint_url)
        clients.s3().create_bucket(Bucket=BUCKET)
        configuration_file = _configure(directory, clients, seed)
        with daemon(configuration_file, directory / "run/penstock.sock") as running:
            tell(
                Told(step="start", sentence=f"penstockd runs as process {running.pid} and knows nothing yet.")
            )
            learning_seconds = _learn(tell, directory / "run/penstock.sock", running.check)
            advice = _ask(tell, directory)
            counts = _probe_counts(directory / "run/penstock.sock")
            costs = _costs(tell, directory / "run/penstock.sock")
        tell(Told(step="prove", sentence="penstockd has stopped; now plain boto3 has the link for itself."))
        where = Stage(tell=tell, clients=clients, directory=directory)
        proofs = {name: face.prove(where, advice[name], counts[name]) for name, face in FACES.items()}
    return DemoResult(
        proofs=proofs,
        costs=costs,
        learning_seconds=learning_seconds,
        duration_seconds=time.monotonic() - started,
    )


def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """A directory in the system's usual place, or in /tmp if a socket's path would be too long there."""
    is_short = len(tempfile.gettempdir()) <= _TEMPORARY_PATH_LENGTH_MAX
    return tempfile.TemporaryDirectory(prefix="penstock-demo-", dir=None if is_short else "/tmp")  # noqa: S108


def _configure(directory: Path, clients: Clients, seed: int) -> Path:
    for name in ("state", "run"):
        (directory / name).mkdir()
    file = directory / "penstock.toml"
    file.write_text(
        _CONFIGURATION.format(
            directory=directory,
            seed=seed,
            region=REGION,
            s3_endpoint_url=clients.s3_endpoint_url,
            sqs_endpoint_url=clients.sqs_endpoint_url,
            probes="\n".join(map(_section, FACES.values())),
        )
    )
    return file


def _section(face: Face) -> str:
    section = {"network_path": "public-address", "usd_per_day": 100, **face.section}
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in section.items())
    return f"[probes.{face.row.name}]\n{''.join(lines)}"


def _learn(tell: Tell, socket_path: Path, check: Callable[[], None]) -> float:
    """Watch the daemon until it has enough observations of each operation; returns how many seconds that took."""
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
            if counts and min(counts) >= OBSERVATION_COUNT_ENOUGH:  # empty before the daemon has begun
                break
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - started


def _probe_counts(socket_path: Path) -> dict[str, int]:
    status = status_of(socket_path) or {"contexts": []}
    return {context["operation"]: context["observation_count"] for context in status["contexts"]}


def _costs(tell: Tell, socket_path: Path) -> dict[str, Mapping[str, float]]:
    """The costs of each operation, as in `penstock status`."""
    status = status_of(socket_path) or {"costs": {}}
    costs = {name: cost["spent"] for name, cost in status["costs"].items()}
    for name, spent in costs.items():
        requests, moved = counted(spent["request_count"], "request"), format_bytes(spent["transferred_bytes"])
        words = f"{requests} and {moved} of probes; on AWS, in the region: ${number(spent['usd'])}"
        tell(Told(step="cost", sentence=f"{name}: {words}"))
    return costs


def _ask(tell: Tell, directory: Path) -> dict[str, Advice]:
    """Ask for advice on each operation, as an application would."""
    adviser = Adviser(
        socket=str(directory / "run/penstock.sock"), snapshot=str(directory / "run/recommendations.json")
    )
    advice = {
        name: adviser.advise(cast("Operation", name), face.payload_size_bytes, **face.demand)
        for name, face in FACES.items()
    }
    for name, advised in advice.items():
        tell(Told(step="advise", sentence=f"{name}: {advised.explanation}"))
    return advice
