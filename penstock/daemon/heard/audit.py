"""Knows what each application that was heard would gain by following the advice. It only reads, and changes nothing."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.clock import Clock
from penstock.daemon.board import Board
from penstock.daemon.heard.hearing import Hearing
from penstock.listening.tally import Series
from penstock.operations.heard import HeardVerdict, Sender, by_operation, judged, verdict_on
from penstock.operations.operation import Operation
from penstock.optimizer.comparison import gain
from penstock.vocabulary import Context, Demand, Estimate, Place, Recommendation, setting_values

# Pairs of application and operation that are compared with the advice for one question; each takes milliseconds.
COMPARED_COUNT_MAX = 16
_REMEMBERED_COUNT_MAX = 256


@dataclass(frozen=True, eq=False)
class Audit:
    """Compares what applications do with the advice on the board."""

    board: Board
    hearing: Hearing
    clock: Clock
    home: Place
    _gains: dict[tuple[int, Context, Any], Estimate] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Which applications were heard, what each does and would gain, the largest gain first, as JSON values."""
        by_sender: defaultdict[Sender, list[Series]] = defaultdict(list)
        for series in self.hearing.series():
            by_sender[_sender(series)].append(series)
        verdicts = self._verdicts(by_sender)
        clients = [
            {
                **msgspec.structs.asdict(sender[0]),
                "user_id": sender[1],
                "advice": [_verdict_document(verdict) for verdict in verdicts[sender]],
                "apis": [
                    series.told("duration_seconds")
                    for series in sorted(heard, key=lambda s: -s.attempt_count)
                ],
            }
            for sender, heard in by_sender.items()
        ]
        clients.sort(key=_by_gain)
        return {"is_listening": self.hearing.is_listening, **self.counts(), "clients": clients}

    @property
    def application_count(self) -> int:
        """The count of applications heard in the last minutes."""
        return len({_sender(series) for series in self.hearing.series()})

    def counts(self) -> dict[str, int]:
        """The counts of datagrams since the start, by what became of them."""
        hearing = self.hearing
        return {
            "heard_count": hearing.heard_count,
            "unreadable_count": hearing.unreadable_count,
            "unplaced_count": hearing.unplaced_count,
            "dropped_count": hearing.dropped_count,
        }

    def _verdicts(self, by_sender: Mapping[Sender, Sequence[Series]]) -> Mapping[Sender, list[HeardVerdict]]:
        """The verdicts on the busiest applications only: many forged names must not block the socket."""
        busiest = sorted(
            judged(by_sender), key=lambda one: -sum(s.in_flight_count_max for s in by_sender[one])
        )
        found: defaultdict[Sender, list[HeardVerdict]] = defaultdict(list)
        left = COMPARED_COUNT_MAX
        for sender in busiest:
            for row, region, apis in by_operation(by_sender[sender]):
                if left and (verdict := self._verdict(row, region or self.home.region, apis)):
                    found[sender].append(verdict)
                    left -= 1
        return found

    def _verdict(
        self, row: Operation[Any, Any], region: str, apis: Mapping[str, Series]
    ) -> HeardVerdict | None:
        now = self.clock.now()
        place = dataclasses.replace(self.home, operation=row.name, region=region)
        context = Context(place=place, payload_size_bytes=row.heard_payload_bytes(apis))
        advice = self.board.recommend(context, Demand(), now)
        has_expired = advice.has_expired(now)
        return verdict_on(apis, advice, lambda heard: None if has_expired else self._gain(row, advice, heard))

    def _gain(self, row: Operation[Any, Any], advice: Recommendation[Any], heard: Any) -> Estimate | None:
        """The gain of the advice over the setting that was heard (Any: a setting of the row's own type)."""
        fit = self.board.fit(advice.context.place)
        if fit is None:
            return None
        key = (self.board.generation, advice.context, heard)
        if key not in self._gains:
            while len(self._gains) >= _REMEMBERED_COUNT_MAX:
                del self._gains[next(iter(self._gains))]
            self._gains[key] = gain(
                row.model, fit, advice.context, advice.demand, setting=advice.setting, reference=heard
            )
        return self._gains[key]


def _sender(series: Series) -> Sender:
    return series.key.application, series.user_id


def _verdict_document(verdict: HeardVerdict) -> dict[str, Any]:
    context = verdict.advice.context
    return {
        "operation": context.operation,
        "region": context.place.region,
        "payload_size_bytes": context.payload_size_bytes,
        "basis": verdict.advice.basis,
        "setting": setting_values(verdict.advice.setting),
        "gain": None if verdict.gain is None else dataclasses.asdict(verdict.gain),
        "sentence": verdict.sentence,
    }


def _by_gain(client: Mapping[str, Any]) -> tuple[float, int]:
    """The sort key: the largest gain first, then the most throttled requests."""
    gains = [advice["gain"]["expected"] for advice in client["advice"] if advice["gain"] is not None]
    return -max(gains, default=0.0), -sum(api["refused_count"] for api in client["apis"])
