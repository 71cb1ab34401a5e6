"""Knows leases, which divide this host among processes, and how each one's share follows from what it can use.

The optimum is the host's: two processes that each run at the optimum overload it. So an application holds a lease for
the time of its transfers, and the leases that contend for the same resource divide it:

- A lease alone would run at its own optimum, n threads. The host, given endless work of that kind, would run at N.
  So the lease can use u = n / N of the host, at most 1.
- Fractions f of the host are assigned in proportion to the leases' weights, but a lease gets no more than the u it can
  use, and leaves the rest to the others (water-filling). They sum to 1, or to all that can be used.
- Each lease runs at f / u of its own optimum: every divided knob is scaled by that. So leases for objects of different
  sizes, with optima of their own, fill the host together.
- Threads are whole numbers: they are rounded so that their sum is kept, and each lease gets at least one.

This is pure bookkeeping: no clock, no socket. Where nothing is known yet, nothing is divided: each lease gets the SDK's
own default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import floor
from typing import Any

from penstock.api.places import Places
from penstock.api.wire import Claim, Question
from penstock.models.sharing import water_fill
from penstock.optimizer import objective
from penstock.vocabulary import Basis, Demand, Recommendation, Setting, divided_knobs, setting_values

LEASE_COUNT_MAX, LEASE_COUNT_MAX_PER_UID = 512, 256  # each is an open connection, too
_ENDLESS_OBJECT_COUNT = 4096  # more objects at a time than any host has threads


class TooManyLeasesError(Exception):
    """No more leases are granted, overall or to this user; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appetite:
    """The setting of a lease that has the host to itself, and the fraction of the host that this uses.

    `use_fraction` is None while nothing is known of the place.
    """

    setting: Setting
    use_fraction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease: who holds it, and what for."""

    lease_id: int
    claim: Claim
    process_id: int
    uid: int
    is_in_control: bool  # of the daemon: then the lease may be one of the reserved ones
    granted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a lease may use now. `lease_count` leases divide the same resource, this one included."""

    setting: Setting
    host_fraction: float | None
    lease_count: int


def endless(demand: Demand) -> Demand:
    """The demand with endless work and without its own limits, which would use the whole host."""
    return dataclasses.replace(
        demand,
        object_count=max(demand.object_count, _ENDLESS_OBJECT_COUNT),
        message_rate_per_second=None,
        thread_count_max=None,
        memory_bytes_max=None,
        bandwidth_bytes_per_second_max=None,
    )


def appetite(alone: Recommendation[Any], endless_work: Recommendation[Any]) -> Appetite:
    """What a lease can use, from the advice for its own question and the advice for endless work of its kind."""
    if alone.basis is Basis.DEFAULT:
        return Appetite(setting=alone.setting, use_fraction=None)
    settings = [alone.setting, endless_work.setting]
    used, usable = objective.thread_counts(settings)
    return Appetite(setting=alone.setting, use_fraction=min(1.0, float(used / usable)))


class LeaseBook:
    """The live leases, and the share of each, which is worked out on demand."""

    def __init__(
        self, count_max: int = LEASE_COUNT_MAX, count_max_per_uid: int = LEASE_COUNT_MAX_PER_UID
    ) -> None:
        self._leases: dict[int, Lease] = {}
        self._appetites: dict[int, Appetite] = {}
        self._places = Places(count_max, count_max_per_uid)
        self._shares: dict[int, Share] | None = {}  # None: to be worked out again
        self._granted_count = 0

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def leases(self) -> Sequence[Lease]:
        """All live leases, the oldest first."""
        return tuple(self._leases.values())

    def grant(
        self,
        claim: Claim,
        wanted: Appetite,
        *,
        process_id: int,
        uid: int,
        is_in_control: bool = False,
        now: datetime,
    ) -> Lease:
        """Grant a new lease. Raises TooManyLeasesError."""
        refusal = self._places.take(uid, is_in_control=is_in_control)
        if refusal is not None:
            raise TooManyLeasesError(f"there is no lease for this one: {refusal}; close some, or do without")
        self._granted_count += 1
        lease = Lease(
            lease_id=self._granted_count,
            claim=claim,
            process_id=process_id,
            uid=uid,
            is_in_control=is_in_control,
            granted_at=now,
        )
        self._leases[lease.lease_id], self._appetites[lease.lease_id] = lease, wanted
        self._shares = None
        return lease

    def appraise(self, lease: Lease, wanted: Appetite) -> bool:
        """Update what a live lease can use; returns whether that has changed, so that shares may differ."""
        is_news = self._appetites[lease.lease_id] != wanted
        if is_news:
            self._appetites[lease.lease_id] = wanted
            self._shares = None
        return is_news

    def release(self, lease: Lease) -> None:
        """End a lease; its share is free."""
        del self._leases[lease.lease_id], self._appetites[lease.lease_id]
        self._places.give_back(lease.uid, is_in_control=lease.is_in_control)
        self._shares = None

    def claimed_bytes(self, question: Question) -> int:
        """The bytes that other leases of the operation move: all but the one whose claim holds this very question."""
        claimed = [lease.claim.question for lease in self._leases.values()]
        others = [each for each in claimed if each is not question and each.operation == question.operation]
        return sum(each.payload_size_bytes * max(each.demand.object_count, 1) for each in others)

    def share(self, lease: Lease) -> Share:
        """What a live lease may use now."""
        if self._shares is None:
            self._shares = self._divided()
        return self._shares[lease.lease_id]

    def _divided(self) -> dict[int, Share]:
        contenders: dict[tuple[str, str], list[Lease]] = {}
        for lease in self._leases.values():
            key = (lease.claim.question.operation, lease.claim.resource)
            contenders.setdefault(key, []).append(lease)
        shares: dict[int, Share] = {}
        for leases in contenders.values():
            numbers, weights = [lease.lease_id for lease in leases], [lease.claim.weight for lease in leases]
            divided = divide([self._appetites[number] for number in numbers], weights)
            shares.update(zip(numbers, divided, strict=True))
        return shares


def divide(appetites: Sequence[Appetite], weights: Sequence[float]) -> list[Share]:
    """The shares of leases of one operation that contend for the same resource."""
    fractions = water_fill([a.use_fraction or 0.0 for a in appetites], weights)
    scales = [
        fraction / wanted.use_fraction if wanted.use_fraction else 1.0
        for fraction, wanted in zip(fractions, appetites, strict=True)
    ]
    settings = scaled([wanted.setting for wanted in appetites], scales)
    return [
        Share(
            setting=setting,
            host_fraction=None if wanted.use_fraction is None else fraction,
            lease_count=len(appetites),
        )
        for setting, fraction, wanted in zip(settings, fractions, appetites, strict=True)
    ]


def apportion(wanted: Sequence[float]) -> list[int]:
    """Whole numbers near these, each at least 1, with the same sum, rounded; all 1 if the sum is below their count."""
    given = [max(1, floor(value)) for value in wanted]
    most_missing_first = sorted(range(len(wanted)), key=lambda i: round(given[i] - wanted[i], 9))
    excess = sum(given) - max(round(sum(wanted)), len(wanted))
    for index in most_missing_first[: max(0, -excess)]:
        given[index] += 1
    # Leases that wanted less than 1 got too much: the others pay for it in turns, beginning with those that lack least.
    spare = sorted((turn, wanted[i] - n, i) for i, n in enumerate(given) for turn in range(n - 1))
    for *_, index in spare[: max(0, excess)]:
        given[index] -= 1
    return given


def scaled(settings: Sequence[Setting], scales: Sequence[float]) -> list[Setting]:
    """The settings with every divided knob multiplied by its scale; 0 stays 0, because it means no limit."""
    changes: list[dict[str, float]] = [{} for _ in settings]
    for name in divided_knobs(settings[0]):
        wanted = {i: getattr(s, name) * scales[i] for i, s in enumerate(settings) if getattr(s, name)}
        is_whole = all(isinstance(getattr(settings[i], name), int) for i in wanted)
        given = apportion(list(wanted.values())) if is_whole else list(wanted.values())
        for index, value in zip(wanted, given, strict=True):
            changes[index][name] = value
    return [dataclasses.replace(setting, **change) for setting, change in zip(settings, changes, strict=True)]


def terms_document(lease: Lease, share: Share) -> dict[str, Any]:
    """What a lease is told beside the advice for its share."""
    return {
        "lease_id": lease.lease_id,
        "resource": lease.claim.resource,
        "weight": lease.claim.weight,
        "host_fraction": share.host_fraction,
        "lease_count": share.lease_count,
    }


def lease_documents(book: LeaseBook) -> list[dict[str, Any]]:
    """Every live lease for people and dashboards: its holder, its purpose and its share."""
    documents = []
    for lease in book.leases:
        share, question = book.share(lease), lease.claim.question
        documents.append(
            {
                "operation": question.operation,
                "payload_size_bytes": question.payload_size_bytes,
                **terms_document(lease, share),
                "client": lease.claim.client,
                "process_id": lease.process_id,
                "uid": lease.uid,
                "granted_at": lease.granted_at,
                "setting": setting_values(share.setting),
            }
        )
    return documents
