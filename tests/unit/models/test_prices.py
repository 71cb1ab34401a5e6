"""Rules of prices."""

from __future__ import annotations

import pytest

from penstock.models.prices import upload_usd


def test_standard_charges_requests_and_express_bytes() -> None:
    """The two classes have opposite prices: a thousand small requests, or a terabyte in one."""
    assert upload_usd("standard", request_count=1000, transferred_bytes=10**12) == pytest.approx(0.005)
    assert upload_usd("express", request_count=1, transferred_bytes=1e12) == pytest.approx(3.2, rel=0.01)
    assert upload_usd("express", request_count=1000, transferred_bytes=0) < 0.005
