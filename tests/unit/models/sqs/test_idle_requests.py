"""Requests that a probe times one after another tell what batches cost, before any batch was tried."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics

from penstock.lab.sqs import ActionTruth, QueueTruth, SqsService
from penstock.lab.virtual_time import VirtualClock
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.probes.sqs.delivery import SqsDeliveryProbe
from penstock.trial.simulated_aws import SimulatedMessageQueues
from penstock.vocabulary import Cost, Demand, Observation
from tests.unit.probes.fakes import MemoryJournal, a_delivery_plan, virtually

MODEL = SqsDeliveryModel()


def a_truth(seed: int) -> QueueTruth:
    """A queue as it may be: 6 to 40 ms a request, a batch of ten up to three and a half times as long."""
    rng = random.Random(seed)
    typical_seconds = 10 ** rng.uniform(-2.2, -1.4)

    def action() -> ActionTruth:
        fixed = typical_seconds * rng.uniform(0.7, 1.3)
        return ActionTruth(
            request_seconds=fixed, message_seconds=fixed * rng.uniform(0.02, 0.25), variation=0.3
        )

    return QueueTruth(
        send=action(), receive=action(), delete=action(), spread_seconds_median=0.006, spread_sigma=0.4
    )


def first_probe(truth: QueueTruth) -> Observation[SqsDeliverySetting]:
    """What the first step of the safe start measures: one message at a time."""

    async def story(clock: VirtualClock) -> Observation[SqsDeliverySetting]:
        queues = SimulatedMessageQueues(SqsService(truth, clock=clock, seed=1))
        probe = SqsDeliveryProbe(queues, clock, MemoryJournal(), queue_name="q", loop_tick_seconds=1.0)
        cost_max = Cost(transferred_bytes=10**8, request_count=3000, duration_seconds=6.0)
        plan = a_delivery_plan(size=1024, cost_max=cost_max)
        outcome = await probe.run(dataclasses.replace(plan, setting=MODEL.ramp(plan.context)[0]))
        assert isinstance(outcome, Observation), outcome
        return outcome

    return virtually(story)


def errors_at_ten(truth: QueueTruth, observation: Observation[SqsDeliverySetting]) -> list[float]:
    """How far off a request of ten messages is expected, as a logarithm, for each action."""
    fit = MODEL.fit(observation.context.place, [observation], prior=None, seed=1)
    errors = []
    for action in ("send", "receive", "delete"):
        known: ActionTruth = getattr(truth, action)
        fixed = fit.parameters[f"{action}_request_seconds"].expected
        each = fit.parameters[f"{action}_message_seconds"].expected
        errors.append(
            abs(math.log((fixed + 10 * each) / (known.request_seconds + 10 * known.message_seconds)))
        )
    return errors


def test_a_cold_connection_is_told_beside_the_advice() -> None:
    """What the first message over a connection takes is passed on as it was measured, and not learned as latency."""
    observation = first_probe(a_truth(0))
    slow = {**observation.measures, "cold_delivery_seconds": 0.4}
    context = observation.context
    fits = [
        MODEL.fit(context.place, [dataclasses.replace(observation, measures=measures)], prior=None, seed=1)
        for measures in (observation.measures, slow)
    ]
    setting = MODEL.ramp(context)[0]
    derived = [MODEL.derive(fit, context, setting, Demand()) for fit in fits]
    assert derived[0]["cold_delivery_latency_seconds"] < derived[1]["cold_delivery_latency_seconds"] == 0.4
    assert MODEL.predict(fits[0], context, setting, Demand()) == MODEL.predict(
        fits[1], context, setting, Demand()
    )


def test_one_probe_of_single_messages_tells_what_ten_cost() -> None:
    """Over several queues the median error is under a fifth, and less than half of what it is without."""
    with_idle: list[float] = []
    without: list[float] = []
    for seed in range(4):
        truth = a_truth(seed)
        observation = first_probe(truth)
        others = {n: v for n, v in observation.measures.items() if not n.startswith("idle_")}
        with_idle += errors_at_ten(truth, observation)
        without += errors_at_ten(truth, dataclasses.replace(observation, measures=others))
    assert statistics.median(with_idle) < 0.2
    assert statistics.median(with_idle) < 0.5 * statistics.median(without)
