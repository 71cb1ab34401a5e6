"""Knows which messages of a queue an application holds: being received, handled, deleted or given back."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from math import ceil

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    Wait = tuple[Callable[[], object], "float | None"]  # a condition, and the seconds to wait for it at most

_LINGER_SECONDS = 0.02  # how long a deletion waits for others to share its request
_LOOK_SECONDS = 0.1  # between checks of what changes without a signal: a stop, the age of a message
_LOOKS_PER_AGE = 3  # checks per age limit: a message is found before it is a third older than the limit
_GIVE_BACK_SECONDS_MAX = 1.0  # for making messages visible again; others come back by themselves
_POLL_END_SECONDS_MAX = 0.25  # to wait for polls after a stop; a queue with messages answers sooner
_KNOWN_COUNT_MAX = 10_000  # handled messages that are remembered, to recognise later copies


class Messages:
    """Messages that were received and not yet deleted: how many, how old, and the receipt handles that delete each.

    Safe to share between threads, or between the tasks of a loop. No method waits; `waits_for_...` say what to wait
    for, and the caller waits by means of `changed`.

    A copy of a message has a receipt handle of its own, and only the newest is certain to delete the message. Which one
    is newest cannot be told from the order in which they arrive here, so the message is deleted by each of them.
    """

    def __init__(self, changed: Any) -> None:
        self._window, self._pause_at_seconds = 0, 0.0  # until `note_limits`
        # Reentrant; tasks use `penstock.client.queues.tasks.Changes` in its place.
        self._changed = changed
        self._expected_count = 0  # messages that pending polls may bring
        self._handles: dict[str, dict[str, None]] = {}  # by undeleted message
        # By undeleted message, monotonic seconds, oldest first: when it was received, and since when it is hidden.
        self._received_seconds: dict[str, float] = {}
        self._hidden_seconds: dict[str, float] = {}
        self._handled: deque[tuple[str, str]] = deque()  # to be deleted: message and handle
        self._known: OrderedDict[str, None] = OrderedDict()
        self._unbegun: dict[str, None] = {}  # received, and not yet being handled
        self._polls: dict[int, float] = {}  # by receiver: when its poll ends at the latest
        self._handling_count = self._giving_back_count = 0
        self._given_back: set[str] = set()
        self._is_stopped = False
        self._end_seconds = float("inf")

    @property
    def undeleted_count(self) -> int:
        return len(self._handles)

    @property
    def polling_numbers(self) -> set[int]:
        """The receivers with a pending poll."""
        return set(self._polls)

    def oldest_seconds(self) -> float:
        with self._changed:
            oldest = next(iter(self._hidden_seconds.values()), None)
            return 0.0 if oldest is None else time.monotonic() - oldest

    def waits_for_room(self) -> Iterator[Wait]:
        """What to wait for before `take_room`."""
        yield lambda: self._is_stopped or self._room() > 0, _LOOK_SECONDS

    def take_room(self, count: int, *, poll_seconds: float, receiver: int) -> int:
        """Room for a poll of at most `count` messages; 0 if there is none just now."""
        with self._changed:
            taken = 0 if self._is_stopped else max(0, min(count, self._room()))
            if taken:
                self._expected_count += taken
                self._polls[receiver] = time.monotonic() + poll_seconds
            return taken

    def end_poll(self, count: int, *, receiver: int) -> None:
        """The poll has ended: free its room, since the messages it brought are counted themselves."""
        with self._changed:
            self._expected_count -= count
            self._polls.pop(receiver, None)
            self._changed.notify_all()

    def is_new(self, message: Mapping[str, Any]) -> bool:
        """Note a received message. Returns whether it is to be handled; a copy only adds a handle."""
        number, handle = message["MessageId"], message["ReceiptHandle"]
        with self._changed:
            is_pending, is_known = number in self._handles, number in self._known
            handles = self._handles.setdefault(number, {})
            # A retried receive from a FIFO queue brings the same handle again.
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
        """Whether to handle it; not after a stop, when it is given back instead."""
        with self._changed:
            if self._is_stopped:
                return False
            del self._unbegun[number]
            self._handling_count += 1
            return True

    def turns(self, messages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The messages to handle, in order; if one of a message group fails, the rest of it is left to come back.

        The caller must have noted the outcome of one before taking the next.
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
        """Set how many messages may be undeleted, and at which age of the oldest receiving pauses."""
        with self._changed:
            self._window, self._pause_at_seconds = window, pause_at_seconds
            self._changed.notify_all()

    def waits_for_age(self, age_seconds: float) -> Iterator[Wait]:
        """What to wait for before `take_aging`: the end, or the next check."""
        yield self._is_over, age_seconds / _LOOKS_PER_AGE

    def take_aging(self, age_seconds: float, held_seconds_max: float) -> list[tuple[str, str]] | None:
        """Unhandled messages hidden for this long, with their newest handles; None at the end.

        A message that was received longer ago than `held_seconds_max` is left to its timeout.
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
        """These messages' timeouts were extended just now."""
        with self._changed:
            for number in numbers:
                if self._hidden_seconds.pop(number, None) is not None:
                    self._hidden_seconds[number] = time.monotonic()

    def note_end(self) -> None:
        """A handler has ended, successfully or not."""
        with self._changed:
            self._handling_count -= 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Begin no more messages."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def take_unbegun(self, count: int) -> list[tuple[str, int]]:
        """After a stop: up to `count` handles to give back, and in how many seconds others may receive each.

        A message is made visible at once the first time. A pending poll of our own may then receive it again; giving it
        back at once again and again would bring the queue's messages to their limit on receives, so the second time is
        after that poll.
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
        """The messages taken last were given back, or could not be."""
        with self._changed:
            self._giving_back_count -= 1
            self._changed.notify_all()

    def waits_for_handlers(self) -> Iterator[Wait]:
        """What to wait for until nothing is being handled, without a limit."""
        yield lambda: not self._handling_count, None

    def waits_for_the_rest(self) -> Iterator[Wait]:
        """What to wait for, a moment each, until everything is given back and no poll is pending."""
        yield self._holds_nothing, _GIVE_BACK_SECONDS_MAX
        yield lambda: not self._polls, _POLL_END_SECONDS_MAX
        yield self._holds_nothing, _GIVE_BACK_SECONDS_MAX

    def note_handled(self, number: str) -> None:
        """The message was handled and can be deleted."""
        with self._changed:
            self._known[number] = None
            while len(self._known) > _KNOWN_COUNT_MAX + len(self._handles):
                oldest, _ = self._known.popitem(last=False)
                if oldest in self._handles:  # keep it: a copy is still to be deleted
                    self._known[oldest] = None
            self.put_back([(number, handle) for handle in self._handles[number]])

    def waits_for_handled(self, count: int) -> Iterator[Wait]:
        """What to wait for before `take_handled`: a deletion waits a moment for others."""
        yield lambda: self._handled or self._is_to_give_back(), _LOOK_SECONDS
        if self._handled:
            yield lambda: len(self._handled) >= count, _LINGER_SECONDS

    def take_handled(self, count: int) -> list[tuple[str, str]] | None:
        """Up to `count` messages to delete, with their handles; None when there will be no more."""
        with self._changed:
            is_late = time.monotonic() >= self._end_seconds
            return None if is_late or (not self._handled and self._is_over()) else self.pop_handled(count)

    def pop_handled(self, count: int) -> list[tuple[str, str]]:
        """The same, whether or not the end has come."""
        with self._changed:
            return [self._handled.popleft() for _ in range(min(count, len(self._handled)))]

    def put_back(self, receipts: Iterable[tuple[str, str]]) -> None:
        """Delete these, again if it failed before."""
        with self._changed:
            self._handled.extend(receipts)
            self._changed.notify_all()

    def note_spent(self, number: str, handle: str) -> bool:
        """Forget a used handle. Returns whether it was the message's last, which is then gone."""
        with self._changed:
            handles = self._handles[number]
            del handles[handle]
            if not handles:
                self._forget(number)
            return not handles

    def give_up(self, number: str) -> None:
        """It was not handled: let it come back after its timeout."""
        with self._changed:
            self._unbegun.pop(number, None)
            self._forget(number)

    def take_back(self, number: str) -> None:
        """Its handler was interrupted: give it back."""
        with self._changed:
            self._unbegun[number] = None
            self._changed.notify_all()

    def end(self, seconds_max: float) -> None:
        """Nothing more is received; what was handled is deleted within this time."""
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
