"""What an operator may ask of a living daemon."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.api.advisor import RefusedError
from penstock.api.leases import Appetite, LeaseBook
from penstock.api.wire import Claim, encode, read_question
from penstock.daemon.advisory import Advisory
from penstock.daemon.assembly import App
from penstock.daemon.backlog_watch import BacklogWatch
from penstock.daemon.config import BudgetSection, ListenSection, WatchedQueueSection
from penstock.daemon.heard.audit import Audit
from penstock.daemon.heard.hearing import Hearing
from penstock.daemon.host import HostSample
from penstock.daemon.quiet_hours import parse
from penstock.daemon.spending.forecast import Forecast
from penstock.daemon.spending.tariffs import Way
from penstock.daemon.yielding.harm_watch import HarmWatch
from penstock.daemon.yielding.host_watch import HostWatch
from penstock.models.prices import NetworkPath
from penstock.models.s3.upload import S3UploadModel
from penstock.vocabulary import Cost, Demand, Observation, Origin, Place, Spend
from tests.factories import CONTEXT, NOON, SETTING, an_observation
from tests.integration.test_socket_protocol_page import OPENAPI, agree
from tests.unit.daemon.house import DAY_LIMIT, TARIFFS, House

HOME = Place(operation="", region="elsewhere-1", instance_type="c5.large")


FORECAST = Forecast(
    operation=CONTEXT.operation,
    way=Way(NetworkPath.NAT_GATEWAY, "stated"),
    at_most=Cost(usd=0.01),
    typically=Cost(usd=0.004),
    probe_count_wanted=144.0,
    probe_count=2.0,
    bound_by=f"probes.{CONTEXT.operation}.usd_per_day",
    key_request_count=0.0,
)


def advisory_of(house: House, leases: LeaseBook | None = None) -> Advisory:
    """On a host that lives in another region than it probes."""
    app = App(
        board=house.board,
        conductor=house.conductor,
        backlogs=BacklogWatch(house.clock, WatchedQueueSection(), region=HOME.region),
        host_watch=HostWatch(BudgetSection(), house.clock, HostSample, ceiling_bytes_per_second=lambda: None),
        store=house.store,
        tariffs=TARIFFS,
        leases=LeaseBook() if leases is None else leases,
        home=HOME,
        started_at=NOON,
        close_probes=lambda: asyncio.sleep(0),
        forecast=lambda: [FORECAST],
    )
    return Advisory(
        app=app,
        harm_watch=HarmWatch(dict, house.clock, ListenSection()),
        audit=Audit(house.board, Hearing(house.clock), house.clock, HOME),
        take_up=lambda: asyncio.sleep(0, ""),
    )


@pytest.mark.parametrize(("hours", "shift_hours"), [("11:00-14:00 UTC", 2), ("13:00-14:00 UTC", 0)])
async def test_no_probe_is_announced_for_quiet_hours(house: House, hours: str, shift_hours: int) -> None:
    """What is due within them comes at their end; hours that have not begun change nothing."""
    advisory = advisory_of(house)
    advisory.app.host_watch.quiet_hours = (parse(hours),)
    house.conductor.next_due_at = NOON
    assert advisory.status()["next_probe_due_at"] == NOON + timedelta(hours=shift_hours)
    house.conductor.next_due_at = None
    assert advisory.status()["next_probe_due_at"] is None


async def test_status_and_reasons_keep_to_the_interface(house: House) -> None:
    """Dashboards are written against the names that are described: none is missing, and none comes besides."""
    advisory = advisory_of(house)
    of_one = {CONTEXT.operation: 0.01 - 0.0000123456789}
    house.conductor.ledger = replace(house.conductor.ledger, usd_limits=of_one)
    await house.conductor.run_cycle(CONTEXT)
    asked = read_question([("operation", "s3_upload"), ("payload_size_bytes", "1GiB")])
    for name, found in (("Status", advisory.status()), ("Explanation", advisory.explain(asked))):
        agree(json.loads(encode(found)), OPENAPI["components"]["schemas"][name], name)
    assert advisory.status()["costs"][CONTEXT.operation]["usd_per_day"] == 0.009987654


async def test_a_probe_can_be_asked_for_wherever_it_is_made(house: House) -> None:
    """A size that is probed in another region, or of another class, can be asked for like any other."""
    await advisory_of(house).request_probe(CONTEXT.operation, CONTEXT.payload_size_bytes)
    await house.live(10.0)
    assert house.probe.run_count == 1


async def test_a_probe_that_no_budget_is_left_for_is_refused_with_the_reason(house: House) -> None:
    """Nobody waits for what does not come; until when is in the sentence."""
    await house.conductor.prepare()
    asking = advisory_of(house).request_probe
    assert "comes next" in await asking(CONTEXT.operation, CONTEXT.payload_size_bytes)
    spend = Spend(hour_at=NOON, operation=CONTEXT.operation, cost=replace(DAY_LIMIT, duration_seconds=1.0))
    house.conductor.ledger = replace(house.conductor.ledger, spends=(spend,))
    with pytest.raises(RefusedError, match=r"cannot be made now: a probe may need .* are left until 2"):
        await asking(CONTEXT.operation, CONTEXT.payload_size_bytes)


async def test_whoever_learns_of_a_report_learns_whose_it_is(house: House) -> None:
    """One user who is heard and reports, too, is one witness of refusals and not two."""
    seen: list[int | None] = []
    house.conductor.on_observed = lambda reports: seen.extend(r.reporter_uid for r in reports)
    report: Observation[Any] = an_observation(origin=Origin.APPLICATION)
    assert await advisory_of(house).record([report], uid=1001, process_id=1) == [None]
    assert seen == [1001]


async def test_a_probe_of_a_size_that_is_not_probed_is_refused(house: House) -> None:
    """The refusal names the sizes that there are."""
    with pytest.raises(RefusedError, match=r"at 1 B here; the configured sizes are 64 MiB$"):
        await advisory_of(house).request_probe(CONTEXT.operation, 1)
    with pytest.raises(RefusedError, match="its probes are not enabled"):
        await advisory_of(house).request_probe("sqs_delivery", 1)


async def test_what_advice_is_worth_is_a_metric(house: House) -> None:
    """A fleet sees where the advice is worth most, and where it has nothing to give."""
    advisory = advisory_of(house)
    advice = house.board.recommend(CONTEXT, Demand(), NOON)
    assert advice.gain_over_default is not None
    (line,) = [
        x for x in advisory.metrics().decode().splitlines() if x.startswith("penstock_gain_over_default{")
    ]
    assert float(line.split()[-1]) == advice.gain_over_default.expected


async def test_metrics_of_a_package_that_was_replaced_say_so(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are imported when they are first asked for, and may then be of another version: no fault of the daemon."""
    monkeypatch.setitem(sys.modules, "penstock.daemon.metrics", None)
    monkeypatch.setattr("penstock.processes.package.trouble", lambda: "restart it")
    with pytest.raises(RefusedError, match="restart it"):
        advisory_of(house).metrics()


async def test_leases_are_shown_to_people_and_to_dashboards(house: House) -> None:
    """Who holds what, and how much is held of each knob that is divided."""
    book = LeaseBook()
    advisory = advisory_of(house, book)
    question = read_question([("operation", "s3_upload"), ("payload_size_bytes", "1GiB")])
    for process_id in (7, 8):
        wanted = Appetite(setting=SETTING, use_fraction=1.0)
        book.grant(Claim(question=question), wanted, process_id=process_id, uid=1000, now=NOON)
    rows = advisory.status()["leases"]
    assert [(row["process_id"], row["setting"]["thread_count"]) for row in rows] == [(7, 5), (8, 5)]
    metrics = advisory.metrics().decode()
    assert 'penstock_leases{operation="s3_upload"} 2.0' in metrics
    assert 'penstock_leased_setting{knob="thread_count",operation="s3_upload"} 10.0' in metrics
    assert 'knob="part_size_bytes",operation="s3_upload"}' not in metrics


async def test_neighbours_under_lease_draw_on_the_same_credits(house: House) -> None:
    """Advice that leaves the regime open is for the burst, until others hold leases for more than the credits carry."""
    book = LeaseBook()
    advisory = advisory_of(house, book)
    asked = read_question([("operation", "s3_upload"), ("payload_size_bytes", "10GiB")])
    place = Place(operation="s3_upload", region=HOME.region, instance_type=HOME.instance_type)
    await house.board.post(S3UploadModel().fit(place, (), prior=None, seed=0), NOON)
    assert advisory.recommend(asked).derived["is_burst"] == 1.0
    large = read_question([("operation", "s3_upload"), ("payload_size_bytes", "1TiB")])
    appetite = Appetite(setting=SETTING, use_fraction=1.0)
    held = book.grant(Claim(question=large), appetite, process_id=1, uid=0, now=NOON)
    answer = advisory.recommend(asked)
    assert answer.derived["is_burst"] == 0.0
    assert answer.demand == asked.demand
    assert "other lease holders need its burst credits" in answer.explanation
    book.release(held)
    own = book.grant(Claim(question=asked), appetite, process_id=1, uid=0, now=NOON)
    assert advisory.recommend(own.claim.question).derived["is_burst"] == 1.0


async def test_what_an_operation_cost_is_counted_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two sizes each would seem to have cost what both did."""
    await house.conductor.run_cycle(CONTEXT)
    (standing,) = house.conductor.standings
    advisory = advisory_of(house)
    (alone,) = advisory.status()["contexts"]
    assert "cost less than a cent in 25 clock hours" in alone["verdict"]
    larger = replace(standing, context=replace(CONTEXT, payload_size_bytes=1 << 30))
    monkeypatch.setattr(house.conductor, "standings", [standing, larger])
    assert not any("cost" in each["verdict"] for each in advisory.status()["contexts"])
