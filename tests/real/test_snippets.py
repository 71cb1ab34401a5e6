"""What the manual shows of other languages is compiled and run: with advice, and with all that is none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.api.wire import Snapshot, encode, snapshot_document
from penstock.units import MiB
from penstock.vocabulary import Recommendation
from tests.integration.scripted_advisor import a_recommendation
from tests.programs import printed
from tests.real import provision

pytestmark = [pytest.mark.real, pytest.mark.timeout(provision.BUILD_SECONDS_MAX)]
SNIPPETS = Path(__file__).parents[2] / "docs/snippets"
NO_ADVICE = "no advice"


def _go(folder: Path) -> list[str]:
    provision.require("go")
    subprocess.run(
        ["go", "build", "-o", folder / "advice", SNIPPETS / "advice.go"],
        check=True,
        env={**os.environ, "GOFLAGS": "", "GO111MODULE": "off"},
    )
    return [str(folder / "advice")]


def _java(folder: Path) -> list[str]:
    jars = f"{provision.jackson()}/*"
    subprocess.run(["javac", "-Werror", "-cp", jars, "-d", folder, SNIPPETS / "Advice.java"], check=True)
    return ["java", "-cp", f"{folder}:{jars}", "Advice"]


def _rust(_folder: Path) -> list[str]:
    return [str(provision.rust_program(SNIPPETS / "advice.rs"))]


def _node(_folder: Path) -> list[str]:
    provision.require("node")
    return ["node", str(SNIPPETS / "advice.mjs")]


def _snapshot(*recommendations: Recommendation[Any]) -> bytes:
    now = datetime.now(UTC)
    return encode(
        snapshot_document(
            Snapshot(
                generation=1,
                generated_at=now,
                region="eu-west-1",
                instance_type="m7i.large",
                recommendations=recommendations,
            )
        )
    )


@pytest.mark.parametrize("compiled", [_go, _java, _rust, _node])
def test_a_snippet_reads_the_snapshot(compiled: Callable[[Path], list[str]], tmp_path: Path) -> None:
    """The nearest advice that stands; none where it has expired, is for another size, is damaged or is not there."""
    command, path = compiled(tmp_path), tmp_path / "recommendations.json"

    def said() -> str:
        return printed(command, env={**os.environ, "PENSTOCK_SNAPSHOT": str(path)}).strip()

    past = datetime.now(UTC) - timedelta(seconds=1)
    other = a_recommendation("sqs_delivery")
    assert said() == NO_ADVICE
    path.write_bytes(_snapshot(other, a_recommendation(payload_size_bytes=700 * MiB), a_recommendation()))
    assert said() == f"32 {16 * MiB}"
    path.write_bytes(_snapshot(other, a_recommendation(expires_at=past)))
    assert said() == NO_ADVICE
    path.write_bytes(_snapshot(other, a_recommendation(payload_size_bytes=100 * MiB)))
    assert said() == NO_ADVICE
    path.write_bytes(_snapshot(a_recommendation())[:-100])
    assert said() == NO_ADVICE
