"""What a fit remembers, read again."""

from __future__ import annotations

import copy

import numpy as np

from penstock.models.s3.posterior import Posterior
from penstock.operations.table import OPERATIONS
from penstock.vocabulary import Place

MODEL = OPERATIONS["s3_upload"].model
STATE = MODEL.fit(
    Place(operation="s3_upload", region="here-1", instance_type="m7i.large"), (), prior=None, seed=0
).state


def test_a_state_is_read_once() -> None:
    """Each question about a fit asks for it; another state that says the same is another."""
    read, other = Posterior.from_state(STATE), Posterior.from_state(copy.deepcopy(STATE))
    assert Posterior.from_state(STATE) is read
    assert other is not read
    assert np.array_equal(other.draws, read.draws)


def test_few_are_kept() -> None:
    """Fits come and go; what was read of them does not stay."""
    read = Posterior.from_state(STATE)
    states = [copy.deepcopy(STATE) for _ in range(8)]
    for state in states:
        Posterior.from_state(state)
    assert Posterior.from_state(STATE) is not read
