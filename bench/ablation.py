"""Knows what each part of choosing contributes: the law alone, scikit-optimize alone, and both, on the same worlds.

`penstock` is the product. `law-alone` is the product without a misfit and without giving up the law. `skopt-gp` is
scikit-optimize as configured in `bench.tuners`, without any physics. For the product it also counts who chose each
probe: the ramp, the posterior of the law, scikit-optimize, or the rule that verifies the advice.

`python -m bench ablation`: without `--seed` one is drawn, and printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bench.fresh_worlds import Kind, fresh_worlds
from bench.penstock_tuner import PenstockTuner
from bench.spread import carried_out, fresh_seeds
from bench.surfaces import Session, SurfaceDescription
from bench.tuners import SkoptGaussianProcess, Tuner, TunerFactory, penstock
from penstock.models.model import Fit
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.vocabulary import Observation, Place, Reason

PROBES = 24
SEEN_AT = (6, 12, 24)


@dataclass(frozen=True, slots=True, kw_only=True)
class LawAlone(S3UploadModel):
    """The upload model that believes its law exactly."""

    def fit(
        self,
        place: Place,
        observations: Sequence[Observation[S3UploadSetting]],
        *,
        prior: Fit | None,
        seed: int,
    ) -> Fit:
        """The same fit without anything beside the law."""
        fit = S3UploadModel.fit(self, place, observations, prior=prior, seed=seed)
        straight = [[0.0, *rest] for _, *rest in fit.state["unexplained"]]
        bare = {**fit.state, "unexplained": straight, "shapes": None}
        return replace(fit, state=bare, is_off_model=False)


def law_alone(description: SurfaceDescription) -> PenstockTuner:
    """The product without corrections of the law."""
    return PenstockTuner(description.context, description.limits, model_type=LawAlone)


TUNERS: dict[str, TunerFactory] = {
    "penstock": penstock,
    "law-alone": law_alone,
    "skopt-gp": SkoptGaussianProcess,
}


@dataclass(slots=True)
class Outcome:
    """One tuner in one world."""

    tuner: str
    kind: str
    regrets: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    choosers: Counter[str] = field(default_factory=Counter)


def run(*, long: bool = False, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """Every tuner in every world of the seeds."""
    seeds = list(seeds) or fresh_seeds(long=long)
    print(f"fresh worlds of seeds {seeds}")
    jobs = [
        (name, seed, index) for seed in seeds for index in range(len(fresh_worlds(seed))) for name in TUNERS
    ]
    outcomes = carried_out(perform, jobs)
    print("\n".join([*_table(outcomes), *_differences(outcomes), *_choosers(outcomes)]))
    return {"seeds": seeds, "runs": len(outcomes)}


def perform(job: tuple[str, int, int]) -> Outcome:
    """Two dozen probes."""
    name, seed, index = job
    world = fresh_worlds(seed)[index]
    surface, session = world.surface, Session(world.surface, seed)
    tuner, found = TUNERS[name](surface.description), Outcome(name, world.kind)
    for _ in range(PROBES):
        setting = tuner.ask(seed)
        found.choosers[_chooser(tuner)] += 1
        tuner.tell(session.measure(setting))
        advised = tuner.recommend()
        found.regrets.append(surface.regret(advised))
        found.ratios.append(surface.connections(advised) / surface.optimum.n95)
    return found


def _chooser(tuner: Tuner) -> str:
    if not isinstance(tuner, PenstockTuner):
        return "scikit-optimize"
    reason, is_off_model = tuner.last_choice()
    if reason in (Reason.RAMP, Reason.VERIFY):
        return str(reason.value)
    return "scikit-optimize" if is_off_model else "posterior of the law"


def _table(outcomes: list[Outcome]) -> list[str]:
    head = " ".join(f"{f'@{p}: regret  conn':>16s}" for p in SEEN_AT)
    lines = [f"\nMean regret %, connections over needed\n{'':26s}{head}"]
    for title, kinds in (("on the model", set(Kind) - {Kind.OFF_MODEL}), ("off the model", {Kind.OFF_MODEL})):
        for name in TUNERS:
            chosen = [o for o in outcomes if o.tuner == name and o.kind in kinds]
            cells = [
                f"{100 * np.mean([o.regrets[p - 1] for o in chosen]):11.1f} "
                f"{np.mean([o.ratios[p - 1] for o in chosen]):4.2f}"
                for p in SEEN_AT
            ]
            lines.append(f"{title:14s}{name:12s}{' '.join(cells)}")
    return lines


def _differences(outcomes: list[Outcome]) -> list[str]:
    """The product's regret minus that of the law alone, world by world: a single noisy world may move a mean."""
    lines = ["\nRegret % of the product less that of the law alone, with the standard error of the mean"]
    for title, is_off in (("on the model", False), ("off the model", True)):
        both, alone = (
            np.array(
                [o.regrets for o in outcomes if o.tuner == name and (o.kind == Kind.OFF_MODEL) == is_off]
            )
            for name in ("penstock", "law-alone")
        )
        away = 100 * (both - alone)[:, [p - 1 for p in SEEN_AT]]
        errors = away.std(axis=0) / max(len(away), 1) ** 0.5
        cells = " ".join(f"{a:9.2f} +- {e:4.2f}" for a, e in zip(away.mean(axis=0), errors, strict=True))
        lines.append(f"{title:26s}{cells}")
    return lines


def _choosers(outcomes: list[Outcome]) -> list[str]:
    lines = ["\nWho chose the product's probes"]
    for title, is_off in (("on the model", False), ("off the model", True)):
        chosen = [o for o in outcomes if o.tuner == "penstock" and (o.kind == Kind.OFF_MODEL) == is_off]
        total: Counter[str] = sum((o.choosers for o in chosen), Counter())
        shares = ", ".join(f"{name} {count / total.total():.2f}" for name, count in total.most_common())
        lines.append(f"{title}: {shares}")
    return lines
