"""Permissions are tried as the rows say, with nothing left and each refusal told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.lab.virtual_time import VirtualClock
from penstock.operations.operation import Operation, Ward
from penstock.operations.table import OPERATIONS
from penstock.probes.finding import Finding, Health
from penstock.probes.outside import Barred, Denied, Missing, RequestError, Unreachable, VersionRequests
from tests.unit.daemon.house import Outside
from tests.unit.probes.fakes import MemoryStore, virtually

POLICY = Path(__file__).parents[3] / "penstock/cli/systemd/iam-policy.json"
ROWS = tuple(OPERATIONS.values())
DIRECTORY = "probe--euw1-az1--x-s3"
ACTIONS = {  # of the fakes, and what a policy calls them
    "delete": {"s3": "s3:DeleteObject", "sqs": "sqs:DeleteMessage"},
    "list": {"s3": "s3:ListBucket"},
    "abort": {"s3": "s3:AbortMultipartUpload"},
    "create": {"s3": "s3:PutObject", "sqs": "sqs:CreateQueue"},
    "find": {"sqs": "sqs:GetQueueUrl"},
    "attributes": {"sqs": "sqs:GetQueueAttributes"},
    "send": {"sqs": "sqs:SendMessage"},
    "receive": {"sqs": "sqs:ReceiveMessage"},
    "remove": {"sqs": "sqs:DeleteQueue"},
}
REFUSED = [
    pytest.param(row, action, names[row.service], id=f"{row.name}-{action}")
    for row in ROWS
    for action, names in ACTIONS.items()
    if row.service in names
]


def examined(
    row: Operation[Any, Any], refused: str = "", kind: type[RequestError] = Denied, **section: Any
) -> tuple[list[Finding], Outside]:
    """All findings about an operation whose store or queues refuse one action."""
    outside = Outside()

    def trouble(action: str, _count: int) -> RequestError | None:
        return kind(f"no {action}") if action == refused else None

    outside.objects.trouble = outside.queues.trouble = trouble
    configured = msgspec.structs.replace(row.section_type(), **section)
    ward = Ward(outside=outside, region="eu-west-1", host_name="host", subject=row.name)

    async def story(_clock: VirtualClock) -> list[Finding]:
        return [finding async for finding in row.try_permissions(configured, ward)]

    return virtually(story), outside


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("class_index", [0, -1])
def test_where_all_is_permitted_nothing_is_left_and_little_was_done(
    row: Operation[Any, Any], class_index: int
) -> None:
    """No object, upload or queue, nothing stored meanwhile, and a dozen requests at the most; of every class."""
    findings, outside = examined(row, service_class=row.service_classes[class_index])
    assert {finding.health for finding in findings} == {Health.WELL}
    assert len({finding.sentence for finding in findings}) == len(findings) >= 5
    assert (outside.objects.uploads, outside.objects.objects, outside.queues.attributes) == ({}, set(), {})
    assert outside.objects.uploaded_sizes == []
    assert outside.objects.request_count + outside.queues.request_count <= 12


def test_what_is_tried_is_what_the_policy_allows() -> None:
    """Action by action: the policy that comes with the service allows no more than is needed, and no less."""
    tried = {f.sentence.split()[0] for row in ROWS for f in examined(row)[0]}
    tried |= {f.sentence.split()[0] for f in examined(OPERATIONS["s3_download"], bucket=DIRECTORY)[0]}
    statements = json.loads(POLICY.read_text(encoding="utf-8"))["Statement"]
    allowed = [s["Action"] for s in statements if s["Sid"] != "WatchQueue"]
    assert tried == {name for names in allowed for name in ([names] if isinstance(names, str) else names)}


@pytest.mark.parametrize(("row", "refused", "name"), REFUSED)
def test_what_is_refused_is_told_by_its_name_in_a_policy(
    row: Operation[Any, Any], refused: str, name: str
) -> None:
    """With what to allow; and no upload is begun that could not be aborted."""
    findings, outside = examined(row, refused)
    ill = [finding for finding in findings if finding.health is Health.ILL]
    assert any(name in finding.sentence and name in finding.remedy for finding in ill)
    assert outside.objects.uploads == {}


def test_where_no_permission_helps_none_is_asked_for() -> None:
    """A clock that is wrong is refused everywhere: the sentence says what to do, and to allow more is not it."""
    findings, _ = examined(OPERATIONS["s3_upload"], "create", Barred)
    assert [finding.remedy for finding in findings if finding.health is Health.ILL] == [""]


def test_a_queue_that_cannot_be_removed_is_named() -> None:
    """Whoever may make queues and not remove them hears which one is left."""
    findings, outside = examined(OPERATIONS["sqs_delivery"], "remove")
    (left,) = outside.queues.attributes
    assert left in findings[-1].sentence
    assert left in findings[-1].remedy


def test_a_bucket_that_is_not_there_is_one_finding() -> None:
    """All else would follow from it."""
    findings, _ = examined(OPERATIONS["s3_download"], "list", Missing)
    assert [finding.health for finding in findings] == [Health.ILL]
    assert "create the bucket" in findings[0].remedy


def test_a_bucket_that_keeps_versions_is_told_before_anything_is_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock would keep what a probe puts, and a replica of it is nobody's to remove: neither can be seen from here."""

    async def delete(*_: object) -> VersionRequests:
        return VersionRequests(listing_count=1, deletion_count=1)

    monkeypatch.setattr(MemoryStore, "delete_object", delete)
    findings, _ = examined(OPERATIONS["s3_upload"])
    (told,) = (finding for finding in findings if finding.health is not Health.WELL)
    assert told.health is Health.POOR
    assert "keeps versions" in told.sentence


def test_an_object_that_is_named_has_to_be_there_and_nothing_is_tried_but_reading() -> None:
    """One byte of it; what a probe does not do needs no permission."""
    findings, outside = examined(OPERATIONS["s3_download"], object_key="large")
    assert "put the object there" in findings[-1].remedy
    assert set(outside.objects.counts) <= {"look"}


def test_who_may_not_read_a_named_object_hears_that_it_may_be_for_the_requester_to_pay() -> None:
    """S3 denies that in the same words, and whoever grants what is granted already finds nothing out."""
    findings, _ = examined(OPERATIONS["s3_download"], "look", object_key="large")
    assert "if the requester pays for this bucket, also set requester_pays" in findings[-1].remedy
    of_others, _ = examined(OPERATIONS["s3_download"], "look")
    assert "requester" not in of_others[-1].remedy


def test_no_answer_is_no_matter_of_permissions() -> None:
    """The remedy is another."""
    findings, _ = examined(OPERATIONS["s3_upload"], "list", Unreachable)
    assert "route" in findings[0].remedy
    assert findings[0].health is Health.ILL
