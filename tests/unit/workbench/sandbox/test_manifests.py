"""YAML files become objects, or change those that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from proreus.base.errors import ConfigError
from proreus.workbench.sandbox import Sandbox
from proreus.workbench.sandbox.manifests import apply_file

OBJECTS = """
apiVersion: v1
kind: Node
metadata: {name: node-0, labels: {pool: gpu}}
status: {allocatable: {nvidia.com/gpu: "8"}}
---
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: late}, status: {allocatable: {cpu: "1"}}}
- {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}
"""


async def test_objects_are_created_or_patched(tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_text(OBJECTS)
    sandbox = Sandbox(1)
    applied = apply_file(sandbox.store, tmp_path / "objects.yaml")

    node = sandbox.store.get("nodes", "node-0").object()
    assert applied == ["node/node-0", "node/late", "pod/web"]
    assert node["metadata"]["labels"]["pool"] == "gpu"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "node-0"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["status"]["allocatable"]["cpu"] == "8"
    assert sandbox.store.get("nodes", "late").object()["status"]["allocatable"] == {"cpu": "1"}
    assert sandbox.store.get("pods", "web", "default").object()["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not YAML"),
        ("- 1", r"document 1: an object must be a mapping, not list"),
        (
            "{apiVersion: v1, kind: Noed}",
            "document 1: apiVersion 'v1', kind 'Noed': no such resour",
        ),
        ("{apiVersion: v1, kind: Node}", "document 1: metadata.name: Required value"),
        (OBJECTS + "---\n{apiVersion: v1, kind: Pod, metadata: {name: Not A Name}}", "document 4"),
    ],
)
async def test_errors_name_the_document(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_text(text)

    with pytest.raises(ConfigError, match=complaint):
        apply_file(Sandbox(1).store, tmp_path / "objects.yaml")


async def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        apply_file(Sandbox(1).store, tmp_path / "missing.yaml")
