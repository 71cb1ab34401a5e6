"""`penstock run --once` as people read it."""

from __future__ import annotations

import pytest

from penstock.cli.run import _show


def test_a_cycle_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Its sentence says the operation and the size; they are not put before it again."""
    sentence = "s3_upload 64 MiB in lab-1 (verify): 24 x 8 MiB gave 96 MB/s; advice stands"
    cycle = {"operation": "s3_upload", "payload_size_bytes": 64 << 20, "sentence": sentence}
    _show({"cycles": [cycle], "recommendations": []})
    assert capsys.readouterr().out == f"{sentence}\n"
