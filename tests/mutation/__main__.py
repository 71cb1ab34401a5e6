"""Changes the code that decides, one small change at a time, and says which changes no test noticed.

    python -m tests.mutation [--count 40] [--seed 1] [FILE ...]

cosmic-ray makes the changes in a copy of what git knows; each file is held against the tests that are about it. What
survives is shown as a difference: it is read, and killed by a test, or excused because it changes nothing. Kinds of
changes that say nothing about tests are never made (`_IDLE`); single ones that change nothing are in `excused.toml`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[2]
_COSMIC_RAY = "cosmic-ray==8.7.0"
_SECONDS_MAX = 120.0
_EXCUSED = Path(__file__).with_name("excused.toml")
_IDLE = (  # of the operator's name, and of the line up to the change: what need not be tried
    (r"BinaryOperator_BitOr_", r""),  # nearly all of them are unions of types, which nobody works out
    (r"BinaryOperator_(Mul|Pow)_", r"(^|[(,\[])\s*$"),  # a star before arguments: another sign is no Python
    (r"_(Is_Eq|IsNot_NotEq)$", r""),  # of None and of enumerations the same
    (r"NumberReplacer", r"^[A-Z_]+\b.* = "),  # where a bound lies is a decision, which no test repeats
    # How values are made is held by types; and that sequences are as long as each other is an assertion.
    (r"ReplaceTrueWithFalse", r"^@dataclass\(|strict=$"),
)
TESTS = {
    "penstock/daemon/budget.py": "tests/unit/daemon/test_budget.py tests/properties/test_budget_laws.py",
    "penstock/daemon/trust.py": "tests/unit/daemon/test_trust.py",
    "penstock/daemon/quiet_hours.py": "tests/unit/daemon/test_quiet_hours.py",
    "penstock/daemon/sweeper.py": "tests/unit/daemon/test_sweeper.py tests/unit/daemon/test_sweep.py",
    "penstock/api/leases.py": "tests/unit/api/test_leases.py tests/contracts/test_shares.py",
    "penstock/optimizer/objective.py": "tests/unit/optimizer/test_objective.py",
    "penstock/optimizer/proposal.py": (
        "tests/unit/optimizer/test_proposal.py tests/unit/optimizer/test_deliberation.py "
        "tests/contracts/test_operations.py"
    ),
    "penstock/models/sqs/plan.py": "tests/unit/models/sqs/test_plan.py",
    "penstock/client/advice.py": "tests/unit/client/test_advice.py tests/integration/test_client.py",
}


def main() -> int:
    """Ends with 1 where a change was not noticed."""
    options = _parser().parse_args()
    unknown = set(options.files) - TESTS.keys()
    if unknown:
        sys.exit(f"no tests are named for {', '.join(sorted(unknown))}; there are: {', '.join(TESTS)}")
    survived = 0
    for file in options.files or TESTS:
        with tempfile.TemporaryDirectory() as name:
            survived += _examine(Path(name), file, options.count, options.seed)
    return int(survived > 0)


def _examine(copy: Path, file: str, count: int, seed: int) -> int:
    """How many changes of one file survived."""
    _copy(copy)
    session = copy / "session.sqlite"
    command = f"{sys.executable} -m pytest -q -x -n 0 -p no:randomly -p no:cacheprovider {TESTS[file]}"
    settings = {"module-path": file, "timeout": _SECONDS_MAX, "test-command": command, "excluded-modules": []}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    (copy / "mutation.toml").write_text(
        "\n".join(["[cosmic-ray]", *lines, "[cosmic-ray.distributor]", 'name = "local"', ""]),
        encoding="utf-8",
    )
    _cosmic_ray(copy, "cosmic-ray", "init", "mutation.toml", str(session))
    tried, all_count = _sample(session, (copy / file).read_text(encoding="utf-8").splitlines(), count, seed)
    # Tests that fail unchanged would notice everything.
    _cosmic_ray(copy, "cosmic-ray", "baseline", "mutation.toml")
    _cosmic_ray(copy, "cosmic-ray", "exec", "mutation.toml", str(session))
    with closing(sqlite3.connect(session)) as results:
        survived = results.execute("SELECT diff FROM work_results WHERE test_outcome = 'SURVIVED'").fetchall()
    found = [difference for (difference,) in survived if not _is_excused(file, difference)]
    tried -= len(survived) - len(found)
    noticed = f"{tried - len(found)} of {tried} changes noticed, of {all_count} that there are (seed {seed})"
    excused = f"{len(survived) - len(found)} more are excused"
    sys.stdout.write("\n".join([f"{file}: {noticed}; {excused}", *found, ""]))
    sys.stdout.flush()
    return len(found)


def _copy(folder: Path) -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def _sample(session: Path, lines: list[str], count: int, seed: int) -> tuple[int, int]:
    """Keep so many changes at random; how many there are now, and were."""
    with closing(sqlite3.connect(session)) as jobs, jobs:
        specified = jobs.execute(
            "SELECT job_id, operator_name, start_pos_row, start_pos_col FROM mutation_specs"
        )
        rows = specified.fetchall()
        ids = sorted(
            job for job, operator, row, column in rows if not _is_idle(operator, lines[row - 1][:column])
        )
        kept = set(random.Random(seed).sample(ids, min(count, len(ids))))
        for job in {job for job, *_ in rows} - kept:
            jobs.execute("DELETE FROM mutation_specs WHERE job_id = ?", (job,))
            jobs.execute("DELETE FROM work_items WHERE job_id = ?", (job,))
    return len(kept), len(ids)


def _is_idle(operator: str, before: str) -> bool:
    return any(re.search(kind, operator) and re.search(place, before) for kind, place in _IDLE)


def _is_excused(file: str, difference: str) -> bool:
    """Whether the line that the change made is in the list of those that change nothing."""
    made = [line[1:].strip() for line in difference.splitlines() if re.match(r"\+(?!\+\+ )", line)]
    return len(made) == 1 and made[0] in tomllib.loads(_EXCUSED.read_text(encoding="utf-8")).get(file, {})


def _cosmic_ray(folder: Path, *command: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(
        [str(uv), "tool", "run", "--quiet", "--from", _COSMIC_RAY, *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="any of those that have tests (default: all)"
    )
    parser.add_argument("--count", type=int, default=40, help="changes of each file, at random (default: 40)")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
