"""Knows how something valid is bent, cut and stuffed until it is hardly valid, and how to do the same again.

Every input is a function of a word and a number, so a finding is named by the two and made again from them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

BYTES: tuple[bytes, ...] = (
    b"\x00", b"\xff", b"\xfe\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\r", b"\n",
    b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\x7f", b"%", b"%00", b"%FF", b"%ed%a0%80", b"&", b"=", b"#", b"?", b"/", b"//",
    b"/../", b"\\", b'"', b"'", b"{", b"}", b"[", b"]", b":", b",", b"+", b"-", b"0", b"9" * 19, b"9" * 40, b"9" * 5000,
    b"1e308", b"1e999", b"NaN", b"Infinity", b"nan", b"inf", b"null", b"\\u0000", b"\\ud800", b"\\udfff\\ud800",
    "\u202e".encode(), "\U0010ffff".encode(), "\u0661".encode(),
)  # fmt: skip
"""What readers of bytes trip over."""

TOKENS: tuple[str, ...] = (
    "null", "true", "false", "0", "-0", "1", "-1", "0.1", "-0.0", "1e-320", "1e308", "1e309", "-1e309", "NaN",
    "Infinity", "-Infinity", "1" + "0" * 400, "-1" + "0" * 400, "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "1.7976931348623157e308", '""', '"0"', '"nan"', '"\\u0000"', '"\\ud800"',
    '"\\udfff\\ud800"', '"\u0661"', '"2026-01-01T00:00:00Z"', '"0001-01-01T00:00:00+23:59"',
    '"9999-12-31T23:59:59.999999-23:59"',
    '"1GiB"', '"1e999GiB"', "[]", "{}", "[[]]", "[" * 2000, "[" * 600 + "]" * 600, '{"a":' * 600 + "1" + "}" * 600,
    '"' + "x" * 70_000 + '"',
)  # fmt: skip
"""What readers of JSON trip over, in place of a value."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A piece of JSON that is written as it stands, valid or not."""

    text: str


class Mutator:
    """One input's chance: the same word and number give the same input."""

    def __init__(self, word: str, number: int) -> None:
        self.chance = random.Random(f"{word}/{number}")

    def happens(self, probability: float) -> bool:
        """Whether it does this time."""
        return self.chance.random() < probability

    def one_of(self, choices: Sequence[T]) -> T:
        """Any of them."""
        return self.chance.choice(choices)

    def bent_bytes(self, data: bytes, *, times: int | None = None) -> bytes:
        """The bytes with some of them flipped, gone, doubled, cut off, or something nasty in between."""
        for _ in range(self.chance.choice((1, 1, 1, 2, 3, 8)) if times is None else times):
            data = self.one_of(_BENDS)(self, data)
        return data

    def bent_json(self, document: Any) -> bytes:
        """The document with values that do not belong there; its bytes are bent now and then, too (Any: JSON)."""
        for _ in range(self.chance.choice((0, 1, 1, 1, 2, 4))):
            document = self._bent_value(document)
        data = _written(document).encode("utf-8", "surrogatepass")
        return self.bent_bytes(data) if self.happens(0.25) else data

    def _bent_value(self, value: Any) -> Any:
        if isinstance(value, dict) and value and not self.happens(0.1):
            return self._bent_object(value)
        if isinstance(value, list) and value and not self.happens(0.1):
            return self._bent_list(value)
        return Raw(self.one_of(TOKENS))

    def _bent_object(self, value: dict[str, Any]) -> dict[str, Any]:
        name = self.one_of(list(value))
        rest = {key: item for key, item in value.items() if key != name}
        match self.chance.randrange(8):
            case 0:
                return rest
            case 1:
                return {**rest, name + self.one_of(("\x00", "\ud800", "x", "")): value[name], "": Raw("1")}
            case 2:
                return {**value, self.one_of(list(value)): value[name]}
            case _:
                return {**value, name: self._bent_value(value[name])}

    def _bent_list(self, value: list[Any]) -> list[Any]:
        index = self.chance.randrange(len(value))
        match self.chance.randrange(6):
            case 0:
                return value[:index]
            case 1:
                return value * self.chance.choice((2, 50))
            case _:
                return [*value[:index], self._bent_value(value[index]), *value[index + 1 :]]


def _flip(mutator: Mutator, data: bytes) -> bytes:
    if not data:
        return data
    at = mutator.chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << mutator.chance.randrange(8))]) + data[at + 1 :]


def _insert(mutator: Mutator, data: bytes) -> bytes:
    at = mutator.chance.randint(0, len(data))
    return data[:at] + mutator.one_of(BYTES) + data[at:]


def _overwrite(mutator: Mutator, data: bytes) -> bytes:
    at, new = mutator.chance.randint(0, len(data)), mutator.one_of(BYTES)
    return data[:at] + new + data[at + len(new) :]


def _remove(mutator: Mutator, data: bytes) -> bytes:
    start, end = _span(mutator, data)
    return data[:start] + data[end:]


def _double(mutator: Mutator, data: bytes) -> bytes:
    start, end = _span(mutator, data)
    return data[:end] + data[start:end] * mutator.one_of((1, 1, 3, 40)) + data[end:]


def _cut(mutator: Mutator, data: bytes) -> bytes:
    return data[: mutator.chance.randint(0, len(data))]


def _scramble(mutator: Mutator, data: bytes) -> bytes:
    start, end = _span(mutator, data)
    return data[:start] + mutator.chance.randbytes(end - start) + data[end:]


_BENDS: tuple[Callable[[Mutator, bytes], bytes], ...] = (
    _flip, _flip, _insert, _insert, _overwrite, _remove, _double, _cut, _scramble,
)  # fmt: skip


def _span(mutator: Mutator, data: bytes) -> tuple[int, int]:
    start = mutator.chance.randint(0, len(data))
    return start, min(len(data), start + mutator.one_of((1, 2, 4, 16, 64)))


def _written(value: Any) -> str:
    """JSON, with what is raw as it stands."""
    match value:
        case Raw():
            return value.text
        case dict():
            return "{" + ",".join(f"{_quoted(key)}:{_written(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case str():
            return _quoted(value)
        case _:
            return json.dumps(value)


def _quoted(text: str) -> str:
    """Without escapes: what JSON forbids inside quotes is sent as it is, a lone surrogate and a NUL, too."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
