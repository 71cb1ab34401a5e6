"""Read this first: the frozen dataclasses that flow through penstock.

A `Context` says where something is measured and at which size. The optimizer proposes a `ProbePlan`; a probe carries
it out and returns an `Observation`, or `Inconclusive` if it could not measure. A model turns observations into a `Fit`,
and a fit into a `Prediction`. Applications receive a `Recommendation`.

Sizes are in bytes and times in seconds; each name carries its unit. Moments end in `_at` and are aware UTC dates.
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
    """Where something is measured. Each place has one fit, which is used for no other place."""

    operation: str  # a key of the table of operations: "s3_upload", "sqs_delivery"
    region: str
    instance_type: str
    service_class: str = "standard"  # "standard" or "express" (S3), "standard" or "fifo" (SQS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A place and a payload size: the bytes of one object (S3) or of one message (SQS)."""

    place: Place
    payload_size_bytes: int

    @property
    def operation(self) -> str:
        return self.place.operation


@dataclass(frozen=True, slots=True)
class Knob:
    """The bounds of one field of a setting, both included. Every knob is searched on a logarithmic scale."""

    low: float
    high: float
    is_divided: bool = False  # the host's total, which concurrent processes divide among themselves


def knob(low: float, high: float, *, default: float | None = None, is_divided: bool = False) -> Any:
    """Declare a field of a setting with its bounds. Returns Any, as `dataclasses.field` does."""
    metadata = {"knob": Knob(low, high, is_divided)}
    if default is None:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


class Setting(Protocol):
    """The parameters that an operation accepts: a frozen dataclass whose fields are declared with `knob`.

    Each operation defines its own beside its model.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]


SettingT = TypeVar("SettingT", bound=Setting)


def knobs(setting_type: type[Setting] | Setting) -> dict[str, Knob]:
    """The knobs of a setting by field name, in the order of declaration."""
    return {f.name: f.metadata["knob"] for f in dataclasses.fields(setting_type) if "knob" in f.metadata}


def divided_knobs(setting: type[Setting] | Setting) -> list[str]:
    """The names of the knobs that hold the host's total, which concurrent processes divide among themselves."""
    return [name for name, knob in knobs(setting).items() if knob.is_divided]


def doubled(setting: SettingT) -> SettingT:
    """The setting with twice the threads, and twice the limits that would keep these idle."""
    return dataclasses.replace(
        setting, **{name: 2 * getattr(setting, name) for name in divided_knobs(setting)}
    )


def setting_values(setting: Setting) -> dict[str, float]:
    """The values of a setting by field name, as JSON and SQLite store them."""
    return {name: getattr(setting, name) for name in knobs(setting)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an action costs at most, or did cost. Burst credits are bytes sent above the host's baseline rate."""

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
        """Subtract field by field; the result may be negative, because it may correct what was booked too high."""
        return type(self)(
            **{f.name: getattr(self, f.name) - getattr(other, f.name) for f in dataclasses.fields(self)}
        )

    def __mul__(self, factor: float) -> Self:
        """Multiply each field by a factor; bytes and requests are rounded to whole numbers."""
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
    """What requests and bytes between this host and one service cost in US dollars. By default they are free."""

    # PUT, POST and LIST; any request to a queue, where each 64 KiB count as one
    usd_per_write_request: float = 0.0
    usd_per_read_request: float = 0.0
    usd_per_sent_byte: float = 0.0  # by this host, including the network path
    usd_per_received_byte: float = 0.0
    usd_per_stored_byte_day: float = 0.0
    usd_per_key_request: float = 0.0  # to AWS KMS, for encryption on write and decryption on read
    key_request_count: float = 0.0  # KMS requests per write or read request, as responses show

    def usd(
        self,
        *,
        write_request_count: float = 0,
        read_request_count: float = 0,
        free_request_count: float = 0,
        sent_bytes: float = 0,
        received_bytes: float = 0,
    ) -> float:
        """The price of these amounts and of each request's headers; a free request pays for its headers alone."""
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
        """The cost of these amounts, which are named as in `usd`."""
        return Cost(
            transferred_bytes=amounts.get("sent_bytes", 0) + amounts.get("received_bytes", 0),
            request_count=sum(count for name, count in amounts.items() if name.endswith("_count")),
            usd=self.usd(**amounts),
        )


# Of each request and of each response: headers and signature; with queues, also message names and receipts.
BESIDE_PAYLOAD_BYTES = 4096
FREE = Tariff()


class Reason(StrEnum):
    """Why a probe is made."""

    RAMP = "ramp"  # the safe start: few threads first
    EXPLORE = "explore"  # away from the advice, where a measurement is worth most for its price
    REFINE = "refine"  # near the advice
    VERIFY = "verify"  # the advised setting itself, to check it and to notice changes
    REQUESTED = "requested"  # an operator asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan(Generic[SettingT]):
    """What to try, why, and the most that it may cost. A probe stops at the first limit that it reaches."""

    context: Context
    setting: SettingT
    reason: Reason
    cost_max: Cost
    seed: int = 0  # of the probe's random numbers (message bodies, jitter), so that a plan can be replayed
    tariff: Tariff = FREE  # the prices of `cost_max.usd` and of the true cost
    body_count: int | None = None  # S3: requests with a body; None: as many as a steady state needs


class Origin(StrEnum):
    """Who measured."""

    PROBE = "probe"
    APPLICATION = "application"


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values fell into each bin of a logarithmic scale: bin i extends from 2^(i/16) to 2^((i+1)/16).

    `counts` begins with bin `first`. A quantile is exact to 2.2 %; histograms can be added.
    """

    first: int = 0
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """How often one API call of a service was made and how it went, as reported by SDKs."""

    call_count: int
    attempt_count: int
    retry_count: int  # attempts after the first, which the SDK made without telling the application
    refused_count: int  # attempts that the service throttled
    refused_fraction_max: float  # of the attempts within one minute
    failed_count: int
    in_flight_count_mean: float  # over the time in which any call was in flight
    in_flight_count_max: float
    latencies: Histogram  # of attempts, in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHour(Calls):
    """How one application used one API call of a service during an hour of listening, as reported by its SDK.

    Any user of the host can send such reports, so they are weak evidence, to be shown to people.
    """

    began_at: datetime
    ended_at: datetime
    name: str  # of the application, if it was given one
    product: str
    version: str
    user_id: int | None  # the owner of the sending socket; None if unknown
    service: str
    api: str
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeHarm:
    """How much longer the attempts of applications took during a probe than just before and just after it."""

    started_at: datetime
    ended_at: datetime
    operation: str
    region: str
    payload_size_bytes: int
    attempt_count: int  # heard during the probe, and compared
    latency_increase_seconds: Estimate
    refused_fraction_increase: float
    # False: too few attempts were heard after the probe, or the next probe began
    is_held_against_after: bool
    is_broken_off: bool  # the probe was ended early because of it


@dataclass(frozen=True, slots=True)
class Pairs:
    """How the times of successive requests are correlated: sums of squares and products of centred logarithms.

    Sums of several observations can be added.
    """

    count: int
    xx: float
    yy: float
    xy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(Generic[SettingT]):
    """One measurement, with evidence of its quality.

    `measures` holds what is specific to the operation (``send_seconds_mean``, ``duplicate_count``); the operation's
    model documents the names. Throttled and failed requests are counted, because they are evidence too. `histograms`
    holds the times of single requests by name (``request_seconds``, ``first_byte_seconds``).
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
    client_cpu_fraction: float = 0.0  # of one core, used by the process that did the work
    loop_lag_seconds_max: float = 0.0  # of the event loop: how much the prober itself interfered
    origin: Origin = Origin.PROBE
    client: str = "penstock"  # the client whose behaviour was measured: "boto3", "s5cmd", ...
    reporter_uid: int | None = None  # the user who reported it, according to the kernel; None for a probe
    measures: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    successive: Pairs | None = None  # requests of one thread, or messages, one after another
    # Why it was measured; None for a report, and in observations that an earlier version stored.
    reason: Reason | None = None
    # The prediction of the model's value before this measurement; None if there was none.
    foreseen: Estimate | None = None

    @property
    def throughput_bytes_per_second(self) -> float:
        """Bytes per second of elapsed time; 0 for an empty observation."""
        return self.transferred_bytes / self.duration_seconds if self.duration_seconds > 0 else 0.0

    @property
    def went_well(self) -> bool:
        """Whether throttled and failed requests were too few to blame on the setting."""
        return is_stray(self.throttled_count + self.failed_count, self.request_count)


STRAY_FRACTION_MAX = 0.02


def is_stray(trouble_count: int, request_count: int) -> bool:
    """Whether so few requests were throttled or failed that this says nothing about the setting.

    A connection breaks now and then, and S3 refuses single requests while it repartitions a prefix.
    """
    return trouble_count <= max(1.0, STRAY_FRACTION_MAX * request_count) and trouble_count < max(
        request_count, 1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inconclusive(Generic[SettingT]):
    """A probe that could not measure. It is stored and shown, but no model learns from it."""

    context: Context
    setting: SettingT
    started_at: datetime
    reason: str  # one sentence for the operator: what happened and what to do
    transferred_bytes: int = 0  # what it cost nevertheless
    request_count: int = 0


Outcome: TypeAlias = "Observation[SettingT] | Inconclusive[SettingT]"


WIDE_FACTOR = 5.0  # between the ends of an interval; beyond it, the number is little more than a guess


NORMAL_90 = 1.6449  # standard deviations on either side of the mean that hold 90 % of a normal distribution


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 90 % interval."""

    low: float
    expected: float
    high: float

    @property
    def is_guess(self) -> bool:
        """Whether the interval is about as wide as before anything was measured."""
        return self.high > WIDE_FACTOR * max(self.low, 0.0)


Prediction: TypeAlias = Mapping[str, Estimate]
"""Estimates by metric name (``throughput_bytes_per_second``, ``latency_seconds_p99``, ...)."""


class Basis(StrEnum):
    """What a recommendation rests on, weakest first."""

    DEFAULT = "default"  # nothing is known: the SDK's own default
    PRIOR = "prior"  # tables and neighbours; nothing was measured here
    REPORTED = "reported"  # reports of applications; nothing was measured here
    MODEL = "model"  # a fit to observations of this place, at other sizes or settings
    MEASURED = "measured"  # the advised setting, or one within a tenth of it, was measured at about this size


class Obstacle(StrEnum):
    """Why no more threads are advised, where more might help."""

    UNTRIED = "untried"  # probes have not tried more
    THREADS = "threads"  # the demand or the operator allows no more of them
    MEMORY = "memory"  # nor the memory that they would hold


class Objective(StrEnum):
    """What an application optimises for."""

    THROUGHPUT = "throughput"  # throughput, less a price for connections
    PEAK = "peak"  # the most throughput, however many connections it takes
    LATENCY = "latency"  # the shortest time for one object or message
    FRUGAL = "frugal"  # the least memory, connections and requests that still reach 80 % of the best


class Regime(StrEnum):
    """Which network ceiling of the host the advice is for."""

    AUTO = "auto"  # burst if the transfer ends well before the burst credits do, otherwise sustained
    SUSTAINED = "sustained"
    BURST = "burst"


class Access(StrEnum):
    """Which bytes of an object are read."""

    WHOLE = "whole"  # from beginning to end
    RANDOM = "random"  # ranges anywhere in a large object: Parquet, blocks of a file system


class Sink(StrEnum):
    """Where the bytes that are read go."""

    MEMORY = "memory"
    FILE = "file"
    NULL = "null"  # they are counted and dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What an application asks for: its objective, its hard limits and its load. None means "not stated"."""

    objective: Objective = Objective.THROUGHPUT
    regime: Regime = Regime.AUTO
    memory_bytes_max: int | None = None
    bandwidth_bytes_per_second_max: float | None = None
    thread_count_max: int | None = None
    object_count: int = 1  # S3: objects that are moved concurrently
    access: Access | None = None  # S3 downloads; None means whole
    range_size_bytes: int | None = None  # S3 downloads, random access: what the reader asks for at a time
    sink: Sink | None = None  # S3 downloads; None means memory
    message_rate_per_second: float | None = None  # SQS: the load to carry; None means as much as possible
    message_group_count: int | None = None  # SQS FIFO: groups in use; None means too many to be a limit
    work_seconds: float = 0.0  # SQS: the time that the consumer itself takes for one message
    latency_objective_seconds: float | None = None  # SQS: from send to receive, mean
    visibility_timeout_seconds: float | None = None  # SQS: None means that of the probe's own queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation(Generic[SettingT]):
    """The advice for one context, with its reason, its intervals and its expiry date.

    `derived` holds client options that follow from the setting (``connection_pool_count``,
    ``multipart_threshold_bytes``, ``crt_target_gbps``, ``receive_window_message_count``, ...). `gain_over_default` is
    the average gain over the SDK's own default, as a factor: of throughput or, for the objective `latency`, of the
    time of one object or message. It is None while nothing is known, and in advice that an earlier version stored.
    """

    context: Context
    setting: SettingT
    derived: Mapping[str, float]
    prediction: Prediction
    demand: Demand
    basis: Basis
    bottleneck: str  # what limits it: "connections", "host-ceiling", "request-rate", "client-cpu", ...
    explanation: str  # a few sentences
    observation_count: int
    newest_observation_at: datetime | None
    issued_at: datetime
    expires_at: datetime
    gain_over_default: Estimate | None = None
    obstacle: Obstacle | None = None
    store: str = ""  # the object store, where it is known not to be that of AWS

    def has_expired(self, now: datetime) -> bool:
        return now >= self.expires_at


@dataclass(frozen=True, slots=True)
class Moved:
    """An estimate before and after a change."""

    before: Estimate
    after: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceMoved(Generic[SettingT]):
    """How a change of the place changed the advice for one payload size and the default demand."""

    payload_size_bytes: int
    before: SettingT
    after: SettingT
    value: Moved | None  # of the setting advised before; None if the earlier fit cannot be read any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[SettingT]):
    """A place changed: when, which parameters moved and how far, and the advice before and after.

    It is kept longer than the fit that noticed it. `known_until` is the newest measurement at the time when it was
    noticed: a change found at or before that moment is this one again.
    """

    place: Place
    changed_at: datetime  # the first measurement after the change
    unchanged_at: datetime | None  # the last measurement before it
    noticed_at: datetime
    known_until: datetime
    parameters: Mapping[str, Moved]
    advice: tuple[AdviceMoved[SettingT], ...]
    as_until: datetime | None = None  # the place returned to the state that it left then; None if it is new
