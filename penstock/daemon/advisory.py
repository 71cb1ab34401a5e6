"""Knows how to answer the socket's questions from the board, the conductor and the ledger, without waiting for fits."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.api.advisor import NoRoomError, RefusedError
from penstock.api.leases import lease_documents
from penstock.api.wire import Question, Snapshot, recommendation_document
from penstock.daemon.assembly import App
from penstock.daemon.board import telling_of_fleet
from penstock.daemon.cycle.conductor import Cycle
from penstock.daemon.heard.audit import Audit
from penstock.daemon.quiet_hours import quiet_until
from penstock.daemon.schedule import fresh_report_count
from penstock.daemon.spending.forecast import Forecast, scarcity, shown_cost, shown_usd
from penstock.daemon.troubles import Trouble
from penstock.daemon.trust import Door
from penstock.daemon.yielding.harm_watch import HarmWatch
from penstock.models.model import Fit, is_current
from penstock.operations.sqs.delivery import DELIVERY
from penstock.operations.table import OPERATIONS
from penstock.optimizer.recommendation import alternatives
from penstock.optimizer.verdict import CHANGE_SUSPECTED, Verdict, sentence
from penstock.processes import package
from penstock.units import format_bytes
from penstock.vocabulary import Context, Demand, Observation, Place, Recommendation, Setting, setting_values

ALTERNATIVE_COUNT = 8
CYCLE_COUNT_SHOWN = 20
# Of spending: the clock hours that the last 24 hours touch.
_COUNTED_SECONDS = 25 * 3600.0
REMOVAL_SECONDS_MAX = 60.0  # then the request is answered, done or not


@dataclass(kw_only=True, eq=False)
class Advisory:
    """The `penstock.api.advisor.Advisor` of a running daemon."""

    app: App
    harm_watch: HarmWatch
    audit: Audit
    take_up: Callable[[], Awaitable[str]]  # reads the configuration again

    def __post_init__(self) -> None:
        self._conductor = self.app.conductor
        self._clock = self._conductor.clock
        self._door = Door(self._clock, self._known_places)
        self._report_counts = {"kept": 0, "refused": 0}  # since the start

    @property
    def probed_operations(self) -> Collection[str]:
        return {context.operation for context in self._conductor.contexts}

    # --- Reading

    def snapshot(self) -> Snapshot:
        return self.app.board.snapshot(self._clock.now())

    def recommend(self, question: Question) -> Recommendation[Any]:
        context, demand = question.context(self.app.home), self._beside_neighbours(question)
        answer = self.app.board.recommend(context, demand, self._clock.now())
        return _telling_of_neighbours(answer, question.demand)

    def assess(
        self, question: Question, setting: Setting, *, host_fraction: float | None = None
    ) -> Recommendation[Any]:
        """What a setting chosen elsewhere is expected to do for this question, as a recommendation.

        `host_fraction` is a lease's part of the host, and so of this host's part of a limit shared in the fleet.
        """
        context, demand = question.context(self.app.home), self._beside_neighbours(question)
        answer = self.app.board.assess(context, demand, setting, self._clock.now())
        share = self._conductor.limits.share(question.operation) if self._conductor.limits else None
        if share is not None and host_fraction is not None:
            answer = telling_of_fleet(answer, share, host_fraction)
        return _telling_of_neighbours(answer, question.demand)

    def _beside_neighbours(self, question: Question) -> Demand:
        """The demand, in the sustained regime where the host's burst credits do not suffice for other leases, too."""
        context, demand = question.context(self.app.home), question.demand
        fit, others = self.app.board.fit(context.place), self.app.leases.claimed_bytes(question)
        model = OPERATIONS[context.operation].model
        if not others or fit is None or not is_current(fit, model):
            return demand
        regime = model.regime(fit, context, demand, beside_bytes=others)
        is_kept = regime is model.regime(fit, context, demand)
        return demand if is_kept else dataclasses.replace(demand, regime=regime)

    def explain(self, question: Question) -> Mapping[str, Any]:
        context, recommendation = question.context(self.app.home), self.recommend(question)
        fit = self.app.board.fit(context.place)
        return {
            "recommendation": recommendation_document(recommendation, generation=self.app.board.generation),
            "fit": None if fit is None else _fit_document(fit),
            "alternatives": [] if fit is None else self._alternatives(fit, recommendation),
            "fleet": [
                limit
                for limit in (self._conductor.limits.document() if self._conductor.limits else [])
                if context.operation in limit["operations"]
            ],
            "queues": [
                backlog.document()
                for backlog in self.app.backlogs.backlogs(context.place.region)
                if context.operation == DELIVERY.name
            ],
        }

    def status(self) -> Mapping[str, Any]:
        now, ledger, coming = self._clock.now(), self._conductor.ledger, self.app.forecast()
        cycles, spent = list(self._conductor.cycles), ledger.spent(now)
        return {
            "version": package.begun().version,
            "region": self.app.home.region,
            "instance_type": self.app.home.instance_type,
            "started_at": self.app.started_at,
            "activity": self._conductor.activity,
            "next_probe_due_at": self._next_due_at(now),
            "generation": self.app.board.generation,
            "trouble": "; ".join(f"{t.subject}: {t.sentence}" for t in self._troubles()) or None,
            "troubles": self.troubles(),
            "leftover_count": self._conductor.sweeper.count,
            "leftover_oldest_age_seconds": self._conductor.sweeper.oldest_age_seconds,
            "leftover_remark": self._conductor.sweeper.remark,
            "budget_per_day": dataclasses.asdict(ledger.limit) | shown_cost(ledger.limit),
            "spent_per_day": dataclasses.asdict(spent) | shown_cost(spent),
            "costs": self._costs(coming, now),
            "cost_remark": scarcity(coming),
            "host": self.app.host_watch.document(now),
            "harm": self.harm_watch.document(),
            "contexts": [
                {
                    "operation": standing.context.operation,
                    "region": standing.context.place.region,
                    "service_class": standing.context.place.service_class,
                    "payload_size_bytes": standing.context.payload_size_bytes,
                    "observation_count": standing.observation_count,
                    "fresh_report_count": fresh_report_count(standing, now),
                    "attempt_count": standing.attempt_count,
                    "last_attempt_at": standing.last_attempt_at,
                    "postponed_until": standing.postponed_until,
                    "verdict": self._verdict(standing.context, now),
                }
                for standing in self._conductor.standings
            ],
            "leases": lease_documents(self.app.leases),
            "report_kept_count": self._report_counts["kept"],
            "report_refused_count": self._report_counts["refused"],
            "queues": [backlog.document() for backlog in self.app.backlogs.backlogs()],
            "fleet": self._conductor.fleet.document() if self._conductor.fleet else None,
            "shared_limits": self._conductor.limits.document() if self._conductor.limits else [],
            "cycle_count": self._conductor.cycle_count,
            "cycles": [cycle_document(cycle) for cycle in cycles[-CYCLE_COUNT_SHOWN:]],
        }

    def _next_due_at(self, now: datetime) -> datetime | None:
        """When the next probe comes: one that is due in quiet hours waits for their end."""
        due_at, ends_at = self._conductor.next_due_at, quiet_until(self.app.host_watch.quiet_hours, now)
        return max(due_at, ends_at) if due_at and ends_at else due_at

    def _costs(self, coming: Sequence[Forecast], now: datetime) -> dict[str, Any]:
        """By operation: what it cost in the last 24 hours, what it may cost, and its forecast."""
        ledger = self._conductor.ledger
        documents = {forecast.operation: forecast.document() for forecast in coming}
        return {
            operation: {
                "spent": shown_cost(ledger.spent(now, operation)),
                "usd_per_day": shown_usd(ledger.own_limit(operation).usd),
                **documents.get(operation, {}),
            }
            for operation in OPERATIONS
        }

    def _verdict(self, context: Context, now: datetime) -> str:
        """The advice and its gain in one sentence, worded as in the report.

        The cost of the operation is part of it only where one context has all of it: with several contexts, each would
        claim the cost of all.
        """
        made = self.app.board.recommend(context, Demand(), now)
        sharing = [s for s in self._conductor.standings if s.context.operation == context.operation]
        spent = self._conductor.ledger.spent(now, context.operation).usd
        over, fit = made.gain_over_default, self.app.board.fit(context.place)
        return sentence(
            Verdict(
                setting_words=OPERATIONS[context.operation].words.setting_in_full(
                    setting_values(made.setting), context.payload_size_bytes
                ),
                basis=made.basis,
                bottleneck=made.bottleneck,
                gains={"boto3": over} if over else {},
                notes=(CHANGE_SUSPECTED,) if fit is not None and fit.suspicion.is_raised else (),
                usd=spent if len(sharing) == 1 else None,
                usd_period_seconds=_COUNTED_SECONDS,
                expired_at=made.expires_at if made.has_expired(now) else None,
            )
        )

    def troubles(self) -> Sequence[Mapping[str, Any]]:
        return [trouble.document() for trouble in self._troubles()]

    def _troubles(self) -> Sequence[Trouble]:
        found = self._conductor.troubles.now()
        trouble = self.app.store.trouble
        return found if trouble is None else (Trouble(name="database", sentence=trouble), *found)

    def leftovers(self) -> Mapping[str, Any]:
        return self._conductor.sweeper.document()

    def clients(self) -> Mapping[str, Any]:
        return self.audit.document()

    def metrics(self) -> bytes:
        try:
            from penstock.daemon.metrics import exposition  # late: 5 MB, and perhaps nobody ever scrapes
        except ImportError as of_another:  # another version was installed over the running one
            raise RefusedError(package.trouble() or str(of_another)) from of_another
        return exposition(
            self._conductor,
            audit=self.audit,
            backlogs=self.app.backlogs.backlogs(),
            leases=self.app.leases,
            recommendations=self.snapshot().recommendations,
            report_counts=self._report_counts,
            troubles=self._troubles(),
            now=self._clock.now(),
        )

    # --- Acting

    async def record(
        self, reports: Sequence[Observation[Any]], *, uid: int, process_id: int
    ) -> list[str | None]:
        """Keep what this process of this user measured, and learn from it soon; each report is judged by itself.

        Raises NoRoomError when the disk is in trouble and too many reports wait in memory already.
        """
        if (trouble := await self.app.store.why_no_room(len(reports))) is not None:
            self._report_counts["refused"] += len(reports)
            raise NoRoomError(f"reports cannot be kept now: {trouble}")
        signed = [dataclasses.replace(report, reporter_uid=uid) for report in reports]
        answers = await asyncio.gather(*(self._record_one(report, uid) for report in signed))
        kept = [report for report, refusal in zip(signed, answers, strict=True) if refusal is None]
        self._report_counts["kept"] += len(kept)
        self._report_counts["refused"] += len(reports) - len(kept)
        if kept:
            self._conductor.note_reports(kept)
            self.app.backlogs.note_reports(kept, process_id)
        return answers

    async def _record_one(self, report: Observation[Any], uid: int) -> str | None:
        refusal = self._door.refusal(report, uid)
        if refusal is not None:
            return refusal
        try:
            await self.app.store.add_observation(report)
        except ValueError as trouble:
            return f"it cannot be kept: {trouble}"
        return None

    def _known_places(self) -> set[Place]:
        return {context.place for context in self._conductor.contexts} | {
            f.place for f in self.app.board.fits()
        }

    async def request_probe(self, operation: str, payload_size_bytes: int) -> str:
        watched = [c for c in self._conductor.contexts if c.operation == operation]
        matches = [c for c in watched if c.payload_size_bytes == payload_size_bytes]
        if not matches:
            sizes = ", ".join(format_bytes(size) for size in sorted({c.payload_size_bytes for c in watched}))
            sizes = sizes or "none: its probes are not enabled"
            raise RefusedError(
                f"{operation} is not probed at {format_bytes(payload_size_bytes)} here; "
                f"the configured sizes are {sizes}"
            )
        asked = f"a probe of {operation} at {format_bytes(payload_size_bytes)}"
        refusals = {context: self._conductor.refusal(context) for context in matches}
        if all(refusals.values()):
            raise RefusedError(f"{asked} cannot be made now: {refusals[matches[0]]}")
        for context in matches:  # one for each region
            self._conductor.request(context)
        return f"{asked} comes next, within the budget"

    async def remove_leftovers(self, *, forgets: bool = False) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(REMOVAL_SECONDS_MAX):
                summary = await asyncio.shield(self._conductor.request_sweep())
        except TimeoutError:
            raise RefusedError(
                f"the daemon was busy for {REMOVAL_SECONDS_MAX:g} s ({self._conductor.activity}); "
                "it tries again to remove what is left right after that"
            ) from None
        return await self._conductor.sweeper.concluded(summary.removed, forgets=forgets)

    async def believe_clock(self) -> str:
        return self._conductor.believe_clock()

    async def reload(self) -> str:
        return await self.take_up()

    # --- Documents

    def _alternatives(self, fit: Fit, recommendation: Recommendation[Any]) -> list[dict[str, Any]]:
        """The advised setting, then alternatives to it, each with its expected value and what it would take.

        The values are predictions; the choice weighs means, which are several times larger where little is known.
        """
        context = recommendation.context
        model, demand = (
            OPERATIONS[context.operation].model,
            self.app.board.within_limits(context, recommendation.demand),
        )
        settings, appraisal = alternatives(
            model, fit, context, demand, advised=recommendation.setting, count_max=ALTERNATIVE_COUNT
        )
        predicted = [model.predict(fit, context, setting, demand) for setting in settings]
        latencies = [each.get("latency_seconds") for each in predicted]
        return [
            {
                "setting": setting_values(setting),
                model.value_metric: predicted[i][model.value_metric].expected,
                "latency_seconds": alone.expected
                if (alone := latencies[i])
                else float(appraisal.latency_seconds[i]),
                "connection_count": float(appraisal.connection_count[i]),
                "memory_bytes": float(appraisal.memory_bytes[i]),
            }
            for i, setting in enumerate(settings)
        ]


def _telling_of_neighbours(answer: Recommendation[Any], asked: Demand) -> Recommendation[Any]:
    """The answer with the demand as it was asked, and a sentence where other leases changed its regime."""
    if answer.demand == asked:
        return answer
    why = "This advice is for what the host sustains: other lease holders need its burst credits as well."
    return dataclasses.replace(answer, demand=asked, explanation=f"{answer.explanation} {why}")


def _fit_document(fit: Fit) -> dict[str, Any]:
    return {
        "parameters": {name: dataclasses.asdict(estimate) for name, estimate in fit.parameters.items()},
        "observation_count": fit.observation_count,
        "newest_observation_at": fit.newest_observation_at,
        "residual_fraction_p50": fit.residual_fraction_p50,
        "is_off_model": fit.is_off_model,
        "drift_count": fit.drift_count,
    }


def cycle_document(cycle: Cycle) -> dict[str, Any]:
    """What a cycle did, as JSON values and dates."""
    observed = cycle.outcome if isinstance(cycle.outcome, Observation) else None
    return {
        "began_at": cycle.began_at,
        "at": cycle.at,
        "operation": cycle.context.operation,
        "region": cycle.context.place.region,
        "payload_size_bytes": cycle.context.payload_size_bytes,
        "sentence": cycle.sentence,
        "is_conclusive": observed is not None,
        "probe": observed and _probe_document(observed),
    }


def _probe_document(observed: Observation[Any]) -> dict[str, Any]:
    return {
        "began_at": observed.started_at,
        "duration_seconds": observed.duration_seconds,
        "setting": setting_values(observed.setting),
        "transferred_bytes": observed.transferred_bytes,
        "request_count": observed.request_count,
        "throttled_count": observed.throttled_count,
        "failed_count": observed.failed_count,
    }
