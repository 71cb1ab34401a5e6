"""Knows what the socket needs of the daemon, and how the daemon refuses a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from penstock.api.wire import Question, Snapshot
from penstock.vocabulary import Observation, Recommendation, Setting


class RefusedError(Exception):
    """The daemon understood the request and refuses it now; the message says why, and what to do."""


class NoRoomError(Exception):
    """What was sent cannot be stored, because the disk is full; the message says what to do."""


class Advisor(Protocol):
    """What the socket needs of the daemon. No answer here may wait for a fit or a probe."""

    @property
    def probed_operations(self) -> Collection[str]:
        """The operations that are probed here; the others never get more than advice from tables or reports."""
        ...

    def snapshot(self) -> Snapshot:
        """All standing advice, with the generation that each answer carries."""
        ...

    def recommend(self, question: Question) -> Recommendation[Any]:
        """The advice for this question; there always is some."""
        ...

    def assess(
        self, question: Question, setting: Setting, *, host_fraction: float | None = None
    ) -> Recommendation[Any]:
        """What a setting chosen elsewhere is expected to do for this question, as a recommendation.

        `host_fraction` is a lease's part of the host.
        """
        ...

    def explain(self, question: Question) -> Mapping[str, Any]:
        """Why the advice is as it is: the fit, the alternatives, the evidence, as JSON values and dates."""
        ...

    def status(self) -> Mapping[str, Any]:
        """What the daemon does, has done and has spent, as JSON values and dates; units in the names."""
        ...

    def leftovers(self) -> Mapping[str, Any]:
        """What probes left behind on AWS, as JSON values."""
        ...

    def clients(self) -> Mapping[str, Any]:
        """What was heard of applications, and what the advice would gain them, as JSON values."""
        ...

    def metrics(self) -> bytes:
        """The metrics, in Prometheus's text format."""
        ...

    def troubles(self) -> Sequence[Mapping[str, Any]]:
        """What keeps the daemon from its work, as JSON values and dates: `name`, `subject`, `sentence`, ..."""
        ...

    async def record(
        self, reports: Sequence[Observation[Any]], *, uid: int, process_id: int
    ) -> Sequence[str | None]:
        """Store what this process of this user measured; returns for each report why it was refused, or None.

        Raises NoRoomError when none can be stored.
        """
        ...

    async def request_probe(self, operation: str, payload_size_bytes: int) -> str:
        """Request a probe out of turn, within the budget. Returns a sentence about when. Raises RefusedError."""
        ...

    async def remove_leftovers(self, *, forgets: bool = False) -> Mapping[str, Any]:
        """Try to remove all leftovers between two probes; returns what came of it. Raises RefusedError.

        `forgets`: do not try again later what cannot be removed now.
        """
        ...

    async def believe_clock(self) -> str:
        """Trust the clock: spending dated in the future counts as spent now. Returns a sentence."""
        ...

    async def reload(self) -> str:
        """Read the configuration again. Returns a sentence about what changed. Raises RefusedError."""
        ...
