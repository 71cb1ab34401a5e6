"""Knows the figures of a queue that are not about knobs: latency against load, way to collapse, backlog, windows.

The backlog after a stop of the deleters is simulated as a flow of messages in steps of V / 40. Received messages wait
in line for their delete. Those that have waited for the visibility timeout V come back and wait once more, and the
delete of the older copy achieves nothing (`duplicate_loop`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.models.inference.draws import quantiles
from penstock.models.model import Array
from penstock.models.sqs.duplicate_loop import DeleteLoop
from penstock.models.sqs.physics import Forecast
from penstock.models.study import Sighting, Study, Trace, known
from penstock.units import counted, format_seconds, number, quantity
from penstock.vocabulary import Estimate, Observation, Prediction

_LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
_LOADS_TO_COLLAPSE = (0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97)
_LOADS_IN_COLLAPSE = (1.03, 1.06, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6)
_WINDOW_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
_SIGHTING_COUNT_MAX = 80
_STEPS_PER_TIMEOUT = 40
_TIMEOUTS_FOLLOWED = 12
_OUTAGE_BEYOND = 1.2  # times the longest stop that heals by itself without a receive window
_LATENCY, _LOAD = "delivery_latency_seconds", "load_messages_per_second"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One queue, and the functions with which the model answers questions about it (Any: a setting of the model)."""

    setting: Any
    payload_size_bytes: int
    visibility_timeout_seconds: float
    predict: Callable[[Any], Prediction]
    forecast: Callable[[Sequence[Any]], Forecast]  # (draws, settings)


def studies(queue: Queue, observations: Sequence[Observation[Any]]) -> Iterator[Study]:
    """The figures around this setting."""
    outcome = queue.forecast([queue.setting])
    deletes = outcome.delete_rate[:, 0]
    arrivals = float(np.minimum(outcome.send_rate, outcome.receive_rate)[:, 0].mean())
    own = [o for o in observations if o.context.payload_size_bytes == queue.payload_size_bytes]
    if deletes.min() <= 0 or arrivals <= 0:
        return
    yield _latency_against_load(queue, own)
    yield _way_to_collapse(queue, arrivals, deletes)
    yield _backlog_after_a_stop(queue, arrivals, float(deletes.mean()))
    if queue.setting.send_window_message_count:
        yield _send_windows(queue)


def _latency_against_load(queue: Queue, observations: Sequence[Observation[Any]]) -> Study:
    free = dataclasses.replace(queue.setting, send_rate_limit_messages_per_second=0.0)
    capacity = float(queue.forecast([free]).slowest_rate[:, 0].mean())
    rates = tuple(load * capacity for load in _LOADS)
    paced = [dataclasses.replace(queue.setting, send_rate_limit_messages_per_second=rate) for rate in rates]
    predicted = [queue.predict(setting) for setting in paced]
    means = tuple(each[f"{_LATENCY}_mean"] for each in predicted)
    tails = tuple(each[f"{_LATENCY}_p99"] for each in predicted)
    advised = queue.setting.send_rate_limit_messages_per_second or capacity
    return Study(
        title="Delivery latency against load",
        sentence=f"With as many threads, sent at a steady rate; these threads carry {number(capacity)} messages a "
        f"second. A message takes {quantity(_LATENCY, means[4].expected)} at half of that and "
        f"{quantity(_LATENCY, means[-1].expected)} at all of it, one of a hundred "
        f"{quantity(_LATENCY, tails[-1].expected)}.",
        x_name=_LOAD,
        y_name=_LATENCY,
        traces=(Trace(name="mean", x=rates, y=means), Trace(name="99 of 100", x=rates, y=tails)),
        sightings=tuple(
            Sighting(
                x=o.measures["goodput_messages_per_second"],
                y=o.latency_seconds_mean,
                words=f"{counted(o.setting.sender_thread_count, 'sender')}, batches of "
                f"{o.setting.batch_message_count}: {quantity(_LATENCY, o.latency_seconds_mean)}",
            )
            for o in observations[-_SIGHTING_COUNT_MAX:]
            if o.latency_seconds_mean > 0 and o.measures.get("goodput_messages_per_second", 0.0) > 0
        ),
        marks={"advised": min(advised, rates[-1])},
        is_y_log=True,
    )


def _way_to_collapse(queue: Queue, arrivals: float, deletes: Array) -> Study:
    """Stops that heal, and times until collapse, without a receive window; the advised window prevents collapse."""
    capacity = float(deletes.mean())
    loop = _loop(queue, arrivals, capacity)

    def over(loads: Sequence[float], ask: Callable[[DeleteLoop], float]) -> tuple[Estimate, ...]:
        found = []
        for load in loads:
            seconds = [
                min(ask(_loop(queue, load * capacity, float(rate))), 1e6)
                for rate in quantiles(deletes, (0.05, 0.95))
            ]
            middle = min(ask(_loop(queue, load * capacity, capacity)), 1e6)
            found.append(Estimate(max(min(*seconds, middle), 0.1), middle, max(*seconds, middle)))
        return tuple(found)

    heals = over(_LOADS_TO_COLLAPSE, DeleteLoop.outage_seconds_max)
    lasts = over(_LOADS_IN_COLLAPSE, DeleteLoop.collapse_after_seconds)
    if math.isinf(loop.collapse_after_seconds()):
        words = (
            f"At {number(arrivals)} messages a second the deleters are busy to {100 * loop.load:.0f} %: a stop of up "
            f"to {format_seconds(loop.outage_seconds_max())} heals by itself, also without a receive window."
        )
    else:
        words = (
            f"At {number(arrivals)} messages a second, more than the deleters can do, it would collapse after "
            f"{format_seconds(loop.collapse_after_seconds())} without a receive window."
        )
    return Study(
        title="The distance to collapse",
        sentence=f"{words} The visibility timeout is {format_seconds(queue.visibility_timeout_seconds)}.",
        x_name=_LOAD,
        y_name="stop_seconds",
        traces=(
            Trace(
                name="a stop of the deleters that heals",
                x=tuple(load * capacity for load in _LOADS_TO_COLLAPSE),
                y=heals,
            ),
            Trace(
                name="time until it collapses",
                x=tuple(load * capacity for load in _LOADS_IN_COLLAPSE),
                y=lasts,
            ),
        ),
        marks={"deletes": capacity, "advised": arrivals},
        is_y_log=True,
    )


def _backlog_after_a_stop(queue: Queue, arrivals: float, deletes: float) -> Study:
    loop = _loop(queue, arrivals, deletes)
    stop_seconds = _OUTAGE_BEYOND * (loop.outage_seconds_max() or queue.visibility_timeout_seconds)
    window = float(queue.setting.receive_window_message_count) or loop.receive_window_message_count()
    bounded, free = (
        backlog_after_a_stop(loop, stop_seconds=stop_seconds, receive_window=each) for each in (window, None)
    )
    step = queue.visibility_timeout_seconds / _STEPS_PER_TIMEOUT
    seconds = tuple(step * n for n in range(len(bounded)))
    over = next(
        (at for at, left in zip(seconds, bounded, strict=True) if at > stop_seconds and left < 1.0), None
    )
    end = format_seconds(seconds[-1])
    held = (
        f"the backlog is gone after {format_seconds(over)}"
        if over
        else f"{number(bounded[-1])} wait after {end}"
    )
    return Study(
        title="The backlog after a stop of the deleters",
        sentence=f"By the model, after {format_seconds(stop_seconds)} without deletes at {number(arrivals)} messages a "
        f"second: with the receive window {held}; without it {number(free[-1])} wait after {end}.",
        x_name="after_seconds",
        y_name="backlog_message_count",
        traces=(
            Trace(
                name=f"with the receive window of {number(window)}",
                x=seconds,
                y=tuple(map(known, bounded)),
            ),
            Trace(name="without a receive window", x=seconds, y=tuple(map(known, free))),
        ),
        marks={"deletes go on": stop_seconds},
    )


def backlog_after_a_stop(
    loop: DeleteLoop, *, stop_seconds: float, receive_window: float | None
) -> tuple[float, ...]:
    """Messages sent and not effectively deleted, at each step from the beginning of a stop of the deleters."""
    step = loop.visibility_timeout_seconds / _STEPS_PER_TIMEOUT
    count = int(
        max(_TIMEOUTS_FOLLOWED, 3 * stop_seconds / loop.visibility_timeout_seconds) * _STEPS_PER_TIMEOUT
    )
    held = [0.0] * count  # messages by the step in which they were received
    line: list[int] = []  # steps with messages held, the oldest first
    waiting = undeleted = held_total = 0.0
    found = []
    for now in range(count):
        undeleted += loop.arrival_rate_per_second * step
        waiting += loop.arrival_rate_per_second * step
        # Messages held for the length of the timeout become visible again, as copies.
        again = now - _STEPS_PER_TIMEOUT
        if again >= 0 and held[again] > 0:
            waiting += held[again]
        room = waiting if receive_window is None else max(min(waiting, receive_window - held_total), 0.0)
        held[now], waiting, held_total = room, waiting - room, held_total + room
        line.append(now)
        left = loop.delete_rate_per_second * step if now * step >= stop_seconds else 0.0
        while line and left > 0:
            oldest = line[0]
            taken = min(held[oldest], left)
            held[oldest], left, held_total = held[oldest] - taken, left - taken, held_total - taken
            if now - oldest < _STEPS_PER_TIMEOUT:
                undeleted -= taken
            if held[oldest] <= 0:
                line.pop(0)
        found.append(max(round(undeleted, 6), 0.0))  # without rounding errors
    return tuple(found)


def _send_windows(queue: Queue) -> Study:
    advised = queue.setting.send_window_message_count
    batch = queue.setting.batch_message_count
    windows = sorted({max(round(share * advised), batch) for share in _WINDOW_SHARES})
    predicted = [
        queue.predict(dataclasses.replace(queue.setting, send_window_message_count=window))
        for window in windows
    ]
    goodputs = tuple(each["goodput_messages_per_second"] for each in predicted)
    here = queue.predict(queue.setting)["goodput_messages_per_second"].expected
    shares = {window: each.expected / here for window, each in zip(windows, goodputs, strict=True)}
    few = next((window for window, share in shares.items() if share >= 0.5), windows[0])
    told = " and ".join(f"{100 * shares[each]:.0f} % with {number(each)}" for each in (few, windows[-1]))
    return Study(
        title="Goodput against the send window",
        sentence=f"At most {number(advised)} messages sent and not yet received are advised. Of their goodput there is "
        f"{told}.",
        x_name="send_window_message_count",
        y_name="goodput_messages_per_second",
        traces=(Trace(name="goodput", x=tuple(map(float, windows)), y=goodputs),),
        marks={"advised": float(advised)},
        is_x_log=True,
    )


def _loop(queue: Queue, arrivals: float, deletes: float) -> DeleteLoop:
    return DeleteLoop(
        arrival_rate_per_second=arrivals,
        delete_rate_per_second=deletes,
        visibility_timeout_seconds=queue.visibility_timeout_seconds,
    )
