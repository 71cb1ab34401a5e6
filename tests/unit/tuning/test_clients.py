"""The ready-made commands, with tools that only write down how they were called."""

from __future__ import annotations

import configparser
import io
import json
import shlex
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import msgspec
import pytest

from penstock.probes.outside import Denied
from penstock.tuning import clients as tuning_clients
from penstock.tuning.clients import Target, command_line, main, small_object_count, what_is_missing
from penstock.tuning.remains import Remains
from penstock.units import MiB

RECORDER = f"""#!{sys.executable}
import json, os, sys
told = [f"{{name}}={{value}}" for name, value in os.environ.items() if name.startswith("RCLONE_")]
entry = {{"arguments": sys.argv[1:] + told, "config": None, "files": {{}}, "region": os.environ.get("AWS_REGION")}}
if os.environ.get("AWS_CONFIG_FILE", os.devnull) != os.devnull:
    entry["config"] = open(os.environ["AWS_CONFIG_FILE"]).read()
for word in sys.argv[1:]:
    folder = word.removesuffix("/*")
    if os.path.isdir(folder) and "files" in folder:
        entry["files"] = {{name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)}}
with open(os.environ["RECORD"], "a") as record:
    record.write(json.dumps(entry) + "\\n")
print("chatter")
print(os.environ.get("SAID", ""))
sys.exit(int(os.environ.get("STATUS", "0")))
"""


@pytest.fixture(autouse=True)
def removed(monkeypatch: pytest.MonkeyPatch) -> list[Remains]:
    """What is removed; nothing here reaches a store."""
    removals: list[Remains] = []
    monkeypatch.setattr(tuning_clients, "remove", lambda remains, **_: removals.append(remains))
    return removals


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where s5cmd, rclone and aws on the PATH write down how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("s5cmd", "rclone", "aws"):
        (folder / name).write_text(RECORDER)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the handler is that of a process of its own
    return tmp_path / "record"


def carry_out(
    client: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    size: int = 20 * MiB + 7,
    threads: int = 3,
    options: str = "",
    knob: str = "part_size_bytes",
) -> int:
    """Run one proposal through `main`."""
    proposal = {"thread_count": threads, knob: 6 * MiB, "object_size_bytes": size, "probe_index": 0}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(proposal) + "\n"))
    return main([client, "--bucket", "b", *shlex.split(options)])


def calls(record: Path) -> list[Mapping[str, object]]:
    """How the tools were called, in order."""
    return [json.loads(line) for line in record.read_text().splitlines()]


@pytest.mark.parametrize(
    ("client", "retry"),
    [
        ("s5cmd", "DEBUG retryable error: SlowDown: Please reduce your request rate."),
        (
            "rclone",
            "2026/11/21 13:00:00 DEBUG : pacer: low level retry 1/10 (error StatusCode: 503, SlowDown: -)",
        ),
    ],
)
def test_what_a_tool_retries_in_silence_is_counted(
    client: str, retry: str, record: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A 503 is evidence, also one that the tool tried again; a connection that was reset is not one."""
    other = retry.replace("SlowDown: ", "connection reset ").replace("503", "0").replace("SlowDown", "")
    monkeypatch.setenv("SAID", "\n".join([retry, other, retry]))
    assert carry_out(client, monkeypatch) == 0
    told = capfd.readouterr()
    assert json.loads(told.out)["throttled_count"] == 2
    assert "retr" not in told.err  # what failed is not to be sought in it
    assert "debug" in " ".join(calls(record)[0]["arguments"]).lower()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("client", "line"),
    [
        ("s5cmd", "cp /tmp/files/{:06} s3://b/penstock-tune/{:06}"),
        ("rclone", "2026/11/21 13:00:00 INFO  : {:06}: Copied (new)"),
    ],
)
def test_when_each_small_object_was_there_says_what_a_stream_reaches(
    client: str, line: str, record: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of as many lines as there were objects, and of no other number: then nobody knows what they were of."""
    lines = [line.format(number, number) for number in range(300)]
    ticks = count()
    monkeypatch.setattr(tuning_clients, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setenv("SAID", "\n".join(lines))
    assert carry_out(client, monkeypatch, size=1000, threads=2) == 0
    assert json.loads(capfd.readouterr().out)["steady_throughput_bytes_per_second"] == pytest.approx(1000.0)
    monkeypatch.setenv("SAID", "\n".join(lines[:-1]))
    assert carry_out(client, monkeypatch, size=1000, threads=2) == 0
    assert "steady_throughput_bytes_per_second" not in json.loads(capfd.readouterr().out)


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ("s5cmd", ["--numworkers 1", "--concurrency 3", "--part-size 6"]),
        (
            "rclone",
            [
                "RCLONE_TRANSFERS=1",
                "RCLONE_S3_UPLOAD_CONCURRENCY=3",
                "RCLONE_S3_CHUNK_SIZE=6Mi",
                f"RCLONE_S3_UPLOAD_CUTOFF={6 * MiB + 1}B",
            ],
        ),
        ("aws", ["s3 cp --recursive"]),
    ],
)
def test_a_proposal_reaches_the_tool_and_what_it_uploaded_is_removed(
    *,
    client: str,
    words: list[str],
    record: Path,
    removed: list[Remains],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Both knobs in the tool's own words; a file of the size; then a removal under the same prefix alone."""
    assert carry_out(client, monkeypatch) == 0
    (upload,), (remains,) = calls(record), removed
    command = " ".join(upload["arguments"])  # type: ignore[arg-type]
    assert all(word in command for word in words), command
    assert upload["files"] == {"000000": 20 * MiB + 7}
    prefix = command[command.index("b/penstock-tune/") :].split()[0]
    assert prefix == f"b/{remains.prefix}"
    assert (remains.file_names, remains.is_in_parts) == (("000000",), True)
    assert len(prefix) > len("b/penstock-tune/") + 30
    out = capfd.readouterr().out
    report = json.loads(out)  # the chatter of the tool is not on standard output
    assert report["transferred_bytes"] == 20 * MiB + 7
    assert report["duration_seconds"] > 0


def test_the_aws_cli_keeps_the_users_own_configuration(
    record: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its profile is copied with everything else in it, and only the transfer settings are set."""
    own = "[default]\nregion = eu-west-1\n[profile work]\nregion = eu-west-3\ns3 =\n  max_concurrent_requests = 99\n"
    (tmp_path / "config").write_text(own)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert carry_out("aws", monkeypatch, options="--endpoint-url http://127.0.0.1:9") == 0
    written = configparser.RawConfigParser()
    written.read_string(str(calls(record)[0]["config"]))
    assert written["default"]["region"] == "eu-west-1"
    assert written["profile work"]["region"] == "eu-west-3"
    settings = dict(line.split(" = ") for line in written["profile work"]["s3"].split("\n") if line)
    assert settings == {
        "max_concurrent_requests": "3",
        "multipart_chunksize": str(6 * MiB),
        "multipart_threshold": str(6 * MiB + 1),
        "preferred_transfer_client": "default",
        "addressing_style": "path",
    }
    assert (tmp_path / "config").read_text() == own


def test_small_objects_are_many_and_threads_are_objects(
    record: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What cannot be split is uploaded often enough to be past what a service admits at once, and not without bound."""
    assert carry_out("s5cmd", monkeypatch, size=1000, threads=5) == 0
    upload = calls(record)[0]
    assert "--numworkers 5" in " ".join(upload["arguments"])  # type: ignore[arg-type]
    assert list(upload["files"].values()) == [1000] * 640  # type: ignore[attr-defined]
    assert json.loads(capfd.readouterr().out)["transferred_bytes"] == 640_000
    assert small_object_count(1000, 1) == 300
    assert small_object_count(1000, 100) == 8192
    assert small_object_count(1000, 256) == 32 * 256
    assert small_object_count(1000, 300) == 32 * 300
    assert small_object_count(5 * MiB, 5) == 102
    assert small_object_count(5 * MiB, 64) == 4 * 64


def test_a_tool_that_fails_is_said_to_and_cleaned_up_after(
    record: Path,
    removed: list[Remains],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """No report, status 1, a sentence; what may be there is removed, and noted for one more look."""
    monkeypatch.setenv("STATUS", "7")
    assert carry_out("rclone", monkeypatch, options=f"--notes {tmp_path / 'notes'}") == 1
    said = capfd.readouterr()
    assert said.out == ""
    assert "rclone ended with status 7" in said.err
    (note,) = (tmp_path / "notes").iterdir()
    assert [msgspec.json.decode(note.read_bytes(), type=Remains)] == removed


def test_the_disk_is_freed_before_the_bucket(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a tuning is killed its client has half a second, and a file of the object's size is in no note."""
    temporary, left = tmp_path / "temporary", [tmp_path]
    temporary.mkdir()

    def look(_remains: Remains, **_: object) -> None:
        left[:] = temporary.iterdir()

    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr(tuning_clients, "remove", look)
    monkeypatch.setenv("STATUS", "7")
    assert carry_out("rclone", monkeypatch, options=f"--notes {tmp_path / 'notes'}") == 1
    assert left == []


def test_a_refused_clean_up_costs_no_measurement(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The run is reported all the same; what may be left is noted and named."""

    def refuse(_remains: Remains, **_: object) -> None:
        raise Denied("no DeleteObject")

    monkeypatch.setattr(tuning_clients, "remove", refuse)
    assert carry_out("s5cmd", monkeypatch, options=f"--notes {tmp_path / 'notes'}") == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["transferred_bytes"] == 20 * MiB + 7
    assert "may be left under s3://b/penstock-tune/" in said.err
    assert "no DeleteObject" in said.err
    assert len(list((tmp_path / "notes").iterdir())) == 1


def test_what_worked_and_was_removed_leaves_no_note(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without notes means that nothing is left."""
    assert carry_out("s5cmd", monkeypatch, options=f"--notes {tmp_path / 'notes'}") == 0
    assert list((tmp_path / "notes").iterdir()) == []


def test_a_missing_tool_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what is missing and what to do, and ends with 1."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert "s5cmd is not installed here" in (what_is_missing("s5cmd") or "")
    assert carry_out("s5cmd", monkeypatch) == 1
    assert "s5cmd is not installed here" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "penstock[demo]" in (what_is_missing("boto3") or "")


@pytest.mark.parametrize("client", sorted(tuning_clients.CLIENTS))
def test_the_command_line_survives_the_shell(client: str) -> None:
    """Whatever is in a bucket's name or an address reaches the client as one word."""
    target = Target(bucket="a b", endpoint_url="http://x/?a&b", region="eu-west-1")
    words = shlex.split(command_line(client, target))
    assert words[1:4] == ["-m", "penstock.tuning.clients", client]
    assert words[4:] == ["--bucket", "a b", "--endpoint-url", "http://x/?a&b", "--region", "eu-west-1"]
    assert words[0] == sys.executable


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ("s5cmd", ["--numworkers 1", "--concurrency 3", "--part-size 6"]),
        (
            "rclone",
            [
                "RCLONE_TRANSFERS=1",
                "RCLONE_MULTI_THREAD_STREAMS=3",
                "RCLONE_MULTI_THREAD_CHUNK_SIZE=6Mi",
                f"RCLONE_MULTI_THREAD_CUTOFF={6 * MiB + 1}B",
            ],
        ),
        ("aws", ["s3 cp --recursive"]),
    ],
)
def test_what_is_to_be_read_is_put_first_and_has_to_come_whole(
    client: str,
    words: list[str],
    record: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The second call reads into another folder as proposed; a tool that brings nothing has failed."""
    assert carry_out(client, monkeypatch, knob="range_size_bytes") == 1
    put, read = (" ".join(entry["arguments"]) for entry in calls(record))  # type: ignore[arg-type]
    assert "/files" in put
    assert "/read" in read
    assert "/files" not in read
    assert all(word in read for word in words)
    assert f"0 bytes came of {20 * MiB + 7}" in capfd.readouterr().err
