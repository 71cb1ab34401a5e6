"""What is left behind in stores that others wrote is found and removed: by a sweep, after `kill -9`, after Ctrl-C."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.lab.link import LinkTruth
from penstock.probes.aws.access import Access
from penstock.probes.aws.objects import open_object_store
from penstock.probes.outside import NotOffered
from penstock.probes.removal import Removal
from penstock.trial.stage import CREDENTIALS
from tests.daemon_house import DaemonHouse
from tests.real import provision
from tests.real.far_away import a_region_away
from tests.real.servers import KEY, REGION, Minio, at_the_end_of, plain_client
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]  # the first test waits for the build

KILL_COUNTS = {"minio": 30, "versitygw": 10}  # a start takes seconds
# What arrives after the first sweep is found by the second, three minutes later; trouble in one puts off the next.
GONE_SECONDS_MAX = 600.0
PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
A_PART_TAKES_SECONDS = LinkTruth(
    round_trip_seconds=0.010,
    connection_rate_bytes_per_second=1e6,
    host_rate_bytes_per_second=2e6,
    service_latency_seconds_median=0.010,
)


@dataclass(frozen=True)
class Place:
    """A store, an empty bucket in it, and who says what is left there."""

    store: str
    url: str
    bucket: str
    left: Callable[[], list[str]]


@pytest.fixture
def place(store: str, store_url: str, request: pytest.FixtureRequest) -> Place:
    """In each of the two."""
    name = f"real-{uuid.uuid4().hex[:12]}"
    minio: Minio | None = request.getfixturevalue("minio") if store == "minio" else None
    client = plain_client("s3", store_url)
    client.create_bucket(Bucket=name)

    def left() -> list[str]:
        objects = client.list_objects_v2(Bucket=name).get("Contents", [])
        uploads = client.list_multipart_uploads(Bucket=name).get("Uploads", [])
        unfinished = minio.unfinished_uploads() if minio else []
        return [*(entry["Key"] for entry in (*objects, *uploads)), *unfinished]

    return Place(store, store_url, name, left)


async def test_a_run_is_cleared_by_five_requests(place: Place) -> None:
    """Two listings, an abort, one deletion of hundreds of objects, and one that would tell of versions.

    Of its neighbours nothing goes.
    """
    bucket, left = place.bucket, place.left
    async with open_object_store(Access(region=REGION, endpoint_url=place.url, credentials=KEY)) as store:
        for key in [f"p/run/{number:04}" for number in range(200)]:
            await store.put_object(bucket, key, b"x")
        upload_id = await store.create_multipart_upload(bucket, "p/run/object")
        await store.upload_part(bucket, "p/run/object", upload_id, 1, b"x" * 5 * 2**20)
        await store.put_object(bucket, "p/run2", b"x")
        removal = Removal(store, bucket)
        assert await removal.clear("p/run/") == 201
        assert left() == ["p/run2"]
        assert removal.request_count == 5
        with contextlib.suppress(NotOffered):
            await store.delete_objects(bucket, ["p/run2", "not/there"])
        assert left() == []


@pytest.fixture
def house(tmp_path: Path, place: Place, sqs_url: str) -> Iterator[DaemonHouse]:
    """A configured place for a daemon, a region away from its servers."""
    with a_region_away(tmp_path, place.url, sqs_url, place.bucket) as house:
        yield house


def test_kills_at_any_moment_leave_nothing(house: DaemonHouse, place: Place) -> None:
    """`kill -9` at random instants, each start sweeping what the life before left; the last life is let be."""
    dice = random.Random(13)
    for _ in range(KILL_COUNTS[place.store]):
        with house.daemon() as running:
            time.sleep(dice.uniform(0.0, 2.5))  # the moment itself is random: nothing is waited for
            os.kill(running.pid, signal.SIGKILL)
    text = house.configuration_file.read_text()
    house.configuration_file.write_text(text.replace("is_enabled = true", "is_enabled = false"))

    def all_left() -> list[str]:
        return [*place.left(), *house.sqs.list_queues().get("QueueUrls", [])]

    with house.daemon():
        try:
            until(lambda: not all_left(), GONE_SECONDS_MAX)
        except AssertionError as late:
            raise AssertionError(f"{late}: {all_left()}, known {house.ask('/v1/leftovers')}") from late
    assert all_left() == []


@pytest.mark.parametrize("client", ["boto3", "s5cmd"])
def test_an_interrupted_tuning_leaves_nothing(client: str, tmp_path: Path, place: Place) -> None:
    """Ctrl-C in the midst of a part: no object and no unfinished upload, also where those are listed by key alone."""
    url, bucket, left = place.url, place.bucket, place.left
    folder = provision.s5cmd().parent if client == "s5cmd" else tmp_path
    environment = {
        **os.environ,
        **CREDENTIALS,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    with at_the_end_of(A_PART_TAKES_SECONDS, url, tmp_path) as far_url:
        words = ["tune", "s3-upload", "--object-size", "64MiB", "--client", client, "--bucket", bucket]
        where = ["--endpoint-url", far_url, "--region", REGION, "--probes", "1"]
        with subprocess.Popen(
            [*PENSTOCK, *words, *where],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as tuning:
            until(lambda: left() or tuning.poll() is not None)
            tuning.send_signal(signal.SIGINT)
            _, told = tuning.communicate(timeout=60)
    assert tuning.returncode == 130, told
    assert "Left behind" not in told
    time.sleep(1.0)  # for whatever would still arrive
    assert left() == []
