"""The commands against a real daemon, and against none."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from penstock.cli import daemon, status
from penstock.cli.main import cli, run
from penstock.cli.trouble import NoDaemonError
from penstock.daemon.config_files import load
from penstock.units import GiB, MiB
from penstock.vocabulary import Basis
from tests.integration.scripted_advisor import (
    NO_CREDENTIALS,
    ScriptedAdvisor,
    Served,
    a_recommendation,
    served_in_thread,
)
from tests.programs import ran
from tests.speaker import speaking

PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]


def penstock(server: Served, *arguments: str) -> Result:
    """One command, asked of this daemon."""
    return CliRunner().invoke(cli, arguments, env={"PENSTOCK_SOCKET": str(server.socket_path)})


def test_a_query_is_a_table_for_people(server: Served) -> None:
    """Sizes and rates have units; the last lines say why, and on what evidence."""
    asked = ("query", "s3-upload", "--object-size", "1GiB")
    issued_at = datetime.fromisoformat(json.loads(penstock(server, *asked, "--json").output)["issued_at"])
    newest_at = issued_at - timedelta(minutes=5)
    result = penstock(server, *asked)
    assert result.exit_code == 0
    assert result.output == (
        "Set 32 threads x 16 MiB: 2.7 times boto3's defaults (2.4 to 3.1); a ceiling on\n"
        "  the path is the limit.\n"
        "\n"
        "s3_upload of 1 GiB (eu-west-1, m7i.large)\n"
        "use\n"
        "thread count           32\n"
        "part size              16 MiB\n"
        "connection pool count  36\n"
        "multipart threshold    16 MiB\n"
        "\n"
        "expect        low      expected  high\n"
        "throughput    90 MB/s  100 MB/s  110 MB/s\n"
        "over default  2.4 x    2.7 x     3.1 x\n"
        "\n"
        "32 threads reach the ceiling of this host.\n"
        f"Basis: measured, 12 observations, the newest of {newest_at:%Y-%m-%d %H:%M} UTC. Limited\n"
        "  by: host-ceiling.\n"
    )


def test_a_query_is_a_document_for_programs(server: Served) -> None:
    """With --json, what is printed is what the socket says."""
    result = penstock(
        server,
        "query",
        "sqs-delivery",
        "--rate",
        "500",
        "--work-seconds",
        "20ms",
        "--objective",
        "latency",
        "--json",
    )
    document = json.loads(result.output)
    assert document["operation"] == "sqs_delivery"
    assert document["demand"]["message_rate_per_second"] == 500
    demand = server.advisor.questions[-1].demand
    assert (demand.work_seconds, demand.objective) == (0.02, "latency")


def test_every_option_of_a_query_reaches_the_daemon(server: Served) -> None:
    """No option is accepted and then dropped."""
    penstock(
        server, "query", "s3-upload", "--object-size", "1GiB", "--memory-max", "256MiB", "--bandwidth-max", "50MB/s",
        "--threads-max", "8", "--regime", "burst", "--region", "us-east-1", "--instance-type", "c7i.xlarge",
        "--objects", "4", "--service-class", "express",
    )  # fmt: skip
    question = server.advisor.questions[-1]
    assert (question.region, question.instance_type, question.service_class) == (
        "us-east-1",
        "c7i.xlarge",
        "express",
    )
    assert question.payload_size_bytes == GiB
    assert question.demand.memory_bytes_max == 256 * MiB
    assert question.demand.bandwidth_bytes_per_second_max == 50e6
    assert question.demand.thread_count_max == 8
    assert question.demand.regime == "burst"
    assert question.demand.object_count == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("explain", "s3-upload", "--object-size", "1GiB"),
        ("query", "s3-upload", "--object-size", "1GiB"),
        ("wait",),
        ("reload",),
        ("probe", "s3-upload", "--object-size", "1GiB"),
        ("probe", "sqs-delivery"),
    ],
)
def test_every_command_has_both_forms(server: Served, arguments: tuple[str, ...]) -> None:
    """Text by default, one JSON document with --json."""
    assert penstock(server, *arguments).exit_code == 0
    result = penstock(server, *arguments, "--json")
    assert result.exit_code == 0
    assert isinstance(json.loads(result.output), dict)


def test_status_begins_with_what_is_wrong(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trouble is a line of its own, with its date; the rest follows."""
    status = server.advisor.status()
    told = {**status, "trouble": "all in one line", "troubles": [NO_CREDENTIALS]}
    monkeypatch.setattr(server.advisor, "status", lambda: told)
    lines = penstock(server, "status").output.splitlines()
    assert lines[:2] == [
        "trouble with s3_upload 64 MiB in eu-west-1 (since 2026-11-21 10:00 UTC): no",
        "  credentials: name a profile in aws.profile",
    ]
    assert not any("all in one line" in line for line in lines)


def test_status_shows_units_ages_and_few_words(server: Served) -> None:
    """What was spent stands beside the budget, dates are ages, and a setting is told in short."""
    output = penstock(server, "status").output
    said = " ".join(output.split())
    assert "started 2 h ago" in said
    assert "transferred 3 GiB 64 GiB" in said
    assert "dollars $0.0123 $0.1" in said
    assert "s3_upload eu-west-1 1 GiB 12 3 5 min ago" in said
    assert "24 x 8 MiB gave 96 MB/s; advice stands" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "s3-upload", "--object-size", "1GiB"),
        ("status",),
        ("watch",),
        ("reload",),
        ("wait", "--timeout", "0s"),
    ],
)
def test_no_daemon_is_exit_code_3_and_a_sentence(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Whoever asks nobody learns how to start somebody."""
    result = CliRunner().invoke(cli, [*arguments, "--socket", str(tmp_path / "nobody.sock")])
    assert result.exit_code == 3
    assert "start it with" in result.output
    assert "--socket" in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("query", "s3-upload"), "Missing option '--object-size'"),
        (("query", "s3-upload", "--object-size", "big"), "such as 8MiB"),
        (("query", "s3-upload", "--object-size", "1GiB", "--region", "EU"), "'EU' is not a name"),
        (("query", "s3-upload", "--object-size", "1GiB", "--objective", "turbo"), "throughput"),
        (
            ("query", "s3-upload", "--object-size", "1GiB", "--service-class", "foo"),
            "one of standard, express",
        ),
        (("query", "s3-upload", "--object-size", "0"), "a size here is more than 0"),
        (("probe", "s3-upload", "--object-size", "0B"), "a size here is more than 0"),
        (("telemetry", "--interval", "0s"), "a duration here is more than 0"),
        (("frobnicate",), "No such command"),
        (("run",), "--once"),
    ],
)
def test_wrong_usage_is_exit_code_2(server: Served, arguments: tuple[str, ...], expected: str) -> None:
    """Whether the command line or the daemon notices it."""
    result = penstock(server, *arguments)
    assert result.exit_code == 2
    assert expected in result.output


def test_stale_advice_is_exit_code_4(tmp_path: Path) -> None:
    """A script can tell "not yet" from "broken"."""
    guess = a_recommendation(basis=Basis.PRIOR)
    with served_in_thread(tmp_path, ScriptedAdvisor(recommendations=[guess])) as server:
        result = penstock(server, "wait", "--timeout", "0s")
    assert result.exit_code == 4
    assert "no fresh advice from measurements" in result.output


def test_what_a_wait_is_for_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence comes when the waiting begins; its end says how long it was, with the same exit code."""
    slept_seconds = [0.0]  # nothing else takes time
    own_time = SimpleNamespace(monotonic=lambda: sum(slept_seconds), sleep=slept_seconds.append)
    monkeypatch.setattr(status, "time", own_time)
    guess = a_recommendation(basis=Basis.PRIOR)
    with served_in_thread(tmp_path, ScriptedAdvisor(recommendations=[guess])) as server:
        not_ready = penstock(server, "wait", "--timeout", "50ms")
    nobody = CliRunner().invoke(cli, ["wait", "--timeout", "50ms", "--socket", str(tmp_path / "nobody.sock")])
    for result, exit_code, sentence in (
        (not_ready, 4, "no fresh advice from measurements"),
        (nobody, 3, "no daemon answers on"),
    ):
        first, last = result.output.splitlines()
        assert result.exit_code == exit_code
        assert first.startswith(f"waiting: {sentence}")
        assert last == "Error: that has not changed in 50 ms"


def test_a_wait_for_a_daemon_that_hangs_is_no_longer_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question waits for what is left of it, a second at the least and ten at the most."""
    now, patience = [0.0], []

    def hang(_: str, *__: str, timeout_seconds: float, **___: object) -> None:
        patience.append(timeout_seconds)
        now[0] += timeout_seconds
        raise NoDaemonError("it does not answer")

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(status, "call", hang)
    assert CliRunner().invoke(cli, ["wait", "--timeout", "14s"]).exit_code == 3
    assert patience == [10.0, 3.5]
    patience.clear()
    assert CliRunner().invoke(cli, ["wait", "--timeout", "0s"]).exit_code == 3
    assert patience == [1.0]


def test_a_watch_goes_on_with_the_daemon_that_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart, or an upgrade, is no end of it; that nobody came in five minutes is, and exit code 3 says so."""
    path, now = tmp_path / "ending.sock", [1.0]
    state = b'HTTP/1.0 200 OK\r\n\r\n{"recommendations": []}\n'
    with contextlib.ExitStack() as living:
        living.enter_context(speaking(path, state))

        def sleep(seconds: float) -> None:
            living.close()  # it has spoken
            path.unlink(missing_ok=True)
            now[0] += seconds
            if now[0] == 5.0:
                living.enter_context(speaking(path, state))

        monkeypatch.setattr(daemon, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
        result = CliRunner().invoke(cli, ["watch", "--socket", str(path)])
    assert result.exit_code == 3
    ended, again, *rest = result.output.splitlines()
    assert (ended, again) == (rest[0], "penstock: a daemon answers again")
    assert "ended the watch; waiting for it" in ended
    assert "start" in rest[1]  # as where there was none at first
    assert 300.0 < now[0] < 320.0


def test_a_refusal_is_exit_code_1(server: Served) -> None:
    """The daemon's own sentence is what is printed."""
    server.advisor.refusal = "the budget of today is spent"
    result = penstock(server, "probe", "s3-upload", "--object-size", "1GiB")
    assert result.exit_code == 1
    assert result.output == "Error: the budget of today is spent\n"


def test_something_else_on_the_socket_is_told(tmp_path: Path) -> None:
    """A socket of another program does not end in a traceback."""
    path = tmp_path / "other.sock"
    with speaking(path, b"220 mail.example ESMTP\r\n"):
        result = CliRunner().invoke(cli, ["status", "--socket", str(path)])
    assert result.exit_code == 3
    assert "went away before it had answered (it closed the connection within its answer)" in result.output


def test_a_name_that_the_locale_has_no_letters_for_is_told_all_the_same(tmp_path: Path) -> None:
    """As standard error does it; a traceback would tell it as well."""
    file = tmp_path / "penstock.toml"
    file.write_text('[probes.s3_upload]\nkey_prefix = "größe-日本/"\n', encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [*PENSTOCK, "config", "show", "--config", str(file)]
    shown = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert r"größe-\u65e5\u672c/".encode("latin-1") in shown.stdout


def test_ctrl_c_is_quiet(server: Served) -> None:
    """A watch ends with 130, the first line printed and no traceback."""
    environment = {**os.environ, "PENSTOCK_SOCKET": str(server.socket_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*PENSTOCK, "watch"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"s3_upload 1 GiB in eu-west-1 (measured): 32 x 16 MiB" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read().strip() == b""


def test_a_reader_that_leaves_is_no_trouble(server: Served) -> None:
    """`penstock status | head -1` prints no traceback."""
    environment = {**os.environ, "PENSTOCK_SOCKET": str(server.socket_path)}
    with subprocess.Popen(
        [*PENSTOCK, "status"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(20) == 1
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("closing", "buffering", "reason"),
    [
        (">/dev/full", "", "No space left"),
        (">/dev/full", "1", "No space left"),
        (">&-", "", "Bad file descriptor"),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "--json"),
        ("watch",),
        ("query", "s3-upload", "--object-size", "1GiB"),
        ("config", "show", "--effective"),
        ("--help",),
    ],
)
def test_an_output_that_cannot_be_written_is_a_sentence(
    server: Served, words: tuple[str, ...], closing: str, buffering: str, reason: str
) -> None:
    """On standard error, with exit code 1, and nothing else."""
    environment = {**os.environ, "PENSTOCK_SOCKET": str(server.socket_path), "PYTHONUNBUFFERED": buffering}
    shell = ["sh", "-c", f'exec "$@" {closing}', "sh", *PENSTOCK, *words]
    done = subprocess.run(shell, env=environment, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: standard output cannot be written: {reason}")
    assert len(done.stderr.splitlines()) == 1


def test_what_prints_nothing_needs_no_output(tmp_path: Path) -> None:
    """A closed one is no trouble where nothing is printed, and a closed standard error changes no exit code."""
    no_daemon = [*PENSTOCK, "exec", "--socket", str(tmp_path / "nobody.sock"), "--", "aws", "--version"]
    (tmp_path / "aws").write_text("#!/bin/sh\n[ -e /proc/$$/fd/1 ] || exit 7\n")  # closed, as ours was
    (tmp_path / "aws").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *no_daemon], env=environment, check=False)
    assert done.returncode == 7
    nobody = [*PENSTOCK, "status", "--socket", str(tmp_path / "nobody.sock")]
    for closing in ("2>&-", "2>/dev/full", ">&- 2>&-"):
        shell = ["sh", "-c", f'exec "$@" {closing}', "sh", *nobody]
        done_in_silence = subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=False)
        assert (done_in_silence.returncode, done_in_silence.stdout) == (3, "")


def test_the_package_is_the_command() -> None:
    """`python -m penstock` does what `penstock` does, with its exit codes and under its name."""
    done = ran([sys.executable, "-m", "penstock", "frobnicate"])
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: penstock ")


def test_help_is_fast_because_it_imports_little() -> None:
    """The heavy libraries stay out of `--help` and of the commands that only ask."""
    program = (
        "import sys; from penstock.cli.main import run; run(['--help']); run(['query', 's3-upload', '--help']); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = ran([sys.executable, "-c", program])
    assert done.returncode == 0
    heavy = {"numpy", "aiobotocore", "aiohttp", "msgspec", "skopt", "asyncio", "penstock.daemon.app"}
    assert heavy.isdisjoint(done.stderr.split())


def test_a_file_that_may_not_be_read_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever command meets it: its name, and what to do."""

    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("penstock.cli.config.load", denied)
    assert run(["config", "check", "--config", "penstock.toml"]) == 1
    assert capsys.readouterr().err.startswith(
        "Error: penstock.toml: Permission denied; ask as a user who may"
    )


def test_config_commands_say_what_is_wrong(tmp_path: Path) -> None:
    """Every mistake at once, with file and key; nothing of it needs a daemon."""
    wrong = tmp_path / "penstock.toml"
    wrong.write_text('[daemon]\nsed = 3\nsocket_mode = "rwx"\n', encoding="utf-8")
    result = CliRunner().invoke(cli, ["config", "check", "--config", str(wrong)])
    assert result.exit_code == 1
    assert "daemon.sed" in result.output
    assert "daemon.socket_mode" in result.output
    result = CliRunner().invoke(cli, ["config", "check", "--config", str(wrong), "--json"])
    assert result.exit_code == 1
    assert len(json.loads(result.output)["problems"]) == 2


def test_config_show_is_a_configuration_that_says_the_same(tmp_path: Path) -> None:
    """What is shown can be saved and used: each value as TOML has it, with its origin behind it."""
    file = tmp_path / "penstock.toml"
    file.write_text(
        '[probes.s3_upload]\nbucket = "mine"\nobject_size_bytes = ["64MiB"]\nregions = ["eu-west-1"]\n'
    )
    shown = CliRunner().invoke(cli, ["config", "show", "--effective", "--config", str(file)]).output
    assert f'bucket = "mine"  # {file}\n' in shown
    assert "is_enabled = false  # default\n" in shown
    again = tmp_path / "again.toml"
    again.write_text(shown)
    assert load(again).configuration == load(file).configuration


def test_config_show_tells_where_a_value_is_from(tmp_path: Path) -> None:
    """What a file sets is shown with the file; --effective shows the rest."""
    right = tmp_path / "penstock.toml"
    right.write_text("[daemon]\nseed = 3\n", encoding="utf-8")
    command = ["config", "show", "--config", str(right), "--json"]
    assert json.loads(CliRunner().invoke(cli, command).output) == {
        "daemon.seed": {"value": 3, "origin": str(right)}
    }
    effective = json.loads(CliRunner().invoke(cli, [*command, "--effective"]).output)
    assert effective["daemon.log_level"]["origin"] == "default"


def test_a_cycle_of_nothing_is_refused(tmp_path: Path) -> None:
    """Measuring without a single probe enabled is a mistake that is said, not an empty success."""
    file = tmp_path / "penstock.toml"
    file.write_text("")
    ended = CliRunner().invoke(cli, ["run", "--once", "--config", str(file)])

    assert ended.exit_code == 1
    assert "no probe is enabled" in ended.output


def test_a_check_of_the_configuration_warns_of_what_may_be_a_slip(tmp_path: Path) -> None:
    """It is valid all the same, and says so."""
    file = tmp_path / "penstock.toml"
    file.write_text('[host]\nregion = "eu-centrl-1"', encoding="utf-8")
    result = CliRunner().invoke(cli, ["config", "check", "--config", str(file)])
    nothing = "Nothing is probed: set is_enabled in a [probes] section."
    assert (result.exit_code, result.stdout) == (0, f"The configuration is valid ({file}).\n{nothing}\n")
    assert result.stderr.startswith(f'warning: {file}: host.region: found "eu-centrl-1"')
    document = json.loads(
        CliRunner().invoke(cli, ["config", "check", "--config", str(file), "--json"]).stdout
    )
    (warning,) = document["warnings"]
    assert (document["valid"], warning["key"]) == (True, "host.region")


def test_a_check_of_the_configuration_warns_where_nothing_would_be_measured(tmp_path: Path) -> None:
    """By a NAT gateway a cent pays for no download of this size: valid, and of no use."""
    file = tmp_path / "penstock.toml"
    file.write_text(
        '[host]\nregion = "eu-west-1"\ninstance_type = "m7i.large"\n[probes.s3_download]\nis_enabled = true\n'
        'bucket = "my-bucket"\nnetwork_path = "nat-gateway"\nusd_per_day = 0.0001\n'
    )
    command = ["config", "check", "--config", str(file)]
    result = CliRunner().invoke(cli, command)
    key, sentence = "probes.s3_download.usd_per_day", "budgets pay for no probe of s3_download"
    assert (result.exit_code, result.stderr.startswith(f"warning: {sentence}")) == (0, True)
    assert result.stderr.endswith(f"raise {key}\n")
    (warning,) = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)["warnings"]
    assert (warning["file"], warning["key"]) == (str(file), key)
    unknown = file.read_text().replace('network_path = "nat-gateway"\n', "")
    file.write_text(unknown.replace("[host]\n", '[host]\nimds_endpoint_url = "http://127.0.0.1:9"\n'))
    assumed = CliRunner().invoke(cli, command).stderr
    assert assumed.endswith(f"state probes.s3_download.network_path, or raise {key}\n")  # which costs nothing


def test_the_doctor_ends_with_1_where_something_is_ill(server: Served, tmp_path: Path) -> None:
    """As text with what to do, and as a document; --local sends nothing, so that no credentials are missed."""
    main_file = tmp_path / "penstock.toml"
    main_file.write_text('[host]\nregion = "eu-west-1"\ninstance_type = "m7i.large"\n')
    told = penstock(server, "doctor", "--local", "--config", str(main_file))
    assert told.exit_code == 0
    said = "".join(told.stdout.split())  # a path may be broken anywhere
    assert f"poorconfiguration:theconfigurationreadhere({main_file})probesnothing" in said
    assert "do:namethedaemon'sownfile(--config),orrun`penstockreload`ifithaschanged" in said
    assert max(map(len, told.stdout.splitlines())) <= 80
    nobody = ("--socket", str(tmp_path / "nobody.sock"))
    document = penstock(server, "doctor", "--local", "--config", str(main_file), "--json", *nobody)
    assert document.exit_code == 1
    findings = json.loads(document.stdout)["findings"]
    assert [e["sentence"] for e in findings if e["subject"] == "configuration"] == ["nothing is probed"]
    found = {entry["subject"]: entry["health"] for entry in findings}
    assert found["daemon"] == "ill"
    assert json.loads(document.stdout)["is_well"] is False


def test_the_doctor_tells_a_daemon_that_goes_away_from_none(tmp_path: Path) -> None:
    """It says what asking came to: its socket need not be looked for."""
    path = tmp_path / "mute.sock"
    with speaking(path, b""):
        asked = CliRunner().invoke(cli, ["doctor", "--local", "--json", "--socket", str(path)])
    (finding,) = (f for f in json.loads(asked.stdout)["findings"] if f["subject"] == "daemon")
    assert f"{path} went away before it had answered" in finding["sentence"]
    assert finding["remedy"] == "ask again, since it may be starting anew; else see its log"


def test_a_configuration_that_is_named_says_where_its_daemon_listens(server: Served, tmp_path: Path) -> None:
    """Unless a socket is named, too: another daemon's word says nothing about this one, nor are its leftovers meant."""
    main_file, told = tmp_path / "penstock.toml", f"itanswerson{server.socket_path}"
    main_file.write_text(f'[daemon]\nruntime_directory = "{server.socket_path.parent}"\n')
    named = ("--config", str(main_file))
    assert server.socket_path.name == "penstock.sock"
    for words, answer in ((("doctor", "--local"), told), (("leftovers", "list"), "s3://my-bucket/")):
        assert answer in "".join(CliRunner().invoke(cli, [*words, *named]).output.split())
        elsewhere = str(tmp_path / "nobody.sock")
        for extra, environment in ((("--socket", elsewhere), None), ((), {"PENSTOCK_SOCKET": elsewhere})):
            asked = CliRunner().invoke(cli, [*words, *named, *extra], env=environment)
            assert answer not in "".join(asked.output.split())


def test_the_doctor_does_not_wait_for_a_silent_service_with_each_action(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That took minutes, and nothing is shown before the last."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    main_file = tmp_path / "penstock.toml"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        main_file.write_text(
            '[host]\nregion = "eu-west-1"\ninstance_type = "m7i.large"\n'
            f'[aws]\ns3_endpoint_url = "http://127.0.0.1:{closed.getsockname()[1]}"\n'
            '[probes.s3_upload]\nis_enabled = true\nbucket = "b-b"\n'
        )
        told = penstock(server, "doctor", "--config", str(main_file))
    assert told.stdout.count("do: check endpoint") == 1


def test_the_doctor_tries_permissions_and_needs_credentials(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are none that is one finding for each operation, with what to do."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    main_file = tmp_path / "penstock.toml"
    main_file.write_text(
        '[host]\nregion = "eu-west-1"\ninstance_type = "m7i.large"\n'
        '[probes.s3_upload]\nis_enabled = true\nbucket = "b-b"\nnetwork_path = "gateway-endpoint"\n'
    )
    told = penstock(server, "doctor", "--config", str(main_file))
    assert told.exit_code == 1
    assert told.stdout.count("do: attach a role") == 1
