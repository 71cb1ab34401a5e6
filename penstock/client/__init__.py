"""What applications import: it needs only the standard library, and never raises because of penstock.

from penstock.client import Lease, advise, report

advice = advise("s3_upload", size_bytes)
advice.setting["thread_count"], advice.setting["part_size_bytes"]

This is for applications that split and send by themselves. ``penstock.client.boto3`` and ``aiobotocore`` offer
configurations, transfers and queues for those SDKs; ``awscrt`` and ``s3fs`` translate advice into arguments of these
libraries; ``asyncio_client`` asks from an event loop; ``penstock.client.targets`` has the options of every known
client as data.
"""

from __future__ import annotations

from penstock.client.elsewhere import offered

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from penstock.client.advice import Advice as Advice
    from penstock.client.advice import advise as advise
    from penstock.client.asyncio_client import AsyncLease as AsyncLease
    from penstock.client.lease import Lease as Lease
    from penstock.client.reporting import report as report
else:  # hidden from type checkers, which take a module with `__getattr__` to have every name
    __getattr__, __dir__, __all__ = offered(
        __name__,
        {"advice": "Advice advise", "asyncio_client": "AsyncLease", "lease": "Lease", "reporting": "report"},
    )
