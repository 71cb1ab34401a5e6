"""Knows how an adapter gets the arguments of its library out of advice, or none where that cannot be done."""

from __future__ import annotations

from penstock.client.complaint import complain

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any

    from penstock.client.advice import Advice


def arguments_of(
    library: str, group: str, advice: Advice, object_size_bytes: int | str | None
) -> dict[str, Any]:
    """What one call of a library takes, in its own words; nothing, and a line in the log, when there is trouble."""
    try:
        from penstock.client.targets.python_sdks import TARGETS
        from penstock.client.targets.target import translate

        target = next(target for target in TARGETS if target.name == library)
        return translate(target, advice.document, object_size_bytes=object_size_bytes).groups()[group]
    except Exception as trouble:  # noqa: BLE001 - whatever it is, the library decides by itself, and the transfer goes on
        complain("%s is told nothing, since the advice cannot be put into its words: %r", library, trouble)
        return {}
