"""What is shown of a queue beside its knobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.models.sqs.duplicate_loop import DeleteLoop
from penstock.models.sqs.learning import drawn_costs
from penstock.models.sqs.physics import Forecast
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.models.sqs.studies import Queue, backlog_after_a_stop, studies
from penstock.units import number
from penstock.vocabulary import Context, Demand, Place

LOOP = DeleteLoop(arrival_rate_per_second=80, delete_rate_per_second=100, visibility_timeout_seconds=30)
PLACE = Place(operation="sqs_delivery", region="eu-central-1", instance_type="c5.large")
CONTEXT = Context(place=PLACE, payload_size_bytes=1024)
MODEL = SqsDeliveryModel()


def test_a_stop_that_is_short_enough_heals_and_a_longer_one_does_not() -> None:
    """As the formula of the duplicate loop says, which nothing here was told."""
    longest = LOOP.outage_seconds_max()
    healed, lost = (
        backlog_after_a_stop(LOOP, stop_seconds=share * longest, receive_window=None) for share in (0.9, 1.2)
    )
    assert healed[-1] < 0.05 * max(healed)
    assert lost[-1] > 0.9 * max(lost)


def test_a_receive_window_heals_any_stop() -> None:
    """That is what it is for; what was held in it when the stop began has to be deleted twice, and no more."""
    window = LOOP.receive_window_message_count()
    course = backlog_after_a_stop(LOOP, stop_seconds=60, receive_window=window)
    assert max(course) == pytest.approx(80 * (60 + window / 100), rel=0.02)
    assert course[-1] < 0.1 * max(course)
    odd = dataclasses.replace(LOOP, arrival_rate_per_second=70, delete_rate_per_second=100.3)
    ends = backlog_after_a_stop(odd, stop_seconds=35, receive_window=odd.receive_window_message_count())[-1]
    assert ends == 0.0, "what sums of fractions leave is no message"


def test_a_queue_that_the_deleters_just_carry_never_collapses() -> None:
    """Where as much arrives as can be deleted, which is what a fast queue is advised, it takes for ever."""
    fit, setting = MODEL.fit(PLACE, [], prior=None, seed=1), MODEL.ramp(CONTEXT)[-1]

    def forecast(settings: Sequence[SqsDeliverySetting]) -> Forecast:
        outcome = MODEL._forecast(drawn_costs(fit), CONTEXT, settings, Demand())
        arrivals = np.minimum(outcome.send_rate, outcome.receive_rate)
        return dataclasses.replace(outcome, delete_rate=np.full_like(arrivals, arrivals[:, 0].mean()))

    queue = Queue(
        setting=setting,
        payload_size_bytes=CONTEXT.payload_size_bytes,
        visibility_timeout_seconds=30.0,
        predict=lambda one: MODEL.predict(fit, CONTEXT, one, Demand()),
        forecast=forecast,
    )
    _, collapse, *_ = studies(queue, [])
    assert "busy to 100 %" in collapse.sentence
    assert "inf" not in collapse.sentence


def test_a_queue_shows_load_collapse_backlog_and_window() -> None:
    """More load takes longer, and more load is nearer to collapse."""
    setting = MODEL.ramp(CONTEXT)[-1]
    fit = MODEL.fit(PLACE, [], prior=None, seed=1)
    load, collapse, backlog, window = MODEL.studies(fit, CONTEXT, setting, [])
    assert "undeleted" not in backlog.y_name, "it counts what was not received as well"
    assert not any("at most" in trace.name for trace in backlog.traces), "the window bounds a part of it"
    mean = load.traces[0].y
    assert mean[-1].expected > mean[0].expected
    heals, lasts = collapse.traces
    assert heals.y[0].expected > heals.y[-1].expected
    assert lasts.y[0].expected > lasts.y[-1].expected
    assert window.traces[0].y[0].expected < window.traces[0].y[-1].expected
    advised = MODEL.predict(fit, CONTEXT, setting, Demand())["goodput_messages_per_second"].expected
    (line,) = window.traces
    shares = [
        f"{100 * y.expected / advised:.0f} % with {number(x)}" for x, y in zip(line.x, line.y, strict=True)
    ]
    assert shares[-1] in window.sentence, "what more than is advised brings is computed"
    assert sum(share in window.sentence for share in shares) == 2
    ends = [f"{number(trace.y[-1].expected)} wait" for trace in backlog.traces]
    assert all(words in backlog.sentence for words in ends), (
        "each by its own line, also where it has not healed"
    )
    unbounded = dataclasses.replace(setting, send_window_message_count=0)
    assert len(MODEL.studies(fit, CONTEXT, unbounded, [])) == 3
    assert MODEL.predict(fit, CONTEXT, unbounded, Demand())
