"""`penstock tune` as people run it: with a script, with Ctrl-C, and with boto3 on the lab's S3."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.clock import SystemClock
from penstock.lab.http_s3 import s3_application
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.lab.worlds import DEMO
from penstock.trial.stage import CREDENTIALS
from penstock.units import MiB
from tests.daemon_house import lab_bucket
from tests.programs import printed, ran
from tests.real.servers import plain_client
from tests.waiting import until

PENSTOCK = [sys.executable, "-c", "from penstock.cli.entry import main; main()"]
SCRIPT = """
import json, sys
q = json.loads(sys.stdin.readline())
part = q["part_size_bytes"]
rate = min(q["thread_count"] * part / (0.04 + part / 12e6), 300e6)
print(json.dumps({"transferred_bytes": q["object_size_bytes"], "duration_seconds": q["object_size_bytes"] / rate}))
"""
FAST = dataclasses.replace(
    DEMO,
    link=dataclasses.replace(
        DEMO.link,
        round_trip_seconds=0.002,
        service_latency_seconds_median=0.005,
        connection_rate_bytes_per_second=8e6,
        host_rate_bytes_per_second=60e6,
    ),
    inbound=None,
)


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A command with a law of its own."""
    (tmp_path / "client.py").write_text(SCRIPT)
    return shlex.join([sys.executable, "-S", str(tmp_path / "client.py")])


def tune(tmp_path: Path, *arguments: str) -> Result:
    """One run of the command, with a state directory of its own."""
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    return CliRunner().invoke(
        cli, ["tune", "s3-upload", "--object-size", "512MiB", *arguments], env=environment
    )


def test_people_read_a_table_and_the_advice(script: str, tmp_path: Path) -> None:
    """Progress on standard error; trials, what to use and why on standard output."""
    result = tune(tmp_path, "--exec", script, "--probes", "4")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("  1 of 4  4 threads x 8 MiB ... ")
    assert result.stdout.splitlines()[0].split() == [
        "trial",
        "threads",
        "part",
        "size",
        "throughput",
        "duration",
    ]
    assert "s3_upload of 512 MiB: the advice, after 4 trials" in result.stdout
    assert "Expects " in result.stdout.splitlines()[-1]


def test_a_command_may_hold_bytes_that_are_no_text(script: str, tmp_path: Path) -> None:
    """File names may, and the shell takes them as they are."""
    words = ["tune", "s3-upload", "--object-size", "512MiB", "--probes", "1", "--json"]
    ended = subprocess.run(
        [*PENSTOCK, *words, "--exec", os.fsencode(f"{script} ") + b"\xff"],
        capture_output=True,
        timeout=60,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["failed_probe_count"] == 0


def test_what_was_measured_is_what_is_advised_also_on_a_host_that_bursts(script: str, tmp_path: Path) -> None:
    """No run of a c5.large saw its baseline of 94 MB/s: the advice is as good as the best run, and says what it is."""
    arguments = ("--exec", script, "--instance-type", "c5.large", "--probes", "6")
    document = json.loads(tune(tmp_path, *arguments, "--json").stdout)
    advice = document["recommendation"]
    best = max(trial["throughput_bytes_per_second"] for trial in document["trials"])
    assert _scripted_rate(advice["thread_count"], advice["part_size_bytes"]) >= 0.95 * best
    assert document["regime"] == "burst"
    assert "while the host bursts; --regime sustained" in tune(tmp_path, *arguments).stdout
    assert "what the host sustains" in tune(tmp_path, *arguments, "--regime", "sustained").stdout


@pytest.mark.parametrize("regime", ["burst", "sustained"])
def test_a_host_that_needs_no_credits_is_not_said_to_burst(script: str, tmp_path: Path, regime: str) -> None:
    """A c5.4xlarge sustains 625 MB/s, several times what this client reaches."""
    arguments = ("--exec", script, "--instance-type", "c5.4xlarge", "--probes", "6", "--regime", regime)
    assert "--regime" not in tune(tmp_path, *arguments).stdout


def test_people_are_told_what_was_inferred_from_failures(tmp_path: Path) -> None:
    """A client that fails with more than ten threads: the last line says why no more are advised."""
    failing = SCRIPT.replace("part =", "if q['thread_count'] > 10: sys.exit(1)\npart =")
    (tmp_path / "client.py").write_text(failing)
    command = shlex.join([sys.executable, "-S", str(tmp_path / "client.py")])
    result = tune(tmp_path, "--exec", command, "--probes", "4")
    assert result.exit_code == 0, result.stderr
    last = result.stdout.splitlines()[-1]
    assert last.startswith("Inferred from failures: no run worked with more than ")
    assert "--probes" in last


@pytest.mark.parametrize("word", ["1 / 1024 * ", "8 * "])
def test_a_command_whose_bytes_contradict_the_object_is_refused(tmp_path: Path, word: str) -> None:
    """Both numbers, and what to do, after one run: a rate of bytes that were not moved is advice from nothing."""
    (tmp_path / "client.py").write_text(
        SCRIPT.replace('"transferred_bytes": ', f'"transferred_bytes": {word}')
    )
    command = shlex.join([sys.executable, "-S", str(tmp_path / "client.py")])
    result = tune(tmp_path, "--exec", command, "--probes", "3")
    assert result.exit_code == 1
    assert "what the command reports cannot be used" in result.stderr
    moved = 512 * MiB // 1024 if "1024" in word else 8 * 512 * MiB
    assert (
        f"transferred_bytes {moved} where it was asked to move an object of {512 * MiB} bytes"
        in result.stderr
    )


def test_a_command_that_counts_milliseconds_is_doubted_once(tmp_path: Path) -> None:
    """Both numbers, and what to do; its reports are taken."""
    slow = SCRIPT.replace('"duration_seconds": ', '"duration_seconds": 1e6 + ')
    (tmp_path / "client.py").write_text(slow)
    command = shlex.join([sys.executable, "-S", str(tmp_path / "client.py")])
    result = tune(tmp_path, "--exec", command, "--probes", "3", "--json")
    assert result.exit_code == 0, result.stderr
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]
    document = json.loads(result.stdout)
    assert document["failed_probe_count"] == 0
    assert f"Warning: {document['warning']}." == warning


def test_one_is_not_many(script: str, tmp_path: Path) -> None:
    """A single thread and a single trial are said as such."""
    words = ("--exec", script, "--threads", "1")
    assert "  1 of 1  1 thread x " in tune(tmp_path, *words, "--probes", "1").stderr
    assert tune(tmp_path, *words, "--probes", "2").stderr.startswith("1 trial is known from before")


def test_the_same_command_line_continues_and_restart_begins_anew(script: str, tmp_path: Path) -> None:
    """What is known is not measured again; more probes are added to it."""
    arguments = ("--exec", script, "--part-size", "8MiB", "--threads", "2..64", "--json")
    first = json.loads(tune(tmp_path, *arguments, "--probes", "2").stdout)
    result = tune(tmp_path, *arguments, "--probes", "4")
    second = json.loads(result.stdout)
    date = datetime.fromisoformat(first["trials"][1]["started_at"])
    assert f"2 trials are known from before, the last of {date:%Y-%m-%d %H:%M} UTC (" in result.stderr
    assert second["trials"][:2] == first["trials"]
    assert [trial["probe_index"] for trial in second["trials"]] == [0, 1, 2, 3]
    assert {trial["part_size_bytes"] for trial in second["trials"]} == {8 * MiB}
    again = json.loads(tune(tmp_path, *arguments, "--probes", "1", "--restart").stdout)
    assert again["probe_count"] == 1
    assert again["trials"][0]["started_at"] > second["trials"][3]["started_at"]


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        ([], 2, "either --exec with a command or --client"),
        (["--exec", "true", "--client", "s5cmd"], 2, "either --exec"),
        (["--exec", "true", "--bucket", "b"], 2, "go with --client"),
        (["--client", "boto3"], 2, "needs --bucket"),
        (["--client", "boto3", "--bucket", "s3://b"], 2, "the name alone"),
        (["--exec", "true", "--threads", "8..2"], 2, "lower end first"),
        (["--exec", "true", "--threads", "a..b"], 2, "a range has two dots"),
        (["--exec", "true", "--threads", "4.."], 2, "4.. lacks an end; a range has two dots"),
        (["--exec", "true", "--threads", "..4"], 2, "..4 lacks an end"),
        (["--exec", "true", "--threads", "few"], 2, "few is not a whole number"),
        (["--exec", "true", "--part-size", "..8MiB"], 2, "..8MiB lacks an end"),
        (["--exec", "true", "--part-size", "8 miles"], 2, "is not a size"),
        (["--exec", "true", "--part-size", "1MiB"], 2, "5MiB to 5GiB"),
        (["--exec", "true", "--memory-max", "0"], 2, "more than 0"),
        (["--exec", "true", "--timeout", "0s"], 2, "more than 0"),
        (["--exec", "echo oh no >&2; false"], 1, "failed 3 times in a row and never worked"),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], status: int, sentence: str, tmp_path: Path) -> None:
    """Wrong usage ends with 2 before anything runs, a broken command with 1 and its own last words."""
    result = tune(tmp_path, *arguments)
    assert result.exit_code == status, result.output
    assert sentence in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert status == 2 or "oh no" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_ends_the_command_and_gives_the_advice_so_far(
    number: signal.Signals, tmp_path: Path
) -> None:
    """The third run hangs: Ctrl-C, or a terminal that goes, ends it with its children; the first two lead to advice."""
    pid_file = tmp_path / "pid"
    hanging = SCRIPT.replace(
        "part =",
        "import os, subprocess\n"
        "if q['probe_index'] == 2:\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        f"    name = {str(pid_file)!r}\n"
        "    open(name + '~', 'w').write(str(child.pid))\n"
        "    os.rename(name + '~', name)\n"
        "    child.wait()\npart =",
    )
    (tmp_path / "client.py").write_text(hanging)
    command = shlex.join([sys.executable, "-S", str(tmp_path / "client.py")])
    words = ["tune", "s3-upload", "--object-size", "512MiB", "--json", "--exec", command]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        [*PENSTOCK, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        until(pid_file.exists)
        process.send_signal(number)
        if number == signal.SIGHUP:
            process.send_signal(number)  # as the shell and the kernel do
        out, _ = process.communicate(timeout=60)
    document = json.loads(out)
    assert process.returncode == 130
    assert document["was_interrupted"]
    assert document["probe_count"] == 2
    assert document["recommendation"]["thread_count"] >= 1
    assert not Path(f"/proc/{pid_file.read_text()}/cwd").exists()


def test_ctrl_c_in_the_first_run_says_that_there_is_no_advice_yet(tmp_path: Path) -> None:
    """The exit code is that of an interruption, the line of progress is ended, and the document has no advice."""
    words = ["tune", "s3-upload", "--object-size", "512MiB", "--json", "--exec", "echo > begun; sleep 60"]
    with subprocess.Popen(
        [*PENSTOCK, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        cwd=tmp_path,
    ) as process:
        until((tmp_path / "begun").exists)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines() == [
        "  1 of 12  4 threads x 8 MiB ... not finished",
        "Error: interrupted: no trial was finished, so there is nothing to advise",
    ]
    document = json.loads(out)
    assert document["was_interrupted"]
    assert document["recommendation"] is None


def test_a_broken_command_is_a_document_too(tmp_path: Path) -> None:
    """A script that reads JSON learns why there is no advice."""
    result = tune(tmp_path, "--exec", "echo oh no >&2; false", "--probes", "1", "--json")
    assert result.exit_code == 1
    assert "oh no" in result.stderr
    document = json.loads(result.stdout)
    assert document["recommendation"] is None
    assert "oh no" in document["trouble"]
    assert document["trials"][0]["failure"] == "it ended with status 1"


def test_a_full_disk_gives_the_advice_so_far_and_the_trouble(script: str, tmp_path: Path) -> None:
    """A file that may have no more than a kilobyte holds a few trials; the one that it has no room for counts."""
    words = ["tune", "s3-upload", "--object-size", "512MiB", "--json", "--exec", script]
    limited = (
        "import resource, signal; from penstock.cli.main import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)); main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", limited, *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={
            **os.environ,
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",  # Python would keep what it could write of them
        },
        check=False,
    )
    document = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert document["recommendation"]["thread_count"] >= 1
    assert ended.stderr.count("MB/s (") == document["probe_count"] < 12
    assert ended.stderr.endswith(f"Error: {document['trouble']}\n")
    assert "--state" in document["trouble"]


@pytest.fixture(scope="module")
def lab_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The lab's S3 on a fast link, with a bucket in which no test leaves anything."""
    with lab_bucket(tmp_path_factory.mktemp("lab"), FAST) as url:
        yield url


@pytest.fixture
def endpoint_url(lab_url: str, credentials: None) -> str:  # they are in the environment
    """The same, for whoever has credentials."""
    return lab_url


@pytest.mark.parametrize(
    ("command", "option"), [("s3-upload", "--part-size"), ("s3-download", "--range-size")]
)
def test_boto3_is_tuned_on_a_real_socket(
    command: str, option: str, endpoint_url: str, tmp_path: Path
) -> None:
    """The real client finds that eight connections carry the link, and leaves nothing behind."""
    where = ["--bucket", "bucket", "--endpoint-url", endpoint_url, "--region", "lab-1"]
    result = CliRunner().invoke(
        cli,
        [
            *("tune", command, "--object-size", "32MiB", "--client", "boto3", *where),
            *(option, "5MiB..8MiB", "--threads", "1..32", "--probes", "5", "--json"),
        ],
        env={"XDG_STATE_HOME": str(tmp_path / "state")},
    )
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["failed_probe_count"] == 0, document["trials"]
    assert all(trial["transferred_bytes"] == 32 * MiB for trial in document["trials"])
    rates = {trial["thread_count"]: trial["throughput_bytes_per_second"] for trial in document["trials"]}
    assert max(rates.values()) < 66e6, "the link carries no more than 60 MB/s"
    assert document["recommendation"]["thread_count"] >= 4
    client = plain_client("s3", endpoint_url)
    assert "Contents" not in client.list_objects_v2(Bucket="bucket")
    assert "Uploads" not in client.list_multipart_uploads(Bucket="bucket")
    client.close()


def test_of_small_objects_boto3_says_when_each_was_there(endpoint_url: str) -> None:
    """So that what a stream of them reaches is known beside how long all of them took."""
    command = [sys.executable, "-m", "penstock.tuning.clients", "boto3", "--bucket", "bucket"]
    proposal = '{"thread_count": 4, "part_size_bytes": 5242880, "object_size_bytes": 1000, "probe_index": 0}'
    where = ["--endpoint-url", endpoint_url, "--region", "lab-1"]
    report = json.loads(printed([*command, *where], input=proposal, timeout=120))
    assert report["transferred_bytes"] == 512 * 1000
    assert report["steady_throughput_bytes_per_second"] > 0


def test_what_an_interrupted_tool_left_is_aborted(
    endpoint_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unfinished multipart upload under the run's own prefix goes; those of others stay."""
    client = plain_client("s3", endpoint_url)
    tool = (
        f"#!{sys.executable}\nimport sys, boto3\nfrom botocore.config import Config\n"
        f"if 'cp' in sys.argv:\n    s3 = boto3.client('s3', region_name='lab-1', endpoint_url={endpoint_url!r},"
        " config=Config(s3={'addressing_style': 'path'}))\n"
        "    key = sys.argv[-1].removeprefix('s3://bucket/') + '000000'\n"
        "    s3.create_multipart_upload(Bucket='bucket', Key=key)\n    sys.exit(1)\n"
    )
    (tmp_path / "s5cmd").write_text(tool)
    (tmp_path / "s5cmd").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    others = {"Bucket": "bucket", "Key": "penstock-tune/of-somebody-else"}
    others["UploadId"] = client.create_multipart_upload(**others)["UploadId"]
    command = [sys.executable, "-m", "penstock.tuning.clients", "s5cmd", "--bucket", "bucket"]
    proposal = (
        '{"thread_count": 2, "part_size_bytes": 5242880, "object_size_bytes": 6000000, "probe_index": 0}'
    )
    ended = ran([*command, "--endpoint-url", endpoint_url, "--region", "lab-1"], input=proposal, timeout=60)
    assert ended.returncode == 1
    assert "s5cmd ended with status 1" in ended.stderr
    left = client.list_multipart_uploads(Bucket="bucket")["Uploads"]
    assert [upload["UploadId"] for upload in left] == [others["UploadId"]]
    client.abort_multipart_upload(**others)
    client.close()


async def test_a_refused_clean_up_is_no_failed_trial(tmp_path: Path) -> None:
    """What was measured counts and suggests no limit; what is left is named, and removed by the same command later."""
    service = S3Service(FAST.link, clock=SystemClock(), seed=1)
    service.shelf.create_bucket("bucket")
    is_refusing = True

    @web.middleware
    async def refuse_deletions(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_refusing and (request.method == "DELETE" or "delete" in request.query):
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        return await handler(request)

    application = s3_application(service)
    application.middlewares.append(refuse_deletions)

    async def tuned(url: str) -> tuple[dict[str, Any], str]:
        process = await asyncio.create_subprocess_exec(
            *(*PENSTOCK, "tune", "s3-upload", "--client", "boto3", "--bucket", "bucket", "--json"),
            *("--endpoint-url", url, "--region", "lab-1", "--object-size", "6MiB", "--probes", "2"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **CREDENTIALS, "XDG_STATE_HOME": str(tmp_path / "state")},
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        document: dict[str, Any] = json.loads(out)
        return document, err.decode()

    async with serving(application) as url:
        document, told = await tuned(url)
        assert (document["probe_count"], document["failed_probe_count"]) == (2, 0)
        assert document["inferred_limit"] is None
        assert [left["reason"] for left in document["left_behind"]] == 2 * [
            document["left_behind"][0]["reason"]
        ]
        keys = [stored.key for stored in service.shelf.objects("bucket")]
        assert {f"s3://bucket/{key.removesuffix('000000')}" for key in keys} == {
            left["url"] for left in document["left_behind"]
        }
        assert told.count("Left behind: s3://bucket/penstock-tune/") == 2
        is_refusing = False
        document, told = await tuned(url)
        assert (document["left_behind"], "Left behind" in told) == ([], False)
        assert list(service.shelf.objects("bucket")) == []


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("how", ["Ctrl-C", "time-out"])
def test_boto3_ends_in_the_midst_of_a_part_and_leaves_nothing(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a link where a part takes half a minute: no unfinished upload, no object, no generated file."""
    slow = dataclasses.replace(FAST, link=dataclasses.replace(FAST.link, host_rate_bytes_per_second=0.2e6))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with lab_bucket(tmp_path, slow) as url:
        client = plain_client("s3", url)
        words = ["tune", "s3-upload", "--object-size", "32MiB", "--client", "boto3", "--bucket", "bucket"]
        where = ["--endpoint-url", url, "--region", "lab-1", "--probes", "1"]
        patience = ["--timeout", "5s"] if how == "time-out" else []
        with subprocess.Popen([*PENSTOCK, *words, *where, *patience], stdout=subprocess.DEVNULL) as process:
            until(
                lambda: (
                    process.poll() is not None
                    or client.list_multipart_uploads(Bucket="bucket").get("Uploads")
                )
            )
            if how == "Ctrl-C":
                process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
        assert "Uploads" not in client.list_multipart_uploads(Bucket="bucket")
        assert "Contents" not in client.list_objects_v2(Bucket="bucket")
        client.close()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("bucket", "without", "address", "sentence"),
    [
        ("no-such-bucket", (), None, "there is no bucket no-such-bucket"),
        ("bucket", ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), None, "boto3 has no credentials"),
        ("bucket", (), "http://127.0.0.1:9", "S3 cannot be reached"),
        ("bucket", (), "nonsense", "boto3 cannot upload: Invalid endpoint"),
    ],
)
def test_mistakes_with_boto3_are_a_sentence_that_says_what_to_do(
    bucket: str, without: tuple[str, ...], address: str | None, sentence: str, endpoint_url: str
) -> None:
    """One line on standard error, whatever the SDK raises."""
    environment = {name: value for name, value in os.environ.items() if name not in without}
    ended = ran(
        [
            *(sys.executable, "-m", "penstock.tuning.clients", "boto3", "--bucket", bucket),
            *("--region", "lab-1", "--endpoint-url", address or endpoint_url),
        ],
        input='{"thread_count": 2, "part_size_bytes": 5242880, "object_size_bytes": 6000000, "probe_index": 0}',
        env=environment | {"AWS_MAX_ATTEMPTS": "1", "AWS_SHARED_CREDENTIALS_FILE": os.devnull},
        timeout=60,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith(sentence)
    assert ended.stderr.count("\n") == 1


def _scripted_rate(thread_count: int, part_size_bytes: int) -> float:
    """Of the script above, in bytes per second."""
    return min(thread_count * part_size_bytes / (0.04 + part_size_bytes / 12e6), 300e6)
