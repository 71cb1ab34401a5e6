"""How the words are spelled outside, and what may be claimed in them."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import wire
from penstock.models.s3.parts import PART_COUNT_MAX, PART_SIZE_BYTES_MAX
from penstock.models.s3.upload import S3UploadSetting
from penstock.operations.table import OPERATIONS
from penstock.units import GiB, KiB, MiB, parse_bytes
from penstock.vocabulary import (
    Basis,
    Demand,
    Estimate,
    Objective,
    Observation,
    Origin,
    Recommendation,
    Regime,
)
from tests.integration.scripted_advisor import a_recommendation

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
QUESTION = [("operation", "s3_upload"), ("payload_size_bytes", "1GiB")]


def a_report(**changes: Any) -> dict[str, Any]:
    """What an application would say of one upload."""
    report = {
        "operation": "s3_upload",
        "payload_size_bytes": 64 * MiB,
        "setting": {"thread_count": 8, "part_size_bytes": 8 * MiB},
        "started_at": "2026-11-21T09:59:00Z",
        "duration_seconds": 2.0,
        "transferred_bytes": 64 * MiB,
        "request_count": 10,
        "client": "boto3",
    }
    return report | changes


def read_reports(*documents: dict[str, Any]) -> tuple[Observation[Any], ...]:
    """The observations in a post of these reports."""
    body = json.dumps({"observations": documents}).encode()
    reports = wire.read_reports(body, region="eu-west-1", instance_type="m7i.large", now=NOW)
    if reports.mistakes:
        raise wire.UnreadableError([mistake for wrong in reports.mistakes.values() for mistake in wrong])
    return tuple(reports.readable.values())


def mistakes_of(query: list[tuple[str, str]]) -> dict[str, str]:
    """What is wrong with this query string, by parameter."""
    with pytest.raises(wire.UnreadableError) as caught:
        wire.read_question(query)
    return {mistake.where: mistake.detail for mistake in caught.value.mistakes}


def test_every_field_of_a_demand_can_be_asked_for() -> None:
    """A field that is added to the demand must get its query parameter, of the same name."""
    assert set(wire.DEMAND_PARAMETERS) == {field.name for field in dataclasses.fields(Demand)}


def test_the_document_of_a_recommendation_says_all_of_it() -> None:
    """Nothing that a recommendation knows is lost on its way out."""
    advice = a_recommendation(demand=Demand(thread_count_max=64))
    document = json.loads(wire.encode(wire.recommendation_document(advice, generation=7)))
    assert document["schema"] == 1
    assert document["generation"] == 7
    assert document["operation"] == "s3_upload"
    assert document["payload_size_bytes"] == GiB
    assert document["setting"] == {"thread_count": 32, "part_size_bytes": 16 * MiB}
    assert document["prediction"]["throughput_bytes_per_second"] == {
        "low": 90e6,
        "expected": 100e6,
        "high": 110e6,
    }
    assert document["newest_observation_age_seconds"] == 300
    assert document["demand"]["thread_count_max"] == 64
    assert "memory_bytes_max" not in document["demand"]
    # Every field has its key; those of the context stand beside the others.
    renamed = {"context", "newest_observation_at"}
    assert {field.name for field in dataclasses.fields(Recommendation)} - renamed <= document.keys()


def test_an_unmeasured_recommendation_has_no_age() -> None:
    """Nothing measured is not the same as measured just now."""
    advice = a_recommendation(newest_observation_at=None, observation_count=0, basis=Basis.DEFAULT)
    assert wire.recommendation_document(advice, generation=1)["newest_observation_age_seconds"] is None


def test_numbers_that_json_cannot_hold_become_null() -> None:
    """An unbounded interval must not make a document that nobody can read."""
    advice = a_recommendation(prediction={"latency_seconds_p99": Estimate(0.1, 1.0, float("inf"))})
    document = json.loads(wire.encode(wire.recommendation_document(advice, generation=1)))
    assert document["prediction"]["latency_seconds_p99"]["high"] is None


@given(
    demand=st.builds(
        Demand,
        objective=st.sampled_from(Objective),
        regime=st.sampled_from(Regime),
        memory_bytes_max=st.none() | st.integers(1, 10**12),
        bandwidth_bytes_per_second_max=st.none() | st.floats(1, 1e12),
        thread_count_max=st.none() | st.integers(1, 10**4),
        object_count=st.integers(1, 10**4),
        message_rate_per_second=st.none() | st.floats(0.01, 1e6),
        work_seconds=st.floats(0.001, 1e3),
        latency_objective_seconds=st.none() | st.floats(0.001, 1e3),
        visibility_timeout_seconds=st.none() | st.floats(1, 43200),
    )
)
def test_a_demand_survives_the_way_out_and_in(demand: Demand) -> None:
    """What a document says was asked for is what asks for it again."""
    query = QUESTION + [(name, str(value)) for name, value in wire.demand_document(demand).items()]
    assert wire.read_question(query).demand == demand


def test_quantities_may_carry_units() -> None:
    """A person with curl writes 1GiB and 50MB/s."""
    question = wire.read_question(
        [*QUESTION, ("bandwidth_bytes_per_second_max", "50MB/s"), ("work_seconds", "20ms")]
    )
    assert question.payload_size_bytes == GiB
    assert question.demand.bandwidth_bytes_per_second_max == 50e6
    assert question.demand.work_seconds == 0.02


@pytest.mark.parametrize("name", ["work_seconds", "latency_objective_seconds"])
@pytest.mark.parametrize("seconds", [5e-05, 1.25e-06, 0.0001, 2.0])
def test_seconds_are_read_as_programs_write_them(name: str, seconds: float) -> None:
    """Python turns 0.00005 into 5e-05: its question was refused, and the SDK's defaults were used."""
    question = wire.read_question([*QUESTION, (name, str(seconds))])
    assert getattr(question.demand, name) == seconds
    claim = wire.read_claim(json.dumps(dict(QUESTION) | {name: seconds}).encode())
    assert claim.question == question


def test_all_mistakes_in_a_question_are_told_at_once() -> None:
    """Whoever mistypes three parameters learns of three."""
    mistakes = mistakes_of(
        [("operation", "s3_nothing"), ("payload_size_bytes", "big"), ("thread_max", "9"), ("regime", "turbo")]
    )
    assert mistakes.keys() == {"operation", "payload_size_bytes", "thread_max", "regime"}
    assert ", ".join(OPERATIONS) in mistakes["operation"]
    assert "thread_count_max" in mistakes["thread_max"]
    assert mistakes["regime"] == "'turbo' is not one of auto, sustained, burst"


@pytest.mark.parametrize(
    ("operation", "service_class", "expected"),
    [
        ("s3_upload", "expres", "standard, express"),
        ("s3_upload", "fifo", "standard, express"),
        ("sqs_delivery", "express", "standard, fifo, fifo-high-throughput"),
    ],
)
def test_a_service_class_that_the_operation_does_not_have_is_refused(
    operation: str, service_class: str, expected: str
) -> None:
    """A slip of the pen must not look like a place of which nothing is known."""
    query = [("operation", operation), ("payload_size_bytes", "1KiB"), ("service_class", service_class)]
    assert mistakes_of(query) == {
        "service_class": f"{service_class!r} is not known; expected one of {expected}"
    }


def test_what_is_missing_is_told() -> None:
    """An empty question is answered with what belongs in it."""
    assert mistakes_of([]).keys() == {"operation", "payload_size_bytes"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("payload_size_bytes", "0"),
        ("payload_size_bytes", "51TiB"),
        ("payload_size_bytes", "50001GiB"),
        ("payload_size_bytes", "9" * 60),
        ("payload_size_bytes", "1" * 5000),
        ("thread_count_max", "-1"),
        ("thread_count_max", "1.5"),
        ("thread_count_max", "\u0663"),
        ("message_rate_per_second", "nan"),
        ("message_rate_per_second", "inf"),
        ("message_rate_per_second", "0"),
        ("message_rate_per_second", "1e-300"),
        ("message_rate_per_second", "1e300"),
        ("work_seconds", "-1"),
        ("work_seconds", "13h"),
        ("work_seconds", "1e-300"),
        ("work_seconds", "1e5"),
        ("visibility_timeout_seconds", "0"),
        ("bandwidth_bytes_per_second_max", "fast"),
        ("bandwidth_bytes_per_second_max", "0." + 60 * "0" + "1"),
        ("bandwidth_bytes_per_second_max", "7bps"),
        ("bandwidth_bytes_per_second_max", "1" + 15 * "0" + "1"),
        ("region", "EU WEST"),
        ("instance_type", "../../etc"),
        ("service_class", ""),
    ],
)
def test_absurd_values_are_refused(name: str, value: str) -> None:
    """No value may reach a model that it was not made for."""
    query = [(key, text) for key, text in QUESTION if key != name]
    assert mistakes_of([*query, (name, value)]).keys() == {name}


def test_a_size_of_ranges_is_of_a_random_reader() -> None:
    """Who names one and does not say that he reads here and there would be advised as if he had not."""
    ranges = ("range_size_bytes", "256KiB")
    assert mistakes_of([*QUESTION, ranges]).keys() == {"range_size_bytes"}
    assert mistakes_of([*QUESTION, ("access", "whole"), ranges]).keys() == {"range_size_bytes"}
    assert wire.read_question([*QUESTION, ("access", "random"), ranges]).demand.range_size_bytes == 256 * KiB


def test_the_largest_payload_is_the_largest_object_that_can_be_uploaded() -> None:
    """Whatever is let through has a legal upload, and the message names a size that is let through."""
    assert wire.PAYLOAD_SIZE_BYTES_MAX == PART_COUNT_MAX * PART_SIZE_BYTES_MAX
    largest, beyond = str(wire.PAYLOAD_SIZE_BYTES_MAX), str(wire.PAYLOAD_SIZE_BYTES_MAX + 1)
    named = "48.8 TiB"
    for text in (largest, "50000GiB", named):
        question = wire.read_question([QUESTION[0], ("payload_size_bytes", text)])
        assert question.payload_size_bytes == parse_bytes(text)
    assert named in mistakes_of([QUESTION[0], ("payload_size_bytes", beyond)])["payload_size_bytes"]
    with pytest.raises(wire.UnreadableError):
        read_reports(a_report(payload_size_bytes=int(beyond)))
    body = json.dumps({"operation": "s3_upload", "payload_size_bytes": int(beyond)}).encode()
    with pytest.raises(wire.UnreadableError):
        wire.read_probe_request(body)


def test_a_message_is_no_larger_than_the_queue_takes() -> None:
    """Advice for messages that cannot be sent would look like any other; nobody can have measured them, either."""
    question = [("operation", "sqs_delivery"), ("payload_size_bytes", "1MiB")]
    assert wire.read_question(question).payload_size_bytes == MiB
    beyond = mistakes_of([question[0], ("payload_size_bytes", "2MiB")])
    assert beyond == {"payload_size_bytes": "2 MiB is more than a message has: at most 1 MiB"}
    setting = dict.fromkeys(("sender_thread_count", "receiver_thread_count", "deleter_thread_count"), 2)
    report = a_report(operation="sqs_delivery", payload_size_bytes=2 * MiB, setting=setting)
    with pytest.raises(wire.UnreadableError, match="more than a message has"):
        read_reports(report)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("object_count", "1000000000001", "from 1 to 1,000,000,000,000"),
        ("thread_count_max", "0", "from 1 to 1,000,000,000,000"),
        ("visibility_timeout_seconds", "13h", "from 1s to 12h"),
        ("visibility_timeout_seconds", "500ms", "from 1s to 12h"),
    ],
)
def test_what_cannot_be_is_not_advised_for(name: str, text: str, told: str) -> None:
    """Applications refuse an answer that speaks of more, and no queue takes such a timeout."""
    assert told in mistakes_of([*QUESTION, (name, text)])[name]


def test_a_parameter_that_is_given_twice_is_refused() -> None:
    """Which of two was meant cannot be known."""
    assert mistakes_of([*QUESTION, ("operation", "sqs_delivery")]) == {"operation": "is given twice"}


def test_a_report_becomes_an_observation_of_this_host() -> None:
    """An application's transfer is evidence of the same kind as a probe, marked with who measured."""
    (observation,) = read_reports(a_report(measures={"retry_count": 2}))
    assert observation.origin is Origin.APPLICATION
    assert observation.client == "boto3"
    assert observation.setting == S3UploadSetting(thread_count=8, part_size_bytes=8 * MiB)
    assert observation.context.place.region == "eu-west-1"
    assert observation.context.place.instance_type == "m7i.large"
    assert observation.started_at == NOW - timedelta(minutes=1)
    assert observation.throughput_bytes_per_second == 32 * MiB
    assert observation.measures == {"retry_count": 2}


def test_a_setting_may_leave_out_what_has_a_default() -> None:
    """A knob that was not touched need not be reported."""
    setting = {
        "sender_thread_count": 2,
        "receiver_thread_count": 2,
        "deleter_thread_count": 2,
        "batch_message_count": 10,
    }
    report = a_report(operation="sqs_delivery", payload_size_bytes=1024, setting=setting)
    (observation,) = read_reports(report)
    assert observation.setting.receive_window_message_count == 0


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"operation": "s3_nothing"}, "operation"),
        ({"setting": {"thread_count": 8}}, "setting.part_size_bytes"),
        ({"setting": {"thread_count": 5000, "part_size_bytes": 8 * MiB}}, "setting.thread_count"),
        ({"setting": {"thread_count": 1.5, "part_size_bytes": 8 * MiB}}, "setting.thread_count"),
        ({"setting": {"thread_count": 8, "part_size_bytes": 8 * MiB, "hope": 1}}, "setting.hope"),
        ({"started_at": "2026-11-21T11:00:00Z"}, "started_at"),
        ({"started_at": "2026-11-19T11:00:00Z"}, "started_at"),
        ({"transferred_bytes": 10**14, "duration_seconds": 1.0}, "transferred_bytes"),
        ({"throttled_count": 6, "failed_count": 5}, "request_count"),
        ({"latency_seconds_p50": 2.0, "latency_seconds_p99": 1.0}, "latency_seconds_p50"),
        ({"measures": {"part_seconds_mean": 1e5}}, "measures.part_seconds_mean"),
        ({"measures": {"sent_count": -1.0}}, "measures.sent_count"),
    ],
)
def test_an_impossible_report_is_refused(changes: dict[str, Any], where: str) -> None:
    """What cannot have happened must not train a model; the sender learns which of its reports it was."""
    with pytest.raises(wire.UnreadableError) as caught:
        read_reports(a_report(), a_report(**changes))
    assert [mistake.where for mistake in caught.value.mistakes] == [f"observations[1].{where}"]


@pytest.mark.parametrize(
    "changes",
    [
        {"duration_seconds": 0},
        {"duration_seconds": "2"},
        {"payload_size_bytes": -1},
        {"request_count": 0},
        {"started_at": "2026-11-21T09:59:00"},
        {"client": "x" * 100},
        {"client": "a\nb"},
        {"client": "boto3\n"},
        {"region": "eu-west-1\n"},
        {"measures": {"retry_count\n": 1.0}},
        {"client_cpu_fraction": 1e9},
        {"latency_seconds_mean": -0.1},
        {"measures": {f"m{i}": 1.0 for i in range(33)}},
        {"measures": {"name with spaces": 1.0}},
        {"surprise": 1},
    ],
)
def test_a_report_of_the_wrong_shape_is_refused(changes: dict[str, Any]) -> None:
    """Types and bounds are checked before anything is believed."""
    with pytest.raises(wire.UnreadableError):
        read_reports(a_report(**changes))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"observations": []}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"observations": NaN}',
    ],
)
def test_a_body_that_is_no_report_is_refused(body: bytes) -> None:
    """Random bytes are a mistake of the sender, whatever they are."""
    with pytest.raises(wire.UnreadableError):
        wire.read_reports(body, region="r", instance_type="i", now=NOW)


def test_each_report_is_read_by_itself() -> None:
    """Whatever is wrong with one of them, in its shape or in what it says, the others are taken."""
    reports = [a_report(), a_report(surprise=1), a_report(client="s5cmd"), a_report(throttled_count=11)]
    body = json.dumps({"observations": [*reports, 7]}).encode()
    read = wire.read_reports(body, region="r", instance_type="i", now=NOW)
    assert [(index, report.client) for index, report in read.readable.items()] == [(0, "boto3"), (2, "s5cmd")]
    assert {index: wrong[0].where for index, wrong in read.mistakes.items()} == {
        1: "observations[1]",
        3: "observations[3].request_count",
        4: "observations[4]",
    }


def test_too_many_reports_at_once_are_refused() -> None:
    """One post has a bound."""
    with pytest.raises(wire.UnreadableError):
        read_reports(*[a_report()] * (wire.REPORT_COUNT_MAX + 1))


MUCH_WRONG = {
    "a claim": json.dumps({f"{index:x}": 1 for index in range(25_000)}),
    "a name of a claim": json.dumps({"x" * 250_000: 1}),
    "knobs of a report": json.dumps(
        {"observations": [a_report(setting={f"k{index:x}": 1 for index in range(25_000)})]}
    ),
    "knobs of many reports": json.dumps(
        {"observations": [a_report(setting={f"k{index:x}": 1 for index in range(200)})] * 100}
    ),
    "a name of a report": json.dumps({"observations": [a_report() | {"x" * 250_000: 1}]}),
}


@pytest.mark.parametrize("body", MUCH_WRONG.values(), ids=MUCH_WRONG)
def test_what_is_told_of_mistakes_is_not_much_more_than_was_sent(body: str) -> None:
    """An answer waits in memory until it is taken: 50 that were 80 times their question were a gigabyte."""
    if "observations" in body:
        reports = wire.read_reports(body.encode(), region="r", instance_type="i", now=NOW)
        told = wire.encode(wire.reports_document(100, reports.mistakes))
    else:
        with pytest.raises(wire.UnreadableError) as caught:
            wire.read_claim(body.encode())
        told = str(caught.value).encode() + wire.encode(
            {"errors": wire.mistakes_document(caught.value.mistakes)}
        )
    assert len(told) < 100_000


def test_how_many_mistakes_are_not_told_is_told() -> None:
    """So that nobody takes the first ones for all."""
    with pytest.raises(wire.UnreadableError, match="; and 68 more") as caught:
        wire.read_question([*QUESTION, *[(f"parameter_{index}", "1") for index in range(100)]])
    assert len(caught.value.mistakes) == wire.MISTAKE_COUNT_MAX


def test_a_probe_can_be_asked_for() -> None:
    """An operator names the operation and the size."""
    body = b'{"operation": "s3_upload", "payload_size_bytes": 1048576}'
    assert wire.read_probe_request(body) == ("s3_upload", MiB)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"operation": "s3_nothing", "payload_size_bytes": 1}'])
def test_a_probe_of_nothing_is_refused(body: bytes) -> None:
    """What is not in the table cannot be probed."""
    with pytest.raises(wire.UnreadableError):
        wire.read_probe_request(body)


def test_the_snapshot_document_holds_every_recommendation() -> None:
    """The list carries its generation once for itself and in each entry."""
    snapshot = wire.Snapshot(
        generation=3,
        generated_at=NOW,
        region="eu-west-1",
        instance_type="m7i.large",
        recommendations=(a_recommendation(), a_recommendation("sqs_delivery", 1024)),
    )
    document = wire.snapshot_document(snapshot)
    assert [entry["operation"] for entry in document["recommendations"]] == ["s3_upload", "sqs_delivery"]
    assert {entry["generation"] for entry in document["recommendations"]} == {3}


NO_TEXT = {
    "a byte that is no UTF-8": b'{"operation":"\xff"}',
    "such a name": b'{"\xc0\xaf":1}',
    "half a surrogate": b'{"operation":"\\ud800"}',
    "depth without an end": b'{"operation":' * 100_000,
    "nothing": b"",
}


@pytest.mark.parametrize("body", NO_TEXT.values(), ids=NO_TEXT)
def test_what_is_no_text_is_unreadable(body: bytes) -> None:
    """Bytes that nobody meant are a mistake of the sender, wherever they are posted: never a fault of the daemon."""
    in_a_list = b'{"observations":[' + body + b"]}"
    for post in (body, in_a_list):
        with pytest.raises(wire.UnreadableError):
            wire.read_claim(post)
        with pytest.raises(wire.UnreadableError):
            wire.read_probe_request(post)
        try:
            reports = wire.read_reports(post, region="eu-west-1", instance_type="m7i.large", now=NOW)
        except wire.UnreadableError:
            continue
        assert not reports.readable
        assert reports.mistakes
