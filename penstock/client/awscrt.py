"""Knows how advice is put into awscrt's S3 client, which is imported by the application alone.

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
    """What to pass to `awscrt.s3.S3Client`; nothing when there is no advice, since it then decides by itself.

    A store that refuses the checksums of AWS needs nothing more: it sends none but those of `make_request`'s
    `checksum_config`.
    """
    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    if advice.basis == "default":
        return {}
    told: ClientArguments = arguments_of("awscrt", "S3Client", advice, object_size_bytes)  # type: ignore[assignment]
    return told
