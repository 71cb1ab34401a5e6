"""Knows what every target has: its options, the reasons for what it cannot be told, and how both are written down.

A `Target` is a row of the table in `table.py`. Its `say` is a pure function from the advice to the options that carry
it; its writers turn the options into lines that can be piped, evaluated or pasted.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from penstock.client.operations import S3_DOWNLOAD, S3_UPLOAD
from penstock.client.targets.advised import READERS, field_of, stated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from penstock.client.targets.advised import Transfer

    Writer = Callable[["Translation"], list[str]]

APPLICATION = "application"
"""The group of values that no option of a library carries, because the application's own code must apply them."""


class Option(NamedTuple):
    """One option under its client's name, and the fields of the advice that it carries."""

    group: str  # what it is an option of; "" if there is only one such thing
    name: str
    value: Any  # text, a number, or a document for a nested option
    fields: tuple[str, ...]


def carried(advised: Any, group: str, fields: Mapping[str, str]) -> Iterator[Option]:
    """Options by name, each with the unchanged value of one field; none for fields that are not advised."""
    for name, field in fields.items():
        value = getattr(advised, field)
        if value is not None:
            yield Option(group, name, value, (field_of(advised, field),))


NO_HEDGE = "it has no hedged requests"
WHOLE_OBJECTS: Mapping[str, str] = dict.fromkeys(
    ("read_ahead_bytes", "block_size_bytes", "coalesced_gap_bytes"),
    "it copies whole objects, and no reader waits for a part of one",
)
OWN_CHUNKS: Mapping[str, str] = {"io_chunk_bytes": "it reads the network in pieces of its own size"}


class Translation(NamedTuple):
    """Advice as options of one client; `inexpressible` has the reason for each advised field that no option carries."""

    options: tuple[Option, ...]
    inexpressible: Mapping[str, str]

    def groups(self) -> dict[str, dict[str, Any]]:
        """The options by group and name."""
        found: dict[str, dict[str, Any]] = {}
        for option in self.options:
            found.setdefault(option.group, {})[option.name] = option.value
        return found

    def named(self) -> dict[str, Any]:
        """The options as a document: those without a group at the top level, beside the groups."""
        groups = self.groups()
        return {**groups.pop("", {}), **groups}


class Target(NamedTuple):
    """One kind of client. The first of its writers is the usual one; `comment` starts a comment in its files."""

    name: str
    operation: str  # a name of penstock.client.operations
    purpose: str  # one line for the list
    say: Callable[[Any], Iterable[Option]]  # Any: a Transfer or a Delivery, by the operation
    reasons: Mapping[str, str]  # for each field that it cannot, or not always, express
    writers: Mapping[str, Writer]
    comment: str = "#"


def both_ways(
    name: str,
    *,
    upload: tuple[str, Callable[[Transfer], Iterable[Option]]],
    download: tuple[str, Callable[[Transfer], Iterable[Option]]],
    reasons: Mapping[str, str],
    download_reasons: Mapping[str, str] | None = None,
    writers: Mapping[str, Writer],
    download_writers: Mapping[str, Writer] | None = None,
    comment: str = "#",
) -> tuple[Target, Target]:
    """The two rows of a client, with purpose and `say` of each way; `download_...` overrides where they differ.

    Unless `reasons` says otherwise, a client does not hedge and cannot be told how to read from the network.
    """
    up, down = {"hedge_timeout_seconds": NO_HEDGE, **reasons}, {**OWN_CHUNKS, **(download_reasons or {})}
    reading = f"{name}-download"
    return (
        Target(name, S3_UPLOAD, *upload, up, writers, comment),
        Target(reading, S3_DOWNLOAD, *download, {**up, **down}, download_writers or writers, comment),
    )


def translate(
    target: Target, document: Mapping[str, Any], *, object_size_bytes: int | str | None = None
) -> Translation:
    """An answer of the socket as options of a target. Raises KeyError if the answer lacks a setting."""
    advised = READERS[target.operation](document, object_size_bytes)
    options = tuple(target.say(advised))
    told = {field for option in options for field in option.fields}
    missing = [field for field in stated(advised) if field not in told]
    return Translation(options, {field: target.reasons[field] for field in missing})


def flags(joint: str, *, prefix: str = "") -> Writer:
    """A writer of command line flags: `prefix` comes before a name, `joint` between it and its value."""
    words = lines(lambda option: f"{prefix}{option.name}{joint}{shlex.quote(str(option.value))}")
    return lambda translation: [" ".join(words(translation))]


def environment(name_of: Callable[[str], str]) -> Writer:
    """A writer of lines that a shell evaluates; `name_of` gives the variable of an option."""
    return lines(lambda option: f"export {name_of(option.name)}={shlex.quote(str(option.value))}")


def assignments(joint: str, *, prefix: str = "") -> Writer:
    """A writer of a file with one option a line."""
    return lines(lambda option: f"{prefix}{option.name}{joint}{option.value}")


def lines(line_of: Callable[[Option], str]) -> Writer:
    """A writer of a line for each option."""
    return lambda translation: [line_of(option) for option in translation.options]


def python_calls(translation: Translation) -> list[str]:
    """A writer of Python code: each group is a call; values for the application's own code are variables."""
    written = []
    for group, options in translation.groups().items():
        if group in {"", APPLICATION}:
            written += [f"{name} = {value!r}" for name, value in options.items()]
        else:
            arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
            written.append(f"{group}({arguments})")
    return written
