"""What holds for every page, whatever is in the database."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import tomllib
from collections.abc import Iterable
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from penstock.models.model import THROUGHPUT
from penstock.models.s3.upload import S3UploadSetting
from penstock.models.study import Study, Trace, known
from penstock.operations.table import OPERATIONS
from penstock.report.anchors import figures_of, place_anchor
from penstock.report.changes import ChangeFinding
from penstock.report.evidence_figures import study_figure
from penstock.report.figure import Figure
from penstock.report.figures import _client_points, place_figures
from penstock.report.findings import Advice, Measured, PlaceFindings, Report
from penstock.report.first_screen import first_screens
from penstock.report.markdown import escape, render_markdown
from penstock.report.page import render_html
from penstock.report.remarks import SPENT
from penstock.report.study import study
from penstock.units import GiB, MiB
from penstock.vocabulary import Basis, Context, Cost, Estimate, Obstacle, Origin, Place, Spend
from tests.factories import NOON, PLACE, an_inconclusive, an_observation
from tests.unit.report.materials import (
    HOUR,
    UPLOAD,
    a_material,
    a_real_fit,
    a_report,
    html_of,
    real_advice,
    some_observations,
    words_of,
)

VOID = {"meta", "link", "br", "hr", "img", "input"}
HOSTILE = "</title><script>alert(1)</script>\"' onload='x' | `rm` [a](http://evil.example) <img src=//evil>"


class Outline(HTMLParser):
    """The tree of a page; fails where an element is closed that is not open."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.figures: list[list[str]] = []
        self.text = ""
        self.scripts: list[str] = []  # those that run
        self._is_running = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "figure":
            self.figures.append([])
        if "figure" in self.open:
            self.figures[-1].append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            assert attrs in ([], [("type", "application/json")])
            self._is_running = not attrs

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts += [data] * self._is_running
            return
        self.text += data


def outline(html: str) -> Outline:
    """Parse it all."""
    page = Outline()
    page.feed(html)
    page.close()
    assert page.open == []
    return page


def hostile_report() -> str:
    """A page of a database whose every free text is an attack."""
    place = Place(operation="s3_upload", region=HOSTILE, instance_type=HOSTILE, service_class="standard")
    context = Context(place=place, payload_size_bytes=64 * 2**20)
    observations = [
        dataclasses.replace(o, context=context, origin=Origin.APPLICATION, client=HOSTILE)
        for o in some_observations()
    ]
    advice = dataclasses.replace(real_advice(), context=context, explanation=HOSTILE, bottleneck=HOSTILE)
    report = a_report(
        source=HOSTILE,
        observations={place: observations},
        inconclusives=[an_inconclusive(context=context, reason=HOSTILE)],
        fits=[dataclasses.replace(a_real_fit(), place=place)],
        recommendations=[advice],
        histories={context: [advice, advice]},
    )
    return html_of(report)


def test_the_page_is_well_formed_fetches_nothing_and_runs_its_own_scripts_alone() -> None:
    """It can be mailed: no address outside, and a policy that admits exactly the scripts that were reviewed."""
    html = html_of(a_report())
    page = outline(html)
    assert not {"link", "img", "iframe", "object", "form"} & set(page.tags)
    assert all(value.startswith("#") for name, value in page.attributes if name in {"href", "src"})
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    for script in page.scripts:
        html = html.replace(script, "")
    assert "http" not in html.replace("http-equiv", "")
    assert "url(" not in html
    assert "@import" not in html
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in page.scripts]
    admitted = " ".join(f"'sha256-{each}'" for each in hashes)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {admitted}"
    assert ("content", policy) in page.attributes
    assert len(page.scripts) == 3


def test_the_libraries_are_those_that_were_written_down() -> None:
    """By name, version and hash, with their licences; what npm has is changed in nothing."""
    folder = resources.files("penstock.report").joinpath("vendored")
    known = tomllib.loads(folder.joinpath("vendored.toml").read_text(encoding="utf-8"))
    for name, library in known.items():
        text = folder.joinpath(library["file"].rpartition("/")[2]).read_bytes()
        assert hashlib.sha256(text).hexdigest() == library["sha256"]
        assert f"v{library['version']} ".encode() in text[:80]
        assert b"Permission to use, copy, modify" in folder.joinpath(f"{name}.LICENSE").read_bytes()


def test_every_figure_has_a_title_a_description_and_a_table() -> None:
    """What the eye sees can also be heard."""
    page = outline(html_of(a_report()))
    assert len(page.figures) >= 4
    for figure in page.figures:
        assert {"title", "desc", "table", "figcaption"} <= set(figure)


def test_hostile_text_is_shown_as_text() -> None:
    """Names of clients and reasons come from others."""
    page = outline(hostile_report())
    assert "img" not in page.tags
    assert len(page.scripts) == 3
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert HOSTILE in page.text


@pytest.mark.parametrize("render", [html_of, render_markdown])
def test_a_database_without_anything_still_makes_a_document(render: object) -> None:
    """It says that it is empty, and what to expect."""
    assert callable(render)
    report = a_report(
        observations={}, inconclusives=[], fits=[], recommendations=[], histories={}, expenses=[]
    )
    assert "The database holds no observations" in render(report)


def test_a_page_of_many_places_is_written_while_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty places are fifteen megabytes, which nobody has to hold, let alone several times."""
    drawn = list[PlaceFindings]()

    def draw(place: PlaceFindings) -> list[Figure]:
        drawn.append(place)
        return []

    monkeypatch.setattr("penstock.report.figures.place_figures", draw)
    monkeypatch.setattr("penstock.report.page._BUFFERED_COUNT", 5)
    places = a_report().places * 3
    pieces = render_html(dataclasses.replace(a_report(), places=places))
    assert next(pieces)
    assert not drawn
    assert "".join(pieces).count('<section class="place"') == len(drawn) == len(places)


def test_the_page_stays_small_however_long_the_history_is() -> None:
    """Libraries and a few hundred kilobytes at most; the newest measurements are those that count."""
    report = a_report(observations={next(iter(a_material().observations)): some_observations() * 300})
    assert len(html_of(report)) < 800_000


def test_no_operation_is_named_in_this_room() -> None:
    """The models are all that the report knows of an operation; a renamed one makes the same page."""
    place = dataclasses.replace(next(iter(a_material().observations)), operation="tape_upload")
    context = Context(place=place, payload_size_bytes=64 * 2**20)
    report = a_report(
        models={"tape_upload": UPLOAD},
        words={"tape_upload": words_of("tape", "Short tapes are many.")},
        observations={place: [dataclasses.replace(o, context=context) for o in some_observations()]},
        inconclusives=[],
        fits=[dataclasses.replace(a_real_fit(), place=place)],
        recommendations=[dataclasses.replace(real_advice(), context=context)],
        histories={},
        expenses=[],
    )
    html = html_of(report)
    assert "tapes of 64 MiB" in html
    assert "Short tapes are many." in html
    assert "s3" not in html[: html.index("</main>")].lower()


def test_markdown_has_the_advice_and_its_tables_are_whole() -> None:
    """Each row of a table has as many cells as its heading."""
    text = render_markdown(a_report(), is_full=True)
    assert "### The current advice" in text
    assert "Small objects are many." in text
    width = 0
    for line in text.splitlines():
        cells = line.replace("\\|", "").count("|")
        width = (width or cells) if line.startswith("|") else 0
        assert cells == width or not line.startswith("|"), line


def test_markdown_fits_into_a_chat_however_many_places_there_are() -> None:
    """The verdict of each and what warns, no table; with the evidence it is asked for."""
    one = a_report(observations={}, histories={}, changes=[], inconclusives=[])
    (place,) = one.places
    places = [dataclasses.replace(place.place, region=f"eu-{n}") for n in range(40)]
    many = dataclasses.replace(one, places=tuple(dataclasses.replace(place, place=each) for each in places))
    (changed,) = a_report().places
    moved = tuple(dataclasses.replace(changed, place=each) for each in places[:12])
    for report in (many, a_report(), dataclasses.replace(a_report(), places=moved)):
        text = render_markdown(report)
        assert len(text.splitlines()) <= 50
        assert len(text) < 4000
        assert "|" not in text
        assert "Set 13 threads" in text


def test_commands_and_the_page_agree_on_where_a_number_is_drawn() -> None:
    """Each fragment that `penstock explain` names is on the page, drawn or not, and no name is there twice."""
    whole = a_report()
    (place,) = whole.places
    for curves in (place.curves, place.curves[:1]):
        _explained_is_there(dataclasses.replace(whole, places=(dataclasses.replace(place, curves=curves),)))


def _explained_is_there(report: Report) -> None:
    page = Outline()
    page.feed(html_of(report))
    names = [value for name, value in page.attributes if name == "id"]
    at = place_anchor(
        operation="s3_upload", region="eu-central-1", instance_type="c5.large", service_class="standard"
    )
    told = figures_of(at, ["thread_count", "part_size_bytes"])
    drawn = {name: target.removeprefix("#") in names for name, target in told.items()}
    assert drawn == {"thread_count": True, "part_size_bytes": True, "prediction": True, "parameters": True}
    assert len(names) == len(set(names))


def test_markdown_marks_in_a_text_mean_nothing() -> None:
    """A reason that somebody else wrote cannot become a link, a cell or HTML."""
    assert escape("\x1b[2Ja\u202eb\x9bc") == "\ufffd\\[2Ja\ufffdb\ufffdc"
    assert escape("a | b\n<i> [x](y) `c` *d*") == r"a \| b \<i\> \[x\](y) \`c\` \*d\*"
    text = render_markdown(a_report(inconclusives=[an_inconclusive(reason=HOSTILE)]), is_full=True)
    assert "<script>" not in text.replace("\\<", "")
    assert "\\<script\\>" in text


def test_what_kept_a_probe_from_measuring_most_often_comes_first() -> None:
    """By its reason, which is written once."""
    often, seldom = an_inconclusive(reason="often so"), an_inconclusive(reason="seldom so")
    text = render_markdown(a_report(inconclusives=[seldom, often, often]), is_full=True)
    assert 0 < text.rindex("often so") < text.rindex("seldom so")


def test_however_many_clients_there_are_the_legend_stays_short() -> None:
    """Names of clients come from others; from the fifth on they share a colour and a word."""
    observations = [
        dataclasses.replace(o, origin=Origin.APPLICATION, client=f"client-{n}", reporter_uid=1000)
        for n, o in enumerate(some_observations() * 5)
    ]
    figure = place_figures(a_report(observations={observations[0].context.place: observations}).places[0])[0]
    assert [key.text for key in figure.keys if key.text.startswith(("application", "other"))] == [
        "application (client-0 of user 1000)",
        "application (client-1 of user 1000)",
        "application (client-10 of user 1000)",
        "application (client-11 of user 1000)",
        "other applications",
    ]


def test_the_first_screen_says_what_to_set_and_what_it_brings() -> None:
    """The verdict, the setting to copy, the gain over each client and the change come before any evidence."""
    html = html_of(a_report())
    screen = outline(html[html.index("<article") : html.index("</article>") + len("</article>")]).text
    verdict = a_report().places[0].verdict
    assert verdict is not None
    assert verdict.sentence in screen.replace("\N{NO-BREAK SPACE}", " ")
    assert "TransferConfig(max_concurrency=8)" in screen
    assert [each.client for each in verdict.gains] == ["boto3", "slowpoke"]
    assert verdict.gains[1].gain.low > 2.0
    assert "Throughput fell by" in screen
    assert html.index("<article") < html.index("<figure")


def test_a_place_where_no_probe_had_a_result_says_so_first_and_why() -> None:
    """Else it looks as if nothing had been tried."""
    nothing = dataclasses.replace(real_advice(), basis=Basis.DEFAULT, newest_observation_at=None)
    report = a_report(
        observations={},
        fits=[],
        recommendations=[nothing],
        histories={},
        changes=[],
        inconclusives=[an_inconclusive(reason="access denied")] * 12,
    )
    (screen,) = first_screens(report)
    assert "none of 12 probes had a result" in screen.sentence
    assert "access denied" in screen.changes[0]
    assert "12 probes without a result" in html_of(report)


def test_what_places_cost_together_is_not_said_to_be_the_cost_of_each() -> None:
    """Dollars are booked by operation: who adds up the places must not come to more than was spent."""
    elsewhere = dataclasses.replace(real_advice().context.place, region="eu-west-9")
    there = dataclasses.replace(real_advice().context, place=elsewhere)
    both = [real_advice(), dataclasses.replace(real_advice(), context=there)]
    one, other = first_screens(a_report(recommendations=both))
    assert "all 2 places" in one.cost
    assert "cost" not in one.sentence
    assert "cost" not in other.sentence
    (alone,) = first_screens(a_report())
    assert "places" not in alone.cost
    assert "cost" in alone.sentence


def test_how_sure_it_is_counts_what_the_fit_rests_on() -> None:
    """What was measured before a change is no evidence any more."""
    fit = dataclasses.replace(a_real_fit(), observation_count=3)
    report = a_report(fits=[fit], since=NOON + HOUR)
    (screen,) = first_screens(report)
    assert "it rests on the newest 3 of 6 observations" in dict(screen.facts)["How sure"]
    said = [dataclasses.replace(o, origin=Origin.APPLICATION, reporter_uid=1) for o in some_observations()]
    (screen,) = first_screens(a_report(observations={PLACE: [*some_observations(), *said]}))
    assert "it rests on 6 of 12 observations" in dict(screen.facts)["How sure"]
    assert dict(screen.facts)["What would refute it"].startswith(
        "More than one in ten measurements of boto3's defaults outside "
    )
    assert "3 observations; half" in html_of(report)
    assert "of them; half" not in html_of(report)


def test_what_a_client_reaches_is_drawn_beside_the_advice_and_not_beside_the_peak() -> None:
    """The gain is over what is advised, which may lie below the best that the curve has."""
    (place,) = study(a_material()).places
    curve = place.curves[0]
    peak = dataclasses.replace(curve.expected[-1], expected=9e9, high=9e9)
    lifted = dataclasses.replace(curve, expected=(*curve.expected[:-1], peak))
    assert place.verdict is not None
    points = _client_points(place, lifted, place.value_metric)
    assert points == _client_points(place, curve, place.value_metric)
    assert points


def test_the_first_screen_says_what_a_gain_is_worth() -> None:
    """In time, over the client that most use, and in money where settings differ in it; no gain is worth nothing."""
    report = a_report()
    priced = _priced(report)

    def worth(gain: Estimate, *, prices: bool, metric: str = THROUGHPUT) -> str | None:
        advice = priced if prices else [dataclasses.replace(p, default_prices={}) for p in priced]
        return _facts(report, gain, advice, metric).get("What it is worth")

    assert worth(Estimate(1.5, 2.0, 2.5), prices=False) == (
        "1 TB in 2.78 h, where boto3 by itself takes 5.56 h: 2.78 h less"
    )
    # Whatever an operation counts.
    assert worth(Estimate(1.5, 2.0, 2.5), prices=False, metric="deleted_objects_per_second") == (
        "A million objects in 10 ms, where boto3 by itself takes 20 ms: 10 ms less"
    )
    assert worth(Estimate(0.9, 1.1, 1.3), prices=True) == "$0.12 per million objects instead of $1.20"
    assert worth(Estimate(0.9, 1.1, 1.3), prices=False) is None


def test_a_rate_on_burst_credits_is_not_multiplied_beyond_them() -> None:
    """What is slower than the baseline takes no credits."""
    report = a_report()
    burst = {
        "is_burst": 1.0,
        "burst_seconds_left": 120.0,
        "usd_per_million_objects": 1.2,
    }

    def said_of(derived: dict[str, float]) -> dict[str, str]:
        bursting = [
            dataclasses.replace(p, recommendation=dataclasses.replace(p.recommendation, derived=derived))
            for p in _priced(report)
        ]
        return _facts(report, Estimate(1.5, 2.0, 2.5), bursting)

    said = said_of(burst)
    assert said["Expected throughput"] == "100 MB/s (90 to 110 MB/s) while burst credits last"
    assert said["What it is worth"] == (
        "The 12 GB for which burst credits last in 2 min, where boto3 by itself takes 4 min: 2 min less"
    )
    said = said_of({name: value for name, value in burst.items() if name != "burst_seconds_left"})
    assert said["Expected throughput"] == "100 MB/s (90 to 110 MB/s)"
    assert said["What it is worth"].startswith("1 TB in 2.78 h, ")


def _priced(report: Report) -> list[Advice]:
    """The advice of the report's place, with 100 MB/s and a price a tenth of the default's."""
    (place,) = report.places
    return [
        dataclasses.replace(
            each,
            recommendation=dataclasses.replace(
                each.recommendation,
                prediction={THROUGHPUT: Estimate(9e7, 1e8, 1.1e8)},
                derived={"usd_per_million_objects": 0.12},
            ),
            default_prices={"usd_per_million_objects": 1.2},
        )
        for each in place.advice
    ]


def _facts(
    report: Report, gain: Estimate, advice: Iterable[Advice], metric: str = THROUGHPUT
) -> dict[str, str]:
    """The facts of the first screen, with this gain over the first client and this advice in this metric."""
    (place,) = report.places
    assert place.verdict is not None
    gains = (dataclasses.replace(place.verdict.gains[0], gain=gain),)
    shown = dataclasses.replace(
        place,
        verdict=dataclasses.replace(place.verdict, gains=gains),
        advice=tuple(_expecting(metric, each) for each in advice),
        value_metric=metric,
    )
    (screen,) = first_screens(dataclasses.replace(report, places=(shown,)))
    return dict(screen.facts)


def _expecting(metric: str, advice: Advice) -> Advice:
    (expected,) = advice.recommendation.prediction.values()
    made = dataclasses.replace(advice.recommendation, prediction={metric: expected})
    return dataclasses.replace(advice, recommendation=made)


def test_the_first_screen_says_what_other_settings_gave() -> None:
    """Fewer threads, more, and how often requests were refused; of this size, and since the place changed."""
    report = a_report()
    (place,) = report.places
    advised = next(a for a in place.ordinary_advice).recommendation.setting
    (one, *_) = place.measured

    def measured(thread_count: int, value: float, **other: Any) -> Measured:
        setting = dataclasses.replace(advised, thread_count=thread_count)
        return dataclasses.replace(one, setting=setting, value=value, **other)

    def told(*those: Measured, changes: tuple[ChangeFinding, ...] = ()) -> str | None:
        shown = dataclasses.replace(place, measured=those, changes=changes)
        (screen,) = first_screens(dataclasses.replace(report, places=(shown,)))
        return dict(screen.facts).get("What other settings gave")

    count = advised.thread_count
    fewer = [measured(1, 18e6), measured(count - 1, 120e6, throttled_count=2)]
    reported = measured(1, 9e9, origin=Origin.APPLICATION.value)
    assert told(*fewer, measured(count, 300e6), measured(count + 9, 150e6), reported) == (
        "Fewer threads 18 to 120 MB/s (2 measurements); more threads 150 MB/s (1 measurement); "
        "requests refused or failed in 1 of them"
    )
    assert told(measured(count, 300e6)) is None
    assert told(*fewer, changes=place.changes) is None


def test_one_promise_that_was_kept_is_no_record() -> None:
    """Nine of ten are right: of fewer than ten nothing is said."""
    report = a_report()
    (place,) = report.places
    for count, is_said in ((1, False), (9, False), (10, True)):
        judged = dataclasses.replace(place.promised_coverage, within_count=count, count=count)
        shown = dataclasses.replace(place, promised_coverage=judged)
        (screen,) = first_screens(dataclasses.replace(report, places=(shown,)))
        assert ("came as predicted" in dict(screen.facts)["How sure"]) is is_said


def test_where_nothing_was_measured_a_size_in_the_middle_comes_first() -> None:
    """Not the smallest that there is advice for, which hardly anybody asks about first."""
    sizes = [2**16, 2**26, 2**40]
    advice = [
        dataclasses.replace(
            real_advice(), context=dataclasses.replace(real_advice().context, payload_size_bytes=size)
        )
        for size in sizes
    ]
    fit = dataclasses.replace(a_real_fit(), cells=())
    report = a_report(observations={}, fits=[fit], recommendations=advice, histories={}, changes=[])
    (place,) = report.places
    assert place.verdict is not None
    assert place.verdict.payload_size_bytes == sizes[1]


def test_what_counts_as_measured_is_said() -> None:
    """Eleven threads are advised where ten were measured: who looks for eleven in the evidence finds none."""
    (place,) = a_report().places
    made = dataclasses.replace(place.advice[0].recommendation, basis=Basis.MEASURED)
    place = dataclasses.replace(place, advice=(dataclasses.replace(place.advice[0], recommendation=made),))
    (screen,) = first_screens(dataclasses.replace(a_report(), places=(place,)))
    assert dict(screen.facts)["How sure"].startswith(
        "The advised setting, or one within a tenth of it, was measured"
    )


def test_what_nobody_measured_was_never_measured() -> None:
    """In an order in which it is English."""
    advice = dataclasses.replace(real_advice(), newest_observation_at=None)
    unmeasured: dict[str, Any] = {"observations": {}, "histories": {}, "changes": []}
    (screen,) = first_screens(a_report(fits=[], recommendations=[advice], **unmeasured))
    assert dict(screen.facts)["How fresh"].startswith("never measured; ")


@pytest.mark.parametrize(("gain", "helps"), [(-0.1, False), (0.029, False), (0.3, True), (None, True)])
def test_more_connections_are_advised_only_where_twice_as_many_bring_something(
    gain: float | None, *, helps: bool
) -> None:
    """What limits and what would help are one answer: who reads "2.9 %" is not told to have more of them."""
    report = a_report()
    (place,) = report.places
    advice = [
        dataclasses.replace(
            each,
            recommendation=dataclasses.replace(each.recommendation, bottleneck="connections"),
            doubled_gain_fraction=gain,
        )
        for each in place.advice
    ]
    (screen,) = first_screens(
        dataclasses.replace(report, places=(dataclasses.replace(place, advice=tuple(advice)),))
    )
    facts = dict(screen.facts)
    assert ("What would help" in facts) is helps
    assert ("little work here for more connections" in facts["What limits"]) is not helps


@pytest.mark.parametrize(("gain", "said"), [(-0.13, "13 % less"), (-0.004, "no more"), (0.3, "30 % more")])
def test_what_more_threads_cost_is_not_called_no_gain(gain: float, said: str) -> None:
    """Where a path falls beyond its knee, who reads "no more" doubles them in good faith."""
    assert f"twice the threads bring {said}" in _facts_where("host-ceiling", gain)["What limits"]


@pytest.mark.parametrize(
    ("operation", "said", "unsaid"),
    [("s3_upload", "key prefixes", "batches"), ("sqs_delivery", "fuller batches", "prefixes")],
)
def test_what_helps_against_refusals_is_what_the_service_has(operation: str, said: str, unsaid: str) -> None:
    """A queue has no key prefixes, and objects no batches."""
    words = OPERATIONS[operation].words.request_rate_help
    helping = _facts_where("request-rate", None, request_rate_help=words)["What would help"]
    assert said in helping
    assert unsaid not in helping


def _facts_where(bottleneck: str, doubled_gain: float | None, **changes: Any) -> dict[str, str]:
    report = a_report()
    (place,) = report.places
    advice = tuple(
        dataclasses.replace(
            each,
            recommendation=dataclasses.replace(each.recommendation, bottleneck=bottleneck),
            doubled_gain_fraction=doubled_gain,
        )
        for each in place.advice
    )
    place = dataclasses.replace(place, advice=advice, **changes)
    (screen,) = first_screens(dataclasses.replace(report, places=(place,)))
    return dict(screen.facts)


@pytest.mark.parametrize(("threads", "is_told"), [(8, True), (7, False)])
def test_threads_that_would_have_nothing_to_do_are_told_as_such(threads: int, *, is_told: bool) -> None:
    """Who reads that the limit is not known, and that more threads bring no more, wonders why."""
    (place,) = a_report().places
    setting = S3UploadSetting(thread_count=threads, part_size_bytes=8 * MiB)
    advice = tuple(
        dataclasses.replace(
            each,
            recommendation=dataclasses.replace(each.recommendation, bottleneck="unsure", setting=setting),
            doubled_gain_fraction=0.0,
        )
        for each in place.advice
    )
    (screen,) = first_screens(
        dataclasses.replace(a_report(), places=(dataclasses.replace(place, advice=advice),))
    )
    said = dict(screen.facts)["What limits"]
    assert (
        said
        == "Not known; twice the threads bring no more"
        + ", as each of its 8 requests already has one" * is_told
    )


@pytest.mark.parametrize("basis", [Basis.MODEL, Basis.MEASURED])
@pytest.mark.parametrize("is_untried", [True, False])
def test_who_reads_that_more_connections_help_is_told_why_they_are_not_advised(
    basis: Basis, *, is_untried: bool
) -> None:
    """Of a queue of which probes tried two senders, four are advised, and eight would bring half as much again.

    Not where the operator's limits, or what connections are worth, keep from more: no probe changes that.
    """
    (place,) = a_report().places
    obstacle = Obstacle.UNTRIED if is_untried else None
    advice = tuple(
        dataclasses.replace(
            each,
            recommendation=dataclasses.replace(
                each.recommendation, bottleneck="connections", basis=basis, obstacle=obstacle
            ),
            doubled_gain_fraction=0.52,
        )
        for each in place.advice
    )
    (screen,) = first_screens(
        dataclasses.replace(a_report(), places=(dataclasses.replace(place, advice=advice),))
    )
    assert ("once probes have tried" in dict(screen.facts)["What would help"]) is is_untried


@pytest.mark.parametrize(
    ("obstacle", "said"),
    [
        (Obstacle.THREADS, "connections than are allowed"),
        (Obstacle.MEMORY, "memory than is allowed"),
    ],
)
def test_who_may_have_no_more_connections_is_told_that_they_are_bounded(
    obstacle: Obstacle, said: str
) -> None:
    """Where all that are allowed are advised, "more connections" alone is no help."""
    (place,) = a_report().places
    made = dataclasses.replace(place.advice[0].recommendation, bottleneck="connections", obstacle=obstacle)
    advice = (dataclasses.replace(place.advice[0], recommendation=made, doubled_gain_fraction=0.18),)
    place = dataclasses.replace(place, advice=advice)
    (screen,) = first_screens(dataclasses.replace(a_report(), places=(place,)))
    assert said in dict(screen.facts)["What would help"]


@pytest.mark.parametrize(("hours", "when"), [(1, "on 1 March"), (20, "from 1 March to 3 March")])
def test_the_verdict_says_until_when_requests_were_refused(hours: int, when: str) -> None:
    """Who reads the first day alone believes that it is over."""
    seen = [
        an_observation(started_at=NOON + n * hours * HOUR, throttled_count=9, request_count=20)
        for n in range(3)
    ]
    (place,) = a_report(observations={PLACE: seen}).places
    assert place.verdict is not None
    assert f"measurements were refused {when};" in place.verdict.sentence


def test_advice_that_names_another_limit_alone_has_not_changed() -> None:
    """What limits flickers from fit to fit: among fifty such rows nobody finds the two that count."""
    other = dataclasses.replace(real_advice().setting, thread_count=3)
    told = [
        dataclasses.replace(real_advice(), issued_at=NOON + n * HOUR, bottleneck=limit, setting=setting)
        for n, (limit, setting) in enumerate(
            [
                ("unsure", other),
                ("connections", other),
                ("unsure", real_advice().setting),
                ("connections", other),
            ]
        )
    ]
    (place,) = a_report(histories={real_advice().context: told}).places
    figure = next(f for f in place_figures(place) if f.title.startswith("How the advised"))
    assert figure.description.startswith("2 changes of setting or basis")
    assert len(figure.table.rows) == 3


def test_what_is_exact_has_no_interval_in_its_table() -> None:
    """As if it had been measured: 80 to 80 messages."""
    traces = (Trace(name="left", x=(0.0, 30.0), y=(known(80.0), Estimate(70.0, 80.0, 90.0))),)
    study = Study(
        title="t", sentence="s", x_name="after_seconds", y_name="backlog_message_count", traces=traces
    )
    assert [row[-1] for row in study_figure(study).table.rows] == ["-", "70 to 90"]


def test_what_it_cost_is_told_in_money_and_in_what_others_may_have_felt() -> None:
    """Whoever runs the host asks for both; cents are enough of the one."""
    cost = Cost(transferred_bytes=24 * GiB, usd=0.05094, duration_seconds=83.0)
    expenses = [Spend(hour_at=NOON + n * 47 * HOUR, operation="s3_upload", cost=cost) for n in range(2)]
    (screen,) = first_screens(a_report(expenses=expenses))
    assert dict(screen.facts)["What it cost"] == "$0.10, 48 GiB moved and 2.77 min of probing in 2 d"
    assert screen.cost == "$0.10 in 2 d"


def test_what_was_spent_is_named_as_whoever_pays_would() -> None:
    """Not by the fields of the database: "request count 300, duration 83 s"."""
    assert list(SPENT) == [field.name for field in dataclasses.fields(Cost)]
    cost = Cost(transferred_bytes=GiB, request_count=300, usd=0.02, duration_seconds=83.0)
    report = a_report(expenses=[Spend(hour_at=NOON, operation="s3_upload", cost=cost)])
    page = html_of(report).replace("\N{NO-BREAK SPACE}", " ")
    assert "Bytes moved: 1 GiB; requests: 300; dollars: $0.02; probing time: 83" in page
    assert "Spent by day: requests" in page


def test_many_places_begin_with_a_table_by_what_is_to_be_gained() -> None:
    """An operator of a fleet reads from the top, and follows a link to the evidence."""
    places = [dataclasses.replace(next(iter(a_material().observations)), region=f"r-{n}") for n in range(6)]
    fits = [dataclasses.replace(a_real_fit(), place=place) for place in places]
    advice = [
        dataclasses.replace(real_advice(), context=Context(place=place, payload_size_bytes=64 * 2**20))
        for place in places
    ]
    report = a_report(fits=fits, recommendations=advice, observations={}, histories={}, inconclusives=[])
    html = html_of(report)
    overview = html[html.index('class="overview"') : html.index("</table>")]
    assert overview.count("<tr>") == 7
    screens = first_screens(report)
    assert [s.gain for s in screens] == sorted((s.gain for s in screens), reverse=True)


def test_advice_that_is_out_of_date_comes_last() -> None:
    """A host of another type that was replaced is not what anybody should set, whatever it gained."""
    report = a_report()
    (now,) = report.places
    assert now.verdict is not None
    (gain, *others) = now.verdict.gains
    more = (dataclasses.replace(gain, gain=Estimate(19.0, 20.0, 21.0)), *others)
    before = dataclasses.replace(now, verdict=dataclasses.replace(now.verdict, gains=more, is_expired=True))
    first, last = first_screens(dataclasses.replace(report, places=(before, now)))
    assert not first.is_warning
    assert last.fresh == f"{first.fresh}, out of date"
