"""Knows every client that advice can be translated for: the table, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.targets import command_lines, engines, go_and_rust, java, javascript, python_sdks, queues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.client.targets.target import Target

_FAMILIES = (python_sdks, command_lines, java, go_and_rust, javascript, engines, queues)

TARGETS: Mapping[str, Target] = {target.name: target for family in _FAMILIES for target in family.TARGETS}
