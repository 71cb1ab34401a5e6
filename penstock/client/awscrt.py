"""Knows how to translate advice into arguments of awscrt's S3 client, which only the application imports.

from penstock.client import awscrt as advised

s3 = awscrt.s3.S3Client(region=region, **advised.client_arguments(size_bytes))
"""

from __future__ import annotations

from penstock.client.advice import Advice, advise
from penstock.client.arguments import arguments_of
from penstock.client.operations import S3_UPLOAD

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    from penstock.client.demand import TransferDemand

    class ClientArguments(TypedDict, total=False):
        """Arguments of `awscrt.s3.S3Client`."""

        throughput_target_gbps: float
        max_active_connections_override: int
        part_size: int
        multipart_upload_threshold: int


def client_arguments(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> ClientArguments:
    """Arguments for `awscrt.s3.S3Client`; empty when there is no advice, and the client then decides by itself.

    `object_size_bytes` is in bytes, or text such as ``"1GiB"``; `advice` is used in place of asking. Never raises
    because of penstock. Stores that refuse AWS's checksums need no argument here: this client sends only the checksums
    that `checksum_config` of `make_request` asks for.
    """
    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    if advice.basis == "default":
        return {}
    told: ClientArguments = arguments_of("awscrt", "S3Client", advice, object_size_bytes)  # type: ignore[assignment]
    return told
