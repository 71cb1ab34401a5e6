"""Knows where each message of a run is: sent and not received, received and not deleted, or deleted; and counts them.

A delete counts if its handle is the newest one received for the message, and once for each message. Times are in
seconds since the run began.
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

    sequence: int  # -1 for a message that is not of this run
    handle: str
    received_at: float


class MessageMap:
    """What senders, receivers and deleters share: the message map, and the delete queue."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.tried_count = 0  # messages so far; also the sequence number of the next one
        self.unreceived: dict[int, float] = {}  # when each was sent
        self._uncertain: dict[
            int, float
        ] = {}  # the same for sends that failed: they may have been accepted all the same
        self._waiting_since: dict[int, float] = {}  # since when accepted and not received, where known
        self.undeleted: deque[Receipt] = deque()  # the delete queue, first in first out
        self._deleting: list[Receipt] = []  # the oldest receipt of each delete request in flight
        self._deleting_count = 0
        self._newest_handles: dict[int, str] = {}
        self._is_deleted = bytearray()  # by sequence

    @property
    def undeleted_count(self) -> int:
        """The count of copies in the delete queue or being deleted."""
        return len(self.undeleted) + self._deleting_count

    @property
    def held_count(self) -> int:
        """The count of messages and copies held in memory."""
        return len(self._newest_handles) + len(self.undeleted)

    @property
    def oldest_in_queue_at(self) -> float:
        """When the first copy in the delete queue was received; infinite if it is empty."""
        return self.undeleted[0].received_at if self.undeleted else math.inf

    @property
    def oldest_received_at(self) -> float:
        """The same, including copies that are being deleted: these may still come back."""
        return min((receipt.received_at for receipt in self._deleting), default=self.oldest_in_queue_at)

    def begin_send(self, size: int, at: float) -> range:
        """Begin to send `size` messages; returns their sequence numbers."""
        sequences = range(self.tried_count, self.tried_count + size)
        self.tried_count += size
        self.unreceived.update(dict.fromkeys(sequences, at))
        return sequences

    def end_send(self, sequences: range, *, is_accepted: bool, waits_from: float | None) -> None:
        """End a send: all were accepted, or it is not known which. Some may have been received meanwhile."""
        there = [sequence for sequence in sequences if sequence in self.unreceived]
        if not is_accepted:
            self._uncertain |= {sequence: self.unreceived.pop(sequence) for sequence in there}
        if waits_from is not None:
            self._waiting_since |= dict.fromkeys(there, waits_from)

    def waited_from(self, sequences: Sequence[int]) -> float:
        """Since when the first of these received messages was in the queue; infinite where that is not known."""
        return min(self._waiting_since.pop(sequence, math.inf) for sequence in sequences)

    def take(self, sequence: int, message: ReceivedMessage, at: float) -> None:
        """Count a received copy and put it into the delete queue."""
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
        """Take up to `count_max` of the oldest from the delete queue, which must not be empty."""
        size = min(count_max, len(self.undeleted))
        receipts = [self.undeleted.popleft() for _ in range(size)]
        self._deleting_count += size
        self._deleting.append(receipts[0])
        return receipts

    def end_delete(self, receipts: Sequence[Receipt]) -> None:
        """End a delete request, whatever its result."""
        self._deleting_count -= len(receipts)
        self._deleting.remove(receipts[0])

    def put_back(self, receipts: Sequence[Receipt]) -> None:
        """Put receipts back at the front of the delete queue."""
        self.undeleted.extendleft(reversed(receipts))

    def note_deleted(self, receipts: Sequence[Receipt]) -> int:
        """Count deleted copies; returns how many messages were deleted for the first time."""
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
