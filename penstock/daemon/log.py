"""Knows the format of log lines for the journal, a terminal or a collector, and keeps credentials out of them."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

LogFormat = Literal["auto", "logfmt", "json"]
HIDDEN = "(hidden)"
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_NAME_OF_SECRETS = "(?:secret[_-]?(?:access[_-]?)?key|session[_-]?token|security[_-]?token|password|secret)"
_SECRETS = [
    # Names that hold secrets, in JSON, XML, headers, queries and Python's repr.
    re.compile(
        rf"""(?P<kept>{_NAME_OF_SECRETS}["']?\s*(?:[=:>]|%3D)\s*["']?)(?P<secret>(?!["'<])[^\s"'<>&,;)}}]+)""",
        re.IGNORECASE,
    ),
    # Signatures of signed requests.
    re.compile(
        r"(?P<kept>\bAuthorization: AWS4\S* |\bSignature=|X-Amz-Signature=)(?P<secret>[^\s&,;]+)",
        re.IGNORECASE,
    ),
    # User and password in a URL.
    re.compile(r"(?P<kept>://)(?P<secret>[^\s/@:]+:[^\s/@]+)(?=@)"),
    # Access key ids, and a secret key that stands alone: 40 characters with upper-case and lower-case letters and
    # digits. A hexadecimal SHA-1 is as long, but never mixes the cases.
    re.compile(r"(?P<kept>)(?P<secret>\b(?:AKIA|ASIA)[A-Z0-9]{16}\b)"),
    re.compile(
        r"(?P<kept>(?<![A-Za-z0-9+/=_.-]))"
        r"(?P<secret>(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?=[A-Za-z+/]*[0-9])[A-Za-z0-9+/]{40})"
        r"(?![A-Za-z0-9+/=_.-])"
    ),
]


def configure(level: str, log_format: LogFormat, *, stream: TextIO | None = None) -> None:
    """Send all records to `stream` (default: standard error) in one format."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(choose_formatter(log_format, is_for_journal=is_journal(stream)))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for noisy in ("botocore", "aiobotocore", "asyncio"):  # their debug lines contain whole requests
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # It logs a traceback at each request, with the output of the credential program. Missing credentials are
    # reported as a trouble instead.
    logging.getLogger("aiobotocore.credentials").setLevel(logging.ERROR)


def choose_formatter(log_format: LogFormat, *, is_for_journal: bool) -> logging.Formatter:
    """`auto` means logfmt; lines for the journal begin with a priority and have no time, which it adds itself."""
    if log_format == "json":
        return JsonFormatter()
    return LogfmtFormatter(is_for_journal=is_for_journal)


def is_journal(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the stream is connected to the journal, which `JOURNAL_STREAM` names by device and inode."""
    device, _, inode = environment.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(status.st_dev), str(status.st_ino))


def without_secrets(text: str) -> str:
    """The text with everything that looks like a credential replaced by `HIDDEN`."""
    for pattern in _SECRETS:
        text = pattern.sub(rf"\g<kept>{HIDDEN}", text)
    return text


class LogfmtFormatter(logging.Formatter):
    """``time=… level=info logger=penstock.daemon msg="…" key=value``; one record is one line."""

    def __init__(self, *, is_for_journal: bool) -> None:
        super().__init__()
        self._is_for_journal = is_for_journal

    def format(self, record: logging.LogRecord) -> str:
        fields = _hidden_inside(_fields(record))
        if self._is_for_journal:
            del fields["time"]
        line = without_secrets(" ".join(f"{key}={_quoted(value)}" for key, value in fields.items()))
        return f"<{_priority(record.levelno)}>{line}" if self._is_for_journal else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _hidden_inside(_fields(record))
        return json.dumps(fields, ensure_ascii=False, default=lambda value: without_secrets(str(value)))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Time, level, logger, message and everything in `extra` (Any: it may hold anything)."""
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    fields = {
        "time": moment,
        "level": record.levelname.lower(),
        "logger": record.name,
        "msg": record.getMessage(),
    }
    fields.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
    if record.exc_info:
        fields["exception"] = logging.Formatter().formatException(record.exc_info)
    return fields


def _hidden_inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): HIDDEN if re.search(_NAME_OF_SECRETS, str(key), re.IGNORECASE) else _hidden_inside(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_hidden_inside(item) for item in value]
    return without_secrets(value) if isinstance(value, str) else value


def _quoted(value: Any) -> str:
    text = str(value)
    if text and not re.search(r'[\s"=\\\x00-\x1f\x7f]', text):
        return text
    return json.dumps(text, ensure_ascii=False)


def _priority(level: int) -> int:
    return next((priority for at, priority in sorted(_PRIORITIES.items(), reverse=True) if level >= at), 7)
