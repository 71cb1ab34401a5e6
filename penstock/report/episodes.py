"""Knows when a service refused requests for a while: from which measurement to which, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from penstock.report.wording import date_words, percent
from penstock.vocabulary import Observation, is_stray

GAP_MAX = timedelta(hours=24)  # between two refused measurements of one episode
MEASURED_COUNT_MIN = 2  # refused measurements; one alone is no episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Measurements that were refused requests, one after another."""

    begins_at: datetime  # the first of them
    ends_at: datetime  # the last
    begins_after: datetime | None  # the last before it that asked for as much and was not refused
    ends_before: datetime | None  # the first after it
    measured_count: int
    refused_count: int
    request_count: int

    @property
    def refused_fraction(self) -> float:
        """Of the requests of these measurements."""
        return self.refused_count / max(self.request_count, 1)


def episodes(observations: Sequence[Observation[Any]]) -> tuple[Episode, ...]:
    """All of them, oldest first; observations ascend in time."""
    refused = [o for o in observations if _is_refused(o)]
    groups: list[list[Observation[Any]]] = []
    for one in refused:
        if groups and one.started_at - groups[-1][-1].started_at <= GAP_MAX:
            groups[-1].append(one)
        else:
            groups.append([one])
    return tuple(_episode(group, observations) for group in groups if len(group) >= MEASURED_COUNT_MIN)


def episode_sentence(episode: Episode) -> str:
    """``Requests were refused from 2026-01-08 04:26 to 14:43 UTC: 25 of 62 (40 %), in 5 measurements.``."""
    begins, ends = date_words(episode.begins_at), date_words(episode.ends_at)
    ends = ends.removeprefix(f"{begins.partition(' ')[0]} ")
    return (
        f"Requests were refused from {begins} to {ends} UTC: {episode.refused_count} of {episode.request_count} "
        f"({percent(episode.refused_fraction)}), in {episode.measured_count} measurements."
    )


def _episode(group: Sequence[Observation[Any]], observations: Sequence[Observation[Any]]) -> Episode:
    least = min(map(_pace, group))
    clean = [o.started_at for o in observations if not _is_refused(o) and _pace(o) >= least]
    begins_at, ends_at = group[0].started_at, group[-1].started_at
    return Episode(
        begins_at=begins_at,
        ends_at=ends_at,
        begins_after=max((at for at in clean if at < begins_at), default=None),
        ends_before=min((at for at in clean if at > ends_at), default=None),
        measured_count=len(group),
        refused_count=sum(o.throttled_count for o in group),
        request_count=sum(max(o.request_count, o.throttled_count) for o in group),
    )


def _is_refused(observation: Observation[Any]) -> bool:
    count = observation.throttled_count
    return count > 0 and not is_stray(count, observation.request_count)


def _pace(observation: Observation[Any]) -> float:
    """Requests a second, refused ones with them."""
    return observation.request_count / max(observation.duration_seconds, 1e-9)
