"""Knows `penstock report`: turns the database, opened read-only, into a page."""

from __future__ import annotations

import gc
import os
import re
import signal
import sqlite3
import stat
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import click
from click.core import ParameterSource

from penstock.cli.config import database_of, file_option
from penstock.cli.examples import examples
from penstock.cli.output import json_option
from penstock.cli.quantities import AGE, read_age
from penstock.cli.trouble import TroubleError, WrongUsageError, ended_by
from penstock.clock import SystemClock
from penstock.operations.table import OPERATIONS, setting_types
from penstock.units import UnitError
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Observation,
    Place,
    Recommendation,
    setting_values,
)

if TYPE_CHECKING:
    from io import TextIOWrapper

    from penstock.daemon.config import Configuration
    from penstock.daemon.memory.store import Store
    from penstock.models.model import Fit
    from penstock.report.difference import Comparison
    from penstock.report.findings import Report
    from penstock.report.material import Copy, Material
    from penstock.report.tally import Tally

    _Read: TypeAlias = tuple[list[Observation[Any]], Tally | None]

OBSERVATION_COUNT_MAX = 2000  # the newest of each place are kept one by one; all others are only counted
OBSERVATION_COUNT_OF_ONE_PROCESS = 100_000  # with more, other processes are worth starting
PROCESS_COUNT_MAX = 4
REPORT_COUNT_MAX, REPORT_COUNT_MAX_PER_USER = 500, 200
INCONCLUSIVE_COUNT_MAX = 1000
_GENERATED_AT = re.compile(r'<meta name="penstock-generated-at" content="([^"]+)">')
_HEAD_CHARACTER_COUNT = 4096
_MOST_USED = ("boto3", "aws-cli", "s5cmd", "rclone")
CHANGE_COUNT_MAX = 200
CLIENT_HOUR_COUNT_MAX, HARM_COUNT_MAX = 5000, 500
HISTORY_COUNT_MAX = 500  # the newest of each context
_OUTPUTS = {"html": "penstock-report.html", "markdown": "-", "json": "-"}


@click.command(
    epilog=examples(
        "penstock report                                   writes penstock-report.html",
        "penstock report --since 7d --output /tmp/week.html",
        "penstock report --format markdown                  one page, for a chat",
        "penstock report --format markdown --full | less",
        "penstock report --from s3://my-bucket/fleet       of all hosts that write there",
        "penstock report --database ./penstock.db --json | jq '.places[].advice'",
    )
)
@file_option
@click.option(
    "--database",
    "database_path",
    type=click.Path(path_type=Path),
    help="The database; without it, the daemon's.",
)
@click.option(
    "--from",
    "fleet_source",
    metavar="PLACE",
    help="A fleet's page, from the folder or s3://bucket/prefix that `penstock observations --to` writes.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Where to write; - is standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_OUTPUTS)),
    default="html",
    show_default=True,
    help="HTML goes to penstock-report.html unless --output says otherwise, the others to the standard output.",
)
@json_option
@click.option(
    "--compare",
    metavar="WHAT",
    help="With what was before a date or longer ago (2026-04-10, 7d), another database, or a region.",
)
@click.option(
    "--full", "is_full", is_flag=True, help="Markdown with the evidence; without it, one page for a chat."
)
@click.option("--since", "since_seconds", type=AGE, help="Only what is newer than this, such as 7d.")
def report(
    *,
    main_file: Path | None,
    database_path: Path | None,
    fleet_source: str | None,
    output: Path | None,
    form: str,
    as_json: bool,
    since_seconds: float | None,
    compare: str | None,
    is_full: bool,
) -> None:
    """Write a page about what was learned and advised.

    It reads the database, also beside a running daemon, and changes nothing. The page needs no network to be looked at.
    """
    if as_json and form != "json" and _is_stated("form"):
        raise WrongUsageError(f"--json is another format than {form}: name one of them")
    form = "json" if as_json else form
    if is_full and form != "markdown":
        raise WrongUsageError("--full is for --format markdown: the other formats have all of it anyway")
    if output is not None and not output.name:
        raise WrongUsageError("--output names no file: name one, or - for the standard output")
    if fleet_source is not None:
        if database_path or compare or since_seconds is not None:
            raise WrongUsageError("--from is of many hosts: it goes with --output and --format alone")
        write_page([_fleet_page(fleet_source, form)], output or Path(_OUTPUTS[form]))
        return
    path, configuration = database_of(database_path, main_file)
    now = _dated()
    try:
        since = now - timedelta(seconds=since_seconds) if since_seconds is not None else None
    except OverflowError:
        since = None
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported, below
    from penstock.report.comparison import around

    output = output or Path(_OUTPUTS[form])
    studied = _studied(read_material(path, configuration, now=now, since=since))
    compared = [_compared(studied, compare, now)] if compare else []
    last_at = _last_report_at(output)
    if last_at is not None and last_at < now:
        compared.append(around(studied, last_at, "Since the last report"))
    write_page(_rendered(replace(studied, comparisons=tuple(compared)), form, path, is_full=is_full), output)


def _is_stated(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _fleet_page(source: str, form: str) -> str:
    """A fleet's page. Raises TroubleError if there is nothing to read, or no DuckDB to read it with."""
    from penstock.cli.observations import NOT_INSTALLED

    try:
        from penstock.analysis import with_duckdb
        from penstock.analysis.files import FilesError
    except ImportError as trouble:
        raise TroubleError(f"{source} cannot be read: {NOT_INSTALLED} ({trouble})") from trouble
    from penstock.analysis.page import page, rendered

    with ended_by(FilesError):
        return rendered(page(with_duckdb.answers(source), source), form)


def _compared(report: Report, what: str, now: datetime) -> Comparison:
    """The comparison asked for. Raises WrongUsageError for text that is neither a file, a region, a date nor a time."""
    from penstock.report.comparison import around, with_other, with_region

    if Path(what).is_file():
        return with_other(report, _studied(read_material(Path(what), None, now=now, since=None)))
    regions = {findings.place.region for findings in report.places}
    if what in regions:
        return with_region(report, what)
    try:
        at = datetime.fromisoformat(what)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError:
        try:
            at = now - timedelta(seconds=read_age(what))
        except (UnitError, OverflowError):
            raise WrongUsageError(
                f"--compare {what} is no file, no region of this database ({', '.join(sorted(regions)) or 'none'}), "
                "no date such as 2026-04-10 and no time such as 7d"
            ) from None
    return around(report, at, f"Before and after {at:%Y-%m-%d %H:%M} UTC")


def _last_report_at(output: Path) -> datetime | None:
    """When the page that is about to be replaced was made; None if it is not such a page."""
    if not output.is_file():  # opening a pipe could block
        return None
    try:
        with output.open(encoding="utf-8", errors="replace") as file:
            found = _GENERATED_AT.search(file.read(_HEAD_CHARACTER_COUNT))
        return datetime.fromisoformat(found.group(1)).astimezone(UTC) if found else None
    except (OSError, ValueError, OverflowError):
        return None


def _dated() -> datetime:
    """The date of the page; SOURCE_DATE_EPOCH makes pages reproducible (reproducible-builds.org)."""
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return datetime.fromtimestamp(int(stated), UTC) if stated else SystemClock().now()
    except (ValueError, OverflowError, OSError):
        raise WrongUsageError(
            f"SOURCE_DATE_EPOCH is {stated!r}: it is a number of seconds since 1970, or not set"
        ) from None


def read_material(
    path: Path, configuration: Configuration | None, *, now: datetime, since: datetime | None
) -> Material:
    """Everything that a report needs from a database. Raises TroubleError."""
    from penstock.daemon.memory.database import StoreDenied, StoreError, StoreMissing
    from penstock.daemon.memory.store import Store

    def read(store: Store, damage: Sequence[str] | None = None) -> Material:
        with closing(store):
            return _read(store, path, configuration, now=now, since=since, damage=damage)

    try:
        return read(Store.open_read_only(path, setting_types()))
    except (StoreMissing, StoreDenied) as trouble:
        raise TroubleError(str(trouble)) from trouble
    except (StoreError, sqlite3.DatabaseError):
        pass  # it is damaged: read row by row what can be read
    try:
        return read(*Store.open_salvaged(path, setting_types()))
    except (StoreError, sqlite3.DatabaseError) as trouble:
        known = isinstance(trouble, StoreError)
        raise TroubleError(
            f"{trouble if known else f'the database {path} cannot be read ({trouble})'}: it is damaged, or "
            "not a database of penstock's; name another with --database. penstockd saves what it can of "
            "its own when it starts"
        ) from trouble


def _read(
    store: Store,
    path: Path,
    configuration: Configuration | None,
    *,
    now: datetime,
    since: datetime | None,
    damage: Sequence[str] | None,  # None: the file is intact
) -> Material:
    from penstock.client.targets.unadvised import unadvised_settings
    from penstock.models.model import is_current
    from penstock.report.material import Material

    recommendations = store.recommendations()
    fits = [
        fit
        for fit in store.fits()
        if fit.place.operation not in OPERATIONS or is_current(fit, OPERATIONS[fit.place.operation].model)
    ]
    counts = Counter(dict.fromkeys(store.reported_places(), 0))
    for summary in store.summaries():
        counts[summary.context.place] += summary.observation_count
    contexts = {recommendation.context for recommendation in recommendations}
    histories = {c: store.recommendation_history(c, count_max=HISTORY_COUNT_MAX) for c in contexts}
    read, unreadable_count = _read_places(store, path if damage is None else None, counts, since, fits)
    instance_types = {fit.place.instance_type for fit in fits}
    return Material(
        source=str(path),
        generated_at=now,
        since=since,
        models={name: row.model for name, row in OPERATIONS.items()},
        words={name: row.words for name, row in OPERATIONS.items()},
        observations={place: newest for place, (newest, _) in read.items()},
        inconclusives=store.inconclusives(count_max=INCONCLUSIVE_COUNT_MAX, since=since),
        fits=fits,
        recommendations=recommendations,
        histories={c: [r for r in h if since is None or r.issued_at >= since] for c, h in histories.items()},
        expenses=store.spend(since=since),
        daily_limit=_daily_limit(configuration, instance_types) if configuration else None,
        within_limits=_bounds(fits, configuration),
        changes=[
            c for c in store.changes(count_max=CHANGE_COUNT_MAX) if since is None or c.changed_at >= since
        ],
        unadvised=lambda context: unadvised_settings(context.operation, context.payload_size_bytes),
        copies=copies_of,
        usd_limits=configuration.usd_limits if configuration else {},
        client_hours=store.client_hours(count_max=CLIENT_HOUR_COUNT_MAX, since=since),
        harms=store.harms(count_max=HARM_COUNT_MAX, since=since),
        leftover_count=len(store.open_leftovers()),
        unreadable_count=store.unreadable_count + unreadable_count,
        damage=damage or (),
        backlogs=store.backlogs(since=since),
        tallies={place: tally for place, (_, tally) in read.items() if tally is not None},
    )


def copies_of(advice: Recommendation[Any]) -> list[Copy]:
    """The advice as `penstock export` prints it for each client; its plain values if no client is known."""
    from penstock.api.wire import recommendation_document
    from penstock.client.targets.table import TARGETS
    from penstock.client.targets.target import translate
    from penstock.report.material import Copy

    document = recommendation_document(advice, generation=0)
    targets = [target for target in TARGETS.values() if target.operation == advice.context.operation]
    targets.sort(key=lambda target: target.name.removesuffix("-download") not in _MOST_USED)
    said = [
        Copy(target.name, "\n".join(next(iter(target.writers.values()))(translate(target, document))))
        for target in targets
    ]
    return said or [Copy("any client", _bare(advice))]


def _bare(advice: Recommendation[Any]) -> str:
    """The values in full: counts and bytes to the last one."""
    values = setting_values(advice.setting).items()
    return "\n".join(f"{name} = {int(value) if value == int(value) else value}" for name, value in values)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Suspend garbage collection, a third of the time: millions of values come and go, none of them in a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read_places(
    store: Store, path: Path | None, counts: Counter[Place], since: datetime | None, fits: Sequence[Fit]
) -> tuple[dict[Place, _Read], int]:
    """The observations of each place, and how many rows were unreadable beyond those that `store` has counted itself.

    Several large places of a file are read by parallel processes, each counting its own, with the same result.
    """
    places = [place for place, _ in counts.most_common()]
    worker_count = min(len(places), len(os.sched_getaffinity(0)), PROCESS_COUNT_MAX)
    if path is None or worker_count < 2 or counts.total() < OBSERVATION_COUNT_OF_ONE_PROCESS:
        return {place: _observations(store, place, since, fits) for place in places}, 0
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial

    from penstock.processes.parent import end_with_parent

    begin = partial(end_with_parent, os.getpid(), signal.SIGKILL)
    with ProcessPoolExecutor(worker_count, multiprocessing.get_context("spawn"), begin) as pool:
        read = list(pool.map(partial(_read_alone, path, since=since, fits=fits), places))
    return {place: found for place, (found, _) in zip(places, read, strict=True)}, sum(n for _, n in read)


def _read_alone(
    path: Path, place: Place, *, since: datetime | None, fits: Sequence[Fit]
) -> tuple[_Read, int]:
    """One place, in a process of its own, and how many of its rows were unreadable."""
    from penstock.daemon.memory.store import Store

    with closing(Store.open_read_only(path, setting_types())) as store:
        return _observations(store, place, since, fits), store.unreadable_count


def _observations(store: Store, place: Place, since: datetime | None, fits: Sequence[Fit]) -> _Read:
    """The newest measured and reported observations, oldest first, and a tally of all measured ones."""
    from penstock.daemon.cycle.beside import together
    from penstock.report.study import Expectations
    from penstock.report.tally import tally_of

    reported = store.reports(
        place, count_max=REPORT_COUNT_MAX, count_max_per_user=REPORT_COUNT_MAX_PER_USER, since=since
    )
    if place.operation not in OPERATIONS:
        return reported, None
    reported = together(reported)
    model = OPERATIONS[place.operation].model
    expectations = Expectations(model, next((fit for fit in fits if fit.place == place), None))
    newest: deque[Observation[Any]] = deque(maxlen=OBSERVATION_COUNT_MAX)
    alike: dict[Any, Any] = {}  # one copy of equal contexts and settings

    def passing() -> Iterator[Observation[Any]]:
        for one in store.each_observation(place, since=since):
            newest.append(one)
            yield one

    with _without_collections():
        tally = tally_of(passing(), model.measured_value, expectations.means)
    # Without the histograms, which are in the tally and would take nearly all of the memory.
    told = [
        replace(
            one,
            context=alike.setdefault(one.context, one.context),
            setting=alike.setdefault(one.setting, one.setting),
            histograms={},
            successive=None,
        )
        for one in newest
    ]
    return sorted([*told, *reported], key=lambda o: o.started_at), tally


def _bounds(fits: Sequence[Fit], configuration: Configuration | None) -> Callable[[Context, Demand], Demand]:
    """How the daemon bounds a demand: by its configuration, or by the default configuration."""
    from penstock.daemon.board import within_limits
    from penstock.daemon.config import Configuration

    allowed = (configuration or Configuration()).thread_count_limits
    fit_of = {fit.place: fit for fit in fits}

    def bounded(context: Context, demand: Demand) -> Demand:
        return within_limits(
            OPERATIONS[context.operation].model,
            fit_of.get(context.place),
            context,
            demand,
            thread_count_max=allowed.get(context.operation),
        )

    return bounded


def _daily_limit(configuration: Configuration, instance_types: set[str]) -> Cost:
    """The daily budget as the daemon reckons it; with the host's burst credits, if only one instance type was seen."""
    from penstock.daemon.spending.budget import daily_limit
    from penstock.models.burst import ceiling

    limits = ceiling(next(iter(instance_types))) if len(instance_types) == 1 else None
    return daily_limit(configuration.budget, credit_bytes_per_day=limits.credit_bytes_max if limits else 0.0)


def _studied(material: Material) -> Report:
    from penstock.report.remarks import remark
    from penstock.report.study import study

    return remark(study(material))


def _rendered(report: Report, form: str, path: Path, *, is_full: bool) -> Iterable[str]:
    """The page in pieces; HTML includes what was measured beside the database."""
    from penstock.report.document import render_json
    from penstock.report.markdown import render_markdown

    if form == "html":
        from penstock.experiments.archive import beside
        from penstock.experiments.page import measured_html
        from penstock.report.page import render_html

        return render_html(report, measured_html(beside(path)))
    return [render_markdown(report, is_full=is_full) if form == "markdown" else render_json(report)]


def _put(pieces: Iterable[bytes], output: Path) -> None:
    """Replace the file atomically, or write into what is not a regular file. Raises OSError, TroubleError.

    A link is neither followed nor replaced: root may write into a folder where others can put a link, and the command
    line does not show where it leads.
    """
    from penstock.api.snapshot import write_snapshot

    try:
        there = output.lstat().st_mode
    except FileNotFoundError:
        there = stat.S_IFREG | 0o666 & ~_umask()
    if stat.S_ISLNK(there):
        raise TroubleError(
            f"{output} is a link to {output.readlink()}: name that file, or remove the link; - is the standard output"
        )
    if stat.S_ISREG(there):
        write_snapshot(output, pieces, mode=stat.S_IMODE(there))
        return
    with os.fdopen(os.open(output, os.O_WRONLY | os.O_NOFOLLOW), "wb") as file:  # a pipe or a device
        file.writelines(pieces)


def _umask() -> int:
    """The umask of this process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def write_page(pieces: Iterable[str], output: Path) -> None:
    """Write the page and print its name and size. Raises TroubleError."""
    if str(output) == "-":  # in the encoding that the page names, whatever the locale
        cast("TextIOWrapper", sys.stdout).reconfigure(encoding="utf-8")
        sys.stdout.writelines(pieces)
        return
    sizes = list[int]()

    def encoded() -> Iterator[bytes]:
        for piece in pieces:
            sizes.append(len(content := piece.encode()))
            yield content

    try:
        _put(encoded(), output)
    except OSError as trouble:
        raise TroubleError(f"{output} cannot be written: {trouble.strerror}") from trouble
    click.echo(f"Wrote {output} ({sum(sizes) / 1000:,.0f} kB).", err=True)
