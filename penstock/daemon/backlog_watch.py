"""Knows which queues drift towards the duplicate loop, from applications' reports and a watched queue's attributes.

A watched queue belongs to an application. Only its URL and its attributes are read: nothing is sent to it, received
from it or deleted in it. Attributes do not tell how old a message is. The age of the oldest undeleted message is
estimated as the number of messages not visible over the deletes per second, which the configuration states or
applications report. Where neither does, the rate is what their SDKs are heard to delete, at most as much as they
receive. Any user of the host can send that, so it is used only where there would be no warning at all otherwise.

What applications report of a queue (`measures` of `POST /v1/observations`); the first that is present counts:

- `oldest_undeleted_seconds`, or `oldest_undeleted_seconds_max`: the age itself
- `received_count` and `deleted_count`: messages received and not deleted are summed from report to report, and the age
  is that sum over the deletes per second

Several processes of an application report in turn: their deletes are summed, and the oldest message of all of them
counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from penstock.api.complaints import Complaints
from penstock.clock import Clock
from penstock.daemon.config import WatchedQueueSection
from penstock.daemon.troubles import FAILURE_COUNT_MIN, Troubles
from penstock.models.sqs.backlog_warning import (
    AgeSample,
    Alarm,
    BacklogSample,
    BacklogSpell,
    BacklogWarning,
    age_from_attributes,
    assess,
    growth_messages_per_second,
)
from penstock.models.sqs.setting import VISIBILITY_TIMEOUT_SECONDS
from penstock.operations.operation import Outside
from penstock.operations.sqs.delivery import DELIVERY
from penstock.probes.outside import Missing, RequestError
from penstock.vocabulary import Observation

SAMPLE_COUNT_MAX = 400  # 20 minutes at one sample in 3 s: enough to date a collapse
# Queues of applications. When there are more, the user with the most loses the one that was silent for longest.
SUBJECT_COUNT_MAX = 64
AGE_SECONDS_MAX = 1_209_600.0  # SQS keeps no message for longer than 14 days
SILENT_AFTER = timedelta(minutes=15)  # older reports and samples say nothing about now
STANDS_FOR = 2.0  # times a report's duration: then its process has ended, or has nothing to do
_ROUND_SLACK = 0.1  # of a report's duration: processes do not report to the millisecond
SPELL = timedelta(minutes=15)  # of which the maximum is stored: 96 rows a day
TROUBLE_NAME = "watched_queue"
_SEVERITY = tuple(Alarm)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The state of one queue, as it was last seen."""

    name: str
    label: str  # for metrics: the name without the application's name, which anybody can choose freely
    source: str  # "attributes" or "reports"
    region: str
    seen_at: datetime | None
    visible_message_count: float | None
    not_visible_message_count: float | None
    growth_messages_per_second: float | None
    visibility_timeout_seconds: float
    warning: BacklogWarning | None  # None: the age is not known
    trouble: str | None = None  # why it could not be read

    @property
    def explanation(self) -> str:
        """One sentence for the operator."""
        if self.trouble is not None:
            return self.trouble
        if self.warning is None:
            return (
                "the age of its messages is unknown: set watched_queue.delete_rate_messages_per_second, or "
                "have the application report what it deletes"
            )
        return self.warning.explanation

    def document(self) -> dict[str, Any]:
        warning = self.warning
        return {
            "name": self.name,
            "source": self.source,
            "region": self.region,
            "alarm": "unknown" if warning is None else warning.alarm.value,
            "reaches_timeout_at": warning.reaches_timeout_at if warning else None,
            "reaches_timeout_at_earliest": warning.reaches_timeout_at_earliest if warning else None,
            "explanation": self.explanation,
            "oldest_undeleted_seconds": warning.oldest_undeleted_seconds if warning else None,
            "visibility_timeout_seconds": self.visibility_timeout_seconds,
            "visible_message_count": self.visible_message_count,
            "not_visible_message_count": self.not_visible_message_count,
            "growth_messages_per_second": self.growth_messages_per_second,
            "seen_at": self.seen_at,
        }


@dataclass(frozen=True, slots=True)
class _Told:
    """The last report of one process."""

    until: datetime
    seconds: float
    delete_rate_per_second: float
    age_seconds: float | None  # of its oldest message, where the report states it

    def stands(self, at: datetime) -> bool:
        """Whether the report still counts: a process that deletes nothing sends no further one."""
        return at - self.until <= STANDS_FOR * timedelta(seconds=self.seconds)


@dataclass(slots=True, kw_only=True)
class _Subject:
    """One queue: the watched one, or one that a user's application reports about."""

    name: str
    label: str
    may_write: Callable[[], bool] = lambda: True  # whether a line may be logged now
    source: str
    region: str
    ages: deque[AgeSample] = field(default_factory=lambda: deque(maxlen=SAMPLE_COUNT_MAX))
    backlogs: deque[BacklogSample] = field(default_factory=lambda: deque(maxlen=SAMPLE_COUNT_MAX))
    seen_at: datetime | None = None
    visibility_timeout_seconds: float = VISIBILITY_TIMEOUT_SECONDS
    told: dict[int, _Told] = field(default_factory=dict)  # by process
    undeleted_message_count: float = 0.0  # received minus deleted, summed over reports
    trouble: str | None = None
    failure_count: int = 0  # in a row
    alarm: Alarm = Alarm.CALM

    def backlog(self) -> Backlog:
        newest = self.backlogs[-1] if self.backlogs else None
        return Backlog(
            name=self.name,
            label=self.label,
            source=self.source,
            region=self.region,
            seen_at=self.seen_at,
            visible_message_count=newest.visible_message_count if newest else None,
            not_visible_message_count=newest.not_visible_message_count if newest else None,
            growth_messages_per_second=growth_messages_per_second(self.backlogs) if newest else None,
            visibility_timeout_seconds=self.visibility_timeout_seconds,
            warning=assess(list(self.ages), self.visibility_timeout_seconds) if self.ages else None,
            trouble=self.trouble,
        )

    @property
    def delete_rate_per_second(self) -> float:
        """The deletes per second that all processes report."""
        return sum(told.delete_rate_per_second for told in self.told.values())

    @property
    def age_seconds(self) -> float | None:
        """The age of the oldest message; estimated from what was not deleted where a process does not state it."""
        ages = [told.age_seconds for told in self.told.values()]
        stated = [age for age in ages if age is not None]
        if None in ages and (rate := self.delete_rate_per_second) > 0:
            stated.append(self.undeleted_message_count / rate)
        return max(stated, default=None)

    def hear(self, process_id: int, told: _Told) -> None:
        """Take up a process's report beside the others'; of too many, keep those that reported last."""
        others = [(one, each) for one, each in self.told.items() if one != process_id]
        standing = [(one, each) for one, each in others if each.stands(told.until)]
        self.told = {**dict(standing[1 - SUBJECT_COUNT_MAX :]), process_id: told}

    def note_round(self, told: _Told) -> None:
        """Add one age sample for each round of reports: several in a round would look like a drift."""
        if (age_seconds := self.age_seconds) is None:
            return
        began_at = told.until - timedelta(seconds=(1.0 - _ROUND_SLACK) * told.seconds)
        at = self.ages.pop().at if self.ages and self.ages[-1].at > began_at else told.until
        self.note_age(at, age_seconds)

    def note_age(self, at: datetime, seconds: float) -> None:
        self.ages.append(AgeSample(at=at, oldest_undeleted_seconds=min(seconds, AGE_SECONDS_MAX)))
        warning = assess(list(self.ages), self.visibility_timeout_seconds)
        if warning.alarm is not self.alarm:
            is_worse = _SEVERITY.index(warning.alarm) > _SEVERITY.index(self.alarm)
            level = logging.WARNING if is_worse else logging.INFO
            if self.may_write():
                log.log(level, "queue %s: %s", self.name, warning.explanation)
            self.alarm = warning.alarm


class BacklogWatch:
    """The backlog of the watched queue and of every queue that applications report about."""

    def __init__(self, clock: Clock, section: WatchedQueueSection, *, region: str) -> None:
        self._clock = clock
        self._section = section
        # Messages per second that SDKs are heard to delete in a region, for where nobody states or reports it.
        self.heard_delete_rate: Callable[[str], float] = lambda _region: 0.0
        self._reported: dict[tuple[str, str], _Subject] = {}
        self._complaints = Complaints()
        self._watched: _Subject | None = None
        if section.name:
            self._watched = _Subject(
                name=section.name, label=section.name, source="attributes", region=section.region_or(region)
            )
        self._spell: BacklogSpell | None = None

    async def watch(
        self, outside: Outside, remember: Callable[[BacklogSpell], Awaitable[None]], troubles: Troubles
    ) -> None:
        """Read the watched queue's attributes at its interval, for ever; returns at once when no queue is named."""
        url: str | None = None
        while (subject := self._watched) is not None:
            try:
                queues = await outside.message_queues(subject.region)
                url = url or await queues.find_queue(subject.name)
                self.note_attributes(await queues.queue_attributes(url))
            except RequestError as trouble:
                _note_trouble(subject, str(trouble), self._clock.now())
                url = None if isinstance(trouble, Missing) else url
            troubles.note(TROUBLE_NAME, _lasting_trouble(subject))
            if (spell := self._ended_spell()) is not None:
                await remember(spell)
            await asyncio.sleep(self._section.interval_seconds)

    def backlogs(self, region: str | None = None) -> list[Backlog]:
        """The backlogs of all queues, or of those in one region; the most alarming first."""
        silent_since = self._clock.now() - SILENT_AFTER
        subjects = [s for s in self._reported.values() if s.seen_at and s.seen_at > silent_since]
        if self._watched is not None:
            subjects.insert(0, self._watched)
        chosen = [s.backlog() for s in subjects if region in {None, s.region}]
        return sorted(chosen, key=lambda s: -_SEVERITY.index(s.warning.alarm) if s.warning else 0)

    def note_reports(self, observations: Iterable[Observation[Any]], process_id: int = 0) -> None:
        """Take what a process's reports say about its backlog."""
        for observation in sorted(observations, key=lambda o: o.started_at):
            if observation.context.operation == DELIVERY.name:
                self._note_report(observation, process_id)

    def note_attributes(self, attributes: Mapping[str, str]) -> None:
        """Take up the watched queue's attributes, as SQS names them."""
        assert self._watched is not None
        subject, now = self._watched, self._clock.now()
        sample = BacklogSample(
            at=now,
            visible_message_count=float(attributes.get("ApproximateNumberOfMessages", 0)),
            not_visible_message_count=float(attributes.get("ApproximateNumberOfMessagesNotVisible", 0)),
        )
        subject.backlogs.append(sample)
        subject.seen_at, subject.trouble, subject.failure_count = now, None, 0
        subject.visibility_timeout_seconds = float(
            attributes.get("VisibilityTimeout", subject.visibility_timeout_seconds)
        )
        rate = self._section.delete_rate_messages_per_second or self._reported_delete_rate(subject.region)
        age = age_from_attributes(sample.not_visible_message_count, rate) if rate > 0 else None
        if age is not None:
            subject.note_age(now, age)
        self._note_spell(subject, sample, age)

    def _ended_spell(self) -> BacklogSpell | None:
        """The maxima of the last quarter of an hour, once, when it is over; else None."""
        spell = self._spell
        if spell is None or self._clock.now() < spell.began_at + SPELL:
            return None
        self._spell = None
        return spell

    def _note_spell(self, subject: _Subject, sample: BacklogSample, age: float | None) -> None:
        spell = self._spell or BacklogSpell(
            region=subject.region,
            queue=subject.name,
            began_at=sample.at,
            visible_message_count=0.0,
            not_visible_message_count=0.0,
            oldest_undeleted_seconds=None,
            visibility_timeout_seconds=subject.visibility_timeout_seconds,
        )
        ages = [each for each in (spell.oldest_undeleted_seconds, age) if each is not None]
        self._spell = replace(
            spell,
            visible_message_count=max(spell.visible_message_count, sample.visible_message_count),
            not_visible_message_count=max(spell.not_visible_message_count, sample.not_visible_message_count),
            oldest_undeleted_seconds=max(ages, default=None),
            visibility_timeout_seconds=subject.visibility_timeout_seconds,
        )

    def _note_report(self, observation: Observation[Any], process_id: int) -> None:
        measures, place = observation.measures, observation.context.place
        kind = "" if place.service_class == "standard" else f", {place.service_class}"
        uid = observation.reporter_uid
        name, label = f"of {observation.client} of user {uid}{kind}", f"of user {uid}{kind}"
        may_write = partial(self._complaints.may_write, uid)
        subject = self._subject(
            (place.region, name),
            _Subject(name=name, label=label, may_write=may_write, source="reports", region=place.region),
        )
        seconds = max(observation.duration_seconds, 1e-9)
        subject.seen_at = observation.started_at + timedelta(seconds=seconds)
        subject.visibility_timeout_seconds = (
            measures.get("visibility_timeout_seconds") or subject.visibility_timeout_seconds
        )
        deleted = measures.get("deleted_count")
        age = measures.get("oldest_undeleted_seconds", measures.get("oldest_undeleted_seconds_max"))
        told = _Told(subject.seen_at, seconds, (deleted or 0.0) / seconds, age)
        subject.hear(process_id, told)
        if deleted is not None:
            received = measures.get("received_count", deleted)
            subject.undeleted_message_count = max(0.0, subject.undeleted_message_count + received - deleted)
        subject.note_round(told)

    def _subject(self, key: tuple[str, str], new: _Subject) -> _Subject:
        """The subject of this key, moved to the end as the one that reported last."""
        subject = self._reported.pop(key, new)
        while len(self._reported) >= SUBJECT_COUNT_MAX:
            ((most, _),) = Counter(each.label for each in self._reported.values()).most_common(1)
            del self._reported[next(key for key, each in self._reported.items() if each.label == most)]
        self._reported[key] = subject
        return subject

    def _reported_delete_rate(self, region: str) -> float:
        """Deletes per second of all applications that reported lately in the region, else as heard from their SDKs."""
        silent_since = self._clock.now() - SILENT_AFTER
        reported = sum(
            subject.delete_rate_per_second
            for subject in self._reported.values()
            if subject.region == region and subject.seen_at and subject.seen_at > silent_since
        )
        return reported or self.heard_delete_rate(region)


def _note_trouble(subject: _Subject, sentence: str, now: datetime) -> None:
    """The queue could not be read; samples from too long ago are forgotten, as they no longer mean that it is calm."""
    subject.trouble, subject.failure_count = sentence, subject.failure_count + 1
    if subject.seen_at is not None and now - subject.seen_at > SILENT_AFTER:
        subject.ages.clear()
        subject.backlogs.clear()
        subject.alarm = Alarm.CALM


def _lasting_trouble(subject: _Subject) -> str | None:
    """Why the queue is not watched, if it was never read or several reads in a row failed; else None."""
    if subject.trouble is None or (subject.seen_at is not None and subject.failure_count < FAILURE_COUNT_MIN):
        return None
    return f"the queue {subject.name} is not watched: {subject.trouble}"
