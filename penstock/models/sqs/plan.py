"""Knows what to advise for stated conditions without measuring a queue: planning, and the rescue of a queue.

    ConditionsError     impossible conditions; the message has one line for each mistake

Physics and rules are the same as for a fitted place. Stated values are taken as means. If request times for batches are
not stated, each further message is assumed to add a fifth of the time of a request for one (the figures of the AWS
guide imply 0.18).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.models.inference.draws import quantiles
from penstock.models.model import Array
from penstock.models.sqs.delivery import WAIT_TIME_SECONDS
from penstock.models.sqs.duplicate_loop import RECEIVE_PAUSE_FRACTION, DeleteLoop, Rescue, rescue
from penstock.models.sqs.observed import CLIENT_SECONDS_PER_REQUEST, UNLIMITED
from penstock.models.sqs.physics import ACTIONS, Forecast, QueueCosts, drive_of, forecast
from penstock.models.sqs.queue_class import (
    GROUP_RECEIVED_MESSAGE_COUNT_MAX,
    QUEUE_CLASSES,
    message_group_count_min,
    ordered_group_count,
    queue_class,
    request_rate_max_per_second,
)
from penstock.models.sqs.setting import (
    BATCH_SIZE_BYTES_MAX,
    VISIBILITY_TIMEOUT_SECONDS,
    VISIBILITY_TIMEOUT_SECONDS_MAX,
    SqsDeliverySetting,
    complete_setting,
    enough_for_the_work,
    enough_senders,
    linger_seconds,
    worked_batch_max,
)
from penstock.units import number, rounded
from penstock.vocabulary import Demand, Estimate, knobs, setting_values

MESSAGE_SHARE = 0.2  # of the time of a request for one message, for each message of a batch, if not stated
# A request itself takes time, even if a busy machine measured none.
_MESSAGE_SHARE_MAX = 0.95
_DRAW_COUNT = 200
_STATED_SPREAD = 0.03  # relative error of a stated mean
_LATENCY_SPREAD = 0.08  # likewise of latency
_CLIENT_SPREAD = 0.25  # likewise of the CPU time of a request
_LAW_SPREAD = 0.07  # relative misfit of mean latency (24 simulated queues)
# From the acceptance of a message until a poll finds it, if no latency is stated: median, deviation of the logarithm.
_SPREAD_SECONDS = (0.004, 0.8)
# The share of a latency measured with short polls that remains with long polls: a short poll asks only some servers.
SHORT_POLLED_SHARE = (0.3, 0.95)
_AVERAGED_SECONDS = 60.0  # the predicted intervals are for means over a minute
_MOST = {
    "message_rate_per_second": 10**6,
    "deleter_count_max": 10**6,
    "payload_size_bytes": BATCH_SIZE_BYTES_MAX,
    "message_group_count": 10**9,
    **dict.fromkeys(("send_seconds", "receive_seconds", "delete_seconds"), 10),
    "delivery_latency_seconds": 60,
}
_WHOLE = frozenset({"deleter_count_max", "payload_size_bytes", "message_group_count"})


class ConditionsError(ValueError):
    """Impossible conditions; the message has one line for each mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What is known about a queue and its client. Seconds are means for requests of one message."""

    message_rate_per_second: float
    send_seconds: float
    receive_seconds: float
    delete_seconds: float
    delivery_latency_seconds: float | None = None  # start of the send to the receive
    receive_wait_seconds: float | None = None  # of the polls with which it was measured; 0 means short polls
    visibility_timeout_seconds: float = VISIBILITY_TIMEOUT_SECONDS
    send_seconds_per_message: float | None = None
    receive_seconds_per_message: float | None = None
    delete_seconds_per_message: float | None = None
    send_seconds_variation: float = 0.6  # standard deviation over mean
    receive_seconds_variation: float = 0.6
    delete_seconds_variation: float = 0.6
    deleter_count_max: int | None = None
    work_seconds: float = 0.0  # of the consumer, for one message
    latency_objective_seconds: float | None = None
    client_seconds_per_request: float = CLIENT_SECONDS_PER_REQUEST  # of a processor that all threads share
    payload_size_bytes: int = 1024  # only prices and the size of a batch depend on it
    service_class: str = "standard"
    message_group_count: int | None = None  # of a FIFO queue; None means too many to be a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsPlan:
    """The advice for stated conditions, what to expect of it, and what would happen without it."""

    setting: SqsDeliverySetting
    batch_linger_seconds: float
    wait_time_seconds: float
    connection_pool_count: int
    receive_pause_at_oldest_undeleted_seconds: float
    visibility_timeout_seconds: float
    goodput_messages_per_second: Estimate
    delivery_latency_seconds_mean: Estimate
    deleter_outage_seconds_max: float  # that heals by itself even without a receive window
    # With a deleter for each sender and no limits; None if never.
    collapse_after_seconds: Estimate | None
    message_group_count_min: int | None  # to carry the rate in order; None if the queue keeps no order
    explanation: str

    def document(self) -> dict[str, Any]:
        """The plan as a JSON document: the knobs at the top level, each estimate with its 90 % interval."""
        values: dict[str, Any] = dict(setting_values(self.setting))
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if entry.name == "message_group_count_min" and value is None:
                continue
            if entry.name != "setting":
                values[entry.name] = dataclasses.asdict(value) if isinstance(value, Estimate) else value
        return values


def read_conditions(document: Mapping[str, Any]) -> Conditions:
    """Conditions from a decoded JSON document. Raises ConditionsError with every mistake at once."""
    fields = {entry.name: entry for entry in dataclasses.fields(Conditions)}
    mistakes = [
        f"{name}: not known; known are {', '.join(fields)}" for name in document if name not in fields
    ]
    stated = {name: value for name, value in document.items() if value is not None}
    for name, entry in fields.items():
        if name in stated:
            mistakes += _mistakes(name, stated[name])
        elif entry.default is dataclasses.MISSING:
            mistakes.append(f"{name}: missing; say how many, as a number")
    mistakes = mistakes or _contradictions(stated)
    if mistakes:
        raise ConditionsError("\n".join(mistakes))
    values: dict[str, Any] = {n: int(value) if n in _WHOLE else value for n, value in stated.items()}
    return Conditions(**values)


def plan(conditions: Conditions) -> SqsPlan:
    """The fewest threads and the smallest batches that carry the rate within the latency objective, and stay stable."""
    costs = _costs(conditions, np.ones((1, 3)), 1.0, 1.0)
    timeout_seconds = _timeout_seconds(conditions)
    demand = Demand(
        message_rate_per_second=conditions.message_rate_per_second, work_seconds=conditions.work_seconds
    )
    settings = [
        complete_setting(
            costs,
            0,
            demand,
            batch=batch,
            sender_count=enough_senders(costs, 0, conditions.message_rate_per_second, batch),
            visibility_timeout_seconds=timeout_seconds,
            deleter_count_max=conditions.deleter_count_max or 256,
            message_group_count=_ordered_groups(conditions),
        )
        for batch in range(1, _batch_max(conditions) + 1)
    ]
    outcome = _forecast(costs, conditions, settings)
    best = _choose(conditions, settings, outcome)
    return _plan(conditions, settings[best], timeout_seconds)


def plan_rescue(
    conditions: Conditions, *, undeleted_message_count: float, visible_message_count: float
) -> Rescue:
    """What to apply to a queue under these conditions that is already in the duplicate loop."""
    fixed, each = _split(conditions, "delete")
    receive_fixed, receive_each = _split(conditions, "receive")
    batch = worked_batch_max(_timeout_seconds(conditions), conditions.work_seconds)
    return rescue(
        _loop(conditions),
        batch_message_count_max=batch,
        receiver_rate_per_second=batch / (receive_fixed + batch * (receive_each + conditions.work_seconds)),
        undeleted_message_count=undeleted_message_count,
        visible_message_count=visible_message_count,
        delete_request_seconds=fixed,
        delete_message_seconds=each,
        deleter_count_max=conditions.deleter_count_max,
    )


def _choose(conditions: Conditions, settings: list[SqsDeliverySetting], outcome: Forecast) -> int:
    """The index of the best setting: by goodput, then the latency objective, then few threads, then latency."""
    wanted = conditions.message_rate_per_second
    objective = conditions.latency_objective_seconds

    def order(index: int) -> tuple[float, ...]:
        short = max(0.0, 0.99 * wanted - float(outcome.goodput[0, index]))
        setting = settings[index]
        filling = (setting.batch_message_count - 1) / wanted / 2.0  # mean wait until a batch is full
        latency = float(outcome.latency_seconds[0, index]) + filling
        late = 0.0 if objective is None else max(0.0, latency - objective)
        return (round(short, 3), round(late, 4), float(setting.thread_count), latency)

    return min(range(len(settings)), key=order)


def _plan(conditions: Conditions, setting: SqsDeliverySetting, timeout_seconds: float) -> SqsPlan:
    rng = np.random.default_rng(0)
    scatter = np.exp(rng.normal(0.0, _STATED_SPREAD, (_DRAW_COUNT, 3)))
    delivery = np.exp(rng.normal(0.0, _LATENCY_SPREAD, (_DRAW_COUNT, 1)))
    spread = np.exp(rng.normal(0.0, _SPREAD_SECONDS[1], (_DRAW_COUNT, 1)))
    if conditions.receive_wait_seconds == 0.0:
        delivery = delivery * rng.uniform(*SHORT_POLLED_SHARE, (_DRAW_COUNT, 1))
    costs = _costs(conditions, scatter, delivery, spread)
    client = costs.client_request_rate_max_per_second
    client = client * np.exp(rng.normal(0.0, _CLIENT_SPREAD, client.shape))
    costs = dataclasses.replace(costs, client_request_rate_max_per_second=client)
    outcome = _forecast(costs, conditions, [setting])
    rate = np.minimum(outcome.goodput[:, 0], conditions.message_rate_per_second)
    counted = conditions.send_seconds_variation / math.sqrt(max(rate.mean() * _AVERAGED_SECONDS, 1.0))
    # The mean stays the same.
    rate = rate * np.exp(rng.normal(-(counted**2) / 2.0, counted, _DRAW_COUNT))
    latency = outcome.latency_seconds[:, 0] * np.exp(
        rng.normal(0.0, math.hypot(_LAW_SPREAD, counted), _DRAW_COUNT)
    )
    linger = linger_seconds(
        setting.batch_message_count,
        conditions.message_rate_per_second,
        conditions.latency_objective_seconds,
        float(outcome.latency_seconds.mean()),
    )
    loop = _loop(conditions)
    collapse = loop.collapse_after_interval(variation=conditions.delete_seconds_variation)
    groups_min = message_group_count_min(
        conditions.message_rate_per_second,
        setting.batch_message_count,
        float(outcome.held_seconds.mean()),
    )
    keeps_order = queue_class(conditions.service_class).keeps_order
    return SqsPlan(
        setting=setting,
        batch_linger_seconds=rounded(linger),
        wait_time_seconds=WAIT_TIME_SECONDS,
        connection_pool_count=setting.thread_count + 2,
        receive_pause_at_oldest_undeleted_seconds=RECEIVE_PAUSE_FRACTION * timeout_seconds,
        visibility_timeout_seconds=timeout_seconds,
        goodput_messages_per_second=_estimate(rate),
        delivery_latency_seconds_mean=_estimate(latency + linger / 2.0),
        deleter_outage_seconds_max=loop.outage_seconds_max(),
        collapse_after_seconds=None
        if math.isinf(collapse.expected) or _is_held_by_groups(conditions, loop)
        else collapse,
        message_group_count_min=groups_min if keeps_order else None,
        explanation=_explanation(conditions, setting, loop, groups_min),
    )


def _forecast(costs: QueueCosts, conditions: Conditions, settings: Sequence[SqsDeliverySetting]) -> Forecast:
    groups = _ordered_groups(conditions)
    return forecast(costs, drive_of(settings, 0, conditions.work_seconds, groups))


def _timeout_seconds(conditions: Conditions) -> float:
    return enough_for_the_work(conditions.visibility_timeout_seconds, conditions.work_seconds)


def _batch_max(conditions: Conditions) -> int:
    """The largest batch that fits into a request, and that a receiver works off in time."""
    return min(
        BATCH_SIZE_BYTES_MAX // conditions.payload_size_bytes,
        worked_batch_max(_timeout_seconds(conditions), conditions.work_seconds),
    )


def _ordered_groups(conditions: Conditions) -> float:
    return ordered_group_count(conditions.service_class, conditions.message_group_count)


def _is_held_by_groups(conditions: Conditions, loop: DeleteLoop) -> bool:
    """Whether groups are so few that all their received messages are deleted in time, like a receive window."""
    received_max = GROUP_RECEIVED_MESSAGE_COUNT_MAX * _ordered_groups(conditions)
    return received_max < loop.visibility_timeout_seconds * loop.delete_rate_per_second


def _explanation(
    conditions: Conditions, setting: SqsDeliverySetting, loop: DeleteLoop, groups_min: int
) -> str:
    goal = f"{number(conditions.message_rate_per_second)} messages/s"
    if setting.send_rate_limit_messages_per_second < 0.99 * conditions.message_rate_per_second:
        short = "; more deleters would carry it" if conditions.deleter_count_max else ""
        receiver_count_max = knobs(setting)["receiver_thread_count"].high
        if conditions.work_seconds and setting.receiver_thread_count == receiver_count_max:
            short = "; the work on messages occupies every receiver a host may have, so it takes more hosts"
        if groups_min > _ordered_groups(conditions):
            short = f"; {groups_min} message groups would carry it, as each has only one receiver at a time"
        return f"carries {number(setting.send_rate_limit_messages_per_second)} of {goal} at most{short}"
    if _is_held_by_groups(conditions, loop):
        return (
            f"carries {goal} with deleters at most 70 % busy; so few groups cannot fill the queue with copies"
        )
    danger = (
        "the queue collapses by itself"
        if loop.load >= 1.0
        else f"a deleter stopped for {loop.outage_seconds_max():.0f} s collapses the queue"
    )
    usual = "with a deleter for each sender, no batches and no receive window"
    return f"carries {goal} with deleters at most 70 % busy; {usual} {danger}"


def _loop(conditions: Conditions) -> DeleteLoop:
    """The loop of an application as usually written: a deleter for each sender, and one message per request."""
    pairs = max(1, math.ceil(conditions.message_rate_per_second * conditions.send_seconds - 1e-9))
    return DeleteLoop(
        arrival_rate_per_second=min(conditions.message_rate_per_second, pairs / conditions.send_seconds),
        delete_rate_per_second=pairs / conditions.delete_seconds,
        visibility_timeout_seconds=conditions.visibility_timeout_seconds,
    )


def _costs(
    conditions: Conditions, scatter: Array, delivery: Array | float, spread: Array | float
) -> QueueCosts:
    """The stated physics, one row for each draw; contention is not stated, so there is none."""
    columns: dict[str, Array] = {}
    for index, action in enumerate(ACTIONS):
        fixed, each = _split(conditions, action)
        columns[f"{action}_request_seconds"] = fixed * scatter[:, index : index + 1]
        columns[f"{action}_message_seconds"] = each * scatter[:, index : index + 1]
    count, latency = len(scatter), conditions.delivery_latency_seconds
    if latency is None:  # the poll is waiting already, so only half of a request remains
        on_the_way = conditions.receive_seconds / 2.0 + _SPREAD_SECONDS[0] * spread
    else:
        on_the_way = max(latency - conditions.send_seconds / 2.0, 1e-3)
    columns["delivery_seconds"] = np.broadcast_to(on_the_way * delivery, (count, 1))
    variations = (conditions.send_seconds_variation, conditions.receive_seconds_variation)
    columns["variation_fraction"] = np.full((count, 1), max(math.fsum(variations) / 2.0, 0.01))
    quota = min(request_rate_max_per_second(conditions.service_class), UNLIMITED)
    return QueueCosts(
        **columns,
        payload_seconds_per_byte=np.zeros((count, 1)),
        contention_fraction=np.zeros((count, 1)),
        coherence_fraction=np.zeros((count, 1)),
        efficiency_fraction=np.ones((count, 1)),
        request_rate_max_per_second=np.full((count, 1), quota),
        client_request_rate_max_per_second=np.full((count, 1), 1.0 / conditions.client_seconds_per_request),
    )


def _split(conditions: Conditions, action: str) -> tuple[float, float]:
    """Seconds of the request itself, and of each message."""
    single = getattr(conditions, f"{action}_seconds")
    each = getattr(conditions, f"{action}_seconds_per_message")
    each = MESSAGE_SHARE * single if each is None else min(each, _MESSAGE_SHARE_MAX * single)
    return single - each, each


def _estimate(drawn: Array) -> Estimate:
    low, high = quantiles(drawn, [0.05, 0.95])
    return Estimate(float(low), float(drawn.mean()), float(high))


def _contradictions(stated: Mapping[str, Any]) -> list[str]:
    """Mistakes of values that are possible by themselves but not together."""
    return [
        f"{action}_seconds_per_message: more than {action}_seconds, which includes one"
        for action in ACTIONS
        if stated.get(f"{action}_seconds_per_message", 0.0) > stated[f"{action}_seconds"]
    ]


def _mistakes(name: str, value: object) -> list[str]:
    if name == "service_class":
        is_known = isinstance(value, str) and value in QUEUE_CLASSES
        return [] if is_known else [f"{name}: {value!r}; say one of {', '.join(QUEUE_CLASSES)}"]
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124  # NaN
        return [f"{name}: {value!r} is not a number"]
    if name in _WHOLE and (value < 1 or (isinstance(value, float) and not value.is_integer())):
        return [f"{name}: {value!r} is not a whole number of at least 1"]
    may_be_zero = name in {"work_seconds", "receive_wait_seconds"} or name.endswith(
        ("_per_message", "_variation")
    )
    if value < 0 or (value == 0 and not may_be_zero):
        return [f"{name}: {value!r} must be {'at least' if may_be_zero else 'more than'} 0"]
    most = _most(name)
    hint = "; it is in seconds, and 20 ms are 0.020" if name.endswith("_seconds") else ""
    return [f"{name}: must be at most {most:,}{hint}"] if value > most else []


def _most(name: str) -> int:
    """The greatest value accepted for a condition, far beyond any queue; more is probably a wrong unit."""
    if name.endswith("_variation"):
        return 100
    return _MOST.get(name, VISIBILITY_TIMEOUT_SECONDS_MAX)
