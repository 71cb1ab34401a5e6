"""Knows how requests and answers are spelled in JSON and in query strings, and which values clients may send.

One thing has one spelling: JSON key, query parameter and field of the vocabulary are the same word. Everything here is
pure. Invalid input raises `UnreadableError`, which lists all mistakes at once, up to a bound: an answer much larger
than its request would be held in memory for clients that do not read it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from penstock.operations.operation import Operation
from penstock.operations.table import OPERATIONS
from penstock.units import format_bytes, parse_bytes, parse_bytes_per_second, parse_seconds
from penstock.vocabulary import (
    UNKNOWN,
    Access,
    Context,
    Demand,
    Objective,
    Observation,
    Origin,
    Place,
    Recommendation,
    Regime,
    Setting,
    Sink,
    knobs,
    setting_values,
)

SCHEMA = 1  # increased only when a key changes its meaning or is removed; new keys may be added at any time
PAYLOAD_SIZE_BYTES_MAX = max(row.payload_size_bytes_max for row in OPERATIONS.values())
MEMORY_BYTES_MIN = "memory_bytes_min"  # a key of `derived`, where every setting needs more than was allowed
REPORT_COUNT_MAX = 100  # in one request
MISTAKE_COUNT_MAX = 32  # listed at once: a body has room for tens of thousands
_MISTAKE_COUNT_MAX_PER_REPORT = 8
_CLAIM_KEY_COUNT_MAX = 64
_SHAPE_DETAIL_LENGTH_MAX = 256  # the decoder's message may quote a name of any length
_QUERY_VALUE_LENGTH_MAX = 64
_WHOLE_MAX = 10**12
_VISIBILITY_SECONDS_MAX = 43_200.0
_BANDWIDTH_BYTES_PER_SECOND_MAX = 1e15
_MESSAGE_RATE_MAX_PER_SECOND = 1e6
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_SMALL = re.compile(r"[1-9](\.[0-9]{1,30})?e-[0-2][0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All standing advice at one moment. `generation` rises whenever any of it changes."""

    generation: int
    generated_at: datetime
    region: str
    instance_type: str
    recommendations: tuple[Recommendation[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an application asks. None for the region or the instance type means the daemon's own."""

    operation: str
    payload_size_bytes: int
    region: str | None
    instance_type: str | None
    service_class: str
    demand: Demand

    def context(self, home: Place) -> Context:
        """The context of the question, for a daemon that is at `home`."""
        place = Place(
            operation=self.operation,
            region=self.region or home.region,
            instance_type=self.instance_type or home.instance_type,
            service_class=self.service_class,
        )
        return Context(place=place, payload_size_bytes=self.payload_size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an application wants a lease for, and its weight relative to other leases."""

    question: Question
    weight: float = 1.0
    resource: str = ""  # what it contends for: claims with different resources do not share
    client: str = UNKNOWN


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in what was sent: where it is, and what was expected there."""

    where: str
    detail: str


class UnreadableError(ValueError):
    """What was sent is invalid; `mistakes` has the first `MISTAKE_COUNT_MAX` mistakes in it."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes[:MISTAKE_COUNT_MAX])
        sentences = [f"{mistake.where}: {mistake.detail}" for mistake in self.mistakes]
        if len(mistakes) > len(sentences):
            sentences.append(f"and {len(mistakes) - len(sentences):,} more")
        super().__init__("; ".join(sentences))


def encode(document: Mapping[str, Any]) -> bytes:
    """One line of JSON with a line feed, so that every answer can also be a line of a stream."""
    return msgspec.json.encode(document) + b"\n"


def recommendation_document(recommendation: Recommendation[Any], *, generation: int) -> dict[str, Any]:
    """The flat document of one recommendation."""
    context, place = recommendation.context, recommendation.context.place
    gain = recommendation.gain_over_default
    return {
        "schema": SCHEMA,
        "generation": generation,
        "operation": place.operation,
        "region": place.region,
        "instance_type": place.instance_type,
        "service_class": place.service_class,
        "store": recommendation.store or None,
        "payload_size_bytes": context.payload_size_bytes,
        "setting": setting_values(recommendation.setting),
        "derived": {name: _counted(name, value) for name, value in recommendation.derived.items()},
        "prediction": {name: asdict(value) for name, value in recommendation.prediction.items()},
        "gain_over_default": None if gain is None else asdict(gain),
        "basis": recommendation.basis,
        "bottleneck": recommendation.bottleneck,
        "obstacle": recommendation.obstacle,
        "explanation": recommendation.explanation,
        "observation_count": recommendation.observation_count,
        "newest_observation_age_seconds": _age_seconds_when_issued(recommendation),
        "issued_at": recommendation.issued_at,
        "expires_at": recommendation.expires_at,
        "demand": demand_document(recommendation.demand),
    }


def _counted(name: str, value: float) -> float:
    """The value, with bytes and counts as integers, which typed clients expect."""
    return round(value) if name.endswith(("_bytes", "_count")) else value


def demand_document(demand: Demand) -> dict[str, Any]:
    """The fields of a demand that were stated."""
    stated = {field.name: getattr(demand, field.name) for field in fields(demand)}
    return {name: value for name, value in stated.items() if value is not None}


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    """All standing advice, for the snapshot file, ``/v1/recommendations`` and each line of a watch."""
    return {
        "schema": SCHEMA,
        "generation": snapshot.generation,
        "generated_at": snapshot.generated_at,
        "region": snapshot.region,
        "instance_type": snapshot.instance_type,
        "recommendations": [
            recommendation_document(recommendation, generation=snapshot.generation)
            for recommendation in snapshot.recommendations
        ],
    }


def read_question(query: Iterable[tuple[str, str]]) -> Question:
    """The question in a query string. Raises UnreadableError."""
    values, mistakes = _read_parameters(query)
    mistakes += _missing_and_wrong_together(values, {mistake.where for mistake in mistakes})
    if mistakes:
        raise UnreadableError(mistakes)
    return Question(
        operation=values["operation"],
        payload_size_bytes=values["payload_size_bytes"],
        region=values.get("region"),
        instance_type=values.get("instance_type"),
        service_class=values.get("service_class", "standard"),
        demand=Demand(**{name: values[name] for name in DEMAND_PARAMETERS if name in values}),
    )


def _missing_and_wrong_together(values: Mapping[str, Any], told: Collection[str]) -> Iterable[Mistake]:
    """Mistakes about missing parameters and combinations, beside those already found at the places in `told`."""
    row = OPERATIONS.get(values.get("operation", ""))
    if "operation" not in values:
        yield Mistake("operation", f"is missing; expected one of {', '.join(OPERATIONS)}")
    elif row is None:
        yield _unknown_operation(values["operation"])
    if "payload_size_bytes" not in {*values, *told}:
        yield Mistake("payload_size_bytes", "is missing; expected a size such as 1073741824 or 1GiB")
    if row is not None:
        yield from _too_large(values.get("payload_size_bytes", 1), row)
        if (found := values.get("service_class", "standard")) not in row.service_classes:
            expected = ", ".join(row.service_classes)
            yield Mistake("service_class", f"{found!r} is not known; expected one of {expected}")
    if "range_size_bytes" in values and values.get("access") is not Access.RANDOM:
        yield Mistake(
            "range_size_bytes", "is what a random reader asks for; expected access=random beside it"
        )


_Claim: TypeAlias = Annotated[dict[str, str | int | float], msgspec.Meta(max_length=_CLAIM_KEY_COUNT_MAX)]


def read_claim(body: bytes) -> Claim:
    """The claim in a document: the parameters of a question, and those of the lease. Raises UnreadableError."""
    values = _decoded(body, _Claim)
    own = {name: values.pop(name) for name in CLAIM_KEYS if name in values}
    try:
        terms = msgspec.convert(own, type=_ClaimTerms)
    except msgspec.ValidationError as trouble:
        raise UnreadableError([Mistake("body", str(trouble))]) from trouble
    question = read_question((name, str(value)) for name, value in values.items())
    return Claim(question=question, weight=terms.weight, resource=terms.resource, client=terms.client)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """The reports in a request, by position: the plausible ones, and the mistakes in the others."""

    readable: Mapping[int, Observation[Any]]
    mistakes: Mapping[int, Sequence[Mistake]]


def read_reports(body: bytes, *, region: str, instance_type: str, now: datetime) -> Reports:
    """An application's reports, each checked by itself. Raises UnreadableError if the body is not a list of reports."""
    documents = _decoded(body, _Reports).observations
    readable: dict[int, Observation[Any]] = {}
    mistakes: dict[int, Sequence[Mistake]] = {}
    for index, document in enumerate(documents):
        try:
            report = _decoded(document, _Report, where=f"observations[{index}]")
        except UnreadableError as trouble:
            mistakes[index] = trouble.mistakes
            continue
        wrong = [
            Mistake(f"observations[{index}].{mistake.where}", mistake.detail)
            for mistake in islice(_implausible(report, now), _MISTAKE_COUNT_MAX_PER_REPORT)
        ]
        if wrong:
            mistakes[index] = wrong
        else:
            readable[index] = _observation(report, region, instance_type)
    return Reports(readable=readable, mistakes=mistakes)


def reports_document(count: int, refused: Mapping[int, Sequence[Mistake]]) -> dict[str, Any]:
    """The answer to a request with `count` reports: how many were accepted, and why others were not."""
    return {
        "accepted_count": count - len(refused),
        "refused": [
            {"index": index, "errors": mistakes_document(mistakes)}
            for index, mistakes in sorted(refused.items())
        ],
    }


def mistakes_document(mistakes: Iterable[Mistake]) -> list[dict[str, str]]:
    """The mistakes as JSON values."""
    return [asdict(mistake) for mistake in mistakes]


def read_probe_request(body: bytes) -> tuple[str, int]:
    """The operation and the payload size in bytes that an operator wants probed now. Raises UnreadableError."""
    request = _decoded(body, _ProbeRequest)
    if request.operation not in OPERATIONS:
        raise UnreadableError([_unknown_operation(request.operation)])
    return request.operation, request.payload_size_bytes


T = TypeVar("T")


def _decoded(document: bytes | msgspec.Raw, kind: type[T], *, where: str = "body") -> T:
    """Decode a client's JSON. Raises UnreadableError: it may not be JSON or UTF-8, or be nested too deep."""
    try:
        return msgspec.json.decode(document, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as trouble:
        raise UnreadableError([Mistake(where, str(trouble)[:_SHAPE_DETAIL_LENGTH_MAX])]) from trouble


def _unknown_operation(found: str) -> Mistake:
    return Mistake("operation", f"{found!r} is not known; expected one of {', '.join(OPERATIONS)}")


def _too_large(payload_size_bytes: int, row: Operation[Any, Any]) -> Iterable[Mistake]:
    if payload_size_bytes > row.payload_size_bytes_max:
        found, most = format_bytes(payload_size_bytes), format_bytes(row.payload_size_bytes_max)
        yield Mistake("payload_size_bytes", f"{found} is more than a {row.words.payload} has: at most {most}")


# --- The query string


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _WHOLE_MAX:
        raise ValueError(f"{text!r} is not a whole number from 1 to {_WHOLE_MAX:,}")
    return int(text)


def _within(read: Callable[[str], float], low: float, high: float, expected: str) -> Callable[[str], float]:
    def read_within(text: str) -> float:
        value = read(text)
        if not low <= value <= high:
            raise ValueError(f"{text!r} is out of range: {expected}")
        return value

    return read_within


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{text!r} is not a number above 0")
    return number


def _rate(text: str) -> float:
    return float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else parse_bytes_per_second(text)


def _seconds(text: str) -> float:
    """Seconds as text; programs write values below 0.1 ms as ``5e-05``, in JSON and in query strings."""
    return float(text) if _SMALL.fullmatch(text) else parse_seconds(text)


def _positive_seconds(text: str) -> float:
    return _number(str(_seconds(text)))


def _name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a name: expected lower-case letters, digits, dots and hyphens")
    return text


ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


def _choice(words: type[ChoiceT]) -> Callable[[str], ChoiceT]:
    def read(text: str) -> ChoiceT:
        try:
            return words(text)
        except ValueError:
            raise ValueError(f"{text!r} is not one of {', '.join(words)}") from None

    return read


_SIZE = _within(
    parse_bytes, 1, PAYLOAD_SIZE_BYTES_MAX, f"expected 1 byte to {format_bytes(PAYLOAD_SIZE_BYTES_MAX)}"
)
DEMAND_PARAMETERS: Mapping[str, Callable[[str], Any]] = {
    "objective": _choice(Objective),
    "regime": _choice(Regime),
    "memory_bytes_max": _SIZE,
    "bandwidth_bytes_per_second_max": _within(
        _rate, 1.0, _BANDWIDTH_BYTES_PER_SECOND_MAX, "expected 1B/s to 1PB/s"
    ),
    "thread_count_max": _whole,
    "object_count": _whole,
    "access": _choice(Access),
    "range_size_bytes": _SIZE,
    "sink": _choice(Sink),
    "message_rate_per_second": _within(
        _number,
        1 / _MESSAGE_RATE_MAX_PER_SECOND,
        _MESSAGE_RATE_MAX_PER_SECOND,
        "expected 0.000001 to 1,000,000",
    ),
    "message_group_count": _whole,
    "work_seconds": _within(
        _seconds, 0.0, _VISIBILITY_SECONDS_MAX, "a message comes back after 12h at the latest"
    ),
    "latency_objective_seconds": _positive_seconds,
    "visibility_timeout_seconds": _within(
        parse_seconds, 1.0, _VISIBILITY_SECONDS_MAX, "no queue has one but from 1s to 12h"
    ),
}
"""The reader of each field of `Demand` in a query string."""

QUESTION_PARAMETERS: Mapping[str, Callable[[str], Any]] = {
    "operation": str,
    "payload_size_bytes": _SIZE,
    "region": _name,
    "instance_type": _name,
    "service_class": _name,
    **DEMAND_PARAMETERS,
}
"""Every parameter of a question, and its reader."""


def _read_parameters(query: Iterable[tuple[str, str]]) -> tuple[dict[str, Any], list[Mistake]]:
    values: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for name, text in query:
        read = QUESTION_PARAMETERS.get(name)
        if read is None:
            mistakes.append(
                Mistake(
                    name[:_QUERY_VALUE_LENGTH_MAX], f"is not known; expected {', '.join(QUESTION_PARAMETERS)}"
                )
            )
        elif name in values:
            mistakes.append(Mistake(name, "is given twice"))
        elif len(text) > _QUERY_VALUE_LENGTH_MAX:
            mistakes.append(Mistake(name, f"is longer than {_QUERY_VALUE_LENGTH_MAX} characters"))
        else:
            try:
                values[name] = read(text)
            except (ValueError, OverflowError) as trouble:
                mistakes.append(Mistake(name, str(trouble)))
    return values, mistakes


# --- The reports of applications

_Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
_LatencySeconds = Annotated[float, msgspec.Meta(ge=0, le=86400)]
# \Z, because "$" would allow a line feed at the end.
_ReportedName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}\Z")]
_RATE_BYTES_PER_SECOND_MAX = 3.2e12 / 8  # the largest EC2 hosts have 3,200 Gbit/s
_REPORT_AGE_MAX = timedelta(days=1)
CLOCK_SKEW_MAX = timedelta(minutes=1)
_MEASURE_COUNT_MAX = 32
_MEASURE_MAX = 1e15
_SECONDS_MAX = 86400.0


class _Report(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    operation: _ReportedName
    payload_size_bytes: Annotated[int, msgspec.Meta(ge=1, le=PAYLOAD_SIZE_BYTES_MAX)]
    setting: dict[_ReportedName, int | float]
    started_at: Annotated[datetime, msgspec.Meta(tz=True)]
    duration_seconds: Annotated[float, msgspec.Meta(gt=0, le=86400)]
    transferred_bytes: Annotated[int, msgspec.Meta(ge=0, le=10**15)]
    request_count: Annotated[int, msgspec.Meta(ge=1, le=10**9)]
    throttled_count: _Count = 0
    failed_count: _Count = 0
    latency_seconds_mean: _LatencySeconds = 0.0
    latency_seconds_p50: _LatencySeconds = 0.0
    latency_seconds_p99: _LatencySeconds = 0.0
    client_cpu_fraction: Annotated[float, msgspec.Meta(ge=0, le=1024)] = 0.0
    region: _ReportedName | None = None
    service_class: _ReportedName = "standard"
    client: _ReportedName = "unknown"
    measures: Annotated[dict[_ReportedName, float], msgspec.Meta(max_length=_MEASURE_COUNT_MAX)] = {}


class _ClaimTerms(msgspec.Struct, kw_only=True, frozen=True):
    weight: Annotated[float, msgspec.Meta(ge=0.1, le=10)] = 1.0
    resource: Annotated[str, msgspec.Meta(max_length=256, pattern=r"^[ -~]*\Z")] = ""
    client: _ReportedName = UNKNOWN


CLAIM_KEYS = tuple(field.name for field in msgspec.structs.fields(_ClaimTerms))
"""The keys of a claim beside the parameters of its question."""


class _Reports(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    observations: Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(min_length=1, max_length=REPORT_COUNT_MAX)]


class _ProbeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    operation: _ReportedName
    payload_size_bytes: Annotated[int, msgspec.Meta(ge=1, le=PAYLOAD_SIZE_BYTES_MAX)]


def _implausible(report: _Report, now: datetime) -> Iterable[Mistake]:
    row = OPERATIONS.get(report.operation)
    if row is None:
        yield _unknown_operation(report.operation)
    else:
        yield from _illegal_knobs(report.setting, row.setting_type)
        yield from _too_large(report.payload_size_bytes, row)
    if not now - _REPORT_AGE_MAX <= report.started_at <= now + CLOCK_SKEW_MAX:
        yield Mistake(
            "started_at", "lies more than a day back or in the future; report soon after the transfer"
        )
    if report.transferred_bytes / report.duration_seconds > _RATE_BYTES_PER_SECOND_MAX:
        yield Mistake(
            "transferred_bytes", "is more than any host can move in duration_seconds; check the units"
        )
    if report.throttled_count + report.failed_count > report.request_count:
        yield Mistake("request_count", "is below throttled_count + failed_count; count every attempt")
    for name, value in report.measures.items():
        most = _SECONDS_MAX if "_seconds" in name else _MEASURE_MAX
        if not 0 <= value <= most:
            yield Mistake(f"measures.{name}", f"is out of range: expected 0 to {most:g}")
    if report.latency_seconds_p50 > report.latency_seconds_p99:
        yield Mistake("latency_seconds_p50", "is above latency_seconds_p99")


def _illegal_knobs(values: Mapping[str, float], setting_type: type[Setting]) -> Iterable[Mistake]:
    known = knobs(setting_type)
    required = {f.name for f in fields(setting_type) if f.default is f.default_factory}  # both are MISSING
    for name in sorted(required - values.keys()):
        yield Mistake(f"setting.{name}", "is missing")
    for name, value in values.items():
        bounds = known.get(name)
        if bounds is None:
            yield Mistake(f"setting.{name}", f"is not known; expected {', '.join(known)}")
        elif not bounds.low <= value <= bounds.high:
            yield Mistake(f"setting.{name}", f"is out of range: expected {bounds.low:g} to {bounds.high:g}")
        elif _is_whole(setting_type, name) and value != int(value):
            yield Mistake(f"setting.{name}", "is not a whole number")


def _observation(report: _Report, region: str, instance_type: str) -> Observation[Any]:
    said = msgspec.structs.asdict(report)
    setting_type = OPERATIONS[report.operation].setting_type
    values = {
        name: int(value) if _is_whole(setting_type, name) else float(value)
        for name, value in said.pop("setting").items()
    }
    place = Place(
        operation=said.pop("operation"),
        region=said.pop("region") or region,
        instance_type=instance_type,  # reports are always about this host
        service_class=said.pop("service_class"),
    )
    context = Context(place=place, payload_size_bytes=said.pop("payload_size_bytes"))
    return Observation(context=context, setting=setting_type(**values), origin=Origin.APPLICATION, **said)


def _is_whole(setting_type: type[Setting], name: str) -> bool:
    return next(f.type for f in fields(setting_type) if f.name == name) in (int, "int")


def _age_seconds_when_issued(recommendation: Recommendation[Any]) -> float | None:
    newest = recommendation.newest_observation_at
    if newest is None:
        return None
    return max(0.0, (recommendation.issued_at - newest).total_seconds())  # the clock may have stepped back
