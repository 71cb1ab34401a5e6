"""Knows `penstock exec`: runs a known client with the advice applied, or unchanged if there is none."""

from __future__ import annotations

import configparser
import glob
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import click

from penstock.cli.daemon import advice_in_force
from penstock.cli.examples import examples
from penstock.cli.output import print_json
from penstock.cli.query import (
    common_options,
    demand_options,
    memory_trouble,
    optional_size_option,
    parameters_of,
    store_option,
)
from penstock.cli.trouble import TroubleError, WrongUsageError, cannot_run
from penstock.client.confinement import memory_share_bytes
from penstock.client.sdk_client import is_directory_bucket
from penstock.client.targets.launch import (
    PROGRAMS,
    Launch,
    Program,
    aws_configuration,
    sink_of,
    source_of,
)
from penstock.client.targets.stores import store_for, variables_for
from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import Target, translate
from penstock.clock import SystemClock
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.table import OPERATIONS

FILE_COUNT_MAX = 10_000
"""How many files are sized at most; the typical size is taken from these."""
_WALK_SECONDS_MAX = 2.0  # for sizing files: a network file system may be slow, and the client waits
_LARGE_RATIO = 4  # files down to a quarter of the typical size count as large, and are split like it
_TIMEOUT_SECONDS = 1.0  # an answer takes milliseconds, and the client waits for it


class Material(NamedTuple):
    """What is to be uploaded: the number of files, and the size at which larger files hold half of all bytes.

    `large_count` files have about that size, or more.
    """

    object_count: int
    object_size_bytes: int
    large_count: int


@click.command(
    name="exec",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "penstock exec -- s5cmd cp big.bin s3://bucket/",
        "penstock exec -- rclone copy folder remote:bucket",
        "penstock exec --memory-max 512MiB -- aws s3 cp big.bin s3://bucket/ --storage-class STANDARD_IA",
        "tar c folder | penstock exec --object-size 20GiB -- s5cmd pipe s3://bucket/folder.tar",
        "penstock exec --object-size 1GiB -- s5cmd cp s3://bucket/big.bin .",
        "penstock exec --object-size 256MiB --reading --access random -- spark-submit job.py",
        "penstock exec --json -- s5cmd cp big.bin s3://bucket/    show what would be run",
    ),
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="COMMAND...")
@optional_size_option(UPLOAD.words)
@click.option(
    "--reading",
    "is_reading",
    is_flag=True,
    help="The command reads from S3, where that does not show: a mount, a job.",
)
@store_option
@demand_options(tuple(dict.fromkeys(UPLOAD.words.demand + DOWNLOAD.words.demand)))
@common_options
def exec_(
    *, command: tuple[str, ...], store: str | None, as_json: bool, socket_path: str, **stated: Any
) -> None:
    """Run a known client with the advice applied.

    It knows s5cmd, rclone, aws, mount-s3, spark-submit, spark-shell, spark-sql, pyspark, hadoop and hdfs, and becomes
    the client: the exit code and all signals are the client's own. The size of the objects is that of the local file
    or folder that is uploaded, unless you state --object-size; for downloads, state it.

    What you gave yourself, as an argument or in the environment, stays as it is. Configuration files are left alone;
    the AWS CLI reads a copy of its own, which is gone when it ends. Without advice, or with advice that has expired,
    the client runs unchanged, and a line on standard error says so. With --json nothing is run.
    """
    name = Path(command[0]).name
    if name not in PROGRAMS:
        raise WrongUsageError(
            f"{name} is not a client that is known here; known are {', '.join(PROGRAMS)}. "
            "For others see `penstock export --list`"
        )
    target = _target(PROGRAMS[name], command, stated)
    about: dict[str, Any] = {"target": target.name}
    document: dict[str, Any] = {}
    try:
        launch, document = _advised(PROGRAMS[name], target, command, socket_path, stated)
        about |= {"basis": document["basis"], "explanation": document["explanation"]}
        trouble = memory_trouble(document)
        if trouble and not as_json:  # the client's own defaults would take more memory
            click.echo(f"penstock: {name} runs with the setting that needs least memory: {trouble}", err=True)
    except TroubleError as refusal:
        launch = Launch(command)
        about |= {"basis": "default", "explanation": refusal.message}
        if not as_json:
            click.echo(f"penstock: {name} runs with its own defaults: {refusal.message}", err=True)
    found = store_for(store, document, os.environ, command)
    missing = {name: value for name, value in variables_for(found).items() if name not in os.environ}
    launch = launch._replace(environment={**missing, **launch.environment})
    if as_json:
        print_json({**about, **launch._asdict()})
    else:
        _become(launch)


def _advised(
    program: Program, target: Target, command: Sequence[str], socket_path: str, stated: Mapping[str, Any]
) -> tuple[Launch, dict[str, Any]]:
    """How to run the client, and the daemon's answer. Raises TroubleError with the reason if it runs unchanged."""
    verb = program.verb_at(command)
    if verb is None:
        if not program.is_unseen(command):
            raise TroubleError("this is no transfer that is known here")
        raise TroubleError(
            "what this command transfers cannot be seen from it, and no one setting fits all of it: "
            f"`penstock export {program.target}` says what to write where that stands"
        )
    asked = {name: value for name, value in stated.items() if name != "is_reading"}
    if asked["service_class"] is None and any(map(_is_of_directory_bucket, command)):
        asked["service_class"] = "express"
    # The client shares this pod's memory limit.
    asked["memory_bytes_max"] = asked["memory_bytes_max"] or memory_share_bytes()
    material = None
    if target.name == program.target:
        source = source_of(program, command, verb)
        material = None if source is None else _material(source)
    else:
        asked["sink"] = asked["sink"] or sink_of(program, command)
    if asked["payload_size_bytes"] is None and material is None:
        raise TroubleError(
            "no file of known size is uploaded; state --object-size"
            if target.name == program.target
            else "the size of the objects it reads is not known here; state --object-size"
        )
    if material is not None:
        asked["payload_size_bytes"] = asked["payload_size_bytes"] or material.object_size_bytes
        asked["object_count"] = asked["object_count"] or material.object_count
    document = advice_in_force(
        socket_path, parameters_of(target.operation, asked), timeout_seconds=_TIMEOUT_SECONDS
    )
    if document["basis"] == "default":
        raise TroubleError("nothing is known about this place yet")
    if material is not None and stated["payload_size_bytes"] is None:
        document["demand"]["split_object_count"] = material.large_count
    translation = translate(target, document)
    return program.apply(command, verb, os.environ, translation), document


def _is_of_directory_bucket(word: str) -> bool:
    """Whether it names a place in a directory bucket: ``s3://bucket--az--x-s3/key``, ``remote:bucket--az--x-s3``."""
    return any(map(is_directory_bucket, word.split("/")))


def _target(program: Program, command: Sequence[str], stated: Mapping[str, Any]) -> Target:
    """The target, for downloads if the command reads. Raises WrongUsageError for options that only readers have."""
    is_reading = stated["is_reading"] or sink_of(program, command) is not None
    target = TARGETS[program.download_target if is_reading else program.target]
    known = OPERATIONS[target.operation].words.demand
    wrong = [name for name in DOWNLOAD.words.demand if stated[name] is not None and name not in known]
    if wrong:
        raise WrongUsageError(f"{', '.join(wrong)} can be stated of what reads from S3: see --reading")
    return target


def _material(source: str) -> Material | None:
    """The files under this file, folder or pattern; None if there are none that are not empty."""
    clock = SystemClock()
    end_seconds = clock.monotonic_seconds() + _WALK_SECONDS_MAX
    in_time = takewhile(lambda _: clock.monotonic_seconds() < end_seconds, _sizes(source))
    sizes = sorted((size for size in islice(in_time, FILE_COUNT_MAX) if size > 0), reverse=True)
    so_far, half = 0, sum(sizes) / 2
    for size in sizes:
        so_far += size
        if so_far >= half:
            large_count = sum(_LARGE_RATIO * other >= size for other in sizes)
            return Material(len(sizes), size, large_count)
    return None


def _sizes(source: str) -> Iterator[int]:
    found = [source] if Path(source).exists() else glob.iglob(source)  # noqa: PTH207 - a pattern may be absolute
    for path in found:
        if Path(path).is_dir():
            for folder, _, names in os.walk(path):
                yield from (_size(Path(folder, name)) for name in names)
        else:
            yield _size(Path(path))


def _size(path: Path) -> int:
    """In bytes; 0 for what is not a file, or has gone."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _become(launch: Launch) -> None:
    """Replace this process by the client. Raises TroubleError if the program cannot be run."""
    environment = {**os.environ, **launch.environment}
    if launch.aws_settings:
        try:
            environment["AWS_CONFIG_FILE"] = _private_aws_configuration(launch, environment)
        except (OSError, UnicodeError, configparser.Error) as trouble:
            why = str(trouble).splitlines()[0]  # parse errors go on with lines of the file
            click.echo(f"penstock: aws runs with its own defaults: its configuration: {why}", err=True)
    # Python ignores these two signals, and ignored signals stay ignored across exec.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(launch.command[0], list(launch.command), environment)  # noqa: S606 - the point of the command
    except OSError as trouble:
        raise TroubleError(f"{launch.command[0]} cannot be run: {cannot_run(trouble)}") from trouble


def _private_aws_configuration(launch: Launch, environment: Mapping[str, str]) -> str:
    """The path of a copy of the user's configuration that has no name on disk, and vanishes with this process.

    The process keeps its id when it becomes the client, so that the client's children find the copy, too.
    """
    text = aws_configuration(launch.command, environment, launch.aws_settings)
    copy = os.memfd_create("aws-config", 0)  # without close-on-exec
    with os.fdopen(copy, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
    return f"/proc/{os.getpid()}/fd/{copy}"
