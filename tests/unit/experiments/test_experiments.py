"""The table of experiments: each is data, has a cost before it is run, and answers with numbers."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from penstock.daemon.config import AwsSection, Configuration
from penstock.experiments.archive import Archive, measured
from penstock.experiments.experiment import (
    DOWNLOAD,
    S3_TARIFF,
    SCALED_DOWN,
    Form,
    Record,
    Records,
    enough,
)
from penstock.experiments.page import compare, comparison_table, page_html, section_html
from penstock.experiments.random_times import correlation, peak_count
from penstock.experiments.really import steps_here
from penstock.experiments.table import EXPERIMENTS
from penstock.experiments.virtually import plan_of, run_in_lab
from penstock.lab.s3 import S3Service
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.lab.worlds import NEAR
from penstock.probes.probe import NoJournal
from penstock.probes.s3.download import S3DownloadProbe
from penstock.probes.s3.workspace import Workspace
from penstock.trial.simulated_aws import SimulatedObjectStore
from penstock.units import MiB, number
from penstock.vocabulary import Observation, Place

PLACE = Place(operation="", region="us-east-1", instance_type="simulated")


@cache
def in_the_lab(name: str) -> list[Record]:
    """All records, once."""
    return run_in_lab(EXPERIMENTS[name].steps(Form.LAB))


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("form", Form)
def test_a_plan_says_what_it_costs_before_it_is_run(name: str, form: Form) -> None:
    """Labels of their own and a bound on everything; the short form fits into a gigabyte and ten cents."""
    experiment = EXPERIMENTS[name]
    steps = experiment.steps(form)
    assert len({step.label for step in steps}) == len(steps)
    assert steps
    for step in steps:
        cost = step.cost_of_all
        assert 0 < cost.duration_seconds < math.inf
        assert cost.request_count > 0
        assert cost.usd > 0
    if form is Form.SHORT:
        assert experiment.cost(form).transferred_bytes < 1e9
        assert experiment.cost(form).usd < 0.10


@pytest.mark.parametrize("name", ["poisson-probes", "surge", "locations", "parallel-curls", "host-to-host"])
def test_a_plan_pays_for_what_it_reads(name: str) -> None:
    """Also the largest objects of the full form are put, by AWS's prices, and read as often as the step says."""
    reads = [step for step in EXPERIMENTS[name].steps(Form.FULL) if step.operation == DOWNLOAD]
    steps = {(step.payload_size_bytes, step.setting): step for step in reads}.values()

    async def story(clock: VirtualClock) -> None:
        for step in steps:
            service = S3Service(NEAR.link, clock=clock, seed=1, inbound=NEAR.inbound)
            service.shelf.create_bucket("b")
            store = SimulatedObjectStore(service)
            workspace = Workspace(store, clock, NoJournal(), "b", loop_tick_seconds=3600.0)
            probe = S3DownloadProbe(workspace, read_object_bytes_max=step.payload_size_bytes)
            outcome = await probe.run(plan_of(step, PLACE, S3_TARIFF))
            assert isinstance(outcome, Observation), (step.label, outcome)
            wanted = (step.body_count or 0) * step.payload_size_bytes
            assert outcome.measures["downloaded_bytes"] == wanted, step.label
            assert probe.used.usd <= step.usd(S3_TARIFF)
            await probe.close()

    run_virtually(story, start_at=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("name", ["parallel-curls", "surge", "bottlenecks"])
def test_a_page_has_the_figures_the_table_and_an_answer(name: str) -> None:
    """Published points beside the lab's, drawn; and what the models say, with numbers."""
    experiment = EXPERIMENTS[name]
    lab = Records(in_the_lab(name))
    page = page_html({name: section_html(experiment, lab, Records([]))})
    published = [any(series.is_published for series in plot.series) for plot in experiment.plots(lab)]
    assert any(published)
    assert page.count("<svg") == len(published) + sum(published)
    assert any(character.isdigit() for sentence in experiment.answer(lab) for character in sentence)


@pytest.mark.parametrize("name", ["surge", "bottlenecks"])
def test_real_services_are_answered_for_by_what_was_measured(name: str) -> None:
    """Twice as fast is another answer in each sentence; and the lab's own are not among them."""
    experiment, found = EXPERIMENTS[name], in_the_lab(name)
    here = experiment.answers(Records(found, is_here=True))
    there = experiment.answers(Records([twice_as_fast(record) for record in found], is_here=True))
    assert here
    assert set(here).isdisjoint(there)
    assert "250 Mbit/s" not in " ".join(here)


def twice_as_fast(record: Record) -> Record:
    """The same step."""
    name = "throughput_bytes_per_second"
    values = {**record.values, name: 2.0 * record.values[name], "duration_seconds": 0.4}
    return replace(record, values=values)


def test_a_run_that_measured_too_little_says_so() -> None:
    """Every experiment that can be run here has a sentence, whatever came of it."""
    for name, experiment in EXPERIMENTS.items():
        sentences = experiment.answers(Records([], is_here=True))
        assert sentences, name
        assert "250 Mbit/s" not in " ".join(sentences)


def test_steps_that_measured_nothing_are_told_with_the_answers() -> None:
    """A table with fewer rows or columns does not show that something is missing."""
    missing = replace(a_record("client/s5cmd/16"), values={}, reason="s5cmd is not installed here")
    for name, experiment in EXPERIMENTS.items():
        said = experiment.answers(Records([missing], is_here=True))
        assert (
            said[-1] == "1 step measured nothing; the first, client/s5cmd/16: s5cmd is not installed here."
        ), name


def test_heaps_of_a_histogram_are_counted() -> None:
    """Five distances make five; one cloud is one."""
    chance = random.Random(15)
    five = [chance.gauss(middle, 0.1) for middle in (6.0, 8.0, 11.0, 13.0, 16.0) for _ in range(100)]
    assert peak_count(five) == 5
    assert peak_count([chance.gauss(10.0, 1.0) for _ in range(500)]) == 1


def test_what_cannot_be_run_is_left_out() -> None:
    """An endpoint without TLS has no steps with it; without a far end there is none of it."""
    plain = Configuration(aws=AwsSection(s3_endpoint_url="http://store.example"))
    steps = EXPERIMENTS["threads-by-size"].steps(Form.SHORT)
    assert {step.label.split("/")[1] for step in steps_here(steps, plain)} == {"near-plain"}
    assert {step.label.split("/")[1] for step in steps_here(steps, plain, plain)} == {
        "near-plain",
        "far-plain",
    }
    assert {step.label.split("/")[1] for step in steps_here(steps, Configuration())} == {
        "near-plain",
        "near-tls",
    }


def test_every_experiment_bears_to_have_measured_nothing() -> None:
    """A run that was ended at once has no quantities that are wrong, no figures, and a page all the same."""
    for experiment in EXPERIMENTS.values():
        assert "<h2>" in section_html(experiment, Records([]), Records([]))
        assert all(math.isfinite(value) for value in experiment.quantities(Records([])).values())


def a_record(label: str, value: float = 1.0) -> Record:
    """Of one step."""
    return Record(label=label, started_at="2026-01-01T00:00:00+00:00", values={"duration_seconds": value})


def test_records_outlive_a_crash_and_know_their_plans(tmp_path: Path) -> None:
    """A line that was cut short or nested is none, what follows it is; another table of plans begins anew."""
    surge = EXPERIMENTS["surge"]
    archive = Archive(tmp_path, surge, Form.SHORT, place="here")
    archive.append(a_record("one"))
    with archive.path.open("a") as file:
        file.write("[" * 100_000 + '\n{"steps": "torn')
    archive.append(replace(a_record("two"), values={}, reason="busy"), a_record("two"))
    assert [record.label for record in archive.read()] == ["one", "two"]
    assert [record.reason for record in archive.read()] == [None, None]  # what was mended is no trouble
    assert len(measured(tmp_path, surge)) == 2
    assert SCALED_DOWN in surge.answers(measured(tmp_path, surge))
    assert SCALED_DOWN not in surge.answers(Records(archive.read(), is_here=True))
    archive.path.write_text(archive.path.read_text().replace('"steps":"', '"steps":"0'))
    assert archive.read() == []


def test_pairs_whose_order_is_unknown_have_a_correlation() -> None:
    """1 where both are alike, -1 where one makes up for the other."""
    assert correlation([(1.0, 1.0), (2.0, 2.0), (5.0, 5.0)]) == pytest.approx(1.0)
    assert correlation([(1.0, 3.0), (3.0, 1.0), (1.0, 3.0)]) == pytest.approx(-1.0)


def of_pairs(count: int, *, hour: int = 10, size: str = "1B", seed: int = 1) -> list[Record]:
    """Reads that have nothing to do with each other."""
    chance, found = random.Random(seed), []
    for index in range(count):
        shorter, longer = sorted((0.05 * chance.lognormvariate(0, 0.4), 0.05 * chance.lognormvariate(0, 0.4)))
        values = {
            "latency_seconds_mean": (shorter + longer) / 2,
            "latency_seconds_p99": longer,
            "throttled_count": 0.0,
            "failed_count": 0.0,
        }
        at = f"2026-01-0{1 + index % 9}T{hour:02}:00:00+00:00"
        found.append(Record(label=f"read/{size}/{hour}{index}", started_at=at, values=values))
    return found


def test_a_few_pairs_say_nothing_of_what_goes_with_what() -> None:
    """Two pairs always correlate; of fewer than a hundred requests there is no 99th percentile."""
    experiment = EXPERIMENTS["poisson-probes"]
    few = [*of_pairs(2), *of_pairs(2, hour=16, seed=2), *of_pairs(2, size="100MB")]
    sentences = " ".join(experiment.answers(Records(few, is_here=True)))
    for words in (
        "2 pairs of reads of 100 MB are too few",
        "2 and 2 pairs of single bytes",
        "4 pairs of single",
    ):
        assert words in sentences
    assert "p = " not in sentences
    assert "brings little" not in sentences
    assert experiment.intervals(Records(few, is_here=True)) == {}
    assert not [
        name for name in experiment.quantities(Records(few, is_here=True)) if name.startswith("pairs")
    ]


def test_the_first_answers_of_a_few_pairs_have_no_99th_percentile() -> None:
    """Two requests at once are one draw: that of sixty pairs would be the slowest of sixty."""
    answers = EXPERIMENTS["poisson-probes"].answers
    assert "60 pairs of single bytes are too few" in answers(Records(of_pairs(60), is_here=True))[0]
    assert (
        "Of two requests at once the first answer takes" in answers(Records(of_pairs(100), is_here=True))[0]
    )


def test_what_rests_on_repetitions_has_its_interval() -> None:
    """On the page, on the command line, and in the advice that is drawn from it."""
    experiment = EXPERIMENTS["poisson-probes"]
    many = Records([*of_pairs(60), *of_pairs(60, size="100MB", seed=3)], is_here=True)
    values, ends = experiment.quantities(many), experiment.intervals(many)
    for name in ("pairs.1B", "pairs.100MB", "tps.most"):
        if name in values:
            low, high = ends[name]
            assert low < values[name] < high
    low, high = ends["pairs.100MB"]
    assert f"r = {values['pairs.100MB']:.2f}, {low:.2f} to {high:.2f}" in " ".join(experiment.answers(many))
    (row,) = [row for row in compare(experiment, Records([]), many) if row.fact.name == "pairs.100MB"]
    assert f"({number(low)} to {number(high)})" in row.cells()[5]


def test_none_in_a_few_tests_is_not_none_in_as_many_as_the_study_made() -> None:
    """Of two hundred tests without trouble up to three in two hundred is as likely as not to be missed."""
    checks = {"checksum_right_count": 2.0, "checksum_wrong_count": 0.0}
    writes = [
        replace(one, label=one.label.replace("read", "write"), values={**one.values, **checks})
        for one in of_pairs(100, seed=4)
    ]
    run = Records([*of_pairs(100), *writes], is_here=True)
    experiment = EXPERIMENTS["poisson-probes"]
    assert experiment.quantities(run)["retries.write"] == 0.0
    low, high = experiment.intervals(run)["retries.write"]
    assert low == 0.0
    assert high == pytest.approx(3.0 * 107_556 / 200, rel=0.01)
    seconds = {"latency_seconds_mean": 0.05, "latency_seconds_p99": 0.06}
    quick = [replace(one, values={**one.values, **seconds}) for one in of_pairs(100)]
    low, high = experiment.intervals(Records([*quick, *writes], is_here=True))["read.slow"]
    assert low == 0.0
    assert high == pytest.approx(3.0, rel=0.05)


def test_two_runs_name_no_limit_and_no_slope() -> None:
    """One with two threads and one with four, one of two parts and one of three: nothing lies between."""
    kept = {"without/ram-disk/10", "without/ram-disk/20"}
    merges = [r for r in in_the_lab("bottlenecks") if r.label.startswith("merge")]
    found = [*merges[:2], *(r for r in in_the_lab("bottlenecks") if r.label in kept)]
    experiment = EXPERIMENTS["bottlenecks"]
    few = " ".join(experiment.answers(Records(found, is_here=True)))
    assert "too few thread counts" in few
    assert "too few to say what each further one takes" in few
    assert "10,000" not in few
    here = [r for r in in_the_lab("bottlenecks") if r in merges or "ram-disk" in r.label]
    many = " ".join(experiment.answers(Records(here, is_here=True)))
    assert "the limit is" in many
    assert "10,000" in many


def rates_of(prefix: str, rates: dict[int, float]) -> list[Record]:
    """A record of so many MB/s for each number."""
    return [
        replace(a_record(f"{prefix}/{n}"), values={"throughput_bytes_per_second": 1e6 * rate})
        for n, rate in rates.items()
    ]


def test_no_limit_is_named_while_more_threads_carry_more() -> None:
    """Neither the connections, which carry less each, nor a network that is not full."""

    def said(*rates: float) -> str:
        found = rates_of("without/ram-disk", dict(zip((10, 20, 30), rates, strict=True)))
        return " ".join(EXPERIMENTS["bottlenecks"].answers(Records(found, is_here=True)))

    assert "more threads still carry more" in said(100.0, 170.0, 210.0)
    assert "the limit is the network or the service" in said(100.0, 120.0, 121.0)
    assert "the limit is the connections" in said(100.0, 200.0, 290.0)


def test_a_client_uses_no_more_connections_than_a_file_has_parts() -> None:
    """Sixteen megabytes are four parts of 5 MiB; and a size that one client lacks is no trouble."""
    found = [
        *rates_of("client/one-connection", {1: 10.0, 16: 20.0, 128: 20.0}),
        *rates_of("client/transfer-manager", {1: 10.0, 16: 50.0}),
    ]
    (said,) = EXPERIMENTS["upload-clients"].answers(Records(found, is_here=True))
    assert "16 MB has 4 parts, and goes 2.5 times as fast over 4 connections as over one" in said


def test_what_was_measured_here_is_not_called_unmeasured() -> None:
    """The last column is the lab's, and says nothing where the lab was not asked."""
    rows = compare(EXPERIMENTS["surge"], Records([]), Records(in_the_lab("surge"), is_here=True))
    assert {row.cells()[-1] for row in rows} == {"-"}
    assert all(row.cells()[5] != "-" for row in rows)
    ratio = next(row for row in rows if row.fact.name == "surge.ratio")
    assert ratio.cells()[2] == "3"  # without a unit


def test_the_most_threads_that_were_tried_are_not_called_enough() -> None:
    """Where each more brought more, nobody knows where that ends."""
    found = [one for one in in_the_lab("surge") if one.label.rsplit("/", 1)[-1] in {"1", "2"}]
    sentences = " ".join(EXPERIMENTS["surge"].answers(Records(found, is_here=True)))
    assert "2 threads, the most that were tried" in sentences
    assert "all there is" not in sentences


def test_enough_threads_are_said_to_carry_what_they_carried() -> None:
    """Not the most that any number of threads did, which others may have."""
    assert enough({1.0: 40.0, 2.0: 96.0, 4.0: 100.0}, "thread") == (
        "2 threads carried 96.0 MB/s, and up to 4 never more than 100.0"
    )


def a_surge(*rates: float, of_two: float) -> str:
    """What is said of these rates in MB/s, of 1, 2, ... threads, and of two processes with the most threads."""
    of_steps = {f"surge/1/{n}": rate for n, rate in enumerate(rates, start=1)} | {
        f"surge/2/{len(rates)}": of_two
    }
    values = {label: {"throughput_bytes_per_second": 1e6 * rate} for label, rate in of_steps.items()}
    found = [replace(a_record(label), values=of_step) for label, of_step in values.items()]
    return " ".join(EXPERIMENTS["surge"].answers(Records(found, is_here=True)))


def test_a_process_is_the_limit_only_where_more_threads_in_it_bring_no_more() -> None:
    """Two processes also have twice the connections, which is all that they need where connections are the limit."""
    assert "a process is the limit" not in a_surge(10.0, 20.0, of_two=40.0)
    assert "more threads in one process might do the same" in a_surge(10.0, 20.0, of_two=40.0)
    assert "a process is the limit" in a_surge(10.0, 20.0, 20.0, of_two=40.0)
    assert "this host or the service is the limit" in a_surge(10.0, 20.0, 20.0, of_two=22.0)


def test_transfers_say_whether_they_were_with_tls() -> None:
    """Downloads and uploads of one sentence after the other may not be alike in it."""
    labels = [f"{way}/{n}" for way in ("down/plain", "up/ssl") for n in (1, 2, 4)]
    rates = [
        replace(a_record(label), values={"throughput_bytes_per_second": 1e6 * n})
        for n, label in enumerate(labels, start=1)
    ]
    down, up, tls = EXPERIMENTS["parallel-curls"].answers(Records(rates, is_here=True))
    assert down == "Each further download without TLS adds 1.0 MB/s up to 2 at once, 0.5 up to 4."
    assert up.startswith("Each further upload with TLS adds")
    assert tls == "What TLS costs was not measured: all downloads were without TLS."


def test_a_run_here_is_shown_without_the_columns_of_the_lab() -> None:
    """Nor with figures that it did not measure; the lab's columns come with the lab."""
    surge, found = EXPERIMENTS["surge"], in_the_lab("surge")
    here = Records(found, is_here=True)
    headings, rows = comparison_table(compare(surge, Records([]), here), is_brief=True)
    assert list(headings) == ["figure", "published", "here", "difference"]
    assert len(rows) == 3
    lab = compare(EXPERIMENTS["poisson-probes"], Records(of_pairs(12)), Records([]))
    headings, rows = comparison_table(lab, is_brief=True)
    assert list(headings)[-2:] == ["kind", "in the lab"]
    assert "not possible" in {row[-1] for row in rows}
    few = Records(found[:1], is_here=True)
    assert comparison_table(compare(surge, Records([]), few)) == ([], [])


def test_a_second_without_messages_has_no_latency() -> None:
    """Drawn as 0 it would lie below all that was ever measured; the line goes on where messages do."""
    names = ("sent_count", "received_count", "duplicate_count", "deleted_count")
    samples = [
        {
            "at_seconds": float(at),
            "latency_seconds_mean": 0.1 * is_busy,
            **dict.fromkeys(names, 10.0 * is_busy),
        }
        for at, is_busy in enumerate([True] * 20 + [False] * 20 + [True] * 20)
    ]
    rescued = Records([replace(a_record("rescued"), samples=samples)])
    latencies = EXPERIMENTS["sqs-blast"].plots(rescued)[0]
    for series in latencies.series:
        assert series.y == pytest.approx([100.0] * len(series.y))
    assert len(latencies.series[0].y) == 40


def test_a_queue_is_not_unresponsive_because_a_run_was_over() -> None:
    """On real services it ends when its time is over; in the lab when nobody would wait any longer."""
    values = {"collapsed_after_seconds": 60.0, "duration_seconds": 6000.0}
    blast = [replace(a_record("blast"), values=values)]
    quantities = EXPERIMENTS["sqs-blast"].quantities
    assert quantities(Records(blast))["blast.unresponsive"] == 100.0
    assert "blast.unresponsive" not in quantities(Records(blast, is_here=True))


def said_of_a_blast(*, is_short: bool = False, **values: float) -> str:
    """After a minute in which fifty messages a second were sent and deleted."""
    samples = [
        {"at_seconds": float(n), "sent_count": 50.0, "deleted_count": 50.0, "received_count": 50.0}
        | {"latency_seconds_mean": 0.1}
        for n in range(1, 61)
    ]
    blast = replace(a_record("blast", 60.0), samples=samples)
    blast = replace(blast, values={**blast.values, **values})
    return " ".join(EXPERIMENTS["sqs-blast"].answers(Records([blast], is_here=True, is_short=is_short)))


def test_a_queue_that_did_not_collapse_is_not_said_to_have() -> None:
    """Nor is what it grew by explained; and deletes that the short form slows down are called so."""
    said = said_of_a_blast()
    assert "did not collapse within 60 s" in said
    assert "0.0 % of 3000 sent messages were not deleted" in said
    assert "slower than the sender" not in said
    assert "collapsed after 30 s" in said_of_a_blast(collapsed_after_seconds=30.0)
    assert "slowed down" not in said_of_a_blast(collapsed_after_seconds=30.0)
    assert "at most 20 a second" in said_of_a_blast(is_short=True, collapsed_after_seconds=30.0)


def test_a_rescue_that_did_not_work_is_not_one_that_was_not_tried() -> None:
    """Each has its sentence, and so has one that worked."""

    def said(**values: float) -> str:
        rescued = replace(a_record("rescued"), values=values)
        return " ".join(EXPERIMENTS["sqs-blast"].answers(Records([rescued], is_here=True)))

    assert "did not stay collapsed" in said()
    assert "had not recovered at the end" in said(rescued_at_seconds=30.0)
    assert "20 s later no copy came" in said(rescued_at_seconds=30.0, recovered_after_seconds=20.0)


def of_a_queue(label: str, *, rate: float, latency_seconds: float) -> Record:
    """A minute of it."""
    values = {
        "received_count": 60.0 * rate,
        "latency_seconds_mean": latency_seconds,
        "duration_seconds": 60.0,
    }
    return replace(a_record(label), values=values | {"duplicate_count": 0.0})


def test_a_window_that_is_not_full_is_no_limit() -> None:
    """Seven messages a second of half a second each are 3.4 of ten: the sender is the limit."""
    near = of_a_queue("zone/near", rate=85.0, latency_seconds=0.044)
    answers = EXPERIMENTS["sqs-zones"].answers
    (said,) = answers(Records([near, of_a_queue("zone/far", rate=7.0, latency_seconds=0.484)], is_here=True))
    assert "with 3.4 of them in the window" in said
    assert "its limit is the one sender" in said
    assert "costs throughput" not in said
    (said,) = answers(Records([near, of_a_queue("zone/far", rate=30.0, latency_seconds=0.301)], is_here=True))
    assert "fills the window, so that it costs throughput" in said


def test_a_small_window_that_carried_more_than_the_widest_is_enough() -> None:
    """And not told to carry 90 of 87."""
    rates = {2: 39.2, 10: 90.0, 40: 86.8}
    found = [of_a_queue(f"window/{n}", rate=rate, latency_seconds=0.045) for n, rate in rates.items()]
    (said,) = EXPERIMENTS["sqs-window"].answers(Records(found, is_here=True))
    assert "The study's window of 10 is enough here: it carried 90 messages a second, one of 40 87." in said


def test_what_was_offered_is_said_where_latencies_stand_side_by_side() -> None:
    """A sender without a bound makes messages wait that a planned one does not send."""
    found = [
        of_a_queue("rules", rate=77.3, latency_seconds=0.047),
        of_a_queue("advised", rate=49.8, latency_seconds=0.017),
    ]
    rules, planned = EXPERIMENTS["sqs-rate-controlled"].answers(Records(found, is_here=True))
    assert rules.startswith("By the rules, with a sender as fast as it can,")
    assert planned.startswith("As planned, with 50 messages a second to send,")


def said_of_threads(*, alone: float, one: float, batch: float) -> str:
    """After a minute of so many messages a second by one thread, by fourteen, and by fourteen in batches."""
    found = [
        replace(
            a_record(f"guide/{name}"),
            samples=[{"at_seconds": float(n), "deleted_count": rate} for n in range(60)],
        )
        for name, rate in (("one-host", one), ("batch", batch))
    ]
    values = {"sent_count": 60.0 * alone, "duration_seconds": 60.0}
    found.append(replace(a_record("guide/one-thread"), values=values))
    return " ".join(EXPERIMENTS["producer-consumer"].answers(Records(found, is_here=True)))


def test_what_threads_wait_for_is_not_called_the_time_of_a_request() -> None:
    """Fourteen threads with 55 ms each are held by something, if one alone takes 13."""
    said = said_of_threads(alone=77.0, one=253.0, batch=1418.0)
    assert "One thread alone takes 13 ms for a request, so most of those 55 ms are waiting" in said
    assert "are waiting" not in said_of_threads(alone=50.0, one=700.0, batch=2500.0)
    assert "batches brought nothing here" in said_of_threads(alone=50.0, one=700.0, batch=650.0)


def test_what_is_multiplied_to_ten_thousand_messages_says_so() -> None:
    """Sends by those that were sent, and what follows by those that were deleted."""
    values = {"sent_count": 60.0, "deleted_count": 30.0, "sent_after_seconds": 0.6, "duration_seconds": 2.6}
    run = Records([replace(a_record("received/one"), values=values)], is_here=True)
    experiment = EXPERIMENTS["queue-ten-thousand"]
    assert experiment.quantities(run) == {
        "ten-thousand.send-1": pytest.approx(100.0),
        "ten-thousand.receive-one": pytest.approx(2.0 * 10_000 / 30),
    }
    assert experiment.answers(run)[0] == "These are times of 30 messages, multiplied to 10,000."


def test_two_thread_counts_name_no_best_one() -> None:
    """Neither by size, nor by distance; what one request takes at either end is said all the same."""
    found = [
        replace(a_record(f"grid/{end}-plain/1/{n}"), values={"throughput_bytes_per_second": 2e4 * n})
        for end in ("near", "far")
        for n in (1, 4)
    ]
    said = " ".join(EXPERIMENTS["threads-by-size"].answers(Records(found, is_here=True)))
    assert "one request of 1 KB takes 51.2 ms near and 51.2 ms far" in said
    assert "Only 2 thread counts" in said
    assert "best at" not in said
    assert "Best thread count" not in said
    grids = EXPERIMENTS["threads-by-size"].grids(Records(found, is_here=True))
    assert [grid.title for grid in grids] == ["The most of each size, MiB/s"]


def test_ends_that_share_no_size_are_not_compared() -> None:
    """As of a run that was cut short: what there is of each is said, and nothing of distance."""
    found = [
        *rates_of("grid/near-plain/1", {1: 0.02, 4: 0.08}),
        *rates_of("grid/far-plain/64", {1: 1.0, 4: 4.0}),
    ]
    said = " ".join(EXPERIMENTS["threads-by-size"].answers(Records(found, is_here=True)))
    assert "Only 2 thread counts" in said
    assert "Distance" not in said


def test_what_tls_costs_is_said_by_size_and_in_numbers() -> None:
    """The study asked so; a drawing alone is no answer on a terminal. Its figures are of its own thread counts."""
    rates = {"colo-https/1": 1e4, "colo-http/1": 3e4, "colo-https/2048": 5e6, "colo-http/2048": 6e6}
    rates |= {"m1.xlarge/1": 9e4, "cc1.4xlarge/1": 8e4, "cc1.4xlarge/2048": 4e6}
    found = [
        replace(
            a_record(f"grid/{curve}/{n}"),
            values={"throughput_bytes_per_second": rate * n * (2 if n > 128 else 1)},
        )
        for curve, rate in rates.items()
        for n in (32, 64, 128, 256)
    ]
    experiment = EXPERIMENTS["threads-by-size"]
    said = " ".join(experiment.answers(Records(found)))
    assert "Without TLS objects of 1 KB go 3.0 times as fast and those of 2048 KB 1.2 times" in said
    most, best, gains = experiment.grids(Records(found))
    assert [row[:2] for row in gains.rows] == [[1, pytest.approx(300)], [2048, pytest.approx(120)]]
    assert (len(most.rows), len(best.rows)) == (2, 2)
    assert experiment.quantities(Records(found))["cc.2048KB"] == pytest.approx(4.0 * 128 * 1e6 / MiB)


def test_bottlenecks_are_told_in_numbers() -> None:
    """How busy the processors were was a question of the study, and stood in no table."""
    found = [
        replace(a_record(f"without/{world}/{n}"), values={"throughput_bytes_per_second": 1e6 * n})
        for world in ("hdd", "ram-disk", "faster")
        for n in (10, 20)
    ]
    titles = [grid.title for grid in EXPERIMENTS["bottlenecks"].grids(Records(found))]
    assert titles[:2] == [
        "With the disk, from memory, and on a faster client, MB/s",
        "How busy the processors are, %",
    ]


def test_addresses_that_the_lab_makes_up_are_not_told() -> None:
    """Those that answered here are."""
    reads = [replace(one, addresses={"192.0.2.1": 2}) for one in of_pairs(12)]
    answer = EXPERIMENTS["poisson-probes"].answers
    assert "192.0.2.1" not in " ".join(answer(Records(reads)))
    assert "192.0.2.1" in " ".join(answer(Records(reads, is_here=True)))


def test_what_has_few_published_figures_is_a_table() -> None:
    """The curves as numbers; what a curve does not have is not made up."""
    found = [
        replace(a_record(f"client/{client}/{size}"), values={"throughput_bytes_per_second": 1e6 * size})
        for client, sizes in (("one-connection", (1, 4)), ("transfer-manager", (4,)))
        for size in sizes
    ]
    (grid,) = EXPERIMENTS["upload-clients"].tables(Records(found))
    assert grid.headings == ("MB", "one-connection", "transfer-manager")
    assert grid.cells() == [["1", "1", "-"], ["4", "4", "4"]]
    assert EXPERIMENTS["upload-clients"].tables(Records([])) == ()
