"""Knows the lab worlds that are calibrated to the published studies: a path or a queue for each.

Comments, and `facts.csv` figure by figure, say what was fitted to which figure. All other values come from the text of
the same source, or of another of the studies.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.lab.link import Drift, Episodes, LinkTruth
from penstock.lab.sqs import ActionTruth, QueueTruth
from penstock.trial.simulated_host import World

MB = 1e6
ETHERNET_SHARE = 1460 / 1538  # share of a cable's bits that are bodies, in full TCP segments


def timed(request_seconds: float, message_seconds: float = 0.0, *, variation: float = 1.0) -> ActionTruth:
    """A request of the published queue; with a variation of 1 its duration is spread like an exponential time."""
    return ActionTruth(request_seconds=request_seconds, message_seconds=message_seconds, variation=variation)


# Study 000: a sender that sends one message after another, in the 20 ms that study 003 gives for a request.
QUEUE = World(
    queue=QueueTruth(
        send=timed(0.020),
        receive=timed(0.020, 0.004),
        delete=timed(0.016286, 0.004),
        spread_seconds_median=0.047,
        spread_sigma=0.05,
        visibility_timeout_seconds=30,
    )
)
QUEUE_EAST = replace(QUEUE, queue=replace(QUEUE.queue, spread_seconds_median=0.024, short_poll_shard_count=8))
QUEUE_WEST = replace(QUEUE, queue=replace(QUEUE.queue, spread_seconds_median=0.201))

# Study 001, 6
QUEUE_2007 = World(
    queue=QueueTruth(
        send=timed(0.223),
        receive=timed(0.19275),
        delete=timed(0.19275),
        spread_seconds_median=0.047,
        visibility_timeout_seconds=7200,
    )
)
_GUIDE = timed(0.016, 0.004, variation=0.3)
QUEUE_GUIDE = World(
    queue=QueueTruth(
        send=_GUIDE, receive=_GUIDE, delete=_GUIDE, spread_seconds_median=0.004, spread_sigma=0.3
    )
)

# Study 000, III: one client and its path to S3. Fitted to figures 10, 11 and 13; the network is the client's own.
HDD = LinkTruth(
    round_trip_seconds=0.09,
    service_latency_seconds_median=0.08,
    connection_rate_bytes_per_second=0.56 * MB,
    host_rate_bytes_per_second=125 * MB,
    disk_rate_bytes_per_second=9.6 * MB,
    disk_seek_fraction=0.036,
    burstiness=0.28,
    merge_seconds=0.2,
    merge_seconds_per_part=0.001,
)
RAM_DISK = replace(
    HDD,
    connection_rate_bytes_per_second=1.75 * MB,
    disk_rate_bytes_per_second=None,
    cpu_rate_bytes_per_second=27 * MB,
    cpu_switch_fraction=0.005,
    burstiness=0.5,
)
# Four processors at 2.8 GHz instead of two at 2.6.
FASTER = replace(RAM_DISK, cpu_rate_bytes_per_second=27 * MB * (4 * 2.8) / (2 * 2.6))

ADDRESS_COUNT = 10  # addresses of S3 that study 001 saw

# Study 001, 5. The host's rate is the 250 Mbit/s that Amazon advertised.
READS_2007 = LinkTruth(
    round_trip_seconds=0.002,
    service_latency_seconds_median=0.042,
    service_latency_sigma=0.45,
    connection_rate_bytes_per_second=10.4 * MB,
    host_rate_bytes_per_second=31.25 * MB,
    drift=Drift(seconds_mean=3600.0, rate_sigma=0.25, latency_sigma=0.225),
    dips=Episodes(gap_seconds_mean=40.0, duration_seconds_mean=8.0, fraction_low=0.2, fraction_high=0.6),
)
WRITES_2007 = replace(READS_2007, service_latency_seconds_median=0.088, service_latency_sigma=0.3)
COLD_READS_2007 = replace(READS_2007, cold_read_seconds=0.85)  # larger objects come from a disk
SURGE = replace(READS_2007, drift=None, dips=None, service_latency_sigma=0.0, burstiness=0.1)

# Study 001, 5.9. Each place has one number of its own, the round trip that its mean write requires: the load balancers
# of S3 limit a connection to a window of 65,535 bytes (5.4). Everything else is the path from EC2. The time of the
# service's disk and its spread are those of the reads from EC2 in the same table, from later weeks.
PLACES = {
    place: replace(WRITES_2007, round_trip_seconds=seconds, window_bytes=65_535.0)
    for place, seconds in {
        "netherlands": 0.1435,
        "harvard": 0.0878,
        "pittsburgh": 0.0319,
        "mit": 0.0205,
        "ec2": READS_2007.round_trip_seconds,
    }.items()
}


def _reads(writes: LinkTruth, seconds_median: float, sigma: float) -> LinkTruth:
    return replace(writes, service_latency_seconds_median=seconds_median, service_latency_sigma=sigma)


# Study 002. A host in Denmark, 30 ms from Ireland: a connection for each request, and two more round trips for TLS.
COLO_HTTP = LinkTruth(
    round_trip_seconds=0.030,
    round_trips_per_request=2.0,
    service_latency_seconds_median=0.015,
    latency_coherency=4e-5,
    connection_rate_bytes_per_second=0.9 * MB,
    host_rate_bytes_per_second=125 * MB * ETHERNET_SHARE,
    burstiness=0.2,
)
COLO_HTTPS = replace(COLO_HTTP, round_trips_per_request=4.0, latency_coherency=2.5e-4)
M1_XLARGE = LinkTruth(
    round_trip_seconds=0.002,
    round_trips_per_request=2.0,
    service_latency_seconds_median=0.004,
    connection_rate_bytes_per_second=25 * MB,
    host_rate_bytes_per_second=548 * MB,
    request_overhead_bytes=77_000,
    oversubscription_loss=0.01,
)
CC1_4XLARGE = LinkTruth(
    round_trip_seconds=0.002,
    round_trips_per_request=2.0,
    service_latency_seconds_median=0.0127,
    connection_rate_bytes_per_second=10.48 * MB,
    host_rate_bytes_per_second=1250 * MB * ETHERNET_SHARE,
    burstiness=0.4,
    oversubscription_loss=0.02,
)

# Study 004, between instances. A wire of 1 Gbit/s, of which each stream takes all it can get; how the streams wait for
# it is fitted to one stream.
BETWEEN_HOSTS = LinkTruth(
    round_trip_seconds=0.0003,
    service_latency_seconds_median=0.0005,
    connection_rate_bytes_per_second=10_000 * MB,  # the memory of both
    host_rate_bytes_per_second=125 * MB * ETHERNET_SHARE,
    burstiness=0.9665,
)

# Study 004: five numbers for eighteen figures. Uploads are fitted to one stream, eight and twelve; downloads have the
# same knee, and are fitted to one stream and eight, both without TLS. The path with TLS is the same.
UPLOAD = LinkTruth(
    round_trip_seconds=0.0022,
    service_latency_seconds_median=0.03,
    connection_rate_bytes_per_second=6.98 * MB,
    host_rate_bytes_per_second=53.81 * MB,
    burstiness=0.624,
)
DOWNLOAD = replace(UPLOAD, connection_rate_bytes_per_second=10.497 * MB, host_rate_bytes_per_second=51.5 * MB)

Paths = tuple[LinkTruth, LinkTruth | None]  # of writes, and of reads if these differ
WORLDS: dict[str, World | Paths] = {
    "queue": QUEUE,
    "queue-east": QUEUE_EAST,
    "queue-west": QUEUE_WEST,
    "queue-near": QUEUE_EAST,  # the ends of the short form
    "queue-far": QUEUE_WEST,
    "queue-2007": QUEUE_2007,
    "queue-guide": QUEUE_GUIDE,
    "hdd": (HDD, None),
    "ram-disk": (RAM_DISK, None),
    "faster": (FASTER, None),
    "ec2-2007": (WRITES_2007, READS_2007),
    "ec2-2007-disk": (WRITES_2007, COLD_READS_2007),
    "surge": (SURGE, SURGE),
    "colo-https": (COLO_HTTPS, None),
    "colo-http": (COLO_HTTP, None),
    "m1.xlarge": (M1_XLARGE, None),
    "cc1.4xlarge": (CC1_4XLARGE, None),
    "m1.large": (UPLOAD, DOWNLOAD),
    "host-to-host": (BETWEEN_HOSTS, None),
}
for _place, _writes in PLACES.items():
    WORLDS[_place] = (_writes, _reads(_writes, 0.042, 0.45))  # of single bytes, as above
    WORLDS[f"{_place}-disk"] = (_writes, _reads(_writes, 1.19, 0.355))
