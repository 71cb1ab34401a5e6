"""Knows how advice is put into awscrt's S3 client, which is imported by the application alone.

from penstock.client import awscrt as advised

s3 = awscrt.s3.S3Client(region=region, **advised.client_arguments(size_bytes))
"""

from __future__ import annotations

from penstock.client.advice import Advice, advise

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any


def client_arguments(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: object
) -> dict[str, Any]:
    """What to pass to `awscrt.s3.S3Client`; nothing when there is no advice, since it then decides by itself."""
    from penstock.client.targets.python_sdks import AWSCRT
    from penstock.client.targets.target import translate

    advice = advice or advise("s3_upload", object_size_bytes, **demand)
    if advice.basis == "default":
        return {}
    return translate(AWSCRT, advice.document, object_size_bytes=object_size_bytes).groups()["S3Client"]
