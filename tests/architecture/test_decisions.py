"""Decisions are kept where they can be found, each with what it rests on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("0*.md"))
HEADINGS = ["Context", "Decision", "What was measured", "What would change it"]


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: str(p.stem))
def test_a_decision_says_when_and_on_what_it_rests(path: Path) -> None:
    """Each record has its number, a date and the four parts, none of them empty."""
    text = path.read_text(encoding="utf-8")
    assert re.match(rf"# {int(path.name[:4])}\. .+\n\nDecided on \d{{4}}-\d\d-\d\d\.\n", text)
    assert re.findall(r"^## (.+)\n\n\S", text, flags=re.MULTILINE) == HEADINGS


def test_the_index_lists_every_decision_in_order() -> None:
    """A newcomer finds all of them on one page, each under its own title and date."""
    lines = []
    for number, path in enumerate(RECORDS, start=1):
        title, _, dated = path.read_text(encoding="utf-8").splitlines()[:3]
        lines.append(f"{title.removeprefix('# ')}, {dated.removeprefix('Decided on ').rstrip('.')}")
        assert int(path.name[:4]) == number
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^(\d+\. )\[(.+)\]\((.+)\)(, .+)$", index, flags=re.MULTILINE)
    assert [number + title + dated for number, title, _, dated in listed] == lines
    assert [name for _, _, name, _ in listed] == [path.name for path in RECORDS]
