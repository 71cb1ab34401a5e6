"""Knows how a change of the place is handled: how soon it is suspected, what the advice does meanwhile, false alarms.

There are sixteen probes of a place that does not change, and twelve after it did: each connection carries a quarter,
the path half, or the other way round; for a queue, requests take three times or a third as long, or only sends, deletes
or deliveries take longer. It counts after how many probes the change is suspected (the next probe then comes within a
quarter of the mean interval) and an alarm is raised; how far the advice goes the wrong way meanwhile, in octaves of
threads against the advice before; and when it comes, and stays, within 5 % of the new best. For a queue the best is
what is advised after twelve probes of the new place alone, because the best of a ladder is the luckiest of its
measurements. An alarm before the change is a false alarm.

Then the place is again as it was, for twelve more probes: after how many is the advice, to stay, within 5 % of the old
best?

For each upload there is an oracle: told at once that the place changed, it begins anew, with what was known as a
neighbour's.

Not every probe can show every change: if the path is the limit, a few connections more or less carry the same. A probe
of an upload could show it if the truth at its setting now lies outside the interval stated before.

`python -m bench change`: without `--seed` one is drawn, and printed.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, log2
from typing import Any

from bench.fresh_worlds import Kind, fresh_worlds
from bench.penstock_tuner import PenstockTuner
from bench.spread import carried_out, fresh_seeds
from bench.sqs_choosing import Penstock, choosing_world, driven
from bench.sqs_world import observe
from bench.surfaces import Session
from penstock.lab.sqs import ActionTruth
from penstock.models.model import Fit, is_newly_changed
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.trial.simulated_host import World
from penstock.vocabulary import Observation

BEFORE, AFTER = 16, 12
GOOD = 0.05  # distance from the new best that counts as recovered
QUEUES = 6  # of each seed
SETTLED = 12  # probes
_CHANGES = {"connections": (0.25, 4.0), "host-ceiling": (0.5, 2.5)}  # how much of a limit is left
# Which actions of a queue take this many times as long.
_SLOWER: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("requests", ("send", "receive", "delete"), 3.0),
    ("deletes", ("delete",), 4.0),
    ("requests", ("send", "receive", "delete"), 1 / 3),
    ("deletes", ("delete",), 2.0),
    ("sends", ("send",), 2.0),
    ("deliveries", (), 4.0),
)
_QUEUE = SqsDeliveryModel()


class Store:
    """Uploads to a fresh world."""

    could_show = False  # whether the truth at the latest probe's setting lay outside its interval

    def __init__(self, seed: int, index: int) -> None:
        self._world = [w for w in fresh_worlds(seed) if w.kind is not Kind.OFF_MODEL][index]
        self._seed, self._session = seed, Session(self._world.surface, seed)
        self._tuner = PenstockTuner(self._world.surface.context, self._world.surface.limits)
        self._seen: list[Observation[Any]] = []
        limits = [name for name in _CHANGES if name in self._world.limits]
        self.limit = limits[index % len(limits)]
        self.factor = _CHANGES[self.limit][index // len(limits) % 2]

    def probe(self) -> Fit:
        """The fit after one more probe, made as the daemon does."""
        setting, surface = self._tuner.ask(self._seed), self._session.surface
        low, high = self._tuner.predict_interval(setting)
        self.could_show = not low <= surface.truth(setting) <= high
        self._seen.append(self._session.measure(setting))
        self._tuner.tell(self._seen[-1])
        self._tuner.recommend()
        return self._tuner.known

    def change(self) -> None:
        """One of the limits moves."""
        field = self._world.limits[self.limit](self.factor)
        self._session.surface = replace(self._world.surface, field=field)

    def change_back(self) -> None:
        """As at first."""
        self._session.surface = self._world.surface

    def told(self) -> list[float]:
        """The oracle's shares of the new best, by probe: it begins anew at once, with a neighbour's knowledge."""
        surface = self._session.surface
        session, tuner = Session(surface, self._seed + 1), PenstockTuner(surface.context, surface.limits)
        tuner.warm(self._seen[:BEFORE], surface.description)
        shares = list[float]()
        for _ in range(AFTER):
            tuner.tell(session.measure(tuner.ask(self._seed)))
            shares.append(1.0 - surface.regret(tuner.recommend()))
        return shares

    def advised(self) -> tuple[float, float]:
        """Octaves of threads over the fewest connections that now reach 95 %, and the share of the best."""
        surface, setting = self._session.surface, self._tuner.recommend()
        return log2(surface.connections(setting) / surface.optimum.n95), 1.0 - surface.regret(setting)


class Queue:
    """Deliveries through a queue of the `sqs-choosing` worlds."""

    could_show = True  # whatever becomes slower, its own requests show

    def __init__(self, seed: int, index: int) -> None:
        self._seed, self._number = 1000 * seed + index, 0
        self._world, self._tuner = choosing_world(self._seed), Penstock(self._seed, keeps_advice=True)
        self._before = self._world
        self.limit, self._actions, self.factor = _SLOWER[index % len(_SLOWER)]
        self._goodputs, self._best = self._measured(self._world), 0.0

    def probe(self) -> Fit:
        """The fit after one more probe, made as the daemon does."""
        self._number += 1
        setting = self._tuner.ask()
        self._tuner.tell(
            observe(self._world, setting, seed=31 * self._seed + self._number, number=self._number)
        )
        self._tuner.advice()
        return self._tuner.known

    def change(self) -> None:
        """Some of its actions take another time."""
        queue = self._world.queue
        if not self._actions:
            queue = replace(queue, spread_seconds_median=self.factor * queue.spread_seconds_median)
        for name in self._actions:
            action: ActionTruth = getattr(queue, name)
            slower = replace(
                action,
                request_seconds=self.factor * action.request_seconds,
                message_seconds=self.factor * action.message_seconds,
            )
            queue = replace(queue, **{name: slower})  # type: ignore[arg-type]
        self._become(replace(self._world, queue=queue))

    def change_back(self) -> None:
        """As at first."""
        self._become(self._before)

    def told(self) -> list[float]:
        """Empty: a newcomer's result defines what is good, so there is no oracle."""
        return []

    def advised(self) -> tuple[float, float]:
        """Octaves of threads over the fewest senders of a ladder that reach 95 %, and the share of the best."""
        best, setting = max(self._goodputs.values()), self._tuner.advice()
        needed = min(count for count, found in self._goodputs.items() if found >= 0.95 * best)
        reached = _QUEUE.measured_value(observe(self._world, setting, seed=77))
        return log2(setting.sender_thread_count / needed), reached / self._best

    def _become(self, world: World) -> None:
        self._world = world
        self._goodputs, self._best = self._measured(world), self._settled()

    def _settled(self) -> float:
        """What advice reaches that knows nothing but this place."""
        newcomer = Penstock(self._seed + 1, keeps_advice=True)
        for number in range(1, SETTLED + 1):
            newcomer.tell(observe(self._world, newcomer.ask(), seed=37 * self._seed + number, number=number))
            advised = newcomer.advice()
        return _QUEUE.measured_value(observe(self._world, advised, seed=77))

    @staticmethod
    def _measured(world: World) -> dict[int, float]:
        counts = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
        return {n: _QUEUE.measured_value(observe(world, driven(n, 10), seed=n)) for n in counts}


@dataclass(slots=True)
class Met:
    """One change, and how it was handled."""

    what: str
    limit: str
    factor: float
    false_alarms: int = 0
    false_suspicions: int = 0
    shown_after: float = inf  # probes
    suspected_after: float = inf
    alarm_after: float = inf
    wrong_way_octaves: float = 0.0
    shares: list[float] = field(default_factory=list)  # of the new best, by probe since
    told_shares: list[float] = field(default_factory=list)
    # Of the old best, by probe since the place is again as it was.
    back_shares: list[float] = field(default_factory=list)

    @property
    def is_felt(self) -> bool:
        """Whether the advice before the change is no longer good."""
        return self.shares[0] < 1.0 - GOOD

    @property
    def recovered_after(self) -> float:
        """Probes until the advice stays good."""
        return _recovered_after(self.shares)

    @property
    def back_after(self) -> float:
        """Probes until the advice stays good after the place is as it was."""
        return _recovered_after(self.back_shares)

    @property
    def told_recovered_after(self) -> float:
        """The same for the oracle."""
        return _recovered_after([*self.shares[:1], *self.told_shares])


def _recovered_after(shares: Sequence[float]) -> float:
    bad = [count for count, share in enumerate(shares) if share < 1.0 - GOOD]
    return 0 if not bad else bad[-1] + 1 if bad[-1] + 1 < len(shares) else inf


def meet(job: tuple[str, int, int]) -> Met:
    """Probe, change, probe."""
    what, seed, index = job
    place: Store | Queue = Store(seed, index) if what == "uploads" else Queue(seed, index)
    met, known = Met(what, place.limit, place.factor), None
    for _ in range(BEFORE):
        fit = place.probe()
        met.false_suspicions += fit.suspicion.is_raised
        if is_newly_changed(fit, known):
            met.false_alarms, known = met.false_alarms + 1, fit.newest_observation_at
    place.change()
    stood, share = place.advised()
    met.shares.append(share)
    for count in range(1, AFTER + 1):
        fit = place.probe()
        if place.could_show:
            met.shown_after = min(met.shown_after, count)
        if is_newly_changed(fit, known):
            met.alarm_after, known = min(met.alarm_after, count), fit.newest_observation_at
        if fit.suspicion.is_raised or met.alarm_after <= count:
            met.suspected_after = min(met.suspected_after, count)
        octaves, share = place.advised()
        met.shares.append(share)
        met.wrong_way_octaves = max(met.wrong_way_octaves, abs(octaves) - max(abs(stood), 0.5))
    met.told_shares = place.told() if met.is_felt else []
    place.change_back()
    met.back_shares.append(place.advised()[1])
    for _ in range(AFTER):
        place.probe()
        met.back_shares.append(place.advised()[1])
    return met


def run(*, long: bool = False, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """Every place of the seeds."""
    seeds = list(seeds) or fresh_seeds(long=long)
    print(f"fresh places of seeds {seeds}")
    jobs = [("queues", seed, index) for seed in seeds for index in range(QUEUES)]
    jobs += [
        ("uploads", seed, index)
        for seed in seeds
        for index in range(sum(w.kind is not Kind.OFF_MODEL for w in fresh_worlds(seed)))
    ]
    found = carried_out(meet, jobs)
    return {"seeds": seeds, **{what: _verdict(what, found) for what in ("uploads", "queues")}}


def _verdict(what: str, found: Sequence[Met]) -> dict[str, float]:
    chosen = [met for met in found if met.what == what]
    felt = [met for met in chosen if met.is_felt]
    shown = [met for met in felt if met.shown_after < inf]
    probes = BEFORE * len(chosen)
    lost = [met for met in chosen if met.back_shares[0] < 1.0 - GOOD]
    figures = {
        "probes_before": probes,
        "false_alarms": sum(met.false_alarms for met in chosen),
        "false_suspicion_fraction": sum(met.false_suspicions for met in chosen) / probes,
        "changed": len(chosen),
        "of_all_suspected_by_the_next_probe": statistics.mean(met.suspected_after <= 1 for met in chosen),
        "of_all_alarm_after_p50": statistics.median(met.alarm_after for met in chosen),
        "felt": len(felt),
        "suspected_by_the_next_probe": statistics.mean(met.suspected_after <= 1 for met in felt),
        "shown_by_the_next_probe": statistics.mean(met.shown_after <= 1 for met in felt),
        "suspected_by_the_first_that_shows_it": statistics.mean(
            met.suspected_after <= met.shown_after for met in shown
        ),
        "suspected_by_the_second": statistics.mean(met.suspected_after <= 2 for met in felt),
        "alarm_after_p50": statistics.median(met.alarm_after for met in felt),
        "recovered_after_p50": statistics.median(met.recovered_after for met in felt),
        "recovered_fraction": statistics.mean(met.recovered_after < inf for met in felt),
        "wrong_way_over_an_octave": statistics.mean(met.wrong_way_octaves > 1.0 for met in felt),
        "felt_back": len(lost),
        "back_after_p50": statistics.median(met.back_after for met in lost),
        "back_within_four": statistics.mean(met.back_after <= 4 for met in lost),
        "back_fraction": statistics.mean(met.back_after < inf for met in lost),
        **{f"back_share_{n}": statistics.mean(met.back_shares[n] for met in lost) for n in (2, 3, 4, 6, 12)},
    }
    if told := [met.told_recovered_after for met in felt if met.told_shares]:
        figures["oracle_recovered_after_p50"] = statistics.median(told)
        figures["oracle_recovered_fraction"] = statistics.mean(after < inf for after in told)
    for met in chosen:
        print(
            f"{what} {met.limit} x {met.factor:.2g}: shown after {met.shown_after}, suspected {met.suspected_after},"
            f" alarm {met.alarm_after}, good {met.recovered_after}, false alarms {met.false_alarms},"
            f" suspicions {met.false_suspicions};"
            f" shares {' '.join(f'{share:.2f}' for share in met.shares)};"
            f" oracle good {met.told_recovered_after};"
            f" back after {met.back_after}: {' '.join(f'{share:.2f}' for share in met.back_shares)}"
        )
    print(f"\n{what}: {len(chosen)} places, {len(felt)} in which the advice that stood was no longer good")
    print("\n".join(f"  {name:38s}{value:8.3g}" for name, value in figures.items()))
    return figures
