"""Reading objects: every form of file, and errors that name file, object and field."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from proreus.base.errors import ConfigError
from proreus.base.kubernetes_version import V1_36
from proreus.insight.snapshots.object_files import read_cluster, read_documents
from proreus.objects.kinds import NODES, PODS
from proreus.objects.workloads import SERVICES

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]},
    "status": {"phase": "Pending", "conditions": None},
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n0"},
    "status": {"allocatable": {"cpu": "4", "pods": 110}},
}


def written(folder: Path, content: str | bytes, name: str = "dump") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_list_as_kubectl_prints_it(tmp_path: Path, indent: int | None, zipped: bool) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [POD, NODE]}, indent=indent)
    path = written(tmp_path, gzip.compress(text.encode()) if zipped else text)
    objects = read_cluster([path])
    assert list(objects.of(PODS)) == ["shop/web"]
    assert objects.of(NODES)["n0"].status.allocatable == {"cpu": "4", "pods": 110}


def test_the_list_of_an_apiserver_does_not_repeat_the_kind(tmp_path: Path) -> None:
    pod = {key: value for key, value in POD.items() if key not in ("kind", "apiVersion")}
    text = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [pod]})
    assert list(read_cluster([written(tmp_path, text)]).of(PODS)) == ["shop/web"]


def test_yaml_documents_and_lists_with_unquoted_times(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
apiVersion: v1
kind: Node
metadata: {name: n0, creationTimestamp: 2026-01-01T00:00:00Z}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: web}
  status: {conditions: [{type: Ready, lastTransitionTime: 2026-01-01T00:00:00Z}]}
""",
    )
    objects = read_cluster([path])
    assert objects.of(NODES)["n0"].metadata.creation_timestamp.year == 2026
    # As kubectl applies it: in the namespace "default".
    condition = objects.of(PODS)["default/web"].status.conditions[0]
    assert condition.last_transition_time == "2026-01-01T00:00:00Z"


def test_several_files_make_one_cluster(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, json.dumps(one), name) for one, name in ((POD, "pods"), (NODE, "nodes"))
    ]
    assert len(read_cluster(paths)) == 2


def test_the_version_of_a_snapshot(tmp_path: Path) -> None:
    content = {"kind": "List", "snapshot": {"kubernetesVersion": "1.36"}, "items": []}
    assert read_cluster([written(tmp_path, json.dumps(content))]).version == V1_36


def test_kinds_that_no_scheduler_reads_are_counted(tmp_path: Path) -> None:
    knative = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "s"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    objects = read_cluster([written(tmp_path, json.dumps({"items": [knative, secret, NODE]}))])
    assert objects.ignored == {"Service": 1, "Secret": 1}
    assert not objects.of(SERVICES)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            {"spec": {"containers": [{"resources": {"requests": {"cpu": "4x"}}}]}},
            r"items\[1\] \(Pod shop/web\): spec.containers\[0\].resources.requests.cpu: "
            r"quantity '4x' is not a number",
        ),
        (
            {"spec": {"containers": "none"}},
            r"items\[1\] \(Pod shop/web\): spec.containers: Expected `array`, got `str`",
        ),
        (
            {"spec": {"tolerations": [{"key": 5}]}},
            r"items\[1\] \(Pod shop/web\): spec.tolerations\[0\].key: Expected `str`, got `int`",
        ),
        ({"metadata": {"namespace": "shop"}}, r"metadata.name: a name is required"),
        ({"metadata": 5}, r"items\[1\] \(Pod\): metadata: Expected `object`, got `int`"),
        ({"kind": ""}, r"items\[1\]: kind: a kind is required"),
        ({"kind": 7}, r"items\[1\]: kind: Expected `str`, got `int`"),
    ],
)
@pytest.mark.parametrize("dump", [json.dumps, lambda data: "---\n" + json.dumps(data)])
def test_errors_name_file_object_and_field(tmp_path, change, error, dump) -> None:
    path = written(tmp_path, dump({"apiVersion": "v1", "items": [NODE, {**POD, **change}]}))
    with pytest.raises(ConfigError, match=error) as raised:
        read_cluster([path])
    assert str(path) in str(raised.value)


def test_a_node_with_a_bad_amount(tmp_path: Path) -> None:
    node = {**NODE, "status": {"allocatable": {"memory": "many"}}}
    with pytest.raises(ConfigError, match=r"Node n0\): status.allocatable.memory: quantity 'many'"):
        read_cluster([written(tmp_path, json.dumps(node))])


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "the file is empty"),
        (b"{", "Input data was truncated"),
        (b"\x1f\x8b\x08\x00garbage", "the gzip data is damaged"),
        (b"a: [", "neither JSON nor YAML"),
        (b"- one\n- two\n", "document 1 is not an object"),
        (b"just text", "document 1 is not an object"),
        (b"\xff\xfe\x00", "neither JSON nor YAML"),
        # libyaml's recursion would end the process.
        (b"kind: Pod\nspec: " + b"[" * 100_000, "nested deeper than 1,000 levels"),
        (b"- " * 50_000 + b"a", "nested deeper than 1,000 levels"),
        (b"a: &a [1]\nb: [" + b"*a, " * 60_000 + b"]", "line 2: document contains excessive al"),
        (b"kind: Pod\nspec: &a {b: *a}", "line 2: anchor 'a' value contains itself"),
        (gzip.compress(bytes(40_000_000)), "expands to more than 200 times its size"),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: bytes, error: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigError, match=error) as raised:
        read_cluster([path])
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="cannot read /nowhere: No such file"):
        read_cluster([Path("/nowhere")])


def test_half_a_surrogate_pair_becomes_a_replacement_character(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({**POD, "metadata": {"name": "a\ud800"}}))
    assert list(read_cluster([path]).of(PODS)) == ["default/a\ufffd"]
    [(_, obj)] = read_documents(path)
    assert obj["metadata"] == {"name": "a\ufffd"}


def test_documents_are_plain_and_have_their_place(tmp_path: Path) -> None:
    (place, obj), (_, other) = read_documents(
        written(tmp_path, "kind: Deployment\n---\nkind: Pod\napiVersion: v1\n")
    )
    assert place.endswith("dump, document 1")
    assert obj == {"apiVersion": "", "kind": "Deployment"}
    assert other["kind"] == "Pod"
