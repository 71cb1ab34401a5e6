"""Changes the code that decides, one small change at a time, and says which changes no test noticed.

    python -m tests.mutation [--count 40] [--seed 1] [FILE ...]

cosmic-ray makes the changes in a copy of what git knows; each file is held against the tests that are about it. What
survives is shown as a difference: it is read, and killed by a test, or excused because it changes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[2]
_COSMIC_RAY = "cosmic-ray==8.7.0"
_SECONDS_MAX = 300.0
TESTS = {
    "penstock/daemon/budget.py": "tests/unit/daemon/test_budget.py tests/properties/test_budget_laws.py",
    "penstock/daemon/trust.py": "tests/unit/daemon/test_trust.py",
    "penstock/daemon/quiet_hours.py": "tests/unit/daemon/test_quiet_hours.py",
    "penstock/daemon/sweeper.py": "tests/unit/daemon/test_sweeper.py tests/unit/daemon/test_sweep.py",
    "penstock/api/leases.py": "tests/unit/api/test_leases.py tests/contracts/test_shares.py",
    "penstock/optimizer/objective.py": "tests/unit/optimizer/test_objective.py",
    "penstock/optimizer/proposal.py": "tests/unit/optimizer tests/contracts/test_operations.py",
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
    tried, all_count = _sample(session, count, seed)
    # Tests that fail unchanged would notice everything.
    _cosmic_ray(copy, "cosmic-ray", "baseline", "mutation.toml")
    _cosmic_ray(copy, "cosmic-ray", "exec", "mutation.toml", str(session))
    with closing(sqlite3.connect(session)) as results:
        found = results.execute("SELECT diff FROM work_results WHERE test_outcome = 'SURVIVED'").fetchall()
    noticed = f"{tried - len(found)} of {tried} changes noticed, of {all_count} that there are (seed {seed})"
    sys.stdout.write("\n".join([f"{file}: {noticed}", *(difference for (difference,) in found), ""]))
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


def _sample(session: Path, count: int, seed: int) -> tuple[int, int]:
    """Keep so many changes at random; how many there are now, and were."""
    with closing(sqlite3.connect(session)) as jobs, jobs:
        in_types = "DELETE FROM mutation_specs WHERE operator_name LIKE 'core/ReplaceBinaryOperator_BitOr_%'"
        jobs.execute(in_types)  # nearly all of them are unions, which nobody works out
        jobs.execute("DELETE FROM work_items WHERE job_id NOT IN (SELECT job_id FROM mutation_specs)")
        ids = sorted(job for (job,) in jobs.execute("SELECT job_id FROM work_items"))
        kept = set(random.Random(seed).sample(ids, min(count, len(ids))))
        for job in set(ids) - kept:
            jobs.execute("DELETE FROM mutation_specs WHERE job_id = ?", (job,))
            jobs.execute("DELETE FROM work_items WHERE job_id = ?", (job,))
    return len(kept), len(ids)


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
