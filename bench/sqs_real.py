"""Knows how penstock's advice for a queue compares with what users choose instead, on a real SQS server.

`python -m bench sqs-real` lets one measuring application drive an ElasticMQ with real requests, once for each policy.
All are offered the same messages at the same times and use long polls; only the policy differs. Deletes take as long as
in the published campaign, and stop for three visibility timeouts on the way. If that server cannot be built, the lab's
own takes its place, and the figures say so.

A message's latency begins when it is offered, not when it is sent, so that what a policy holds back, for a batch or a
window, counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession

from bench import results
from penstock.clock import Clock, SystemClock
from penstock.lab.sqs import ActionTruth
from penstock.lab.worlds import NEAR
from penstock.models.sqs.plan import plan
from penstock.probes.aws.access import Access, Credentials
from penstock.probes.aws.queues import AwsMessageQueues, open_message_queues
from penstock.probes.outside import MessageQueues, Messages, ReceivedMessage, RequestError
from penstock.probes.sqs.application import Means, MeasurementApplication
from penstock.probes.sqs.conduct import BLAST, RATE_CONTROLLED, Conduct
from penstock.probes.sqs.queue_application import advised_conduct
from penstock.probes.sqs.round_trips import RoundTrips
from penstock.probes.sqs.run import Bodies, BoundQueue, DeleteBrake, HopelessError
from penstock.probes.sqs.tally import Sample, Tally
from penstock.trial.stage import CREDENTIALS, lab_endpoint
from tests.real import provision, servers

PENSTOCK = "penstock"
ADAPTIVE = "botocore adaptive retries"
RATE_PER_SECOND = 50.0
VISIBILITY_TIMEOUT_SECONDS = 3
DELETE = ActionTruth(request_seconds=0.016286, message_seconds=0.004)  # in addition to the server's time
SECONDS_MAX = {False: 290.0, True: 900.0}  # for the whole benchmark, by form: short, long
GOODPUT_MARGIN = 0.005  # smaller differences count as equal
LATENCY_MARGIN_SECONDS = 0.005  # likewise: on a busy machine, requests of 5 ms vary by that from run to run
_WARM_UP_SECONDS = 5.0  # a Java server first compiles what is called often
_SEED = 1

Controller: TypeAlias = Callable[[Sequence[float], Conduct], Conduct]
"""An adaptive application: computes its conduct from the last second's send times and its previous conduct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What every policy meets."""

    seconds: float
    deletes_stop_at_seconds: float
    deletes_go_on_at_seconds: float
    offered_per_second: float = RATE_PER_SECOND
    stated_per_second: float = RATE_PER_SECOND  # the rate that penstock's plan is for
    visibility_timeout_seconds: int = VISIBILITY_TIMEOUT_SECONDS
    delete: ActionTruth = DELETE

    @property
    def end_begins_at_seconds(self) -> float:
        """The second half of the time after the stop, which shows where a policy ends up."""
        return (self.deletes_go_on_at_seconds + self.seconds) / 2.0


COURSES = {
    False: Course(seconds=31.0, deletes_stop_at_seconds=8.0, deletes_go_on_at_seconds=17.0),
    True: Course(seconds=90.0, deletes_stop_at_seconds=20.0, deletes_go_on_at_seconds=29.0),
}
"""By form: short, long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The result of one policy."""

    name: str
    why: str
    goodput_messages_per_second: float  # deleted for good
    goodput_before_the_stop: float
    goodput_at_the_end: float
    latency_seconds_mean: float  # from the offer to the first receive, of received messages
    latency_seconds_p99: float
    latency_seconds_mean_before_the_stop: float
    duplicate_count: int
    duplicates_per_second_at_the_end: float
    backlog_message_count: int  # offered and not deleted at the end
    request_count: int
    failed_count: int
    conduct: Conduct

    @property
    def has_collapsed(self) -> bool:
        """Whether at the end more copies arrive than messages are deleted."""
        return self.duplicates_per_second_at_the_end > self.goodput_at_the_end


def gradient_limit() -> Controller:
    """An adaptive limit on concurrent sends like Gradient2: short against long round-trip time."""
    long_seconds = 0.0
    limit = 1.0

    def control(send_seconds: Sequence[float], conduct: Conduct) -> Conduct:
        nonlocal long_seconds, limit
        if not send_seconds:
            return conduct
        short = statistics.mean(send_seconds)
        long_seconds = short if long_seconds == 0 else 0.95 * long_seconds + 0.05 * short
        gradient = max(0.5, min(1.0, 1.5 * long_seconds / short))
        limit = min(max(1.0, 0.8 * limit + 0.2 * (gradient * limit + 4.0)), 20.0)
        return replace(conduct, sender_count=round(limit))

    return control


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One policy for driving the queue."""

    name: str
    conduct: Conduct
    why: str
    controller: Controller | None = None


class Surroundings:
    """A queue whose deletes are slow and stop for a while; records each message's age at its first arrival.

    Satisfies `Messages`. Stop and offers count from `begin`; before it deletes are slow and never stop.
    """

    def __init__(self, messages: Messages, clock: Clock, course: Course, bodies: Bodies) -> None:
        self.latencies: list[tuple[float, float]] = []  # (received at, since it was offered), seconds
        self.send_seconds: list[float] = []  # of requests since the last sample
        self._messages = messages
        self._clock = clock
        self._course = course
        self._bodies = bodies
        self._seen: set[int] = set()
        self._began_seconds: float | None = None

    def begin(self) -> None:
        """Start the course."""
        self._began_seconds = self._clock.monotonic_seconds()

    async def send(self, url: str, bodies: Sequence[str], *, group_ids: Sequence[str] = ()) -> int:
        """Pass it on, timed."""
        began_seconds = self._clock.monotonic_seconds()
        try:
            return await self._messages.send(url, bodies, group_ids=group_ids)
        finally:
            self.send_seconds.append(self._clock.monotonic_seconds() - began_seconds)

    async def receive(self, url: str, *, message_count_max: int, wait_seconds: int) -> list[ReceivedMessage]:
        """Pass it on; record the first copy of each message."""
        messages = await self._messages.receive(
            url, message_count_max=message_count_max, wait_seconds=wait_seconds
        )
        for message in messages:
            sequence = self._bodies.sequence_of(message.body)
            if sequence >= 0 and sequence not in self._seen:
                self._seen.add(sequence)
                now = self._elapsed_seconds()
                self.latencies.append((now, now - (sequence + 1) / self._course.offered_per_second))
        return messages

    async def delete(self, url: str, receipt_handles: Sequence[str]) -> int:
        """Later, by what its messages take; not during the stop."""
        course = self._course
        if course.deletes_stop_at_seconds <= self._elapsed_seconds() < course.deletes_go_on_at_seconds:
            await asyncio.sleep(course.deletes_go_on_at_seconds - self._elapsed_seconds())
        await asyncio.sleep(
            course.delete.request_seconds + course.delete.message_seconds * len(receipt_handles)
        )
        return await self._messages.delete(url, receipt_handles)

    def _elapsed_seconds(self) -> float:
        """Negative before the course."""
        return -1.0 if self._began_seconds is None else self._clock.monotonic_seconds() - self._began_seconds


def policies(course: Course) -> list[Contender]:
    """The policies, each with the offered rate and its own defaults; penstock's is planned from its measurements."""
    offered = replace(BLAST, offered_per_second=course.offered_per_second, long_polls=True)
    rules = replace(
        RATE_CONTROLLED,
        offered_per_second=course.offered_per_second,
        oldest_undeleted_seconds_max=course.visibility_timeout_seconds / 2.0,
        long_polls=True,
    )
    return [
        Contender(name="blast", conduct=offered, why="nothing bounded"),
        Contender(
            name="published rules",
            conduct=rules,
            # This holds for a near server, where the window is wide.
            why="hardly a copy, but one deleter that is too slow never makes up for the stop",
        ),
        Contender(
            name=ADAPTIVE,
            conduct=offered,
            why="wakes on throttling alone, and this collapse never throttles: it is blast",
        ),
        Contender(
            name="pool of 10",
            conduct=replace(offered, sender_count=3, receiver_count=4, deleter_count=3),
            why="enough capacity until the deleters stop: nothing bounds what is received and not deleted",
        ),
        Contender(
            name="Gradient2 on sends",
            conduct=replace(offered, sender_count=1),
            why="sees the sends' round trips, which stay short while the deletes drown",
            controller=gradient_limit(),
        ),
        Contender(
            name="Spring-like window",
            conduct=replace(
                offered, receive_window=10, receive_window_ends_at_handover=True, delete_batch=10
            ),
            why="its window ends where a message is handed to the acknowledgements",
        ),
        Contender(
            name="SDK v2 batching",
            conduct=replace(offered, send_batch=10, delete_batch=10),
            why="fixed batches: each message waits for nine others, and nothing is bounded",
        ),
        Contender(
            name=PENSTOCK,
            conduct=offered,  # until its plan is made
            why="deleters with room, and windows on both sides of the queue",
        ),
    ]


async def compete(queues: MessageQueues, clock: Clock, contender: Contender, course: Course) -> Score:
    """One policy through the course, on a queue of its own. Raises RequestError, HopelessError."""
    bodies = Bodies()
    surroundings = Surroundings(queues, clock, course, bodies)
    label = contender.name.replace(" ", "-").replace("'", "")
    timeout_seconds = course.visibility_timeout_seconds
    name = f"contest-{label}-{uuid.uuid4().hex[:8]}"  # SQS refuses to reuse a name for a minute
    url = await queues.create_queue(name, {"VisibilityTimeout": str(timeout_seconds)})
    try:
        conduct, queue = contender.conduct, BoundQueue(surroundings, url)
        if contender.name == PENSTOCK:
            conditions = await RoundTrips(queue, clock, DeleteBrake(clock)).conditions(
                course.offered_per_second, visibility_timeout_seconds=timeout_seconds
            )
            # The plan must be as fast as policies without batches, so that goodputs are compared at the same latency.
            wanted = replace(
                conditions,
                message_rate_per_second=course.stated_per_second,
                latency_objective_seconds=conditions.delivery_latency_seconds,
            )
            conduct = advised_conduct(plan(wanted), course.offered_per_second)
        application = MeasurementApplication(
            queue,
            clock,
            conduct,
            tally=Tally(visibility_timeout_seconds=timeout_seconds),
            means=Means(bodies=bodies),
        )
        surroundings.begin()
        await application.drive(course.seconds, _steering(contender, application, surroundings))
    finally:
        await queues.delete_queue(url)
    return score(contender, conduct, application.tally, surroundings.latencies, course)


def _steering(
    contender: Contender, application: MeasurementApplication, surroundings: Surroundings
) -> Callable[[Sample], None]:
    """What an adaptive policy does each second, based on observed send times."""
    conduct = contender.conduct

    def steer(_sample: Sample) -> None:
        nonlocal conduct
        seen = surroundings.send_seconds.copy()
        surroundings.send_seconds.clear()
        if contender.controller is None:
            return
        conduct = contender.controller(seen, conduct)
        application.adopt(conduct)

    return steer


def score(
    contender: Contender,
    conduct: Conduct,
    tally: Tally,
    latencies: Sequence[tuple[float, float]],
    course: Course,
) -> Score:
    """The result of a run; latencies are (received at, latency) in seconds."""
    total, stop = tally.total, course.deletes_stop_at_seconds
    # A sample comes slightly after its second, and the last one may be missing.
    before = 0.5, round(stop) + 0.5
    end = round(course.end_begins_at_seconds) + 0.5, round(course.seconds) - 0.5
    offered_count = int(course.offered_per_second * tally.duration_seconds)
    return Score(
        name=contender.name,
        why=contender.why,
        goodput_messages_per_second=total.deleted_count / tally.duration_seconds,
        goodput_before_the_stop=tally.rate_between("deleted_count", *before),
        goodput_at_the_end=tally.rate_between("deleted_count", *end),
        latency_seconds_mean=_mean([latency for _, latency in latencies]),
        latency_seconds_p99=_quantile([latency for _, latency in latencies], 0.99),
        latency_seconds_mean_before_the_stop=_mean([latency for at, latency in latencies if at < stop]),
        duplicate_count=total.duplicate_count,
        duplicates_per_second_at_the_end=tally.rate_between("duplicate_count", *end),
        backlog_message_count=max(0, offered_count - total.deleted_count),
        request_count=total.request_count,
        failed_count=total.failed_count,
        conduct=conduct,
    )


def is_ahead(ours: Score, other: Score) -> bool:
    """Whether it carries more through the whole course, and is no slower while nothing is wrong."""
    more = ours.goodput_messages_per_second / max(other.goodput_messages_per_second, 1e-9)
    later_seconds = ours.latency_seconds_mean_before_the_stop - other.latency_seconds_mean_before_the_stop
    return more > 1.0 + GOODPUT_MARGIN and later_seconds <= LATENCY_MARGIN_SECONDS


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _quantile(values: Sequence[float], fraction: float) -> float:
    return sorted(values)[min(int(fraction * len(values)), len(values) - 1)] if values else 0.0


def run(*, long: bool = False) -> dict[str, Any]:
    """Run every policy through the course, print the table, keep it under `results/`."""
    began = time.monotonic()
    scores: list[Score] = []
    gaps: dict[str, str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="penstock-sqs-real-") as folder,
        _sqs(Path(folder)) as (server, url),
        contextlib.suppress(TimeoutError),
    ):
        asyncio.run(_contest(url, COURSES[long], scores, gaps, seconds_max=SECONDS_MAX[long]))
    return conclude(scores, gaps, server=server, course=COURSES[long], seconds=time.monotonic() - began)


@contextlib.contextmanager
def _sqs(directory: Path) -> Iterator[tuple[str, str]]:
    """The name and URL of an ElasticMQ, or, if it cannot be built, of the lab's own SQS."""
    with contextlib.ExitStack() as stage:
        try:
            found = "ElasticMQ", stage.enter_context(servers.sqs_server(directory))
        except (provision.ToolMissingError, provision.BuildError) as trouble:
            print(f"no real server ({trouble}); instead the lab's own", flush=True)
            found = "lab", stage.enter_context(lab_endpoint("sqs", NEAR, directory))
        yield found


async def _contest(
    url: str, course: Course, scores: list[Score], gaps: dict[str, str], *, seconds_max: float
) -> None:
    clock = SystemClock()
    warm_up = Contender(name="warm-up", conduct=replace(BLAST, long_polls=True), why="")
    short = replace(
        course,
        seconds=_WARM_UP_SECONDS,
        deletes_stop_at_seconds=_WARM_UP_SECONDS,
        deletes_go_on_at_seconds=_WARM_UP_SECONDS,
        offered_per_second=4.0 * course.offered_per_second,
    )
    entrants = policies(course)
    random.Random(_SEED).shuffle(entrants)
    async with asyncio.timeout(seconds_max):
        for contender, its_course in ((warm_up, short), *((entrant, course) for entrant in entrants)):
            try:
                async with _client(contender.name, url) as queues:
                    found = await compete(queues, clock, contender, its_course)
            except (HopelessError, RequestError) as trouble:
                gaps[contender.name] = str(trouble)
                continue
            if contender is not warm_up:
                scores.append(found)
                print(_line(found), flush=True)


@contextlib.asynccontextmanager
async def _client(name: str, url: str) -> AsyncIterator[AwsMessageQueues]:
    """The measuring application's own client; for adaptive retries, one as botocore makes it."""
    key, secret = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    if name != ADAPTIVE:
        access = Access(
            region=servers.REGION,
            endpoint_url=url,
            credentials=Credentials(access_key=key, secret_key=secret),
        )
        async with open_message_queues(access) as queues:
            yield queues
        return
    opening = AioSession().create_client(
        "sqs",
        region_name=servers.REGION,
        endpoint_url=url,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=AioConfig(retries={"mode": "adaptive"}),
    )
    async with opening as client:
        yield AwsMessageQueues(client)


def conclude(
    scores: list[Score], gaps: dict[str, str], *, server: str, course: Course, seconds: float
) -> dict[str, Any]:
    """Print the table and the verdict, and write them down."""
    order = {contender.name: place for place, contender in enumerate(policies(course))}
    scores.sort(key=lambda entry: order[entry.name])
    measured = {entry.name for entry in scores}
    gaps |= {name: "no time was left" for name in order if name not in measured and name not in gaps}
    print(
        f"\n{server}: {course.offered_per_second:.0f} messages a second for {course.seconds:.0f} s, visibility"
        f" timeout {course.visibility_timeout_seconds} s; deletes stop from {course.deletes_stop_at_seconds:.0f} to"
        f" {course.deletes_go_on_at_seconds:.0f} s.\nLatency counts from the offer. The end is from"
        f" {course.end_begins_at_seconds:.0f} s on; backlog is what was offered and not deleted then.\n\n{_HEADER}"
    )
    for entry in scores:
        print(_line(entry))
    for entry in scores:
        print(f"{entry.name:26}{entry.why}")
    ours = next((entry for entry in scores if entry.name == PENSTOCK), None)
    behind = [s.name for s in scores if ours is not None and s is not ours and not is_ahead(ours, s)]
    verdict = "pass" if ours is not None and not behind and not gaps else "MISS"
    print(f"\npenstock ahead of each: {verdict}{''.join(f'; not of {name}' for name in behind)}")
    for name, reason in gaps.items():
        print(f"{name} was not measured: {reason}")
    print(f"{len(scores)} policies in {seconds:.0f} s; figures in bench/results/sqs_real.json")
    found = {
        "server": server,
        "seconds": seconds,
        "course": asdict(course),
        "scores": [asdict(entry) | {"has_collapsed": entry.has_collapsed} for entry in scores],
        "not_ahead_of": behind,
        "not_measured": gaps,
        "verdict": verdict,
    }
    results.keep("sqs_real", found)
    return found


_HEADER = (
    f"{'':26}{'goodput':>9}{'before':>8}{'at end':>8}{'latency':>10}{'before':>9}{'p99':>9}"
    f"{'duplicates':>12}{'at end':>9}{'backlog':>9}{'collapsed':>11}"
)


def _line(entry: Score) -> str:
    return (
        f"{entry.name:26}{entry.goodput_messages_per_second:7.1f}/s{entry.goodput_before_the_stop:6.1f}/s"
        f"{entry.goodput_at_the_end:6.1f}/s{1e3 * entry.latency_seconds_mean:7.0f} ms"
        f"{1e3 * entry.latency_seconds_mean_before_the_stop:6.0f} ms{1e3 * entry.latency_seconds_p99:6.0f} ms"
        f"{entry.duplicate_count:12}{entry.duplicates_per_second_at_the_end:7.1f}/s{entry.backlog_message_count:9}"
        f"{'yes' if entry.has_collapsed else 'no':>11}"
    )
