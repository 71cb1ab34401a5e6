"""Changes the code that decides, one small change at a time, and says which changes no test noticed.

    python -m tests.mutation [--count 40] [--seed 1] [--json] [FILE ...]

cosmic-ray makes the changes (`changes`) in a copy of what git knows; each file is held against the tests that are about
it (`trial`). What survives is shown as a difference: it is read, and killed by a test, or listed in `excused.toml`,
because it changes nothing. Differences stand on standard error, with how far it is.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_COSMIC_RAY = "cosmic-ray==8.7.0"
_EXCUSED = Path(__file__).with_name("excused.toml")
TESTS = {
    "penstock/daemon/spending/budget.py": (
        "tests/unit/daemon/spending/test_budget.py tests/properties/test_budget_laws.py"
    ),
    "penstock/daemon/trust.py": "tests/unit/daemon/test_trust.py",
    "penstock/daemon/quiet_hours.py": "tests/unit/daemon/test_quiet_hours.py",
    "penstock/daemon/outside/sweeper.py": (
        "tests/unit/daemon/outside/test_sweeper.py tests/unit/daemon/outside/test_sweep.py"
    ),
    "penstock/api/leases.py": "tests/unit/api/test_leases.py tests/contracts/test_shares.py",
    "penstock/optimizer/objective.py": "tests/unit/optimizer/test_objective.py",
    "penstock/optimizer/gradient.py": "tests/unit/optimizer/test_proposal.py tests/unit/optimizer/test_deliberation.py",
    "penstock/optimizer/proposal.py": "tests/unit/optimizer/test_proposal.py tests/unit/optimizer/test_deliberation.py",
    "penstock/models/sqs/plan.py": "tests/unit/models/sqs/test_plan.py",
    "penstock/client/advice.py": (
        "tests/unit/client/test_advice.py tests/integration/test_client.py "
        "tests/integration/test_client_in_hostile_surroundings.py"
    ),
}


@dataclass(slots=True, kw_only=True)
class Finding:
    """What came of some changes of one file."""

    file: str
    seed: int
    all_count: int  # changes that there are
    noticed_count: int = 0
    endless_count: int = 0  # of these: the tests went on and on
    excused_count: int = 0
    unnoticed: list[str] = field(default_factory=list)  # as differences

    def __str__(self) -> str:
        tried_count = self.noticed_count + len(self.unnoticed)
        return (
            f"{self.file}: {self.noticed_count} of {tried_count} changes noticed, {self.endless_count} by tests that "
            f"did not end; {self.excused_count} more are excused, of {self.all_count} that there are (seed {self.seed})"
        )


def main() -> int:
    """Ends with 1 where a change was not noticed."""
    options = _parser().parse_args()
    unknown = set(options.files) - TESTS.keys()
    if unknown:
        sys.exit(f"no tests are named for {', '.join(sorted(unknown))}; there are: {', '.join(TESTS)}")
    findings = []
    for file in options.files or TESTS:
        with tempfile.TemporaryDirectory() as name:
            findings.append(_examine(Path(name), file, options.count, options.seed))
        if not options.json:
            sys.stdout.write(f"{findings[-1]}\n")
            sys.stdout.flush()
    if options.json:
        sys.stdout.write(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2) + "\n")
    return int(any(finding.unnoticed for finding in findings))


def _examine(copy: Path, file: str, count: int, seed: int) -> Finding:
    _copy(copy)
    original = (copy / file).read_text(encoding="utf-8")
    changes = _changes(copy / file, count, seed)
    finding = Finding(file=file, seed=seed, all_count=changes["all_count"])
    endings = _endings(copy, file, changes["sources"])
    for number, (source, ending) in enumerate(zip(changes["sources"], endings, strict=True), start=1):
        difference = list(
            difflib.unified_diff(original.splitlines(), source.splitlines(), file, file, lineterm="")
        )
        if ending != "passed":
            finding.noticed_count += 1
            finding.endless_count += ending == "endless"
        elif _is_excused(file, difference):
            finding.excused_count += 1
        else:
            finding.unnoticed.append("\n".join(difference))
            sys.stderr.write(f"{finding.unnoticed[-1]}\n")
        sys.stderr.write(f"{number} of {len(changes['sources'])}: {finding}\n")
    return finding


def _changes(file: Path, count: int, seed: int) -> Any:  # as `changes` has it
    """Made by a Python of cosmic-ray's own: it needs other versions of what the daemon needs."""
    uv, maker = Path(sys.executable).with_name("uv"), Path(__file__).with_name("changes.py")
    command = [str(uv), "tool", "run", "--quiet", "--from", _COSMIC_RAY, "python", str(maker)]
    made = subprocess.run([*command, str(file), str(count), str(seed)], stdout=subprocess.PIPE, check=True)
    return json.loads(made.stdout)


def _endings(copy: Path, file: str, sources: Sequence[str]) -> Iterator[str]:
    """How the tests end with each of these in place of the file."""
    command = [sys.executable, "-m", "tests.mutation.trial", file, *TESTS[file].split()]
    environment = {**os.environ, "PYTHONPATH": str(copy), "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as trial:
        assert trial.stdin is not None
        assert trial.stdout is not None
        if trial.stdout.readline() != "ready\n":
            sys.exit(1)  # it has said why
        for source in sources:
            (copy / file).write_text(source, encoding="utf-8")
            trial.stdin.write("next\n")
            trial.stdin.flush()
            yield trial.stdout.readline().strip()
        trial.stdin.close()


def _copy(folder: Path) -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def _is_excused(file: str, difference: list[str]) -> bool:
    """Whether the line that the change made is in the list of those that change nothing."""
    made = [line[1:].strip() for line in difference[2:] if line.startswith("+")]
    return len(made) == 1 and made[0] in tomllib.loads(_EXCUSED.read_text(encoding="utf-8")).get(file, {})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="any of those that have tests (default: all)"
    )
    parser.add_argument("--count", type=int, default=40, help="changes of each file, at random (default: 40)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="what came of it as one document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
