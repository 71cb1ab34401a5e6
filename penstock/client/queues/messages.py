"""Knows which messages of a queue an application holds: those being received, handled, deleted and given back."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from math import ceil

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    Wait = tuple[Callable[[], object], "float | None"]  # until it holds, or for so many seconds

_LINGER_SECONDS = 0.02  # a deletion waits so long for others to share its request
_LOOK_SECONDS = 0.1  # between looks at what changes without a word: a stop, the age of a message
_LOOKS_PER_AGE = 3  # at messages of an age: each is found before it is a third older
_GIVE_BACK_SECONDS_MAX = 1.0  # for making visible again what was not begun; else it comes back by itself
_POLL_END_SECONDS_MAX = 0.25  # after a stop: where there are messages, a poll is answered sooner
_KNOWN_COUNT_MAX = 10_000  # messages that were worked off, by which later copies are known


class Messages:
    """What was received and is not yet deleted: how many, how old, and by which handles each is deleted.

    Safe to share between threads, or between the tasks of a loop. Nothing here waits: what is to be waited for is said,
    and whoever asks does so by `changed`.

    A copy of a message has a handle of its own, and only the newest deletes it for certain. Which one that is cannot be
    told by when they are noted here, so it is deleted by each.
    """

    def __init__(self, changed: Any) -> None:
        self._window, self._pause_at_seconds = 0, 0.0  # until `note_limits`
        # Which who holds it may enter again; tasks have `penstock.client.queues.tasks.Changes` in its place.
        self._changed = changed
        self._expected_count = 0  # that requests under way may bring
        self._handles: dict[str, dict[str, None]] = {}  # by message, undeleted
        # Of the same, on the monotonic clock, oldest first: when each was received, and since when it is hidden.
        self._received_seconds: dict[str, float] = {}
        self._hidden_seconds: dict[str, float] = {}
        self._handled: deque[tuple[str, str]] = deque()  # with one of its handles
        self._known: OrderedDict[str, None] = OrderedDict()
        self._unbegun: dict[str, None] = {}  # received, and nobody handles it yet
        self._polls: dict[int, float] = {}  # by receiver: when its poll is over at the latest
        self._handling_count = self._giving_back_count = 0
        self._given_back: set[str] = set()
        self._is_stopped = False
        self._end_seconds = float("inf")

    @property
    def undeleted_count(self) -> int:
        return len(self._handles)

    @property
    def polling_numbers(self) -> set[int]:
        """The receivers that have a request under way."""
        return set(self._polls)

    def oldest_seconds(self) -> float:
        with self._changed:
            oldest = next(iter(self._hidden_seconds.values()), None)
            return 0.0 if oldest is None else time.monotonic() - oldest

    def waits_for_room(self) -> Iterator[Wait]:
        """Before `take_room`."""
        yield lambda: self._is_stopped or self._room() > 0, _LOOK_SECONDS

    def take_room(self, count: int, *, poll_seconds: float, receiver: int) -> int:
        """Room for a poll of so many messages or fewer; 0 when there is none just now."""
        with self._changed:
            taken = 0 if self._is_stopped else max(0, min(count, self._room()))
            if taken:
                self._expected_count += taken
                self._polls[receiver] = time.monotonic() + poll_seconds
            return taken

    def end_poll(self, count: int, *, receiver: int) -> None:
        """The request has ended; what it brought takes its room by itself."""
        with self._changed:
            self._expected_count -= count
            self._polls.pop(receiver, None)
            self._changed.notify_all()

    def is_new(self, message: Mapping[str, Any]) -> bool:
        """Take it in; whether it is to be handled. A copy only brings one more handle."""
        number, handle = message["MessageId"], message["ReceiptHandle"]
        with self._changed:
            is_pending, is_known = number in self._handles, number in self._known
            handles = self._handles.setdefault(number, {})
            # A receive of a FIFO queue that is asked for once more brings the same handle again.
            is_one_more = handle not in handles
            handles[handle] = None
            now = time.monotonic()
            self._received_seconds.setdefault(number, now)
            self._hidden_seconds.setdefault(number, now)
            if is_known and is_one_more:
                self.put_back([(number, handle)])
            elif not is_pending:
                self._unbegun[number] = None
            return not is_pending and not is_known

    def begin(self, number: str) -> bool:
        """Whether to handle it: not after a stop, when it is given back."""
        with self._changed:
            if self._is_stopped:
                return False
            del self._unbegun[number]
            self._handling_count += 1
            return True

    def turns(self, messages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Those to handle now, in their order: what follows what comes back in its message group comes back behind it.

        Whoever takes one has noted what became of it when he takes the next.
        """
        stuck: set[str] = set()
        for message in messages:
            number, group = message["MessageId"], message.get("Attributes", {}).get("MessageGroupId")
            if group in stuck:
                self.give_up(number)
            elif self.begin(number):
                yield message
                if group and number not in self._known:
                    stuck.add(group)

    def note_limits(self, window: int, pause_at_seconds: float) -> None:
        """How many there may be at a time from now on, and how old the oldest may be for more to be received."""
        with self._changed:
            self._window, self._pause_at_seconds = window, pause_at_seconds
            self._changed.notify_all()

    def waits_for_age(self, age_seconds: float) -> Iterator[Wait]:
        """Before `take_aging`: it is looked at now and then."""
        yield self._is_over, age_seconds / _LOOKS_PER_AGE

    def take_aging(self, age_seconds: float, held_seconds_max: float) -> list[tuple[str, str]] | None:
        """What is not handled yet and hidden for so long, with the newest handle; None at the end.

        What was received longer ago than it may be held is left to its timeout.
        """
        with self._changed:
            if self._is_over():
                return None
            now = time.monotonic()
            return [
                (number, next(reversed(self._handles[number])))
                for number, hidden_seconds in self._hidden_seconds.items()
                if now - hidden_seconds >= age_seconds
                and number not in self._known
                and now - self._received_seconds[number] < held_seconds_max
            ]

    def note_hidden(self, numbers: Iterable[str]) -> None:
        """They are hidden anew."""
        with self._changed:
            for number in numbers:
                if self._hidden_seconds.pop(number, None) is not None:
                    self._hidden_seconds[number] = time.monotonic()

    def note_end(self) -> None:
        """Somebody has handled a message, or tried to."""
        with self._changed:
            self._handling_count -= 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing more is begun."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def take_unbegun(self, count: int) -> list[tuple[str, int]]:
        """Handles to give back after a stop, up to so many, and in how many seconds others may receive each.

        At once, where it can be only once: a poll of our own that is still under way may bring it again, and with
        many of them one message after another would reach the limit on receives of its queue.
        """
        with self._changed:
            taken = list(self._unbegun)[:count] if self._is_to_give_back() else []
            later = max(self._polls.values(), default=0.0) - time.monotonic()
            entries = []
            for number in taken:
                is_ours_again = number in self._given_back and later > 0
                newest = next(reversed(self._handles[number]))
                entries.append((newest, ceil(later) + 1 if is_ours_again else 0))
                del self._unbegun[number]
                self._given_back.add(number)
                self._forget(number)
            self._giving_back_count += bool(taken)
            return entries

    def note_given_back(self) -> None:
        """What was taken last was given back, or could not be."""
        with self._changed:
            self._giving_back_count -= 1
            self._changed.notify_all()

    def waits_for_handlers(self) -> Iterator[Wait]:
        """Until nothing is being handled: that has the time that it takes."""
        yield lambda: not self._handling_count, None

    def waits_for_the_rest(self) -> Iterator[Wait]:
        """Until, as far as that is soon, all is given back and no poll is under way."""
        yield self._holds_nothing, _GIVE_BACK_SECONDS_MAX
        yield lambda: not self._polls, _POLL_END_SECONDS_MAX
        yield self._holds_nothing, _GIVE_BACK_SECONDS_MAX

    def note_handled(self, number: str) -> None:
        """It can be deleted."""
        with self._changed:
            self._known[number] = None
            while len(self._known) > _KNOWN_COUNT_MAX + len(self._handles):
                oldest, _ = self._known.popitem(last=False)
                if oldest in self._handles:  # a copy of it is to be deleted, too
                    self._known[oldest] = None
            self.put_back([(number, handle) for handle in self._handles[number]])

    def waits_for_handled(self, count: int) -> Iterator[Wait]:
        """Before `take_handled`: what is to be deleted waits a little for others."""
        yield lambda: self._handled or self._is_to_give_back(), _LOOK_SECONDS
        if self._handled:
            yield lambda: len(self._handled) >= count, _LINGER_SECONDS

    def take_handled(self, count: int) -> list[tuple[str, str]] | None:
        """Messages to delete and their handles, up to so many; None when there will be no more."""
        with self._changed:
            is_late = time.monotonic() >= self._end_seconds
            return None if is_late or (not self._handled and self._is_over()) else self.pop_handled(count)

    def pop_handled(self, count: int) -> list[tuple[str, str]]:
        """The same without waiting, and also after the end."""
        with self._changed:
            return [self._handled.popleft() for _ in range(min(count, len(self._handled)))]

    def put_back(self, receipts: Iterable[tuple[str, str]]) -> None:
        """These are to be deleted, once more where that failed."""
        with self._changed:
            self._handled.extend(receipts)
            self._changed.notify_all()

    def note_spent(self, number: str, handle: str) -> bool:
        """This handle has deleted what it could; whether it was the last of its message, which is then gone."""
        with self._changed:
            handles = self._handles[number]
            del handles[handle]
            if not handles:
                self._forget(number)
            return not handles

    def give_up(self, number: str) -> None:
        """It was not handled: it comes back after its timeout."""
        with self._changed:
            self._unbegun.pop(number, None)
            self._forget(number)

    def take_back(self, number: str) -> None:
        """Whoever handled it was interrupted: it is to be given back."""
        with self._changed:
            self._unbegun[number] = None
            self._changed.notify_all()

    def end(self, seconds_max: float) -> None:
        """Nothing more is received: what is handled is deleted within this time."""
        with self._changed:
            self._end_seconds = time.monotonic() + seconds_max
            self._changed.notify_all()

    def _is_to_give_back(self) -> bool:
        return self._is_stopped and bool(self._unbegun)

    def _holds_nothing(self) -> bool:
        return not self._unbegun and not self._giving_back_count

    def _forget(self, number: str) -> None:
        self._handles.pop(number, None)
        self._received_seconds.pop(number, None)
        self._hidden_seconds.pop(number, None)
        self._changed.notify_all()

    def _room(self) -> int:
        if self.oldest_seconds() >= self._pause_at_seconds:
            return 0
        return self._window - len(self._handles) - self._expected_count

    def _is_over(self) -> bool:
        is_ending = self._end_seconds < float("inf")
        return is_ending and (not self._handles or time.monotonic() >= self._end_seconds)
