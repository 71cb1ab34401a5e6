"""Knows how Spark answers the same questions if the files are too many for one machine; to be submitted as a job.

    spark-submit --py-files penstock.zip with_spark.py s3a://my-bucket/fleet --output s3a://my-bucket/page.json

The executors need `penstock` and what its models import (NumPy, SciPy, scikit-learn, msgspec). Only small results reach
the driver: answers, and one row for each place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.analysis import questions
from penstock.analysis.schema import (
    OBSERVATION_COLUMNS,
    OBSERVATIONS,
    PARTITIONS,
    PLACE,
    SPEND,
    SPEND_COLUMNS,
)


def answers(
    spark: Any, source: str
) -> dict[str, list[dict[str, Any]]]:  # Any: a SparkSession, which has no types here
    """Rows by the names of `questions.QUESTIONS`, and `fits`."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    documents = _table(spark, source, OBSERVATIONS, OBSERVATION_COLUMNS)
    documents.createOrReplaceTempView(questions.DOCUMENTS)
    _table(spark, source, SPEND, SPEND_COLUMNS).createOrReplaceTempView(SPEND)
    # Otherwise each question opens every file again, which takes most of the time: the files are small and many.
    measured = documents.select(*questions.MEASURED).persist()
    measured.createOrReplaceTempView(OBSERVATIONS)
    found = {name: _rows(spark.sql(sql)) for name, sql in questions.QUESTIONS.items()}
    schema = ", ".join(f"{name} {kind}" for name, kind in questions.FIT_COLUMNS.items())
    fits = spark.sql(questions.SAMPLE).groupBy(*PLACE).applyInPandas(_fitted, schema)
    found["fits"] = questions.in_order(_rows(fits))
    measured.unpersist()
    return found


def _table(spark: Any, source: str, table: str, columns: Mapping[str, str]) -> Any:  # Any: both are Spark's
    schema = ", ".join(f"{name} {kind}" for name, kind in {**columns, **PARTITIONS}.items())
    return spark.read.schema(schema).parquet(f"{source.rstrip('/')}/{table}").where(questions.SOUND[table])


def _fitted(sample: Any) -> Any:
    """The fit of one place, on an executor (Any: pandas data frames)."""
    import pandas as pd

    rows = questions.fit_of(sample.to_dict("records"))
    return pd.DataFrame(rows, columns=list(questions.FIT_COLUMNS))


def _rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def main(arguments: list[str] | None = None) -> None:
    """The job: writes its page to a file on the driver, or to standard output."""
    from penstock.analysis.page import page, rendered

    parser = argparse.ArgumentParser(description="The report of a fleet, by Spark.")
    parser.add_argument(
        "source", help="where `penstock observations --to` wrote, such as s3a://my-bucket/fleet"
    )
    parser.add_argument("--output", type=Path, help="a file on the driver; without it the standard output")
    parser.add_argument("--format", choices=["html", "markdown", "json"], default="html")
    asked = parser.parse_args(arguments)
    spark = SparkSession.builder.appName("penstock-fleet-report").getOrCreate()
    try:
        text = rendered(page(answers(spark, asked.source), asked.source), asked.format)
    finally:
        spark.stop()
    if asked.output is None:
        sys.stdout.write(text)
    else:
        asked.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
