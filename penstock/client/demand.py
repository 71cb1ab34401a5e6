"""Knows what a question may state, for editors and type checkers: the parameters of the socket's query.

Nothing in penstock imports this at run time. A type checker reports a name that is not here; at run time the daemon
refuses it, because a misspelled parameter may have been a limit, and the application gets the SDK's defaults and a line
in its log.
"""

from __future__ import annotations

from typing import Literal, TypedDict, Union

_Size = Union[int, str, None]  # noqa: UP007 - evaluated at run time, where Python 3.9 has no other way
_Number = Union[float, str, None]  # noqa: UP007


class CommonDemand(TypedDict, total=False):
    """What any question may state; sizes and rates in bytes (per second), or as text such as ``"512MiB"``."""

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
    """What an application of a queue may state; times in seconds, or as text such as ``"20ms"``."""

    message_rate_per_second: _Number
    message_group_count: int | None
    work_seconds: _Number
    latency_objective_seconds: _Number
    visibility_timeout_seconds: _Number


class Demand(TransferDemand, DeliveryDemand, total=False):
    """Both, for functions that take the operation as an argument."""


class LeaseOptions(Demand, total=False):
    """The demand, and the options that `penstock.client.lease.Lease` explains."""

    weight: float
    resource: str
    client: str
    socket: str | None
