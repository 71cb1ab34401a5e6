"""Knows the commands of `penstock` by name; imports each only when it is called, so that help comes at once."""

from __future__ import annotations

import contextlib
import importlib
import sys
from difflib import get_close_matches

import click
from click.shell_completion import CompletionItem

from penstock.cli.examples import examples
from penstock.cli.streams import give_up_what_cannot_be_written, guarded_streams
from penstock.cli.trouble import INTERRUPTED, TroubleError

_EPILOG = (
    "\n\n\b\nExit codes:\n  0 done   1 failed   2 wrong usage   3 no daemon   4 stale or not ready"
    "\n\n\b\nShell completion (bash; for zsh and fish name that shell instead):"
    '\n  eval "$(_PENSTOCK_COMPLETE=bash_source penstock)"'
)

# Name: module, attribute, short help. The short help stands here so that `penstock --help` imports nothing more.
_COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": ("penstock.cli.demo", "demo", "Watch it measure, decide and advise; no AWS account needed."),
    "lab": ("penstock.cli.lab", "lab", "Start an S3 and an SQS of known physics to experiment with."),
    "query": ("penstock.cli.query", "query", "Ask how to transfer something."),
    "explain": ("penstock.cli.query", "explain", "Ask why the advice is as it is."),
    "export": ("penstock.cli.export", "export", "Print the advice as options of one client."),
    "exec": ("penstock.cli.exec", "exec_", "Run a known client with the advice applied."),
    "status": ("penstock.cli.status", "status", "Show what the daemon does, knows and has spent."),
    "clients": ("penstock.cli.clients", "clients", "Show what applications do, and what they would gain."),
    "watch": ("penstock.cli.watch", "watch", "Print the advice whenever it changes."),
    "wait": ("penstock.cli.status", "wait", "Wait until there is advice from measurements."),
    "probe": ("penstock.cli.control", "probe", "Have the daemon measure something now."),
    "reload": ("penstock.cli.control", "reload", "Have the daemon read its configuration again."),
    "believe-clock": (
        "penstock.cli.control",
        "believe_clock",
        "Tell the daemon that the clock is right now, after it was ahead.",
    ),
    "leftovers": ("penstock.cli.leftovers", "leftovers", "List and remove what probes left behind."),
    "config": ("penstock.cli.config", "config", "Check or show the configuration."),
    "doctor": ("penstock.cli.doctor", "doctor", "Examine daemon, host and permissions, and say what to do."),
    "telemetry": ("penstock.cli.telemetry", "telemetry", "Send metrics and traces of the daemon by OTLP."),
    "service": ("penstock.cli.service", "service", "Install or remove the service."),
    "run": ("penstock.cli.run", "run", "Measure and advise in the foreground, without a daemon."),
    "what-if": (
        "penstock.cli.what_if",
        "what_if",
        "Ask for advice under stated conditions, without a queue.",
    ),
    "measure": ("penstock.cli.measure", "measure", "Run published experiments again, here or in the lab."),
    "tune": ("penstock.cli.tune", "tune", "Tune any client by running it."),
    "report": ("penstock.cli.report", "report", "Write a page about what was learned and advised."),
    "observations": (
        "penstock.cli.observations",
        "observations",
        "Write measurements to the place that a fleet's report reads.",
    ),
}
_SENTENCE_CHARACTERS_MAX = 300  # a sentence may wrap; without a limit click cuts it to one line


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        for each in getattr(command, "commands", {}).values():
            each.short_help = each.get_short_help_str(_SENTENCE_CHARACTERS_MAX)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command; for an unknown name, an error that suggests the nearest."""
        near = get_close_matches(args[0], _COMMANDS, n=2)
        if args[0] not in _COMMANDS and near and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completions from the table, so that no command is imported for its name."""
        found = [
            CompletionItem(name, help=short_help)
            for name, (_, _, short_help) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = _first_examples() + _EPILOG
        super().format_epilog(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help) for name, (_, _, short_help) in _COMMANDS.items()])


def _first_examples() -> str:
    """Examples with a question about each operation; the operations are imported only here."""
    from penstock.operations.table import OPERATIONS

    lines = {
        "penstock demo": "see all of it in under three minutes",
        **{
            f"penstock query {row.command} {row.words.examples[0]}": row.words.advice
            for row in OPERATIONS.values()
        },
        "penstock wait && ./nightly-backup": "start when there is advice",
        "penstock COMMAND --help": "more, with examples",
    }
    width = max(map(len, lines))
    return examples(*(f"{line:{width}}    {purpose}" for line, purpose in lines.items()))


@click.group(
    cls=_LazyGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="penstock", message="penstock %(version)s")
def cli() -> None:
    """Ask penstock how this host should talk to S3 and SQS.

    A daemon, penstockd, measures the way from here to S3 and SQS within a budget, and learns. These commands ask it.
    """


def main() -> None:
    """Run the command line; the entry point of the `penstock` script."""
    try:
        sys.exit(run(sys.argv[1:]))
    finally:
        give_up_what_cannot_be_written()


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code."""
    try:
        with guarded_streams():
            code = cli.main(arguments, prog_name="penstock", standalone_mode=False)
    except click.ClickException as trouble:
        return _ended_by(trouble)
    except PermissionError as denied:  # of a named file, or of one at its usual place
        return _ended_by(
            TroubleError(
                f"{denied.filename or 'what this needs'}: {denied.strerror}; ask as a user who may, such as with sudo"
            )
        )
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has left
        return TroubleError.exit_code
    return code if isinstance(code, int) else 0


def _ended_by(trouble: click.ClickException) -> int:
    with contextlib.suppress(OSError):  # standard error may be closed, too
        trouble.show()
    return trouble.exit_code
