"""Datagrams of SDKs are read as botocore writes them; secrets and nonsense in them are never read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError
from botocore.monitoring import APICallAttemptEvent, APICallEvent, CSMSerializer

from penstock.listening.datagram import DATAGRAM_BYTES_MAX, Application, Heard, Key, heard

CANARY = "CANARY7SECRETS"
USER_AGENT = "Boto3/1.43.117 md/Botocore#1.43.117 ua/2.1 os/linux#6.1 app/nightly cfg/retry-mode#legacy"


def sent(event: APICallEvent | APICallAttemptEvent, client_id: str = "") -> bytes:
    """What botocore would send of it."""
    return bytes(CSMSerializer(csm_client_id=client_id).serialize(event))


def an_attempt(**changed: Any) -> APICallAttemptEvent:
    """A part that was uploaded by credentials that must not be seen."""
    event = APICallAttemptEvent(service="S3", operation="UploadPart", timestamp=1_800_000_000_000, latency=87)
    event.url = "https://private-bucket.s3.eu-central-1.amazonaws.com/key"
    event.http_status_code = 200
    event.request_headers = {
        "User-Agent": USER_AGENT,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={CANARY}/20261122/eu-central-1/s3/aws4_request, Signature=1",
        "X-Amz-Security-Token": f"{CANARY}-TOKEN",
    }
    for name, value in changed.items():
        setattr(event, name, value)
    return event


def test_an_attempt_is_read_without_what_signed_it() -> None:
    """The key and the token are in the datagram and in nothing that is made of it."""
    datagram = sent(an_attempt())
    assert datagram.count(CANARY.encode()) == 2
    assert heard(datagram) == Heard(
        key=Key(
            application=Application(name="nightly", product="Boto3", version="1.43.117"),
            service="S3",
            api="UploadPart",
            region="eu-central-1",
        ),
        latency_seconds=0.087,
        is_call=False,
    )
    assert CANARY not in repr(heard(datagram))
    assert "private-bucket" not in repr(heard(datagram))


@pytest.mark.parametrize(
    ("changed", "is_refused", "is_failed"),
    [
        ({"http_status_code": 503, "parsed_error": {"Code": "SlowDown", "Message": ""}}, True, False),
        (
            {"http_status_code": 400, "parsed_error": {"Code": "ThrottlingException", "Message": ""}},
            True,
            False,
        ),
        ({"http_status_code": 500, "parsed_error": {"Code": "InternalError", "Message": ""}}, False, True),
        ({"http_status_code": None, "wire_exception": ConnectTimeoutError(endpoint_url="x")}, False, True),
        ({"http_status_code": 404, "parsed_error": {"Code": "NoSuchKey", "Message": ""}}, False, False),
    ],
)
def test_what_an_sdk_tries_again_is_told_from_what_the_application_did(
    changed: dict[str, Any], is_refused: bool, is_failed: bool
) -> None:
    """Refused for being too many, broken, or the application's own affair."""
    found = heard(sent(an_attempt(**changed)))
    assert found is not None
    assert (found.is_refused, found.is_failed) == (is_refused, is_failed)


def test_a_call_tells_how_often_it_was_tried() -> None:
    """Attempts beyond the first are what the SDK hides; the name that the operator gave goes before others."""
    call = APICallEvent(service="SQS", operation="DeleteMessage", timestamp=0, latency=140)
    call.attempts = [an_attempt(), an_attempt()]
    found = heard(sent(call, client_id="consumer.service"))
    assert found is not None
    assert (found.is_call, found.attempt_count, found.latency_seconds) == (True, 2, 0.140)
    assert found.key.application.name == "consumer.service"


GOOD = json.loads(sent(an_attempt()))


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[" * 8000,
        b'{"x":' * 1600,
        b" " * (DATAGRAM_BYTES_MAX + 1),
        json.dumps(GOOD | {"More": "x" * DATAGRAM_BYTES_MAX}).encode(),
        *(
            json.dumps(GOOD | wrong).encode()
            for wrong in (
                {"Type": "Other"},
                {"Version": 2},
                {"AttemptLatency": -1},
                {"AttemptLatency": 1e300},
                {"AttemptLatency": "87"},
                {"Api": "x" * 65},
                {"Api": "Put\nObject"},
                {"Service": "<script>"},
                {"Region": "../../etc"},
                {"ClientId": "a\x1b[31m"},
                {"UserAgent": "x" * 257},
            )
        ),
    ],
)
def test_what_nobody_sends_is_nothing(datagram: bytes) -> None:
    """Damaged, huge, deep and out of bounds: one answer for all, and no exception."""
    assert heard(datagram) is None


def test_gos_sdk_leaves_the_version_out_of_calls() -> None:
    """As version 1 of it writes them; without this, attempts were heard and no calls."""
    datagram = json.dumps(
        {
            "ClientId": "",
            "Api": "UploadPart",
            "Service": "S3",
            "Timestamp": 1_795_385_994_010,
            "Type": "ApiCall",
            "AttemptCount": 2,
            "Latency": 144,
            "UserAgent": "aws-sdk-go/1.44.298 (go1.26.8; linux; amd64) S3Manager",
            "Region": "eu-central-1",
            "FinalHttpStatusCode": 200,
            "MaxRetriesExceeded": 0,
        }
    ).encode()
    found = heard(datagram)
    assert found is not None
    assert (found.is_call, found.attempt_count) == (True, 2)
    assert (found.key.application.product, found.key.application.version) == ("aws-sdk-go", "1.44.298")
