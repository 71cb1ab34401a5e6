"""Knows how any user may speak to the port of SDKs, and what must not be left of it in the daemon's memory.

What is bent holds no secrets; they are put at its end. So none can come to stand in a name, which is shown.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time

from penstock.client.connection import ask
from tests.fuzz.daemon import HANG_SECONDS, FuzzedDaemon
from tests.fuzz.mutation import Mutator
from tests.fuzz.readers import CALL, TOLD
from tests.waiting import until

CANARY = b"CANARY7SECRETS"
SHOWN = b"shown-and-so-kept"
_SECRETS = b',"AccessKey":"' + CANARY + b'","SessionToken":"' + CANARY * 20 + b'"}'
_PROPER = json.dumps(TOLD | {"ClientId": SHOWN.decode()}).encode().removesuffix(b"}") + _SECRETS
_OUTCOMES = ("heard_count", "unreadable_count", "dropped_count")
_BENT_BYTES_MAX = 60_000  # a datagram holds no more than 65,507
_SLICE, _SLICE_SECONDS = 40, 0.005  # 8,000 a second: most are read, some are lost


def shout(daemon: FuzzedDaemon, word: str, numbers: range) -> list[str]:
    """Send one for each number; what is not as it must be afterwards."""
    sent_count = _told_count(daemon)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", daemon.port))
        for number in numbers:
            if number % _SLICE == 0:
                sender.send(_PROPER)
                sent_count += 1
                time.sleep(_SLICE_SECONDS)
            sender.send(_datagram(Mutator(word, number)))
            sent_count += 1
    with contextlib.suppress(AssertionError):
        until(lambda: _told_count(daemon) == sent_count, HANG_SECONDS)
    told = _told_count(daemon)
    held = daemon.holds(CANARY, SHOWN)
    answer = ask(str(daemon.socket_path), "GET", "/v1/clients", timeout_seconds=HANG_SECONDS)
    findings = {
        f"{sent_count} datagrams were sent, and it tells of {told}": told != sent_count,
        "the secret is in /v1/clients": CANARY in answer.body,
        "the secret is in the daemon's memory": CANARY in held,
        "no name is in the daemon's memory, so the search proves nothing": SHOWN not in held,
    }
    return [finding for finding, is_so in findings.items() if is_so]


def _told_count(daemon: FuzzedDaemon) -> int:
    counts = daemon.datagram_counts()
    return sum(counts[name] for name in _OUTCOMES)


def _datagram(mutator: Mutator) -> bytes:
    whole = TOLD | (CALL if mutator.happens(0.3) else {})
    whole |= {"ClientId": str(mutator.chance.randrange(10**6))} if mutator.happens(0.5) else {}
    return mutator.bent_json(whole).removesuffix(b"}")[:_BENT_BYTES_MAX] + _SECRETS
