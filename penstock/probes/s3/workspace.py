"""Knows the workspace of a probe of objects: store, bucket, clock, journal, and processes that may move bodies."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.clock import Clock
from penstock.probes.measurement import LOOP_TICK_SECONDS
from penstock.probes.outside import ObjectStore
from penstock.probes.probe import Journal
from penstock.probes.s3.workers import Hire, Staff
from penstock.probes.s3.written import Written

KEY_PREFIX = "penstock/"


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a probe writes and reads objects, and by what means."""

    store: ObjectStore
    clock: Clock
    journal: Journal
    bucket: str
    key_prefix: str = KEY_PREFIX
    loop_tick_seconds: float = LOOP_TICK_SECONDS
    hire: Hire | None = None
    worker_count_max: int = 1

    def staff(self, *, is_apart: bool = False) -> Staff:
        """The staff that moves a probe's bodies. `is_apart`: by other processes even where this one would suffice."""
        return Staff(
            self.clock,
            hire=self.hire,
            worker_count_max=self.worker_count_max,
            loop_tick_seconds=self.loop_tick_seconds,
            is_apart=is_apart,
        )

    def written(self, run: str) -> Written:
        """The record of what a run of this name writes here, still empty."""
        return Written(store=self.store, bucket=self.bucket, key_prefix=self.key_prefix + run)
