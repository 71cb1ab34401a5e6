"""Knows the model of delivery through an SQS queue: its knobs, what SQS accepts, and what to expect of a setting.

The physics is in `physics`, how it is learned in `learning`, the duplicate loop in `duplicate_loop`. A fit reads these
`measures`:

- `send_seconds_mean`, `receive_seconds_mean`, `delete_seconds_mean`: of one request, with the batch that it carried.
  `*_request_count` tells how full the batches were; without it this is inferred from the rates. An application's mean
  includes receives that waited for a message, a probe's does not
- `idle_send_seconds_batch_10` and the like: of requests one after another, with 1, 2, 5 and 10 messages
- `cold_delivery_seconds`: of one message over a newly opened connection
- `goodput_messages_per_second`: unique messages received and deleted
- `sent_count`, `received_count`, `deleted_count`, `duplicate_count`, `visibility_timeout_seconds`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.models import burst
from penstock.models.model import DEMAND_SHARE, Appraisal, Array, Fit
from penstock.models.prices import service_price
from penstock.models.sqs import learning
from penstock.models.sqs.duplicate_loop import DeleteLoop
from penstock.models.sqs.observed import PAST, measured_goodput
from penstock.models.sqs.physics import (
    ACTIONS,
    Forecast,
    QueueCosts,
    drive_of,
    forecast,
    latency_quantile_seconds,
)
from penstock.models.sqs.queue_class import (
    DEDUPLICATION_SECONDS,
    billed_count,
    message_group_count_min,
    ordered_group_count,
    queue_class,
)
from penstock.models.sqs.queueing import (
    WINDOW_MAX,
    mean_batch_message_count,
)
from penstock.models.sqs.setting import (
    BATCH_MESSAGE_COUNT_MAX,
    BATCH_SIZE_BYTES_MAX,
    PROBED_BYTES_MIN,
    RATE_HEADROOM,
    SERVICE_LOAD_MAX,
    VISIBILITY_TIMEOUT_SECONDS,
    SqsDeliverySetting,
    bounded,
    complete_setting,
    enough_for_the_work,
    linger_seconds,
    rounded_down,
    send_window,
    sender_counts,
    without_work,
    worked_batch_max,
)
from penstock.models.sqs.studies import Queue, studies
from penstock.models.study import Study
from penstock.units import KiB, counted, format_seconds
from penstock.vocabulary import (
    UNKNOWN,
    Context,
    Cost,
    Demand,
    Objective,
    Observation,
    Obstacle,
    Place,
    Prediction,
    Regime,
    Tariff,
    knobs,
    setting_values,
)

WAIT_TIME_SECONDS = 20.0  # the longest long poll; it ends as soon as there is a message
BUSY_CLIENT_LOAD = 0.95  # of the client's CPU, beyond which more threads wait for each other
MEMORY_BYTES_PER_THREAD = 256 * KiB
Indices = NDArray[np.int_]
_PROBE_SECONDS = 6.0  # mostly of sending, then of draining the queue
_PROBE_SECONDS_MIN = 0.5
_WORK_FACTOR_MIN = 2.0  # of the rate without work over that with it, from which on work is the limit
# Of a logarithm: the misfit of mean latency at settings not measured (the best score on 24 queues).
_UNSEEN_SPREAD = 0.05
_LINGER_TOLD = 0.05  # of the latency: from here on, what waiting for a batch adds is mentioned
_BATCHES = (1, 2, 3, 4, 5, 6, 8, 10)


class SqsDeliveryModel:
    """Messages through a queue: at the demanded rate, soon, and without duplicates."""

    operation = "sqs_delivery"
    setting_type = SqsDeliverySetting
    value_metric = "goodput_messages_per_second"
    state_version = learning.FIT_STATE_VERSION
    reported_measures = frozenset(
        {
            "goodput_messages_per_second",
            *(f"{action}_seconds_mean" for action in ACTIONS),
            *(f"{action}_request_count" for action in ACTIONS),
            *(f"{past}_count" for past in PAST.values()),
        }
    )

    def host_ceiling(self, place: Place) -> burst.Ceiling | None:
        """The ceiling of the instance type, because all messages pass the host."""
        return burst.ceiling(place.instance_type)

    def default_setting(self, context: Context) -> SqsDeliverySetting:
        """One thread for each action, one message at a time, no limits."""
        blast = SqsDeliverySetting(
            sender_thread_count=1, receiver_thread_count=1, deleter_thread_count=1, batch_message_count=1
        )
        return self.legal(context, blast)

    def advisable_default(self, fit: Fit, context: Context, demand: Demand) -> SqsDeliverySetting:
        """The default, limited to the rate of its deleter, with windows as in all advice."""
        costs, timeout_seconds = learning.mean_costs(fit), _visibility_timeout_seconds(fit, demand)
        default = self.default_setting(context)
        outcome = self._forecast(costs, context, [default], demand)
        deleted = float(outcome.delete_rate[0, 0])
        asked = RATE_HEADROOM * (demand.message_rate_per_second or math.inf)
        rate = min(float(outcome.send_rate[0, 0]), deleted, asked)
        setting = replace(
            default,
            send_rate_limit_messages_per_second=rounded_down(min(asked, deleted), 3),
            send_window_message_count=send_window(rate, float(outcome.latency_seconds[0, 0]), 1, 1),
            receive_window_message_count=WINDOW_MAX,
        )
        return bounded(setting, deleted, timeout_seconds, demand.work_seconds)

    def legal(self, context: Context, setting: SqsDeliverySetting) -> SqsDeliverySetting:
        """The setting within the bounds of the knobs, with batches that fit into a request."""
        within = {
            name: min(max(getattr(setting, name), bounds.low), bounds.high)
            for name, bounds in knobs(setting).items()
        }
        whole: dict[str, Any] = {name: round(value) for name, value in within.items()}
        rate = float(within["send_rate_limit_messages_per_second"])
        batch = min(whole["batch_message_count"], _batch_max(context))
        return SqsDeliverySetting(
            **whole | {"send_rate_limit_messages_per_second": rate, "batch_message_count": batch}
        )

    def ramp(self, context: Context) -> Sequence[SqsDeliverySetting]:
        """First slowly, for undisturbed request times; then one thread at full speed, batches, and a few threads."""
        gentle = SqsDeliverySetting(
            sender_thread_count=1,
            receiver_thread_count=1,
            deleter_thread_count=1,
            batch_message_count=1,
            send_rate_limit_messages_per_second=10.0,
            send_window_message_count=20,
            receive_window_message_count=40,
        )
        free = replace(gentle, deleter_thread_count=2, send_rate_limit_messages_per_second=0.0)
        steps = (
            gentle,
            free,
            replace(
                free, batch_message_count=10, send_window_message_count=60, receive_window_message_count=120
            ),
            replace(
                free,
                sender_thread_count=3,
                receiver_thread_count=3,
                deleter_thread_count=4,
                batch_message_count=5,
                send_window_message_count=120,
                receive_window_message_count=200,
            ),
        )
        return tuple(dict.fromkeys(self.legal(context, step) for step in steps))

    def probe_costs(
        self, fit: Fit, context: Context, settings: Sequence[SqsDeliverySetting], tariff: Tariff
    ) -> Sequence[Cost]:
        """A few seconds of messages as a probe sends them, each request billed by chunks of 64 KiB."""
        rates = self._forecast(learning.mean_costs(fit), context, settings, Demand()).goodput[0]
        return [
            self._probe_cost(context, setting, float(rate), tariff)
            for setting, rate in zip(settings, rates, strict=True)
        ]

    def _probe_cost(self, context: Context, setting: SqsDeliverySetting, rate: float, tariff: Tariff) -> Cost:
        message_count = max(math.ceil(rate * _PROBE_SECONDS), 10)
        batch = self.legal(context, setting).batch_message_count
        request_count = math.ceil(message_count / batch * 3.5) + 2 * setting.receiver_thread_count
        size_bytes = max(PROBED_BYTES_MIN, context.payload_size_bytes)
        billed = request_count * billed_count(batch * size_bytes)
        one_way_bytes = message_count * size_bytes
        return Cost(
            transferred_bytes=2 * one_way_bytes,
            request_count=request_count,
            usd=tariff.usd(
                write_request_count=billed, sent_bytes=one_way_bytes, received_bytes=one_way_bytes
            ),
            duration_seconds=_PROBE_SECONDS,
        )

    def probe_seconds_min(self, fit: Fit, context: Context, setting: SqsDeliverySetting) -> float:  # noqa: ARG002
        """Half a second, enough for many messages."""
        return _PROBE_SECONDS_MIN

    def measured_value(self, observation: Observation[SqsDeliverySetting]) -> float:
        """Unique messages per second that were received and deleted."""
        return measured_goodput(observation)

    def fit(
        self,
        place: Place,
        observations: Sequence[Observation[SqsDeliverySetting]],
        *,
        prior: Fit | None,
        seed: int,
    ) -> Fit:
        """The posterior of the place's costs, and the limits of its service and of this client."""
        return learning.learn(place, observations, prior=prior, seed=seed)

    def in_use(self, report: Observation[SqsDeliverySetting]) -> SqsDeliverySetting:
        """The whole setting, because a consumer keeps its threads busy while it reports."""
        return report.setting

    def discrepancies(
        self, fit: Fit, reports: Sequence[Observation[SqsDeliverySetting]]
    ) -> tuple[Array, Array]:
        """Logarithms of reported over expected goodput and request seconds, and their standard deviations."""
        return learning.discrepancies(fit, reports)

    def candidates(self, fit: Fit, context: Context, demand: Demand) -> Sequence[SqsDeliverySetting]:
        """Complete and stable settings: for combinations of senders and batches, the rest follows by rules."""
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
            for count in sender_counts(
                costs, context.payload_size_bytes, demand, batch, count_tried=learning.sender_count_tried(fit)
            )
        ]
        deletable = self._forecast(costs, context, drafts, demand).delete_rate[0]
        drawn_in = [
            bounded(draft, rate, timeout_seconds, demand.work_seconds)
            for draft, rate in zip(drafts, deletable, strict=True)
        ]
        return self._within_limits(fit, context, demand, list(dict.fromkeys(drawn_in)))

    def without_work(
        self, fit: Fit, context: Context, settings: Sequence[SqsDeliverySetting], demand: Demand
    ) -> Sequence[SqsDeliverySetting]:
        """The settings without receivers that are busy with work, which ask nothing of the queue."""
        if not demand.work_seconds:
            return settings
        costs, size_bytes = learning.mean_costs(fit), context.payload_size_bytes
        return [without_work(costs, size_bytes, setting, demand.work_seconds) for setting in settings]

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
            # Quotas are far above what a probe may send.
            refused_fraction=np.zeros(len(settings)),
        )

    def log_gains(
        self,
        fit: Fit,
        context: Context,
        settings: Sequence[SqsDeliverySetting],
        reference: SqsDeliverySetting,
        demand: Demand,
    ) -> Array:
        """Gains in goodput up to the demanded rate, or for `latency` in the mean time from send to receive."""
        outcome = self._forecast(learning.drawn_costs(fit), context, [reference, *settings], demand)
        if demand.objective is Objective.LATENCY:
            logs = -np.log(outcome.latency_seconds)
        else:
            logs = np.log(np.maximum(_capped(outcome.goodput, demand), 1e-12))
        return np.asarray(logs[:, 1:] - logs[:, :1], dtype=np.float64)

    def predict(self, fit: Fit, context: Context, setting: SqsDeliverySetting, demand: Demand) -> Prediction:
        """Goodput and latency from send to receive, as one more probe would measure them."""
        outcome = self._forecast(learning.drawn_costs(fit), context, [setting], demand)
        latency = outcome.latency_seconds[:, 0]
        spread = learning.spread(fit)
        waiting_scale = float(learning.latency_scale(outcome.waiting_fraction).mean())
        goodput = _capped(outcome.goodput[:, 0], demand)
        goodput_scatter = spread.goodput * float(learning.goodput_scale(outcome.paced_fraction).mean())
        latency_p99 = latency_quantile_seconds(outcome.moments, 0.99)[:, 0] * spread.p99_ratio
        scatter_p99 = spread.latency_p99 * waiting_scale
        is_measured = setting_values(setting) in (cell.setting for cell in fit.cells)
        # At other settings the law has a misfit, which the spreads of goodput and of the tail cover (24 queues).
        scatter = math.hypot(spread.latency * waiting_scale, 0.0 if is_measured else _UNSEEN_SPREAD)
        return {
            self.value_metric: learning.estimate(goodput, goodput_scatter, fit),
            "delivery_latency_seconds_mean": learning.estimate(latency, scatter, fit),
            "delivery_latency_seconds_p99": learning.estimate(latency_p99, scatter_p99, fit),
        }

    def usual(
        self, fit: Fit, context: Context, settings: Sequence[SqsDeliverySetting], demand: Demand
    ) -> Array:
        """The expected goodput of each setting in messages per second."""
        outcome = self._forecast(learning.drawn_costs(fit), context, settings, demand)
        return learning.middles(_capped(outcome.goodput, demand))

    def derive(
        self,
        fit: Fit,
        context: Context,
        setting: SqsDeliverySetting,
        demand: Demand,
        *,
        limit: str = UNKNOWN,
    ) -> Mapping[str, float]:
        """Pool, polls, timeout, linger and price; when to warn; and what would start the duplicate loop."""
        del limit
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
        if math.isfinite(collapse_after_seconds := loop.collapse_after_seconds()):
            derived["collapse_after_seconds_without_receive_window"] = collapse_after_seconds
        return derived

    def remarks(
        self,
        fit: Fit,
        context: Context,
        setting: SqsDeliverySetting,
        demand: Demand,
        *,
        limit: str,
        derived: Mapping[str, float],
        obstacle: Obstacle | None,
    ) -> Sequence[str]:
        """Sentences on what waiting for a batch adds, and on advice beyond what was tried."""
        del limit, obstacle
        found, outcome = [], self._forecast(learning.mean_costs(fit), context, [setting], demand)
        waited = derived["batch_linger_seconds"] / 2.0
        if waited > _LINGER_TOLD * float(outcome.latency_seconds[0, 0]):
            found.append(
                f"Waiting for a batch to fill adds {format_seconds(waited)} to the latency of a message, on average."
            )
        tried = learning.sender_count_tried(fit)
        if fit.observation_count and setting.sender_thread_count > tried:
            were = f"{counted(tried, 'sender')} {'was' if tried == 1 else 'were'}"
            found.append(f"No more than {were} tried: beyond that, the advice rests on the model alone.")
        return tuple(found)

    def regime(self, fit: Fit, context: Context, demand: Demand, *, beside_bytes: int = 0) -> Regime:
        """The stated regime: messages are too small for the host's network to matter."""
        del fit, context, beside_bytes
        return demand.regime

    def bottleneck(self, fit: Fit, context: Context, setting: SqsDeliverySetting, demand: Demand) -> str:
        """The limit: the demanded rate, the client's CPU, message groups, the service's request rate, work, or threads.

        Threads are called "connections". Before anything was measured only what was stated is named: the demand, and
        how few groups there are.
        """
        costs = learning.mean_costs(fit)
        free = replace(setting, send_rate_limit_messages_per_second=0.0)
        outcome = self._forecast(costs, context, [free], demand)
        carried = float(outcome.slowest_rate[0, 0])
        if demand.message_rate_per_second is not None and carried >= demand.message_rate_per_second:
            return "demand"
        if fit.observation_count and outcome.client_load[0, 0] >= BUSY_CLIENT_LOAD:
            return "client-cpu"
        if _ordered_groups(context, demand) * setting.batch_message_count <= carried * 1.06 * float(
            outcome.held_seconds[0, 0]
        ):
            return "message-groups"
        if not fit.observation_count:
            return "unknown"
        service = float(costs.request_rate_max_per_second[0, 0]) * setting.batch_message_count
        if carried >= 0.99 * service * SERVICE_LOAD_MAX:
            return "request-rate"
        idle = self._forecast(costs, context, [free], replace(demand, work_seconds=0.0))
        return "work" if float(idle.slowest_rate[0, 0]) >= _WORK_FACTOR_MIN * carried else "connections"

    def studies(
        self,
        fit: Fit,
        context: Context,
        setting: SqsDeliverySetting,
        observations: Sequence[Observation[SqsDeliverySetting]],
    ) -> Sequence[Study]:
        """Figures of latency against load, the distance to collapse, the backlog after a stop, and the send window."""
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
        """The settings that meet all limits; if none meets one, those that come closest, so that there is advice."""
        appraisal = self.appraise(fit, context, settings, demand)
        kept: Indices = np.arange(len(settings))
        rate = demand.message_rate_per_second
        for measure, most in (
            (appraisal.connection_count, demand.thread_count_max),
            (appraisal.memory_bytes, demand.memory_bytes_max),
            (appraisal.latency_seconds, demand.latency_objective_seconds),
            (-appraisal.value, None if rate is None else -DEMAND_SHARE * rate),
        ):
            if most is not None:
                kept = _meeting(measure, float(most), kept)
        return [settings[index] for index in kept]


def _ordered_groups(context: Context, demand: Demand) -> float:
    return ordered_group_count(context.place.service_class, demand.message_group_count)


def _visibility_timeout_seconds(fit: Fit, demand: Demand) -> float:
    """The timeout that was stated or that probes found, but long enough for the work."""
    known = demand.visibility_timeout_seconds or float(
        fit.state.get("visibility_timeout_seconds", VISIBILITY_TIMEOUT_SECONDS)
    )
    return enough_for_the_work(known, demand.work_seconds)


def _linger_seconds(setting: SqsDeliverySetting, demand: Demand, outcome: Forecast) -> float:
    """The time that senders wait for a batch to fill, for the first setting of the outcome."""
    rate = float(_capped(outcome.goodput, demand)[0, 0])
    latency_seconds = float(outcome.latency_seconds[0, 0])
    return linger_seconds(
        setting.batch_message_count, rate, demand.latency_objective_seconds, latency_seconds
    )


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
