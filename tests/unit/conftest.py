"""The house of a conductor, for all tests of what it does and of what is told of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.lab.virtual_time import VirtualClock
from tests.unit.daemon.house import House, lived_in


@pytest.fixture
async def house(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[House]:
    """A conductor with one watched context and all that it touches, in virtual time."""
    async with lived_in(tmp_path, clock) as house:
        yield house
