"""Knows what an application that was heard would gain by following the advice. It only reads, and changes nothing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.listening.datagram import Application
from penstock.listening.tally import Series
from penstock.operations.operation import Driven, Operation
from penstock.operations.table import OPERATIONS
from penstock.units import format_bytes
from penstock.vocabulary import NORMAL_90, Estimate, Recommendation, setting_values

# Added uncertainty of a gain, as sigma of its logarithm: an application is not a probe, and what it does beside its
# requests is unknown. Measured in virtual time over links of seed 1901, where the law's own intervals contained 77 % of
# the true gains (`bench.promised_gain`).
_UNTOLD_SIGMA = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardVerdict:
    """One operation of an application, compared with the advice."""

    advice: Recommendation[Any]
    driven: Driven[Any]
    gain: Estimate | None  # None where nothing was measured, or too little is heard

    @property
    def sentence(self) -> str:
        """What the application does, and what the advice would bring."""
        context = self.advice.context
        words, size_bytes = OPERATIONS[context.operation].words, context.payload_size_bytes
        advised = words.setting_in_full(setting_values(self.advice.setting), size_bytes)
        doing = f"{self.driven.sentence}; for {words.payload}s of {format_bytes(size_bytes)}"
        if self.gain is None:
            return f"{doing} advised: {advised} ({self.advice.basis})"
        span = f"{self.gain.low:.2g} to {self.gain.high:.2g}"
        return f"{doing} {advised} would bring {self.gain.expected:.2g} times as much ({span})"


Sender = tuple[Application, int | None]
"""An application and its user's id; None where the user is unknown."""


def judged(senders: Collection[Sender]) -> list[Sender]:
    """The senders to compare with advice: without an application's unknown user, once its user is known."""
    known = {application for application, user_id in senders if user_id is not None}
    return [
        (application, user_id)
        for application, user_id in senders
        if user_id is not None or application not in known
    ]


def by_operation(heard: Iterable[Series]) -> Iterator[tuple[Operation[Any, Any], str, Mapping[str, Series]]]:
    """For each operation of a heard service, and each region: the row, the region, and the series by API."""
    groups: defaultdict[tuple[str, str], dict[str, Series]] = defaultdict(dict)
    for series in heard:
        groups[series.key.service.lower(), series.key.region][series.key.api] = series
    for (service, region), apis in groups.items():
        for row in OPERATIONS.values():
            if row.service == service:
                yield row, region, apis


def verdict_on(
    apis: Mapping[str, Series], advice: Recommendation[Any], gain_over: Callable[[Any], Estimate | None]
) -> HeardVerdict | None:
    """What the advice would bring; None where nothing of its operation was heard.

    `gain_over` returns the gain of the advice over a setting, as a factor (Any: of the row's own type).
    """
    row = OPERATIONS[advice.context.operation]
    driven = row.driven(apis, advice.setting, row.model.default_setting(advice.context))
    if driven is None:
        return None
    is_told = driven.setting is not None
    worth = gain_over(row.model.legal(advice.context, driven.setting)) if is_told else None
    return HeardVerdict(advice=advice, driven=driven, gain=worth and _of_an_application(worth))


def _of_an_application(gain: Estimate) -> Estimate:
    """The gain with the wider interval of what was only heard; an exact gain, of doing the same, stays exact."""
    if gain.low == gain.expected == gain.high:
        return gain

    def widened(end: float) -> float:
        return math.hypot(math.log(end / gain.expected), NORMAL_90 * _UNTOLD_SIGMA)

    low, high = math.exp(-widened(gain.low)), math.exp(widened(gain.high))
    return Estimate(gain.expected * low, gain.expected, gain.expected * high)
