"""Knows the network path between this host and each service, as far as it can be known, and what it costs.

A configured path is taken as it is. Otherwise the name of the endpoint shows whether it is AWS's or of this host's own
network, and the instance metadata show whether this host is in AWS and has a public address. A path that remains
unknown is priced as the dearest.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from penstock.daemon import regions
from penstock.daemon.config import AUTO, Configuration
from penstock.daemon.instance import HostIdentity
from penstock.models.prices import NetworkPath, tariff
from penstock.operations.operation import Operation, Service
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.sections.section import Section
from penstock.operations.sqs.delivery import DELIVERY
from penstock.probes.on_demand import KEY_REQUEST_COUNT_EACH
from penstock.vocabulary import Cost, Observation, Place, Tariff

_STATED = "stated"
_DEAR = frozenset({NetworkPath.UNKNOWN, NetworkPath.NAT_GATEWAY, NetworkPath.OUTSIDE})
_OWN_NAMES = (".localhost", ".local", ".internal", ".lan")


@dataclass(frozen=True, slots=True)
class Way:
    """The network path that prices are based on, and why, as the end of a sentence."""

    path: NetworkPath
    reason: str

    @property
    def is_assumed(self) -> bool:
        """Whether a dear path is assumed because nothing shows a cheaper one: stating the path may cut costs."""
        return self.path in _DEAR and self.reason != _STATED


class Tariffs:
    """The prices of each operation in each region."""

    def __init__(self, configuration: Configuration, identity: HostIdentity) -> None:
        self._configuration = configuration
        self._identity = identity
        endpoints = configuration.aws.endpoint_urls
        self.ways: Mapping[str, Way] = {
            row.name: way(section, endpoints[row.service], identity)
            for row, section in configuration.sections()
        }
        # Requests to AWS KMS for each of ours, by operation and region. The first probe finds that out, so its own are
        # booked only afterwards; later probes plan for them.
        self._key_request_counts: dict[tuple[str, str], float] = {}

    def of(self, row: Operation[Any, Any], region: str) -> Tariff:
        """The prices between this host and the operation's service in a region."""
        section: Section = self._configuration.section_of(row)
        count = self._key_request_counts.get((row.name, region), 0.0)
        return dataclasses.replace(self._tariff(row, section.price_class, region), key_request_count=count)

    def note_observed(self, observation: Observation[Any]) -> None:
        """Note from the newest observation how often S3 asks AWS KMS for a key there."""
        place, count = observation.context.place, observation.measures.get(KEY_REQUEST_COUNT_EACH, 0.0)
        self._key_request_counts[place.operation, place.region] = count

    def of_bucket(self, region: str) -> Tariff:
        """The prices between this host and its fleet's bucket; the path is that of uploads."""
        return self._tariff(UPLOAD, "standard", region)

    def _tariff(self, row: Operation[Any, Any], price_class: str, region: str) -> Tariff:
        path, home, store = self.ways[row.name].path, self._identity.region, self._configuration.aws.store
        name = store.name if store is not None and row.service is Service.S3 else None
        return tariff(row.service.value, price_class, path, home=home, region=region, store=name)

    def place(self, row: Operation[Any, Any], region: str) -> Place:
        """The place of the operation in this region, seen from this host."""
        return Place(
            operation=row.name,
            region=region,
            instance_type=self._identity.instance_type,
            service_class=self._configuration.section_of(row).service_class,
        )

    def clean_up_usd(self, row: Operation[Any, Any], *, request_count: int, priced_count: int) -> float:
        """The cost of removing in the dearest region; deletions are free but for their network path."""
        regions = self.regions(self._configuration.section_of(row))
        return max(
            self.of(row, region).usd(
                write_request_count=priced_count, free_request_count=request_count - priced_count
            )
            for region in regions
        )

    def regions(self, section: Section) -> tuple[str, ...]:
        """The regions in which the section's operation is probed."""
        return section.regions or (self._identity.region,)

    def standing_cost(self) -> Cost:
        """What 24 hours cost apart from probes, and is set aside: watching a queue, keeping objects to be read."""
        return sum((cost for _, cost in self.standing_costs()), Cost())

    def standing_costs(self) -> Iterator[tuple[str, Cost]]:
        """The same by operation."""
        for row, section in self._configuration.enabled():
            usd = sum(
                self.of(row, region).usd_per_stored_byte_day * section.kept_bytes_max
                for region in self.regions(section)
            )
            yield row.name, Cost(usd=usd)
        watched = self._configuration.watched_queue
        if watched.name:
            count = watched.request_count_per_day
            price = tariff(
                Service.SQS.value,
                watched.service_class,
                self.ways[DELIVERY.name].path,
                home=self._identity.region,
                region=watched.region_or(self._identity.region),
            )
            yield DELIVERY.name, Cost(request_count=count, usd=price.usd(write_request_count=count))

    def probing_usd_limits(self) -> dict[str, float]:
        """What the probes of each operation may cost in 24 hours, standing costs deducted."""
        limits = self._configuration.usd_limits
        for name, cost in self.standing_costs():
            limits[name] = max(0.0, limits[name] - cost.usd)
        return limits


def is_aws(endpoint_url: str) -> bool:
    """Whether the endpoint's name is in a domain of AWS."""
    return (urlsplit(endpoint_url).hostname or "").rstrip(".").endswith(regions.domains())


def way(section: Section, endpoint_url: str, identity: HostIdentity) -> Way:
    """The network path to the service of this section."""
    if section.network_path != AUTO:
        return Way(NetworkPath(section.network_path), _STATED)
    host = (urlsplit(endpoint_url).hostname or "").rstrip(".")
    return _way_to(host) or _way_from(identity)


def _way_to(host: str) -> Way | None:
    """The path as far as the endpoint's name shows it; None if it does not."""
    if ".vpce." in host and host.endswith(regions.domains()):
        return Way(NetworkPath.INTERFACE_ENDPOINT, f"{host} is one")
    if host.endswith(regions.domains()) or not host:
        return None
    if _is_own(host):
        return Way(NetworkPath.PRIVATE, f"{host} is of this host's own network")
    return Way(NetworkPath.OUTSIDE, f"{host} is not AWS, and may be anywhere: the dearest route is assumed")


def _way_from(identity: HostIdentity) -> Way:
    """The path as far as this host shows it, else the dearest."""
    if not identity.is_instance:
        return Way(
            NetworkPath.UNKNOWN, "it is unknown whether this host is in AWS: the dearest route is assumed"
        )
    if identity.has_public_address:
        return Way(
            NetworkPath.INTERFACE_ENDPOINT, "this host has a public address, so it needs no dearer route"
        )
    return Way(
        NetworkPath.NAT_GATEWAY,
        "this host has no public address, and its endpoints are unknown: the dearest route is assumed",
    )


def _is_own(host: str) -> bool:
    """Whether only something in this host's own network can have this address or name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_OWN_NAMES)
    return address.is_private or address.is_loopback or address.is_link_local
