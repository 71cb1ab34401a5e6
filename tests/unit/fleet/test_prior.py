"""The document that the hosts of a fleet write together: what goes in, what comes out, and what never does."""

from __future__ import annotations

import dataclasses
import json
import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.fleet import prior
from penstock.fleet.prior import Evidence
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.units import MiB
from penstock.vocabulary import Observation, Origin
from tests.factories import CONTEXT, NOON, PLACE, a_fit, an_observation

MODEL = S3UploadModel()


def some(
    count: int, *, host: str = "a", threads: int = 10, first: int = 0, **changes: Any
) -> list[Evidence[Any]]:
    """Measurements of one host, a minute apart, the newest a minute ago."""
    setting = MODEL.legal(CONTEXT, S3UploadSetting(thread_count=threads, part_size_bytes=8 * MiB))
    return [
        Evidence(
            host=host,
            observation=an_observation(
                **{"setting": setting, "started_at": NOON - timedelta(minutes=first + i + 1), **changes}
            ),
        )
        for i in range(count)
    ]


def read(document: bytes) -> prior.Prior[S3UploadSetting]:
    return prior.read(document, MODEL, PLACE, NOON)


def altered(**fields: Any) -> bytes:
    """A document with one observation that a host wrote, and one in which these fields say something else."""
    document = json.loads(prior.written(PLACE, some(2)))
    document["evidence"][0]["observation"] |= fields
    return json.dumps(document).encode()


def test_what_was_measured_is_read_back() -> None:
    """And nothing else is in the document: no fit, no name of a host."""
    own = prior.measured_here("a", [one.observation for one in some(3)], fit=None, now=NOON)
    told = read(prior.written(PLACE, prior.merged(own, now=NOON)))
    assert set(map(repr, told.evidence)) == set(map(repr, own))
    assert told.remark is None


def test_only_own_probes_since_the_last_change_are_told() -> None:
    """Reports of applications, what is old, and what held before the place changed stay here."""
    told = [
        an_observation(started_at=NOON - timedelta(hours=1)),
        an_observation(started_at=NOON - timedelta(hours=3)),
        an_observation(started_at=NOON - timedelta(days=15)),
        an_observation(started_at=NOON - timedelta(minutes=1), origin=Origin.APPLICATION),
    ]
    fit = a_fit(changed_at=NOON - timedelta(hours=2))
    assert [e.observation for e in prior.measured_here("a", told, fit=fit, now=NOON)] == told[:1]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (prior.written(PLACE, some(3))[:-40], "cannot be read"),
        (b"", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"format": 2, "anything": "else"}', "format 2"),
        (b'{"format": 0}', "format 0"),
        (prior.written(dataclasses.replace(PLACE, region="us-east-1"), some(1)), "another place"),
        (b" " * (prior.DOCUMENT_BYTES_MAX + 1), "more than"),
    ],
)
def test_a_document_that_is_not_one_says_nothing(document: bytes, reason: str) -> None:
    """Truncated, older, newer, about something else, or too large: it is dropped, and why is said."""
    told = read(document)
    assert not told.evidence
    assert reason in (told.remark or "")


@pytest.mark.parametrize(
    "fields",
    [
        {"started_at": "2026-03-01T11:00:00"},
        {"started_at": "2026-03-01T13:00:00Z"},
        {"started_at": "2026-02-01T12:00:00Z"},
        {"origin": "application"},
        {"client": "boto3"},
        {"duration_seconds": 0.0},
        {"duration_seconds": -1.0},
        {"duration_seconds": "soon"},
        {"transferred_bytes": 10**30},
        {"transferred_bytes": 2 * 10**10},  # in 2 s, by a c5.large
        {"request_count": -1},
        {"latency_seconds_p50": 1e300},
        {"measures": {"a": 1e300}},
        {"measures": {str(i): 1.0 for i in range(100)}},
        {"histograms": {"request_seconds": {"first": 0, "counts": [1] * 3000}}},
        {"setting": {"thread_count": 10**6, "part_size_bytes": 8 * MiB}},
        {"setting": {"thread_count": 8, "part_size_bytes": 1}},
        {"context": {"place": {"operation": "s3_upload"}, "payload_size_bytes": 1}},
    ],
)
def test_what_no_probe_can_have_measured_is_dropped_alone(fields: dict[str, Any]) -> None:
    """The observation beside it stands."""
    told = read(altered(**fields))
    assert [one.observation for one in told.evidence] == [some(2)[1].observation]
    assert sum(told.dropped.values()) == 1


@pytest.mark.parametrize("moment", ["2026-03-01T12:10:00Z", "2026-03-01T11:50:00Z"])
def test_clocks_ten_minutes_apart_are_borne(moment: str) -> None:
    """What another host says that it measured in ten minutes counts as what it measured ten minutes ago does."""
    assert len(read(altered(started_at=moment)).evidence) == 2


def test_what_a_newer_host_adds_to_an_observation_is_no_harm() -> None:
    """The format is the same, and a field more is not read."""
    assert len(read(altered(colour="blue")).evidence) == 2


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_no_bytes_make_it_raise(seed: int) -> None:
    """Whatever happened to them on the way."""
    chance, document = random.Random(seed), bytearray(prior.written(PLACE, some(3)))
    for _ in range(chance.randint(1, 8)):
        start = chance.randrange(len(document))
        document[start : start + chance.randint(0, 6)] = chance.randbytes(chance.randint(0, 6))
    read(bytes(document))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40), st.integers(0, 3)), max_size=4))
def test_merging_has_an_order_of_nothing_and_an_end(parts: list[tuple[str, int, int]]) -> None:
    """Hosts that read the same write the same, and then there is nothing more to write."""
    lists = [some(count, host=host, threads=2**threads) for host, count, threads in parts]
    merged = prior.merged(*lists, now=NOON)
    assert prior.merged(*reversed(lists), merged, now=NOON) == merged
    assert len(merged) <= prior.EVIDENCE_COUNT_MAX


def test_a_host_that_says_much_does_not_displace_the_others() -> None:
    """Nor does the setting that everybody verifies displace the one that was tried once."""
    loud, quiet, rare = (
        some(200, host="loud"),
        some(3, host="quiet", first=300),
        some(1, threads=4, first=500),
    )
    merged = prior.merged(loud, quiet, rare, now=NOON)
    assert {one.host for one in merged} == {"loud", "quiet", "a"}
    assert rare[0] in merged


def test_what_copies_of_a_disk_tell_is_one_measurement() -> None:
    """Ten hosts that were started from one image told its measurements ten times, and each heard nine of itself."""
    original, *copies = (some(3, host=host) for host in "badc")
    merged = prior.merged(*copies, original, now=NOON)
    assert [one.observation for one in merged] == [one.observation for one in reversed(original)]
    assert {one.host for one in merged} == {"a"}
    assert prior.of_others(merged, [one.observation for one in original]) == []


def test_a_document_keeps_its_bound_whatever_an_observation_takes() -> None:
    """The oldest are left out until it does."""
    large = some(60, measures={f"measure {i} {'x' * 40}": 1.25 for i in range(64)})
    document = prior.written(PLACE, prior.merged(large, now=NOON))
    assert len(document) <= prior.DOCUMENT_BYTES_MAX
    assert read(document).evidence[-1].observation.started_at == NOON - timedelta(minutes=1)


def test_a_host_learns_from_its_former_life_but_not_twice_from_itself() -> None:
    """What it measured and still knows counts once; what was lost with its disk counts as others' does."""
    mine, theirs = some(3), some(1, host="b", first=10)
    own: list[Observation[Any]] = [mine[0].observation]
    others = prior.of_others([*mine, *theirs], own)
    assert others == [mine[1].observation, mine[2].observation, theirs[0].observation]
