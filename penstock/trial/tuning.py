"""Knows how any client is tuned: propose, have the client do it, learn, propose again; and what to advise at the end.

The optimizer is the daemon's, asked in this process: while no command runs, nothing is measured that a fit could
disturb. The history is the file of trials, so that a tuning which was interrupted goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from penstock.clock import Clock
from penstock.models.s3_upload import S3UploadSetting
from penstock.models.s3_upload_ranges import UploadRanges, is_as_demanding, ranged_model
from penstock.optimizer.deliberation import Conclusion, Question, deliberate
from penstock.optimizer.recommendation import recommend
from penstock.trial.tuning_command import Failure, Report
from penstock.trial.tuning_state import StateFile, Trial
from penstock.vocabulary import (
    UNKNOWN,
    Context,
    Cost,
    Demand,
    Observation,
    Origin,
    Place,
    ProbePlan,
    Recommendation,
)

PROBE_COUNT = 12  # by then the advice is within a few percent of the best, and more changes little
GIVE_UP_AFTER = 3  # failures in a row when nothing has worked: the command is broken, not the setting
_PAUSE = 2  # trials for which nothing as demanding is tried after a failure
_UNBOUNDED = Cost(
    transferred_bytes=10**15, request_count=10**9, usd=1e9, credit_bytes=10**15, duration_seconds=1e9
)  # each trial moves the whole object whatever the setting, so no setting is dearer than another
_VALIDITY_SECONDS = 86400.0

Run = Callable[[dict[str, int]], Report | Failure]
"""Carries out one proposal: `penstock.trial.tuning_command.run_command`, or a fake."""


class TuningError(RuntimeError):
    """Nothing was learned; the message says why, with what the command said itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is wanted."""

    object_size_bytes: int
    ranges: UploadRanges
    demand: Demand
    probe_count: int = PROBE_COUNT
    seed: int = 0
    region: str = UNKNOWN
    instance_type: str = UNKNOWN

    @property
    def context(self) -> Context:
        """Where and what for."""
        place = Place(operation="s3_upload", region=self.region, instance_type=self.instance_type)
        return Context(place=place, payload_size_bytes=self.object_size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What came of it."""

    task: Task
    trials: tuple[Trial, ...]
    recommendation: Recommendation[S3UploadSetting]
    was_interrupted: bool

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        advice = self.recommendation
        throughput = advice.prediction["throughput_bytes_per_second"]
        interval = {"low": throughput.low, "high": throughput.high}
        return {
            "recommendation": {
                "thread_count": advice.setting.thread_count,
                "part_size_bytes": advice.setting.part_size_bytes,
                "predicted_bytes_per_second": throughput.expected,
                "interval": interval,
                "derived": dict(advice.derived),
            },
            "interval": interval,
            "basis": advice.basis.value,
            "bottleneck": advice.bottleneck,
            "explanation": advice.explanation,
            "object_size_bytes": self.task.object_size_bytes,
            "ranges": asdict(self.task.ranges),
            "objective": self.task.demand.objective.value,
            "probe_count": len(self.trials),
            "failed_probe_count": sum(trial.failure is not None for trial in self.trials),
            "was_interrupted": self.was_interrupted,
            "trials": [_trial_document(trial) for trial in self.trials],
        }


def _trial_document(trial: Trial) -> dict[str, Any]:
    report, failure = trial.report, trial.failure
    return {
        "probe_index": trial.probe_index,
        "thread_count": trial.setting.thread_count,
        "part_size_bytes": trial.setting.part_size_bytes,
        "reason": trial.reason,
        "started_at": trial.started_at,
        "transferred_bytes": report and round(report.transferred_bytes),
        "duration_seconds": report and report.duration_seconds,
        "throughput_bytes_per_second": report and report.transferred_bytes / report.duration_seconds,
        "throttled_count": report and report.throttled_count,
        "failed_count": report and report.failed_count,
        "failure": failure and failure.reason,
        "stderr_tail": failure and failure.stderr_tail,
    }


def tune(
    task: Task,
    state: StateFile,
    run: Run,
    clock: Clock,
    *,
    starting: Callable[[ProbePlan[S3UploadSetting], int], None],
    ended: Callable[[Trial], None],
) -> Tuning:
    """Try until there are as many trials as the task wants, then advise.

    Ctrl-C ends the running trial, which is forgotten, and leads to the advice as well. Raises TuningError when
    nothing worked.
    """
    was_interrupted = False
    try:
        while len(state.trials) < task.probe_count:
            plan = propose(task, state.trials)
            starting(plan, len(state.trials))
            state.append(_carry_out(plan, len(state.trials), run, clock))
            ended(state.trials[-1])
            _give_up_on_a_broken_command(state.trials)
    except KeyboardInterrupt:
        was_interrupted = True
    return Tuning(
        task=task,
        trials=state.trials,
        recommendation=advise(task, state.trials, clock),
        was_interrupted=was_interrupted,
    )


def propose(task: Task, trials: Sequence[Trial]) -> ProbePlan[S3UploadSetting]:
    """What to try next; the same trials and seed always lead to the same proposal."""
    avoided, too_demanding = _no_go_areas(trials, is_advice=False)
    model = ranged_model(task.ranges, avoided=avoided, too_demanding=too_demanding)
    conclusion: Conclusion[S3UploadSetting] = deliberate(
        model, _question(task, trials, next_context=task.context)
    )
    assert conclusion.plan is not None, "nothing is unaffordable here"
    return conclusion.plan


def advise(task: Task, trials: Sequence[Trial], clock: Clock) -> Recommendation[S3UploadSetting]:
    """The advice after these trials. Raises TuningError when none of them worked."""
    if not any(trial.report for trial in trials):
        raise TuningError("no trial was finished, so there is nothing to advise")
    avoided, too_demanding = _no_go_areas(trials, is_advice=True)
    model = ranged_model(task.ranges, avoided=avoided, too_demanding=too_demanding)
    conclusion: Conclusion[S3UploadSetting] = deliberate(model, _question(task, trials, next_context=None))
    return recommend(
        model,
        conclusion.fit,
        task.context,
        task.demand,
        previous=None,
        now=clock.now(),
        validity_seconds=_VALIDITY_SECONDS,
    )


def _question(
    task: Task, trials: Sequence[Trial], *, next_context: Context | None
) -> Question[S3UploadSetting]:
    return Question(
        place=task.context.place,
        observations=tuple(_observation(task, trial, trial.report) for trial in trials if trial.report),
        prior=None,
        next_context=next_context,
        cost_max=_UNBOUNDED,
        demand=task.demand,
        seed=task.seed + len(trials),  # also a failed trial moves chance on
    )


def _observation(task: Task, trial: Trial, report: Report) -> Observation[S3UploadSetting]:
    transferred_bytes = round(report.transferred_bytes)
    return Observation(
        context=task.context,
        setting=trial.setting,
        started_at=trial.started_at,
        duration_seconds=report.duration_seconds,
        transferred_bytes=transferred_bytes,
        request_count=ceil(transferred_bytes / trial.setting.part_size_bytes) + report.throttled_count,
        throttled_count=report.throttled_count,
        failed_count=report.failed_count,
        origin=Origin.APPLICATION,
        # The name of the client stays that of the reference: a fit predicts for the reference client and takes any
        # other to be off by a factor, but here the client that is measured is the one that is advised.
    )


def _carry_out(plan: ProbePlan[S3UploadSetting], probe_index: int, run: Run, clock: Clock) -> Trial:
    started_at = clock.now()
    outcome = run(
        {
            "thread_count": plan.setting.thread_count,
            "part_size_bytes": plan.setting.part_size_bytes,
            "object_size_bytes": plan.context.payload_size_bytes,
            "probe_index": probe_index,
        }
    )
    return Trial(
        probe_index=probe_index,
        setting=plan.setting,
        reason=plan.reason.value,
        started_at=started_at,
        report=outcome if isinstance(outcome, Report) else None,
        failure=outcome if isinstance(outcome, Failure) else None,
    )


def _give_up_on_a_broken_command(trials: Sequence[Trial]) -> None:
    if len(trials) < GIVE_UP_AFTER or any(trial.report for trial in trials):
        return
    failure = trials[-1].failure
    assert failure is not None
    said = f"\nIts standard error ends:\n{failure.stderr_tail}" if failure.stderr_tail else ""
    raise TuningError(
        f"the command failed {len(trials)} times in a row and never worked: {failure.reason}. "
        f"Try it by hand with one line of JSON on its standard input.{said}"
    )


def _no_go_areas(
    trials: Sequence[Trial], *, is_advice: bool
) -> tuple[frozenset[S3UploadSetting], frozenset[S3UploadSetting]]:
    """Settings to avoid, and settings beyond which nothing is tried or advised, as failures suggest.

    Whatever fails (memory, connections) fails the more with more threads or larger parts, until one that is as
    demanding works. A time-out says only that this setting is too slow. After one failure a setting is given a rest
    and another chance; it is not advised until it has worked.
    """
    worked = [trial.setting for trial in trials if trial.report]
    failed = [trial for trial in trials if trial.failure]
    recent = {trial.setting for trial in trials[-_PAUSE:] if trial.failure}
    counts = {x: sum(trial.setting == x for trial in failed) for x in {trial.setting for trial in failed}}
    closed = {x for x, count in counts.items() if is_advice or count > 1 or x in recent}
    slow = {trial.setting for trial in failed if trial.failure and trial.failure.is_timeout}
    too_demanding = {x for x in closed - slow if not any(is_as_demanding(other, x) for other in worked)}
    return frozenset(closed - set(worked)), frozenset(too_demanding)
