"""THE TABLE of experiments, in the order of the studies."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.experiments import (
    locations,
    parallel_transfers,
    queue_throughput,
    queues,
    random_times,
    threads_by_size,
    uploads,
)
from penstock.experiments.experiment import Experiment

_STUDIED = (queues, queue_throughput, uploads, random_times, parallel_transfers, locations, threads_by_size)
EXPERIMENTS: Mapping[str, Experiment] = {
    row.name: row
    for row in sorted((row for rows in _STUDIED for row in rows.EXPERIMENTS), key=lambda row: row.study)
}

STUDIES = {
    "000": "Measuring interactive use of SQS and S3 uploads, 2012",
    "001": "Garfinkel, An Evaluation of Amazon's Grid Computing Services, 2007",
    "002": "Rasmussen, S3 upload performance by threads and object size, 2011",
    "003": "AWS, Increasing Throughput with Horizontal Scaling and Batching, 2012",
    "004": "RightScale, Network Performance Within Amazon EC2 and to Amazon S3, 2007",
}
