"""Days of the whole daemon in virtual time: what holds however the weather is."""

import dataclasses
from contextlib import closing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.daemon.assembly import App
from penstock.daemon.config import AdviceSection, BudgetSection
from penstock.daemon.memory.store import Store
from penstock.lab import worlds
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.sections.downloads import DownloadSection
from penstock.operations.sections.objects import ObjectSection
from penstock.units import GiB, MiB
from penstock.vocabulary import Demand, Inconclusive, Observation
from tests.factories import SETTING_TYPES
from tests.inline_thinker import DiceThinker
from tests.scenario import BUCKET, START_AT, At, Neighbour, Scenario, Week, play

SIZE = 64 * MiB


def test_the_same_seed_gives_the_same_days() -> None:
    """Every sentence, measurement and advice is replayed exactly."""
    scenario = Scenario(link=worlds.REGIONAL.link, queue=worlds.REGIONAL.queue, days=0.04, seed=4)
    first, second = play(scenario), play(scenario)

    assert [c.sentence for c in first.cycles] == [c.sentence for c in second.cycles]
    assert first.advice == second.advice


def test_another_seed_gives_other_days() -> None:
    """Probes are spaced by chance: hosts of a fleet do not probe in step."""
    one, other = (play(Scenario(link=worlds.NEAR.link, days=0.02, seed=seed)) for seed in (1, 2))
    assert [c.at for c in one.cycles] != [c.at for c in other.cycles]


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(worlds.NEAR, id="near"),
        pytest.param(worlds.CROSS_REGION, id="cross-region", marks=pytest.mark.days),
        pytest.param(worlds.CROWDED, id="crowded", marks=pytest.mark.days),
    ],
)
def test_a_day_is_enough_to_come_near_the_best(world: worlds.World) -> None:
    """After half a day of hourly probes the advice reaches nine tenths of the best setting there is."""
    days = play(Scenario(link=world.link, days=0.5, seed=7))
    assert days.fraction_of_best(SIZE, at_days=0.5) > 0.9


@pytest.mark.days
def test_a_slower_host_is_noticed() -> None:
    """When the host loses most of its rate, the advice follows within a day."""
    slower = dataclasses.replace(worlds.NEAR.link, host_rate_bytes_per_second=60e6)
    days = play(Scenario(link=worlds.NEAR.link, days=1.5, seed=5, changes=(At(days=0.5, link=slower),)))
    before = days.advised("s3_upload", SIZE, at_days=0.5)
    after = days.advised("s3_upload", SIZE, at_days=1.5)

    assert before is not None
    assert after is not None
    assert days.fraction_of_best(SIZE, at_days=1.5) > 0.9
    expected_before = before.prediction["throughput_bytes_per_second"].expected
    assert after.prediction["throughput_bytes_per_second"].expected < 0.6 * expected_before


@pytest.mark.days
def test_a_host_that_is_as_fast_again_is_known_at_once(tmp_path: Path) -> None:
    """For half a day it lost most of its rate: what was learned before counts again, and the change says so."""
    slower = dataclasses.replace(worlds.NEAR.link, host_rate_bytes_per_second=60e6)
    changes = (At(days=0.5, link=slower), At(days=1.0, link=worlds.NEAR.link))
    days = play(Scenario(link=worlds.NEAR.link, days=1.25, seed=5, changes=changes), keep=tmp_path)
    with closing(Store.open_read_only(tmp_path / "penstock.db", SETTING_TYPES)) as store:
        newest, *_ = store.changes(count_max=10)
        fit = store.fits()[0]
    assert newest.as_until is not None
    assert timedelta(days=0.4) < newest.as_until - START_AT < timedelta(days=0.6)
    assert timedelta(days=1.0) <= newest.changed_at - START_AT < timedelta(days=1.1)
    assert fit.is_about(START_AT + timedelta(days=0.3))
    assert not fit.is_about(START_AT + timedelta(days=0.8))
    assert days.fraction_of_best(SIZE, at_days=1.25) > 0.95


def test_a_clock_that_was_ahead_of_its_time_costs_no_knowledge() -> None:
    """For hours it was another year: what was learned stays, and no advice holds until that year."""
    hour = 1 / 24
    ahead = At(days=0.25, clock_step_seconds=400 * 86400.0)
    back = At(days=0.25 + 3 * hour, clock_step_seconds=-400 * 86400.0)
    told = []

    def each_hour(app: App, days: float) -> None:
        now = app.conductor.clock.now()
        for context in app.conductor.contexts:
            fit, advice = app.board.fit(context.place), app.board.recommend(context, Demand(), now)
            told.append((days, fit.observation_count if fit else 0, advice.expires_at - now))

    play(Scenario(link=worlds.NEAR.link, days=0.6, seed=5, changes=(ahead, back), each_hour=each_hour))
    later = [(count, valid) for at, count, valid in told if at > back.days + hour]
    assert min(count for count, _ in later) >= 0.9 * max(count for at, count, _ in told if at < ahead.days)
    assert max(valid for _, valid in later) <= timedelta(hours=6)


def test_a_restart_forgets_nothing() -> None:
    """The advice after a restart is the advice before it, and probing goes on where it was."""
    restarted = play(
        Scenario(link=worlds.NEAR.link, days=0.25, seed=9, changes=(At(days=0.2, is_restart=True),))
    )
    at_restart = restarted.advised("s3_upload", SIZE, at_days=0.2)
    soon_after = restarted.advised("s3_upload", SIZE, at_days=0.201)

    assert at_restart is not None
    assert soon_after is not None
    assert soon_after.setting == at_restart.setting
    before = [o.started_at < START_AT + timedelta(days=0.2) for o in restarted.observations]
    assert before.count(True) > 5
    assert False in before


def test_the_budget_is_never_exceeded() -> None:
    """However often probes are due, no 24 hours cost more than is allowed, with the way of each byte in it."""
    budget = BudgetSection(transferred_bytes_per_day=4 * GiB, usd_per_day=0.01)
    section = ObjectSection(bucket=BUCKET, object_size_bytes=(SIZE,), network_path="nat-gateway")
    days = play(
        Scenario(link=worlds.NEAR.link, days=1.5, seed=3, budget=budget, sections={"s3_upload": section})
    )
    nat_usd_per_byte = 0.045e-9
    moved_usd = sum(o.measures["attempted_bytes"] for o in days.observations) * nat_usd_per_byte
    assert 0.0 < moved_usd < sum(s.cost.usd for s in days.spends)
    in_order = sorted(days.spends, key=lambda spend: spend.hour_at)
    for index, first in enumerate(in_order):
        window = [s for s in in_order[index:] if (s.hour_at - first.hour_at).total_seconds() < 86400]
        assert sum(s.cost.transferred_bytes for s in window) <= 4 * GiB
        assert sum(s.cost.usd for s in window) <= 0.01


@pytest.mark.days
def test_a_budget_that_is_too_small_lasts_the_day() -> None:
    """Intervals ask for seven times as many probes as it pays for; advice that holds for six hours never expires."""
    section = ObjectSection(bucket=BUCKET, object_size_bytes=(SIZE,), network_path="gateway-endpoint")
    small = BudgetSection(transferred_bytes_per_day=3 * GiB)
    days = play(
        Scenario(
            link=worlds.NEAR.link,
            days=2.0,
            seed=3,
            budget=small,
            sections={"s3_upload": section},
            advice=AdviceSection(fit_observation_count_max=15),
        )
    )
    moments = [START_AT, *(o.started_at for o in days.observations), START_AT + timedelta(days=2)]
    assert max(later - earlier for earlier, later in pairwise(moments)) < timedelta(hours=6)
    hour = START_AT + timedelta(hours=1)
    assert sum(o.started_at < hour for o in days.observations) > 10, "what is new is learned at once"


@pytest.mark.days
def test_throttling_does_not_stop_the_days() -> None:
    """Under a low request limit it goes on measuring, and leaves nothing behind."""
    days = play(Scenario(link=worlds.THROTTLED.link, queue=worlds.THROTTLED.queue, days=0.15, seed=2))
    assert len(days.observations) > 6
    assert days.leftover_names == ()


def beside(*neighbours: Neighbour) -> Week:
    """A quarter of an hour on a host of a known type, with a probe every minute or so; it carries 94 MB/s.

    What is proposed is left to chance, for what is learned meanwhile took half of the time.
    """
    link = dataclasses.replace(
        worlds.NEAR.link, host_rate_bytes_per_second=93.75e6, connection_rate_bytes_per_second=10e6
    )
    uploads = ObjectSection(
        bucket=BUCKET, object_size_bytes=(256 * MiB,), mean_interval_seconds=75.0, usd_per_day=10.0
    )
    return play(
        Scenario(
            link=link,
            days=15 / 1440,
            seed=3,
            neighbours=neighbours,
            instance_type="c5.large",
            sections={"s3_upload": uploads},
            budget=BudgetSection(usd_per_day=10.0, credit_fraction_per_day=1.0, duty_cycle_fraction=0.5),
            thinker=DiceThinker,
        )
    )


def test_probes_wait_while_others_use_the_network() -> None:
    """Six connections fill two thirds of the host: no probe begins beside them, and they go on after them."""
    days = beside(Neighbour(connection_count=6, from_days=5 / 1440, to_days=10 / 1440))
    during = [c for c in days.cycles if 5.5 < (c.at - START_AT).total_seconds() / 60 < 10]
    after = [c for c in days.cycles if (c.at - START_AT).total_seconds() / 60 > 11]
    assert during
    assert all("keeps its network" in c.sentence for c in during)
    assert any(isinstance(c.outcome, Observation) for c in after)


def test_a_probe_that_crowds_an_application_out_is_broken_off() -> None:
    """Two connections are a fifth of the host, so probes begin; one that leaves them less than half of it ends early.

    What it moved is booked, nothing is left of it, and the application has its rate back.
    """
    days = beside(Neighbour(connection_count=2, from_days=0.0, to_days=15 / 1440))
    broken_off = [c.outcome for c in days.cycles if isinstance(c.outcome, Inconclusive)]
    assert broken_off
    assert all(outcome.reason.startswith("broken off: other traffic on this host") for outcome in broken_off)
    assert all(outcome.transferred_bytes > 0 for outcome in broken_off)
    assert sum(s.cost.transferred_bytes for s in days.spends) >= sum(o.transferred_bytes for o in broken_off)
    assert days.leftover_names == ()
    assert days.observations, "gentle probes go on"


@pytest.mark.timeout(400)  # a week takes its time on a busy machine
@pytest.mark.parametrize(
    ("world", "least"),
    [
        pytest.param(worlds.NEAR, 0.97, id="near", marks=pytest.mark.days),
        # Far away each connection more brings a little, and the last few hundredths are not worth theirs.
        pytest.param(worlds.CROSS_REGION, 0.92, id="cross-region", marks=pytest.mark.long),
    ],
)
def test_a_week_of_downloads_reaches_the_best(world: worlds.World, least: float) -> None:
    """Downloads alone are probed and advised as uploads are; what was put to be read is gone at the end."""
    seldom = DownloadSection(bucket=BUCKET, object_size_bytes=(SIZE,), mean_interval_seconds=4 * 3600.0)
    days = play(Scenario(inbound=world.inbound, days=7.0, seed=7, sections={DOWNLOAD.name: seldom}))
    reached = [days.fraction_of_best(SIZE, at_days=day, operation=DOWNLOAD.name) for day in (3, 5, 7)]
    assert sum(reached) / len(reached) > least
    assert days.leftover_names == ()


def test_what_is_read_does_not_outlive_a_restart() -> None:
    """A daemon that stops removes what it put, and the next one puts it again; also when uploads are probed beside."""
    days = play(
        Scenario(
            link=worlds.NEAR.link,
            inbound=worlds.NEAR.inbound,
            days=0.25,
            seed=9,
            changes=(At(days=0.12, is_restart=True),),
            thinker=DiceThinker,
        )
    )
    downloads = [o for o in days.observations if o.context.operation == DOWNLOAD.name]
    put = [o for o in downloads if o.measures["attempted_bytes"] > o.transferred_bytes]
    assert len(put) == 2
    assert len(downloads) > 4
    assert days.leftover_names == ()
