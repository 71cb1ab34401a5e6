"""The daemon of a pod: nothing of the node, nothing but emptyDir, and memory for what it is configured to hold."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.daemon.config import Configuration
from penstock.daemon.config_files import load
from penstock.daemon.doctor import _DAEMON_BYTES
from penstock.units import parse_bytes
from tests.programs import ran

DEPLOY = Path(__file__).parents[3] / "deploy"
MANIFEST = DEPLOY / "sidecar.yaml"


@pytest.fixture
def documents() -> dict[str, dict[str, Any]]:
    """By their kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


def test_it_is_admitted_where_a_pod_may_have_nothing_of_its_node(
    documents: dict[str, dict[str, Any]],
) -> None:
    """The restricted standard of Pod Security, for both containers, and a read-only root for the daemon."""
    pod = documents["Pod"]["spec"]
    (daemon,), (application,) = pod["initContainers"], pod["containers"]
    assert daemon["restartPolicy"] == "Always"  # or the application would never begin
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (daemon, application):
        context = container["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all({"emptyDir", "configMap"} & volume.keys() for volume in pod["volumes"])
    assert daemon["securityContext"]["readOnlyRootFilesystem"] is True
    assert "cpu" not in daemon["resources"]["limits"]


def test_the_application_finds_it_where_every_client_looks(documents: dict[str, dict[str, Any]]) -> None:
    """The folder is one volume in both, and the daemon's user may write to it and to its own."""
    pod, places = documents["Pod"]["spec"], Configuration().daemon
    (daemon,), (application,) = pod["initContainers"], pod["containers"]
    (shared,) = application["volumeMounts"]
    assert shared["mountPath"] == places.runtime_directory
    assert {"name": shared["name"], "mountPath": places.runtime_directory} in daemon["volumeMounts"]
    written = {m["mountPath"] for m in daemon["volumeMounts"] if not m.get("readOnly")}
    assert written == {places.runtime_directory, places.state_directory, "/tmp"}  # noqa: S108 - in memory
    user = daemon["securityContext"]["runAsUser"]
    assert f"USER {user}:{pod['securityContext']['fsGroup']}" in (DEPLOY / "Containerfile").read_text()


def test_its_memory_is_enough_for_what_it_may_hold(
    documents: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """By the sum that `penstock doctor` makes; as it is, it answers and probes nothing."""
    (tmp_path / "penstock.toml").write_text(documents["ConfigMap"]["data"]["penstock.toml"])
    configuration = load(tmp_path / "penstock.toml", root=tmp_path).configuration
    assert not list(configuration.enabled())
    (daemon,) = documents["Pod"]["spec"]["initContainers"]
    limit = parse_bytes(daemon["resources"]["limits"]["memory"] + "B")
    assert limit >= _DAEMON_BYTES + configuration.probes.s3_upload.memory_bytes_max


@pytest.mark.real
def test_the_manifest_is_valid() -> None:
    """By the schemas of Kubernetes."""
    if shutil.which("kubernetes-validate") is None:
        pytest.skip("kubernetes-validate is not installed: pip install kubernetes-validate")
    judged = ran(["kubernetes-validate", "--strict", str(MANIFEST)])
    assert judged.returncode == 0, judged.stdout + judged.stderr
