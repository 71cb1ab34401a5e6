"""Knows the queue that a probe uses: found or created when first needed, journalled before that, removed at the end."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from penstock.probes.cleaning import Unanswered, struck_when_gone
from penstock.probes.outside import Failed, MessageQueues, Missing, Refused, RequestError, may_be_done
from penstock.probes.probe import Journal, Leftover, LeftoverKind
from penstock.vocabulary import Cost, Tariff

RETENTION_SECONDS = 3600  # messages that a killed probe left are gone after an hour in any case
_KEPT_FOR = "MessageRetentionPeriod"


def attributes_of(
    visibility_timeout_seconds: int, retention_seconds: int = RETENTION_SECONDS
) -> dict[str, str]:
    """The attributes of a queue, as SQS names them."""
    return {"VisibilityTimeout": str(visibility_timeout_seconds), _KEPT_FOR: str(retention_seconds)}


@dataclass(eq=False)
class OwnQueue:
    """The probe's queue: found or created once, and removed only if the journal has it as ours."""

    queues: MessageQueues
    journal: Journal
    name: str
    _: KW_ONLY
    suffix: str
    attributes: Mapping[str, str]

    def __post_init__(self) -> None:
        self._url: str | None = None
        self._leftover: Leftover | None = None
        self._unanswered = Unanswered()
        self._request_count = 0

    @property
    def is_ours(self) -> bool:
        """Whether the queue may be removed: not if it existed before."""
        return self._leftover is not None

    def used(self, tariff: Tariff) -> Cost:
        """The cost of the last `open`."""
        return tariff.cost(write_request_count=self._request_count)

    async def open(self, region: str) -> tuple[str, Mapping[str, str]]:
        """Find the queue, or create it; returns its URL and its attributes. Raises RequestError.

        An application's queue that happens to have this name is refused, because it would lose messages. It is known by
        a longer retention, a delay, or a dead-letter queue.
        """
        self._request_count = 0
        url = await self._find_or_create_any(region)
        self._request_count += 1
        attributes = await self.queues.queue_attributes(url)
        if not self.is_ours and (habit := self._foreign_habit(attributes)) is not None:
            self._url = None
            raise Refused(
                f"the queue {self.name}{self.suffix} {habit}, so it belongs to an application and is left "
                "alone: choose another queue_name_prefix"
            )
        return url, attributes

    def _foreign_habit(self, attributes: Mapping[str, str]) -> str | None:
        ours = self.attributes[_KEPT_FOR]
        if (kept := attributes.get(_KEPT_FOR, ours)) != ours:
            return f"keeps messages for {kept} s, those of probes for {ours} s"
        if (delay := attributes.get("DelaySeconds", "0")) != "0":
            return f"delays messages by {delay} s"
        return "moves messages to another queue (RedrivePolicy)" if "RedrivePolicy" in attributes else None

    def forget(self, trouble: RequestError) -> None:
        """Look for the queue again next time, if the error says that it does not exist."""
        if isinstance(trouble, Missing):
            self._url = None

    async def remove(self) -> None:
        """Delete the queue and strike its entry; a queue that existed before us stays."""
        await self._unanswered.are_answered()
        if (leftover := self._leftover) is not None:
            await struck_when_gone(self.journal, leftover, self._delete(leftover.name))

    async def _delete(self, name: str) -> None:
        with contextlib.suppress(Missing):
            await self.queues.delete_queue(self._url or await self.queues.find_queue(name))
        self._url, self._leftover = None, None

    async def make(self, region: str) -> str:
        """Create the queue without looking for an existing one; returns its URL. Raises RequestError."""
        return await self._create(_entry(self.name + self.suffix, region))

    async def _find_or_create_any(self, region: str) -> str:
        if self._url is None:
            try:
                self._url = await self._find_or_create(self.name + self.suffix, region)
            except Failed:  # it may have been created all the same
                raise
            except Refused:
                # After a deletion, the name cannot be used again for 60 s.
                unused_name = f"{self.name}-{uuid.uuid4().hex[:8]}{self.suffix}"
                self._url = await self._find_or_create(unused_name, region)
        return self._url

    async def _find_or_create(self, name: str, region: str) -> str:
        leftover = _entry(name, region)
        self._request_count += 1
        with contextlib.suppress(Missing):
            url = await self.queues.find_queue(name)
            if leftover in await self.journal.open_entries():
                await self.journal.record(leftover)  # an earlier process made it: it is in use again
                self._leftover = leftover
            return url
        return await self._create(leftover)

    async def _create(self, leftover: Leftover) -> str:
        await self.journal.record(leftover)
        self._request_count += 1
        self._leftover = leftover  # before the request: its answer may be lost
        try:
            return await self._unanswered.answer_to(self._make(leftover.name))
        except RequestError as error:
            if not may_be_done(error):
                self._leftover = None
                await self.journal.strike(leftover)
            raise

    async def _make(self, name: str) -> str:
        self._url = await self.queues.create_queue(name, self.attributes)
        return self._url


def _entry(name: str, region: str) -> Leftover:
    return Leftover(kind=LeftoverKind.SQS_QUEUE, service="sqs_delivery", container=region, name=name)
