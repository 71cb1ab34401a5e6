"""Knows the options of a consumer beside its demand, for editors and type checkers.

Nothing in penstock imports this at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.demand import DeliveryDemand

if TYPE_CHECKING:
    from penstock.client.advice import Advice
    from penstock.client.reporting import Reporter


class ConsumerOptions(DeliveryDemand, total=False):
    """Options of a consumer; `penstock.client.boto3.QueueConsumer` explains them."""

    message_size_bytes: int
    advice: Advice | None
    reporter: Reporter | None
    report_seconds: float
    long_poll_seconds: int
    hold_seconds_max: float
