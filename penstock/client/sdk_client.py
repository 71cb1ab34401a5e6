"""Knows what can be seen of a client of boto3 or aiobotocore, and asks for advice where it works.

What only behaves like such a client may lack all of it.
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
    """Whether it is a session, of which clients are made."""
    return getattr(client, "meta", None) is None


def region_of(client: Any) -> str | None:
    """Where a client works, or a session would; None where it does not say."""
    if is_session(client) and hasattr(client, "get_config_variable"):
        region = client.get_config_variable("region")
    else:
        region = getattr(getattr(client, "meta", client), "region_name", None)
    return region if isinstance(region, str) else None


def is_directory_bucket(name: str) -> bool:
    """By how the names of directory buckets, and of access points to one, end."""
    return name.endswith(DIRECTORY_BUCKET_ENDINGS)


def place_of(bucket: str, client: Any, region: str | None = None) -> dict[str, Any]:
    """Where a client finds a bucket, which the ARN of an access point tells, and of which class it is."""
    arn = bucket.split(":")
    place: dict[str, Any] = {"region": (arn[3] if len(arn) > 5 else "") or region or region_of(client)}
    return {**place, "service_class": "express"} if is_directory_bucket(bucket) else place


def pool_count_of(client: Any) -> int:
    """The connections that it keeps: what exceeds them is made anew for each request."""
    config = getattr(getattr(client, "meta", None), "config", None)
    return int(getattr(config, "max_pool_connections", None) or _POOL_COUNT_DEFAULT)


def advise_in(
    place: Mapping[str, Any], operation: Operation, payload_size_bytes: int, demand: Mapping[str, Any]
) -> Advice:
    """From the snapshot where that is in the daemon's own region, else by asking for the other one."""
    region = place["region"]
    asked = {**{name: value for name, value in place.items() if name != "region"}, **demand}
    advice = advise(operation, payload_size_bytes, **asked)
    if "region" in demand or not region or advice.document.get("region", region) == region:
        return advice
    return advise(operation, payload_size_bytes, **{**asked, "region": region})


def refusal_of(trouble: BaseException) -> tuple[str, int]:
    """The service's word for why, and the status of its answer; nothing and 0 where it gave none."""
    response = getattr(trouble, "response", None) or {}
    code, status = response.get("Error", {}).get("Code"), response.get("ResponseMetadata", {})
    return code or "", status.get("HTTPStatusCode", 0)


def checksum_arguments(advice: Advice) -> dict[str, Any]:
    """What botocore's `Config` has to be told for the store not to refuse requests, as far as it knows the words."""
    if advice.document.get("store") is None:  # as nearly everywhere: there is nothing to be read for it
        return {}
    from botocore.config import Config

    from penstock.client.targets.stores import store_of, variables_for

    variables = variables_for(store_of(advice.document)).items()
    told = {n[len("AWS_") :].lower(): value for n, value in variables if n not in os.environ}
    return {name: value for name, value in told.items() if name in Config.OPTION_DEFAULTS}


def has_equal_parts(client: Any, advice: Advice) -> bool:
    """Whether the store that the client speaks to takes none but equal parts of an object, the last one apart."""
    try:
        from penstock.client.targets.stores import ENDPOINT_VARIABLES, store_for
    except OSError:  # no descriptor is left to read it with; S3 itself takes any
        return False
    endpoint_url = getattr(getattr(client, "meta", None), "endpoint_url", None)
    environment = {ENDPOINT_VARIABLES[0]: endpoint_url} if isinstance(endpoint_url, str) else {}
    store = store_for(None, advice.document, environment)
    return store is not None and store.has_equal_parts
