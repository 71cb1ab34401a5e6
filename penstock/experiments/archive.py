"""Knows where records of experiments are kept: a file for each experiment and form, a line for each step.

A line is on disk before the next step begins, so a run that was killed can be resumed. Records of a different table of
plans are ignored, and the run begins anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from penstock.experiments.experiment import HERE, Experiment, Form, Record, Records, Step
from penstock.tuning.state import users_directory


class ArchiveError(Exception):
    """The records cannot be kept or read; the message says what to do."""


def default_directory() -> Path:
    """A folder in the user's state directory."""
    return users_directory(os.environ) / "experiments"


def beside(database_path: Path) -> Path:
    """The folder for measurements of real services: beside the daemon's database."""
    return database_path.parent / "experiments"


class Archive:
    """The records of one experiment in one form."""

    def __init__(self, directory: Path, experiment: Experiment, form: Form, *, place: str = "") -> None:
        """`place` names the services: records of one place are kept apart from those of another."""
        name = experiment.name if form is Form.LAB else f"{experiment.name}.{place or 'aws'}"
        self.path = directory / f"{name}.{form.value}.jsonl"
        self.experiment = experiment
        self.form = form
        self._digest = digest(experiment.steps(form))

    def read(self) -> list[Record]:
        """The newest record of each step of this table of plans; a line torn by a crash is ignored."""
        return list(
            {
                line.record.label: line.record for line in _lines(self.path) if line.steps == self._digest
            }.values()
        )

    def records(self) -> Records:
        """The records by label."""
        return Records(self.read(), is_here=self.form is not Form.LAB, is_short=self.form is Form.SHORT)

    def write(self, records: Sequence[Record]) -> None:
        """Replace all records by these."""
        self.path.unlink(missing_ok=True)
        if records:
            self.append(*records)

    def text(self, records: Sequence[Record]) -> str:
        """The records in the file's format."""
        lines = [{"steps": self._digest, "record": asdict(record)} for record in records]
        return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)

    def append(self, *records: Record) -> None:
        """Add records; when this returns, they would survive `kill -9`. Raises ArchiveError."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            is_torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * is_torn + self.text(records))
                file.flush()
                os.fsync(file.fileno())
        except OSError as trouble:
            raise ArchiveError(
                f"{self.path} cannot be written: {trouble.strerror}; name another --directory"
            ) from trouble


def newest(directory: Path, experiment: Experiment) -> Archive | None:
    """The archive written last on real services, in the full or the short form."""
    paths = [
        path for form in ("full", "short") for path in directory.glob(f"{experiment.name}.*.{form}.jsonl")
    ]
    if not paths:
        return None
    _, place, form, _ = max(paths, key=lambda path: path.stat().st_mtime).name.rsplit(".", 3)
    return Archive(directory, experiment, Form(form), place=place)


def measured(directory: Path, experiment: Experiment, others: Sequence[Path] = ()) -> Records:
    """The newest records of this place, and of other places, each named like its file. Raises ArchiveError."""
    own = newest(directory, experiment)
    archives = {HERE: own.read()} if own is not None else {}
    forms = {digest(experiment.steps(form)): form for form in (Form.FULL, Form.SHORT)}
    is_short = own is not None and own.form is Form.SHORT
    for path in others:
        lines = [line for line in _lines(path) if line.steps in forms]
        if not lines:
            raise ArchiveError(
                f"{path} has nothing of {experiment.name}: write it where that was measured, by `penstock measure "
                f"report {experiment.name} --output NAME.jsonl`"
            )
        if path.stem in archives:
            raise ArchiveError(f"two places are called {path.stem}: give one file another name")
        archives[path.stem] = [line.record for line in lines]
        is_short = is_short or Form.SHORT in {forms[line.steps] for line in lines}
    found = [
        replace(record, label=record.label.replace(HERE, place, 1))
        for place, records in archives.items()
        for record in records
    ]
    return Records(found, is_here=True, is_short=is_short)


def digest(steps: Sequence[Step]) -> str:
    """A digest that identifies a table of plans."""
    return hashlib.sha256(repr(steps).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    steps: str  # digest of the table of plans
    record: Record


def _lines(path: Path) -> list[_Line]:
    """The lines that are whole; none if there is no file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as trouble:
        raise ArchiveError(f"{path} cannot be read: {trouble.strerror}") from trouble
    return [found for line in lines if (found := _line(line)) is not None]


def _line(line: str) -> _Line | None:
    try:
        return msgspec.convert(json.loads(line), _Line)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None
