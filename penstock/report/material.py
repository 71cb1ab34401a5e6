"""Knows what a report is made from: values that somebody else has read from the database, and the models.

The report opens nothing and asks for no date: the command reads, this room computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.models.model import Fit, PerformanceModel
from penstock.models.sqs.backlog_warning import BacklogSpell
from penstock.operations.operation import Words
from penstock.report.tally import Tally
from penstock.vocabulary import (
    Change,
    ClientHour,
    Context,
    Cost,
    Demand,
    Inconclusive,
    Observation,
    Place,
    ProbeHarm,
    Recommendation,
    Spend,
)


@dataclass(frozen=True, slots=True)
class Copy:
    """The setting in the words of one client."""

    client: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """All that a report rests on. Whatever belongs to an operation without a model is left out and counted."""

    source: str  # where it was read, for the reader
    generated_at: datetime
    since: datetime | None  # None: everything that is remembered
    models: Mapping[str, PerformanceModel[Any]]
    words: Mapping[str, Words]  # by operation
    observations: Mapping[Place, Sequence[Observation[Any]]]  # the newest, oldest first
    inconclusives: Sequence[Inconclusive[Any]]  # oldest first
    fits: Sequence[Fit]  # the newest of each place
    recommendations: Sequence[Recommendation[Any]]  # the newest of each question
    histories: Mapping[Context, Sequence[Recommendation[Any]]]  # of each context, oldest first
    expenses: Sequence[Spend]
    daily_limit: Cost | None  # None: the configuration that set it is not known
    within_limits: Callable[[Context, Demand], Demand]  # how the daemon bounds what is asked of it
    changes: Sequence[Change[Any]]  # of any place
    # What each known client does by itself, by name: the values of the knobs; the SDK of the row first.
    unadvised: Callable[[Context], Mapping[str, Mapping[str, float]]]
    copies: Callable[[Recommendation[Any]], Sequence[Copy]]  # the setting in the words of each client
    usd_limits: Mapping[str, float]  # a day, of operations that have a limit of their own
    client_hours: Sequence[ClientHour] = ()  # oldest first
    harms: Sequence[ProbeHarm] = ()  # oldest first
    leftover_count: int
    unreadable_count: int
    # What is missing of a database that is damaged or of another version, a sentence each.
    damage: Sequence[str]
    # Of all that penstock measured itself; of a place that has none, `observations` are all there is.
    tallies: Mapping[Place, Tally] = field(default_factory=dict)
    backlogs: Sequence[BacklogSpell] = ()  # of watched queues, oldest first
