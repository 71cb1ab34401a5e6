"""Templates for an account allow what the policy allows, below the prefix of probes, and are valid by their tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.daemon.config import Configuration
from tests.programs import printed, ran

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "deploy/cloudformation.yaml"
MODULE = ROOT / "deploy/terraform"
POLICY: dict[str, Any] = json.loads((ROOT / "penstock/cli/systemd/iam-policy.json").read_text())
PREFIX = Configuration().probes.s3_upload.key_prefix


def actions(statements: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What each statement allows, by its name; the bucket that templates make is no directory bucket."""
    return {
        s["Sid"]: sorted([s["Action"]] if isinstance(s["Action"], str) else s["Action"])
        for s in statements
        if s["Sid"] != "ProbeDirectoryBucket"
    }


def test_cloudformation_allows_what_the_policy_allows() -> None:
    """Statement by statement, below the prefix that probes have by default."""
    resources = yaml.safe_load(TEMPLATE.read_text())["Resources"]
    document = resources["ProbePolicy"]["Properties"]["PolicyDocument"]
    assert actions(document["Statement"]) == actions(POLICY["Statement"])
    (rule,) = resources["ProbeBucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    assert rule["Prefix"] == PREFIX
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    assert f"/{PREFIX}*" in str(document)


def test_terraform_allows_what_the_policy_allows() -> None:
    """The same, read from its text: each statement has its name and its actions in this order."""
    text = (MODULE / "main.tf").read_text()
    found = re.findall(r'Sid\s+= "(\w+)".*?Action\s+= \[(.*?)\]', text, re.DOTALL)
    assert {sid: sorted(re.findall(r'"([^"]+)"', names)) for sid, names in found} == actions(
        POLICY["Statement"]
    )
    assert f'prefix = "{PREFIX}"' in text
    assert "days_after_initiation = 1" in text


@pytest.mark.real
def test_cloudformation_is_valid() -> None:
    """By the linter of AWS."""
    if shutil.which("cfn-lint") is None:
        pytest.skip("cfn-lint is not installed: pip install cfn-lint")
    assert printed(["cfn-lint", str(TEMPLATE)]) == ""


@pytest.mark.real
def test_terraform_is_valid(tmp_path: Path) -> None:
    """By Terraform itself, where the provider can be had."""
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not installed")
    shutil.copy(MODULE / "main.tf", tmp_path)
    assert subprocess.run(["terraform", "fmt", "-check"], cwd=tmp_path, check=False).returncode == 0
    ready = ran(["terraform", "init", "-backend=false"], cwd=tmp_path)
    if ready.returncode != 0:
        pytest.skip(f"the provider cannot be had: {ready.stderr[-200:]}")
    printed(["terraform", "validate"], cwd=tmp_path)
