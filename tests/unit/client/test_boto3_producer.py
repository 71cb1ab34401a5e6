"""Sending messages: in which batches, in which order, and what becomes of each."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.advice import Advice, default_advice
from penstock.client.queues import advised as queue_advice
from penstock.client.queues import sending
from penstock.client.queues.boto3_producer import QueueProducer
from penstock.client.queues.sending import BATCH_BYTES_MAX, SendFailedError
from penstock.units import KiB
from tests.advice import a_queue_advice
from tests.programs import printed
from tests.sdk import a_meta

ROOT = Path(__file__).parents[3]
URL = "https://sqs/queue"
FIFO = "https://sqs/queue.fifo"


class Queue:
    """An SQS client with one queue, which takes of each batch what it is told to."""

    def __init__(self, flaw_of: Callable[[dict[str, Any]], Any] = lambda _: None) -> None:
        self.batches: list[list[dict[str, Any]]] = []
        self.taken: list[dict[str, Any]] = []
        self._flaw_of, self._lock = flaw_of, threading.Lock()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.meta = a_meta()

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        """As boto3's."""
        assert QueueUrl in {URL, FIFO}
        assert len({entry["Id"] for entry in Entries}) == len(Entries)
        self.may_answer.wait(20.0)
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        with self._lock:
            self.batches.append(Entries)
            for entry in Entries:
                flaw = self._flaw_of(entry)
                if isinstance(flaw, BaseException):
                    raise flaw
                if flaw:
                    answer["Failed"].append({"Id": entry["Id"], **flaw})
                else:
                    self.taken.append(entry)
                    answer["Successful"].append({"Id": entry["Id"], "MessageId": str(len(self.taken))})
        return answer


class Kept(Queue):
    """One that writes into a file how many it has taken, for whoever outlives its process."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)

    def send_message_batch(self, **words: Any) -> dict[str, Any]:
        """As boto3's."""
        answer = super().send_message_batch(**words)
        self._path.write_text(str(len(self.taken)))
        return answer


def advice(threads: int = 4, batch: int = 10, rate: float = 0.0) -> Advice:
    found = a_queue_advice(batch=batch, derived={"batch_linger_seconds": 0.01})
    found.document["setting"].update(sender_thread_count=threads, send_rate_limit_messages_per_second=rate)
    return found


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_PAUSE_SECONDS", 0.001)


def producing(queue: Queue, url: str = URL, **options: Any) -> QueueProducer:
    return QueueProducer(queue, url, **{"advice": advice(), **options})


INTERNAL = {"SenderFault": False, "Code": "InternalError"}
REFUSED = {"SenderFault": True, "Code": "InvalidMessageContents", "Message": "no"}


def at_first(count: int, flaw: Any, of: str = "") -> Callable[[dict[str, Any]], Any]:
    """So often for each message, or for one."""
    seen: dict[str, int] = defaultdict(int)

    def flaw_of(entry: dict[str, Any]) -> Any:
        body = entry["MessageBody"]
        seen[body] += 1
        return flaw if seen[body] <= count and body.startswith(of) else None

    return flaw_of


def test_messages_share_requests_and_each_is_told_its_own() -> None:
    """As many as are advised, of what many threads send."""
    queue = Queue()
    with producing(queue) as producer, ThreadPoolExecutor(8) as pool:
        futures = list(pool.map(lambda n: producer.send(str(n)), range(200)))
    assert len(queue.batches) < 100
    told = {int(entry["MessageBody"]): str(n) for n, entry in enumerate(queue.taken, 1)}
    assert [future.result()["MessageId"] for future in futures] == [told[n] for n in range(200)]


def test_all_that_boto3_takes_of_a_message_is_sent() -> None:
    """Unchanged, also when it is sent again: another deduplication id would be another message."""
    queue = Queue(at_first(2, INTERNAL))
    stated = {"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 3}
    with producing(queue, FIFO) as producer:
        assert producer.send("body", **stated).result(20.0)["MessageId"] == "1"
    assert [{**entry, "Id": ""} for batch in queue.batches for entry in batch] == [
        {"Id": "", "MessageBody": "body", **stated}
    ] * 3


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, BATCH_BYTES_MAX), max_size=40),
    batch=st.integers(1, 10),
    seed=st.integers(0, 99),
)
def test_a_batch_is_never_more_than_a_request_may_hold(sizes: list[int], batch: int, seed: int) -> None:
    """In number and bytes, whatever fails in between; each is taken once."""
    chance = random.Random(seed)
    queue = Queue(lambda _: INTERNAL if chance.random() < 0.2 else None)
    with producing(queue, advice=advice(batch=batch)) as producer:
        for size in sizes:
            producer.send("x" * size)
    for entries in queue.batches:
        assert 1 <= len(entries) <= batch
        assert sum(len(entry["MessageBody"]) for entry in entries) <= BATCH_BYTES_MAX
    assert sorted(len(entry["MessageBody"]) for entry in queue.taken) == sorted(sizes)


@settings(max_examples=20, deadline=None)
@given(groups=st.lists(st.sampled_from("abc"), max_size=60), seed=st.integers(0, 99))
def test_each_group_keeps_its_order(groups: list[str], seed: int) -> None:
    """Whatever of a batch is refused, and by how many threads it is sent."""
    chance = random.Random(seed)
    queue = Queue(lambda _: INTERNAL if chance.random() < 0.3 else None)
    with producing(queue, FIFO) as producer:
        for number, group in enumerate(groups):
            producer.send(str(number), MessageGroupId=group)
    for group in "abc":
        taken = [int(entry["MessageBody"]) for entry in queue.taken if entry["MessageGroupId"] == group]
        assert taken == [number for number, other in enumerate(groups) if other == group]


def test_a_tenant_of_a_standard_queue_has_no_order_to_keep() -> None:
    """And so no message waits for another."""
    queue = Queue()
    with producing(queue, advice=advice(threads=1)) as producer:
        for number in range(30):
            producer.send(str(number), MessageGroupId="tenant")
    assert max(map(len, queue.batches)) == 10


def test_what_is_refused_for_what_it_is_fails_alone() -> None:
    """It is not sent again, and others of its batch are."""
    queue = Queue(at_first(99, REFUSED, of="bad"))
    with producing(queue) as producer:
        futures = {body: producer.send(body) for body in ("one", "bad", "two")}
    with pytest.raises(SendFailedError, match="InvalidMessageContents: no"):
        futures["bad"].result()
    assert {entry["MessageBody"] for entry in queue.taken} == {"one", "two"}
    assert sum(entry["MessageBody"] == "bad" for batch in queue.batches for entry in batch) == 1


def test_a_message_for_which_the_whole_request_is_refused_takes_none_along() -> None:
    """Then each is sent by itself."""
    answer: Any = {"Error": {"Code": "InvalidParameterValue"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    queue = Queue(at_first(99, ClientError(answer, "SendMessageBatch"), of="bad"))
    with producing(queue) as producer:
        futures = {body: producer.send(body) for body in ("one", "bad", "two")}
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        futures["bad"].result()
    assert {entry["MessageBody"] for entry in queue.taken} >= {"one", "two"}


def throttled(code: str, status: int) -> ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "SendMessageBatch")


@pytest.mark.parametrize(
    "trouble",
    [
        EndpointConnectionError(endpoint_url=URL),
        throttled("RequestThrottled", 403),
        throttled("KMS.ThrottlingException", 400),  # of a queue that a key of AWS KMS encrypts
        throttled("KmsThrottled", 400),
    ],
)
def test_what_may_pass_is_tried_again_until_it_does_or_for_so_long(trouble: Exception) -> None:
    """A network that is gone for a moment loses nothing; one that stays away is told."""
    with producing(Queue(at_first(3, trouble))) as producer:
        passing = producer.send("one")
    assert passing.result()["MessageId"] == "1"
    with producing(Queue(at_first(10**9, trouble)), try_seconds_max=0.01) as producer:
        staying = producer.send("one")
    with pytest.raises(type(trouble)):
        staying.result()


def test_a_message_of_which_sqs_says_nothing_is_sent_again() -> None:
    """A refusal that did not say whose it is ended who sends, and what was accepted was never told its end."""
    with producing(Queue(at_first(2, {"Id": None, "Code": "InternalError"}))) as producer:
        sent = [producer.send(word) for word in ("one", "two")]
    assert sorted(future.result(20.0)["MessageId"] for future in sent) == ["1", "2"]


def send_all(producer: QueueProducer, bodies: list[str], sent: list[Future[Any]]) -> None:
    for body in bodies:
        sent.append(producer.send(body))  # noqa: PERF401 - seen by another thread


def test_who_sends_waits_while_too_many_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, by messages and by bytes."""
    for name, bound, body in (("HELD_COUNT_MAX", 5, "x"), ("HELD_BYTES_MAX", 5 * KiB, "x" * KiB)):
        monkeypatch.setattr(sending, name, bound)
        queue, sent = Queue(), list[Future[Any]]()
        queue.may_answer.clear()
        producer = producing(queue)
        sender = threading.Thread(target=send_all, args=(producer, [body] * 9, sent))
        sender.start()
        sender.join(0.2)
        assert len(sent) == 5
        queue.may_answer.set()
        sender.join(20.0)
        producer.close()
        assert len(queue.taken) == 9


def test_who_hears_of_a_message_may_send_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no more may be held: the one thread that could make room would wait for itself."""
    monkeypatch.setattr(sending, "HELD_COUNT_MAX", 1)
    queue, answered = Queue(), Future[Any]()
    with producing(queue, advice=advice(threads=1)) as producer:

        def answer(_: Future[Any]) -> None:
            producer.send("answer").add_done_callback(answered.set_result)

        producer.send("question").add_done_callback(answer)
        assert answered.result(20.0).result()["MessageId"] == "2"
    assert [entry["MessageBody"] for entry in queue.taken] == ["question", "answer"]


def test_what_no_request_can_hold_is_refused_at_once() -> None:
    """With its attributes."""
    with producing(Queue()) as producer:
        value = {"DataType": "Binary", "BinaryValue": bytes(BATCH_BYTES_MAX - 9)}
        with pytest.raises(ValueError, match="SQS takes"):
            producer.send("xyz", MessageAttributes={"a": value})
        producer.send("xy", MessageAttributes={"a": value}).result(20.0)
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("more")


def test_an_interrupt_while_it_closes_says_what_was_not_sent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To who accepted it, and in the log; also what stood behind another of its group."""
    queue = Queue()
    queue.may_answer.clear()
    producer = producing(queue, FIFO)
    futures = [producer.send(str(number), MessageGroupId="g") for number in range(3)]
    monkeypatch.setattr(producer, "flush", lambda **_: (_ for _ in ()).throw(KeyboardInterrupt))
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        producer.close()
    assert "3 messages" in caplog.text
    for future in futures[1:]:
        with pytest.raises(SendFailedError, match="closed"):
            future.result(0)
    queue.may_answer.set()
    futures[0].exception(20.0)


def test_the_advised_rate_is_kept() -> None:
    """By all threads together: so much time is asked for before each request."""
    queue, paused = Queue(), list[float]()
    producer = producing(queue, advice=advice(threads=1, rate=1e6))
    pause = producer._pace.pause_seconds
    producer._pace.pause_seconds = lambda amount: paused.append(amount) or pause(amount)  # type: ignore[func-returns-value, method-assign]
    with producer:
        for number in range(25):
            producer.send(str(number))
    assert sum(paused) == 25
    producer._pace._due_at = time.monotonic() + 100.0
    assert 99.0 < pause(1e6) <= 100.0
    assert pause(1) > 100.0


def test_it_follows_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more threads and fewer, and larger batches; what the SDK does by itself is nothing to go back to."""
    found = [
        advice(threads=1, batch=1),
        advice(threads=3, batch=7),
        default_advice("sqs_delivery", 1024, "none"),
    ]
    monkeypatch.setattr(
        queue_advice, "advise_in", lambda *_: found.pop(0) if found else advice(threads=2, batch=5)
    )
    monkeypatch.setattr(sending, "_FOLLOW_SECONDS", 0.0)
    queue, followed = Queue(), list[tuple[int, int, int]]()
    with QueueProducer(queue, URL) as producer:
        followed.append((producer.sender_thread_count, producer.batch_message_count, len(producer._threads)))
        for _ in range(3):
            producer.send("one").result(20.0)
            followed.append(
                (producer.sender_thread_count, producer.batch_message_count, len(producer._threads))
            )
    assert followed == [(1, 1, 0), (3, 7, 3), (3, 7, 3), (2, 5, 3)]


def test_what_is_derived_is_followed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the same setting a message may have to wait for others for another time."""
    found = [a_queue_advice(derived={"batch_linger_seconds": seconds}) for seconds in (0.01, 0.003)]
    monkeypatch.setattr(queue_advice, "advise_in", lambda *_: found.pop(0) if len(found) > 1 else found[0])
    monkeypatch.setattr(sending, "_FOLLOW_SECONDS", 0.0)
    with QueueProducer(Queue(), URL) as producer:
        assert producer._linger_seconds == 0.01
        producer.send("one").result(20.0)
        assert producer._linger_seconds == 0.003


def test_what_was_accepted_is_sent_at_the_end_of_its_own_process() -> None:
    """Though nobody closed the producer; a forked child sends what it accepted itself, and nothing of its parent's."""
    program = """
import atexit
import os
import warnings
from tests.unit.client.test_boto3_producer import Queue, producing

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
queue = Queue()
atexit.register(lambda: print([entry["MessageBody"] for entry in queue.taken]))
queue.may_answer.clear()
producer = producing(queue)
producer.send("parent's")
child = os.fork()
queue.may_answer.set()
if not child:
    producer.send("child's")
    producer.close()
    os._exit([entry["MessageBody"] for entry in queue.taken] != ["child's"])
print(os.waitpid(child, 0)[1])
"""
    assert printed([sys.executable, "-c", program], cwd=ROOT, timeout=60) == """0\n["parent's"]\n"""


def test_a_child_has_begun_anew_when_all_of_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other threads wait until then: they would go on with threads of the parent, and at no rate."""
    producer, parent, begun_in = producing(Queue()), os.getpid(), list[int]()
    monkeypatch.setattr(producer, "_obey", lambda _: begun_in.append(producer._process_id))
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert producer.flush()
    assert begun_in == [parent]
    assert producer._process_id == parent + 1


def test_what_was_accepted_is_sent_at_the_end_of_a_child_of_multiprocessing(tmp_path: Path) -> None:
    """Of one that was forked, too, which passes over what was registered for the end of the interpreter."""
    program = f"""
import multiprocessing
import warnings
from pathlib import Path
from tests.unit.client.test_boto3_producer import Kept, producing

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads


def work():
    global producer
    producer = producing(Kept({str(tmp_path / "kept")!r}))
    for _ in range(3):
        producer.send("accepted")


if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    print(child.exitcode, Path({str(tmp_path / "kept")!r}).read_text())
"""
    assert printed([sys.executable, "-c", program], cwd=ROOT, timeout=60) == "0 3\n"


def test_what_was_accepted_is_sent_at_the_end_of_a_child_of_a_fork_server(tmp_path: Path) -> None:
    """It imports the program, which sends already, and forgets then what was registered for its end."""
    program, kept = tmp_path / "program.py", tmp_path / "kept"
    program.write_text(f"""
import multiprocessing
from pathlib import Path
from tests.unit.client.test_boto3_producer import Kept, producing


producer = producing(Kept({str(kept)!r}))
producer.send("at once").result(60)


def work():
    for _ in range(3):
        producer.send("accepted")


if __name__ == "__main__":
    child = multiprocessing.get_context("forkserver").Process(target=work)
    child.start()
    child.join()
    print(child.exitcode, Path({str(kept)!r}).read_text())
""")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert printed([sys.executable, program], env=environment, timeout=60) == "0 4\n"


class Signal:
    """As much of Celery's as it takes to say that a process of its pool ends, which it then does by `os._exit`."""

    def __init__(self) -> None:
        self.receivers: dict[Any, Callable[..., None]] = {}

    def connect(self, receiver: Callable[..., None], *, weak: bool, dispatch_uid: Any) -> None:
        assert not weak
        self.receivers[dispatch_uid] = receiver

    def disconnect(self, *, dispatch_uid: Any) -> None:
        del self.receivers[dispatch_uid]

    def send(self) -> None:
        for receiver in list(self.receivers.values()):
            receiver(signal=self, sender=None, pid=1, exitcode=0)


def test_what_was_accepted_is_sent_at_the_end_of_a_process_of_celery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is registered for the end of a process is called there, but by the signal that tells of it."""
    signals: Any = ModuleType("celery.signals")
    signals.worker_process_shutdown = ending = Signal()
    monkeypatch.setitem(sys.modules, "celery.signals", signals)
    producer = producing(Queue())
    future = producer.send("accepted")
    assert len(ending.receivers) == 1
    ending.send()
    assert future.done()
    assert not ending.receivers


@pytest.mark.parametrize("trouble", [SystemExit(1), KeyboardInterrupt()])
def test_what_ends_a_thread_that_hears_of_a_message_keeps_no_other_back(
    trouble: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """An application may want to exit when a message fails; those that shared its request never ended."""
    queue = Queue()
    queue.may_answer.clear()

    def leave(_: Future[Any]) -> None:
        raise trouble

    producer = producing(queue, advice=advice(threads=1))
    futures = [producer.send(str(n)) for n in range(20)]
    futures[0].add_done_callback(leave)
    queue.may_answer.set()
    assert producer.flush(timeout_seconds=20.0)
    producer.close()
    assert all(future.result(0) for future in futures)
    assert "was in trouble" in caplog.text


def test_why_a_message_was_not_taken_can_be_told_to_another_process() -> None:
    """A pool of processes broke, or hung, where its answer could not be read again."""
    error = SendFailedError("InvalidMessageContents", "no")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - what was written here
    assert (str(again), again.code) == (str(error), error.code) == ("InvalidMessageContents: no", error.code)


def test_a_module_that_another_thread_imports_keeps_no_message_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of multiprocessing is there before it has all that it will have."""
    monkeypatch.setitem(sys.modules, "multiprocessing.util", ModuleType("multiprocessing.util"))
    with producing(Queue()) as producer:
        assert producer.send("one").result(20.0)


@pytest.mark.parametrize("url", [URL, FIFO])
def test_an_interrupt_while_a_message_is_accepted_leaves_none_that_never_ends(url: str) -> None:
    """Wherever Ctrl-C comes, which is when something is called: to close the producer waited for ever."""
    interrupted = list[str]()
    for moment in itertools.count():
        producer = producing(Queue(), url)
        producer.send("first", MessageGroupId="g").result(20.0)
        with contextlib.suppress(KeyboardInterrupt), interrupt_at_call(moment, interrupted):
            producer.send("second", MessageGroupId="g")
        assert producer.flush(timeout_seconds=20.0), interrupted[-1]
        producer.close()
        if len(interrupted) == moment:
            break
    assert "_accept" in interrupted


@contextlib.contextmanager
def interrupt_at_call(number: int, interrupted: list[str]) -> Iterator[None]:
    """As Ctrl-C does before the function that is called then has begun, which is noted.

    Not in what Python calls where an object ends, whenever that is: an interrupt there reaches nobody.
    """
    calls = itertools.count()

    def trace(frame: FrameType, event: str, _: object) -> None:
        is_of_program = frame.f_code.co_name not in {"_remove", "__del__"}
        if event == "call" and is_of_program and next(calls) == number:
            interrupted.append(frame.f_code.co_name)
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
