"""A limit that hosts share: who comes or goes is felt within two heartbeats, and without the bucket refusals teach."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

import pytest

from bench.shared_limit import OPERATION, Outside, heartbeats, host_limits
from penstock.daemon.fleet import shared_limits
from penstock.daemon.fleet.shared_limits import ALONE_FRACTION, PAUSE_SECONDS, VISIT_SECONDS_MAX, SharedLimits
from penstock.lab.virtual_time import VirtualClock
from penstock.probes.outside import Denied, ObjectStore, Refused, RequestError, Tagged
from penstock.trial.simulated_aws import SimulatedObjectStore
from penstock.vocabulary import BESIDE_PAYLOAD_BYTES, Tariff

LIMIT = 1000.0


def a_host(number: int, clock: VirtualClock, outside: Outside) -> SharedLimits:
    return host_limits(number, clock, outside, LIMIT, lambda _: 900.0)


def part(host: SharedLimits) -> float:
    share = host.share(OPERATION)
    assert share is not None
    return share.requests_per_second


@contextlib.contextmanager
def living(*hosts: SharedLimits) -> Iterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(heartbeats(host)) for host in hosts]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


async def test_who_comes_and_who_dies_is_felt_within_two_heartbeats(clock: VirtualClock) -> None:
    """Clocks ten minutes apart; nobody hands parts out, and what a host that died had goes to the others."""
    outside = Outside(clock)
    old = [a_host(number, clock, outside) for number in range(3)]
    with living(*old):
        await asyncio.sleep(2.1 * PAUSE_SECONDS)
        assert [part(host) for host in old] == pytest.approx([LIMIT / 3] * 3, rel=0.03)
        new = a_host(3, clock, outside)
        with living(new):
            await asyncio.sleep(2.0 * PAUSE_SECONDS + 1.0)
            assert [part(host) for host in (*old, new)] == pytest.approx([LIMIT / 4] * 4, rel=0.03)
        await asyncio.sleep(2.0 * PAUSE_SECONDS + 1.0)
        assert [part(host) for host in old] == pytest.approx([LIMIT / 3] * 3, rel=0.03)


async def test_a_newcomer_is_gentle_until_the_others_know_of_it(clock: VirtualClock) -> None:
    """What it would take is still used by those who have not read its heartbeat."""
    outside = Outside(clock)
    old = [a_host(number, clock, outside) for number in range(3)]
    with living(*old):
        await asyncio.sleep(3 * PAUSE_SECONDS)
        new = a_host(3, clock, outside)
        assert part(new) <= ALONE_FRACTION * LIMIT
        await new.visit()
        assert sum(map(part, (*old, new))) <= 1.02 * LIMIT


async def test_a_part_grows_between_heartbeats_without_the_bucket(clock: VirtualClock) -> None:
    """Whoever is told of changes hears of it, also where others ask meanwhile, and it costs nothing."""
    outside, wants = Outside(clock), [900.0, 0.0]
    hosts = [host_limits(n, clock, outside, LIMIT, lambda _, n=n: wants[n]) for n in range(2)]  # type: ignore[misc]
    told_of = []

    async def watched() -> None:
        while True:
            await asyncio.sleep(max(0.0, hosts[1].due_in_seconds))
            is_step = not hosts[1].is_heartbeat_due
            if is_step:
                hosts[1].step()
            else:
                await hosts[1].visit()
            if hosts[1].take_news() and is_step:
                told_of.append(part(hosts[1]))

    async def asking() -> None:
        while True:
            await asyncio.sleep(1.0)
            part(hosts[1])

    with living(hosts[0]):
        await asyncio.sleep(0.5 * PAUSE_SECONDS)
        beside = [asyncio.create_task(watched()), asyncio.create_task(asking())]
        await asyncio.sleep(3.0 * PAUSE_SECONDS)
        told_of.clear()
        wants[1] = 500.0
        await asyncio.sleep(2.0 * PAUSE_SECONDS)
        for task in beside:
            task.cancel()
    assert len(told_of) >= 4
    assert told_of == sorted(told_of)
    assert told_of[-1] < LIMIT / 2


async def test_without_the_bucket_refusals_lower_a_part_and_success_raises_it(clock: VirtualClock) -> None:
    """From what there was when it was lost; and the others are seen again when it is back."""
    outside = Outside(clock)
    hosts = [a_host(number, clock, outside) for number in range(2)]
    with living(*hosts):
        await asyncio.sleep(2.5 * PAUSE_SECONDS)
        outside.is_lost = True
        await asyncio.sleep(1.1 * PAUSE_SECONDS)
        before = part(hosts[0])
        assert before == pytest.approx(LIMIT / 2, rel=0.03)
        document = hosts[0].document()[0]
        assert document["is_alone"]
        assert "it is gone" in document["trouble"]
        hosts[0].note(OPERATION, 1000, 50)
        await asyncio.sleep(20.0)
        lowered = part(hosts[0])
        assert lowered <= 0.85 * before
        hosts[0].note(OPERATION, 1000, 0)
        await asyncio.sleep(20.0)
        assert part(hosts[0]) > lowered
        outside.is_lost = False
        await asyncio.sleep(16 * 60.0)
        assert part(hosts[0]) == pytest.approx(LIMIT / 2, rel=0.03)
        assert not hosts[0].document()[0]["is_alone"]


async def test_the_log_says_how_many_others_are_seen(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and of a host that is the only one, that it is."""
    caplog.set_level(logging.INFO)
    outside = Outside(clock)
    for number in range(2):
        host = a_host(number, clock, outside)
        await host.visit()
        await host.visit()
    told = [record.getMessage() for record in caplog.records if "beside this one" in record.getMessage()]
    assert [line.rpartition(": ")[2] for line in told] == ["0", "1"]


async def test_more_heartbeats_than_are_listed_are_none(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of hosts that are gone lie before those that live: who sees a part of them would take too much."""
    monkeypatch.setattr(shared_limits, "LISTED_COUNT_MAX", 2)
    outside = Outside(clock)
    hosts = [a_host(number, clock, outside) for number in range(2)]
    for host in hosts:
        await host.visit()
    (document,) = hosts[1].document()
    assert document["is_alone"]
    assert "have the bucket delete old ones" in document["trouble"]


class Failing(Outside):
    """A bucket that answers each write alike, or never."""

    def __init__(self, clock: VirtualClock, answer: RequestError | None) -> None:
        super().__init__(clock)
        self.is_failing, self._answer = False, answer

    async def object_store(self, region: str, _endpoint_url: str | None = None) -> ObjectStore:
        answer, is_failing = self._answer, self.is_failing

        class Store(SimulatedObjectStore):
            async def put_object(self, bucket: str, key: str, body: bytes) -> str:
                if not is_failing:
                    return await super().put_object(bucket, key, body)
                if answer is not None:
                    raise answer
                await asyncio.sleep(3600.0)
                raise AssertionError

        await super().object_store(region)
        return Store(self.service)


@pytest.mark.parametrize("answer", [Denied("403"), Refused("500"), None])
async def test_a_bucket_that_is_read_only_or_refuses_or_is_slow_leaves_a_host_what_it_had(
    clock: VirtualClock, answer: RequestError | None
) -> None:
    """And it holds nobody up."""
    outside = Failing(clock, answer)
    host, other = (a_host(number, clock, outside) for number in range(2))
    with living(host, other):
        await asyncio.sleep(2.5 * PAUSE_SECONDS)
    before = part(host)
    assert before == pytest.approx(LIMIT / 2, rel=0.03)
    outside.is_failing = True
    await asyncio.sleep(PAUSE_SECONDS)
    began_seconds = clock.monotonic_seconds()
    await host.visit()
    assert clock.monotonic_seconds() - began_seconds <= VISIT_SECONDS_MAX
    assert host.document()[0]["is_alone"]
    assert part(host) == pytest.approx(before, rel=0.05)


async def test_a_visit_costs_no_more_than_was_said_before(clock: VirtualClock) -> None:
    """Of requests, bytes and dollars; and all of a fleet are heard, however many have something new to say."""
    outside = Outside(clock)
    hosts = [a_host(number, clock, outside) for number in range(40)]
    hosts[0].tariff = Tariff(usd_per_received_byte=1.0, usd_per_sent_byte=1.0)
    await asyncio.gather(*(host.visit() for host in hosts))
    for _ in range(2):
        await asyncio.sleep(1.5 * PAUSE_SECONDS)
        await asyncio.gather(*(host.visit() for host in hosts[1:]))
        most = hosts[0].cost_max
        await hosts[0].visit()
        assert hosts[0].used.request_count <= most.request_count
        assert hosts[0].used.transferred_bytes <= most.transferred_bytes
        # What lies beside the payload is counted once, and priced each way.
        beside_bytes = hosts[0].used.request_count * BESIDE_PAYLOAD_BYTES
        assert hosts[0].used.usd == hosts[0].used.transferred_bytes + beside_bytes <= most.usd
    share = hosts[0].share(OPERATION)
    assert share is not None
    assert share.host_count == 40


async def test_an_operation_of_no_limit_has_no_share(clock: VirtualClock) -> None:
    """Its advice is as it was."""
    assert a_host(0, clock, Outside(clock)).share("s3_download") is None


async def test_nothing_of_a_visit_goes_on_behind_it(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat that is refused does not leave the others on their way: a probe may begin."""
    outside, in_flight = Outside(clock), set[str]()

    class Store(SimulatedObjectStore):
        async def get_unless(
            self, bucket: str, key: str, etag: str | None, *, size_bytes_max: int
        ) -> Tagged | None:
            if "h1" in key:
                raise Denied("403")
            in_flight.add(key)
            await asyncio.sleep(1.0)
            in_flight.discard(key)
            return await super().get_unless(bucket, key, etag, size_bytes_max=size_bytes_max)

    hosts = [a_host(number, clock, outside) for number in range(4)]
    await asyncio.gather(*(host.visit() for host in hosts[1:]))

    async def object_store(region: str, _endpoint_url: str | None = None) -> ObjectStore:  # there is one
        return Store(outside.service)

    monkeypatch.setattr(outside, "object_store", object_store)
    await hosts[0].visit()
    assert not in_flight


async def test_a_part_that_refusals_lowered_is_news_where_the_bucket_costs_too_much(
    clock: VirtualClock,
) -> None:
    """Whoever holds a lease is told, although nobody is visited."""
    host = a_host(0, clock, Outside(clock))
    host.take_news()
    await asyncio.sleep(PAUSE_SECONDS)
    host.note(OPERATION, 1000, 500)
    host.postpone("budget.usd_per_day is spent")
    assert host.take_news()
    assert not host.take_news()
