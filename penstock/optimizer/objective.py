"""Knows what an application's objective means in numbers: which settings are good enough, and what each costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.models.model import DEMAND_SHARE, Appraisal, Array
from penstock.vocabulary import Demand, Objective, knobs

LATENCY_WITHIN = 0.02  # of the shortest time: closer than measurements can tell apart
FRUGAL_SHARE = 0.80  # of the best: what frugal settings must still reach
_MEMORY_SHARE = 0.05  # the worth of halving memory, over that of halving connections


@dataclass(frozen=True, slots=True)
class Bargain:
    """How much throughput is given up for fewer connections.

    A share of the connections is worth `connections_worth` times that share of the throughput, as long as the
    expected loss against the best is at most the share `within`.
    """

    within: float
    connections_worth: float

    def rank(self, useful: Array, cost: Array, *, slack: float = 0.0, least: float = 0.0) -> Array:
        """What the advice minimises, for each setting: infinite if it is not good enough.

        `useful` is a utility and `cost` the logarithm of what settings need; `slack` is added to `within`. A utility
        below `least` is not good enough either.
        """
        good = useful >= np.maximum((1.0 - self.within - slack) * useful.max(), least)
        return np.asarray(
            np.where(good, cost - np.log(useful) / self.connections_worth, np.inf), dtype=np.float64
        )


BARGAIN = Bargain(within=0.08, connections_worth=1 / 8)
_BARGAINS = {
    Objective.THROUGHPUT: BARGAIN,
    # Among settings that cannot be told apart from the fastest, fewer connections are better.
    Objective.PEAK: Bargain(within=0.02, connections_worth=1 / 64),
    Objective.LATENCY: Bargain(within=LATENCY_WITHIN, connections_worth=np.inf),
    Objective.FRUGAL: Bargain(within=1.0 - FRUGAL_SHARE, connections_worth=np.inf),
}
_KEPT_WITHIN = 0.01  # of the throughput: how much worse standing advice may be


def kept_within(objective: Objective) -> float:
    """How much worse in rank standing advice may be: a hundredth of the throughput, or 8 % more connections."""
    return _KEPT_WITHIN / probing_worth(objective)


def probing_worth(objective: Objective) -> float:
    """The worth of connections when choosing probes; the usual one for objectives where only connections count."""
    return min(_BARGAINS[objective].connections_worth, BARGAIN.connections_worth)


def utility(appraisal: Appraisal, objective: Objective) -> Array:
    """What the objective maximises, for each setting; always positive."""
    if objective is Objective.LATENCY:
        return 1.0 / np.maximum(appraisal.latency_seconds, 1e-12)
    return np.maximum(appraisal.value, 1e-12)


def required_share(objective: Objective) -> float:
    """The share of the SDK's default performance that advice must reach."""
    return FRUGAL_SHARE if objective is Objective.FRUGAL else 1.0 - LATENCY_WITHIN


def price(appraisal: Appraisal, objective: Objective) -> Array:
    """The logarithm of what a setting needs: mostly connections, then memory; for `frugal` requests count as well."""
    connections = np.log(np.maximum(appraisal.connection_count, 1e-12))
    memory = np.log(np.maximum(appraisal.memory_bytes, 1.0))
    if objective is Objective.FRUGAL:
        requests = np.log(
            np.maximum(appraisal.request_rate_per_second / np.maximum(appraisal.value, 1e-12), 1e-30)
        )
        return np.asarray(connections + memory + 0.5 * requests, dtype=np.float64)
    return np.asarray(connections + _MEMORY_SHARE * memory, dtype=np.float64)


def rank(appraisal: Appraisal, objective: Objective, *, slack: float = 0.0, least: float = 0.0) -> Array:
    """What the advice minimises, for each setting: its price less its worth; infinite if it is not good enough.

    `slack` is the additional share of the best by which a setting may fall behind; a utility below `least` is never
    good enough.
    """
    cost = price(appraisal, objective)
    return _BARGAINS[objective].rank(utility(appraisal, objective), cost, slack=slack, least=least)


def choose(appraisal: Appraisal, objective: Objective, *, least: float = 0.0) -> int:
    """The index of the setting to advise: the least rank, and among equals the most useful."""
    cost = rank(appraisal, objective, least=least)
    nearly = cost <= cost.min() + 1e-9
    return int(np.argmax(np.where(nearly, utility(appraisal, objective), -np.inf)))


def is_within(settings: Sequence[Any], appraisal: Appraisal, demand: Demand) -> NDArray[np.bool_]:
    """Which of the appraised settings keep the demand's hard limits on threads and memory: shape (settings,)."""
    threads, memory_bytes = thread_counts(settings), appraisal.memory_bytes
    is_light = memory_bytes <= (demand.memory_bytes_max or np.inf)
    return np.asarray(is_light & (threads <= (demand.thread_count_max or np.inf)), dtype=np.bool_)


def carries(appraisal: Appraisal, demand: Demand) -> NDArray[np.bool_]:
    """Which of the appraised settings carry the demanded rate, to within 2 %: shape (settings,)."""
    asked = demand.message_rate_per_second or 0.0
    return np.asarray(appraisal.value >= DEMAND_SHARE * asked, dtype=np.bool_)


def coordinates(setting_type: type[Any], settings: Sequence[Any]) -> Array:
    """Settings as points (settings, knobs), in octaves of each knob; 0 counts as a half."""
    names = list(knobs(setting_type))
    values = np.array([[getattr(setting, name) for name in names] for setting in settings], dtype=np.float64)
    return np.asarray(np.log2(np.maximum(values.reshape(-1, len(names)), 0.5)), dtype=np.float64)


def thread_counts(settings: Sequence[Any]) -> Array:
    """The total number of threads of each setting, whatever they are for: shape (settings,)."""
    return np.array([setting.thread_count for setting in settings], dtype=np.float64)
