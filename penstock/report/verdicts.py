"""Knows what a reader should see first about each place: the sentence, the setting to copy, and its gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from penstock.optimizer.comparison import gain
from penstock.optimizer.verdict import Verdict, day_words, sentence, signed_percent
from penstock.report.episodes import Episode
from penstock.report.findings import ClientGain, PlaceFindings, PlaceVerdict
from penstock.report.material import Material
from penstock.report.rhythm import Rhythm
from penstock.report.wording import percent
from penstock.units import counted
from penstock.vocabulary import Basis, Cost, Recommendation, setting_values

_HOUR = timedelta(hours=1)  # expenses are booked by the hour
# Raised by a fit that an older penstock wrote.
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, ArithmeticError)


def verdict_on(
    material: Material,
    findings: PlaceFindings,
    advice: Recommendation[Any],
    *,
    place_count: int,
    moments: Iterable[tuple[float, int]],
) -> PlaceVerdict:
    """The verdict on a place, from this advice; `place_count` places share the operation.

    `moments` are seconds since 1970 of measurements, with the number of measurements at each.
    """
    gains = _client_gains(material, findings, advice)
    rhythm = next((r for r in findings.rhythms if r.is_significant), None)
    newest = next((change for change in reversed(findings.news) if not change.is_withdrawn), None)
    unmeasured_count = 0 if findings.observation_count else len(findings.inconclusives)
    expenses = [e for e in material.expenses if e.operation == findings.place.operation]
    hours = [e.hour_at for e in expenses]
    spent = sum((e.cost for e in expenses), Cost()) if expenses else None
    usd = spent.usd if spent else None
    seconds = (max(hours) - min(hours) + _HOUR).total_seconds() if hours else None
    is_expired = advice.has_expired(material.generated_at)
    words = Verdict(
        setting_words=_setting_words(material, advice, advice.setting),
        basis=advice.basis,
        bottleneck=advice.bottleneck,
        gains={each.client: each.gain for each in gains},
        changed_at=newest.changed_at if newest else None,
        changed_fraction=newest.fraction.expected if newest and newest.fraction else None,
        notes=tuple(_notes(findings.episodes, rhythm, unmeasured_count)),
        usd=usd if place_count == 1 else None,
        usd_period_seconds=seconds,
        expired_at=advice.expires_at if is_expired else None,
    )
    return PlaceVerdict(
        sentence=sentence(words),
        payload_size_bytes=advice.context.payload_size_bytes,
        setting_words=words.setting_words,
        copies=tuple(material.copies(advice)),
        gains=gains,
        usd=usd,
        spent=spent,
        usd_period_seconds=seconds,
        usd_place_count=place_count,
        days=_days_of(moments),
        is_expired=is_expired,
    )


def _client_gains(
    material: Material, findings: PlaceFindings, advice: Recommendation[Any]
) -> tuple[ClientGain, ...]:
    """The gain over each client's defaults, if anything is known."""
    fit, context = findings.fit, advice.context
    if fit is None or advice.basis is Basis.DEFAULT:
        return ()
    model = material.models[context.operation]
    found = []
    for client, values in material.unadvised(context).items():
        legal = model.legal(context, model.setting_type(**values))
        try:
            over = gain(model, fit, context, advice.demand, setting=advice.setting, reference=legal)
        except UNREADABLE:
            return ()
        words = _setting_words(material, advice, legal)
        found.append(ClientGain(client=client, setting=legal, setting_words=words, gain=over))
    return tuple(found)


def _setting_words(material: Material, advice: Recommendation[Any], setting: Any) -> str:
    context = advice.context
    in_full = material.words[context.operation].setting_in_full
    return in_full(setting_values(setting), context.payload_size_bytes)


def _notes(episodes: Sequence[Episode], rhythm: Rhythm | None, unmeasured_count: int) -> Iterator[str]:
    if unmeasured_count:
        yield f"none of {counted(unmeasured_count, 'probe')} had a result"
    if rhythm is not None and rhythm.fraction is not None:
        yield f"slower {rhythm.span}, {signed_percent(rhythm.fraction.expected)}"
    if episodes:
        newest = episodes[-1]
        those = f"the requests of {counted(newest.measured_count, 'measurement')}"
        begins, ends = day_words(newest.begins_at), day_words(newest.ends_at)
        when = f"on {begins}" if begins == ends else f"from {begins} to {ends}"
        yield f"{percent(newest.refused_fraction)} of {those} were refused {when}"


def _days_of(moments: Iterable[tuple[float, int]]) -> tuple[tuple[date, int], ...]:
    counts: Counter[date] = Counter()
    for at, count in moments:
        counts[datetime.fromtimestamp(at, UTC).date()] += count
    return tuple(sorted(counts.items()))
