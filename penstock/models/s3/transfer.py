"""Knows the model of transfers to and from S3: what a setting will do, and what follows from it for clients.

The law itself is in `law`, what observations say about it in `observed` and `evidence`, how it is learned in
`learning`, and the settings to choose from in `choices`. What is legal, what is worth trying and what it costs depends
on the direction, and is in `upload` and `download`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

import numpy as np

from penstock.models import burst
from penstock.models.inference.draws import quantiles
from penstock.models.inference.misfit import MISFIT_MEASUREMENT_COUNT_MIN
from penstock.models.model import THROUGHPUT, Appraisal, Array, Belief, Fit, is_as_now
from penstock.models.s3 import answers, remarks
from penstock.models.s3.choices import S3Choices, held_bytes
from penstock.models.s3.credits import credits_left, credits_taken
from penstock.models.s3.directions import (
    Direction,
    S3SettingT,
    burst_ceiling,
    host_ceiling,
    in_flight_count,
    kindred,
    planned_transfers,
)
from penstock.models.s3.lateness import lateness
from penstock.models.s3.law import PARAMETERS, Transfers
from penstock.models.s3.learning import learn
from penstock.models.s3.observed import connections_used, evidence_of, moved, object_seconds
from penstock.models.s3.patience import patience, refused_late
from penstock.models.s3.posterior import FIT_STATE_VERSION, Posterior
from penstock.models.s3.studies import studies
from penstock.models.study import Study
from penstock.vocabulary import (
    UNKNOWN,
    Access,
    Context,
    Cost,
    Demand,
    Estimate,
    Objective,
    Observation,
    Obstacle,
    Place,
    Prediction,
    Regime,
    Tariff,
    doubled,
)

_OBSERVATION_COUNT_MAX = 64  # the newest; older ones add little
_PROBE_WAVES = 3
_WAVE_ROOM = 1.25  # times the expected time of one wave of parts
_PROBE_SECONDS = 2.0
# How many times its expected duration a probe may take, so that a dip does not end it; or its duration in a place as
# slow as it may well be: if a ceiling may be near, draws without one dominate the mean.
_DIP_PATIENCE, _SLOW_PATIENCE = 5.0, 2.0
_SLOW_QUANTILE = 0.05
_BURST_QUANTILE = 0.95  # of the draws of a rate, so that a probe's use of credits is not underestimated
_CREDIT_SHARE_MAX = 0.5  # of the credits left: a transfer that takes no more can burst
_REPORT_ROOM = 1.125  # times the deviation of a probe, because reports have dips, and the law a misfit
_CRT_GBPS_PER_CONNECTION = 0.4  # the AWS CRT opens one connection for so much of its target, in Gbit/s


@dataclass(frozen=True, slots=True, kw_only=True)
class S3TransferModel(S3Choices[S3SettingT]):
    """The law with priors, a Gaussian process on its residuals, and change detection."""

    @property
    @abstractmethod
    def operation(self) -> str:
        """The key in the table of operations."""

    @abstractmethod
    def requests_around(self, context: Context, setting: S3SettingT, part_count: int) -> int:
        """The most requests that a probe makes besides those that carry its bytes."""

    @abstractmethod
    def usd(self, tariff: Tariff, *, request_count: int, transferred_bytes: float) -> float:
        """The most that these requests of a probe may cost, in dollars."""

    def within(self, fit: Fit, demand: Demand) -> Demand:
        """The demand with the bandwidth limits that follow from it."""
        del fit
        return demand

    def regime(self, fit: Fit, context: Context, demand: Demand, *, beside_bytes: int = 0) -> Regime:
        """BURST if the bytes moved take at most half of the credits left after the last measurement, else SUSTAINED.

        `beside_bytes`, moved at the same time, take credits as well. A stream without an end outlasts all credits.
        """
        limits, moved = burst_ceiling(context.place), self._moved_bytes(context, demand)
        if demand.regime is not Regime.AUTO:
            return demand.regime
        if limits is None or moved is None:
            return Regime.SUSTAINED
        left = fit.state.get("credit_bytes") or 0.0
        spent = limits.burst_credits_spent(moved + beside_bytes)
        return Regime.BURST if spent <= _CREDIT_SHARE_MAX * left else Regime.SUSTAINED

    def _settled(self, fit: Fit, context: Context, demand: Demand) -> Demand:
        """The demand with one of the two regimes, its bandwidth limits, and a memory limit only where it matters."""
        memory = demand.memory_bytes_max if self.direction.passes_host else None
        regime = self.regime(fit, context, demand)
        settled = self.within(fit, replace(demand, regime=regime, memory_bytes_max=memory))
        lasting, stated = self._lasting_rate(fit, context, demand), settled.bandwidth_bytes_per_second_max
        if lasting is None:
            return settled
        return replace(settled, bandwidth_bytes_per_second_max=min(stated or lasting, lasting))

    def _lasting_rate(self, fit: Fit, context: Context, demand: Demand) -> float | None:
        """The average rate in bytes per second of a transfer that is refused midway; None if it is not."""
        told, moved = fit.state.get("patience"), self._moved_bytes(context, demand)
        if told is None or (moved is not None and moved <= told[0]):
            return None
        rate = float(told[1])
        return rate if rate < (demand.bandwidth_bytes_per_second_max or inf) else None

    def refused_late(
        self, probes: Sequence[Observation[S3SettingT]], reports: Sequence[Observation[S3SettingT]]
    ) -> list[Observation[S3SettingT]]:
        """The reports that show how long the store bears a load, and say nothing about the load itself."""
        return refused_late(probes, reports)

    def aware_of(
        self,
        fit: Fit,
        probes: Sequence[Observation[S3SettingT]],
        late: Sequence[Observation[S3SettingT]],
    ) -> Fit:
        """The fit, completed with what happens to long transfers."""
        told = patience(probes, late)
        if told is None:
            return fit
        return replace(fit, state={**fit.state, "patience": [told.transferred_bytes, told.bytes_per_second]})

    def _moved_bytes(self, context: Context, demand: Demand) -> int | None:
        """The bytes that the whole transfer moves; None for a stream, which has no end."""
        size, count = self.payload_bytes(context, demand), max(demand.object_count, 1)
        is_stream = count == 1 and size <= self.direction.unsplit_bytes
        return None if is_stream or demand.access is Access.RANDOM else size * count

    def learned_besides(self, observations: Sequence[Observation[S3SettingT]]) -> dict[str, Any]:
        """What a fit remembers beside the law, as plain data; observations are oldest first."""
        del observations
        return {}

    def derived_besides(
        self, fit: Fit, context: Context, setting: S3SettingT, demand: Demand
    ) -> dict[str, float]:
        """Client options that follow from a setting in this direction only."""
        del fit, context, setting, demand
        return {}

    @property
    def observation_count_max(self) -> int:
        """How many of the newest observations a fit learns from."""
        return _OBSERVATION_COUNT_MAX

    @property
    def state_version(self) -> int:
        """The version of the format of `Fit.state`."""
        return FIT_STATE_VERSION

    @property
    def kindred(self) -> frozenset[str]:
        """The other direction, which uses the same path and the same host."""
        return kindred(self.operation)

    def host_ceiling(self, place: Place) -> burst.Ceiling | None:
        """See `directions`."""
        return host_ceiling(place)

    @property
    def value_metric(self) -> str:
        """Bytes of the object over the seconds from the start of its first request to the end of its last."""
        return THROUGHPUT

    def probe_costs(
        self, fit: Fit, context: Context, settings: Sequence[S3SettingT], tariff: Tariff
    ) -> Sequence[Cost]:
        """The most that a probe of each setting may cost: three waves or two seconds, whichever is more.

        A probe moves at most all parts of an object; small objects are moved as a stream. If requests were refused
        before, the cost includes one retry for each part of an object that is moved whole: without its refused parts it
        would look faster than it is.
        """
        rates, slow = self._steady_rates(fit, context, settings)
        fast = self._burst_rates(fit, context, settings)
        each = zip(settings, rates.tolist(), slow.tolist(), fast.tolist(), strict=True)
        asked_count = 1 + any(cell.had_trouble for cell in fit.cells)
        return [self._probe_cost(context, tariff, asked_count, *one) for one in each]

    def _probe_cost(  # noqa: PLR0917  # all that decides it
        self,
        context: Context,
        tariff: Tariff,
        asked_count: int,  # requests for each part of a whole object
        setting: S3SettingT,
        rate: float,
        slow: float,
        fast: float,
    ) -> Cost:
        size = max(context.payload_size_bytes, 1)
        s = self.request_bytes(setting, size)
        wanted = max(_PROBE_WAVES * setting.thread_count * s, rate * _PROBE_SECONDS)
        transferred = wanted if size <= self.direction.unsplit_bytes else min(wanted, size)
        transferred = ceil(transferred / s) * s
        parts = ceil(transferred / s)
        around = self.requests_around(context, setting, parts)
        parts *= asked_count if self.direction.unsplit_bytes < size <= transferred else 1
        seconds = max(_DIP_PATIENCE * (transferred / rate + 1.0), _SLOW_PATIENCE * transferred / slow)
        return Cost(
            transferred_bytes=int(parts * s),
            request_count=parts + around,
            usd=self.usd(tariff, request_count=parts + around, transferred_bytes=parts * s),
            credit_bytes=credits_taken(context.place, transferred, seconds=transferred / fast),
            duration_seconds=seconds,
        )

    def probe_seconds_min(self, fit: Fit, context: Context, setting: S3SettingT) -> float:
        """The time of one wave of parts at the expected rate, with some room for a slow one."""
        return _WAVE_ROOM * self._wave_bytes(context, setting) / self._steady_rate(fit, context, setting)

    def request_bytes(self, setting: S3SettingT, payload_size_bytes: int) -> int:
        return min(setting.request_size_bytes, payload_size_bytes)

    def _wave_bytes(self, context: Context, setting: S3SettingT) -> int:
        """The bytes in flight at a time."""
        size = max(context.payload_size_bytes, 1)
        return in_flight_count(setting, size) * self.request_bytes(setting, size)

    def measured_value(self, observation: Observation[S3SettingT]) -> float:
        """Throughput in bytes per second: of a whole object, extrapolated if only part was moved, or of a stream."""
        size = observation.context.payload_size_bytes
        steady = observation.measures.get("steady_throughput_bytes_per_second", 0.0)
        if steady > 0 and size <= self.direction.unsplit_bytes:
            return steady
        if not self._is_extrapolated(observation):
            return observation.throughput_bytes_per_second
        return _extrapolated(observation, steady)

    def _is_extrapolated(self, observation: Observation[S3SettingT]) -> bool:
        """Whether only a part of an object was moved, and its steady rate is known."""
        size = observation.context.payload_size_bytes
        is_steady = observation.measures.get("steady_throughput_bytes_per_second", 0.0) > 0
        return is_steady and self.direction.unsplit_bytes < size > observation.transferred_bytes

    def comparable_values(self, fit: Fit, observations: Sequence[Observation[S3SettingT]]) -> Sequence[float]:
        """The measured values, those of a part as the fit's law extends them to the whole object.

        A probe may move full waves of requests only, while the last wave of a whole object may be nearly empty. What
        that costs is in predictions, but not in an extrapolated rate.
        """
        values = [self.measured_value(observation) for observation in observations]
        parts = [n for n, observation in enumerate(observations) if self._is_extrapolated(observation)]
        posterior, demand = Posterior.from_state(fit.state), Demand()
        for context in {observations[n].context for n in parts}:
            mine = [n for n in parts if observations[n].context == context]
            settings = list(dict.fromkeys(observations[n].setting for n in mine))
            whole = self._transfers(context, settings, self._settled(fit, context, demand))
            steady = replace(whole, is_steady=np.ones_like(whole.is_steady))
            each = (answers.usual_rates(posterior, of, demand, None).tolist() for of in (whole, steady))
            rates = dict(zip(settings, zip(*each, strict=True), strict=True))
            for n in mine:
                of_whole, of_steady = rates[observations[n].setting]
                values[n] *= of_whole / _extrapolated(observations[n], of_steady)
        return values

    @property
    def reported_measures(self) -> frozenset[str]:
        """None: throughput is all that is learned from reports, because clients differ inside."""
        return frozenset()

    def in_use(self, report: Observation[S3SettingT]) -> S3SettingT:
        """The setting with the threads that had requests to make: an object moved whole uses one connection."""
        return self.setting(int(connections_used(report)), report.setting.request_size_bytes)

    def discrepancies(self, fit: Fit, reports: Sequence[Observation[S3SettingT]]) -> tuple[Array, Array]:
        """Discrepancies of throughput, in the regime that explains each report better, because it is unknown."""
        posterior = Posterior.from_state(fit.state)
        measured = np.log([self.measured_value(report) for report in reports])
        both = []
        for is_burst in (False, True):
            expected, deviation = answers.foreseen(posterior, moved(reports, is_burst=is_burst))
            both.append((measured - expected, _REPORT_ROOM * deviation))
        (sustained, deviation), (burst, burst_deviation) = both
        is_sustained = np.abs(sustained) / deviation <= np.abs(burst) / burst_deviation
        residual = np.where(is_sustained, sustained, burst)
        return residual[:, None], np.where(is_sustained, deviation, burst_deviation)[:, None]

    def fit(
        self,
        place: Place,
        observations: Sequence[Observation[S3SettingT]],
        *,
        prior: Fit | None,
        seed: int,
    ) -> Fit:
        """The posterior since the place last changed, starting from the neighbour's posterior if that fits."""
        ordered = sorted(observations, key=lambda o: o.started_at)[-_OBSERVATION_COUNT_MAX:]
        learned = learn(place, evidence_of(place, ordered), prior, seed)
        posterior = learned.posterior(credits_left(place, ordered), lateness(self.direction, ordered))
        stay = learned.known.stay
        return Fit(
            place=place,
            parameters=_parameters(learned.draws, self.direction),
            observation_count=sum(is_as_now(o.started_at, stay.changed_at, stay.earlier) for o in ordered),
            newest_observation_at=max((o.started_at for o in ordered), default=None),
            residual_fraction_p50=learned.residual_fraction_p50,
            is_off_model=learned.shapes is not None,
            drift_count=learned.known.change_count,
            changed_at=stay.changed_at,
            earlier=stay.earlier,
            suspicion=learned.suspicion,
            state=posterior.to_state() | self.learned_besides(ordered),
        )

    def appraise(
        self, fit: Fit, context: Context, settings: Sequence[S3SettingT], demand: Demand
    ) -> Appraisal:
        """Posterior means, which include late requests and respect a stated bandwidth limit."""
        posterior, demand = Posterior.from_state(fit.state), self._settled(fit, context, demand)
        transfers = self._transfers(context, settings, demand)
        logs = _on_average(posterior, transfers, posterior.log_throughput(transfers), demand)
        latency = self._object_latency(posterior, context, settings, demand, logs)
        drawn = np.exp(logs)
        value = drawn.mean(axis=0)
        return Appraisal(
            value=value,
            latency_seconds=latency,
            connection_count=transfers.n,
            memory_bytes=np.array([held_bytes(x, context, demand) for x in settings], dtype=np.float64),
            request_rate_per_second=value / transfers.s,
            refused_fraction=transfers.refused_fraction(posterior.draws).mean(axis=0),
        )

    def belief(self, fit: Fit, context: Context, settings: Sequence[S3SettingT], demand: Demand) -> Belief:
        """The joint belief: draws of the parameters, and the covariance of the misfit as far as it has an effect.

        It has less effect if a bandwidth limit is stated, or if a transfer waits for late requests.
        """
        posterior, demand = Posterior.from_state(fit.state), self._settled(fit, context, demand)
        transfers = self._transfers(context, settings, demand)
        values, besides = posterior.log_throughput(transfers), posterior.covariance(transfers)
        bandwidth = answers.log_bandwidth(demand)
        average = _on_average(posterior, transfers, values, demand)
        felt = (np.exp(average - values) * (values < bandwidth)).mean(axis=0)
        felt *= fit.observation_count >= MISFIT_MEASUREMENT_COUNT_MIN
        return Belief(draws=average, besides=besides * np.outer(felt, felt))

    def log_gains(
        self,
        fit: Fit,
        context: Context,
        settings: Sequence[S3SettingT],
        reference: S3SettingT,
        demand: Demand,
    ) -> Array:
        """Gains in throughput, or for `latency` in the time of a single object; within a stated bandwidth limit."""
        is_of_one, demand = demand.objective is Objective.LATENCY, self._settled(fit, context, demand)
        aimed = replace(demand, object_count=1) if is_of_one else demand
        transfers = self._transfers(context, [reference, *settings], aimed)
        transfers = _single(transfers) if is_of_one else transfers
        posterior = Posterior.from_state(fit.state)
        line = host_ceiling(context.place)
        usual = answers.within_line(posterior, transfers, posterior.together(transfers), line)
        logs = _on_average(posterior, transfers, usual, demand)
        return np.asarray(logs[:, 1:] - logs[:, :1], dtype=np.float64)

    def predict(self, fit: Fit, context: Context, setting: S3SettingT, demand: Demand) -> Prediction:
        """Throughput, latency of one object and request rate, each with the interval of one future measurement."""
        posterior, demand = Posterior.from_state(fit.state), self._settled(fit, context, demand)
        line = host_ceiling(context.place)
        throughput = answers.interval(posterior, self._transfers(context, [setting], demand), demand, line)
        size = self.payload_bytes(context, demand)
        one = _single(self._transfers(context, [setting], replace(demand, object_count=1)))
        alone = answers.interval(posterior, one, demand, line)
        s = size / ceil(size / self.request_bytes(setting, size))
        return {
            self.value_metric: throughput,
            "latency_seconds": Estimate(size / alone.high, size / alone.expected, size / alone.low),
            "request_rate_per_second": Estimate(
                throughput.low / s, throughput.expected / s, throughput.high / s
            ),
        }

    def foresee(
        self, fit: Fit, context: Context, settings: Sequence[S3SettingT], demand: Demand
    ) -> Iterator[Estimate]:
        """The estimate of throughput for each setting."""
        posterior, demand = Posterior.from_state(fit.state), self._settled(fit, context, demand)
        transfers = self._transfers(context, settings, demand)
        return answers.intervals(posterior, transfers, demand, host_ceiling(context.place))

    def usual(self, fit: Fit, context: Context, settings: Sequence[S3SettingT], demand: Demand) -> Array:
        """The expected throughput of each setting in bytes per second."""
        posterior, demand = Posterior.from_state(fit.state), self._settled(fit, context, demand)
        transfers, line = self._transfers(context, settings, demand), host_ceiling(context.place)
        return answers.usual_rates(posterior, transfers, demand, line)

    def derive(
        self, fit: Fit, context: Context, setting: S3SettingT, demand: Demand, *, limit: str = UNKNOWN
    ) -> Mapping[str, float]:
        """Connection pool, multipart threshold, limits and timeouts that follow from threads and part size."""
        stated, lasting = demand.bandwidth_bytes_per_second_max, self._lasting_rate(fit, context, demand)
        demand = self._settled(fit, context, demand)
        posterior = Posterior.from_state(fit.state)
        transfers = self._transfers(context, [setting], demand)
        line = host_ceiling(context.place)
        rate = float(answers.usual_rates(posterior, transfers, demand, line)[0])  # as predicted
        derived = {
            "connection_pool_count": float(setting.thread_count + 1),
            "multipart_threshold_bytes": answers.threshold_bytes(posterior, context, setting, demand),
            "memory_bytes": float(held_bytes(setting, context, demand)),
            "crt_target_gbps": _CRT_GBPS_PER_CONNECTION * setting.thread_count,
            "request_rate_per_second": rate / float(transfers.s[0]),
            "hedge_timeout_seconds": answers.hedge_seconds(
                posterior, transfers, demand, fit.state.get("tail_ratio")
            ),
        }
        if (most := lasting or stated) is not None:
            derived["rate_limit_bytes_per_second"] = most
        # A transfer that this limit slows down makes no more requests than are borne.
        if limit == "request-rate" and rate < (lasting or inf):
            derived["request_rate_limit_per_second"] = answers.request_rate_limit(posterior)
        derived |= answers.burst_bundle(posterior, context, transfers, demand)
        return derived | self.derived_besides(fit, context, setting, demand)

    def bottleneck(self, fit: Fit, context: Context, setting: S3SettingT, demand: Demand) -> str:
        """The limit that matters most in nearly all draws; "unsure" if they do not agree."""
        if not fit.observation_count:
            return "unknown"
        lasting = self._lasting_rate(fit, context, demand)
        posterior, demand = Posterior.from_state(fit.state), self._settled(fit, context, demand)
        name = answers.bottleneck(posterior, self._transfers(context, [setting], demand), demand)
        return "request-rate" if name == "demand" and lasting is not None else name

    def remarks(
        self,
        fit: Fit,
        context: Context,
        setting: S3SettingT,
        demand: Demand,
        *,
        limit: str,
        derived: Mapping[str, float],
        obstacle: Obstacle | None,
    ) -> Sequence[str]:
        """Sentences on what would help or hurt, and what was not measured; none before anything was measured."""
        if not fit.observation_count:
            return ()
        posterior, settled = Posterior.from_state(fit.state), self._settled(fit, context, demand)
        twice = doubled(setting)
        at, more = (self._transfers(context, [each], settled) for each in (setting, twice))
        log_gains = self.log_gains(fit, context, [twice], setting, demand)[:, 0]
        why_not: dict[Obstacle | None, str] = {
            Obstacle.THREADS: f"no more than {demand.thread_count_max} are allowed",
            Obstacle.MEMORY: "that is more memory than is allowed",
        }
        found = [
            *remarks.sentences(
                posterior,
                at,
                more,
                log_gains,
                limit=limit,
                why_not_more=why_not.get(obstacle, ""),
                is_by_host=self.direction.passes_host,
            )
        ]
        told = (remarks.of_two_states(posterior, at), remarks.of_late_requests(posterior, at))
        found += [each for each in told if each is not None]
        if (lasting := self._lasting_rate(fit, context, demand)) is not None:
            found.append(remarks.of_patience(fit.state["patience"][0], lasting))
        limits = burst_ceiling(context.place)
        if limits is None or demand.regime is not Regime.AUTO:
            return tuple(found)
        if "burst_seconds_left" not in derived:
            # It is slower than the baseline even with credits, so it takes none.
            return tuple(found)
        moved, left = self._moved_bytes(context, demand), posterior.credit_bytes or 0.0
        return (remarks.of_regime(limits, moved, left, is_burst=settled.regime is Regime.BURST), *found)

    def studies(
        self,
        fit: Fit,
        context: Context,
        setting: S3SettingT,
        observations: Sequence[Observation[S3SettingT]],
    ) -> Sequence[Study]:
        """Time to create and complete objects by number of parts; burst credits over time; the host's two ceilings."""
        del context, setting  # the figures depend on neither
        return tuple(studies(fit, observations))

    def _log_steady_rates(
        self, fit: Fit, context: Context, settings: Sequence[S3SettingT], regime: Regime = Regime.SUSTAINED
    ) -> Array:
        """Draws of the logarithm of throughput while all connections are busy, (draws, settings)."""
        transfers = self._transfers(context, settings, Demand(regime=regime))
        steady = replace(transfers, is_steady=np.ones(len(settings), dtype=np.bool_))
        return Posterior.from_state(fit.state).log_throughput(steady)

    def _steady_rates(
        self, fit: Fit, context: Context, settings: Sequence[S3SettingT]
    ) -> tuple[Array, Array]:
        """The mean of the draws, and their 5 % quantile, for each setting, in bytes per second."""
        logs = self._log_steady_rates(fit, context, settings)
        return np.exp(logs).mean(axis=0), np.exp(quantiles(logs, [_SLOW_QUANTILE])[0])

    def _steady_rate(self, fit: Fit, context: Context, setting: S3SettingT) -> float:
        return float(self._steady_rates(fit, context, [setting])[0][0])

    def _burst_rates(self, fit: Fit, context: Context, settings: Sequence[S3SettingT]) -> Array:
        """A high quantile of each setting's rate on burst credits; infinite if the host has none."""
        if burst_ceiling(context.place) is None:
            return np.full(len(settings), inf)
        logs = self._log_steady_rates(fit, context, settings, Regime.BURST)
        return np.asarray(np.exp(quantiles(logs, [_BURST_QUANTILE])[0]), dtype=np.float64)

    def _transfers(self, context: Context, settings: Sequence[S3SettingT], demand: Demand) -> Transfers:
        threads = np.array([x.thread_count for x in settings], dtype=np.float64)
        parts = np.array([x.request_size_bytes for x in settings], dtype=np.float64)
        size = np.full(len(settings), float(self.payload_bytes(context, demand)))
        return planned_transfers(
            self.direction,
            size,
            threads,
            parts,
            object_count=demand.object_count,
            is_burst=demand.regime is Regime.BURST,
            is_stream=demand.access is Access.RANDOM,
        )

    def _object_latency(
        self,
        posterior: Posterior,
        context: Context,
        settings: Sequence[S3SettingT],
        demand: Demand,
        logs: Array,
    ) -> Array:
        """Seconds of one object by itself; `logs` are used as they are if they are for one object at a time."""
        size = self.payload_bytes(context, demand)
        if demand.object_count > 1 or size <= self.direction.unsplit_bytes:
            alone = _single(self._transfers(context, settings, replace(demand, object_count=1)))
            logs = _on_average(posterior, alone, alone.log_throughput(posterior.draws), demand)
        return np.asarray(size * np.exp(-logs).mean(axis=0), dtype=np.float64)


def _extrapolated(observation: Observation[S3SettingT], steady: float) -> float:
    """Bytes per second of a whole object that moves at this steady rate, with its beginning and end as observed."""
    size = observation.context.payload_size_bytes
    return size / (object_seconds(observation) + size / steady)


def _on_average(posterior: Posterior, transfers: Transfers, log_usual: Array, demand: Demand) -> Array:
    """Logarithms of average throughput, with late requests and a bandwidth limit, from the usual without either."""
    return posterior.lateness.slowed(transfers, np.minimum(log_usual, answers.log_bandwidth(demand)))


def _single(transfers: Transfers) -> Transfers:
    """The same settings for exactly one object, even where a stream of small ones was meant."""
    one = transfers.is_steady
    return replace(
        transfers,
        n=np.where(one, 1.0, transfers.n),
        full=np.where(one, 0.0, transfers.full),
        rest=np.where(one, 1.0, transfers.rest),
        is_steady=np.zeros_like(one),
    )


def _parameters(draws: Array, direction: Direction) -> dict[str, Estimate]:
    low, middle, high = np.exp(quantiles(draws, [0.05, 0.5, 0.95]))
    return {
        name: Estimate(float(low[i]), float(middle[i]), float(high[i]))
        for i, name in enumerate(PARAMETERS)
        if name not in direction.absent
    }
