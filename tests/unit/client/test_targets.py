"""Known answers: one upload and one queue in the words of every client, and what each cannot be told."""

from typing import Any

import pytest

from penstock.client.targets.advised import download_of
from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import Translation, translate
from penstock.units import GiB, KiB, MiB

PART = 16 * MiB
DUCKDB_PART = 65 * (256 * KiB - 8)


def an_upload(
    size: int = GiB, threads: int = 32, part: int = PART, objects: int = 1, **derived: float
) -> dict[str, Any]:
    """The answer of the socket, by naming only what matters."""
    return {
        "payload_size_bytes": size,
        "setting": {"thread_count": threads, "part_size_bytes": part},
        "derived": {"connection_pool_count": threads + 1, "multipart_threshold_bytes": part} | derived,
        "demand": {"object_count": objects},
    }


def a_download(size: int = GiB, threads: int = 32, part: int = 8 * MiB, **changes: Any) -> dict[str, Any]:
    """As the socket answers; `changes` are of the demand."""
    return {
        "payload_size_bytes": size,
        "setting": {"thread_count": threads, "range_size_bytes": part},
        "derived": {
            "connection_pool_count": threads + 1,
            "multipart_threshold_bytes": part,
            "read_ahead_bytes": threads * part,
            "block_size_bytes": 20e6,
            "coalesced_gap_bytes": 2e6,
            "io_chunk_bytes": 256.0 * KiB,
            "disk_bytes_per_second": 1e9,
        },
        "demand": {"object_count": 1} | changes,
    }


def a_queue(window: int = 200, **derived: float) -> dict[str, Any]:
    """Four senders, six receivers, five deleters, full batches."""
    return {
        "payload_size_bytes": KiB,
        "setting": {
            "sender_thread_count": 4,
            "receiver_thread_count": 6,
            "deleter_thread_count": 5,
            "batch_message_count": 10,
            "send_rate_limit_messages_per_second": 0.0,
            "send_window_message_count": 0,
            "receive_window_message_count": window,
        },
        "derived": {
            "connection_pool_count": 17,
            "wait_time_seconds": 20.0,
            "visibility_timeout_seconds": 29.5,
        }
        | derived,
    }


def said(name: str, document: dict[str, Any]) -> Translation:
    return translate(TARGETS[name], document)


def written(name: str, form: str, document: dict[str, Any]) -> list[str]:
    return TARGETS[name].writers[form](said(name, document))


S3A_WRITING = {
    "fs.s3a.threads.max": 32,
    "fs.s3a.fast.upload.active.blocks": 32,
    "fs.s3a.connection.maximum": 33,
    "fs.s3a.multipart.size": PART,
    "fs.s3a.multipart.threshold": PART,
    "fs.s3a.optimized.copy.from.local.enabled": "false",
}
UPLOADS: dict[str, dict[str, Any]] = {
    "boto3": {
        "TransferConfig": {
            "max_concurrency": 32,
            "multipart_chunksize": PART,
            "multipart_threshold": PART,
            "preferred_transfer_client": "classic",
        },
        "Config": {"max_pool_connections": 33},
        "application": {"object_concurrency": 1},
    },
    "aiobotocore": {
        "AioConfig": {"max_pool_connections": 33},
        "application": {
            "object_concurrency": 1,
            "part_concurrency": 32,
            "part_size_bytes": PART,
            "multipart_threshold_bytes": PART,
        },
    },
    "awscrt": {
        "S3Client": {
            "throughput_target_gbps": 12.8,
            "max_active_connections_override": 32,
            "part_size": PART,
            "multipart_upload_threshold": PART,
        }
    },
    "s3fs": {
        "S3FileSystem": {
            "max_concurrency": 32,
            "default_block_size": PART,
            "config_kwargs": {"max_pool_connections": 33},
        },
        "put_file": {"chunksize": PART},
        "application": {"object_concurrency": 1},
    },
    "aws-cli": {
        "s3": {
            "max_concurrent_requests": 32,
            "multipart_chunksize": PART,
            "multipart_threshold": PART,
            "preferred_transfer_client": "default",
        }
    },
    "s5cmd": {"s5cmd": {"--numworkers": 1}, "cp": {"--concurrency": 32, "--part-size": 16}},
    "rclone": {
        "--transfers": 1,
        "--s3-upload-concurrency": 32,
        "--s3-chunk-size": "16Mi",
        "--s3-upload-cutoff": "16Mi",
    },
    "mountpoint": {"--maximum-throughput-gbps": 13, "--write-part-size": PART},
    "hadoop-s3a": S3A_WRITING,
    "spark": {f"spark.hadoop.{name}": value for name, value in S3A_WRITING.items()},
    "java-sdk-v2": {
        "S3CrtAsyncClientBuilder": {
            "maxConcurrency": 32,
            "minimumPartSizeInBytes": PART,
            "thresholdInBytes": PART,
        },
        "ParallelConfiguration": {"maxInFlightParts": 32},
        "MultipartConfiguration": {
            "apiCallBufferSizeInBytes": 32 * PART,
            "minimumPartSizeInBytes": PART,
            "thresholdInBytes": PART,
        },
        "NettyNioAsyncHttpClient": {"maxConcurrency": 33},
    },
    "go-transfermanager": {
        "transfermanager.Options": {
            "Concurrency": 32,
            "PartSizeBytes": PART,
            "MultipartUploadThreshold": PART,
        },
        "manager.Uploader": {"Concurrency": 32, "PartSize": PART},
        "http.Transport": {"MaxIdleConnsPerHost": 33},
    },
    "rust-object-store": {
        "BufWriter": {"with_capacity": PART, "with_max_concurrency": 32},
        "WriteMultipart": {"wait_for_capacity": 32, "new_with_chunk_size": PART},
        "ClientOptions": {"with_pool_max_idle_per_host": 33},
        "obstore.put": {"max_concurrency": 32, "chunk_size": PART},
    },
    "duckdb": {
        "s3_uploader_max_filesize": f"{10_000 * DUCKDB_PART}B",
        "s3_uploader_max_parts_per_file": 10_000,
        "httpfs_connection_caching": True,
        "s3_uploader_thread_limit": 32,
        "DuckDB 2": {"async_threads": 32},
    },
    "pyarrow": {"io_thread_count": 32},
    "polars": {
        "POLARS_UPLOAD_CONCURRENCY": 32,
        "POLARS_UPLOAD_CHUNK_SIZE": PART,
        "POLARS_PARTITIONED_UPLOAD_CONCURRENCY": 32,
        "POLARS_PARTITIONED_UPLOAD_CHUNK_SIZE": PART,
    },
    "pytorch": {"S3ClientConfig": {"throughput_target_gbps": 12.8, "part_size": PART}},
    "wal-g": {"WALG_UPLOAD_CONCURRENCY": 32, "WALG_S3_MAX_PART_SIZE": PART},
    "flink": {
        "s3.upload.max.concurrent.uploads": 32,
        "s3.upload.min.part.size": PART,
        "s3.threads.max": 32,
        "s3.connection.maximum": 33,
        "s3.fast.upload.active.blocks": 32,
        "s3.multipart.size": PART,
        "s3.multipart.threshold": PART,
    },
    "node-lib-storage": {
        "Upload": {"queueSize": 32, "partSize": PART},
        "S3Client": {"expectContinueHeader": False},
        "NodeHttpHandler.httpAgent": {"maxSockets": 33},
        "NodeHttpHandler.httpsAgent": {"maxSockets": 33},
        "application": {"objectConcurrency": 1},
    },
}

RANGE, GAP, BLOCK, CHUNK = 8 * MiB, 2_000_000, 20_000_000, 256 * KiB
S3A_READING = {
    "fs.s3a.threads.max": 32,
    "fs.s3a.connection.maximum": 33,
    "fs.s3a.input.stream.type": "prefetch",
    "fs.s3a.prefetch.block.size": RANGE,
    "fs.s3a.prefetch.block.count": 32,
}
DOWNLOADS: dict[str, dict[str, Any]] = {
    "boto3": {
        "TransferConfig": {
            "max_concurrency": 32,
            "multipart_chunksize": RANGE,
            "multipart_threshold": RANGE,
            "io_chunksize": CHUNK,
            "preferred_transfer_client": "classic",
        },
        "Config": {"max_pool_connections": 33},
        "application": {"object_concurrency": 1},
    },
    "aiobotocore": {
        "AioConfig": {"max_pool_connections": 33},
        "application": {
            "object_concurrency": 1,
            "range_concurrency": 32,
            "range_size_bytes": RANGE,
            "multipart_threshold_bytes": RANGE,
            "read_ahead_bytes": 32 * RANGE,
            "block_size_bytes": BLOCK,
            "coalesced_gap_bytes": GAP,
            "io_chunk_bytes": CHUNK,
        },
    },
    "awscrt": {
        "S3Client": {
            "throughput_target_gbps": 12.8,
            "max_active_connections_override": 32,
            "part_size": RANGE,
        }
    },
    "s3fs": {
        "S3FileSystem": {
            "max_concurrency": 32,
            "default_cache_type": "readahead",
            "default_block_size": BLOCK,
            "config_kwargs": {"max_pool_connections": 33},
        },
        "get_file": {"chunksize": RANGE},
        "merge_offset_ranges": {"max_gap": GAP},
        "cat_ranges": {"batch_size": 32},
        "application": {"object_concurrency": 1},
    },
    "fsspec": {
        "open": {"block_size": BLOCK, "cache_type": "readahead"},
        "get": {"batch_size": 1},
        "merge_offset_ranges": {"max_gap": GAP},
        "cat_ranges": {"batch_size": 32},
    },
    "pytorch": {
        "S3ClientConfig": {"throughput_target_gbps": 12.8, "part_size": RANGE},
        "S3ReaderConstructor.dcp_optimized": {"max_gap_size": GAP},
    },
    "aws-cli": {
        "s3": {
            "max_concurrent_requests": 32,
            "multipart_chunksize": RANGE,
            "multipart_threshold": RANGE,
            "io_chunksize": CHUNK,
            "preferred_transfer_client": "default",
        }
    },
    "s5cmd": {"s5cmd": {"--numworkers": 1}, "cp": {"--concurrency": 32, "--part-size": 8}},
    "rclone": {
        "--transfers": 1,
        "--multi-thread-streams": 32,
        "--multi-thread-chunk-size": "8Mi",
        "--multi-thread-cutoff": "8Mi",
    },
    "mountpoint": {"--maximum-throughput-gbps": 13, "--read-part-size": RANGE},
    "wal-g": {"WALG_DOWNLOAD_CONCURRENCY": 32},
    "hadoop-s3a": S3A_READING,
    "spark": {f"spark.hadoop.{name}": value for name, value in S3A_READING.items()},
    "flink": {"s3.threads.max": 32, "s3.connection.maximum": 33, "s3.readahead.range": GAP},
    "java-sdk-v2": {
        "S3CrtAsyncClientBuilder": {
            "maxConcurrency": 32,
            "minimumPartSizeInBytes": RANGE,
            "initialReadBufferSizeInBytes": 32 * RANGE,
        },
        "ParallelConfiguration": {"maxInFlightParts": 32},
        "NettyNioAsyncHttpClient": {"maxConcurrency": 33},
    },
    "go-transfermanager": {
        "transfermanager.Options": {
            "Concurrency": 32,
            "PartSizeBytes": RANGE,
            "GetObjectType": "types.GetObjectRanges",
            "GetObjectBufferSize": 32 * RANGE,
        },
        "manager.Downloader": {"Concurrency": 32, "PartSize": RANGE},
        "http.Transport": {"MaxIdleConnsPerHost": 33},
    },
    "rust-object-store": {
        "LimitStore": {"max_requests": 32},
        "get_range": {"range_size_bytes": RANGE},
        "ClientOptions": {"with_pool_max_idle_per_host": 33},
        "BufReader": {"with_capacity": BLOCK},
        "coalesce_ranges": {"coalesce": GAP},
    },
    "node": {
        "NodeHttpHandler.httpAgent": {"maxSockets": 33},
        "NodeHttpHandler.httpsAgent": {"maxSockets": 33},
        "application": {
            "objectConcurrency": 1,
            "rangeConcurrency": 32,
            "rangeSizeBytes": RANGE,
            "multipartThresholdBytes": RANGE,
            "readAheadBytes": 32 * RANGE,
            "blockSizeBytes": BLOCK,
            "coalescedGapBytes": GAP,
        },
    },
    "duckdb": {
        "async_threads": 32,
        "http_client_pool_capacity": 33,
        "external_file_cache_remote_max_block_size": RANGE,
        "parquet_prefetch_column_gap": GAP,
    },
    "pyarrow": {
        "io_thread_count": 32,
        "CacheOptions": {"hole_size_limit": GAP, "range_size_limit": RANGE, "prefetch_limit": 32},
        "open_input_stream": {"buffer_size": BLOCK},
    },
    "polars": {
        "POLARS_INFLIGHT_REQUEST_BUDGET": 32,
        "POLARS_INFLIGHT_FLOOR_REQUEST_BUDGET": 32,
        "POLARS_CONCURRENCY_BUDGET": 32,
        "POLARS_INFLIGHT_INIT_BYTE_BUDGET": 32 * RANGE,
        "POLARS_DOWNLOAD_CHUNK_SIZE": RANGE,
        "POLARS_DOWNLOAD_CHUNK_SIZE_STREAMING": RANGE,
    },
    "runai-streamer": {
        "RUNAI_STREAMER_OBJ_CONCURRENCY": 1,
        "RUNAI_STREAMER_S3_MAX_CONNECTIONS": 32,
        "RUNAI_STREAMER_S3_TARGET_GBPS": 13,
        "RUNAI_STREAMER_S3_MAX_INFLIGHT_MIB": 32 * RANGE // MiB,
        "RUNAI_STREAMER_CHUNK_BYTESIZE": RANGE,
        "RUNAI_STREAMER_S3_CLIENT_PART_SIZE": RANGE,
    },
}

OWN_LOOPS = {
    "receive_message": {"MaxNumberOfMessages": 10, "WaitTimeSeconds": 20, "VisibilityTimeout": 30},
    "application": {
        "entries_per_batch": 10,
        "sender_thread_count": 4,
        "receiver_thread_count": 6,
        "deleter_thread_count": 5,
        "receive_window_message_count": 200,
    },
}
QUEUES: dict[str, dict[str, Any]] = {
    "boto3-sqs": {"Config": {"max_pool_connections": 17}, **OWN_LOOPS},
    "aiobotocore-sqs": {"AioConfig": {"max_pool_connections": 17}, **OWN_LOOPS},
    "celery": {
        "worker_concurrency": 6,
        "worker_prefetch_multiplier": 10,
        "broker_transport_options": {
            "visibility_timeout": 30,
            "wait_time_seconds": 20,
            "polling_interval": 0,
            "client-config": {"max_pool_connections": 17},
        },
    },
    "spring-cloud-aws": {
        "spring.cloud.aws.sqs.listener.max-messages-per-poll": 10,
        "spring.cloud.aws.sqs.listener.max-concurrent-messages": 60,
        "spring.cloud.aws.sqs.listener.poll-timeout": "20s",
    },
    "sqs-consumer": {
        "application": {"consumerCount": 6},
        "Consumer.create": {"batchSize": 10, "waitTimeSeconds": 20, "visibilityTimeout": 30},
    },
}


@pytest.mark.parametrize("name", TARGETS)
def test_every_client_is_told_in_its_own_words(name: str) -> None:
    """32 threads and 16 MiB, or ten messages a request and a window of 200: as each client spells it."""
    if name in UPLOADS:
        assert said(name, an_upload()).named() == UPLOADS[name]
    elif name.endswith("-download"):
        assert said(name, a_download()).named() == DOWNLOADS[name.removesuffix("-download")]
    else:
        assert said(name, a_queue()).named() == QUEUES[name]


def test_a_narrow_window_bounds_what_a_client_holds() -> None:
    """With six receivers of ten messages a window of twelve is two for each; what a poll brings is the least."""
    document = a_queue(window=12)
    assert said("celery", document).named()["worker_prefetch_multiplier"] == 2
    spring = said("spring-cloud-aws", document).named()
    assert spring["spring.cloud.aws.sqs.listener.max-concurrent-messages"] == 12


@pytest.mark.parametrize(("objects", "concurrency"), [(1, 33), (8, 33), (100, 11)])
def test_wal_g_sends_files_and_their_parts_within_the_threads(objects: int, concurrency: int) -> None:
    """Of many files it sends as many at a time as parts of each: 33 of three parts would be 99 requests."""
    document = an_upload(size=16 * MiB, threads=33, part=6 * MiB, objects=objects)
    assert said("wal-g", document).named()["WALG_UPLOAD_CONCURRENCY"] == concurrency


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("boto3", {"hedge_timeout_seconds"}),
        ("awscrt", {"hedge_timeout_seconds", "rate_limit_bytes_per_second"}),
        ("rclone", {"hedge_timeout_seconds", "connection_pool_count"}),
        ("aws-cli", {"hedge_timeout_seconds", "connection_pool_count"}),
        (
            "pyarrow",
            {
                "part_size_bytes",
                "multipart_threshold_bytes",
                "hedge_timeout_seconds",
                "rate_limit_bytes_per_second",
            },
        ),
    ],
)
def test_what_cannot_be_said_is_named(name: str, fields: set[str]) -> None:
    """PyArrow has no part size, the CRT no limit, nobody a hedge; and only what was advised is mentioned."""
    document = an_upload(hedge_timeout_seconds=2.0, rate_limit_bytes_per_second=50e6)
    assert set(said(name, document).inexpressible) == fields
    unlimited = set(said(name, an_upload()).inexpressible)
    assert unlimited == fields - {"hedge_timeout_seconds", "rate_limit_bytes_per_second"}


def test_a_reader_here_and_there_is_told_of_ranges_and_of_no_blocks_around_them() -> None:
    """Vectored reads in place of prefetched blocks, no cache of s3fs, a small buffer for PyTorch."""
    document = a_download(part=256 * KiB, access="random")
    s3a = said("hadoop-s3a-download", document).named()
    assert s3a["fs.s3a.input.stream.type"] == "classic"  # that of Hadoop 3.5 passes over the rest
    assert s3a["fs.s3a.experimental.input.fadvise"] == "random"
    assert s3a["fs.s3a.vectored.active.ranged.reads"] == 32
    assert s3a["fs.s3a.vectored.read.min.seek.size"] == s3a["fs.s3a.readahead.range"] == GAP
    assert not [name for name in s3a if "prefetch" in name]
    assert said("s3fs-download", document).named()["S3FileSystem"]["default_cache_type"] == "none"
    pytorch = said("pytorch-download", document).named()
    assert pytorch["S3ReaderConstructor.range_based"] == {"buffer_size": 256 * KiB}
    assert pytorch["S3ClientConfig"]["part_size"] == 5 * MiB


def test_many_small_objects_are_read_whole_and_threads_are_objects() -> None:
    """Cut-offs are above their size; DuckDB's blocks are powers of two; Polars has ten permits, and 8 MiB a thread."""
    document = a_download(size=MiB, part=MiB, object_count=500)
    rclone = said("rclone-download", document).named()
    assert (rclone["--transfers"], rclone["--multi-thread-streams"]) == (32, 1)
    assert rclone["--multi-thread-cutoff"] == f"{MiB + 1}B"
    odd = a_download(threads=6, part=6 * MiB)
    assert said("duckdb-download", odd).named()["external_file_cache_remote_max_block_size"] == 4 * MiB
    assert said("polars-download", odd).named()["POLARS_CONCURRENCY_BUDGET"] == 10
    small = a_download(threads=5, part=MiB)
    assert said("polars-download", small).named()["POLARS_INFLIGHT_INIT_BYTE_BUDGET"] == 5 * 8 * MiB


def test_go_keeps_more_connections_than_its_own_hundred() -> None:
    """Its transport has a limit on all that are idle, beside the one for each host."""
    told = said("go-transfermanager-download", a_download(threads=130)).named()["http.Transport"]
    assert told == {"MaxIdleConnsPerHost": 131, "MaxIdleConns": 131}


def test_each_rank_that_loads_weights_is_told_its_part() -> None:
    """Eight processes with one environment, each of which opens as many connections as it says."""
    told = said("runai-streamer-download", a_download(threads=32, object_count=8)).named()
    assert told["RUNAI_STREAMER_S3_MAX_CONNECTIONS"] == 4


def test_mountpoint_says_when_it_opens_more_than_advised() -> None:
    """The CRT opens ten connections at the least."""
    assert "thread_count" in said("mountpoint", an_upload(threads=6)).inexpressible
    assert "thread_count" not in said("mountpoint", an_upload(threads=10)).inexpressible


def test_a_limit_on_bandwidth_is_said_in_each_unit() -> None:
    """Bytes for boto3, shared by what runs at a time; whole KiB for the AWS CLI; a suffix for rclone."""
    document = an_upload(objects=4, rate_limit_bytes_per_second=50e6)
    assert said("boto3", document).named()["TransferConfig"]["max_bandwidth"] == 12_500_000
    assert said("aws-cli", document).named()["s3"]["max_bandwidth"] == "48828KB/s"
    assert said("rclone", document).named()["--bwlimit"] == "50000000B"


def test_several_objects_share_the_threads() -> None:
    """Four objects at a time with 32 threads: eight parts each, and the pool for all of them."""
    document = an_upload(objects=4)
    assert said("rclone", document).named()["--transfers"] == 4
    assert said("rclone", document).named()["--s3-upload-concurrency"] == 8
    assert written("s5cmd", "flags", document) == ["--numworkers 4 cp --concurrency 8 --part-size 16"]
    assert said("boto3", document).named()["TransferConfig"]["max_concurrency"] == 8
    assert said("boto3", document).named()["Config"]["max_pool_connections"] == 33


def test_readers_of_data_are_told_how_many_files_to_read_at_a_time() -> None:
    """By themselves they open four or fewer; of one large file there is nothing to say."""
    many, one = a_download(size=MiB, part=MiB, object_count=500), a_download()
    assert said("pyarrow-download", many).named()["to_table"] == {"fragment_readahead": 32}
    assert "dataset.to_table(fragment_readahead=32)" in written("pyarrow-download", "config", many)
    assert said("polars-download", many).named()["POLARS_MAX_CONCURRENT_SCANS"] == 32
    assert "to_table" not in said("pyarrow-download", one).named()
    assert "POLARS_MAX_CONCURRENT_SCANS" not in said("polars-download", one).named()


def test_small_objects_are_not_split_and_threads_are_objects() -> None:
    """The cutoff is above their size, whatever threshold was advised for larger ones."""
    document = an_upload(size=64 * KiB, part=5 * MiB, multipart_threshold_bytes=10 * KiB)
    assert said("rclone", document).named() == {
        "--transfers": 32,
        "--s3-upload-concurrency": 1,
        "--s3-chunk-size": "5Mi",
        "--s3-upload-cutoff": f"{64 * KiB + 1}B",
    }


def test_odd_sizes_are_rounded_up_in_whole_units() -> None:
    """s5cmd has whole MiB, DuckDB whole blocks of 256 KiB less 8 bytes; rclone and the SDKs take bytes."""
    document = an_upload(part=PART + 1)
    assert said("s5cmd", document).named()["cp"]["--part-size"] == 17
    assert said("rclone", document).named()["--s3-chunk-size"] == f"{PART + 1}B"
    largest = said("duckdb", document).named()["s3_uploader_max_filesize"]
    assert largest == f"{10_000 * DUCKDB_PART}B"


@pytest.mark.parametrize(
    ("advised", "told"),
    [
        (a_download(16 * MiB, threads=14, part=1198373), (16, 1)),  # not eight of 2 MiB
        (a_download(16 * MiB, threads=14, part=1198373, thread_count_max=15), (14, 2)),
        (a_download(16 * MiB, threads=14, part=1198373, object_count=2), (8, 1)),
        (a_download(16 * MiB, threads=8, part=700 * KiB), (8, 1)),  # nothing is smaller
        (a_download(16 * MiB, threads=4, part=1198373), (4, 1)),  # four waves as before
        (a_download(GiB, threads=14, part=1198373), (14, 2)),  # in so many waves it is no matter
        (a_download(192 * MiB, threads=33, part=6102702), (33, 6)),
        (an_upload(64 * MiB, threads=11, part=6102000), (11, 6)),
        (an_upload(48 * MiB, threads=9, part=5592406), (10, 5)),
        (an_upload(90 * MiB, threads=12, part=8000000), (12, 8)),
    ],
)
def test_an_object_moves_in_no_more_waves_where_parts_are_whole_mib(
    advised: dict[str, Any], told: tuple[int, int]
) -> None:
    """Beside each other: how many requests, and of how many MiB."""
    direction = "s5cmd" if "part_size_bytes" in advised["setting"] else "s5cmd-download"
    words = translate(TARGETS[direction], advised).named()["cp"]
    assert (words["--concurrency"], words["--part-size"]) == told


def test_a_size_nearby_moves_the_threshold_and_the_part() -> None:
    """Advice for 60 GiB serves an object of 100 GiB, which needs larger parts for 10,000 of them to suffice."""
    document = an_upload(size=60 * GiB, part=8 * MiB)
    chunk = translate(TARGETS["boto3"], document, object_size_bytes=100 * GiB).named()["TransferConfig"]
    assert chunk["multipart_chunksize"] == 11 * MiB


@pytest.mark.parametrize(
    ("name", "form", "lines"),
    [
        ("s5cmd", "flags", ["--numworkers 1 cp --concurrency 32 --part-size 16"]),
        (
            "rclone",
            "flags",
            ["--transfers 1 --s3-upload-concurrency 32 --s3-chunk-size 16Mi --s3-upload-cutoff 16Mi"],
        ),
        (
            "rclone",
            "env",
            [
                "export RCLONE_TRANSFERS=1",
                "export RCLONE_S3_UPLOAD_CONCURRENCY=32",
                "export RCLONE_S3_CHUNK_SIZE=16Mi",
                "export RCLONE_S3_UPLOAD_CUTOFF=16Mi",
            ],
        ),
        (
            "rclone",
            "config",
            [
                "# only as a flag: --transfers 1",
                "upload_concurrency = 32",
                "chunk_size = 16Mi",
                "upload_cutoff = 16Mi",
            ],
        ),
        (
            "aws-cli",
            "commands",
            [
                "aws configure set s3.max_concurrent_requests 32",
                f"aws configure set s3.multipart_chunksize {PART}",
                f"aws configure set s3.multipart_threshold {PART}",
                "aws configure set s3.preferred_transfer_client default",
            ],
        ),
        ("pyarrow", "env", ["export ARROW_IO_THREADS=32"]),
        (
            "node-lib-storage",
            "config",
            [
                "const objectConcurrency = 1;",
                "const agent = { maxSockets: 33 };",
                (
                    "const s3 = new S3Client({ expectContinueHeader: false, requestHandler: "
                    "new NodeHttpHandler({ httpAgent: agent, httpsAgent: agent }) });"
                ),
                (
                    f"const options = {{ queueSize: 32, partSize: {PART} }};  "
                    "// new Upload({ client: s3, params, ...options })"
                ),
            ],
        ),
        (
            "duckdb",
            "config",
            [
                "LOAD httpfs;",
                f"SET s3_uploader_max_filesize = '{10_000 * DUCKDB_PART}B';",
                "SET s3_uploader_max_parts_per_file = 10000;",
                "SET httpfs_connection_caching = True;",
                "SET s3_uploader_thread_limit = 32;",
                "-- DuckDB 2 refuses the line above, and takes: SET async_threads = 32;",
            ],
        ),
        (
            "java-sdk-v2",
            "config",
            [
                (
                    f"S3AsyncClient.crtBuilder().maxConcurrency(32).minimumPartSizeInBytes({PART}L)"
                    f".thresholdInBytes({PART}L)"
                ),
                "ParallelConfiguration.builder().maxInFlightParts(32)",
                (
                    f"MultipartConfiguration.builder().apiCallBufferSizeInBytes({32 * PART}L)"
                    f".minimumPartSizeInBytes({PART}L).thresholdInBytes({PART}L)"
                ),
                "NettyNioAsyncHttpClient.builder().maxConcurrency(33)",
            ],
        ),
        (
            "go-transfermanager",
            "config",
            [
                (
                    f"func(o *transfermanager.Options) {{ o.Concurrency = 32; o.PartSizeBytes = {PART}; "
                    f"o.MultipartUploadThreshold = {PART} }}"
                ),
                f"func(o *manager.Uploader) {{ o.Concurrency = 32; o.PartSize = {PART} }}",
                "func(o *http.Transport) { o.MaxIdleConnsPerHost = 33 }",
            ],
        ),
        ("s5cmd-download", "flags", ["--numworkers 1 cp --concurrency 32 --part-size 8"]),
        (
            "duckdb-download",
            "config",
            [
                "LOAD httpfs;",
                "SET async_threads = 32;",
                "SET http_client_pool_capacity = 33;",
                f"SET external_file_cache_remote_max_block_size = {RANGE};",
                f"SET parquet_prefetch_column_gap = {GAP};",
            ],
        ),
        (
            "pyarrow-download",
            "config",
            [
                "pyarrow.set_io_thread_count(32)",
                (f"pyarrow.CacheOptions(hole_size_limit={GAP}, range_size_limit={RANGE}, prefetch_limit=32)"),
                f"filesystem.open_input_stream(path, buffer_size={BLOCK})",
            ],
        ),
        (
            "rust-object-store",
            "config",
            [
                (
                    f"BufWriter::with_capacity(store, path, {PART}).with_max_concurrency(32)"
                    "  // writes of a part at the most: the parts of a larger one all go at once"
                ),
                (
                    f"WriteMultipart::new_with_chunk_size(upload, {PART})  // wait_for_capacity(32) before each write; "
                    "writes of a part at the most: the parts of a larger one all go at once"
                ),
                "ClientOptions::new().with_pool_max_idle_per_host(33)",
                f"// Python: obstore.put(store, path, file, max_concurrency=32, chunk_size={PART})",
            ],
        ),
        (
            "rust-object-store-download",
            "config",
            [
                f"LimitStore::new(store, 32)  // ranges of {RANGE} bytes for get_range",
                "ClientOptions::new().with_pool_max_idle_per_host(33)",
                f"BufReader::with_capacity(store, &meta, {BLOCK})",
                f"// Python: obstore.open_reader(store, path, buffer_size={BLOCK})",
                f"coalesce_ranges(&ranges, fetch, {GAP})",
                (
                    f"// Python: obstore.get_ranges(store, path, starts=starts, ends=ends, coalesce={GAP})"
                    "  # ten at a time, always"
                ),
            ],
        ),
    ],
)
def test_the_forms_are_what_their_readers_take(name: str, form: str, lines: list[str]) -> None:
    """Flags, environment, configuration and source, letter by letter."""
    document = a_download() if name.endswith("-download") else an_upload()
    assert written(name, form, document) == lines


@pytest.mark.parametrize("damaged", [0, 1, -5])
def test_a_range_that_is_damaged_is_no_request_for_each_byte(damaged: int) -> None:
    """A gigabyte would cost 400 dollars."""
    assert download_of(a_download(part=damaged)).request_size_bytes == 4 * KiB
