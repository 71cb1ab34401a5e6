"""What boto3 raises, as a sentence that says what to do."""

from __future__ import annotations

import pytest
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError, NoRegionError, PartialCredentialsError, ReadTimeoutError

from penstock.tuning.boto3_transfers import sentence

WANTED = {"bucket": "b", "endpoint_url": None, "region": None}


def refused(code: str) -> ClientError:
    """The answer of S3 with this code."""
    return ClientError({"Error": {"Code": code, "Message": "no\nway"}}, "PutObject")


@pytest.mark.parametrize(
    ("trouble", "beginning", "advice"),
    [
        (refused("NoSuchBucket"), "there is no bucket b", "--bucket"),
        (refused("PermanentRedirect"), "the bucket b is in another region", "--region"),
        (refused("InvalidAccessKeyId"), "S3 refuses the upload", "check the credentials"),
        (refused("SlowDown"), "S3 refuses the upload", "SlowDown"),
        (NoRegionError(), "boto3 knows no region", "--region"),
        (PartialCredentialsError(provider="env", cred_var="x"), "boto3 has no credentials", "AWS_PROFILE"),
        (ReadTimeoutError(endpoint_url="http://x"), "S3 cannot be reached", "--endpoint-url"),
        (ValueError("Invalid endpoint: x" + "y" * 1000), "boto3 cannot upload", "Invalid endpoint: x"),
    ],
)
def test_everyday_mistakes_are_sentences(trouble: BaseException, beginning: str, advice: str) -> None:
    """One bounded line, with what to do where that is known."""
    said = sentence(trouble, WANTED)
    assert said.startswith(beginning)
    assert advice in said
    assert "\n" not in said
    assert len(said) < 600


def test_the_answer_of_s3_counts_and_not_what_is_wrapped_around_it() -> None:
    """The transfer manager says which of our own files failed, which nobody knows by name."""
    wrapped = S3UploadFailedError("Failed to upload /tmp/x to b/x: ...")
    wrapped.__context__ = refused("NoSuchBucket")
    assert sentence(wrapped, WANTED).startswith("there is no bucket b:")
