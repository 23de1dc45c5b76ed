"""The file of a snapshot: what is in it, what is not, and that it can be read again."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.insight.snapshots.object_files import SnapshotInfo, read_cluster
from proreus.insight.snapshots.snapshot import encoded, without_secrets, write_snapshot
from proreus.objects.codec import decoder_for
from proreus.objects.devices import DEVICE_CLASSES
from proreus.objects.kinds import PODS
from proreus.objects.meta import Resource
from proreus.objects.resource_claims import RESOURCE_CLAIMS
from proreus.workbench.cli.snapshot import command

SECRET = "hunter2"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "labels": {"app": "front"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": SECRET,
            "vault": SECRET,
            "kubernetes.io/config.mirror": "kept",
        },
    },
    "spec": {
        "containers": [
            {
                "name": "app",
                "args": [SECRET],
                "command": [SECRET],
                "env": [{"name": "PASSWORD", "value": SECRET}],
                "envFrom": [{"secretRef": {"name": SECRET}}],
                "resources": {"requests": {"cpu": "1"}},
            }
        ],
        "volumes": [
            {"name": "one", "secret": {"secretName": SECRET}},
            {"name": "two", "configMap": {"name": SECRET}},
            {"name": "three", "ephemeral": {"volumeClaimTemplate": {"metadata": SECRET}}},
            {"name": "four", "persistentVolumeClaim": {"claimName": "data"}},
        ],
        "imagePullSecrets": [{"name": SECRET}],
    },
}
OPAQUE = {"opaque": {"driver": "gpu.example.com", "parameters": {"token": SECRET}}}


def typed(resource: Resource[Any], obj: dict[str, Any]) -> Any:
    return decoder_for(resource.type).convert(obj)


def test_env_secrets_and_foreign_annotations_are_left_out() -> None:
    pod = without_secrets(typed(PODS, POD))
    assert SECRET.encode() not in encoded(PODS, pod)
    assert pod.metadata.annotations == {"kubernetes.io/config.mirror": "kept"}
    # Their types stay, for plugins that ask which volumes a pod has.
    assert pod.spec.volumes[0].secret == {}
    assert pod.spec.volumes[1].config_map == {}
    assert pod.spec.volumes[2].ephemeral is not None
    assert pod.spec.volumes[3].persistent_volume_claim.claim_name == "data"


def test_annotations_that_plugins_read_can_be_kept() -> None:
    pod = without_secrets(typed(PODS, POD), frozenset({"vault"}))
    assert list(pod.metadata.annotations) == ["vault"]


def test_parameters_of_drivers_are_left_out() -> None:
    claim = typed(
        RESOURCE_CLAIMS,
        {
            "metadata": {"name": "c", "namespace": "shop"},
            "spec": {"devices": {"config": [OPAQUE], "requests": [{"name": "gpu"}]}},
            "status": {"allocation": {"devices": {"config": [OPAQUE]}}},
        },
    )
    device_class = typed(
        DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"config": [OPAQUE]}}
    )
    for resource, obj in ((RESOURCE_CLAIMS, claim), (DEVICE_CLASSES, device_class)):
        assert SECRET.encode() in encoded(resource, obj)
        assert SECRET.encode() not in encoded(resource, without_secrets(obj))
    assert without_secrets(claim).spec.devices.requests[0].name == "gpu"


def test_a_written_snapshot_can_be_read_and_written_again(tmp_path: Path) -> None:
    source = tmp_path / "dump.json"
    source.write_text(json.dumps({"items": [POD]}))
    files = []
    for _ in range(2):
        file = io.BytesIO()
        write_snapshot(read_cluster([source]), SnapshotInfo(kubernetes_version="1.37"), file)
        files.append(file.getvalue())
    assert files[0] == files[1]
    written = tmp_path / "snapshot"
    written.write_bytes(files[0])
    again = read_cluster([written])
    assert str(again.version) == "1.37"
    assert again.of(PODS) == read_cluster([source]).of(PODS)


def test_an_empty_cluster_is_valid_json() -> None:
    import gzip

    file = io.BytesIO()
    write_snapshot(ClusterObjects(), SnapshotInfo(), file)
    assert json.loads(gzip.decompress(file.getvalue()))["items"] == []


@pytest.mark.parametrize("flags", [[], ["--redact"], ["--redact", "--keep-label", "app"]])
def test_the_command_makes_a_snapshot_of_a_dump(tmp_path: Path, flags: list[str]) -> None:
    source, target = tmp_path / "dump.json", tmp_path / "cluster.json.gz"
    secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": SECRET}}
    source.write_text(json.dumps({"items": [POD, secret]}))
    result = CliRunner().invoke(command, ["--from", str(source), "--output", str(target), *flags])
    assert result.exit_code == 0, result.output
    assert "0 nodes, 1 pods, 1 objects" in result.stderr
    (pod,) = read_cluster([target]).of(PODS).values()
    assert (pod.metadata.name == "web") == (not flags)
    assert (pod.metadata.labels == {"app": "front"}) == (flags != ["--redact"])
