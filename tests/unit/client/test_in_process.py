"""Advice inside a Python program: real configuration objects where the library is here, plain arguments elsewhere."""

import io
import sys
import threading
from functools import partial
from unittest.mock import Mock

import pytest
from boto3.s3 import transfer as boto3_transfer
from s3transfer.manager import TransferManager

from penstock.client import aiobotocore, awscrt, boto3, s3fs, sdk_client
from penstock.units import GiB, MiB
from tests import advice as answers
from tests.programs import printed

an_advice = partial(
    answers.an_advice,
    setting={"thread_count": 24, "part_size_bytes": 16 * MiB},
    derived={"connection_pool_count": 25, "multipart_threshold_bytes": 16 * MiB},
)


def test_boto3_gets_a_transfer_config_on_the_classic_manager() -> None:
    """The real class takes it, with threads, parts and the manager that obeys them."""
    config = boto3.transfer_config(GiB, advice=an_advice())
    assert (config.max_concurrency, config.multipart_chunksize) == (24, 16 * MiB)
    assert config.preferred_transfer_client == "classic"
    assert boto3.client_config(GiB, advice=an_advice()).max_pool_connections == 25


def test_a_boto3_without_a_second_manager_is_advised_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class has no argument for which manager is wanted, and raised TypeError in the application."""
    newer = boto3_transfer.TransferConfig

    def older(  # as of boto3 1.28
        multipart_threshold: int = 0,
        max_concurrency: int = 0,
        multipart_chunksize: int = 0,
        io_chunksize: int = 0,
    ) -> boto3_transfer.TransferConfig:
        return newer(
            multipart_threshold, max_concurrency, multipart_chunksize, io_chunksize=io_chunksize or None
        )

    monkeypatch.setattr(boto3_transfer, "TransferConfig", older)
    assert boto3.transfer_config(GiB, advice=an_advice()).max_concurrency == 24
    assert boto3.download_config(GiB, advice=answers.a_download_advice(GiB, 12, MiB)).max_concurrency == 12


@pytest.mark.parametrize(
    ("store", "environment", "told"),
    [
        ("ceph", {}, "when_required"),
        ("r2", {}, None),
        (None, {}, None),
        ("ceph", {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported"}, None),
    ],
)
def test_a_store_that_refuses_checksums_is_sent_none(
    monkeypatch: pytest.MonkeyPatch, store: str | None, environment: dict[str, str], told: str | None
) -> None:
    """By the clients of both SDKs and by s3fs, where the daemon knows it and the environment says nothing else."""
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    advice = an_advice(store=store)
    for sdk in (boto3, aiobotocore):
        assert sdk.client_config(GiB, advice=advice).request_checksum_calculation == told
    assert (
        s3fs.filesystem_arguments(GiB, advice=advice)["config_kwargs"].get("request_checksum_calculation")
        == told
    )
    monkeypatch.setattr("botocore.config.Config.OPTION_DEFAULTS", {})
    assert sdk_client.checksum_arguments(advice) == {}, "an SDK that does not know it"


def test_what_cannot_seek_is_filled_by_as_many_ranges_as_are_advised() -> None:
    """A pipe or /dev/null: by itself the transfer manager holds ten ranges at a time."""
    thread_count, size = 12, 24 * MiB
    setting = {"thread_count": thread_count, "range_size_bytes": 2 * MiB}
    advice = an_advice(operation="s3_download", setting=setting)
    all_at_once = threading.Barrier(thread_count, timeout=20)

    def get_object(*, Range: str, **_arguments: str) -> dict[str, object]:  # noqa: N803  # as S3 spells it
        all_at_once.wait()
        first, _, last = Range.removeprefix("bytes=").partition("-")  # the last range has no end
        length = int(last or size - 1) + 1 - int(first)
        return {"Body": io.BytesIO(bytes(length)), "ContentLength": length, "ETag": "one"}

    client = Mock(
        get_object=get_object, head_object=Mock(return_value={"ContentLength": size, "ETag": "one"})
    )
    arrived: list[int] = []
    nowhere = Mock(spec=["write"], write=lambda piece: arrived.append(len(piece)))
    with TransferManager(client, boto3.download_config(size, advice=advice)) as manager:
        manager.download("bucket", "key", nowhere).result()
    assert sum(arrived) == size


def test_uploads_that_run_at_a_time_share_the_threads() -> None:
    """Six uploads have four threads each, and one pool for all."""
    advice = an_advice(demand={"object_count": 6})
    assert boto3.transfer_config(GiB, advice=advice).max_concurrency == 4
    assert boto3.client_config(GiB, advice=advice).max_pool_connections == 25


def test_aiobotocore_gets_a_pool_and_the_numbers_for_a_semaphore() -> None:
    """The real AioConfig takes the pool."""
    assert aiobotocore.client_config(GiB, advice=an_advice()).max_pool_connections == 25
    assert aiobotocore.part_arguments(GiB, advice=an_advice()) == {
        "object_concurrency": 1,
        "part_concurrency": 24,
        "part_size_bytes": 16 * MiB,
        "multipart_threshold_bytes": 16 * MiB,
    }


def test_the_crt_gets_its_target_and_exactly_the_connections() -> None:
    """0.4 Gbit/s for each of 24 connections."""
    assert awscrt.client_arguments(GiB, advice=an_advice()) == {
        "throughput_target_gbps": 9.6,
        "max_active_connections_override": 24,
        "part_size": 16 * MiB,
        "multipart_upload_threshold": 16 * MiB,
    }


def test_s3fs_gets_what_its_file_system_and_its_calls_take() -> None:
    """Part size with the file system for streams, and with each call for whole files."""
    assert s3fs.filesystem_arguments(GiB, advice=an_advice()) == {
        "max_concurrency": 24,
        "default_block_size": 16 * MiB,
        "config_kwargs": {"max_pool_connections": 25},
    }
    assert s3fs.put_arguments(GiB, advice=an_advice()) == {"chunksize": 16 * MiB}


def test_without_advice_libraries_with_rules_of_their_own_are_left_alone() -> None:
    """boto3's defaults are not advice for the CRT or for s3fs."""
    default = an_advice(basis="default")
    assert awscrt.client_arguments(GiB, advice=default) == {}
    assert s3fs.filesystem_arguments(GiB, advice=default) == {}
    assert s3fs.put_arguments(GiB, advice=default) == {}


FOREIGN = {"boto3", "botocore", "aiobotocore", "s3transfer", "awscrt", "s3fs", "aiohttp", "numpy", "msgspec"}


@pytest.mark.parametrize("module", ["boto3", "aiobotocore", "awscrt", "s3fs", "targets.table"])
def test_an_adapter_imports_without_its_library_and_without_ours(module: str) -> None:
    """An application's environment needs nothing but the standard library to import it."""
    program = (
        f"import sys, penstock.client.{module}; print(*(m.partition('.')[0] for m in sys.modules if 'site-packages' "
        "in (getattr(sys.modules[m], '__file__', None) or '')))"
    )
    assert FOREIGN.isdisjoint(printed([sys.executable, "-c", program]).split())
