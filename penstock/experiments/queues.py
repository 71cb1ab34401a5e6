"""Knows the published experiments with queues: how a queue collapses, and which rules prevent it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import msgspec

from penstock.experiments.experiment import (
    CONDITION,
    HOUR,
    MESSAGE_RATE,
    MINUTE,
    Experiment,
    Form,
    Plot,
    Quantities,
    Record,
    Records,
    Series,
    Step,
    as_numbers,
    curve_series,
    level,
    published,
    quantile,
    queue_step,
)
from penstock.models.sqs.plan import Conditions, plan
from penstock.models.sqs.setting import PROBED_BYTES_MIN
from penstock.probes.sqs.conduct import RATE_CONTROLLED
from penstock.probes.sqs.queue_application import Policy, QueueDrive, drive_of
from penstock.units import counted

RUNNING_SECONDS = 10
CALM_SECONDS = 35 * MINUTE  # the blast before its collapse
TIMEOUT_SECONDS = 30  # SQS's default visibility timeout
_SHORT_SECONDS = 12.0
_SHORT_TIMEOUT_SECONDS = 3
_APART = 1.1  # ratio of latencies from which distance counts
_POINT_COUNT_MAX = 300  # of a line


# Blast


def _blast_steps(form: Form) -> Sequence[Step]:
    if form is Form.SHORT:
        east = drive_of("blast", visibility_timeout_seconds=_SHORT_TIMEOUT_SECONDS)
        slow = {"delete_requests_per_second_max": 20.0, "offered_per_second": 40.0}
        drive = drive_of("blast", visibility_timeout_seconds=_SHORT_TIMEOUT_SECONDS, **slow)
        rescue = replace(drive, policy=Policy.RESCUED, label="rescued")
        seconds, east_seconds, rescue_seconds = _SHORT_SECONDS, _SHORT_SECONDS, 2.5 * _SHORT_SECONDS
        rescue_rate = MESSAGE_RATE
    else:
        east = drive = drive_of("blast", visibility_timeout_seconds=TIMEOUT_SECONDS)
        # With slow deletes, so that the collapse takes less than half an hour.
        rescue = replace(drive, policy=Policy.RESCUED, label="rescued", delete_delay_seconds=0.003)
        seconds, east_seconds, rescue_seconds = 100 * MINUTE, 10 * MINUTE, 6 * MINUTE
        rescue_rate = 2 * MESSAGE_RATE
    return [
        queue_step("blast", "queue", drive, seconds=seconds),
        queue_step("blast-east", "queue-east", east, seconds=east_seconds),
        queue_step("rescued", "queue", rescue, seconds=rescue_seconds, rate=rescue_rate),
    ]


def _blast_quantities(records: Records) -> Quantities:
    values: dict[str, float] = {"message.bytes": PROBED_BYTES_MIN}
    if not records.is_here:  # the short form uses another timeout
        values["queue.timeout"] = TIMEOUT_SECONDS
    if blast := records.get("blast"):
        calm = [s for s in blast.samples if s["at_seconds"] <= CALM_SECONDS]
        settled = calm[60:900]
        if settled:
            values["blast.throughput"] = fmean([s["received_count"] for s in settled])
            values["blast.latency"] = 1e3 * quantile([s["latency_seconds_mean"] for s in calm], 0.95)
        if "collapsed_after_seconds" in blast.values:
            values["blast.onset"] = blast.values["collapsed_after_seconds"] / MINUTE
            if not records.is_here:  # a real run ends only when its time is over, however full the host is
                values["blast.unresponsive"] = blast.values["duration_seconds"] / MINUTE
    if (east := records.get("blast-east")) and len(east.samples) >= RUNNING_SECONDS:
        values["blast.running-mean"] = 1e3 * quantile(running_means(east.samples), 0.5)
    return values


def running_means(samples: Sequence[Mapping[str, float]]) -> list[float]:
    """Mean latency over the last ten seconds in seconds, weighted by messages."""
    found, totals, counts = [], 0.0, 0.0
    for index, sample in enumerate(samples):
        totals += sample["latency_seconds_mean"] * sample["received_count"]
        counts += sample["received_count"]
        if index >= RUNNING_SECONDS:
            gone = samples[index - RUNNING_SECONDS]
            totals -= gone["latency_seconds_mean"] * gone["received_count"]
            counts -= gone["received_count"]
        if index >= RUNNING_SECONDS - 1:
            found.append(totals / counts if counts > 0.5 else 0.0)
    return found


def _course_plots(record: Record, name: str, seeds: Sequence[Series], rates: Sequence[Series]) -> list[Plot]:
    """Latency and throughput over time; `seeds` and `rates` are the study's, in ms and messages per second."""
    step = max(1, len(record.samples) // _POINT_COUNT_MAX)
    minutes, each = record.minutes, record.column("latency_seconds_mean")
    latencies = [
        _latencies("each second", minutes[::step], each[::step], is_line=False),
        _running("mean of ten seconds", record, step=step),
    ]
    counts = {"received first": "received_count", "copies": "duplicate_count", "deleted": "deleted_count"}
    throughputs = [
        Series(name=title, x=minutes[step - 1 :: step], y=_thinned(record.column(key), step))
        for title, key in counts.items()
    ]
    return [
        _by_minutes(f"Latency, {name}", "ms", [*latencies, *seeds], is_log_y=True),
        _by_minutes(f"Throughput, {name}", "messages/s", [*throughputs, *rates]),
    ]


def _by_minutes(title: str, unit: str, series: Sequence[Series], *, is_log_y: bool = False) -> Plot:
    return Plot(title=title, x_title="minutes", y_title=unit, series=series, is_log_y=is_log_y)


def _running(name: str, record: Record, *, step: int = 1) -> Series:
    return _latencies(
        name, record.minutes[RUNNING_SECONDS - 1 :: step], running_means(record.samples)[::step]
    )


def _latencies(
    name: str, minutes: Sequence[float], seconds: Sequence[float], *, is_line: bool = True
) -> Series:
    """In milliseconds; a second without messages has no latency, rather than one of 0."""
    known = [(at, 1e3 * latency) for at, latency in zip(minutes, seconds, strict=False) if latency > 0]
    return Series(name=name, x=[at for at, _ in known], y=[ms for _, ms in known], is_line=is_line)


def _thinned(values: Sequence[float], step: int) -> list[float]:
    return [fmean(values[start : start + step]) for start in range(0, len(values) - step + 1, step)]


def _blast_plots(records: Records) -> Sequence[Plot]:
    calm, end = CALM_SECONDS / MINUTE, 95.0
    latencies = [
        level("mostly below", 1000.0, calm),
        level("ten-second mean mostly below", 100.0, calm),
        published("unresponsive after", [end, end], [100.0, 1e5], is_line=True),
    ]
    plots: list[Plot] = []
    if (blast := records.get("blast")) and blast.samples:
        plots += _course_plots(blast, "blast", latencies, [level("throughput", 50.0, calm)])
    if (rescued := records.get("rescued")) and rescued.samples:
        plots += _course_plots(rescued, "rescued", [], [])
    return plots


def _blast_answer(records: Records) -> Sequence[str]:
    found = []
    blast, rescued = records.get("blast"), records.get("rescued")
    if blast and blast.samples:
        until = blast.values.get("collapsed_after_seconds", blast.values["duration_seconds"])
        before = [s for s in blast.samples if s["at_seconds"] <= until]
        sent, deleted = (math.fsum(s[name] for s in before) for name in ("sent_count", "deleted_count"))
        came = (
            f"after {until / MINUTE:.1f} minutes" if "collapsed_after_seconds" in blast.values else "not yet"
        )
        found.append(
            "The collapse needs no more than a deleter that is slower than the sender: until its oldest message was as "
            f"old as the visibility timeout ({came}), {100 * (1 - deleted / max(sent, 1.0)):.1f} % of {sent:.0f} sent "
            "messages were not deleted. The delete queue grows by that difference."
        )
    if not records.is_here:
        found.append(
            "Figure 2 and figure 4 cannot show the same hour: a window of ten costs a tenth of the throughput at "
            "153 ms (by Erlang's formula 44.6 of 50 messages a second) and nearly nothing at 100 ms (49.1). With "
            "the latency that figure 7 gives for the East, ten-second means are mostly below 100 ms, as in figure "
            "2; with that of figure 4 they are not (their median is 153 ms)."
        )
    elif (east := records.get("blast-east")) and len(east.samples) >= RUNNING_SECONDS:
        seconds = quantile(running_means(east.samples), 0.5)
        rate = east.values["sent_count"] / east.values["duration_seconds"]
        found.append(
            f"Half of the ten-second means here are below {1e3 * seconds:.0f} ms. By Erlang's formula a window of ten "
            f"would carry {rate * (1 - erlang_b(10, rate * seconds)):.1f} of the {rate:.1f} messages a second then."
        )
    if rescued and "recovered_after_seconds" in rescued.values:
        found.append(
            f"A collapsed queue is rescued while the sender goes on: {rescued.values['recovered_after_seconds']:.0f} "
            "s after a window on what is received and not deleted was set, no copy came any more."
        )
    elif rescued and records.is_here:
        found.append(
            "The queue that was to be rescued did not collapse and recover within the time of this run."
        )
    return found


# The published rules, and what goes beyond them


def _rules_steps(form: Form) -> Sequence[Step]:
    seconds = {Form.SHORT: _SHORT_SECONDS, Form.LAB: 10 * MINUTE, Form.FULL: 8 * HOUR}[form]
    advised_seconds = {Form.SHORT: _SHORT_SECONDS, Form.LAB: 3 * MINUTE, Form.FULL: HOUR}[form]
    rules = drive_of("rate-controlled", visibility_timeout_seconds=TIMEOUT_SECONDS)
    advised = drive_of("advised", visibility_timeout_seconds=TIMEOUT_SECONDS, offered_per_second=50.0)
    return [
        queue_step("rules", "queue", rules, seconds=seconds),
        queue_step("advised", "queue", advised, seconds=advised_seconds),
    ]


def _rules_quantities(records: Records) -> Quantities:
    values: dict[str, float] = {
        "rules.window": RATE_CONTROLLED.send_window,
        "rules.age": RATE_CONTROLLED.oldest_undeleted_seconds_max,
    }
    if rules := records.get("rules"):
        values["rules.latency"] = 1e3 * rules.values["latency_seconds_mean"]
        values["rules.throughput"] = rules.messages_per_second
        values["rules.duplicates"] = rules.values["duplicate_count"]
    return values


def _rules_plots(records: Records) -> Sequence[Plot]:
    plots: list[Plot] = []
    for label in ("rules", "advised"):
        if (record := records.get(label)) and record.samples:
            seeds = ([level("by the rules", value, record.minutes[-1])] for value in (153.0, 45.0))
            plots += _course_plots(record, label, *seeds)
    return plots


PUBLISHED_CONDITIONS = Conditions(
    message_rate_per_second=50.0,
    send_seconds=0.020,
    receive_seconds=0.024,
    receive_seconds_per_message=0.004,
    delete_seconds=0.020286,
    delivery_latency_seconds=0.153,
    receive_wait_seconds=0.0,
    latency_objective_seconds=0.160,
)


def _rules_answer(records: Records) -> Sequence[str]:
    advised, rules = records.get("advised"), records.get("rules")
    sentences = []
    conditions = _conditions_here(advised) if advised else None
    if conditions is not None and records.is_here and conditions.delivery_latency_seconds:
        sentences += [
            _planned_sentence(conditions, "what was measured here first"),
            (
                f"One message alone took {1e3 * conditions.delivery_latency_seconds:.0f} ms from its send to its "
                "receive: what lies above that is waiting."
            ),
        ]
    elif not records.is_here:
        limit_ms = 1e3 * (0.020 / 2 + 0.047 + 0.020 / 2 + 0.004)
        sentences += [
            _planned_sentence(PUBLISHED_CONDITIONS, "these conditions"),
            (
                f"The physical limit is {limit_ms:.0f} ms: half a send, the 47 ms in which a message spreads, half a "
                "receive and the message's own share of it. What lies between are polls that look into a part of the "
                "servers only (short polls: 82 ms), and waiting for the receive before it to end."
            ),
        ]
    for record, name in ((rules, "By the rules"), (advised, "As planned")):
        if record is not None and (records.is_here or record is advised):
            rate = record.messages_per_second
            sentences.append(
                f"{name}, the queue carried {rate:.1f} messages a second at "
                f"{1e3 * record.values['latency_seconds_mean']:.0f} ms, {record.values['duplicate_count']:.0f} copies."
            )
    return sentences


def _conditions_here(record: Record) -> Conditions | None:
    """The conditions that the run's plan was made for; None if it measured none."""
    names = {name.removeprefix(CONDITION) for name in record.values if name.startswith(CONDITION)}
    if "send_seconds" not in names:
        return None
    known = {name: record.values[CONDITION + name] for name in names}
    return msgspec.convert(known, Conditions, strict=False)  # records hold counts as floats


def _planned_sentence(conditions: Conditions, words: str) -> str:
    found = plan(conditions)
    return (
        f"Refined rate control takes nothing back: penstock plans {found.goodput_messages_per_second.expected:.1f} "
        f"messages a second of {conditions.message_rate_per_second:.0f} for {words}, with "
        f"{counted(found.setting.deleter_thread_count, 'deleter')}, at most "
        f"{found.setting.receive_window_message_count} messages received and not deleted, and long polls."
    )


# Zones


def _zones_steps(form: Form) -> Sequence[Step]:
    seconds = {Form.SHORT: _SHORT_SECONDS, Form.LAB: 5 * MINUTE, Form.FULL: HOUR}[form]
    rules = drive_of("rate-controlled", visibility_timeout_seconds=TIMEOUT_SECONDS)
    return [
        queue_step(f"zone/{zone}", f"queue-{zone}", rules, seconds=seconds, is_far=zone == "far")
        for zone in (("east", "west") if form is Form.LAB else ("near", "far"))
    ]


def _zones_quantities(records: Records) -> Quantities:
    """On real services, near and far stand for East and West; one of them alone stands for neither."""
    labels = ("zone/near", "zone/far") if records.is_here else ("zone/east", "zone/west")
    found = [record for label in labels if (record := records.get(label))]
    if len(found) < 2:
        return {}
    east, west = (1e3 * record.values["latency_seconds_mean"] for record in found)
    return {"zones.east": east, "zones.west": west}


def _zones_plots(records: Records) -> Sequence[Plot]:
    series = [_running(record.last_word, record) for record in records.below("zone/")]
    minutes = max((x for one in series for x in one.x), default=0.0)
    series += [level(zone, value, minutes) for zone, value in (("east", 100.0), ("west", 300.0))]
    return [_by_minutes("Latency by region, mean of ten seconds", "ms", series)]


def _zones_answer(records: Records) -> Sequence[str]:
    found = [
        f"{record.messages_per_second:.0f} messages a second "
        f"({record.last_word}, {1e3 * record.values['latency_seconds_mean']:.0f} ms)"
        for record in records.below("zone/")
    ]
    if len(found) > 1:
        latencies = [record.values["latency_seconds_mean"] for record in records.below("zone/")]
        verdict = (
            "distance costs latency, and a fixed window turns latency into lost throughput. A window of a second's "
            "messages does not."
            if max(latencies) > _APART * min(latencies)
            else "the two are as good as equally far."
        )
        return [f"The same window of ten carries {' and '.join(found)}: {verdict}"]
    return [f"The window of ten carries {each}; name the other end with --far." for each in found]


def _window_steps(form: Form) -> Sequence[Step]:
    seconds = {Form.SHORT: 5.0, Form.LAB: MINUTE, Form.FULL: 5 * MINUTE}[form]
    windows = (2, 10, 40) if form is Form.SHORT else (2, 5, 10, 15, 20, 40)
    drives = {
        w: QueueDrive(label=f"window-{w}", conduct=replace(RATE_CONTROLLED, send_window=w)) for w in windows
    }
    return [
        queue_step(f"window/{window}", "queue", drive, seconds=seconds) for window, drive in drives.items()
    ]


def _window_plots(records: Records) -> Sequence[Plot]:
    rates, offered, seconds = _window_rates(records)
    return [
        Plot(
            title="What a window carries",
            x_title="messages in the server at most",
            y_title="messages/s",
            series=[
                curve_series("measured", rates),
                Series(
                    name=f"Erlang B at {1e3 * seconds:.0f} ms",
                    x=list(rates),
                    y=[offered * (1.0 - erlang_b(round(w), offered * seconds)) for w in rates],
                ),
                published("by the rules", [10.0], [45.0]),
            ],
        )
    ]


def _window_rates(records: Records) -> tuple[dict[float, float], float, float]:
    """Messages per second by window; then the rate of the widest one, and its latency in seconds."""
    found = {float(record.last_word): record for record in records.below("window/")}
    rates = {w: r.messages_per_second for w, r in found.items()}
    if not found:
        return rates, 0.0, 0.0
    widest = found[max(found)]
    return rates, widest.messages_per_second, widest.values["latency_seconds_mean"]


def erlang_b(server_count: int, load: float) -> float:
    """Erlang's B formula: the fraction of the load (in erlangs) that is lost with this many servers."""
    blocked = 1.0
    for n in range(1, server_count + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked


_NEARLY_ALL = 0.95


def _window_answer(records: Records) -> Sequence[str]:
    rates, offered, seconds = _window_rates(records)
    if len(rates) < 2 or 10.0 not in rates:
        return []
    load = offered * seconds
    worth = "cheap to mend" if rates[10.0] < _NEARLY_ALL * offered else "enough here"
    ten, twenty = (offered * (1 - erlang_b(count, load)) for count in (10, 20))
    told = (
        f"Ten was arbitrary, and is {worth}: at {1e3 * seconds:.0f} ms a window of 10 carries {rates[10.0]:.0f} of "
        f"{offered:.0f} messages a second, by Erlang's formula {ten:.0f}; one of 20 would carry {twenty:.0f}. "
        "What has to be bounded is what is received and not deleted."
    )
    return [told]


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="sqs-blast",
        title="A queue that is driven without bounds",
        study="000",
        section="II, figures 2 and 5",
        summary="A sender, a receiver and a deleter as fast as they go, until copies come back and the application "
        "stands still; and the rescue.",
        steps=_blast_steps,
        quantities=_blast_quantities,
        plots=_blast_plots,
        answer=_blast_answer,
    ),
    Experiment(
        name="sqs-rate-controlled",
        title="The same queue by the published rules, and as planned",
        study="000",
        section="II, figures 4 and 6",
        summary="Fewer than ten messages in the server, and a pause while the oldest undeleted is older than 15 s.",
        steps=_rules_steps,
        quantities=_rules_quantities,
        plots=_rules_plots,
        answer=_rules_answer,
    ),
    Experiment(
        name="sqs-zones",
        title="The rules in two regions",
        study="000",
        section="II, figure 7",
        summary="The rate-controlled run near the queue and far from it.",
        steps=_zones_steps,
        quantities=_zones_quantities,
        plots=_zones_plots,
        answer=_zones_answer,
    ),
    Experiment(
        name="sqs-window",
        title="Which window is enough",
        study="000",
        section="II, the rules",
        summary="The rate-controlled run with windows from 2 to 40 messages; the study took 10.",
        steps=_window_steps,
        plots=_window_plots,
        grids=as_numbers(_window_plots),
        answer=_window_answer,
    ),
)
