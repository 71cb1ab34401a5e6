"""Knows the routes of the socket: who handles each request, how it is answered, and who may send it.

A lease is a connection: it is granted when its stream begins and ends with the stream, whichever side closes it. So a
killed holder's share is free as soon as the kernel has closed its socket.

The routes use the rest of the daemon through `advisor.py` alone. Standing advice is encoded once for each change, by
`publish`; the snapshot file, ``/v1/recommendations`` and the watchers all get the same bytes. Each line of a watch is
the whole state, so a slow watcher that misses lines has missed nothing but the past.

Errors are ``application/problem+json`` documents with a sentence that says what to do.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from penstock.api.advisor import Advisor, NoRoomError, RefusedError
from penstock.api.answers import RememberedAnswers
from penstock.api.complaints import Complaints
from penstock.api.leases import (
    Appetite,
    Lease,
    LeaseBook,
    TooManyLeasesError,
    appetite,
    endless,
    lease_documents,
    terms_document,
)
from penstock.api.listener import LAST_REQUEST, ConnectionLimits
from penstock.api.peer import Peer, peer_behind
from penstock.api.snapshot import write_snapshot
from penstock.api.turns import Turns
from penstock.api.watcher import Watcher
from penstock.api.wire import (
    SCHEMA,
    Claim,
    Mistake,
    UnreadableError,
    encode,
    mistakes_document,
    read_claim,
    read_probe_request,
    read_question,
    read_reports,
    recommendation_document,
    reports_document,
    snapshot_document,
)
from penstock.clock import Clock
from penstock.vocabulary import Basis

_log = logging.getLogger(__name__)

_JSON = "application/json"
_NDJSON = "application/x-ndjson"
_PROBLEM = "application/problem+json"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_LEARNED = frozenset({Basis.MODEL, Basis.MEASURED})
_IS_STREAMED = web.RequestKey("is_streamed", bool)  # its answer has begun: no other can follow


@dataclass(eq=False)
class Api:
    """The routes, and the one place where changed advice is published."""

    advisor: Advisor
    _: KW_ONLY
    clock: Clock
    limits: ConnectionLimits
    snapshot_path: Path | None = None
    control_gid: int | None = None
    leases: LeaseBook = field(default_factory=LeaseBook)

    def __post_init__(self) -> None:
        self._is_closing = False
        self._watchers: set[Watcher] = set()
        self.answers = RememberedAnswers()
        self.turns = Turns()
        self._shares_changed = asyncio.Event()
        self._snapshot = self.advisor.snapshot()
        self._state = b""
        self._etag = ""
        self._snapshot_trouble: str | None = None

    def application(self) -> web.Application:
        application = web.Application(
            middlewares=[_explaining_trouble(Complaints()), self._taking_turns()],
            client_max_size=self.limits.body_bytes_max,
        )
        application.add_routes(
            [
                web.get("/v1/recommendation", self._get_recommendation),
                web.get("/v1/recommendations", self._get_recommendations),
                web.get("/v1/watch", self._get_watch, allow_head=False),
                web.get("/v1/leases", self._get_leases),
                web.post("/v1/leases", self._post_leases),
                web.get("/v1/explain", self._get_explain),
                web.get("/v1/status", self._get_status),
                web.get("/v1/leftovers", self._get_leftovers),
                web.delete("/v1/leftovers", self._delete_leftovers),
                web.get("/v1/clients", self._get_clients),
                web.get("/v1/ready", self._get_ready),
                web.get("/metrics", self._get_metrics),
                web.post("/v1/observations", self._post_observations),
                web.post("/v1/probe", self._post_probe),
                web.post("/-/reload", self._post_reload),
                web.post("/-/believe-clock", self._post_believe_clock),
            ]
        )
        application.on_startup.append(self._open)
        application.on_shutdown.append(self._close)
        return application

    def publish(self) -> None:
        """Publish the standing advice. Called at the start by itself; to be called after each change."""
        self._snapshot = self.advisor.snapshot()
        self.answers.forget()
        self._state = encode(snapshot_document(self._snapshot))
        self._etag = _etag_of(self._state)
        self._tell_watchers()
        self._wake_holders()
        self._write_snapshot()

    def mend_snapshot(self) -> str | None:
        """Write the snapshot again if it is gone or could not be written; returns a sentence if it cannot be now."""
        path = self.snapshot_path
        is_gone = path is not None and not os.access(path, os.F_OK)
        if is_gone or self._snapshot_trouble is not None:
            self._write_snapshot()
        if is_gone and self._snapshot_trouble is None:
            _log.warning("the snapshot %s was removed; it is there again", path)
        return self._snapshot_trouble

    def _write_snapshot(self) -> None:
        self._snapshot_trouble = None
        if self.snapshot_path is not None:
            try:
                write_snapshot(self.snapshot_path, [self._state])
            except OSError as trouble:
                self._snapshot_trouble = (
                    f"cannot write the snapshot {self.snapshot_path}: {trouble.strerror}; its readers keep the old "
                    "advice until it expires"
                )

    # --- Reading

    async def _get_recommendation(self, request: web.Request) -> web.StreamResponse:
        recommendation = self.advisor.recommend(read_question(request.query.items()))
        body = encode(recommendation_document(recommendation, generation=self._snapshot.generation))
        response = _conditional(request, body, _etag_of(body))
        if recommendation.basis is not Basis.DEFAULT:  # a default is dated by its question
            self.answers.keep(request, response)
        return response

    async def _get_recommendations(self, request: web.Request) -> web.StreamResponse:
        return _conditional(request, self._state, self._etag)

    async def _get_explain(self, request: web.Request) -> web.StreamResponse:
        return _json(self.advisor.explain(read_question(request.query.items())))

    async def _get_status(self, _request: web.Request) -> web.StreamResponse:
        return _json(self.advisor.status())

    async def _get_leftovers(self, _request: web.Request) -> web.StreamResponse:
        return _json(self.advisor.leftovers())

    async def _get_clients(self, _request: web.Request) -> web.StreamResponse:
        return _json(self.advisor.clients())

    async def _get_metrics(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=self.advisor.metrics(), headers={"Content-Type": _METRICS})

    async def _get_ready(self, request: web.Request) -> web.StreamResponse:
        waiting_for = self._unready_operations(_max_age(request))
        troubles = self.advisor.troubles()
        if not self.advisor.probed_operations:
            detail = "nothing is probed here; enable probes in the configuration"
        elif waiting_for:
            why = [f"{t['subject']}: {t['sentence']}" for t in troubles if t["name"] in waiting_for]
            hint = "; ".join(why) or "wait, or see what the daemon does (`penstock status`)"
            detail = f"no fresh advice from measurements for {', '.join(waiting_for)}; {hint}"
        else:
            detail = "there is advice from measurements for every operation that is probed"
            return _json({"ready": True, "waiting_for": [], "detail": detail, "troubles": troubles})
        more = {"ready": False, "waiting_for": waiting_for, "troubles": troubles}
        return _problem(503, detail, more=more)

    async def _get_leases(self, _request: web.Request) -> web.StreamResponse:
        return _json({"schema": SCHEMA, "leases": lease_documents(self.leases)})

    async def _get_watch(self, request: web.Request) -> web.StreamResponse:
        response = await _stream(request)
        watcher = Watcher(request)
        self._watchers.add(watcher)
        try:
            while not self._is_closing:
                if watcher.told is not self._state:
                    watcher.told = self._state
                    async with asyncio.timeout(self.limits.idle_seconds_max):
                        await response.write(watcher.told)
                else:
                    await watcher.is_behind()
        except (TimeoutError, ConnectionError):
            # The client does not read, or has left.
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._watchers.discard(watcher)
        return response

    # --- Writing

    async def _post_observations(self, request: web.Request) -> web.StreamResponse:
        reports = read_reports(
            await request.read(),
            region=self._snapshot.region,
            instance_type=self._snapshot.instance_type,
            now=self.clock.now(),
        )
        refused = dict(reports.mistakes)
        if reports.readable:
            peer, readable = _peer(request), tuple(reports.readable.values())
            recording = self.advisor.record(readable, uid=peer.uid, process_id=peer.process_id)
            answers = await asyncio.shield(recording)
            for index, refusal in zip(reports.readable, answers, strict=True):
                if refusal is not None:
                    refused[index] = [Mistake(f"observations[{index}]", refusal)]
        count = len(reports.readable) + len(reports.mistakes)
        if len(refused) < count:
            return _json(reports_document(count, refused), status=202)
        if reports.mistakes:
            raise UnreadableError([mistake for index in sorted(refused) for mistake in refused[index]])
        raise RefusedError("; ".join(dict.fromkeys(m.detail for wrong in refused.values() for m in wrong)))

    async def _post_probe(self, request: web.Request) -> web.StreamResponse:
        self._check_control(request)
        operation, payload_size_bytes = read_probe_request(await request.read())
        detail = await asyncio.shield(self.advisor.request_probe(operation, payload_size_bytes))
        return _json({"detail": detail}, status=202)

    async def _delete_leftovers(self, request: web.Request) -> web.StreamResponse:
        self._check_control(request)
        forgets = request.query.get("forget") == "true"
        return _json(await asyncio.shield(self.advisor.remove_leftovers(forgets=forgets)))

    async def _post_believe_clock(self, request: web.Request) -> web.StreamResponse:
        self._check_control(request)
        return _json({"detail": await self.advisor.believe_clock()})

    async def _post_reload(self, request: web.Request) -> web.StreamResponse:
        self._check_control(request)
        return _json({"detail": await asyncio.shield(self.advisor.reload())})

    # --- Leases

    async def _post_leases(self, request: web.Request) -> web.StreamResponse:
        lease = self._grant(request, read_claim(await request.read()))
        try:
            return await self._tell_shares(request, lease)
        finally:
            self.leases.release(lease)
            self._leases_changed()

    def _grant(self, request: web.Request, claim: Claim) -> Lease:
        peer = _peer(request)
        try:
            lease = self.leases.grant(
                claim,
                self._appetite(claim),
                process_id=peer.process_id,
                uid=peer.uid,
                is_in_control=peer.is_in_control(self.control_gid),
                now=self.clock.now(),
            )
        except TooManyLeasesError as trouble:
            raise RefusedError(str(trouble)) from trouble
        self._leases_changed()
        return lease

    def _leases_changed(self) -> None:
        """The other leases' shares have changed, and perhaps the regime of questions that do not state one."""
        self.answers.forget()
        self._wake_holders()

    async def _tell_shares(self, request: web.Request, lease: Lease) -> web.StreamResponse:
        """Send the share now and after each change; a slow reader is sent the newest one when it is ready."""
        told = b""
        response = await _stream(request)
        while not self._is_closing:
            # Read before the share is worked out, so that no change in between is missed.
            changed, snapshot = self._shares_changed, self._snapshot
            # What it can use depends on the advice and on other leases: if those need the burst credits, it is less.
            if self.leases.appraise(lease, self._appetite(lease.claim)):
                self._wake_holders()
            await asyncio.sleep(0)  # let other holders do the same before anybody is sent a new share
            share = self.leases.share(lease)
            advice = self.advisor.assess(
                lease.claim.question,
                share.setting,
                host_fraction=1.0 / share.lease_count if share.host_fraction is None else share.host_fraction,
            )
            document = recommendation_document(advice, generation=snapshot.generation)
            line = encode(document | terms_document(lease, share))
            if line != told:
                told = line
                await response.write(line)
            # Wait even if a line was sent: default advice is dated by its question, so it would differ each time.
            await changed.wait()
            await self._turn(request, is_told=True)
        return response

    def _appetite(self, claim: Claim) -> Appetite:
        question = claim.question
        boundless = dataclasses.replace(question, demand=endless(question.demand))
        return appetite(self.advisor.recommend(question), self.advisor.recommend(boundless))

    # --- Shared by the handlers

    def _taking_turns(self) -> Middleware:
        @web.middleware
        async def take_turn(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.method == "POST":
                await self._read_body(request)
            await self._turn(request)
            return await handler(request)

        return take_turn

    async def _turn(self, request: web.Request, *, is_told: bool = False) -> None:
        """Wait for this user's turn: what follows runs without a pause, and blocks the event loop."""
        peer = _peer(request)
        is_in_control = peer.is_in_control(self.control_gid)
        await self.turns.mine(peer.uid, is_in_control=is_in_control, is_told=is_told)

    async def _read_body(self, request: web.Request) -> None:
        """Wait for the whole body, which the handler then gets at once."""
        try:
            async with asyncio.timeout(self.limits.idle_seconds_max):
                await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        except web.RequestPayloadError as trouble:
            raise UnreadableError([Mistake("body", f"its framing is broken: {trouble}")]) from trouble

    def _check_control(self, request: web.Request) -> None:
        if not _peer(request).is_in_control(self.control_gid):
            raise web.HTTPForbidden

    def _unready_operations(self, age_max: timedelta | None) -> list[str]:
        now = self.clock.now()
        ready = {
            recommendation.context.operation
            for recommendation in self._snapshot.recommendations
            if recommendation.basis in _LEARNED
            and not recommendation.has_expired(now)
            and recommendation.newest_observation_at is not None
            and (age_max is None or now - recommendation.newest_observation_at <= age_max)
        }
        return sorted(set(self.advisor.probed_operations) - ready)

    def _tell_watchers(self) -> None:
        line, chunk = self._state, b"%x\r\n%b\r\n" % (len(self._state), self._state)
        for watcher in self._watchers:
            watcher.tell(line, chunk)

    def _wake_holders(self) -> None:
        self._shares_changed.set()
        self._shares_changed = asyncio.Event()

    async def _open(self, _application: web.Application) -> None:
        self.publish()

    async def _close(self, _application: web.Application) -> None:
        self._is_closing = True
        for watcher in self._watchers:
            watcher.wake()
        self._wake_holders()


_DETAILS = {
    403: "only root, the daemon's own user and members of its control group may do this; try sudo",
    404: "there is nothing here; the routes are in docs/socket-protocol.md",
    408: "the body did not come in time; send it at once",
    413: "the body is too large; send fewer observations at a time",
}


def _explaining_trouble(complaints: Complaints) -> Middleware:
    @web.middleware
    async def explain_trouble(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every failure into a document that says what to do: no exception passes this edge."""
        try:
            return await _answered(request, handler)
        except ConnectionError:
            raise  # the client has left
        except Exception:  # noqa: BLE001 - the edge: one bad request must not look like a dead daemon
            if complaints.may_write(_peer(request).uid):
                _log.exception("cannot answer %s %s", request.method, request.path)
            if request.get(_IS_STREAMED) and request.transport is not None:
                request.transport.abort()
                raise ConnectionResetError from None
            return _problem(500, "a fault of penstockd; its log has the details, please report them")

    return explain_trouble


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The answer, or the document of an expected refusal."""
    try:
        return await handler(request)
    except UnreadableError as trouble:
        detail = f"what was sent cannot be understood: {trouble}"
        return _problem(400, detail, more={"errors": mistakes_document(trouble.mistakes)})
    except RefusedError as trouble:
        return _problem(409, str(trouble))
    except NoRoomError as trouble:
        return _problem(507, str(trouble))
    except web.HTTPMethodNotAllowed as trouble:
        allowed = ", ".join(sorted(trouble.allowed_methods))
        return _problem(405, f"use {allowed} here", headers={"Allow": allowed})
    except web.HTTPException as trouble:
        return _problem(trouble.status, _DETAILS.get(trouble.status, trouble.reason))


def _peer(request: web.Request) -> Peer:
    """The process that sent the request, as the kernel tells it."""
    if request.transport is None:
        raise ConnectionResetError
    return peer_behind(request.transport.get_extra_info("socket"))


def _problem(
    status: int,
    detail: str,
    *,
    more: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    document = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, **(more or {})}
    response = _json(document, status=status, content_type=_PROBLEM)
    response.headers.update(headers or {})
    return response


def _json(document: Mapping[str, Any], *, status: int = 200, content_type: str = _JSON) -> web.Response:
    return web.Response(body=encode(document), status=status, content_type=content_type)


async def _stream(request: web.Request) -> web.StreamResponse:
    """Begin an answer that goes on, line by line, until one side closes it."""
    response = web.StreamResponse(headers={"Content-Type": _NDJSON, "Cache-Control": "no-store"})
    response.force_close()
    request[LAST_REQUEST]()
    request[_IS_STREAMED] = True
    await response.prepare(request)
    return response


def _conditional(request: web.Request, body: bytes, etag: str) -> web.Response:
    """The body, or 304 when the client has it already."""
    headers = {"ETag": f'"{etag}"', "Cache-Control": "no-cache"}
    if any(tag.value in {etag, "*"} for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type=_JSON, headers=headers)


def _etag_of(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=12).hexdigest()


def _max_age(request: web.Request) -> timedelta | None:
    text = request.query.get("max_age_seconds")
    if text is None:
        return None
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise UnreadableError(
            [Mistake("max_age_seconds", f"{text[:64]!r} is not a number of seconds")]
        ) from None
