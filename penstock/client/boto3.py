"""Knows everything that penstock offers to users of boto3, under one name; imports boto3 only when it is used.

from penstock.client import boto3 as advised

config = advised.transfer_config(size_bytes)
s3 = boto3.client("s3", config=advised.client_config(size_bytes))
s3.upload_file(path, bucket, key, Config=config)
"""

from __future__ import annotations

import penstock.client.boto3_config  # noqa: F401  # now: later there may be no file descriptor left for an import
from penstock.client.elsewhere import offered

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from penstock.client.boto3_config import client_config as client_config
    from penstock.client.boto3_config import connection_pool_count as connection_pool_count
    from penstock.client.boto3_config import download_client_config as download_client_config
    from penstock.client.boto3_config import download_config as download_config
    from penstock.client.boto3_config import transfer_arguments as transfer_arguments
    from penstock.client.boto3_config import transfer_config as transfer_config
    from penstock.client.queues.boto3_producer import QueueProducer as QueueProducer
    from penstock.client.queues.boto3_queue import QueueConsumer as QueueConsumer
    from penstock.client.queues.sending import SendFailedError as SendFailedError
    from penstock.client.transfers.boto3_transfers import download_file as download_file
    from penstock.client.transfers.boto3_transfers import download_files as download_files
    from penstock.client.transfers.boto3_transfers import objects_below as objects_below
    from penstock.client.transfers.boto3_transfers import upload_file as upload_file
    from penstock.client.transfers.boto3_transfers import upload_files as upload_files
    from penstock.client.transfers.many_files import File as File
    from penstock.client.transfers.many_files import FilesFailedError as FilesFailedError
    from penstock.client.transfers.many_files import Summary as Summary
    from penstock.client.transfers.many_files import files_below as files_below
    from penstock.client.transfers.reader import open_object as open_object
    from penstock.client.transfers.writer import open_writer as open_writer
    from penstock.client.transfers.writer import upload_fileobj as upload_fileobj
else:  # hidden from type checkers, which take a module with `__getattr__` to have every name
    __getattr__, __dir__, __all__ = offered(
        __name__,
        {
            "boto3_config": "client_config connection_pool_count download_client_config download_config "
            "transfer_arguments transfer_config",
            "queues.boto3_producer": "QueueProducer",
            "queues.boto3_queue": "QueueConsumer",
            "queues.sending": "SendFailedError",
            "transfers.boto3_transfers": "download_file download_files objects_below upload_file upload_files",
            "transfers.many_files": "File FilesFailedError Summary files_below",
            "transfers.reader": "open_object",
            "transfers.writer": "open_writer upload_fileobj",
        },
    )
