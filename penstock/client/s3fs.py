"""Knows how advice is put into s3fs, which is imported by the application alone.

from penstock.client import s3fs as advised

fs = s3fs.S3FileSystem(**advised.filesystem_arguments(size_bytes))
fs.put_file(path, "bucket/key", **advised.put_arguments(size_bytes))
"""

from __future__ import annotations

from penstock.client.advice import Advice, advise

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any


def filesystem_arguments(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: object
) -> dict[str, Any]:
    """What to pass to `S3FileSystem`, or as `storage_options`; nothing when there is no advice."""
    return _arguments("S3FileSystem", object_size_bytes, advice, demand)


def put_arguments(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: object
) -> dict[str, Any]:
    """What to pass to `put_file` and `pipe_file`, which take their part size with the call."""
    return _arguments("put_file", object_size_bytes, advice, demand)


def _arguments(
    group: str, object_size_bytes: int | str, advice: Advice | None, demand: dict[str, object]
) -> dict[str, Any]:
    from penstock.client.targets.python_sdks import S3FS
    from penstock.client.targets.target import translate

    advice = advice or advise("s3_upload", object_size_bytes, **demand)
    if advice.basis == "default":
        return {}
    return translate(S3FS, advice.document, object_size_bytes=object_size_bytes).groups()[group]
