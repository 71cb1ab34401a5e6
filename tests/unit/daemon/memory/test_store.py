"""The store: what goes in comes out, and trouble with the disk costs as little as possible."""

import asyncio
import contextlib
import dataclasses
import errno
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.daemon.memory import database
from penstock.daemon.memory.async_store import WAITING_REPORT_COUNT_MAX, AsyncStore
from penstock.daemon.memory.database import (
    DiskTrouble,
    Lost,
    StoreDenied,
    StoreError,
    StoreForeign,
    StoreInUse,
    StoreMissing,
    StoreTooNew,
    holder,
)
from penstock.daemon.memory.rows import Row
from penstock.daemon.memory.store import Store
from penstock.daemon.spending.budget import hour_of
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Estimate,
    Histogram,
    Moved,
    Objective,
    Origin,
    Pairs,
    Place,
    Spend,
)
from tests.factories import (
    CONTEXT,
    NOON,
    PLACE,
    SETTING_TYPES,
    a_change,
    a_context,
    a_fit,
    a_leftover,
    a_recommendation,
    an_inconclusive,
    an_observation,
)
from tests.waiting import comes

MINUTE = timedelta(minutes=1)
INSTALLING = (Path(__file__).parents[4] / "docs" / "installing.md").read_text(encoding="utf-8")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database is."""
    return tmp_path / "state" / "penstock.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store(path, SETTING_TYPES)
    yield store
    store.close()


def _fill_disk(store: Store) -> None:
    store._database.rows("PRAGMA max_page_count = 1")  # SQLite takes the present size as the least


def _free_disk(store: Store) -> None:
    store._database.rows("PRAGMA max_page_count = 1000000")


def test_observations_come_back_as_they_were(store: Store) -> None:
    """Every field survives, with the type of the operation's own setting."""
    s3 = an_observation(
        measures={"a": 1.5},
        client="boto3",
        throttled_count=3,
        histograms={"request_seconds": Histogram(-40, (1, 0, 2))},
        successive=Pairs(3, 1.0, 2.0, -0.5),
    )
    report = an_observation(origin=Origin.APPLICATION, client="boto3", reporter_uid=1001)
    place = Place(operation="sqs_delivery", region="r", instance_type="unknown", service_class="fifo")
    sqs = an_observation(
        context=Context(place=place, payload_size_bytes=1024),
        setting=SqsDeliverySetting(**dict.fromkeys(SqsDeliverySetting.__dataclass_fields__, 4)),
    )
    store.add_observations([s3, report, sqs])
    assert store.observations(PLACE, count_max=9) == [s3]
    assert store.reports(PLACE, count_max=9, count_max_per_user=9) == [report]
    assert store.observations(place, count_max=9) == [sqs]


def test_newest_observations_oldest_first(store: Store) -> None:
    """A fit gets the newest of a place in the order of their dates, whatever the order of arrival."""
    early, late, later = (an_observation(started_at=NOON + n * MINUTE) for n in range(3))
    store.add_observations([later, early, late])
    assert store.observations(PLACE, count_max=2) == [late, later]


def test_a_number_that_is_not_finite_is_refused(store: Store) -> None:
    """What could not be read back is refused where it comes in, and harms no other."""
    with pytest.raises(ValueError, match="this observation cannot be stored"):
        store.add_observations([an_observation(duration_seconds=float("nan"))])
    assert store.summaries() == []


def test_an_unknown_operation_is_refused(store: Store) -> None:
    """Nobody can store what this program has no type for."""
    context = a_context(place=Place(operation="ec2_dance", region="r", instance_type="i"))
    with pytest.raises(ValueError, match="'ec2_dance' is not an operation"):
        store.add_observations([an_observation(context=context)])


def test_rows_that_this_program_cannot_read_are_left_out(store: Store) -> None:
    """A row that another version wrote costs that row, and is counted."""
    store.add_observations([an_observation()])
    store._database.write(lambda c: c.execute("UPDATE observations SET document = '{}'"))
    assert store.observations(PLACE, count_max=9) == []
    assert store.unreadable_count == 1


def test_advice_that_a_version_without_gains_stored_is_read(store: Store) -> None:
    """What was not known then is not known now; the rest of it stands."""
    advice = a_recommendation(gain_over_default=Estimate(1.5, 2.0, 2.5))
    store.add_recommendation(advice)
    assert store.recommendations() == [advice]
    store._database.write(
        lambda c: c.execute(
            "UPDATE recommendations SET document = json_remove(document, '$.gain_over_default')"
        )
    )
    assert store.recommendations() == [a_recommendation()]


def test_newest_fit_and_advice_of_each_question(store: Store) -> None:
    """A restart advises from the newest of each place, context and demand."""
    frugal = a_recommendation(demand=Demand(objective=Objective.FRUGAL))
    old, new = a_recommendation(observation_count=1), a_recommendation(observation_count=2)
    for recommendation in (old, frugal, new):
        store.add_recommendation(recommendation)
    store.add_fit(a_fit(observation_count=1), fitted_at=NOON)
    store.add_fit(a_fit(observation_count=2), fitted_at=NOON)
    assert store.fits() == [a_fit(observation_count=2)]
    assert sorted(store.recommendations(), key=lambda r: r.demand.objective) == [frugal, new]
    assert store.recommendation_history(CONTEXT, count_max=9) == [old, frugal, new]
    assert store.recommendation_history(CONTEXT, count_max=2) == [frugal, new]


def test_a_fit_keeps_what_it_hands_on(store: Store) -> None:
    """After a restart a neighbour learns from the same as before."""
    fit = a_fit(alone=a_fit(observation_count=2), is_from_reports=True)
    store.add_fit(fit, fitted_at=NOON)
    assert store.fits() == [fit]


def test_inconclusive_probes_are_kept_and_shown(store: Store) -> None:
    """They are stored beside the observations, never among them."""
    store.add_inconclusive(an_inconclusive())
    assert store.inconclusives(count_max=9) == [an_inconclusive()]
    assert store.observations(PLACE, count_max=9) == []


def test_journal_keeps_until_struck(store: Store) -> None:
    """An entry recorded twice is one entry, and goes once it is struck."""
    one, other = a_leftover(name="1"), a_leftover(name="2")
    for leftover in (one, one, other):
        store.record_leftover(leftover, now=NOON)
    store.strike_leftover(one)
    assert store.open_leftovers() == [other]


def test_spend_adds_up_by_hour(store: Store) -> None:
    """A reservation and its settlement are one row."""
    for usd in (0.5, -0.25):
        store.add_spend(Spend(hour_at=NOON, operation="s3_upload", cost=Cost(usd=usd, request_count=2)))
    (spend,) = store.spend()
    assert spend.cost == Cost(usd=0.25, request_count=4)
    assert store.spend(since=NOON + MINUTE) == []


def test_attempts_are_counted_for_each_context(store: Store) -> None:
    """The count of the schedule survives the pruning of what was measured."""
    store.add_attempt(CONTEXT, at=NOON)
    store.add_attempt(CONTEXT, at=NOON + MINUTE)
    store.prune(now=NOON + timedelta(days=999), retention_seconds=1)
    (attempts,) = store.attempts()
    assert (attempts.context, attempts.attempt_count, attempts.last_at) == (CONTEXT, 2, NOON + MINUTE)


def test_pruning_forgets_the_old_and_keeps_what_a_restart_needs(store: Store) -> None:
    """The newest fit and advice of each question stay whatever their age; so does the journal."""
    store.add_observations([an_observation(), an_observation(started_at=NOON + timedelta(days=9))])
    for count in (1, 2):
        store.add_fit(a_fit(observation_count=count), fitted_at=NOON)
        store.add_recommendation(a_recommendation(observation_count=count))
    store.record_leftover(a_leftover(), now=NOON)
    assert store.prune(now=NOON + timedelta(days=9), retention_seconds=86400) == 3
    assert store.prune(now=NOON + timedelta(days=9), retention_seconds=86400) == 0
    assert len(store.observations(PLACE, count_max=9)) == 1
    assert store.fits() == [a_fit(observation_count=2)]
    assert store.recommendations() == [a_recommendation(observation_count=2)]
    assert store.open_leftovers() == [a_leftover()]


def test_what_a_place_is_learned_from_stays_whatever_its_age(store: Store) -> None:
    """A host that was off for a season, or whose clock is ahead, does not begin again with nothing."""
    elsewhere = a_context(place=dataclasses.replace(PLACE, region="eu-west-1"))
    store.add_observations([an_observation(started_at=NOON + n * MINUTE) for n in range(5)])
    store.add_observations([an_observation(context=elsewhere)])
    while store.prune(now=NOON + timedelta(days=999), retention_seconds=86400, kept_count=2):
        pass
    kept = [o.started_at for o in store.observations(PLACE, count_max=9)]
    assert kept == [NOON + 3 * MINUTE, NOON + 4 * MINUTE]
    assert len(store.observations(elsewhere.place, count_max=9)) == 1


def test_what_is_dated_ahead_takes_no_room_of_what_is_asked_for(store: Store) -> None:
    """Measurements and reports that a clock dated which was ahead are not the newest until it has passed them."""
    moments = [NOON, NOON + timedelta(days=400)]
    store.add_observations([an_observation(started_at=at) for at in moments])
    store.add_observations([an_observation(started_at=at, origin=Origin.APPLICATION) for at in moments])
    assert [o.started_at for o in store.observations(PLACE, count_max=1, until=NOON)] == [NOON]
    assert [o.started_at for o in store.observations(PLACE, count_max=1)] == moments[1:]
    reports = store.reports(PLACE, count_max=1, count_max_per_user=1, until=NOON)
    assert [o.started_at for o in reports] == [NOON]


def test_numbers_are_bounded_whatever_the_age(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications that report without end fill no disk; the newest stay."""
    for name in (
        "OBSERVATION_COUNT_MAX",
        "INCONCLUSIVE_COUNT_MAX",
        "FIT_COUNT_MAX",
        "RECOMMENDATION_COUNT_MAX",
    ):
        monkeypatch.setattr(f"penstock.daemon.memory.retention.{name}", 2)
    for number in range(5):
        store.add_observations([an_observation(started_at=NOON + number * MINUTE)])
        store.add_inconclusive(an_inconclusive(started_at=NOON + number * MINUTE))
        store.add_fit(a_fit(observation_count=number), fitted_at=NOON)
        store.add_recommendation(a_recommendation(observation_count=number))
    assert store.prune(now=NOON, retention_seconds=86400) == 4 * 3
    assert [o.started_at for o in store.observations(PLACE, count_max=9)] == [
        NOON + 3 * MINUTE,
        NOON + 4 * MINUTE,
    ]
    assert store.fits() == [a_fit(observation_count=4)]
    assert len(store.recommendation_history(CONTEXT, count_max=9)) == 2


def test_a_change_that_is_described_anew_displaces_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often: it is one change."""
    monkeypatch.setattr("penstock.daemon.memory.retention.CHANGE_COUNT_MAX", 2)
    store.put_change(a_change(noticed_at=NOON - MINUTE))
    for _ in range(9):
        store.put_change(a_change())
    store.prune(now=NOON, retention_seconds=86400)
    assert len(store.changes(count_max=9)) == 2


def test_pruning_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction deletes more than its share; the caller comes again."""
    monkeypatch.setattr("penstock.daemon.memory.store.PRUNED_COUNT_MAX", 2)
    store.add_observations([an_observation()] * 5)
    later = NOON + timedelta(days=1)
    assert [store.prune(now=later, retention_seconds=1) for _ in range(4)] == [2, 2, 1, 0]


def test_what_a_budget_counts_stays_whatever_the_clock_says(store: Store) -> None:
    """A clock that stands years ahead for an hour must not have today's money spent twice once it is right again."""
    spends = [Spend(hour_at=NOON, operation="s3_upload", cost=Cost(usd=0.5))]
    store.add_spend(spends[0])
    store.prune(now=NOON + timedelta(days=4000), retention_seconds=86400)
    assert store.newest_spend() == spends


def test_spend_is_bounded_by_its_age(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what a ledger holds."""
    monkeypatch.setattr("penstock.daemon.memory.retention.ROW_COUNT_MAX", 1)
    hours = [NOON, NOON + timedelta(hours=1)]
    for hour_at in hours:
        store.add_spend(Spend(hour_at=hour_at, operation="s3_upload", cost=Cost(usd=0.5)))
    store.prune(now=NOON + timedelta(days=4000), retention_seconds=86400)
    assert [spend.hour_at for spend in store.spend()] == hours[1:]


@pytest.mark.parametrize("is_rescued", [False, True])
def test_what_is_forgotten_is_given_back_to_the_disk(path: Path, *, is_rescued: bool) -> None:
    """A few pages at a time, also of a file that came in the place of a broken one; a fifth is kept for more."""
    if is_rescued:
        path.parent.mkdir()
        path.write_bytes(b"no database" * 999)
    with closing(Store(path, SETTING_TYPES)) as store:
        store.add_observations([an_observation(started_at=NOON + n * MINUTE) for n in range(5000)])
        store._database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        before_bytes = path.stat().st_size
        while store.prune(now=NOON + timedelta(days=99), retention_seconds=86400, kept_count=10):
            pass
        step_count = 1
        while store.shrink():
            step_count += 1
        store._database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        assert step_count > 2
        assert path.stat().st_size < before_bytes / 2
        assert len(store.observations(PLACE, count_max=99)) == 10


def test_a_backup_of_a_store_in_use_holds_all_of_it(store: Store, path: Path, tmp_path: Path) -> None:
    """As the page on installing has it: by SQLite, for what is in the journal beside the file is a part of it."""
    (line,) = re.findall(r"^sudo python3 -c '(.+)'$", INSTALLING, re.MULTILINE)
    store.add_observations([an_observation()])
    copy = tmp_path / "copy.db"
    to, source = re.findall(r'connect\("(.+?)"\)', line)
    line = line.replace(source, str(path)).replace(to, str(copy))
    exec(line, {})  # noqa: S102 - our own page
    with closing(Store.open_read_only(copy, SETTING_TYPES)) as copied:
        assert copied.observations(PLACE, count_max=9) == store.observations(PLACE, count_max=9) != []


def test_the_copy_from_before_an_upgrade_goes_when_nobody_goes_back_any_more(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a month of work with what came after it: a clock that leaps ahead, or a host that was off, is none."""
    Store(path, SETTING_TYPES).close()
    steps = database.migrations() | {99: "CREATE TABLE extra (x INTEGER);"}
    monkeypatch.setattr(database, "migrations", lambda: steps)
    with closing(Store(path, SETTING_TYPES)) as store:
        (copy,) = path.parent.glob("penstock.db.before-*")
        made_at = datetime.fromtimestamp(copy.stat().st_mtime, UTC)
        for days in (0, *range(2, 30), 4000):
            moment = hour_of(made_at + timedelta(days=days, hours=1))
            store.add_spend(Spend(hour_at=moment, operation="s3_upload", cost=Cost()))
        store.remove_old_copies()
        assert copy.exists()
        store.add_spend(
            Spend(hour_at=hour_of(made_at + timedelta(days=40)), operation="s3_upload", cost=Cost())
        )
        store.remove_old_copies()
        assert not copy.exists()


def test_summaries_count_what_is_known(store: Store) -> None:
    """Each context with how much is known of it and how new that is."""
    store.add_observations([an_observation(), an_observation(started_at=NOON + MINUTE)])
    (summary,) = store.summaries()
    assert (summary.context, summary.observation_count) == (CONTEXT, 2)
    assert summary.newest_observation_at == NOON + MINUTE


def test_a_full_disk_keeps_measurements_in_memory(path: Path) -> None:
    """While the disk is full, answers include what waits; when there is room again, all of it is written."""
    store = Store(path, SETTING_TYPES)
    _fill_disk(store)
    observations = [an_observation(started_at=NOON + n * MINUTE) for n in range(500)]
    store.add_observations(observations)
    store.add_fit(a_fit(), fitted_at=NOON)
    store.add_recommendation(a_recommendation())
    assert "the disk is full: free some space" in (store.trouble or "")
    assert store.observations(PLACE, count_max=1000) == observations
    assert (store.fits(), store.recommendations()) == ([a_fit()], [a_recommendation()])
    _free_disk(store)
    assert store.flush()
    assert store.trouble is None
    store.close()
    again = Store.open_read_only(path, SETTING_TYPES)
    assert again.observations(PLACE, count_max=1000) == observations
    again.close()


def test_memory_for_a_full_disk_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest make room, and are counted."""
    monkeypatch.setattr("penstock.daemon.memory.store.PENDING_COUNT_MAX", 300)
    _fill_disk(store)
    store.add_observations([an_observation(started_at=NOON + n * MINUTE) for n in range(500)])
    assert store.dropped_count == 200
    assert store.observations(PLACE, count_max=999)[0].started_at == NOON + 200 * MINUTE
    _free_disk(store)


def test_a_full_disk_refuses_what_comes_before_an_act(store: Store) -> None:
    """What cannot be written in the journal is not created."""
    _fill_disk(store)
    store.record_leftover(a_leftover(), now=NOON)  # there is room for it in a page that is already there
    with pytest.raises(DiskTrouble, match="free some space"):
        store.record_leftover(a_leftover(name="x" * 100_000), now=NOON)
    assert store.open_leftovers() == [a_leftover()]
    _free_disk(store)


def test_a_second_daemon_is_refused(store: Store, path: Path) -> None:
    """One state directory has one writer; the message names it."""
    with pytest.raises(StoreInUse, match=r"another penstockd \(process \d+\).*daemon\.state_directory"):
        Store(path, SETTING_TYPES)


def test_a_lock_that_is_a_link_is_not_followed(path: Path) -> None:
    """Root may clean up in the folder of the daemon's user, who must not choose what root overwrites."""
    precious = path.parent.with_name("precious")
    precious.write_text("kept", encoding="utf-8")
    path.parent.mkdir()
    database._lock_path(path).symlink_to(precious)
    with pytest.raises(DiskTrouble, match="symbolic link"):
        Store(path, SETTING_TYPES)
    assert precious.read_text(encoding="utf-8") == "kept"


def test_a_newer_database_is_refused_and_left_alone(path: Path) -> None:
    """An older program does not touch what it does not understand."""
    Store(path, SETTING_TYPES).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 999")
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match="install the newer penstock"):
        Store(path, SETTING_TYPES)
    with pytest.raises(StoreTooNew):
        Store.open_read_only(path, SETTING_TYPES)
    assert path.read_bytes() == before


def test_who_goes_back_is_told_of_the_copy_from_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several upgrades, of the first that it cannot read: what it is told to put back is a database of its own."""
    known = newer = database.migrations()
    Store(path, SETTING_TYPES).close()
    for version in (98, 99):
        newer = newer | {version: f"CREATE TABLE newer_{version} (id INTEGER);"}
        monkeypatch.setattr(database, "migrations", lambda newer=newer: newer)
        Store(path, SETTING_TYPES).close()
    monkeypatch.setattr(database, "migrations", lambda: known)
    copy = path.with_name(f"{path.name}.before-0098")
    with pytest.raises(StoreTooNew, match=f"put {copy}, which is from before"):
        Store(path, SETTING_TYPES)
    copy.replace(path)
    Store(path, SETTING_TYPES).close()


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    """It has tables, and no version of ours: nothing is added to it, whatever it may be."""
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE notes (text)")
    before = path.read_bytes()
    with pytest.raises(StoreForeign, match="of another program"):
        Store(path, SETTING_TYPES)
    assert path.read_bytes() == before


def test_reading_changes_nothing_and_runs_beside_a_daemon(store: Store, path: Path) -> None:
    """The report reads the newest committed state, and cannot write."""
    store.add_observations([an_observation()])
    reader = Store.open_read_only(path, SETTING_TYPES)
    assert reader.observations(PLACE, count_max=9) == [an_observation()]
    store.add_fit(a_fit(), fitted_at=NOON)
    assert reader.fits() == [a_fit()]
    with pytest.raises(DiskTrouble, match="for reading only"):
        reader.record_leftover(a_leftover(), now=NOON)
    reader.close()


def test_reading_without_a_database(path: Path) -> None:
    """A report before the first start says what to do."""
    with pytest.raises(StoreMissing, match="start penstockd"):
        Store.open_read_only(path, SETTING_TYPES)
    assert not path.exists()


def test_what_cannot_be_opened_is_not_called_broken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory, and a file of somebody else's: each with what to do."""
    Store(path, SETTING_TYPES).close()
    with pytest.raises(StoreDenied, match="is a directory: name the database in it"):
        Store.open_read_only(path.parent, SETTING_TYPES)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StoreDenied, match="sudo -u penstock"):
        Store.open_read_only(path, SETTING_TYPES)


@pytest.mark.parametrize("full", [errno.ENOSPC, errno.EDQUOT])
def test_a_directory_without_room_is_not_called_read_only(
    path: Path, monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    """Of a full inode table it was said to make it writable, while `df` showed free space."""

    def refuse(*_arguments: object) -> int:
        raise OSError(full, os.strerror(full))

    with monkeypatch.context() as without_room:
        without_room.setattr(os, "open", refuse)
        with pytest.raises(DiskTrouble, match=r"free space, inodes \(df -i\) or quota"):
            Store(path, SETTING_TYPES)
    Store(path, SETTING_TYPES).close()


@pytest.mark.parametrize("damage", ["header", "journal page", "truncated", "noise"])
def test_a_broken_database_is_set_aside_and_its_journal_saved(path: Path, damage: str) -> None:
    """The daemon goes on with an empty one; whatever may be outside is still known where bytes of it are left."""
    store = Store(path, SETTING_TYPES)
    store.record_leftover(a_leftover(name='a "quoted" name'), now=NOON)
    store.add_observations([an_observation()] * 200)
    store.close()
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[:100] = bytes(100)
    elif damage == "journal page":
        content[100:4096] = b"\xff" * 3996
    elif damage == "truncated":
        del content[len(content) // 2 :]
    else:
        content = bytearray(b"nothing of it is left " * 999)
    path.write_bytes(content)
    again = Store(path, SETTING_TYPES)
    (notice,) = again.take_notices()
    assert "was broken" in notice
    assert len(list(path.parent.glob("penstock.db.corrupt-*Z"))) == 1
    assert again.open_leftovers() == ([] if damage == "noise" else [a_leftover(name='a "quoted" name')])
    assert again.observations(PLACE, count_max=9) == []
    again.add_observations([an_observation()])
    assert (len(again.observations(PLACE, count_max=9)), again.take_notices()) == (1, [])
    again.close()


@pytest.mark.parametrize("is_in_use", [False, True])
def test_a_broken_database_stays_where_it_is_while_the_disk_is_full(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_in_use: bool
) -> None:
    """Its journal is in no other file before it is all in the new one."""
    store = Store(path, SETTING_TYPES)
    store.record_leftover(a_leftover(), now=NOON)
    store.add_observations([an_observation()] * 500)
    store._database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    store._database.rows("PRAGMA cache_size = 1")
    if not is_in_use:
        store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xaa" * (size // 4))

    def refuse(_connection: sqlite3.Connection) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as full:
        full.setattr("penstock.daemon.memory.database.migrate", refuse)
        for _ in range(2):
            with pytest.raises(DiskTrouble, match="free some space"):
                store.observations(PLACE, count_max=999) if is_in_use else Store(path, SETTING_TYPES)
    if not is_in_use:
        store = Store(path, SETTING_TYPES)
    assert store.observations(PLACE, count_max=999) == []
    assert store.open_leftovers() == [a_leftover()]
    store.close()


@pytest.mark.parametrize("pattern", ["penstock.db*", "penstock.db", "penstock.db-wal"])
def test_a_database_that_is_removed_while_in_use(path: Path, pattern: str) -> None:
    """All that was in it, and what comes after, is there for the next life."""
    store = Store(path, SETTING_TYPES)
    store.record_leftover(a_leftover(), now=NOON)
    store.add_observations([an_observation()])
    for file in path.parent.glob(pattern):
        if file.suffix != ".lock":
            file.unlink()
    store.add_observations([an_observation(started_at=NOON + MINUTE)])
    store.close()
    again = Store(path, SETTING_TYPES)
    assert again.take_notices() == []
    assert len(again.observations(PLACE, count_max=9)) == 2
    assert again.open_leftovers() == [a_leftover()]
    again.close()


def test_who_removes_the_lock_with_the_database_lets_in_nobody(store: Store, path: Path) -> None:
    """All files of the state directory are gone, and its daemon lives: another one would remove what it uses."""
    for file in path.parent.iterdir():
        file.unlink()
    store.add_observations([an_observation()])
    assert holder(path) == str(os.getpid())
    with pytest.raises(StoreInUse):
        Store(path, SETTING_TYPES)


def test_a_database_that_is_replaced_while_in_use(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A copy of it is put in its place: what was measured since stays, and so does the copy."""
    store = Store(path, SETTING_TYPES)
    store.record_leftover(a_leftover(), now=NOON)
    copy = path.with_name("copy")
    with (
        contextlib.closing(sqlite3.connect(path)) as live,
        contextlib.closing(sqlite3.connect(copy)) as backup,
    ):
        live.backup(backup)
    store.add_observations([an_observation()])
    copy.replace(path)
    store.add_observations([an_observation(started_at=NOON + MINUTE)])
    assert "stop penstockd before that" in caplog.text
    with contextlib.closing(sqlite3.connect(path)) as killed:  # whoever opens it next finds all of it
        assert killed.execute("SELECT count(*) FROM observations").fetchall() == [(2,)]
        assert killed.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()
    again = Store(path.with_name(f"{path.name}.replaced"), SETTING_TYPES)
    assert again.observations(PLACE, count_max=9) == []
    assert again.open_leftovers() == [a_leftover()]
    again.close()


def test_a_directory_that_may_not_be_looked_into_is_trouble(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is no removed database; an open one goes on."""
    store = Store(path, SETTING_TYPES)
    stat = Path.stat

    def refuse(asked: Path, **named: Any) -> os.stat_result:
        if asked == path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(asked, **named)

    with monkeypatch.context() as closed:
        closed.setattr(Path, "stat", refuse)
        store.add_observations([an_observation()])
        assert len(store.observations(PLACE, count_max=9)) == 1
        store.close()


def test_a_database_that_breaks_while_in_use(path: Path) -> None:
    """What is damaged under a running daemon is replaced, and the daemon goes on."""
    store = Store(path, SETTING_TYPES)
    store.record_leftover(a_leftover(), now=NOON)
    store.add_observations([an_observation()] * 500)
    store._database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    store._database.rows("PRAGMA cache_size = 1")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (size // 2))
    assert store.observations(PLACE, count_max=999) == []
    store.add_observations([an_observation()])
    assert len(store.observations(PLACE, count_max=999)) == 1
    assert "was broken" in store.take_notices()[0]
    store.close()


@pytest.mark.parametrize("is_in_use", [False, True])
@pytest.mark.parametrize("is_cut_off", [False, True])
def test_what_was_spent_is_saved_out_of_a_broken_database(
    path: Path, is_in_use: bool, is_cut_off: bool
) -> None:
    """Otherwise each file that breaks would let the budget of a day be spent once more."""
    store = Store(path, SETTING_TYPES)
    spend = Spend(hour_at=hour_of(NOON), operation="s3_upload", cost=Cost(usd=0.04, request_count=9))
    store.add_spend(spend)
    store.add_observations([an_observation()] * 500)
    store._database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    store._database.rows("PRAGMA cache_size = 1")
    if not is_in_use:
        store.close()
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size // 2)
        file.truncate() if is_cut_off else file.write(b"\xaa" * (size // 2))
    if not is_in_use:
        store = Store(path, SETTING_TYPES)
    assert store.observations(PLACE, count_max=999) == []
    assert store.newest_spend() == [spend]
    assert "what was spent were saved" in store.take_notices()[0]
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE leftovers SET document = substr(document, 2)",
        "UPDATE leftovers SET recorded_at = 'some day'",
        "UPDATE leftovers SET document = CAST(x'7bff7d' AS TEXT)",
        "UPDATE spend SET hour_at = '2026-03-01T12:00:00'",
        "UPDATE spend SET usd = 'dear'",
        "UPDATE attempts SET payload_size_bytes = 'large'",
        "UPDATE attempts SET last_at = NULL",
        "UPDATE observations SET document = CAST(x'ff' AS TEXT), started_at = CAST(x'ff' AS TEXT)",
        "UPDATE fits SET document = 7",
    ],
)
def test_a_damaged_row_is_left_out_and_the_log_told_once(
    path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """SQLite has no checksums: a bit that flips in a row ends no start, and takes no other row along."""
    with closing(Store(path, SETTING_TYPES)) as store:
        store.record_leftover(a_leftover(), now=NOON)
        store.add_spend(Spend(hour_at=NOON, operation="s3_upload", cost=Cost(usd=1.0)))
        store.add_attempt(CONTEXT, at=NOON)
        store.add_observations([an_observation()])
        store.add_fit(a_fit(), fitted_at=NOON)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute(damage.replace(" SET last_at = NULL", " SET last_at = 'never'"))
        connection.commit()
    with closing(Store(path, SETTING_TYPES)) as store:
        for _ in range(2):
            rows = (store.open_leftovers(), store.spend(), store.attempts(), store.fits(), store.summaries())
            found: list[Sequence[Any]] = [*rows, store.observations(PLACE, count_max=9)]
        assert store.unreadable_count > 0
        assert [len(some) for some in found].count(0) in {1, 2}  # an observation is asked for in two ways
        store.add_observations([an_observation()])
    assert caplog.text.count("what cannot be read is left out") <= 1
    Store.open_read_only(path, SETTING_TYPES).close()


def is_open(path: Path) -> bool:
    """Whether this process holds the file open."""
    return str(path) in {os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("name", [b"recorded_at", b"leftovers"])
def test_a_database_whose_names_are_damaged_is_broken(path: Path, name: bytes) -> None:
    """To SQLite a column or a table of another name is in order; every question about it would fail for ever."""
    Store(path, SETTING_TYPES).close()
    path.write_bytes(path.read_bytes().replace(name, b"x" * len(name)))
    with pytest.raises(DiskTrouble):
        Store.open_read_only(path, SETTING_TYPES)
    with closing(Store(path, SETTING_TYPES)) as store:
        assert "was broken (it has no leftovers" in store.take_notices()[0]
        store.record_leftover(a_leftover(), now=NOON)


@pytest.mark.parametrize("noise", [b"\xff\xfe\xfd", b"\xc0\xaf\x98"])
def test_a_broken_schema_that_is_no_text_is_broken(path: Path, noise: bytes) -> None:
    """What SQLite says of it cannot even be decoded; that is no fault of the program."""
    Store(path, SETTING_TYPES).close()
    path.write_bytes(path.read_bytes().replace(b"TABLE leftovers", b"TA" + noise * 2 + b"leftove"))
    with pytest.raises(StoreError) as refusal:
        Store.open_read_only(path, SETTING_TYPES)
    assert refusal.tb is not None  # it keeps alive what was not closed
    assert not is_open(path)
    with closing(Store(path, SETTING_TYPES)) as store:
        assert "was broken" in store.take_notices()[0]


def test_broken_files_do_not_pile_up(path: Path) -> None:
    """The newest few are evidence; the rest is a full disk in the making."""
    for _ in range(database.BROKEN_FILE_COUNT_MAX + 2):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"noise" * 1000)
        Store(path, SETTING_TYPES).close()
    assert len(list(path.parent.glob("*.corrupt-*"))) == database.BROKEN_FILE_COUNT_MAX


def test_migration_keeps_a_copy_and_reaches_the_present(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older file is copied, then brought forward; what was in it stays."""
    store = Store(path, SETTING_TYPES)
    store.add_observations([an_observation()])
    store.close()
    steps = database.migrations() | {99: "CREATE TABLE extra (x INTEGER);"}
    monkeypatch.setattr(database, "migrations", lambda: steps)
    older = Store.open_read_only(path, SETTING_TYPES)
    assert older.observations(PLACE, count_max=9) == [an_observation()]
    older.close()
    again = Store(path, SETTING_TYPES)
    assert "brought from version" in again.take_notices()[0]
    assert again.observations(PLACE, count_max=9) == [an_observation()]
    assert again._database.rows("PRAGMA user_version") == [(99,)]
    assert len(list(path.parent.glob("penstock.db.before-*"))) == 1
    again.close()


def test_a_database_of_the_version_before_changes_were_kept(path: Path) -> None:
    """What was measured then has no histograms, and is read; a change can be written down beside it."""
    with closing(Store(path, SETTING_TYPES)) as store:
        store.add_observations([an_observation()])
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """UPDATE observations SET document = json_remove(document, '$.histograms', '$.successive');
               DROP INDEX fits_by_date; DROP TABLE changes; DROP TABLE backlogs; DROP TABLE client_hours;
               DROP TABLE harms; PRAGMA user_version = 2;"""
        )
    with closing(Store.open_read_only(path, SETTING_TYPES)) as older:
        assert older.observations(PLACE, count_max=9) == [an_observation()]
        assert older.changes(count_max=9) == []
    with closing(Store(path, SETTING_TYPES)) as store:
        assert "brought from version 2 to" in store.take_notices()[0]
        store.put_change(a_change())
        assert store.observations(PLACE, count_max=9) == [an_observation()]
        assert store.changes(count_max=9) == [a_change()]


def test_a_change_is_kept_as_it_is_known_best(store: Store) -> None:
    """The same change is described again as more is measured; another one of the place stands beside it."""
    again = a_change(parameters={"rate_bytes_per_second": Moved(Estimate(3, 4, 5), Estimate(1, 2, 3))})
    later = a_change(noticed_at=NOON + MINUTE)
    elsewhere = a_change(place=dataclasses.replace(PLACE, region="eu-west-1"))
    for change in (a_change(), again, later, elsewhere):
        store.put_change(change)
    assert store.changes(place=PLACE, count_max=9) == [later, again]
    assert len(store.changes(count_max=9)) == 3
    while store.prune(now=NOON + timedelta(days=999), retention_seconds=1.0):
        pass
    assert len(store.changes(count_max=9)) == 3


def test_what_was_known_and_advised_before_a_moment(store: Store) -> None:
    """A change is told by what stood before it."""
    for n in range(3):
        store.add_fit(a_fit(observation_count=n), fitted_at=NOON + n * MINUTE)
        store.add_recommendation(a_recommendation(observation_count=n, issued_at=NOON + n * MINUTE))
    at = NOON + 1.5 * MINUTE
    assert store.fit_before(PLACE, at) == a_fit(observation_count=1)
    before = store.advice_before(CONTEXT, Demand(), at)
    assert before is not None
    assert before.observation_count == 1
    assert store.fit_before(PLACE, NOON) is None
    assert store.advice_before(CONTEXT, Demand(), NOON) is None


def test_a_migration_is_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that fails in the middle leaves the file as it was."""
    Store(path, SETTING_TYPES).close()
    good = database.migrations()
    bad = good | {99: "CREATE TABLE extra (x INTEGER); INSERT INTO nowhere VALUES (1);"}
    monkeypatch.setattr(database, "migrations", lambda: bad)
    with pytest.raises(database.StoreError):
        Store(path, SETTING_TYPES)
    monkeypatch.setattr(database, "migrations", lambda: good)
    store = Store(path, SETTING_TYPES)
    assert store._database.rows("SELECT name FROM sqlite_master WHERE name = 'extra'") == []
    store.close()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """The sentence names the directory and the key."""
    (tmp_path / "file").touch()
    with pytest.raises(DiskTrouble, match=r"change daemon\.state_directory"):
        Store(tmp_path / "file" / "penstock.db", SETTING_TYPES)


@pytest.mark.parametrize("spoil", ["PRAGMA user_version = 9999", None])
def test_a_file_that_is_refused_is_closed_again(path: Path, spoil: str | None) -> None:
    """Reading what cannot be read, newer or no database at all, leaves no file open."""
    path.parent.mkdir()
    if spoil is None:
        path.write_bytes(b"this is not a database" * 1000)
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(spoil)
    with pytest.raises(StoreError) as refusal:
        Store.open_read_only(path, SETTING_TYPES)
    assert refusal.tb is not None  # it keeps alive what was not closed
    assert not is_open(path)


async def test_async_store_is_a_journal(path: Path) -> None:
    """Probes record, strike and ask through it."""
    store = AsyncStore(Store(path, SETTING_TYPES), lambda: NOON)
    await store.record(a_leftover())
    assert await store.open_entries() == [a_leftover()]
    await store.strike(a_leftover())
    assert await store.open_entries() == []
    await store.close()


async def test_what_is_gone_may_stay_in_the_journal(path: Path) -> None:
    """A disk that refuses after a clean-up is no trouble of the clean-up: the next sweep strikes the entry out."""
    inner = Store(path, SETTING_TYPES)
    store = AsyncStore(inner, lambda: NOON)
    await store.record(a_leftover())
    inner._database._connection.execute("PRAGMA query_only = 1")
    await store.strike(a_leftover())
    assert await store.open_entries() == [a_leftover()]
    await store.close()


async def test_observations_that_wait_share_a_transaction(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many applications report while the disk is busy, they cost one more commit."""
    inner = Store(path, SETTING_TYPES)
    store, busy, batches = AsyncStore(inner, lambda: NOON), threading.Event(), list[int]()
    add_rows = inner.add_rows

    def counted(rows: Sequence[Row[Any]]) -> None:
        batches.append(len(rows))
        add_rows(rows)

    monkeypatch.setattr(inner, "add_rows", counted)
    waiting = asyncio.ensure_future(store.run(lambda _: busy.wait()))
    reports = [asyncio.ensure_future(store.add_observation(an_observation())) for _ in range(100)]
    await asyncio.sleep(0)
    busy.set()
    await asyncio.gather(waiting, *reports)
    assert batches == [100]
    assert len(await store.run(lambda s: s.observations(PLACE, count_max=999))) == 100
    await store.close()


async def test_what_was_measured_when_a_stop_came_is_there_for_the_next_life(path: Path) -> None:
    """Whoever waits for the writer may be cancelled; the probe was paid for all the same."""
    store, busy = AsyncStore(Store(path, SETTING_TYPES), lambda: NOON), threading.Event()
    waiting = asyncio.ensure_future(store.run(lambda _: busy.wait()))
    measured = asyncio.ensure_future(store.add_observation(an_observation()))
    await asyncio.sleep(0)
    measured.cancel()
    busy.set()
    await asyncio.wait({waiting, measured})
    await store.close()
    with closing(Store(path, SETTING_TYPES)) as again:
        assert again.observations(PLACE, count_max=9) == [an_observation()]


async def test_an_end_that_is_interrupted_gives_up_the_file_all_the_same(path: Path) -> None:
    """Whoever begins again next is not told that somebody has it."""
    store, begun, may_go_on = (
        AsyncStore(Store(path, SETTING_TYPES), lambda: NOON),
        threading.Event(),
        threading.Event(),
    )
    store._store.add_rows = lambda _: [begun.set(), may_go_on.wait()]  # type: ignore[assignment,func-returns-value]
    store._batch.append(store._store.observation_row(an_observation()))
    end = asyncio.ensure_future(store.close())
    await comes(begun.is_set)
    end.cancel()
    may_go_on.set()
    await asyncio.wait({end})
    assert database.holder(path) is None


async def test_a_bad_report_harms_no_other(path: Path) -> None:
    """What cannot be stored is refused to its sender alone."""
    store = AsyncStore(Store(path, SETTING_TYPES), lambda: NOON)
    bad = store.add_observation(an_observation(duration_seconds=float("inf")))
    good = store.add_observation(an_observation())
    results = await asyncio.gather(bad, good, return_exceptions=True)
    assert isinstance(results[0], ValueError)
    assert results[1] is None
    await store.close()


async def test_what_is_lost_at_the_end_is_said(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A daemon that ends on a full disk names what goes with it, as an error, and does not end as if all were well."""
    inner = Store(path, SETTING_TYPES)
    store = AsyncStore(inner, lambda: NOON)
    inner._database._connection.execute("PRAGMA query_only = 1")
    await store.add_observation(an_observation())
    for _ in range(2):
        await store.add_observation(an_observation(origin=Origin.APPLICATION))
    with pytest.raises(Lost, match=r"^3 values \(2 reports, 1 observation\) are lost: .*read-only"):
        await store.close()
    assert [(r.levelname, "3 values" in r.getMessage()) for r in caplog.records][-1] == ("ERROR", True)
    again = Store(path, SETTING_TYPES)  # the lock was given up all the same
    assert again.observations(PLACE, count_max=9) == []
    again.close()


async def test_reports_wait_for_a_full_disk_up_to_a_bound(path: Path) -> None:
    """What can only be lost is refused to those who could keep it; once there is room, it is taken again."""
    inner = Store(path, SETTING_TYPES)
    store = AsyncStore(inner, lambda: NOON)
    assert await store.why_no_room(10**6) is None
    inner._database._connection.execute("PRAGMA query_only = 1")
    for _ in range(WAITING_REPORT_COUNT_MAX):
        assert await store.why_no_room(1) is None
        await store.add_observation(an_observation(origin=Origin.APPLICATION))
    assert "read-only" in (await store.why_no_room(1) or "")
    await store.add_observation(an_observation())  # what was measured here waits on
    inner._database._connection.execute("PRAGMA query_only = 0")
    assert await store.why_no_room(10**6) is None
    assert store.trouble is None
    await store.close()
