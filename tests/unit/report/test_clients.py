"""The report shows what applications were heard to do beside what they would gain, and what probes cost them."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from penstock.report.clients import HARM_COUNT_MAX, harms_table
from penstock.report.markdown import render_markdown
from penstock.report.wording import date_words
from tests.factories import NOON
from tests.unit.daemon.heard.test_client_hours import a_harm, an_hour
from tests.unit.report.materials import a_report, html_of
from tests.unit.report.test_page import HOSTILE, outline


def test_an_application_is_one_row_for_a_call_over_all_hours() -> None:
    """Counts add up, peaks are the greatest; what it would gain is by today's advice, with its interval."""
    hours = [an_hour(), dataclasses.replace(an_hour(1), in_flight_count_max=2.0), an_hour(1, name="other")]
    client, other = sorted(a_report(client_hours=hours).clients, key=lambda one: one.name)
    (api,) = client.apis
    assert (client.hour_count, api.call_count, api.retry_count) == (2, 7200, 100)
    assert (api.calls_per_second, api.in_flight_count_max) == (1.0, 10.0)
    (advice,) = client.advice
    assert advice.gain is not None
    assert advice.gain.low <= advice.gain.expected <= advice.gain.high
    assert "10.0 parts in flight" in advice.sentence
    assert "25% of the attempts of one minute were refused" in client.sentences[-1]
    assert other.hour_count == 1


def test_the_page_says_it_and_what_probes_cost() -> None:
    """In HTML and Markdown alike; names are anybody's choice, and stay text."""
    report = a_report(client_hours=[an_hour(), an_hour(name=HOSTILE)], harms=[a_harm()])
    page, markdown = outline(html_of(report)).text, render_markdown(report, is_full=True)
    for text in (page, markdown):
        assert "What applications do" in text
        assert "12.0 ms" in text
    assert "<script>alert" not in markdown
    assert "would bring" in render_markdown(report)
    assert "applications were heard" not in outline(html_of(a_report())).text


def test_of_what_probes_cost_the_newest_comes_first() -> None:
    """And no more than so many of the newest, each with how it ended."""
    harms = [
        dataclasses.replace(a_harm(), started_at=NOON + timedelta(days=n), is_broken_off=n > HARM_COUNT_MAX)
        for n in range(HARM_COUNT_MAX + 2)
    ]
    first, second, *_, last = harms_table(harms).rows
    assert [row[0] for row in (first, last)] == [date_words(harms[n].started_at) for n in (-1, 2)]
    assert [row[-1] for row in (first, second, last)] == ["broken off", "by itself", "by itself"]


def test_what_came_before_it_was_known_whose_it_is_is_no_application_of_its_own() -> None:
    """It is shown; but two calls of its first moments are not said to gain more than all of the others."""
    hours = [an_hour(user_id=1000), an_hour()]
    advised = {client.user_id: bool(client.advice) for client in a_report(client_hours=hours).clients}
    assert advised == {1000: True, None: False}
