"""Knows how an application holds its share of the host while it transfers.

    from penstock.client.lease import Lease

    with Lease("s3_upload", 1 << 30, client="nightly-backup") as lease:
        for path in paths:
            upload(path, threads=lease.setting["thread_count"])

The share changes as other applications come and go: read `lease.setting` before each transfer. A thread listens to the
daemon, and takes the lease again after the daemon restarted. Nothing here raises because of penstock: without a daemon,
or once the share has expired, `setting` holds the SDK's own defaults and `basis` is "default".

A lease belongs to the process that took it. A forked child keeps the last share that it saw, and receives no updates;
let each process take its own.
"""

from __future__ import annotations

import os
import threading
import weakref

from penstock.client.advice import Advice, StaleAdviceError, default_advice, in_force
from penstock.client.complaint import complain
from penstock.client.confinement import memory_share_bytes
from penstock.client.connection import NoDaemonError, RefusedError, Stream, socket_path
from penstock.client.sizes import size_or_none

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.demand import Demand
    from penstock.client.operations import Operation

# How long entering a lease waits for the answer to begin, and then again for the first share.
_CONNECT_SECONDS_MAX = 0.5
# For the listening thread, which holds nobody up: of a hundred that reconnect at once, each waits for those before it.
_AGAIN_SECONDS_MAX = 10.0
_PAUSE_SECONDS_MIN = 0.2  # before the daemon is asked again; doubles each time
_PAUSE_SECONDS_MAX = 30.0
_LOOK_SECONDS = 60.0  # between checks whether a share has expired, in case the clock was stepped
_CLAIM_IS_WRONG = 400


class Share:
    """What may be used now: the parts of a lease's newest advice."""

    advice: Advice

    @property
    def setting(self) -> Mapping[str, Any]:
        """The setting to use now; names carry their units. The SDK's defaults without a daemon."""
        return self.advice.setting

    @property
    def derived(self) -> Mapping[str, Any]:
        """The other advised values for this share, such as the connection pool."""
        return self.advice.derived

    @property
    def basis(self) -> str:
        """What the share is based on; "default" without a daemon."""
        return self.advice.basis

    @property
    def host_fraction(self) -> float | None:
        """The share as a fraction of the host's capacity; None while nothing is known or no daemon answers."""
        fraction: float | None = self.advice.document.get("host_fraction")
        return fraction


class Lease(Share):
    """A share of this host, from `__enter__` to `__exit__`.

    `weight` (0.1 to 10) is how much this lease counts against the others; `resource` names what is contended for (the
    queue; leave it empty for S3); `client` is a name for people to read. `demand` takes the parameters of the socket's
    query. `on_change` is called with the new `Advice` whenever the setting changes, first by the thread that enters the
    lease and later by the listening thread; it must be quick, and must not raise.

    Wrong arguments do not raise either: the daemon refuses the claim, the log says why, and the SDK's defaults remain.
    """

    def __init__(
        self,
        operation: Operation,
        payload_size_bytes: int | str,
        *,
        weight: float = 1.0,
        resource: str = "",
        client: str = "unknown",
        socket: str | None = None,
        on_change: Callable[[Advice], None] | None = None,
        **demand: Unpack[Demand],
    ) -> None:
        size_bytes = size_or_none(payload_size_bytes)
        self._socket_path = socket or socket_path()
        self._demand = demand
        self._terms = {
            "operation": operation,
            "payload_size_bytes": payload_size_bytes if size_bytes is None else size_bytes,
            "weight": weight,
            "resource": resource,
            "client": client,
        }
        self._on_change = on_change
        self._default = default_advice(operation, size_bytes or 0, "no daemon was asked yet")
        self.advice = self._default
        self._stream: Stream | None = None
        self._has_ended = threading.Event()
        self._changing = threading.Lock()  # guards _has_ended together with _stream
        self._entering = threading.Lock()
        self._entered_count = 0  # by threads that share it, and by nested blocks
        self._has_complained = False

    def __enter__(self) -> Lease:
        """Take the lease, unless it is held already; with a daemon the share is known when this returns."""
        with self._entering:
            self._entered_count += 1
            if self._entered_count == 1:
                try:
                    self._begin()
                except BaseException:  # such as Ctrl-C: then `__exit__` is never called
                    self.close()
                    raise
        return self

    def _begin(self) -> None:
        self._has_ended = has_ended = threading.Event()  # a thread left from an earlier time has its own
        _held.add(self)
        is_held = self._take(has_ended, _CONNECT_SECONDS_MAX)
        listener = threading.Thread(
            target=self._listen,
            args=(has_ended,),
            kwargs={"is_held": is_held},
            name="penstock-lease",
            daemon=True,
        )
        try:
            listener.start()
        except RuntimeError as trouble:  # no thread can be started: the share stays as it is
            self._do_without(trouble, has_ended)

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the lease back when the last of those who entered it leaves; other leases are then enlarged at once."""
        with self._entering:
            self._entered_count -= 1
            if self._entered_count <= 0:
                self.close()

    def close(self) -> None:
        """Give the lease back, even if others have entered it. The last share stays readable."""
        self._entered_count = 0
        with self._changing:
            self._has_ended.set()
            stream, self._stream = self._stream, None
        _held.discard(self)
        if stream is not None:
            stream.close()

    def _take(self, has_ended: threading.Event, seconds_max: float) -> bool:
        """Ask for the lease, and receive the first share. Returns whether more will follow."""
        try:
            claim = _claim({"memory_bytes_max": memory_share_bytes(), **self._demand}, self._terms)
            stream = Stream(self._socket_path, "POST", "/v1/leases", claim, seconds_max)
        except Exception as trouble:  # noqa: BLE001 - also of the application's arguments, which may be anything
            self._do_without(trouble, has_ended)
            is_refused = isinstance(trouble, RefusedError) and trouble.status == _CLAIM_IS_WRONG
            if is_refused or not isinstance(trouble, (NoDaemonError, OSError, ImportError)):
                has_ended.set()  # the same claim would be refused again
            return False
        with self._changing:
            if not has_ended.is_set():
                self._stream = stream
        if has_ended.is_set():  # given back in the meantime
            stream.close()
            return False
        is_held = self._hear(stream, has_ended, timeout_seconds=seconds_max)
        self._has_complained = self._has_complained and not is_held
        return is_held

    def _hear(
        self, stream: Stream, has_ended: threading.Event, *, timeout_seconds: float | None = None
    ) -> bool:
        """Wait for the next share; False when the lease has ended, or the line is not advice."""
        try:
            line = stream.line(timeout_seconds=timeout_seconds)
            if line is not None and not has_ended.is_set():
                import json

                self._become(in_force(json.loads(line), self._default.operation))
        except StaleAdviceError as trouble:  # the lease is held, and hears of new measurements
            self._default_because(trouble)
            return True
        except (NoDaemonError, ValueError, OSError, ImportError) as trouble:
            stream.close()
            self._do_without(trouble, has_ended)
            return False
        return line is not None

    def _listen(self, has_ended: threading.Event, *, is_held: bool) -> None:
        """Follow the share until the lease is given back, and take it again whenever it was lost."""
        pause_seconds = _PAUSE_SECONDS_MIN
        while not has_ended.is_set():
            with self._changing:
                stream = None if has_ended.is_set() else self._stream
            if is_held and stream is not None:
                pause_seconds = _PAUSE_SECONDS_MIN
                if stream.has_more(within_seconds=min(self.advice.seconds_left(), _LOOK_SECONDS)):
                    is_held = self._hear(stream, has_ended)
                elif self.advice.has_expired():
                    self._default_because(StaleAdviceError(self.advice))
            else:
                has_ended.wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _PAUSE_SECONDS_MAX)
                is_held = not has_ended.is_set() and self._take(has_ended, _AGAIN_SECONDS_MAX)

    def _do_without(self, trouble: Exception, has_ended: threading.Event) -> None:
        """Keep a share that has not expired, as any other advice outlives its daemon; else use the SDK's defaults."""
        if has_ended.is_set():
            return
        if not self._has_complained:
            complain("the lease is not held: %s", trouble)
            self._has_complained = True
        if self.basis == "default" or self.advice.has_expired():
            self._become(self._defaults(trouble))

    def _default_because(self, trouble: StaleAdviceError) -> None:
        """Use the SDK's defaults, while the lease is still held."""
        if self.basis != "default":
            complain("%s", trouble)
        self._become(self._defaults(trouble))

    def _defaults(self, trouble: Exception) -> Advice:
        return default_advice(self._default.operation, self._default.payload_size_bytes, str(trouble))

    def _become(self, advice: Advice) -> None:
        is_news = dict(advice.setting) != dict(self.advice.setting)
        self.advice = advice
        if is_news and self._on_change is not None:
            self._on_change(advice)

    def _forget(self) -> None:
        """In a forked child, which would keep the lease alive after its parent: drop it, and replace the locks."""
        self._changing, self._entering, self._entered_count = threading.Lock(), threading.Lock(), 0
        self._has_ended = threading.Event()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.forget()


def _claim(demand: Mapping[str, object], terms: Mapping[str, object]) -> bytes:
    """The claim as the daemon reads it; what is not stated is left out."""
    import json

    stated = {name: str(value) for name, value in demand.items() if value is not None}
    return json.dumps({**terms, **stated}, default=str).encode()


_held: weakref.WeakSet[Lease] = weakref.WeakSet()


def _forget_all() -> None:
    for lease in list(_held):
        lease._forget()  # noqa: SLF001 - of this module


if hasattr(os, "register_at_fork"):  # missing on systems without fork
    os.register_at_fork(after_in_child=_forget_all)
