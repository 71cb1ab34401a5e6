"""Knows how to move files with boto3 as advised, one or many, up and down, and to tell the daemon how that went.

    from penstock.client.boto3 import download_files, files_below, objects_below, upload_file, upload_files

    upload_file(s3, path, bucket, key)
    summary = upload_files(boto3.Session(), files_below(folder, "prefix/"), bucket)
    summary = download_files(boto3.Session(), objects_below(s3, bucket, "prefix/", folder), bucket)

`upload_file` and `download_file` call those of `s3` with the advised configuration, and raise what boto3 raises. The
client should keep a connection for each thread (`penstock.client.boto3.client_config`); more connections are opened
anew for each request. `upload_files` and `download_files` move many files at a time through one pool of threads; given
a session, they make a client with enough connections.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from penstock.client.advice import Advice
from penstock.client.boto3_config import config_of, download_config, transfer_config
from penstock.client.complaint import complain
from penstock.client.operations import S3_DOWNLOAD, S3_UPLOAD
from penstock.client.reporting import Reporter
from penstock.client.sdk_client import advise_in, place_of, pool_count_of
from penstock.client.transfers.boto3_manager import Transfers
from penstock.client.transfers.errand import LOOKING_COUNT, Errand
from penstock.client.transfers.many_files import (
    File,
    Summary,
    divided,
    make_folder_of,
    object_below,
    planned,
    refuse_folder,
    wanted,
    whole_size_bytes,
)
from penstock.client.transfers.observed import Observed

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from boto3.s3.transfer import TransferConfig
    from typing_extensions import Unpack

    from penstock.client.demand import TransferDemand
    from penstock.client.transfers.many_files import Batch, Files, Objects, Path
    from penstock.client.transfers.options import FilesOptions

_AHEAD_COUNT = 1000  # files that boto3 has been given and that have not ended


def upload_file(
    s3_client: Any,
    path: str | os.PathLike[str],
    bucket: str,
    key: str,
    *,
    advice: Advice | None = None,
    extra_args: Mapping[str, Any] | None = None,
    callback: Callable[[int], None] | None = None,
    reporter: Reporter | None = None,
    **demand: Unpack[TransferDemand],
) -> None:
    """Upload one file as advised for its size, and report what happened.

    Raises what boto3 raises, OSError if the file cannot be read, and ValueError if `path` is no path; nothing because
    of penstock. Without a daemon it uploads with boto3's defaults. `advice` is used in place of asking; `demand` is
    that of `penstock.client.advice.advise`. `extra_args` and `callback` are boto3's. `reporter` replaces the process's
    own.
    """
    file_name = _file_name(path)
    size_bytes = os.path.getsize(file_name)  # noqa: PTH202 - pathlib costs the application an import
    place = place_of(bucket, s3_client)
    advice = advice or advise_in(place, S3_UPLOAD, size_bytes, demand)
    config = transfer_config(size_bytes, advice=advice)
    with Observed(s3_client, bucket, key) as observed:
        s3_client.upload_file(
            file_name, bucket, key, ExtraArgs=dict(extra_args or {}), Callback=callback, Config=config
        )
    if size_bytes:
        setting = _setting(config, "part_size_bytes", size_bytes)
        observed.report(reporter, size_bytes, setting, transferred_bytes=size_bytes, client="boto3")


def download_file(
    s3_client: Any,
    bucket: str,
    key: str,
    path: str | os.PathLike[str],
    *,
    size_bytes: int | None = None,
    advice: Advice | None = None,
    extra_args: Mapping[str, Any] | None = None,
    callback: Callable[[int], None] | None = None,
    reporter: Reporter | None = None,
    **demand: Unpack[TransferDemand],
) -> None:
    """Download one object as advised for its size, and report what happened.

    Raises what boto3 raises, OSError if `path` is a folder, cannot be written, or the store answers with other bytes
    than were asked for, and ValueError if `path` is no path; nothing because of penstock. Without a daemon it downloads
    with boto3's defaults. Only the version that exists at the beginning is read; if it is replaced meanwhile, the
    download fails. `size_bytes` is the size to ask advice for, by default the object's own. The other options are those
    of `upload_file`.
    """
    arguments = dict(extra_args or {})
    file_name = _file_name(path)
    refuse_folder(file_name)
    found = _looked_at(s3_client, bucket, File(file_name, key), arguments)
    if size_bytes is None:
        size_bytes = found.size_bytes  # 0 or less if HeadObject failed
    sink = "null" if file_name == os.devnull else "file"
    place = place_of(bucket, s3_client)
    advice = advice or advise_in(place, S3_DOWNLOAD, size_bytes, {"sink": sink, **demand})
    config = download_config(size_bytes, advice=advice)
    transfers = Transfers(bucket, S3_DOWNLOAD, callback)
    with Observed(s3_client, bucket, key, S3_DOWNLOAD) as observed:
        if found.error:  # the download will say why
            s3_client.download_file(
                bucket, key, found.path, ExtraArgs=arguments, Callback=callback, Config=config
            )
        else:
            _download(transfers, s3_client, found, config, arguments)
    if size_bytes:
        observed.report(
            reporter,
            size_bytes,
            _setting(config, "range_size_bytes", size_bytes),
            transferred_bytes=size_bytes,
            client="boto3",
            sink_bytes_per_second=transfers.sink.bytes_per_second if sink == "file" else None,
        )


def _download(
    transfers: Transfers, s3_client: Any, found: File, config: TransferConfig, arguments: dict[str, Any]
) -> None:
    """As boto3 downloads, but only the version that was found, and only bytes that were asked for."""
    from boto3.exceptions import RetriesExceededError
    from s3transfer.exceptions import RetriesExceededError as TriedTooOftenError

    with transfers.managed(s3_client, config, [found]):
        transfers.begin(found, arguments)
        _, result = transfers.next()
        try:
            result()
        except TriedTooOftenError as trouble:  # callers catch boto3's class
            raise RetriesExceededError(trouble.last_exception) from trouble


def _file_name(path: str | os.PathLike[str]) -> str:
    """The path as boto3 accepts it; the transfer manager below boto3 would accept more. Raises ValueError."""
    file_name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(file_name, str):
        raise ValueError("Filename must be a string or a path-like object")  # noqa: TRY004 - boto3's own
    return file_name


def upload_files(s3_client: Any, files: Files, bucket: str, **options: Unpack[FilesOptions]) -> Summary:
    """Upload many files at a time as advised for their number and sizes, and report what happened.

    `files` are pairs of path and key, or a mapping of paths to keys; `files_below` lists those of a folder. `s3_client`
    is a boto3 client or a session. A client is used as it is, with no more threads than it keeps connections. From a
    session a client is made with a connection for each thread, and with `client_arguments`: `endpoint_url`, `config`
    and whatever else `Session.client` takes.

    A file that fails raises nothing: the returned `Summary` lists it with its reason, and `summary.raise_for_failed()`
    raises one exception for all. Raises TypeError for an item that is no pair, and for `client_arguments` beside a
    client. Without a daemon it uses boto3's defaults.

    `advice` is used in place of asking; otherwise the remaining `options` are the demand. `extra_args` are boto3's.
    `callback` is boto3's, called by many threads with a number of bytes. `on_file` is called in this thread with each
    file that has ended; `file.error` is None, or says why it failed. An exception from `on_file`, and
    KeyboardInterrupt, stop the transfers and remove unfinished uploads before they are raised.
    """
    errand = Errand(s3_client, bucket, S3_UPLOAD, **options)
    for plan in planned(files, errand.ask):
        _move(errand, plan)
    return errand.summary


def download_files(s3_client: Any, objects: Objects, bucket: str, **options: Unpack[FilesOptions]) -> Summary:
    """Download many objects at a time as advised for their number and sizes, and report what happened.

    `objects` are pairs of key and destination path, or a mapping of keys to paths, whose sizes are looked up first; or
    the files of a listing (`objects_below`), which have their sizes. Missing folders are made. Everything else is as in
    `upload_files`.
    """
    errand = Errand(s3_client, bucket, S3_DOWNLOAD, **options)
    for window in wanted(objects):
        with _client_for(errand) as client:
            _look(client, bucket, window, errand.extra_args)
        _move(errand, divided(window, errand.ask))
    return errand.summary


def objects_below(
    s3_client: Any, bucket: str, prefix: str, folder: Path, *, extra_args: Mapping[str, Any] | None = None
) -> Iterator[File]:
    """Every object below a prefix, with its size and its path below `folder`. Raises what boto3 raises."""
    paginator = s3_client.get_paginator("list_objects_v2")
    for page in paginator.paginate(Bucket=bucket, Prefix=prefix, **(extra_args or {})):
        for item in page.get("Contents", ()):
            found = object_below(folder, prefix, item)
            if found is not None:
                yield found


def _move(errand: Errand, plan: tuple[list[Batch], list[File]]) -> None:
    """Move batch after batch; observe retries and refusals, and report each batch that is evidence."""
    found, unreadable = plan
    for file in unreadable:
        errand.summary.note(file)
    with _client_for(errand, found) as client:
        for batch in found:
            config = _batch_config(client, batch, errand.operation)
            transfers = Transfers(errand.bucket, errand.operation, errand.callback)
            observing = Observed(client, errand.bucket, None, errand.operation)
            with observing as observed, transfers.managed(client, config, batch.files):
                _move_all(transfers, batch.files, errand)
            count, rate = config.max_request_concurrency, transfers.sink.bytes_per_second
            errand.report(observed, batch, count, client="boto3", sink_bytes_per_second=rate)


def _move_all(transfers: Transfers, files: Iterable[File], errand: Errand) -> None:
    """Move the files through one transfer manager, whose threads they share."""
    under_way_count, summary = 0, errand.summary
    for file in files:
        if under_way_count >= _AHEAD_COUNT:
            summary.note(_outcome(*transfers.next()))
            under_way_count -= 1
        if errand.operation == S3_DOWNLOAD and not _has_folder(file):
            summary.note(file)
            continue
        transfers.begin(file, dict(errand.extra_args))
        under_way_count += 1
    for _ in range(under_way_count):
        summary.note(_outcome(*transfers.next()))


def _has_folder(file: File) -> bool:
    """Whether the file's folder exists or was made; if not, the file has the error."""
    try:
        make_folder_of(file.path)
    except (OSError, ValueError) as trouble:
        file.error = trouble
    return file.error is None


def _outcome(file: File, work: Callable[[], object]) -> File:
    """The file, with its error if `work` failed."""
    try:
        work()
    except Exception as trouble:  # noqa: BLE001 - whatever boto3 raises for this file is why it failed
        file.fail(trouble)
    return file


@contextmanager
def _client_for(errand: Errand, batches: Sequence[Batch] = ()) -> Iterator[Any]:
    """The client that was given; from a session, one with enough connections for these batches."""
    from botocore.config import Config

    options = errand.options(Config, batches)
    if options is None:
        yield errand.given
        return
    client = errand.given.client("s3", **options)
    try:
        yield client
    finally:
        client.close()


def _batch_config(s3_client: Any, batch: Batch, operation: str) -> TransferConfig:
    pool = pool_count_of(s3_client)
    if 2 * pool <= batch.thread_count:
        complain(
            "%s threads are advised, and the client keeps %s connections: hand over a boto3.Session, or make the "
            "client with penstock.client.boto3.%s",
            batch.thread_count,
            pool,
            "download_client_config" if operation == S3_DOWNLOAD else "client_config",
        )
    return config_of(
        max_concurrency=min(batch.thread_count, pool),
        multipart_chunksize=batch.part_size_bytes,
        multipart_threshold=batch.multipart_threshold_bytes,
        max_bandwidth=batch.rate_limit_bytes_per_second,
        preferred_transfer_client="classic",
    )


def _look(s3_client: Any, bucket: str, files: list[File], extra_args: Mapping[str, Any]) -> None:
    """Look up the sizes that are not known yet, many at a time; a file whose size is not found has an error."""
    from concurrent.futures import ThreadPoolExecutor

    unknown = [file for file in files if file.size_bytes < 0]
    if unknown:
        count = min(LOOKING_COUNT, len(unknown), pool_count_of(s3_client))
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda file: _looked_at(s3_client, bucket, file, extra_args), unknown))


def _looked_at(s3_client: Any, bucket: str, file: File, extra_args: Mapping[str, Any]) -> File:
    def look() -> None:
        found = s3_client.head_object(Bucket=bucket, Key=file.key, **extra_args)
        file.size_bytes, file.etag = found["ContentLength"], found.get("ETag")

    return _outcome(file, look)


def _setting(config: TransferConfig, size_knob: str, size_bytes: int) -> dict[str, float]:
    """The setting in force: threads, also those without a kept connection; one thread for an object sent whole.

    botocore opens connections beyond its pool: 33 threads moved as much with a pool of 10 as with one of 33.
    """
    if size_bytes < config.multipart_threshold:
        return {"thread_count": 1, size_knob: whole_size_bytes(size_knob, size_bytes)}
    return {"thread_count": config.max_request_concurrency, size_knob: config.multipart_chunksize}
