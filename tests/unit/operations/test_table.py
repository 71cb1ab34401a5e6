"""What the rest of penstock takes from the rows: names, classes, pools, mistakes in sections, leftovers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from penstock.daemon import config
from penstock.daemon.outside.aws import AwsOutside
from penstock.models.sqs.queue_class import QUEUE_CLASSES
from penstock.operations.operation import Operation, Service
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.sections.objects import ObjectSection
from penstock.operations.sections.queues import QueueSection
from penstock.operations.sqs.delivery import DELIVERY
from penstock.operations.table import OPERATIONS
from penstock.probes.probe import Leftover, LeftoverKind
from penstock.units import MiB
from penstock.vocabulary import Context, Place, setting_values

DRIVEN: dict[str, float] = {
    "sender_thread_count": 2,
    "receiver_thread_count": 3,
    "deleter_thread_count": 5,
    "batch_message_count": 10,
    "send_rate_limit_messages_per_second": 0.0,
    "send_window_message_count": 0,
    "receive_window_message_count": 2800,
}
ROWS = tuple(OPERATIONS.values())
CONFIGURATION = config.Configuration(
    probes=config.ProbesSection(
        s3_upload=ObjectSection(is_enabled=True, bucket="b", thread_count_max=16),
        sqs_delivery=QueueSection(is_enabled=True, thread_count_max=10),
    )
)


def pool(configuration: config.Configuration, service: Service) -> int:
    """How many connections the client of a service may open."""
    return AwsOutside(configuration)._access(service, "r", None).connection_count_max


@pytest.fixture
def greedy(monkeypatch: pytest.MonkeyPatch) -> Operation[Any, Any]:
    """A second operation on S3, which has 256 threads."""
    row = dataclasses.replace(UPLOAD, name="s3_greedy")
    section = ObjectSection(is_enabled=True, bucket="b", thread_count_max=256)
    monkeypatch.setitem(OPERATIONS, row.name, row)
    section_of = config.Configuration.section_of
    monkeypatch.setattr(
        config.Configuration,
        "section_of",
        lambda self, asked: section if asked is row else section_of(self, asked),
    )
    return row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_socket_takes_the_classes_that_can_be_configured(row: Operation[Any, Any]) -> None:
    """What can be probed can be asked about, and nothing else."""
    assert row.service_classes == get_args(get_type_hints(row.section_type)["service_class"])


def test_every_class_of_queue_can_be_probed() -> None:
    """A new class of queue is not forgotten in the configuration."""
    assert DELIVERY.service_classes == tuple(QUEUE_CLASSES)


def test_no_probe_measures_its_own_pool() -> None:
    """Each service has a connection for each request that a probe has in flight: senders, receivers and deleters."""
    assert pool(CONFIGURATION, Service.S3) >= 16
    assert pool(CONFIGURATION, Service.SQS) >= 3 * 10


def test_the_pool_serves_the_hungriest_operation(greedy: Operation[Any, Any]) -> None:
    """An operation with 256 threads beside one with 16 has 256 connections, not 16."""
    assert pool(CONFIGURATION, Service.S3) >= 256
    assert pool(CONFIGURATION, Service.SQS) < 256


def test_each_operation_finds_its_own_contradictions(tmp_path: Path, greedy: Operation[Any, Any]) -> None:
    """A bucket that is missing is told of the section where it is missing."""
    section = ObjectSection(is_enabled=True)
    (missing,) = section.contradictions(f"probes.{greedy.name}")
    assert missing.key == "probes.s3_greedy.bucket"
    assert "because probes.s3_greedy.is_enabled is true" in missing.sentence


def test_what_was_left_is_looked_for_where_it_is() -> None:
    """A bucket in the region that it was made in, a queue in that of its entry, as long as they are probed there."""
    objects = ObjectSection(bucket="b-{region}", regions=("r1", "r2"))
    left = Leftover(kind=LeftoverKind.S3_OBJECT, service=UPLOAD.name, container="b-r2", name="k/")
    assert objects.region_of(left, "home") == "r2"
    assert objects.region_of(dataclasses.replace(left, container="gone"), "home") is None
    queue = Leftover(kind=LeftoverKind.SQS_QUEUE, service=DELIVERY.name, container="r3", name="q")
    assert QueueSection().region_of(queue, "r3") == "r3"
    assert QueueSection().region_of(queue, "home") is None


@pytest.mark.parametrize(
    ("operation", "setting", "size_bytes", "shown"),
    [
        ("s3_upload", {"thread_count": 24, "part_size_bytes": 8 * MiB}, 64 * MiB, "24 x 8 MiB"),
        ("s3_upload", {"thread_count": 24, "part_size_bytes": 8 * MiB}, 2048, "24 at a time"),
        ("s3_download", {"thread_count": 24, "range_size_bytes": 8 * MiB}, 64 * MiB, "24 x 8 MiB"),
        ("sqs_delivery", DRIVEN, 1024, "2/3/5 x 10, window 2,800"),
        (
            "sqs_delivery",
            {**DRIVEN, "send_window_message_count": 40, "send_rate_limit_messages_per_second": 512.5},
            1024,
            "2/3/5 x 10, window 2,800, send window 40, limit 512/s",
        ),
    ],
)
def test_a_setting_reads_in_short(
    operation: str, setting: dict[str, float], size_bytes: int, shown: str
) -> None:
    """Numbers that are read at a glance, no name of a field, and no part of what goes whole."""
    assert OPERATIONS[operation].words.setting(setting, size_bytes) == shown


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_setting_of_the_ramp_reads_in_short(row: Operation[Any, Any]) -> None:
    """Whatever the model proposes fits into a line with the rest of what is said of it."""
    context = Context(place=Place(operation=row.name, region="r", instance_type="i"), payload_size_bytes=MiB)
    for setting in (*row.model.ramp(context), row.model.default_setting(context)):
        said = row.words.setting(setting_values(setting), MiB)
        assert 0 < len(said) <= 60
        assert "_" not in said
