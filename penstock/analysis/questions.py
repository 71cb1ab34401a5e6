"""Knows the questions about all hosts' observations, in SQL for both DuckDB and Spark, and the fit of a place.

`documents` and `spend` are tables, or views of files, from which the engine keeps only rows that are `SOUND`: a host
may write anything into its files, but must not spoil the others. `observations` has the columns `MEASURED` of
`documents`; an engine may cache it, because nearly all questions read it. Each answer is small whatever the number of
hosts, and a place's sample is enough to fit it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.analysis.schema import (
    OBSERVATION_COLUMNS,
    OBSERVATIONS,
    PARTITIONS,
    PLACE,
    SPEND,
    SPEND_COLUMNS,
)
from penstock.clock import SystemClock
from penstock.fleet.prior import UNREADABLE, impossible
from penstock.models.model import PerformanceModel
from penstock.operations.table import OPERATIONS
from penstock.optimizer import evidence
from penstock.optimizer.recommendation import recommend
from penstock.vocabulary import Demand, Observation, Place, setting_values

# The newest probes of each place, but none from the future: a clock that was ahead must not be the newest for ever.
SAMPLE_COUNT = 64
DOCUMENTS = "documents"
MEASURED = (
    *PLACE,
    "payload_size_bytes",
    "day",
    "host",
    "origin",
    "started_at",
    "value",
    "request_count",
    "throttled_count",
    "transferred_bytes",
    "latency_seconds_p50",
    "client_cpu_fraction",
)
_NUMBER_MAX = 1e15
_NAME_LENGTH_MAX = 64  # of the fields of a place, of a host and of a day


def _sound(columns: Mapping[str, str], names: Iterable[str]) -> str:
    conditions = {
        **dict.fromkeys(("bigint", "double"), f"BETWEEN 0 AND {_NUMBER_MAX}"),  # NaN is above all numbers
        "timestamp": "IS NOT NULL",
    }
    is_name = f"BETWEEN 1 AND {_NAME_LENGTH_MAX}"
    return " AND ".join(
        f"length({name}) {is_name}" if columns[name] == "string" else f"{name} {conditions[columns[name]]}"
        for name in names
    )


SOUND: Mapping[str, str] = {
    OBSERVATIONS: f"document IS NOT NULL AND {_sound({**OBSERVATION_COLUMNS, **PARTITIONS}, MEASURED)}",
    SPEND: _sound(columns := {**SPEND_COLUMNS, **PARTITIONS}, columns),
}
_PLACE = ", ".join(PLACE)
_ON = " AND ".join(f"o.{name} = n.{name}" for name in PLACE)

PLACES = f"""
SELECT {_PLACE}, count(*) AS observation_count, count(DISTINCT host) AS host_count,
  min(day) AS first_day, max(day) AS last_day, CAST(sum(transferred_bytes) AS DOUBLE) AS transferred_bytes,
  CAST(sum(throttled_count) AS DOUBLE) / greatest(sum(request_count), 1) AS refused_fraction
FROM observations GROUP BY {_PLACE} ORDER BY {_PLACE}"""

# The upper quartile, because hosts try different settings: their good results can be compared.
HOSTS = f"""
SELECT {_PLACE}, payload_size_bytes, host, count(*) AS observation_count,
  percentile_cont(0.75) WITHIN GROUP (ORDER BY value) AS value,
  percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_seconds_p50) AS latency_seconds,
  percentile_cont(0.5) WITHIN GROUP (ORDER BY client_cpu_fraction) AS client_cpu_fraction,
  CAST(sum(throttled_count) AS DOUBLE) / greatest(sum(request_count), 1) AS refused_fraction
FROM observations WHERE origin = 'probe'
GROUP BY {_PLACE}, payload_size_bytes, host ORDER BY {_PLACE}, payload_size_bytes, host"""

DAYS = f"""
SELECT {_PLACE}, payload_size_bytes, day, count(*) AS observation_count,
  percentile_cont(0.75) WITHIN GROUP (ORDER BY value) AS value
FROM observations WHERE origin = 'probe'
GROUP BY {_PLACE}, payload_size_bytes, day ORDER BY {_PLACE}, payload_size_bytes, day"""

SPENT = """
SELECT region, instance_type, operation, count(DISTINCT host) AS host_count,
  round(sum(usd), 6) AS usd, CAST(sum(request_count) AS DOUBLE) AS request_count,
  CAST(sum(transferred_bytes) AS DOUBLE) AS transferred_bytes
FROM spend GROUP BY region, instance_type, operation ORDER BY region, instance_type, operation"""

# Ranked by narrow columns first: wide ones are read only for the newest rows, and for no day before theirs.
SAMPLE = f"""
WITH newest AS (
  SELECT {_PLACE}, min(started_at) AS since, min(day) AS first_day FROM (
    SELECT {_PLACE}, started_at, day,
      row_number() OVER (PARTITION BY {_PLACE} ORDER BY started_at DESC) AS age_rank
    FROM observations WHERE origin = 'probe' AND started_at <= current_timestamp
  ) ranked WHERE age_rank <= {SAMPLE_COUNT} GROUP BY {_PLACE}
)
SELECT o.operation, o.region, o.instance_type, o.service_class, o.host, o.document
FROM {DOCUMENTS} o JOIN newest n ON {_ON} AND o.started_at >= n.since
WHERE o.origin = 'probe' AND o.day >= (SELECT min(first_day) FROM newest)"""

QUESTIONS: Mapping[str, str] = {"places": PLACES, "hosts": HOSTS, "days": DAYS, "spent": SPENT}
FIT_COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(PLACE, "string"),
    "payload_size_bytes": "bigint",
    "observation_count": "bigint",
    "setting": "string",
    "value_low": "double",
    "value": "double",
    "value_high": "double",
    "gain_low": "double",
    "gain": "double",
    "gain_high": "double",
    "bottleneck": "string",
}


def fit_of(sample: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The advice from the newest measurements of one place, of any hosts: one row, or none.

    The same rows give the same fit, in any order.
    """
    rows = list(sample)
    if not rows or rows[0]["operation"] not in OPERATIONS:
        return []
    place = Place(**{name: str(rows[0][name]) for name in PLACE})
    model = OPERATIONS[place.operation].model
    by_age = sorted(
        _readable(rows, model, place),
        key=lambda one: (one[0].started_at, one[1]["host"], one[1]["document"]),
    )
    observations = [observation for observation, _ in by_age[-SAMPLE_COUNT:]]
    if not observations:
        return []
    fit = evidence.attach(model.fit(place, observations, prior=None, seed=0), model, observations)
    newest = observations[-1]
    advice = recommend(
        model, fit, newest.context, Demand(), previous=None, now=newest.started_at, validity_seconds=3600.0
    )
    expected, gain = advice.prediction[model.value_metric], advice.gain_over_default
    return [
        {
            **{name: getattr(place, name) for name in PLACE},
            "payload_size_bytes": newest.context.payload_size_bytes,
            "observation_count": len(observations),
            "setting": json.dumps({n: float(v) for n, v in setting_values(advice.setting).items()}),
            "value_low": float(expected.low),
            "value": float(expected.expected),
            "value_high": float(expected.high),
            "gain_low": None if gain is None else float(gain.low),
            "gain": None if gain is None else float(gain.expected),
            "gain_high": None if gain is None else float(gain.high),
            "bottleneck": advice.bottleneck,
        }
    ]


def _readable(
    rows: Iterable[Mapping[str, Any]], model: PerformanceModel[Any], place: Place
) -> Iterator[tuple[Observation[Any], Mapping[str, Any]]]:
    """The sound rows: hosts may be of another version, or lie; what is unreadable or impossible is no evidence."""
    decoder = msgspec.json.Decoder(Observation[model.setting_type])  # type: ignore[name-defined]  # known at run time
    now = SystemClock().now()
    for row in rows:
        try:
            observation = decoder.decode(row["document"])
        except UNREADABLE:
            continue
        if next(impossible(observation, model, place, now), None) is None:
            yield observation, row


def in_order(fits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fits, sorted by place."""
    return sorted(map(dict, fits), key=lambda row: tuple(str(row[name]) for name in PLACE))
