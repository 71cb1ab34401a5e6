"""Knows what can be read from a client of boto3 or aiobotocore, and asks for advice for its region.

An object that only imitates such a client may lack all of it.
"""

from __future__ import annotations

import os

from penstock.client.advice import Advice, advise

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from penstock.client.operations import Operation

# docs.aws.amazon.com/AmazonS3/latest/userguide/directory-bucket-naming-rules.html, and of access points to one
DIRECTORY_BUCKET_ENDINGS = ("--x-s3", "--xa-s3")
_POOL_COUNT_DEFAULT = 10  # connections that botocore keeps


def is_session(client: Any) -> bool:
    """Whether it is a session, from which clients are made, and not a client."""
    return getattr(client, "meta", None) is None


def region_of(client: Any) -> str | None:
    """The region of a client, or of the clients that a session would make; None if unknown."""
    if is_session(client) and hasattr(client, "get_config_variable"):
        region = client.get_config_variable("region")
    else:
        region = getattr(getattr(client, "meta", client), "region_name", None)
    return region if isinstance(region, str) else None


def is_directory_bucket(name: str) -> bool:
    """Whether a name ends as those of directory buckets, and of access points to them, do."""
    return name.endswith(DIRECTORY_BUCKET_ENDINGS)


def place_of(bucket: str, client: Any, region: str | None = None) -> dict[str, Any]:
    """The region where a client finds a bucket, or that an access point's ARN names, and the bucket's class."""
    arn = bucket.split(":")
    place: dict[str, Any] = {"region": (arn[3] if len(arn) > 5 else "") or region or region_of(client)}
    return {**place, "service_class": "express"} if is_directory_bucket(bucket) else place


def pool_count_of(client: Any) -> int:
    """The connections that the client keeps; more are opened anew for each request."""
    config = getattr(getattr(client, "meta", None), "config", None)
    return int(getattr(config, "max_pool_connections", None) or _POOL_COUNT_DEFAULT)


def advise_in(
    place: Mapping[str, Any], operation: Operation, payload_size_bytes: int, demand: Mapping[str, Any]
) -> Advice:
    """Advice from the snapshot if that is for the client's region, else from the daemon, asked for that region."""
    region = place["region"]
    asked = {**{name: value for name, value in place.items() if name != "region"}, **demand}
    advice = advise(operation, payload_size_bytes, **asked)
    if "region" in demand or not region or advice.document.get("region", region) == region:
        return advice
    return advise(operation, payload_size_bytes, **{**asked, "region": region})


def refusal_of(trouble: BaseException) -> tuple[str, int]:
    """The service's error code and the answer's HTTP status; "" and 0 if the error has none."""
    response = getattr(trouble, "response", None) or {}
    code, status = response.get("Error", {}).get("Code"), response.get("ResponseMetadata", {})
    return code or "", status.get("HTTPStatusCode", 0)


def checksum_arguments(advice: Advice) -> dict[str, Any]:
    """Arguments of botocore's `Config` without which the store refuses requests, as far as this botocore has them."""
    if advice.document.get("store") is None:  # the usual case, which needs no imports
        return {}
    from botocore.config import Config

    from penstock.client.targets.stores import store_of, variables_for

    variables = variables_for(store_of(advice.document)).items()
    told = {n[len("AWS_") :].lower(): value for n, value in variables if n not in os.environ}
    return {name: value for name, value in told.items() if name in Config.OPTION_DEFAULTS}


def has_equal_parts(client: Any, advice: Advice) -> bool:
    """Whether the client's store accepts only parts of equal size, except for the last."""
    try:
        from penstock.client.targets.stores import ENDPOINT_VARIABLES, store_for
    except OSError:  # no file descriptor is left for the import; S3 itself accepts any sizes
        return False
    endpoint_url = getattr(getattr(client, "meta", None), "endpoint_url", None)
    environment = {ENDPOINT_VARIABLES[0]: endpoint_url} if isinstance(endpoint_url, str) else {}
    store = store_for(None, advice.document, environment)
    return store is not None and store.has_equal_parts
