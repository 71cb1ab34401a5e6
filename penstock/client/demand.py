"""Knows what may be stated with a question, for editors and type checkers: the names of the socket's query.

Nothing of penstock imports this at run time. A name that is not here is an error to a checker; at run time the daemon
refuses it, and the application gets the SDK's defaults and a line in its log: what was misspelled may be a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.client.advice import Advice
    from penstock.client.many_files import File
    from penstock.client.reporting import Reporter

_Size = Union[int, str, None]  # noqa: UP007 - evaluated, and Python 3.9 has no other way
_Number = Union[float, str, None]  # noqa: UP007


class CommonDemand(TypedDict, total=False):
    """What any question may state; sizes may be text such as ``"512MiB"``."""

    objective: Literal["throughput", "latency", "frugal"]
    regime: Literal["auto", "sustained", "burst"]
    memory_bytes_max: _Size
    bandwidth_bytes_per_second_max: _Number
    thread_count_max: int | None
    region: str | None
    instance_type: str | None
    service_class: Literal["standard", "express", "fifo", "fifo-high-throughput"]


class FilesOptions(CommonDemand, total=False):
    """How many files are moved, which `upload_files` of `penstock.client.boto3` explains."""

    advice: Advice | None
    client_arguments: Mapping[str, Any] | None
    extra_args: Mapping[str, Any] | None
    callback: Callable[[int], None] | None
    on_file: Callable[[File], object] | None
    reporter: Reporter | None


class TransferDemand(CommonDemand, total=False):
    """What an upload or a download may state."""

    object_count: int | None
    access: Literal["whole", "random"]
    range_size_bytes: _Size
    sink: Literal["memory", "file", "null"]


class StreamOptions(TransferDemand, total=False):
    """How a stream is written, which `penstock.client.boto3.open_writer` explains."""

    size_bytes: int | None
    advice: Advice | None
    extra_args: Mapping[str, Any] | None
    callback: Callable[[int], None] | None
    reporter: Reporter | None


class DeliveryDemand(CommonDemand, total=False):
    """What an application of a queue may state; durations may be text such as ``"20ms"``."""

    message_rate_per_second: _Number
    message_group_count: int | None
    work_seconds: _Number
    latency_objective_seconds: _Number
    visibility_timeout_seconds: _Number


class ConsumerOptions(DeliveryDemand, total=False):
    """How a queue is consumed, which `penstock.client.boto3.QueueConsumer` explains."""

    message_size_bytes: int
    advice: Advice | None
    reporter: Reporter | None
    report_seconds: float
    long_poll_seconds: int
    hold_seconds_max: float


class ProducerOptions(DeliveryDemand, total=False):
    """How messages are sent, which `penstock.client.boto3.QueueProducer` explains."""

    message_size_bytes: int
    advice: Advice | None
    try_seconds_max: float


class Demand(TransferDemand, DeliveryDemand, total=False):
    """Both, for what takes the operation as an argument."""


class LeaseOptions(Demand, total=False):
    """Whose share it is beside that, which `penstock.client.lease.Lease` explains."""

    weight: float
    resource: str
    client: str
    socket: str | None
