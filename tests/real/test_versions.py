"""Buckets that keep versions, of versitygw and of MinIO: no probe leaves any behind, whatever it put."""

import uuid

import pytest

from penstock.probes.aws.access import Access
from penstock.probes.aws.objects import open_object_store
from penstock.units import KiB, MiB
from tests.real.servers import KEY, REGION, plain_client
from tests.seams import MODEST, uploads_are_measured, workspace_in
from tests.unit.probes.fakes import an_upload_plan

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the build


@pytest.mark.parametrize(("size", "threads"), [(22 * MiB, 3), (5 * MiB, 1), (100 * KiB, 64)])
async def test_no_version_stays(store_url: str, size: int, threads: int) -> None:
    """Of an object in parts, of whole ones and of many small ones."""
    client, bucket = plain_client("s3", store_url), f"real-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})

    async with open_object_store(Access(region=REGION, endpoint_url=store_url, credentials=KEY)) as store:
        plan = an_upload_plan(size=size, threads=threads, part=5 * MiB, cost_max=MODEST)
        await uploads_are_measured(workspace_in(store, bucket), plan)

    left = client.list_object_versions(Bucket=bucket)
    assert [left.get("Versions", []), left.get("DeleteMarkers", [])] == [[], []]
