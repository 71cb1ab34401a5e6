"""Knows what the name of an AWS region looks like, which there are and in which domain, as far as the SDK has heard."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_FORM = re.compile(r"[a-z]{2,4}(-[a-z]+){1,2}-\d{1,2}")  # eu-central-1, us-gov-east-1, eusc-de-east-1


def looks_like_a_region(name: str) -> bool:
    """Whether AWS could name a region so. An endpoint of somebody else's may have any."""
    return _FORM.fullmatch(name) is not None


def is_known(name: str) -> bool:
    """Whether the SDK has heard of it; a newer region than the SDK is none that it knows."""
    return name in _known()


def hint(name: str) -> str:
    """What may be meant, as the end of a sentence; empty where nothing is near."""
    import difflib

    close = difflib.get_close_matches(name, sorted(_known()), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def domain(name: str) -> str:
    """In which the services of a region have their names; a newer region than the SDK is taken for one like most."""
    partitions = _partitions()
    found = (each for each in partitions if re.match(each["regionRegex"], name))
    return str(next(found, partitions[0])["outputs"]["dnsSuffix"])


@cache
def domains() -> tuple[str, ...]:
    """All of AWS's, with a dot before each; beside them those that have addresses of both kinds."""
    names = ("dnsSuffix", "dualStackDnsSuffix")
    return tuple({f".{each['outputs'][name]}": None for each in _partitions() for name in names})


@cache
def _known() -> frozenset[str]:
    return frozenset(region for partition in _partitions() for region in partition["regions"])


@cache
def _partitions() -> list[dict[str, Any]]:
    """From botocore's table, without botocore: a quarter of a second, and ten megabytes in the daemon (Any: JSON)."""
    found = find_spec("botocore")
    assert found is not None
    assert found.origin is not None
    table = json.loads((Path(found.origin).parent / "data/partitions.json").read_bytes())
    return list(table["partitions"])
