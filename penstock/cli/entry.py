"""Knows how `penstock` and `penstockd` start, or what to install where only the client is present."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec

_TIDY = frozenset({"demo", "lab", "measure", "tune"})
"""Commands that clean up, however they are ended. The others hold nothing, so any signal may simply end them."""
_NEEDED = ("aiobotocore", "click", "msgspec", "numpy", "uvloop")
"""All of them: an application may have any single one for itself."""


def main() -> None:
    """The entry point of the `penstock` script."""
    try:
        if not _TIDY.isdisjoint(sys.argv[1:2]):
            from penstock.cli.interruption import end_at_once

            end_at_once()
        _refuse_for_the_client_alone("penstock")
        from penstock.cli.main import main as run

        run()
    except KeyboardInterrupt:  # during the imports; running commands handle it themselves
        sys.exit(130)  # as `penstock.cli.trouble` says, which may not be imported yet


def daemon() -> int:
    """The entry point of the `penstockd` script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # like SIGTERM: imports leave nothing to clean up
    _refuse_for_the_client_alone("penstockd")
    from penstock.daemon.main import main as run

    return run()


def _refuse_for_the_client_alone(command: str) -> None:
    """End with one sentence if other packages are missing, or if Python is too old to read the other modules."""
    if sys.version_info < (3, 11) or None in map(find_spec, _NEEDED):
        sys.exit(
            f"{command}: only what applications import is installed here; the daemon and the commands come with "
            "pip install 'penstock[daemon]', on Python 3.11 or newer"
        )
