"""Knows `penstock tune`: tunes any client by running it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from penstock.cli.examples import examples
from penstock.cli.interruption import end_tidily
from penstock.cli.output import json_option, options, print_json, print_table, text
from penstock.cli.quantities import BYTES, PERIOD
from penstock.cli.trouble import INTERRUPTED, TroubleError, WrongUsageError
from penstock.clock import SystemClock
from penstock.operations.operation import Operation
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.s3.upload import UPLOAD
from penstock.units import counted, format_bytes, format_rate, format_seconds, label, parse_bytes
from penstock.vocabulary import UNKNOWN, Demand, Objective, Regime

if TYPE_CHECKING:
    from penstock.models.s3.ranges import Ranges, TransferSetting
    from penstock.tuning.remains import Left
    from penstock.tuning.session import Task, Tuning
    from penstock.tuning.state import Trial
    from penstock.vocabulary import ProbePlan

# The same as in penstock.tuning.clients, which the help does not import.
_CLIENTS = ("boto3", "s5cmd", "rclone", "aws")
_PROBE_COUNT = 12
_REGIMES = {
    "burst": "This advice is for while the host bursts; --regime sustained advises for when its credits are spent.",
    "sustained": "This advice is for what the host sustains; --regime burst advises for while it bursts.",
}


class _InterruptedError(TroubleError):
    """It was interrupted before there was any result."""

    exit_code = INTERRUPTED


class Range(click.ParamType[tuple[int, int]]):
    """One value, or two ends with dots between: ``16``, ``1..256``, ``5MiB..512MiB``."""

    name = "range"

    def __init__(self, read: Callable[[str], int]) -> None:
        self._read = read

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Both ends; a usage error says what is expected."""
        low, dots, high = str(value).partition("..")
        if not low or (dots and not high):
            self.fail(f"{value} lacks an end; a range has two dots between its ends, as in 4..64", param, ctx)
        try:
            return self._read(low), self._read(high if dots else low)
        except (ValueError, OverflowError) as trouble:
            self.fail(f"{trouble}; a range has two dots between its ends", param, ctx)


def _count(written: str) -> int:
    """A whole number. Raises ValueError."""
    try:
        return int(written)
    except ValueError:
        raise ValueError(f"{written} is not a whole number") from None


@click.group(
    epilog=examples(
        f"penstock tune {UPLOAD.command} --exec ./upload.sh --object-size 512MiB",
        f"penstock tune {UPLOAD.command} --client s5cmd --bucket my-bucket --object-size 2GiB",
        f"penstock tune {UPLOAD.command} --exec ./upload.sh --object-size 1GiB --part-size 8MiB --threads 4..64",
        f"penstock tune {UPLOAD.command} --exec ./upload.sh --object-size 512MiB --json | jq .recommendation",
        f"penstock tune {DOWNLOAD.command} --client rclone --bucket my-bucket --object-size 1GiB",
    )
)
def tune() -> None:
    """Tune any client by running it; no daemon is needed."""


class _Kind(NamedTuple):
    """What is tuned: an operation, and how its request size is stated."""

    # Any: a setting of uploads or downloads.
    row: Operation[Any, Any]
    option: str
    sizes: str
    does: str
    bucket_help: str
    help: str

    @property
    def knob(self) -> str:
        """The field of the request size."""
        return f"{self.option.removeprefix('--').replace('-', '_')}_bytes"

    def ranges(self, threads: tuple[int, int], sizes: tuple[int, int]) -> Ranges:
        """The settings that the client may be given."""
        from penstock.models.s3.ranges import DownloadRanges, UploadRanges

        kind = DownloadRanges if self.row is DOWNLOAD else UploadRanges
        ends = {f"{self.knob}_min": sizes[0], f"{self.knob}_max": sizes[1]}
        return kind(thread_count_min=threads[0], thread_count_max=threads[1], **ends)


_EXPLAINED = """\
    {first}

    CMD is given one line of JSON on standard input (thread_count, {knob}, object_size_bytes,
    probe_index), {does} accordingly, and prints one line of JSON last (transferred_bytes, duration_seconds, and if it
    likes throttled_count and failed_count). Each run is a trial. A run that fails is a failed trial, not the end.

    The same command line continues what was interrupted. Ctrl-C ends the running command, with all its children, and
    gives the advice so far. Progress goes to standard error, the result to standard output.
"""

_KINDS = (
    _Kind(
        UPLOAD,
        "--part-size",
        "5MiB..512MiB",
        "uploads",
        "where to upload to; what is uploaded is removed.",
        "Find threads and part size for uploads by a command.",
    ),
    _Kind(
        DOWNLOAD,
        "--range-size",
        "1MiB..512MiB",
        "downloads",
        "where to put what is read; it is removed.",
        "Find threads and range size for downloads by a command.",
    ),
)


def _what(kind: _Kind) -> list[Callable[[Any], Any]]:
    """The options that say what is tuned, and within which ranges."""
    return [
        click.option(
            "--exec", "command", metavar="CMD", help=f"A command for the shell that {kind.does} once."
        ),
        click.option(
            "--client", type=click.Choice(_CLIENTS), help="Instead of --exec: a ready-made command."
        ),
        click.option("--bucket", help=f"With --client: {kind.bucket_help}"),
        click.option("--endpoint-url", help="With --client: of an S3 that is not AWS's."),
        click.option("--object-size", "object_size_bytes", type=BYTES, required=True, help="Such as 512MiB."),
        _range_option("--threads", type=Range(_count), default="1..256"),
        _range_option(kind.option, "sizes", type=Range(parse_bytes), default=kind.sizes),
    ]


_range_option = functools.partial(click.option, show_default=True, help="A range, or one value.")

_HOW: list[Callable[[Any], Any]] = [
    click.option(
        "--probes",
        "probe_count",
        type=click.IntRange(1, 1000),
        default=_PROBE_COUNT,
        show_default=True,
        help="How often the command is run in total; a larger number continues where it ended.",
    ),
    click.option(
        "--timeout",
        "timeout_seconds",
        type=PERIOD,
        default="1h",
        show_default=True,
        help="A run that takes longer is ended and counts as failed.",
    ),
    click.option(
        "--objective",
        type=click.Choice([objective.value for objective in Objective]),
        default=Objective.THROUGHPUT.value,
        show_default=True,
        help="Only as many connections as are worth it, peak throughput, least latency, or frugal: 80 % for much less.",
    ),
    click.option(
        "--regime",
        type=click.Choice(list(_REGIMES)),
        default=Regime.BURST.value,
        show_default=True,
        help="What the host can do while it bursts, as it does in short runs, or what it sustains.",
    ),
    click.option("--memory-max", "memory_bytes_max", type=BYTES, help="Memory for buffers, such as 256MiB."),
    click.option("--region", help="Of the bucket; sharpens the first guess, and is passed on with --client."),
    click.option("--instance-type", help="Of this host, such as c5.large; sharpens the first guess."),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**31),
        default=0,
        show_default=True,
        help="The seed of everything random in it.",
    ),
    click.option(
        "--state",
        "state_path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The file that keeps trials; without it, one in the user's state directory, by command, size, "
        "ranges and folder.",
    ),
    click.option("--restart", is_flag=True, help="Forget the trials of an earlier run and start again."),
    json_option,
]
"""The options that say how to tune."""


def _add(kind: _Kind) -> None:
    """Add one command to the group."""
    explained = _EXPLAINED.format(first=kind.help, knob=kind.knob, does=kind.does)

    def command(*, as_json: bool, **given: Any) -> None:
        _run(kind, given, as_json=as_json)

    command = options(*_what(kind), *_HOW)(command)
    tune.command(kind.row.command, help=inspect.cleandoc(explained))(command)


for _kind in _KINDS:
    _add(_kind)


def _run(kind: _Kind, given: Mapping[str, Any], *, as_json: bool) -> None:
    tuning, left = _tune(kind, given, as_json=as_json)
    document = tuning.document() | _left_document(left)
    if as_json:
        print_json(document)
    else:
        _show(kind, document)
    if tuning.trouble is not None:
        raise TroubleError(tuning.trouble)
    if tuning.was_interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _tune(kind: _Kind, given: Mapping[str, Any], *, as_json: bool) -> tuple[Tuning, list[Left]]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported, below
    from penstock.tuning.clients import noting
    from penstock.tuning.command import run_command
    from penstock.tuning.session import Task, TuningError
    from penstock.tuning.session import tune as run_trials
    from penstock.tuning.state import Subject, TuningStateError, default_path, open_state

    end_tidily()
    command = _command(given)
    ranges = kind.ranges(given["threads"], given["sizes"])
    if (trouble := ranges.trouble(given["object_size_bytes"], given["memory_bytes_max"])) is not None:
        raise WrongUsageError(trouble)
    task = Task(
        object_size_bytes=given["object_size_bytes"],
        ranges=ranges,
        demand=Demand(
            objective=Objective(given["objective"]),
            regime=Regime(given["regime"]),
            memory_bytes_max=given["memory_bytes_max"],
            thread_count_max=ranges.thread_count_max,
        ),
        probe_count=given["probe_count"],
        seed=given["seed"],
        region=given["region"] or UNKNOWN,
        instance_type=given["instance_type"] or UNKNOWN,
        row=kind.row,
    )
    subject = Subject.of(command, task.object_size_bytes, ranges, os.environ)
    left: list[Left] = []
    try:
        path = given["state_path"] or default_path(subject, os.environ)
        notes = path.with_name(f"{path.name}.left")
        command += f" {noting(notes)}" if given["client"] else ""
        run = functools.partial(run_command, command, timeout_seconds=given["timeout_seconds"])
        with (
            open_state(path, subject, kind.row.setting_type, restart=given["restart"]) as state,
            _swept(notes, left),
            contextlib.closing(_Teller(task, state.trials, path, notes)) as teller,
        ):
            tuning = run_trials(task, state, run, SystemClock(), starting=teller.starting, ended=teller.ended)
    except TuningStateError as trouble:
        raise TroubleError(str(trouble)) from trouble
    except TuningError as trouble:
        if as_json:
            print_json(trouble.document() | _left_document(left))
        refusal = _InterruptedError if trouble.was_interrupted else TroubleError
        raise refusal(str(trouble)) from trouble
    return tuning, left


def _command(given: Mapping[str, Any]) -> str:
    """The command line to tune. Raises TroubleError."""
    from penstock.tuning.clients import Target, command_line, what_is_missing

    if (given["command"] is None) == (given["client"] is None):
        raise WrongUsageError("say either --exec with a command or --client with one of the ready-made ones")
    if given["command"] is not None:
        if given["bucket"] or given["endpoint_url"]:
            raise WrongUsageError(
                "--bucket and --endpoint-url go with --client; write them into your command"
            )
        return str(given["command"])
    if not given["bucket"]:
        raise WrongUsageError("--client needs --bucket: where its objects go")
    if "://" in given["bucket"]:
        raise WrongUsageError('--bucket is the name alone, such as "my-bucket", without "s3://"')
    if (missing := what_is_missing(given["client"])) is not None:
        raise TroubleError(missing)
    return command_line(
        given["client"],
        Target(bucket=given["bucket"], endpoint_url=given["endpoint_url"], region=given["region"]),
    )


@contextlib.contextmanager
def _swept(notes: Path, left: list[Left]) -> Iterator[None]:
    """Remove what ready-made commands left, before the first run and at the end; name what remains."""
    from penstock.processes.interruption import put_up_with_one
    from penstock.tuning.remains import remove_noted

    remove_noted(notes)
    try:
        yield
    finally:
        with put_up_with_one():
            left += remove_noted(notes)
        for remains in left:
            _tell(
                f"Left behind: {remains.url} ({remains.reason}). The same command line tries again to remove it."
            )
        with contextlib.suppress(OSError):  # not empty, or missing
            notes.rmdir()


def _left_document(left: Sequence[Left]) -> dict[str, Any]:
    return {"left_behind": [{"url": remains.url, "reason": remains.reason} for remains in left]}


class _Teller:
    """Prints on standard error what is tried, and its outcome."""

    def __init__(self, task: Task, done: Sequence[Trial], path: Path, notes: Path) -> None:
        self._task = task
        self._notes = notes
        self._is_line_open = False
        self._has_doubted = False
        if done:
            trials = f"{counted(len(done), 'trial')} {'is' if len(done) == 1 else 'are'}"
            last = f"the last of {done[-1].started_at:%Y-%m-%d %H:%M} UTC"
            _tell(f"{trials} known from before, {last} ({path}); --restart forgets them.")

    def starting(self, plan: ProbePlan[TransferSetting], probe_index: int) -> None:
        setting = plan.setting
        setting_words = (
            f"{counted(setting.thread_count, 'thread')} x {format_bytes(setting.request_size_bytes)}"
        )
        _tell(f"{probe_index + 1:3} of {self._task.probe_count}  {setting_words} ... ", nl=False)
        self._is_line_open = True

    def ended(self, trial: Trial) -> None:
        """Print a trial's outcome, warn once if its report is implausible, and try again to remove leftovers."""
        from penstock.tuning.remains import remove_noted
        from penstock.tuning.session import doubt_about

        _tell(_outcome(trial))
        self._is_line_open = False
        reason = doubt_about(trial)
        if reason is not None and not self._has_doubted:
            self._has_doubted = True
            _tell(f"Warning: {reason}.")
        remove_noted(self._notes)

    def close(self) -> None:
        """End the line of a trial that was begun and did not end."""
        if self._is_line_open:
            _tell("not finished")


def _outcome(trial: Trial) -> str:
    if trial.report is None:
        assert trial.failure is not None
        return f"failed: {trial.failure.reason}"
    rate = trial.report.transferred_bytes / trial.report.duration_seconds
    return f"{format_rate(rate)} ({format_seconds(trial.report.duration_seconds)})"


def _show(kind: _Kind, document: Mapping[str, Any]) -> None:
    rows = [
        (
            str(trial["probe_index"] + 1),
            str(trial["thread_count"]),
            format_bytes(trial[kind.knob]),
            text("throughput_bytes_per_second", trial["throughput_bytes_per_second"]),
            text("duration_seconds", trial["duration_seconds"]),
            _remark(trial),
        )
        for trial in document["trials"]
    ]
    print_table(
        ("trial", "threads", kind.option.removeprefix("--").replace("-", " "), "throughput", "duration", ""),
        rows,
    )
    click.echo()
    advice = document["recommendation"]
    bundle = {name: advice[name] for name in ("thread_count", kind.knob)} | advice["derived"]
    size = format_bytes(document["object_size_bytes"])
    count = document["probe_count"]
    so_far = " so far" if document["was_interrupted"] or document["trouble"] else ""
    title = (
        f"{kind.row.name} of {size}: the advice{so_far}, after {count} {'trial' if count == 1 else 'trials'}"
    )
    print_table(
        ("use", ""), [(label(name), text(name, value)) for name, value in bundle.items()], title=title
    )
    click.echo()
    click.echo(document["explanation"])
    if "burst_seconds_left" in advice["derived"]:  # else it needs no credits
        click.echo(_REGIMES[document["regime"]])
    if (limit := document["inferred_limit"]) is not None:
        click.echo(_described_limit(limit))


def _described_limit(limit: Mapping[str, int]) -> str:
    """A limit that was concluded from failures, worded so that nobody takes it for a measurement."""
    count = limit["failed_probe_count"]
    runs = "1 run" if count == 1 else f"{count} runs"
    if "thread_count_max" in limit:
        worked, failed = (
            counted(limit[n], "thread") for n in ("thread_count_max", "failed_thread_count_min")
        )
    else:
        worked = f"{format_bytes(limit['memory_bytes_max'])} in memory"
        failed = format_bytes(limit["failed_memory_bytes_min"])
    return (
        f"Inferred from failures: no run worked with more than {worked}, and {runs} failed from {failed} "
        "on, so no more than what worked is advised. If that was bad luck, run again with more --probes."
    )


def _remark(trial: Mapping[str, Any]) -> str:
    if trial["failure"] is not None:
        return f"failed: {trial['failure']}"
    troubles = [f"{trial[name]} {label(name)}" for name in ("throttled_count", "failed_count") if trial[name]]
    return ", ".join(troubles).replace(" count", "")


def _tell(message: str, *, nl: bool = True) -> None:
    """Print to standard error, which may be a closed terminal."""
    with contextlib.suppress(OSError):
        click.echo(message, err=True, nl=nl)
