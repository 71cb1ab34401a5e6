"""The help texts, as people read them. What an option says is written down where it is said first.

After a change, read the difference like prose:

WRITE_SNAPSHOTS=1 python -m pytest tests/unit/cli/test_help.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from penstock.cli.main import cli

PAGE = Path(__file__).with_name("help.txt")


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below this one, with the words that call it."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def told_once(text: str, told: set[str]) -> str:
    """The text, in which options that another command has in the very same words stand with their names alone."""
    before, heading, rest = text.partition("\nOptions:\n")
    options, gap, after = rest.partition("\n\n")
    each = re.split(r"\n(?=  -)", options.rstrip("\n"))
    known = [option.split()[0].rstrip(",") for option in each if option in told]
    shown = [option for option in each if option not in told]
    told.update(each)
    return (
        before
        + heading
        + "\n".join([*shown, *(["  as above: " + " ".join(known)] if known else [])])
        + gap
        + after
    )


def test_the_help_texts_are_those_that_were_read() -> None:
    """No help text changes unseen."""
    texts, told = [], set[str]()
    for path, _ in commands(cli):
        result = CliRunner().invoke(cli, [*path, "--help"], prog_name="penstock", terminal_width=100)
        assert result.exit_code == 0, result.output
        texts.append(f"$ {' '.join(('penstock', *path))} --help\n{told_once(result.output, told)}")
    page = "\n".join(text.rstrip("\n") + "\n" for text in texts)
    if os.environ.get("WRITE_SNAPSHOTS"):
        PAGE.write_text(page, encoding="utf-8")
    assert page == PAGE.read_text(encoding="utf-8")


def test_no_sentence_about_a_command_is_cut() -> None:
    """On a terminal of eighty columns "what each costs at..." does not say at what."""
    for path, command in commands(cli):
        if isinstance(command, click.Group):
            result = CliRunner().invoke(cli, [*path, "--help"], prog_name="penstock", terminal_width=80)
            listed = result.output.partition("\nCommands:\n")[2].partition("\n\n")[0]
            assert "..." not in listed, path


def test_every_command_can_answer_as_json_and_teaches_by_example() -> None:
    """The promises that hold for all commands; a subcommand is taught by its group."""
    for path, command in commands(cli):
        if not isinstance(command, click.Group):
            assert "as_json" in {parameter.name for parameter in command.params}, path
        if isinstance(command, click.Group) or len(path) == 1:
            assert "Example" in CliRunner().invoke(cli, [*path, "--help"]).output, path


def test_every_option_has_its_sentence() -> None:
    """An option without help teaches nothing."""
    for path, command in commands(cli):
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (path, parameter.name)


def test_a_mistyped_command_is_answered_with_what_may_have_been_meant() -> None:
    """Commands are imported when they are called, so click does not know their names."""
    mistyped = CliRunner().invoke(cli, ["statu"])
    assert mistyped.exit_code == 2
    assert "No such command 'statu'. Did you mean status?" in mistyped.stderr
    assert "Did you mean" not in CliRunner().invoke(cli, ["xyzzy"]).stderr
