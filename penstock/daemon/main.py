"""Knows how `penstockd` starts: its options, its environment, and its exit status when it cannot go on."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from penstock.processes import memory

EXIT_FAILED = 1  # also for a bad configuration file; argparse exits with 2 when the command line is wrong
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon until it is told to stop; returns the exit status."""
    options = parser().parse_args(arguments)
    for name in _ONE_THREAD:  # NumPy reads these when it is first imported, here and in the fitting process
        os.environ.setdefault(name, "1")
    return _run(options.config)


def _run(config_file: Path | None) -> int:
    memory.keep_little()
    # Imported late: the environment must be set first, and `--help` needs none of this.
    with memory.growing(), memory.without_certificates():
        import uvloop

        from penstock.api.listener import SocketPathError
        from penstock.daemon import log
        from penstock.daemon.app import serve
        from penstock.daemon.config import Configuration
        from penstock.daemon.config_files import ConfigError, load
        from penstock.daemon.cycle.conductor import ConductorError
        from penstock.daemon.memory.database import Lost, StoreError

    def read() -> Configuration:
        loaded = load(config_file)
        log.configure(loaded.configuration.daemon.log_level, loaded.configuration.daemon.log_format)
        for warning in loaded.warnings():
            logging.getLogger("penstock.daemon.config").warning("%s", warning)
        return loaded.configuration

    status = 0
    try:
        uvloop.run(serve(read))
    except* Lost:  # already logged
        status = EXIT_FAILED
    except* (ConfigError, StoreError, SocketPathError, ConductorError) as group:
        _complain(group)
        status = EXIT_FAILED
    return status


def _complain(group: BaseExceptionGroup[Exception]) -> None:
    """Print one line for each expected error, whichever task raised it; no traceback."""
    for trouble in group.exceptions:
        if isinstance(trouble, BaseExceptionGroup):
            _complain(trouble)
        else:
            sys.stderr.write(f"penstockd: {trouble}\n")


def parser() -> argparse.ArgumentParser:
    """The parser of its command line."""
    found = argparse.ArgumentParser(
        prog="penstockd",
        description="Measures how this host should talk to S3 and SQS, and tells the applications on it.",
        epilog="It runs in the foreground; under systemd use the unit. "
        "Ask it with `penstock query` and `penstock status`.",
    )
    found.add_argument("--version", action="version", version=f"penstock {version('penstock')}")
    found.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="read this file, and FILE's *.d folder, in place of /etc/penstock/penstock.toml",
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
