"""What holds for every client, size and setting: S3's and SQS's limits are kept, and nobody exceeds the advice."""

from math import ceil
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.client.targets.advised import (
    PART_COUNT_MAX,
    PART_SIZE_BYTES_MAX,
    PART_SIZE_BYTES_MIN,
    delivery_of,
    legal_part_size_bytes,
    upload_of,
)
from penstock.client.targets.engines import DUCKDB_FILE_BYTES_MAX
from penstock.client.targets.java import INT_MAX
from penstock.client.targets.launch import PROGRAMS
from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import translate
from penstock.units import GiB, MiB

sizes = st.integers(1, PART_COUNT_MAX * PART_SIZE_BYTES_MAX)
parts = st.integers(1, 6 * GiB)
documents = st.builds(
    lambda size, part, threads, objects, threshold, pool, limit: {
        "operation": "s3_upload",
        "payload_size_bytes": size,
        "setting": {"thread_count": threads, "part_size_bytes": part},
        "derived": {"multipart_threshold_bytes": threshold, "connection_pool_count": pool}
        | ({"rate_limit_bytes_per_second": limit} if limit else {}),
        "demand": {"object_count": objects},
    },
    sizes,
    parts,
    st.integers(1, 1024),
    st.integers(1, 10_000),
    st.integers(1, 6 * GiB),
    st.integers(0, 2000),
    st.floats(0, 1e11),
)


def options(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """By name, whatever their group."""
    return {option.name: option.value for option in translate(TARGETS[name], document).options}


@given(wanted=parts, size=sizes)
@example(wanted=5 * MiB, size=PART_COUNT_MAX * 5 * MiB + 1)
def test_a_part_is_legal_and_moves_no_further_than_it_must(wanted: int, size: int) -> None:
    """Within 5 MiB and 5 GiB, at most 10,000 of them; what is legal already stays as it is."""
    part = legal_part_size_bytes(wanted, size)
    assert PART_SIZE_BYTES_MIN <= part <= PART_SIZE_BYTES_MAX
    assert ceil(size / part) <= PART_COUNT_MAX
    if PART_SIZE_BYTES_MIN <= wanted <= PART_SIZE_BYTES_MAX and ceil(size / wanted) <= PART_COUNT_MAX:
        assert part == wanted
    assert legal_part_size_bytes(part, size) == part


@given(document=documents)
def test_an_object_is_split_exactly_when_that_is_advised(document: dict[str, Any]) -> None:
    """Clients split from the threshold on: it lies on the right side of the object's size."""
    advised = upload_of(document)
    if advised.is_whole and advised.object_size_bytes < 5 * GiB:
        assert advised.multipart_threshold_bytes > advised.object_size_bytes
    else:
        assert advised.multipart_threshold_bytes <= advised.object_size_bytes
    assert advised.multipart_threshold_bytes <= 5 * GiB
    assert advised.connection_pool_count >= advised.thread_count
    assert advised.object_concurrency * advised.request_concurrency <= advised.thread_count


@given(document=documents)
def test_every_client_stays_within_its_own_limits(document: dict[str, Any]) -> None:
    """Rounding in a client's units never leads out of S3's limits, nor beyond the advised requests in flight."""
    advised = upload_of(document)
    size, threads = advised.object_size_bytes, advised.thread_count

    s5cmd = options("s5cmd", document)
    assert s5cmd["--numworkers"] * s5cmd["--concurrency"] <= threads
    assert ceil(size / (s5cmd["--part-size"] * MiB)) <= PART_COUNT_MAX
    assert 5 <= s5cmd["--part-size"] <= 5 * 1024

    rclone = options("rclone", document)
    assert rclone["--transfers"] * rclone["--s3-upload-concurrency"] <= threads

    crt = options("awscrt", document)
    assert crt["max_active_connections_override"] == threads
    assert abs(crt["throughput_target_gbps"] - 0.4 * threads) < 0.051

    boto3 = options("boto3", document)
    assert boto3["max_pool_connections"] >= threads
    if "max_bandwidth" in boto3:
        limit = document["derived"]["rate_limit_bytes_per_second"]
        assert 1 <= boto3["max_bandwidth"] * boto3["object_concurrency"] <= max(limit, threads)

    s3a = options("hadoop-s3a", document)
    assert PART_SIZE_BYTES_MIN <= s3a["fs.s3a.multipart.size"] <= INT_MAX
    assert s3a["fs.s3a.connection.maximum"] >= s3a["fs.s3a.threads.max"] == threads


@given(document=documents)
def test_duckdb_computes_the_advised_part(document: dict[str, Any]) -> None:
    """Its part is the largest file over the number of parts; both are within what it accepts."""
    said = options("duckdb", document)
    largest, count = (
        int(said["s3_uploader_max_filesize"].removesuffix("B")),
        said["s3_uploader_max_parts_per_file"],
    )
    part = upload_of(document).request_size_bytes
    assert 50 * 10**9 <= largest <= DUCKDB_FILE_BYTES_MAX
    assert 1 <= count <= PART_COUNT_MAX
    assert part <= largest // count < part + 2**18


@given(
    threads=st.tuples(*[st.integers(1, 256)] * 3),
    batch=st.integers(1, 10),
    window=st.integers(0, 120_000),
    wait=st.floats(0, 60),
    timeout=st.floats(0, 1e6),
)
def test_consumers_hold_no_more_than_the_window(
    threads: tuple[int, int, int], batch: int, window: int, wait: float, timeout: float
) -> None:
    """Each consumer's own way to count messages in flight ends below the window, or at one batch."""
    document: dict[str, Any] = {
        "operation": "sqs_delivery",
        "payload_size_bytes": 1024,
        "setting": {
            "sender_thread_count": threads[0],
            "receiver_thread_count": threads[1],
            "deleter_thread_count": threads[2],
            "batch_message_count": batch,
            "receive_window_message_count": window,
        },
        "derived": {"wait_time_seconds": wait, "visibility_timeout_seconds": timeout},
    }
    most = max(batch, window or threads[1] * batch)
    celery, spring = options("celery", document), options("spring-cloud-aws", document)
    consumer = options("sqs-consumer", document)
    assert celery["worker_concurrency"] * celery["worker_prefetch_multiplier"] <= most
    assert spring["spring.cloud.aws.sqs.listener.max-concurrent-messages"] <= most
    assert consumer["consumerCount"] * consumer["batchSize"] <= most
    assert 0 <= consumer["waitTimeSeconds"] <= 20
    assert 1 <= consumer["visibilityTimeout"] <= 43_200
    assert delivery_of(document).connection_pool_count >= sum(threads)


@given(
    name=st.sampled_from(["s5cmd", "mount-s3", "rclone"]),
    given_flags=st.lists(
        st.sampled_from(
            [
                "--numworkers",
                "--concurrency",
                "--part-size",
                "--transfers",
                "--s3-chunk-size",
                "--write-part-size",
            ]
        ),
        unique=True,
    ),
    is_joined=st.booleans(),
    document=documents,
)
def test_what_the_user_said_stays_and_is_said_once(
    name: str, given_flags: list[str], is_joined: bool, document: dict[str, Any]
) -> None:
    """His words are all there in their order, and no option that he gave is given again."""
    words = {flag: [f"{flag}=7"] if is_joined else [flag, "7"] for flag in given_flags}
    before = words.pop("--numworkers", [])
    behind = [word for pair in words.values() for word in pair]
    command = [name, *before, "cp" if name == "s5cmd" else "copy", *behind, "big", "s3://b/"]
    program = PROGRAMS[name]
    verb = program.verb_at(command)
    assert verb is not None
    launch = program.apply(command, verb, {}, translate(TARGETS[program.target], document))
    rest = iter(launch.command)
    assert all(word in rest for word in command)  # each after the one before
    for flag in given_flags:
        assert sum(word.partition("=")[0] == flag for word in launch.command) == 1
        assert "RCLONE_" + flag.lstrip("-").upper().replace("-", "_") not in launch.environment
