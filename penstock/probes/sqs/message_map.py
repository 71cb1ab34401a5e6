"""Knows where each message of a run is: sent and not received, received and not deleted, or gone; and counts it.

A delete counts when its handle is the newest that was received for the message, and once for each message. Moments are
seconds of the run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.probes.outside import ReceivedMessage
from penstock.probes.sqs.tally import Tally


@dataclass(frozen=True, slots=True)
class Receipt:
    """A copy in the delete queue."""

    sequence: int  # -1 for a message of somebody else
    handle: str
    received_at: float


class MessageMap:
    """The two things that senders, receivers and deleters share: the message map, and the delete queue."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.tried_count = 0  # messages; the sequence of the next one
        self.unreceived: dict[int, float] = {}  # when each was sent
        self._uncertain: dict[
            int, float
        ] = {}  # the same for sends that failed: they may be there all the same
        self._waiting_since: dict[int, float] = {}  # accepted and not received, where that is told
        self.undeleted: deque[Receipt] = deque()  # the delete queue, first in first out
        self._deleting: list[Receipt] = []  # the oldest of each delete request
        self._deleting_count = 0
        self._newest_handles: dict[int, str] = {}
        self._is_deleted = bytearray()  # by sequence

    @property
    def undeleted_count(self) -> int:
        """In the delete queue and being deleted."""
        return len(self.undeleted) + self._deleting_count

    @property
    def held_count(self) -> int:
        """Messages and copies that are remembered."""
        return len(self._newest_handles) + len(self.undeleted)

    @property
    def oldest_in_queue_at(self) -> float:
        """When the first of the delete queue was received; infinite when there is none."""
        return self.undeleted[0].received_at if self.undeleted else math.inf

    @property
    def oldest_received_at(self) -> float:
        """The same also of what is being deleted: it may still come back."""
        return min((receipt.received_at for receipt in self._deleting), default=self.oldest_in_queue_at)

    def begin_send(self, size: int, at: float) -> range:
        """The sequences of so many messages."""
        sequences = range(self.tried_count, self.tried_count + size)
        self.tried_count += size
        self.unreceived.update(dict.fromkeys(sequences, at))
        return sequences

    def end_send(self, sequences: range, *, is_accepted: bool, waits_from: float | None) -> None:
        """All were accepted, or which of them were is not told; some may have been received meanwhile."""
        there = [sequence for sequence in sequences if sequence in self.unreceived]
        if not is_accepted:
            self._uncertain |= {sequence: self.unreceived.pop(sequence) for sequence in there}
        if waits_from is not None:
            self._waiting_since |= dict.fromkeys(there, waits_from)

    def waited_from(self, sequences: Sequence[int]) -> float:
        """Since when the first of these that were received was there; infinite where that is not known."""
        return min(self._waiting_since.pop(sequence, math.inf) for sequence in sequences)

    def take(self, sequence: int, message: ReceivedMessage, at: float) -> None:
        """Count the copy and put it into the delete queue."""
        sent_at = self.unreceived.pop(sequence, None)
        if sent_at is None:
            sent_at = self._uncertain.pop(sequence, None)
        if sequence < 0:
            self._tally.foreign_count += 1
        elif sent_at is None:
            self._tally.total.duplicate_count += 1
        else:
            self._tally.note_arrival(sequence, at - sent_at)
        if sequence >= 0:
            self._newest_handles[sequence] = message.receipt_handle
        self.undeleted.append(Receipt(sequence, message.receipt_handle, at))

    def begin_delete(self, count_max: int) -> list[Receipt]:
        """The oldest of the delete queue, which has some."""
        size = min(count_max, len(self.undeleted))
        receipts = [self.undeleted.popleft() for _ in range(size)]
        self._deleting_count += size
        self._deleting.append(receipts[0])
        return receipts

    def end_delete(self, receipts: Sequence[Receipt]) -> None:
        """Whatever came of it."""
        self._deleting_count -= len(receipts)
        self._deleting.remove(receipts[0])

    def put_back(self, receipts: Sequence[Receipt]) -> None:
        """They are to be deleted all the same."""
        self.undeleted.extendleft(reversed(receipts))

    def note_deleted(self, receipts: Sequence[Receipt]) -> int:
        """How many messages that was, each for the first time."""
        count = 0
        self._is_deleted.extend(bytes(self.tried_count - len(self._is_deleted)))
        for receipt in receipts:
            if self._newest_handles.get(receipt.sequence) == receipt.handle:
                del self._newest_handles[receipt.sequence]
                count += 1 - self._is_deleted[receipt.sequence]
                self._is_deleted[receipt.sequence] = 1
        self._tally.total.deleted_count += count
        self._tally.total.deleted_in_vain_count += len(receipts) - count
        return count
