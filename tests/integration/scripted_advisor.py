"""An advisor that says what it is told to say, and a real server on a real socket in front of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.api.acceptor import Acceptor
from penstock.api.advisor import NoRoomError, RefusedError
from penstock.api.listener import ConnectionLimits, open_socket, remove_socket, serving
from penstock.api.routes import Api
from penstock.api.wire import Question, Snapshot, recommendation_document
from penstock.clock import SystemClock
from penstock.daemon.spending.forecast import Forecast, scarcity
from penstock.daemon.spending.tariffs import Way
from penstock.models.prices import NetworkPath
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.upload import S3UploadSetting
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import (
    Basis,
    Context,
    Cost,
    Demand,
    Estimate,
    Observation,
    Place,
    Recommendation,
    Setting,
)
from tests.factories import a_queue_setting

SETTINGS: Mapping[str, Setting] = {
    "s3_upload": S3UploadSetting(thread_count=32, part_size_bytes=16 * MiB),
    "s3_download": S3DownloadSetting(thread_count=32, range_size_bytes=16 * MiB),
    "sqs_delivery": a_queue_setting(4, 6, 6, batch=10),
}
LEFT_BEHIND: Mapping[str, Any] = {
    "kind": "s3_object",
    "operation": "s3_upload",
    "container": "my-bucket",
    "name": "penstock-probe/20261121T093000Z-1f/",
    "age_seconds": 1800.0,
    "reason": "deleting 64 objects from my-bucket: the credentials do not allow it",
    "is_empty": False,
}


CLIENTS: Mapping[str, Any] = {
    "is_listening": True,
    "heard_count": 5400,
    "unreadable_count": 0,
    "unplaced_count": 0,
    "dropped_count": 0,
    "clients": [
        {
            "name": "backup",
            "product": "Boto3",
            "version": "1.43.117",
            "user_id": 0,
            "advice": [
                {
                    "operation": "s3_upload",
                    "region": "eu-west-1",
                    "payload_size_bytes": 536870912,
                    "basis": "model",
                    "setting": {"thread_count": 32, "part_size_bytes": 8388608},
                    "gain": {"low": 2.2, "expected": 2.7, "high": 3.1},
                    "sentence": "10.0 parts in flight; for objects of 512 MiB 32 threads x 8 MiB "
                    "would bring 2.7 times as much (2.2 to 3.1)",
                }
            ],
            "apis": [
                {
                    "service": "S3",
                    "api": "UploadPart",
                    "region": "eu-west-1",
                    "duration_seconds": 270.0,
                    "call_count": 2700,
                    "calls_per_second": 10.0,
                    "attempt_count": 2704,
                    "in_flight_count_mean": 9.6,
                    "in_flight_count_max": 10.0,
                    "latency_seconds_p50": 0.96,
                    "latency_seconds_p99": 1.9,
                    "retry_count": 4,
                    "refused_count": 4,
                    "failed_count": 0,
                }
            ],
        }
    ],
}
"""One application that was heard."""


NO_CREDENTIALS: dict[str, Any] = {
    "name": "s3_upload",
    "subject": "s3_upload 64 MiB in eu-west-1",
    "operation": "s3_upload",
    "region": "eu-west-1",
    "payload_size_bytes": [64 * MiB],
    "since_at": "2026-11-21T10:00:00Z",
    "sentence": "no credentials: name a profile in aws.profile",
}


def a_recommendation(
    operation: str = "s3_upload", payload_size_bytes: int = GiB, **changes: Any
) -> Recommendation[Any]:
    """Advice that was issued now and is valid for an hour."""
    now = datetime.now(UTC)
    place = Place(operation=operation, region="eu-west-1", instance_type="m7i.large")
    advice: Recommendation[Any] = Recommendation(
        context=Context(place=place, payload_size_bytes=payload_size_bytes),
        setting=SETTINGS[operation],
        derived={"connection_pool_count": 36, "multipart_threshold_bytes": 16 * MiB},
        prediction={"throughput_bytes_per_second": Estimate(90e6, 100e6, 110e6)},
        gain_over_default=Estimate(2.4, 2.7, 3.1),
        demand=Demand(),
        basis=Basis.MEASURED,
        bottleneck="host-ceiling",
        explanation="32 threads reach the ceiling of this host.",
        observation_count=12,
        newest_observation_at=now - timedelta(minutes=5),
        issued_at=now,
        expires_at=now + timedelta(hours=1),
    )
    return dataclasses.replace(advice, **changes)


FORECAST = Forecast(
    operation="s3_upload",
    way=Way(NetworkPath.NAT_GATEWAY, "this host has no public address"),
    at_most=Cost(usd=0.01, transferred_bytes=GiB, request_count=100_000),
    typically=Cost(usd=0.01, transferred_bytes=GiB, request_count=1234),
    probe_count_wanted=144.0,
    probe_count=2.0,
    bound_by="probes.s3_upload.usd_per_day",
    key_request_count=0.0,
)
_COST: dict[str, Any] = {
    "spent": {"usd": 0.0041, "transferred_bytes": 3 * GiB, "request_count": 1234},
    "usd_per_day": 0.01,
    **FORECAST.document(),
}


_HOST: dict[str, Any] = {
    "quiet_until": None,
    "others_cpu_fraction": 0.12,
    "host_cpu_fraction_max": 0.5,
    "others_network_fraction": None,
    "host_network_fraction_max": 0.3,
    "others_received_bytes_per_second": 1e6,
    "others_transmitted_bytes_per_second": 1e6,
    "network_ceiling_bytes_per_second": None,
}
_FLEET: dict[str, Any] = {
    "bucket": "my-fleet",
    "key_prefix": "penstock-fleet/",
    "host": "5d1f0a9c27be33d0",
    "is_writing": True,
    "sentence": "my-fleet/penstock-fleet/ is read and written",
    "trouble": None,
    "visited_at": "2026-11-21T10:00:00Z",
    "written_count": 2,
    "places": [
        {
            "operation": "s3_upload",
            "region": "eu-west-1",
            "instance_type": "m7i.large",
            "service_class": "standard",
            "observation_count": 41,
            "host_count": 12,
            "newest_observation_at": "2026-11-21T09:55:00Z",
            "dropped": "1 x an observation of the future",
        }
    ],
}


def _a_harm(now: datetime) -> dict[str, Any]:
    return {
        "latency_increase_seconds_max": 0.1,
        "broken_off_count": 0,
        "last": {
            "ended_at": now - timedelta(minutes=5),
            "attempt_count": 240,
            "latency_increase_seconds": {"low": 0.011, "expected": 0.014, "high": 0.017},
            "refused_fraction_increase": 0.0,
        },
    }


def a_status(region: str = "eu-west-1", instance_type: str = "m7i.large") -> dict[str, Any]:
    """With the keys of a real one, which tests/unit/cli/test_status.py sees to."""
    now = datetime.now(UTC)
    limit, spent = Cost(transferred_bytes=64 * GiB, usd=0.1), Cost(transferred_bytes=3 * GiB, usd=0.0123)
    return {
        "version": "0.1.0",
        "region": region,
        "instance_type": instance_type,
        "started_at": now - timedelta(hours=2),
        "activity": "idle",
        "next_probe_due_at": now + timedelta(minutes=5, seconds=1),
        "generation": 7,
        "trouble": None,
        "troubles": [],
        "leftover_count": 0,
        "leftover_oldest_age_seconds": None,
        "leftover_remark": None,
        "budget_per_day": dataclasses.asdict(limit),
        "spent_per_day": dataclasses.asdict(spent),
        "costs": {name: dict(_COST) for name in SETTINGS},
        "cost_remark": scarcity([FORECAST]),
        "host": dict(_HOST),
        "harm": _a_harm(now),
        "contexts": [
            {
                "operation": "s3_upload",
                "region": region,
                "service_class": "standard",
                "payload_size_bytes": GiB,
                "observation_count": 12,
                "fresh_report_count": 3,
                "attempt_count": 14,
                "last_attempt_at": now - timedelta(minutes=5),
                "postponed_until": None,
                "verdict": "Set 29 threads x 8.8 MiB: 2.3 times boto3's defaults; connections are the limit.",
            }
        ],
        "leases": [],
        "report_kept_count": 3,
        "report_refused_count": 0,
        "queues": [],
        "fleet": dict(_FLEET),
        "shared_limits": [],
        "cycle_count": 14,
        "cycles": [
            {
                "at": now - timedelta(minutes=5),
                "operation": "s3_upload",
                "payload_size_bytes": GiB,
                "sentence": "s3_upload 1 GiB in eu-west-1 (verify): 24 x 8 MiB gave 96 MB/s; advice stands",
                "is_conclusive": True,
            }
        ],
    }


@dataclass
class ScriptedAdvisor:
    """Says what stands; notes what it is told."""

    recommendations: list[Recommendation[Any]] = field(
        default_factory=lambda: [a_recommendation(), a_recommendation("sqs_delivery", KiB)]
    )
    generation: int = 1
    refusal: str = ""
    ailments: list[dict[str, Any]] = field(default_factory=list)
    is_full: bool = False  # the disk of this daemon
    recorded: list[Observation[Any]] = field(default_factory=list)
    reporters: set[tuple[int, int]] = field(default_factory=set)  # users and processes
    questions: list[Question] = field(default_factory=list)
    region: str = "eu-west-1"
    instance_type: str = "m7i.large"
    probed_operations: Collection[str] = ("s3_upload", "sqs_delivery")

    def snapshot(self) -> Snapshot:
        """What stands, dated by its generation."""
        return Snapshot(
            generation=self.generation,
            generated_at=datetime.now(UTC),
            region=self.region,
            instance_type=self.instance_type,
            recommendations=tuple(self.recommendations),
        )

    def recommend(self, question: Question) -> Recommendation[Any]:
        """The standing advice of the operation, for the size and the demand of the question."""
        self.questions.append(question)
        standing = (r for r in self.recommendations if r.context.operation == question.operation)
        advice = next(standing, None) or a_recommendation(question.operation)
        context = dataclasses.replace(advice.context, payload_size_bytes=question.payload_size_bytes)
        return dataclasses.replace(advice, context=context, demand=question.demand)

    def assess(
        self,
        question: Question,
        setting: Setting,
        *,
        host_fraction: float | None = None,  # noqa: ARG002  # a lease shares with no other host here
    ) -> Recommendation[Any]:
        """The standing advice with this setting."""
        return dataclasses.replace(self.recommend(question), setting=setting)

    def explain(self, question: Question) -> Mapping[str, Any]:
        """One reason."""
        advice = recommendation_document(self.recommend(question), generation=self.generation)
        return {
            "recommendation": advice,
            "fit": {
                "parameters": {"request_seconds": {"low": 0.02, "expected": 0.03, "high": 0.04}},
                "observation_count": 12,
                "newest_observation_at": None,
                "residual_fraction_p50": 0.021,
                "is_off_model": False,
                "drift_count": 0,
            },
            "alternatives": [{"setting": {"thread_count": 16}}],
            "queues": [],
        }

    def status(self) -> Mapping[str, Any]:
        """Of a daemon that has lived for two hours."""
        return a_status(self.region, self.instance_type)

    def leftovers(self) -> Mapping[str, Any]:
        """One run that could not be removed."""
        return {"removed": [], "leftovers": [dict(LEFT_BEHIND)]}

    def troubles(self) -> Sequence[Mapping[str, Any]]:
        """As told."""
        return self.ailments

    def clients(self) -> Mapping[str, Any]:
        """One that uploads."""
        return CLIENTS

    def metrics(self) -> bytes:
        """One metric."""
        return b"# TYPE penstock_probes_total counter\npenstock_probes_total 12\n"

    async def record(
        self, reports: Sequence[Observation[Any]], *, uid: int, process_id: int
    ) -> Sequence[str | None]:
        """Note them; refuse those of one byte."""
        self._refuse_if_told()
        if self.is_full:
            raise NoRoomError("reports cannot be kept now: the disk is full: free some space")
        self.reporters.add((uid, process_id))
        answers = ["it is too small" if report.transferred_bytes == 1 else None for report in reports]
        self.recorded += [r for r, refusal in zip(reports, answers, strict=True) if refusal is None]
        return answers

    async def request_probe(self, operation: str, payload_size_bytes: int) -> str:
        """Agree, or refuse."""
        self._refuse_if_told()
        return f"{operation} of {payload_size_bytes} bytes is probed next"

    async def remove_leftovers(self, *, forgets: bool = False) -> Mapping[str, Any]:
        """All of it, or a refusal; nothing, where it is to be forgotten."""
        self._refuse_if_told()
        if forgets:
            return self.leftovers()
        names = {name: LEFT_BEHIND[name] for name in ("kind", "operation", "container", "name")}
        return {"removed": [names], "leftovers": []}

    async def believe_clock(self) -> str:
        """There is no need."""
        return "nothing was spent at a date in the future"

    async def reload(self) -> str:
        """Agree, or refuse."""
        self._refuse_if_told()
        return "nothing changed"

    def _refuse_if_told(self) -> None:
        if self.refusal:
            raise RefusedError(self.refusal)


@dataclass
class Served:
    """A server that runs, and what stands behind it."""

    api: Api
    advisor: ScriptedAdvisor
    socket_path: Path
    snapshot_path: Path
    loop: asyncio.AbstractEventLoop
    acceptor: Acceptor

    def publish(self) -> None:
        """Let the daemon publish something new, called by another thread than its own."""

        async def changed() -> None:
            self.advisor.generation += 1
            self.api.publish()

        asyncio.run_coroutine_threadsafe(changed(), self.loop).result(60)


@contextlib.asynccontextmanager
async def served(
    folder: Path,
    advisor: ScriptedAdvisor | None = None,
    *,
    limits: ConnectionLimits | None = None,
    control_gid: int | None = None,
) -> AsyncIterator[Served]:
    """The API on a socket in this folder."""
    advisor, limits = advisor or ScriptedAdvisor(), limits or ConnectionLimits()
    socket_path, snapshot_path = folder / "penstock.sock", folder / "recommendations.json"
    api = Api(
        advisor, clock=SystemClock(), limits=limits, snapshot_path=snapshot_path, control_gid=control_gid
    )
    listening = open_socket(socket_path)
    try:
        async with serving(
            api.application(), listening, limits, api.answers, api.turns, control_gid=control_gid
        ) as acceptor:
            yield Served(api, advisor, socket_path, snapshot_path, asyncio.get_running_loop(), acceptor)
    finally:
        remove_socket(socket_path)


@contextlib.contextmanager
def served_in_thread(
    folder: Path, advisor: ScriptedAdvisor | None = None, **options: Any
) -> Iterator[Served]:
    """The same in a thread of its own, for clients that block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = served(folder, advisor, **options)
    try:
        running = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(60)
        try:
            yield running
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
