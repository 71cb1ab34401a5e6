"""Whose client moves many files: the caller's as it is, or one of his session, made as he says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiobotocore.config
import boto3
import botocore.config
import pytest

from penstock.client.advice import Advice
from penstock.client.transfers.errand import Errand
from penstock.client.transfers.many_files import Batch, File
from penstock.units import MiB
from tests.integration.uploading import ADVICE, credentials

CONFIGS = pytest.mark.parametrize(
    "config", [botocore.config.Config, aiobotocore.config.AioConfig], ids=lambda config: config.__name__
)
SESSION = boto3.Session(region_name="eu-west-1", **credentials())


def an_errand(given: Any, client_arguments: Mapping[str, Any] | None = None) -> Errand:
    return Errand(given, "bucket", "s3_upload", client_arguments=client_arguments)


def a_batch(store: str | None) -> Batch:
    return Batch([File("path", "key", MiB)], Advice({**ADVICE.document, "store": store}))


def test_a_client_that_is_given_is_used_as_it_is() -> None:
    """With its credentials, endpoint and configuration: nothing is made in its place."""
    client = SESSION.client("s3", endpoint_url="http://127.0.0.1:1")
    errand = an_errand(client)
    assert errand.given is client
    assert errand.options(botocore.config.Config, [a_batch("ceph")]) is None
    with pytest.raises(TypeError, match="a client was given"):
        an_errand(client, {"endpoint_url": "http://127.0.0.1:2"})
    client.close()


@CONFIGS
def test_a_session_makes_its_client_as_the_caller_says(config: type[Any]) -> None:
    """All that is his is kept but the pool, which is for the threads."""
    own = config(connect_timeout=7, max_pool_connections=3, request_checksum_calculation="when_supported")
    errand = an_errand(SESSION, {"endpoint_url": "http://127.0.0.1:1", "verify": False, "config": own})
    few, many = a_batch("ceph"), a_batch("ceph")
    few.thread_count, many.thread_count = 8, 64
    options = errand.options(config, [few, many])
    assert options is not None
    made = options.pop("config")
    assert options == {"endpoint_url": "http://127.0.0.1:1", "verify": False}
    assert isinstance(made, config)
    assert (made.connect_timeout, made.max_pool_connections) == (7, 64)
    assert made.request_checksum_calculation == "when_supported"
    assert own.max_pool_connections == 3


@CONFIGS
@pytest.mark.parametrize(("store", "told"), [("ceph", "when_required"), ("r2", None), (None, None)])
def test_a_store_that_refuses_checksums_is_sent_none(
    monkeypatch: pytest.MonkeyPatch, config: type[Any], store: str | None, told: str | None
) -> None:
    """By the client of a session, as by one that is made with the advised configuration."""
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION", raising=False)
    options = an_errand(SESSION).options(config, [a_batch(store)])
    assert options is not None
    assert options["config"].request_checksum_calculation == told
