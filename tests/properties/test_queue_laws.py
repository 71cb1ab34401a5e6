"""Laws of the lab's queue, whatever is done to it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lab.sqs import ActionTruth, Copy, QueueTruth, Sending, SqsService
from penstock.lab.virtual_time import VirtualClock, run_virtually

Act = tuple[str, float]

acts = st.lists(
    st.tuples(
        st.sampled_from(["send", "receive", "delete newest", "delete oldest", "wait"]), st.floats(0, 20)
    ),
    max_size=60,
)
A_REQUEST = ActionTruth(request_seconds=0.01, variation=0.3)
QUEUE = QueueTruth(send=A_REQUEST, receive=A_REQUEST, delete=A_REQUEST)


async def live(service: SqsService, story: list[Act]) -> tuple[int, set[str], list[Copy]]:
    """Do what the story says; how many were sent, which were deleted by a valid handle, and every copy."""
    await service.create_queue("q", {"VisibilityTimeout": "8"})
    sent_count, deleted, held, copies = 0, set[str](), list[Copy](), list[Copy]()
    newest: dict[str, int] = {}
    for act, seconds in story:
        if act == "send":
            sent_count += len(await service.send("q", [Sending(body="x")] * (1 + int(seconds) % 10)))
        elif act == "receive":
            got = await service.receive("q", message_count_max=10, wait_seconds=seconds)
            newest.update((copy.message_id, copy.receive_count) for copy in got)
            held += got
            copies += got
        elif act == "wait":
            await asyncio.sleep(seconds)
        elif held:
            copy = held.pop(-1 if act == "delete newest" else 0)
            if newest[copy.message_id] == copy.receive_count:
                deleted.add(copy.message_id)
            await service.delete("q", [copy.receipt_handle])
    return sent_count, deleted, copies


@settings(deadline=None, max_examples=60)
@given(acts, st.integers(0, 100), st.floats(0, 2))
def test_no_message_is_lost_and_none_comes_back_from_the_dead(
    story: list[Act], seed: int, spread_seconds: float
) -> None:
    """What was sent and not deleted is visible, in flight or delayed; handles are new for every copy."""
    truth = replace(QUEUE, spread_seconds_median=spread_seconds, spread_sigma=0.5)

    async def tell(clock: VirtualClock) -> None:
        service = SqsService(truth, clock=clock, seed=seed)
        sent_count, deleted, copies = await live(service, story)
        queue = service.queue("q")
        queue.release()
        parts = (queue.visible_count, queue.in_flight_count, queue.delayed_count)
        assert min(parts) >= 0
        assert sum(parts) == sent_count - len(deleted)
        assert len({copy.receipt_handle for copy in copies}) == len(copies)
        await asyncio.sleep(60)
        left = []
        while batch := await service.receive(
            "q", message_count_max=10, wait_seconds=1, visibility_seconds=3600
        ):
            left += [copy.message_id for copy in batch]
        assert len(left) == len(set(left)) == sent_count - len(deleted)
        assert not deleted.intersection(left)

    run_virtually(tell, start_at=datetime(2026, 1, 1, tzinfo=UTC))


@settings(deadline=None, max_examples=60)
@given(acts, st.integers(0, 100), st.floats(0, 2), st.integers(1, 4))
def test_a_fifo_queue_keeps_every_group_in_order_and_apart(
    story: list[Act], seed: int, spread_seconds: float, group_count: int
) -> None:
    """However late or seldom it is deleted: a receive brings the first of a group, and none while others hold it."""
    truth = replace(QUEUE, spread_seconds_median=spread_seconds, spread_sigma=1.0)

    async def tell(clock: VirtualClock) -> None:
        service = SqsService(truth, clock=clock, seed=seed)
        await service.create_queue("q.fifo", {"FifoQueue": "true", "VisibilityTimeout": "8"})
        undeleted: dict[str, list[str]] = {f"{group}": [] for group in range(group_count)}
        held: list[tuple[str, float, Copy]] = []  # group, until when nobody else may have it, and the copy
        sent_count = 0
        for act, seconds in [("send", 9.0), ("send", 9.0), ("wait", 3.0), *story]:
            if act == "send":
                for number in range(sent_count, sent_count + 1 + int(seconds) % 10):
                    group, body = f"{number % group_count}", f"{number}"
                    await service.send("q.fifo", [Sending(body=body, group=group, deduplication_id=body)])
                    undeleted[group].append(body)
                    sent_count += 1
            elif act == "receive":
                began_seconds = clock.monotonic_seconds()
                count = 1 + int(seconds) % 4
                copies = await service.receive("q.fifo", message_count_max=count, wait_seconds=seconds / 10)
                for group in {copy.system_attributes["MessageGroupId"] for copy in copies}:
                    bodies = [c.body for c in copies if c.system_attributes["MessageGroupId"] == group]
                    assert bodies == undeleted[group][: len(bodies)]
                    assert not any(g == group and until > clock.monotonic_seconds() for g, until, _ in held)
                held += [
                    (copy.system_attributes["MessageGroupId"], began_seconds + 8.0, copy) for copy in copies
                ]
            elif act == "wait":
                await asyncio.sleep(seconds)
            elif held:
                group, _, copy = held.pop(-1 if act == "delete newest" else 0)
                if (await service.delete("q.fifo", [copy.receipt_handle])) == [None]:
                    undeleted[group] = [body for body in undeleted[group] if body != copy.body]
        queue = service.queue("q.fifo")
        queue.release()
        left_count = queue.visible_count + queue.in_flight_count + queue.delayed_count
        assert left_count == sum(map(len, undeleted.values()))

    run_virtually(tell, start_at=datetime(2026, 1, 1, tzinfo=UTC))
