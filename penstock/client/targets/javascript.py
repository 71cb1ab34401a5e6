"""Knows what the AWS SDK for JavaScript 3 can be told: lib-storage for uploads, sockets for both ways.

From the sources of @aws-sdk/lib-storage 3.1175 and @smithy/node-http-handler 4.14, which keeps 50 sockets by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.operations import S3_DOWNLOAD, S3_UPLOAD
from penstock.client.targets.target import APPLICATION, NO_HEDGE, Option, Target, carried

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.targets.advised import Transfer
    from penstock.client.targets.target import Translation

_AGENTS = ("NodeHttpHandler.httpAgent", "NodeHttpHandler.httpsAgent")  # without TLS, and with
_OWN_READS = {
    "rangeSizeBytes": "request_size_bytes",
    "multipartThresholdBytes": "multipart_threshold_bytes",
    "readAheadBytes": "read_ahead_bytes",
    "blockSizeBytes": "block_size_bytes",
    "coalescedGapBytes": "coalesced_gap_bytes",
    "hedgeTimeoutSeconds": "hedge_timeout_seconds",
}


def _lib_storage(advised: Transfer) -> Iterator[Option]:
    yield Option("Upload", "queueSize", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, "Upload", {"partSize": "request_size_bytes"})
    # A request with "Expect: 100-continue" (from 2 MiB on) opens a connection of its own each time, beside the agents'.
    yield Option("S3Client", "expectContinueHeader", value=False, fields=("connection_pool_count",))
    yield from _sockets(advised)


def _node(advised: Transfer) -> Iterator[Option]:
    """The client reads one range per call, so the application itself loops over ranges."""
    yield from _sockets(advised)
    yield Option(APPLICATION, "rangeConcurrency", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, APPLICATION, _OWN_READS)


def _sockets(advised: Transfer) -> Iterator[Option]:
    for agent in _AGENTS:
        yield Option(agent, "maxSockets", advised.connection_pool_count, ("connection_pool_count",))
    yield Option(APPLICATION, "objectConcurrency", advised.object_concurrency, ("thread_count",))


def _source(translation: Translation) -> list[str]:
    groups = translation.groups()
    lines = [f"const {name} = {value};" for name, value in groups[APPLICATION].items()]
    lines += [f"const agent = {{ maxSockets: {groups[_AGENTS[0]]['maxSockets']} }};"]
    own = "".join(f"{name}: {str(value).lower()}, " for name, value in groups.get("S3Client", {}).items())
    handler = "new NodeHttpHandler({ httpAgent: agent, httpsAgent: agent })"
    lines.append(f"const s3 = new S3Client({{ {own}requestHandler: {handler} }});")
    if "Upload" in groups:
        options = ", ".join(f"{name}: {value}" for name, value in groups["Upload"].items())
        lines.append(f"const options = {{ {options} }};  // new Upload({{ client: s3, params, ...options }})")
    return lines


TARGETS = (
    Target(
        name="node-lib-storage",
        operation=S3_UPLOAD,
        purpose="Upload of @aws-sdk/lib-storage, and the sockets of the client (JavaScript)",
        say=_lib_storage,
        reasons={
            "multipart_threshold_bytes": "it splits what is larger than one part, always",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth: pace the stream",
            "hedge_timeout_seconds": NO_HEDGE,
        },
        writers={"config": _source},
        comment="//",
    ),
    Target(
        name="node-download",
        operation=S3_DOWNLOAD,
        purpose="sockets of the S3Client (JavaScript), and what your own loop over ranges needs",
        say=_node,
        reasons={
            "io_chunk_bytes": "it hands on what arrives, in pieces of its own size",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth: pace the stream",
        },
        writers={"config": _source},
        comment="//",
    ),
)
