"""Knows everything that penstock offers to users of aiobotocore, under one name; imports it only when it is used.

from penstock.client import aiobotocore as advised

config, parts = advised.client_config(size_bytes), advised.part_arguments(size_bytes)
async with session.create_client("s3", config=config) as s3:
    room = asyncio.Semaphore(parts["part_concurrency"])
"""

from __future__ import annotations

import penstock.client.aiobotocore_config  # noqa: F401  # now: later there may be no descriptor left for an import
from penstock.client.elsewhere import offered

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from penstock.client.aiobotocore_config import client_config as client_config
    from penstock.client.aiobotocore_config import part_arguments as part_arguments
    from penstock.client.queues.aiobotocore_producer import AsyncQueueProducer as AsyncQueueProducer
    from penstock.client.queues.aiobotocore_queue import AsyncQueueConsumer as AsyncQueueConsumer
    from penstock.client.queues.sending import SendFailedError as SendFailedError
    from penstock.client.transfers.aiobotocore_reader import open_object as open_object
    from penstock.client.transfers.aiobotocore_transfers import download_file as download_file
    from penstock.client.transfers.aiobotocore_transfers import download_files as download_files
    from penstock.client.transfers.aiobotocore_transfers import objects_below as objects_below
    from penstock.client.transfers.aiobotocore_transfers import upload_files as upload_files
    from penstock.client.transfers.aiobotocore_writer import open_writer as open_writer
    from penstock.client.transfers.many_files import File as File
    from penstock.client.transfers.many_files import FilesFailedError as FilesFailedError
    from penstock.client.transfers.many_files import Summary as Summary
    from penstock.client.transfers.many_files import files_below as files_below
else:  # hidden from type checkers, which take a module with `__getattr__` to have every name
    __getattr__, __dir__, __all__ = offered(
        __name__,
        {
            "aiobotocore_config": "client_config part_arguments",
            "queues.aiobotocore_producer": "AsyncQueueProducer",
            "queues.aiobotocore_queue": "AsyncQueueConsumer",
            "transfers.aiobotocore_reader": "open_object",
            "transfers.aiobotocore_transfers": "download_file download_files objects_below upload_files",
            "transfers.aiobotocore_writer": "open_writer",
            "transfers.many_files": "File FilesFailedError Summary files_below",
            "queues.sending": "SendFailedError",
        },
    )
