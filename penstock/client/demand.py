"""Knows what may be stated with a question, for editors and type checkers: the names of the socket's query.

Nothing of penstock imports this at run time. A name that is not here is an error to a checker; at run time the daemon
refuses it, and the application gets the SDK's defaults and a line in its log: what was misspelled may be a limit.
"""

from __future__ import annotations

from typing import Literal, TypedDict, Union

_Size = Union[int, str, None]  # noqa: UP007 - evaluated, and Python 3.9 has no other way
_Number = Union[float, str, None]  # noqa: UP007


class CommonDemand(TypedDict, total=False):
    """What any question may state; sizes may be text such as ``"512MiB"``."""

    objective: Literal["throughput", "peak", "latency", "frugal"]
    regime: Literal["auto", "sustained", "burst"]
    memory_bytes_max: _Size
    bandwidth_bytes_per_second_max: _Number
    thread_count_max: int | None
    region: str | None
    instance_type: str | None
    service_class: Literal["standard", "express", "fifo", "fifo-high-throughput"]


class TransferDemand(CommonDemand, total=False):
    """What an upload or a download may state."""

    object_count: int | None
    access: Literal["whole", "random"]
    range_size_bytes: _Size
    sink: Literal["memory", "file", "null"]


class DeliveryDemand(CommonDemand, total=False):
    """What an application of a queue may state; durations may be text such as ``"20ms"``."""

    message_rate_per_second: _Number
    message_group_count: int | None
    work_seconds: _Number
    latency_objective_seconds: _Number
    visibility_timeout_seconds: _Number


class Demand(TransferDemand, DeliveryDemand, total=False):
    """Both, for what takes the operation as an argument."""


class LeaseOptions(Demand, total=False):
    """Whose share it is beside that, which `penstock.client.lease.Lease` explains."""

    weight: float
    resource: str
    client: str
    socket: str | None
