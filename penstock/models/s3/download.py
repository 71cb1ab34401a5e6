"""Knows the model of S3 downloads: ranges that are read concurrently, what is worth trying, and what it costs.

What a setting will do and what follows from it is in `transfer`, the law itself in `law`. For downloads, L is the time
before the first byte of a range, and B the rate of its body. Nothing is created or completed.

Besides the measures in `observed`, these of an observation are used: `first_byte_seconds_p50`,
`first_byte_seconds_p99`, `read_before_fraction` and, in an application's report, `sink_bytes_per_second`, the rate at
which its file accepted writes. A download that was limited by its file says nothing about the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, log
from typing import Any, ClassVar

import numpy as np

from penstock.models.model import Array, Fit
from penstock.models.s3 import remarks
from penstock.models.s3.answers import HEDGE_RATIO
from penstock.models.s3.directions import DOWNLOADS, REQUEST_SIZE_BYTES_MAX, Direction, S3Setting
from penstock.models.s3.law import CONNECTION_RATE, LATENCY
from penstock.models.s3.posterior import Posterior
from penstock.models.s3.read_objects import cost_of_putting
from penstock.models.s3.transfer import S3TransferModel
from penstock.units import KiB, MiB
from penstock.vocabulary import (
    Access,
    Context,
    Cost,
    Demand,
    Estimate,
    Observation,
    Place,
    Prediction,
    Sink,
    Tariff,
    knob,
)

RANGE_SIZE_BYTES_MIN = 4 * KiB
RANGE_SIZE_BYTES_MAX = REQUEST_SIZE_BYTES_MAX
_RANGE_SIZES_MIB = (1, 1.5, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 90, 128, 181, 256)
_RANDOM_RANGE_BYTES = MiB  # if the reader does not state it
_LOOKING_REQUESTS = 4  # one or two pages of a listing, and a HEAD for the object's size
_DEFAULT_THRESHOLD_BYTES = 8 * MiB  # of boto3; smaller objects are read whole
# Of boto3, which queues up to a thousand of them for a file that is slower than the network.
_IO_CHUNK_BYTES = 256 * KiB
_IO_CHUNK_BYTES_MIN = 16 * KiB
_IO_QUEUE_COUNT = 1000
_BLOCK_EFFICIENCY = 0.9  # of a connection's rate: what a block that is read by itself should reach
_BLOCK_BYTES_MIN, _BLOCK_BYTES_MAX = MiB, 128 * MiB
_RECENT_COUNT = 16  # newest observations, whose tails and file rates count
_TOLD_COUNT_MIN = 50  # ranges of an observation; with fewer, its 99th percentile means little
_TAIL_RATIO = 3.0  # p99 over p50 if not measured
_HEDGE_SECONDS_MIN = 0.1
_READINGS_MIN = 3  # observations of first reads, and as many of repeated reads
_MIXED = 0.1  # of the bytes: an observation with less of the other kind counts as one kind
_SOONER = 1.3  # times the first byte of a repeated read, from which on a slower first read is mentioned
_SINK_BOUND = 0.7  # of the file's rate, from which on the file is the limit, or close to it


@dataclass(frozen=True, slots=True, kw_only=True)
class S3DownloadSetting(S3Setting):
    """How objects are read. A range at or above the object's size means a single GET."""

    direction: ClassVar[Direction] = DOWNLOADS

    range_size_bytes: int = knob(RANGE_SIZE_BYTES_MIN, RANGE_SIZE_BYTES_MAX)

    @property
    def request_size_bytes(self) -> int:
        """The size of a range."""
        return self.range_size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class S3DownloadModel(S3TransferModel[S3DownloadSetting]):
    """Downloads of whole objects, of many small ones, and of ranges anywhere in a large one."""

    operation: ClassVar[str] = "s3_download"
    setting_type: ClassVar[type[S3DownloadSetting]] = S3DownloadSetting

    request_size_bytes_min: int = RANGE_SIZE_BYTES_MIN
    request_size_bytes_max: int = RANGE_SIZE_BYTES_MAX

    def default_setting(self, context: Context) -> S3DownloadSetting:
        """The default of boto3: ten threads, and ranges of 8 MiB; smaller objects in a single GET."""
        return self.legal(context, self.setting(10, _DEFAULT_THRESHOLD_BYTES))

    def size_bytes_least(self, context: Context) -> int:
        """4 KiB."""
        del context
        return RANGE_SIZE_BYTES_MIN

    def request_sizes_bytes(self, context: Context, demand: Demand) -> Sequence[int]:
        """Ranges that divide the object evenly, and the whole object; for random access, the reader's own range."""
        size = max(context.payload_size_bytes, 1)
        least, most = self.request_size_bytes_min, self.request_size_bytes_max
        if demand.access is Access.RANDOM:
            return [min(max(self.payload_bytes(context, demand), least), most)]
        low = max(least, min(size, round(_RANGE_SIZES_MIB[0] * MiB)))
        high = max(low, min(most, size, round(_RANGE_SIZES_MIB[-1] * MiB)))
        wanted = [min(max(round(x * MiB), low), high) for x in _RANGE_SIZES_MIB]
        return sorted({max(low, ceil(size / ceil(size / s))) for s in wanted})

    def requests_around(self, context: Context, setting: S3DownloadSetting, part_count: int) -> int:
        """The requests that find out what there is to read."""
        del context, setting, part_count
        return _LOOKING_REQUESTS

    def usd(self, tariff: Tariff, *, request_count: int, transferred_bytes: float) -> float:
        """The price if all requests were GET, plus that of a few to find the object."""
        return tariff.usd(
            write_request_count=_LOOKING_REQUESTS,
            read_request_count=request_count,
            received_bytes=transferred_bytes,
        )

    def cost_ahead(self, context: Context, tariff: Tariff) -> Cost:
        """The cost of putting the object that probes read."""
        return cost_of_putting(context.payload_size_bytes, tariff)

    def probe_seconds_min(self, fit: Fit, context: Context, setting: S3DownloadSetting) -> float:
        """The time of one wave of ranges at a low rate, because a range that does not end in time tells nothing."""
        return self._wave_bytes(context, setting) / float(self._steady_rates(fit, context, [setting])[1][0])

    def payload_bytes(self, context: Context, demand: Demand) -> int:
        """The bytes that one transfer moves: the object, or a range for random access."""
        size = max(context.payload_size_bytes, 1)
        if demand.access is not Access.RANDOM:
            return size
        return min(demand.range_size_bytes or _RANDOM_RANGE_BYTES, size)

    def within(self, fit: Fit, demand: Demand) -> Demand:
        """The demand; for downloads into a file, limited to the rate that files accepted so far."""
        disk, stated = _disk(fit), demand.bandwidth_bytes_per_second_max
        if demand.sink is not Sink.FILE or disk is None:
            return demand
        return replace(demand, bandwidth_bytes_per_second_max=min(stated or disk, disk))

    @property
    def reported_measures(self) -> frozenset[str]:
        """The rate at which the file accepted writes, and the time to the first byte."""
        return frozenset({"sink_bytes_per_second", "first_byte_seconds_mean"})

    def fit(
        self,
        place: Place,
        observations: Sequence[Observation[S3DownloadSetting]],
        *,
        prior: Fit | None,
        seed: int,
    ) -> Fit:
        """The fit to downloads that their file did not limit; those that it did only tell the file's rate."""
        free = [o for o in observations if not _is_held_back(o)]
        fit = S3TransferModel.fit(self, place, free, prior=prior, seed=seed)
        return replace(fit, state={**fit.state, "disk_bytes_per_second": _disk_of(observations)})

    def discrepancies(
        self, fit: Fit, reports: Sequence[Observation[S3DownloadSetting]]
    ) -> tuple[Array, Array]:
        """Discrepancies of throughput; a download that its file limited is compared with the file's rate."""
        residual, deviation = S3TransferModel.discrepancies(self, fit, reports)
        for row, report in enumerate(reports):
            if _is_held_back(report):
                sink = report.measures["sink_bytes_per_second"]
                residual[row, 0] = log(self.measured_value(report) / sink)
        return residual, deviation

    def learned_besides(self, observations: Sequence[Observation[S3DownloadSetting]]) -> dict[str, Any]:
        """The ratio of slow ranges (p99) to usual ones, and times to the first byte."""
        recent = observations[-_RECENT_COUNT:]
        tails = [
            o.latency_seconds_p99 / o.latency_seconds_p50
            for o in recent
            if o.latency_seconds_p50 > 0 and o.request_count >= _TOLD_COUNT_MIN
        ]
        first = [
            o.measures["first_byte_seconds_p50"] for o in recent if "first_byte_seconds_p50" in o.measures
        ]
        late = [
            o.measures["first_byte_seconds_p99"] / o.measures["first_byte_seconds_p50"]
            for o in recent
            if o.measures.get("first_byte_seconds_p50", 0.0) > 0
            and "first_byte_seconds_p99" in o.measures
            and o.request_count >= _TOLD_COUNT_MIN
        ]
        return {
            "tail_ratio": float(np.median(tails)) if tails else None,
            "first_byte_seconds": float(np.median(first)) if first else None,
            "first_byte_tail_ratio": float(np.median(late)) if late else None,
            "first_byte_seconds_cold_and_warm": _cold_and_warm(observations),
        }

    def remarks(
        self, fit: Fit, context: Context, setting: S3DownloadSetting, demand: Demand, **found_out: Any
    ) -> Sequence[str]:
        """As for all transfers, and whether repeated reads begin sooner."""
        found = S3TransferModel.remarks(self, fit, context, setting, demand, **found_out)
        cold, warm = fit.state.get("first_byte_seconds_cold_and_warm") or (0.0, 0.0)
        if cold < _SOONER * warm or not warm:
            return found
        return (*found, remarks.of_second_readings(cold, warm))

    def predict(self, fit: Fit, context: Context, setting: S3DownloadSetting, demand: Demand) -> Prediction:
        """As for all transfers, and the time to the first byte."""
        found = dict(S3TransferModel.predict(self, fit, context, setting, demand))
        found["first_byte_seconds"] = _first_byte_seconds(fit)
        return found

    def derived_besides(
        self, fit: Fit, context: Context, setting: S3DownloadSetting, demand: Demand
    ) -> dict[str, float]:
        """Options for readers of files, blocks and ranges, and when to send a request again."""
        draws = Posterior.from_state(fit.state).draws
        hole = float(np.exp((draws[:, LATENCY] + draws[:, CONNECTION_RATE]).mean()))
        block = _BLOCK_EFFICIENCY / (1.0 - _BLOCK_EFFICIENCY) * hole
        found = {
            "hedge_timeout_seconds": self._hedge_seconds(fit, context, setting, demand),
            "read_ahead_bytes": float(setting.thread_count * setting.range_size_bytes),
            "block_size_bytes": min(max(block, float(_BLOCK_BYTES_MIN)), float(_BLOCK_BYTES_MAX)),
            "coalesced_gap_bytes": hole,
            "io_chunk_bytes": _io_chunk_bytes(demand),
        }
        disk = _disk(fit)
        return found if disk is None else found | {"disk_bytes_per_second": disk}

    def bottleneck(self, fit: Fit, context: Context, setting: S3DownloadSetting, demand: Demand) -> str:
        """As for all transfers; "disk" if the file's rate is the limit."""
        name = S3TransferModel.bottleneck(self, fit, context, setting, demand)
        stated = demand.bandwidth_bytes_per_second_max
        is_disk = name == "demand" and self.within(fit, demand).bandwidth_bytes_per_second_max != stated
        return "disk" if is_disk else name

    def _hedge_seconds(self, fit: Fit, context: Context, setting: S3DownloadSetting, demand: Demand) -> float:
        """Seconds after which to request a range again: slightly more than the 99th percentile."""
        usual = setting.thread_count * min(setting.range_size_bytes, self.payload_bytes(context, demand))
        usual_seconds = usual / self._steady_rate(fit, context, setting)
        ratio = fit.state.get("tail_ratio") or _TAIL_RATIO
        return max(_HEDGE_SECONDS_MIN, HEDGE_RATIO * ratio * usual_seconds)


def _first_byte_seconds(fit: Fit) -> Estimate:
    """The time to the first byte of one request by itself: as measured, or else by the law."""
    draws = Posterior.from_state(fit.state).draws[:, LATENCY]
    middle, sigma = float(draws.mean()), float(draws.std())
    if (measured := fit.state.get("first_byte_seconds")) is not None:
        middle, sigma = log(measured), 0.1
    ratio = fit.state.get("first_byte_tail_ratio") or _TAIL_RATIO
    spread = 1.645 * (sigma**2 + (log(max(ratio, 1.0)) / 2.326) ** 2) ** 0.5
    return Estimate(exp(middle - spread), exp(middle), exp(middle + spread))


def _cold_and_warm(observations: Sequence[Observation[S3DownloadSetting]]) -> tuple[float, float] | None:
    """Median seconds to the first byte of first reads, and of repeated reads; None until both are known."""
    told = {"read_before_fraction", "first_byte_seconds_p50"}
    seen = [
        (o.measures["read_before_fraction"], o.measures["first_byte_seconds_p50"])
        for o in observations
        if told <= o.measures.keys()
    ]
    cold = [seconds for again, seconds in seen if again < _MIXED]
    warm = [seconds for again, seconds in seen if again > 1.0 - _MIXED]
    if min(len(cold), len(warm)) < _READINGS_MIN:
        return None
    return float(np.median(cold)), float(np.median(warm))


def _io_chunk_bytes(demand: Demand) -> float:
    """The default of boto3, or less so that chunks waiting for a slow file fit into a stated memory limit."""
    if demand.memory_bytes_max is None:
        return float(_IO_CHUNK_BYTES)
    return float(min(max(demand.memory_bytes_max // _IO_QUEUE_COUNT, _IO_CHUNK_BYTES_MIN), _IO_CHUNK_BYTES))


def _is_held_back(observation: Observation[S3DownloadSetting]) -> bool:
    sink = observation.measures.get("sink_bytes_per_second", 0.0)
    return 0 < _SINK_BOUND * sink <= observation.throughput_bytes_per_second


def _disk_of(observations: Sequence[Observation[S3DownloadSetting]]) -> float | None:
    """The median rate at which files accepted writes recently; None if unknown."""
    ordered = sorted(observations, key=lambda o: o.started_at)
    rates = [o.measures.get("sink_bytes_per_second", 0.0) for o in ordered]
    told = [rate for rate in rates if rate > 0][-_RECENT_COUNT:]
    return float(np.median(told)) if told else None


def _disk(fit: Fit) -> float | None:
    disk = fit.state.get("disk_bytes_per_second")
    return None if disk is None else float(disk)
