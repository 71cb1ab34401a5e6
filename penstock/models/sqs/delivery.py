"""Knows how messages go through an SQS queue: its knobs, what SQS accepts, and how its physics is learned.

The physics itself is in `physics`, the duplicate loop in `duplicate_loop`. A fit reads these `measures`:

- `send_seconds_mean`, `receive_seconds_mean`, `delete_seconds_mean`: of one request, at the batch it carried;
  `*_request_count` beside them says how full the batches were, and without it they are taken from the rates.
  Receives that waited for a message are in an application's mean but not in a probe's
- `idle_send_seconds_batch_10` and the like: of requests one after another, at 1, 2, 5 and 10 messages
- `cold_delivery_seconds`: of one message over a connection that was opened for it
- `goodput_messages_per_second`: unique messages received and deleted
- `sent_count`, `received_count`, `deleted_count`, `duplicate_count`, `visibility_timeout_seconds`
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.models import burst
from penstock.models.model import Appraisal, Array, Fit
from penstock.models.prices import service_price
from penstock.models.sqs import learning
from penstock.models.sqs.duplicate_loop import RECEIVE_WINDOW_THETA, DeleteLoop
from penstock.models.sqs.physics import (
    REQUESTS_PER_MESSAGE_BATCH,
    Forecast,
    QueueCosts,
    client_wait_seconds,
    drive_of,
    forecast,
    latency_quantile_seconds,
    request_seconds,
)
from penstock.models.sqs.queue_class import (
    DEDUPLICATION_SECONDS,
    RECEIVERS_PER_GROUP_MAX,
    billed_count,
    message_group_count_min,
    ordered_group_count,
    queue_class,
)
from penstock.models.sqs.queueing import (
    WINDOW_MAX,
    erlang_b_window,
    mean_batch_message_count,
    peak_thread_count,
)
from penstock.models.sqs.studies import Queue, studies
from penstock.models.study import Study
from penstock.units import KiB, MiB, counted, format_seconds
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Objective,
    Observation,
    Place,
    Prediction,
    Regime,
    Tariff,
    knob,
    knobs,
    setting_values,
)

BATCH_MESSAGE_COUNT_MAX = 10
BATCH_SIZE_BYTES_MAX = 1 * MiB  # of one message, and of all messages of a request together
VISIBILITY_TIMEOUT_SECONDS = 30.0  # SQS's default
VISIBILITY_TIMEOUT_SECONDS_MAX = 43_200
WAIT_TIME_SECONDS = 20.0  # the longest long poll: it ends as soon as a message is there
RATE_LIMIT_MAX = 100_000.0  # messages/s that may be set
BLOCKED_FRACTION_MAX = 0.002  # of sends that a send window may turn away
DELETER_LOAD_MAX = 0.7
RECEIVER_LOAD_MAX = 0.85
BUSY_CLIENT_LOAD = 0.95  # of its CPU: more threads would wait for each other
FULL_CLIENT_THREAD_LOAD = 0.95  # of receivers and deleters: its wait holds back the senders as well
SENDER_LOAD_MAX = 0.9
SERVICE_LOAD_MAX = 0.93  # of a request rate that throttling taught
CLIENT_LOAD_MAX = 0.98  # of its CPU: past it requests wait, and nothing is refused
RATE_HEADROOM = 1.05  # so that an application can catch up after a pause
MEMORY_BYTES_PER_THREAD = 256 * KiB
Indices = NDArray[np.int_]
_PROBE_SECONDS = 6.0  # most of it sending, the rest draining
_PROBE_SECONDS_MIN = 0.5
_SENDER_COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
_WORK_FACTOR_MIN = 2.0  # of what is carried with no work: from here on the work is the limit
_STEP_FACTOR_MAX = 6  # so that the next probe, at four times the connections, is not the last
# Of a logarithm: what the law of mean latency is off by at settings not measured (24 queues: the best score).
_UNSEEN_SPREAD = 0.05
_BEYOND_CEILING = 4.0  # of it: threads that wait for the client's CPU are not busy, and it takes more of them
_LINGER_SECONDS_MAX = 1.0  # where no latency was asked for
_LINGER_TOLD = 0.05  # of the latency: what waiting for a batch adds to it is said
_BATCHES = (1, 2, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsDeliverySetting:
    """How a queue is driven. A window or a rate limit of 0 means none."""

    sender_thread_count: int = knob(1, 256, is_divided=True)
    receiver_thread_count: int = knob(1, 256, is_divided=True)
    deleter_thread_count: int = knob(1, 256, is_divided=True)
    batch_message_count: int = knob(1, BATCH_MESSAGE_COUNT_MAX)
    send_rate_limit_messages_per_second: float = knob(0, RATE_LIMIT_MAX, default=0.0, is_divided=True)
    send_window_message_count: int = knob(0, 120_000, default=0, is_divided=True)  # sent and not yet received
    receive_window_message_count: int = knob(0, 120_000, default=0, is_divided=True)  # not yet deleted

    @property
    def thread_count(self) -> int:
        """Of all three kinds: each has a connection."""
        return self.sender_thread_count + self.receiver_thread_count + self.deleter_thread_count


class SqsDeliveryModel:
    """Messages through a queue: as many as wanted, soon, never twice."""

    operation = "sqs_delivery"
    setting_type = SqsDeliverySetting
    value_metric = "goodput_messages_per_second"
    state_version = learning.FIT_STATE_VERSION
    reported_measures = frozenset(
        {
            "goodput_messages_per_second",
            *(f"{action}_seconds_mean" for action in ("send", "receive", "delete")),
            *(f"{action}_request_count" for action in ("send", "receive", "delete")),
            *(f"{past}_count" for past in ("sent", "received", "deleted")),
        }
    )

    def host_ceiling(self, place: Place) -> burst.Ceiling | None:
        """Of the instance type: all messages pass the host."""
        return burst.ceiling(place.instance_type)

    def default_setting(self, context: Context) -> SqsDeliverySetting:
        """One thread each, one message at a time, nothing bounded."""
        blast = SqsDeliverySetting(
            sender_thread_count=1, receiver_thread_count=1, deleter_thread_count=1, batch_message_count=1
        )
        return self.legal(context, blast)

    def advisable_default(self, fit: Fit, context: Context, demand: Demand) -> SqsDeliverySetting:
        """One thread each and one message at a time, no faster than the deleter, with the windows of all advice."""
        costs, timeout_seconds = learning.mean_costs(fit), _visibility_timeout_seconds(fit, demand)
        default = self.default_setting(context)
        outcome = self._forecast(costs, context, [default], demand)
        deleted = float(outcome.delete_rate[0, 0])
        asked = RATE_HEADROOM * (demand.message_rate_per_second or math.inf)
        rate = min(float(outcome.send_rate[0, 0]), deleted, asked)
        setting = dataclasses.replace(
            default,
            send_rate_limit_messages_per_second=_rounded_down(min(asked, deleted), 3),
            send_window_message_count=send_window(rate, float(outcome.latency_seconds[0, 0]), 1, 1),
            receive_window_message_count=WINDOW_MAX,
        )
        return _bounded(setting, deleted, timeout_seconds, demand.work_seconds)

    def legal(self, context: Context, setting: SqsDeliverySetting) -> SqsDeliverySetting:
        """Within the knobs, and a full batch within the size of one request."""
        within = {
            name: min(max(getattr(setting, name), bounds.low), bounds.high)
            for name, bounds in knobs(setting).items()
        }
        return SqsDeliverySetting(
            sender_thread_count=round(within["sender_thread_count"]),
            receiver_thread_count=round(within["receiver_thread_count"]),
            deleter_thread_count=round(within["deleter_thread_count"]),
            batch_message_count=min(round(within["batch_message_count"]), _batch_max(context)),
            send_rate_limit_messages_per_second=float(within["send_rate_limit_messages_per_second"]),
            send_window_message_count=round(within["send_window_message_count"]),
            receive_window_message_count=round(within["receive_window_message_count"]),
        )

    def ramp(self, context: Context) -> Sequence[SqsDeliverySetting]:
        """A slow start for the undisturbed times, then one thread at full speed, batches, a few threads."""
        gentle = SqsDeliverySetting(
            sender_thread_count=1,
            receiver_thread_count=1,
            deleter_thread_count=1,
            batch_message_count=1,
            send_rate_limit_messages_per_second=10.0,
            send_window_message_count=20,
            receive_window_message_count=40,
        )
        steps = (
            gentle,
            dataclasses.replace(gentle, deleter_thread_count=2, send_rate_limit_messages_per_second=0.0),
            dataclasses.replace(
                gentle,
                batch_message_count=10,
                deleter_thread_count=2,
                send_rate_limit_messages_per_second=0.0,
                send_window_message_count=60,
                receive_window_message_count=120,
            ),
            dataclasses.replace(
                gentle,
                sender_thread_count=3,
                receiver_thread_count=3,
                deleter_thread_count=4,
                batch_message_count=5,
                send_rate_limit_messages_per_second=0.0,
                send_window_message_count=120,
                receive_window_message_count=200,
            ),
        )
        return tuple(dict.fromkeys(self.legal(context, step) for step in steps))

    def probe_costs(
        self, fit: Fit, context: Context, settings: Sequence[SqsDeliverySetting], tariff: Tariff
    ) -> Sequence[Cost]:
        """A few seconds of messages, each request billed by chunks of 64 KiB."""
        rates = self._forecast(learning.mean_costs(fit), context, settings, Demand()).goodput[0]
        return [
            self._probe_cost(context, setting, float(rate), tariff)
            for setting, rate in zip(settings, rates, strict=True)
        ]

    def _probe_cost(self, context: Context, setting: SqsDeliverySetting, rate: float, tariff: Tariff) -> Cost:
        message_count = max(math.ceil(rate * _PROBE_SECONDS), 10)
        batch = self.legal(context, setting).batch_message_count
        request_count = math.ceil(message_count / batch * 3.5) + 2 * setting.receiver_thread_count
        billed = request_count * billed_count(batch * context.payload_size_bytes)
        one_way_bytes = message_count * context.payload_size_bytes
        return Cost(
            transferred_bytes=2 * one_way_bytes,
            request_count=request_count,
            usd=tariff.usd(
                write_request_count=billed, sent_bytes=one_way_bytes, received_bytes=one_way_bytes
            ),
            duration_seconds=_PROBE_SECONDS,
        )

    def probe_seconds_min(self, fit: Fit, context: Context, setting: SqsDeliverySetting) -> float:  # noqa: ARG002
        """A message on its way, there and back, many times over."""
        return _PROBE_SECONDS_MIN

    def measured_value(self, observation: Observation[SqsDeliverySetting]) -> float:
        """Unique messages that went all the way, per second."""
        return learning.measured_goodput(observation)

    def fit(
        self,
        place: Place,
        observations: Sequence[Observation[SqsDeliverySetting]],
        *,
        prior: Fit | None,
        seed: int,
    ) -> Fit:
        """The posterior of the place's costs and of what its service and this client allow."""
        return learning.learn(place, observations, prior=prior, seed=seed)

    def in_use(self, report: Observation[SqsDeliverySetting]) -> SqsDeliverySetting:
        """All of it: a consumer keeps its threads busy for as long as it reports about."""
        return report.setting

    def discrepancies(
        self, fit: Fit, reports: Sequence[Observation[SqsDeliverySetting]]
    ) -> tuple[Array, Array]:
        """How far goodput and the requests' seconds are from what is expected: logarithms, and their deviations."""
        return learning.discrepancies(fit, reports)

    def candidates(self, fit: Fit, context: Context, demand: Demand) -> Sequence[SqsDeliverySetting]:
        """Complete and stable settings: senders and batches to choose from, the rest by the rules."""
        costs = learning.mean_costs(fit)
        timeout_seconds = _visibility_timeout_seconds(fit, demand)
        drafts = [
            complete_setting(
                costs,
                context.payload_size_bytes,
                demand,
                batch=batch,
                sender_count=count,
                visibility_timeout_seconds=timeout_seconds,
                message_group_count=_ordered_groups(context, demand),
            )
            for batch in _BATCHES
            if batch <= min(_batch_max(context), worked_batch_max(timeout_seconds, demand.work_seconds))
            for count in _sender_counts(
                costs, context.payload_size_bytes, demand, batch, count_tried=learning.sender_count_tried(fit)
            )
        ]
        deletable = self._forecast(costs, context, drafts, demand).delete_rate[0]
        bounded = [
            _bounded(draft, rate, timeout_seconds, demand.work_seconds)
            for draft, rate in zip(drafts, deletable, strict=True)
        ]
        return self._within_limits(fit, context, demand, list(dict.fromkeys(bounded)))

    def appraise(
        self, fit: Fit, context: Context, settings: Sequence[SqsDeliverySetting], demand: Demand
    ) -> Appraisal:
        """Means over the draws of the posterior."""
        outcome = self._forecast(learning.drawn_costs(fit), context, settings, demand)
        drawn = _capped(outcome.goodput, demand)
        goodput = drawn.mean(axis=0)
        return Appraisal(
            value=goodput,
            latency_seconds=outcome.latency_seconds.mean(axis=0),
            connection_count=np.array([float(s.thread_count) for s in settings]),
            memory_bytes=np.array([_memory_bytes(s, context) for s in settings]),
            request_rate_per_second=3.0
            * goodput
            / np.array([float(s.batch_message_count) for s in settings]),
            refused_fraction=np.zeros(len(settings)),  # its own quotas are far above what a probe may send
        )

    def log_gains(
        self,
        fit: Fit,
        context: Context,
        settings: Sequence[SqsDeliverySetting],
        reference: SqsDeliverySetting,
        demand: Demand,
    ) -> Array:
        """Of goodput, no more of which counts than is asked for; for `latency` of the mean from send to receive."""
        outcome = self._forecast(learning.drawn_costs(fit), context, [reference, *settings], demand)
        if demand.objective is Objective.LATENCY:
            logs = -np.log(outcome.latency_seconds)
        else:
            logs = np.log(np.maximum(_capped(outcome.goodput, demand), 1e-12))
        return np.asarray(logs[:, 1:] - logs[:, :1], dtype=np.float64)

    def predict(self, fit: Fit, context: Context, setting: SqsDeliverySetting, demand: Demand) -> Prediction:
        """Goodput and the send-to-receive time, as one more probe would measure them."""
        outcome = self._forecast(learning.drawn_costs(fit), context, [setting], demand)
        latency = outcome.latency_seconds[:, 0]
        spread = learning.spread(fit)
        waiting_scale = float(learning.latency_scale(outcome.waiting_fraction).mean())
        goodput = _capped(outcome.goodput[:, 0], demand)
        goodput_scatter = spread.goodput * float(learning.goodput_scale(outcome.paced_fraction).mean())
        latency_p99 = latency_quantile_seconds(outcome.moments, 0.99)[:, 0] * spread.p99_ratio
        scatter_p99 = spread.latency_p99 * waiting_scale
        is_measured = setting_values(setting) in (cell.setting for cell in fit.cells)
        # Elsewhere the law itself is off; the scatters of goodput and of the tail cover that (24 queues).
        scatter = math.hypot(spread.latency * waiting_scale, 0.0 if is_measured else _UNSEEN_SPREAD)
        return {
            self.value_metric: learning.estimate(goodput, goodput_scatter, fit),
            "delivery_latency_seconds_mean": learning.estimate(latency, scatter, fit),
            "delivery_latency_seconds_p99": learning.estimate(latency_p99, scatter_p99, fit),
        }

    def usual(
        self, fit: Fit, context: Context, settings: Sequence[SqsDeliverySetting], demand: Demand
    ) -> Array:
        """Of goodput."""
        outcome = self._forecast(learning.drawn_costs(fit), context, settings, demand)
        return learning.middles(_capped(outcome.goodput, demand))

    def derive(
        self, fit: Fit, context: Context, setting: SqsDeliverySetting, demand: Demand
    ) -> Mapping[str, float]:
        """Pool, polls, timeout, linger and price; when to be warned; what the duplicate loop would need."""
        outcome = self._forecast(learning.mean_costs(fit), context, [setting], demand)
        rate = float(_capped(outcome.goodput, demand)[0, 0])
        timeout_seconds = _visibility_timeout_seconds(fit, demand)
        linger = _linger_seconds(setting, demand, outcome)
        loop = DeleteLoop(
            arrival_rate_per_second=float(np.minimum(outcome.send_rate, outcome.receive_rate)[0, 0]),
            delete_rate_per_second=float(outcome.delete_rate[0, 0]),
            visibility_timeout_seconds=timeout_seconds,
        )
        derived = {
            "connection_pool_count": float(setting.thread_count + 2),
            "wait_time_seconds": WAIT_TIME_SECONDS,
            "visibility_timeout_seconds": timeout_seconds,
            "batch_linger_seconds": linger,
            "usd_per_million_messages": _usd_per_million_messages(context, setting, rate, linger),
            "delete_capacity_messages_per_second": loop.delete_rate_per_second,
            "deleter_outage_seconds_max": loop.outage_seconds_max(),
            "warn_at_oldest_undeleted_seconds": timeout_seconds / 3.0,
            "act_at_oldest_undeleted_seconds": timeout_seconds / 2.0,
            "receive_pause_at_oldest_undeleted_seconds": loop.receive_pause_seconds(),
        }
        if "cold_delivery_seconds" in fit.state:
            derived["cold_delivery_latency_seconds"] = float(fit.state["cold_delivery_seconds"])
        if queue_class(context.place.service_class).keeps_order:
            derived["deduplication_seconds"] = DEDUPLICATION_SECONDS
            derived["message_group_count_min"] = float(
                message_group_count_min(rate, setting.batch_message_count, float(outcome.held_seconds[0, 0]))
            )
        if loop.load > 1.0:
            derived["collapse_after_seconds_without_receive_window"] = loop.collapse_after_seconds()
        return derived

    def remarks(
        self, fit: Fit, context: Context, setting: SqsDeliverySetting, demand: Demand
    ) -> Sequence[str]:
        """What waiting for a batch adds, and whether the advice goes beyond what was tried."""
        found, outcome = [], self._forecast(learning.mean_costs(fit), context, [setting], demand)
        waited = _linger_seconds(setting, demand, outcome) / 2.0
        if waited > _LINGER_TOLD * float(outcome.latency_seconds[0, 0]):
            found.append(
                f"Waiting for a batch to fill adds {format_seconds(waited)} to the latency of a message, on average."
            )
        tried = learning.sender_count_tried(fit)
        if fit.observation_count and setting.sender_thread_count > tried:
            were = f"{counted(tried, 'sender')} {'was' if tried == 1 else 'were'}"
            found.append(f"No more than {were} tried: beyond that this is the physics alone.")
        return tuple(found)

    def regime(self, fit: Fit, context: Context, demand: Demand, *, beside_bytes: int = 0) -> Regime:
        """No message is so large that the host's network would matter."""
        del fit, context, beside_bytes
        return demand.regime

    def bottleneck(self, fit: Fit, context: Context, setting: SqsDeliverySetting, demand: Demand) -> str:
        """The slowest: the stated demand, the service's request rate, the client's CPU, the work, or few threads."""
        costs = learning.mean_costs(fit)
        free = dataclasses.replace(setting, send_rate_limit_messages_per_second=0.0)
        outcome = self._forecast(costs, context, [free], demand)
        carried = _carried_per_second(outcome)
        if demand.message_rate_per_second is not None and carried >= demand.message_rate_per_second:
            return "demand"
        if outcome.client_load[0, 0] >= BUSY_CLIENT_LOAD:
            return "client-cpu"
        if _ordered_groups(context, demand) * setting.batch_message_count <= carried * 1.06 * float(
            outcome.held_seconds[0, 0]
        ):
            return "message-groups"
        service = float(costs.request_rate_max_per_second[0, 0]) * setting.batch_message_count
        if carried >= 0.99 * service * SERVICE_LOAD_MAX:
            return "request-rate"
        idle = self._forecast(costs, context, [free], dataclasses.replace(demand, work_seconds=0.0))
        return "work" if _carried_per_second(idle) >= _WORK_FACTOR_MIN * carried else "connections"

    def studies(
        self,
        fit: Fit,
        context: Context,
        setting: SqsDeliverySetting,
        observations: Sequence[Observation[SqsDeliverySetting]],
    ) -> Sequence[Study]:
        """Latency against load, the distance to collapse, the backlog after a stop, the send window."""
        costs = learning.drawn_costs(fit)
        queue = Queue(
            setting=setting,
            payload_size_bytes=context.payload_size_bytes,
            visibility_timeout_seconds=_visibility_timeout_seconds(fit, Demand()),
            predict=lambda each: self.predict(fit, context, each, Demand()),
            forecast=lambda each: self._forecast(costs, context, each, Demand()),
        )
        return tuple(studies(queue, observations))

    def _forecast(
        self, costs: QueueCosts, context: Context, settings: Sequence[SqsDeliverySetting], demand: Demand
    ) -> Forecast:
        groups = _ordered_groups(context, demand)
        return forecast(
            costs, drive_of(settings, float(context.payload_size_bytes), demand.work_seconds, groups)
        )

    def _within_limits(
        self, fit: Fit, context: Context, demand: Demand, settings: list[SqsDeliverySetting]
    ) -> list[SqsDeliverySetting]:
        """Limit by limit, keeping what came closest where nothing meets it: advice is never empty."""
        appraisal = self.appraise(fit, context, settings, demand)
        kept: Indices = np.arange(len(settings))
        rate = demand.message_rate_per_second
        for measure, most in (
            (appraisal.connection_count, demand.thread_count_max),
            (appraisal.memory_bytes, demand.memory_bytes_max),
            (appraisal.latency_seconds, demand.latency_objective_seconds),
            (-appraisal.value, None if rate is None else -0.98 * rate),
        ):
            if most is not None:
                kept = _meeting(measure, float(most), kept)
        return [settings[index] for index in kept]


def _sender_counts(
    costs: QueueCosts, size_bytes: int, demand: Demand, batch: int, *, count_tried: int
) -> list[int]:
    """How many senders are worth a thought: around the demand where it can be met, else up to the limits.

    With no demand it goes up in steps: past its cliffs SQS gets worse suddenly, so nothing is thought of
    that is far beyond what was tried.
    """
    rate, ceiling = demand.message_rate_per_second, _action_rate_max(costs, batch)
    if rate is not None:
        enough = enough_senders(costs, size_bytes, min(rate, _BEYOND_CEILING * ceiling), batch)
        is_tight = demand.thread_count_max is not None and 3 * enough > demand.thread_count_max
        fewer = [count for count in _SENDER_COUNTS if count < enough] if is_tight else []
        return sorted({*fewer, enough, min(enough + 1, 256), min(math.ceil(enough * 1.5), 256)})
    peak = peak_thread_count(float(costs.contention_fraction[0, 0]), float(costs.coherence_fraction[0, 0]))
    counts: list[int] = []
    for count in _SENDER_COUNTS:
        if count > max(_STEP_FACTOR_MAX * count_tried, _SENDER_COUNTS[3]) or 3 * count > max(peak, 3):
            break
        counts.append(count)
        if (
            count * batch / _seconds(costs, "send", batch, size_bytes, thread_count=3.0 * count)
            > _BEYOND_CEILING * ceiling
        ):
            break
    return counts


def enough_senders(costs: QueueCosts, size_bytes: int, rate_per_second: float, batch: int) -> int:
    """Senders that carry this rate in batches and are not always busy."""
    seconds = _seconds(costs, "send", batch, size_bytes, thread_count=4.0)
    return min(max(1, math.ceil(rate_per_second * seconds / (batch * SENDER_LOAD_MAX))), 256)


def complete_setting(
    costs: QueueCosts,
    size_bytes: int,
    demand: Demand,
    *,
    batch: int,
    sender_count: int,
    visibility_timeout_seconds: float,
    deleter_count_max: int = 256,
    message_group_count: float = math.inf,
) -> SqsDeliverySetting:
    """Receivers, deleters, windows and the limit that belong to so many senders of such batches."""
    receivers, deleters = sender_count + 1, sender_count + 1
    rate = wait = 0.0
    room = (demand.thread_count_max or 3 * 256) - sender_count
    for _ in range(4):  # threads slow each other down, so their number and their times settle together
        busy = float(sender_count + receivers + deleters)
        wait = (wait + _client_wait_seconds(costs, rate / batch, busy)) / 2.0
        send, receive, delete = (
            _seconds(costs, a, batch, size_bytes, busy) + wait for a in ("send", "receive", "delete")
        )
        before_giving = _seconds(costs, "receive", 0, size_bytes, busy) / 2.0
        receive += batch * demand.work_seconds
        held_seconds = receive - before_giving + delete / 2.0
        rate = min(sender_count * batch / send, _action_rate_max(costs, batch))
        rate = min(rate, 0.95 * message_group_count * batch / held_seconds)
        if demand.message_rate_per_second is not None:
            rate = min(rate, demand.message_rate_per_second * RATE_HEADROOM)
        parked, receiver_load, deleter_load = _spare(costs, rate / batch)
        receivers = math.ceil(rate * receive / (batch * receiver_load)) + parked
        receivers = min(receivers, int(min(RECEIVERS_PER_GROUP_MAX * message_group_count, 256)))
        # Long work keeps many receivers; with fewer there is less to send and to delete.
        receivers = max(min(receivers, room - deleters), 1)
        received = min(rate, receivers * batch / receive)
        deleters = min(
            math.ceil(received * delete / (batch * deleter_load)), deleter_count_max, room - receivers
        )
        deleters = max(deleters, 1)
    delete_rate = min(deleters * batch / delete, float(costs.request_rate_max_per_second[0, 0]) * batch)
    rate = min(rate, 0.95 * delete_rate, 0.95 * receivers * batch / receive)
    in_a_receive = (receive - batch * demand.work_seconds) / 2.0
    latency_seconds = send / 2.0 + float(costs.delivery_seconds[0, 0]) + in_a_receive
    return SqsDeliverySetting(
        sender_thread_count=sender_count,
        receiver_thread_count=receivers,
        deleter_thread_count=deleters,
        batch_message_count=batch,
        send_rate_limit_messages_per_second=min(_rounded_down(rate, 3), RATE_LIMIT_MAX),
        send_window_message_count=send_window(rate, latency_seconds, batch, sender_count),
        receive_window_message_count=_receive_window(
            delete_rate, visibility_timeout_seconds, receivers, demand.work_seconds
        ),
    )


def _bounded(
    setting: SqsDeliverySetting,
    delete_rate_per_second: float,
    visibility_timeout_seconds: float,
    work_seconds: float,
) -> SqsDeliverySetting:
    """No more sent, nor received and held, than the deleters can do.

    Half-full requests of the others may leave them little of the client's CPU, which only the forecast knows.
    """
    window = _receive_window(
        delete_rate_per_second, visibility_timeout_seconds, setting.receiver_thread_count, work_seconds
    )
    return dataclasses.replace(
        setting,
        send_rate_limit_messages_per_second=min(
            setting.send_rate_limit_messages_per_second, _rounded_down(delete_rate_per_second, 3)
        ),
        receive_window_message_count=min(setting.receive_window_message_count, window),
    )


def _receive_window(
    delete_rate_per_second: float,
    visibility_timeout_seconds: float,
    receiver_count: int,
    work_seconds: float,
) -> int:
    """What receivers work on waits for its delete as well: of both, the slower decides how much may be held."""
    worked = receiver_count / work_seconds if work_seconds else math.inf
    loop = DeleteLoop(
        arrival_rate_per_second=float(delete_rate_per_second),
        delete_rate_per_second=min(float(delete_rate_per_second), worked),
        visibility_timeout_seconds=visibility_timeout_seconds,
    )
    return int(_rounded_down(loop.receive_window_message_count(), 2))


def worked_batch_max(visibility_timeout_seconds: float, work_seconds: float) -> int:
    """Messages that one receiver works off in turn, within the share of the timeout that a message may wait."""
    if not work_seconds:
        return BATCH_MESSAGE_COUNT_MAX
    within = RECEIVE_WINDOW_THETA * visibility_timeout_seconds / work_seconds
    return max(1, min(BATCH_MESSAGE_COUNT_MAX, math.floor(within)))


def _carried_per_second(outcome: Forecast) -> float:
    """By the slowest of the stages."""
    slower = np.minimum(outcome.send_rate, outcome.receive_rate)
    return float(np.minimum(slower, outcome.delete_rate)[0, 0])


def _spare(costs: QueueCosts, request_rate_per_second: float) -> tuple[int, float, float]:
    """Receivers beyond what is needed, and how busy receivers and deleters may be.

    Spare threads fetch and delete what little is there: half-full requests. That is quick and costs nothing, except
    where the service counts requests, and there it would throttle, or where the client's CPU makes no more of them.
    """
    client = float(costs.client_request_rate_max_per_second[0, 0]) / REQUESTS_PER_MESSAGE_BATCH
    service = float(costs.request_rate_max_per_second[0, 0])
    if request_rate_per_second > 0.9 * client:
        return 0, FULL_CLIENT_THREAD_LOAD, FULL_CLIENT_THREAD_LOAD
    is_counted = request_rate_per_second > 0.7 * min(service, client)
    return (0, RECEIVER_LOAD_MAX, 0.85) if is_counted else (1, RECEIVER_LOAD_MAX, DELETER_LOAD_MAX)


def _rounded_down(value: float, digits: int) -> float:
    """To so many digits: advice that changes with every fit could never be measured twice."""
    unit = 10.0 ** (math.floor(math.log10(max(value, 1e-9))) + 1 - digits)
    return float(f"{math.floor(value / unit + 1e-9) * unit:.{digits}g}")


def send_window(rate_per_second: float, latency_seconds: float, batch: int, sender_count: int) -> int:
    """Messages sent and not yet received that cost almost no goodput: Erlang-B, counted in batches."""
    batches = erlang_b_window(rate_per_second * latency_seconds / batch, BLOCKED_FRACTION_MAX)
    return min(batch * max(batches, sender_count + 1), WINDOW_MAX)


def _seconds(costs: QueueCosts, action: str, batch: int, size_bytes: int, thread_count: float) -> float:
    threads = np.array([thread_count])
    return float(request_seconds(costs, action, np.array([float(batch)]), size_bytes, threads)[0, 0])


def _client_wait_seconds(costs: QueueCosts, batch_rate_per_second: float, thread_count: float) -> float:
    requests = np.array([REQUESTS_PER_MESSAGE_BATCH * batch_rate_per_second])
    return float(client_wait_seconds(costs, requests, np.array([thread_count]))[0, 0])


def _action_rate_max(costs: QueueCosts, batch: int) -> float:
    service = float(costs.request_rate_max_per_second[0, 0])
    client = float(costs.client_request_rate_max_per_second[0, 0])
    return batch * min(SERVICE_LOAD_MAX * service, CLIENT_LOAD_MAX * client / REQUESTS_PER_MESSAGE_BATCH)


def _ordered_groups(context: Context, demand: Demand) -> float:
    return ordered_group_count(context.place.service_class, demand.message_group_count)


def _visibility_timeout_seconds(fit: Fit, demand: Demand) -> float:
    """What the application states or the probes found; long enough for the work in any case."""
    known = demand.visibility_timeout_seconds or float(
        fit.state.get("visibility_timeout_seconds", VISIBILITY_TIMEOUT_SECONDS)
    )
    return enough_for_the_work(known, demand.work_seconds)


def enough_for_the_work(visibility_timeout_seconds: float, work_seconds: float) -> float:
    """The timeout, but no less than six times the work, as far as SQS has one that long."""
    enough = min(math.ceil(6.0 * work_seconds), VISIBILITY_TIMEOUT_SECONDS_MAX)
    return max(visibility_timeout_seconds, enough)


def _linger_seconds(setting: SqsDeliverySetting, demand: Demand, outcome: Forecast) -> float:
    """Of the first setting of an outcome."""
    rate = float(_capped(outcome.goodput, demand)[0, 0])
    latency_seconds = float(outcome.latency_seconds[0, 0])
    return linger_seconds(
        setting.batch_message_count, rate, demand.latency_objective_seconds, latency_seconds
    )


def linger_seconds(
    batch: int, rate_per_second: float, latency_objective_seconds: float | None, latency_seconds: float
) -> float:
    """How long a sender waits for a batch to fill: until it is full, or the objective leaves no more.

    On average a message waits for half of it.
    """
    if batch == 1 or rate_per_second <= 0:
        return 0.0
    until_full = (batch - 1) / rate_per_second
    if latency_objective_seconds is None:
        return min(until_full, _LINGER_SECONDS_MAX)
    return max(0.0, min(until_full, 2.0 * (latency_objective_seconds - latency_seconds)))


def _usd_per_million_messages(
    context: Context, setting: SqsDeliverySetting, rate: float, linger_seconds: float
) -> float:
    batch = mean_batch_message_count(rate, linger_seconds, setting.batch_message_count)
    billed = billed_count(batch * context.payload_size_bytes)
    price = service_price("sqs", context.place.service_class)
    return (2 * billed + 1) / batch * 1e6 * price.usd_per_write_request


def _batch_max(context: Context) -> int:
    fitting = BATCH_SIZE_BYTES_MAX // max(context.payload_size_bytes, 1)
    return max(1, min(BATCH_MESSAGE_COUNT_MAX, fitting))


def _capped(goodput: Array, demand: Demand) -> Array:
    rate = demand.message_rate_per_second
    return goodput if rate is None else np.asarray(np.minimum(goodput, rate))


def _memory_bytes(setting: SqsDeliverySetting, context: Context) -> float:
    held = setting.receive_window_message_count + setting.batch_message_count * setting.thread_count
    return float(held * (context.payload_size_bytes + KiB) + setting.thread_count * MEMORY_BYTES_PER_THREAD)


def _meeting(measure: Array, most: float, kept: Indices) -> Indices:
    within = kept[measure[kept] <= most]
    return within if within.size else kept[measure[kept] <= measure[kept].min()]
