"""Knows how a command asks the daemon, and which exit code each refusal has."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from penstock.cli.trouble import (
    NoDaemonError,
    NotReadyError,
    SilentDaemonError,
    TroubleError,
    WrongUsageError,
)
from penstock.client import connection
from penstock.client.advice import StaleAdviceError, in_force

socket_option = click.option(
    "--socket",
    "socket_path",
    metavar="PATH",
    envvar="PENSTOCK_SOCKET",
    default=connection.SOCKET_PATH,
    help=f"The daemon's socket [default: $PENSTOCK_SOCKET, else {connection.SOCKET_PATH}].",
)

_RETURN_SECONDS_MAX = 300.0  # how long to wait for a daemon that restarts or is upgraded
_RETURN_PAUSE_SECONDS = 1.0  # between attempts

_TROUBLES: Mapping[int, type[TroubleError]] = {400: WrongUsageError, 503: NotReadyError}


def socket_of(socket_path: str, configured: Path) -> str:
    """The socket from --socket or the environment, else from the configuration that the command was given."""
    source = click.get_current_context().get_parameter_source("socket_path")
    return str(configured) if source is ParameterSource.DEFAULT else socket_path


def call(
    socket_path: str,
    method: str,
    target: str,
    *,
    parameters: Mapping[str, str] | None = None,
    document: Mapping[str, Any] | None = None,
    timeout_seconds: float = 10.0,
) -> dict[str, Any]:
    """The document that the daemon answers. Raises TroubleError with the daemon's own sentence."""
    body = None if document is None else json.dumps(document).encode()
    if method == "POST" and body is None:
        body = b""
    try:
        answer = connection.ask(
            socket_path, method, target, parameters=parameters, body=body, timeout_seconds=timeout_seconds
        )
    except connection.SilentError as trouble:
        raise SilentDaemonError(trouble.sentence, trouble.remedy) from trouble
    except connection.NoDaemonError as trouble:
        raise NoDaemonError(str(trouble)) from trouble
    received = _document(answer.body, socket_path)
    if answer.status >= 400:
        raise _TROUBLES.get(answer.status, TroubleError)(_sentence(received, answer.status))
    return received


def advice_in_force(
    socket_path: str, parameters: Mapping[str, str], *, timeout_seconds: float = 10.0
) -> dict[str, Any]:
    """The advice for this question, if it may be used now by the applications' own rule.

    Raises TroubleError, and NotReadyError if the advice has expired.
    """
    document = call(
        socket_path, "GET", "/v1/recommendation", parameters=parameters, timeout_seconds=timeout_seconds
    )
    try:
        in_force(document, parameters["operation"])
    except StaleAdviceError as trouble:
        raise NotReadyError(str(trouble)) from trouble
    except ValueError as trouble:
        raise TroubleError(f"what answers on {socket_path} is not penstockd: {trouble}") from trouble
    return document


def why_expired(document: Mapping[str, Any]) -> str | None:
    """Why the displayed advice may no longer be used; None while it may."""
    try:
        in_force(document, document.get("operation", ""))
    except StaleAdviceError as trouble:
        return str(trouble)
    except ValueError:
        pass
    return None


def states(socket_path: str) -> Iterator[dict[str, Any]]:
    """The state of all advice now and after each change, also across restarts of the daemon.

    Raises NoDaemonError if none answers at first, or for five minutes later.
    """
    is_followed, until_seconds = False, 0.0
    while True:
        why = f"the daemon on {socket_path} has ended the watch, as it does when it stops"
        try:
            for line in connection.stream(socket_path, "/v1/watch"):
                if until_seconds and not is_followed:
                    click.echo("penstock: a daemon answers again", err=True)
                is_followed = True
                yield _document(line, socket_path)
        except connection.NoDaemonError as trouble:
            why = str(trouble)
        if is_followed:
            is_followed, until_seconds = False, time.monotonic() + _RETURN_SECONDS_MAX
            click.echo("penstock: the daemon has ended the watch; waiting for it to come back", err=True)
        elif time.monotonic() >= until_seconds:
            raise NoDaemonError(why)
        time.sleep(_RETURN_PAUSE_SECONDS)


class _Answered(dict[str, Any]):
    """A daemon's answer. The daemon may be older than this command, until it is restarted after an upgrade."""

    def __missing__(self, name: str) -> Any:
        raise TroubleError(
            f"the daemon tells nothing of {name!r}, so it is of another version than this command: restart it "
            "(systemctl restart penstock)"
        )


def _document(body: bytes, socket_path: str) -> dict[str, Any]:
    try:
        received = json.loads(body, object_hook=_Answered)
    except ValueError:
        received = None
    if not isinstance(received, dict):
        raise TroubleError(
            f"what answers on {socket_path} is not penstockd: name another socket with --socket"
        )
    return received


def _sentence(problem: Mapping[str, Any], status: int) -> str:
    errors = problem.get("errors")
    if isinstance(errors, list) and errors:
        return "; ".join(f"{error['where']} {error['detail']}" for error in errors)
    return str(problem.get("detail") or f"the daemon answered with status {status}")
