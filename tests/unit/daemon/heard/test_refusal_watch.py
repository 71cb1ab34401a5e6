"""Refusals that are heard hold advice back where two witnesses tell of them, by one step and for an hour."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from penstock.daemon.board import Board
from penstock.daemon.cycle.standings import Standings
from penstock.daemon.heard.hearing import Hearing
from penstock.daemon.heard.refusal_watch import HASTENED_COUNT_MAX, RefusalWatch
from penstock.lab.virtual_time import VirtualClock
from penstock.listening.refusals import HELD_FRACTION, HELD_SECONDS
from penstock.models.s3.upload import S3UploadSetting
from penstock.units import GiB, MiB
from penstock.vocabulary import Context, Demand, Origin
from tests.factories import CONTEXT, NOON, an_observation
from tests.unit.daemon.heard.test_hearing import a_datagram
from tests.unit.daemon.test_board import a_board, a_learned_fit

LONG, SHORT = (dataclasses.replace(CONTEXT, payload_size_bytes=size) for size in (500 * GiB, 16 * MiB))
LOOK_SECONDS = 10.0
NEVER = -1e9
BACKUP, ARCHIVE = 1001, 1002
PERIODS = {True: 503, False: 200}


class House:
    """A board with advice, and what is heard beside it."""

    def __init__(self, board: Board, clock: VirtualClock, subordinate: Path) -> None:
        self.clock = clock
        self.hearing, self.board = Hearing(self.clock), board
        self.watch = RefusalWatch(self.hearing, self.clock, CONTEXT.place, [CONTEXT], subordinate=subordinate)
        board.caution = self.watch.caution
        self.hastened_count = 0

    def advised(self, context: Context = LONG) -> S3UploadSetting:
        setting = self.board.recommend(context, Demand(), NOON).setting
        assert isinstance(setting, S3UploadSetting)
        return setting

    async def hear(
        self,
        *users: int | None,
        seconds: float = 60.0,
        threads: int = 2,
        is_refused: bool,
        name: str = "backup",
    ) -> None:
        """Each of them with so many attempts at a time, of a second each."""
        for elapsed in range(int(seconds)):
            await asyncio.sleep(1.0)
            for user in users:
                for _ in range(threads):
                    status = PERIODS[is_refused]
                    said = a_datagram(AttemptLatency=1000, HttpStatusCode=status, ClientId=f"{name} {user}")
                    self.hearing.hear(said, user_id=user)
            if elapsed % LOOK_SECONDS == LOOK_SECONDS - 1:
                self.look()

    def look(self, probed_seconds: float = NEVER) -> None:
        self.hastened_count += len(self.watch.look(probed_seconds)[1])


@pytest.fixture
async def house(clock: VirtualClock, tmp_path: Path) -> House:
    board = a_board()
    await board.post(a_learned_fit(), NOON)
    return House(board, clock, tmp_path / "subuid")


async def test_two_users_who_are_refused_hold_long_transfers_back_for_an_hour(house: House) -> None:
    """By half and no further; what is over before they were refused is advised as ever, and so is all afterwards."""
    whole, short = house.advised(), house.advised(SHORT)
    await house.hear(BACKUP, ARCHIVE, seconds=240, is_refused=False)
    assert house.advised() == whole
    await house.hear(BACKUP, ARCHIVE, seconds=300, is_refused=True)
    assert house.advised() == dataclasses.replace(
        whole, thread_count=round(HELD_FRACTION * whole.thread_count)
    )
    assert house.advised(SHORT) == short
    explanation = house.board.recommend(LONG, Demand(), NOON).explanation
    assert "Held back until 13:09 UTC: requests of user 1001 and user 1002 were refused" in explanation
    await asyncio.sleep(HELD_SECONDS + 1)
    house.look()
    assert house.advised() == whole


async def test_one_user_moves_nothing_and_hastens_a_few_probes(house: House, tmp_path: Path) -> None:
    """However many applications he says he is, and with him users whom nobody knows or gave an account."""
    (tmp_path / "subuid").write_text("backup:100000:65536\nbroken\n")
    whole = house.advised()
    for number in range(2 * HASTENED_COUNT_MAX):
        await house.hear(BACKUP, None, 100_007, is_refused=True, name=f"forged {number}")
        assert house.advised() == whole
        await asyncio.sleep(600)
    assert house.hastened_count == HASTENED_COUNT_MAX


@pytest.mark.parametrize("origin", [Origin.PROBE, Origin.APPLICATION])
@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_refused_probe_or_report_is_the_second_witness(
    house: House, origin: Origin, *, is_refused: bool
) -> None:
    """Beside one who was heard: neither of them is any, of its own."""
    setting = S3UploadSetting(thread_count=2, part_size_bytes=8 * MiB)
    reporter = ARCHIVE if origin is Origin.APPLICATION else None
    seen = an_observation(setting=setting, throttled_count=20, origin=origin, reporter_uid=reporter)
    other = dataclasses.replace(seen, reporter_uid=7, origin=Origin.APPLICATION)
    whole = house.advised()
    house.watch.note([seen, other] if is_refused else [dataclasses.replace(seen, throttled_count=0)])
    assert house.advised() == whole
    await house.hear(BACKUP, is_refused=True)
    held = round(HELD_FRACTION * whole.thread_count) if is_refused else whole.thread_count
    assert house.advised().thread_count == held


async def test_a_report_of_a_subordinate_user_is_no_witness(house: House, tmp_path: Path) -> None:
    """Whoever has an account may have thousands of them."""
    (tmp_path / "subuid").write_text("backup:100000:65536\n")
    setting = S3UploadSetting(thread_count=2, part_size_bytes=8 * MiB)
    whole = house.advised()
    house.watch.note(
        [an_observation(setting=setting, throttled_count=20, origin=Origin.APPLICATION, reporter_uid=100_007)]
    )
    await house.hear(BACKUP, is_refused=True)
    assert house.advised() == whole


async def test_who_drives_the_host_harder_than_advised_says_nothing_of_the_advice(house: House) -> None:
    """All that is in flight on the host counts: two who are each within it may be too many together."""
    whole = house.advised()
    await house.hear(BACKUP, ARCHIVE, threads=whole.thread_count - 1, is_refused=True)
    assert house.advised() == whole


async def test_what_is_refused_beside_a_probe_says_nothing_of_the_advice(house: House) -> None:
    """The probe is what was too much. A stray refusal says nothing at all."""
    whole = house.advised()
    await house.hear(BACKUP, ARCHIVE, seconds=9, is_refused=True)
    house.look(probed_seconds=house.clock.monotonic_seconds() - 5.0)
    assert house.advised() == whole
    for _ in range(3):
        await house.hear(BACKUP, ARCHIVE, seconds=9, is_refused=False)
        await house.hear(BACKUP, ARCHIVE, seconds=1, threads=1, is_refused=True)
        house.look()
    assert house.advised() == whole


async def test_a_hastened_place_is_probed_within_a_quarter_of_its_interval() -> None:
    """As after a measurement that was far from what was expected."""
    standings = Standings(1, NOON)

    class Nothing:
        async def run(self, _work: object) -> list[object]:
            return []

    await standings.load(Nothing(), {CONTEXT: 3600.0})  # type: ignore[arg-type]  # a store that remembers nothing
    standings.hasten({(CONTEXT.operation, CONTEXT.place.region)})
    due = standings.next_due(NOON)
    assert due is not None
    assert (due.due_at - NOON).total_seconds() <= 900.0
