"""A fleet's files in buckets of stores that others wrote: a host writes its days, and the report reads them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.daemon.memory.store import Store
from penstock.operations.table import setting_types
from penstock.trial.stage import CREDENTIALS
from tests.factories import NOON, an_observation
from tests.real.servers import REGION, plain_client

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def test_a_host_writes_into_a_bucket_and_the_report_reads_it(
    s3_url: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the environment's endpoint and credentials; a day that is written again replaces itself, in one request."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": s3_url, "AWS_REGION": REGION}.items():
        monkeypatch.setenv(name, value)
    database, destination = tmp_path / "penstock.db", f"s3://{bucket}/fleet"
    store = Store(database, setting_types())
    store.add_observations([an_observation(started_at=NOON)])
    store.close()
    writing = ["observations", "--to", destination, "--database", str(database), "--since", "3000d"]
    for _ in range(2):
        written = CliRunner().invoke(cli, [*writing, "--host", "h"])
        assert written.exit_code == 0, written.output
    (file,) = plain_client("s3", s3_url).list_objects_v2(Bucket=bucket)["Contents"]
    assert "-" not in file["ETag"]  # as that of a multipart upload would have
    page = tmp_path / "page.md"
    read = CliRunner().invoke(
        cli, ["report", "--from", destination, "--format", "markdown", "--output", str(page)]
    )
    assert read.exit_code == 0, read.output
    assert f"1 observation of 1 host in {destination}" in page.read_text("utf-8")
