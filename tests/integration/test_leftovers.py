"""`penstock leftovers`: what a killed daemon left outside is seen and removed, with a daemon and without one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.daemon.memory.store import Store
from penstock.operations.table import setting_types
from penstock.probes.probe import Leftover, LeftoverKind
from penstock.trial.stage import CREDENTIALS
from tests.daemon_house import FAST, DaemonHouse, lab_bucket
from tests.integration.scripted_advisor import LEFT_BEHIND, Served
from tests.integration.test_daemon import BUCKET, endpoints, stage  # noqa: F401  # fixtures
from tests.speaker import speaking
from tests.waiting import until


def leftovers(*arguments: str | Path, socket: Path) -> Result:
    """One command, by this socket if somebody listens there."""
    words = ["leftovers", *map(str, arguments)]
    return CliRunner().invoke(cli, words, env={"PENSTOCK_SOCKET": str(socket), **CREDENTIALS})


def kill_in_the_midst(house: DaemonHouse, process_id: int) -> None:
    """While something of an upload is outside."""

    def is_outside() -> bool:
        """It stands still while it is looked at."""
        os.kill(process_id, signal.SIGSTOP)
        found = any(name.startswith("penstock-probe/") for name in house.leftovers())
        os.kill(process_id, signal.SIGKILL if found else signal.SIGCONT)
        return found

    until(is_outside, seconds=60.0)


def test_a_daemon_is_asked(server: Served) -> None:
    """What is left behind is listed with its age and reason, and removed at a word."""
    listed = leftovers("list", socket=server.socket_path)
    assert f"s3://my-bucket/{LEFT_BEHIND['name']}  30 min  {LEFT_BEHIND['reason']}" in listed.output
    removed = leftovers("remove", socket=server.socket_path)
    assert removed.output == f"removed s3://my-bucket/{LEFT_BEHIND['name']}\nNothing is left behind.\n"
    assert (listed.exit_code, removed.exit_code) == (0, 0)
    document = json.loads(leftovers("list", "--json", socket=server.socket_path).output)
    assert document == {"removed": [], "leftovers": [dict(LEFT_BEHIND)]}


def test_what_can_never_be_removed_is_forgotten_at_a_word(server: Served) -> None:
    """It is named once more, and that nobody will; it is no failure then."""
    forgotten = leftovers("remove", "--forget", socket=server.socket_path)
    assert forgotten.output.startswith("This is not tried again:\n")
    assert LEFT_BEHIND["name"] in forgotten.output
    assert forgotten.exit_code == 0
    planned = leftovers("remove", "--forget", "--dry-run", socket=server.socket_path)
    assert planned.output.startswith("This would be removed:\n")
    assert "not tried again" not in planned.output


def test_the_status_says_that_something_is_left(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its first line, with where to look; where nothing is left, not a word."""
    remark = "3 things that probes made could not be removed, the oldest for 2 h: no DeleteObject"
    environment = {"PENSTOCK_SOCKET": str(server.socket_path)}
    assert "removed" not in CliRunner().invoke(cli, ["status"], env=environment).output
    status = server.advisor.status()
    monkeypatch.setattr(server.advisor, "status", lambda: {**status, "leftover_remark": remark})
    shown = CliRunner().invoke(cli, ["status"], env=environment).output
    assert " ".join(shown.split()).startswith(f"{remark}. See `penstock leftovers list`. ")


def test_a_dry_run_asks_for_nothing(server: Served) -> None:
    """It says what would be removed; even a daemon that refuses answers that."""
    server.advisor.refusal = "busy"
    planned = leftovers("remove", "--dry-run", socket=server.socket_path)
    assert planned.output.startswith("This would be removed:\n")
    assert planned.exit_code == 0
    refused = leftovers("remove", socket=server.socket_path)
    assert (refused.exit_code, "busy" in refused.output) == (1, True)


def test_where_no_daemon_ever_ran_nothing_is_made(tmp_path: Path) -> None:
    """A database of whoever asks would keep the daemon, which is another user, from having one.

    That it is elsewhere is as likely as that there was none, so that nobody is told that nothing is left.
    """
    file = tmp_path / "penstock.toml"
    file.write_text(f'[daemon]\nstate_directory = "{tmp_path / "state"}"\n', encoding="utf-8")
    for words in ("list", "remove"):
        asked = leftovers(words, "--config", file, socket=tmp_path / "nobody")
        assert (asked.exit_code, "Nothing is left behind." in asked.output) == (1, False)
        assert f"there is no database at {tmp_path / 'state/penstock.db'}" in asked.output
        assert f"no daemon answers on {tmp_path / 'nobody'}" in asked.output
        assert "--config" in asked.output
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("words", [("list",), ("remove",), ("remove", "--dry-run")])
def test_a_daemon_that_goes_away_is_no_missing_database(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Somebody was there: what is said is that he said nothing, and no database is looked for behind his back."""
    silent = tmp_path / "silent"
    with speaking(silent, b""):
        asked = leftovers(*words, socket=silent)
    assert asked.exit_code == 3
    assert f"the daemon on {silent} went away before it had answered" in asked.output
    assert "database" not in asked.output


def test_what_a_killed_daemon_left_is_removed_without_one(stage: DaemonHouse) -> None:  # noqa: F811  # the fixture
    """From the database alone: listed, then removed, so that a host can be given up without a daemon."""
    config = ("--config", stage.configuration_file)
    with stage.daemon() as running:
        inside = leftovers("list", *config, socket=stage.directory / "elsewhere")
        kill_in_the_midst(stage, running.pid)
    assert (inside.exit_code, "works on" in inside.output) == (1, True)  # what is in use is not left behind

    listed = json.loads(leftovers("list", "--json", *config, socket=stage.socket_path).output)
    removed = leftovers("remove", *config, socket=stage.socket_path)

    assert {entry["operation"] for entry in listed["leftovers"]} >= {"s3_upload"}
    assert removed.exit_code == 0, removed.output
    assert stage.leftovers() == []


def test_what_cannot_be_removed_is_said(stage: DaemonHouse) -> None:  # noqa: F811  # the fixture
    """Without a right the entries stay, with the reason, and the exit code is 1; with it they go."""
    with stage.daemon() as running:
        kill_in_the_midst(stage, running.pid)
    text = stage.configuration_file.read_text()
    stage.configuration_file.write_text(text.replace("[aws]", '[aws]\nprofile = "nobody"'))
    removed = leftovers("remove", "--config", stage.configuration_file, socket=stage.socket_path)
    assert removed.exit_code == 1
    assert "could not be removed" in removed.output
    stage.configuration_file.write_text(text)
    again = leftovers("remove", "--config", stage.configuration_file, socket=stage.socket_path)
    assert again.exit_code == 0, again.output
    assert stage.leftovers() == []


def test_what_lies_at_the_endpoint_of_yesterday_is_removed_there(
    stage: DaemonHouse,  # noqa: F811  # the fixture
    endpoints: dict[str, str],  # noqa: F811  # likewise
    tmp_path: Path,
) -> None:
    """Another endpoint, another bucket, another region: the next life sweeps where the killed one probed.

    Where the new service knows no such bucket, an entry would have been struck out, and what it names have stayed.
    """
    with stage.daemon() as running:
        kill_in_the_midst(stage, running.pid)
    text = stage.configuration_file.read_text()
    (tmp_path / "elsewhere").mkdir()
    with lab_bucket(tmp_path / "elsewhere", FAST, "another") as other:
        anew = text.replace(endpoints["s3"], other).replace(f'"{BUCKET}"', '"another"')
        stage.configuration_file.write_text(anew.replace('"lab-1"', '"lab-2"'))
        removed = leftovers("remove", "--config", stage.configuration_file, socket=stage.socket_path)
    assert removed.exit_code == 0, removed.output
    assert stage.leftovers() == []


def test_what_lies_where_nobody_answers_any_more_is_named_with_its_place(
    stage: DaemonHouse,  # noqa: F811  # the fixture
    tmp_path: Path,
) -> None:
    """The entry stays, the list says where the thing lies, and what is probed elsewhere is not kept from it."""
    gone = "http://127.0.0.1:1"
    entry = Leftover(
        kind=LeftoverKind.S3_OBJECT,
        service="s3_upload",
        container="old",
        name="penstock-probe/1/",
        region="lab-0",
        endpoint_url=gone,
    )
    with contextlib.closing(Store(tmp_path / "state/penstock.db", setting_types())) as store:
        store.record_leftover(entry, now=datetime.now(UTC) - timedelta(days=1))
    with stage.daemon():
        stage.wait_for(lambda status: status["leftover_remark"] and status["cycles"])
        listed = leftovers("list", socket=stage.socket_path)
    assert f"it lies in old, lab-0 at {gone}, which is not probed any more" in listed.output
