"""What the demo says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.demo import _HEADINGS
from penstock.trial import demo
from penstock.trial.faces.face import Told


def test_what_probes_took_stands_below_words_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not once more below those that say that each line is a probe."""
    spent = {"usd": 0.001, "request_count": 202, "transferred_bytes": 1 << 20}
    monkeypatch.setattr(demo, "status_of", lambda _: {"costs": {"s3_upload": {"spent": spent}}})
    told: list[Told] = []
    demo._costs(told.append, Path("socket"))
    assert [each.sentence for each in told] == [
        "s3_upload: 202 requests and 1 MiB of probes; on AWS, in the region: $0.001"
    ]
    assert "probe over HTTP" not in _HEADINGS[told[0].step]
