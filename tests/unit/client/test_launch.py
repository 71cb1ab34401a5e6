"""Known answers: where each program takes its options, and that the user's own stay."""

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.client.targets.launch import (
    PROGRAMS,
    Launch,
    aws_configuration,
    aws_profile,
    sink_of,
    source_of,
    with_aws_settings,
)
from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import translate
from penstock.units import MiB
from tests.unit.client.test_targets import PART, a_download, an_upload


def launched(command: str, environment: dict[str, str] | None = None, **upload: Any) -> Launch:
    words = command.split()
    program = PROGRAMS[words[0]]
    verb = program.verb_at(words)
    assert verb is not None
    sink = sink_of(program, words)
    target, document = (
        (program.target, an_upload(**upload))
        if sink is None
        else (program.download_target, a_download(**upload))
    )
    translation = translate(TARGETS[target], document)
    return program.apply(words, verb, environment or {}, translation)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("s5cmd cp big s3://b/", "s5cmd --numworkers 1 cp --concurrency 32 --part-size 16 big s3://b/"),
        ("s5cmd cp s3://b/big big", "s5cmd --numworkers 1 cp --concurrency 32 --part-size 8 s3://b/big big"),
        (
            "s5cmd --endpoint-url http://x cp -c 3 big s3://b/",
            "s5cmd --numworkers 1 --endpoint-url http://x cp --part-size 16 -c 3 big s3://b/",
        ),
        (
            "s5cmd --numworkers=9 cp -p 50 --concurrency 2 big s3://b/",
            "s5cmd --numworkers=9 cp -p 50 --concurrency 2 big s3://b/",
        ),
        ("mount-s3 b /mnt", f"mount-s3 --maximum-throughput-gbps 13 --write-part-size {PART} b /mnt"),
        (
            "mount-s3 b /mnt --part-size 8388608",
            "mount-s3 --maximum-throughput-gbps 13 b /mnt --part-size 8388608",
        ),
    ],
)
def test_flags_go_where_they_belong_and_the_users_own_stay(command: str, expected: str) -> None:
    """Global flags before the verb, the verb's behind it; what is given is not given again."""
    assert launched(command) == Launch(tuple(expected.split()))


def test_rclone_is_told_by_its_environment() -> None:
    """Its own precedence puts flags first; a variable that is set stays."""
    launch = launched("rclone copy big r:b --s3-chunk-size 8Mi", {"RCLONE_TRANSFERS": "7"})
    assert launch.command == ("rclone", "copy", "big", "r:b", "--s3-chunk-size", "8Mi")
    assert launch.environment == {"RCLONE_S3_UPLOAD_CONCURRENCY": "32", "RCLONE_S3_UPLOAD_CUTOFF": "16Mi"}


def test_rclone_is_told_of_streams_where_it_reads() -> None:
    """What splits uploads splits no downloads."""
    assert launched("rclone copy r:b folder").environment == {
        "RCLONE_TRANSFERS": "1",
        "RCLONE_MULTI_THREAD_STREAMS": "32",
        "RCLONE_MULTI_THREAD_CHUNK_SIZE": "8Mi",
        "RCLONE_MULTI_THREAD_CUTOFF": "8Mi",
    }


@pytest.mark.parametrize(
    ("command", "sink"),
    [
        ("s5cmd cp s3://b/k .", "file"),
        ("s5cmd cp s3://b/k /dev/null", "null"),
        ("s5cmd cat s3://b/k", "memory"),
        ("aws s3 cp s3://b/k -", "memory"),
        ("rclone copy remote:b folder", "file"),
        ("hadoop fs -get s3a://b/k folder", "file"),
        ("aws s3 cp s3://b/k --recursive .", "file"),
        ("aws s3 cp s3://b/k --quiet -", "memory"),
        ("aws s3 cp s3://b/k --endpoint-url http://x --exclude=a .", "file"),
        ("aws s3 cp big s3://b/ --recursive --endpoint-url http://x", None),
        ("rclone copy remote:b -P folder", "file"),
        ("rclone copy remote:b folder --s3-endpoint http://x:9000", "file"),
        ("rclone copy folder remote:b --s3-endpoint http://x:9000 -P", None),
        ("s5cmd cp big s3://b/", None),
        ("s5cmd cp s3://a/k s3://b/k", None),
        ("aws s3 cp big s3://b/ --acl private", None),
        ("s5cmd pipe s3://b/k", None),
        ("mount-s3 b /mnt", None),
    ],
)
def test_a_command_reads_when_something_local_is_behind_what_is_in_s3(command: str, sink: str | None) -> None:
    """And says what it writes to; between two places in S3 nothing comes here."""
    words = command.split()
    assert sink_of(PROGRAMS[words[0]], words) == sink


def test_spark_and_hadoop_take_properties_unless_they_are_given() -> None:
    """Before everything for Spark, behind the verb for Hadoop."""
    given = "spark.hadoop.fs.s3a.threads.max=5"
    spark = launched(f"spark-submit --conf {given} job.py").command
    assert spark.count("--conf") == 6
    assert f"spark.hadoop.fs.s3a.multipart.size={PART}" in spark
    assert [word for word in spark if "threads.max" in word] == [given]
    assert spark[-3:] == ("--conf", given, "job.py")
    hadoop = launched("hadoop fs -put big s3a://b/").command
    assert hadoop[:3] == ("hadoop", "fs", "-Dfs.s3a.threads.max=32")
    assert hadoop[-3:] == ("-put", "big", "s3a://b/")


@pytest.mark.parametrize(
    "command",
    ["s5cmd ls s3://b", "rclone lsf r:b", "aws s3 ls", "aws ec2 run-instances s3", "hadoop version"],
)
def test_what_uploads_nothing_is_not_touched(command: str) -> None:
    """There is no verb to take options."""
    words = command.split()
    assert PROGRAMS[words[0]].verb_at(words) is None


@pytest.mark.parametrize(
    ("command", "is_unseen"),
    [
        ("s5cmd run commands", True),
        ("s5cmd --json --log error run commands", True),
        ("s5cmd --json du run", False),
        ("rclone -P --bind ::1 serve http r:b", True),
        ("rclone --bind ::1 --log-systemd mount r: /mnt", True),
        ("rclone lsf serve", False),
        ("rclone", False),
    ],
)
def test_a_folder_that_is_called_like_a_verb_is_none(command: str, is_unseen: bool) -> None:
    """The verb is the first argument, behind the options and their values."""
    words = command.split()
    assert PROGRAMS[words[0]].is_unseen(words) is is_unseen


def test_a_profile_may_be_called_like_the_service() -> None:
    """What counts is where S3 and a verb stand together."""
    assert PROGRAMS["aws"].verb_at(["aws", "--profile", "s3", "s3", "cp", "big", "s3://b/"]) == 4


@pytest.mark.parametrize(
    ("command", "source"),
    [
        ("s5cmd cp --acl private big s3://b/", "big"),
        ("aws s3 cp big s3://b/ --acl private", "big"),
        ("rclone copy folder remote:b -v", "folder"),
        ("hadoop fs -put big s3a://b/", "big"),
        ("s5cmd cp s3://b/k .", None),
        ("s5cmd cp s3://a/k s3://b/k", None),
        ("rclone copy remote:b folder", None),
        ("aws s3 cp big --acl private s3://b/", "private"),
        ("aws s3 cp big --no-progress s3://b/", None),
        ("s5cmd pipe s3://b/k", None),
    ],
)
def test_the_source_is_what_stands_before_the_destination(command: str, source: str | None) -> None:
    """A word that is no file after all is found out by looking; a download has no source here."""
    words = command.split()
    program = PROGRAMS[words[0]]
    verb = program.verb_at(words)
    assert verb is not None
    assert source_of(program, words, verb) == source


OWN = """\
[default]
region = eu-west-1
s3 =
    addressing_style = path
    max_concurrent_requests = 3

[profile work]
credential_process = a --b %(c)s
"""


def test_an_aws_configuration_keeps_everything_else() -> None:
    """The settings are replaced in the profile's own section; percent signs and other profiles are text."""
    launch = launched("aws s3 cp big s3://b/")
    assert launch.command == ("aws", "s3", "cp", "big", "s3://b/")
    text = with_aws_settings(OWN, "default", launch.aws_settings)
    assert "max_concurrent_requests = 32" in text
    assert "max_concurrent_requests = 3\n" not in text
    assert "addressing_style = path" in text
    assert "credential_process = a --b %(c)s" in text
    assert f"multipart_chunksize = {16 * MiB}" in with_aws_settings("", "new", launch.aws_settings)
    assert "[profile new]" in with_aws_settings("", "new", launch.aws_settings)
    assert with_aws_settings(text, "default", launch.aws_settings) == text


@pytest.mark.parametrize(
    ("sections", "profile"),
    [
        (('profile "at home"',), "at home"),
        (("profile 'at home'",), "at home"),
        (("profile  work",), "work"),
        (("profile default",), "default"),
        (("default", "profile default"), "default"),
        (("profile other", 'profile "unended'), "at home"),
        ((), "at home"),
    ],
)
def test_the_aws_cli_finds_the_advice_in_the_profile_in_force(
    sections: tuple[str, ...], profile: str, tmp_path: Path
) -> None:
    """With what else stands there, also where its name is quoted: a section beside it was no profile, or hid it."""
    from botocore.configloader import load_config

    file = tmp_path / "config"
    own = "".join(f"[{section}]\nregion = eu-west-{number}\n" for number, section in enumerate(sections))
    file.write_text(own)
    before = load_config(str(file))["profiles"]
    file.write_text(with_aws_settings(own, profile, {"max_concurrent_requests": "7"}))
    told = {**before.get(profile, {}), "s3": {"max_concurrent_requests": "7"}}
    assert load_config(str(file))["profiles"] == {**before, profile: told}


@pytest.mark.parametrize(
    ("command", "environment", "profile"),
    [
        ("aws s3 cp a s3://b --profile one", {"AWS_PROFILE": "two"}, "one"),
        ("aws --profile=one s3 cp a s3://b", {}, "one"),
        ("aws s3 cp a s3://b", {"AWS_PROFILE": "two", "AWS_DEFAULT_PROFILE": "three"}, "two"),
        ("aws s3 cp a s3://b", {"AWS_DEFAULT_PROFILE": "three"}, "three"),
        ("aws s3 cp a s3://b", {}, "default"),
    ],
)
def test_the_profile_in_force_is_found(command: str, environment: dict[str, str], profile: str) -> None:
    """As the AWS CLI itself finds it."""
    assert aws_profile(command.split(), environment) == profile


def test_a_variable_that_names_no_file_leads_to_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty one was taken for the working directory by `penstock tune`, which ended there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(OWN)
    for environment in ({}, {"AWS_CONFIG_FILE": ""}, {"AWS_CONFIG_FILE": "$HOME/.aws/config"}):
        found = aws_configuration(("aws", "s3"), environment, {"max_concurrent_requests": "7"})
        assert found == with_aws_settings(OWN, "default", {"max_concurrent_requests": "7"})


def test_a_profile_that_is_nowhere_is_not_made(tmp_path: Path) -> None:
    """The AWS CLI refuses one that is misspelled; with a section of its own it went on as whoever the host is."""
    (tmp_path / "credentials").write_text("[secret]\naws_access_key_id = a\n")
    (tmp_path / "config").write_text(OWN)
    environment = {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }
    settings = {"max_concurrent_requests": "7"}
    for profile, is_told in (("wrok", False), ("work", True), ("secret", True), ("default", True)):
        found = aws_configuration(("aws", "s3"), {**environment, "AWS_PROFILE": profile}, settings)
        assert found == (with_aws_settings(OWN, profile, settings) if is_told else OWN)


@pytest.mark.parametrize("profile", ["default", "work", "wrok"])
def test_credentials_that_come_by_a_pipe_are_left_in_it(profile: str, tmp_path: Path) -> None:
    """As `AWS_SHARED_CREDENTIALS_FILE=<(vault ...)` has them: what is read there the AWS CLI does not find."""
    (tmp_path / "config").write_text(OWN)
    reader, writer = os.pipe()
    os.write(writer, b"[default]\n")
    os.close(writer)
    environment = {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": f"/dev/fd/{reader}",
        "AWS_PROFILE": profile,
    }
    aws_configuration(("aws", "s3"), environment, {"max_concurrent_requests": "7"})
    assert os.read(reader, 100) == b"[default]\n"
    os.close(reader)
