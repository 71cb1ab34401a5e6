"""Sizes as an application may state them: text like everywhere else, and no nonsense ends a transfer."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.client import aiobotocore, awscrt, boto3, s3fs
from penstock.client.advice import Adviser
from penstock.client.lease import Lease
from penstock.client.sizes import read_size, size_or_none
from penstock.units import GiB, KiB, MiB, TiB, UnitError, parse_bytes
from tests.unit.client.test_in_process import an_advice

NONSENSE: list[Any] = [
    None,
    "big",
    "",
    "1GiB/s",
    "-1",
    -1,
    float("nan"),
    float("inf"),
    10**400,
    [8],
    {},
    object(),
]


@pytest.fixture(autouse=True)
def _no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs on this machine is not asked."""
    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "nobody.sock"))
    monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    "number", ["1", "0", "1.5", " 8 ", "007", "1.", ".5", "1.2.3", "", "x", "\u0663", "1e3", "-1"]
)
@pytest.mark.parametrize(
    "suffix",
    ["", "B", "K", "KB", "KiB", "m", "mb", " MiB", "G", "GB", "gib", "T", "TB", "TiB", "Ki", "i", "/s"],
)
def test_text_is_read_as_the_commands_read_it(number: str, suffix: str) -> None:
    """The client stands alone, so it has a reader of its own; it takes and refuses the same."""
    try:
        expected: int | None = parse_bytes(number + suffix)
    except UnitError:
        expected = None
    assert size_or_none(number + suffix) == expected


def test_any_kind_of_whole_number_is_a_size() -> None:
    """What NumPy and pandas count in is no reason to stop."""
    assert read_size(np.int64(MiB)) == read_size(float(MiB)) == read_size(MiB) == MiB


@pytest.mark.parametrize("stated", NONSENSE)
def test_nonsense_gets_what_the_sdk_does(stated: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Never an exception: not from the advice, and not from what is made of it."""
    adviser = Adviser()
    with caplog.at_level(logging.WARNING, "penstock.client"):
        advice = adviser.advise("s3_upload", stated)
        adviser.advise("s3_upload", stated)
    assert (advice.basis, advice.payload_size_bytes) == ("default", 0)
    assert [record.name for record in caplog.records] == ["penstock.client"]
    assert "is not a size: state bytes, or text such as 8MiB" in caplog.text
    config = boto3.transfer_config(stated)
    assert (config.max_concurrency, config.multipart_chunksize, config.multipart_threshold) == (
        10,
        8 * MiB,
        8 * MiB,
    )
    assert boto3.client_config(stated).max_pool_connections == 10
    assert aiobotocore.part_arguments(stated)["part_size_bytes"] == 8 * MiB
    assert awscrt.client_arguments(stated) == s3fs.put_arguments(stated) == {}
    assert Lease("s3_upload", stated).basis == "default"


@pytest.mark.parametrize("stated", NONSENSE)
def test_nonsense_beside_advice_is_left_aside(stated: Any) -> None:
    """What is advised for a size is told for that size."""
    config = boto3.transfer_config(stated, advice=an_advice())
    assert (config.max_concurrency, config.multipart_chunksize) == (24, 16 * MiB)


def test_text_is_a_size_to_every_adapter() -> None:
    """With a part size that its own number of parts forces, with and without advice."""
    for advice in (None, an_advice()):
        for text, size in (("1GiB", GiB), ("1 TiB", TiB), ("64k", 64 * KiB)):
            said, counted = (vars(boto3.transfer_config(s, advice=advice)) for s in (text, size))
            assert said == counted
            assert s3fs.put_arguments(text, advice=advice) == s3fs.put_arguments(size, advice=advice)
            assert aiobotocore.part_arguments(text, advice=advice) == aiobotocore.part_arguments(
                size, advice=advice
            )


def test_text_finds_the_advice_that_stands(tmp_path: Path) -> None:
    """The snapshot is searched by number, so a text is one before it is looked for."""
    snapshot = tmp_path / "recommendations.json"
    snapshot.write_text(json.dumps({"recommendations": [an_advice().document]}))
    adviser = Adviser(socket=str(tmp_path / "nobody.sock"), snapshot=str(snapshot))
    assert adviser.advise("s3_upload", "1GiB").basis == "measured"
    assert adviser.advise("s3_upload", "1GiB") is adviser.advise("s3_upload", GiB)


def test_a_demand_may_hold_anything(tmp_path: Path) -> None:
    """What cannot be a key of what is remembered is nonsense to the daemon, and no exception."""
    adviser = Adviser(socket=str(tmp_path / "nobody.sock"), snapshot=str(tmp_path / "none.json"))
    stated: Any = ["64MiB"]
    assert adviser.advise("s3_upload", GiB, memory_bytes_max=stated).basis == "default"
