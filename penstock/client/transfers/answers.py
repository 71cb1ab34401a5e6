"""Knows whether the answer to a GET is what was asked for, and how to end one that nobody waits for any more.

A server may answer a request for a range with the whole object, or with what it likes of the range (RFC 9110, 14.2 and
15.3.7); one that does not know If-Match answers with whatever version there is. boto3 puts all of that into one file,
and of a range that is missing (416) it leaves out the bytes.
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
    """Raises OSError where an answer, by its header, is not what was asked for of an object of this size and version.

    Its body is not read then: it may be the whole object, for each range.
    """
    flaw = _flaw_of_version(answer, etag) or _flaw_of_range(answer, request.get("Range"), size_bytes)
    if flaw:
        raise OSError(flaw)


def stop(body: Any) -> None:
    """Have the thread that reads this body see its end: where nothing comes, it would wait for a minute or longer."""
    shut_down = getattr(getattr(body, "_raw_stream", None), "shutdown", None)  # of urllib3 2.3 and newer
    try:
        if shut_down is not None:
            shut_down()
    except (OSError, RuntimeError, ValueError):
        pass  # it has ended


def _flaw_of_version(answer: Mapping[str, Any], etag: str | None) -> str:
    came = answer.get("ETag")
    if etag and came and _bare(came) != _bare(etag):
        return f"the object was replaced meanwhile: {came} came in place of {etag}"
    return ""


def _flaw_of_range(answer: Mapping[str, Any], wanted: str | None, size_bytes: int) -> str:
    """By its header. What it does not state is not held against it; the whole is as long as it says."""
    if wanted is None:
        return ""
    start, end = _bounds(wanted, size_bytes)
    came, length = answer.get("ContentRange") or "", answer.get("ContentLength")
    told = came[len(_UNIT) + 1 :]  # behind a space, or what else a store puts there
    expected = {f"{start}-{end - 1}/{size_bytes}", f"{start}-{end - 1}/*"}
    if came.startswith(_UNIT) and told not in expected:
        return f"{came!r} came, where bytes {start} to {end - 1} of {size_bytes} were asked for"
    if length is not None and length != end - start:
        return f"{length} bytes came of {end - start} from {start} on"
    return ""


def _bare(etag: str) -> str:
    """A proxy that packs bodies makes a tag weak, and some stores forget its quotes."""
    return etag.removeprefix("W/").strip('"')


def _bounds(wanted: str, size_bytes: int) -> tuple[int, int]:
    """The end is behind the last byte; boto3 does not state it of its last range, or asks for more than there is."""
    first, _, last = wanted.partition("=")[2].partition("-")
    return int(first), min(int(last) + 1, size_bytes) if last else size_bytes
