"""What reports are made from in these tests: real models, a small history, a fit that costs no time."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from penstock.models.model import Fit
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.operations.operation import Words
from penstock.operations.table import OPERATIONS
from penstock.optimizer.recommendation import recommend
from penstock.report.findings import Report
from penstock.report.material import Copy, Material
from penstock.report.page import render_html
from penstock.report.remarks import remark
from penstock.report.study import study
from penstock.units import MiB, format_bytes
from penstock.vocabulary import Cost, Demand, Observation, Recommendation, Spend, setting_values
from tests.factories import CONTEXT, NOON, PLACE, a_change, an_inconclusive, an_observation

HOUR = timedelta(hours=1)
UPLOAD = S3UploadModel()


def some_observations() -> list[Observation[Any]]:
    """A ramp on a link of about 200 MB/s."""
    return [
        an_observation(
            setting=S3UploadSetting(thread_count=threads, part_size_bytes=8 * MiB),
            started_at=NOON + n * HOUR,
            duration_seconds=64 * MiB / (18e6 * min(threads, 8)) + 0.1,
        )
        for n, threads in enumerate((1, 2, 4, 8, 8, 8))
    ]


def words_of(payload: str, note: str = "") -> Words:
    """How some operation is spoken of."""
    words = OPERATIONS["s3_upload"].words
    return replace(words, payload=payload, payload_note=note, setting_in_full=_in_words)


def _in_words(values: Mapping[str, float], _payload_size_bytes: int) -> str:
    return f"{values['thread_count']:g} threads x {format_bytes(values['part_size_bytes'])}"


@functools.cache
def a_real_fit() -> Fit:
    """What the model makes of them."""
    return UPLOAD.fit(PLACE, some_observations(), prior=None, seed=1)


@functools.cache
def real_advice(hours: float = 3.5) -> Recommendation[Any]:
    """What follows from that fit, put up some hours after noon."""
    now = NOON + hours * HOUR
    return recommend(
        UPLOAD, a_real_fit(), CONTEXT, Demand(), previous=None, now=now, validity_seconds=6 * 3600
    )


def a_material(**changes: Any) -> Material:
    """One place with a history, a failure and a bill."""
    observations: Sequence[Observation[Any]] = some_observations()
    advice = real_advice()
    values: dict[str, Any] = {
        "source": "penstock.db",
        "generated_at": NOON + 8 * HOUR,
        "since": None,
        "models": {"s3_upload": UPLOAD, "sqs_delivery": SqsDeliveryModel()},
        "words": {
            "s3_upload": words_of("object", "Small objects are many."),
            "sqs_delivery": words_of("message"),
        },
        "observations": {PLACE: observations},
        "inconclusives": [an_inconclusive()],
        "fits": [a_real_fit()],
        "recommendations": [advice],
        "histories": {CONTEXT: [real_advice(0.5), advice]},
        "expenses": [
            Spend(
                hour_at=NOON,
                operation="s3_upload",
                cost=Cost(transferred_bytes=512 * MiB, request_count=80, usd=0.001, duration_seconds=12.0),
            )
        ],
        "daily_limit": Cost(
            transferred_bytes=1024 * MiB, request_count=1000, usd=0.1, duration_seconds=4000.0
        ),
        "within_limits": lambda _context, demand: demand,
        "changes": [a_change(changed_at=NOON + 3 * HOUR, unchanged_at=NOON + 2 * HOUR)],
        "unadvised": lambda context: {
            "boto3": setting_values(UPLOAD.default_setting(context)),
            "slowpoke": {"thread_count": 1, "part_size_bytes": 8 * MiB},
        },
        "copies": lambda _advice: [Copy("boto3", "TransferConfig(max_concurrency=8)")],
        "usd_limits": {},
        "client_hours": [],
        "harms": [],
        "leftover_count": 0,
        "unreadable_count": 0,
        "damage": (),
    }
    return Material(**(values | changes))


def a_report(**changes: Any) -> Report:
    """The same, studied and remarked on."""
    return remark(study(a_material(**changes))) if changes else _the_usual_report()


@functools.cache
def _the_usual_report() -> Report:
    return remark(study(a_material()))


def html_of(report: Report) -> str:
    """The page as a whole."""
    return "".join(render_html(report))
