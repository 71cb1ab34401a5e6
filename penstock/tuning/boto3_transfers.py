"""Knows how boto3 moves the files of a folder: a tool in a process of its own, which can be ended at any time.

    python -m penstock.tuning.boto3_transfers

reads what to upload as a line of JSON from standard input, and prints a line of JSON: the times, or the trouble in a
sentence. With `into` it downloads what was uploaded from that folder into another one. It removes nothing: its caller
does, even if this process was ended in the middle of a part.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_REFUSED_CODES = {
    "AccessDenied",
    "ExpiredToken",
    "Forbidden",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
}
_ELSEWHERE_CODES = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
_TROUBLE_LENGTH_MAX = 400


def main() -> int:
    """Transfer once; the exit code is 0 also for trouble that is reported."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it silently
    print(json.dumps(transfer(json.loads(sys.stdin.readline()))))  # noqa: T201  # this is a command
    return 0


def transfer(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Times and throttled count; or the trouble, and whether anything may have arrived."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    answers: list[int] = []
    try:
        seconds, file_seconds = _timed(wanted, answers)
    except (Boto3Error, BotoCoreError, ClientError, ValueError) as trouble:
        return {"trouble": sentence(trouble, wanted), "has_begun": any(200 <= x < 300 for x in answers)}
    return {"duration_seconds": seconds, "throttled_count": answers.count(503), "file_seconds": file_seconds}


def sentence(trouble: BaseException, wanted: Mapping[str, Any]) -> str:
    """What went wrong and what to do about it."""
    from boto3.exceptions import S3UploadFailedError
    from botocore import exceptions

    if isinstance(trouble, S3UploadFailedError) and trouble.__context__ is not None:
        trouble = trouble.__context__  # S3's answer, without our file names
    said = " ".join(str(trouble).split())[:_TROUBLE_LENGTH_MAX].rstrip(".")
    if isinstance(trouble, exceptions.ClientError):
        return _refusal(trouble.response.get("Error", {}).get("Code", ""), said, wanted)
    if isinstance(trouble, exceptions.NoRegionError):
        return "boto3 knows no region: name it with --region"
    if isinstance(trouble, (exceptions.ConnectionError, exceptions.HTTPClientError)):
        return f"S3 cannot be reached ({said}): check --endpoint-url, --region and the network"
    without_credentials = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.ProfileNotFound,
    )
    if isinstance(trouble, without_credentials):
        return (
            f"boto3 has no credentials ({said}): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or AWS_PROFILE to a profile that has some"
        )
    return f"boto3 cannot upload: {said}"


def _refusal(code: str, said: str, wanted: Mapping[str, Any]) -> str:
    if code == "NoSuchBucket":
        where = f" at {wanted['endpoint_url']}" if wanted["endpoint_url"] else ""
        return f"there is no bucket {wanted['bucket']}{where}: create it, or name another with --bucket"
    if code in _ELSEWHERE_CODES:
        return f"the bucket {wanted['bucket']} is in another region ({said}): name it with --region"
    if code in _REFUSED_CODES:
        return f"S3 refuses the upload ({said}): check the credentials, and what they permit on the bucket"
    return f"S3 refuses the upload: {said}"


def _timed(wanted: Mapping[str, Any], answers: list[int]) -> tuple[float, list[float]]:
    """Seconds of the transfer, without imports, and until each file had arrived.

    The status of each answer is appended to `answers`, including retried ones.
    """
    import boto3 as sdk
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    def note(response_dict: Mapping[str, Any] | None = None, **_: object) -> None:
        if response_dict is not None:
            answers.append(response_dict["status_code"])

    threads, size = wanted["thread_count"], wanted["request_size_bytes"]
    path_style = {"addressing_style": "path"} if wanted["endpoint_url"] else {}
    pool = Config(max_pool_connections=threads + 1, s3=path_style)
    client = sdk.client("s3", region_name=wanted["region"], endpoint_url=wanted["endpoint_url"], config=pool)
    client.meta.events.register("response-received.s3", note)
    transfer = TransferConfig(
        max_concurrency=threads,
        multipart_chunksize=size,
        multipart_threshold=size + 1,
        preferred_transfer_client="classic",  # the CRT's ignores the number of threads
    )

    def move(file: Path) -> float:
        key = wanted["prefix"] + file.name
        if wanted.get("into") is None:
            client.upload_file(str(file), wanted["bucket"], key, Config=transfer)
        else:
            client.download_file(wanted["bucket"], key, str(Path(wanted["into"], file.name)), Config=transfer)
        return time.perf_counter() - started

    files = sorted(Path(wanted["folder"]).iterdir())
    started = time.perf_counter()
    with ThreadPoolExecutor(threads if len(files) > 1 else 1) as pool_of_threads:
        file_seconds = list(pool_of_threads.map(move, files))
    return time.perf_counter() - started, file_seconds


if __name__ == "__main__":
    sys.exit(main())
