"""Read this first: the few frozen words that flow through penstock.

A `Context` says where and what for. The optimizer proposes a `ProbePlan`; a probe carries it out and returns
an `Observation`, or `Inconclusive` when it could not measure. A model turns observations into a `Fit`, and a fit
answers with a `Prediction`. What applications hear is a `Recommendation`.

Bytes and seconds throughout; the unit is in the name; moments end in `_at` and are aware UTC dates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something is measured. Whatever shares a place shares one fit, which is claimed nowhere else."""

    operation: str  # a key of the table of operations: "s3_upload", "sqs_delivery"
    region: str
    instance_type: str
    service_class: str = "standard"  # "standard" or "express" (S3), "standard" or "fifo" (SQS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A place and the size of what is moved: bytes of one object (S3) or of one message (SQS)."""

    place: Place
    payload_size_bytes: int

    @property
    def operation(self) -> str:
        return self.place.operation


@dataclass(frozen=True, slots=True)
class Knob:
    """The bounds of one field of a setting, both ends included, written once. All are searched by ratios."""

    low: float
    high: float
    is_divided: bool = False  # the host's total, which those who work at a time divide


def knob(low: float, high: float, *, default: float | None = None, is_divided: bool = False) -> Any:
    """Declare a field of a setting with its bounds. Returns Any because `dataclasses.field` does."""
    metadata = {"knob": Knob(low, high, is_divided)}
    if default is None:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


class Setting(Protocol):
    """What an operation can be told: a frozen dataclass whose fields are declared with `knob`.

    Each operation has its own; it lives beside its model.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]


SettingT = TypeVar("SettingT", bound=Setting)


def knobs(setting_type: type[Setting] | Setting) -> dict[str, Knob]:
    """The knobs of a setting by field name, in the order of declaration."""
    return {f.name: f.metadata["knob"] for f in dataclasses.fields(setting_type) if "knob" in f.metadata}


def divided_knobs(setting: type[Setting] | Setting) -> list[str]:
    """The names of those that are the host's total, which who works at a time divides."""
    return [name for name, knob in knobs(setting).items() if knob.is_divided]


def setting_values(setting: Setting) -> dict[str, float]:
    """The values of a setting by field name, as JSON and SQLite store them."""
    return {name: getattr(setting, name) for name in knobs(setting)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an act may cost at the most, or did cost. Credits are bytes above the host's baseline rate."""

    transferred_bytes: int = 0
    request_count: int = 0
    usd: float = 0.0
    credit_bytes: int = 0
    duration_seconds: float = 0.0

    def __add__(self, other: Self) -> Self:
        return type(self)(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in dataclasses.fields(self)}
        )

    def __sub__(self, other: Self) -> Self:
        """Field by field; what corrects a booking may be less than nothing."""
        return type(self)(
            **{f.name: getattr(self, f.name) - getattr(other, f.name) for f in dataclasses.fields(self)}
        )

    def __mul__(self, factor: float) -> Self:
        """So much of it, in whole bytes and requests."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return type(self)(
            **{
                name: round(factor * value) if isinstance(value, int) else factor * value
                for name, value in values.items()
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What one operation cost in one hour."""

    hour_at: datetime  # when the hour began
    operation: str
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """What requests and bytes cost in US dollars on the way between this host and one service. Nothing, by default."""

    usd_per_write_request: float = 0.0  # PUT, POST and LIST; any request to a queue, of 64 KiB each
    usd_per_read_request: float = 0.0
    usd_per_sent_byte: float = 0.0  # from this host, the way included
    usd_per_received_byte: float = 0.0
    usd_per_stored_byte_day: float = 0.0
    usd_per_key_request: float = 0.0  # of AWS KMS, which may encrypt what is written and decrypt what is read
    key_request_count: float = 0.0  # of those for each request that writes or reads; answers tell it

    def usd(
        self,
        *,
        write_request_count: float = 0,
        read_request_count: float = 0,
        free_request_count: float = 0,
        sent_bytes: float = 0,
        received_bytes: float = 0,
    ) -> float:
        """The price of these, with what travels beside the payload of each request; free ones pay for that alone."""
        request_count = write_request_count + read_request_count + free_request_count
        beside_bytes = request_count * BESIDE_PAYLOAD_BYTES
        key_usd = self.key_request_count * self.usd_per_key_request
        return (
            write_request_count * (self.usd_per_write_request + key_usd)
            + read_request_count * (self.usd_per_read_request + key_usd)
            + (sent_bytes + beside_bytes) * self.usd_per_sent_byte
            + (received_bytes + beside_bytes) * self.usd_per_received_byte
        )

    def cost(self, **amounts: int) -> Cost:
        """All of these, which are those of `usd`, and their price."""
        return Cost(
            transferred_bytes=amounts.get("sent_bytes", 0) + amounts.get("received_bytes", 0),
            request_count=sum(count for name, count in amounts.items() if name.endswith("_count")),
            usd=self.usd(**amounts),
        )


# Of one request, each way: headers and signature; of messages, their names and receipts.
BESIDE_PAYLOAD_BYTES = 4096
FREE = Tariff()


class Reason(StrEnum):
    """Why a probe is made."""

    RAMP = "ramp"  # the safe start: few threads first
    EXPLORE = "explore"  # where the model knows least for the price
    REFINE = "refine"  # near the incumbent
    VERIFY = "verify"  # the incumbent itself, to notice change
    REQUESTED = "requested"  # an operator asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan(Generic[SettingT]):
    """What to try, why, and the most that it may cost. A probe stops at whichever limit it meets first."""

    context: Context
    setting: SettingT
    reason: Reason
    cost_max: Cost
    seed: int = 0  # of the probe's own chance (message bodies, jitter), so that a plan can be replayed
    tariff: Tariff = FREE  # at which its dollars were reckoned, and are settled
    body_count: int | None = None  # S3: requests with a body; None is as many as a steady state needs


class Origin(StrEnum):
    """Who measured."""

    PROBE = "probe"
    APPLICATION = "application"


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values fell into each class of a logarithmic scale: class i reaches from 2^(i/16) to 2^((i+1)/16).

    `counts` begins with class `first`. What is known of a quantile is right to 2.2 %; two of them add up.
    """

    first: int = 0
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """How often one call of a service was made, and how it went, as SDKs tell of it."""

    call_count: int
    attempt_count: int
    retry_count: int  # attempts beyond the first, which the SDK did not tell the application of
    refused_count: int  # attempts that the service refused for being too many
    refused_fraction_max: float  # of the attempts of one minute
    failed_count: int
    in_flight_count_mean: float  # while anything was in flight
    in_flight_count_max: float  # at once
    latencies: Histogram  # of attempts, in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHour(Calls):
    """What one application did with one call of a service in an hour of listening, as its own SDK told it.

    Any user of the host can send it: it is weak evidence, for people to look at.
    """

    began_at: datetime
    ended_at: datetime
    name: str  # that somebody gave it, if any
    product: str
    version: str
    user_id: int | None  # whose socket it came from; None where nobody could say
    service: str
    api: str
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeHarm:
    """How much longer attempts of applications took beside a probe than just before it and just after it."""

    started_at: datetime
    ended_at: datetime
    operation: str
    region: str
    payload_size_bytes: int
    attempt_count: int  # that were heard beside it, and compared
    latency_increase_seconds: Estimate
    refused_fraction_increase: float
    is_held_against_after: bool  # False: nobody was heard often enough after it, or the next probe began
    is_broken_off: bool


@dataclass(frozen=True, slots=True)
class Pairs:
    """How the time of a request goes with that of the next one: sums of logarithms around their means, which add up."""

    count: int
    xx: float
    yy: float
    xy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(Generic[SettingT]):
    """What was measured, with the evidence of its own quality.

    `measures` holds what only this operation has (``send_seconds_mean``, ``duplicate_count``); the model of
    the operation documents the names. Requests that were throttled or failed are counted, not hidden: they
    are evidence. `histograms` holds the times of single requests by name (``request_seconds``,
    ``first_byte_seconds``).
    """

    context: Context
    setting: SettingT
    started_at: datetime
    duration_seconds: float
    transferred_bytes: int
    request_count: int
    throttled_count: int = 0
    failed_count: int = 0
    latency_seconds_mean: float = 0.0  # of one request (S3: one part; SQS: send to receive)
    latency_seconds_p50: float = 0.0
    latency_seconds_p99: float = 0.0
    client_cpu_fraction: float = 0.0  # of one core, by the process that did the work
    loop_lag_seconds_max: float = 0.0  # how late the event loop was at worst: the measurer's own disturbance
    origin: Origin = Origin.PROBE
    client: str = "penstock"  # "boto3", "s5cmd", ...: whose behaviour was measured
    reporter_uid: int | None = None  # whose process reported it, as the kernel says; None for a probe
    measures: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    successive: Pairs | None = None  # requests of one thread, or messages, one after another
    # Why it was measured; None for a report, and in what an earlier version stored.
    reason: Reason | None = None
    # What the model's value was expected to be before it was measured; None where nobody could say.
    foreseen: Estimate | None = None

    @property
    def throughput_bytes_per_second(self) -> float:
        """Bytes that arrived per second of wall time; 0 for an empty observation."""
        return self.transferred_bytes / self.duration_seconds if self.duration_seconds > 0 else 0.0

    @property
    def went_well(self) -> bool:
        """Whether no more requests were throttled or failed than happens to anybody."""
        return is_stray(self.throttled_count + self.failed_count, self.request_count)


STRAY_FRACTION_MAX = 0.02


def is_stray(trouble_count: int, request_count: int) -> bool:
    """Whether so few of the requests met with trouble that it says nothing of the setting.

    A connection breaks now and then, and S3 refuses single requests while it divides a prefix anew.
    """
    return trouble_count <= max(1.0, STRAY_FRACTION_MAX * request_count) and trouble_count < max(
        request_count, 1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inconclusive(Generic[SettingT]):
    """A probe that could not measure. Stored and shown, never fed to a model."""

    context: Context
    setting: SettingT
    started_at: datetime
    reason: str  # one sentence for the operator: what happened and what to do
    transferred_bytes: int = 0  # what it cost all the same
    request_count: int = 0


Outcome: TypeAlias = "Observation[SettingT] | Inconclusive[SettingT]"


WIDE_FACTOR = 5.0  # between the ends of an interval: past it the number is little more than a guess


NORMAL_90 = 1.6449  # standard deviations on either side of the mean that hold 90 % of a normal distribution


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 90 % interval."""

    low: float
    expected: float
    high: float

    @property
    def is_guess(self) -> bool:
        """Little more than one: before anything was measured, intervals are about as wide."""
        return self.high > WIDE_FACTOR * max(self.low, 0.0)


Prediction: TypeAlias = Mapping[str, Estimate]
"""Estimates by metric name (``throughput_bytes_per_second``, ``latency_seconds_p99``, ...)."""


class Basis(StrEnum):
    """What a recommendation rests on, weakest first."""

    DEFAULT = "default"  # nothing is known: what the SDK would do
    PRIOR = "prior"  # tables and neighbours, nothing measured here
    REPORTED = "reported"  # what applications reported, nothing measured here
    MODEL = "model"  # a fit to observations of this place, at other sizes or settings
    MEASURED = "measured"  # the advised setting itself was measured, at this size


class Objective(StrEnum):
    """What an application wants most."""

    THROUGHPUT = "throughput"  # no more threads and memory than what they bring is worth
    PEAK = "peak"  # the most throughput, whatever it takes
    LATENCY = "latency"  # the shortest time for one object or message
    FRUGAL = "frugal"  # least memory, connections and requests that still reach 80 % of the best


class Regime(StrEnum):
    """Which ceiling of the host the advice is for."""

    AUTO = "auto"  # burst where the transfer ends well before the credits do, sustained else
    SUSTAINED = "sustained"
    BURST = "burst"


class Access(StrEnum):
    """Which bytes of an object are read."""

    WHOLE = "whole"  # from begin to end
    RANDOM = "random"  # ranges of a large one, wherever they lie: Parquet, blocks of a file system


class Sink(StrEnum):
    """Where what is read goes to."""

    MEMORY = "memory"
    FILE = "file"
    NULL = "null"  # it is counted and dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What an application asks for: its aim, its hard limits and its load. None is "not stated"."""

    objective: Objective = Objective.THROUGHPUT
    regime: Regime = Regime.AUTO
    memory_bytes_max: int | None = None
    bandwidth_bytes_per_second_max: float | None = None
    thread_count_max: int | None = None
    object_count: int = 1  # S3: how many objects move at a time
    access: Access | None = None  # S3 downloads; None is whole
    range_size_bytes: int | None = None  # S3 downloads, random: what the reader asks for at a time
    sink: Sink | None = None  # S3 downloads; None is memory
    message_rate_per_second: float | None = None  # SQS: the load to carry; None is "as much as can be had"
    message_group_count: int | None = None  # SQS FIFO: groups in use; None is enough not to matter
    work_seconds: float = 0.0  # SQS: the consumer's own time for one message
    latency_objective_seconds: float | None = None  # SQS: send to receive, mean
    visibility_timeout_seconds: float | None = None  # SQS: None is what the probe found on its queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation(Generic[SettingT]):
    """The advice for one context, why, how sure, and until when.

    `derived` is the rest of the bundle that follows from the setting (``connection_pool_count``,
    ``multipart_threshold_bytes``, ``crt_target_gbps``, ``receive_window_message_count``, ...). `gain_over_default` is
    how many times as well as the SDK's own default it serves the demand's aim on average: in throughput, or for
    `latency` in the time of one. It is None while nothing is known, and in what an earlier version stored.
    """

    context: Context
    setting: SettingT
    derived: Mapping[str, float]
    prediction: Prediction
    demand: Demand
    basis: Basis
    bottleneck: str  # what limits here: "connections", "host-ceiling", "request-rate", "client-cpu", ...
    explanation: str  # a few sentences
    observation_count: int
    newest_observation_at: datetime | None
    issued_at: datetime
    expires_at: datetime
    gain_over_default: Estimate | None = None
    store: str = ""  # what the objects are in, where that is known not to be AWS

    def has_expired(self, now: datetime) -> bool:
        return now >= self.expires_at


@dataclass(frozen=True, slots=True)
class Moved:
    """An estimate before and after a change."""

    before: Estimate
    after: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceMoved(Generic[SettingT]):
    """What a change of its place did to the ordinary advice of one size."""

    payload_size_bytes: int
    before: SettingT
    after: SettingT
    value: Moved | None  # of the setting that was advised before; None where the fit of then cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[SettingT]):
    """A place became another one: when, what moved and how far, and what was advised before and after.

    It outlives the fit that noticed it. `known_until` is the newest measurement that was there when it was noticed:
    what changed before that is this very change.
    """

    place: Place
    changed_at: datetime  # the first measurement after it
    unchanged_at: datetime | None  # the last one before it
    noticed_at: datetime
    known_until: datetime
    parameters: Mapping[str, Moved]
    advice: tuple[AdviceMoved[SettingT], ...]
    as_until: datetime | None = None  # it is again what it was until then; None where it is a new one
