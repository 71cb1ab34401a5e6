"""Knows what a run of a ready-made client may have left in its bucket, and how to remove it and try again.

A note is on disk before anything is sent, so that the tuner can clean up after a killed run. After a failed run the
note stays for one more attempt: a request in flight may take effect after the first removal.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.probes.outside import RequestError, Unreachable
from penstock.probes.removal import Removal, all_tried

_SECONDS_MAX = 8.0  # for one removal: an interrupted run has ten to end
_CONNECT_SECONDS_MAX = 2.0
_READ_SECONDS_MAX = 3.0
_NOTE = ".json"


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run can create, by name."""

    bucket: str
    endpoint_url: str | None
    region: str | None
    prefix: str
    file_names: tuple[str, ...]
    is_in_parts: bool  # then unfinished uploads may exist, too

    @property
    def url(self) -> str:
        """The place as S3 clients write it."""
        return f"s3://{self.bucket}/{self.prefix}"


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be removed, and why."""

    url: str
    reason: str


def write_note(remains: Remains, folder: Path, name: str) -> Path:
    """Write the note to disk, and return its path."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    note = folder / f"{name}{_NOTE}"
    with note.open("wb") as file:
        file.write(msgspec.json.encode(remains))
        file.flush()
        os.fsync(file.fileno())
    return note


def remove(remains: Remains, *, pauses_seconds: Sequence[float] = ()) -> None:
    """Remove everything; retry after each of the pauses. Raises RequestError."""
    for pause_seconds in pauses_seconds:
        try:
            return asyncio.run(_removed(remains))
        except RequestError:
            time.sleep(pause_seconds)
    return asyncio.run(_removed(remains))


def remove_noted(folder: Path) -> list[Left]:
    """Remove what the notes in a folder name, and delete the notes that are done; returns what is left.

    After one failure the others are not tried, so that nobody waits for an unreachable service again and again.
    """
    left: list[Left] = []
    for note in sorted(folder.glob(f"*{_NOTE}")):
        try:
            remains = msgspec.json.decode(note.read_bytes(), type=Remains)
        except msgspec.DecodeError:  # torn by a crash, before anything was sent
            note.unlink()
            continue
        reason = left[0].reason if left else _why_left(remains)
        if reason is None:
            note.unlink()
        else:
            left.append(Left(url=remains.url, reason=reason))
    return left


def _why_left(remains: Remains) -> str | None:
    try:
        remove(remains)
    except RequestError as trouble:
        return str(trouble)
    return None


async def _removed(remains: Remains) -> None:
    # Imported here: it takes half a second, and the user's own commands do not need it.
    from penstock.probes.aws.access import Access
    from penstock.probes.aws.objects import open_object_store

    access = Access(
        region=remains.region,
        endpoint_url=remains.endpoint_url,
        connect_timeout_seconds=_CONNECT_SECONDS_MAX,
        read_timeout_seconds=_READ_SECONDS_MAX,
        follows_bucket=True,
    )
    try:
        async with asyncio.timeout(_SECONDS_MAX), open_object_store(access) as store:
            removal = Removal(store, remains.bucket)
            keys = [remains.prefix + name for name in remains.file_names]
            aborts = map(removal.abort_uploads, keys if remains.is_in_parts else ())
            await all_tried(removal.delete(keys), *aborts)
    except TimeoutError:
        raise Unreachable(f"there was no answer within {_SECONDS_MAX:g} s") from None
