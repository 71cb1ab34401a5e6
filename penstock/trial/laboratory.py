"""Knows the lab as users start it: servers, a bucket, a queue, and the environment by which any SDK finds them."""

from __future__ import annotations

import contextlib
import json
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from penstock.lab.server import HERE
from penstock.lab.worlds import World
from penstock.trial.faces.face import REGION
from penstock.trial.stage import CREDENTIALS, lab_endpoint

BUCKET = "lab"
QUEUE_NAME = "lab"
FOREIGN = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL")
"""Variables that would lead elsewhere, or send a real token to the lab."""
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Laboratory:
    """A running lab: its world, endpoints and queue."""

    world: World
    s3_endpoint_url: str
    sqs_endpoint_url: str
    queue_url: str

    def environment(self, existing: Mapping[str, str]) -> dict[str, str]:
        """The variables to set, so that AWS SDKs and command lines speak only with the lab."""
        without_proxy = existing.get("no_proxy") or existing.get("NO_PROXY") or ""
        host = urlsplit(self.s3_endpoint_url).hostname or HERE
        if host not in without_proxy.split(","):
            without_proxy = f"{without_proxy},{host}".strip(",")
        return {
            "AWS_ENDPOINT_URL_S3": self.s3_endpoint_url,
            "AWS_ENDPOINT_URL_SQS": self.sqs_endpoint_url,
            "S3_ENDPOINT_URL": self.s3_endpoint_url,  # the only one that s5cmd reads
            "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",
            **CREDENTIALS,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "NO_PROXY": without_proxy,
            "no_proxy": without_proxy,
            "LAB_BUCKET": BUCKET,
            "LAB_QUEUE_URL": self.queue_url,
        }


@contextlib.contextmanager
def laboratory(world: World, *, address: str = HERE, port: int = 0) -> Iterator[Laboratory]:
    """Run the servers while the context lasts: S3 on the port, SQS on the next one. Raises StageError."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-lab-")))
        s3 = stack.enter_context(lab_endpoint("s3", world, directory, address=address, port=port))
        after = port + 1 if port else 0
        sqs = stack.enter_context(lab_endpoint("sqs", world, directory, address=address, port=after))
        _ask(urllib.request.Request(f"{s3}/{BUCKET}", method="PUT"))  # noqa: S310 - our own servers
        timeout = str(world.queue.visibility_timeout_seconds)
        queue = {"QueueName": QUEUE_NAME, "Attributes": {"VisibilityTimeout": timeout}}
        made = _ask(
            urllib.request.Request(  # noqa: S310 - as above
                sqs,
                data=json.dumps(queue).encode(),
                headers={
                    "X-Amz-Target": "AmazonSQS.CreateQueue",
                    "Content-Type": "application/x-amz-json-1.0",
                },
            )
        )
        yield Laboratory(
            world=world, s3_endpoint_url=s3, sqs_endpoint_url=sqs, queue_url=json.loads(made)["QueueUrl"]
        )


def _ask(request: urllib.request.Request) -> bytes:
    """The body of the response, without using a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
        body: bytes = response.read()
    return body
