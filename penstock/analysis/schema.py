"""Knows what a fleet's files contain, and where they are. Nothing is opened here.

    DESTINATION/observations/day=2026-11-22/host=5d1f0a9c27be33d0/observations.parquet
    DESTINATION/spend/day=2026-11-22/host=5d1f0a9c27be33d0/spend.parquet

Writing a day again replaces the file of that day and host, so it can be repeated safely. Plain columns are for queries;
`document` is the whole observation, from which models are fitted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec

from penstock.models.model import PerformanceModel
from penstock.vocabulary import Observation, Place, setting_values

OBSERVATIONS, SPEND = "observations", "spend"
BUCKET = re.compile("s3://[a-z0-9]")
PLACE = ("operation", "region", "instance_type", "service_class")
PARTITIONS = {"day": "string", "host": "string"}

# Names and types as in Athena and Hive; `files.py` has Arrow's.
OBSERVATION_COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(PLACE, "string"),
    "payload_size_bytes": "bigint",
    "setting": "string",  # the knobs as JSON with sorted keys, so that equal settings are equal text
    "value": "double",
    "duration_seconds": "double",
    "request_count": "bigint",
    "throttled_count": "bigint",
    "failed_count": "bigint",
    "document": "string",
    # For people's own queries; the report does not use these.
    "started_at": "timestamp",
    "origin": "string",
    "client": "string",
    "transferred_bytes": "bigint",
    "latency_seconds_mean": "double",
    "latency_seconds_p50": "double",
    "latency_seconds_p99": "double",
    "client_cpu_fraction": "double",
}
SPEND_COLUMNS: Mapping[str, str] = {
    "region": "string",
    "instance_type": "string",
    "operation": "string",
    "hour_at": "timestamp",
    "transferred_bytes": "bigint",
    "request_count": "bigint",
    "usd": "double",
}
# Copied from the observation unchanged; `observation_row` computes the others.
_SAME = tuple(field.name for field in fields(Observation) if field.name in OBSERVATION_COLUMNS)


def observation_row(observation: Observation[Any], model: PerformanceModel[Any]) -> dict[str, Any]:
    """The values of its columns; `value` is the operation's own metric, bytes or messages per second."""
    context = observation.context
    return {
        **{name: getattr(context.place, name) for name in PLACE},
        **{name: getattr(observation, name) for name in _SAME},
        "payload_size_bytes": context.payload_size_bytes,
        "setting": json.dumps(setting_values(observation.setting), sort_keys=True),
        "value": float(model.measured_value(observation)),
        "document": msgspec.json.encode(observation).decode(),
        "origin": observation.origin.value,
    }


def spend_row(
    home: Place, operation: str, hour_at: datetime, cost: Any
) -> dict[str, Any]:  # Any: a Cost, of which three fields are told
    """The values of its columns."""
    return {
        "region": home.region,
        "instance_type": home.instance_type,
        "operation": operation,
        "hour_at": hour_at,
        "transferred_bytes": cost.transferred_bytes,
        "request_count": cost.request_count,
        "usd": cost.usd,
    }


def file_path(table: str, day: str, host: str) -> str:
    """The file's path below the destination."""
    return f"{table}/day={day}/host={host}/{table}.parquet"


def athena_ddl(destination: str) -> str:
    """SQL that creates both tables in Athena; partitions are found by their paths, without a crawler."""
    return "\n\n".join(
        f"CREATE EXTERNAL TABLE penstock_{table} (\n"
        + ",\n".join(f"  {name} {kind}" for name, kind in columns.items())
        + "\n)\nPARTITIONED BY (day string, host string)\nSTORED AS PARQUET\n"
        + f"LOCATION '{destination.rstrip('/')}/{table}/';\n"
        + f"MSCK REPAIR TABLE penstock_{table};"
        for table, columns in ((OBSERVATIONS, OBSERVATION_COLUMNS), (SPEND, SPEND_COLUMNS))
    )
