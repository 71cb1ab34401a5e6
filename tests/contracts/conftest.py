"""What every contract is about: each row of the table of operations."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.operations.operation import Operation
from penstock.operations.table import OPERATIONS


@pytest.fixture(params=sorted(OPERATIONS))
def row(request: pytest.FixtureRequest) -> Operation[Any, Any]:
    """One of them."""
    return OPERATIONS[request.param]
