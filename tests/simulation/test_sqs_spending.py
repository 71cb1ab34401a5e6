"""A day of SQS probes with the default configuration costs three cents at most, by what the service itself bills."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.daemon.config import BudgetSection
from penstock.lab import worlds
from penstock.models.model import PerformanceModel
from penstock.operations.sections.queues import QueueSection
from penstock.operations.sections.values import QueuePath
from penstock.optimizer.deliberation import Case, Conclusion
from penstock.units import KiB
from penstock.vocabulary import ProbePlan, Reason
from tests.factories import a_queue_setting
from tests.scenario import Scenario, Week, play

USD_PER_DAY = 0.03
USD_PER_REQUEST = 0.40e-6  # of a standard queue, at list price


class Spendthrift:
    """Plans probes that take all they may: every request, ten messages in each, as many threads as allowed."""

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """A fit to nothing and the dearest plan."""
        fit = model.fit(case.place, (), prior=None, seed=1)
        context, allowed = case.next_context, case.cost_max
        if context is None:
            return Conclusion(fit=fit, plan=None)
        each_usd = case.tariff.usd(write_request_count=1, sent_bytes=KiB, received_bytes=KiB)
        count = min(allowed.request_count, int(allowed.usd / each_usd))
        if count < 10:
            return Conclusion(fit=fit, plan=None)
        setting = a_queue_setting(20, 20, 20, batch=1)
        cost = dataclasses.replace(allowed, request_count=count, usd=count * each_usd)
        return Conclusion(
            fit=fit,
            plan=ProbePlan(
                context=context, setting=setting, reason=Reason.EXPLORE, cost_max=cost, tariff=case.tariff
            ),
        )

    def rest(self) -> None:
        """Nothing to let go."""


def a_day(scenario: Scenario, network_path: QueuePath = "public-address") -> Week:
    """With the configuration as it is when nothing is configured but the probes' being on, and their way."""
    sections = {"sqs_delivery": QueueSection(network_path=network_path)}
    return play(
        dataclasses.replace(scenario, queue=worlds.NEAR.queue, sections=sections, budget=BudgetSection())
    )


def billed_usd(week: Week) -> float:
    """By the service's own count."""
    assert week.sqs_counts is not None
    return week.sqs_counts.billed_request_count * USD_PER_REQUEST


@pytest.mark.days
def test_the_dearest_day_costs_three_cents() -> None:
    """Even probes that take all they may stop before the limit; what was booked is what was billed."""
    day = a_day(Scenario(days=1.0, seed=1, thinker=Spendthrift))
    assert 0.7 * USD_PER_DAY < billed_usd(day) <= USD_PER_DAY
    booked = sum(spend.cost.usd for spend in day.spends)
    assert billed_usd(day) == pytest.approx(booked, rel=0.02)


def test_the_dearest_day_through_a_nat_gateway_costs_no_more() -> None:
    """What is paid for the way of each message is taken from its probes."""
    day = a_day(Scenario(days=0.5, seed=1, thinker=Spendthrift), "nat-gateway")
    booked = sum(spend.cost.usd for spend in day.spends)
    assert 1.5 * billed_usd(day) < booked <= USD_PER_DAY


@pytest.mark.long
def test_an_ordinary_day_costs_three_cents_at_most() -> None:
    """As it learns, too, which is the dearest day there is."""
    day = a_day(Scenario(days=1.0, seed=1))
    assert billed_usd(day) <= USD_PER_DAY
    assert len(day.observations) >= 20
