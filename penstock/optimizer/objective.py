"""Knows what an application's aim means in numbers: which settings serve it well enough, and what they cost it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.models.model import Appraisal, Array
from penstock.vocabulary import Demand, Objective, knobs

LATENCY_WITHIN = 0.02  # of the shortest time: nearer than measurements tell apart
FRUGAL_SHARE = 0.80  # of the best: what frugality must still reach
_MEMORY_SHARE = 0.05  # how much a halving of memory counts against a halving of connections


@dataclass(frozen=True, slots=True)
class Bargain:
    """What throughput is given up for fewer connections.

    A share of the connections is worth `connections_worth` times that share of the throughput, as long as the
    expectation stays `within` this share of the best.
    """

    within: float
    connections_worth: float

    def rank(self, useful: Array, cost: Array, *, slack: float = 0.0, least: float = 0.0) -> Array:
        """What is to be minimised; infinite where it is not good enough, which `slack` makes less strict.

        What is less useful than `least` is not good enough either.
        """
        good = useful >= np.maximum((1.0 - self.within - slack) * useful.max(), least)
        return np.asarray(
            np.where(good, cost - np.log(useful) / self.connections_worth, np.inf), dtype=np.float64
        )


BARGAIN = Bargain(within=0.08, connections_worth=1 / 8)
_BARGAINS = {
    Objective.THROUGHPUT: BARGAIN,
    # What is as fast as can be told takes no more than it must.
    Objective.PEAK: Bargain(within=0.02, connections_worth=1 / 64),
    Objective.LATENCY: Bargain(within=LATENCY_WITHIN, connections_worth=np.inf),
    Objective.FRUGAL: Bargain(within=1.0 - FRUGAL_SHARE, connections_worth=np.inf),
}
_KEPT_WITHIN = 0.01  # of the throughput that a difference in rank is worth


def kept_within(objective: Objective) -> float:
    """How much worse in rank advice that stands may be: a hundredth of the throughput, or 8 % more connections."""
    return _KEPT_WITHIN / probing_worth(objective)


def probing_worth(objective: Objective) -> float:
    """What connections are worth to who asks what to measure next; where they count alone, as usual."""
    return min(_BARGAINS[objective].connections_worth, BARGAIN.connections_worth)


def utility(appraisal: Appraisal, objective: Objective) -> Array:
    """What is to be maximised; always positive."""
    if objective is Objective.LATENCY:
        return 1.0 / np.maximum(appraisal.latency_seconds, 1e-12)
    return np.maximum(appraisal.value, 1e-12)


def required_share(objective: Objective) -> float:
    """What advice must reach of what the SDK does by itself."""
    return FRUGAL_SHARE if objective is Objective.FRUGAL else 1.0 - LATENCY_WITHIN


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


def rank(appraisal: Appraisal, objective: Objective, *, slack: float = 0.0, least: float = 0.0) -> Array:
    """What is to be minimised by the advice: the price of a setting; infinite where it is not good enough.

    `slack` is how much less of the best is good enough as well; less useful than `least` nothing is.
    """
    cost = price(appraisal, objective)
    return _BARGAINS[objective].rank(utility(appraisal, objective), cost, slack=slack, least=least)


def choose(appraisal: Appraisal, objective: Objective, *, least: float = 0.0) -> int:
    """The index of the setting to advise: the least price, then the better of equals."""
    cost = rank(appraisal, objective, least=least)
    nearly = cost <= cost.min() + 1e-9
    return int(np.argmax(np.where(nearly, utility(appraisal, objective), -np.inf)))


def is_within(settings: Sequence[Any], appraisal: Appraisal, demand: Demand) -> NDArray[np.bool_]:
    """Which of the settings that were appraised keep the demand's hard limits of threads and memory."""
    threads, memory_bytes = thread_counts(settings), appraisal.memory_bytes
    is_light = memory_bytes <= (demand.memory_bytes_max or np.inf)
    return np.asarray(is_light & (threads <= (demand.thread_count_max or np.inf)), dtype=np.bool_)


def coordinates(setting_type: type[Any], settings: Sequence[Any]) -> Array:
    """Settings as points, in octaves of each knob; 0 counts as a half."""
    names = list(knobs(setting_type))
    values = np.array([[getattr(setting, name) for name in names] for setting in settings], dtype=np.float64)
    return np.asarray(np.log2(np.maximum(values.reshape(-1, len(names)), 0.5)), dtype=np.float64)


def thread_counts(settings: Sequence[Any]) -> Array:
    """All threads of each setting, whatever they are for."""
    return np.array([setting.thread_count for setting in settings], dtype=np.float64)
