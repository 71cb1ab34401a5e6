"""Knows the figure of each watched queue: how many messages it held over time, by its attributes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from penstock.models.sqs.backlog_warning import BacklogSpell
from penstock.report import chart
from penstock.report.figure import Figure, Key, Table, drawn
from penstock.report.wording import date_words
from penstock.units import format_seconds, number

POINT_COUNT_MAX = 700  # of a line; with more, the maximum of each few is drawn
_TABLE_ROW_COUNT_MAX = 24
_NAMES = {
    "not_visible_message_count": "received and not deleted",
    "visible_message_count": "waiting to be received",
}


def backlog_figures(spells: Sequence[BacklogSpell]) -> list[Figure]:
    """A figure for each queue that was watched for long enough."""
    ordered = sorted(spells, key=lambda s: (s.region, s.queue, s.began_at))
    groups = [list(group) for _, group in groupby(ordered, key=lambda s: (s.region, s.queue))]
    return [_backlog_figure(group) for group in groups if len(group) > 1]


def _backlog_figure(spells: Sequence[BacklogSpell]) -> Figure:
    every = -(-len(spells) // POINT_COUNT_MAX)
    runs = [spells[n : n + every] for n in range(0, len(spells), every)]
    times = [run[0].began_at.timestamp() for run in runs]
    lines = {name: [max(getattr(spell, name) for spell in run) for run in runs] for name in _NAMES}
    x = chart.time_axis("date, UTC", times)
    y = chart.linear_axis(
        "messages", [v for line in lines.values() for v in line], show=number, name="message_count"
    )
    layers: list[chart.Layer] = [
        chart.Line(x=times, y=line, css=f"cdf d{n}", is_stepped=True) for n, line in enumerate(lines.values())
    ]
    newest = spells[-1]
    return drawn(
        (x, y, layers),
        title=f"The backlog of {newest.queue} over time",
        description=_words(spells),
        keys=tuple(Key(f"cdf d{n}", words) for n, words in enumerate(_NAMES.values())),
        table=Table(
            ("from", *_NAMES.values(), "the oldest undeleted", "visibility timeout"),
            tuple(
                (
                    date_words(s.began_at),
                    *(number(getattr(s, name)) for name in _NAMES),
                    "-" if s.oldest_undeleted_seconds is None else format_seconds(s.oldest_undeleted_seconds),
                    format_seconds(s.visibility_timeout_seconds),
                )
                for s in reversed(spells[-_TABLE_ROW_COUNT_MAX:])
            ),
        ),
    )


def _words(spells: Sequence[BacklogSpell]) -> str:
    most = max(spells, key=lambda s: s.not_visible_message_count)
    words = (
        f"In {most.region}, the most of each quarter of an hour. At most {number(most.not_visible_message_count)} "
        f"messages were received and not deleted, on {date_words(most.began_at).replace(' ', ' at ')} UTC"
    )
    aged = [
        (s.oldest_undeleted_seconds / s.visibility_timeout_seconds, s)
        for s in spells
        if s.oldest_undeleted_seconds
    ]
    if aged:
        share, oldest = max(aged, key=lambda each: each[0])
        words += (
            f"; the oldest came to {format_seconds(oldest.oldest_undeleted_seconds or 0.0)}, {share:.0%} of the "
            "visibility timeout, after which copies come back"
        )
    return f"{words}."
