"""Knows how to put penstock's own optimizer before the judge: the same two calls that the daemon makes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf

from bench.surfaces import Limits, SurfaceDescription
from penstock.models import burst
from penstock.models.model import Fit, is_newly_changed
from penstock.models.s3_upload import PART_SIZE_BYTES_MIN, S3UploadModel, S3UploadSetting
from penstock.optimizer.deliberation import Conclusion, Question, deliberate
from penstock.optimizer.recommendation import recommend
from penstock.vocabulary import Context, Cost, Demand, Observation, Recommendation, Regime

_GENEROUS = Cost(
    transferred_bytes=10**14, request_count=10**9, usd=1e6, credit_bytes=10**15, duration_seconds=1e7
)
_NOW = datetime(2026, 1, 5, tzinfo=UTC)
_VALID_SECONDS = 3600.0
_RECENT = 8  # probes
_ON_CREDITS = 1.3  # times the baseline


class PenstockTuner:
    """Asks `deliberate` for each probe and `recommend` for the advice; keeps only the history."""

    def __init__(self, context: Context, limits: Limits) -> None:
        self._context = context
        self._limits = limits
        self._model = _model(limits)
        self._baseline = _baseline_bytes_per_second(context)
        self._history: list[Observation[S3UploadSetting]] = []
        self._prior: Fit | None = None
        self._conclusion: Conclusion[S3UploadSetting] | None = None
        self._standing: Recommendation[S3UploadSetting] | None = None
        self._changes_known_until: datetime | None = None
        self._seed = 0

    def warm(
        self,
        prior_observations: Sequence[Observation[S3UploadSetting]],
        prior_surface_description: SurfaceDescription,
    ) -> None:
        """Fit the neighbour first."""
        neighbour = PenstockTuner(prior_surface_description.context, prior_surface_description.limits)
        self._prior = neighbour.fit(prior_observations)

    def fit(self, observations: Sequence[Observation[S3UploadSetting]]) -> Fit:
        """What the model alone learns of them."""
        return self._model.fit(self._context.place, observations, prior=None, seed=0)

    def ask(self, seed: int) -> S3UploadSetting:
        """The plan of the last deliberation."""
        self._seed = seed
        plan = self._concluded().plan
        if plan is None:
            raise RuntimeError("no probe was affordable, though the budget is without bounds")
        return self._clip(plan.setting)

    def tell(self, observation: Observation[S3UploadSetting]) -> None:
        """One more observation of the history."""
        if self.has_drifted():
            self._changes_known_until = self._concluded().fit.newest_observation_at
        self._history.append(observation)
        self._conclusion = None

    def recommend(self) -> S3UploadSetting:
        """The advice, with the one before it for hysteresis."""
        self._standing = recommend(
            self._model,
            self._concluded().fit,
            self._context,
            self._demand(),
            previous=self._standing,
            now=_NOW,
            validity_seconds=_VALID_SECONDS,
        )
        return self._clip(self._standing.setting)

    def predict_interval(self, setting: S3UploadSetting) -> tuple[float, float]:
        """The 90 % interval of one future probe."""
        prediction = self._model.predict(self._concluded().fit, self._context, setting, self._demand())
        estimate = prediction[self._model.value_metric]
        return estimate.low, estimate.high

    def has_drifted(self) -> bool:
        """Whether the last observation raised the alarm."""
        fit = self._conclusion.fit if self._conclusion else None
        return fit is not None and is_newly_changed(fit, self._changes_known_until)

    def _concluded(self) -> Conclusion[S3UploadSetting]:
        if self._conclusion is None:
            question = Question(
                place=self._context.place,
                observations=tuple(self._history),
                prior=self._prior,
                next_context=self._context,
                cost_max=_GENEROUS,
                demand=self._demand(),
                seed=self._seed,
            )
            self._conclusion = deliberate(self._model, question)
        return self._conclusion

    def _demand(self) -> Demand:
        """The limits of the surface, and the ceiling that its probes meet: above the baseline they run on credits."""
        recent = [o.throughput_bytes_per_second for o in self._history[-_RECENT:]]
        on_credits = bool(recent) and max(recent) > _ON_CREDITS * self._baseline
        return Demand(
            memory_bytes_max=self._limits.memory_bytes_max,
            thread_count_max=self._limits.thread_count_max,
            regime=Regime.BURST if on_credits else Regime.SUSTAINED,
        )

    def _clip(self, setting: S3UploadSetting) -> S3UploadSetting:
        return self._limits.clip(setting.thread_count, setting.part_size_bytes)


def _baseline_bytes_per_second(context: Context) -> float:
    limits = burst.ceiling(context.place.instance_type)
    return limits.baseline_bytes_per_second if limits is not None and limits.is_burstable else inf


def _model(limits: Limits) -> S3UploadModel:
    return S3UploadModel(
        thread_count_max=limits.thread_count_max,
        part_size_bytes_min=max(limits.part_size_bytes_min, PART_SIZE_BYTES_MIN),
        part_size_bytes_max=max(limits.part_size_bytes_max, PART_SIZE_BYTES_MIN),
    )
