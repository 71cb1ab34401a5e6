"""Knows `penstock config`: whether the configuration is valid, and which values are in force."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from penstock.cli.costs import costs_of, print_costs
from penstock.cli.examples import examples
from penstock.cli.output import filled, json_option, print_json
from penstock.cli.trouble import TroubleError
from penstock.daemon.config import Configuration
from penstock.daemon.config_files import DEFAULT_ORIGIN, ConfigError, LoadedConfiguration, load

file_option = click.option(
    "--config",
    "main_file",
    type=click.Path(path_type=Path),
    help="The main file; without it, the files of /usr/lib/penstock and /etc/penstock.",
)


@click.group(
    epilog=examples(
        "penstock config check",
        "penstock config show --effective",
        "penstock config check --config ./penstock.toml",
    )
)
def config() -> None:
    """Check or show the configuration; no daemon is needed."""


@config.command()
@file_option
@json_option
def check(*, main_file: Path | None, as_json: bool) -> None:
    """Report every mistake with its file and key, or what probes will cost; ends with 1 if there is any mistake.

    What may be a mistake, such as a region that the SDK does not know, is a warning, and the configuration is valid.
    """
    try:
        loaded = load(main_file)
    except ConfigError as trouble:
        if not as_json:
            raise TroubleError(_complaint(trouble)) from trouble
        problems = [{"file": p.file, "key": p.key, "detail": p.sentence} for p in trouble.problems]
        print_json({"valid": False, "problems": problems})
        raise click.exceptions.Exit(TroubleError.exit_code) from trouble
    files = [str(file) for file in loaded.files]
    warnings, store = loaded.warnings(), loaded.configuration.aws.store
    if as_json:
        forecasts = costs_of(loaded.configuration)
        listed = [{"file": w.file, "key": w.key, "detail": w.sentence} for w in warnings]
        listed += [_unpaid(loaded, key, f.warning) for f in forecasts if f.warning and (key := f.bound_by)]
        costs = {forecast.operation: forecast.document() for forecast in forecasts}
        found = {"warnings": listed, "files": files, "costs": costs, "s3_store": store and store.name}
        print_json({"valid": True, "problems": [], **found})
    else:
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
        click.echo(f"The configuration is valid ({', '.join(files) or 'no files: defaults alone'}).")
        for sentence in loaded.endpoints_of_environment():
            click.echo(filled(f"{sentence}."))
        if store is not None:
            click.echo(f"S3 is {store.title}: clients that ask are told its rules.")
        if forecasts := costs_of(loaded.configuration):
            click.echo()
            print_costs(forecasts, loaded.configuration)
            for forecast in forecasts:
                if forecast.warning:
                    click.echo(f"warning: {forecast.warning}", err=True)
        else:
            click.echo("Nothing is probed: set is_enabled in a [probes] section.")


@config.command()
@click.option("--effective", is_flag=True, help="All keys with defaults, not only those that a file sets.")
@file_option
@json_option
def show(*, effective: bool, main_file: Path | None, as_json: bool) -> None:
    """Show what the files set and where, or with --effective all that is in force, as a configuration file."""
    loaded = load_configuration(main_file)
    rows = [row for row in _rows(loaded.effective()) if effective or row[0] in loaded.origins]
    if as_json:
        print_json({key: {"value": value, "origin": origin} for key, value, origin in rows})
    elif rows:
        click.echo("\n".join(_toml(rows)))
    else:
        click.echo("No file sets anything: the defaults are in force. See them with --effective.")


def _unpaid(loaded: LoadedConfiguration, key: str, detail: str) -> dict[str, str]:
    return {"file": loaded.origins.get(key, DEFAULT_ORIGIN), "key": key, "detail": detail}


def load_configuration(main_file: Path | None) -> LoadedConfiguration:
    """The configuration. Raises TroubleError, which lists every mistake."""
    try:
        return load(main_file)
    except ConfigError as trouble:
        raise TroubleError(_complaint(trouble)) from trouble


def database_of(database_path: Path | None, main_file: Path | None) -> tuple[Path, Configuration | None]:
    """The database to read, and this host's configuration; None if only a database was named: it may be another's."""
    if database_path is not None and main_file is None:
        return database_path, None
    configuration = load_configuration(main_file).configuration
    return database_path or configuration.daemon.database_path, configuration


def _complaint(trouble: ConfigError) -> str:
    return "the configuration cannot be used:\n" + "\n".join(f"  {problem}" for problem in trouble.problems)


def _rows(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Dotted key, value and origin of each leaf of an effective configuration."""
    for name, entry in table.items():
        if set(entry) == {"value", "origin"}:
            yield f"{prefix}{name}", entry["value"], entry["origin"]
        else:
            yield from _rows(entry, f"{prefix}{name}.")


def _toml(rows: Iterable[tuple[str, Any, str]]) -> Iterator[str]:
    """The lines of a file that sets these keys, each with the origin of its value."""
    section = ""
    for key, value, origin in rows:
        inside, _, name = key.rpartition(".")
        if inside != section:
            yield from ([""] if section else [])
            yield f"[{inside}]"
            section = inside
        # JSON's strings, numbers, booleans and lists are valid TOML.
        yield (
            f"# {name} is not set"
            if value is None
            else f"{name} = {json.dumps(value, ensure_ascii=False)}  # {origin}"
        )
