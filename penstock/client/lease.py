"""Knows how an application holds its share of the host for the time of its transfers.

    from penstock.client.lease import Lease

    with Lease("s3_upload", 1 << 30, client="nightly-backup") as lease:
        for path in paths:
            upload(path, threads=lease.setting["thread_count"])

The share changes when other applications come and go: read `lease.setting` before each transfer. A thread listens to
the daemon; it takes the lease again when the daemon was restarted. Nothing here raises because of penstock: without
a daemon, or once the share has expired, `setting` is what the SDK does by itself, and `basis` says so.

A lease belongs to the process that took it. A forked child keeps the last share that it saw and is told no other;
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

_CONNECT_SECONDS_MAX = 0.5  # for so long, and once, a daemon that hangs holds an application up
# The thread holds nobody up: where a hundred come back at once, each waits until the daemon has seen to the others.
_AGAIN_SECONDS_MAX = 10.0
_PAUSE_SECONDS_MIN = 0.2  # before the daemon is asked again; doubled each time
_PAUSE_SECONDS_MAX = 30.0
_LOOK_SECONDS = 60.0  # after this at the latest a share is looked at that a stepping clock has made expire
_CLAIM_IS_WRONG = 400


class Share:
    """What may be used now: the newest advice of a lease, in its parts."""

    advice: Advice

    @property
    def setting(self) -> Mapping[str, Any]:
        """What to use now: the names carry their units."""
        return self.advice.setting

    @property
    def derived(self) -> Mapping[str, Any]:
        """The rest of the bundle for this share: the pool of connections, ..."""
        return self.advice.derived

    @property
    def basis(self) -> str:
        """What the share rests on; "default" when there is no daemon."""
        return self.advice.basis

    @property
    def host_fraction(self) -> float | None:
        """Of what the host can do; None while nothing is known, or nobody answers."""
        fraction: float | None = self.advice.document.get("host_fraction")
        return fraction


class Lease(Share):
    """A share of this host, from `__enter__` to `__exit__`.

    `weight` (0.1 to 10) says how much it counts beside the others, `resource` names what is contended for (a queue;
    nothing for S3), `client` is a name for people. `demand` takes the names of the socket's query. `on_change` is
    called with the new `Advice` by the listening thread; it must be quick, and must not raise.
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
        self._changing = threading.Lock()  # whether it has ended, and the stream that it has
        self._entering = threading.Lock()
        self._entered_count = 0  # by threads that share it, or by blocks in one another
        self._has_complained = False

    def __enter__(self) -> Lease:
        """Take it, unless it is held: the share is there when this returns, if a daemon is."""
        with self._entering:
            self._entered_count += 1
            if self._entered_count == 1:
                try:
                    self._begin()
                except BaseException:  # Ctrl-C: nobody will leave
                    self.close()
                    raise
        return self

    def _begin(self) -> None:
        self._has_ended = has_ended = threading.Event()  # what listens since an earlier time has its own
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
        except RuntimeError as trouble:  # no more threads: the share stays as it is
            self._do_without(trouble, has_ended)

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give it back when the last of those who entered leaves; the others hear of it at once."""
        with self._entering:
            self._entered_count -= 1
            if self._entered_count <= 0:
                self.close()

    def close(self) -> None:
        """Give it back, whoever still holds it. The last share stays readable."""
        self._entered_count = 0
        with self._changing:
            self._has_ended.set()
            stream, self._stream = self._stream, None
        _held.discard(self)
        if stream is not None:
            stream.close()

    def _take(self, has_ended: threading.Event, seconds_max: float) -> bool:
        """Ask for it, and hear the first share. Returns whether there will be more."""
        try:
            claim = _claim({"memory_bytes_max": memory_share_bytes(), **self._demand}, self._terms)
            stream = Stream(self._socket_path, "POST", "/v1/leases", claim, seconds_max)
        except Exception as trouble:  # noqa: BLE001 - of what the application states, too: it may be anything
            self._do_without(trouble, has_ended)
            is_refused = isinstance(trouble, RefusedError) and trouble.status == _CLAIM_IS_WRONG
            if is_refused or not isinstance(trouble, (NoDaemonError, OSError, ImportError)):
                has_ended.set()  # it will be as wrong the next time
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
        """Wait for the next share; False when the lease has ended, or what is said of it is no advice."""
        try:
            line = stream.line(timeout_seconds=timeout_seconds)
            if line is not None and not has_ended.is_set():
                import json

                self._become(in_force(json.loads(line), self._default.operation))
        except StaleAdviceError as trouble:  # the lease is held, and is told when something was measured
            self._default_because(trouble)
            return True
        except (NoDaemonError, ValueError, OSError, ImportError) as trouble:
            stream.close()
            self._do_without(trouble, has_ended)
            return False
        return line is not None

    def _listen(self, has_ended: threading.Event, *, is_held: bool) -> None:
        """Follow the share, and take the lease again whenever it was lost, until it is given back."""
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
        """Keep a share that is in force, as any other advice outlives its daemon; else do as the SDK does."""
        if has_ended.is_set():
            return
        if not self._has_complained:
            complain("the lease is not held: %s", trouble)
            self._has_complained = True
        if self.basis == "default" or self.advice.has_expired():
            self._become(self._defaults(trouble))

    def _default_because(self, trouble: StaleAdviceError) -> None:
        """Do as the SDK does, in a lease that is held."""
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
        """In a forked child, which would keep the lease alive after its parent; what a thread locked there is free."""
        self._changing, self._entering, self._entered_count = threading.Lock(), threading.Lock(), 0
        self._has_ended = threading.Event()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.forget()


def _claim(demand: Mapping[str, object], terms: Mapping[str, object]) -> bytes:
    """The claim as the daemon reads it; what is not stated stays away."""
    import json

    stated = {name: str(value) for name, value in demand.items() if value is not None}
    return json.dumps({**terms, **stated}, default=str).encode()


_held: weakref.WeakSet[Lease] = weakref.WeakSet()


def _forget_all() -> None:
    for lease in list(_held):
        lease._forget()  # noqa: SLF001 - of this file


if hasattr(os, "register_at_fork"):  # where there is no fork, there is no such thing
    os.register_at_fork(after_in_child=_forget_all)
