"""Knows which parts of SQS's answers are usable: entries without a field that SQS always sends are left out."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


def by_place(entries: Iterable[Mapping[str, Any]] | None) -> dict[int, Mapping[str, Any]]:
    """The entries of a batch's answer, by their place in the request."""
    return {int(entry["Id"]): entry for entry in entries or () if str(entry.get("Id")).isdecimal()}


def whole(messages: Iterable[Mapping[str, Any]] | None) -> tuple[list[Mapping[str, Any]], bool]:
    """The messages that have an id and a receipt handle, and whether all have."""
    told = list(messages or ())
    found = [message for message in told if message.get("MessageId") and message.get("ReceiptHandle")]
    return found, len(found) == len(told)
