"""Knows where records of experiments are kept: a file for each experiment and form, a line for each step.

A line is on the disk before the next step begins, so a run that was killed goes on where it was. What was begun under
another table of plans is begun anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.experiments.experiment import Experiment, Form, Record, Records, Step
from penstock.tuning.state import users_directory


class ArchiveError(Exception):
    """The records cannot be kept; the message says what to do."""


def default_directory() -> Path:
    """In the user's state directory."""
    return users_directory(os.environ) / "experiments"


def beside(database_path: Path) -> Path:
    """Where what was measured on real services is kept: beside the daemon's database."""
    return database_path.parent / "experiments"


class Archive:
    """The records of one experiment in one form."""

    def __init__(self, directory: Path, experiment: Experiment, form: Form, *, place: str = "") -> None:
        """`place` tells services apart: records of one are not those of another."""
        name = experiment.name if form is Form.LAB else f"{experiment.name}.{place or 'aws'}"
        self.path = directory / f"{name}.{form.value}.jsonl"
        self.experiment = experiment
        self.form = form
        self._digest = digest(experiment.steps(form))

    def read(self) -> list[Record]:
        """What is there of this table of plans; a line that was cut short by a crash is none."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        except OSError as trouble:
            raise ArchiveError(f"{self.path} cannot be read: {trouble.strerror}") from trouble
        documents = [document for line in lines if (document := _document(line)) is not None]
        return [Record(**d["record"]) for d in documents if d.get("steps") == self._digest and "record" in d]

    def records(self) -> Records:
        """By label."""
        return Records(self.read(), is_here=self.form is not Form.LAB, is_short=self.form is Form.SHORT)

    def write(self, records: Sequence[Record]) -> None:
        """These, in place of what is there."""
        self.path.unlink(missing_ok=True)
        if records:
            self.append(*records)

    def append(self, *records: Record) -> None:
        """Returns when they would survive `kill -9`."""
        lines = [
            json.dumps({"steps": self._digest, "record": asdict(record)}, separators=(",", ":")) + "\n"
            for record in records
        ]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            is_torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * is_torn + "".join(lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as trouble:
            raise ArchiveError(
                f"{self.path} cannot be written: {trouble.strerror}; name another --directory"
            ) from trouble


def newest_measured(directory: Path, experiment: Experiment) -> Records:
    """What was measured last on real services, the full form or the short one."""
    paths = [
        path for form in ("full", "short") for path in directory.glob(f"{experiment.name}.*.{form}.jsonl")
    ]
    if not paths:
        return Records([])
    newest = max(paths, key=lambda path: path.stat().st_mtime)
    _, place, form, _ = newest.name.rsplit(".", 3)
    return Archive(directory, experiment, Form(form), place=place).records()


def digest(steps: Sequence[Step]) -> str:
    """Tells one table of plans from another."""
    return hashlib.sha256(repr(steps).encode()).hexdigest()[:16]


def _document(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
