"""What a report finds in a history."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from typing import Any

import pytest

from bench import sqs_world
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.table import OPERATIONS
from penstock.report.document import render_json
from penstock.report.figures import place_figures
from penstock.report.findings import Advice
from penstock.report.markdown import escape, render_markdown
from penstock.report.study import study
from penstock.report.summary import advice_rows
from penstock.units import MiB, number
from penstock.vocabulary import Cost, Demand, Estimate, Origin, Place
from tests.factories import (
    CONTEXT,
    NOON,
    PLACE,
    a_change,
    a_fit,
    a_recommendation,
    an_observation,
    recommended,
)
from tests.unit.models.s3.upload_world import in_waves
from tests.unit.report.materials import (
    HOUR,
    a_material,
    a_real_fit,
    a_report,
    html_of,
    real_advice,
    some_observations,
)


def test_a_curve_goes_through_the_advised_setting_and_around_all_that_was_tried() -> None:
    """The figure shows the advice where its prediction says it is."""
    (place,) = study(a_material()).places
    curve = place.curves[0]
    advice = place.advice[0].recommendation
    assert curve.knob == "thread_count"
    assert curve.knob_values[0] <= 1
    assert curve.knob_values[-1] >= 10
    expected = dict(zip(curve.knob_values, curve.expected, strict=True))[curve.advised]
    assert expected == advice.prediction["throughput_bytes_per_second"]
    assert all(e.low <= e.expected <= e.high for e in curve.expected)


def test_a_probe_of_full_waves_is_judged_by_what_the_whole_object_would_take() -> None:
    """Its prediction is of the whole, whose last wave is nearly empty: a right one would count as missed."""
    size = 256 * MiB
    whole = [in_waves(threads, n, size=size) for n, threads in enumerate((1, 2, 4, 6, 7, 10, 12, 14, 20, 24))]
    (truth,) = (UPLOAD.model.measured_value(one) for one in whole if one.setting.thread_count == 10)
    foreseen = Estimate(0.9 * truth, truth, 1.1 * truth)
    part = dataclasses.replace(in_waves(10, len(whole), waves=3, size=size), foreseen=foreseen)
    place = part.context.place
    fit = UPLOAD.model.fit(place, [*whole, part], prior=None, seed=1)
    material = a_material(observations={place: [*whole, part]}, fits=[fit], recommendations=[], histories={})
    (found,) = (each for each in study(material).places if each.place == place)
    assert UPLOAD.model.measured_value(part) > foreseen.high
    assert (found.promised_coverage.within_count, found.promised_coverage.count) == (1, 1)
    assert found.measured[-1].value == pytest.approx(truth, rel=0.05)


def test_the_advice_that_stands_is_what_a_restarted_daemon_says() -> None:
    """Only changes are stored; age and validity follow the newest fit."""
    early = dataclasses.replace(
        real_advice(0.5), observation_count=1, newest_observation_at=NOON, basis=real_advice().basis
    )
    (place,) = study(a_material(recommendations=[early])).places
    advice = place.advice[0].recommendation
    assert advice.observation_count == 6
    assert advice.newest_observation_at == NOON + 5 * HOUR
    assert advice.expires_at == NOON + 11 * HOUR


def test_what_advice_is_worth_is_in_every_form_of_the_report() -> None:
    """With its interval, in the row of the page and of the Markdown, and in numbers in the JSON."""
    report = study(a_material(recommendations=[real_advice()]))
    gain = report.places[0].advice[0].recommendation.gain_over_default
    assert gain is not None
    words = f"{number(gain.expected)} times ({number(gain.low)} to {number(gain.high)})"
    assert advice_rows(report.places[0], report.generated_at)[0].gain == words
    assert words in html_of(report)
    assert escape(words) in render_markdown(report, is_full=True)
    (advice,) = json.loads(render_json(report))["places"][0]["advice"]
    assert advice["recommendation"]["gain_over_default"]["expected"] == gain.expected


def test_only_a_promise_that_was_made_before_and_for_this_setting_is_judged() -> None:
    """Calibration is honest: what a fit says about its own observations is counted apart."""
    advice = real_advice(0.5)
    expected = advice.prediction["throughput_bytes_per_second"].expected
    kept = an_observation(
        setting=advice.setting, started_at=NOON + HOUR, duration_seconds=64 * MiB / expected
    )
    missed = dataclasses.replace(kept, duration_seconds=100.0)
    before = dataclasses.replace(kept, started_at=NOON)
    other = dataclasses.replace(kept, setting=S3UploadSetting(thread_count=3, part_size_bytes=6 * MiB))
    observations = [before, kept, missed, other]
    told = {"observations": {PLACE: observations}, "histories": {CONTEXT: [advice]}}
    (place,) = study(a_material(**told, changes=[])).places
    assert (place.promised_coverage.within_count, place.promised_coverage.count) == (1, 2)
    assert place.fitted_coverage.count == 4


def test_a_change_that_the_fit_has_forgotten_still_divides_what_was_measured() -> None:
    """A fit rests on the newest alone: of the place of before it would be said that half of it was missed."""
    assert a_real_fit().changed_at is None
    (place,) = a_report(changes=[a_change(changed_at=NOON + 3 * HOUR, unchanged_at=NOON + 2 * HOUR)]).places
    since = [m for m in place.measured if m.started_at >= NOON + 3 * HOUR]
    assert 0 < place.fitted_coverage.count == len(since) < len(place.measured)
    assert min(r.at for r in place.regrets) == NOON + 3 * HOUR
    figure = next(f for f in place_figures(place) if f.title.startswith("Measured against predicted"))
    assert f"of {len(since)} measurements since the place changed lie" in figure.description
    assert "before the place changed" in [key.text for key in figure.keys]


def test_of_a_place_that_is_again_what_it_was_only_the_spell_is_set_aside() -> None:
    """What was measured before it went is about the place as it is now."""
    gone_at, back_at = NOON + HOUR, NOON + 3 * HOUR
    fit = dataclasses.replace(a_real_fit(), changed_at=back_at, earlier=((NOON - HOUR, gone_at),))
    changes = [a_change(changed_at=back_at, unchanged_at=NOON + 2 * HOUR, as_until=gone_at)]
    (place,) = a_report(fits=[fit], changes=changes).places
    now = [m for m in place.measured if not gone_at <= m.started_at < back_at]
    assert any(m.started_at < gone_at for m in now)
    assert place.fitted_coverage.count == len(now) < len(place.measured)
    figure = next(f for f in place_figures(place) if f.title.startswith("Measured against predicted"))
    assert f"of {len(now)} measurements of the place as it is now lie" in figure.description
    assert "while the place was another one" in [key.text for key in figure.keys]


def test_what_the_course_leaves_out_is_counted() -> None:
    """Five points beside six observations would else be a riddle."""
    *seen, last = some_observations()
    refused = dataclasses.replace(last, throttled_count=last.request_count)
    (place,) = a_report(observations={PLACE: [*seen, refused]}).places
    figure = next(f for f in place_figures(place) if f.title.startswith("What was measured over time"))
    assert figure.description.startswith(
        "5 measurements of all settings, without 1 in which requests were refused"
    )


def test_what_is_reported_is_told_apart_and_breaks_no_promise() -> None:
    """Whoever boasts would else make the page say that penstock was wrong."""
    advice = real_advice(0.5)
    boast = an_observation(
        setting=advice.setting,
        started_at=NOON + HOUR,
        duration_seconds=0.001,
        origin=Origin.APPLICATION,
        reporter_uid=1,
    )
    measured = dataclasses.replace(boast, origin=Origin.PROBE, reporter_uid=None)
    observations = {PLACE: [measured, boast, boast]}
    report = study(a_material(observations=observations, histories={CONTEXT: [advice]}, changes=[]))
    (place,) = report.places
    assert (place.promised_coverage.count, place.fitted_coverage.count) == (1, 1)
    for page in (html_of(report), render_markdown(report, is_full=True)):
        assert "1 observation, the newest " in page
        assert "; 2 reports not believed." in page


def test_nothing_is_said_of_how_well_a_fit_to_nothing_fits() -> None:
    """It comes from tables: no observation lies within anything of it."""
    fits = {count: dataclasses.replace(a_real_fit(), observation_count=count) for count in (0, 12)}
    pages = {count: html_of(study(a_material(fits=[fit]))) for count, fit in fits.items()}
    assert pages[12].count("rests on 12 observations") == 2
    assert "rests on" not in pages[0]


def test_a_fit_that_cannot_be_read_is_as_good_as_none() -> None:
    """A database of an older penstock still makes a report, with the advice as it was stored."""
    stored = a_recommendation()
    (place,) = a_report(fits=[a_fit()], recommendations=[stored], observations={}).places
    assert place.fit is None
    assert place.advice[0].recommendation == stored
    assert place.remarks[0].code == "no-fit"


def test_what_belongs_to_an_operation_without_a_model_is_left_out() -> None:
    """A newer penstock may have measured things that this one does not know."""
    place = Place(operation="tape_upload", region="r", instance_type="i")
    material = a_material(fits=[a_real_fit(), dataclasses.replace(a_real_fit(), place=place)])
    assert [p.place for p in study(material).places] == [PLACE]


def test_spend_is_summed_by_day_and_operation() -> None:
    """Hours of one day are one row."""
    hours = a_material().expenses
    later = dataclasses.replace(hours[0], hour_at=NOON + 3 * HOUR, cost=Cost(request_count=5))
    tomorrow = dataclasses.replace(later, hour_at=NOON + 30 * HOUR)
    spending = study(a_material(expenses=[*hours, later, tomorrow])).spending
    assert [s.cost.request_count for s in spending] == [85, 5]


@pytest.mark.parametrize("count", [0, 1])
def test_a_short_history_is_enough(count: int) -> None:
    """From the first minute on there is a report."""
    material = a_material(
        observations={PLACE: some_observations()[:count]}, fits=[], recommendations=[], histories={}
    )
    (place,) = study(material).places
    assert place.observation_count == count
    assert place.curves == ()


def test_what_is_expected_now_is_one_number_all_over_the_page() -> None:
    """Points over time, fields and curves: means that count late requests made all points lie a fifth too high."""
    place = a_report().places[0]
    fitted = {m.started_at: m.value / m.fitted.expected for m in place.measured if m.fitted}
    ratios = {one.at: math.exp(one.log_ratio) for one in place.course}
    assert ratios
    assert ratios == pytest.approx({at: fitted[at] for at in ratios})
    surface, curve = place.surface, place.curves[0]
    assert surface is not None
    row = surface.values[surface.second.index(surface.advised[1])]
    on_curve = dict(zip(curve.knob_values, (e.expected for e in curve.expected), strict=True))
    shared = [n for n, threads in enumerate(surface.first) if threads in on_curve]
    assert [row[n] for n in shared] == pytest.approx([on_curve[surface.first[n]] for n in shared])


def test_twice_of_all_that_a_host_divides_is_what_twice_the_threads_bring() -> None:
    """A queue that is held to the rate of its one sender gains nothing from a second one, were the limit to stay."""
    found = _advice_on_a_queue(Demand(thread_count_max=3))
    assert found.recommendation.setting.send_rate_limit_messages_per_second > 0
    assert found.doubled_gain_fraction is not None
    assert found.doubled_gain_fraction > 0.5


def test_more_threads_bring_nothing_where_more_requests_are_refused() -> None:
    """Advice leaves 7 % of the requests that a queue takes, and twice the threads were to bring these 7 %."""
    found = _advice_on_a_queue(Demand(), request_rate_max_per_second=20.0)
    assert found.recommendation.bottleneck == "request-rate"
    assert found.doubled_gain_fraction == pytest.approx(0.0, abs=0.01)


def _advice_on_a_queue(within: Demand, **learned: float) -> Advice:
    """What the report says of the advice after a few probes that learned this, where so much is allowed."""
    model, place, world = SqsDeliveryModel(), sqs_world.PLACE, sqs_world.a_world(1)
    settings = [*model.ramp(sqs_world.CONTEXT), sqs_world.a_setting(1)]
    observations = [sqs_world.observe(world, s, seed=n, number=n) for n, s in enumerate(settings)]
    fit = model.fit(place, observations, prior=None, seed=1)
    fit = dataclasses.replace(fit, state={**fit.state, **learned})
    advice = recommended(model, fit, sqs_world.CONTEXT, within)
    report = a_report(
        observations={place: observations},
        fits=[fit],
        recommendations=[dataclasses.replace(advice, demand=Demand())],
        histories={},
        changes=[],
        words={row.name: row.words for row in OPERATIONS.values()},
        within_limits=lambda _context, _demand: within,
        unadvised=lambda _context: {},
    )
    (found,) = next(findings.advice for findings in report.places if findings.place == place)
    return found


def test_many_settings_are_asked_at_once_and_each_as_if_it_were_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report of sixty places asked one setting after another, for a minute; what is said of each stays the same."""
    asked = Counter[str]()
    for name in ("foresee", "predict"):
        real = getattr(S3UploadModel, name)

        def counting(*arguments: Any, name: str = name, real: Any = real) -> Any:
            asked[name] += 1
            return real(*arguments)

        monkeypatch.setattr(S3UploadModel, name, counting)
    (place,) = study(a_material(recommendations=[real_advice()], fits=[a_real_fit()])).places
    curve = place.curves[0]
    assert asked["foresee"] < len(curve.expected)
    model, (advice,) = UPLOAD.model, place.advice
    for value, expected in zip(curve.knob_values, curve.expected, strict=True):
        setting = dataclasses.replace(advice.recommendation.setting, **{curve.knob: int(value)})
        alone = model.predict(a_real_fit(), curve.context, setting, Demand())[model.value_metric]
        assert expected.expected == pytest.approx(alone.expected)
        assert (expected.low, expected.high) == pytest.approx((alone.low, alone.high))
