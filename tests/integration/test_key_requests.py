"""What S3 asks of AWS KMS for a probe, told by the headers of its answers, is paid for by the budget of dollars."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from penstock.clock import SystemClock
from penstock.daemon.assembly import Surroundings, assembled
from penstock.daemon.config import Configuration, DaemonSection, ProbesSection
from penstock.daemon.instance import HostIdentity
from penstock.experiments.experiment import Step
from penstock.experiments.really import _Site
from penstock.lab.http_s3 import s3_application
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.operations.sections.objects import ObjectSection
from penstock.probes.aws.access import Access, Credentials
from penstock.probes.aws.objects import AwsObjectStore, open_object_store
from penstock.probes.on_demand import ProbeOnDemand
from penstock.probes.outside import KEY_REQUESTS, KeyRequests
from penstock.probes.probe import Probe
from penstock.probes.s3.download import S3DownloadProbe
from penstock.probes.s3.upload import S3UploadProbe
from penstock.probes.s3.workers import hired
from penstock.units import MiB
from penstock.vocabulary import Observation, ProbePlan
from tests.factories import a_link
from tests.inline_thinker import InlineThinker
from tests.seams import UNJUDGED_SECONDS, workspace_in
from tests.unit.daemon.house import Outside
from tests.unit.probes.fakes import a_download_plan, an_upload_plan

LINK = a_link(connection_rate_bytes_per_second=200e6, host_rate_bytes_per_second=400e6)
KMS = {"x-amz-server-side-encryption": "aws:kms"}
TWO_LAYERS = {"x-amz-server-side-encryption": "aws:kms:dsse"}
BUCKET_KEY = {**KMS, "x-amz-server-side-encryption-bucket-key-enabled": "true"}
S3_KEYS = {"x-amz-server-side-encryption": "AES256"}


@contextlib.asynccontextmanager
async def encrypting(headers: dict[str, str]) -> AsyncIterator[AwsObjectStore]:
    """A client of the lab's S3, with a bucket of which each object says how it is encrypted."""
    service = S3Service(LINK, clock=SystemClock(), seed=1)
    service.shelf.create_bucket("bucket")
    application = s3_application(service)

    async def say(request: web.Request, response: web.StreamResponse) -> None:
        is_of_an_object = request.method in {"PUT", "POST", "GET"} and request.path.count("/") > 1
        if is_of_an_object and response.status < 300:
            response.headers.update(headers)

    application.on_response_prepare.append(say)
    credentials = Credentials(access_key="AKIDLAB", secret_key="of-the-lab")  # noqa: S106 - it opens nothing
    async with serving(application) as url:
        access = Access(region="eu-west-1", endpoint_url=url, credentials=credentials)
        async with open_object_store(access) as store:
            yield store


async def ran(probe: Probe[Any], plan: ProbePlan[Any]) -> tuple[Observation[Any], float, float]:
    """What it saw, what it paid, and what that is without keys."""

    async def made() -> Probe[Any]:
        return probe

    paying = ProbeOnDemand(made, SystemClock())
    outcome = await paying.run(plan)
    await paying.close()
    assert isinstance(outcome, Observation), outcome
    return outcome, paying.used.usd, probe.used.usd


@pytest.mark.parametrize(
    ("headers", "count_each"), [(KMS, 1), (TWO_LAYERS, 2), (BUCKET_KEY, 0), (S3_KEYS, 0), ({}, 0)]
)
@pytest.mark.parametrize(
    ("plan", "request_count"),
    [
        (an_upload_plan(size=32 * MiB), 4 + 2),  # create and complete
        (an_upload_plan(size=MiB, threads=2, part=8 * MiB), None),
    ],
)
async def test_an_upload_pays_for_keys(
    headers: dict[str, str], count_each: int, plan: ProbePlan[Any], request_count: int | None
) -> None:
    """Each part, and what is around them, or each object; what removes them takes no key."""
    async with encrypting(headers) as store:
        seen, usd, usd_of_s3 = await ran(S3UploadProbe(workspace_in(store, "bucket")), plan)
    count = count_each * (request_count or seen.measures["part_count"])
    assert seen.measures.get("key_request_count", 0) == count
    assert seen.measures.get("key_request_count_each", 0) == count_each
    assert usd - usd_of_s3 == pytest.approx(count * 3e-6)


async def test_a_download_pays_for_keys_of_what_it_puts_and_reads() -> None:
    """Also for the object that is put to be read."""
    async with encrypting(KMS) as store:
        plan = a_download_plan(size=16 * MiB)
        seen, usd, usd_of_s3 = await ran(S3DownloadProbe(workspace_in(store, "bucket")), plan)
    count = seen.measures["key_request_count"]
    assert count == 2 + 1 + 4  # two ranges, the note of who reads, and two parts with what is around them
    assert usd - usd_of_s3 == pytest.approx(count * 3e-6)


async def test_an_experiment_pays_for_keys(tmp_path: Path) -> None:
    """What is measured with a table of plans was booked at the price of S3 alone."""
    directory, plan = str(tmp_path), an_upload_plan(size=32 * MiB)
    configuration = Configuration(
        daemon=DaemonSection(state_directory=directory, runtime_directory=directory),
        probes=ProbesSection(s3_upload=ObjectSection(bucket="bucket", network_path="gateway-endpoint")),
    )
    step = Step(
        label="encrypted",
        operation="s3_upload",
        world="regional",
        payload_size_bytes=32 * MiB,
        setting=plan.setting,
        cost_max=plan.cost_max,
    )
    surroundings = Surroundings(
        clock=SystemClock(),
        outside=Outside(),
        thinker=InlineThinker(),
        identity=HostIdentity(region="eu-west-1", instance_type="m7i.large", sentence=""),
        host_name="host",
        seed=1,
    )
    spent = []
    for headers in (S3_KEYS, KMS):
        async with encrypting(headers) as store, assembled(configuration, surroundings) as app:
            before = app.conductor.ledger.spent(app.conductor.clock.now()).usd
            site = _Site(app, configuration, {"s3_upload": "eu-west-1"})
            site.stores["s3_upload", False] = store
            record = await site.record(step)
            assert record.reason is None
            spent.append(app.conductor.ledger.spent(app.conductor.clock.now()).usd - before)
            foreseen = site.cost(step).usd
    assert spent[1] - spent[0] == pytest.approx((4 + 2) * 3e-6)
    assert foreseen > step.cost_of_all.usd  # from then on


async def test_what_was_reckoned_with_is_not_paid_twice() -> None:
    """A tariff that foresees keys is for what may be spent; what was spent is what the answers tell."""
    plan = an_upload_plan(size=16 * MiB)
    foreseeing = replace(plan, tariff=replace(plan.tariff, key_request_count=1.0))
    assert foreseeing.tariff.usd(write_request_count=1) - plan.tariff.usd(write_request_count=1) > 2e-6
    async with encrypting(KMS) as store:
        _, unforeseen_usd, _ = await ran(S3UploadProbe(workspace_in(store, "bucket")), plan)
        _, usd, _ = await ran(S3UploadProbe(workspace_in(store, "bucket")), foreseeing)
    assert usd == pytest.approx(unforeseen_usd)


async def test_workers_tell_of_keys_as_well() -> None:
    """Bodies are moved by other processes where one is too slow."""
    async with encrypting(KMS) as store:
        heard = KeyRequests()
        hearing = KEY_REQUESTS.set(heard)
        async with hired(2, 1000, 7, access=store.access, loop_tick_seconds=UNJUDGED_SECONDS) as workers:
            for number in range(3):
                await workers.put_object("bucket", f"key-{number}", bytes(1000))
        KEY_REQUESTS.reset(hearing)
    assert heard == KeyRequests(3, 1)
