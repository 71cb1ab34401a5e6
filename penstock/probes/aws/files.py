"""Knows which parts of botocore's own data files probes need: the rest is skipped while they are read.

botocore's endpoints of all regions, 1.2 MB of JSON, take 7 MB in memory, and S3's 110 operations 3 MB, for each client.
Probes use some twenty operations of two services. An operation that is left out is noticed at once, because the client
has no such method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from botocore.loaders import JSONFileLoader
from msgspec import Raw

# Services that probes use, and those that provide credentials.
_SERVICES = frozenset({"s3", "s3express", "sqs", "sts", "sso", "portal.sso", "oidc", "signin"})
_OPERATIONS = frozenset(
    {
        *("PutObject", "GetObject", "DeleteObject", "DeleteObjects", "ListObjectsV2"),
        "ListObjectVersions",
        *("CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "AbortMultipartUpload"),
        # The last two are requested by botocore itself, for directory buckets and for buckets in other regions.
        *("ListMultipartUploads", "CreateSession", "HeadBucket"),
        *("CreateQueue", "DeleteQueue", "GetQueueUrl", "GetQueueAttributes", "ListQueues"),
        *("SendMessage", "SendMessageBatch", "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch"),
    }
)


class LeanFiles(JSONFileLoader):  # type: ignore[misc]  # botocore has no types
    """Reads botocore's files as botocore does, but skips what no probe needs."""

    def _load_file(self, full_path: str, open_method: Callable[..., Any]) -> Any:  # Any: JSON
        path = Path(full_path)
        lean = _lean_reader(path)
        if lean is None or not path.is_file():
            return super()._load_file(full_path, open_method)
        with open_method(full_path, "rb") as file:
            return lean(file.read())


def _lean_reader(path: Path) -> Callable[[bytes], dict[str, Any]] | None:
    if path.name.startswith("endpoints.json"):
        return endpoints
    if path.name.startswith("service-2.json") and path.parent.parent.name in {"s3", "sqs"}:
        return service
    return None


def endpoints(text: bytes) -> dict[str, Any]:
    """The partitions, with the needed services only."""
    whole = msgspec.json.decode(text, type=dict[str, Raw])
    partitions = msgspec.json.decode(whole["partitions"], type=list[dict[str, Raw]])
    return _read(whole, without="partitions") | {
        "partitions": [
            _read(partition, without="services") | {"services": _some(partition["services"], _SERVICES)}
            for partition in partitions
        ]
    }


def service(text: bytes) -> dict[str, Any]:
    """A service's description, with the needed operations and their shapes only."""
    whole = msgspec.json.decode(text, type=dict[str, Raw])
    operations = _some(whole["operations"], _OPERATIONS)
    known = msgspec.json.decode(whole["shapes"], type=dict[str, Raw])
    shapes: dict[str, Any] = {}
    waiting = set(_shape_names(operations))
    while waiting:
        name = waiting.pop()
        shapes[name] = msgspec.json.decode(known[name])
        waiting |= set(_shape_names(shapes[name])) - shapes.keys()
    kept = {key: value for key, value in whole.items() if key not in {"operations", "documentation"}}
    return _read(kept, without="shapes") | {"operations": operations, "shapes": shapes}


def _some(table: Raw, names: Iterable[str]) -> dict[str, Any]:
    rows = msgspec.json.decode(table, type=dict[str, Raw])
    return {name: msgspec.json.decode(rows[name]) for name in names if name in rows}


def _read(table: Mapping[str, Raw], *, without: str) -> dict[str, Any]:
    return {key: msgspec.json.decode(value) for key, value in table.items() if key != without}


def _shape_names(described: object) -> Iterator[str]:
    """The names of all shapes referred to, at any depth."""
    if isinstance(described, dict):
        if isinstance(described.get("shape"), str):
            yield described["shape"]
        for key, value in described.items():
            if key != "documentation":
                yield from _shape_names(value)
    elif isinstance(described, list):
        for value in described:
            yield from _shape_names(value)
