"""Knows what applications were heard to do, what they would gain, and what probes cost them, for the report.

Any user of the host can send this data, so its names are arbitrary text.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.listening.datagram import Application, Key
from penstock.listening.tally import Series
from penstock.models.inference.histogram import merged
from penstock.operations.heard import HeardVerdict, by_operation, judged, verdict_on
from penstock.operations.table import OPERATIONS
from penstock.optimizer.comparison import gain
from penstock.report.figure import Table, table_of
from penstock.report.material import Material
from penstock.report.wording import date_words
from penstock.units import format_bytes, number, quantity
from penstock.vocabulary import ClientHour, Demand, Estimate, ProbeHarm, Recommendation

CLIENT_COUNT_MAX = 20  # most to be gained first
HARM_COUNT_MAX = 20  # the newest
_STORM_FRACTION = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardApi:
    """One call of one application, over all hours."""

    service: str
    api: str
    region: str
    call_count: int
    calls_per_second: float  # while penstock was listening
    attempt_count: int
    in_flight_count_mean: float
    in_flight_count_max: float
    latency_seconds_p50: float
    latency_seconds_p99: float
    retry_count: int
    refused_count: int
    refused_fraction_max: float  # of the attempts in one minute
    failed_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardGain:
    """What today's advice would gain an application."""

    operation: str
    region: str
    gain: Estimate | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFindings:
    """One application of one user."""

    name: str
    product: str
    version: str
    user_id: int | None
    hour_count: int
    apis: tuple[HeardApi, ...]
    advice: tuple[HeardGain, ...]

    @property
    def title(self) -> str:
        """``backup (Boto3 1.43.117, user 1001)``."""
        sdk = f"{self.product} {self.version}".strip()
        sdk = sdk if self.user_id is None else f"{sdk}, user {self.user_id}"
        return f"{self.name} ({sdk})" if self.name else sdk

    @property
    def sentences(self) -> list[str]:
        """What it would gain, and warnings."""
        return [one.sentence for one in self.advice] + [
            f"{api.service} {api.api}: {api.refused_fraction_max:.0%} of the attempts of one minute were refused"
            for api in self.apis
            if api.refused_fraction_max >= _STORM_FRACTION
        ]


def clients(material: Material) -> tuple[ClientFindings, ...]:
    """The largest gain first; then those with the most refusals."""
    by_sender: defaultdict[tuple[Application, int | None], list[ClientHour]] = defaultdict(list)
    for hour in material.client_hours:
        application = Application(name=hour.name, product=hour.product, version=hour.version)
        by_sender[application, hour.user_id].append(hour)
    told = judged(by_sender)
    found = [
        _client(material, *sender, hours, is_judged=sender in told) for sender, hours in by_sender.items()
    ]
    return tuple(sorted(found, key=_by_gain)[:CLIENT_COUNT_MAX])


def clients_table(found: Sequence[ClientFindings]) -> Table:
    """A row for each application and call."""
    headings = ("client", "call", "calls", "calls/s", "in flight", "p50", "p99", "retries", "refused")
    return Table(headings, tuple(row for client in found for row in _rows(client)))


def harms_table(harms: Sequence[ProbeHarm]) -> Table:
    """What each probe cost, newest first."""
    return table_of(
        reversed(harms[-HARM_COUNT_MAX:]),
        {
            "probe": lambda harm: date_words(harm.started_at),
            "operation": lambda harm: harm.operation,
            "size": lambda harm: format_bytes(harm.payload_size_bytes),
            "attempts": lambda harm: number(harm.attempt_count),
            "longer by": lambda harm: _milliseconds(harm.latency_increase_seconds.expected),
            "90 % interval": lambda harm: " to ".join(
                map(_milliseconds, (harm.latency_increase_seconds.low, harm.latency_increase_seconds.high))
            ),
            "more refused": lambda harm: f"{harm.refused_fraction_increase:.1%}",
            "ended": lambda harm: "broken off" if harm.is_broken_off else "by itself",
        },
    )


def _client(
    material: Material,
    application: Application,
    user_id: int | None,
    hours: Sequence[ClientHour],
    *,
    is_judged: bool,
) -> ClientFindings:
    by_api: defaultdict[tuple[str, str, str], list[ClientHour]] = defaultdict(list)
    for hour in hours:
        by_api[hour.service, hour.api, hour.region].append(hour)
    heard = [_series(application, user_id, of_api) for of_api in by_api.values()]
    return ClientFindings(
        name=application.name,
        product=application.product,
        version=application.version,
        user_id=user_id,
        hour_count=len({hour.began_at for hour in hours}),
        apis=tuple(
            HeardApi(**series.told("refused_fraction_max"))
            for series in sorted(heard, key=lambda one: -one.attempt_count)
        ),
        advice=tuple(_gains(material, heard)) if is_judged else (),
    )


def _series(application: Application, user_id: int | None, hours: Sequence[ClientHour]) -> Series:
    one = hours[0]
    added = ("call_count", "attempt_count", "retry_count", "refused_count", "failed_count")
    counts = {name: sum(getattr(hour, name) for hour in hours) for name in added}
    in_flight = sum(hour.in_flight_count_mean * hour.attempt_count for hour in hours)
    return Series(
        key=Key(application=application, service=one.service, api=one.api, region=one.region),
        user_id=user_id,
        duration_seconds=sum(max(0.0, (hour.ended_at - hour.began_at).total_seconds()) for hour in hours),
        **counts,
        refused_fraction_max=max(hour.refused_fraction_max for hour in hours),
        latencies=merged(hour.latencies for hour in hours),
        in_flight_count_mean=in_flight / max(counts["attempt_count"], 1),
        in_flight_count_max=max(hour.in_flight_count_max for hour in hours),
    )


def _gains(material: Material, heard: Iterable[Series]) -> Iterable[HeardGain]:
    for row, region, apis in by_operation(heard):
        advice = _advice(material, row.name, region, row.heard_payload_bytes(apis))
        verdict = None if advice is None else _verdict(material, advice, apis)
        if verdict is not None:
            yield HeardGain(
                operation=row.name,
                region=verdict.advice.context.place.region,
                gain=verdict.gain,
                sentence=verdict.sentence,
            )


def _advice(
    material: Material, operation: str, region: str, payload_size_bytes: int
) -> Recommendation[Any] | None:
    """The ordinary advice of the place for about this size; of any region, if the SDK named none."""
    of_operation = [
        one
        for one in material.recommendations
        if one.context.operation == operation
        and one.demand == Demand()
        and region in {"", one.context.place.region}
    ]

    def octaves_away(one: Recommendation[Any]) -> float:
        return abs(math.log2(one.context.payload_size_bytes / payload_size_bytes))

    return min(of_operation, key=octaves_away, default=None)


def _verdict(material: Material, advice: Recommendation[Any], apis: Any) -> HeardVerdict | None:
    row = OPERATIONS[advice.context.operation]
    fit = next((fit for fit in material.fits if fit.place == advice.context.place), None)

    def gain_over(heard: Any) -> Estimate | None:
        if fit is None:
            return None
        return gain(row.model, fit, advice.context, advice.demand, setting=advice.setting, reference=heard)

    return verdict_on(apis, advice, gain_over)


def _rows(client: ClientFindings) -> Iterable[tuple[str, ...]]:
    shown = client.title
    for api in client.apis:
        yield (
            shown,
            f"{api.service} {api.api}",
            number(api.call_count),
            quantity("calls_per_second", api.calls_per_second),
            number(api.in_flight_count_max),
            quantity("latency_seconds", api.latency_seconds_p50),
            quantity("latency_seconds", api.latency_seconds_p99),
            number(api.retry_count),
            number(api.refused_count),
        )
        shown = ""


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def _by_gain(client: ClientFindings) -> tuple[float, int]:
    gains = [one.gain.expected for one in client.advice if one.gain is not None]
    return -max(gains, default=0.0), -sum(api.refused_count for api in client.apis)
