"""Knows `penstock doctor`: what is wrong with the daemon, its host and its permissions, and what to do about it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli.config import file_option, load_configuration
from penstock.cli.daemon import call, socket_of, socket_option
from penstock.cli.examples import examples
from penstock.cli.output import filled, json_option, print_json
from penstock.cli.trouble import NoDaemonError, SilentDaemonError, TroubleError
from penstock.daemon.config_files import LoadedConfiguration
from penstock.probes.finding import Finding, Health
from penstock.units import counted


@click.command(
    epilog=examples(
        "sudo -u penstock penstock doctor        as the daemon, with its credentials",
        "penstock doctor --local                 only look at this host",
        "penstock doctor --json | jq '.findings[] | select(.health == \"ill\")'",
    )
)
@click.option("--local", "is_local", is_flag=True, help="Look only at this host: no request leaves it.")
@file_option
@json_option
@socket_option
def doctor(*, is_local: bool, main_file: Path | None, as_json: bool, socket_path: str) -> None:
    """Examine the daemon, its host and its permissions, and say what to do; ends with 1 when something is ill.

    Each action that probes need is tried with the least effect. In a bucket, what is not there is listed, read, deleted
    and aborted, and an upload is begun and aborted at once: nothing is stored. For queues, one is made, takes one
    message, and is removed. That is a few requests for each operation and region.
    """
    loaded = load_configuration(main_file)
    socket_path = socket_of(socket_path, loaded.configuration.daemon.socket_path)
    findings = asyncio.run(_examined(loaded, socket_path, is_local=is_local))
    ill = sum(finding.health is Health.ILL for finding in findings)
    if as_json:
        print_json({"is_well": not ill, "findings": [finding.document() for finding in findings]})
        raise click.exceptions.Exit(TroubleError.exit_code if ill else 0)
    for finding in findings:
        line = f"{finding.health:8}{finding.subject}: {finding.sentence}"
        click.secho(filled(line, 8), bold=finding.health in {Health.POOR, Health.ILL})
        if finding.remedy:
            click.echo(filled(f"        do: {finding.remedy}", 12))
    if ill:
        raise TroubleError(f"{counted(ill, 'thing')} {'is' if ill == 1 else 'are'} ill")


async def _examined(loaded: LoadedConfiguration, socket_path: str, *, is_local: bool) -> Sequence[Finding]:
    from penstock.daemon.doctor import CHECKS, Patient, clock_error_seconds, permissions, unit_properties
    from penstock.daemon.instance import identify
    from penstock.daemon.outside.aws import AwsOutside

    status, silence = None, None
    try:
        status = call(socket_path, "GET", "/v1/status")
    except SilentDaemonError as trouble:
        silence = Finding("daemon", Health.ILL, trouble.sentence, trouble.remedy)
    except NoDaemonError:
        pass
    patient = Patient(
        loaded=loaded,
        identity=await identify(loaded.configuration.host),
        socket_path=socket_path,
        status=status,
        silence=silence,
        unit=unit_properties,
        clock_error_seconds=clock_error_seconds,
    )
    findings = [finding for check in CHECKS for finding in check(patient)]
    if not is_local:
        async with AwsOutside(loaded.configuration) as outside:
            findings += [finding async for finding in permissions(patient, outside)]
    return findings
