"""Knows how to measure an SQS queue: by senders, receivers and deleters on a queue of the probe's own.

The queue (`own_queue.py`) is created when it is first needed, used by all runs of this process, and removed by `close`,
or after a run that could not delete everything it had sent: the rest goes with the queue.
A run has phases that share its budget (`run.py`): one delivery over a connection that is not open yet, single requests
one after another (`idle.py`), then all threads at once until the queue is empty again (`application.py`). `tally.py`
has what they count, and the meaning of an observation's `measures`.

Messages tell the run they belong to: those that a former run left behind are deleted and not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import Mapping
from datetime import datetime

from penstock.clock import Clock, Stopwatch
from penstock.models.inference.histogram import pairs_of
from penstock.models.sqs.queue_class import queue_class
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.probes.cleaning import clean_up_shielded
from penstock.probes.measurement import LOOP_TICK_SECONDS, Effort, effort_of_block, summarize
from penstock.probes.outside import CONNECTION_IDLE_SECONDS_MAX, MessageQueues, RequestError
from penstock.probes.probe import NO_TIME, Journal, inconclusive
from penstock.probes.sqs.application import Means, MeasurementApplication, Stint
from penstock.probes.sqs.conduct import conduct_of
from penstock.probes.sqs.idle import cold_delivery_seconds, idle_seconds
from penstock.probes.sqs.own_queue import OwnQueue, attributes_of
from penstock.probes.sqs.run import Bodies, BoundQueue, HopelessError, Patience, Purse, Run
from penstock.probes.sqs.tally import Tally, histograms
from penstock.units import format_bytes
from penstock.vocabulary import Cost, Observation, Outcome, ProbePlan

VISIBILITY_TIMEOUT_SECONDS = 30  # SQS's default, which most applications keep
REQUEST_COUNT_MIN = 11  # to create the queue under a second name, move one message and remove the queue
GROUP_COUNT = 4096  # of a FIFO queue: more than are ever in flight; the effect of fewer is known from theory
FAILURE_COUNT_MAX = 8  # in a row, and two of each thread
SEND_SECONDS_ENOUGH = 10.0
MESSAGE_COUNT_ENOUGH = 3000  # at a coefficient of variation of 0.6 the means are good to 1 %
SENDING_FRACTION = 0.7  # of the plan's time; the rest is for draining the queue
CONNECTION_COUNT_MAX = 64  # opened beforehand
CONNECTION_REQUEST_FRACTION = 0.1  # of the plan's requests
CLOSE_SECONDS_MAX = 10.0  # to remove the queue: a stop or a reload of the daemon waits for it


class SqsDeliveryProbe:
    """Drives a queue of its own and measures every request. One instance for each host and region."""

    def __init__(
        self,
        queues: MessageQueues,
        clock: Clock,
        journal: Journal,
        *,
        queue_name: str,
        service_class: str = "standard",
        visibility_timeout_seconds: int = VISIBILITY_TIMEOUT_SECONDS,
        loop_tick_seconds: float = LOOP_TICK_SECONDS,
    ) -> None:
        self._clock = clock
        self._queues = queues
        self._class = queue_class(service_class)
        self._own_queue = OwnQueue(
            queues,
            journal,
            queue_name,
            suffix=self._class.name_suffix,
            attributes={**attributes_of(visibility_timeout_seconds), **self._class.attributes},
        )
        self._loop_tick_seconds = loop_tick_seconds
        self._ended_seconds = -math.inf  # when the last run ended: its connections stay open for a while
        self.used = Cost()

    async def run(self, plan: ProbePlan[SqsDeliverySetting]) -> Outcome[SqsDeliverySetting]:
        """Carry out the plan within its cost. The queue stays for the next run."""
        started_at, self.used = self._clock.now(), Cost()
        if plan.cost_max.request_count < REQUEST_COUNT_MIN:
            return inconclusive(plan, started_at, _too_little(plan.cost_max))
        if plan.cost_max.duration_seconds <= 0:
            return inconclusive(plan, started_at, NO_TIME)
        deadline_seconds = self._clock.monotonic_seconds() + plan.cost_max.duration_seconds
        asked = Cost()
        try:
            async with asyncio.timeout(plan.cost_max.duration_seconds):
                url, attributes = await self._own_queue.open(plan.context.place.region)
        except RequestError as error:
            self._own_queue.forget(error)
            return inconclusive(
                plan,
                started_at,
                f"no queue to measure with: {error}",
                self._own_queue.used(plan.tariff),
            )
        except TimeoutError:
            reason = "the queue could not be made ready in time: allow more time (duration_seconds_max)"
            return inconclusive(plan, started_at, reason, self._own_queue.used(plan.tariff))
        finally:
            asked = self.used = self._own_queue.used(plan.tariff)
        # One request is kept back, because the queue may have to be removed.
        measuring = dataclasses.replace(plan.cost_max, request_count=plan.cost_max.request_count - 1)
        is_cold = self._clock.monotonic_seconds() - self._ended_seconds > CONNECTION_IDLE_SECONDS_MAX
        run = Run(
            plan=plan,
            queues=self._queues,
            url=url,
            queue=BoundQueue(self._queues, url, group_count=GROUP_COUNT if self._class.keeps_order else 0),
            purse=Purse(measuring, plan.tariff, request_count=asked.request_count),
            patience=Patience(in_a_row_max=FAILURE_COUNT_MAX + 2 * plan.setting.thread_count),
            clock=self._clock,
            stopwatch=Stopwatch(self._clock),
            seconds_max=deadline_seconds - self._clock.monotonic_seconds(),
        )
        tally = Tally()
        try:
            async with effort_of_block(self._clock, tick_seconds=self._loop_tick_seconds) as effort:
                is_done = await _measure(run, tally, is_cold=is_cold)
        finally:
            self.used, self._ended_seconds = run.purse.used, self._clock.monotonic_seconds()
        if run.patience.trouble is not None:
            self._own_queue.forget(run.patience.trouble)
        if self._own_queue.is_ours and not (is_done and tally.is_all_deleted):
            run.purse.spend(1)
            self.used = run.purse.used
            await self.close()
        return _outcome(run, tally, effort, started_at, attributes)

    async def close(self) -> None:
        """Remove the queue if it is ours. If that fails, it stays in the journal."""
        await clean_up_shielded(self._own_queue.remove(), seconds_max=CLOSE_SECONDS_MAX)


async def _measure(run: Run, tally: Tally, *, is_cold: bool) -> bool:
    """Run one phase after the other, within the plan's time; returns whether all were completed."""
    with contextlib.suppress(TimeoutError, HopelessError):
        async with asyncio.timeout(run.seconds_max):
            if is_cold:
                tally.cold_delivery_seconds = await cold_delivery_seconds(run)
            tally.idle_seconds = await idle_seconds(run)
            await _open_connections(run)
            await _drive(run, tally)
            return True
    return False


async def _open_connections(run: Run) -> None:
    """Open the connections that the threads will use: handshakes during the run would build up a backlog.

    Errors are ignored: the requests that count will meet them, too.
    """
    request_count = int(CONNECTION_REQUEST_FRACTION * run.plan.cost_max.request_count)
    count = min(run.plan.setting.thread_count, CONNECTION_COUNT_MAX, request_count)
    run.purse.spend(count)
    asking = [run.queues.queue_attributes(run.url) for _ in range(count)]
    for answer in await asyncio.gather(*asking, return_exceptions=True):
        if isinstance(answer, Exception) and not isinstance(answer, RequestError):
            raise answer


async def _drive(run: Run, tally: Tally) -> None:
    """Run all threads until everything that was sent is deleted, or the budget is spent. Raises HopelessError."""
    setting, seconds_left = run.plan.setting, run.seconds_max - run.stopwatch.elapsed_seconds()
    await MeasurementApplication(
        run.queue,
        run.clock,
        dataclasses.replace(conduct_of(setting), receive_batch=setting.batch_message_count),
        tally=tally,
        stint=Stint(
            message_count_max=MESSAGE_COUNT_ENOUGH,
            seconds_max=min(SEND_SECONDS_ENOUGH, SENDING_FRACTION * seconds_left),
            drains=True,
        ),
        means=Means(purse=run.purse, patience=run.patience, bodies=Bodies(run.body_bytes)),
    ).drive(seconds_left)


def _outcome(
    run: Run, tally: Tally, effort: Effort, started_at: datetime, attributes: Mapping[str, str]
) -> Outcome[SqsDeliverySetting]:
    latencies, deletions = summarize(tally.latencies), tally.deletions
    if deletions:
        reason = effort.disturbance(latencies.p50_seconds)
    else:
        reason = effort.disturbance(math.inf) or _why_nothing(run, tally)
    if reason is not None:
        return inconclusive(run.plan, started_at, reason, run.purse.used)
    measures = {**tally.measures(), "attempted_bytes": run.purse.moved_bytes}
    if "VisibilityTimeout" in attributes:
        measures["visibility_timeout_seconds"] = float(attributes["VisibilityTimeout"])
    return Observation(
        context=run.plan.context,
        setting=run.plan.setting,
        started_at=started_at,
        duration_seconds=deletions[-1][0],  # without the last poll of the empty queue
        transferred_bytes=tally.total.received_count * run.plan.context.payload_size_bytes,
        request_count=run.purse.request_count,
        throttled_count=run.patience.throttled_count,
        failed_count=run.patience.failed_count,
        latency_seconds_mean=latencies.mean_seconds,
        latency_seconds_p50=latencies.p50_seconds,
        latency_seconds_p99=latencies.p99_seconds,
        client_cpu_fraction=effort.client_cpu_fraction,
        loop_lag_seconds_max=effort.loop_lag_seconds_max,
        measures=measures,
        histograms=histograms(tally),
        successive=pairs_of([tally.latencies]),
    )


def _why_nothing(run: Run, tally: Tally) -> str:
    if run.patience.trouble is not None:
        return f"no message was sent, received and deleted; {run.patience.trouble}"
    if not tally.total.sent_count and run.stopwatch.elapsed_seconds() < run.seconds_max:
        return _too_little(run.plan.cost_max)
    return "no message was sent, received and deleted in time: allow more time (duration_seconds_max)"


def _too_little(cost_max: Cost) -> str:
    return (
        f"the plan allows {cost_max.request_count} requests and "
        f"{format_bytes(cost_max.transferred_bytes)}, too little to send a batch and receive and delete "
        "it: raise the budget of a probe"
    )
