"""Knows how advice for uploads is proved in the demo."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from penstock.client import boto3 as advised_boto3
from penstock.client.advice import Advice
from penstock.lab.optimum import UPLOADS
from penstock.lab.worlds import DEMO
from penstock.operations.s3.upload import UPLOAD
from penstock.trial.faces.face import BUCKET, Stage
from penstock.trial.faces.transfer import TransferProof, transfer_face
from penstock.units import MiB

OBJECT_SIZE_BYTES = 192 * MiB


class UploadProof(TransferProof):
    """The proof of advice for uploads."""

    size_knob = "part_size_bytes"
    title = "a file of {size}"


def _prove(stage: Stage, advice: Advice, probe_count: int) -> TransferProof:
    file = stage.directory / "payload"
    file.write_bytes(os.urandom(OBJECT_SIZE_BYTES))
    advised = (
        stage.clients.s3(advised_boto3.client_config(OBJECT_SIZE_BYTES, advice=advice)),
        advised_boto3.transfer_config(OBJECT_SIZE_BYTES, advice=advice),
    )
    move = partial(_upload, file)
    optimum = UPLOADS.optimum(DEMO.link, OBJECT_SIZE_BYTES)
    return UploadProof.made(stage, advice, probe_count, OBJECT_SIZE_BYTES, move, advised, optimum)


def _upload(file: Path, client: Any, config: Any) -> float:
    started = time.perf_counter()
    client.upload_file(str(file), BUCKET, "proof", Config=config)
    rate = OBJECT_SIZE_BYTES / (time.perf_counter() - started)
    client.delete_object(Bucket=BUCKET, Key="proof")
    return rate


FACE = transfer_face(UPLOAD, OBJECT_SIZE_BYTES, duration_seconds_max=5, prove=_prove)
