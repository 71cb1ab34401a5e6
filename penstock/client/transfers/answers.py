"""Knows whether the answer to a GET is what was asked for, and how to stop reading one that is no longer needed.

A server may answer a range request with the whole object, or with another range (RFC 9110, 14.2 and 15.3.7); one that
does not know If-Match answers with whatever version exists. boto3 writes all of that into the file, and skips the bytes
of a range that does not exist (416).
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_UNIT = "bytes"


def must_fit(
    answer: Mapping[str, Any], request: Mapping[str, Any], size_bytes: int, etag: str | None
) -> None:
    """Raises OSError if an answer's headers do not match the request for an object of this size and ETag.

    The body is not read then: it may be the whole object, for each range.
    """
    flaw = _flaw_of_version(answer, etag) or _flaw_of_range(answer, request.get("Range"), size_bytes)
    if flaw:
        raise OSError(flaw)


def stop(body: Any) -> None:
    """Let the thread that reads this body see its end; on a silent connection it would wait for a minute or longer."""
    shut_down = getattr(getattr(body, "_raw_stream", None), "shutdown", None)  # since urllib3 2.3
    try:
        if shut_down is not None:
            shut_down()
    except (OSError, RuntimeError, ValueError):
        pass  # it has already ended


def _flaw_of_version(answer: Mapping[str, Any], etag: str | None) -> str:
    came = answer.get("ETag")
    if etag and came and _bare(came) != _bare(etag):
        return f"the object was replaced meanwhile: {came} came in place of {etag}"
    return ""


def _flaw_of_range(answer: Mapping[str, Any], wanted: str | None, size_bytes: int) -> str:
    """What is wrong with the range by the headers; a header that is missing counts as right."""
    if wanted is None:
        return ""
    start, end = _bounds(wanted, size_bytes)
    came, length = answer.get("ContentRange") or "", answer.get("ContentLength")
    told = came[len(_UNIT) + 1 :]  # after a space, or another separator that some stores use
    expected = {f"{start}-{end - 1}/{size_bytes}", f"{start}-{end - 1}/*"}
    if came.startswith(_UNIT) and told not in expected:
        return f"{came!r} came, where bytes {start} to {end - 1} of {size_bytes} were asked for"
    if length is not None and length != end - start:
        return f"{length} bytes came of {end - start} from {start} on"
    return ""


def _bare(etag: str) -> str:
    """The ETag without weak marker and quotes: compressing proxies make it weak, and some stores omit the quotes."""
    return etag.removeprefix("W/").strip('"')


def _bounds(wanted: str, size_bytes: int) -> tuple[int, int]:
    """The first byte and the one after the last; boto3 leaves out the end of its last range, or asks for too much."""
    first, _, last = wanted.partition("=")[2].partition("-")
    return int(first), min(int(last) + 1, size_bytes) if last else size_bytes
