"""Knows how to read advice, as a record or as a library's own arguments, with a fallback when it cannot be read."""

from __future__ import annotations

from penstock.client.complaint import complain

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any

    from penstock.client.advice import Advice
    from penstock.client.operations import Operation


def arguments_of(
    library: str, group: str, advice: Advice, object_size_bytes: int | str | None
) -> dict[str, Any]:
    """Arguments for one call of a library; empty, with a line in the log, when the advice cannot be translated."""
    try:
        from penstock.client.targets.python_sdks import TARGETS
        from penstock.client.targets.target import translate

        target = next(target for target in TARGETS if target.name == library)
        return translate(target, advice.document, object_size_bytes=object_size_bytes).groups()[group]
    except Exception as trouble:  # noqa: BLE001 - whatever it is, the library uses its own defaults, and the transfer goes on
        complain("%s is told nothing, since the advice cannot be put into its words: %r", library, trouble)
        return {}


def advised(operation: Operation, advice: Advice, size_bytes: int) -> Any:
    """The advice as a `Transfer` or a `Delivery`; the SDK's defaults, and a line in the log, when it cannot be read."""
    from penstock.client.advice import default_advice
    from penstock.client.targets.advised import READERS

    read = READERS[operation]
    try:
        return read(advice.document, size_bytes)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as trouble:
        complain("%s is not advised, since the advice cannot be read: %r", operation, trouble)
        return read(default_advice(operation, size_bytes, "").document, size_bytes)
