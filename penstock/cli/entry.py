"""Knows how `penstock` begins: with its commands, or with what to install where only the client is there."""

from __future__ import annotations

import sys

CLIENT_ALONE = (
    "only what applications import is installed here; the daemon and the commands come with "
    "pip install 'penstock[daemon]', on Python 3.11 or newer"
)


def main() -> None:
    """The entry point of the `penstock` script."""
    try:
        from penstock.cli.main import main as run
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] == "penstock" and sys.version_info >= (3, 11):
            raise
        sys.exit(f"penstock: {CLIENT_ALONE}")
    run()
