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
        scale = _MESSAGE_COUNT / max(record.values["deleted_count"], 1.0)
        sent = record.values["sent_after_seconds"]
        values[f"ten-thousand.send-{trial}"] = scale * sent
        values[f"ten-thousand.{fact}"] = scale * (record.values["duration_seconds"] - sent)
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
    sentences = []
    if {"ten-thousand.receive-one", "ten-thousand.receive-256"} <= values.keys():
        one, batch = values["ten-thousand.receive-one"], values["ten-thousand.receive-256"]
        sentences.append(
            "Receiving and deleting one by one takes two requests for each message, in batches hardly more than "
            f"one: {100 * batch / one:.0f} % of the time (published: 50 %). With deletes in batches of ten, too, ten "
            "thousand messages take two thousand requests."
        )
    if "ten-thousand.send-1" in values:
        sentences.append(
            f"Ten senders instead of one would take a tenth of the {values['ten-thousand.send-1']:.0f} s, as long as "
            "nothing but the time of a request limits them."
        )
    if (record := records.get("received/one")) and len(record.arrivals) > 1:
        later = [float(b > a) for a, b in pairwise(record.arrivals)]
        sentences.append(
            f"{100 * fmean(later):.0f} % of the messages came after one that was sent before them."
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
    if not 0.0 < one < batch:
        return []
    threads, size = _GUIDE_HOST.sender_count, RECEIVE_MESSAGE_COUNT_MAX
    single_ms, batch_ms = 1e3 * threads / one, 1e3 * threads * size / batch
    message_ms = max(0.0, (batch_ms - single_ms) / (size - 1))
    request_ms = single_ms - message_ms
    where = "two processes that share them" if records.is_here else "twice the threads"
    return [
        (
            f"Two numbers say it all: {request_ms:.0f} ms for a request and {message_ms:.0f} ms for each message in "
            f"it. So {threads} threads carry {one:,.0f} messages a second one by one and {batch:,.0f} in batches of "
            f"{size}; by this law batches of {size} reach {100 * size * message_ms / batch_ms:.0f} % of what batches "
            f"without a bound would. Two hosts are {where} here."
        )
    ]


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        name="queue-ten-thousand",
        title="Ten thousand messages, one at a time and in batches",
        study="001",
        section="6",
        summary="All are sent, then received and deleted by one thread; in which order they come.",
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
