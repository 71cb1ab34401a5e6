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
from penstock.units import counted, format_seconds

RUNNING_SECONDS = 10
CALM_SECONDS = 35 * MINUTE  # the blast before its collapse
TIMEOUT_SECONDS = 30  # SQS's default visibility timeout
_SHORT_SECONDS = 12.0
_SHORT_TIMEOUT_SECONDS = 3
_SHORT_SEND_RATE, _SHORT_DELETE_RATE = 40.0, 20.0  # per second, so that a queue collapses in time
_OFFERED_RATE = 50.0  # messages per second to send, where the queue is driven as planned
_FULL_WINDOW_FRACTION = 0.8  # of a window, on average; a fuller one holds its sender back
_APART = 1.1  # ratio of latencies from which distance counts
_POINT_COUNT_MAX = 300  # of a line


# Blast


def _blast_steps(form: Form) -> Sequence[Step]:
    if form is Form.SHORT:
        east = drive_of("blast", visibility_timeout_seconds=_SHORT_TIMEOUT_SECONDS)
        slow = {
            "delete_requests_per_second_max": _SHORT_DELETE_RATE,
            "offered_per_second": _SHORT_SEND_RATE,
        }
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
    if (east := records.get("blast-east")) and _has_running_mean(east):
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
    blast, east, rescued = (records.get(label) for label in ("blast", "blast-east", "rescued"))
    if blast and blast.samples:
        found.append(_collapse_sentence(blast, is_short=records.is_short))
    median_ms = 1e3 * quantile(running_means(east.samples), 0.5) if east and _has_running_mean(east) else None
    if blast and _has_running_mean(blast) and median_ms is not None and not records.is_here:
        found.append(_two_latencies_sentence(blast, median_ms))
    elif east and median_ms is not None:
        rate = east.values["sent_count"] / east.values["duration_seconds"]
        found.append(
            f"Half of the ten-second means are below {median_ms:.0f} ms. By Erlang's formula a window of ten would "
            f"then carry {_erlang_rate(10, rate, median_ms):.1f} of the {rate:.1f} messages a second."
        )
    if rescued:
        found.append(_rescue_sentence(rescued, is_short=records.is_short))
    return found


def _collapse_sentence(blast: Record, *, is_short: bool) -> str:
    collapsed_after = blast.values.get("collapsed_after_seconds")
    until = blast.values["duration_seconds"] if collapsed_after is None else collapsed_after
    before = [s for s in blast.samples if s["at_seconds"] <= until]
    sent, deleted = (math.fsum(s[name] for s in before) for name in ("sent_count", "deleted_count"))
    told = (
        f"The queue did not collapse within {format_seconds(until)}: no message waited as long as the visibility "
        "timeout for its deletion. At the end"
        if collapsed_after is None
        else f"The queue collapsed after {format_seconds(until)}, when the oldest undeleted message was as old as the "
        "visibility timeout. Until then"
    )
    told += f" {100 * (1 - deleted / max(sent, 1.0)):.1f} % of {sent:.0f} sent messages were not deleted."
    if collapsed_after is not None:
        told += " A deleter that is slower than the sender is enough."
    slow = f"at most {_SHORT_DELETE_RATE:.0f} a second, of {_SHORT_SEND_RATE:.0f} messages a second to send"
    return told + f" Deletes were slowed down on purpose: {slow}." * is_short


def _two_latencies_sentence(blast: Record, east_ms: float) -> str:
    """What the study's figures 2 and 4 have in common, and what not."""
    calm = [s for s in blast.samples if s["at_seconds"] <= CALM_SECONDS]
    at_153, at_100 = (_erlang_rate(10, 50.0, ms) for ms in (153.0, 100.0))
    return (
        f"Figures 2 and 4 of the study have different latencies. At the 153 ms of figure 4 a window of ten carries "
        f"{at_153:.1f} of 50 messages a second by Erlang's formula, at 100 ms {at_100:.1f}. In the lab half of the "
        f"ten-second means are below {east_ms:.0f} ms with the latency of the East in figure 7, as in figure 2, and "
        f"below {1e3 * quantile(running_means(calm), 0.5):.0f} ms with that of figure 4."
    )


def _rescue_sentence(rescued: Record, *, is_short: bool) -> str:
    if "rescued_at_seconds" not in rescued.values:
        return "The queue that was to be rescued did not stay collapsed long enough in the time of this run."
    after = format_seconds(rescued.values["rescued_at_seconds"])
    told = (
        f"A second queue{'' if is_short else ', whose deletes were slowed down by 3 ms,'} was rescued after {after} by "
        "a window on messages received and not deleted, while its sender went on"
    )
    if "recovered_after_seconds" not in rescued.values:
        return f"{told}; it had not recovered at the end of the run."
    seconds = format_seconds(rescued.values["recovered_after_seconds"])
    return f"{told}: {seconds} later no copy came any more, and no message waited long for its deletion."


def _has_running_mean(record: Record) -> bool:
    return len(record.samples) >= RUNNING_SECONDS


def _erlang_rate(window: int, rate: float, latency_ms: float) -> float:
    """Messages per second that a window carries of those to send, by Erlang's formula."""
    return rate * (1.0 - erlang_b(window, rate * 1e-3 * latency_ms))


# The published rules, and what goes beyond them


def _rules_steps(form: Form) -> Sequence[Step]:
    seconds = {Form.SHORT: _SHORT_SECONDS, Form.LAB: 10 * MINUTE, Form.FULL: 8 * HOUR}[form]
    advised_seconds = {Form.SHORT: _SHORT_SECONDS, Form.LAB: 3 * MINUTE, Form.FULL: HOUR}[form]
    rules = drive_of("rate-controlled", visibility_timeout_seconds=TIMEOUT_SECONDS)
    advised = drive_of(
        "advised", visibility_timeout_seconds=TIMEOUT_SECONDS, offered_per_second=_OFFERED_RATE
    )
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
            _planned_sentence(conditions, "the request times measured here first"),
            (
                f"One message alone took {1e3 * conditions.delivery_latency_seconds:.0f} ms from its send to its "
                "receive. Whatever takes longer has waited."
            ),
        ]
    elif not records.is_here:
        sentences.append(_planned_sentence(PUBLISHED_CONDITIONS, "the conditions of the study"))
        if rules:
            sentences.append(_physical_limit_sentence(1e3 * rules.values["latency_seconds_mean"]))
    told = {
        "By the rules, with a sender as fast as it can,": rules,
        f"As planned, with {_OFFERED_RATE:.0f} messages a second to send,": advised,
    }
    sentences += [
        f"{words} the queue carried {record.messages_per_second:.1f} messages a second at "
        f"{1e3 * record.values['latency_seconds_mean']:.0f} ms, with "
        f"{counted(record.values['duplicate_count'], 'duplicate')}."
        for words, record in told.items()
        if record is not None
    ]
    return sentences


def _physical_limit_sentence(rules_ms: float) -> str:
    limit_ms = 1e3 * (0.020 / 2 + 0.047 + 0.020 / 2 + 0.004)
    return (
        f"On average a message cannot take less than {limit_ms:.0f} ms: half a send, the 47 ms in which it spreads, "
        f"half a receive, and the 4 ms that a message adds to one. By the rules it takes {rules_ms - limit_ms:.0f} ms "
        "more, because a short poll asks only a part of the servers, and because it waits for the receive before it."
    )


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
        f"For {words} penstock plans {found.goodput_messages_per_second.expected:.1f} messages a second of "
        f"{conditions.message_rate_per_second:.0f} to send, with "
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
    """A window holds its sender back where it is full; by Little's law it has rate times latency messages."""
    zones = records.below("zone/")
    told = [
        f"{record.last_word} {record.messages_per_second:.0f} messages a second at "
        f"{1e3 * record.values['latency_seconds_mean']:.0f} ms, with {_in_window(record):.1f} of them in the window"
        for record in zones
    ]
    if len(zones) < 2:
        return [f"The window of ten carried {each}. Name the other end with --far." for each in told]
    near, far = sorted(zones, key=lambda record: record.values["latency_seconds_mean"])
    if far.values["latency_seconds_mean"] <= _APART * near.values["latency_seconds_mean"]:
        verdict = "The two are about equally far."
    elif _in_window(far) >= _FULL_WINDOW_FRACTION * RATE_CONTROLLED.send_window:
        verdict = (
            "The farther end fills the window, so that it costs throughput there. A window as large as the messages of "
            "a second costs none while latency is below a second."
        )
    else:
        verdict = "The farther end does not fill the window: its limit is the one sender, which waits for each answer."
    return [f"The same window of ten carried {'; '.join(told)}. {verdict}"]


def _in_window(record: Record) -> float:
    return record.messages_per_second * record.values["latency_seconds_mean"]


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
    ten, twenty = (_erlang_rate(count, offered, 1e3 * seconds) for count in (10, 20))
    worth = "costs throughput" if rates[10.0] < _NEARLY_ALL * offered else "is enough here"
    told = (
        f"The study's window of 10 {worth}: it carried {rates[10.0]:.0f} messages a second, one of {max(rates):.0f} "
        f"{offered:.0f}. At {1e3 * seconds:.0f} ms, by Erlang's formula, 10 carry {ten:.0f} and 20 {twenty:.0f}. No "
        "such window prevents a collapse, because it does not bound messages received and not deleted."
    )
    return [told]


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="sqs-blast",
        title="A queue driven without bounds",
        study="000",
        section="II, figures 2 and 5",
        summary="A sender, a receiver and a deleter run as fast as they can until copies come back and the application "
        "stands still. A second queue is rescued.",
        steps=_blast_steps,
        quantities=_blast_quantities,
        plots=_blast_plots,
        answer=_blast_answer,
    ),
    Experiment(
        name="sqs-rate-controlled",
        title="The same queue by the published rules and as planned",
        study="000",
        section="II, figures 4 and 6",
        summary="Fewer than ten messages in the server; a pause while the oldest undeleted is older than 15 s.",
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
        summary="The queue driven by the rules, from near and from far.",
        steps=_zones_steps,
        quantities=_zones_quantities,
        plots=_zones_plots,
        answer=_zones_answer,
    ),
    Experiment(
        name="sqs-window",
        title="How large a window has to be",
        study="000",
        section="II, the rules",
        summary="The queue driven by the rules, with windows from 2 to 40 messages; the study used 10.",
        steps=_window_steps,
        plots=_window_plots,
        grids=as_numbers(_window_plots),
        answer=_window_answer,
    ),
)
