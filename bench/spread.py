"""Knows how to spread a benchmark's runs over two processes, and how to draw seeds of fresh worlds."""

from __future__ import annotations

import multiprocessing
import os
import random
import secrets
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import exp, log
from typing import TypeVar

import numpy as np

WORKERS = 2
JobT = TypeVar("JobT")
DoneT = TypeVar("DoneT")


def carried_out(perform: Callable[[JobT], DoneT], jobs: Sequence[JobT]) -> list[DoneT]:
    """The result of each job, in order; one thread of linear algebra per process, progress on standard error."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    found: list[DoneT] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=context, initializer=_hush_scikit_optimize) as pool:
        for done in pool.map(perform, jobs):
            found.append(done)
            if len(found) % max(len(jobs) // 10, 1) == 0:
                print(f"  {len(found)} of {len(jobs)} runs", file=sys.stderr, flush=True)
    return found


def _hush_scikit_optimize() -> None:
    """Silence its warning that it would ask for a known point again and draws a random one."""
    warnings.filterwarnings("ignore", message="The objective has been evaluated")


def fresh_seeds(*, long: bool) -> list[int]:
    """A random seed that nobody has tuned against; with `long`, four."""
    first = secrets.randbelow(10**6)
    return [first + i for i in range(4 if long else 1)]


def log_uniform(chance: random.Random | np.random.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return exp(chance.uniform(log(low), log(high)))
