"""Knows the lab worlds that were calibrated to the published studies: a path or a queue for each.

What was fitted to which figure is said beside it, and in `facts.csv` figure by figure. What is not fitted comes from
the text of the same source, or from another of the studies.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.lab.link import Drift, Episodes, LinkTruth
from penstock.lab.sqs import ActionTruth, QueueTruth
from penstock.trial.simulated_host import World

MB = 1e6
ETHERNET_SHARE = 1460 / 1538  # of the bits on a cable, bodies in full segments of TCP


def timed(request_seconds: float, message_seconds: float = 0.0, *, variation: float = 1.0) -> ActionTruth:
    """A request, as chance has it in the published queue: as spread as an exponential time."""
    return ActionTruth(request_seconds=request_seconds, message_seconds=message_seconds, variation=variation)


# Study 000: a sender that sends one message after the other, each in the 20 ms that study 003 gives for a request.
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

ADDRESS_COUNT = 10  # of S3, as study 001 saw them

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
COLD_READS_2007 = replace(READS_2007, cold_read_seconds=0.85)  # from a disk, where an object is larger
SURGE = replace(READS_2007, drift=None, dips=None, service_latency_sigma=0.0, burstiness=0.1)

# Study 001, 5.9. Each place has one number of its own, the round trip that its mean write asks for: the load balancers
# of S3 let no more than a window of 65,535 bytes be under way on a connection (5.4). All else is the path from EC2. The
# time of the service's disk and its spread are those of the reads from EC2 in the same table, whose weeks are later.
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


# Study 002. A host in Denmark, Ireland 30 ms away: a connection for each request, and TLS two round trips more.
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

# Study 004, between instances. A wire of 1 Gbit/s, of which each stream asks for all that it can have; how they wait
# for it is fitted to one stream.
BETWEEN_HOSTS = LinkTruth(
    round_trip_seconds=0.0003,
    service_latency_seconds_median=0.0005,
    connection_rate_bytes_per_second=10_000 * MB,  # the memory of both
    host_rate_bytes_per_second=125 * MB * ETHERNET_SHARE,
    burstiness=0.9665,
)

# Study 004: five numbers for eighteen figures. Uploads are fitted to one stream, eight and twelve; the knee that these
# give is that of downloads, too, which are fitted to one stream and eight without TLS. With TLS it is the same path.
UPLOAD = LinkTruth(
    round_trip_seconds=0.0022,
    service_latency_seconds_median=0.03,
    connection_rate_bytes_per_second=6.98 * MB,
    host_rate_bytes_per_second=53.81 * MB,
    burstiness=0.624,
)
DOWNLOAD = replace(UPLOAD, connection_rate_bytes_per_second=10.497 * MB, host_rate_bytes_per_second=51.5 * MB)

Paths = tuple[LinkTruth, LinkTruth | None]  # of writes, and of reads where they are another
WORLDS: dict[str, World | Paths] = {
    "queue": QUEUE,
    "queue-east": QUEUE_EAST,
    "queue-west": QUEUE_WEST,
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
