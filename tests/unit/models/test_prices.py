"""Rules of prices."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from penstock.client.targets.stores import STORES_BY_NAME
from penstock.models.prices import STORES, NetworkPath, tariff
from penstock.operations.sections.values import ObjectPath, QueuePath
from penstock.vocabulary import Tariff

GIB_64 = 64 * 2**30
HOME = "eu-central-1"


def s3(path: NetworkPath, *, service_class: str = "standard", home: str = HOME, region: str = HOME) -> Tariff:
    return tariff("s3", service_class, path, home=home, region=region)


def test_standard_charges_requests_and_express_bytes() -> None:
    """The two classes have opposite prices: a thousand small requests, or a terabyte in one."""
    standard, express = (
        s3(NetworkPath.GATEWAY_ENDPOINT, service_class=name) for name in ("standard", "express")
    )
    assert standard.usd(write_request_count=1000) == pytest.approx(0.005, rel=0.01)
    assert express.usd(write_request_count=1, sent_bytes=1e12) == pytest.approx(3.2, rel=0.06)
    assert express.usd(write_request_count=1000) < 0.005


def test_what_leaves_the_region_or_passes_a_gateway_is_charged() -> None:
    """64 GiB in a region cost their requests alone, and dollars across regions or through a NAT gateway."""
    near, far, nat = (
        s3(NetworkPath.GATEWAY_ENDPOINT),
        s3(NetworkPath.PUBLIC_ADDRESS, region="us-east-1"),
        s3(NetworkPath.NAT_GATEWAY),
    )
    assert near.usd(sent_bytes=GIB_64) < 0.01
    assert far.usd(sent_bytes=GIB_64) == pytest.approx(1.4, rel=0.1)
    assert nat.usd(sent_bytes=GIB_64) == pytest.approx(3.7, rel=0.1)
    both = s3(NetworkPath.NAT_GATEWAY, region="us-east-1")
    assert both.usd(sent_bytes=GIB_64) == pytest.approx(1.4 + 3.7, rel=0.1)


def test_each_direction_has_its_price() -> None:
    """Into AWS is free and out of it is dear; of two regions the one that sends pays."""
    outside = s3(NetworkPath.INTERNET)
    assert outside.usd(received_bytes=GIB_64) == pytest.approx(6.5, rel=0.1)
    assert outside.usd(sent_bytes=GIB_64) < 0.01
    from_asia = s3(NetworkPath.PUBLIC_ADDRESS, region="ap-northeast-1")
    assert from_asia.usd_per_received_byte > 4 * from_asia.usd_per_sent_byte


def test_a_gateway_endpoint_serves_its_own_region_alone() -> None:
    """Whoever states one and probes another region takes the way that is left."""
    there = "us-east-1"
    assert s3(NetworkPath.GATEWAY_ENDPOINT, region=there) == s3(NetworkPath.NAT_GATEWAY, region=there)


@pytest.mark.parametrize("region", [HOME, "us-east-1", "ap-southeast-2", "unheard-of-9"])
@pytest.mark.parametrize("path", sorted(set(NetworkPath) - {NetworkPath.OUTSIDE, NetworkPath.UNKNOWN}))
def test_what_is_not_known_is_assumed_dear(path: NetworkPath, region: str) -> None:
    """No way to AWS costs more, either way; and a region that nobody has heard of is no cheaper than others."""
    known, unknown = s3(path, region=region), s3(NetworkPath.UNKNOWN, region=region)
    assert known.usd_per_sent_byte <= unknown.usd_per_sent_byte
    assert known.usd_per_received_byte <= unknown.usd_per_received_byte
    far, unheard = s3(path, home="unknown", region="unheard-of-9"), s3(path, home=HOME, region=region)
    assert unheard.usd_per_received_byte <= far.usd_per_received_byte or region == HOME


def test_small_requests_pay_for_their_way_too() -> None:
    """Headers, signatures and receipts travel beside the payload: nothing through a NAT gateway is free."""
    nat = tariff("sqs", "standard", NetworkPath.NAT_GATEWAY, home=HOME, region=HOME)
    bare = tariff("sqs", "standard", NetworkPath.PUBLIC_ADDRESS, home=HOME, region=HOME)
    assert nat.usd(write_request_count=1000) > 1.5 * bare.usd(write_request_count=1000)
    assert nat.usd(free_request_count=1) > 0 == bare.usd(free_request_count=1)


def test_the_configuration_has_the_words_of_the_table() -> None:
    """One spelling; only S3 has gateway endpoints, and nobody states that he does not know."""
    stated = {str(path) for path in NetworkPath} - {"unknown"} | {"auto"}
    assert set(get_args(ObjectPath)) == stated
    assert set(get_args(QueuePath)) == stated - {"gateway-endpoint"}


def test_a_service_of_ones_own_costs_nothing() -> None:
    """Neither its requests nor its bytes are AWS's to bill."""
    free = s3(NetworkPath.PRIVATE, home=HOME, region="unheard-of-9")
    everything = free.usd(write_request_count=9, read_request_count=9, sent_bytes=1e12, received_bytes=1e12)
    assert math.isclose(everything, 0.0)


def test_every_store_has_its_own_prices() -> None:
    """One of one's own charges nothing for requests; what leaves one by the internet costs what that one charges."""
    assert STORES.keys() == STORES_BY_NAME.keys()
    r2, minio, gcs = (
        tariff("s3", "standard", NetworkPath.INTERNET, home=HOME, region=HOME, store=name)
        for name in ("r2", "minio", "gcs")
    )
    assert r2.usd(write_request_count=10**6, received_bytes=GIB_64) == pytest.approx(4.5, rel=0.01)
    assert minio.usd(write_request_count=10**6, read_request_count=10**6, received_bytes=GIB_64) == 0
    assert gcs.usd(received_bytes=GIB_64) == pytest.approx(8.7, rel=0.1)


def test_what_goes_from_aws_to_a_store_leaves_aws() -> None:
    """Whichever way it goes out; through a NAT gateway it is dearer."""
    public, nat = (
        tariff("s3", "standard", path, home=HOME, region=HOME, store="r2")
        for path in (NetworkPath.PUBLIC_ADDRESS, NetworkPath.OUTSIDE)
    )
    assert public.usd(sent_bytes=GIB_64) == pytest.approx(6.5, rel=0.1)
    assert nat.usd(sent_bytes=GIB_64) > public.usd(sent_bytes=GIB_64)
    assert public.usd_per_received_byte == 0 < nat.usd_per_received_byte
