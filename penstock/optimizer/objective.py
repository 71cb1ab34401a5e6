"""Knows what an application's aim means in numbers: which settings serve it well enough, and what they cost it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.models.model import Appraisal
from penstock.vocabulary import Demand, Objective, Scale, knobs

Array = NDArray[np.float64]

THROUGHPUT_WITHIN = 0.02  # of the best: what fewer connections may cost
_SHORTFALL_PRICE = (
    10.0  # of the logarithm of connections: what all of the best is worth, when not all is known
)
LATENCY_WITHIN = 0.02
FRUGAL_SHARE = 0.80  # of the best: what frugality must still reach
_MEMORY_SHARE = 0.05  # how much a halving of memory counts against a halving of connections


def utility(appraisal: Appraisal, objective: Objective) -> Array:
    """What is to be maximised; always positive."""
    if objective is Objective.LATENCY:
        return 1.0 / np.maximum(appraisal.latency_seconds, 1e-12)
    return np.maximum(appraisal.value, 1e-12)


def required_share(objective: Objective) -> float:
    """The share of the best utility that is good enough."""
    if objective is Objective.FRUGAL:
        return FRUGAL_SHARE
    return 1.0 - (LATENCY_WITHIN if objective is Objective.LATENCY else THROUGHPUT_WITHIN)


def price(appraisal: Appraisal, objective: Objective) -> Array:
    """The logarithm of what a setting takes: connections first, then memory; for the frugal requests count as well."""
    connections = np.log(np.maximum(appraisal.connection_count, 1e-12))
    memory = np.log(np.maximum(appraisal.memory_bytes, 1.0))
    if objective is Objective.FRUGAL:
        requests = np.log(
            np.maximum(appraisal.request_rate_per_second / np.maximum(appraisal.value, 1e-12), 1e-30)
        )
        return np.asarray(connections + memory + 0.5 * requests, dtype=np.float64)
    return np.asarray(connections + _MEMORY_SHARE * memory, dtype=np.float64)


def rank(appraisal: Appraisal, objective: Objective, *, slack: float = 0.0) -> Array:
    """What is to be minimised by the advice: the price of a setting; infinite where it is not good enough.

    For throughput what may be lost is part of the price: the expectation alone would step down from a ceiling that may
    be a little higher than it seems. `slack` is how much less of the best is good enough as well.
    """
    useful = utility(appraisal, objective)
    cost = price(appraisal, objective)
    if objective is Objective.THROUGHPUT:
        cost = cost + _SHORTFALL_PRICE * appraisal.shortfall
    good = useful >= (required_share(objective) - slack) * useful.max()
    return np.asarray(np.where(good, cost, np.inf), dtype=np.float64)


def choose(appraisal: Appraisal, objective: Objective) -> int:
    """The index of the setting to advise: the least price, then the better of equals."""
    cost = rank(appraisal, objective)
    nearly = cost <= cost.min() + 1e-9
    return int(np.argmax(np.where(nearly, utility(appraisal, objective), -np.inf)))


def is_within(settings: Sequence[Any], appraisal: Appraisal, demand: Demand) -> NDArray[np.bool_]:
    """Which of the settings that were appraised keep the demand's hard limits of threads and memory."""
    threads, memory_bytes = thread_counts(type(settings[0]), settings), appraisal.memory_bytes
    is_light = memory_bytes <= (demand.memory_bytes_max or np.inf)
    return np.asarray(is_light & (threads <= (demand.thread_count_max or np.inf)), dtype=np.bool_)


def coordinates(setting_type: type[Any], settings: Sequence[Any]) -> Array:
    """Settings as points: octaves for knobs that are searched by ratios (0 counts as a half), plain numbers else."""
    columns = []
    for name, knob in knobs(setting_type).items():
        values = np.array([getattr(s, name) for s in settings], dtype=np.float64)
        columns.append(np.log2(np.maximum(values, 0.5)) if knob.scale is Scale.LOG else values)
    return np.stack(columns, axis=1)


def thread_counts(setting_type: type[Any], settings: Sequence[Any]) -> Array:
    """All threads of each setting, whatever they are for."""
    names = [name for name in knobs(setting_type) if name.endswith("thread_count")]
    return np.array([sum(getattr(s, name) for name in names) for s in settings], dtype=np.float64)
