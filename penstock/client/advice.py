"""Knows how an application gets advice: from the snapshot, else the socket, else as the SDK would do.

    from penstock.client.advice import advise

    advice = advise("s3_upload", 1 << 30)
    advice.setting["thread_count"], advice.setting["part_size_bytes"], advice.basis

`advise` never raises because of penstock. Without a daemon, or with a damaged or old snapshot, it returns what
the SDK would do anyway, marked ``basis="default"``, and logs one line. So it does with advice that has expired,
wherever it comes from: `in_force` is the one place that decides what may be used.
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

_NUMBER_MAX = 1e18  # of what is advised: beyond it, and where it is none, a number is damaged
_COUNT_MAX = 1_000_000  # of threads, connections, messages
_SNAPSHOT_BYTES_MAX = 64 << 20
_REFUSAL_COUNT_MAX = 64  # that are remembered, so that each is said once
_SIZE_RATIO_MAX = 2.0  # between the size asked for and the size advised on, before the daemon is asked itself
# An answer takes a millisecond; a transfer is never held up for longer than this.
_SOCKET_TIMEOUT_SECONDS = 0.5
_ANSWER_AGE_SECONDS_MAX = 60.0
_DEFAULT_AGE_SECONDS_MAX = 5.0  # a daemon that hangs holds an application up once in this time
_ANSWER_COUNT_MAX = 256
_NO_ANSWER = (OSError, ImportError, ValueError, RecursionError)
"""What reading an answer raises when it is none, or when there are no files left to import its reader from."""
_READ_ONLY = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # what is a pipe there must not be waited for


class Advice:
    """What to use for one operation, and what it rests on.

    `setting` and `derived` are plain mappings whose names carry their units. `payload_size_bytes` is what the
    advice is for, within a factor of two of what was asked. `document` is the whole answer, with the
    prediction and its interval; ignore keys that you do not know.
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
        """Whether its time is over; the SDK's defaults are valid for ever."""
        return self.seconds_left() <= 0

    def seconds_left(self) -> float:
        """Until it expires; infinite for the SDK's defaults."""
        if self.expires_at is None:
            return float("inf")
        return (self.expires_at - datetime.now(timezone.utc)).total_seconds()  # noqa: UP017 - Python 3.9

    def __repr__(self) -> str:
        return (
            f"Advice({self.operation}, {self.payload_size_bytes} bytes, {self.basis}: {dict(self.setting)})"
        )


class StaleAdviceError(ValueError):
    """There is advice, and its time is over; the message says since when and what to do."""

    def __init__(self, advice: Advice) -> None:
        super().__init__(advice)  # as pickle gives it back

    def __str__(self) -> str:
        ended = self.args[0].expires_at
        return (
            f"the advice has expired ({ended:%Y-%m-%d %H:%M} UTC): nothing was measured for too long; "
            "`penstock status` says why"
        )


def in_force(document: Any, operation: str) -> Advice:
    """The advice of an answer about this operation, as far as it may be used now.

    Raises ValueError for what is no such advice, StaleAdviceError when it has expired.

    A daemon that lives on while its probes fail goes on answering with what it learned last.
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
    """Reads one snapshot and asks one socket; remembers what it read. Safe to share between threads."""

    def __init__(self, *, socket: str | None = None, snapshot: str | None = None) -> None:
        socket = socket or socket_path()
        self._connections = Connections(socket, timeout_seconds=_SOCKET_TIMEOUT_SECONDS)
        self._snapshot_path = snapshot or snapshot_path(socket)
        self._descriptor = -1  # of the snapshot that was read, held open; -1 is none
        self._inode = self._modified_ns = 0  # of that file
        self._lock = allocate_lock()  # for exchanging that file
        self._process_id = os.getpid()
        self._standing: tuple[Advice, ...] = ()
        self._answers: dict[tuple[object, ...], tuple[float, Advice]] = {}
        self._silence = (0.0, "")  # until when a daemon that hangs is not asked, and what is said of it
        self._has_complained = False  # since the last answer
        self._refusals: set[str] = set()

    def advise(self, operation: Operation, payload_size_bytes: int | str, **demand: Unpack[Demand]) -> Advice:
        """The advice for this operation, payload size and demand; the SDK's defaults when there is none.

        The size may be text, such as ``"1GiB"``. `demand` takes the names of the socket's query: region, objective,
        memory_bytes_max, ... What the daemon does not know, or cannot read, gets the defaults and a line in the log.
        Where the memory of this process is limited, as in a pod, half of that is memory_bytes_max, unless you state it.

        A daemon that hangs is waited for half a second in all, and then left alone for five, whatever is asked; a host
        without time for this process may add to that.
        """
        try:
            return self._advise(operation, payload_size_bytes, demand)
        except Exception as trouble:  # noqa: BLE001 - whatever it is, an application is not hurt by it
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
            if standing is None and payload_size_bytes == 0:  # an empty file is nobody's mistake
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
        """Read the snapshot again if it is another one: else this is one fstat, half as dear as a stat of the path."""
        if not self._is_current():
            if self._process_id != os.getpid():  # another thread may have held the lock when this one forked
                self._lock, self._process_id = allocate_lock(), os.getpid()
            # In time: a signal handler may have interrupted its holder.
            if self._lock.acquire(timeout=_SOCKET_TIMEOUT_SECONDS):
                try:
                    if not self._is_current():
                        self._reopen()
                finally:
                    self._lock.release()

    def _is_current(self) -> bool:
        """Whether the file that is held open still has its name: the daemon replaces it by another."""
        try:
            held = os.fstat(self._descriptor)
        except OSError:  # there was no file, or the application has closed what it did not open
            return False
        return held.st_nlink > 0 and held.st_mtime_ns == self._modified_ns and held.st_ino == self._inode

    def _reopen(self) -> None:
        self._close()
        try:
            self._descriptor = os.open(self._snapshot_path, _READ_ONLY)
            opened = os.fstat(self._descriptor)
            self._inode, self._modified_ns = opened.st_ino, -1  # not read yet
            self._standing, self._answers = _read_snapshot(self._descriptor, opened.st_size), {}
            self._modified_ns = opened.st_mtime_ns
        except _NO_ANSWER:
            if self._standing:
                self._standing, self._answers = (), {}

    def _close(self) -> None:
        """Let go of the file, unless the application has given its number to another meanwhile."""
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if os.fstat(descriptor).st_ino == self._inode:
                os.close(descriptor)
        except OSError:
            pass  # there is none

    def __del__(self) -> None:
        self._close()

    def _nearest(self, operation: str, payload_size_bytes: int) -> Advice | None:
        """The advice that stands for about this size, if there is any that has not expired."""

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
        """Ask, unless a daemon has just been waited for in vain: files of a hundred sizes are a hundred questions."""
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
        """Said once: that nobody answers until somebody does, each refusal for ever."""
        sentence = str(trouble)
        is_refusal = not isinstance(trouble, (NoDaemonError, StaleAdviceError))
        if not (sentence in self._refusals if is_refusal else self._has_complained):
            was_said = complain("no advice, so the SDK's defaults serve: %s", sentence)
            if not is_refusal:
                self._has_complained = was_said
            elif was_said and len(self._refusals) < _REFUSAL_COUNT_MAX:
                self._refusals.add(sentence)
        return default_advice(operation, payload_size_bytes, sentence)


_advisers: dict[tuple[str | None, str | None], Adviser] = {}  # by what the environment says


def advise(operation: Operation, payload_size_bytes: int | str, **demand: Unpack[Demand]) -> Advice:
    """The advice for an operation ("s3_upload", "s3_download", "sqs_delivery") and a payload size: there is some.

    The size is in bytes, or text such as ``"1GiB"``. For what is no size there are the SDK's defaults.

    The direction of a transfer is in the operation's name, and each has settings of its own.

    Paths come from PENSTOCK_SOCKET and PENSTOCK_SNAPSHOT, which is else beside the socket; the usual ones are under
    /run/penstock.
    """
    environment = (os.environ.get("PENSTOCK_SOCKET"), os.environ.get("PENSTOCK_SNAPSHOT"))
    adviser = _advisers.get(environment)
    if adviser is None:
        adviser = _advisers[environment] = Adviser()
    return adviser.advise(operation, payload_size_bytes, **demand)


def default_advice(operation: str, payload_size_bytes: int, reason: str) -> Advice:
    """What the SDK does by itself, marked as such; `reason` says why there is no other advice."""
    known = SDK_DEFAULTS.get(operation if isinstance(operation, str) else "", {"setting": {}, "derived": {}})
    return Advice(
        {
            "operation": operation,
            "payload_size_bytes": payload_size_bytes,
            "setting": known["setting"],
            "derived": known["derived"],
            "basis": "default",
            "explanation": f"what the SDK does by itself, because there is no advice: {reason}",
        }
    )


def _read_snapshot(descriptor: int, size_bytes: int) -> tuple[Advice, ...]:
    """The advice in the file; nothing when it is damaged. Raises OSError."""
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
    """What is wrong with an answer, or nothing: a damaged file must not become a damaged transfer."""
    if not (
        isinstance(document, dict)
        and all(isinstance(document.get(name), str) for name in ("operation", "basis", "explanation"))
        and isinstance(document.get("payload_size_bytes"), int)
        and 0 <= document["payload_size_bytes"] <= SIZE_BYTES_MAX
        and _are_numbers(document.get("setting"))
        and _are_numbers(document.get("derived"))
        and _moment(document.get("expires_at")) is not None
        and isinstance(document.get("demand", {}), dict)
        # Of objects to be moved there may be more than of anything that is advised.
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
