"""Knows what a report on very many observations takes: seconds, memory, and the size of the page.

    python -m bench report-size

It writes a database with a million observations, including histograms, of five places; `penstock report` reads it in a
process of its own.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from bench import results
from bench.figures import held
from penstock.daemon.memory.store import Store
from penstock.models.inference.histogram import histogram_of, pairs_of
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.upload import S3UploadSetting
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.operations.table import OPERATIONS, setting_types
from penstock.optimizer.recommendation import recommend
from penstock.units import MiB
from penstock.vocabulary import Context, Demand, Estimate, Observation, Place, Reason, Setting, knobs

OBSERVATION_COUNT = 1_000_000
SECONDS_MAX, RSS_BYTES_MAX, PAGE_BYTES_MAX = 20.0, 300e6, 2e6
YEAR = timedelta(days=365)
BEGINS_AT = datetime(2025, 9, 1, tzinfo=UTC)
FITTED_COUNT = 120
_REGIONS = {"s3_upload": 2, "s3_download": 2, "sqs_delivery": 1}  # five places
_SIZES = (8 * MiB, 64 * MiB, 1024 * MiB)


def run(*, long: bool = False) -> dict[str, float]:  # noqa: ARG001 - there is one form
    """Measure, print, keep the figures under `results/`."""
    with tempfile.TemporaryDirectory() as name:
        database, page = Path(name) / "penstock.db", Path(name) / "report.html"
        fill(database, OBSERVATION_COUNT)
        reporting = ["-m", "penstock", "report", "--database", str(database), "--output", str(page)]
        found = _measured_of(reporting, page)
    print(f"a database of {OBSERVATION_COUNT:,} observations")
    most = {"seconds": SECONDS_MAX, "rss_bytes": RSS_BYTES_MAX, "page_bytes": PAGE_BYTES_MAX}
    held({name: (found[name], bound) for name, bound in most.items()})
    results.keep("report-size", found)
    return found


def fill(database: Path, count: int, *, seed: int = 1) -> None:
    """A year of five places, with fits and advice: measurements follow a law with noise, and are written fast."""
    places = [
        Place(operation=operation, region=f"eu-central-{n + 1}", instance_type="m7i.large")
        for operation, region_count in _REGIONS.items()
        for n in range(region_count)
    ]
    with closing(Store(database, setting_types())) as store:
        for place in places:
            few = [o for _, o in zip(range(FITTED_COUNT), observations(place, 10_000, seed), strict=False)]
            _learn(store, place, few)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        sql = """INSERT INTO observations (operation, region, instance_type, service_class, payload_size_bytes,
                 started_at, document) VALUES (?, ?, ?, ?, ?, ?, ?)"""
        for n, place in enumerate(places):
            rows = (_row(o) for o in observations(place, count // len(places), seed + n))
            connection.executemany(sql, rows)
            connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def observations(place: Place, count: int, seed: int) -> Iterator[Observation[Any]]:
    """Evenly through a year; a thousandth of them had requests refused."""
    rng = random.Random(seed)
    times = [_times(random.Random(n)) for n in range(64)]  # the requests of 64 probes, used again and again
    for n in range(count):
        setting, size, value = _measured(place.operation, rng)
        request_count = 40
        yield Observation(
            context=Context(place=place, payload_size_bytes=size),
            setting=setting,
            started_at=BEGINS_AT + YEAR * (n / count),
            duration_seconds=max(size, 1024) * 40 / value
            if place.operation == "sqs_delivery"
            else size / value,
            transferred_bytes=size,
            request_count=request_count,
            throttled_count=rng.randrange(1, 20) if rng.random() < 0.001 else 0,
            latency_seconds_mean=rng.lognormvariate(-2.0, 0.3),
            latency_seconds_p50=rng.lognormvariate(-2.1, 0.3),
            latency_seconds_p99=rng.lognormvariate(-1.0, 0.3),
            client_cpu_fraction=rng.random(),
            loop_lag_seconds_max=rng.random() / 100,
            measures=_measures(place.operation, value, rng),
            reason=Reason.VERIFY,
            foreseen=Estimate(0.8 * value, value, 1.2 * value),
            **times[n % len(times)],
        )


def _measured(operation: str, rng: random.Random) -> tuple[Setting, int, float]:
    """A setting, a size, and the value measured with them."""
    noise = rng.lognormvariate(0.0, 0.12)
    if operation == "sqs_delivery":
        threads = rng.choice((1, 2, 3, 4, 6, 8))
        setting: Setting = SqsDeliverySetting(
            sender_thread_count=threads,
            receiver_thread_count=threads,
            deleter_thread_count=threads,
            batch_message_count=rng.choice((1, 5, 10)),
        )
        return setting, 1024, 60.0 * threads * noise
    threads, part_size = rng.choice((1, 2, 4, 6, 8, 12, 16, 24, 32, 48)), rng.choice((5, 8, 12, 16, 32)) * MiB
    kind: Any = S3UploadSetting if operation == "s3_upload" else S3DownloadSetting
    values = dict(zip(knobs(kind), (threads, part_size), strict=False))
    return kind(**values), rng.choice(_SIZES), min(12e6 * threads, 240e6) * noise


def _measures(operation: str, value: float, rng: random.Random) -> Mapping[str, float]:
    if operation == "sqs_delivery":
        return {"goodput_messages_per_second": value, "unique_count": 40 * value}
    return {"steady_throughput_bytes_per_second": value, "connection_seconds": rng.lognormvariate(-4.0, 0.3)}


def _times(rng: random.Random) -> dict[str, Any]:
    times = [rng.lognormvariate(-1.6, 0.35) for _ in range(40)]
    return {
        "histograms": {
            "request_seconds": histogram_of(times),
            "first_byte_seconds": histogram_of([each / 2 for each in times]),
        },
        "successive": pairs_of([times]),
    }


def _learn(store: Store, place: Place, few: list[Observation[Any]]) -> None:
    model = OPERATIONS[place.operation].model
    fit = model.fit(place, few, prior=None, seed=1)
    store.add_fit(fit, fitted_at=BEGINS_AT)
    for size in sorted({o.context.payload_size_bytes for o in few}):
        context = Context(place=place, payload_size_bytes=size)
        now = BEGINS_AT + YEAR
        made = recommend(model, fit, context, Demand(), previous=None, now=now, validity_seconds=86400.0)
        store.add_recommendation(made)


def _row(observation: Observation[Any]) -> tuple[Any, ...]:
    place = observation.context.place
    return (
        place.operation,
        place.region,
        place.instance_type,
        place.service_class,
        observation.context.payload_size_bytes,
        observation.started_at.isoformat(timespec="microseconds"),
        msgspec.json.encode(observation).decode(),
    )


def _measured_of(command: list[str], page: Path) -> dict[str, float]:
    """A program's resources, with memory and processor time counted by the kernel."""
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, *command])
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with {status}")
    return {
        "seconds": time.monotonic() - began,
        "rss_bytes": usage.ru_maxrss * 1024.0,
        "page_bytes": float(page.stat().st_size),
    }
