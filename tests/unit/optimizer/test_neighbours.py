"""What a place learns from its neighbour: what was measured there, once, however often the two are fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from bench.sqs_world import PLACE as QUEUE
from bench.sqs_world import a_setting as a_queue_setting
from bench.sqs_world import a_world, observe
from penstock.models.model import Fit, handed_on
from penstock.models.s3.download import S3DownloadModel
from penstock.models.s3.upload import S3UploadModel
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.vocabulary import Observation, Origin, Reason
from tests.factories import concluded, recommended
from tests.unit.models.s3 import download_world
from tests.unit.models.s3.download_world import DownloadWorld
from tests.unit.models.s3.upload_world import UploadWorld, a_context, a_place, a_setting, history

MODELS: dict[str, Any] = {"s3_upload": S3UploadModel(), "sqs_delivery": SqsDeliveryModel()}
HOME, AWAY = UploadWorld(place=a_place(region="us-east-1")), UploadWorld(place=a_place(region="us-west-2"))
Observations = Sequence[Observation[Any]]


def reported(observations: Observations) -> list[Observation[Any]]:
    """The same, said by an application."""
    return [
        replace(o, origin=Origin.APPLICATION, client="boto3", reporter_uid=1001, measures={})
        for o in observations
    ]


@cache
def two_places(operation: str) -> tuple[Observations, Observations]:
    """Few measurements of one world in two regions."""
    if operation == "s3_upload":
        return history(HOME, 4), history(AWAY, 3, seed=7)
    world = a_world(1)
    near = [observe(world, a_queue_setting(i), seed=i, number=i) for i in range(3)]
    far = [observe(world, a_queue_setting(i), seed=i, number=i) for i in range(3, 6)]
    there = replace(QUEUE, region="us-west-2")
    return near, [replace(o, context=replace(o.context, place=there)) for o in far]


@pytest.mark.parametrize("operation", MODELS)
def test_two_places_learn_from_each_other_once(operation: str) -> None:
    """Each is the other's neighbour: without new measurements, no further fit says anything else."""
    home, away = two_places(operation)
    here, there = home[0].context.place, away[0].context.place
    one = concluded(here, home).fit
    other = concluded(there, away, prior=one).fit
    first = one = concluded(here, home, prior=other).fit
    for _ in range(2):
        other = concluded(there, away, prior=one).fit
        one = concluded(here, home, prior=other).fit
    assert one.parameters == first.parameters
    assert one.state == first.state


@pytest.mark.parametrize("operation", MODELS)
def test_which_place_was_fitted_first_does_not_matter(operation: str) -> None:
    """The same history, the same fit: also of a daemon that starts again and fits in another order."""
    home, away = two_places(operation)
    here, there = home[0].context.place, away[0].context.place
    early = concluded(here, home, prior=concluded(there, away).fit).fit
    late = concluded(here, home, prior=concluded(there, away, prior=concluded(here, home).fit).fit).fit
    assert early.parameters == late.parameters


def test_an_inherited_limit_of_refusals_is_not_handed_back() -> None:
    """A queue that was never refused itself knows no limit that its neighbour could take for its own."""
    home, away = two_places("sqs_delivery")
    here, there = home[0].context.place, away[0].context.place
    refused = [replace(o, throttled_count=o.request_count) for o in home]
    other = concluded(there, away, prior=concluded(here, refused).fit).fit
    limit = "request_rate_max_per_second"
    assert other.state[limit] < concluded(there, away).fit.state[limit]
    assert concluded(here, home, prior=other).fit.state[limit] == concluded(here, home).fit.state[limit]


def test_a_limit_that_is_none_here_is_not_inherited() -> None:
    """One measurement that went beyond it unrefused is enough: a poisoned prior would hold a queue back for long."""
    home, away = two_places("sqs_delivery")
    here, there = home[0].context.place, away[0].context.place
    poison = [
        replace(o, throttled_count=o.request_count, duration_seconds=1e3, measures={"sent_count": 1e3})
        for o in away
    ]
    told = concluded(there, poison).fit
    limit = "request_rate_max_per_second"
    assert concluded(here, (), prior=told).fit.state[limit] == told.state[limit]
    assert concluded(here, home[:1], prior=told).fit.state[limit] == concluded(here, ()).fit.state[limit]


def test_what_other_hosts_of_the_place_bore_is_advised_after_one_own_measurement() -> None:
    """As where there was none; not what another place bore, and not once it went badly here."""
    few = [HOME.observe(a_setting(4), 0)]
    told, elsewhere = (
        concluded(HOME.place, history(HOME, 12, seed=7)),
        concluded(AWAY.place, history(AWAY, 12)),
    )

    def advised(prior: Fit, *, throttled_count: int = 0) -> int:
        own = [replace(o, throttled_count=throttled_count) for o in few]
        fit = concluded(HOME.place, own, prior=prior).fit
        advice = recommended(MODELS["s3_upload"], fit, HOME.context)
        count: int = advice.setting.thread_count
        return count

    near, sdks = advised(elsewhere.fit), 10
    assert near <= sdks < advised(told.fit)
    assert advised(told.fit, throttled_count=50) <= near


def test_reports_do_not_reach_a_neighbour_beside_measurements() -> None:
    """What a place hands on is what was measured in it."""
    probes = history(AWAY, 4)
    heard = concluded(AWAY.place, [*probes, *reported(history(AWAY, 4, first=4))]).fit
    assert heard.observation_count > 4
    assert handed_on(heard).parameters == concluded(AWAY.place, probes).fit.parameters


def test_a_neighbour_that_was_only_reported_does_not_spare_the_ramp() -> None:
    """Reports about a region, invented or not, let no first probe elsewhere dare more than four connections."""
    said = concluded(AWAY.place, reported(history(AWAY, 8))).fit
    plan = concluded(HOME.place, (), prior=said, next_context=HOME.context).plan
    assert said.is_from_reports
    assert plan is not None
    assert plan.reason is Reason.RAMP
    assert plan.setting.thread_count == 4


def test_another_operation_does_not_spare_the_ramp() -> None:
    """Downloads with a hundred connections say how far it is, not that the host bears as many uploads."""
    downloads = S3DownloadModel().fit(
        download_world.a_place(), download_world.history(DownloadWorld(), 6), prior=None, seed=0
    )
    told, alone = (
        concluded(a_place(), (), prior=prior, next_context=a_context()) for prior in (downloads, None)
    )
    assert told.plan is not None
    assert alone.plan is not None
    assert (told.plan.reason, told.plan.setting) == (Reason.RAMP, alone.plan.setting)
    assert told.fit.parameters["request_seconds"] != alone.fit.parameters["request_seconds"]


def test_a_neighbour_with_one_measurement_lends_no_daring_of_its_reports() -> None:
    """Beside a single small probe, reports of hundreds of connections say nothing of what a first probe may dare."""
    probe = AWAY.observe(a_setting(4), 0)
    said = reported([AWAY.observe(a_setting(n), 1 + i) for i, n in enumerate((64, 256, 512, 1000))])
    plans = [
        concluded(HOME.place, (), prior=concluded(AWAY.place, seen).fit, next_context=HOME.context).plan
        for seen in ([probe], [probe, *said])
    ]
    assert plans[0] == plans[1]
