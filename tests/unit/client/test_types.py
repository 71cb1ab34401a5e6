"""What type checkers see of the client: a misspelled keyword is an error, and a result has its real type."""

import sys
from pathlib import Path

import pytest

from tests.programs import printed

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests/application_types"
CHECKERS = {
    "mypy": (
        "mypy",
        "--config-file",
        str(FOLDER / "mypy.ini"),
        "--cache-dir=/dev/null",
        str(FOLDER / "application.py"),
    ),
    "pyright": (
        "basedpyright",
        "--project",
        str(FOLDER / "pyrightconfig.json"),
        "--pythonpath",
        sys.executable,
    ),
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_an_application_is_checked(checker: str) -> None:
    """Its mistakes are ignored line by line, and an ignore that nothing needs is an error: so each is noticed."""
    module, *arguments = CHECKERS[checker]
    printed([sys.executable, "-m", module, *arguments], cwd=ROOT)
