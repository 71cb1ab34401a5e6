"""What was made before a fork: a child begins anew, once and whole, and on connections of its own."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from penstock.client.forks import OfOneProcess
from tests.programs import printed, ran

ROOT = Path(__file__).parents[3]
_PRODUCER = """
from tests.unit.client.test_boto3_producer import Queue, producing


class Noting(Queue):
    def close(self):
        made.append("close")

    def send_message_batch(self, **words):
        made.append("request")
        return super().send_message_batch(**words)


producer = producing(Noting())
producer.send("parent's").result(60)


def work():
    producer.send("child's").result(60)
    producer.send("another").result(60)
"""
_CONSUMER = """
from penstock.client.queues.boto3_queue import QueueConsumer
from tests.advice import a_queue_advice


class Noting:
    def close(self):
        made.append("close")

    def receive_message(self, **words):
        made.append("request")
        consumer.stop()
        return {}


advice = a_queue_advice(receivers=1)
consumer = QueueConsumer(Noting(), "https://sqs/queue", print, advice=advice, hold_seconds_max=0)
work = consumer.run
"""
_IN_A_CHILD = """
import os
import warnings

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
made.clear()
child = os.fork()
if not child:
    work()
    os._exit(made[:2] != ["close", "request"] or made.count("close") != 1)
print(os.waitpid(child, 0)[1], made)
"""


@pytest.mark.parametrize("program", [_PRODUCER, _CONSUMER], ids=["producer", "consumer"])
def test_a_child_sends_and_receives_on_connections_of_its_own(program: str) -> None:
    """On its parent's it read what others had been answered: messages were lost that it said were sent."""
    done = ran([sys.executable, "-c", f"made = []{program}{_IN_A_CHILD}"], cwd=ROOT, timeout=60)
    assert (done.stdout, done.stderr) == ("0 []\n", "")


def test_threads_of_a_child_begin_anew_together() -> None:
    """The second one to notice waits until the first has made everything new: half of it is the parent's."""
    beginning, may_end, notes = threading.Event(), threading.Event(), []

    class Forked(OfOneProcess):
        def __init__(self) -> None:
            self._process_id = -1  # of its parent

        def _begin_anew(self) -> None:
            beginning.set()
            may_end.wait(60)
            notes.append("began")

        def use(self) -> None:
            self._notice_fork()
            notes.append("used")

    forked = Forked()
    threads = [threading.Thread(target=forked.use) for _ in range(4)]
    threads[0].start()
    beginning.wait(60)
    for thread in threads[1:]:
        thread.start()
    threads[1].join(0.05)  # as long as it is of use: it cannot end before it may
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert notes == ["began", "used", "used", "used", "used"]


def test_what_begins_anew_may_use_what_has_to_begin_anew_itself() -> None:
    """Such as a log that is sent to a queue, or what a signal handler uses: the thread waited for itself."""

    class Forked(OfOneProcess):
        def __init__(self, *others: OfOneProcess) -> None:
            self._process_id, self._others = -1, others

        def _begin_anew(self) -> None:
            for other in self._others:
                other._notice_fork()

    inner = Forked()
    thread = threading.Thread(target=Forked(inner)._notice_fork, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert inner._process_id == os.getpid()


def test_a_child_of_a_process_that_consumes_has_messages_of_its_own() -> None:
    """It waited for ever for those that its parent was handling, and might have deleted them."""
    program = """
import os
import threading
import warnings

from penstock.client.queues.boto3_queue import QueueConsumer
from tests.advice import a_queue_advice

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
parent, is_handling, may_end = os.getpid(), threading.Event(), threading.Event()


class Queue:
    def receive_message(self, **words):
        if os.getpid() != parent:
            consumer.stop()
            return {}
        return {"Messages": [{"MessageId": "m", "ReceiptHandle": "h"}]}

    def delete_message_batch(self, **words):
        return {}


def handle(message):
    is_handling.set()
    may_end.wait()


advice = a_queue_advice(receivers=1)
consumer = QueueConsumer(Queue(), "https://sqs/queue", handle, advice=advice, hold_seconds_max=0)
running = threading.Thread(target=consumer.run)
running.start()
is_handling.wait()
child = os.fork()
if not child:
    running = threading.Thread(target=consumer.run, daemon=True)
    running.start()
    running.join(20)
    os._exit(running.is_alive() or consumer.undeleted_count)
consumer.stop()
may_end.set()
print(os.waitpid(child, 0)[1])
"""
    assert printed([sys.executable, "-c", program], cwd=ROOT, timeout=60) == "0\n"
