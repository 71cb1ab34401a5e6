"""Knows what S3 requests and bytes cost: list prices of us-east-1, September 2026, in US dollars.

Other regions differ by some tens of percent; budgets are bounds, not invoices.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestPrice:
    """What writing costs in one storage class."""

    usd_per_request: float
    usd_per_byte: float


_PRICES = {
    "standard": RequestPrice(0.005 / 1000, 0.0),
    "express": RequestPrice(0.00113 / 1000, 0.0032 / 1e9),  # the reverse: bytes cost, requests almost nothing
}


def upload_usd(service_class: str, *, request_count: float, transferred_bytes: float) -> float:
    """The price of these PUT-class requests (each part, create and complete are one) and bytes."""
    price = _PRICES.get(service_class, _PRICES["standard"])
    return request_count * price.usd_per_request + transferred_bytes * price.usd_per_byte
