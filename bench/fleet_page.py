"""Knows how long a fleet's report takes: ten million observations by DuckDB, and by Spark with one and two cores.

    python -m bench fleet-page          a tenth of it
    python -m bench --long fleet-page

The files are made up: 100 days of 20 hosts in six places. Peak memory is the reading process's. Spark runs in its local
mode, where executors are threads of one Java process; it needs `pyspark` and Java.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from bench import results

_HOST_COUNT, _DAY_COUNT = 20, 100
_DUCKDB = """
import json, resource, sys, time
from penstock.analysis import with_duckdb
from penstock.analysis.page import page
start = time.perf_counter()
told = page(with_duckdb.answers(sys.argv[1]), "made up")
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "observation_count": told["observation_count"],
    "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
}))
"""
_SPARK = """
import json, sys, time
from pyspark.sql import SparkSession
from penstock.analysis import with_spark
from penstock.analysis.page import page
builder = SparkSession.builder.master(f"local[{sys.argv[2]}]").config("spark.ui.enabled", "false")
for name in ("spark.driver.host", "spark.driver.bindAddress"):
    builder = builder.config(name, "127.0.0.1")
spark = builder.config("spark.driver.memory", "2g").config("spark.sql.shuffle.partitions", "4").getOrCreate()
spark.range(10).count()
start = time.perf_counter()
told = page(with_spark.answers(spark, sys.argv[1]), "made up")
print(json.dumps({"seconds": time.perf_counter() - start, "observation_count": told["observation_count"]}))
spark.stop()
"""


def make(folder: Path, count: int) -> None:
    """Write this many observations; values are noise around each place's and host's own level."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstock.analysis.files import SCHEMAS
    from penstock.analysis.schema import OBSERVATIONS, SPEND, file_path, observation_row, spend_row
    from penstock.operations.s3.upload import UPLOAD
    from penstock.vocabulary import Cost
    from tests import fleet_files
    from tests.unit.models.s3.upload_world import history

    per_file = count // (_HOST_COUNT * _DAY_COUNT)
    measured = history(fleet_files.world(fleet_files.CALM, host="a", day=0), 64)
    rows = [observation_row(one, UPLOAD.model) for one in measured]
    rows = [rows[i % len(rows)] for i in range(per_file)]
    plain = pa.Table.from_pylist(rows, schema=SCHEMAS[OBSERVATIONS])
    chance = np.random.default_rng(1)
    regions = np.array(["eu-central-1", "eu-west-1", "us-east-1"])
    for day in range(_DAY_COUNT):
        name = f"{fleet_files.DAY + timedelta(days=day):%Y-%m-%d}"
        for host in range(_HOST_COUNT):
            start = np.datetime64((fleet_files.DAY + timedelta(days=day)).replace(tzinfo=None), "us")
            changed = {
                "started_at": start
                + np.sort(chance.integers(0, 86_400_000_000, per_file)).astype("timedelta64[us]"),
                "region": regions[chance.integers(0, 3, per_file)],
                "instance_type": np.array([f"m7i.{('large', 'xlarge')[host % 2]}"] * per_file),
                "value": chance.lognormal(18.0, 0.3, per_file),
                "latency_seconds_p50": chance.lognormal(-2.0, 0.3, per_file),
            }
            table = plain
            for column, values in changed.items():
                at = table.schema.get_field_index(column)
                field = SCHEMAS[OBSERVATIONS].field(column)
                table = table.set_column(at, field, pa.array(values).cast(field.type))
            path = folder / file_path(OBSERVATIONS, name, f"h{host}")
            path.parent.mkdir(parents=True)
            pq.write_table(table, path, compression="zstd")
        cost = Cost(transferred_bytes=10**9, request_count=200, usd=0.001)
        spent = [spend_row(fleet_files.CALM, UPLOAD.name, fleet_files.DAY + timedelta(days=day), cost)]
        path = folder / file_path(SPEND, name, "h0")
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(spent, schema=SCHEMAS[SPEND]), path)


def _timed(program: str, *arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(*, long: bool) -> dict[str, Any]:
    """Both engines on the same files."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-fleet-") as name:
        make(Path(name), 10_000_000 if long else 1_000_000)
        found["size_bytes"] = sum(path.stat().st_size for path in Path(name).rglob("*.parquet"))
        found["duckdb"] = _timed(_DUCKDB, name)
        print(found, flush=True)
        if importlib.util.find_spec("pyspark") is not None:
            for cores in ("1", "2"):
                found[f"spark, {cores} cores"] = _timed(_SPARK, name, cores)
                print(cores, found[f"spark, {cores} cores"], flush=True)
    results.keep("fleet-page", found)
    return found
