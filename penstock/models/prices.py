"""Knows what AWS, and stores that speak S3, charge for requests, bytes and storage: the tables of prices, in dollars.

Bytes are priced by the way that they take and by its direction, as seen from this host. A way through a gateway
endpoint, or from a public address of a host in the same region, costs nothing. An interface endpoint and a NAT gateway
charge for what passes them, either way. Between two regions the one that sends pays, and so does whatever leaves AWS.

List prices, of AWS those of us-east-1; requests and endpoints differ by some tens of percent in other regions, and what
differs by more has a row for each part of the world. Free tiers and volume discounts are left out: what is stated is
the most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.vocabulary import FREE, Tariff

# As of 2026-09, from aws.amazon.com: s3/pricing, sqs/pricing, kms/pricing, vpc/pricing, privatelink/pricing, and
# ec2/pricing/on-demand/#Data_Transfer.

GB = 1e9  # where AWS counts 2^30 bytes for one, it costs less than is said here
_MONTH_DAYS = 30.0
# Of what a probe puts and removes: AWS counts byte-hours, and at least one for directory buckets.
_HOURS_STORED = 1.0
# TCP/IP and TLS put headers around what is carried, and are billed with it: 1,448 bytes of payload in 1,514.
_ON_THE_WIRE = 1.05
_USD_PER_KEY_REQUEST = 3.0e-6  # of symmetric keys


class NetworkPath(StrEnum):
    """Which way bytes go between this host and a service; the words of `network_path` in the configuration."""

    GATEWAY_ENDPOINT = "gateway-endpoint"  # of S3 alone, within its region
    PUBLIC_ADDRESS = "public-address"  # of this host, by the internet gateway
    INTERFACE_ENDPOINT = "interface-endpoint"
    NAT_GATEWAY = "nat-gateway"
    INTERNET = "internet"  # this host is not in AWS
    OUTSIDE = "outside"  # the service is not in AWS, and this host is
    PRIVATE = "private"  # a service of one's own, nearby: nothing of it is billed
    UNKNOWN = "unknown"  # nobody knows even whether this host is in AWS: the dearest of each direction


@dataclass(frozen=True, slots=True)
class ServicePrice:
    """What a class of a service charges, whichever way its bytes take."""

    usd_per_write_request: float
    usd_per_read_request: float
    usd_per_written_gb: float = 0.0
    usd_per_read_gb: float = 0.0
    usd_per_stored_gb_month: float = 0.0


_SERVICES: Mapping[tuple[str, str], ServicePrice] = {
    ("s3", "standard"): ServicePrice(5.0e-6, 0.40e-6, usd_per_stored_gb_month=0.023),
    ("s3", "express"): ServicePrice(1.13e-6, 0.03e-6, 0.0032, 0.0006, usd_per_stored_gb_month=0.11),
    # Probes only read of these: what is written is paid for a month or three at the least.
    ("s3", "standard-ia"): ServicePrice(10.0e-6, 1.0e-6, 0.0, 0.01),
    ("s3", "onezone-ia"): ServicePrice(10.0e-6, 1.0e-6, 0.0, 0.01),
    ("s3", "glacier-ir"): ServicePrice(20.0e-6, 10.0e-6, 0.0, 0.03),
    ("sqs", "standard"): ServicePrice(0.40e-6, 0.40e-6),
    ("sqs", "fifo"): ServicePrice(0.50e-6, 0.50e-6),
    ("sqs", "fifo-high-throughput"): ServicePrice(0.50e-6, 0.50e-6),
}


@dataclass(frozen=True, slots=True)
class StorePrice(ServicePrice):
    """What a store charges that is not AWS; `usd_per_leaving_gb` for what is read from it, over the internet."""

    usd_per_leaving_gb: float = 0.0


STORES: Mapping[str, StorePrice] = {
    # https://developers.cloudflare.com/r2/pricing/
    "r2": StorePrice(4.5e-6, 0.36e-6, usd_per_stored_gb_month=0.015),
    # Of one's own: what it costs is nobody's list price.
    "minio": StorePrice(0.0, 0.0),
    "ceph": StorePrice(0.0, 0.0),
    # https://www.backblaze.com/cloud-storage/transaction-pricing: to write is free, and a list, of which a probe makes
    # one at the most, has 4 dollars a million. What leaves is free up to three times what is stored, of which probes
    # leave next to nothing.
    "b2": StorePrice(0.0, 0.40e-6, usd_per_stored_gb_month=0.006, usd_per_leaving_gb=0.01),
    # https://cloud.google.com/storage/pricing: a single region of the United States or Europe, to anywhere but China
    # and Australia.
    "gcs": StorePrice(5.0e-6, 0.40e-6, usd_per_stored_gb_month=0.023, usd_per_leaving_gb=0.12),
}
"""By name; which store it is, and what else it differs in, is known to clients' targets."""

RETRIEVAL_CLASSES = frozenset({"standard-ia", "onezone-ia", "glacier-ir"})
"""Of objects, in which each byte that is read has a price: they are read only where the operator says so."""


@dataclass(frozen=True, slots=True)
class _Region:
    """What bytes cost in one part of the world, by the GB."""

    nat_gateway_usd: float
    to_other_region_usd: float  # to the dearest, which is also what that part of the world charges most
    to_internet_usd: float


_REGIONS: Mapping[str, _Region] = {  # by the first word of a region's name
    "us": _Region(0.045, 0.02, 0.09),
    "ca": _Region(0.05, 0.02, 0.09),
    "eu": _Region(0.052, 0.02, 0.09),
    "ap": _Region(0.062, 0.10, 0.135),
    "sa": _Region(0.093, 0.138, 0.15),
}
_DEAREST = _Region(0.093, 0.147, 0.155)
_INTERFACE_ENDPOINT_USD = 0.01


def tariff(
    service: str, service_class: str, path: NetworkPath, *, home: str, region: str, store: str | None = None
) -> Tariff:
    """What is paid on this way between a host in the region `home` and a service in `region`, or a `store`."""
    if path is NetworkPath.PRIVATE:
        return FREE
    price = service_price(service, service_class) if store is None else STORES[store]
    stored_usd = price.usd_per_stored_gb_month / _MONTH_DAYS
    sent_usd, received_usd = (
        _to_store_usd_per_gb(path, price, home=home)
        if isinstance(price, StorePrice)
        else way_usd_per_gb(path, home=home, region=region)
    )
    return Tariff(
        usd_per_write_request=price.usd_per_write_request,
        usd_per_read_request=price.usd_per_read_request,
        usd_per_sent_byte=(
            price.usd_per_written_gb + stored_usd * _HOURS_STORED / 24 + _ON_THE_WIRE * sent_usd
        )
        / GB,
        usd_per_received_byte=(price.usd_per_read_gb + _ON_THE_WIRE * received_usd) / GB,
        usd_per_stored_byte_day=stored_usd / GB,
        # Other stores may name the same way of encrypting, by keys of their own; of a queue nobody is told.
        usd_per_key_request=_USD_PER_KEY_REQUEST if store is None and service == "s3" else 0.0,
    )


def way_usd_per_gb(path: NetworkPath, *, home: str, region: str) -> tuple[float, float]:
    """What a GB costs that this host sends, and one that it receives."""
    if path is NetworkPath.GATEWAY_ENDPOINT and home != region:
        path = NetworkPath.NAT_GATEWAY  # it serves its own region alone, and who has one has no other way
    here, there = _region(home), _region(region)
    nat, inbound = here.nat_gateway_usd, there.to_internet_usd
    sent, received = {
        NetworkPath.INTERFACE_ENDPOINT: (_INTERFACE_ENDPOINT_USD, _INTERFACE_ENDPOINT_USD),
        NetworkPath.NAT_GATEWAY: (nat, nat),
        NetworkPath.INTERNET: (0.0, inbound),
        NetworkPath.OUTSIDE: (nat + here.to_internet_usd, nat),
        NetworkPath.UNKNOWN: (nat, max(nat, inbound)),
    }.get(path, (0.0, 0.0))
    if home != region and path not in {NetworkPath.INTERNET, NetworkPath.OUTSIDE, NetworkPath.PRIVATE}:
        sent, received = sent + here.to_other_region_usd, received + there.to_other_region_usd
    return sent, received


def _to_store_usd_per_gb(path: NetworkPath, price: StorePrice, *, home: str) -> tuple[float, float]:
    """The same where a store is at the other end: whatever this host sends from within AWS leaves it."""
    here, leaving = _region(home), price.usd_per_leaving_gb
    if path is NetworkPath.INTERNET:
        return 0.0, leaving
    nat = 0.0 if path is NetworkPath.PUBLIC_ADDRESS else here.nat_gateway_usd
    return nat + here.to_internet_usd, nat + leaving


def service_price(service: str, service_class: str) -> ServicePrice:
    """What a class of a service charges by itself; one that is not known is priced as the standard one."""
    return _SERVICES.get((service, service_class), _SERVICES[service, "standard"])


def _region(name: str) -> _Region:
    """The row of a region; one that is not known is as dear as the dearest."""
    return _DEAREST if name.startswith("us-gov-") else _REGIONS.get(name.partition("-")[0], _DEAREST)
