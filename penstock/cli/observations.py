"""Knows `penstock observations`: writes this host's measurements as Parquet, for reports about all hosts."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.config import database_of, file_option
from penstock.cli.examples import examples
from penstock.cli.output import json_option, print_json
from penstock.cli.quantities import AGE
from penstock.cli.trouble import TroubleError, WrongUsageError, ended_by
from penstock.clock import SystemClock
from penstock.units import counted

if TYPE_CHECKING:
    from penstock.daemon.memory.store import Store
    from penstock.vocabulary import Place

NOT_INSTALLED = "it takes DuckDB and Arrow: pip install 'penstock[analysis]'"
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_DAY = timedelta(days=1)
_DEFAULT_SECONDS = 86400.0


@click.command(
    epilog=examples(
        "penstock observations --to s3://my-bucket/fleet     yesterday and today: once a day by a timer",
        "penstock observations --to /tmp/fleet --since 90d",
        "penstock observations --athena s3://my-bucket/fleet prints its tables for Athena",
    )
)
@file_option
@click.option("--to", "destination", metavar="PLACE", help="A folder, or s3://bucket/prefix.")
@click.option("--athena", metavar="PLACE", help="Print the SQL that makes tables of PLACE in Athena.")
@click.option(
    "--database", "database_path", type=click.Path(path_type=Path), help="Without it, the daemon's."
)
@click.option("--host", help="The name of this host in the files; by default an anonymous one.")
@click.option(
    "--since",
    "since_seconds",
    type=AGE,
    default=f"{_DEFAULT_SECONDS:.0f}s",
    help="How far back to start, such as 7d; by default yesterday.",
)
@json_option
def observations(
    *,
    main_file: Path | None,
    destination: str | None,
    athena: str | None,
    database_path: Path | None,
    host: str | None,
    since_seconds: float,
    as_json: bool,
) -> None:
    """Write what this host measured to the place that the fleet's report reads.

    One Parquet file for each day, in place of an older one. It reads the database, also beside a running daemon.
    """
    if (athena is None) == (destination is None):
        raise WrongUsageError("name either where to write (--to) or of what to print tables (--athena)")
    if host is not None and not _HOST.fullmatch(host):
        raise WrongUsageError(
            f"--host {host!r} names a folder: letters, digits, and _ . -, a letter or digit first"
        )
    if destination is None:
        click.echo(_tables_of(athena or ""))
        return
    try:
        from penstock.analysis.files import FilesError
    except ImportError as trouble:
        raise TroubleError(f"nothing was written: {NOT_INSTALLED} ({trouble})") from trouble
    from penstock.daemon.fleet.exchange import word_for
    from penstock.daemon.instance import host_name, machine_seed
    from penstock.daemon.memory.database import StoreError
    from penstock.daemon.memory.store import Store
    from penstock.operations.table import setting_types

    path, configuration = database_of(database_path, main_file)
    seed = (configuration.daemon.seed if configuration else 0) or machine_seed()
    host = host or word_for(host_name(), seed)
    since = SystemClock().now() - timedelta(seconds=min(since_seconds, 3650 * _DEFAULT_SECONDS))
    with (
        ended_by(StoreError, sqlite3.DatabaseError, FilesError),
        closing(Store.open_read_only(path, setting_types())) as store,
    ):
        written = write_days(store, destination, host, since)
    if as_json:
        print_json({"destination": destination, "host": host, "days": written})
        return
    for day, count in written.items():
        click.echo(f"{day}: {counted(count, 'observation')}")
    if not written:
        click.echo("nothing was measured since then")


def _tables_of(place: str) -> str:
    """SQL that makes tables of it in Athena. Raises WrongUsageError."""
    from penstock.analysis.schema import BUCKET, athena_ddl

    if not BUCKET.match(place):
        raise WrongUsageError(f"Athena reads buckets alone, and {place} is none: name s3://bucket/prefix")
    return athena_ddl(place)


def write_days(store: Store, destination: str, host: str, since: datetime) -> dict[str, int]:
    """Write each day from that of `since` on; returns the number of observations by day."""
    from penstock.analysis.files import write
    from penstock.analysis.schema import OBSERVATIONS, SPEND, file_path, spend_row

    start = _midnight(since)
    places = sorted({summary.context.place for summary in store.summaries()}, key=str)
    spends, written = store.spend(since=start), {}
    home = places[0] if places else None
    begins = {start + number * _DAY for number in range((SystemClock().now() - start).days + 1)}
    # If the clock was years ahead for an hour, that day has data too, and no day before it.
    begins |= {_midnight(spend.hour_at) for spend in spends}
    for begin in sorted(begins):
        day = f"{begin:%Y-%m-%d}"
        rows = _rows(store, places, begin)
        if count := write(destination, file_path(OBSERVATIONS, day, host), OBSERVATIONS, rows):
            written[day] = count
        if home is not None:
            costs = (
                spend_row(home, s.operation, s.hour_at, s.cost)
                for s in spends
                if begin <= s.hour_at < begin + _DAY
            )
            write(destination, file_path(SPEND, day, host), SPEND, costs)
    return written


def _midnight(moment: datetime) -> datetime:
    """The midnight (UTC) before it."""
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _rows(store: Store, places: list[Place], begin: datetime) -> Iterator[dict[str, Any]]:
    from penstock.analysis.schema import observation_row
    from penstock.operations.table import OPERATIONS

    for place in (place for place in places if place.operation in OPERATIONS):
        model = OPERATIONS[place.operation].model
        by_date = store.each_observation(place, since=begin)
        for observation in takewhile(lambda one: one.started_at < begin + _DAY, by_date):
            yield observation_row(observation, model)
