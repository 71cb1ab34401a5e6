"""The one sentence that advice comes to."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.optimizer.verdict import CHANGE_SUSPECTED, LIMITS, Verdict, sentence
from penstock.vocabulary import Estimate
from tests.factories import NOON

WHOLE = Verdict(
    setting_words="29 threads x 8.8 MiB",
    basis="measured",
    bottleneck="host-ceiling",
    gains={"boto3": Estimate(2.1, 2.31, 2.5), "s5cmd": Estimate(6.0, 7.04, 8.0)},
    changed_at=NOON,
    changed_fraction=-0.43,
    usd=0.07,
    usd_period_seconds=7 * 86400.0,
)


def test_it_says_all_that_is_known() -> None:
    """What to set, what it brings, what limits, what changed, what it cost: nothing else."""
    assert sentence(WHOLE) == (
        "Set 29 threads x 8.8 MiB: 2.31 times boto3's defaults (2.1 to 2.5), 7.04 times s5cmd's; a ceiling "
        "on the path "
        "is the limit; changed on 1 March, -43 %; cost $0.07 in 7 d."
    )


@pytest.mark.parametrize("name", sorted(LIMITS.keys() - {"demand"}))
def test_what_limits_is_told_by_its_name_where_a_column_says_that_it_limits(name: str) -> None:
    """The overview of the report leaves the ending away, and found none behind the disk."""
    assert LIMITS[name].endswith((" is the limit", " are the limit"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bottleneck": "connections"}, "; the throughput of one connection is the limit; "),
        ({"gains": {"boto3": Estimate(0.98, 1.01, 1.03)}}, "as fast as boto3's defaults (0.98 to 1.03); "),
        (
            {"gains": {"boto3": Estimate(58.91, 58.92, 58.93)}},
            "Set 29 threads x 8.8 MiB: 58.9 times boto3's defaults; ",
        ),
        ({"bottleneck": "work"}, "; the consumer's work is the limit; "),
        ({"gains": {"boto3": Estimate(1.0, 1.0, 1.0)}}, "as fast as boto3's defaults; "),
        ({"gains": {"boto3": Estimate(0.92, 0.95, 0.97)}}, "0.95 times boto3's defaults (0.92 to 0.97); "),
        (
            {"gains": {"boto3": Estimate(0.8, 1.4, 2.4), "rclone": Estimate(0.9, 1.9, 3.0)}},
            "8.8 MiB: not known to do better than boto3's defaults (0.8 to 2.4); a ceiling",
        ),
        ({"gains": {}, "bottleneck": "unknown", "changed_at": None}, "Set 29 threads x 8.8 MiB; cost $0.07"),
        ({"basis": "prior"}, "29 threads x 8.8 MiB (from tables, not measured here): "),
        (
            {"basis": "prior", "gains": {"boto3": Estimate(0.4, 2.4, 5.5)}},
            "Nothing was measured here yet: tables suggest 29 threads x 8.8 MiB, not known to do better than boto3's",
        ),
        ({"basis": "default"}, "Nothing is known yet: "),
        ({"usd": 0.0}, "cost nothing in 7 d."),
        # Probes at 10:55 and 12:05 are booked in three hours of the clock.
        ({"usd_period_seconds": 3 * 3600.0}, "cost $0.07 in 3 clock hours."),
        ({"usd": 0.001}, "cost less than a cent in 7 d."),
        ({"usd": 0.0066}, "cost less than a cent in 7 d."),
        ({"notes": (CHANGE_SUSPECTED,)}, "; may have changed, which the next measurement will show; "),
        ({"expired_at": NOON}, "; out of date since 1 March."),
    ],
)
def test_what_is_not_known_or_is_no_gain_is_said_as_such(changes: dict[str, object], words: str) -> None:
    """A guess is called one, and as fast is not called faster."""
    assert words in sentence(dataclasses.replace(WHOLE, **changes))  # type: ignore[arg-type]
