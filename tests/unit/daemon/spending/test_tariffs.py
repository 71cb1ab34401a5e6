"""Which way bytes take is stated, found, or assumed dear; and what goes on anyway is set aside."""

from __future__ import annotations

import msgspec
import pytest

from penstock.daemon.config import (
    AwsSection,
    BudgetSection,
    Configuration,
    ProbesSection,
    WatchedQueueSection,
)
from penstock.daemon.instance import HostIdentity
from penstock.daemon.spending.tariffs import Tariffs, way
from penstock.models.prices import NetworkPath
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.sections.objects import ObjectSection
from penstock.operations.sqs.delivery import DELIVERY
from penstock.operations.table import OPERATIONS
from penstock.units import GiB, MiB
from penstock.vocabulary import FREE
from tests.factories import CONTEXT, an_observation

NOWHERE = HostIdentity(region="eu-west-1", instance_type="unknown", sentence="")
INSTANCE = HostIdentity(region="eu-west-1", instance_type="c6i.large", sentence="", is_instance=True)
PUBLIC = HostIdentity(
    region="eu-west-1", instance_type="c6i.large", sentence="", is_instance=True, has_public_address=True
)


def path_of(endpoint_url: str, identity: HostIdentity) -> NetworkPath:
    return way(ObjectSection(), endpoint_url, identity).path


@pytest.mark.parametrize("row", OPERATIONS.values(), ids=lambda row: row.name)
@pytest.mark.parametrize("identity", [NOWHERE, INSTANCE, PUBLIC])
def test_what_is_stated_holds(row: object, identity: HostIdentity) -> None:
    """Of every operation, wherever this host is and whatever the endpoint is called."""
    section = msgspec.structs.replace(row.section_type(), network_path="interface-endpoint")  # type: ignore[attr-defined]
    assert way(section, "http://127.0.0.1:9000", identity).path is NetworkPath.INTERFACE_ENDPOINT


def test_only_a_dear_way_that_nobody_stated_is_assumed() -> None:
    """Who states a NAT gateway has one, and is not asked to state it."""
    assert way(ObjectSection(), "", NOWHERE).is_assumed
    assert not way(ObjectSection(network_path="nat-gateway"), "", NOWHERE).is_assumed
    assert not way(ObjectSection(), "", PUBLIC).is_assumed


@pytest.mark.parametrize(
    ("endpoint_url", "path"),
    [
        ("https://bucket.vpce-1a2b-3c4d.s3.eu-west-1.vpce.amazonaws.com", NetworkPath.INTERFACE_ENDPOINT),
        ("https://s3.eu-west-1.amazonaws.com", NetworkPath.NAT_GATEWAY),
        ("https://sqs.cn-north-1.amazonaws.com.cn", NetworkPath.NAT_GATEWAY),
        ("https://sqs.cn-north-1.api.amazonwebservices.com.cn", NetworkPath.NAT_GATEWAY),
        ("https://s3-fips.dualstack.us-gov-west-1.amazonaws.com", NetworkPath.NAT_GATEWAY),
        ("https://sqs.us-iso-east-1.c2s.ic.gov", NetworkPath.NAT_GATEWAY),
        ("http://127.0.0.1:9000", NetworkPath.PRIVATE),
        ("http://[fd00::1]:9000", NetworkPath.PRIVATE),
        ("http://10.1.2.3:9000", NetworkPath.PRIVATE),
        ("http://minio:9000", NetworkPath.PRIVATE),
        ("https://s3.example.com", NetworkPath.OUTSIDE),
        ("https://8.8.8.8", NetworkPath.OUTSIDE),
        ("https://amazonaws.com.example.org", NetworkPath.OUTSIDE),
        ("https://x.vpce.amazonaws.com.example.org", NetworkPath.OUTSIDE),
    ],
)
def test_an_endpoint_tells_where_it_is(endpoint_url: str, path: NetworkPath) -> None:
    """By a name of AWS's, or an address that nobody else can have; any other may be anywhere, which is dear."""
    assert path_of(endpoint_url, INSTANCE) is path


def test_what_the_host_does_not_tell_is_assumed_dear() -> None:
    """Without a public address there may be a NAT gateway; without metadata nobody knows anything."""
    assert path_of("", INSTANCE) is NetworkPath.NAT_GATEWAY
    assert path_of("", PUBLIC) is NetworkPath.INTERFACE_ENDPOINT
    assert path_of("", NOWHERE) is NetworkPath.UNKNOWN


def test_each_region_has_its_price() -> None:
    """The bucket's region against that of the host: another one is dearer, whatever the way."""
    section = ObjectSection(regions=("eu-west-1", "us-east-1"), network_path="public-address")
    tariffs = Tariffs(Configuration(probes=ProbesSection(s3_upload=section)), INSTANCE)
    assert tariffs.regions(section) == ("eu-west-1", "us-east-1")
    assert (
        tariffs.of(UPLOAD, "us-east-1").usd_per_sent_byte > tariffs.of(UPLOAD, "eu-west-1").usd_per_sent_byte
    )


def test_what_reading_an_own_class_costs_is_known_before() -> None:
    """Naming the class of an object is also saying what each byte of it costs."""
    plain, dear = (
        DOWNLOAD.section_type(
            is_enabled=True,
            bucket="b",
            object_key="k",
            network_path="gateway-endpoint",
            object_storage_class=name,
        )
        for name in ("standard", "glacier-ir")
    )
    usd = [
        Tariffs(Configuration(probes=ProbesSection(s3_download=section)), INSTANCE)
        .of(DOWNLOAD, "eu-west-1")
        .usd(received_bytes=GiB)
        for section in (plain, dear)
    ]
    assert usd == pytest.approx([0.0, 0.032], abs=0.001)


def test_what_goes_on_anyway_is_set_aside() -> None:
    """Objects that are kept to be read are stored all day, and a queue is watched; probes have what is left."""
    section = DOWNLOAD.section_type(is_enabled=True, bucket="b", object_size_bytes=(64 * MiB, GiB))
    watched = WatchedQueueSection(name="orders", interval_seconds=15.0)
    tariffs = Tariffs(
        Configuration(probes=ProbesSection(s3_download=section), watched_queue=watched), INSTANCE
    )
    costs = dict(tariffs.standing_costs())
    assert costs["s3_download"].usd == pytest.approx(320 * MiB * 0.023 / 1e9 / 30, rel=0.01)
    assert costs["sqs_delivery"].usd > 5760 * 0.40e-6, "its way included"
    assert tariffs.standing_cost().request_count == watched.request_count_per_day
    limits = tariffs.probing_usd_limits()
    assert limits["s3_download"] == pytest.approx(0.01 - costs["s3_download"].usd)
    assert limits["sqs_delivery"] == pytest.approx(0.03 - costs["sqs_delivery"].usd)
    assert limits["s3_upload"] == 0.01


def test_a_service_of_ones_own_costs_nothing() -> None:
    """A store on this host or beside it is not AWS's to bill."""
    aws = AwsSection(s3_endpoint_url="http://127.0.0.1:9000")
    assert Tariffs(Configuration(aws=aws), NOWHERE).of(UPLOAD, "eu-west-1") == FREE


def test_a_day_by_default_costs_what_was_promised() -> None:
    """Three cents for SQS and two for S3, transfer included, and no more than that for all."""
    limits = Tariffs(Configuration(), INSTANCE).probing_usd_limits()
    assert limits["s3_upload"] + limits["s3_download"] <= 0.02
    assert limits["sqs_delivery"] <= 0.03
    assert BudgetSection().usd_per_day <= 0.05


def test_a_store_is_paid_at_its_own_prices() -> None:
    """Where the endpoint tells which it is; queues are still those of AWS."""
    there = Configuration(aws=AwsSection(s3_endpoint_url="https://abc.r2.cloudflarestorage.com"))
    at_r2, at_aws = (Tariffs(configuration, PUBLIC) for configuration in (there, Configuration()))
    assert at_r2.of(UPLOAD, "eu-west-1").usd_per_write_request == 4.5e-6
    assert at_r2.of_bucket("eu-west-1") == at_r2.of(UPLOAD, "eu-west-1")
    assert at_aws.of(UPLOAD, "eu-west-1").usd_per_write_request == 5.0e-6
    assert at_r2.of(DELIVERY, "eu-west-1") == at_aws.of(DELIVERY, "eu-west-1")


def test_what_s3_asks_of_kms_is_reckoned_with_as_it_answered_last() -> None:
    """Where it did, in that region and for that operation alone; and no more when it does not any more."""
    tariffs = Tariffs(Configuration(), INSTANCE)
    before = tariffs.of(UPLOAD, CONTEXT.place.region)
    tariffs.note_observed(an_observation(measures={"key_request_count_each": 2.0}))
    price = tariffs.of(UPLOAD, CONTEXT.place.region)
    assert price.usd(write_request_count=10) - before.usd(write_request_count=10) == pytest.approx(60e-6)
    assert price.usd(free_request_count=10) == before.usd(free_request_count=10)
    assert tariffs.of(UPLOAD, "us-west-2").key_request_count == 0
    assert tariffs.of(DOWNLOAD, CONTEXT.place.region).key_request_count == 0
    tariffs.note_observed(an_observation())
    assert tariffs.of(UPLOAD, CONTEXT.place.region) == before
