"""Runs the tests again and again, each time in a fork of a process that has imported what does not change.

    python -m tests.mutation.trial FILE TEST ...

The first run is of the code as it is, and must pass. After that each line that is read asks for another run, and is
answered with how that ended: passed, failed or endless.
"""

from __future__ import annotations

import importlib
import math
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

# Assertions stay as they are written: nobody reads here what they say.
_OPTIONS = ("-q", "-x", "-n0", "-pno:randomly", "-pno:cacheprovider", "--assert=plain", "--timeout=120")
_PROFILE = "--hypothesis-profile=mutation"


def main(file: str, *tests: str) -> None:
    """Until there is no more to read."""
    hypothesis.settings.register_profile(
        "mutation",
        max_examples=50,
        deadline=None,
        derandomize=True,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )
    told = Path("modules")
    if _ended(tests, resource.RLIM_INFINITY, told) != "passed":
        sys.exit(f"the tests of {file} fail without any change: they would notice everything")
    for name in told.read_text(encoding="utf-8").split():
        with suppress(ImportError):
            importlib.import_module(name)
    for cached in (Path(file).parent / "__pycache__").glob(f"{Path(file).stem}.*"):
        cached.unlink()
    sys.dont_write_bytecode = True
    before_seconds = _children_seconds()
    _ended(tests, resource.RLIM_INFINITY)
    cpu_seconds_max = math.ceil(1.0 + 2.0 * (_children_seconds() - before_seconds))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(f"{_ended(tests, cpu_seconds_max)}\n")
        sys.stdout.flush()


def _children_seconds() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def _ended(tests: Sequence[str], cpu_seconds_max: int, told: Path | None = None) -> str:
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds_max, resource.RLIM_INFINITY))
        _run(tests, told)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return "endless"
    return "failed" if status else "passed"


def _run(tests: Sequence[str], told: Path | None) -> NoReturn:
    """In a child. `told` is to name the modules that were imported from elsewhere than here."""
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    status = 1
    try:
        status = int(pytest.main([*_OPTIONS, _PROFILE, *tests]))
        if told is not None:
            here = str(Path.cwd())
            files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
            names = [name for name, file in files.items() if file and not file.startswith(here)]
            told.write_text("\n".join(names), encoding="utf-8")
    finally:
        os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
