"""Knows the options of transfers beside their demand, for editors and type checkers.

Nothing in penstock imports this at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client.demand import CommonDemand, TransferDemand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.client.advice import Advice
    from penstock.client.reporting import Reporter
    from penstock.client.transfers.many_files import File


class FilesOptions(CommonDemand, total=False):
    """Options for moving many files; `penstock.client.boto3.upload_files` explains them."""

    advice: Advice | None
    client_arguments: Mapping[str, Any] | None
    extra_args: Mapping[str, Any] | None
    callback: Callable[[int], None] | None
    on_file: Callable[[File], object] | None
    reporter: Reporter | None


class StreamOptions(TransferDemand, total=False):
    """Options for writing a stream; `penstock.client.boto3.open_writer` explains them."""

    size_bytes: int | None
    advice: Advice | None
    extra_args: Mapping[str, Any] | None
    callback: Callable[[int], None] | None
    reporter: Reporter | None
