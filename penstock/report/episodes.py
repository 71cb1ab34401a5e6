"""Knows episodes in which a service refused requests: from which measurement to which, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.report.tally import Beat
from penstock.report.wording import date_words, percent
from penstock.units import counted, number

GAP_MAX = timedelta(hours=24)  # between two refused measurements of one episode
MEASURED_COUNT_MIN = 2  # refused measurements; a single one is no episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Measurements with refused requests, each within a day of the one before; those without are counted apart."""

    begins_at: datetime  # the first of them
    ends_at: datetime  # the last
    begins_after: datetime | None  # the last one before it that sent as fast and was not refused
    ends_before: datetime | None  # the first after it
    measured_count: int
    spared_count: int  # measurements during it with at most stray refusals
    refused_count: int
    request_count: int

    @property
    def refused_fraction(self) -> float:
        """Of the requests of the refused measurements only, without those in between."""
        return self.refused_count / max(self.request_count, 1)


def episodes(beats: Sequence[Beat]) -> tuple[Episode, ...]:
    """All episodes, oldest first; beats ascend in time."""
    groups: list[list[Beat]] = []
    for one in beats:
        if not one.is_refused:
            continue
        if groups and one.first_at - groups[-1][-1].last_at <= GAP_MAX.total_seconds():
            groups[-1].append(one)
        else:
            groups.append([one])
    clean = [one for one in beats if not one.is_refused]
    return tuple(
        _episode(group, clean)
        for group in groups
        if sum(b.measured_count for b in group) >= MEASURED_COUNT_MIN
    )


def episode_sentence(episode: Episode) -> str:
    """What was refused, and of which requests.

    ``Requests were refused from 2026-01-08 04:26 to 14:43 UTC: 25 of the 62 (40 %) of 5 measurements; 3 in between met
    no more than stray refusals.``
    """
    begins, ends = date_words(episode.begins_at), date_words(episode.ends_at)
    ends = ends.removeprefix(f"{begins.partition(' ')[0]} ")
    spared = episode.spared_count
    between = f"; {number(spared)} in between met at most stray refusals" if spared else ""
    return (
        f"Requests were refused from {begins} to {ends} UTC: {number(episode.refused_count)} of the "
        f"{number(episode.request_count)} ({percent(episode.refused_fraction)}) of "
        f"{counted(episode.measured_count, 'measurement')}{between}."
    )


def _episode(group: Sequence[Beat], clean: Sequence[Beat]) -> Episode:
    least = min(beat.pace for beat in group)
    begins_at, ends_at = group[0].first_at, max(beat.last_at for beat in group)
    before = [b.last_at for b in clean if b.pace >= least and b.last_at < begins_at]
    after = [b.first_at for b in clean if b.pace >= least and b.first_at > ends_at]
    spared = (b.measured_count for b in clean if b.first_at >= begins_at and b.last_at <= ends_at)
    return Episode(
        begins_at=_moment(begins_at),
        ends_at=_moment(ends_at),
        begins_after=_moment(max(before)) if before else None,
        ends_before=_moment(min(after)) if after else None,
        measured_count=sum(beat.measured_count for beat in group),
        spared_count=sum(spared),
        refused_count=sum(beat.refused_count for beat in group),
        request_count=sum(beat.request_count for beat in group),
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
