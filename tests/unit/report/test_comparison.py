"""What is compared with what, and what days come to."""

from __future__ import annotations

import dataclasses
import math

from penstock.report.comparison import with_region
from penstock.report.difference import Comparison, Difference, welch
from penstock.report.evidence_figures import _by_day
from penstock.report.markdown import render_markdown
from penstock.report.rhythm import Sample
from penstock.vocabulary import Estimate, Place
from tests.factories import NOON, PLACE
from tests.unit.report.materials import HOUR, a_report, html_of, real_advice


def test_a_place_is_compared_with_the_most_alike_of_the_region_and_of_its_class_alone() -> None:
    """A FIFO queue beside a standard one, or one host beside a larger one, says nothing of the regions."""
    near = [PLACE, dataclasses.replace(PLACE, service_class="express")]
    far = [
        dataclasses.replace(PLACE, region="us-west-2", instance_type="a1.tiny"),
        dataclasses.replace(PLACE, region="us-west-2"),
    ]
    threads = {place: n for n, place in enumerate([*near, *far], start=2)}

    def advice(place: Place) -> object:
        made = real_advice()
        setting = dataclasses.replace(made.setting, thread_count=threads[place])
        context = dataclasses.replace(made.context, place=place)
        return dataclasses.replace(made, context=context, setting=setting)

    report = a_report(fits=[], recommendations=[advice(place) for place in threads])
    (found,) = with_region(report, "us-west-2").differences
    assert f"thread count {threads[PLACE]}," in found.one
    assert f"thread count {threads[far[1]]}," in found.other


def test_the_middle_of_a_day_is_that_of_its_measurements() -> None:
    """Each counts once; a figure's bounds are none of a table's; hours that were added up have no ends."""
    whole = [Sample(NOON + n * HOUR, "s", math.log(ratio)) for n, ratio in enumerate((0.01, 1.0, 2.0, 20.0))]
    assert _by_day(whole).rows == (("2026-03-01", "4", "1.5 x", "0.01 x", "20 x"),)
    hours = [Sample(NOON, "hour", math.log(2.0), 9), Sample(NOON + HOUR, "hour", math.log(4.0), 2)]
    assert _by_day(hours).rows == (("2026-03-01", "11", "2 x", "-", "-"),)


def test_who_asks_for_a_comparison_reads_what_came_of_it_on_each_page() -> None:
    """Also on the one for a chat, and also that there is nothing to compare."""
    sure = Difference(what="here", one="1 MB/s", other="2 MB/s", fraction=Estimate(-0.6, -0.5, -0.4))
    unsure = dataclasses.replace(sure, fraction=Estimate(-0.6, -0.1, 0.4))
    for differences, words in (
        ((), "No place and size appears on both sides."),
        ((unsure,), "No difference is certain."),
        ((unsure, sure), "- here: -50 % (-60 % to -40 %)."),
    ):
        compared = Comparison(title="Compared with it", one="one", other="other", differences=differences)
        report = dataclasses.replace(a_report(), comparisons=(compared,))
        assert words in render_markdown(report)
        assert differences or (words in render_markdown(report, is_full=True) and words in html_of(report))


def test_one_measurement_at_a_tenth_of_the_usual_hides_no_difference() -> None:
    """Dips are as usual on one side of a comparison as on the other, and say nothing of either."""
    before = [math.log(value) for value in (174, 159, 153, 12.6, 197, 209, 183, 187, 184)]
    after = [math.log(value) for value in (124, 128, 133, 124, 110, 133, 137, 127, 133)]
    found = welch(after, before)
    assert found is not None
    assert -0.36 < found.low < found.expected < found.high < -0.2
