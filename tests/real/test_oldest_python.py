"""The client on the oldest Python that it promises: installed as documented, with libraries that can be had there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.trial.stage import CREDENTIALS
from tests.integration.scripted_advisor import SETTINGS, ScriptedAdvisor, a_recommendation, served_in_thread
from tests.programs import printed, ran
from tests.real import provision, servers

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]
PROGRAM = Path(__file__).with_name("on_the_oldest_python.py")


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of an application's environment."""
    return provision.oldest_python(tmp_path_factory.mktemp("oldest"))


def test_all_that_the_client_does(
    commands: Path, tmp_path: Path, s3_url: str, sqs_url: str, bucket: str
) -> None:
    """Files, queues, shares of the host and reports, by boto3, aiobotocore and s3fs; a daemon of today answers."""
    advisor = ScriptedAdvisor([a_recommendation(name) for name in SETTINGS])
    with served_in_thread(tmp_path, advisor) as served:
        environment = {
            **os.environ,
            **CREDENTIALS,
            "AWS_DEFAULT_REGION": servers.REGION,
            "AWS_ENDPOINT_URL_S3": s3_url,
            "AWS_ENDPOINT_URL_SQS": sqs_url,
            "PENSTOCK_SOCKET": str(served.socket_path),
        }
        said = printed([commands / "python", PROGRAM, bucket, tmp_path], env=environment, cwd=tmp_path)
    counted = json.loads(said)
    assert counted.pop("modules") > 30
    python = [int(word) for word in provision.OLDEST_PYTHON.split(".")]
    assert counted == {"python": python, "handled": 30, "share": 16, "is_told": True, "refused": 0}
    assert {seen.context.place.operation for seen in advisor.recorded} == SETTINGS.keys()
    assert any(seen.transferred_bytes == 77 for seen in advisor.recorded)


@pytest.mark.parametrize("command", ["penstock", "penstockd"])
def test_the_commands_want_a_newer_one(commands: Path, command: str, tmp_path: Path) -> None:
    """In one sentence; they cannot even be read there."""
    done = ran([commands / command, "--version"], cwd=tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "on Python 3.11 or newer" in done.stderr
