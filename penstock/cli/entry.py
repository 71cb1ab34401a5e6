"""Knows how `penstock` begins: with its commands, or with what to install where only the client is there."""

from __future__ import annotations

import sys

CLIENT_ALONE = (
    "only what applications import is installed here; the daemon and the commands come with "
    "pip install 'penstock[daemon]', on Python 3.11 or newer"
)
_TIDY = frozenset({"demo", "lab", "measure", "tune"})
"""The commands that clean up, however they are asked to end. The others hold nothing, and any signal may end them."""


def main() -> None:
    """The entry point of the `penstock` script."""
    try:
        if not _TIDY.isdisjoint(sys.argv[1:2]):
            from penstock.cli.interruption import end_as_by_ctrl_c

            end_as_by_ctrl_c()
        _begin()
    except KeyboardInterrupt:  # while the commands are imported; once they run they see to it themselves
        sys.exit(130)  # as `penstock.cli.trouble` says, which may not be imported yet


def _begin() -> None:
    try:
        from penstock.cli.main import main as run
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] == "penstock" and sys.version_info >= (3, 11):
            raise
        sys.exit(f"penstock: {CLIENT_ALONE}")
    run()
