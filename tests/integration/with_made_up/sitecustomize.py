"""Adds the made-up operation to each Python that starts with this folder on its path, as an installed one would be."""

from penstock.operations.table import OPERATIONS
from tests.integration.made_up import NAME, ROW

assert isinstance(OPERATIONS, dict)
OPERATIONS[NAME] = ROW
