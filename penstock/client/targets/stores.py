"""Knows where stores that speak S3 but are not AWS differ from it, and what their clients have to be told.

Penstock itself does only what all of them accept: parts of 5 MiB or more, at most 10,000 of them, all equal except the
last if the object's size is known; probes without checksums, unfinished uploads looked up by their own key, and
deletion one by one if a batch is refused. What remains are the checksums that AWS SDKs add on their own since 2025, and
the parts of streams. The store is stated in the daemon's configuration or follows from its endpoint; advice carries its
name to the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL")
_WITHOUT_CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
"""Read by the SDKs of AWS for Python, Java 2, Go 2 and JavaScript 3, and by the AWS CLI:
docs.aws.amazon.com/sdkref/latest/guide/feature-dataintegrity.html.
"""


class Store(NamedTuple):
    """How a store is recognised, and what its clients have to leave out."""

    name: str
    title: str
    hosts: tuple[str, ...] = ()  # how its endpoints end, if it is a service
    has_checksums: bool = False  # accepts those that AWS SDKs add on their own
    has_equal_parts: bool = False  # accepts only equal parts in an upload, except for the last


# As of August 2026. What else differs between them is in docs/clients.md; the sources of both:
# R2: developers.cloudflare.com/r2/objects/upload-objects, .../r2/api/s3/api (checksums),
#   .../r2/api/s3/conditional-operations.
# MinIO: docs.min.io/community/minio-object-store/operations/concepts/thresholds.html, and tests/real against MinIO of
#   2026 (checksums, listing).
# Ceph: github.com/ceph/ceph: rgw_multipart_min_part_size in src/common/options/rgw.yaml.in (sizes, by default),
#   github.com/ceph/ceph/pull/54856 (checksums behind the body: refused before it was merged in 2024),
#   github.com/ceph/s3-tests/pull/693 (conditional writes of multipart uploads: tested since 2025).
# B2: backblaze.com/docs/cloud-storage-create-large-files-with-the-native-api, backblaze.com/apidocs/s3-upload-part
#   (equal parts with Live Read), github.com/boto/s3transfer/issues/327 (checksums are refused).
# GCS: cloud.google.com/storage/docs/multipart-uploads, cloud.google.com/storage/docs/xml-api/put-object-multipart
#   (x-goog-hash, and no x-amz-checksum).
STORES = (
    Store(
        "r2",
        "Cloudflare R2",
        hosts=(".r2.cloudflarestorage.com",),
        has_checksums=True,
        has_equal_parts=True,
    ),
    Store("minio", "MinIO", hosts=("play.min.io",), has_checksums=True),
    Store("ceph", "Ceph Object Gateway"),
    Store("b2", "Backblaze B2", hosts=(".backblazeb2.com",), has_equal_parts=True),  # with Live Read
    Store("gcs", "Google Cloud Storage", hosts=("storage.googleapis.com",)),
)
STORES_BY_NAME: Mapping[str, Store] = {store.name: store for store in STORES}


def store_at(endpoint_url: str | None) -> Store | None:
    """The store with this endpoint; None for AWS and for self-hosted servers."""
    try:
        host = urlsplit(endpoint_url or "").hostname or ""
    except ValueError:
        return None
    return next((s for s in STORES if any(f".{host}".endswith(f".{h.lstrip('.')}") for h in s.hosts)), None)


def store_for(
    stated: str | None,
    document: Mapping[str, Any],
    environment: Mapping[str, str],
    command: tuple[str, ...] = (),
) -> Store | None:
    """The stated store; else the one of the client's endpoint; else the daemon's, unless the client's endpoint is AWS.

    Raises KeyError for a stated name that is unknown.
    """
    if stated:
        return STORES_BY_NAME[stated]
    endpoint = endpoint_of(environment, command)
    return store_at(endpoint) or (None if ".amazonaws." in (endpoint or "") else store_of(document))


def endpoint_of(environment: Mapping[str, str], command: tuple[str, ...] = ()) -> str | None:
    """The endpoint that a command names, or else its environment; None if neither does."""
    for place, word in enumerate(command):
        name, joint, value = word.partition("=")
        if name in {"--endpoint-url", "--s3-endpoint"}:
            return value if joint else "".join(command[place + 1 : place + 2])
    return next((environment[name] for name in ENDPOINT_VARIABLES if environment.get(name)), None)


def store_of(document: Mapping[str, Any]) -> Store | None:
    """The store that an answer of the daemon names, if any."""
    name = document.get("store")
    return STORES_BY_NAME.get(name) if isinstance(name, str) else None


def variables_for(store: Store | None) -> Mapping[str, str]:
    """Environment variables without which the store would refuse a client's uploads and downloads."""
    return {} if store is None or store.has_checksums else _WITHOUT_CHECKSUMS
