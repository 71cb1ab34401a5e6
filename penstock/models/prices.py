"""Knows what AWS and other stores with an S3 API charge for requests, bytes and storage, in US dollars.

The price of a byte depends on its network path and its direction, as seen from this host. A gateway endpoint is free,
and so is a public address within the region. An interface endpoint and a NAT gateway charge for bytes in both
directions. For traffic between regions the sending region charges, as it does for bytes that leave AWS.

These are list prices, for AWS those of us-east-1. Requests and endpoints cost some tens of percent more or less in
other regions; prices that differ by more have a row for each part of the world. Free tiers and volume discounts are
ignored, so the prices are upper bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.vocabulary import FREE, Tariff

# As of 2026-09, from aws.amazon.com: s3/pricing, sqs/pricing, kms/pricing, vpc/pricing, privatelink/pricing, and
# ec2/pricing/on-demand/#Data_Transfer.

GB = 1e9  # where AWS counts 2^30 bytes as one GB, the true price is lower
_MONTH_DAYS = 30.0
# How long a probe's object is stored: AWS bills byte-hours, and at least one hour in directory buckets.
_HOURS_STORED = 1.0
# Bytes that are billed per byte of payload, because of TCP/IP and TLS headers: 1,514 bytes on the wire carry 1,448.
_ON_THE_WIRE = 1.05
_USD_PER_KEY_REQUEST = 3.0e-6  # of symmetric keys


class NetworkPath(StrEnum):
    """The path of bytes between this host and a service; the values of `network_path` in the configuration."""

    GATEWAY_ENDPOINT = "gateway-endpoint"  # S3 only, within its region
    PUBLIC_ADDRESS = "public-address"  # of this host, through the internet gateway
    INTERFACE_ENDPOINT = "interface-endpoint"
    NAT_GATEWAY = "nat-gateway"
    INTERNET = "internet"  # this host is not in AWS
    OUTSIDE = "outside"  # this host is in AWS, the service is not
    PRIVATE = "private"  # a self-hosted service nearby: nothing is billed
    UNKNOWN = "unknown"  # not even known whether this host is in AWS: the dearest path in each direction


@dataclass(frozen=True, slots=True)
class ServicePrice:
    """What a class of a service charges, whatever the network path."""

    usd_per_write_request: float
    usd_per_read_request: float
    usd_per_written_gb: float = 0.0
    usd_per_read_gb: float = 0.0
    usd_per_stored_gb_month: float = 0.0


_SERVICES: Mapping[tuple[str, str], ServicePrice] = {
    ("s3", "standard"): ServicePrice(5.0e-6, 0.40e-6, usd_per_stored_gb_month=0.023),
    ("s3", "express"): ServicePrice(1.13e-6, 0.03e-6, 0.0032, 0.0006, usd_per_stored_gb_month=0.11),
    # Probes only read from these classes: each object written is billed for at least one to three months.
    ("s3", "standard-ia"): ServicePrice(10.0e-6, 1.0e-6, 0.0, 0.01),
    ("s3", "onezone-ia"): ServicePrice(10.0e-6, 1.0e-6, 0.0, 0.01),
    ("s3", "glacier-ir"): ServicePrice(20.0e-6, 10.0e-6, 0.0, 0.03),
    ("sqs", "standard"): ServicePrice(0.40e-6, 0.40e-6),
    ("sqs", "fifo"): ServicePrice(0.50e-6, 0.50e-6),
    ("sqs", "fifo-high-throughput"): ServicePrice(0.50e-6, 0.50e-6),
}


@dataclass(frozen=True, slots=True)
class StorePrice(ServicePrice):
    """What a store outside AWS charges; `usd_per_leaving_gb` is for bytes read from it over the internet."""

    usd_per_leaving_gb: float = 0.0


STORES: Mapping[str, StorePrice] = {
    # https://developers.cloudflare.com/r2/pricing/
    "r2": StorePrice(4.5e-6, 0.36e-6, usd_per_stored_gb_month=0.015),
    # Self-hosted: there is no list price.
    "minio": StorePrice(0.0, 0.0),
    "ceph": StorePrice(0.0, 0.0),
    # https://www.backblaze.com/cloud-storage/transaction-pricing: writes are free. LISTs cost 4 dollars a million, but
    # a probe makes one at most. Egress is free up to three times what is stored, but probes store next to nothing.
    "b2": StorePrice(0.0, 0.40e-6, usd_per_stored_gb_month=0.006, usd_per_leaving_gb=0.01),
    # https://cloud.google.com/storage/pricing: a single region in the United States or Europe, with egress to anywhere
    # but China and Australia.
    "gcs": StorePrice(5.0e-6, 0.40e-6, usd_per_stored_gb_month=0.023, usd_per_leaving_gb=0.12),
}
"""By name; clients' targets know how to recognise each store, and its other differences from S3."""

RETRIEVAL_CLASSES = frozenset({"standard-ia", "onezone-ia", "glacier-ir"})
"""Storage classes that charge for each byte read: probes read from them only if the operator says so."""


@dataclass(frozen=True, slots=True)
class _Region:
    """What a GB costs in one part of the world."""

    nat_gateway_usd: float
    to_other_region_usd: float  # to the dearest region, from the dearest of this part of the world
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
    """The tariff on this path between a host in the region `home` and a service in `region`, or a `store`."""
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
        # Another store may state the same kind of encryption with its own keys; an encrypted queue does not state it.
        usd_per_key_request=_USD_PER_KEY_REQUEST if store is None and service == "s3" else 0.0,
    )


def way_usd_per_gb(path: NetworkPath, *, home: str, region: str) -> tuple[float, float]:
    """The price of the path in dollars per GB: of bytes that this host sends, and of bytes that it receives."""
    if path is NetworkPath.GATEWAY_ENDPOINT and home != region:
        # The endpoint serves its own region only; other regions need the NAT gateway.
        path = NetworkPath.NAT_GATEWAY
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
    """Like `way_usd_per_gb` for a store outside AWS: all bytes that a host in AWS sends to it leave AWS."""
    here, leaving = _region(home), price.usd_per_leaving_gb
    if path is NetworkPath.INTERNET:
        return 0.0, leaving
    nat = 0.0 if path is NetworkPath.PUBLIC_ADDRESS else here.nat_gateway_usd
    return nat + here.to_internet_usd, nat + leaving


def service_price(service: str, service_class: str) -> ServicePrice:
    """What a class of a service charges apart from the path; an unknown class is priced as the standard one."""
    return _SERVICES.get((service, service_class), _SERVICES[service, "standard"])


def _region(name: str) -> _Region:
    """The row of a region; an unknown one is priced as the dearest."""
    return _DEAREST if name.startswith("us-gov-") else _REGIONS.get(name.partition("-")[0], _DEAREST)
