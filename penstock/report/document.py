"""Knows the report as JSON: every value as the store has it, the unit in its name."""

from __future__ import annotations

import msgspec

from penstock.report.findings import Report


def render_json(report: Report) -> str:
    """One document, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
