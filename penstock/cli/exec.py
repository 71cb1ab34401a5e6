"""Knows `penstock exec`: run a known client with the advice applied, or as it is where there is none."""

from __future__ import annotations

import configparser
import glob
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click

from penstock.cli.daemon import call
from penstock.cli.examples import examples
from penstock.cli.output import print_json
from penstock.cli.query import (
    common_options,
    memory_trouble,
    object_size_option,
    parameters_of,
    upload_demand_options,
)
from penstock.cli.trouble import TroubleError, WrongUsageError
from penstock.client.targets.launch import (
    PROGRAMS,
    Launch,
    Program,
    aws_profile,
    source_of,
    with_aws_settings,
)
from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import translate

FILE_COUNT_MAX = 10_000
"""Files that are looked at before a size is guessed."""
_TIMEOUT_SECONDS = 1.0  # an answer takes milliseconds, and the client waits for it


class NotAdvisedError(TroubleError):
    """There is no advice for this command, so that it runs as it is; the message says why."""


class Material(NamedTuple):
    """What is to be uploaded: how many files, and the size at which half of all bytes are in files as large."""

    object_count: int
    object_size_bytes: int


@click.command(
    name="exec",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "penstock exec -- s5cmd cp big.bin s3://bucket/",
        "penstock exec -- rclone copy folder remote:bucket",
        "penstock exec --memory-max 512MiB -- aws s3 cp big.bin s3://bucket/ --storage-class STANDARD_IA",
        "tar c folder | penstock exec --object-size 20GiB -- s5cmd pipe s3://bucket/folder.tar",
        "penstock exec --json -- s5cmd cp big.bin s3://bucket/    show what would be run",
    ),
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="COMMAND...")
@object_size_option(required=False)
@upload_demand_options
@common_options
def exec_(*, command: tuple[str, ...], as_json: bool, socket_path: str, **stated: Any) -> None:
    """Run a known client with the advice applied.

    It knows s5cmd, rclone, aws, mount-s3, spark-submit, spark-shell, spark-sql, pyspark, hadoop and hdfs, and becomes
    the client: the exit code and all signals are the client's own. The size of the objects is that of the local file
    or folder that is uploaded, unless it is stated.

    What you gave yourself, as an argument or in the environment, stays as it is. Configuration files are left alone;
    the AWS CLI reads a copy of its own, which is gone when it ends. Without advice the client runs unchanged, and a
    line on standard error says so. With --json nothing is run.
    """
    name = Path(command[0]).name
    if name not in PROGRAMS:
        raise WrongUsageError(
            f"{name} is not a client that is known here; known are {', '.join(PROGRAMS)}. "
            "For others see `penstock export --list`"
        )
    about: dict[str, Any] = {"target": PROGRAMS[name].target}
    try:
        launch, document = _advised(PROGRAMS[name], command, socket_path, stated)
        about |= {"basis": document["basis"], "explanation": document["explanation"]}
        trouble = memory_trouble(document)
        if trouble and not as_json:  # its own defaults would hold more
            click.echo(f"penstock: {name} runs with what holds least: {trouble}", err=True)
    except TroubleError as refusal:
        launch = Launch(command)
        about |= {"basis": "default", "explanation": refusal.message}
        if not as_json:
            click.echo(f"penstock: {name} runs with its own defaults: {refusal.message}", err=True)
    if as_json:
        print_json({**about, **launch._asdict()})
    else:
        _become(launch)


def _advised(
    program: Program, command: Sequence[str], socket_path: str, stated: Mapping[str, Any]
) -> tuple[Launch, dict[str, Any]]:
    """How to run it, and the answer of the daemon. Raises TroubleError."""
    verb = program.verb_at(command)
    if verb is None:
        raise NotAdvisedError("this command uploads nothing")
    asked = dict(stated)
    if asked["payload_size_bytes"] is None:
        source = source_of(program, command, verb)
        material = None if source is None else _material(source)
        if material is None:
            raise NotAdvisedError("no local file is uploaded whose size could be seen; state --object-size")
        asked["payload_size_bytes"] = material.object_size_bytes
        asked["object_count"] = asked["object_count"] or material.object_count
    document = call(
        socket_path,
        "GET",
        "/v1/recommendation",
        parameters=parameters_of("s3_upload", asked),
        timeout_seconds=_TIMEOUT_SECONDS,
    )
    if document["basis"] == "default":
        raise NotAdvisedError("nothing is known about this place yet")
    translation = translate(TARGETS[program.target], document)
    return program.apply(command, verb, os.environ, translation), document


def _material(source: str) -> Material | None:
    """The files under this name, folder or pattern; None when there are none with anything in them."""
    sizes = sorted(islice((size for size in _sizes(source) if size > 0), FILE_COUNT_MAX), reverse=True)
    if not sizes:
        return None
    so_far, half = 0, sum(sizes) / 2
    for size in sizes:
        so_far += size
        if so_far >= half:
            return Material(len(sizes), size)
    raise AssertionError("all files together are at least half of them")


def _sizes(source: str) -> Iterator[int]:
    if Path(source).is_dir():
        for folder, _, names in os.walk(source):
            yield from (_size(Path(folder, name)) for name in names)
    elif Path(source).exists():
        yield _size(Path(source))
    else:
        found = glob.iglob(source, recursive=True)  # noqa: PTH207 - a pattern may be absolute
        yield from (_size(Path(path)) for path in found)


def _size(path: Path) -> int:
    """In bytes; 0 for what is not a file, or went away."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _become(launch: Launch) -> None:
    """Replace this process by the client. Raises TroubleError when there is no such program."""
    environment = {**os.environ, **launch.environment}
    if launch.aws_settings:
        try:
            environment["AWS_CONFIG_FILE"] = _private_aws_configuration(launch, environment)
        except (OSError, UnicodeError, configparser.Error) as trouble:
            click.echo(f"penstock: aws runs with its own defaults: its configuration: {trouble}", err=True)
    # Python ignores these two, and what is ignored stays so in the program that follows.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(launch.command[0], list(launch.command), environment)  # noqa: S606 - the point of the command
    except OSError as trouble:
        raise TroubleError(f"{launch.command[0]} cannot be run: {trouble.strerror}") from trouble


def _private_aws_configuration(launch: Launch, environment: Mapping[str, str]) -> str:
    """The path of a copy of the user's configuration that has no name on the disk, and ends with this process.

    The process keeps its number when it becomes the client, so that children of the client find the copy, too.
    """
    own = Path(environment.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()
    text = own.read_text(encoding="utf-8") if own.exists() else ""
    profile = aws_profile(launch.command, environment)
    copy = os.memfd_create("aws-config", 0)  # without close-on-exec
    with os.fdopen(copy, "w", encoding="utf-8", closefd=False) as file:
        file.write(with_aws_settings(text, profile, launch.aws_settings))
    return f"/proc/{os.getpid()}/fd/{copy}"
