"""What a day and a month cost, at the most and typically, and which budget binds before the intervals do."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.cli.costs import costs_of
from penstock.daemon import app, assembly
from penstock.daemon.config import BudgetSection, Configuration, DaemonSection, HostSection, ProbesSection
from penstock.daemon.instance import HostIdentity
from penstock.daemon.spending.budget import daily_limit
from penstock.daemon.spending.forecast import Forecast, scarcity, together
from penstock.daemon.spending.rationing import EVENLY
from penstock.lab.virtual_time import VirtualClock
from penstock.operations.operation import Operation
from penstock.operations.table import OPERATIONS
from penstock.units import GiB, MiB
from penstock.vocabulary import Cost
from tests.inline_thinker import InlineThinker
from tests.unit.daemon.house import Outside

HOST = HostSection(region="eu-west-1", instance_type="c6i.large")
AMPLE = BudgetSection(usd_per_day=100.0, transferred_bytes_per_day=2**50, request_count_per_day=10**9)


def configured(row: Operation[Any, Any], budget: BudgetSection | None = None, **values: Any) -> Configuration:
    """With one operation that is probed."""
    plain = row.section_type(is_enabled=True)
    bucket = {"bucket": "b"} if hasattr(plain, "bucket") else {}
    section = msgspec.structs.replace(plain, **bucket, **values)
    return Configuration(
        host=HOST, probes=ProbesSection(**{row.name: section}), budget=budget or BudgetSection()
    )


def forecast(row: Operation[Any, Any], budget: BudgetSection | None = None, **values: Any) -> Forecast:
    (found,) = costs_of(configured(row, budget, **values))
    return found


@pytest.fixture(params=OPERATIONS.values(), ids=list(OPERATIONS))
def row(request: pytest.FixtureRequest) -> Operation[Any, Any]:
    found: Operation[Any, Any] = request.param
    return found


def test_a_day_costs_no_more_than_its_budget(row: Operation[Any, Any]) -> None:
    """By default, whatever is assumed of the way; and a month is thirty such days."""
    found = forecast(row)
    promised = row.section_type().usd_per_day
    assert 0.0 < found.typically.usd <= found.at_most.usd <= promised * 1.000001
    assert 0 <= found.typically.transferred_bytes <= found.at_most.transferred_bytes
    assert 0 <= found.typically.request_count <= found.at_most.request_count
    assert found.typically.request_count > 0 or found.warning is not None
    document = found.document()
    assert document["month"]["at_most"]["usd"] == pytest.approx(30 * promised)


def test_where_dollars_bind_is_said(row: Operation[Any, Any]) -> None:
    """A way that is not known is dear: with the key that binds, and which way was assumed."""
    cent = forecast(row, usd_per_day=0.002)
    assert cent.bound_by == f"probes.{row.name}.usd_per_day"
    assert cent.probe_count < cent.probe_count_wanted
    said = scarcity([cent])
    assert said is not None
    assert "budgets pay for fewer probes a day than the intervals ask for" in said
    assert "the dearest route is assumed" in said
    assert cent.sentence == cent.document()["remark"] == said
    hardly = dataclasses.replace(cent, probe_count=0.998 * cent.probe_count_wanted)
    assert scarcity([hardly]) is None, "140 of 140 are not fewer"


def test_where_nothing_binds_nothing_is_said(row: Operation[Any, Any]) -> None:
    """With enough money the intervals decide: probes come half as often as they say once nothing is new."""
    free = forecast(row, AMPLE, usd_per_day=100.0, network_path="public-address")
    assert (free.bound_by, scarcity([free])) == (None, None)
    section = row.section_type()
    count = len(section.payload_size_bytes) * 86400.0 / (2.0 * section.mean_interval_seconds)
    assert free.probe_count == free.probe_count_wanted == pytest.approx(count)
    assert "$100 a day at most" in free.sentence
    large = forecast(
        row,
        msgspec.structs.replace(AMPLE, usd_per_day=12_000.0),
        usd_per_day=12_000.0,
        network_path="public-address",
    )
    assert "$12,000 a day at most" in large.sentence, "no exponent"


def test_quiet_hours_are_not_probed_and_not_foreseen(row: Operation[Any, Any]) -> None:
    """Where the intervals decide, six quiet hours of the day leave three quarters of the probes."""
    whole = configured(row, AMPLE, usd_per_day=100.0, network_path="public-address")
    probes = msgspec.structs.replace(whole.probes, quiet_hours=("09:00-12:00 UTC", "10:00-15:00 UTC"))
    (always,), (seldom,) = (costs_of(c) for c in (whole, msgspec.structs.replace(whole, probes=probes)))
    assert seldom.probe_count_wanted == pytest.approx(0.75 * always.probe_count_wanted)
    assert seldom.typically.request_count == pytest.approx(0.75 * always.typically.request_count, rel=0.01)


@pytest.mark.parametrize(
    ("key", "value"),
    [("usd_per_day", 0.001), ("transferred_bytes_per_day", 64 * MiB), ("request_count_per_day", 100)],
)
def test_the_budget_of_all_may_bind_first(key: str, value: float) -> None:
    """Of dollars, bytes or requests: named by its key. A quarter of it is left for surprises."""
    budget = msgspec.structs.replace(AMPLE, **{key: value})
    found = forecast(OPERATIONS["s3_upload"], budget, usd_per_day=50.0, object_size_bytes=(8 * MiB,))
    assert found.bound_by == f"budget.{key}"
    name = key.removesuffix("_per_day")
    assert getattr(found.typically, name) == pytest.approx(EVENLY * value, rel=0.02)


def test_a_size_that_is_never_paid_for_is_counted(row: Operation[Any, Any]) -> None:
    """Where not even the gentlest probe is to be had, none comes, and the reason is the dollars."""
    found = forecast(row, usd_per_day=1e-7)
    assert found.probe_count == 0.0
    assert found.bound_by == f"probes.{row.name}.usd_per_day"


def test_a_probe_that_may_not_move_enough_is_not_short_of_dollars() -> None:
    """Then more dollars would change nothing: the limit that does is named."""
    found = forecast(OPERATIONS["s3_upload"], AMPLE, usd_per_day=100.0, transferred_bytes_max=6 * MiB)
    assert found.probe_count == 0.0
    assert found.bound_by == "probes.s3_upload.transferred_bytes_max"


def test_what_is_put_to_be_read_is_paid_for_before_the_first_probe() -> None:
    """The daemon makes no other before it, so that where it is not paid for there is none; yours costs nothing."""
    budget = msgspec.structs.replace(AMPLE, transferred_bytes_per_day=100 * MiB)
    own, named = (
        forecast(
            OPERATIONS["s3_download"],
            budget,
            usd_per_day=100.0,
            object_size_bytes=(64 * MiB,),
            object_key=key,
        )
        for key in ("", "mine")
    )
    assert own.probe_count == 0.0
    assert own.bound_by == "budget.transferred_bytes_per_day"
    assert own.warning is not None
    assert named.probe_count > 0.0
    assert named.warning is None


@pytest.mark.parametrize(
    ("budget", "values", "key"),
    [
        ({"request_count_per_day": 20}, {}, "budget.request_count_per_day"),
        ({"request_count_per_day": 20}, {"request_count_max": 21}, "budget.request_count_per_day"),
        ({}, {"request_count_max": 20}, "probes.sqs_delivery.request_count_max"),
        ({"transferred_bytes_per_day": 1024}, {}, "budget.transferred_bytes_per_day"),
    ],
)
def test_a_probe_that_may_not_ask_enough_is_not_short_of_dollars(
    budget: dict[str, int], values: dict[str, int], key: str
) -> None:
    """Whether the budget of all or the operation's own limit is the least: that one is named."""
    ample = msgspec.structs.replace(AMPLE, **budget)
    found = forecast(OPERATIONS["sqs_delivery"], ample, usd_per_day=100.0, **values)
    assert found.probe_count == 0.0
    assert found.bound_by == key
    assert found.warning is not None
    assert found.warning.endswith(f"raise {key}")


def test_what_moves_nothing_moves_nothing_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many dollars there are for bytes: probes whose bytes do not pass the host take none of them."""
    upload = OPERATIONS["s3_upload"]
    costs = type(upload.model).probe_costs

    def of_requests_alone(*arguments: Any) -> list[Cost]:
        return [dataclasses.replace(cost, transferred_bytes=0) for cost in costs(*arguments)]

    assert forecast(upload).at_most.transferred_bytes > 0
    monkeypatch.setattr(type(upload.model), "probe_costs", of_requests_alone)
    found = forecast(upload)
    assert (found.typically.transferred_bytes, found.at_most.transferred_bytes) == (0, 0)
    assert found.at_most.request_count > 0


def test_the_way_decides_what_is_paid_for() -> None:
    """The same cent pays for many times the uploads by a gateway endpoint."""
    counts = [
        forecast(OPERATIONS["s3_upload"], network_path=path).probe_count
        for path in ("gateway-endpoint", "nat-gateway")
    ]
    assert counts[0] > 8 * counts[1]


def test_operations_share_what_all_may_cost() -> None:
    """Each has its own limit, and all together no more than the budget."""
    sections = {name: configured(each).section_of(each) for name, each in OPERATIONS.items()}
    budget = BudgetSection(usd_per_day=0.004)
    found = costs_of(Configuration(host=HOST, probes=ProbesSection(**sections), budget=budget))
    assert sum(one.typically.usd for one in found) <= 0.004 * 1.001
    most, typically = together(found, daily_limit(budget))
    assert most.usd == 0.004 < sum(one.at_most.usd for one in found)
    assert typically.usd == pytest.approx(sum(one.typically.usd for one in found))
    # But where its own limit leaves still less.
    assert "budget.usd_per_day" in {one.bound_by for one in found}


def test_what_is_scarce_for_one_is_not_taken_from_who_hardly_needs_it() -> None:
    """Bytes that downloads run out of keep no message back: who is held by his own dollars spends his share."""
    sections = {
        name: msgspec.structs.replace(
            configured(each).section_of(each),
            network_path="public-address",
            usd_per_day=1.0 if name == "s3_download" else 0.002,
        )
        for name, each in OPERATIONS.items()
    }
    budget = msgspec.structs.replace(AMPLE, transferred_bytes_per_day=16 * GiB)
    found = costs_of(Configuration(host=HOST, probes=ProbesSection(**sections), budget=budget))
    bound = {one.operation: one for one in found}
    assert bound["s3_download"].bound_by == "budget.transferred_bytes_per_day"
    for name in ("s3_upload", "sqs_delivery"):
        assert bound[name].bound_by == f"probes.{name}.usd_per_day"
        assert bound[name].typically.usd == pytest.approx(EVENLY * 0.002)
    moved_bytes = together(found, daily_limit(budget))[1].transferred_bytes
    assert moved_bytes == pytest.approx(EVENLY * 16 * GiB, rel=0.01)


async def test_the_daemon_says_so_when_it_begins(
    clock: VirtualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In its log, once it knows anything of the places; before that there is nothing to say."""
    configuration = msgspec.structs.replace(
        configured(OPERATIONS["s3_upload"], object_size_bytes=(GiB,)),
        daemon=DaemonSection(state_directory=str(tmp_path), runtime_directory=str(tmp_path)),
    )
    identity = HostIdentity(region="eu-west-1", instance_type="c6i.large", sentence="", is_instance=True)
    surroundings = assembly.Surroundings(
        clock=clock, outside=Outside(), thinker=InlineThinker(), identity=identity, host_name="host", seed=1
    )
    caplog.set_level(logging.INFO)
    async with assembly.assembled(configuration, surroundings) as house:
        assert house.forecast() == ()
        working = asyncio.create_task(app._work(house))
        await asyncio.sleep(0.001)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        (found,) = house.forecast()
    assert found.way.path == "nat-gateway"
    assert "intervals ask for: s3_upload about" in caplog.text
