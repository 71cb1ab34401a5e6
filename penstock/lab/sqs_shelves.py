"""Knows where the visible messages of an SQS queue are, and which of them a receive may find.

A FIFO queue keeps the order within each message group: a receive takes the messages of a group in order, and while any
of them is in flight, no receive gets another of that group.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Protocol


@dataclass(slots=True, eq=False)
class Message:
    """A message that was sent, whatever its state."""

    number: int
    body: str
    attributes: Mapping[str, object]
    system_attributes: Mapping[str, str]
    group: str
    shard: int
    sent_at: datetime
    expires_seconds: float
    first_received_at: datetime | None = None
    receive_count: int = 0
    hidden_generation: int = 0  # of the valid entry in the queue's heap of hidden messages
    is_visible: bool = False
    is_deleted: bool = False


class Shelf(Protocol):
    """Where visible messages are, and which of them a receive may find."""

    @property
    def has_some(self) -> bool: ...

    def visible_from(self, message: Message, seconds: float) -> float:
        """The time of the loop from which a new message may be seen, if it has spread at `seconds`."""
        ...

    def put(self, message: Message) -> None: ...

    def take(
        self, count_max: int, is_there: Callable[[Message], bool], *, every_shard: bool
    ) -> list[Message]:
        """Remove and return the messages that a receive finds; those that no longer exist are dropped."""
        ...

    def settle(self, message: Message) -> None:
        """Note that a message that was taken has been deleted, or will be put again."""
        ...

    def clear(self) -> None: ...


class Shards:
    """A standard queue, spread over servers (shards), of which a short poll asks a few."""

    def __init__(self, count: int, short_poll_count: int, chance: Random) -> None:
        self._chance = chance
        self._short_poll_count = short_poll_count
        self._shards: list[deque[Message]] = [deque() for _ in range(count)]
        self._next_shard = 0

    @property
    def has_some(self) -> bool:
        return any(message.is_visible for shard in self._shards for message in shard)

    def visible_from(self, message: Message, seconds: float) -> float:  # noqa: ARG002  # each by itself
        return seconds

    def put(self, message: Message) -> None:
        self._shards[message.shard].append(message)

    def take(
        self, count_max: int, is_there: Callable[[Message], bool], *, every_shard: bool
    ) -> list[Message]:
        taken: list[Message] = []
        for shard in self._to_search(every_shard=every_shard):
            while shard and len(taken) < count_max:
                message = shard.popleft()
                if is_there(message):
                    taken.append(message)
        return taken

    def settle(self, message: Message) -> None:
        """Nothing to do: messages do not wait for each other."""

    def clear(self) -> None:
        for shard in self._shards:
            shard.clear()

    def _to_search(self, *, every_shard: bool) -> list[deque[Message]]:
        count = len(self._shards)
        if every_shard or self._short_poll_count >= count:
            self._next_shard = (self._next_shard + 1) % count
            return self._shards[self._next_shard :] + self._shards[: self._next_shard]
        return self._chance.sample(self._shards, self._short_poll_count)


@dataclass(slots=True)
class _Group:
    waiting: list[tuple[int, Message]] = field(default_factory=list)  # a heap, the earliest sent first
    in_flight_count: int = 0
    hidden_count: int = 0  # sent and not yet spread, or to be put again
    visible_from_seconds: float = -math.inf


class Groups:
    """A FIFO queue: within a group the earliest message first, and none while another is in flight."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._open: dict[str, None] = {}  # groups with something to take, the longest open first

    @property
    def has_some(self) -> bool:
        return bool(self._open)

    def visible_from(self, message: Message, seconds: float) -> float:
        group = self._groups.setdefault(message.group, _Group())
        group.hidden_count += 1
        group.visible_from_seconds = max(group.visible_from_seconds, seconds)
        return group.visible_from_seconds

    def put(self, message: Message) -> None:
        group = self._groups[message.group]
        group.hidden_count -= 1
        heapq.heappush(group.waiting, (message.number, message))
        self._look(message.group)

    def take(
        self,
        count_max: int,
        is_there: Callable[[Message], bool],
        *,
        every_shard: bool,  # noqa: ARG002  # order needs all shards
    ) -> list[Message]:
        taken: list[Message] = []
        for name in list(self._open):
            group = self._groups[name]
            while group.waiting and len(taken) < count_max:
                _, message = heapq.heappop(group.waiting)
                if is_there(message):
                    taken.append(message)
                    group.in_flight_count += 1
            self._look(name)
        return taken

    def settle(self, message: Message) -> None:
        group = self._groups[message.group]
        group.in_flight_count -= 1
        group.hidden_count += not message.is_deleted  # until it is put again
        self._look(message.group)

    def clear(self) -> None:
        self._groups.clear()
        self._open.clear()

    def _look(self, name: str) -> None:
        """Open or close the group, and remove it if it is empty."""
        group = self._groups[name]
        if group.waiting and not group.in_flight_count:
            self._open.setdefault(name)
        else:
            self._open.pop(name, None)
        if not (group.waiting or group.in_flight_count or group.hidden_count):
            del self._groups[name]
