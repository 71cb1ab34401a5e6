"""Advice for clients, from a real daemon and from none: what is printed, and what is run."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.units import GiB, MiB
from penstock.vocabulary import Basis
from tests.integration.scripted_advisor import ScriptedAdvisor, Served, a_recommendation, served_in_thread
from tests.programs import printed, ran

exec_module = importlib.import_module("penstock.cli.exec")
PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]


def penstock(server: Served, command: str) -> Result:
    return CliRunner().invoke(
        cli, shlex.split(command), env={"PENSTOCK_SOCKET": str(server.socket_path)}, prog_name="penstock"
    )


# --- export ---


def test_flags_are_all_that_standard_output_has(server: Served) -> None:
    """Basis and what cannot be said go to standard error."""
    result = penstock(server, "export s5cmd --object-size 1GiB")
    assert result.exit_code == 0
    assert result.stdout == "--numworkers 1 cp --concurrency 32 --part-size 16\n"
    assert result.stderr.splitlines() == [
        "# penstock, s3_upload of 1 GiB, measured: 32 threads reach the ceiling of this host.",
        "# s5cmd cannot be told multipart_threshold_bytes: it splits what is larger than one part, always",
        (
            "# s5cmd cannot be told connection_pool_count: it opens a connection for each request in flight, "
            "and has no flag for it"
        ),
    ]


def test_the_environment_can_be_evaluated(server: Served) -> None:
    """What a shell makes of it is what rclone reads."""
    exported = penstock(server, "export rclone --object-size 1GiB --format env").stdout
    seen = printed(["sh", "-c", 'eval "$1"; env', "sh", exported]).splitlines()
    assert "RCLONE_S3_UPLOAD_CONCURRENCY=32" in seen
    assert "RCLONE_S3_CHUNK_SIZE=16Mi" in seen


def test_a_file_has_its_reasons_as_comments(server: Served) -> None:
    """Each kind of file comments in its own way."""
    xml = penstock(server, "export hadoop-s3a --object-size 1GiB").stdout.splitlines()
    assert xml[0].startswith("<!-- penstock, ")
    assert xml[0].endswith(" -->")
    assert "<property><name>fs.s3a.threads.max</name><value>32</value></property>" in xml
    java = penstock(server, "export java-sdk-v2 --object-size 1GiB").stdout
    assert java.startswith("// penstock, s3_upload of 1 GiB, measured: ")


def test_a_comment_of_xml_ends_where_it_should(tmp_path: Path) -> None:
    """Whatever the explanation says, also three hyphens in a row."""
    explained = a_recommendation(explanation="as in a---b--c: 3 < 4 & 5 -")
    with served_in_thread(tmp_path, ScriptedAdvisor([explained])) as server:
        xml = penstock(server, "export hadoop-s3a --object-size 1GiB").stdout
    properties = ET.fromstring(f"<configuration>{xml}</configuration>").iter("property")  # noqa: S314
    assert "fs.s3a.threads.max" in [one.findtext("name") for one in properties]


def test_a_document_has_options_and_what_is_missing(server: Served) -> None:
    """--json is the form that every target has."""
    document = json.loads(penstock(server, "export pyarrow --object-size 1GiB --json").stdout)
    assert document["options"] == {"io_thread_count": 32}
    assert set(document["inexpressible"]) == {"part_size_bytes", "multipart_threshold_bytes"}
    assert (document["target"], document["basis"]) == ("pyarrow", "measured")
    same = penstock(server, "export pyarrow --object-size 1GiB --format json")
    assert json.loads(same.stdout) == document


def test_the_question_reaches_the_daemon(server: Served) -> None:
    """Limits and load are those of a query."""
    penstock(server, "export boto3 --object-size 8MiB --objects 4 --memory-max 256MiB --objective frugal")
    asked = server.advisor.questions[-1]
    assert (asked.operation, asked.payload_size_bytes) == ("s3_upload", 8 * MiB)
    assert (asked.demand.object_count, asked.demand.memory_bytes_max) == (4, 256 * MiB)
    result = penstock(server, "export sqs-consumer --rate 500 --work-seconds 20ms")
    asked = server.advisor.questions[-1]
    assert (asked.operation, asked.payload_size_bytes) == ("sqs_delivery", 1024)
    assert asked.demand.message_rate_per_second == 500
    assert "batchSize: 10" in result.stdout


@pytest.fixture
def short_server(tmp_path: Path) -> Iterator[Served]:
    """A daemon that knows no setting that holds less than 5 MiB."""
    derived = {
        "connection_pool_count": 36,
        "multipart_threshold_bytes": 16 * MiB,
        "memory_bytes_min": 5 * MiB,
    }
    with served_in_thread(
        tmp_path, ScriptedAdvisor(recommendations=[a_recommendation(derived=derived)])
    ) as running:
        yield running


@pytest.mark.parametrize("command", ["export s5cmd", "export boto3 --json", "query s3-upload --json"])
def test_too_little_memory_is_wrong_usage(short_server: Served, command: str) -> None:
    """What would hold more than was allowed is not printed; the sentence names the least."""
    result = penstock(short_server, f"{command} --object-size 1GiB --memory-max 1MiB")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "Error: --memory-max 1 MiB cannot be kept for 1 GiB: no setting holds less than 5 MiB; "
        "allow 5 MiB or more\n"
    )


def test_a_client_with_too_little_memory_runs_with_the_least(short_server: Served, tmp_path: Path) -> None:
    """Its own defaults would hold more, so it is told, and so is whoever started it."""
    program = tmp_path / "s5cmd"
    program.write_text("#!/bin/sh\necho $@\n")
    program.chmod(0o755)
    done = ran(
        [*PENSTOCK, "exec", "--object-size", "1GiB", "--memory-max", "1MiB", "--", str(program), "cp", "a", "s3://b/"],
        env={**os.environ, "PENSTOCK_SOCKET": str(short_server.socket_path)},
    )  # fmt: skip
    assert done.returncode == 0
    assert "--concurrency" in done.stdout
    assert done.stderr.startswith(
        "penstock: s5cmd runs with the setting that needs least memory: --memory-max 1 MiB cannot be"
    )


def test_the_list_shows_each_target_on_a_line(server: Served) -> None:
    """For people and for programs; no daemon is needed."""
    lines = penstock(server, "export --list").stdout.splitlines()
    listed = json.loads(penstock(server, "export --list --json").stdout)["targets"]
    assert len(lines) == len(listed) + 1
    assert next(line for line in lines if line.startswith("rclone")).split()[1:5] == [
        "objects",
        "flags,",
        "env,",
        "config,",
    ]
    assert {"target": "duckdb", "operation": "s3_upload", "formats": ["config", "json"]}.items() <= next(
        row for row in listed if row["target"] == "duckdb"
    ).items()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("export", "name a target"),
        ("export nonsense --object-size 1", "is not one of"),
        ("export s5cm --object-size 1", "'s5cm' is not known. Did you mean s5cmd?"),
        ("lab --world trottled", "Did you mean throttled?"),
        ("export rclone", "--object-size is missing"),
        ("export rclone --object-size 1GiB --rate 5", "rclone moves objects: --rate"),
        ("export celery --object-size 1GiB --objects 2", "celery moves messages: --object-size, --objects"),
        ("export s5cmd --object-size 1GiB --format env", "s5cmd has no env form: it has flags, json"),
    ],
)
def test_a_wrong_question_is_told_what_is_right(server: Served, command: str, sentence: str) -> None:
    """Usage errors end with 2, and nothing is printed that could be evaluated."""
    result = penstock(server, command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr


def test_without_a_daemon_nothing_is_printed_that_a_shell_would_take(tmp_path: Path) -> None:
    """Standard output is empty, so that the client's own defaults serve; the exit code says why."""
    result = CliRunner().invoke(
        cli, ["export", "rclone", "--object-size", "1GiB"], env={"PENSTOCK_SOCKET": str(tmp_path / "no.sock")}
    )
    assert (result.exit_code, result.stdout) == (3, "")
    assert "no daemon answers" in result.stderr


def test_what_boto3_does_by_itself_is_not_forced_upon_others(tmp_path: Path) -> None:
    """When nothing is known yet, each client's own defaults are better than those of another."""
    with served_in_thread(tmp_path, ScriptedAdvisor([a_recommendation(basis=Basis.DEFAULT)])) as server:
        result = penstock(server, "export rclone --object-size 1GiB")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "nothing is known about this place yet" in result.stderr


# --- exec ---

RECORDER = f"""#!{sys.executable}
import json, os, signal, sys
config = os.environ.get("AWS_CONFIG_FILE")
print(json.dumps({{
    "arguments": sys.argv[1:],
    "rclone": {{name: value for name, value in os.environ.items() if name.startswith("RCLONE_")}},
    "config": config and open(config).read(),
    "child_reads": config and os.popen(f"cat {{config}}").read(),
}}))
sys.stdout.flush()
if "die" in sys.argv:
    os.kill(os.getpid(), signal.SIGTERM)
sys.exit(7)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with clients that only tell how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("s5cmd", "rclone", "aws"):
        (folder / name).write_text(RECORDER)
        (folder / name).chmod(0o755)
    (tmp_path / "big").write_bytes(bytes(3 * MiB))
    return folder


def run(folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`penstock exec` as people run it, in a process of its own."""
    return ran(
        [*PENSTOCK, "exec", *shlex.split(command)],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))},
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PENSTOCK_SOCKET": str(folder / "penstock.sock"),
            **environment,
        },
    )


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    return document


def test_a_client_is_run_with_the_advice_and_ends_as_itself(server: Served, programs: Path) -> None:
    """Flags are inserted, the size is that of the file, the exit code is the client's, and nothing else is said."""
    done = run(programs.parent, "-- s5cmd cp big s3://b/")
    assert (done.returncode, done.stderr) == (7, "")
    assert told(done)["arguments"] == [
        "--numworkers",
        "32",
        "cp",
        "--concurrency",
        "1",
        "--part-size",
        "16",
        "big",
        "s3://b/",
    ]
    asked = server.advisor.questions[-1]
    assert (asked.payload_size_bytes, asked.demand.object_count) == (3 * MiB, 1)


@pytest.mark.parametrize(
    ("command", "service_class"),
    [
        ("-- s5cmd cp big s3://b/", "standard"),
        ("-- s5cmd cp big s3://b--euw1-az1--x-s3/", "express"),
        ("-- rclone copyto big remote:b--euw1-az1--x-s3", "express"),
        ("-- s5cmd cp big s3://b/of--x-s3-things", "standard"),
        ("--service-class standard -- s5cmd cp big s3://b--euw1-az1--x-s3/", "standard"),
    ],
)
def test_a_directory_bucket_is_asked_about_as_one(
    server: Served, programs: Path, command: str, service_class: str
) -> None:
    """Its name tells: what was measured of other buckets is nothing to drive it by."""
    told(run(programs.parent, command))
    assert server.advisor.questions[-1].service_class == service_class


def test_a_signal_that_ends_the_client_is_seen_outside(server: Served, programs: Path) -> None:
    """It is the same process."""
    assert run(programs.parent, "-- s5cmd cp big s3://b/ die").returncode == -signal.SIGTERM


def test_a_stated_size_wins_over_the_file(server: Served, programs: Path) -> None:
    """So do limits; and the separator may be left out."""
    done = run(
        programs.parent, "--object-size 1GiB --threads-max 8 rclone copy big r:b", RCLONE_TRANSFERS="3"
    )
    assert told(done)["rclone"] == {
        "RCLONE_TRANSFERS": "3",
        "RCLONE_S3_UPLOAD_CONCURRENCY": "32",
        "RCLONE_S3_CHUNK_SIZE": "16Mi",
        "RCLONE_S3_UPLOAD_CUTOFF": "16Mi",
    }
    asked = server.advisor.questions[-1]
    assert (asked.payload_size_bytes, asked.demand.thread_count_max) == (GiB, 8)


def test_a_download_is_advised_as_one_into_what_it_writes_to(server: Served, programs: Path) -> None:
    """Its size is stated, since it cannot be seen; what only readers can state is refused for an upload."""
    done = run(programs.parent, "--object-size 1GiB -- s5cmd cp s3://b/big .")
    assert told(done)["arguments"][:3] == ["--numworkers", "1", "cp"]
    asked = server.advisor.questions[-1]
    assert (asked.operation, asked.payload_size_bytes) == ("s3_download", GiB)
    assert asked.demand.sink == "file"
    unseen = run(programs.parent, "-- s5cmd cp s3://b/big .")
    assert "state --object-size" in unseen.stderr
    wrong = run(programs.parent, "--access random -- s5cmd cp big s3://b/")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "see --reading" in wrong.stderr


def test_a_store_that_refuses_checksums_is_sent_none(server: Served, programs: Path) -> None:
    """Seen by its endpoint or stated; what the user set stays, and AWS is left alone."""
    command = "--json -- aws --endpoint-url https://s3.us-west-004.backblazeb2.com s3 cp big s3://b/"
    name = "AWS_REQUEST_CHECKSUM_CALCULATION"

    def environment(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
        found: dict[str, str] = json.loads(done.stdout)["environment"]
        return found

    assert environment(run(programs.parent, command))[name] == "when_required"
    assert name not in environment(run(programs.parent, command, **{name: "when_supported"}))
    assert name not in environment(run(programs.parent, "--json -- aws s3 cp big s3://b/"))
    printed = penstock(server, "export rclone --object-size 1GiB --format env --store gcs").stdout
    assert f"export {name}=when_required" in printed.splitlines()
    assert f"{name}=when_required" in penstock(server, "export boto3 --object-size 1GiB --store b2").stdout


def test_a_folder_counts_by_where_its_bytes_are(server: Served, programs: Path) -> None:
    """Many small files beside two large ones: the large ones decide."""
    folder = programs.parent / "folder"
    (folder / "deep").mkdir(parents=True)
    for index in range(20):
        (folder / f"small{index}").write_bytes(b"x" * 1000)
    for name in ("one", "two"):
        (folder / "deep" / name).write_bytes(bytes(MiB))
    for command in (
        "rclone copy folder r:b",
        "s5cmd cp 'folder/**' s3://b/",
        "s5cmd cp 'folder/*' s3://b/",  # with the folders that it matches
        "aws s3 sync folder s3://b/",
    ):
        run(programs.parent, f"-- {command}")
        asked = server.advisor.questions[-1]
        assert (asked.payload_size_bytes, asked.demand.object_count) == (MiB, 22), command


@pytest.mark.parametrize(
    "command",
    [
        "s5cmd cp folder/ s3://b/",
        "s5cmd sync folder s3://b/",
        "s5cmd cp 'folder/*' s3://b/",
        "rclone copy folder r:b",
        "rclone sync --progress folder r:b/deep",
        "aws s3 sync folder s3://b/",
        "aws s3 cp folder s3://b/ --recursive",
        "aws s3 cp --recursive folder s3://b/",
    ],
)
def test_a_folder_is_asked_about_with_the_number_of_its_files(
    server: Served, programs: Path, command: str
) -> None:
    """However a client is told to upload one; also where the size is stated."""
    folder = programs.parent / "folder"
    folder.mkdir()
    for index in range(50):
        (folder / f"file{index}").write_bytes(bytes(1000 + index))
    for options, size in (("", 1025), ("--object-size 2000", 2000)):
        run(programs.parent, f"{options} -- {command}")
        asked = server.advisor.questions[-1]
        assert (asked.payload_size_bytes, asked.demand.object_count) == (size, 50)


def test_one_large_file_among_small_ones_is_sent_in_parts_at_a_time(server: Served, programs: Path) -> None:
    """Each small one has a worker, and the large one all connections, or it would be sent alone at the end."""
    folder = programs.parent / "folder"
    folder.mkdir()
    for index in range(20):
        (folder / f"small{index}").write_bytes(b"x" * 1000)
    with (folder / "large").open("wb") as file:
        file.truncate(100 * MiB)
    words = told(run(programs.parent, "-- s5cmd cp folder/ s3://b/"))["arguments"]
    assert (words[1], words[words.index("--concurrency") + 1]) == ("21", "32")


def test_a_folder_without_end_is_not_walked_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one of empty files, nor one that answers slowly: the client waits for it."""
    (tmp_path / "one").write_bytes(b"x")
    looked_at = itertools.count()

    def endless(_folder: object) -> Iterator[tuple[str, list[str], list[str]]]:
        while True:
            next(looked_at)
            yield str(tmp_path), [], ["one", *["nothing"] * 9]

    monkeypatch.setattr(os, "walk", endless)
    found = exec_module._material(str(tmp_path))
    assert found is not None
    assert next(looked_at) <= exec_module.FILE_COUNT_MAX / 10 + 1
    monkeypatch.setattr(exec_module, "_WALK_SECONDS_MAX", 0.0)
    assert exec_module._material(str(tmp_path)) is None


def test_the_aws_cli_reads_a_copy_and_the_users_own_is_left_alone(server: Served, programs: Path) -> None:
    """The copy has no name on the disk, and the client's own children can read it, too."""
    own = "[default]\nregion = eu-west-1\ns3 =\n  addressing_style = path\n  max_concurrent_requests = 3\n"
    (programs.parent / ".aws").mkdir()
    (programs.parent / ".aws/config").write_text(own)
    found = told(run(programs.parent, "--object-size 1GiB -- aws s3 cp big s3://b/"))
    assert "max_concurrent_requests = 32" in found["config"]
    assert "addressing_style = path" in found["config"]
    assert "region = eu-west-1" in found["config"]
    assert found["child_reads"] == found["config"]
    assert (programs.parent / ".aws/config").read_text() == own
    assert sorted(path.name for path in programs.parent.iterdir()) == sorted(
        [".aws", "big", "bin", "penstock.sock", "recommendations.json"]
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("s5cmd ls s3://b/", "this is no transfer that is known here"),
        ("rclone cat r:b/k", "this is no transfer that is known here"),
        (
            "s5cmd run commands.txt",
            "cannot be seen from it, and no one setting fits all of it: `penstock export s5cmd`",
        ),
        (
            "rclone mount remote:b /mnt",
            "cannot be seen from it, and no one setting fits all of it: `penstock export",
        ),
        ("s5cmd cp s3://b/k .", "the size of the objects it reads is not known here; state --object-size"),
        (
            "aws s3 cp s3://b/k y.bin",
            "the size of the objects it reads is not known here; state --object-size",
        ),
        (
            "rclone copy missing r:b",
            "no file of known size is uploaded; state --object-size",
        ),
        ("aws s3 cp - s3://b/k", "state --object-size"),
    ],
)
def test_without_advice_the_client_runs_unchanged_and_one_line_says_so(
    server: Served, programs: Path, command: str, reason: str
) -> None:
    """Nothing to upload, or nothing to see the size of."""
    done = run(programs.parent, f"-- {command}")
    assert done.returncode == 7
    assert told(done)["arguments"] == shlex.split(command)[1:]
    assert len(done.stderr.splitlines()) == 1
    assert "own defaults" in done.stderr
    assert reason in done.stderr


def test_without_a_daemon_the_client_runs_unchanged(programs: Path) -> None:
    """A backup does not fail because its adviser is away."""
    done = run(programs.parent, "-- s5cmd cp big s3://b/")
    assert done.returncode == 7
    assert told(done)["arguments"] == ["cp", "big", "s3://b/"]
    assert "no daemon answers" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_broken_aws_configuration_is_left_to_the_aws_cli(server: Served, programs: Path) -> None:
    """It has the better message."""
    (programs.parent / "broken").write_text("no section\n")
    done = run(programs.parent, "-- aws s3 cp big s3://b/", AWS_CONFIG_FILE=str(programs.parent / "broken"))
    assert done.returncode == 7
    assert told(done)["config"] == "no section\n"
    assert "aws runs with its own defaults" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_signals_that_python_ignores_are_not_ignored_by_the_client(server: Served, programs: Path) -> None:
    """`penstock exec ... | head` ends the client as it would end without us."""
    shell = programs / "rclone"
    shell.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status\n")
    assert int(run(programs.parent, "-- rclone copy big r:b").stdout.split()[1], 16) & 1 << 12 == 0


def test_what_would_be_run_is_a_document(server: Served, programs: Path) -> None:
    """With --json nothing is run, with advice or without."""
    done = run(programs.parent, "--json --object-size 1GiB -- aws s3 cp big s3://b/")
    document = json.loads(done.stdout)
    assert document["command"] == ["aws", "s3", "cp", "big", "s3://b/"]
    assert document["aws_settings"]["max_concurrent_requests"] == "32"
    assert document["basis"] == "measured"
    unchanged = json.loads(run(programs.parent, "--json -- s5cmd ls").stdout)
    assert (unchanged["command"], unchanged["basis"]) == (["s5cmd", "ls"], "default")


def test_an_unknown_or_missing_program_is_a_sentence(server: Served, programs: Path) -> None:
    """2 for what is not known here, 1 for what cannot be run."""
    unknown = run(programs.parent, "-- gsutil cp big gs://b")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "known are s5cmd, rclone, aws" in unknown.stderr
    missing = run(programs.parent, "--object-size 1GiB -- mount-s3 b /mnt")
    assert missing.returncode == 1
    assert "mount-s3 cannot be run: it is not installed here" in missing.stderr


# --- advice that has expired ---


@pytest.fixture
def stale_server(tmp_path: Path) -> Iterator[Served]:
    """A daemon that lives, and has measured nothing for too long."""
    expired = a_recommendation(expires_at=datetime.now(UTC) - timedelta(hours=1))
    with served_in_thread(tmp_path, ScriptedAdvisor(recommendations=[expired])) as running:
        yield running


@pytest.mark.parametrize("command", ["query s3-upload", "query s3-upload --json", "export s5cmd"])
def test_advice_that_has_expired_is_not_printed(stale_server: Served, command: str) -> None:
    """Exit code 4 and a reason, so that a script goes on with the client's own defaults."""
    result = penstock(stale_server, f"{command} --object-size 1GiB")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "the advice has expired" in result.stderr


def test_a_client_runs_with_its_own_defaults_where_the_advice_has_expired(
    stale_server: Served, programs: Path
) -> None:
    """Its exit code is its own, and a line says why."""
    done = run(programs.parent, "-- s5cmd cp big s3://b/")
    assert (done.returncode, told(done)["arguments"]) == (7, ["cp", "big", "s3://b/"])
    assert "s5cmd runs with its own defaults: the advice has expired" in done.stderr


def test_the_reasons_of_expired_advice_can_be_read(stale_server: Served) -> None:
    """An operator sees what was learned, and that it is no longer used."""
    result = penstock(stale_server, "explain s3-upload --object-size 1GiB --json")
    assert (result.exit_code, json.loads(result.stdout)["fit"]["residual_fraction_p50"]) == (0, 0.021)
    assert "no longer used: the advice has expired" in result.stderr


def test_a_watch_marks_what_has_expired(stale_server: Served) -> None:
    """A line of it is not taken for advice that is followed."""
    environment = {**os.environ, "PENSTOCK_SOCKET": str(stale_server.socket_path)}
    with subprocess.Popen(
        [*PENSTOCK, "watch"], env=environment, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert "s3_upload 1 GiB in eu-west-1 (measured, expired): " in watching.stdout.readline()
        watching.terminate()
