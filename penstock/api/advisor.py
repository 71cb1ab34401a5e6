"""Knows what the socket needs of the daemon, and how the daemon says that it will not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from penstock.api.wire import Question, Snapshot
from penstock.vocabulary import Observation, Recommendation, Setting


class RefusedError(Exception):
    """The daemon understood and will not do it now; the message says why, and what to do."""


class NoRoomError(Exception):
    """What was sent cannot be kept, for the disk is full; the message says what to do."""


class Advisor(Protocol):
    """What the socket needs of the daemon. No answer here may wait for a fit or a probe."""

    @property
    def probed_operations(self) -> Collection[str]:
        """Those that are measured here; the others will never have more than a guess."""
        ...

    def snapshot(self) -> Snapshot:
        """All the advice that stands, with the generation that each answer carries."""
        ...

    def recommend(self, question: Question) -> Recommendation[Any]:
        """The advice for this question; always some."""
        ...

    def assess(
        self, question: Question, setting: Setting, *, host_fraction: float | None = None
    ) -> Recommendation[Any]:
        """What a setting that was chosen elsewhere will do for this question, as a recommendation."""
        ...

    def explain(self, question: Question) -> Mapping[str, Any]:
        """Why that is the advice: the fit, the alternatives, the evidence, as JSON values and dates."""
        ...

    def status(self) -> Mapping[str, Any]:
        """What the daemon does, has done and has spent, as JSON values and dates; units in the names."""
        ...

    def leftovers(self) -> Mapping[str, Any]:
        """What probes left outside and nobody uses, as JSON values."""
        ...

    def clients(self) -> Mapping[str, Any]:
        """What was heard of applications, and what they would gain, as JSON values."""
        ...

    def metrics(self) -> bytes:
        """The same for Prometheus, in its text format."""
        ...

    def troubles(self) -> Sequence[Mapping[str, Any]]:
        """What keeps the daemon from its work, as JSON values and dates: `name`, `subject`, `sentence`, ..."""
        ...

    async def record(
        self, reports: Sequence[Observation[Any]], *, uid: int, process_id: int
    ) -> Sequence[str | None]:
        """Keep what this process of this user measured; for each report, why it was refused, or None.

        Raises NoRoomError when none can be kept.
        """
        ...

    async def request_probe(self, operation: str, payload_size_bytes: int) -> str:
        """Probe this out of turn, within the budget. Returns a sentence about when. Raises RefusedError."""
        ...

    async def remove_leftovers(self, *, forgets: bool = False) -> Mapping[str, Any]:
        """Try to remove all of these between two probes, and say what came of it. Raises RefusedError.

        `forgets`: what cannot be removed is not tried again.
        """
        ...

    async def believe_clock(self) -> str:
        """Take the clock for right: what was spent ahead of it counts as spent now. Returns a sentence."""
        ...

    async def reload(self) -> str:
        """Read the configuration again. Returns a sentence about what changed. Raises RefusedError."""
        ...
