"""Knows how root fares on the socket while two other users do what they can to keep him from being answered."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from penstock.client.connection import NoDaemonError, ask
from tests.fuzz.daemon import fuzzed_daemon
from tests.waiting import until

HOSTILE_UIDS = (65533, 65534)
ANSWER_SECONDS_MAX = 30.0  # root gives up, and was not answered
_PAUSE_SECONDS = 0.05
_STARTING_SECONDS = 4.0  # that the hostile may take, until they are at work
_QUESTIONS = (
    "/v1/status",
    "/v1/recommendation?operation=s3_upload&payload_size_bytes=1GiB",
    "/v1/recommendation?operation=sqs_delivery&payload_size_bytes={}&message_rate_per_second=500",
)


@dataclass(slots=True)
class Answers:
    """How long root waited each time, and what he got when it was no answer."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    resident_bytes_max: int = 0
    log_bytes: int = 0

    def quantile(self, share: float) -> float:
        """Of the seconds."""
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def sentence(self) -> str:
        """For people."""
        return (
            f"root was answered {len(self.seconds):,} times and was not {len(self.failures)} times; it took "
            f"{statistics.median(self.seconds):.3f} s in the median, {self.quantile(0.99):.3f} s at the 99th "
            f"percentile, {max(self.seconds):.3f} s at most; the daemon held {self.resident_bytes_max / 2**20:.0f} MiB "
            f"and wrote {self.log_bytes:,} bytes of log"
        )


def beside_hostile_users(folder: Path, seconds: float) -> Answers:
    """Ask for so long, each question on a connection of its own, while they attack. Only root can become others."""
    folder.chmod(0o755)
    answers = Answers()
    with fuzzed_daemon(folder) as daemon:
        path = daemon.socket_path
        attack_seconds = str(seconds + _STARTING_SECONDS)
        attackers = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.hostile", str(path), str(uid), attack_seconds]
            )
            for uid in HOSTILE_UIDS
        ]
        quiet_count = daemon.socket_count
        try:
            until(lambda: daemon.socket_count > quiet_count)
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                _ask(path, answers)
                answers.resident_bytes_max = max(answers.resident_bytes_max, daemon.resident_bytes)
                time.sleep(_PAUSE_SECONDS)
        finally:
            for attacker in attackers:
                attacker.kill()
                attacker.wait()
        daemon.answer_seconds()
        answers.log_bytes = daemon.log_path.stat().st_size
    return answers


def _ask(path: Path, answers: Answers) -> None:
    count = len(answers.seconds) + len(answers.failures)
    target = _QUESTIONS[count % len(_QUESTIONS)].format(1024 + count)
    begun = time.monotonic()
    try:
        answer = ask(str(path), "GET", target, timeout_seconds=ANSWER_SECONDS_MAX)
    except NoDaemonError as trouble:
        answers.failures.append(str(trouble))
        return
    if answer.status == 200:
        answers.seconds.append(time.monotonic() - begun)
    else:
        answers.failures.append(f"{answer.status}: {answer.body[:200]!r}")
