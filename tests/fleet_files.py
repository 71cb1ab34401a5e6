"""Knows a made-up fleet's files: few hosts and days whose truth is known, or as many rows as are wanted."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.analysis import files
from penstock.analysis.schema import OBSERVATIONS, SPEND, file_path, observation_row, spend_row
from penstock.operations.s3.upload import UPLOAD
from penstock.units import MiB
from penstock.vocabulary import Cost, Place
from tests.unit.models.s3.upload_world import UploadWorld, history

DAY = datetime(2026, 3, 1, tzinfo=UTC)
SIZE = 64 * MiB
HOSTS = ("a", "b", "c", "d")
# A host with slow requests in one place, and the day from which another place is slower.
SLOW, CHANGED_DAY = "d", 3
CALM = Place(operation=UPLOAD.name, region="eu-central-1", instance_type="m7i.large")
CHANGED = dataclasses.replace(CALM, region="eu-west-1")


def world(place: Place, *, host: str, day: int) -> UploadWorld:
    """How it is there."""
    is_slow = place == CALM and host == SLOW
    is_changed = place == CHANGED and day >= CHANGED_DAY
    rate = 1e7 / (4 if is_slow else 1) / (2 if is_changed else 1)
    return UploadWorld(
        place=place,
        size=SIZE,
        connection_bytes_per_second=rate,
        host_bytes_per_second=20 * rate,
        request_seconds=0.05,
    )


def write_fleet(folder: Path) -> None:
    """Six observations of each host, place and day."""
    for day in range(6):
        for host in HOSTS:
            rows = []
            for place in (CALM, CHANGED):
                truth = world(place, host=host, day=day)
                for i, one in enumerate(history(truth, 6)):
                    at = DAY + timedelta(days=day, hours=i, seconds=HOSTS.index(host))
                    seconds = one.setting.part_size_bytes / truth.connection_bytes_per_second
                    dated = dataclasses.replace(one, started_at=at, latency_seconds_p50=seconds)
                    rows.append(observation_row(dated, UPLOAD.model))
            name = f"{DAY + timedelta(days=day):%Y-%m-%d}"
            files.write(str(folder), file_path(OBSERVATIONS, name, host), OBSERVATIONS, rows)
            cost = Cost(transferred_bytes=10**9, request_count=200, usd=0.001)
            spent = [spend_row(CALM, UPLOAD.name, DAY + timedelta(days=day), cost)]
            files.write(str(folder), file_path(SPEND, name, host), SPEND, spent)
