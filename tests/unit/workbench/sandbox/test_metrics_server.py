"""metrics.k8s.io of the sandbox."""

import json
from typing import Any

import pytest

from proreus.workbench.sandbox.cluster import make_node
from proreus.workbench.sandbox.metrics_server import CPU_USAGE, MEMORY_USAGE, FakeMetricsServer
from proreus.workbench.sandbox.requests import ApiRequest
from proreus.workbench.sandbox.reviews import Users
from proreus.workbench.sandbox.server import ApiServer, ApiServerResponse
from proreus.workbench.sandbox.store import Store

METRICS = "/apis/metrics.k8s.io/v1beta1"


@pytest.fixture
def api(store: Store) -> ApiServer:
    return ApiServer(store, Users({"secret": "somebody"}), FakeMetricsServer(store, 0.25))


def ask(api: ApiServer, target: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    answer = api.handle(ApiRequest(method, target, {"Authorization": "Bearer secret"} | headers))
    assert isinstance(answer, ApiServerResponse)
    return answer.code, json.loads(answer.body)


def run_pod(store: Store, name: str, node: str, *cpu: str, **metadata: Any) -> None:
    containers = [
        {"name": f"c{n}", "image": "i", "resources": {"requests": {"cpu": each, "memory": "1Gi"}}}
        for n, each in enumerate(cpu)
    ]
    pod = {
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": node, "containers": containers},
    }
    version = store.create("pods", pod, "default")
    store.write("pods", version.object() | {"status": {"phase": "Running"}})


def annotate(store: Store, plural: str, name: str, namespace: str = "", **annotations: str) -> None:
    patch = {"metadata": {"annotations": annotations}}
    store.patch(plural, name, patch, namespace)


def test_a_node_uses_what_its_running_pods_use(api: ApiServer, store: Store) -> None:
    for name in ("a", "b"):
        store.create("nodes", make_node(name))
    run_pod(store, "p", "a", "1", "200m")
    run_pod(store, "q", "a", "400m")
    run_pod(store, "waits", "", "4")
    store.patch("pods", "waits", {"status": {"phase": "Pending"}}, "default", subresource="status")
    code, listing = ask(api, f"{METRICS}/nodes")
    assert (code, listing["kind"]) == (200, "NodeMetricsList")
    found = {item["metadata"]["name"]: item["usage"] for item in listing["items"]}
    assert found == {
        "a": {"cpu": "400000000n", "memory": "786432Ki"},
        "b": {"cpu": "0n", "memory": "0Ki"},
    }
    node = ask(api, f"{METRICS}/nodes/a")[1]
    assert (node["timestamp"], node["window"]) == ("1970-01-12T13:46:40Z", "10s")
    assert ask(api, f"{METRICS}/nodes/none")[0] == 404
    store.delete("pods", "p", "default", grace_seconds=0)
    assert ask(api, f"{METRICS}/nodes/a")[1]["usage"]["cpu"] == "100000000n"


def test_annotations_override_usage(api: ApiServer, store: Store) -> None:
    store.create("nodes", make_node("a"))
    run_pod(store, "p", "a", "1", "1")
    annotate(store, "pods", "p", "default", **{CPU_USAGE: "3"})
    assert ask(api, f"{METRICS}/nodes/a")[1]["usage"]["cpu"] == "3000000000n"
    annotate(store, "nodes", "a", **{CPU_USAGE: "3500m", MEMORY_USAGE: "2Gi"})
    usage = ask(api, f"{METRICS}/nodes/a")[1]["usage"]
    assert usage == {"cpu": "3500000000n", "memory": "2097152Ki"}
    annotate(store, "nodes", "a", **{CPU_USAGE: "none"})
    assert ask(api, f"{METRICS}/nodes")[1]["items"] == []
    annotate(store, "nodes", "a", **{CPU_USAGE: "much"})
    code, status = ask(api, f"{METRICS}/nodes")
    assert code == 500
    assert status["message"].startswith(f"annotation {CPU_USAGE} of node \"a\": quantity 'much'")


def test_pods_by_label_and_namespace(api: ApiServer, store: Store) -> None:
    store.create("nodes", make_node("a"))
    run_pod(store, "p", "a", "1", "200m", labels={"app": "x"})
    run_pod(store, "q", "a", "400m")
    items = ask(api, f"{METRICS}/namespaces/default/pods?labelSelector=app%3Dx")[1]["items"]
    assert [(item["metadata"]["name"], item["containers"]) for item in items] == [
        (
            "p",
            [
                {"name": "c0", "usage": {"cpu": "250000000n", "memory": "262144Ki"}},
                {"name": "c1", "usage": {"cpu": "50000000n", "memory": "262144Ki"}},
            ],
        )
    ]
    assert ask(api, f"{METRICS}/namespaces/other/pods")[1]["items"] == []


def test_metrics_are_read_only(api: ApiServer, store: Store) -> None:
    store.create("nodes", make_node("a"))
    groups = {group["name"]: group for group in ask(api, "/apis")[1]["groups"]}
    assert groups["metrics.k8s.io"]["preferredVersion"]["version"] == "v1beta1"
    resources = ask(api, METRICS)[1]["resources"]
    found = {entry["name"]: (entry["kind"], entry["verbs"]) for entry in resources}
    assert found == {
        "nodes": ("NodeMetrics", ["get", "list"]),
        "pods": ("PodMetrics", ["get", "list"]),
    }
    assert ask(api, f"{METRICS}/nodes?watch=1")[0] == 405
    assert ask(api, f"{METRICS}/nodes/a", "DELETE")[0] == 405
    table = ask(api, f"{METRICS}/nodes", Accept="application/json;as=Table")[1]
    assert table["rows"][0]["cells"] == ["a", "0m", "0Mi", "10s"]
