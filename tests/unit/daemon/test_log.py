"""The log: one line a record, in three shapes, and never a credential."""

import io
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.daemon import log

# ruff: noqa: S105, S106  # these are no secrets, they look like ones

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # the example of the AWS documentation
KEY_ID = "AKIAIOSFODNN7EXAMPLE"
TOKEN = "FwoGZXIvYXdzEBYaDKEXAMPLETOKEN=="


def _record(message: str, *arguments: Any, level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    record = logging.LogRecord("penstock.daemon", level, "file.py", 1, message, arguments, None)
    record.created = 1_772_366_400.25
    vars(record).update(extra)
    return record


def test_logfmt() -> None:
    """Time, level, logger, message, then what `extra` brought; quotes only where needed."""
    line = log.choose_formatter("logfmt", is_for_journal=False).format(
        _record("probe of %s done", "s3", size=8)
    )
    assert line == (
        'time=2026-03-01T12:00:00.250+00:00 level=info logger=penstock.daemon msg="probe of s3 done" size=8'
    )


@pytest.mark.parametrize(
    ("level", "priority"),
    [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3), (50, 2), (1, 7)],
)
def test_the_journal_gets_a_priority_and_keeps_its_own_time(level: int, priority: int) -> None:
    """`<N>` in front is syslog's severity."""
    line = log.choose_formatter("auto", is_for_journal=True).format(_record("x", level=level))
    assert line.startswith(f"<{priority}>level=")


def test_json() -> None:
    """One object that any collector reads."""
    line = log.choose_formatter("json", is_for_journal=False).format(_record("x", size=8, what={1, 2}))
    assert json.loads(line) == {
        "time": "2026-03-01T12:00:00.250+00:00",
        "level": "info",
        "logger": "penstock.daemon",
        "msg": "x",
        "size": 8,
        "what": "{1, 2}",
    }


@pytest.mark.parametrize("log_format", ["logfmt", "json"])
def test_one_record_is_one_line(log_format: log.LogFormat) -> None:
    """A line break in a message cannot forge another record; an exception keeps to its line."""
    formatter = log.choose_formatter(log_format, is_for_journal=False)
    record = _record("a\nlevel=error msg=forged")
    record.exc_info = (RuntimeError, RuntimeError("first\nsecond"), None)
    line = formatter.format(record)
    assert "\n" not in line
    assert "RuntimeError: first" in line


LEAKS = [
    f"credentials: aws_secret_access_key = {SECRET}",
    f"Credentials(access_key='{KEY_ID}', secret_key='{SECRET}')",
    json.dumps({"AccessKeyId": KEY_ID, "SecretAccessKey": "short-secret", "SessionToken": TOKEN}),
    "<SecretAccessKey>short-secret</SecretAccessKey>",
    f"{SECRET} stands alone",
    f"GET https://b.s3.amazonaws.com/k?X-Amz-Credential={KEY_ID}%2F2026&X-Amz-Signature=0a1b2c3d",
    f"X-Amz-Security-Token: {TOKEN}",
    f"Authorization: AWS4-HMAC-SHA256 Credential={KEY_ID}/2026/s3/aws4_request, Signature=0a1b2c3d",
    "cannot connect to http://user:short-secret@127.0.0.1:9000/",
    f"AWS_SESSION_TOKEN={TOKEN}",
]


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("log_format", ["logfmt", "json"])
@pytest.mark.parametrize("way", ["message", "argument", "extra", "nested", "exception"])
def test_credentials_never_appear(leak: str, log_format: log.LogFormat, way: str) -> None:
    """Whatever the way into a record: message, argument, field, field within a field, exception."""
    record = _record("%s", leak) if way == "argument" else _record(leak if way == "message" else "x")
    if way == "extra":
        record.detail = leak
    elif way == "nested":
        record.detail = {"list": [leak, {"deep": leak}]}
    elif way == "exception":
        record.exc_info = (ValueError, ValueError(leak), None)
    line = log.choose_formatter(log_format, is_for_journal=False).format(record)
    assert log.HIDDEN in line
    for secret in (SECRET, KEY_ID, TOKEN, "short-secret", "0a1b2c3d"):
        assert secret not in line


@pytest.mark.parametrize("log_format", ["logfmt", "json"])
def test_a_field_named_for_a_secret_is_hidden(log_format: log.LogFormat) -> None:
    """Even where its value looks like nothing."""
    line = log.choose_formatter(log_format, is_for_journal=False).format(
        _record("x", password="a", secret_key="b")
    )
    assert line.count(log.HIDDEN) == 2


@pytest.mark.parametrize(
    "text",
    [
        "removed s3://bucket/penstock-probe/0f3a7c1e9b2d4f5a8c7e6d5b4a3f2e1d",
        "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "queue penstock-probe-3c1f at http://127.0.0.1:9324/000000000000/penstock-probe-3c1f",
        "part_size_bytes=8388608 thread_count=16",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """A log full of holes helps nobody."""
    assert log.without_secrets(text) == text


def test_the_journal_is_recognised_by_device_and_inode() -> None:
    """Standard error may have been sent elsewhere although the variable is set."""
    with tempfile.TemporaryFile("w") as stream:
        status = os.fstat(stream.fileno())
        assert log.is_journal(stream, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
        assert not log.is_journal(stream, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"})
        assert not log.is_journal(stream, {})
    assert not log.is_journal(io.StringIO(), {"JOURNAL_STREAM": "1:2"})


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """The root logger, as it was, afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    noisy = {
        name: logging.getLogger(name).level
        for name in ("botocore", "aiobotocore", "aiobotocore.credentials", "asyncio")
    }
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    for name, noisy_level in noisy.items():
        logging.getLogger(name).setLevel(noisy_level)


def test_configure_sends_all_to_one_stream(root_logger: logging.Logger) -> None:
    """At the level that was asked for, and the SDK's debug lines, which hold whole requests, at none."""
    stream = io.StringIO()
    log.configure("debug", "json", stream=stream)
    logging.getLogger("penstock.test").debug("heard")
    logging.getLogger("botocore.endpoint").debug("not heard")
    logging.getLogger("aiobotocore.credentials").warning("at each request, with what a program wrote")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["msg"] == "heard"
