"""Knows how to compare two times, two hosts or two regions: what differs, by how much, and whether it is certain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from datetime import datetime
from operator import ne

from penstock.report.difference import Comparison, Difference, ratio, welch
from penstock.report.findings import Advice, PlaceFindings, Report
from penstock.report.wording import date_words, interval, place_words, setting_words
from penstock.units import counted, format_bytes
from penstock.vocabulary import Estimate

COUNT_MIN = 3  # measurements on each side


def around(report: Report, at: datetime, title: str) -> Comparison:
    """Measurements since a moment against those before it, for the same settings."""
    return Comparison(
        title=title,
        one=f"since {date_words(at)} UTC",
        other="before",
        differences=tuple(_around(place, at) for place in report.places if place.course),
    )


def with_region(report: Report, region: str) -> Comparison:
    """Each place against the one of the same operation in this region."""
    there = [place for place in report.places if place.place.region == region]
    here = [place for place in report.places if place.place.region != region]
    return Comparison(
        title=f"Compared with {region}",
        one="here",
        other=region,
        differences=tuple(d for place in here for d in _beside(place, there)),
    )


def with_other(report: Report, other: Report) -> Comparison:
    """Each place against the most similar one of another database."""
    return Comparison(
        title=f"Compared with {other.source}",
        one="here",
        other="there",
        differences=tuple(d for place in report.places for d in _beside(place, other.places)),
    )


def _around(place: PlaceFindings, at: datetime) -> Difference:
    """For settings that were measured on both sides: for others the fit's error may exceed the change."""
    since = [one for one in place.course if one.at >= at]
    before = [one for one in place.course if one.at < at]
    common = {one.setting for one in since} & {one.setting for one in before}
    ratios = [[one.log_ratio for one in side if one.setting in common] for side in (since, before)]
    return Difference(
        what=place_words(place.place),
        one=counted(sum(one.count for one in since), "measurement"),
        other=counted(sum(one.count for one in before), "measurement"),
        fraction=welch(*ratios) if min(map(len, ratios)) >= COUNT_MIN else None,
    )


def _beside(place: PlaceFindings, candidates: Sequence[PlaceFindings]) -> Iterator[Difference]:
    """For each size: what each side's advice is expected to achieve."""
    kind = place.place.operation, place.place.service_class
    alike = [c for c in candidates if (c.place.operation, c.place.service_class) == kind]
    alike.sort(key=lambda c: sum(map(ne, astuple(c.place), astuple(place.place))))
    for advice in place.ordinary_advice:
        size = advice.payload_size_bytes
        twin = next((a for c in alike[:1] for a in c.ordinary_advice if a.payload_size_bytes == size), None)
        if twin is not None:
            yield Difference(
                what=f"{place_words(place.place)}, {format_bytes(size)}",
                one=_expected(place, advice),
                other=_expected(place, twin),
                fraction=ratio(_value(place, advice), _value(place, twin)),
            )


def _value(place: PlaceFindings, advice: Advice) -> Estimate | None:
    return advice.recommendation.prediction.get(place.value_metric)


def _expected(place: PlaceFindings, advice: Advice) -> str:
    value = _value(place, advice)
    words = setting_words(advice.recommendation.setting)
    return words if value is None else f"{interval(place.value_metric, value)} with {words}"
