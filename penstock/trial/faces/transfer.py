"""Knows how advice for moving an object is proved: plain boto3 without it, with it, and at the link's optimum."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.client.advice import Advice
from penstock.lab.optimum import Optimum
from penstock.operations.operation import Operation
from penstock.trial.faces.face import BUCKET, Face, Shown, Stage, Told, times
from penstock.units import counted, format_bytes, format_rate

ROUND_COUNT = 2

Move = Callable[[Any, Any], float]
"""Move the object once with a client and a TransferConfig; returns bytes per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProof:
    """An object moved by plain boto3 without advice, with it and at the optimum, beside what the link can do."""

    size_knob: ClassVar[str]  # the knob of the request size
    title: ClassVar[str]

    object_size_bytes: int
    default_setting: Mapping[str, float]
    default_bytes_per_second: float
    advised_setting: Mapping[str, float]
    advised_bytes_per_second: float
    predicted_bytes_per_second: Mapping[str, float]
    optimum_setting: Mapping[str, float]
    optimum_bytes_per_second: float
    boto3_at_optimum_bytes_per_second: float
    advised_over_boto3_at_optimum: float
    advised_over_optimum: float
    advised_over_default: float
    probe_count: int

    def shown(self) -> Shown:
        rows = (
            ("boto3, default", self.default_setting, self.default_bytes_per_second),
            ("boto3, advised", self.advised_setting, self.advised_bytes_per_second),
            ("boto3, at optimum", self.optimum_setting, self.boto3_at_optimum_bytes_per_second),
            ("known optimum", self.optimum_setting, self.optimum_bytes_per_second),
        )
        size = format_bytes(self.object_size_bytes)
        heading = self.size_knob.removesuffix("_bytes").replace("_", " ")
        return Shown(
            title=f"S3: {self.title.format(size=size)}, after {self.probe_count} probes",
            headings=("", "threads", heading, "throughput", "over default"),
            rows=[
                (
                    who,
                    f"{setting['thread_count']:.0f}",
                    format_bytes(setting[self.size_knob]),
                    format_rate(rate),
                    times(rate / self.default_bytes_per_second),
                )
                for who, setting, rate in rows
            ],
            sentence=f"The advice reaches {self.advised_over_boto3_at_optimum:.1%} of what boto3 reaches with the "
            f"link's optimal setting, and {self.advised_over_optimum:.1%} of what the link's physics allow.",
        )

    @classmethod
    def made(  # noqa: PLR0917  # all that a proof is made from
        cls,
        stage: Stage,
        advice: Advice,
        probe_count: int,
        object_size_bytes: int,
        move: Move,
        advised: tuple[Any, Any],
        optimum: Optimum,
    ) -> TransferProof:
        """Move the object with boto3's default, and then in turn with the advice and with the optimal setting.

        `advised` is a client and a TransferConfig.
        """
        from boto3.s3.transfer import TransferConfig
        from botocore.config import Config

        plain, best = TransferConfig(), optimum.thread_count
        pooled = stage.clients.s3(Config(max_pool_connections=best))
        known = TransferConfig(
            max_concurrency=best,
            multipart_chunksize=optimum.request_size_bytes,
            multipart_threshold=optimum.request_size_bytes,
        )
        ways = {"advised": advised, "at optimum": (pooled, known)}
        default_rate = _moved(stage, move, "default", stage.clients.s3(), plain)
        rounds = [[_moved(stage, move, name, *way) for name, way in ways.items()] for _ in range(ROUND_COUNT)]
        advised_rate, known_rate = (statistics.mean(rates) for rates in zip(*rounds, strict=True))
        return cls(
            object_size_bytes=object_size_bytes,
            default_setting={
                "thread_count": plain.max_request_concurrency,
                cls.size_knob: plain.multipart_chunksize,
            },
            default_bytes_per_second=default_rate,
            advised_setting=dict(advice.setting),
            advised_bytes_per_second=advised_rate,
            predicted_bytes_per_second=advice.document["prediction"]["throughput_bytes_per_second"],
            optimum_setting={"thread_count": optimum.thread_count, cls.size_knob: optimum.request_size_bytes},
            optimum_bytes_per_second=optimum.throughput_bytes_per_second,
            boto3_at_optimum_bytes_per_second=known_rate,
            advised_over_boto3_at_optimum=advised_rate / known_rate,
            advised_over_optimum=advised_rate / optimum.throughput_bytes_per_second,
            advised_over_default=advised_rate / default_rate,
            probe_count=probe_count,
        )


def _moved(stage: Stage, move: Move, name: str, client: Any, config: Any) -> float:
    """Bytes per second of one move, which is also reported to the reader."""
    rate = move(client, config)
    threads = counted(config.max_request_concurrency, "thread")
    stage.tell(Told(step="prove", sentence=f"boto3, {name}: {threads}, {format_rate(rate)}"))
    return rate


def transfer_face(
    row: Operation[Any, Any],
    object_size_bytes: int,
    *,
    duration_seconds_max: int,
    prove: Callable[[Stage, Advice, int], TransferProof],
) -> Face:
    """The face of an operation that moves objects of one size, probed as often as possible."""
    return Face(
        row=row,
        section={
            "is_enabled": True,
            "bucket": BUCKET,
            "object_size_bytes": [object_size_bytes],
            "mean_interval_seconds": "1s",
            "duration_seconds_max": f"{duration_seconds_max}s",
            "transferred_bytes_max": 2 * object_size_bytes,
            "thread_count_max": 128,
        },
        payload_size_bytes=object_size_bytes,
        demand={},
        prove=prove,
    )
