"""Knows how advice for downloads is proved in the demo."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from penstock.client import boto3 as advised_boto3
from penstock.client.advice import Advice
from penstock.lab.optimum import DOWNLOADS
from penstock.lab.worlds import DEMO
from penstock.operations.s3.download import DOWNLOAD
from penstock.trial.faces.face import BUCKET, Stage
from penstock.trial.faces.transfer import TransferProof, transfer_face
from penstock.units import MiB

OBJECT_SIZE_BYTES = 64 * MiB
_KEY = "downloaded"
_PUTTING_THREAD_COUNT = 64


class DownloadProof(TransferProof):
    """The proof of advice for downloads."""

    size_knob = "range_size_bytes"
    title = "an object of {size}, read"


def _prove(stage: Stage, advice: Advice, probe_count: int) -> TransferProof:
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    advised = (
        stage.clients.s3(advised_boto3.download_client_config(OBJECT_SIZE_BYTES, advice=advice)),
        advised_boto3.download_config(OBJECT_SIZE_BYTES, advice=advice),
    )
    putting = stage.clients.s3(Config(max_pool_connections=_PUTTING_THREAD_COUNT))
    config = TransferConfig(max_concurrency=_PUTTING_THREAD_COUNT)
    putting.upload_fileobj(_Zeros(OBJECT_SIZE_BYTES), BUCKET, _KEY, Config=config)
    assert DEMO.inbound is not None
    optimum = DOWNLOADS.optimum(DEMO.inbound, OBJECT_SIZE_BYTES)
    move = partial(_download, stage.directory / _KEY)
    proof = DownloadProof.made(stage, advice, probe_count, OBJECT_SIZE_BYTES, move, advised, optimum)
    putting.delete_object(Bucket=BUCKET, Key=_KEY)
    return proof


class _Zeros:
    """A file of zeros of this size, to be read once."""

    def __init__(self, size_bytes: int) -> None:
        self._left = size_bytes

    def read(self, count: int = -1) -> bytes:
        """The next zeros."""
        count = self._left if count < 0 else min(count, self._left)
        self._left -= count
        return bytes(count)


def _download(file: Path, client: Any, config: Any) -> float:
    """Download into a file, because boto3 uses ten ranges at a time for what cannot seek, such as /dev/null.

    Returns bytes per second.
    """
    started = time.perf_counter()
    client.download_file(BUCKET, _KEY, str(file), Config=config)
    rate = OBJECT_SIZE_BYTES / (time.perf_counter() - started)
    file.unlink()
    return rate


FACE = transfer_face(DOWNLOAD, OBJECT_SIZE_BYTES, duration_seconds_max=6, prove=_prove)
