"""Knows what keeps the daemon from its work, since when, and when that is worth a line in the log.

A trouble is something that does not pass by itself. One failed probe is no trouble where others succeed; three in a row
are, and so is the first one where nothing was ever measured. A spent budget or a busy host passes by itself, unless it
lasts until the advice expires. The same reason at several sizes is one trouble. A trouble is logged when it begins,
when its reason changes and when it is over, and not with every cycle.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeAlias

from penstock.clock import Clock
from penstock.units import format_bytes
from penstock.vocabulary import Context

FAILURE_COUNT_MIN = 3  # in a row, of an operation in a region
TOLD_AGAIN_SECONDS = 3600.0  # a trouble that comes and goes is logged once in this time
TOLD_COUNT_MAX = 64  # of these, the last are remembered
# Request ids, numbers and dates: sentences that differ in these alone are the same trouble.
_DETAIL = re.compile(r"\b[0-9A-Fa-f-]{12,}\b|\$?\d[\d.,:%-]*")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What is wrong, and where. `operation` is empty for troubles of the daemon itself, which `name` tells apart."""

    name: str  # of the operation, or "clock", "database", "listen", "package", "snapshot", "socket", "watched_queue"
    operation: str = ""
    region: str = ""
    payload_size_bytes: tuple[int, ...] = ()
    sentence: str
    since_at: datetime | None = None

    @property
    def subject(self) -> str:
        """``s3_upload 64 MiB and 1 GiB in eu-west-1``."""
        if not self.operation:
            return self.name
        sizes = " and ".join(format_bytes(size) for size in self.payload_size_bytes)
        return f"{self.operation} {sizes} in {self.region}"

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    since_at: datetime
    sentence: str
    is_stopped: bool  # no probe is tried: then any attempt that gets further ends it, else only a measurement


Subject: TypeAlias = tuple[str, str]
"""An operation and its region, or a name and an empty string."""


class Troubles:
    """All that is wrong now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[Context | str, _Open] = {}
        self._failure_counts: Counter[Subject] = Counter()
        self._told: dict[tuple[Subject, str], float] = {}  # when, on the monotonic clock

    def now(self) -> tuple[Trouble, ...]:
        """What is wrong, the oldest first; sizes with the same reason are one trouble."""
        return tuple(sorted(self._grouped().values(), key=lambda trouble: str(trouble.since_at)))

    # --- What becomes of a context

    def note_measured(self, context: Context) -> None:
        """A probe of the context measured something: its trouble is over."""
        self._failure_counts.pop(_subject(context), None)
        self._end(context)

    def note_failed(self, context: Context, reason: str, *, is_known: bool) -> None:
        """A probe of the context could not measure; `is_known` says whether one ever did."""
        subject = _subject(context)
        self._failure_counts[subject] += 1
        if self._failure_counts[subject] >= (FAILURE_COUNT_MIN if is_known else 1):
            self._begin(context, reason, is_stopped=False)
        else:
            self.note_postponed(context)

    def note_stopped(self, context: Context, reason: str) -> None:
        """The context is not probed, and will not be until somebody intervenes."""
        self._begin(context, reason, is_stopped=True)

    def note_postponed(self, context: Context) -> None:
        """The context waits for something that passes by itself: what had stopped it is over."""
        if context in self._open and self._open[context].is_stopped:
            self._end(context)

    def note_expired(self, context: Context, sentence: str) -> None:
        """Its advice has expired, as nothing was measured; a trouble that is known already says more, and stays."""
        if context not in self._open:
            self._begin(context, sentence, is_stopped=False)

    # --- Troubles of the daemon itself

    def note(self, name: str, sentence: str | None) -> None:
        """Begin or update the trouble of this name, such as "clock"; None ends it."""
        if sentence is None:
            self._end(name)
        else:
            self._begin(name, sentence, is_stopped=True)

    # --- The log

    def _begin(self, key: Context | str, sentence: str, *, is_stopped: bool) -> None:
        before = self._grouped()
        since_at = self._open[key].since_at if key in self._open else self._clock.now()
        self._open[key] = _Open(since_at=since_at, sentence=sentence, is_stopped=is_stopped)
        self._tell(before)

    def _end(self, key: Context | str) -> None:
        before = self._grouped()
        if self._open.pop(key, None) is not None:
            self._tell(before)

    def _grouped(self) -> dict[tuple[Subject, str], Trouble]:
        groups: dict[tuple[Subject, str], Trouble] = {}
        for key, opened in self._open.items():
            group = (_subject(key), _DETAIL.sub("#", opened.sentence))
            groups[group] = _merged(groups.get(group), key, opened)
        return groups

    def _tell(self, before: Mapping[tuple[Subject, str], Trouble]) -> None:
        """Log new troubles unless logged lately, and subjects of which no trouble is left."""
        after, seconds = self._grouped(), self._clock.monotonic_seconds()
        for group in after.keys() - before.keys():
            told_seconds = self._told.get(group)
            if told_seconds is None or seconds - told_seconds >= TOLD_AGAIN_SECONDS:
                self._told[group] = seconds
                while len(self._told) > TOLD_COUNT_MAX:
                    del self._told[next(iter(self._told))]
                log.warning("trouble with %s: %s", after[group].subject, after[group].sentence)
        left = {subject for subject, _ in after}
        over = {subject for subject, _ in before} - left
        for subject in over:
            if any(told == subject for told, _ in self._told):
                log.warning("the trouble with %s is over", _shown(subject))
            self._told = {group: at for group, at in self._told.items() if group[0] != subject}


def _merged(group: Trouble | None, key: Context | str, opened: _Open) -> Trouble:
    """The group with one more context that has the same reason."""
    if isinstance(key, str):
        return Trouble(name=key, since_at=opened.since_at, sentence=opened.sentence)
    sizes = {*(group.payload_size_bytes if group else ()), key.payload_size_bytes}
    since_at = (
        opened.since_at if group is None or group.since_at is None else min(group.since_at, opened.since_at)
    )
    return Trouble(
        name=key.operation,
        operation=key.operation,
        region=key.place.region,
        payload_size_bytes=tuple(sorted(sizes)),
        since_at=since_at,
        sentence=opened.sentence,
    )


def _subject(key: Context | str) -> Subject:
    return (key, "") if isinstance(key, str) else (key.operation, key.place.region)


def _shown(subject: Subject) -> str:
    name, region = subject
    return f"{name} in {region}" if region else name
