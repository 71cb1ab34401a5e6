"""How far advice goes from what was measured: in what is dared, not in the limits that follow from it."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.models.model import Cell
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.optimizer.choice import within_reach
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import Context, Demand, Place, setting_values
from tests.factories import NOON, a_fit, a_queue_setting

MODEL = SqsDeliveryModel()
PLACE = Place(operation="sqs_delivery", region="eu-west-1", instance_type="m7i.large")
CONTEXT = Context(place=PLACE, payload_size_bytes=KiB)


def limited(setting: SqsDeliverySetting, rate: float, sent: int, received: int) -> SqsDeliverySetting:
    """With limits."""
    return dataclasses.replace(
        setting,
        send_rate_limit_messages_per_second=rate,
        send_window_message_count=sent,
        receive_window_message_count=received,
    )


def measured(setting: Any, payload_size_bytes: int = KiB) -> Cell:
    """Once, and without trouble."""
    values = setting_values(setting)
    return Cell(
        payload_size_bytes=payload_size_bytes,
        setting=values,
        count=1,
        value_median=100.0,
        had_trouble=False,
        newest_at=NOON,
    )


def test_limits_keep_no_advice_from_what_was_tried() -> None:
    """First probes are driven without limits; otherwise a probe with limits would draw all advice to itself."""
    ramp = [
        a_queue_setting(1, 1, 1, 1),
        a_queue_setting(1, 1, 2, 1),
        a_queue_setting(1, 1, 2, 10),
        a_queue_setting(3, 3, 4, 5),
    ]
    explored = limited(a_queue_setting(2, 2, 3, 1), 59.0, 8, 190)
    fit = a_fit(place=PLACE, cells=tuple(measured(setting) for setting in (*ramp, explored)))
    near, far = (limited(a_queue_setting(*who, 10), 590.0, 90, 1900) for who in ((2, 2, 4), (8, 8, 16)))
    settings = [near, far, explored]
    assert within_reach(MODEL, fit, CONTEXT, Demand(), settings) == [near, explored]


def test_where_all_that_would_serve_takes_more_than_is_dared_the_least_is() -> None:
    """After one message at a time nobody is told to open nine times the threads, as sure as the physics may be."""
    fit = a_fit(place=PLACE, cells=(measured(a_queue_setting(1, 1, 1, 1)),))
    few, many = a_queue_setting(2, 3, 4, 10), a_queue_setting(6, 8, 13, 10)
    assert within_reach(MODEL, fit, CONTEXT, Demand(), [many, few]) == [few]
    assert within_reach(MODEL, fit, CONTEXT, Demand(), []) == []


def test_receivers_that_work_ask_for_no_more_than_was_measured() -> None:
    """Probes do no work. Of what is near them, what sends most was advised for long work, at a quarter of the rate."""
    ramp = [*((n, n, n, 10) for n in (1, 2, 4, 6, 8)), (40, 15, 9, 10)]
    fit = MODEL.fit(PLACE, [], prior=None, seed=1)
    fit = dataclasses.replace(
        fit, observation_count=6, cells=tuple(measured(a_queue_setting(*one)) for one in ramp)
    )
    working, tried, beyond = (
        a_queue_setting(6, 51, 7, 10),
        a_queue_setting(40, 15, 9, 10),
        a_queue_setting(40, 51, 40, 10),
    )
    settings = [working, tried, beyond]
    assert within_reach(MODEL, fit, CONTEXT, Demand(work_seconds=0.02), settings) == [working]
    assert within_reach(MODEL, fit, CONTEXT, Demand(), settings) == [tried]


def test_small_requests_tell_of_no_ceiling_for_large_ones() -> None:
    """What eighty threads of small objects carry is far below what so many parts would ask of the path."""
    place = dataclasses.replace(PLACE, operation="s3_upload")
    large = Context(place=place, payload_size_bytes=GiB)
    few, some, many = (
        S3UploadSetting(thread_count=n, part_size_bytes=part)
        for n, part in ((24, 8 * MiB), (40, 8 * MiB), (160, 8 * MiB))
    )
    model, settings = S3UploadModel(), [few, some, many]
    small = measured(S3UploadSetting(thread_count=80, part_size_bytes=8 * MiB), 64 * KiB)
    parts = measured(S3UploadSetting(thread_count=12, part_size_bytes=5 * MiB), 64 * MiB)
    both = a_fit(place=place, cells=(small, parts))
    assert within_reach(model, both, large, Demand(), settings) == [few]
    assert within_reach(model, a_fit(place=place, cells=(small,)), large, Demand(), settings) == [few, some]
    tiny = Context(place=place, payload_size_bytes=64 * KiB)
    assert within_reach(model, both, tiny, Demand(), settings) == settings, "and large ones do for small ones"
