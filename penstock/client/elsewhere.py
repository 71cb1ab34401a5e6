"""Knows how a module offers names of other modules and imports each of these only on first use."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def offered(
    by: str, names_by_home: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` for the module `by`, which offers these names of other modules.

    `names_by_home` has the names, separated by spaces, by module below `penstock.client`.
    """
    homes = {
        name: f"penstock.client.{home}" for home, names in names_by_home.items() for name in names.split()
    }

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {by!r} has no attribute {name!r}")
        __import__(homes[name])
        return getattr(sys.modules[homes[name]], name)

    return find, lambda: sorted(homes), sorted(homes)
