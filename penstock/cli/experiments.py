"""Knows `penstock measure list`, `show`, `run` and `report`: published experiments to repeat."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.config import file_option, load_configuration
from penstock.cli.examples import examples
from penstock.cli.interruption import end_tidily
from penstock.cli.output import json_option, print_json, print_table, text
from penstock.cli.quantities import BYTES
from penstock.cli.report import write_page
from penstock.cli.trouble import INTERRUPTED, TroubleError, WrongUsageError, ended_by
from penstock.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from penstock.experiments.experiment import Experiment, Form, Record, Records
    from penstock.experiments.facts import Verdict
    from penstock.vocabulary import Cost

ResultT = TypeVar("ResultT")

directory_option = click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where records are kept; without it, in the user's state directory (lab) or beside the database.",
)


def _table() -> Mapping[str, Experiment]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported, below
    from penstock.experiments.table import EXPERIMENTS

    return EXPERIMENTS


def _experiment(name: str) -> Experiment:
    table = _table()
    if name not in table:
        raise WrongUsageError(f"there is no experiment {name}: say one of {', '.join(table)}")
    return table[name]


def _directory(given: Path | None) -> Path:
    from penstock.experiments.archive import default_directory

    return given or default_directory()


@click.command("list", epilog=examples("penstock measure list", "penstock measure list --json"))
@json_option
def list_experiments(*, as_json: bool) -> None:
    """The experiments, their studies, and what each costs at the most."""
    from penstock.experiments.experiment import Form
    from penstock.experiments.facts import facts_of
    from penstock.experiments.table import STUDIES

    rows = [
        {
            **_values(row, "name", "study", "section", "title"),
            "figure_count": len(facts_of(row.name)),
            **_cost_document(row.cost(Form.FULL)),
        }
        for row in _table().values()
    ]
    if as_json:
        print_json({"experiments": rows})
        return
    shown = [
        (
            r["name"],
            f"{r['study']}, {r['section']}",
            text("", r["figure_count"]),
            format_seconds(r["duration_seconds"]),
            format_bytes(r["transferred_bytes"]),
            f"${float(r['usd']):.2f}",
        )
        for r in rows
    ]
    print_table(("", "study", "figures", "time at most", "bytes at most", "requests at list price"), shown)
    click.echo()
    for study, title in STUDIES.items():
        click.echo(f"{study}: {title}")


def _cost_document(cost: Cost) -> dict[str, float]:
    return _values(cost, "duration_seconds", "transferred_bytes", "request_count", "usd")


def _values(value: object, *names: str) -> dict[str, Any]:  # of JSON
    return {name: getattr(value, name) for name in names}


@click.command("show", epilog=examples("penstock measure show parallel-curls"))
@click.argument("name")
@json_option
def show_experiment(*, name: str, as_json: bool) -> None:
    """What an experiment does, which figures it is about, and its table of plans."""
    from penstock.experiments.experiment import Form
    from penstock.experiments.facts import facts_of
    from penstock.experiments.table import STUDIES

    experiment = _experiment(name)
    steps = experiment.steps(Form.FULL)
    document = {
        **_values(experiment, "name", "title", "study", "section", "summary"),
        **_cost_document(experiment.cost(Form.FULL)),
        "facts": [asdict(fact) for fact in facts_of(name)],
        "steps": [
            {
                **_values(step, "label", "operation", "payload_size_bytes"),
                "setting": asdict(step.setting),
                **_values(step, "body_count", "copy_count", "wait_seconds"),
                "cost_max": asdict(step.cost_max),
            }
            for step in steps
        ],
    }
    if as_json:
        print_json(document)
        return
    source = f"{STUDIES[experiment.study]}: {experiment.section}."
    click.echo(f"{experiment.title}\n{experiment.summary}\n{source}\n")
    if document["facts"]:
        rows = [(f.name, f.words(f.value), f.kind.value or "-", f.verdict.value) for f in facts_of(name)]
        print_table(("figure", "published", "kind", "in the lab"), rows)
    click.echo(f"\n{len(steps)} steps; {_cost_sentence(experiment.cost(Form.FULL))}")


def _cost_sentence(cost: Cost) -> str:
    return (
        f"at most {format_seconds(cost.duration_seconds)}, {format_bytes(cost.transferred_bytes)}, "
        f"{cost.request_count:,} requests, ${cost.usd:.2f} for them at list price; what moves between regions "
        "or over the internet costs more"
    )


@click.command("run", epilog=examples("penstock measure run parallel-curls --lab"))
@click.argument("name")
@click.option("--lab", "is_lab", is_flag=True, help="In a calibrated lab world, in virtual time; no AWS.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what it would cost, and end.")
@click.option("--short", "is_short", is_flag=True, help="A minute of it, scaled down.")
@click.option(
    "--far",
    "far_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Another configuration, with a state directory of its own, for the far end of sqs-zones and threads-by-size: "
    "its regions, buckets or endpoints.",
)
@click.option(
    "--usd-max",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="The most a run may cost; nothing starts if it could cost more.",
)
@click.option("--bytes-max", type=BYTES, default="10GiB", show_default=True, help="The most a run may move.")
@file_option
@directory_option
@json_option
def run_experiment(
    *,
    name: str,
    is_lab: bool,
    is_dry: bool,
    is_short: bool,
    directory: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run an experiment, and show its figures beside the published ones.

    On real services it uses the daemon's configuration, which names the bucket, and its database; the daemon must not
    run meanwhile. An interrupted run goes on where it was; what a killed one left outside is removed first.
    """
    from penstock.experiments.experiment import Form, Records

    experiment = _experiment(name)
    form = Form.SHORT if is_short else Form.LAB if is_lab else Form.FULL
    if is_dry and is_lab:
        raise WrongUsageError("in the lab it costs nothing: leave out --lab, or --dry-run")
    if is_dry:
        cost = experiment.cost(form, with_far=given["far_file"] is not None)
        if as_json:
            print_json({"name": name, "form": form.value, **_cost_document(cost)})
        else:
            click.echo(f"{name}: {_cost_sentence(cost)}")
        return
    if is_lab:
        lab, here = _run_in_lab(experiment, form, _directory(directory), tell=_tell), None
    else:
        lab, here = Records([]), _run_for_real(experiment, form, directory, given)
    _show(experiment, lab=lab, here=here, as_json=as_json)


def _run_for_real(
    experiment: Experiment, form: Form, directory: Path | None, given: Mapping[str, Any]
) -> Records:
    from penstock.daemon.memory.database import StoreError
    from penstock.experiments.archive import Archive, ArchiveError, beside
    from penstock.experiments.really import Allowance, NotAllowedError, place_of, run_for_real
    from penstock.probes.outside import RequestError

    if not experiment.steps(form):
        raise TroubleError(experiment.summary)
    configuration = load_configuration(given["main_file"]).configuration
    kept = directory or beside(configuration.daemon.database_path)
    far = None
    if given["far_file"] is not None:
        if not any(step.is_far for step in experiment.steps(form)):
            raise WrongUsageError(f"{experiment.name} has one end alone: leave out --far")
        far = load_configuration(given["far_file"]).configuration
    archive = Archive(kept, experiment, form, place=place_of(experiment, configuration, far))
    allowance = Allowance(usd=given["usd_max"], transferred_bytes=given["bytes_max"])

    end_tidily()
    is_whole = False
    with (
        ended_by(NotAllowedError, ArchiveError, StoreError, RequestError),
        contextlib.suppress(asyncio.CancelledError),
    ):
        asyncio.run(until_signalled(run_for_real(archive, configuration, allowance, _tell, far=far)))
        is_whole = True
    if not is_whole:
        click.echo(f"Interrupted; the same command goes on from {archive.path}.", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    records = archive.read()
    _refuse_troubles(records)
    return archive.records()


def _tell(record: Record) -> None:
    came = record.reason or f"{record.values['duration_seconds']:.1f} s"
    click.echo(f"{record.label}: {came}", err=True)


async def until_signalled(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """The work's result; a signal to end cancels the work, which cleans up and raises CancelledError."""
    working = asyncio.create_task(work)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    return await working


def _run_in_lab(
    experiment: Experiment, form: Form, directory: Path, *, tell: Callable[[Record], None]
) -> Records:
    from penstock.experiments.archive import Archive, ArchiveError
    from penstock.experiments.experiment import Form, Records
    from penstock.experiments.virtually import run_in_lab

    end_tidily()
    # Real clients need sockets.
    found = run_in_lab([step for step in experiment.steps(form) if not step.client], tell)
    if form is Form.LAB:  # a short run is not kept: it would be taken for a measurement of the place
        with ended_by(ArchiveError):
            Archive(directory, experiment, form).write(found)
    _refuse_troubles(found)
    return Records(found, is_short=form is Form.SHORT)


def _refuse_troubles(records: Sequence[Record]) -> None:
    """Raise TroubleError if there is nothing but troubles; each was printed as it came."""
    troubles = [record.reason for record in records if record.reason is not None]
    if troubles and len(troubles) == len(records):
        raise TroubleError(f"nothing was measured; {troubles[0]}")


def _show(experiment: Experiment, *, lab: Records, here: Records | None, as_json: bool) -> None:
    from penstock.experiments.experiment import Records
    from penstock.experiments.page import compare, comparison_table

    real = here or Records([])
    told = real if len(real) else lab
    rows, answers = compare(experiment, lab, real), experiment.answers(told)
    if as_json:
        print_json(
            {
                "name": experiment.name,
                "facts": [
                    {
                        **asdict(row.fact),
                        "lab": row.lab,
                        "lab_interval": row.lab_interval,
                        "here": row.measured,
                        "here_interval": row.measured_interval,
                        "verdict": row.verdict.value,
                    }
                    for row in rows
                ],
                "tables": [asdict(grid) for grid in experiment.tables(told)],
                "answers": list(answers),
                "addresses": [asdict(row) for row in told.addresses()],
            }
        )
        return
    print_table(*comparison_table(rows, is_brief=True), title=experiment.title)
    for grid in experiment.tables(told):
        click.echo()
        print_table(grid.headings, grid.cells(), title=grid.title)
    for sentence in answers:
        click.echo(f"\n{sentence}")


@click.command(
    "report",
    epilog=examples(
        "penstock measure report parallel-curls", "penstock measure report --all --output all.html"
    ),
)
@click.argument("name", required=False)
@click.option("--all", "is_all", is_flag=True, help="Every experiment, and how many figures of each kind.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A page: HTML with the figures drawn, or Markdown; or NAME.jsonl, what was measured here, for --with.",
)
@click.option(
    "--with",
    "others",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="NAME.jsonl",
    help="What was measured on a host in another place, which is called NAME; again for each place. For locations.",
)
@file_option
@directory_option
@json_option
def report_experiment(
    *,
    name: str | None,
    is_all: bool,
    output: Path | None,
    others: Sequence[Path],
    main_file: Path | None,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Published, lab and measured figures, and their differences. What the lab has not run yet, it runs."""
    from penstock.experiments.archive import ArchiveError, beside, measured
    from penstock.experiments.page import verdicts

    if (name is None) is not is_all:
        raise WrongUsageError("say an experiment, or --all")
    if others and (name is None or not _experiment(name).has_places):
        places = [row.name for row in _table().values() if row.has_places]
        raise WrongUsageError(
            f"--with compares the places of {', '.join(places)}, and of no other experiment"
        )
    chosen = list(_table().values()) if is_all else [_experiment(name or "")]
    place = _directory(directory)
    kept = directory or beside(load_configuration(main_file).configuration.daemon.database_path)
    if output is not None and output.suffix == ".jsonl":
        write_page([_taken_out(kept, chosen)], output)
        return
    with ended_by(ArchiveError):
        here = {row.name: measured(kept, row, others) for row in chosen}
        lab = {row.name: _lab_records(row, place) for row in chosen}
        if output is not None:
            write_page([_page(output, chosen, lab, here)], output)
    if is_all:
        _show_counts(verdicts(chosen, lab), as_json=as_json)
        return
    (row,) = chosen
    _show(row, lab=lab[row.name], here=here[row.name] or None, as_json=as_json)


def _lab_records(experiment: Experiment, directory: Path) -> Records:
    from penstock.experiments.archive import Archive
    from penstock.experiments.experiment import Form

    records = Archive(directory, experiment, Form.LAB).records()
    if len(records) or not experiment.steps(Form.LAB):
        return records
    click.echo(f"{experiment.name}: in the lab ...", err=True)
    return _run_in_lab(experiment, Form.LAB, directory, tell=lambda _: None)


def _show_counts(verdicts: Mapping[str, Verdict], *, as_json: bool) -> None:
    from penstock.experiments.facts import counts

    rows = counts(verdicts)
    if as_json:
        listed = [{"kind": kind, "verdict": verdict, "count": count} for kind, verdict, count in rows]
        named = {name: verdict.value for name, verdict in verdicts.items()}
        print_json({"counts": listed, "verdicts": named})
        return
    print_table(
        ("kind", "verdict", "figures"), [(k, v, str(n)) for k, v, n in rows], title="84 published figures"
    )


def _taken_out(kept: Path, chosen: Sequence[Experiment]) -> str:
    """What was measured here, in the form that `--with` reads."""
    from penstock.experiments.archive import ArchiveError, newest

    with ended_by(ArchiveError):
        found = [archive.text(archive.read()) for row in chosen if (archive := newest(kept, row)) is not None]
    if not found:
        raise TroubleError(f"nothing was measured yet: `penstock measure run {chosen[0].name}` does")
    return "".join(found)


def _page(
    output: Path, chosen: Sequence[Experiment], lab: Mapping[str, Records], here: Mapping[str, Records]
) -> str:
    from penstock.experiments.page import page_html, page_markdown, section_html

    if output.suffix == ".md":
        return page_markdown(chosen, lab)
    return page_html({row.name: section_html(row, lab[row.name], here[row.name]) for row in chosen})
