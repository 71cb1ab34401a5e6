"""Knows how to move files with boto3 as advised, one or many, up and down, and to tell the daemon how that went.

    from penstock.client.boto3 import download_files, files_below, objects_below, upload_file, upload_files

    upload_file(s3, path, bucket, key)
    summary = upload_files(boto3.Session(), files_below(folder, "prefix/"), bucket)
    summary = download_files(boto3.Session(), objects_below(s3, bucket, "prefix/", folder), bucket)

`upload_file` and `download_file` are those of `s3` with the advised configuration; what they raise is what boto3
raises. The client should keep a connection for each thread (`penstock.client.boto3.client_config`): others are made
anew for each request. `upload_files` and `download_files` move many files at a time through one pool of threads, and
make a client that has the connections when they are given a session.
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

_AHEAD_COUNT = 1000  # files that are handed to boto3 before one of them has ended


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
    """Upload one file as advised for its size, and report what happened. Raises what boto3 raises.

    `demand` is that of `penstock.client.advice.advise`; `advice` replaces asking.
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
    """Download one object as advised for its size, and report what happened. Raises what boto3 raises.

    No other version is read than was there at the beginning: one that is written meanwhile is an error. `demand` is
    that of `penstock.client.advice.advise`.
    """
    arguments = dict(extra_args or {})
    file_name = _file_name(path)
    refuse_folder(file_name)
    found = _looked_at(s3_client, bucket, File(file_name, key), arguments)
    if size_bytes is None:
        size_bytes = found.size_bytes  # or 0
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
    """As boto3 does it, but no other version than was found, and nothing that was not asked for."""
    from boto3.exceptions import RetriesExceededError
    from s3transfer.exceptions import RetriesExceededError as TriedTooOftenError

    with transfers.managed(s3_client, config, [found]):
        transfers.begin(found, arguments)
        _, result = transfers.next()
        try:
            result()
        except TriedTooOftenError as trouble:  # boto3's callers catch boto3's
            raise RetriesExceededError(trouble.last_exception) from trouble


def _file_name(path: str | os.PathLike[str]) -> str:
    """As boto3 takes it: what it refuses would be a path to the transfer manager below it. Raises ValueError."""
    file_name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(file_name, str):
        raise ValueError("Filename must be a string or a path-like object")  # noqa: TRY004 - boto3's own
    return file_name


def upload_files(s3_client: Any, files: Files, bucket: str, **options: Unpack[FilesOptions]) -> Summary:
    """Upload many files at a time as advised for their number and sizes, and report what happened.

    `files` are paths with their keys, as pairs or in a mapping (`files_below` has those of a folder). `s3_client` is a
    client of boto3, which is used as it is, with its credentials, endpoint and configuration, and no more threads than
    it keeps connections; or a session, of which a client with a connection for each thread is made, from
    `client_arguments` where there are any: `endpoint_url`, `config` and what else `Session.client` takes.

    Nothing is raised for a file that fails: the `Summary` has it with its reason, and `summary.raise_for_failed()`
    raises one exception for all. `advice` replaces asking, for which the other `options` are stated; `extra_args` are
    boto3's. `callback` is boto3's, called with bytes by many threads; `on_file` is called in this one with each file
    when it has ended, `file.error` being None or why it failed. An exception of `on_file`, and KeyboardInterrupt, stop
    what is under way, remove unfinished uploads, and are raised.
    """
    errand = Errand(s3_client, bucket, S3_UPLOAD, **options)
    for plan in planned(files, errand.ask):
        _move(errand, plan)
    return errand.summary


def download_files(s3_client: Any, objects: Objects, bucket: str, **options: Unpack[FilesOptions]) -> Summary:
    """Download many objects at a time as advised for their number and sizes, and report what happened.

    `objects` are keys with the paths where they go, as pairs or in a mapping, whose sizes are asked for; or those of a
    listing (`objects_below`), which has them. Folders are made where there are none. All else is as in `upload_files`.
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
    """Every object below a prefix, with its size, and where it goes below a folder. Raises what boto3 raises."""
    paginator = s3_client.get_paginator("list_objects_v2")
    for page in paginator.paginate(Bucket=bucket, Prefix=prefix, **(extra_args or {})):
        for item in page.get("Contents", ()):
            found = object_below(folder, prefix, item)
            if found is not None:
                yield found


def _move(errand: Errand, plan: tuple[list[Batch], list[File]]) -> None:
    """Batch after batch, with what boto3 retries and refuses observed, and reported where it is evidence."""
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
    """Through one manager, whose threads they share."""
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
    """Whether it can be written; else it has its error."""
    try:
        make_folder_of(file.path)
    except (OSError, ValueError) as trouble:
        file.error = trouble
    return file.error is None


def _outcome(file: File, work: Callable[[], object]) -> File:
    """The file, with its error if this failed."""
    try:
        work()
    except Exception as trouble:  # noqa: BLE001 - whatever boto3 raises for this file is why it failed
        file.fail(trouble)
    return file


@contextmanager
def _client_for(errand: Errand, batches: Sequence[Batch] = ()) -> Iterator[Any]:
    """A client with the connections for these where a session was given; else the client that was."""
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
    """Ask for the sizes that are not known yet, many at a time; who has none has its error."""
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
    """What was in force: threads, also those without a connection that is kept; one for an object as a whole.

    botocore makes connections beyond those that it keeps: 33 threads moved as much with 10 of them as with 33.
    """
    if size_bytes < config.multipart_threshold:
        return {"thread_count": 1, size_knob: whole_size_bytes(size_knob, size_bytes)}
    return {"thread_count": config.max_request_concurrency, size_knob: config.multipart_chunksize}
