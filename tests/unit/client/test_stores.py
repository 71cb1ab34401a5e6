"""Stores that are not AWS: found by their endpoints, kept within by all that is advised, and as the manual says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.client.targets import advised
from penstock.client.targets.stores import (
    STORES,
    STORES_BY_NAME,
    endpoint_of,
    store_at,
    store_for,
    variables_for,
)
from penstock.models.s3 import parts
from penstock.units import MiB

PAGE = (Path(__file__).parents[3] / "docs/clients.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [
        ("https://0a1b.r2.cloudflarestorage.com", "r2"),
        ("https://0a1b.eu.r2.cloudflarestorage.com/", "r2"),
        ("https://s3.us-west-004.backblazeb2.com", "b2"),
        ("https://storage.googleapis.com", "gcs"),
        ("https://play.min.io:9000", "minio"),
        ("https://s3.eu-west-1.amazonaws.com", None),
        ("https://notstorage.googleapis.com.example.org", None),
        ("https://evilplay.min.io", None),
        ("http://127.0.0.1:9000", None),
        ("http://[", None),
        (None, None),
    ],
)
def test_a_store_is_found_by_the_end_of_its_endpoint(endpoint: str | None, name: str | None) -> None:
    """A whole label of the name; what runs on a host of one's own has to be stated."""
    assert store_at(endpoint) == (STORES_BY_NAME[name] if name else None)


def test_a_command_says_where_it_goes_before_its_environment() -> None:
    """In both ways of writing a flag."""
    environment = {"AWS_ENDPOINT_URL": "two", "S3_ENDPOINT_URL": "three"}
    assert endpoint_of(environment, ("aws", "--endpoint-url", "one", "s3")) == "one"
    assert endpoint_of(environment, ("rclone", "--s3-endpoint=one")) == "one"
    assert endpoint_of(environment, ("aws", "s3", "ls")) == "two"
    assert endpoint_of({}) is None


def test_only_who_refuses_checksums_is_sent_none() -> None:
    """AWS and who takes them go on being protected by them."""
    told = {store.name for store in STORES if variables_for(store)}
    assert told == {"ceph", "b2", "gcs"}
    assert variables_for(None) == {}


@pytest.mark.parametrize(
    ("stated", "environment", "name"),
    [
        (None, {}, "ceph"),
        ("r2", {}, "r2"),
        (None, {"AWS_ENDPOINT_URL": "http://10.0.0.1:7480"}, "ceph"),
        (None, {"AWS_ENDPOINT_URL": "https://storage.googleapis.com"}, "gcs"),
        (None, {"AWS_ENDPOINT_URL": "https://s3.eu-west-1.amazonaws.com"}, None),
        (None, {"AWS_ENDPOINT_URL": "https://s3.eusc-de-east-1.amazonaws.eu"}, None),
    ],
)
def test_who_states_no_store_goes_to_that_of_the_daemon(
    stated: str | None, environment: dict[str, str], name: str | None
) -> None:
    """Unless the endpoint tells of another, or of AWS."""
    found = store_for(stated, {"store": "ceph"}, environment)
    assert (found and found.name) == name
    assert store_for(None, {"store": 1}, {}) is None


class Rules(NamedTuple):
    """What a store accepts beside checksums; what is None was found nowhere."""

    part_size_bytes_min: int = 5 * MiB
    has_conditional_writes: bool | None = None
    lists_uploads_by_prefix: bool | None = None  # and not by a whole key alone


RULES = {
    "r2": Rules(has_conditional_writes=True),
    "minio": Rules(lists_uploads_by_prefix=False),
    "ceph": Rules(),
    "b2": Rules(part_size_bytes_min=5 * 10**6),
    "gcs": Rules(),
}
PART_COUNT_MAX = 10_000  # of each of them


def test_what_is_advised_and_probed_is_accepted_by_every_store() -> None:
    """So that neither model nor probe has to know which one it is."""
    assert RULES.keys() == STORES_BY_NAME.keys()
    for rules in RULES.values():
        assert rules.part_size_bytes_min <= parts.PART_SIZE_BYTES_MIN == advised.PART_SIZE_BYTES_MIN
    assert PART_COUNT_MAX >= parts.PART_COUNT_MAX == advised.PART_COUNT_MAX


def test_the_manual_has_the_same_table() -> None:
    """Row by row."""
    words = {True: "yes", False: "no", None: "-"}
    for store in STORES:
        rules = RULES[store.name]
        host = f"`{store.hosts[0]}`" if store.hosts else "-"
        least = "5 MiB" if rules.part_size_bytes_min == 5 * MiB else "5 MB"
        told = (
            store.has_equal_parts,
            store.has_checksums,
            rules.has_conditional_writes,
            rules.lists_uploads_by_prefix,
        )
        row = " | ".join([f"{store.title}: `{store.name}`", host, least, *(words[each] for each in told)])
        assert re.search(rf"^\| {re.escape(row)} \|$", PAGE, re.MULTILINE)
