"""Prints some of the small changes that cosmic-ray makes to a file, as JSON. Run by a Python that has cosmic-ray.

python changes.py FILE COUNT SEED
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

_IDLE = (  # of the operator's name, and of the line before the change and after: what need not be tried
    (r"BinaryOperator_(Mul|Pow)_", r"(^|[(,\[])\s*$", r""),  # a star before arguments: no other is Python
    (r"_(Is_Eq|IsNot_NotEq)$", r"", r""),  # of None and of enumerations the same
    (r"NumberReplacer", r"^[A-Z_]+\b.* = ", r"^\d\d"),  # 61 for 60: where a bound lies is a decision
    # How values are made is held by types; and that sequences are as long as each other is an assertion.
    (r"ReplaceTrueWithFalse", r"^@dataclass\(|strict=$", r""),
)


def main(file: str, count: str, seed: str) -> None:
    """So many, at random; and how many there are."""
    source = Path(file).read_text(encoding="utf-8")
    there = list(_changes(source))
    kept = sorted(random.Random(int(seed)).sample(range(len(there)), min(int(count), len(there))))
    made = [mutate_code(source, get_operator(name)(), number) for name, number in (there[i] for i in kept)]
    json.dump({"all_count": len(there), "sources": made}, sys.stdout)


def _changes(source: str) -> Iterator[tuple[str, int]]:
    """An operator, and at which of its places in the file."""
    lines, annotations = source.splitlines(), list(_annotations(source))
    tree = get_ast(source)
    for name in operator_names():
        if get_operator(name).arguments():
            continue
        operator = get_operator(name)()
        places = (place for node in ast_nodes(tree) for place in operator.mutation_positions(node))
        for number, (begin, end) in enumerate(places):
            before, after = lines[begin[0] - 1][: begin[1]], lines[begin[0] - 1][begin[1] :]
            # Nobody works annotations out.
            if any(low <= begin and end <= high for low, high in annotations):
                continue
            if not any(
                re.search(kind, name) and re.search(left, before) and re.search(right, after)
                for kind, left, right in _IDLE
            ):
                yield name, number


def _annotations(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where they begin and end: row and column."""
    for node in ast.walk(ast.parse(source)):
        found = getattr(node, "annotation", None) or getattr(node, "returns", None)
        if found is not None:
            yield (found.lineno, found.col_offset), (found.end_lineno, found.end_col_offset)


if __name__ == "__main__":
    main(*sys.argv[1:])
