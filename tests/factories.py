"""Values for tests: each call names only what its test is about."""

import dataclasses
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from penstock.lab.link import LinkTruth
from penstock.models.model import Fit, PerformanceModel
from penstock.models.prices import NetworkPath, tariff
from penstock.models.s3.upload import S3UploadSetting
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.operations.table import OPERATIONS
from penstock.optimizer.deliberation import Case, Conclusion, deliberate
from penstock.optimizer.recommendation import recommend
from penstock.probes.probe import Leftover, LeftoverKind
from penstock.units import MiB
from penstock.vocabulary import (
    AdviceMoved,
    Basis,
    Change,
    Context,
    Cost,
    Demand,
    Estimate,
    Inconclusive,
    Moved,
    Observation,
    Place,
    Recommendation,
)

S3_TARIFF, SQS_TARIFF = (
    tariff(service, "standard", NetworkPath.NAT_GATEWAY, home="eu-central-1", region="eu-central-1")
    for service in ("s3", "sqs")
)
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SETTING_TYPES: dict[str, type] = {"s3_upload": S3UploadSetting, "sqs_delivery": SqsDeliverySetting}
PLACE = Place(operation="s3_upload", region="eu-central-1", instance_type="c5.large")
CONTEXT = Context(place=PLACE, payload_size_bytes=64 * MiB)
SETTING = S3UploadSetting(thread_count=10, part_size_bytes=8 * MiB)

_OBSERVATION: Observation[Any] = Observation(
    context=CONTEXT,
    setting=SETTING,
    started_at=NOON,
    duration_seconds=2.0,
    transferred_bytes=64 * MiB,
    request_count=10,
)
_INCONCLUSIVE: Inconclusive[Any] = Inconclusive(
    context=CONTEXT, setting=SETTING, started_at=NOON, reason="no route to the host"
)
_FIT = Fit(
    place=PLACE,
    parameters={"rate_bytes_per_second": Estimate(1e6, 2e6, 3e6)},
    observation_count=3,
    newest_observation_at=NOON,
    residual_fraction_p50=0.05,
    state={"mean": [1.0, 2.5], "kind": "upload"},
)
_RECOMMENDATION: Recommendation[Any] = Recommendation(
    context=CONTEXT,
    setting=SETTING,
    derived={"connection_pool_count": 10.0},
    prediction={"throughput_bytes_per_second": Estimate(1e8, 2e8, 3e8)},
    demand=Demand(),
    basis=Basis.MODEL,
    bottleneck="connections",
    explanation="ten connections fill the link",
    observation_count=3,
    newest_observation_at=NOON,
    issued_at=NOON,
    expires_at=NOON,
)
_CHANGE: Change[Any] = Change(
    place=PLACE,
    changed_at=NOON,
    unchanged_at=NOON,
    noticed_at=NOON,
    known_until=NOON,
    parameters={"host_bytes_per_second": Moved(Estimate(4e8, 5e8, 6e8), Estimate(2e8, 3e8, 4e8))},
    advice=(
        AdviceMoved(
            payload_size_bytes=64 * MiB,
            before=SETTING,
            after=SETTING,
            value=Moved(Estimate(1.8e8, 2e8, 2.2e8), Estimate(1.0e8, 1.1e8, 1.2e8)),
        ),
    ),
)
_LINK = LinkTruth(
    round_trip_seconds=0.001,
    connection_rate_bytes_per_second=100e6,
    host_rate_bytes_per_second=200e6,
    service_latency_seconds_median=0.002,
)
_LEFTOVER = Leftover(
    kind=LeftoverKind.S3_OBJECT, service="s3_upload", container="bucket", name="penstock-probe/1"
)


# Each with what a test changes about it.
a_context = partial(dataclasses.replace, CONTEXT)
an_observation = partial(dataclasses.replace, _OBSERVATION)  # one upload that went well
an_inconclusive = partial(dataclasses.replace, _INCONCLUSIVE)  # one probe that could not measure
a_fit = partial(dataclasses.replace, _FIT)
a_recommendation = partial(dataclasses.replace, _RECOMMENDATION)
a_change = partial(dataclasses.replace, _CHANGE)  # a place that became slower
a_leftover = partial(dataclasses.replace, _LEFTOVER)
a_link = partial(dataclasses.replace, _LINK)  # a quick path without chance


def recommended(
    model: PerformanceModel[Any],
    fit: Fit | None,
    context: Context,
    demand: Demand = _RECOMMENDATION.demand,
    *,
    previous: Recommendation[Any] | None = None,
    within: Demand | None = None,
) -> Recommendation[Any]:
    """What is advised at noon, for ten minutes."""
    return recommend(
        model, fit, context, demand, previous=previous, now=NOON, validity_seconds=600.0, within=within
    )


class Noon:
    """A clock at which advice from the factories still holds."""

    def now(self) -> datetime:
        return NOON

    def monotonic_seconds(self) -> float:
        return 0.0


def concluded(place: Place, observations: Iterable[Observation[Any]], **case: Any) -> Conclusion[Any]:
    """What is thought of a place after these observations; `case` is what else a deliberation is about."""
    usual = {
        "cost_max": Cost(transferred_bytes=2**40, request_count=10**6, usd=10.0, duration_seconds=1e4),
        "seed": 1,
    }
    model = OPERATIONS[place.operation].model
    return deliberate(model, Case(place=place, observations=tuple(observations), **{**usual, **case}))


def a_queue_setting(
    senders: int, receivers: int, deleters: int, batch: int, **bounds: Any
) -> SqsDeliverySetting:
    """So many threads of each kind; `bounds` are windows and a limit."""
    return SqsDeliverySetting(
        sender_thread_count=senders,
        receiver_thread_count=receivers,
        deleter_thread_count=deleters,
        batch_message_count=batch,
        **bounds,
    )
