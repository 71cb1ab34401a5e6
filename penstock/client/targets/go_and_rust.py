"""Knows what the transfer managers of the AWS SDK for Go 2 and Rust's object_store can be told.

From the sources of feature/s3/transfermanager 0.4 and 0.5, feature/s3/manager 1.23, object_store 0.14 and obstore 0.12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.targets.target import Option, both_ways, carried

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.targets.advised import Transfer
    from penstock.client.targets.target import Translation

_GO_CONNECTION_COUNT = 100
"""DefaultHTTPTransportMaxIdleConns of the AWS SDK for Go."""


def _go(advised: Transfer) -> Iterator[Option]:
    manager, older = "transfermanager.Options", "manager.Uploader"
    yield Option(manager, "Concurrency", advised.request_concurrency, ("thread_count",))
    sizes = {"PartSizeBytes": "request_size_bytes", "MultipartUploadThreshold": "multipart_threshold_bytes"}
    yield from carried(advised, manager, sizes)
    yield Option(older, "Concurrency", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, older, {"PartSize": "request_size_bytes"})
    yield from _go_connections(advised)


def _go_download(advised: Transfer) -> Iterator[Option]:
    manager, older = "transfermanager.Options", "manager.Downloader"
    yield Option(manager, "Concurrency", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, manager, {"PartSizeBytes": "request_size_bytes"})
    # Otherwise it reads an object in the same parts in which it was uploaded.
    yield Option(manager, "GetObjectType", "types.GetObjectRanges", ("range_size_bytes",))
    yield from carried(advised, manager, {"GetObjectBufferSize": "read_ahead_bytes"})
    yield Option(older, "Concurrency", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, older, {"PartSize": "request_size_bytes"})
    yield from _go_connections(advised)


def _go_connections(advised: Transfer) -> Iterator[Option]:
    """The SDK's own transport keeps only ten connections per host, and a hundred in all."""
    names = ("MaxIdleConnsPerHost", "MaxIdleConns")
    for name in names if advised.connection_pool_count > _GO_CONNECTION_COUNT else names[:1]:
        yield Option("http.Transport", name, advised.connection_pool_count, ("connection_pool_count",))


def _go_source(translation: Translation) -> list[str]:
    """One functional option for each struct."""
    return [
        f"func(o *{group}) {{ " + "; ".join(f"o.{name} = {value}" for name, value in options.items()) + " }"
        for group, options in translation.groups().items()
    ]


def _rust(advised: Transfer) -> Iterator[Option]:
    yield from carried(advised, "BufWriter", {"with_capacity": "request_size_bytes"})
    yield Option("BufWriter", "with_max_concurrency", advised.request_concurrency, ("thread_count",))
    yield Option("WriteMultipart", "wait_for_capacity", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, "WriteMultipart", {"new_with_chunk_size": "request_size_bytes"})
    yield from carried(advised, "ClientOptions", {"with_pool_max_idle_per_host": "connection_pool_count"})
    yield Option("obstore.put", "max_concurrency", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, "obstore.put", {"chunk_size": "request_size_bytes"})


def _rust_download(advised: Transfer) -> Iterator[Option]:
    # It cannot read a whole object in ranges: the application loops over ranges, within this limit.
    yield Option("LimitStore", "max_requests", advised.thread_count, ("thread_count",))
    yield from carried(advised, "get_range", {"range_size_bytes": "request_size_bytes"})
    yield from carried(advised, "ClientOptions", {"with_pool_max_idle_per_host": "connection_pool_count"})
    yield from carried(advised, "BufReader", {"with_capacity": "block_size_bytes"})
    yield from carried(advised, "coalesce_ranges", {"coalesce": "coalesced_gap_bytes"})


# Observed: one write of 42 MiB sent all seven parts at once, with three advised; writes of at most a part sent three.
_WRITES = "writes of a part at the most: the parts of a larger one all go at once"
_RUST_LINES = {  # by the struct or call that takes the options; obstore's are for Python
    "LimitStore": "LimitStore::new(store, {max_requests})  // ranges of {range_size_bytes} bytes for get_range",
    "BufWriter": "BufWriter::with_capacity(store, path, {with_capacity}).with_max_concurrency({with_max_concurrency})"
    "  // " + _WRITES,
    "WriteMultipart": "WriteMultipart::new_with_chunk_size(upload, {new_with_chunk_size})"
    "  // wait_for_capacity({wait_for_capacity}) before each write; " + _WRITES,
    "ClientOptions": "ClientOptions::new().with_pool_max_idle_per_host({with_pool_max_idle_per_host})",
    "BufReader": "BufReader::with_capacity(store, &meta, {with_capacity})\n"
    "// Python: obstore.open_reader(store, path, buffer_size={with_capacity})",
    "coalesce_ranges": "coalesce_ranges(&ranges, fetch, {coalesce})\n"
    "// Python: obstore.get_ranges(store, path, starts=starts, ends=ends, coalesce={coalesce})"
    "  # ten at a time, always",
    "obstore.put": "// Python: obstore.put(store, path, file, "
    "max_concurrency={max_concurrency}, chunk_size={chunk_size})",
}


def _rust_source(translation: Translation) -> list[str]:
    """A line for each struct or call that takes options."""
    values = {option.name: option.value for option in translation.options}
    told = [text for group, text in _RUST_LINES.items() if group in translation.groups()]
    return "\n".join(told).format(**values).split("\n")


TARGETS = (
    *both_ways(
        "go-transfermanager",
        upload=(
            "function options of the AWS SDK for Go 2: transfermanager, the older manager, the transport",
            _go,
        ),
        download=(
            "the same for downloads: transfermanager, the older Downloader, the transport",
            _go_download,
        ),
        reasons={"rate_limit_bytes_per_second": "it has no limit on bandwidth: wrap the reader"},
        download_reasons={
            "multipart_threshold_bytes": "it reads in ranges whatever is larger than one",
            "block_size_bytes": "it hands on what arrives, and has no blocks",
            "coalesced_gap_bytes": "each request has one range",
        },
        writers={"config": _go_source},
        comment="//",
    ),
    *both_ways(
        "rust-object-store",
        upload=("BufWriter, WriteMultipart and ClientOptions of object_store; obstore in Python", _rust),
        download=(
            "LimitStore, BufReader and coalesce_ranges of object_store; obstore in Python",
            _rust_download,
        ),
        reasons={
            "multipart_threshold_bytes": "it splits what is larger than one part, always",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth: pace the writes",
        },
        download_reasons={
            "multipart_threshold_bytes": "the loop over ranges is yours, and begins where you say",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth: pace the reads",
            "read_ahead_bytes": "BufReader reads one buffer, and nothing ahead",
        },
        writers={"config": _rust_source},
        comment="//",
    ),
)
