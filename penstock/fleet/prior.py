"""Knows the document in which hosts share what they measured of a place, and which of its observations are possible.

    {"format": 1, "place": {...}, "evidence": [{"host": "5d1f0a9c27be", "observation": {...}}, ...]}

Only observations are shared, never conclusions: a posterior that is handed on would come back as another host's and be
counted twice. All hosts of a place write the same object, so `merged` bounds it: it drops what is old and keeps the
rest diverse, as the newest observation of each host at each setting comes before repetitions.

Whoever may write into the bucket may write anything, so `read` checks each observation by itself and drops, with the
reason, those that no probe of this place can have measured. Observations that are possible but wrong are left to the
check that every neighbour's evidence has to pass.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic
from urllib.parse import quote

import msgspec

from penstock.models.model import Fit, PerformanceModel
from penstock.units import KiB, format_bytes
from penstock.vocabulary import Observation, Origin, Place, SettingT, knobs, setting_values

FORMAT = 1
DOCUMENT_BYTES_MAX = 256 * KiB
EVIDENCE_COUNT_MAX = 64  # observations; one takes about a kilobyte
AGE_MAX = timedelta(days=14)
# Clocks of hosts differ; AWS rejects requests signed by a clock that is further off.
AHEAD_MAX = timedelta(minutes=15)
CEILING_FACTOR_MAX = 2.0  # over the instance type's peak in our table, which may be old
_NUMBER_MAX = 1e18
_SECONDS_MAX = 86_400.0
_ENTRY_COUNT_MAX = 64  # names of measures, or of histograms
_CLASS_COUNT_MAX = 2048  # of a histogram
_CLIENT = "penstock"
UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Generic[SettingT]):
    """One observation, and the host that made it: a word that tells hosts apart and reveals nothing else."""

    host: str
    observation: Observation[SettingT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior(Generic[SettingT]):
    """The content of a place's document. `dropped` counts, by reason, the observations that are not possible."""

    evidence: tuple[Evidence[SettingT], ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    is_of_newer_format: bool = False  # then this version must not write it

    @property
    def remark(self) -> str | None:
        """One sentence about what was dropped; None if nothing was."""
        if not self.dropped:
            return None
        return "; ".join(f"{count} x {reason}" for reason, count in sorted(self.dropped.items()))


def key(prefix: str, place: Place, *, kind: str = "prior") -> str:
    """The key of a place's document. The format is part of it, so that old and new versions do not conflict."""
    names = (place.operation, place.region, place.instance_type, place.service_class)
    return f"{prefix}{kind}/{FORMAT}/{'/'.join(quote(name, safe='') for name in names)}.json"


def written(place: Place, evidence: Sequence[Evidence[Any]]) -> bytes:
    """The document, with as much of the newest evidence as its maximal size allows."""
    kept = list(evidence)
    while True:
        shell = {"format": FORMAT, "place": place, "evidence": kept}
        document = msgspec.json.encode(shell)
        if len(document) <= DOCUMENT_BYTES_MAX or not kept:
            return document
        del kept[: max(1, len(kept) // 4)]  # the oldest


def read(document: bytes, model: PerformanceModel[SettingT], place: Place, now: datetime) -> Prior[SettingT]:
    """The possible observations in a document. Never raises, whatever the bytes are."""
    if len(document) > DOCUMENT_BYTES_MAX:
        return Prior(dropped={f"a document of more than {format_bytes(DOCUMENT_BYTES_MAX)}": 1})
    try:
        found = msgspec.json.decode(document, type=Head).format
        if found != FORMAT:
            return Prior(
                dropped={f"a document of format {found}, and this penstock reads {FORMAT}": 1},
                is_of_newer_format=found > FORMAT,
            )
        shell = msgspec.json.decode(document, type=_Shell)
    except UNREADABLE:
        return Prior(dropped={"a document that cannot be read": 1})
    if shell.place != place:
        return Prior(dropped={"a document about another place": 1})
    decoder = msgspec.json.Decoder(Evidence[model.setting_type])  # type: ignore[name-defined]  # known at run time
    believed, dropped = [], Counter[str]()
    for raw in shell.evidence[: 2 * EVIDENCE_COUNT_MAX]:
        one = _decoded(decoder, raw)
        if one is None:
            dropped["an observation that cannot be read"] += 1
        elif (reason := next(_impossible(one, model, place, now), None)) is not None:
            dropped[reason] += 1
        else:
            believed.append(one)
    return Prior(evidence=merged(believed, now=now), dropped=dict(dropped))


def measured_here(
    host: str, observations: Iterable[Observation[Any]], *, fit: Fit | None, now: datetime
) -> list[Evidence[Any]]:
    """What this host may share: its own probes of the place as it is now, that are not too old."""
    return [
        Evidence(host=host, observation=observation)
        for observation in observations
        if observation.origin is Origin.PROBE
        and -AHEAD_MAX <= now - observation.started_at <= AGE_MAX
        and (fit is None or fit.is_about(observation.started_at))
    ]


def merged(*parts: Iterable[Evidence[SettingT]], now: datetime) -> tuple[Evidence[SettingT], ...]:
    """All evidence, each observation once, oldest first; if there is too much, repetitions are dropped first.

    The result does not depend on the order of the parts, and merging it again changes nothing. The same observation
    from several hosts, such as copies of one disk, counts once.
    """
    told = sorted((one for part in parts for one in part), key=lambda one: one.host, reverse=True)
    once = {_identity(one.observation): one for one in told if now - one.observation.started_at <= AGE_MAX}
    newest_first = [once[identity] for identity in sorted(once, reverse=True)]
    of_cell, of_host, of_both = Counter[object](), Counter[str](), Counter[object]()
    ranked: list[tuple[tuple[int, int, int], Evidence[SettingT]]] = []
    for age_rank, one in enumerate(newest_first):
        cell = (one.observation.context.payload_size_bytes, *setting_values(one.observation.setting).values())
        repeated = of_both[cell, one.host]
        ranked.append(((repeated, min(of_cell[cell], of_host[one.host]), age_rank), one))
        of_cell[cell] += 1
        of_host[one.host] += 1
        of_both[cell, one.host] += 1
    kept = [one for _, one in sorted(ranked, key=lambda pair: pair[0])[:EVIDENCE_COUNT_MAX]]
    return tuple(sorted(kept, key=lambda one: _identity(one.observation)))


def of_others(
    evidence: Iterable[Evidence[SettingT]], own: Iterable[Observation[SettingT]]
) -> list[Observation[SettingT]]:
    """Observations that are not among this host's own, oldest first; its own that it has deleted count as others'."""
    known = {_identity(observation) for observation in own}
    return [one.observation for one in evidence if _identity(one.observation) not in known]


class Head(msgspec.Struct):
    """The format of any document, which decides how the rest is read."""

    format: int


class _Shell(msgspec.Struct):
    place: Place
    evidence: list[msgspec.Raw]


def _decoded(
    decoder: Any, raw: msgspec.Raw
) -> Evidence[Any] | None:  # Any: a decoder of a type known at run time
    try:
        one: Evidence[Any] = decoder.decode(raw)
    except UNREADABLE:
        return None
    return one


def _identity(observation: Observation[Any]) -> tuple[Any, ...]:
    """A key that identifies an observation, and sorts by its date first (Any: comparable values)."""
    size, values = observation.context.payload_size_bytes, setting_values(observation.setting).values()
    return observation.started_at, observation.duration_seconds, size, *values


def _impossible(
    one: Evidence[SettingT], model: PerformanceModel[SettingT], place: Place, now: datetime
) -> Iterator[str]:
    """Why that cannot have been measured there, or is too old to be of use."""
    yield from impossible(one.observation, model, place, now)
    if now - one.observation.started_at > AGE_MAX:
        yield f"an observation of more than {AGE_MAX.days} days ago"
    if not 1 <= len(one.host) <= _ENTRY_COUNT_MAX:
        yield "an observation of no host"


def impossible(
    observation: Observation[SettingT], model: PerformanceModel[SettingT], place: Place, now: datetime
) -> Iterator[str]:
    """The reasons why no probe of this place can have measured that until now; none if it is possible."""
    if observation.context.place != place:
        yield "an observation of another place"
    if observation.origin is not Origin.PROBE or observation.client != _CLIENT:
        yield "an observation that is not of a probe"
    if observation.started_at.tzinfo is None:
        yield "an observation without a time zone"
    elif observation.started_at - now > AHEAD_MAX:
        yield "an observation of the future"
    if not all(_are_plausible(observation)):
        yield "an observation with a number that cannot be"
    if not _is_setting(model, observation):
        yield "an observation of a setting that cannot be"
    limits = model.host_ceiling(place)
    rate = observation.throughput_bytes_per_second
    if limits is not None and rate > CEILING_FACTOR_MAX * limits.burst_bytes_per_second:
        yield "an observation of more than such a host can move"


def _are_plausible(observation: Observation[Any]) -> Iterator[bool]:
    """Whether each number is within what a probe can measure, and so small that sums cannot overflow."""
    yield 0 < observation.duration_seconds <= _SECONDS_MAX
    counts = (observation.request_count, observation.throttled_count, observation.failed_count)
    yield all(0 <= count <= 1e9 for count in counts)
    yield 0 <= observation.transferred_bytes <= _NUMBER_MAX
    for seconds in (
        observation.latency_seconds_mean,
        observation.latency_seconds_p50,
        observation.latency_seconds_p99,
        observation.loop_lag_seconds_max,
    ):
        yield 0 <= seconds <= _SECONDS_MAX
    yield 0 <= observation.client_cpu_fraction <= 1e4
    yield max(len(observation.measures), len(observation.histograms)) <= _ENTRY_COUNT_MAX
    yield all(math.isfinite(value) and abs(value) <= _NUMBER_MAX for value in observation.measures.values())
    for histogram in observation.histograms.values():
        yield len(histogram.counts) <= _CLASS_COUNT_MAX and abs(histogram.first) <= _CLASS_COUNT_MAX
        yield all(0 <= count <= 1e9 for count in histogram.counts)
    if (pairs := observation.successive) is not None:
        yield 0 <= pairs.count <= 1e9
        yield all(abs(value) <= _NUMBER_MAX for value in (pairs.xx, pairs.yy, pairs.xy))


def _is_setting(model: PerformanceModel[SettingT], observation: Observation[SettingT]) -> bool:
    """Whether the setting is one that a probe may have had."""
    values = setting_values(observation.setting)
    if not all(knob.low <= values[name] <= knob.high for name, knob in knobs(observation.setting).items()):
        return False
    try:
        return model.legal(observation.context, observation.setting) == observation.setting
    except (ValueError, ArithmeticError):  # a payload size beyond what the model supports
        return False
