"""How changes of the advice are told, a line for each."""

from __future__ import annotations

from typing import Any

from penstock.cli.watch import line
from penstock.units import MiB


def advised(**changes: Any) -> dict[str, Any]:
    """A recommendation as the socket streams it."""
    return {
        "issued_at": "2026-11-22T14:00:00.123456+00:00",
        "operation": "s3_upload",
        "region": "eu-west-1",
        "payload_size_bytes": 64 * MiB,
        "basis": "measured",
        "setting": {"thread_count": 24, "part_size_bytes": 8 * MiB},
        "derived": {"connection_pool_count": 25, "hedge_timeout_seconds": 0.1},
        **changes,
    }


def test_a_setting_is_told_in_short() -> None:
    """The line that is first seen, and one that follows it with another setting, name no field.

    Of two regions that are measured, each has advice of its own.
    """
    shown = "2026-11-22T14:00:00  s3_upload 64 MiB in eu-west-1 (measured): 24 x 8 MiB"
    assert line(advised(), None) == shown
    other = advised(setting={"thread_count": 32, "part_size_bytes": 8 * MiB})
    assert line(advised(), other) == shown


def test_a_line_says_what_has_changed_where_the_setting_has_not() -> None:
    """No two lines in a row are alike but for their date."""
    other = advised(derived={"connection_pool_count": 25, "hedge_timeout_seconds": 0.2})
    assert line(other, advised()).endswith(": 24 x 8 MiB, hedge timeout 200 ms")
