"""Knows what is in the files of a fleet, and where they are. Nothing is opened here.

    DESTINATION/observations/day=2026-11-22/host=5d1f0a9c27be33d0/observations.parquet
    DESTINATION/spend/day=2026-11-22/host=5d1f0a9c27be33d0/spend.parquet

Whoever writes a day again replaces the file of that day and host, so writing is repeated without harm. Columns for
questions are plain; `document` is the whole observation, from which models are fitted.
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

# Names and types as Athena and Hive spell them; `files.py` has those of Arrow.
OBSERVATION_COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(PLACE, "string"),
    "payload_size_bytes": "bigint",
    "setting": "string",  # the knobs by name, as JSON whose keys are in order: equal settings are equal text
    "value": "double",
    "duration_seconds": "double",
    "request_count": "bigint",
    "throttled_count": "bigint",
    "failed_count": "bigint",
    "document": "string",
    # What people ask for, and the report does not.
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
# As they are in the observation; `observation_row` says the others.
_SAME = tuple(field.name for field in fields(Observation) if field.name in OBSERVATION_COLUMNS)


def observation_row(observation: Observation[Any], model: PerformanceModel[Any]) -> dict[str, Any]:
    """The values of its columns; `value` is what the operation is for, bytes or messages a second."""
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
    """Below the destination."""
    return f"{table}/day={day}/host={host}/{table}.parquet"


def athena_ddl(destination: str) -> str:
    """What makes both tables in Athena; partitions are found by their names, with no crawler."""
    return "\n\n".join(
        f"CREATE EXTERNAL TABLE penstock_{table} (\n"
        + ",\n".join(f"  {name} {kind}" for name, kind in columns.items())
        + "\n)\nPARTITIONED BY (day string, host string)\nSTORED AS PARQUET\n"
        + f"LOCATION '{destination.rstrip('/')}/{table}/';\n"
        + f"MSCK REPAIR TABLE penstock_{table};"
        for table, columns in ((OBSERVATIONS, OBSERVATION_COLUMNS), (SPEND, SPEND_COLUMNS))
    )
