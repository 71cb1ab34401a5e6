"""A bucket whose requesters pay answers those alone who say that they will: probes where it is configured so."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from aiobotocore.session import get_session
from aiohttp import web

from penstock.client import aiobotocore as advised_aio
from penstock.client import boto3 as advised
from penstock.clock import SystemClock
from penstock.daemon.config import AwsSection, Configuration, ProbesSection
from penstock.daemon.outside.aws import AwsOutside
from penstock.lab.http_s3 import s3_application
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.operations.operation import Equipment, Operation
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.sections.downloads import DownloadSection
from penstock.operations.sections.objects import ObjectSection
from penstock.probes.outside import Denied
from penstock.probes.s3.workers import hired
from penstock.units import MiB
from penstock.vocabulary import Observation
from tests.factories import a_link
from tests.seams import UNJUDGED_SECONDS
from tests.unit.probes.fakes import MemoryJournal, a_download_plan, an_upload_plan

LINK = a_link(connection_rate_bytes_per_second=200e6, host_rate_bytes_per_second=400e6)
REGION = "eu-west-1"
REQUESTER = {"RequestPayer": "requester"}
REFUSAL = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@dataclasses.dataclass
class House:
    """The lab's S3 at an address: with one bucket whose requesters pay, and one whose owner does."""

    s3: S3Service
    url: str = ""
    confirmed: list[str] = dataclasses.field(default_factory=list)  # the paths of requests that said so

    @web.middleware
    async def judge(self, request: web.Request, handler: Any) -> web.StreamResponse:
        has_confirmed = request.headers.get("x-amz-request-payer") == "requester"
        if has_confirmed:
            self.confirmed.append(request.path)
        elif request.path.startswith("/paid"):
            await request.read()
            return web.Response(status=403, text=REFUSAL, content_type="application/xml")
        answer: web.StreamResponse = await handler(request)
        return answer

    def is_empty(self) -> bool:
        """Whether nothing is in the bucket."""
        return not (list(self.s3.shelf.objects("paid")) or self.s3.shelf.uploads("paid"))


@pytest.fixture
async def house(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDLAB")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-lab")
    house = House(S3Service(LINK, clock=SystemClock(), seed=1))
    for bucket in ("paid", "own"):
        house.s3.shelf.create_bucket(bucket)
    application = s3_application(house.s3)
    application.middlewares.append(house.judge)
    async with serving(application) as house.url:
        yield house


def outside_of(house: House, *, requester_pays: bool = True) -> AwsOutside:
    section = DownloadSection(bucket="paid", requester_pays=requester_pays)
    probes = ProbesSection(s3_download=section, s3_upload=ObjectSection(bucket="own"))
    return AwsOutside(Configuration(aws=AwsSection(s3_endpoint_url=house.url), probes=probes))


async def ran(outside: AwsOutside, row: Operation[Any, Any], section: ObjectSection, plan: Any) -> object:
    """What a probe of this row saw there."""
    equipment = Equipment(
        clock=SystemClock(),
        journal=MemoryJournal(),
        outside=outside,
        region=REGION,
        host_name="host",
        loop_tick_seconds=UNJUDGED_SECONDS,
    )
    probe = await row.make_probe(section, equipment)
    try:
        return await probe.run(plan)
    finally:
        await probe.close()


async def test_an_object_of_somebody_else_is_read_at_our_expense(house: House) -> None:
    """`object_key` alone, as of a public data set: nothing is written, and the price is that of any read."""
    client = boto3.client("s3", region_name=REGION, endpoint_url=house.url)
    await asyncio.to_thread(client.put_object, Bucket="paid", Key="theirs", Body=bytes(16 * MiB), **REQUESTER)
    async with outside_of(house) as outside:
        section = DownloadSection(bucket="paid", object_key="theirs", requester_pays=True)
        seen = await ran(outside, DOWNLOAD, section, a_download_plan(size=16 * MiB))
    assert isinstance(seen, Observation), seen
    assert [found.key for found in house.s3.shelf.objects("paid")] == ["theirs"]


@pytest.mark.parametrize(
    ("row", "plan"), [(DOWNLOAD, a_download_plan(size=16 * MiB)), (UPLOAD, an_upload_plan(size=16 * MiB))]
)
async def test_what_a_probe_puts_there_it_also_removes(
    house: House, row: Operation[Any, Any], plan: Any
) -> None:
    """Putting, completing, listing and deleting are refused alike to who does not say so."""
    async with outside_of(house) as outside:
        section = row.load_section()(bucket="paid", requester_pays=True)
        seen = await ran(outside, row, section, plan)
        assert isinstance(seen, Observation), seen
        store = await outside.object_store(REGION)
        assert await store.list_multipart_uploads("paid", "penstock-probe/") == []
        await store.list_objects("paid", "penstock-probe/")
    assert house.is_empty()


async def test_other_processes_say_so_as_well(house: House) -> None:
    """Bodies are moved by others where one process is too slow."""
    async with outside_of(house) as outside:
        access = (await outside.object_store(REGION)).access  # type: ignore[attr-defined]  # that of AWS
        async with hired(1, 1000, 7, access=access, loop_tick_seconds=UNJUDGED_SECONDS) as workers:
            await workers.put_object("paid", "key", bytes(1000))
    assert house.confirmed == ["/paid/key"]


async def test_nobody_is_billed_who_did_not_say_so(house: House) -> None:
    """Neither there, where it is refused, nor in another bucket of the same client."""
    async with outside_of(house, requester_pays=False) as outside:
        with pytest.raises(Denied):
            await (await outside.object_store(REGION)).put_object("paid", "key", b"")
    async with outside_of(house) as outside:
        await (await outside.object_store(REGION)).put_object("own", "key", b"")
    assert house.confirmed == []


async def test_applications_read_and_write_there(house: House, tmp_path: Path) -> None:
    """By `extra_args`, which go with every request, the listing included."""
    (tmp_path / "one").write_bytes(bytes(6 * MiB))

    def moved() -> None:
        session = boto3.Session(region_name=REGION)
        at = {"endpoint_url": house.url}
        client = session.client("s3", **at)
        advised.upload_file(client, str(tmp_path / "one"), "paid", "p/one", extra_args=REQUESTER)
        with advised.open_writer(client, "paid", "p/two", extra_args=REQUESTER) as file:
            file.write(bytes(12 * MiB))
        found = advised.objects_below(client, "paid", "p/", tmp_path / "back", extra_args=REQUESTER)
        summary = advised.download_files(session, found, "paid", extra_args=REQUESTER, client_arguments=at)
        summary.raise_for_failed()
        assert summary.moved_count == 2
        with advised.open_object(client, "paid", "p/two", extra_args=REQUESTER) as file:
            assert len(file.read()) == 12 * MiB

    await asyncio.to_thread(moved)
    async with get_session().create_client("s3", region_name=REGION, endpoint_url=house.url) as client:
        listed = await advised_aio.objects_below(
            client, "paid", "p/", tmp_path / "again", extra_args=REQUESTER
        )
        (await advised_aio.download_files(client, listed, "paid", extra_args=REQUESTER)).raise_for_failed()
    assert {path.stat().st_size for path in (tmp_path / "again").iterdir()} == {6 * MiB, 12 * MiB}
