"""Which answers to a GET are what was asked for, by their headers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.transfers.answers import must_fit

RIGHT = {"ETag": '"one"', "ContentRange": "bytes 10-19/100", "ContentLength": 10}
REQUEST = {"Range": "bytes=10-19"}


@pytest.mark.parametrize(
    ("changes", "request_changes"),
    [
        ({}, {}),
        ({"ContentRange": "bytes 10-19/*"}, {}),
        ({"ContentRange": "bytes=10-19/100"}, {}),
        ({"ContentRange": "10-19"}, {}),
        ({"ContentRange": None}, {}),
        ({"ContentLength": None}, {}),
        ({"ETag": 'W/"one"'}, {}),
        ({"ETag": "one"}, {}),
        ({"ETag": None}, {}),
        ({"ContentRange": "bytes 10-99/100", "ContentLength": 90}, {"Range": "bytes=10-"}),
        ({"ContentRange": "bytes 10-99/100", "ContentLength": 90}, {"Range": "bytes=10-8388607"}),
        ({"ContentRange": None, "ContentLength": 7}, {"Range": None}),
    ],
)
def test_what_stores_say_in_ways_of_their_own_is_believed(
    changes: dict[str, Any], request_changes: dict[str, Any]
) -> None:
    """And what they do not say is not held against them; the whole is as long as it says."""
    must_fit(RIGHT | changes, REQUEST | request_changes, 100, '"one"')


@pytest.mark.parametrize(
    "changes",
    [
        {"ETag": '"two"'},
        {"ContentRange": "bytes 9-18/100"},
        {"ContentRange": "bytes 10-18/100"},
        {"ContentRange": "bytes 10-19/99"},
        {"ContentRange": None, "ContentLength": 9},
        {"ContentRange": None, "ContentLength": 100},
    ],
)
def test_what_was_not_asked_for_is_an_error(changes: dict[str, Any]) -> None:
    """Of another version, from elsewhere, of an object of another size, too short or too long."""
    with pytest.raises(OSError, match="came"):
        must_fit(RIGHT | changes, REQUEST, 100, '"one"')
