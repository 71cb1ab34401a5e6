"""Knows `penstock report`: the database, opened for reading only, turned into a page."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.config import file_option, load_configuration
from penstock.cli.examples import examples
from penstock.cli.output import json_option
from penstock.cli.quantities import SECONDS
from penstock.cli.trouble import TroubleError
from penstock.clock import SystemClock

if TYPE_CHECKING:
    from penstock.daemon.config import Configuration
    from penstock.daemon.store import Store
    from penstock.models.model import Fit
    from penstock.report.material import Material
    from penstock.vocabulary import Context, Cost, Demand, Observation, Place

OBSERVATION_COUNT_MAX = 2000  # of each place, the newest
REPORT_COUNT_MAX, REPORT_COUNT_MAX_PER_USER = 500, 200
INCONCLUSIVE_COUNT_MAX = 1000
HISTORY_COUNT_MAX = 500  # of each context, the newest
_OUTPUTS = {"html": "penstock-report.html", "markdown": "-", "json": "-"}


@click.command(
    epilog=examples(
        "penstock report                                   writes penstock-report.html",
        "penstock report --since 7d --output /tmp/week.html",
        "penstock report --format markdown | less",
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
@click.option("--output", type=click.Path(path_type=Path), help="Where to write; - is the standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_OUTPUTS)),
    default="html",
    show_default=True,
    help="HTML goes to penstock-report.html unless --output says otherwise, the others to the standard output.",
)
@json_option
@click.option("--since", "since_seconds", type=SECONDS, help="Only what is younger, such as 7d.")
def report(
    *,
    main_file: Path | None,
    database_path: Path | None,
    output: Path | None,
    form: str,
    as_json: bool,
    since_seconds: float | None,
) -> None:
    """Write a page about what was learned and advised.

    It reads the database, also beside a running daemon, and changes nothing. The page needs no network to be looked at.
    """
    form = "json" if as_json else form
    # A database that was named may come from another host; this host's budget says nothing about it.
    is_named_alone = database_path is not None and main_file is None
    configuration = None if is_named_alone else load_configuration(main_file).configuration
    path = database_path or (configuration.daemon.database_path if configuration else Path())
    now = SystemClock().now()
    try:
        since = now - timedelta(seconds=since_seconds) if since_seconds is not None else None
    except OverflowError:
        since = None
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported, below
    text = _render(read_material(path, configuration, now=now, since=since), form)
    _write(text, output or Path(_OUTPUTS[form]))


def read_material(
    path: Path, configuration: Configuration | None, *, now: datetime, since: datetime | None
) -> Material:
    """All that a report needs out of a database. Raises TroubleError."""
    from penstock.daemon.database import StoreError
    from penstock.daemon.services import setting_types
    from penstock.daemon.store import Store

    try:
        with closing(Store.open_read_only(path, setting_types())) as store:
            return _read(store, path, configuration, now=now, since=since)
    except StoreError as trouble:
        raise TroubleError(str(trouble)) from trouble
    except sqlite3.DatabaseError as trouble:
        raise TroubleError(
            f"the database {path} cannot be read ({trouble}); it is broken or not one of penstock's: "
            "name another with --database, or start penstockd, which saves what it can and begins a new one"
        ) from trouble


def _read(
    store: Store, path: Path, configuration: Configuration | None, *, now: datetime, since: datetime | None
) -> Material:
    from penstock.daemon.services import SERVICES, usd_limits
    from penstock.models.model import is_current
    from penstock.report.material import Expense, Material

    recommendations = store.recommendations()
    fits = [
        fit
        for fit in store.fits()
        if fit.place.operation not in SERVICES or is_current(fit, SERVICES[fit.place.operation].model)
    ]
    places = {summary.context.place for summary in store.summaries()} | set(store.reported_places())
    contexts = {recommendation.context for recommendation in recommendations}
    histories = {c: store.recommendation_history(c, count_max=HISTORY_COUNT_MAX) for c in contexts}
    observations = {place: _observations(store, place, since) for place in places}
    instance_types = {fit.place.instance_type for fit in fits}
    return Material(
        source=str(path),
        generated_at=now,
        since=since,
        models={operation: service.model for operation, service in SERVICES.items()},
        payload_nouns={operation: service.payload_noun for operation, service in SERVICES.items()},
        observations=observations,
        inconclusives=store.inconclusives(count_max=INCONCLUSIVE_COUNT_MAX, since=since),
        fits=fits,
        recommendations=recommendations,
        histories={c: [r for r in h if since is None or r.issued_at >= since] for c, h in histories.items()},
        expenses=[
            Expense(hour_at=s.hour_at, operation=s.operation, cost=s.cost) for s in store.spend(since=since)
        ],
        daily_limit=_daily_limit(configuration, instance_types) if configuration else None,
        within_limits=_bounds(fits, configuration),
        usd_limits=usd_limits(configuration) if configuration else {},
        leftover_count=len(store.open_leftovers()),
        unreadable_count=store.unreadable_count,
    )


def _observations(store: Store, place: Place, since: datetime | None) -> list[Observation[Any]]:
    """What was measured and what was reported, oldest first."""
    measured = store.observations(place, count_max=OBSERVATION_COUNT_MAX, since=since)
    reported = store.reports(
        place, count_max=REPORT_COUNT_MAX, count_max_per_user=REPORT_COUNT_MAX_PER_USER, since=since
    )
    return sorted([*measured, *reported], key=lambda o: o.started_at)


def _bounds(fits: Sequence[Fit], configuration: Configuration | None) -> Callable[[Context, Demand], Demand]:
    """How the daemon bounds what is asked of it; what its operator allows is known by the configuration alone."""
    from penstock.daemon.board import within_limits
    from penstock.daemon.services import SERVICES, thread_count_limits

    allowed = thread_count_limits(configuration) if configuration else {}
    fit_of = {fit.place: fit for fit in fits}

    def bounded(context: Context, demand: Demand) -> Demand:
        return within_limits(
            SERVICES[context.operation].model,
            fit_of.get(context.place),
            context,
            demand,
            thread_count_max=allowed.get(context.operation),
        )

    return bounded


def _daily_limit(configuration: Configuration, instance_types: set[str]) -> Cost:
    """As the daemon reckons it; the credits are those of the host, which is known when there was only one."""
    from penstock.daemon.budget import daily_limit
    from penstock.models.burst import ceiling

    limits = ceiling(next(iter(instance_types))) if len(instance_types) == 1 else None
    return daily_limit(configuration.budget, credit_bytes_per_day=limits.credit_bytes_max if limits else 0.0)


def _render(material: Material, form: str) -> str:
    from penstock.report.document import render_json
    from penstock.report.findings import study
    from penstock.report.markdown import render_markdown
    from penstock.report.page import render_html
    from penstock.report.remarks import remark

    renderers = {"html": render_html, "markdown": render_markdown, "json": render_json}
    return renderers[form](remark(study(material)))


def _write(text: str, output: Path) -> None:
    if str(output) == "-":
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as trouble:
        raise TroubleError(f"{output} cannot be written: {trouble.strerror}") from trouble
    click.echo(f"Wrote {output} ({len(text.encode()) / 1000:,.0f} kB).", err=True)
