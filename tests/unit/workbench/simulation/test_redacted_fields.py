"""No text of any field of the API is left in a redacted snapshot, but words of the API itself.

The fields are those of the models that the ``kubernetes`` package generates from the OpenAPI
document. Each has a text or a time of its own; the object goes the way of ``snapshot --from``.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import models

from proreus.insight.snapshots.cluster_objects import READ_KINDS, ClusterObjects
from proreus.insight.snapshots.object_files import SnapshotInfo, read_cluster
from proreus.insight.snapshots.snapshot import KEPT_ANNOTATIONS, without_secrets, write_snapshot
from proreus.objects import Resource
from proreus.workbench.simulation.redaction import redact

TIME = "1987-06-05T04:03:02Z"
MAPS_OF_AMOUNTS = {
    *("requests", "limits", "allocatable", "capacity", "overhead", "resources", "hard", "used"),
    *("allocatedResources", "consumedCapacity", "nodeAllocatableResources"),
    "nodeAllocatableResourceMappings",
}
"""Maps whose keys are names of resources, which stay (docs/simulate.md)."""
RESOURCE_NAMES = {"extendedResourceName", "resourceName"}
DEEPEST = 12


@cache
def fields_of(model: str) -> tuple[tuple[str, str], ...]:
    """Return the JSON names and types of the fields of a model."""
    class_ = getattr(models, model)
    return tuple(
        (class_.attribute_map[name], type_) for name, type_ in class_.openapi_types.items()
    )


class Marked:
    """Makes objects with a marker in every field; ``texts``: their paths by marker."""

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}

    def text(self, path: str) -> str:
        marker = f"marker{len(self.paths)}x"
        self.paths[marker] = path
        return marker

    def object(self, model: str, path: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
        if above.count(model) > 1 or len(above) > DEEPEST:
            return {}
        return {
            name: self.value(type_, name, f"{path}.{name}", (*above, model))
            for name, type_ in fields_of(model)
            if name not in ("apiVersion", "kind") or above
        }

    def value(self, type_: str, name: str, path: str, above: tuple[str, ...]) -> Any:
        if found := re.fullmatch(r"List\[(.*)\]", type_):
            return [self.value(found[1], name, path, above)]
        if found := re.fullmatch(r"Dict\[str, (.*)\]", type_):
            amounts = name in MAPS_OF_AMOUNTS
            key = "example.com/foo" if amounts else self.text(f"{path} (key)")
            if amounts and found[1] == "str":
                return {key: "1"}
            return {key: self.value(found[1], name, path, above)}
        if hasattr(models, type_):
            return self.object(type_, path, above)
        return self.leaf(type_, name, path)

    def leaf(self, type_: str, name: str, path: str) -> Any:
        match type_:
            case "int" | "float":
                return 3
            case "bool":
                return True
            case "datetime":
                return TIME
            case "object":
                return {self.text(f"{path} (key)"): self.text(path)}
        return "example.com/foo" if name in RESOURCE_NAMES else self.text(path)


def model_of(kind: str, resource: Resource[Any]) -> str:
    """Return the model of the kind's version, or of the one before it."""
    before = [] if resource.until is None else [resource.until[1]]
    versions = [one.capitalize() for one in (resource.version, *before, "v1")]
    for name in (prefix + version + kind for version in versions for prefix in ("", "Resource")):
        if hasattr(models, name):
            return name
    raise AssertionError(f"no model of {kind}")


@pytest.mark.parametrize("kind", READ_KINDS)
def test_no_text_and_no_time_is_left(kind: str, tmp_path: Path) -> None:
    marked = Marked()
    resource = READ_KINDS[kind]
    obj = marked.object(model_of(kind, resource), kind)
    obj |= {"apiVersion": resource.api_version, "kind": kind}
    assert len(marked.paths) > 10
    path = tmp_path / "objects.json"
    path.write_text(json.dumps(obj))
    read = ClusterObjects()
    for found, one in read_cluster([path]):
        read.put(found, without_secrets(one, KEPT_ANNOTATIONS))
    assert len(read) == 1
    text = shown(read)
    before = {marked.paths[one] for one in re.findall(r"marker\d+x", text)}
    assert f"{kind}.metadata.name" in before
    left = {marked.paths[one] for one in re.findall(r"marker\d+x", shown(redact(read)))}
    assert left == set()
    assert "1987" not in shown(redact(read))


def test_names_that_configurations_use_stay(tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kube-secret-project", "namespace": "system-of-acme"},
        "spec": {
            "schedulerName": "default-scheduler",
            "nodeSelector": {"topology.kubernetes.io/zone": "a", "acme.k8s.io/team": "x1"},
            "containers": [
                {
                    "name": "c",
                    "ports": [{"name": "secret", "hostIP": "10.1.2.3", "hostPort": 80}],
                    "resources": {"requests": {"acme.com/gpu": "2"}},
                }
            ],
        },
    }
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod))
    text = shown(redact(read_cluster([path])))
    for kept in ("default-scheduler", "topology.kubernetes.io/zone", "acme.com/gpu"):
        assert kept in text
    for gone in ("secret", "kube-", "system-", "acme.k8s.io", "10.1.2.3", "x1"):
        assert gone not in text


def shown(objects: ClusterObjects) -> str:
    file = io.BytesIO()
    write_snapshot(objects, SnapshotInfo(), file)
    return gzip.decompress(file.getvalue()).decode()
