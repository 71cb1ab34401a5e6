"""What is skipped of botocore's files is needed by no probe."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import botocore
import pytest
from botocore import xform_name

from penstock.probes import aws
from penstock.probes.aws import files

DATA = Path(botocore.__file__).parent / "data"


def test_every_request_that_probes_make_is_described() -> None:
    """A method that is called on a client, or paged through, is of an operation that is read."""
    source = "".join(file.read_text(encoding="utf-8") for file in Path(aws.__path__[0]).glob("*.py"))
    called = set(re.findall(r'_client\.(?:get_paginator\("(\w+)"|(\w+)\()', source))
    names = {paged or method for paged, method in called} - {"get_paginator"}
    assert len(names) > 15
    assert names <= {xform_name(operation) for operation in files._OPERATIONS}


@pytest.mark.parametrize("service", ["s3", "sqs"])
def test_every_shape_that_is_referred_to_is_there(service: str) -> None:
    """And each is as botocore has it."""
    [path] = (DATA / service).glob("*/service-2.json.gz")
    text = gzip.decompress(path.read_bytes())
    lean, whole = files.service(text), json.loads(text)
    assert set(files._shape_names(lean)) <= lean["shapes"].keys()
    assert all(whole["shapes"][name] == shape for name, shape in lean["shapes"].items())
    assert lean["metadata"] == whole["metadata"]


def test_every_partition_keeps_what_is_said_of_the_services() -> None:
    """Regions, suffixes and the rows of the few services are as botocore has them."""
    text = (DATA / "endpoints.json").read_bytes()
    lean, whole = files.endpoints(text), json.loads(text)
    for kept, had in zip(lean["partitions"], whole["partitions"], strict=True):
        assert kept["regions"] == had["regions"]
        assert all(had["services"][name] == row for name, row in kept["services"].items())
    assert {"s3", "sqs", "sts"} <= lean["partitions"][0]["services"].keys()
