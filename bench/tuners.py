"""Knows published tuners behind one interface, as faithfully as a sequence of whole probes allows.

A tuner is asked for a setting, told the measurement, and asked again; at any time it can be asked for its
recommendation. It may know a `SurfaceDescription` beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log, log2
from typing import Any, Protocol

import numpy as np

from bench.penstock_tuner import PenstockTuner
from bench.spread import log_uniform
from bench.surfaces import BenchSetting, Limits, SurfaceDescription
from penstock.units import MiB
from penstock.vocabulary import Objective, Observation

S3Observation = Observation[Any]


class Tuner(Protocol):
    """What every tuner can do."""

    def ask(self, seed: int) -> BenchSetting:
        """The next probe."""
        ...

    def tell(self, observation: S3Observation) -> None:
        """The probe's result."""
        ...

    def recommend(self) -> BenchSetting:
        """Its current advice."""
        ...


TunerFactory = Callable[[SurfaceDescription], Tuner]


class _BestObserved:
    """Recommends the setting of the best single probe."""

    def __init__(self, description: SurfaceDescription) -> None:
        self.limits = description.limits
        self.told: list[tuple[BenchSetting, float]] = []

    def tell(self, observation: S3Observation) -> None:
        self.told.append((observation.setting, observation.throughput_bytes_per_second))

    def recommend(self) -> BenchSetting:
        if not self.told:
            return self.limits.clip(10, 8 * MiB)
        return max(self.told, key=lambda row: row[1])[0]


class RandomSearch(_BestObserved):
    """Log-uniform over both knobs."""

    def ask(self, seed: int) -> BenchSetting:
        """A fresh draw."""
        rng, limits = np.random.default_rng([seed, len(self.told)]), self.limits
        n = log_uniform(rng, 1, limits.thread_count_max)
        return limits.clip(n, log_uniform(rng, limits.part_size_bytes_min, limits.part_size_bytes_max))


class PowersOfTwo(_BestObserved):
    """Powers of two as an operator would try them: threads at 16 MiB, coarse first, then part sizes at the best."""

    THREADS = (16, 64, 4, 256, 32, 128, 8, 2, 1, 512, 1024)
    PARTS_MIB = (64, 8, 32, 128, 5, 256, 512)

    def ask(self, seed: int) -> BenchSetting:
        """The next of the list; at its end, the best again."""
        del seed
        threads = [n for n in self.THREADS if n <= self.limits.thread_count_max]
        index = len(self.told)
        if index < len(threads):
            return self.limits.clip(threads[index], 16 * MiB)
        best, parts = self.recommend(), index - len(threads)
        if parts < len(self.PARTS_MIB) and self.limits.part_size_bytes_min < self.limits.part_size_bytes_max:
            return self.limits.clip(best.thread_count, self.PARTS_MIB[parts] * MiB)
        return best


class _Rule:
    """Advises without measuring."""

    def __init__(self, description: SurfaceDescription) -> None:
        self.description = description

    def tell(self, observation: S3Observation) -> None:
        """A rule does not learn."""

    def ask(self, seed: int) -> BenchSetting:
        """The rule's own setting."""
        del seed
        return self.recommend()

    def recommend(self) -> BenchSetting:
        raise NotImplementedError


class Boto3Default(_Rule):
    """Ten threads, 8 MiB parts."""

    def recommend(self) -> BenchSetting:
        """TransferConfig()."""
        return self.description.limits.clip(10, 8 * MiB)


class CrtRule(_Rule):
    """The Common Runtime's rule: a connection for each 0.4 Gbit/s of the target, at least 10; 10 Gbit/s if unknown."""

    def recommend(self) -> BenchSetting:
        """Connections and part size."""
        nic = self.description.nominal_nic_bytes_per_second
        gbps = nic * 8 / 1e9 if nic else 10.0
        limits = self.description.limits
        part_size_bytes = max(8 * MiB, ceil(limits.object_size_bytes / 10_000))
        return limits.clip(min(max(10, ceil(gbps / 0.4)), 10_000), part_size_bytes)


class AwsRequestRule(_Rule):
    """AWS's guideline: a request for each 85-90 MB/s of the NIC, parts of 8-16 MB; 10 Gbit/s if unknown."""

    def recommend(self) -> BenchSetting:
        """One request for each 87.5 MB/s."""
        nic = self.description.nominal_nic_bytes_per_second or 1.25e9
        return self.description.limits.clip(ceil(nic / 87.5e6), 16 * MiB)


class S3fsBlocks(_Rule):
    """What `S3FileSystem.get` of s3fs 2026.9 does: ten ranges of 50 MiB at a time."""

    def recommend(self) -> BenchSetting:
        """Its `max_concurrency` and its `default_block_size`."""
        return self.description.limits.clip(10, 50 * MiB)


class AzCopyClimb:
    """AzCopy's AUTO: times 4 while that gains a fifth of linear speed-up; then back off, smaller steps, lock."""

    def __init__(self, description: SurfaceDescription) -> None:
        self.limits = description.limits
        self.ceiling = min(3000, self.limits.thread_count_max)
        self.thread_count = min(4, self.ceiling)
        self.multiplier = 4.0
        self.last: float | None = None
        self.wanted = 0.0
        self.before = self.thread_count
        self.is_locked = False
        self.is_at_ceiling = False

    def ask(self, seed: int) -> BenchSetting:
        """The current thread count, with parts of 8 MiB."""
        del seed
        return self.limits.clip(self.thread_count, 8 * MiB)

    def recommend(self) -> BenchSetting:
        """Its current setting."""
        return self.ask(0)

    def tell(self, observation: S3Observation) -> None:
        """One measurement: of a climb, or of the setting it fell back to."""
        if self.is_locked:
            return
        speed = observation.throughput_bytes_per_second
        if self.last is None:  # the start, or the re-measuring after a step back
            self.last = speed
            self._climb(speed)
        elif speed > self.wanted:
            self.last = speed
            self.is_locked = self.is_at_ceiling
            if not self.is_locked:
                self._climb(speed)
        else:
            self._back_off()

    def _climb(self, speed: float) -> None:
        if self.thread_count >= 256:
            self.multiplier = min(self.multiplier, 2.0)
        if self.thread_count * self.multiplier >= self.ceiling:
            self.multiplier, self.is_at_ceiling = self.ceiling / self.thread_count, True
        self.before = self.thread_count
        self.wanted = speed + 0.2 * speed * (self.multiplier - 1)
        self.thread_count = round(self.thread_count * self.multiplier)
        self.is_locked = self.thread_count == self.before

    def _back_off(self) -> None:
        self.thread_count, self.is_at_ceiling = self.before, False
        self.multiplier = 2.0 if self.multiplier > 2 else 1 + (self.multiplier - 1) / 5
        while self.multiplier >= 1.19 and round(self.thread_count * self.multiplier) == self.thread_count:
            self.multiplier += 0.1
        self.is_locked = self.multiplier < 1.19
        self.last = None


class MinioAutotune(_BestObserved):
    """MinIO's speedtest: from 32, half as many more until the gain is below 2.5 % or the speed falls."""

    def __init__(self, description: SurfaceDescription) -> None:
        super().__init__(description)
        self.thread_count = min(32, self.limits.thread_count_max)
        self.is_done = False

    def ask(self, seed: int) -> BenchSetting:
        """The next step, or where it stopped."""
        del seed
        return self.limits.clip(self.thread_count, 16 * MiB)

    def tell(self, observation: S3Observation) -> None:
        """Go on, or stop for good."""
        if self.is_done:
            return
        best = max((speed for _, speed in self.told), default=0.0)
        super().tell(observation)
        if observation.throughput_bytes_per_second < 1.025 * best or observation.throttled_count:
            self.is_done = True
        elif self.thread_count < self.limits.thread_count_max:
            self.thread_count = min(
                self.thread_count + (self.thread_count + 1) // 2, self.limits.thread_count_max
            )


WINSOR_LOG = 3.5  # a result worse than the best by more than this is clipped


class SkoptGaussianProcess(_BestObserved):
    """scikit-optimize well configured: logarithms, EI, five Latin hypercube points, posterior-mean advice."""

    optimizer: Any = None

    def ask(self, seed: int) -> BenchSetting:
        """Expected improvement on the negative logarithm."""
        point = self._optimizer(seed).ask()
        return self.limits.clip(
            2 ** float(point[0]), 2 ** float(point[-1]) if len(point) > 1 else self._fixed()
        )

    def tell(self, observation: S3Observation) -> None:
        """The rounded point, clipped into the space."""
        super().tell(observation)
        best = max(speed for _, speed in self.told)
        loss = -max(log(observation.throughput_bytes_per_second), log(best) - WINSOR_LOG)
        self._optimizer(0).tell(self._point(observation.setting), loss)

    def recommend(self) -> BenchSetting:
        """The best posterior mean over a grid and the probed points."""
        if self.optimizer is None or not self.optimizer.models:
            return super().recommend()
        settings = [*_candidates(self.limits), *(s for s, _ in self.told)]
        means = self.optimizer.models[-1].predict(
            self.optimizer.space.transform([self._point(s) for s in settings])
        )
        return settings[int(np.argmin(means))]

    def _optimizer(self, seed: int) -> Any:
        if self.optimizer is None:
            from skopt import Optimizer

            self.optimizer = Optimizer(
                self._space(),
                base_estimator="GP",
                n_initial_points=5,
                initial_point_generator="lhs",
                acq_func="EI",
                acq_optimizer="auto",
                acq_func_kwargs={"xi": 0.01},
                acq_optimizer_kwargs={"n_points": 1000, "n_restarts_optimizer": 2},
                model_queue_size=1,
                random_state=seed % 2**31,
            )
        return self.optimizer

    def _space(self) -> list[Any]:
        from skopt.space import Real

        self.bounds = [(0.0, log2(self.limits.thread_count_max))]
        if self.limits.part_size_bytes_min < self.limits.part_size_bytes_max:
            self.bounds.append((log2(self.limits.part_size_bytes_min), log2(self.limits.part_size_bytes_max)))
        return [Real(low, high) for low, high in self.bounds]

    def _point(self, setting: BenchSetting) -> list[float]:
        logs = [log2(setting.thread_count), log2(setting.request_size_bytes)]
        return [min(max(v, low), high) for v, (low, high) in zip(logs, self.bounds, strict=False)]

    def _fixed(self) -> float:
        return float(self.limits.part_size_bytes_min)


def _candidates(limits: Limits) -> list[BenchSetting]:
    """A grid of eighths of an octave of threads and quarter octaves of parts."""
    threads = np.unique(np.round(2 ** np.arange(0, log2(limits.thread_count_max) + 0.01, 0.125)))
    low, high = log2(limits.part_size_bytes_min), log2(limits.part_size_bytes_max)
    parts = 2 ** np.linspace(low, high, 1 + ceil((high - low) * 4))
    return list(dict.fromkeys(limits.even(float(n), float(s)) for n in threads for s in parts))


class OptunaTpe(_BestObserved):
    """Optuna's tree-structured Parzen estimator, logarithmic knobs, five random points, best observed."""

    study: Any = None
    trial: Any = None

    def ask(self, seed: int) -> BenchSetting:
        """The study's next trial."""
        if self.study is None:
            import optuna

            optuna.logging.set_verbosity(optuna.logging.ERROR)
            sampler = optuna.samplers.TPESampler(seed=seed % 2**31, n_startup_trials=5)
            self.study = optuna.create_study(direction="maximize", sampler=sampler)
        limits = self.limits
        self.trial = self.study.ask()
        n = self.trial.suggest_int("thread_count", 1, limits.thread_count_max, log=True)
        if limits.part_size_bytes_min == limits.part_size_bytes_max:
            return limits.clip(n, limits.part_size_bytes_min)
        s = self.trial.suggest_float(
            "part_size_bytes", limits.part_size_bytes_min, limits.part_size_bytes_max, log=True
        )
        return limits.even(n, s)

    def tell(self, observation: S3Observation) -> None:
        """The logarithm, so that slow settings do not dominate."""
        super().tell(observation)
        self.study.tell(self.trial, log(observation.throughput_bytes_per_second))


BASELINES: dict[str, TunerFactory] = {
    "random": RandomSearch,
    "powers-of-two": PowersOfTwo,
    "boto3-default": Boto3Default,
    "crt-rule": CrtRule,
    "aws-87.5-rule": AwsRequestRule,
    "azcopy-climb": AzCopyClimb,
    "minio-autotune": MinioAutotune,
    "skopt-gp": SkoptGaussianProcess,
    "optuna-tpe": OptunaTpe,
}


# Tuners for downloads only.
READERS: dict[str, TunerFactory] = {"s3fs-blocks": S3fsBlocks}


def penstock(description: SurfaceDescription) -> PenstockTuner:
    """The product."""
    return PenstockTuner(description.context, description.limits)


def penstock_peak(description: SurfaceDescription) -> PenstockTuner:
    """The product with the objective of peak throughput."""
    return PenstockTuner(description.context, description.limits, objective=Objective.PEAK)


def tuners(operation: str = "s3_upload") -> dict[str, TunerFactory]:
    """All tuners for an operation, the product first."""
    own: dict[str, TunerFactory] = {"penstock": penstock, "penstock-peak": penstock_peak}
    return {**own, **BASELINES, **(READERS if operation == "s3_download" else {})}
