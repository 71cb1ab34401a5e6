"""Knows how an application gets advice: from the snapshot file, else from the socket, else the SDK's defaults.

    from penstock.client.advice import advise

    advice = advise("s3_upload", 1 << 30)
    advice.setting["thread_count"], advice.setting["part_size_bytes"], advice.basis

`advise` never raises because of penstock. Without a daemon, or with a damaged or old snapshot, it returns the SDK's
defaults, marked ``basis="default"``, and logs one line. The same holds for expired advice, wherever it comes from:
`in_force` alone decides what may be used.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock  # `threading` costs an application an import
from datetime import datetime, timezone

from penstock.client.complaint import complain
from penstock.client.confinement import memory_share_bytes
from penstock.client.connection import Connections, NoDaemonError, snapshot_path, socket_path, with_parameters
from penstock.client.operations import ADVISED_FIELDS, SDK_DEFAULTS
from penstock.client.sizes import SIZE_BYTES_MAX, read_size

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.demand import Demand
    from penstock.client.operations import Operation

_NUMBER_MAX = 1e18  # in advice: a larger number, or NaN, is damaged
_COUNT_MAX = 1_000_000  # of threads, connections, messages
_SNAPSHOT_BYTES_MAX = 64 << 20
_REFUSAL_COUNT_MAX = 64  # remembered, so that each is logged once
_SIZE_RATIO_MAX = 2.0  # between size asked for and size in the snapshot; beyond it the daemon is asked
# An answer takes a millisecond; no transfer is held up for longer than this.
_SOCKET_TIMEOUT_SECONDS = 0.5
_ANSWER_AGE_SECONDS_MAX = 60.0
_DEFAULT_AGE_SECONDS_MAX = 5.0  # a hung daemon holds an application up at most once in this time
_ANSWER_COUNT_MAX = 256
_NO_ANSWER = (OSError, ImportError, ValueError, RecursionError)
"""What reading an answer raises when it is invalid, or when no descriptor is left to import its parser."""
_READ_ONLY = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # never wait, should the path be a pipe


class Advice:
    """What to use for one operation, and what it is based on.

    `setting` and `derived` are plain mappings; their names carry units. `payload_size_bytes` is the size that the
    advice is for, within a factor of two of the size asked for. `basis` is ``"default"`` for the SDK's own defaults;
    `explanation` gives the reason in words; `expires_at` is an aware datetime, None for the defaults. `document` is the
    whole answer with the prediction and its interval; ignore keys that you do not know.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.operation: str = document["operation"]
        self.payload_size_bytes: int = document["payload_size_bytes"]
        self.setting: Mapping[str, Any] = document["setting"]
        self.derived: Mapping[str, Any] = document["derived"]
        self.basis: str = document["basis"]
        self.explanation: str = document["explanation"]
        self.expires_at: datetime | None = _moment(document.get("expires_at"))

    def has_expired(self) -> bool:
        """Whether the advice has expired; the SDK's defaults never do."""
        return self.seconds_left() <= 0

    def seconds_left(self) -> float:
        """Seconds until it expires; infinite for the SDK's defaults."""
        if self.expires_at is None:
            return float("inf")
        return (self.expires_at - datetime.now(timezone.utc)).total_seconds()  # noqa: UP017 - Python 3.9

    def __repr__(self) -> str:
        return (
            f"Advice({self.operation}, {self.payload_size_bytes} bytes, {self.basis}: {dict(self.setting)})"
        )


class StaleAdviceError(ValueError):
    """The advice has expired; the message says when, and what to do."""

    def __init__(self, advice: Advice) -> None:
        super().__init__(advice)  # pickle restores exceptions from their arguments

    def __str__(self) -> str:
        ended = self.args[0].expires_at
        return (
            f"the advice has expired ({ended:%Y-%m-%d %H:%M} UTC): nothing was measured for too long; "
            "`penstock status` says why"
        )


def in_force(document: Any, operation: str) -> Advice:
    """The advice in an answer about this operation, if it may be used now.

    Raises ValueError if the answer is not such advice, and StaleAdviceError if it has expired: a daemon whose probes
    fail keeps answering with what it learned last.
    """
    flaw = flaw_of(document)
    if flaw:
        raise ValueError(flaw)
    advice = Advice(document)
    if advice.operation != operation:
        raise ValueError(f"the daemon answers about {advice.operation}, not about {operation}")
    if advice.has_expired():
        raise StaleAdviceError(advice)
    return advice


class Adviser:
    """Reads one snapshot file and asks one socket, and caches the answers. Safe to share between threads."""

    def __init__(self, *, socket: str | None = None, snapshot: str | None = None) -> None:
        socket = socket or socket_path()
        self._connections = Connections(socket, timeout_seconds=_SOCKET_TIMEOUT_SECONDS)
        self._snapshot_path = snapshot or snapshot_path(socket)
        self._descriptor = -1  # of the snapshot that was read, held open; -1 if there is none
        self._inode = self._modified_ns = 0  # of that snapshot
        self._lock = allocate_lock()  # held while the snapshot is replaced
        self._process_id = os.getpid()
        self._standing: tuple[Advice, ...] = ()
        self._answers: dict[tuple[object, ...], tuple[float, Advice]] = {}
        self._silence = (0.0, "")  # until when a hung daemon is left alone, and the message meanwhile
        self._has_complained = False  # since the last answer
        self._refusals: set[str] = set()

    def advise(self, operation: Operation, payload_size_bytes: int | str, **demand: Unpack[Demand]) -> Advice:
        """The advice for this operation, payload size and demand; the SDK's defaults if there is none. Never raises.

        The size is in bytes, or text such as ``"1GiB"``. `demand` takes the parameters of the socket's query: region,
        objective, memory_bytes_max, ... If the daemon does not know a parameter or cannot read its value, the answer is
        the defaults, and a line in the log. Where the memory of this process is limited, as in a pod, memory_bytes_max
        is half of the limit unless you state it.

        A hung daemon delays this by half a second in all, and is then left alone for five seconds, whatever is asked;
        on a starved host it may take longer.
        """
        try:
            return self._advise(operation, payload_size_bytes, demand)
        except Exception as trouble:  # noqa: BLE001 - whatever it is, it must not reach the application
            return self._default(operation, 0, trouble)

    def _advise(self, operation: str, payload_size_bytes: int | str, demand: Mapping[str, object]) -> Advice:
        if type(payload_size_bytes) is not int or not 0 <= payload_size_bytes <= SIZE_BYTES_MAX:
            payload_size_bytes = read_size(payload_size_bytes)
        self._refresh()
        question = (
            (operation, payload_size_bytes, *sorted((name, str(value)) for name, value in demand.items()))
            if demand
            else (operation, payload_size_bytes)
        )
        remembered = self._answers.get(question)
        if remembered is not None and time.monotonic() < remembered[0]:
            return remembered[1]
        try:
            share = None if "memory_bytes_max" in demand else memory_share_bytes()
            standing = None if demand else self._nearest(operation, payload_size_bytes)
            if share is not None and (standing is None or standing.derived.get("memory_bytes", 0) > share):
                standing, demand = None, {**demand, "memory_bytes_max": share}
            if standing is None and payload_size_bytes == 0:  # an empty file is no mistake
                return default_advice(operation, 0, "there is nothing to be moved")
            advice = standing or self._ask_who_answers(operation, payload_size_bytes, demand)
        except (NoDaemonError, *_NO_ANSWER) as trouble:
            advice = self._default(operation, payload_size_bytes, trouble)
            self._remember(question, advice, _DEFAULT_AGE_SECONDS_MAX)
            return advice
        self._has_complained = False
        self._remember(question, advice, _ANSWER_AGE_SECONDS_MAX)
        return advice

    def _refresh(self) -> None:
        """Read the snapshot again if it was replaced; else this costs one fstat, half as much as a stat of the path."""
        if not self._is_current():
            if self._process_id != os.getpid():  # a thread of the parent may have held the lock at the fork
                self._lock, self._process_id = allocate_lock(), os.getpid()
            # With a timeout: this may be a signal handler that has interrupted the lock's holder.
            if self._lock.acquire(timeout=_SOCKET_TIMEOUT_SECONDS):
                try:
                    if not self._is_current():
                        self._reopen()
                finally:
                    self._lock.release()

    def _is_current(self) -> bool:
        """Whether the open file still has its name: the daemon publishes by replacing it."""
        try:
            held = os.fstat(self._descriptor)
        except OSError:  # there was no file, or the application closed a descriptor that is not its own
            return False
        return held.st_nlink > 0 and held.st_mtime_ns == self._modified_ns and held.st_ino == self._inode

    def _reopen(self) -> None:
        self._close()
        try:
            self._descriptor = os.open(self._snapshot_path, _READ_ONLY)
            opened = os.fstat(self._descriptor)
            self._inode, self._modified_ns = opened.st_ino, -1  # -1: not read yet
            self._standing, self._answers = _read_snapshot(self._descriptor, opened.st_size), {}
            self._modified_ns = opened.st_mtime_ns
        except _NO_ANSWER:
            if self._standing:
                self._standing, self._answers = (), {}

    def _close(self) -> None:
        """Close the snapshot, unless its descriptor number now belongs to another file of the application."""
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if os.fstat(descriptor).st_ino == self._inode:
                os.close(descriptor)
        except OSError:
            pass  # it is not open

    def __del__(self) -> None:
        self._close()

    def _nearest(self, operation: str, payload_size_bytes: int) -> Advice | None:
        """The advice from the snapshot for about this size, if there is any that has not expired."""

        def ratio(advice: Advice) -> float:
            small, large = sorted((advice.payload_size_bytes, payload_size_bytes))
            return large / max(1, small)

        near = [
            advice
            for advice in self._standing
            if advice.operation == operation and ratio(advice) <= _SIZE_RATIO_MAX and not advice.has_expired()
        ]
        return min(near, key=ratio, default=None)

    def _ask_who_answers(
        self, operation: str, payload_size_bytes: int, demand: Mapping[str, object]
    ) -> Advice:
        """Ask the daemon, unless it has just been waited for in vain: a hundred file sizes are a hundred questions."""
        begun_at = time.monotonic()
        until, sentence = self._silence
        if begun_at < until:
            raise NoDaemonError(sentence)
        try:
            return self._ask(operation, payload_size_bytes, demand)
        except NoDaemonError as trouble:
            ended_at = time.monotonic()
            if ended_at - begun_at >= _SOCKET_TIMEOUT_SECONDS:
                self._silence = (ended_at + _DEFAULT_AGE_SECONDS_MAX, str(trouble))
            raise

    def _ask(self, operation: str, payload_size_bytes: int, demand: Mapping[str, object]) -> Advice:
        import json

        parameters = {"operation": operation, "payload_size_bytes": payload_size_bytes, **demand}
        stated = {name: str(value) for name, value in parameters.items() if value is not None}
        answer = self._connections.ask("GET", with_parameters("/v1/recommendation", stated))
        document = json.loads(answer.body)
        if answer.status == 200:
            return in_force(document, operation)
        detail = document.get("detail") if isinstance(document, dict) else None
        raise ValueError(detail or f"the daemon answered with status {answer.status}")

    def _remember(self, question: tuple[object, ...], advice: Advice, age_seconds_max: float) -> None:
        if len(self._answers) >= _ANSWER_COUNT_MAX:
            self._answers = {}
        self._answers[question] = (time.monotonic() + min(age_seconds_max, advice.seconds_left()), advice)

    def _default(self, operation: str, payload_size_bytes: int, trouble: Exception) -> Advice:
        """The SDK's defaults, logged once: a missing daemon once until it answers again, each refusal once for ever."""
        sentence = str(trouble)
        is_refusal = not isinstance(trouble, (NoDaemonError, StaleAdviceError))
        if not (sentence in self._refusals if is_refusal else self._has_complained):
            was_said = complain("no advice, so the SDK's defaults serve: %s", sentence)
            if not is_refusal:
                self._has_complained = was_said
            elif was_said and len(self._refusals) < _REFUSAL_COUNT_MAX:
                self._refusals.add(sentence)
        return default_advice(operation, payload_size_bytes, sentence)


_advisers: dict[tuple[str | None, str | None], Adviser] = {}  # by PENSTOCK_SOCKET and PENSTOCK_SNAPSHOT


def advise(operation: Operation, payload_size_bytes: int | str, **demand: Unpack[Demand]) -> Advice:
    """The advice for an operation ("s3_upload", "s3_download", "sqs_delivery") and a payload size. Never raises.

    The size is in bytes, or text such as ``"1GiB"``. Without a daemon, or for a size that cannot be read, the result
    holds the SDK's defaults and has ``basis="default"``; for an unknown operation its `setting` is empty. A daemon that
    hangs is waited for half a second. `demand` takes the parameters of the socket's query, as `Adviser.advise`
    explains.

    Uploads and downloads are operations of their own, with settings of their own.

    Paths come from PENSTOCK_SOCKET and PENSTOCK_SNAPSHOT; by default the socket is in /run/penstock and the snapshot
    beside the socket.
    """
    environment = (os.environ.get("PENSTOCK_SOCKET"), os.environ.get("PENSTOCK_SNAPSHOT"))
    adviser = _advisers.get(environment)
    if adviser is None:
        adviser = _advisers[environment] = Adviser()
    return adviser.advise(operation, payload_size_bytes, **demand)


def default_advice(operation: str, payload_size_bytes: int, reason: str) -> Advice:
    """The SDK's own defaults, marked as such; `reason` says why there is no other advice."""
    known = SDK_DEFAULTS.get(operation if isinstance(operation, str) else "", {"setting": {}, "derived": {}})
    return Advice(
        {
            "operation": operation,
            "payload_size_bytes": payload_size_bytes,
            "setting": known["setting"],
            "derived": known["derived"],
            "basis": "default",
            "explanation": f"the SDK's default, because there is no advice: {reason}",
        }
    )


def _read_snapshot(descriptor: int, size_bytes: int) -> tuple[Advice, ...]:
    """The valid advice in the file; none when the file is damaged. Raises OSError."""
    import json

    if size_bytes > _SNAPSHOT_BYTES_MAX:
        return ()
    content = os.read(descriptor, size_bytes)
    try:
        documents = json.loads(content)["recommendations"]
        return tuple(Advice(document) for document in documents if not flaw_of(document))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def flaw_of(document: Any) -> str:
    """What is wrong with an answer; empty if nothing is: a damaged file must not lead to a damaged transfer."""
    if not (
        isinstance(document, dict)
        and all(isinstance(document.get(name), str) for name in ("operation", "basis", "explanation"))
        and isinstance(document.get("payload_size_bytes"), int)
        and 0 <= document["payload_size_bytes"] <= SIZE_BYTES_MAX
        and _are_numbers(document.get("setting"))
        and _are_numbers(document.get("derived"))
        and _moment(document.get("expires_at")) is not None
        and isinstance(document.get("demand", {}), dict)
        # Checked as "objects": there may be more objects to move than the limit on any advised count.
        and _are_numbers({"objects": document.get("demand", {}).get("object_count", 1)})
    ):
        return "what the daemon answers is no advice"
    operation = document["operation"]
    missing = sorted(ADVISED_FIELDS.get(operation, set()) - document["setting"].keys())
    if missing:
        return (
            f"the daemon's advice about {operation} has no {', '.join(missing)}: "
            "it is damaged, or of another version of penstock than this client"
        )
    return ""


def _are_numbers(values: Any) -> bool:
    return isinstance(values, dict) and all(
        isinstance(value, (int, float))
        and -_NUMBER_MAX <= value <= (_COUNT_MAX if name.endswith("_count") else _NUMBER_MAX)
        for name, value in values.items()
    )


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))  # noqa: FURB162 - not read before Python 3.11
    except (ValueError, AttributeError, TypeError):
        return None
    return moment if moment.tzinfo else None
