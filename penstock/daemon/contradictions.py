"""Knows which values of the configuration are valid alone but contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from penstock.client.targets.stores import store_at
from penstock.daemon import quiet_hours, regions
from penstock.daemon.config import AUTO, Configuration
from penstock.daemon.spending.budget import KEYS
from penstock.daemon.spending.tariffs import is_aws
from penstock.fleet import limit as fleet_limit
from penstock.operations.operation import Service
from penstock.operations.sections.section import Contradiction
from penstock.operations.sqs.delivery import DELIVERY
from penstock.operations.table import OPERATIONS
from penstock.units import money
from penstock.vocabulary import FREE


def contradictions(configuration: Configuration) -> Iterator[Contradiction]:
    """All contradictions, each with the key to change and the keys that it contradicts."""
    for name, row in OPERATIONS.items():
        yield from configuration.section_of(row).contradictions(f"probes.{name}")
    yield from _of_endpoints(configuration)
    yield from _misplaced(configuration)
    if quiet_hours.fill_the_day(map(quiet_hours.parse, configuration.probes.quiet_hours)):
        yield Contradiction("probes.quiet_hours", "they fill the whole day, so nothing would ever be probed")
    for key, name in aws_regions(configuration):
        if not regions.looks_like_a_region(name):
            expected = 'expected the name of a region, such as "eu-central-1"'
            yield Contradiction(key, f'found "{name}"; {expected}{regions.hint(name)}')
    yield from _starved(configuration)
    yield from _of_fleet(configuration)
    watched = configuration.watched_queue
    for key, most in (
        ("budget.usd_per_day", configuration.budget.usd_per_day),
        (f"probes.{DELIVERY.name}.usd_per_day", configuration.section_of(DELIVERY).usd_per_day),
    ):
        if watched.usd_per_day_min > most:
            need, limit = money(watched.usd_per_day_min), money(most)
            sentence = f"watching takes {need} a day, but {key} allows only {limit}: poll less often"
            yield Contradiction("watched_queue.interval_seconds", sentence, ("watched_queue.name", key))


def _of_endpoints(configuration: Configuration) -> Iterator[Contradiction]:
    """Endpoints that begin like a URL but are not one, or that include a bucket."""
    for service, url in configuration.aws.endpoint_urls.items():
        try:
            _ = urlsplit(url).port
        except ValueError as trouble:
            sentence = f'found "{url}"; expected a URL, such as "http://[::1]:9000" ({trouble})'
            yield Contradiction(f"aws.{service}_endpoint_url", sentence)
        else:
            if service is Service.S3:
                yield from _of_a_bucket(configuration, url)


def _of_a_bucket(configuration: Configuration, url: str) -> Iterator[Contradiction]:
    """An endpoint copied with the bucket in it, or one of Transfer Acceleration."""
    key = "aws.s3_endpoint_url"
    if "//s3-accelerate." in url:
        sentence = f'found "{url}"; probes do not measure Transfer Acceleration, whose bytes cost extra'
        yield Contradiction(key, sentence)
    if not is_aws(url) and store_at(url) is None:  # a private host may have the same name as its bucket
        return
    for row, section in configuration.sections():
        bucket = getattr(section, "bucket", "")
        if bucket and (f"//{bucket}." in url or url.rstrip("/").endswith(f"/{bucket}")):
            sentence = f'found "{url}"; expected it without the bucket, which probes.{row.name}.bucket names'
            yield Contradiction(key, sentence, (f"probes.{row.name}.bucket",))


def _misplaced(configuration: Configuration) -> Iterator[Contradiction]:
    """A store that does not match the endpoint, or does not have the configured service class."""
    key, endpoint = "aws.s3_store", "aws.s3_endpoint_url"
    aws, store = configuration.aws, configuration.aws.store
    if store is None:
        return
    seen = store_at(aws.s3_endpoint_url)
    if not aws.s3_endpoint_url:
        sentence = f'found "{store.name}"; expected {endpoint} as well: without it S3 is that of AWS'
        yield Contradiction(key, sentence)
    elif seen not in {None, store}:
        sentence = f'found "{store.name}"; {endpoint} is that of {seen.title if seen else ""}'
        yield Contradiction(key, sentence, (endpoint,))
    for row, section in configuration.sections():
        if row.service is Service.S3 and section.service_class == "express":
            sentence = f'found "express"; {store.title} has no directory buckets'
            yield Contradiction(f"probes.{row.name}.service_class", sentence, (key, endpoint))


def _of_fleet(configuration: Configuration) -> Iterator[Contradiction]:
    fleet = configuration.fleet
    if "{" in fleet.bucket:
        yield Contradiction(
            "fleet.bucket", f'found "{fleet.bucket}"; expected one bucket for all regions, without braces'
        )
    needs_bucket = {
        "fleet.may_write": "expected the name of a bucket, because fleet.may_write is true",
        "fleet.shared_limits": "hosts that share fleet.shared_limits see each other in a bucket",
    }
    for key, why in needs_bucket.items():
        if getattr(fleet, key.removeprefix("fleet.")) and not fleet.bucket:
            yield Contradiction("fleet.bucket", f"missing; {why}", (key,))
    shared = [fleet_limit.parse(text) for text in fleet.shared_limits]
    if len({limit.name for limit in shared}) < len(shared) or len(shared) > fleet_limit.LIMIT_COUNT_MAX:
        most = fleet_limit.LIMIT_COUNT_MAX
        yield Contradiction("fleet.shared_limits", f"expected no name twice, and no more than {most} of them")
    for limit in shared:
        if unknown := sorted(set(limit.operations) - OPERATIONS.keys()):
            known = ", ".join(OPERATIONS)
            yield Contradiction(
                "fleet.shared_limits", f'found "{unknown[0]}" in {limit.name}; expected some of {known}'
            )
        if not limit.requests_per_second:
            yield Contradiction("fleet.shared_limits", f"{limit.name} allows 0/s; expected more")
    for row, section in configuration.sections():
        theirs = getattr(section, "key_prefix", "")
        if fleet.bucket and theirs and fleet.key_prefix.startswith(theirs):
            sentence = f'found "{fleet.key_prefix}", below which probes.{row.name}.key_prefix is swept'
            yield Contradiction("fleet.key_prefix", sentence)


def aws_regions(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """The keys that name a region of AWS, and the names; services with an endpoint of their own are left out."""
    aws = configuration.aws
    endpoints = aws.endpoint_urls
    for row, section in configuration.sections():
        if not endpoints[row.service]:
            yield from ((f"probes.{row.name}.regions", name) for name in section.regions)
    at_home = [row.service for row, section in configuration.enabled() if not section.regions]
    if not all(endpoints[service] for service in at_home or endpoints):
        yield from (("host.region", name) for name in (configuration.host.region,) if name != AUTO)
    watched = configuration.watched_queue
    if watched.name and watched.region != AUTO and not aws.sqs_endpoint_url:
        yield "watched_queue.region", watched.region
    if configuration.fleet.bucket and configuration.fleet.region != AUTO and not aws.s3_endpoint_url:
        yield "fleet.region", configuration.fleet.region


def _starved(configuration: Configuration) -> Iterator[Contradiction]:
    """Budgets of 0 that an enabled probe needs, so that it would never run."""
    for row, section in configuration.enabled():
        path, because = f"probes.{row.name}", (f"probes.{row.name}.is_enabled",)
        needed = KEYS.keys() - {"credit_bytes"}
        if not section.cost_max(FREE).transferred_bytes:
            needed -= {"transferred_bytes"}
        for name, key in KEYS.items():
            if name in needed and not getattr(configuration.budget, key.removeprefix("budget.")):
                sentence = f"found 0; a probe needs some of it, and {path}.is_enabled is true"
                yield Contradiction(key, sentence, because)
        if section.usd_per_day == 0:
            sentence = "found 0; a probe costs something, and is_enabled is true"
            yield Contradiction(f"{path}.usd_per_day", sentence, because)
