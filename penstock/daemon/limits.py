"""Knows what the configuration allows each operation, for probes and for advice."""

from __future__ import annotations

from penstock.daemon.config import Configuration
from penstock.operations.table import OPERATIONS


def thread_count_limits(configuration: Configuration) -> dict[str, int]:
    """The most threads that the operator allows, by operation, for probes and for advice alike."""
    return {name: configuration.section_of(row).thread_count_max for name, row in OPERATIONS.items()}


def usd_limits(configuration: Configuration) -> dict[str, float]:
    """What each operation may cost in 24 hours."""
    return {row.name: section.usd_per_day for row, section in configuration.sections()}
