"""An application with unmodified boto3 is heard: what is said of it against what the service and the threads did."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from statistics import median

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.clock import SystemClock
from penstock.daemon.heard.hearing import Hearing
from penstock.lab.http_s3 import s3_application
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.models.inference.histogram import quantile
from penstock.trial.stage import CREDENTIALS
from tests.factories import a_link
from tests.unit.daemon.heard.test_hearing import listening
from tests.waiting import comes

THREAD_COUNT = 6
CALL_COUNT = 24
LINK = a_link(service_latency_seconds_median=0.25)
APPLICATION = """
import json, sys, time, threading, queue
import boto3
from botocore.config import Config
url, threads, requests = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config = Config(max_pool_connections=threads, retries={"max_attempts": 5, "mode": "standard"})
s3 = boto3.client("s3", endpoint_url=url, region_name="eu-west-1", config=config)
work, seconds = queue.SimpleQueue(), []
for number in range(requests):
    work.put(number)
def drain():
    while True:
        try:
            number = work.get_nowait()
        except queue.Empty:
            return
        begun = time.monotonic()
        s3.put_object(Bucket="b", Key=str(number), Body=b"x" * 1000)
        seconds.append(time.monotonic() - begun)
running = [threading.Thread(target=drain) for _ in range(threads)]
for one in running:
    one.start()
for one in running:
    one.join()
print(json.dumps(seconds))
"""


async def test_an_application_is_heard_as_it_was() -> None:
    """Calls are exact, also by the service's count; an attempt takes longer than its answer, and less than a call."""
    service, hearing = S3Service(LINK, clock=SystemClock(), seed=0), Hearing(SystemClock())
    service.shelf.create_bucket("b")
    answer_seconds: list[float] = []

    @web.middleware
    async def timed(request: web.Request, handler: Handler) -> web.StreamResponse:
        begun = time.monotonic()
        response = await handler(request)
        answer_seconds.append(time.monotonic() - begun)
        return response

    application_of_service = s3_application(service)
    application_of_service.middlewares.append(timed)
    async with serving(application_of_service) as url, listening(hearing) as sender:
        application = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", APPLICATION, url, str(THREAD_COUNT), str(CALL_COUNT)),
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
                **CREDENTIALS,
                "AWS_SESSION_TOKEN": "CANARY7SECRETS",
                "AWS_CSM_ENABLED": "true",
                "AWS_CSM_PORT": str(sender.getpeername()[1]),
                "AWS_CSM_CLIENT_ID": "backup",
            },
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await application.communicate()
        await comes(lambda: hearing.heard_count == 2 * service.request_count)
    call_seconds = json.loads(output)
    (heard,) = hearing.series()
    assert heard.key.application.name == "backup"
    assert heard.key.application.product == "Boto3"
    assert heard.call_count == heard.attempt_count == service.request_count == CALL_COUNT
    # Counted in classes, which are within 7 % of what was told.
    assert 0.93 * median(answer_seconds) < quantile(heard.latencies, 0.5) < 1.07 * median(call_seconds)
    assert 1.0 < heard.in_flight_count_mean <= heard.in_flight_count_max
    # Latencies are told in whole milliseconds, and end when their datagram has come: later on a busy host.
    assert heard.in_flight_count_max < THREAD_COUNT + 0.5
    assert "CANARY7SECRETS" not in repr(heard)
