"""Knows how any client is tuned: propose a setting, run the client, learn, propose again, and finally advise.

It uses the daemon's optimizer in this process: while no command runs, there is no measurement that a fit could disturb.
The file of trials is the whole history, so that an interrupted tuning continues as if nothing had happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

from penstock.api.wire import recommendation_document
from penstock.clock import Clock
from penstock.models.model import PerformanceModel
from penstock.models.s3.ranges import Ranges, TransferSetting, ranged_model
from penstock.operations.operation import Operation
from penstock.operations.s3.upload import UPLOAD
from penstock.optimizer.deliberation import Case, deliberate
from penstock.optimizer.recommendation import recommend
from penstock.processes.interruption import put_up_with_one
from penstock.tuning.command import Failure, Report, contradiction, doubt
from penstock.tuning.limits import Limit, most_to_try, suspected_limit
from penstock.tuning.state import StateFile, Trial, TuningStateError
from penstock.vocabulary import UNKNOWN, Context, Cost, Demand, Observation, Place, ProbePlan, Recommendation

PROBE_COUNT = 12  # by then the advice is within a few percent of the best, and more trials change little
GIVE_UP_AFTER = 3  # failures in a row before anything worked: the command is broken, not the setting
_PAUSE = 2  # trials for which a setting is avoided after a single failure
_VALIDITY_SECONDS = 86400.0

Run = Callable[[dict[str, int]], Report | Failure]
"""Runs one proposal: `penstock.tuning.command.run_command`, or a fake."""


class TuningError(RuntimeError):
    """Nothing was learned; the message says why, and includes the command's own output."""

    def __init__(
        self, message: str, task: Task, trials: Sequence[Trial], *, was_interrupted: bool = False
    ) -> None:
        super().__init__(message)
        self.was_interrupted = was_interrupted
        self._task = task
        self._trials = tuple(trials)

    def document(self) -> dict[str, Any]:
        """As JSON values: like a tuning's document, with the trouble and without advice."""
        return {"recommendation": None, "trouble": str(self)} | _trials_document(
            self._task, self._trials, was_interrupted=self.was_interrupted
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to tune, and how."""

    object_size_bytes: int
    ranges: Ranges
    demand: Demand
    probe_count: int = PROBE_COUNT
    seed: int = 0
    region: str = UNKNOWN
    instance_type: str = UNKNOWN
    # Any: a setting of uploads or downloads.
    row: Operation[Any, Any] = UPLOAD

    @property
    def unsplit_bytes(self) -> int:
        """An object up to this size is sent whole, and many such objects move at a time."""
        return ranged_model(self.ranges).direction.unsplit_bytes

    @property
    def context(self) -> Context:
        place = Place(operation=self.row.name, region=self.region, instance_type=self.instance_type)
        return Context(place=place, payload_size_bytes=self.object_size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The result."""

    task: Task
    trials: tuple[Trial, ...]
    recommendation: Recommendation[TransferSetting]
    was_interrupted: bool
    trouble: str | None = None  # what ended it early, other than an interruption
    limit: Limit | None = None

    def document(self) -> dict[str, Any]:
        advice = self.recommendation
        throughput = advice.prediction["throughput_bytes_per_second"]
        interval = {"low": throughput.low, "high": throughput.high}
        return {
            "recommendation": {
                **asdict(advice.setting),
                "predicted_bytes_per_second": throughput.expected,
                "interval": interval,
                "derived": recommendation_document(advice, generation=0)["derived"],
            },
            "interval": interval,
            "basis": advice.basis.value,
            "bottleneck": advice.bottleneck,
            "explanation": advice.explanation,
            "inferred_limit": self.limit and self.limit.document(),
            "trouble": self.trouble,
        } | _trials_document(self.task, self.trials, was_interrupted=self.was_interrupted)


def _trials_document(task: Task, trials: Sequence[Trial], *, was_interrupted: bool) -> dict[str, Any]:
    return {
        "object_size_bytes": task.object_size_bytes,
        "ranges": asdict(task.ranges),
        "objective": task.demand.objective.value,
        "regime": task.demand.regime.value,
        "probe_count": len(trials),
        "failed_probe_count": sum(trial.failure is not None for trial in trials),
        "was_interrupted": was_interrupted,
        # The first doubt about a report.
        "warning": next((found for trial in trials if (found := doubt_about(trial))), None),
        "trials": [_trial_document(trial) for trial in trials],
    }


def doubt_about(trial: Trial) -> str | None:
    """Why a trial's report is implausible; None if it is not."""
    if trial.report is None or trial.took_seconds is None:
        return None
    return doubt(trial.report, took_seconds=trial.took_seconds)


def _trial_document(trial: Trial) -> dict[str, Any]:
    report, failure = trial.report, trial.failure
    return {
        "probe_index": trial.probe_index,
        **asdict(trial.setting),
        "reason": trial.reason,
        "started_at": trial.started_at,
        "transferred_bytes": report and round(report.transferred_bytes),
        "duration_seconds": report and report.duration_seconds,
        "throughput_bytes_per_second": report and report.transferred_bytes / report.duration_seconds,
        "steady_throughput_bytes_per_second": report and report.steady_throughput_bytes_per_second,
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
    starting: Callable[[ProbePlan[TransferSetting], int], None],
    ended: Callable[[Trial], None],
) -> Tuning:
    """Run trials until there are as many as the task wants, then advise.

    Ctrl-C ends the running trial, which is forgotten, and leads to the advice; so does a trial that cannot be stored,
    which counts. Raises TuningError if nothing worked; the error knows whether it was interrupted.
    """
    was_interrupted, trouble = False, None
    try:
        while len(state.trials) < task.probe_count:
            plan = propose(task, state.trials)
            starting(plan, len(state.trials))
            state.append(_carry_out(task, plan, len(state.trials), run, clock))
            ended(state.trials[-1])
            _give_up_on_a_broken_command(task, state.trials)
    except KeyboardInterrupt:
        was_interrupted = True
    except TuningStateError as unwritten:
        ended(state.trials[-1])
        trouble = str(unwritten)
    if not any(trial.report for trial in state.trials):
        raise _nothing_learned(task, state.trials, trouble, was_interrupted=was_interrupted)
    with put_up_with_one() as interruptions:  # Ctrl-C should lead to this advice, which takes a second
        recommendation = advise(task, state.trials, clock)
    return Tuning(
        task=task,
        trials=state.trials,
        recommendation=recommendation,
        was_interrupted=was_interrupted or bool(interruptions),
        trouble=trouble,
        limit=_limit(task, state.trials),
    )


def propose(task: Task, trials: Sequence[Trial]) -> ProbePlan[TransferSetting]:
    """What to try next; the same trials and seed always give the same proposal."""
    model, demand = _possible(task, trials, is_advice=False)
    plan: ProbePlan[TransferSetting] | None
    plan = deliberate(model, _case(task, demand, trials, task.context)).plan
    assert plan is not None, "nothing is unaffordable here"
    return plan


def advise(task: Task, trials: Sequence[Trial], clock: Clock) -> Recommendation[TransferSetting]:
    """The advice after these trials, at least one of which worked."""
    model, demand = _possible(task, trials, is_advice=True)
    return recommend(
        model,
        deliberate(model, _case(task, demand, trials, None)).fit,
        task.context,
        demand,
        previous=None,
        now=clock.now(),
        validity_seconds=_VALIDITY_SECONDS,
    )


def _case(
    task: Task, demand: Demand, trials: Sequence[Trial], next_context: Context | None
) -> Case[TransferSetting]:
    shortest_seconds = min((trial.report.duration_seconds for trial in trials if trial.report), default=0.0)
    return Case(
        place=task.context.place,
        observations=tuple(_observations(task, trials)),
        next_context=next_context,
        cost_max=Cost(duration_seconds=shortest_seconds),  # a price, not a limit: slow trials must pay
        demand=demand,
        seed=task.seed + len(trials),  # a failed trial advances the seed, too
        asks_again=True,
    )


def _observations(task: Task, trials: Sequence[Trial]) -> Iterator[Observation[TransferSetting]]:
    """The trials that worked, with ascending dates in the order of the trials, even if the clock was changed."""
    newest_at = datetime.min.replace(tzinfo=UTC)
    for trial in trials:
        if trial.report is not None:
            newest_at = max(trial.started_at, newest_at + timedelta(microseconds=1))
            yield _observation(task, trial.setting, trial.report, newest_at)


def _observation(
    task: Task, setting: TransferSetting, report: Report, started_at: datetime
) -> Observation[TransferSetting]:
    transferred_bytes = round(report.transferred_bytes)
    request_bytes = min(setting.request_size_bytes, task.object_size_bytes)
    steady = report.steady_throughput_bytes_per_second
    return Observation(
        context=task.context,
        setting=setting,
        started_at=started_at,
        duration_seconds=report.duration_seconds,
        transferred_bytes=transferred_bytes,
        request_count=ceil(transferred_bytes / request_bytes) + report.throttled_count,
        throttled_count=report.throttled_count,
        failed_count=report.failed_count,
        measures={} if steady is None else {"steady_throughput_bytes_per_second": steady},
        # Origin and client stay those of a probe: this is penstock's own measurement, and a fit predicts for the client
        # that probes, which here is the client that is advised.
    )


def _carry_out(
    task: Task, plan: ProbePlan[TransferSetting], probe_index: int, run: Run, clock: Clock
) -> Trial:
    started_at, began_seconds = clock.now(), clock.monotonic_seconds()
    where = {"object_size_bytes": plan.context.payload_size_bytes, "probe_index": probe_index}
    outcome = run({**asdict(plan.setting), **where})
    if isinstance(outcome, Report):
        wrong = contradiction(outcome, task.object_size_bytes, task.unsplit_bytes)
        outcome = Failure(reason=wrong, is_contradiction=True) if wrong else outcome
    return Trial(
        probe_index=probe_index,
        setting=plan.setting,
        reason=plan.reason.value,
        started_at=started_at,
        took_seconds=clock.monotonic_seconds() - began_seconds,
        report=outcome if isinstance(outcome, Report) else None,
        failure=outcome if isinstance(outcome, Failure) else None,
    )


def _give_up_on_a_broken_command(task: Task, trials: Sequence[Trial]) -> None:
    failure = trials[-1].failure
    if failure is None or any(trial.report for trial in trials):
        return
    if failure.is_no_command:
        raise TuningError(
            f"the command cannot be run: {failure.reason}. Check its name and the PATH.{_said(failure)}",
            task,
            trials,
        )
    if failure.is_contradiction:  # the next report would be wrong in the same way
        raise TuningError(f"what the command reports cannot be used: {failure.reason}", task, trials)
    if len(trials) >= GIVE_UP_AFTER:
        raise TuningError(
            f"the command failed {len(trials)} times in a row and never worked: {_why(trials)}", task, trials
        )


def _nothing_learned(
    task: Task, trials: Sequence[Trial], trouble: str | None, *, was_interrupted: bool
) -> TuningError:
    ended = "interrupted: " if was_interrupted else f"{trouble}; " if trouble else ""
    why = f"; the last one failed: {_why(trials)}" if trials else ""
    message = f"{ended}no trial was finished, so there is nothing to advise{why}"
    return TuningError(message, task, trials, was_interrupted=was_interrupted)


def _why(trials: Sequence[Trial]) -> str:
    """Why the last trial failed, and what to do if all did."""
    failure = trials[-1].failure
    assert failure is not None
    advice = "Try it by hand with one line of JSON on its standard input."
    if failure.is_timeout:
        advice = f"Give it longer with --timeout, or a smaller --object-size. {advice}"
    return f"{failure.reason}. {advice}{_said(failure)}"


def _said(failure: Failure) -> str:
    return f"\nIts standard error ends:\n{failure.stderr_tail}" if failure.stderr_tail else ""


def _possible(
    task: Task, trials: Sequence[Trial], *, is_advice: bool
) -> tuple[PerformanceModel[Any], Demand]:  # Any: of uploads, or of downloads
    """The model and demand, narrowed from the task to what failures suggest that the client can do.

    After one failure a setting is avoided for a while, and tried once more; it is not advised until it has worked. A
    time-out means no more than that. Other failures may suggest a limit; advice stays within what worked below it.
    """
    ranges, demand = task.ranges, task.demand
    if (limit := _limit(task, trials)) is not None:
        most = limit.worked_max if is_advice else most_to_try(limit, trials, task.object_size_bytes)
        ranges, demand = _within(task, limit, most)
    return ranged_model(ranges, _avoided(trials, is_advice=is_advice)), demand


def _avoided(trials: Sequence[Trial], *, is_advice: bool) -> frozenset[TransferSetting]:
    worked = {trial.setting for trial in trials if trial.report}
    recent = [trial.setting for trial in trials[-_PAUSE:] if trial.failure]
    counts = Counter(trial.setting for trial in trials if trial.failure)
    return frozenset(x for x, count in counts.items() if is_advice or count > 1 or x in recent) - worked


def _limit(task: Task, trials: Sequence[Trial]) -> Limit | None:
    return suspected_limit(trials, task.object_size_bytes, thread_count_min=task.ranges.thread_count_min)


def _within(task: Task, limit: Limit, most: int | None) -> tuple[Ranges, Demand]:
    """The ranges with a limit on threads, or the demand with one on memory that is never impossible to keep."""
    ranges, demand = task.ranges, task.demand
    if most is None:
        return ranges, demand
    if limit.name == "memory_bytes":
        possible = max(most, ranges.memory_bytes_least(task.object_size_bytes))
        return ranges, replace(demand, memory_bytes_max=min(possible, demand.memory_bytes_max or possible))
    threads = max(min(most, ranges.thread_count_max), ranges.thread_count_min)
    return replace(ranges, thread_count_max=threads), demand
