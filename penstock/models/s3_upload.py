"""Knows how an S3 upload is advised: what is worth trying, what it costs, what a setting will do and what follows.

The physics itself is in `s3_upload_law`, what observations say about it in `s3_upload_evidence`, and how it is learned
in `s3_upload_learning`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, inf, log

import numpy as np

from penstock.models import burst
from penstock.models.model import Appraisal, Array, Fit, shortfall
from penstock.models.prices import upload_usd
from penstock.models.s3_upload_evidence import (
    connections_used,
    evidence_of,
    moved,
    object_seconds,
    throughput_noise_scale,
)
from penstock.models.s3_upload_law import (
    PARAMETERS,
    PART_COUNT_MAX,
    PART_SIZE_BYTES_MAX,
    PART_SIZE_BYTES_MIN,
    THREAD_COUNT_MAX,
    S3UploadSetting,
    Transfers,
    planned_transfers,
)
from penstock.models.s3_upload_learning import FIT_STATE_VERSION, Posterior, learn
from penstock.units import MiB
from penstock.vocabulary import Context, Cost, Demand, Estimate, Observation, Place, Prediction, Regime

__all__ = [
    "PARAMETERS",
    "PART_COUNT_MAX",
    "PART_SIZE_BYTES_MAX",
    "PART_SIZE_BYTES_MIN",
    "THREAD_COUNT_MAX",
    "S3UploadModel",
    "S3UploadSetting",
]

_THREADS = (1, 2, 3, 4, 5, 6, 7, 8)
_THREAD_RATIO = 1.13
_PART_SIZES_MIB = (5, 6, 8, 11, 16, 23, 32, 45, 64, 128, 256, 512, 1024, 2048, 5120)
_WAVE_COUNT_MAX = 4  # part sizes that make so many full waves are always considered
_SINGLE_PUT_BYTES_MAX = 64 * MiB
_RAMP_THREADS = (4, 16, 64, 256)
_RAMP_PART_BYTES = 8 * MiB
_OBSERVATION_COUNT_MAX = 64  # the newest: older ones of a place that did not change say the same
_PROBE_WAVES = 3
_WAVE_ROOM = 1.25  # over the expected time of one wave of parts
_PROBE_SECONDS = 2.0
_BURST_QUANTILE = 0.95  # of the draws of a rate: what a probe may spend is not to be guessed too low
_CRT_GBPS_PER_CONNECTION = 0.4  # gigabits per second: the AWS CRT opens one connection for each of its target
_MULTIPART_REQUESTS = (
    6  # create, complete, and at worst what removes it again; a single PUT is one DELETE a thread
)
_INTERVAL = (
    1.9  # standard deviations for 90 %: more than a normal law's 1.645, because noise is uneven over settings
)

_INTERVAL_DEVIATIONS = 2 * 1.645  # standard deviations of a normal law between the ends of 90 %


@dataclass(frozen=True, slots=True, kw_only=True)
class S3UploadModel:
    """The mechanistic law with priors, a Gaussian process on its residual, and a watch for change.

    The limits narrow what is ever considered, for a client that has only one of the knobs.
    """

    thread_count_max: int = THREAD_COUNT_MAX
    part_size_bytes_min: int = PART_SIZE_BYTES_MIN
    part_size_bytes_max: int = PART_SIZE_BYTES_MAX

    @property
    def observation_count_max(self) -> int:
        """How many of the newest observations a fit learns from."""
        return _OBSERVATION_COUNT_MAX

    @property
    def operation(self) -> str:
        """The key in the table of services."""
        return "s3_upload"

    @property
    def state_version(self) -> int:
        """Of what `Fit.state` holds: changes whenever that does."""
        return FIT_STATE_VERSION

    @property
    def setting_type(self) -> type[S3UploadSetting]:
        """Threads and part size."""
        return S3UploadSetting

    @property
    def value_metric(self) -> str:
        """Bytes of the object over the seconds from its first request to its last."""
        return "throughput_bytes_per_second"

    def default_setting(self, context: Context) -> S3UploadSetting:
        """What boto3 does: ten threads, 8 MiB, doubled until there are at most 10,000 parts."""
        part_size_bytes = 8 * MiB
        while ceil(context.payload_size_bytes / part_size_bytes) > PART_COUNT_MAX:
            part_size_bytes *= 2
        return self.legal(context, S3UploadSetting(thread_count=10, part_size_bytes=part_size_bytes))

    def legal(self, context: Context, setting: S3UploadSetting) -> S3UploadSetting:
        """Within 5 MiB to 5 GiB and 10,000 parts; no part larger than the object needs."""
        low = max(PART_SIZE_BYTES_MIN, ceil(context.payload_size_bytes / PART_COUNT_MAX))
        high = max(low, min(PART_SIZE_BYTES_MAX, context.payload_size_bytes))
        return S3UploadSetting(
            thread_count=round(min(max(setting.thread_count, 1), THREAD_COUNT_MAX)),
            part_size_bytes=round(min(max(setting.part_size_bytes, low), high)),
        )

    def ramp(self, context: Context) -> Sequence[S3UploadSetting]:
        """Four threads, then four times as many each time."""
        part = min(max(_RAMP_PART_BYTES, self.part_size_bytes_min), self.part_size_bytes_max)
        threads = [n for n in _RAMP_THREADS if n <= self.thread_count_max] or [self.thread_count_max]
        return [self.legal(context, S3UploadSetting(thread_count=n, part_size_bytes=part)) for n in threads]

    def probe_cost(self, fit: Fit, context: Context, setting: S3UploadSetting) -> Cost:
        """Three waves or two seconds, whichever is more, but at most all parts; small objects go in a stream."""
        size = max(context.payload_size_bytes, 1)
        s = min(setting.part_size_bytes, size)
        rate = self._steady_rate(fit, context, setting)
        wanted = max(_PROBE_WAVES * setting.thread_count * s, rate * _PROBE_SECONDS)
        transferred = wanted if size <= PART_SIZE_BYTES_MIN else min(wanted, size)
        transferred = ceil(transferred / s) * s
        parts = ceil(transferred / s)
        requests = parts + (_MULTIPART_REQUESTS if s < size else min(setting.thread_count, parts))
        seconds = transferred / rate + 1.0
        return Cost(
            transferred_bytes=int(transferred),
            request_count=requests,
            usd=upload_usd(
                context.place.service_class, request_count=requests, transferred_bytes=transferred
            ),
            credit_bytes=self._credit_bytes_max(fit, context, setting, transferred),
            duration_seconds=5.0 * seconds,  # a dip must not end the probe
        )

    def probe_seconds_min(self, fit: Fit, context: Context, setting: S3UploadSetting) -> float:
        """One wave of parts at the expected rate, with some room for a slow one."""
        rate = self._steady_rate(fit, context, setting)
        size = max(context.payload_size_bytes, 1)
        part = min(setting.part_size_bytes, size)
        thread_count = min(setting.thread_count, ceil(size / part)) if part < size else setting.thread_count
        return _WAVE_ROOM * thread_count * part / rate

    def measured_value(self, observation: Observation[S3UploadSetting]) -> float:
        """Throughput of a whole object, extended from the share of it that was sent."""
        size = observation.context.payload_size_bytes
        steady = observation.measures.get("steady_throughput_bytes_per_second", 0.0)
        if steady <= 0 or observation.transferred_bytes >= size:
            return observation.throughput_bytes_per_second
        return size / (object_seconds(observation) + size / steady)

    @property
    def reported_measures(self) -> frozenset[str]:
        """None: the throughput says it all, and how a client works inside is its own."""
        return frozenset()

    def in_use(self, report: Observation[S3UploadSetting]) -> S3UploadSetting:
        """No more threads than there were requests to make: one object that goes whole takes one connection."""
        return replace(report.setting, thread_count=int(connections_used(report)))

    def discrepancies(self, fit: Fit, reports: Sequence[Observation[S3UploadSetting]]) -> tuple[Array, Array]:
        """Of throughput; under the regime that explains it better, for nobody knows which it was."""
        posterior = Posterior.from_state(fit.state)
        measured = np.log([self.measured_value(report) for report in reports])
        both = []
        for is_burst in (False, True):
            low, expected, high = _log_intervals(posterior, moved(reports, is_burst=is_burst))
            both.append((measured - expected, (high - low) / _INTERVAL_DEVIATIONS))
        (sustained, deviation), (burst, burst_deviation) = both
        is_sustained = np.abs(sustained) / deviation <= np.abs(burst) / burst_deviation
        residual = np.where(is_sustained, sustained, burst)
        return residual[:, None], np.where(is_sustained, deviation, burst_deviation)[:, None]

    def fit(
        self,
        place: Place,
        observations: Sequence[Observation[S3UploadSetting]],
        *,
        prior: Fit | None,
        seed: int,
    ) -> Fit:
        """The posterior since the place last changed; from the neighbour's parameters where they fit."""
        ordered = sorted(observations, key=lambda o: o.started_at)[-_OBSERVATION_COUNT_MAX:]
        learned = learn(place, evidence_of(place, ordered), prior, seed)
        return Fit(
            place=place,
            parameters=_parameters(learned.draws),
            observation_count=len(ordered),
            newest_observation_at=max((o.started_at for o in ordered), default=None),
            residual_fraction_p50=learned.residual_fraction_p50,
            is_off_model=learned.shapes is not None,
            drift_count=learned.drift_count,
            changed_at=learned.changed_at,
            state=learned.posterior(_credits(place, ordered)).to_state() | {"cusum": learned.cusum_level},
        )

    def candidates(self, fit: Fit, context: Context, demand: Demand) -> Sequence[S3UploadSetting]:
        """A grid of ratios; also part sizes that divide the object evenly, full waves, all that the memory holds."""
        del fit
        size = max(context.payload_size_bytes, 1)
        threads = self._thread_ladder(demand)
        sizes = self._part_ladder(context)
        pairs = {(n, s) for n in threads for s in sizes}
        pairs |= {(n, ceil(size / (n * m))) for n in threads for m in range(1, _WAVE_COUNT_MAX + 1)}
        if demand.memory_bytes_max is not None:
            held = {(demand.memory_bytes_max // min(s, size), s) for s in sizes}
            pairs |= {(n, s) for n, s in held if 1 <= n <= threads[-1]}
        low, high = max(sizes[0], self.part_size_bytes_min), max(sizes[-1], self.part_size_bytes_min)
        settings = {
            self.legal(context, S3UploadSetting(thread_count=_useful(n, s, size, demand), part_size_bytes=s))
            for n, s in pairs
            if low <= s <= high
        }
        most = demand.memory_bytes_max or inf
        allowed = [x for x in settings if x.memory_bytes(size, demand.object_count) <= most]
        least = self.legal(context, S3UploadSetting(thread_count=1, part_size_bytes=low))
        return sorted(allowed or [least], key=lambda x: (x.thread_count, x.part_size_bytes))

    def appraise(
        self, fit: Fit, context: Context, settings: Sequence[S3UploadSetting], demand: Demand
    ) -> Appraisal:
        """Posterior means; nothing is faster than a stated bandwidth limit."""
        posterior = Posterior.from_state(fit.state)
        transfers = self._transfers(context, settings, demand)
        logs = np.minimum(posterior.log_throughput(transfers), _log_bandwidth(demand))
        latency = self._object_latency(posterior, context, settings, demand, logs)
        drawn = np.exp(logs)
        value = drawn.mean(axis=0)
        return Appraisal(
            value=value,
            shortfall=shortfall(drawn),
            latency_seconds=latency,
            connection_count=transfers.n,
            memory_bytes=np.array([_held_bytes(x, context, demand) for x in settings], dtype=np.float64),
            request_rate_per_second=value / transfers.s,
            refused_fraction=transfers.refused_fraction(posterior.draws).mean(axis=0),
        )

    def draws(self, fit: Fit, context: Context, settings: Sequence[S3UploadSetting], demand: Demand) -> Array:
        """Draws of the logarithm of the value, (draws, settings): what is believed about all settings together."""
        sampled = Posterior.from_state(fit.state).sampled(self._transfers(context, settings, demand))
        return np.asarray(np.minimum(sampled, _log_bandwidth(demand)), dtype=np.float64)

    def predict(self, fit: Fit, context: Context, setting: S3UploadSetting, demand: Demand) -> Prediction:
        """Throughput, seconds of one object, requests per second: each for one future measurement."""
        posterior = Posterior.from_state(fit.state)
        throughput = _interval(posterior, self._transfers(context, [setting], demand), demand)
        size = max(context.payload_size_bytes, 1)
        one = _single(self._transfers(context, [setting], replace(demand, object_count=1)))
        alone = _interval(posterior, one, demand)
        s = size / ceil(size / min(setting.part_size_bytes, size))
        return {
            "throughput_bytes_per_second": throughput,
            "latency_seconds": Estimate(size / alone.high, size / alone.expected, size / alone.low),
            "request_rate_per_second": Estimate(
                throughput.low / s, throughput.expected / s, throughput.high / s
            ),
        }

    def derive(
        self, fit: Fit, context: Context, setting: S3UploadSetting, demand: Demand
    ) -> Mapping[str, float]:
        """Pool, threshold, limits and time-outs that follow from threads and part size."""
        posterior = Posterior.from_state(fit.state)
        transfers = self._transfers(context, [setting], demand)
        rate = _mean_rate(posterior, transfers, demand)
        derived = {
            "connection_pool_count": float(setting.thread_count + 1),
            "multipart_threshold_bytes": _threshold_bytes(posterior, context, setting, demand),
            "memory_bytes": float(_held_bytes(setting, context, demand)),
            "crt_target_gbps": _CRT_GBPS_PER_CONNECTION * setting.thread_count,
            "request_rate_per_second": rate / float(transfers.s[0]),
            "hedge_timeout_seconds": _hedge_seconds(posterior, transfers, demand),
        }
        if demand.bandwidth_bytes_per_second_max is not None:
            derived["rate_limit_bytes_per_second"] = demand.bandwidth_bytes_per_second_max
        return derived | _burst_bundle(posterior, context, transfers, demand)

    def bottleneck(self, fit: Fit, context: Context, setting: S3UploadSetting, demand: Demand) -> str:
        """The term of the soft minimum that is smallest at the posterior mean."""
        if not fit.observation_count:
            return "unknown"
        posterior = Posterior.from_state(fit.state)
        return _bottleneck(posterior, self._transfers(context, [setting], demand), demand)

    def _steady_rate(self, fit: Fit, context: Context, setting: S3UploadSetting) -> float:
        """Bytes per second while every connection is busy."""
        transfers = replace(self._transfers(context, [setting], Demand()), is_steady=np.array([True]))
        return _mean_rate(Posterior.from_state(fit.state), transfers, Demand())

    def _credit_bytes_max(
        self, fit: Fit, context: Context, setting: S3UploadSetting, transferred_bytes: float
    ) -> int:
        """What such a transfer may take of the bucket: it goes as fast as the host may while there are credits."""
        limits = burst.ceiling(context.place.instance_type)
        if limits is None or not limits.is_burstable:
            return 0
        transfers = self._transfers(context, [setting], Demand(regime=Regime.BURST))
        steady = replace(transfers, is_steady=np.array([True]))
        logs = Posterior.from_state(fit.state).log_throughput(steady)[:, 0]
        rate = exp(float(np.quantile(logs, _BURST_QUANTILE)))
        return ceil(limits.credits_spent(transferred_bytes, seconds=transferred_bytes / rate))

    def _transfers(self, context: Context, settings: Sequence[S3UploadSetting], demand: Demand) -> Transfers:
        threads = np.array([x.thread_count for x in settings], dtype=np.float64)
        parts = np.array([x.part_size_bytes for x in settings], dtype=np.float64)
        size = np.full(len(settings), float(max(context.payload_size_bytes, 1)))
        is_burst = demand.regime is Regime.BURST
        return planned_transfers(size, threads, parts, object_count=demand.object_count, is_burst=is_burst)

    def _object_latency(
        self,
        posterior: Posterior,
        context: Context,
        settings: Sequence[S3UploadSetting],
        demand: Demand,
        logs: Array,
    ) -> Array:
        """Seconds of one object alone; what was computed for one object at a time serves as it is."""
        size = max(context.payload_size_bytes, 1)
        if demand.object_count > 1 or size <= PART_SIZE_BYTES_MIN:
            alone = self._transfers(context, settings, replace(demand, object_count=1))
            logs = np.minimum(_single(alone).log_throughput(posterior.draws), _log_bandwidth(demand))
        return np.asarray(size * np.exp(-logs).mean(axis=0), dtype=np.float64)

    def _thread_ladder(self, demand: Demand) -> list[int]:
        most = min(self.thread_count_max, demand.thread_count_max or THREAD_COUNT_MAX)
        ladder = [n for n in _THREADS if n <= most]
        while ladder[-1] < most:
            ladder.append(min(most, max(ladder[-1] + 1, round(ladder[-1] * _THREAD_RATIO))))
        return ladder

    def _part_ladder(self, context: Context) -> list[int]:
        """Part sizes that cut the object evenly; the object itself where a single PUT is worth a thought."""
        size = max(context.payload_size_bytes, 1)
        low = max(self.part_size_bytes_min, ceil(size / PART_COUNT_MAX))
        high = max(low, min(self.part_size_bytes_max, size))
        wanted = [min(max(x * MiB, low), high) for x in _PART_SIZES_MIB]
        even = {max(low, ceil(size / ceil(size / s))) for s in wanted}
        if size <= min(_SINGLE_PUT_BYTES_MAX, self.part_size_bytes_max):
            even.add(max(size, low))
        return sorted(even)


def _useful(n: int, s: int, size: int, demand: Demand) -> int:
    """No more threads than there are requests to make."""
    setting = S3UploadSetting(thread_count=n, part_size_bytes=s)
    return setting.in_flight_count(size, demand.object_count)


def _held_bytes(setting: S3UploadSetting, context: Context, demand: Demand) -> int:
    return setting.memory_bytes(context.payload_size_bytes, demand.object_count)


def _single(transfers: Transfers) -> Transfers:
    """The same settings for exactly one object, also where a stream of small ones is meant."""
    one = transfers.is_steady
    return replace(
        transfers,
        n=np.where(one, 1.0, transfers.n),
        full=np.where(one, 0.0, transfers.full),
        rest=np.where(one, 1.0, transfers.rest),
        is_steady=np.zeros_like(one),
    )


def _parameters(draws: Array) -> dict[str, Estimate]:
    low, middle, high = np.exp(np.quantile(draws, [0.05, 0.5, 0.95], axis=0))
    return {
        name: Estimate(float(low[i]), float(middle[i]), float(high[i])) for i, name in enumerate(PARAMETERS)
    }


def _credits(place: Place, observations: Sequence[Observation[S3UploadSetting]]) -> float | None:
    limits = burst.ceiling(place.instance_type)
    if limits is None or not limits.is_burstable:
        return None
    if not observations:
        return limits.credit_bytes_max
    start = observations[0].started_at
    transfers = [
        ((o.started_at - start).total_seconds(), o.duration_seconds, float(o.transferred_bytes))
        for o in observations
    ]
    return burst.credits_at(
        limits, transfers, at_seconds=max(begin + lasted for begin, lasted, _ in transfers)
    )


# --- Answering. ---


def _interval(posterior: Posterior, transfers: Transfers, demand: Demand) -> Estimate:
    """The 90 % interval of one future measurement, with the dips that it may meet and within the bandwidth limit."""
    reached = (float(logs[0]) for logs in _log_intervals(posterior, transfers))
    return Estimate(*(exp(min(value, _log_bandwidth(demand))) for value in reached))


def _log_intervals(posterior: Posterior, transfers: Transfers) -> tuple[Array, Array, Array]:
    """Logarithms of the lower end, the middle and the upper end, for each of the transfers."""
    values = posterior.log_throughput(transfers)
    scales = np.array([throughput_noise_scale(n) for n in transfers.n])
    noise = (posterior.sigma * scales) ** 2 + posterior.misfit.weather**2
    spread = np.sqrt(values.var(axis=0) + posterior.misfit_variance(transfers) + noise)
    count = float(posterior.weights.sum())
    reach = _INTERVAL * spread * (1.0 + 1.5 / (3.0 + count))
    dips = (0.4 + float((1 - posterior.weights).sum())) / (8.0 + len(posterior.weights))
    middle = values.mean(axis=0)
    dip_reach = 0.35 * log(dips / 0.05) if dips > 0.05 else 0.0
    return middle - np.maximum(reach, dip_reach), middle, middle + reach


def _log_bandwidth(demand: Demand) -> float:
    return log(demand.bandwidth_bytes_per_second_max or inf)


def _mean_rate(posterior: Posterior, transfers: Transfers, demand: Demand) -> float:
    """Bytes per second of the first of the transfers."""
    logs = np.minimum(posterior.log_throughput(transfers)[:, 0], _log_bandwidth(demand))
    return float(np.exp(logs).mean())


def _bottleneck(posterior: Posterior, transfers: Transfers, demand: Demand) -> str:
    limits = transfers.log_limits(posterior.draws.mean(axis=0)[None])
    if demand.bandwidth_bytes_per_second_max is not None:
        limits["demand"] = np.log([[demand.bandwidth_bytes_per_second_max]])
    if not posterior.evidence.tells_of_processor:
        # Throughput alone cannot tell the processor from the network, which is the likelier of the two.
        limits["host-ceiling"] = np.minimum(limits["host-ceiling"], limits.pop("client-cpu"))
    name = min(limits, key=lambda key: float(limits[key][0, 0]))
    memory_bytes = float(transfers.n[0] * transfers.s[0])
    if (
        name == "connections"
        and demand.memory_bytes_max is not None
        and memory_bytes > 0.85 * demand.memory_bytes_max
    ):
        return "memory"
    return name


def _hedge_seconds(posterior: Posterior, transfers: Transfers, demand: Demand) -> float:
    """When to send a part again: three times its usual time, which about one part in a thousand exceeds."""
    steady = replace(transfers, is_steady=np.ones_like(transfers.is_steady))
    return max(1.0, 3.0 * float(transfers.n[0] * transfers.s[0]) / _mean_rate(posterior, steady, demand))


_THRESHOLDS = np.array([6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128], dtype=np.float64) * MiB


def _threshold_bytes(
    posterior: Posterior, context: Context, setting: S3UploadSetting, demand: Demand
) -> float:
    """The size from which clients split: where parts pay, and as is advised for objects of this size."""
    size, part = context.payload_size_bytes, setting.part_size_bytes
    pays_from = _splitting_pays_from_bytes(posterior, setting, demand)
    return min(pays_from, float(size)) if part < size else max(pays_from, size + 1.0)


def _splitting_pays_from_bytes(posterior: Posterior, setting: S3UploadSetting, demand: Demand) -> float:
    """The least of some sizes above the part from which parts of it beat single PUTs of the same objects."""
    sizes = _THRESHOLDS[setting.part_size_bytes < _THRESHOLDS]
    threads = np.full(len(sizes), float(setting.thread_count))
    part = np.full(len(sizes), float(setting.part_size_bytes))
    split, whole = (
        planned_transfers(
            sizes,
            threads,
            each,
            object_count=demand.object_count,
            is_burst=demand.regime is Regime.BURST,
        ).log_throughput(posterior.draws)
        for each in (part, sizes)
    )
    paying = sizes[(split - whole).mean(axis=0) > 0]
    return float(paying[0]) if len(paying) else max(float(_THRESHOLDS[-1]), setting.part_size_bytes + 1.0)


def _burst_bundle(
    posterior: Posterior, context: Context, transfers: Transfers, demand: Demand
) -> dict[str, float]:
    """What a burstable host reaches with credits and without, and how long the credits of the last measurement last."""
    limits = burst.ceiling(context.place.instance_type)
    if limits is None or not limits.is_burstable:
        return {}
    both = {}
    for name, flag in (("sustained", 0.0), ("burst", 1.0)):
        at = replace(transfers, is_burst=np.full_like(transfers.is_burst, flag))
        both[f"{name}_throughput_bytes_per_second"] = _mean_rate(posterior, at, demand)
    if posterior.credit_bytes is not None:
        rate = both["burst_throughput_bytes_per_second"]
        if rate > limits.baseline_bytes_per_second:
            both["burst_seconds_left"] = limits.burst_seconds_left(
                posterior.credit_bytes, rate_bytes_per_second=rate
            )
    return both
