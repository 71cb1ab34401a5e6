"""Knows SQS as a service: what happens to a message, and how long a request takes.

A message that was sent is hidden until it has spread (and its delay is over), and then visible. A receive hides it for
the visibility timeout and returns a new handle; only a delete with the newest handle removes it. An older handle is
accepted and has no effect, which is how one late deleter can fill a queue with copies.

A FIFO queue refuses old and expired handles. A send with a deduplication id of the last five minutes is accepted and
stores nothing. Which messages a receive may find is in `sqs_shelves.py`.

A request takes `(request + message * batch) * variation` seconds, stretched by the number of concurrent requests
(universal scalability law). Half of this time passes before it takes effect, half after.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from penstock.clock import Clock
from penstock.lab.allowance import RequestAllowance
from penstock.lab.sqs_shelves import Groups, Message, Shards, Shelf

BATCH_MESSAGE_COUNT_MAX = 10
PAYLOAD_BYTES_MAX = 1_048_576  # of a message, and of a batch
BILLED_CHUNK_BYTES = 65_536
DEDUPLICATION_SECONDS = 300.0
FIFO_SUFFIX = ".fifo"
_HANDLE_PREFIX = "lab-handle"
_DUE_SECONDS = 1e-9

_DEFAULT_ATTRIBUTES = {
    "DelaySeconds": "0",
    "MaximumMessageSize": str(PAYLOAD_BYTES_MAX),
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "VisibilityTimeout": "30",
}
_ATTRIBUTES_MAX = {
    "DelaySeconds": 900,
    "MaximumMessageSize": PAYLOAD_BYTES_MAX,
    "MessageRetentionPeriod": 1_209_600,
    "ReceiveMessageWaitTimeSeconds": 20,
    "VisibilityTimeout": 43_200,
}


class SqsError(Exception):
    """An error response of SQS, with its code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTruth:
    """How long one kind of request takes, and how many per second the service admits (None: any number)."""

    request_seconds: float
    message_seconds: float = 0.0  # for each message in the batch
    variation: float = 0.2  # coefficient of variation of the log-normal factor, whose mean is 1
    request_rate_per_second_max: float | None = None  # more requests are answered with RequestThrottled


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTruth:
    """The truth about SQS from one host."""

    send: ActionTruth
    receive: ActionTruth
    delete: ActionTruth
    # From the acceptance of a message until a receive can find it; log-normal.
    spread_seconds_median: float = 0.0
    spread_sigma: float = 0.0
    contention: float = 0.0  # sigma and kappa of the universal scalability law, over all requests in service
    coherency: float = 0.0
    straggler_fraction: float = 0.0
    straggler_seconds: float = 10.0
    shard_count: int = 16
    short_poll_shard_count: int = 5  # shards that a short poll asks
    visibility_timeout_seconds: int = 30  # of queues created without one
    in_flight_max: int = 120_000
    fifo_request_rate_per_second_max: float = 300.0  # for each action on one FIFO queue
    fifo_high_throughput_request_rate_per_second_max: float = 2400.0  # the same, with high throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A message to send; a FIFO queue needs its group."""

    body: str
    attributes: Mapping[str, object] = field(default_factory=dict)
    delay_seconds: float | None = None  # None: the queue's default
    group: str | None = None
    deduplication_id: str | None = None


class Copy(NamedTuple):
    """A received copy of a message."""

    message_id: str
    receipt_handle: str
    body: str
    attributes: Mapping[str, object]
    system_attributes: Mapping[str, str]  # of a FIFO queue: group, deduplication id and sequence number
    sent_at: datetime
    first_received_at: datetime
    receive_count: int


def usl_stretch(truth: QueueTruth, in_service_count: int) -> float:
    """How much longer a request takes with so many in service, by the universal scalability law; a factor."""
    others = in_service_count - 1
    return 1.0 + truth.contention * others + truth.coherency * in_service_count * others


def message_id(number: int) -> str:
    """The id of the message with this number, in the form of a UUID."""
    return f"00000000-0000-4000-8000-{number:012x}"


def md5_of(body: str) -> str:
    """The MD5 that SQS returns and SDKs verify."""
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()


class Queue:
    """The messages of one queue. No method takes time, but messages become visible as time passes (`release`)."""

    def __init__(
        self, truth: QueueTruth, attributes: Mapping[str, str], clock: Clock, chance: random.Random
    ) -> None:
        self.attributes = {
            **_DEFAULT_ATTRIBUTES,
            "VisibilityTimeout": str(truth.visibility_timeout_seconds),
        }
        self.become(attributes)
        self.created_at = clock.now()
        self._truth = truth
        self._clock = clock
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._messages: dict[int, Message] = {}
        self.is_fifo = self.attributes.get("FifoQueue") == "true"
        self._shelf: Shelf = (
            Groups() if self.is_fifo else Shards(truth.shard_count, truth.short_poll_shard_count, chance)
        )
        self._numbers_by_deduplication_id: dict[str, tuple[float, int]] = {}  # with their expiry
        self._hidden: list[tuple[float, int, Message]] = []  # a heap of: visible from, generation, message
        self.visible_count = 0  # messages that a receive could find
        self.in_flight_count = 0  # messages received, not deleted, and still hidden
        self._sent_count = 0
        self._generation = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def message_ids(self) -> list[str]:
        """The ids of all messages that were sent, not deleted, and have not expired."""
        now = self._loop.time()
        return [message_id(n) for n, message in self._messages.items() if message.expires_seconds > now]

    @property
    def delayed_count(self) -> int:
        """The number of messages that were sent and cannot be found yet."""
        return len(self._messages) - self.visible_count - self.in_flight_count

    def number(self, name: str) -> float:
        return float(self.attributes[name])

    def become(self, attributes: Mapping[str, str]) -> None:
        """Change these attributes; the others stay. Raises SqsError."""
        for name, most in _ATTRIBUTES_MAX.items():
            value = str(attributes.get(name, "0"))  # JSON may have anything
            if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value) <= most):
                raise SqsError("InvalidAttributeValue", f"{name} is a whole number from 0 to {most}")
        self.attributes |= attributes

    @property
    def request_rate_per_second_max(self) -> float | None:
        """The queue's limit for each action; None if only that of the service applies."""
        if not self.is_fifo:
            return None
        if self.attributes.get("FifoThroughputLimit") == "perMessageGroupId":
            return self._truth.fifo_high_throughput_request_rate_per_second_max
        return self._truth.fifo_request_rate_per_second_max

    def add(self, sending: Sending, delay_seconds: float) -> int:
        """Accept a message; returns its number, or that of an earlier one with the same deduplication id."""
        known = self._known_number(sending.deduplication_id)
        if known is not None:
            return known
        self._sent_count += 1
        message = Message(
            number=self._sent_count,
            body=sending.body,
            attributes=sending.attributes,
            system_attributes=self._system_attributes(sending),
            group=sending.group or "",
            shard=self._chance.randrange(self._truth.shard_count),
            sent_at=self._clock.now(),
            expires_seconds=self._loop.time() + self.number("MessageRetentionPeriod"),
        )
        self._messages[message.number] = message
        now = self._loop.time()
        if self.is_fifo and sending.deduplication_id is not None:
            forgotten_at = now + DEDUPLICATION_SECONDS
            self._numbers_by_deduplication_id[sending.deduplication_id] = forgotten_at, message.number
        visible_from = self._shelf.visible_from(message, now + delay_seconds + self._spread_seconds())
        self._hide(message, visible_from - now)
        self._wake_receivers()
        return message.number

    def release(self) -> None:
        """Make messages visible that have been hidden for long enough."""
        due = self._loop.time() + _DUE_SECONDS
        while self._hidden and self._hidden[0][0] <= due:
            _, generation, message = heapq.heappop(self._hidden)
            if generation == message.hidden_generation and not message.is_deleted:
                self._show(message)

    def take(self, count_max: int, visibility_seconds: float, *, every_shard: bool) -> list[Copy]:
        """Receive up to `count_max` of the messages that can be found."""
        self.release()
        taken = self._shelf.take(count_max, self._may_be_given, every_shard=every_shard)
        return [self._give(message, visibility_seconds) for message in taken]

    async def wait_for_message(self, until_seconds: float) -> None:
        """Return when a message is visible, or at this time of the loop."""
        self.release()
        if self._shelf.has_some:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        self._arm()
        try:
            async with asyncio.timeout_at(until_seconds):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._wake_receivers()  # the message for which this one was woken goes to the next
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def remove(self, receipt_handle: str) -> None:
        """Delete by handle; an older handle succeeds without effect, but a FIFO queue refuses it."""
        message = self._addressed(receipt_handle)
        if message is None:
            return
        message.is_deleted = True
        del self._messages[message.number]
        if message.is_visible:
            self.visible_count -= 1
        else:
            self.in_flight_count -= 1
            self._shelf.settle(message)
            self._wake_receivers()

    def change_visibility(self, receipt_handle: str, seconds: float) -> None:
        """Hide the copy for so many seconds from now on."""
        message = self._addressed(receipt_handle)
        if message is None or message.is_visible:
            raise SqsError("MessageNotInflight", "the message is not in flight, or not by this handle")
        self._hide(message, seconds)
        self._wake_receivers()

    def purge(self) -> None:
        for message in self._messages.values():
            message.is_deleted = True
        self._messages.clear()
        self._hidden.clear()
        self._shelf.clear()
        self.visible_count = self.in_flight_count = 0

    def _addressed(self, receipt_handle: str) -> Message | None:
        """The message that this handle may act on; None if it is gone or the handle is old. Raises SqsError."""
        prefix, _, numbers = receipt_handle.partition(".")
        number, _, receive_count = numbers.partition(".")
        if prefix != _HANDLE_PREFIX or not (number.isdigit() and receive_count.isdigit()):
            raise SqsError("ReceiptHandleIsInvalid", "the receipt handle is not one of this queue")
        self.release()
        message = self._messages.get(int(number))
        if message is None:
            return None
        is_newest = message.receive_count == int(receive_count)
        if self.is_fifo and (message.is_visible or not is_newest):
            raise SqsError("InvalidParameterValue", "the receipt handle is invalid: it has expired")
        return message if is_newest else None

    def _known_number(self, deduplication_id: str | None) -> int | None:
        """The number of the message that was sent with this id within the last five minutes."""
        known, now = self._numbers_by_deduplication_id, self._loop.time()
        while known and next(iter(known.values()))[0] <= now:
            del known[next(iter(known))]
        return known[deduplication_id][1] if deduplication_id in known else None

    def _system_attributes(self, sending: Sending) -> dict[str, str]:
        if not self.is_fifo:
            return {} if sending.group is None else {"MessageGroupId": sending.group}
        return {
            "MessageGroupId": sending.group or "",
            "MessageDeduplicationId": sending.deduplication_id or "",
            "SequenceNumber": f"{self._sent_count:020}",
        }

    def _spread_seconds(self) -> float:
        median, sigma = self._truth.spread_seconds_median, self._truth.spread_sigma
        return median * math.exp(self._chance.gauss(0.0, sigma)) if sigma > 0 else median

    def _hide(self, message: Message, seconds: float) -> None:
        self._generation += 1
        message.hidden_generation = self._generation
        heapq.heappush(self._hidden, (self._loop.time() + seconds, self._generation, message))

    def _show(self, message: Message) -> None:
        if message.receive_count > 0:
            self.in_flight_count -= 1
            self._shelf.settle(message)
        message.is_visible = True
        self.visible_count += 1
        self._shelf.put(message)

    def _may_be_given(self, message: Message) -> bool:
        if message.is_deleted:
            return False
        if message.expires_seconds < self._loop.time():
            message.is_deleted = True
            self.visible_count -= 1
            del self._messages[message.number]
            return False
        return True

    def _give(self, message: Message, visibility_seconds: float) -> Copy:
        message.is_visible = False
        self.visible_count -= 1
        self.in_flight_count += 1
        message.receive_count += 1
        if message.first_received_at is None:
            message.first_received_at = self._clock.now()
        self._hide(message, visibility_seconds)
        return Copy(
            message_id=message_id(message.number),
            receipt_handle=f"{_HANDLE_PREFIX}.{message.number}.{message.receive_count}",
            body=message.body,
            attributes=message.attributes,
            system_attributes=message.system_attributes,
            sent_at=message.sent_at,
            first_received_at=message.first_received_at,
            receive_count=message.receive_count,
        )

    def _wake_receivers(self) -> None:
        """Wake as many waiting receives as there are messages, and set the timer for the next message."""
        if not self._waiters:
            return
        self.release()
        woken_count = 0
        while self._waiters and self._shelf.has_some and woken_count < self.visible_count:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                woken_count += 1
        self._arm()

    def _arm(self) -> None:
        while self._hidden and self._is_stale(self._hidden[0]):
            heapq.heappop(self._hidden)
        if not self._waiters or not self._hidden:
            return
        due_seconds = self._hidden[0][0]
        if self._timer is not None:
            if self._timer.when() <= due_seconds:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_seconds, self._on_timer)

    def _is_stale(self, hidden: tuple[float, int, Message]) -> bool:
        _, generation, message = hidden
        return message.is_deleted or generation != message.hidden_generation

    def _on_timer(self) -> None:
        self._timer = None
        self._wake_receivers()


@dataclass(slots=True)
class Counts:
    """Counters of what the service has done."""

    request_count: int = 0
    billed_request_count: int = 0  # by chunks of 64 KiB, like AWS
    throttled_count: int = 0
    by_action: Counter[tuple[str, str]] = field(default_factory=Counter)  # (queue, action)

    def add(self, queue_name: str, action: str, size_bytes: int = 0) -> None:
        self.request_count += 1
        self.billed_request_count += max(1, math.ceil(size_bytes / BILLED_CHUNK_BYTES))
        self.by_action[queue_name, action] += 1


class SqsService:
    """SQS at the end of a path: queues by name, and the time that every request takes."""

    def __init__(self, truth: QueueTruth, *, clock: Clock, seed: int) -> None:
        self.truth = truth
        self.counts = Counts()
        self._clock = clock
        self._chance = random.Random(f"sqs {seed}")
        self._queues: dict[str, Queue] = {}
        self._in_service_count = 0
        self._allowances: dict[tuple[str, str], RequestAllowance] = {}

    def become(self, truth: QueueTruth) -> None:
        """Change the truth of requests from now on; queues stay as they are."""
        self.truth = truth
        self._allowances.clear()

    def queue(self, name: str) -> Queue:
        """The queue itself, without taking time. Raises SqsError."""
        queue = self._queues.get(name)
        if queue is None:
            raise SqsError("QueueDoesNotExist", f"there is no queue {name}")
        return queue

    def queue_names(self, prefix: str = "") -> list[str]:
        """The names of the queues, without taking time."""
        return sorted(name for name in self._queues if name.startswith(prefix))

    async def create_queue(self, name: str, attributes: Mapping[str, str]) -> None:
        """CreateQueue; repeating it with the same attributes is no error."""
        await self.small_request(name, "create_queue")
        if name.endswith(FIFO_SUFFIX) != (attributes.get("FifoQueue") == "true"):
            raise SqsError(
                "InvalidParameterValue", "a FIFO queue, and no other, has a name that ends in .fifo"
            )
        known = self._queues.get(name)
        if known is None:
            self._queues[name] = Queue(self.truth, attributes, self._clock, self._chance)
        elif any(known.attributes.get(key) != value for key, value in attributes.items()):
            raise SqsError("QueueNameExists", f"the queue {name} exists with other attributes")

    async def delete_queue(self, name: str) -> None:
        await self.small_request(name, "delete_queue")
        self.queue(name)
        del self._queues[name]

    async def attributes(self, name: str) -> dict[str, str]:
        await self.small_request(name, "get_queue_attributes")
        queue = self.queue(name)
        queue.release()
        return {
            **queue.attributes,
            "ApproximateNumberOfMessages": str(queue.visible_count),
            "ApproximateNumberOfMessagesNotVisible": str(queue.in_flight_count),
            "ApproximateNumberOfMessagesDelayed": str(queue.delayed_count),
            "CreatedTimestamp": str(int(queue.created_at.timestamp())),
            "LastModifiedTimestamp": str(int(queue.created_at.timestamp())),
        }

    async def send(self, name: str, sendings: Sequence[Sending]) -> list[int]:
        """SendMessage or SendMessageBatch; returns the numbers of the messages."""
        queue = self.queue(name)
        size_bytes = sum(len(sending.body.encode()) for sending in sendings)
        if size_bytes > queue.number("MaximumMessageSize"):
            raise SqsError("BatchRequestTooLong", f"{size_bytes} bytes are more than the queue takes at once")
        if queue.is_fifo:
            sendings = [_fifo_sending(sending, queue) for sending in sendings]
        half_at, half_seconds = await self._begin("send", name, self.truth.send, len(sendings), size_bytes)
        numbers = [
            queue.add(
                sending,
                queue.number("DelaySeconds") if sending.delay_seconds is None else sending.delay_seconds,
            )
            for sending in sendings
        ]
        await self._end(half_at + half_seconds)
        return numbers

    async def receive(
        self,
        name: str,
        *,
        message_count_max: int = 1,
        wait_seconds: float | None = None,
        visibility_seconds: float | None = None,
    ) -> list[Copy]:
        """ReceiveMessage. A wait of 0 is a short poll; None is the queue's default."""
        queue = self.queue(name)
        wait = queue.number("ReceiveMessageWaitTimeSeconds") if wait_seconds is None else wait_seconds
        hide = queue.number("VisibilityTimeout") if visibility_seconds is None else visibility_seconds
        half_at, half_seconds = await self._begin("receive", name, self.truth.receive, 0, 0)
        if queue.in_flight_count >= self.truth.in_flight_max:
            await self._end(half_at + half_seconds)
            raise SqsError(
                "OverLimit", f"{self.truth.in_flight_max} messages are in flight: delete some first"
            )
        self._in_service_count -= 1  # a receive that waits is no load
        copies, taken_at = await self._take(queue, message_count_max, wait, hide, half_at)
        self._in_service_count += 1
        fill_seconds = len(copies) * self.truth.receive.message_seconds
        size_bytes = sum(len(copy.body) for copy in copies)
        self.counts.billed_request_count += max(0, math.ceil(size_bytes / BILLED_CHUNK_BYTES) - 1)
        await self._end(taken_at + half_seconds + fill_seconds)
        return copies

    async def delete(self, name: str, receipt_handles: Sequence[str]) -> list[SqsError | None]:
        """DeleteMessage or DeleteMessageBatch; returns the error for each handle, or None."""
        queue = self.queue(name)
        half_at, half_seconds = await self._begin("delete", name, self.truth.delete, len(receipt_handles), 0)
        results: list[SqsError | None] = []
        for handle in receipt_handles:
            try:
                queue.remove(handle)
                results.append(None)
            except SqsError as error:
                results.append(error)
        await self._end(half_at + half_seconds)
        return results

    async def change_visibility(self, name: str, receipt_handle: str, seconds: float) -> None:
        queue = self.queue(name)
        await self.small_request(name, "change_message_visibility")
        queue.change_visibility(receipt_handle, seconds)

    async def purge(self, name: str) -> None:
        await self.small_request(name, "purge_queue")
        self.queue(name).purge()

    async def small_request(self, queue_name: str, action: str) -> None:
        """Take the time of a request that is not about messages."""
        self.counts.add(queue_name, action)
        truth = self.truth.send
        await asyncio.sleep(truth.request_seconds * self._variation(truth.variation))

    async def _take(
        self, queue: Queue, count_max: int, wait_seconds: float, hide_seconds: float, at: float
    ) -> tuple[list[Copy], float]:
        """Take what can be found, waiting if necessary; returns the copies, and when they were found."""
        if wait_seconds <= 0:
            return queue.take(count_max, hide_seconds, every_shard=False), at
        until = at + wait_seconds
        while True:
            copies = queue.take(count_max, hide_seconds, every_shard=True)
            if copies or at >= until:
                return copies, at
            await queue.wait_for_message(until)
            at = asyncio.get_running_loop().time()

    async def _begin(
        self, action: str, queue_name: str, truth: ActionTruth, message_count: int, size_bytes: int
    ) -> tuple[float, float]:
        """Wait for the first half of a request, or refuse it; returns when that half was due, and the other's seconds.

        The other half is timed from when the first was due, so that a late timer delays an answer once, not twice.
        """
        self.counts.add(queue_name, action, size_bytes)
        started_at = asyncio.get_running_loop().time()
        is_limited = truth.request_rate_per_second_max is not None or self.queue(queue_name).is_fifo
        if is_limited and not all(
            allowance.take() for allowance in self._allowances_of(queue_name, action, truth)
        ):
            self.counts.throttled_count += 1
            await asyncio.sleep(truth.request_seconds)
            raise SqsError("RequestThrottled", f"too many {action} requests a second: ask for less")
        seconds = truth.request_seconds + truth.message_seconds * message_count
        seconds *= self._variation(truth.variation) * usl_stretch(self.truth, self._in_service_count + 1)
        seconds += self._straggle()
        self._in_service_count += 1
        try:
            await asyncio.sleep(seconds / 2)
        except BaseException:
            self._in_service_count -= 1
            raise
        return started_at + seconds / 2, seconds / 2

    def _allowances_of(self, queue_name: str, action: str, truth: ActionTruth) -> list[RequestAllowance]:
        """The limits that apply: that of the service as a whole, and that of the queue."""
        rates = {("", action): truth.request_rate_per_second_max}
        rates[queue_name, action] = self.queue(queue_name).request_rate_per_second_max
        return [
            self._allowances.setdefault(key, RequestAllowance(rate))
            for key, rate in rates.items()
            if rate is not None
        ]

    async def _end(self, at: float) -> None:
        try:
            await asyncio.sleep(at - asyncio.get_running_loop().time())
        finally:
            self._in_service_count -= 1

    def _variation(self, coefficient: float) -> float:
        if coefficient <= 0:
            return 1.0
        variance = math.log1p(coefficient**2)
        return math.exp(self._chance.gauss(-variance / 2, math.sqrt(variance)))

    def _straggle(self) -> float:
        truth = self.truth
        is_straggler = truth.straggler_fraction > 0 and self._chance.random() < truth.straggler_fraction
        return truth.straggler_seconds if is_straggler else 0.0


def _fifo_sending(sending: Sending, queue: Queue) -> Sending:
    """The message with its effective deduplication id. Raises SqsError if something is missing."""
    if sending.group is None:
        raise SqsError("MissingParameter", "the request needs MessageGroupId")
    if sending.delay_seconds is not None:
        raise SqsError("InvalidParameterValue", "DelaySeconds of a message is not for FIFO queues")
    if sending.deduplication_id is not None:
        return sending
    if queue.attributes.get("ContentBasedDeduplication") != "true":
        raise SqsError(
            "InvalidParameterValue", "the queue needs MessageDeduplicationId or ContentBasedDeduplication"
        )
    return replace(sending, deduplication_id=hashlib.sha256(sending.body.encode()).hexdigest())
