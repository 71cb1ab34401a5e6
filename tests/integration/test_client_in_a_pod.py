"""Where memory is limited, as in a pod, advice keeps within half of the limit, without a word of the application."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import confinement
from penstock.client.advice import Adviser
from penstock.client.asyncio_client import AsyncLease
from penstock.client.lease import Lease
from penstock.units import GiB, MiB
from tests.advice import an_answer
from tests.integration.scripted_advisor import Served, served_in_thread

LIMIT = 512 * MiB


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A pod of half a GiB with a daemon of its node."""
    monkeypatch.setattr(confinement, "memory_limit_bytes", lambda: LIMIT)
    monkeypatch.setattr(confinement, "_seen", confinement._Seen())
    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "penstock.sock"))
    with served_in_thread(tmp_path) as server:
        yield server


def an_adviser(folder: Path, *, held_bytes: float) -> Adviser:
    """One that finds advice in the snapshot that holds so much."""
    answer = an_answer(derived={"memory_bytes": held_bytes})
    (folder / "snapshot.json").write_text(json.dumps({"recommendations": [answer]}))
    return Adviser(socket=str(folder / "penstock.sock"), snapshot=str(folder / "snapshot.json"))


def asked_memory(server: Served) -> list[int | None]:
    return [question.demand.memory_bytes_max for question in server.advisor.questions]


def test_what_stands_serves_while_it_fits(pod: Served, tmp_path: Path) -> None:
    """The common case costs no question."""
    assert an_adviser(tmp_path, held_bytes=LIMIT / 2).advise("s3_upload", GiB).explanation == "for a test"
    assert asked_memory(pod) == []


def test_what_would_be_killed_is_asked_about_anew(pod: Served, tmp_path: Path) -> None:
    """The advice that stands is the node's, which has a hundred times the memory of the pod."""
    adviser = an_adviser(tmp_path, held_bytes=LIMIT / 2 + 1)
    assert adviser.advise("s3_upload", GiB).basis == "measured"
    adviser.advise("s3_upload", GiB, object_count=4)
    assert asked_memory(pod) == [LIMIT // 2] * 2


@pytest.mark.parametrize(("stated", "asked"), [("2GiB", 2 * GiB), (None, None)])
def test_what_the_application_states_stands(
    pod: Served, tmp_path: Path, stated: str | None, asked: int | None
) -> None:
    """Also that there is to be no limit."""
    an_adviser(tmp_path, held_bytes=LIMIT).advise("s3_upload", GiB, memory_bytes_max=stated)
    assert asked_memory(pod) == [asked]


def test_leases_and_programs_keep_to_it_as_well(pod: Served, tmp_path: Path) -> None:
    """Whoever asks by another way is in the same pod."""
    with Lease("s3_upload", GiB):
        pass

    async def hold() -> None:
        async with AsyncLease("s3_upload", GiB, memory_bytes_max="1GiB"):
            pass

    asyncio.run(hold())
    assert {LIMIT // 2, GiB} <= set(asked_memory(pod))
    pod.advisor.questions.clear()
    lines = (
        "from penstock.client import confinement",
        f"confinement.memory_limit_bytes = lambda: {LIMIT}",
        "from penstock.cli.entry import main",
        "main()",
    )
    command = f"exec --json --object-size 1GiB --socket {tmp_path / 'penstock.sock'} -- s5cmd cp a s3://b/"
    subprocess.run(
        [sys.executable, "-c", "\n".join(lines), *command.split()], check=True, capture_output=True
    )
    assert asked_memory(pod) == [LIMIT // 2]
