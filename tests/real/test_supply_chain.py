"""What the daemon's environment is made of, as a document that tools read, and what is known against it."""

from __future__ import annotations

import json
import subprocess

import pytest

from distribution.build import PROJECT
from tests.programs import ran

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def chore(name: str) -> subprocess.CompletedProcess[str]:
    """A word of the Makefile, whose tools come from a registry."""
    done = ran(["make", "-s", name], cwd=PROJECT)
    if "Failed to fetch" in done.stderr:
        pytest.skip(f"no registry can be reached: {done.stderr[-300:]}")
    return done


def test_the_bill_of_materials_names_what_is_locked() -> None:
    """Each with its version and hashes; the chore holds it to CycloneDX's schema."""
    done = chore("sbom")
    assert done.returncode == 0, done.stderr
    made = PROJECT / "dist/penstock.cdx.json"
    components = {c["name"]: c for c in json.loads(made.read_text())["components"]}
    locked = [line for line in (PROJECT / "locks/runtime.txt").read_text().splitlines() if "==" in line]
    names = {line.partition("==")[0] for line in locked}
    assert names <= components.keys()
    assert all(components[name]["version"] for name in names)


def test_nothing_is_known_against_what_is_locked() -> None:
    """Where the registry tells of vulnerabilities; a mirror without them is none to ask."""
    done = chore("audit")
    if "could not be audited" in done.stderr:
        pytest.skip("this registry tells of no vulnerabilities")
    assert done.returncode == 0, done.stdout + done.stderr
