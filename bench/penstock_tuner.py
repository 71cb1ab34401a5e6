"""Knows how penstock's own optimizer is run as a tuner: by the daemon's two calls, and with its probes of S3."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any

import numpy as np

from bench.surfaces import DOWNLOADING, BenchSetting, Limits, SurfaceDescription
from penstock.lab.s3 import S3Service
from penstock.lab.virtual_time import VirtualClock
from penstock.models import burst
from penstock.models.model import Fit, PerformanceModel, is_newly_changed
from penstock.models.s3.download import S3DownloadModel
from penstock.models.s3.parts import PART_SIZE_BYTES_MIN
from penstock.models.s3.transfer import S3TransferModel
from penstock.models.s3.upload import S3UploadModel
from penstock.optimizer.choice import within_reach
from penstock.optimizer.deliberation import Case, Conclusion, deliberate
from penstock.optimizer.objective import Bargain, price, utility
from penstock.optimizer.recommendation import recommend
from penstock.probes.probe import NoJournal, Probe
from penstock.probes.s3.download import S3DownloadProbe
from penstock.probes.s3.upload import S3UploadProbe
from penstock.probes.s3.workspace import Workspace
from penstock.trial.simulated_aws import SimulatedObjectStore
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Objective,
    Observation,
    ProbePlan,
    Reason,
    Recommendation,
    Regime,
)

_GENEROUS = Cost(
    transferred_bytes=10**14, request_count=10**9, usd=1e6, credit_bytes=10**15, duration_seconds=1e7
)
START_AT = datetime(2026, 1, 5, tzinfo=UTC)
_VALID_SECONDS = 3600.0
_RECENT = 8  # probes
_ON_CREDITS = 1.3  # times the baseline
_LOOP_TICK_SECONDS = 3600.0  # never due: in virtual time no loop is late


class Learner:
    """Asks `deliberate` for each probe and `recommend` for the advice; keeps only the history."""

    def __init__(self, model: PerformanceModel[Any], context: Context, *, seed: int = 0) -> None:
        self._model = model
        self._context = context
        self._seed = seed
        self._history: list[Observation[Any]] = []
        self._prior: Fit | None = None
        self._conclusion: Conclusion[Any] | None = None
        self._standing: Recommendation[Any] | None = None

    @property
    def known(self) -> Fit:
        """The fit of everything seen."""
        return self._concluded().fit

    def tell(self, observation: Observation[Any]) -> None:
        """Add an observation to the history."""
        self._history.append(observation)
        self._conclusion = None

    def planned(self) -> ProbePlan[Any]:
        """The next probe, from the last deliberation."""
        plan = self._concluded().plan
        if plan is None:
            raise RuntimeError("no probe was affordable, though the budget is without bounds")
        return plan

    def recommended(self) -> Recommendation[Any]:
        """The advice, given the previous one for hysteresis."""
        self._standing = recommend(
            self._model,
            self._concluded().fit,
            self._context,
            self._demand(),
            previous=self._standing,
            now=START_AT,
            validity_seconds=_VALID_SECONDS,
        )
        return self._standing

    def _concluded(self) -> Conclusion[Any]:
        if self._conclusion is None:
            case = Case(
                place=self._context.place,
                observations=tuple(self._history),
                prior=self._prior,
                next_context=self._context,
                cost_max=_GENEROUS,
                demand=self._demand(),
                seed=self._chance(),
            )
            self._conclusion = deliberate(self._model, case)
        return self._conclusion

    def _chance(self) -> int:
        return self._seed

    def _demand(self) -> Demand:
        return Demand()


def s3_probe(operation: str, service: S3Service, clock: VirtualClock) -> Probe[Any]:
    """A probe of this lab service, which gets its bucket here."""
    service.shelf.create_bucket("b")
    store = SimulatedObjectStore(service)
    workspace = Workspace(store, clock, NoJournal(), "b", loop_tick_seconds=_LOOP_TICK_SECONDS)
    if operation == "s3_download":
        return S3DownloadProbe(workspace)
    return S3UploadProbe(workspace, payload_source=lambda size_bytes, _: bytes(size_bytes))


class PenstockTuner(Learner):
    """The same on a surface."""

    def __init__(
        self,
        context: Context,
        limits: Limits,
        *,
        model_type: type[S3UploadModel] = S3UploadModel,
        objective: Objective = Objective.THROUGHPUT,
    ) -> None:
        super().__init__(_model(limits, model_type), context)
        self._objective = objective
        self._limits = limits
        self._baseline = _baseline_bytes_per_second(context)
        self._changes_known_until: datetime | None = None

    def warm(
        self, prior_observations: Sequence[Observation[Any]], prior_surface_description: SurfaceDescription
    ) -> None:
        """Fit the neighbour's observations as a prior."""
        neighbour = PenstockTuner(prior_surface_description.context, prior_surface_description.limits)
        self._prior = neighbour.fit(prior_observations)

    def remember(self, earlier: Sequence[Observation[Any]]) -> None:
        """Observations of other sizes in the same place, which the daemon learns from together."""
        self._history.extend(earlier)
        self._conclusion = None

    def fit(self, observations: Sequence[Observation[Any]]) -> Fit:
        """What the model alone learns from these observations."""
        return self._model.fit(self._context.place, observations, prior=None, seed=0)

    def ask(self, seed: int) -> BenchSetting:
        """The plan of the last deliberation."""
        self._seed = seed
        return self._clip(self.planned().setting)

    def tell(self, observation: Observation[Any]) -> None:
        """Add an observation to the history."""
        if self.has_drifted():
            self._changes_known_until = self.known.newest_observation_at
        super().tell(observation)

    def recommend(self) -> BenchSetting:
        """The setting of the advice."""
        return self._clip(self.recommended().setting)

    def bargains(self, offered: Sequence[Bargain]) -> list[BenchSetting]:
        """What each of these bargains between throughput and connections would advise from the same fit."""
        fit, demand = self._concluded().fit, self._demand()
        candidates = list(self._model.candidates(fit, self._context, demand))
        settings = within_reach(self._model, fit, self._context, demand, candidates)
        appraisal = self._model.appraise(fit, self._context, settings, demand)
        useful, cost = utility(appraisal, demand.objective), price(appraisal, demand.objective)
        chosen = [int(np.argmin(bargain.rank(useful, cost))) for bargain in offered]
        return [self._clip(settings[index]) for index in chosen]

    def predict_interval(self, setting: BenchSetting) -> tuple[float, float]:
        """The 90 % interval of one future probe."""
        prediction = self._model.predict(self._concluded().fit, self._context, setting, self._demand())
        estimate = prediction[self._model.value_metric]
        return estimate.low, estimate.high

    def last_choice(self) -> tuple[Reason, bool]:
        """Why the last setting was chosen, and whether the law is given up for the place."""
        return self.planned().reason, self.known.is_off_model

    def has_drifted(self) -> bool:
        """Whether the last observation raised the alarm."""
        fit = self._conclusion.fit if self._conclusion else None
        return fit is not None and is_newly_changed(fit, self._changes_known_until)

    def _demand(self) -> Demand:
        """The surface's limits, and the current regime: above the baseline, probes run on burst credits."""
        recent = [o.throughput_bytes_per_second for o in self._history[-_RECENT:]]
        on_credits = bool(recent) and max(recent) > _ON_CREDITS * self._baseline
        return Demand(
            memory_bytes_max=self._limits.memory_bytes_max,
            thread_count_max=self._limits.thread_count_max,
            regime=Regime.BURST if on_credits else Regime.SUSTAINED,
            objective=self._objective,
        )

    def _clip(self, setting: BenchSetting) -> BenchSetting:
        return self._limits.clip(setting.thread_count, setting.request_size_bytes)


def _baseline_bytes_per_second(context: Context) -> float:
    limits = burst.ceiling(context.place.instance_type)
    return limits.baseline_bytes_per_second if limits is not None and limits.is_burstable else inf


def _model(limits: Limits, model_type: type[S3UploadModel]) -> S3TransferModel[Any]:
    """The product's own model, limited to what the surface allows."""
    if limits.transfer is DOWNLOADING:
        return S3DownloadModel(
            thread_count_max=limits.thread_count_max,
            request_size_bytes_min=limits.part_size_bytes_min,
            request_size_bytes_max=limits.part_size_bytes_max,
        )
    return model_type(
        thread_count_max=limits.thread_count_max,
        request_size_bytes_min=max(limits.part_size_bytes_min, PART_SIZE_BYTES_MIN),
        request_size_bytes_max=max(limits.part_size_bytes_max, PART_SIZE_BYTES_MIN),
    )
