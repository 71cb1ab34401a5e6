"""Knows what a report is made from: values already read from the database, and the models.

The report itself opens no file and reads no clock: the command reads, this package computes.
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
    """The setting as one client's own options."""

    client: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Everything that a report is based on. Rows of operations without a model are left out and counted."""

    source: str  # where it was read from, to be shown
    generated_at: datetime
    since: datetime | None  # None: everything that is remembered
    models: Mapping[str, PerformanceModel[Any]]
    words: Mapping[str, Words]  # by operation
    observations: Mapping[Place, Sequence[Observation[Any]]]  # the newest ones, oldest first
    inconclusives: Sequence[Inconclusive[Any]]  # oldest first
    fits: Sequence[Fit]  # the newest of each place
    recommendations: Sequence[Recommendation[Any]]  # the newest of each question
    histories: Mapping[Context, Sequence[Recommendation[Any]]]  # of each context, oldest first
    expenses: Sequence[Spend]
    daily_limit: Cost | None  # None: the configuration is not known
    within_limits: Callable[[Context, Demand], Demand]  # how the daemon bounds a demand
    changes: Sequence[Change[Any]]  # of any place
    # Default knob values of each known client, by name; the operation's own SDK first.
    unadvised: Callable[[Context], Mapping[str, Mapping[str, float]]]
    copies: Callable[[Recommendation[Any]], Sequence[Copy]]  # the setting for each client
    usd_limits: Mapping[str, float]  # per day, of operations with a limit of their own
    client_hours: Sequence[ClientHour] = ()  # oldest first
    harms: Sequence[ProbeHarm] = ()  # oldest first
    leftover_count: int
    unreadable_count: int
    # What is missing from a damaged database, or from one of another version; a sentence each.
    damage: Sequence[str]
    # Over all of penstock's own measurements; a place without a tally has only its `observations`.
    tallies: Mapping[Place, Tally] = field(default_factory=dict)
    backlogs: Sequence[BacklogSpell] = ()  # of watched queues, oldest first
