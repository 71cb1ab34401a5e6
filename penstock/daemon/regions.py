"""Knows the form of AWS region names, and which regions and domains the installed SDK knows."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_FORM = re.compile(r"[a-z]{2,4}(-[a-z]+){1,2}-\d{1,2}")  # eu-central-1, us-gov-east-1, eusc-de-east-1


def looks_like_a_region(name: str) -> bool:
    """Whether AWS could give a region this name. Other services' endpoints may have regions of any name."""
    return _FORM.fullmatch(name) is not None


def is_known(name: str) -> bool:
    """Whether the installed SDK knows the region; it does not know those that are newer than itself."""
    return name in _known()


def hint(name: str) -> str:
    """The most similar known region, as the end of a sentence; empty where none is similar."""
    import difflib

    close = difflib.get_close_matches(name, sorted(_known()), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def domain(name: str) -> str:
    """The DNS suffix of the region's services, such as `amazonaws.com`; for an unknown region, that of most regions."""
    partitions = _partitions()
    found = (each for each in partitions if re.match(each["regionRegex"], name))
    return str(next(found, partitions[0])["outputs"]["dnsSuffix"])


@cache
def domains() -> tuple[str, ...]:
    """All DNS suffixes of AWS, each with a leading dot, dual-stack ones (IPv4 and IPv6) included."""
    names = ("dnsSuffix", "dualStackDnsSuffix")
    return tuple({f".{each['outputs'][name]}": None for each in _partitions() for name in names})


@cache
def _known() -> frozenset[str]:
    return frozenset(region for partition in _partitions() for region in partition["regions"])


@cache
def _partitions() -> list[dict[str, Any]]:
    """The SDK's table of partitions, read without importing botocore, which takes 0.25 s and 10 MB (Any: JSON)."""
    found = find_spec("botocore")
    assert found is not None
    assert found.origin is not None
    table = json.loads((Path(found.origin).parent / "data/partitions.json").read_bytes())
    return list(table["partitions"])
