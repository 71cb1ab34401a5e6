"""Knows how soon tuners learn to drive an unknown queue: the regret of their advice after 6, 10 and 20 probes.

`python -m bench sqs-choosing` prints the table. Each world has its own request times, costs of batches, variation and
client; the truth is the best goodput of any setting in it, from a coarse grid and from everything tried. The second
half of the worlds is held out: nothing was ever changed to do better in them.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from bench.penstock_tuner import Learner
from bench.spread import carried_out
from bench.sqs_world import CONTEXT, a_setting, a_world, observe
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.trial.simulated_host import World
from penstock.vocabulary import Observation

PROBE_COUNTS = (6, 10, 20)
WORLD_COUNT = 24
_MODEL = SqsDeliveryModel()
_CLIENT_SECONDS_PER_REQUEST = (1.5e-3, 5e-3)  # a slow core, so that the client can be the limit
_SENDERS_MAX = 48
_FIRST_POINTS = 4  # random points before the Gaussian process


class Tuner(Protocol):
    """Is asked for a probe, told its result, and asked for advice."""

    def ask(self) -> SqsDeliverySetting:
        """The next probe."""
        ...

    def tell(self, observation: Observation[SqsDeliverySetting]) -> None:
        """Its result."""
        ...

    def advice(self) -> SqsDeliverySetting:
        """Its current advice."""
        ...


class Penstock(Learner):
    """The daemon's two calls."""

    def __init__(self, seed: int, *, keeps_advice: bool = False) -> None:
        super().__init__(_MODEL, CONTEXT, seed=seed)
        self._keeps_advice = keeps_advice

    def ask(self) -> SqsDeliverySetting:
        """The plan of a deliberation over everything seen."""
        setting: SqsDeliverySetting = self.planned().setting
        return setting

    def advice(self) -> SqsDeliverySetting:
        """The recommendation for the highest possible rate."""
        if not self._keeps_advice:
            self._standing = None
        setting: SqsDeliverySetting = self.recommended().setting
        return setting

    def _chance(self) -> int:
        return self._seed + len(self._history)


class _BestSeen:
    """Advises the best setting that it measured."""

    def __init__(self) -> None:
        self._seen: list[Observation[SqsDeliverySetting]] = []

    def tell(self, observation: Observation[SqsDeliverySetting]) -> None:
        """Remember it."""
        self._seen.append(observation)

    def advice(self) -> SqsDeliverySetting:
        """The best measured."""
        return max(self._seen, key=_MODEL.measured_value).setting


class RandomSearch(_BestSeen):
    """Random stable settings."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = random.Random(seed)

    def ask(self) -> SqsDeliverySetting:
        """A random one."""
        return a_setting(self._rng.randrange(10**9))


class GaussianProcess(_BestSeen):
    """scikit-optimize over the logarithms of senders and batch, without knowledge of queues."""

    def __init__(self, seed: int) -> None:
        from skopt import Optimizer
        from skopt.space import Integer

        super().__init__()
        space = [Integer(1, _SENDERS_MAX, prior="log-uniform"), Integer(1, 10)]
        self._optimizer = Optimizer(space, n_initial_points=_FIRST_POINTS, random_state=seed, acq_func="EI")
        self._point: list[int] = []

    def ask(self) -> SqsDeliverySetting:
        """Where it expects to improve."""
        self._point = [int(value) for value in self._optimizer.ask()]
        return driven(*self._point)

    def tell(self, observation: Observation[SqsDeliverySetting]) -> None:
        """Negated, because it minimises."""
        super().tell(observation)
        self._optimizer.tell(self._point, -_MODEL.measured_value(observation))


class Fixed:
    """One setting for everything, like a default pool of ten connections."""

    def __init__(self, setting: SqsDeliverySetting) -> None:
        self._setting = setting

    def ask(self) -> SqsDeliverySetting:
        """The same setting."""
        return self._setting

    def tell(self, observation: Observation[SqsDeliverySetting]) -> None:
        """Learns nothing."""

    def advice(self) -> SqsDeliverySetting:
        """The same setting."""
        return self._setting


def driven(sender_count: int, batch: int) -> SqsDeliverySetting:
    """This many senders, receivers and deleters, with windows wide enough to cost nothing."""
    return SqsDeliverySetting(
        sender_thread_count=sender_count,
        receiver_thread_count=sender_count + 1,
        deleter_thread_count=sender_count + 1,
        batch_message_count=batch,
        send_window_message_count=batch * (8 * sender_count + 8),
        receive_window_message_count=batch * (sender_count + 1) * 40,
    )


POOL_OF_TEN = replace(driven(3, 1), receiver_thread_count=4, deleter_thread_count=3)
TUNERS: dict[str, Callable[[int], Tuner]] = {
    "penstock": Penstock,
    "skopt GP alone": GaussianProcess,
    "random": RandomSearch,
    "pool of 10": lambda _: Fixed(POOL_OF_TEN),
    "pool of 10, batches of 10": lambda _: Fixed(replace(POOL_OF_TEN, batch_message_count=10)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What one tuner advised in one world after this many probes."""

    tuner: str
    world_seed: int
    probe_count: int
    goodput_fraction: float  # of the best known
    thread_count: int
    duplicate_count: int


def choosing_world(world_seed: int) -> World:
    """A world whose client is limited in its requests."""
    spent = random.Random(world_seed + 10**6).uniform(*_CLIENT_SECONDS_PER_REQUEST)
    return replace(a_world(world_seed), client_seconds_per_request=spent)


def choose_in(world_seed: int, probe_counts: Sequence[int] = PROBE_COUNTS) -> list[Advice]:
    """All tuners in one world, judged by fresh measurements of what they advised."""
    world = choosing_world(world_seed)
    grid = [driven(count, 10) for count in (1, 2, 4, 8, 16, 32)]
    best = max(_MODEL.measured_value(observe(world, s, seed=i)) for i, s in enumerate(grid))
    judged: list[tuple[str, int, SqsDeliverySetting, Observation[SqsDeliverySetting]]] = []
    for name, build in TUNERS.items():
        tuner = build(world_seed)
        is_fixed = isinstance(tuner, Fixed)
        for number in range(1, 1 if is_fixed else max(probe_counts) + 1):
            setting = tuner.ask()
            tuner.tell(observe(world, setting, seed=1000 * world_seed + number, number=number))
            if number in probe_counts:
                advised = tuner.advice()
                judged.append((name, number, advised, observe(world, advised, seed=77)))
        if is_fixed:
            judged.append((name, 0, tuner.advice(), observe(world, tuner.advice(), seed=77)))
    best = max([best, *(_MODEL.measured_value(outcome) for *_, outcome in judged)])
    return [
        Advice(
            tuner=name,
            world_seed=world_seed,
            probe_count=number,
            goodput_fraction=_MODEL.measured_value(outcome) / best,
            thread_count=setting.thread_count,
            duplicate_count=int(outcome.measures["duplicate_count"]),
        )
        for name, number, setting, outcome in judged
    ]


def run(*, long: bool) -> dict[str, object]:
    """Print the table; the long form takes all worlds and up to 20 probes."""
    world_seeds = range(500, 500 + (WORLD_COUNT if long else 6))
    choose = partial(choose_in, probe_counts=PROBE_COUNTS if long else PROBE_COUNTS[:2])
    rows = [row for found in carried_out(choose, world_seeds) for row in found]
    half = world_seeds[len(world_seeds) // 2]
    print(f"{'':27} probes  worlds    regret p50   p90   reaching 95 %  threads  duplicates")
    table: dict[str, object] = {}
    for is_held_out in (False, True):
        part = [row for row in rows if (row.world_seed >= half) == is_held_out]
        for name, number in dict.fromkeys((row.tuner, row.probe_count) for row in part):
            some = [row for row in part if (row.tuner, row.probe_count) == (name, number)]
            regrets = sorted(1.0 - row.goodput_fraction for row in some)
            line = {
                "regret_p50": statistics.median(regrets),
                "regret_p90": regrets[int(0.9 * (len(regrets) - 1))],
                "reaching_95_percent_fraction": statistics.mean(r <= 0.05 for r in regrets),
                "thread_count_median": statistics.median(row.thread_count for row in some),
                "duplicate_count": sum(row.duplicate_count for row in some),
            }
            where = "held out" if is_held_out else "tuned on"
            table[f"{name}, {number} probes, {where}"] = line
            print(
                f"{name:27} {number:4}    {where}  {line['regret_p50']:9.1%} {line['regret_p90']:7.1%}"
                f" {line['reaching_95_percent_fraction']:13.0%} {line['thread_count_median']:10.0f}"
                f" {line['duplicate_count']:10}"
            )
    return table
