"""Knows the report as JSON: every value as stored, with its unit in the name."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.report.findings import Report


def render_json(report: Report) -> str:
    """One document, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def schema() -> str:
    """The document's JSON Schema; `docs/report.schema.json` holds it."""
    bare = _without_descriptions(msgspec.json.schema(Report))
    return msgspec.json.format(msgspec.json.encode(bare), indent=2).decode() + "\n"


def _without_descriptions(value: Any) -> Any:
    """The schema without descriptions: these are docstrings, and may change without notice to its readers."""
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if name != "description" or isinstance(each, dict)}
        return {name: _without_descriptions(each) for name, each in kept.items()}
    return [_without_descriptions(each) for each in value] if isinstance(value, (list, tuple)) else value
