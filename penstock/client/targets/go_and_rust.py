"""Knows what the transfer managers of the AWS SDK for Go 2 and Rust's object_store can be told about uploads.

From the sources of feature/s3/transfermanager 0.5 and feature/s3/manager 1.23, object_store 0.14 and obstore 0.12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.targets.target import Option, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.targets.advised import Upload
    from penstock.client.targets.target import Translation


def _go(advised: Upload) -> Iterator[Option]:
    manager, older, http = "transfermanager.Options", "manager.Uploader", "http.Transport"
    yield Option(manager, "Concurrency", advised.part_concurrency, ("thread_count",))
    yield Option(manager, "PartSizeBytes", advised.part_size_bytes, ("part_size_bytes",))
    yield Option(
        manager,
        "MultipartUploadThreshold",
        advised.multipart_threshold_bytes,
        ("multipart_threshold_bytes",),
    )
    yield Option(older, "Concurrency", advised.part_concurrency, ("thread_count",))
    yield Option(older, "PartSize", advised.part_size_bytes, ("part_size_bytes",))
    # The SDK's own transport keeps ten connections to a host.
    yield Option(http, "MaxIdleConnsPerHost", advised.connection_pool_count, ("connection_pool_count",))


def _go_source(translation: Translation) -> list[str]:
    """One function option for each of its structs."""
    return [
        f"func(o *{group}) {{ " + "; ".join(f"o.{name} = {value}" for name, value in options.items()) + " }"
        for group, options in translation.groups().items()
    ]


def _rust(advised: Upload) -> Iterator[Option]:
    yield Option("BufWriter", "with_capacity", advised.part_size_bytes, ("part_size_bytes",))
    yield Option("BufWriter", "with_max_concurrency", advised.part_concurrency, ("thread_count",))
    yield Option("WriteMultipart", "wait_for_capacity", advised.part_concurrency, ("thread_count",))
    yield Option("WriteMultipart", "new_with_chunk_size", advised.part_size_bytes, ("part_size_bytes",))
    yield Option(
        "ClientOptions",
        "with_pool_max_idle_per_host",
        advised.connection_pool_count,
        ("connection_pool_count",),
    )
    yield Option("obstore.put", "max_concurrency", advised.part_concurrency, ("thread_count",))
    yield Option("obstore.put", "chunk_size", advised.part_size_bytes, ("part_size_bytes",))


def _rust_source(translation: Translation) -> list[str]:
    """What is passed to each, on a line of its own; the last is Python's."""
    groups = translation.groups()
    capacity, busy = groups["BufWriter"].values()
    wait, chunk = groups["WriteMultipart"].values()
    (idle,) = groups["ClientOptions"].values()
    python = ", ".join(f"{name}={value}" for name, value in groups["obstore.put"].items())
    return [
        f"BufWriter::with_capacity(store, path, {capacity}).with_max_concurrency({busy})",
        f"WriteMultipart::new_with_chunk_size(upload, {chunk})  // wait_for_capacity({wait}) before each write",
        f"ClientOptions::new().with_pool_max_idle_per_host({idle})",
        f"// Python: obstore.put(store, path, file, {python})",
    ]


TARGETS = (
    Target(
        name="go-transfermanager",
        operation="s3_upload",
        purpose="function options of the AWS SDK for Go 2: transfermanager, the older manager, the transport",
        say=_go,
        reasons={
            "rate_limit_bytes_per_second": "it has no limit on bandwidth: wrap the reader",
            "hedge_timeout_seconds": "it has no hedged requests",
        },
        writers={"config": _go_source},
        comment="//",
    ),
    Target(
        name="rust-object-store",
        operation="s3_upload",
        purpose="BufWriter, WriteMultipart and ClientOptions of object_store; obstore in Python",
        say=_rust,
        reasons={
            "multipart_threshold_bytes": "it splits what is larger than one part, always",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth: pace the writes",
            "hedge_timeout_seconds": "it has no hedged requests",
        },
        writers={"config": _rust_source},
        comment="//",
    ),
)
