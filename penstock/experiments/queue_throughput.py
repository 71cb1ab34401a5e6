"""Knows the published experiments on a queue's throughput: one at a time, in batches, from two hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from penstock.experiments.experiment import (
    HOUR,
    MINUTE,
    Experiment,
    Form,
    Plot,
    Quantities,
    Records,
    Series,
    Step,
    level,
    queue_step,
)
from penstock.probes.sqs.conduct import RECEIVE_MESSAGE_COUNT_MAX, Conduct
from penstock.probes.sqs.queue_application import QueueDrive

_GUIDE_HOST = Conduct(
    sender_count=14, receiver_count=16, deleter_count=16, receive_window=100_000, long_polls=True
)
_WAITING_RATIO = 1.5  # times what a request takes one thread alone; beyond it, threads wait for something
_MESSAGE_COUNT = 10_000
_SHORT_MESSAGE_COUNT = 60

# Ten thousand messages


def _ten_thousand_steps(form: Form) -> Sequence[Step]:
    count, seconds = (_SHORT_MESSAGE_COUNT, MINUTE) if form is Form.SHORT else (_MESSAGE_COUNT, 3 * HOUR)
    batch = 256 if form is Form.LAB else RECEIVE_MESSAGE_COUNT_MAX  # 256: as the service of 2007 allowed
    return [
        queue_step(
            f"received/{name}",
            "queue-2007",
            QueueDrive(
                label=name,
                conduct=Conduct(receive_batch=size, receive_window=size, fills_first=True),
                visibility_timeout_seconds=7200,
                message_count_max=count,
            ),
            seconds=seconds,
            rate=2 * count / seconds,
        )
        for name, size in (("one", 1), ("batch", batch))
    ]


def _ten_thousand_quantities(records: Records) -> Quantities:
    values: dict[str, float] = {}
    for trial, (name, fact) in enumerate((("one", "receive-one"), ("batch", "receive-256")), start=1):
        record = records.get(f"received/{name}")
        if record is None or "sent_after_seconds" not in record.values:
            continue
        sent, deleted = (_MESSAGE_COUNT / max(record.values[f"{n}_count"], 1.0) for n in ("sent", "deleted"))
        seconds = record.values["sent_after_seconds"]
        values[f"ten-thousand.send-{trial}"] = sent * seconds
        values[f"ten-thousand.{fact}"] = deleted * (record.values["duration_seconds"] - seconds)
    return values


def _ten_thousand_plots(records: Records) -> Sequence[Plot]:
    series = [
        Series(name=record.last_word, x=range(len(first)), y=first, is_line=False)
        for record in records.below("received/")
        for first in [record.arrivals[:200]]
    ]
    return [Plot(title="The order of arrival", x_title="received as", y_title="sent as", series=series)]


def _ten_thousand_answer(records: Records) -> Sequence[str]:
    values = _ten_thousand_quantities(records)
    one, batch = records.get("received/one"), records.get("received/batch")
    sentences = []
    counts = {round(record.values["deleted_count"]) for record in (one, batch) if record}
    if values and counts != {_MESSAGE_COUNT}:
        listed = " and ".join(f"{count:,}" for count in sorted(counts))
        sentences.append(f"These are times of {listed} messages, multiplied to {_MESSAGE_COUNT:,}.")
    if {"ten-thousand.receive-one", "ten-thousand.receive-256"} <= values.keys():
        share = values["ten-thousand.receive-256"] / values["ten-thousand.receive-one"]
        sentences.append(
            "Received one by one, each message takes a receive and a delete; received in batches, hardly more than the "
            f"delete: {100 * share:.0f} % of the time (published: 50 %). With receives and deletes in batches of ten, "
            "ten thousand messages would take two thousand requests."
        )
    if "ten-thousand.send-1" in values:
        sentences.append(
            f"Ten senders would take a tenth of the {values['ten-thousand.send-1']:,.0f} s of one, if nothing but the "
            "time of a request limits them."
        )
    if one and len(one.arrivals) > 1:
        later = [float(b > a) for a, b in pairwise(one.arrivals)]
        sentences.append(
            f"Of the first {len(one.arrivals):,} messages, {100 * fmean(later):.0f} % were sent later than the one "
            "received before them; it would be all of them from a queue in order, and half from one without any."
        )
    return sentences


# Producers and consumers


def _guide_steps(form: Form) -> Sequence[Step]:
    seconds = {Form.SHORT: 6.0, Form.LAB: 8.7, Form.FULL: 20 * MINUTE}[form]
    one = replace(_GUIDE_HOST, receive_batch=1)
    two = replace(one, sender_count=28, receiver_count=32, deleter_count=32)
    batch = replace(_GUIDE_HOST, send_batch=10, receive_batch=10, delete_batch=10)
    steps = [
        queue_step(
            f"guide/{name}",
            "queue-guide",
            QueueDrive(label=name, conduct=conduct),
            seconds=seconds,
            rate=3000.0,
            process_count=2 if conduct is two else 1,
        )
        for name, conduct in {"one-host": one, "two-hosts": two, "batch": batch}.items()
    ]
    alone = QueueDrive(label="one-thread")
    alone_seconds = min(2 * seconds, MINUTE)
    return [*steps, queue_step("guide/one-thread", "queue-guide", alone, seconds=alone_seconds)]


_GUIDE_FACTS = {"one-host": "single.one", "two-hosts": "single.two", "batch": "batch.one"}


def _guide_quantities(records: Records) -> Quantities:
    values = {} if records.is_here else {"request.latency": 20.0}
    for name, fact in _GUIDE_FACTS.items():
        if (record := records.get(f"guide/{name}")) and (settled := record.column("deleted_count")[2:]):
            values[fact] = fmean(settled)
    if alone := records.get("guide/one-thread"):
        values["one-thread.operations"] = alone.values["sent_count"] / alone.values["duration_seconds"]
        if records.is_here and alone.values["sent_count"]:
            values["request.latency"] = 1e3 / values["one-thread.operations"]
    return values


def _guide_plots(records: Records) -> Sequence[Plot]:
    series = [
        Series(name=record.last_word, x=record.column("at_seconds"), y=record.column("deleted_count"))
        for record in records.below("guide/")
    ]
    seconds = max((x for one in series for x in one.x), default=0.0)
    tallies = {"one host": 700.0, "two hosts": 1450.0, "batch": 2500.0}
    series += [level(name, value, seconds) for name, value in tallies.items()]
    return [Plot(title="The tally of each second", x_title="s", y_title="messages/s", series=series)]


def _guide_answer(records: Records) -> Sequence[str]:
    """A request takes time, and so does each message in it: two throughputs determine both."""
    values = _guide_quantities(records)
    one, batch = values.get("single.one", 0.0), values.get("batch.one", 0.0)
    if not one or not batch:
        return []
    threads, size = _GUIDE_HOST.sender_count, RECEIVE_MESSAGE_COUNT_MAX
    carried = f"{threads} threads carried {one:,.0f} messages a second one by one, {batch:,.0f} in batches of {size}"
    if batch <= one:
        return [f"{carried}: batches brought nothing here."]
    single_ms, batch_ms = 1e3 * threads / one, 1e3 * threads * size / batch
    message_ms = max(0.0, (batch_ms - single_ms) / (size - 1))
    law = (
        f"{carried}. That is as with {single_ms - message_ms:.0f} ms for a request and {message_ms:.0f} ms for each "
        f"message in it; larger batches, if there were any, could carry at most {batch_ms / (size * message_ms):.1f} "
        f"times as much as those of {size}."
        if message_ms
        else f"{carried}: further messages in a request cost nothing here."
    )
    hosts = (
        f"Two hosts are two processes with {threads} threads each"
        if records.is_here
        else "Two hosts are twice the threads"
    )
    return [law, *_waiting_sentence(values, single_ms), f"{hosts} here."]


def _waiting_sentence(values: Quantities, single_ms: float) -> list[str]:
    """Where many threads wait longer for a request than one alone, the time of a request is not all that limits."""
    alone_ms = values.get("request.latency")
    if alone_ms is None or single_ms < _WAITING_RATIO * alone_ms:
        return []
    told = (
        f"One thread alone takes {alone_ms:.0f} ms for a request, so most of those {single_ms:.0f} ms are waiting: "
        "this host, its processes or the service are the limit."
    )
    return [told]


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="queue-ten-thousand",
        title="Ten thousand messages, one at a time and in batches",
        study="001",
        section="6",
        summary="One thread sends all, then receives and deletes them; their order is noted.",
        steps=_ten_thousand_steps,
        quantities=_ten_thousand_quantities,
        plots=_ten_thousand_plots,
        answer=_ten_thousand_answer,
    ),
    Experiment(
        name="producer-consumer",
        title="Producers and consumers",
        study="003",
        section="the example",
        summary="Single requests from one host and from two, and batches of ten.",
        steps=_guide_steps,
        quantities=_guide_quantities,
        plots=_guide_plots,
        answer=_guide_answer,
    ),
)
