"""`penstock run --once` as people read it."""

from __future__ import annotations

import msgspec
import pytest

from penstock.api.wire import recommendation_document
from penstock.cli.run import _must_have_measured, _show
from penstock.cli.trouble import TroubleError
from penstock.units import format_bytes
from tests.factories import a_recommendation


def test_a_cycle_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Its sentence says the operation and the size; they are not put before it again."""
    sentence = "s3_upload 64 MiB in lab-1 (verify): 24 x 8 MiB gave 96 MB/s; advice stands"
    cycle = {
        "operation": "s3_upload",
        "region": "lab-1",
        "payload_size_bytes": 64 << 20,
        "sentence": sentence,
    }
    _show({"cycles": [cycle], "recommendations": []})
    assert capsys.readouterr().out == f"{sentence}\n"


def test_the_advice_for_what_was_tried_is_shown_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    """What stands for other sizes and operations would be pages, of which nothing was measured."""
    tried = msgspec.to_builtins(recommendation_document(a_recommendation(), generation=1))
    other = {**tried, "payload_size_bytes": 2 * tried["payload_size_bytes"]}
    cycle = {name: tried[name] for name in ("operation", "region", "payload_size_bytes")}
    _show({"cycles": [{**cycle, "sentence": "measured"}], "recommendations": [other, tried]})
    shown = capsys.readouterr().out
    assert shown.count(f"{tried['operation']} of ") == 1
    assert f"of {format_bytes(tried['payload_size_bytes'])} (" in shown


def _cycle(sentence: str, *, is_conclusive: bool = False, has_failed: bool = False) -> dict[str, object]:
    operation, _, rest = sentence.partition(" ")
    told = {
        "operation": operation,
        "region": rest.rpartition("in ")[2].partition(":")[0],
        "sentence": sentence,
    }
    return told | {"is_conclusive": is_conclusive, "has_failed": has_failed}


REFUSED = _cycle("s3_upload 64 MiB in r: the bucket is missing", has_failed=True)


def test_where_nothing_was_measured_it_ends_with_the_reason() -> None:
    """Who runs it by the clock sees exit codes alone: that every probe failed is one of them."""
    waiting = _cycle("sqs_delivery in r: not probed, the day's budget is used up")
    with pytest.raises(TroubleError, match=r"nothing was measured: s3_upload .* is missing$"):
        _must_have_measured([waiting, REFUSED, REFUSED])
    _must_have_measured([REFUSED, _cycle("s3_upload 1 MiB in r: 1 MB/s", is_conclusive=True)])
    _must_have_measured([waiting])


@pytest.mark.parametrize("other", ["sqs_delivery 1 KiB in r: 9 messages/s", "s3_upload 64 MiB in s: 1 MB/s"])
def test_what_works_does_not_hide_what_does_not(other: str) -> None:
    """A bucket that is missing is missing for ever, however well the queue or another region fares."""
    with pytest.raises(TroubleError, match="the bucket is missing"):
        _must_have_measured([_cycle(other, is_conclusive=True), REFUSED])
