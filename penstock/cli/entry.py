"""Knows how `penstock` and `penstockd` begin: as such, or with what to install where only the client is there."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec

_TIDY = frozenset({"demo", "lab", "measure", "tune"})
"""The commands that clean up, however they are asked to end. The others hold nothing, and any signal may end them."""
_NEEDED = ("aiobotocore", "click", "msgspec", "numpy", "uvloop")
"""Each alone may be an application's own."""


def main() -> None:
    """The entry point of the `penstock` script."""
    try:
        if not _TIDY.isdisjoint(sys.argv[1:2]):
            from penstock.cli.interruption import end_at_once

            end_at_once()
        _refuse_for_the_client_alone("penstock")
        from penstock.cli.main import main as run

        run()
    except KeyboardInterrupt:  # while the commands are imported; once they run they see to it themselves
        sys.exit(130)  # as `penstock.cli.trouble` says, which may not be imported yet


def daemon() -> int:
    """The entry point of the `penstockd` script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as SIGTERM: while it imports it holds nothing
    _refuse_for_the_client_alone("penstockd")
    from penstock.daemon.main import main as run

    return run()


def _refuse_for_the_client_alone(command: str) -> None:
    """In one sentence, whatever of the rest an application brought along; older Pythons cannot read the rest."""
    if sys.version_info < (3, 11) or None in map(find_spec, _NEEDED):
        sys.exit(
            f"{command}: only what applications import is installed here; the daemon and the commands come with "
            "pip install 'penstock[daemon]', on Python 3.11 or newer"
        )
