"""Knows how the commands' help becomes manual pages, and what shells need to complete the commands.

penstock.1, penstock-query.1, ...   one page for each command; a group's page has its commands penstockd.8
the daemon
"""

from __future__ import annotations

import inspect
from argparse import HelpFormatter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TypeAlias

import click
from click.shell_completion import ShellComplete, get_completion_class

from penstock.cli.main import cli

_DAEMON_PAGE_CHARACTERS = 78
_HELP_CHARACTERS_MAX = 200  # of a command's one-line summary
_KEPT_LINES = "\b"  # click's mark for a paragraph that keeps its lines
_COMPLETE_VARIABLE = "_PENSTOCK_COMPLETE"
_COMPLETION_PLACES: Mapping[str, str] = {
    "bash": "share/bash-completion/completions/penstock",
    "zsh": "share/zsh/site-functions/_penstock",
    "fish": "share/fish/vendor_completions.d/penstock.fish",
}
Lines: TypeAlias = Iterator[str]


def pages() -> dict[str, str]:
    """Every page by its file name."""
    root = click.Context(cli, info_name="penstock", **cli.context_settings)
    found = {"penstock.1": _page(root), "penstockd.8": _daemon_page()}
    for name, command in _commands(root):
        context = click.Context(command, info_name=name, parent=root)
        found[f"penstock-{name}.1"] = _page(context)
    return found


def completions() -> dict[str, str]:
    """Each shell's completion script, by its path below a prefix."""
    found = {}
    for shell, place in _COMPLETION_PLACES.items():
        kind = get_completion_class(shell)
        assert kind is not None
        # Not the class's own `source`: bash's would start bash to check its version.
        found[place] = ShellComplete.source(kind(cli, {}, "penstock", _COMPLETE_VARIABLE))
    return found


def _page(context: click.Context) -> str:
    title = context.command_path.replace(" ", "-")
    summary = context.command.get_short_help_str(_HELP_CHARACTERS_MAX).rstrip(".")
    is_root = context.parent is None
    lines = [*_heading(title, "1", summary), *_body(context, ".SH")]
    if isinstance(context.command, click.Group) and not is_root:
        for name, command in _commands(context):
            inner = click.Context(command, info_name=name, parent=context)
            lines += [f".SH {_escaped(inner.command_path.upper())}", *_body(inner, ".SS")]
    others = [f"penstock-{name}(1)" for name, _ in _commands(context)] if is_root else ["penstock(1)"]
    return "\n".join([*lines, ".SH SEE ALSO", _escaped(", ".join([*others, "penstockd(8)"]))]) + "\n"


def _heading(title: str, section: str, summary: str) -> Lines:
    yield f'.TH "{_escaped(title.upper())}" "{section}" "" "penstock" ""'
    yield from (".SH NAME", f"{_escaped(title)} \\- {_escaped(summary)}")


def _body(context: click.Context, heading: str) -> Lines:
    """Synopsis, description, options and examples, as in --help."""
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield from (f"{heading} SYNOPSIS", _escaped(usage))
    if command.help:
        yield from (f"{heading} DESCRIPTION", *_paragraphs(command.help))
    if isinstance(command, click.Group):
        yield f"{heading} COMMANDS"
        for name, inner in _commands(context):
            yield from _item(name, inner.get_short_help_str(_HELP_CHARACTERS_MAX))
    yield f"{heading} OPTIONS"
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            yield from _item(*record)
    if command.epilog:
        yield from (f"{heading} NOTES", *_paragraphs(command.epilog))


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command


def _paragraphs(text: str) -> Lines:
    for index, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if index:
            yield ".PP"
        if paragraph.startswith(_KEPT_LINES):
            yield ".nf"
            yield from (_escaped(line) for line in paragraph.splitlines()[1:])
            yield ".fi"
        else:
            yield _escaped(" ".join(paragraph.split()))


def _item(term: str, meaning: str) -> Lines:
    yield from (".TP", f"\\fB{_escaped(term)}\\fR", _escaped(" ".join(meaning.split())))


def _daemon_page() -> str:
    """The daemon's page, with the parser's help line by line; in a fixed width and without colours."""
    from penstock.daemon.main import parser

    daemon = parser()
    daemon.formatter_class = partial(HelpFormatter, width=_DAEMON_PAGE_CHARACTERS)
    summary = (daemon.description or "").rstrip(".")
    lines = (_escaped(line) for line in click.unstyle(daemon.format_help()).splitlines())
    heading = _heading("penstockd", "8", summary)
    return (
        "\n".join([*heading, ".SH DESCRIPTION", ".nf", *lines, ".fi", ".SH SEE ALSO", "penstock(1)"]) + "\n"
    )


def _escaped(text: str) -> str:
    """Escaped for roff: no escapes, no requests, and hyphens that can be copied."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
