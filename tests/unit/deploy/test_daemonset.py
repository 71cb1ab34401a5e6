"""The container and the daemon of a node: no rights, a read-only root, and the places of the defaults."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.daemon.config import Configuration
from penstock.daemon.config_files import load
from tests.programs import printed

DEPLOY = Path(__file__).parents[3] / "deploy"
MANIFEST = DEPLOY / "daemonset.yaml"


@pytest.fixture
def documents() -> dict[str, dict[str, Any]]:
    """By their kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


def test_the_daemon_has_no_rights_and_writes_to_its_folders_alone(
    documents: dict[str, dict[str, Any]],
) -> None:
    """Not root, nothing to gain, a root that is read-only; the one that gives the folders away may do that alone."""
    pod = documents["DaemonSet"]["spec"]["template"]["spec"]
    (daemon,), (folders,) = pod["containers"], pod["initContainers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in (daemon, folders):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert "add" not in daemon["securityContext"]["capabilities"]
    assert folders["securityContext"]["capabilities"]["add"] == ["CHOWN", "FOWNER"]
    assert "cpu" not in daemon["resources"]["limits"]
    written = {m["mountPath"] for m in daemon["volumeMounts"] if not m.get("readOnly")}
    places = Configuration().daemon
    assert written == {places.runtime_directory, places.state_directory, "/tmp"}  # noqa: S108 - in memory


def test_its_configuration_is_one(documents: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """Valid as it is: it answers, and probes nothing."""
    (name,) = documents["ConfigMap"]["data"]
    (tmp_path / name).write_text(documents["ConfigMap"]["data"][name])
    assert load(tmp_path / name, root=tmp_path).configuration == Configuration()


def test_image_and_manifest_name_the_same_user(documents: dict[str, dict[str, Any]]) -> None:
    """By its number, which needs no list of users."""
    user = documents["DaemonSet"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    recipe = (DEPLOY / "Containerfile").read_text()
    assert f"USER {user}:{user}" in recipe
    assert f"--uid {user} " in recipe


@pytest.mark.real
def test_the_manifest_is_valid() -> None:
    """By the schemas of Kubernetes."""
    if shutil.which("kubernetes-validate") is None:
        pytest.skip("kubernetes-validate is not installed: pip install kubernetes-validate")
    printed(["kubernetes-validate", "--strict", str(MANIFEST)])
