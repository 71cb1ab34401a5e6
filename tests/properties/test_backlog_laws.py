"""Whatever is reported or read of a queue, its backlog can be told: as JSON, with finite numbers and a sentence."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.api.wire import encode
from penstock.daemon.backlog_watch import BacklogWatch
from penstock.daemon.config import WatchedQueueSection
from penstock.vocabulary import Context, Observation, Origin, Place
from tests.factories import NOON, Noon, an_observation

PLACE = Place(operation="sqs_delivery", region="r", instance_type="i")
VALUES = st.one_of(st.sampled_from([0.0, 5e-324, 1e-300, 1e15]), st.floats(0, 86_400))
MEASURES = st.dictionaries(
    st.sampled_from(
        [
            "oldest_undeleted_seconds",
            "oldest_undeleted_seconds_max",
            "received_count",
            "deleted_count",
            "visibility_timeout_seconds",
        ]
    ),
    VALUES,
)
REPORTS = st.lists(
    st.builds(
        lambda seconds, duration, measures: an_observation(
            context=Context(place=PLACE, payload_size_bytes=1),
            started_at=NOON - timedelta(seconds=seconds),
            duration_seconds=duration,
            origin=Origin.APPLICATION,
            measures=measures,
        ),
        st.integers(0, 600),
        st.floats(1e-9, 86_400),
        MEASURES,
    ),
    max_size=8,
)
COUNTS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 120_000)), max_size=6)


@given(REPORTS, COUNTS, st.sampled_from([0.0, 1e-300, 20.0]))
async def test_a_standing_can_always_be_told(
    reports: list[Observation[Any]], counts: list[tuple[int, int]], delete_rate: float
) -> None:
    """No report and no attribute makes status, explain or metrics fail."""
    section = WatchedQueueSection(name="orders", delete_rate_messages_per_second=delete_rate)
    backlogs = BacklogWatch(Noon(), section, region="r")
    for visible, hidden in counts:
        backlogs.note_attributes(
            {
                "ApproximateNumberOfMessages": str(visible),
                "ApproximateNumberOfMessagesNotVisible": str(hidden),
                "VisibilityTimeout": "0",
            }
        )
    backlogs.note_reports(reports)
    for backlog in backlogs.backlogs():
        document = json.loads(encode(backlog.document()))
        assert document["explanation"]
        assert (document["oldest_undeleted_seconds"] is None) == (document["alarm"] == "unknown")
        numbers = [value for value in document.values() if isinstance(value, float)]
        assert all(math.isfinite(value) for value in numbers)
