"""Knows the form of a face: what the demo has to know about an operation in the lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from penstock.client.advice import Advice
from penstock.client.demand import Demand
from penstock.operations.operation import Operation
from penstock.trial.stage import CREDENTIALS

REGION = "lab-1"
BUCKET = "penstock-demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One line of the demo's output, as it happens."""

    step: str  # "start", "learn", "advise", "cost", "prove", "done"
    sentence: str


Tell = Callable[[Told], None]


@dataclass(frozen=True, slots=True)
class Clients:
    """Plain boto3 clients for the lab."""

    s3_endpoint_url: str
    sqs_endpoint_url: str

    def s3(self, config: Any = None) -> Any:
        """A client of S3; `config` is a botocore Config."""
        return self._client("s3", self.s3_endpoint_url, config)

    def sqs(self, connection_count: int) -> Any:
        """A client of SQS with a pool of at least `connection_count` connections."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a proof works with."""

    tell: Tell
    clients: Clients
    directory: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A proof as shown to people: a table, and its conclusion."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    sentence: str


class Proof(Protocol):
    """A dataclass of JSON values: plain boto3 without and with advice, beside the best that the physics allows."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def shown(self) -> Shown:
        """The proof as shown to people."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """One operation in the lab."""

    row: Operation[Any, Any]
    section: Mapping[str, Any]  # of the demo's configuration, with values written alike in TOML and JSON
    payload_size_bytes: int
    demand: Demand
    prove: Callable[[Stage, Advice, int], Proof]  # given the number of probes behind the advice


def times(ratio: float) -> str:
    """``2.74 x``: a ratio to boto3's default."""
    return f"{ratio:.2f} x"
